//! What is left to a link that cuts: long text and many datagrams in one packet, and what is cut here all the same.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::Mutex,
};

use super::*;
use crate::{
    Doorbell,
    link::{IP_MAX, LinkError, LinkTx, Properties, Queue, Segmentation, TxStatistics},
    socket::{SocketOption, UdpOption},
};

/// What went out: a packet from its IP header on, and how long the pieces are to be that it is cut into.
pub type Sent = Arc<Mutex<Vec<(Vec<u8>, u16)>>>;

/// A wire that says it cuts: what is to be cut is kept and goes no further.
struct Cutter {
    wire: Box<dyn Link>,
    properties: Properties,
    sent: Sent,
}

struct CutterTx {
    wire: Box<dyn LinkTx>,
    sent: Sent,
}

impl Link for Cutter {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let queues = self.wire.start(bells)?.into_iter();
        let tx = |wire| CutterTx {
            wire,
            sent: self.sent.clone(),
        };
        Ok(queues
            .map(|queue| Queue {
                rx: queue.rx,
                tx: Box::new(tx(queue.tx)),
            })
            .collect())
    }
}

impl LinkTx for CutterTx {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let before = frames.len();
        let mut sent = self.sent.lock().unwrap();
        for frame in &*frames {
            sent.push((frame.bytes()[14..].to_vec(), frame.meta.segment));
        }
        frames.retain(|frame| frame.meta.segment == 0);
        let cut = before - frames.len();
        Ok(cut + self.wire.transmit(now, frames)?)
    }

    fn statistics(&self) -> TxStatistics {
        self.wire.statistics()
    }
}

pub fn world(segmentation: Segmentation) -> (World, Sent) {
    let (a, b) = wire::pair(&wire::Options::default());
    let sent = Sent::default();
    let mut properties = a.properties().clone();
    properties.segmentation = segmentation;
    let cutter = Cutter {
        wire: Box::new(a),
        properties,
        sent: sent.clone(),
    };
    let world = World::of([Box::new(cutter), Box::new(b)], |builder| builder);
    // The neighbour is asked for first.
    let socket = world.socket(0, Kind::Datagram);
    send(&socket, b"who", Some(to("10.0.0.2:9"))).unwrap();
    let socket = Socket::new(&world.nets[0], Domain::V6, Kind::Datagram).unwrap();
    send(&socket, b"who", Some(to("[fd77::2]:9"))).unwrap();
    world.pass(5);
    sent.lock().unwrap().clear();
    (world, sent)
}

pub fn take(sent: &Sent) -> Vec<(Vec<u8>, u16)> {
    std::mem::take(&mut *sent.lock().unwrap())
}

const CUTS_ALL: Segmentation = Segmentation::Offloaded { datagrams: true };

/// A socket of the first host that sends datagrams of 100 bytes, many at a time.
fn writer(world: &World, domain: Domain) -> Socket {
    let writer = Socket::new(&world.nets[0], domain, Kind::Datagram).unwrap();
    let option = SocketOption::Udp(UdpOption::Segment(100));
    writer.set_option(option).unwrap();
    writer
}

const V4: &str = "10.0.0.2:700";
const V6: &str = "[fd77::2]:700";

/// One packet, whose checksum field holds the sum of its pseudo-header (RFC 1071), for the link to finish.
#[test]
fn many_datagrams_leave_in_one_packet() {
    let (world, sent) = world(CUTS_ALL);
    let text: Vec<u8> = (0..250).collect();
    for (domain, there, header) in [(Domain::V4, V4, 20), (Domain::V6, V6, 40)] {
        let before = world.counter(0, "udp_datagrams_out");
        let socket = writer(&world, domain);
        assert_eq!(send(&socket, &text, Some(to(there))), Ok(250));
        world.settle();
        let [(packet, segment)] = take(&sent).try_into().unwrap();
        assert_eq!((packet.len(), segment), (header + 8 + 250, 100));
        let (ip, datagram) = packet.split_at(header);
        assert_eq!(&datagram[8..], &text);
        let port = socket.local_address().port();
        let words = [
            port.to_be_bytes(),
            700_u16.to_be_bytes(),
            258_u16.to_be_bytes(),
        ];
        assert_eq!(datagram[..6], words.concat());
        let (source, destination) = crate::driver::interface::ends_of(ip).unwrap();
        let pseudo = checksum::pseudo_header(source, destination, Protocol::UDP, 258).unwrap();
        assert_eq!(datagram[6..8], checksum::fold(pseudo).to_be_bytes());
        assert_eq!(
            world.counter(0, "udp_datagrams_out") - before,
            3,
            "datagrams"
        );
    }
}

