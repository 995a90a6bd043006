//! Reassembly against a naive model, and the fragments that broke other stacks.

use super::*;
use crate::wire::Protocol;
use crate::wire::ipv6::extension::{FragmentHeader, walk};
use std::vec::Vec;

pub(super) const SEED: Seed = Seed([5, 6]);
pub(super) const T0: Instant = Instant(1_000_000_000_000);

pub(super) fn small() -> Reassembler {
    let config = Config {
        bytes: 0,
        datagrams: 8,
        fragments: 40,
        ..Config::default()
    };
    Reassembler::new(config, SEED)
}

/// An IPv4 fragment as it comes over the wire.
pub(super) fn v4(ident: u16, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let mut header = ipv4::Header::new(Protocol::UDP, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    header.ident = ident;
    header.fragment_offset = offset;
    header.more_fragments = more;
    header.dont_fragment = false;
    let mut packet = std::vec![0; 20];
    assert_eq!(header.emit(data.len(), &mut packet), 20);
    packet.extend_from_slice(data);
    packet
}
pub(super) fn push4<'a>(r: &'a mut Reassembler, packet: &[u8], now: Instant) -> Outcome<'a> {
    let header = ipv4::Header::parse(packet).unwrap();
    r.push_v4(packet, &header, now)
}
pub(super) fn data(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n * 7 + n / 256) % 251).unwrap())
        .collect()
}

/// An IPv6 fragment behind a destination options header, with `tos` as its traffic class.
pub(super) fn v6(ident: u32, offset: u16, more: bool, tos: u8, data: &[u8]) -> Vec<u8> {
    let (from, to) = ("fd77::1".parse().unwrap(), "fd77::2".parse().unwrap());
    let mut header = ipv6::Header::new(Protocol::DESTINATION_OPTIONS, from, to);
    header.traffic_class = tos;
    let mut packet = std::vec![0; 56];
    assert_eq!(header.emit(16 + data.len(), &mut packet), 40);
    packet[40..48].copy_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    let fragment = FragmentHeader {
        next_header: Protocol::UDP,
        offset,
        more,
        ident,
    };
    fragment.emit(&mut packet[48..]);
    packet.extend_from_slice(data);
    packet
}
fn push6<'a>(r: &'a mut Reassembler, packet: &[u8]) -> Outcome<'a> {
    let header = ipv6::Header::parse(packet).unwrap();
    let upper = walk(header.next_header, header.payload(packet)).unwrap();
    r.push_v6(packet, &header, &upper, T0)
}

