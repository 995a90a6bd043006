//! What a socket tells of its sends (MSG_ERRQUEUE): time stamps of a stream's bytes and of datagrams, zero-copy sends that are done.

use std::{io::IoSlice, time::Duration};

use netchan::{
    link::wire,
    socket::{Kind, Notice, Readiness, SendInfo, Socket, Stamp, StampRequest},
};

use super::{World, receive, send};

const ALL: StampRequest = StampRequest {
    scheduled: true,
    sent: true,
    acknowledged: true,
    with_id: true,
    id: None,
    with_packet: false,
};

fn far() -> World {
    let wire = wire::Options {
        delay: Duration::from_millis(5),
        ..wire::Options::default()
    };
    World::over(&wire, |builder| builder)
}

/// The stamps that are there, in order: what, and of which byte or datagram. None is older than the test is.
fn stamps(socket: &Socket) -> Vec<(Stamp, u32)> {
    let next = || match socket.take_notice()? {
        Notice::Stamp { stamp, id, age } => {
            assert!(age < Duration::from_secs(5));
            Some((stamp, id))
        }
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(next).collect()
}

fn has_error(socket: &Socket) -> bool {
    socket.readiness().contains(Readiness::ERROR)
}

/// SOF_TIMESTAMPING_OPT_ID: the place of the send's last byte.
#[test]
fn a_sends_last_byte_leaves_and_is_acknowledged() {
    let world = far();
    let (client, server) = world.pair(&[]);
    assert_eq!(client.take_notice(), None);
    client.number_stamps(true);
    for last in [999, 1999] {
        assert_eq!(send(&client, &[7; 1000]), Ok(1000));
        client.stamp_send(ALL);
        world.settle();
        assert!(has_error(&client));
        let left = [(Stamp::Scheduled, last), (Stamp::Sent, last)];
        assert_eq!(stamps(&client), left);
        assert!(!has_error(&client));
        world.pass(Duration::from_millis(4));
        assert_eq!(stamps(&client), [], "it is under way");
        world.pass(Duration::from_millis(80));
        assert!(has_error(&client));
        assert_eq!(stamps(&client), [(Stamp::Acknowledged, last)]);
        assert_eq!(receive(&server, 9_000).unwrap().len(), 1000);
    }
    // From here, and without a number.
    client.number_stamps(false);
    for (with_id, id) in [(true, 9), (false, 0)] {
        assert_eq!(send(&client, &[7; 10]), Ok(10));
        client.stamp_send(StampRequest { with_id, ..ALL });
        world.pass(Duration::from_millis(80));
        let all = [Stamp::Scheduled, Stamp::Sent, Stamp::Acknowledged];
        assert_eq!(stamps(&client), all.map(|stamp| (stamp, id)));
    }
}

/// Numbers count from the first byte that is not acknowledged, or from the next to be written.
#[test]
fn numbers_begin_where_they_are_asked_to() {
    for (from_end, id) in [(false, 399), (true, 99)] {
        let world = far();
        let (client, _server) = world.pair(&[]);
        client.number_stamps(true);
        assert_eq!(send(&client, &[7; 200]), Ok(200));
        world.pass(Duration::from_millis(80)); // acknowledged
        assert_eq!(send(&client, &[7; 300]), Ok(300));
        client.number_stamps(from_end);
        assert_eq!(send(&client, &[7; 100]), Ok(100));
        let sent = true;
        let with_id = true;
        client.stamp_send(StampRequest {
            sent,
            with_id,
            ..StampRequest::default()
        });
        world.pass(Duration::from_millis(80));
        assert_eq!(
            stamps(&client),
            [(Stamp::Sent, id)],
            "from the end: {from_end}"
        );
    }
}

/// What the peer's window holds back has not left.
#[test]
fn text_that_waits_has_no_stamps() {
    let world = far();
    let (client, server) = world.pair(&[]);
    client.number_stamps(true);
    let mut sent = 0;
    while let Ok(n) = send(&client, &[7; 50_000]) {
        sent += n;
        client.stamp_send(ALL);
        world.pass(Duration::from_millis(50));
        assert!(sent < 100 << 20, "the receiver's buffer has an end");
    }
    let last = u32::try_from(sent - 1).unwrap();
    let told = stamps(&client);
    assert!(told.len() > 2 && told.iter().all(|(_, id)| *id < last));
    let mut read = 0;
    while read < sent {
        read += receive(&server, 1 << 20).map_or(0, |text| text.len());
        world.pass(Duration::from_millis(50));
    }
    world.pass(Duration::from_millis(300));
    let told = stamps(&client);
    let of_last = told.iter().filter(|(_, id)| *id == last);
    let of_last: Vec<_> = of_last.map(|(stamp, _)| *stamp).collect();
    assert_eq!(
        of_last,
        [Stamp::Scheduled, Stamp::Sent, Stamp::Acknowledged]
    );
}

#[test]
fn zero_copy_sends_are_told_of_as_ranges() {
    let world = World::plain();
    let (client, _server) = world.pair(&[]);
    let datagram = datagram(&world);
    for socket in [&client, &datagram] {
        assert!(!has_error(socket) && socket.take_notice().is_none());
        for (count, first, last) in [(3, 0, 2), (1, 3, 3)] {
            (0..count).for_each(|_| socket.complete_zero_copy());
            assert!(has_error(socket));
            assert_eq!(socket.take_notice(), Some(Notice::ZeroCopy { first, last }));
            assert!(!has_error(socket) && socket.take_notice().is_none());
        }
    }
}

fn datagram(world: &World) -> Socket {
    let socket = world.socket(0, Kind::Datagram);
    socket.bind("10.0.0.1:900".parse().unwrap()).unwrap();
    socket.connect("10.0.0.2:9".parse().unwrap()).unwrap();
    socket
}

fn lost(world: &World) -> u64 {
    let rows = world.nets[0].show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "drop_udp_error_queue_full");
    row.unwrap()["value"].as_u64().unwrap()
}