/// What the link does not take so, what is for ourselves or a group, and what may be cut on its way, is cut here; so is what no IP packet holds.
#[test]
fn what_the_link_cannot_cut_is_cut_here() {
    let text = [7; 250];
    let pieces = |sent: &Sent| -> Vec<usize> {
        let sent = take(sent);
        assert!(sent.iter().all(|(_, segment)| *segment == 0));
        sent.iter().map(|(packet, _)| packet.len()).collect()
    };
    let cut = [128, 128, 78];
    for kind in [
        Segmentation::None,
        Segmentation::Offloaded { datagrams: false },
    ] {
        let (world, sent) = world(kind);
        let socket = writer(&world, Domain::V4);
        assert_eq!(send(&socket, &text, Some(to(V4))), Ok(250));
        world.settle();
        assert_eq!(pieces(&sent), cut, "{kind:?}");
    }
    let (world, sent) = world(CUTS_ALL);
    let socket = writer(&world, Domain::V4);
    // A group's, whose members may be here, too.
    assert_eq!(send(&socket, &text, Some(to("224.0.0.251:700"))), Ok(250));
    world.settle();
    assert_eq!(pieces(&sent), cut);
    // Our own: nothing of it goes out.
    let own = world.bound(0, Kind::Datagram, "10.0.0.3:700");
    assert_eq!(send(&socket, &text, Some(to("10.0.0.3:700"))), Ok(250));
    world.settle();
    assert_eq!(pieces(&sent), [0; 0]);
    let lengths = [0; 3].map(|_| receive(&own).unwrap().len());
    assert_eq!(lengths, [100, 100, 50]);
    // Each needs an identification of its own (RFC 6864 §4.1) where no DF says that it stays whole.
    socket
        .set_option(SocketOption::Udp(UdpOption::Discovery(
            crate::api::Discovery::Dont,
        )))
        .unwrap();
    assert_eq!(send(&socket, &text, Some(to(V4))), Ok(250));
    world.settle();
    assert_eq!(pieces(&sent), cut);
    // One datagram is no many.
    let socket = writer(&world, Domain::V4);
    assert_eq!(send(&socket, &text[..100], Some(to(V4))), Ok(100));
    world.settle();
    assert_eq!(pieces(&sent), [128]);
}

/// As much as an IP packet holds, and not a byte more.
#[test]
fn one_packet_holds_what_an_ip_packet_holds() {
    for (domain, there, header) in [(Domain::V4, V4, 20), (Domain::V6, V6, 40)] {
        let (world, sent) = world(CUTS_ALL);
        let socket = Socket::new(&world.nets[0], domain, Kind::Datagram).unwrap();
        let option = SocketOption::Udp(UdpOption::Segment(1400));
        socket.set_option(option).unwrap();
        let most = IP_MAX - header - 8;
        for (len, whole) in [(most, true), (most + 1, false)] {
            let got = send(&socket, &vec![7; len], Some(to(there)));
            world.settle();
            let sent = take(&sent);
            if got.is_ok() {
                assert_eq!(sent.len() == 1, whole, "{len}: {} packets", sent.len());
            } else {
                assert!(!whole && sent.is_empty(), "{len}: {got:?}");
            }
        }
    }
}

/// TCP's text in one packet, with a segment's length; what is short, or has to be sent again piece by piece, is finished by the link, too.
#[test]
fn a_stream_leaves_uncut() {
    let (world, sent) = world(CUTS_ALL);
    let (client, server) = world.connection();
    take(&sent);
    // Little text has its checksum.
    send(&client, b"little", None).unwrap();
    world.pass(1);
    assert!(take(&sent).iter().all(|(_, segment)| *segment == 0));
    assert_eq!(receive(&server), Ok(b"little".to_vec()));
    let text: Vec<u8> = (0..6000_u32).map(|i| (i * 7).to_le_bytes()[0]).collect();
    let (before, mss) = (world.counter(0, "tcp_segments_out"), 1460 - 12);
    assert_eq!(send(&client, &text, None), Ok(6000));
    while world.nets[0].poll() {}
    let packets = take(&sent);
    let all: Vec<u8> = (packets.iter())
        .flat_map(|(packet, _)| packet[52..].to_vec())
        .collect();
    assert_eq!(all, text);
    // Four segments in one packet, and what is left: too little to leave its checksum to another.
    let shapes: Vec<_> = packets.iter().map(|(p, s)| (p.len() - 52, *s)).collect();
    assert_eq!(shapes, [(4 * mss, 1448), (6000 - 4 * mss, 0)]);
    let segments = world.counter(0, "tcp_segments_out") - before;
    assert_eq!(segments, 5);
}

/// The urgent pointer is counted from each segment's beginning (RFC 9293 §3.8.5): a link that cuts would repeat the first one's. Text with one is cut here.
#[test]
fn urgent_text_is_cut_here() {
    let (world, sent) = world(CUTS_ALL);
    let (client, _server) = world.connection();
    take(&sent);
    let text: Vec<u8> = (0..6000_u32).map(|i| (i * 7).to_le_bytes()[0]).collect();
    assert_eq!(client.send_urgent(&[IoSlice::new(&text)]).unwrap(), 6000);
    while world.nets[0].poll() {}
    let mut gone = 0;
    for (packet, _) in take(&sent) {
        let (header, at) = Header::parse(&packet[20..]).unwrap();
        let here = &packet[20 + at..];
        assert!(here.len() <= 1448, "{} bytes uncut", here.len());
        assert!(header.flags.contains(Flags::URG));
        assert_eq!(usize::from(header.urgent), 6000 - gone);
        assert_eq!(here, &text[gone..gone + here.len()]);
        gone += here.len();
    }
    assert_eq!(gone, 6000);
    assert_eq!(world.counter(0, "no_large_transmit_buffer"), 0);
}

