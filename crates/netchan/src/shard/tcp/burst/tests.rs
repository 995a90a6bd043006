//! What a burst is cut into, and what a link is left to finish.

use std::io::IoSlice;

use percore::slab::Slab;
use proto::{
    ip::Ecn,
    wire::{
        checksum,
        ipv4::Protocol,
        tcp::{Options, SeqNum},
    },
};

use super::*;
use crate::{
    emit::{IpFields, Template},
    flow::FlowKey,
    link::virtio,
    shard::send_queue::{SendMemory, SendQueue},
};

fn burst(flags: Flags, len: u32) -> Transmit {
    Transmit {
        header: Header {
            source_port: 80,
            destination_port: 4000,
            seq: SeqNum(u32::MAX - 500),
            ack: SeqNum(7),
            flags,
            window: 100,
            urgent: 1500,
            options: Options::default(),
        },
        offset: 10,
        len,
        segment: 1000,
        ecn: Ecn::NotEct,
    }
}

/// RFC 9293 §3.1: PSH and FIN are the last octets'; RFC 3168 §6.1.2: CWR is said once; the urgent pointer (RFC 9293 §3.8.5) names one octet.
#[test]
fn a_burst_is_cut_into_segments_of_one_stream() {
    let all = Flags(Flags::ACK.0 | Flags::PSH.0 | Flags::FIN.0 | Flags::CWR.0 | Flags::URG.0);
    let burst = burst(all, 2500);
    let pieces = [0, 1000, 2000].map(|at| piece(&burst, at, false));
    assert_eq!(pieces.map(|p| p.len), [1000, 1000, 500]);
    assert_eq!(pieces.map(|p| p.offset), [10, 1010, 2010]);
    assert_eq!(
        pieces.map(|p| p.header.seq),
        [0, 1000, 2000].map(|at| SeqNum(u32::MAX - 500) + at)
    );
    let (ack, urg) = (Flags::ACK.0, Flags::URG.0);
    assert_eq!(
        pieces.map(|p| p.header.flags.0),
        [
            ack | Flags::CWR.0 | urg,
            ack | urg,
            ack | Flags::PSH.0 | Flags::FIN.0
        ]
    );
    assert_eq!(pieces.map(|p| p.header.urgent), [1500, 500, 0]);
    // RFC 9768 §3.3.4: where it is part of a number, it stands in all.
    let pieces = [0, 1000, 2000].map(|at| piece(&burst, at, true));
    assert!(pieces.iter().all(|p| p.header.flags.contains(Flags::CWR)));
}

/// A pointer that cannot reach the urgent data (`Connection::header`) names no octet of the burst in any piece of it, however long that is.
#[test]
fn a_pointer_that_does_not_reach_stays_beyond_the_burst() {
    let mut burst = burst(Flags(Flags::ACK.0 | Flags::URG.0), limits::BURST_TEXT);
    burst.header.urgent = u16::MAX;
    let mut at = 0;
    while at < burst.len {
        let piece = piece(&burst, at, false);
        assert!(piece.header.flags.contains(Flags::URG), "{at}");
        let named = piece.header.seq + u32::from(piece.header.urgent);
        assert_eq!(named, burst.header.seq + 65_535, "{at}");
        assert!(named > piece.header.seq + piece.len, "{at}");
        at += piece.len;
    }
    assert_eq!(at, limits::BURST_TEXT);
}

/// What the kernel needs to finish a burst (virtio 1.2 §5.1.6.2), for both families; and that its checksum field holds the sum of the
/// pseudo-header, whose complement the right checksum is together with the rest (RFC 1071).
#[test]
fn a_link_is_told_what_to_finish() {
    let mut slab = Slab::new(2, 65_600).unwrap();
    let mut memory = SendMemory::new(4096, 1).unwrap();
    let mut queue = SendQueue::default();
    let text: Vec<u8> = (0..3000_u32).map(|i| (i * 7).to_le_bytes()[0]).collect();
    assert_eq!(
        queue.append(&[IoSlice::new(&text)], &mut memory, 4096),
        3000
    );
    for (local, remote, ip, kind) in [
        ("10.0.0.1", "10.0.0.2", 20, 1),
        ("fd00::1", "fd00::2", 40, 4),
    ] {
        let key = FlowKey::between(local, remote);
        let (local, remote) = (key.local, key.remote);
        let template = Template::new(&key, IpFields::default());
        for (len, flags, gso) in [
            (2500, Flags::ACK, kind),
            (2500, Flags(Flags::ACK.0 | Flags::CWR.0), kind | 0x80),
            (1000, Flags::ACK, 0),
        ] {
            let transmit = burst(flags, len);
            let copy = |to: &mut [u8]| queue.copy_out_unsummed(10, to);
            let mut packet = template
                .unfinished(
                    slab.alloc().unwrap(),
                    &transmit.header,
                    (len as usize, 1000),
                    Ecn::Ect0,
                    copy,
                )
                .unwrap();
            let segment = &packet.bytes()[ip..];
            assert_eq!(&segment[20..], &text[10..10 + len as usize]);
            let pseudo =
                checksum::pseudo_header(local, remote, Protocol::TCP, segment.len()).unwrap();
            assert_eq!(segment[16..18], checksum::fold(pseudo).to_be_bytes());
            packet.push(14).unwrap();
            let header = virtio::header_for(&packet);
            let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            assert_eq!((header[0], header[1]), (1, gso), "{local} {len}");
            let (headers, size) = if gso == 0 {
                (0, 0)
            } else {
                (14 + ip + 20, 1000)
            };
            assert_eq!((usize::from(word(2)), word(4)), (headers, size));
            assert_eq!((usize::from(word(6)), word(8)), (14 + ip, 16));
            packet.meta.segment = 0;
            assert_eq!(virtio::header_for(&packet), virtio::PLAIN);
        }
    }
}