fn send_stamped(socket: &Socket, text: &[u8], stamps: StampRequest) {
    let info = SendInfo {
        stamps,
        ..SendInfo::default()
    };
    let sent = socket.send_message(&[IoSlice::new(text)], None, &info);
    assert_eq!(sent.unwrap(), text.len());
}

/// Datagrams are numbered one by one, and not acknowledged.
#[test]
fn datagrams_have_numbers() {
    let world = World::plain();
    let socket = datagram(&world);
    let stamp_send = |stamps| send_stamped(&socket, b"text", stamps);
    let numbered = |id| [(Stamp::Scheduled, id), (Stamp::Sent, id)];
    for id in [0, 1] {
        stamp_send(ALL);
        assert!(has_error(&socket));
        assert_eq!(stamps(&socket), numbered(id));
    }
    let with_id = false;
    stamp_send(StampRequest { with_id, ..ALL });
    assert_eq!(stamps(&socket), numbered(0), "it has none");
    let id = Some(77);
    stamp_send(StampRequest { id, ..ALL });
    assert_eq!(stamps(&socket), numbered(77), "its own");
    let (scheduled, acknowledged) = (false, true);
    stamp_send(StampRequest {
        scheduled,
        acknowledged,
        ..ALL
    });
    assert_eq!(stamps(&socket), [(Stamp::Sent, 2)]);
    socket.number_stamps(false);
    stamp_send(ALL);
    assert_eq!(stamps(&socket), numbered(0), "from the start");
    // What was not sent is not told of, and has no number.
    let info = SendInfo {
        stamps: ALL,
        ..SendInfo::default()
    };
    let refused = socket.send_message(&[IoSlice::new(&[0; 70_000])], None, &info);
    assert!(refused.is_err() && stamps(&socket).is_empty());
    stamp_send(ALL);
    assert_eq!(stamps(&socket), numbered(1));
}

/// The packet as it left, of many datagrams of one send the first; what there is no room for is counted.
#[test]
fn a_stamp_shows_its_packet() {
    let world = World::plain();
    let socket = datagram(&world);
    let request = StampRequest {
        with_packet: true,
        ..ALL
    };
    for (text, segment, first) in [(&b"text"[..], 0, &b"text"[..]), (b"abcdefgh", 3, b"abc")] {
        let info = SendInfo {
            stamps: request,
            ..SendInfo::segmented(segment)
        };
        let sent = socket.send_message(&[IoSlice::new(text)], None, &info);
        assert_eq!(sent.unwrap(), text.len());
        for _ in 0..2 {
            let (_, packet) = socket.take_notice_with_packet().unwrap();
            let packet = packet.unwrap();
            let (header, ip) = packet.frame.split_at(14);
            assert_eq!(header[12..], [8, 0]);
            assert_eq!(ip[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
            assert_eq!(ip[28..], *first);
            assert_eq!(packet.source.to_string(), "10.0.0.1");
            assert_eq!(packet.info.destination.to_string(), "10.0.0.2:9");
        }
        assert!(socket.take_notice().is_none());
    }
    let before = lost(&world);
    // One without a packet has room still.
    let count = 200;
    for _ in 0..count {
        send_stamped(&socket, &[7; 1400], request);
    }
    send_stamped(&socket, b"x", ALL);
    let told = std::iter::from_fn(|| socket.take_notice()).count();
    let whole = 14 + 28 + 1400;
    assert_eq!(told, 2 * (66 << 10) / whole + 2);
    assert_eq!(lost(&world) - before, 2 * count + 2 - told as u64);
}