/// What is short of half a kilobyte has its checksum made here; above it the link finishes a single segment, too.
#[test]
fn a_single_segment_is_finished_by_the_link_if_it_is_long() {
    for (len, left_to_it) in [(511, false), (512, true), (1448, true)] {
        let (world, sent) = world(CUTS_ALL);
        let (client, _server) = world.connection();
        take(&sent);
        assert_eq!(send(&client, &vec![7; len], None), Ok(len));
        while world.nets[0].poll() {}
        let [(packet, segment)] = take(&sent).try_into().unwrap();
        assert_eq!((packet.len() - 52, segment != 0), (len, left_to_it));
        let pseudo = checksum::pseudo_header(
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            Protocol::TCP,
            packet.len() - 20,
        );
        let whole = checksum::fold(pseudo.unwrap() + checksum::sum(&packet[20..]));
        assert_eq!(whole == 0xffff, !left_to_it, "{len}");
    }
}

/// Where no large buffer is free, text is cut here, each segment in a packet of its own, and counted.
#[test]
fn without_a_large_buffer_text_is_cut_here() {
    for kind in [CUTS_ALL, Segmentation::Carried] {
        let (world, sent) = world(kind);
        let (client, _server) = world.connection();
        let taken = world.shard(0, |shard, _| {
            let bursts = shard.bursts.as_mut().unwrap();
            std::iter::from_fn(|| bursts.alloc()).collect::<Vec<_>>()
        });
        assert!(!taken.is_empty());
        take(&sent);
        let before = world.counter(0, "tcp_segments_out");
        let text: Vec<u8> = (0..5000_u32).map(|i| (i * 7).to_le_bytes()[0]).collect();
        assert_eq!(send(&client, &text, None), Ok(5000));
        while world.nets[0].poll() {}
        let packets = take(&sent);
        let lengths: Vec<_> = packets.iter().map(|(p, _)| p.len() - 52).collect();
        assert_eq!(lengths, [1448, 1448, 1448, 656], "{kind:?}");
        let numbers: Vec<u32> = (packets.iter())
            .map(|(p, _)| u32::from_be_bytes(*p[24..28].first_chunk().unwrap()))
            .collect();
        assert!(numbers.windows(2).all(|two| two[1] - two[0] == 1448));
        let all: Vec<u8> = packets.iter().flat_map(|(p, _)| p[52..].to_vec()).collect();
        assert_eq!(all, text);
        assert_eq!(world.counter(0, "tcp_segments_out") - before, 4);
        // So little text takes none on its way to a peer in memory.
        let lacks = u64::from(kind == CUTS_ALL);
        assert_eq!(world.counter(0, "no_large_transmit_buffer"), lacks);
        world.shard(0, |shard, _| {
            let bursts = shard.bursts.as_mut().unwrap();
            taken.into_iter().for_each(|buffer| bursts.free(buffer));
        });
    }
}

/// A peer in memory keeps the buffer until the text is read: a large one is for much text only.
#[test]
fn little_text_for_a_peer_in_memory_takes_no_large_buffer() {
    let options = wire::Options {
        offload: true,
        ..wire::Options::default()
    };
    let world = World::over(&options, |builder| builder);
    let (client, server) = world.connection();
    let free =
        |world: &World| world.shard(0, |shard, _| shard.bursts.as_mut().unwrap().available());
    let all = free(&world);
    let reads = || {
        let mut got = 0;
        for _ in 0..20 {
            world.pass(1);
            got += receive(&server).map_or(0, |text| text.len());
        }
        got
    };
    // The congestion window widens first.
    for _ in 0..5 {
        assert_eq!(send(&client, &[7; 14_000], None), Ok(14_000));
        assert_eq!(reads(), 14_000);
    }
    for (len, large) in [(3000, false), (16_000, false), (60_000, true)] {
        let before = world.counter(0, "tcp_segments_out");
        assert_eq!(send(&client, &vec![7; len], None), Ok(len));
        while world.nets[0].poll() {}
        assert_eq!(free(&world) < all, large, "{len}");
        let segments = world.counter(0, "tcp_segments_out") - before;
        let unsent = world.shard(0, |shard, _| {
            let (_, socket) = shard.connections().next().unwrap();
            socket.connection.unsent() as usize
        });
        let left = (len - unsent).div_ceil(1448);
        assert!(left > 1 && segments == left as u64, "{len}: {segments}");
        assert_eq!((reads(), free(&world)), (len, all));
    }
}
