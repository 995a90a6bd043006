//! What comes from the wire: a peer that writes headers as it likes.

use std::{collections::VecDeque, net::Ipv4Addr};

use netchan::{
    Clock, MacAddr, Net, PacketChannel, PacketProtocol, Threads,
    link::{Link, wire},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{
    ip::keyed::{Random, Seed},
    wire::{
        ethernet::{self, EtherType},
        ipv4::{self, Protocol},
    },
};

use super::{EXPERIMENT, FRAMES, channel, counter};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

struct Raw {
    queue: netchan::link::Queue,
    slab: Slab,
    clock: Clock,
    mac: MacAddr,
    net: Net,
}

impl Raw {
    fn new() -> Self {
        let clock = Clock::new_virtual();
        let (wire, far) = wire::pair(&wire::Options::default());
        let mac = far.properties().mac;
        let builder = Net::builder().link_with(Box::new(far));
        let builder = builder.address("10.0.0.2/24").unwrap();
        let builder = builder.threads(Threads::Caller).clock(clock.clone());
        Self {
            net: builder.seed(3).start().unwrap(),
            slab: Slab::new(256, 2048).unwrap(),
            queue: netchan::link::Queue::of(Box::new(wire)).unwrap(),
            clock,
            mac,
        }
    }

    /// Sends a frame with this header (as long as `header` says) and payload.
    fn send(&mut self, header: &ethernet::Header, payload: &[u8]) {
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        let len = header.emit(frame.room_mut());
        frame.set_len(len + payload.len());
        frame.bytes_mut()[len..].copy_from_slice(payload);
        let mut frames = VecDeque::from([frame]);
        let now = self.clock.now();
        self.queue.tx.transmit(now, &mut frames).unwrap();
        self.net.poll();
    }

    fn send_ip(&mut self, packet: &[u8]) {
        let header = ethernet::Header::new(self.mac, MAC, EtherType::IPV4);
        self.send(&header, packet);
    }
}

/// A packet of protocol 253 with `options` and `payload`.
fn packet(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + options.len() + payload.len()];
    ipv4::Header::new(Protocol(253), PEER, HOST).emit(options.len() + payload.len(), &mut bytes);
    bytes[0] = 0x45 + (options.len() / 4) as u8;
    bytes[20..20 + options.len()].copy_from_slice(options);
    bytes[20 + options.len()..].copy_from_slice(payload);
    seal(&mut bytes);
    bytes
}