#[test]
fn ipv4_any_order_gives_the_whole_packet() {
    let whole = data(1000);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let mut r = small();
        let parts = [(0, 400, true), (400, 800, true), (800, 1000, false)];
        for (n, part) in order.into_iter().enumerate() {
            let (from, to, more) = parts[part];
            let packet = v4(7, u16::try_from(from).unwrap(), more, &whole[from..to]);
            match push4(&mut r, &packet, T0) {
                Outcome::Waiting => assert!(n < 2),
                Outcome::Complete(packet) => {
                    assert_eq!(n, 2);
                    let header = ipv4::Header::parse(packet).unwrap();
                    assert!(!header.is_fragment());
                    assert_eq!(header.payload(packet), whole);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(r.is_empty() && r.deadline().is_none());
        assert_eq!(r.free_bytes(), BYTES_MIN);
        assert_eq!(r.counts().completed, 1);
    }
}

#[test]
fn ipv6_leaves_the_fixed_header_and_what_was_fragmented() {
    let (mut r, whole) = (small(), data(100));
    assert_eq!(
        push6(&mut r, &v6(9, 64, false, 3, &whole[64..])),
        Outcome::Waiting
    );
    let Outcome::Complete(packet) = push6(&mut r, &v6(9, 0, true, 2, &whole[..64])) else {
        panic!("complete")
    };
    let header = ipv6::Header::parse(packet).unwrap();
    assert_eq!(header.next_header, Protocol::UDP);
    assert_eq!(header.payload(packet), whole);
    assert_eq!(
        header.traffic_class & 3,
        3,
        "RFC 3168 §5.3: a mark survives"
    );
}

#[test]
fn marks_that_cannot_be_kill_the_datagram() {
    let mut r = small();
    push6(&mut r, &v6(9, 0, true, 0, &data(64)));
    let got = push6(&mut r, &v6(9, 64, false, 3, &data(8)));
    assert_eq!(got, Outcome::Dropped(DropReason::CongestionMark));
}

#[test]
fn negative_19_ping_of_death() {
    let mut r = small();
    let got = push4(&mut r, &v4(1, 65_528, false, &data(9)), T0);
    assert_eq!(got, Outcome::Dropped(DropReason::TooLong));
    // Fits by itself, but not with the header.
    let got = push4(&mut r, &v4(1, 65_512, false, &data(8)), T0);
    assert_eq!(got, Outcome::Dropped(DropReason::TooLong));
    assert_eq!(
        push4(&mut r, &v4(1, 65_504, false, &data(8)), T0),
        Outcome::Waiting
    );
    assert_eq!(r.len(), 1);
}

#[test]
fn negative_19_longer_header_in_the_first_fragment() {
    let mut r = Reassembler::new(
        Config {
            bytes: 1 << 20,
            ..Config::default()
        },
        SEED,
    );
    let name = Name {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        ident: 1,
    };
    let (all, mut at) = (data(65_515), 0usize);
    while at < all.len() {
        let end = (at + 1480).min(all.len());
        let header = if at == 0 {
            &[0x4f; 60][..]
        } else {
            &[0x45; 20]
        };
        let offset = u16::try_from(at).unwrap();
        let fragment = Fragment {
            name,
            header,
            data: &all[at..end],
            offset,
            more: end < all.len(),
            ecn: 0,
        };
        let want = if end < all.len() {
            Outcome::Waiting
        } else {
            Outcome::Dropped(DropReason::TooLong)
        };
        assert_eq!(r.push(fragment, T0), want);
        at = end;
    }
    assert!(r.is_empty());
}

#[test]
fn negative_19_22_ipv6_parameter_problem() {
    let mut r = small();
    let name = Name {
        source: "fd77::1".parse().unwrap(),
        destination: "fd77::2".parse().unwrap(),
        protocol: 0,
        ident: 1,
    };
    let long = Fragment {
        name,
        header: &[0; 48],
        data: &data(16),
        offset: 65_520,
        more: false,
        ecn: 0,
    };
    assert_eq!(r.push(long, T0), Outcome::ParameterProblem { pointer: 42 });
    let odd = Fragment {
        data: &data(9),
        offset: 0,
        more: true,
        ..long
    };
    assert_eq!(r.push(odd, T0), Outcome::ParameterProblem { pointer: 4 });
    assert!(r.is_empty());
}

#[test]
fn negative_20_43_overlaps_of_every_kind_kill_the_datagram() {
    for (from, to) in [
        (0, 64),
        (8, 16),
        (56, 72),
        (64, 120),
        (0, 136),
        (120, 136),
        (64, 136),
        (72, 80),
    ] {
        let (mut r, bytes) = (small(), data(200));
        assert_eq!(
            push4(&mut r, &v4(7, 0, true, &bytes[..64]), T0),
            Outcome::Waiting
        );
        assert_eq!(
            push4(&mut r, &v4(7, 64, true, &bytes[64..128]), T0),
            Outcome::Waiting
        );
        let evil = v4(
            7,
            u16::try_from(from).unwrap(),
            true,
            &data(to - from + 1)[1..],
        );
        let overlap = Outcome::Dropped(DropReason::Overlap);
        assert_eq!(push4(&mut r, &evil, T0), overlap, "{from}..{to}");
        assert_eq!(r.free_bytes(), BYTES_MIN, "memory given back at once");
        for _ in 0..2 {
            let late = v4(7, 128, false, &bytes[128..]);
            assert_eq!(push4(&mut r, &late, T0), Outcome::Dropped(DropReason::Dead));
        }
        r.on_timer(T0 + Duration::from_secs(60), |_| panic!("silently"));
        assert!(r.is_empty());
    }
}

#[test]
fn an_exact_copy_is_passed_over() {
    let (mut r, bytes) = (small(), data(128));
    push4(&mut r, &v4(7, 0, true, &bytes[..64]), T0);
    let copy = Outcome::Dropped(DropReason::Duplicate);
    assert_eq!(push4(&mut r, &v4(7, 0, true, &bytes[..64]), T0), copy);
    assert!(matches!(
        push4(&mut r, &v4(7, 64, false, &bytes[64..]), T0),
        Outcome::Complete(_)
    ));
}

#[test]
fn negative_21_tiny_first_fragments() {
    let mut r = small();
    let mut packet = v4(7, 0, true, &data(16));
    packet[9] = 6;
    packet[10] = 0;
    packet[11] = 0;
    let sum = checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        push4(&mut r, &packet, T0),
        Outcome::Dropped(DropReason::Tiny)
    );
}

#[test]
fn negative_22_23_odd_and_empty() {
    let mut r = small();
    for len in [1, 7, 9, 1479] {
        let got = push4(&mut r, &v4(7, 8, true, &data(len)), T0);
        assert_eq!(got, Outcome::Dropped(DropReason::Unaligned));
    }
    let got = push4(&mut r, &v4(7, 8, true, &[]), T0);
    assert_eq!(got, Outcome::Dropped(DropReason::Empty));
    assert!(r.is_empty());
}

#[test]
fn negative_24_two_ends_and_data_past_the_end() {
    for (offset, more, len) in [
        (64, false, 72),
        (64, false, 56),
        (136, true, 8),
        (128, true, 8),
        (8, false, 8),
    ] {
        let mut r = small();
        push4(&mut r, &v4(7, 64, false, &data(64)), T0);
        let got = push4(&mut r, &v4(7, offset, more, &data(len)), T0);
        assert_eq!(
            got,
            Outcome::Dropped(DropReason::Overlap),
            "{offset} {more} {len}"
        );
    }
    let mut r = small();
    push4(&mut r, &v4(7, 64, true, &data(64)), T0);
    let got = push4(&mut r, &v4(7, 8, false, &data(8)), T0);
    assert_eq!(
        got,
        Outcome::Dropped(DropReason::Overlap),
        "an end before what is here"
    );
}

#[test]
fn negative_25_time_exceeded_only_with_the_first_fragment() {
    let mut r = small();
    let first = v4(1, 0, true, &data(64));
    push4(&mut r, &first, T0);
    push4(
        &mut r,
        &v4(2, 64, true, &data(64)),
        T0 + Duration::from_secs(1),
    );
    push4(
        &mut r,
        &v4(1, 64, true, &data(64)),
        T0 + Duration::from_secs(59),
    );
    assert_eq!(
        r.deadline(),
        Some(T0 + Duration::from_secs(60)),
        "fixed, whatever follows"
    );
    let mut told = Vec::new();
    r.on_timer(T0 + Duration::from_secs(60), |packet| {
        told.push(packet.to_vec())
    });
    r.on_timer(T0 + Duration::from_secs(61), |packet| {
        told.push(packet.to_vec())
    });
    assert_eq!(told, [first]);
    assert_eq!(
        (r.counts().timed_out, r.len(), r.free_bytes()),
        (2, 0, BYTES_MIN)
    );
}

#[test]
fn negative_26_a_flood_of_first_pieces_leaves_the_others_alone() {
    let mut r = small();
    let whole = data(1200);
    for n in 0..2000u16 {
        push4(&mut r, &v4(n, 0, true, &data(1400)), T0);
        if n % 10 == 0 {
            // Its own sender, so its own name; the fragments come close together.
            let push = |r: &mut Reassembler, packet: &mut Vec<u8>| {
                packet[15] = 99;
                packet[10] = 0;
                packet[11] = 0;
                let sum = checksum::checksum(&packet[..20]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                matches!(push4(r, packet, T0), Outcome::Complete(_))
            };
            assert!(!push(&mut r, &mut v4(n, 0, true, &whole[..600])));
            assert!(push(&mut r, &mut v4(n, 600, false, &whole[600..])));
        }
    }
    assert_eq!(r.counts().completed, 200);
    assert!(r.len() <= 8);
}

#[test]
fn negative_26_memory_is_capped_and_the_oldest_goes() {
    let mut r = small();
    for n in 0..3u16 {
        for at in 0..39u16 {
            push4(&mut r, &v4(n, at * 1480, true, &data(1480)), T0);
        }
    }
    assert!(r.free_bytes() < BYTES_MIN / 2);
    assert_eq!((r.len(), r.counts().evicted), (2, 1));
}

#[test]
fn negative_27_same_ident_other_protocol_or_sender() {
    let (mut r, bytes) = (small(), data(128));
    push4(&mut r, &v4(7, 0, true, &bytes[..64]), T0);
    let mut other = v4(7, 64, false, &bytes[64..]);
    other[9] = 1;
    other[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::checksum(&other[..20]);
    other[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(push4(&mut r, &other, T0), Outcome::Waiting);
    assert_eq!(r.len(), 2);
}

#[test]
fn negative_29_thousands_of_tiny_fragments() {
    let mut r = small();
    let mut reasons = std::collections::BTreeMap::new();
    for n in (0..8000u16).rev() {
        let got = push4(&mut r, &v4(7, n * 8, true, &data(8)), T0);
        *reasons.entry(std::format!("{got:?}")).or_insert(0) += 1;
    }
    assert_eq!(reasons["Waiting"], 40);
    assert_eq!(reasons["Dropped(TooMany)"], 1);
    assert_eq!(r.free_bytes(), BYTES_MIN);
}

#[test]
fn memory_is_the_sum_it_says() {
    let config = Config::default();
    assert!(config.memory() < 3 << 20, "{}", config.memory());
}

/// However small a peer cuts its datagrams: a fragment holds no more than eight times what the peer sent for it, Ethernet's header included;
/// one with the IP header, which is kept as well, no more than a chunk beside that. And no fragment holds less than its octets.
#[test]
fn a_fragment_holds_no_more_than_eight_times_what_was_sent() {
    for octets in (8..=1480).step_by(64) {
        let mut r = Reassembler::new(Config::default(), SEED);
        let before = r.free_bytes();
        for (offset, header) in [(800, 0), (0, arena::CHUNK)] {
            let free = r.free_bytes();
            let fragment = v4(1, offset * 2, true, &data(octets));
            assert_eq!(push4(&mut r, &fragment, T0), Outcome::Waiting);
            let held = free - r.free_bytes();
            let sent = 14 + fragment.len();
            assert!(held <= 8 * sent + header, "{octets} octets hold {held}");
            assert!(held >= octets);
        }
        // All datagrams together: what was reserved, and never more.
        for ident in 2..500 {
            let _ = push4(&mut r, &v4(ident, 800, true, &data(octets)), T0);
            assert!(r.len() <= Config::default().datagrams);
        }
        r.on_timer(T0 + Duration::from_secs(61), |_| {});
        assert_eq!(r.free_bytes(), before);
    }
}
