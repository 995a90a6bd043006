//! Which connections a capture has, and which segments are kept.

use super::{
    super::made::{ACK, Made, SYN, ends},
    *,
};

fn all(segments: &[Segment], wanted: Wanted) -> Connections {
    let mut connections = Connections::new(wanted);
    for segment in segments {
        connections.take(segment);
    }
    connections
}

/// Between other ports.
fn moved(segments: &[Segment], by: u16) -> Vec<Segment> {
    let mut moved = segments.to_vec();
    for segment in &mut moved {
        for end in [&mut segment.from, &mut segment.to] {
            if end.port() != 80 {
                end.set_port(end.port() + by);
            }
        }
    }
    moved
}

#[test]
fn connections_are_listed_in_their_order() {
    let mut made = Made::begun(1, 2, [None; 2]);
    made.sent(20_000, 1, 100);
    made.sent(50_000, 1, 100);
    made.add(60_000, Side::Server, 1, Some(101), 7);
    let mut segments = made.segments.clone();
    segments.extend(moved(&made.segments, 1));
    let connections = all(&segments, Wanted::None);
    let rows: Vec<Value> = connections
        .all()
        .iter()
        .map(|connection| connection.facts(Duration::from_secs(1_700_000_000)))
        .collect();
    assert_eq!(rows.len(), 2);
    let expected = json!({
        "connection": 2, "client": "10.0.0.1:40001", "server": "10.0.0.2:80",
        "begin_s": 0.0, "duration_s": 0.06, "client_segments": 4, "client_bytes": 200,
        "server_segments": 2, "server_bytes": 7,
        "client_retransmissions": 1, "server_retransmissions": 0, "handshake": true,
    });
    assert_eq!(rows[1], expected);
    assert_eq!(
        connections.all()[0].round_trip(),
        Some(Duration::from_millis(10))
    );
    assert_eq!(connections.all()[0].busier(), Side::Client);
    assert!(connections.into_wanted().is_none());
}

#[test]
fn another_syn_between_the_same_ends_is_another_connection() {
    let first = Made::begun(1, 2, [None; 2]).segments;
    // The SYN once more, and the same connection seen from its middle on, are not.
    let again = [&first[..1], &first].concat();
    assert_eq!(all(&again, Wanted::None).all().len(), 1);
    let second = Made::begun(1_000_000, 7, [None; 2]).segments;
    let both = [first.clone(), second.clone()].concat();
    let connections = all(&both, Wanted::Number(2));
    assert_eq!(connections.all().len(), 2);
    let (connection, kept) = connections.into_wanted().expect("the second");
    assert_eq!((connection.number, kept.len()), (2, 3));
    assert_eq!(kept[0].header.seq, 1_000_000);
    // Behind segments without a handshake too.
    let late = [&first[2..], &second].concat();
    assert_eq!(all(&late, Wanted::None).all().len(), 2);
    // A SYN whose answer was seen before it is the same one.
    let mut turned = first.clone();
    turned.swap(0, 1);
    let turned = all(&turned, Wanted::None);
    assert_eq!(turned.all().len(), 1);
    assert_eq!(turned.all()[0].client, ends().0);
}

#[test]
fn client_without_handshake_is_a_guess() {
    let mut made = Made::new(1, 2);
    made.add(0, Side::Server, 1, Some(1), 10);
    let connections = all(&made.segments, Wanted::None);
    let connection = &connections.all()[0];
    assert_eq!((connection.client, connection.is_begun), (ends().0, false));
    let mut made = Made::new(1, 2);
    made.add(0, Side::Server, 0, Some(1), 0).flags = SYN.with(ACK, true);
    for segment in &mut made.segments {
        segment.from.set_port(60_000);
    }
    let connections = all(&made.segments, Wanted::None);
    assert_eq!(
        connections.all()[0].client,
        ends().0,
        "the SYN's answer tells"
    );
}

#[test]
fn wanted_ones_are_kept() {
    let first = Made::begun(1, 2, [None; 2]).segments;
    let second = moved(&first, 1);
    let both = [first, second].concat();
    let (client, server) = ends();
    let other: SocketAddr = "10.0.0.1:40001".parse().expect("an address");
    let kept = |wanted| {
        let found = all(&both, wanted).into_wanted();
        found.map(|(connection, kept)| (connection.number, kept.len()))
    };
    assert_eq!(kept(Wanted::Only), Some((1, 3)));
    assert_eq!(kept(Wanted::Number(2)), Some((2, 3)));
    assert_eq!(kept(Wanted::Ends(server, client)), Some((1, 3)));
    assert_eq!(kept(Wanted::Ends(other, server)), Some((2, 3)));
    assert_eq!(kept(Wanted::Number(3)), None);
    assert_eq!(kept(Wanted::Ends(client, other)), None);
}

#[test]
fn what_is_kept_has_bounds() {
    let made = Made::begun(1, 2, [None; 2]);
    let mut connections = Connections::limited(Wanted::Number(2), 2, 2);
    for by in 0..5 {
        for segment in moved(&made.segments, by) {
            connections.take(&segment);
        }
    }
    assert_eq!(connections.all().len(), 2);
    assert_eq!((connections.beyond, connections.left_out), (9, 1));
    assert_eq!(connections.into_wanted().expect("it").1.len(), 2);
}