/// Makes the header's checksum right, if there is a header.
fn seal(bytes: &mut [u8]) {
    let len = usize::from(bytes[0] & 15) * 4;
    if let Some(header) = bytes.get_mut(..len.max(20)) {
        header[10..12].fill(0);
        let sum = proto::wire::checksum::finish(proto::wire::checksum::sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn drain(channel: &PacketChannel) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| channel.recv().ok())
        .map(|packet| packet.payload().to_vec())
        .collect()
}

#[test]
fn lengths_are_those_of_the_header() {
    let mut raw = Raw::new();
    let channel = channel(&raw.net, EXPERIMENT);
    // Ethernet's padding is none of it.
    let mut padded = packet(&[], b"four");
    padded.extend_from_slice(&[0xee; 22]);
    raw.send_ip(&padded);
    // Options are no payload: a router alert, and padding.
    raw.send_ip(&packet(&[0x94, 4, 0, 0, 1, 1, 1, 0], b"alert"));
    raw.send_ip(&packet(&[], b""));
    assert_eq!(drain(&channel), [&b"four"[..], b"alert", b""]);
    // A header longer than the packet, a total length longer than the frame or shorter than the header, no version, a wrong sum.
    let mut bad = [(); 5].map(|()| packet(&[], b"four"));
    bad[0][0] = 0x4f;
    bad[1][3] = 25;
    bad[2][3] = 19;
    bad[3][0] = 0x55;
    for packet in &mut bad {
        seal(packet);
    }
    bad[4][10] ^= 1;
    for packet in bad {
        raw.send_ip(&packet);
    }
    // From no host, and for another one.
    let mut strange = [(); 2].map(|()| packet(&[], b"four"));
    strange[0][12..16].fill(255);
    strange[1][16..20].copy_from_slice(&[10, 0, 0, 77]);
    for packet in &mut strange {
        seal(packet);
        raw.send_ip(packet);
    }
    assert!(drain(&channel).is_empty());
    let counts = ["header", "checksum", "source", "destination"];
    let counts = counts.map(|what| counter(&raw.net, &format!("drop_ip_{what}")));
    assert_eq!(counts, [4, 1, 1, 1]);
}

#[test]
fn tags_and_short_frames() {
    let mut raw = Raw::new();
    let channel = channel(&raw.net, FRAMES);
    let mut header = ethernet::Header::new(raw.mac, MAC, EtherType(0x88b5));
    header.vlan = Some(ethernet::Tag::new(0)); // a priority tag
    raw.send(&header, b"tagged");
    header.vlan = Some(ethernet::Tag::new(5)); // another VLAN
    raw.send(&header, b"other");
    header.vlan = None;
    raw.send(&header, b"");
    header.ethertype = EtherType(0x88b6);
    raw.send(&header, b"other");
    header.ethertype = EtherType(46); // a length
    raw.send(&header, &[0; 46]);
    assert_eq!(drain(&channel), [&b"tagged"[..], b""]);
}

/// Random headers, of which each is received or counted, and none makes the stack panic; packets of TCP and UDP stay the stack's.
#[test]
fn each_packet_is_received_or_counted() {
    let seed = std::env::var("NETCHAN_SEED").ok();
    let seed = seed.map_or(7, |seed| seed.parse().expect("NETCHAN_SEED is a number"));
    println!("NETCHAN_SEED={seed}");
    let mut random = Random::new(Seed([seed, 1]));
    let mut raw = Raw::new();
    let channels = [EXPERIMENT, FRAMES, PacketProtocol::Ip(47)].map(|p| channel(&raw.net, p));
    let (mut sent, mut got) = (0, 0);
    for _ in 0..3000 {
        let payload = vec![7; random.below(200) as usize];
        let mut bytes = packet(&[0; 8][..4 * random.below(3) as usize], &payload);
        for _ in 0..random.below(3) {
            let at = random.below(24.min(bytes.len() as u64)) as usize;
            bytes[at] = random.below(256) as u8;
        }
        if random.below(4) == 0 {
            bytes[9] = [47, 6, 17, 1, 2][random.below(5) as usize];
        }
        seal(&mut bytes);
        bytes.truncate(
            bytes.len()
                - (random.below(20) as usize)
                    .min(bytes.len())
                    .saturating_sub(15),
        );
        let kind = [0x0800, 0x0800, 0x0800, 0x88b5, 0x86dd][random.below(5) as usize];
        let header = ethernet::Header::new(raw.mac, MAC, EtherType(kind));
        raw.send(&header, &bytes);
        sent += 1;
        for channel in &channels {
            while let Ok(packet) = channel.recv() {
                assert!(packet.payload().len() <= packet.bytes().len());
                got += 1;
            }
        }
    }
    let counts = raw.net.show("counters").unwrap();
    let of = |prefix: &str| -> u64 {
        let rows = counts.as_array().unwrap().iter();
        let rows = rows.filter(|row| row["name"].as_str().unwrap().starts_with(prefix));
        rows.map(|row| row["value"].as_u64().unwrap()).sum()
    };
    assert_eq!(of("packet_channel_in"), got);
    assert!(got > 1000, "{got}");
    // Each of the rest is a drop or a message for the stack; a fragment waits for the others, and a message that is wrong counts as both.
    let rest = of("drop_") + of("icmp_in") + of("membership_in") + of("fragments_in");
    assert!(got + rest >= sent, "{got} + {rest} < {sent}");
}
