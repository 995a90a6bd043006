//! What emit writes, parse reads back; and nothing less than the whole of it.
//!
//! A failing case prints the least value that fails, and leaves its seed beside this file, in
//! `wire_roundtrip.proptest-regressions`, from where every later run replays it first.

use std::net::IpAddr;

use proptest::prelude::*;
use proto::wire::checksum::{self, Partial};
use proto::wire::ipv6::extension::FragmentHeader;
use proto::wire::tcp::{self, Flags, SeqNum};
use proto::wire::{Error, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, udp};

mod wire_common;
use wire_common::{
    arp_packet, bytes, discovery, ethernet_header, fragment_header, icmpv4_message, icmpv6_message,
    ipv4_header, ipv6_header, tcp_header, udp_header, v4, v6,
};

/// Emits into a buffer of every size below the needed one (nothing must fit), then into one with
/// room to spare, which must keep its rest.
fn emit_everywhere(len: usize, emit: impl Fn(&mut [u8]) -> usize) -> Vec<u8> {
    for short in 0..len {
        assert_eq!(
            emit(&mut vec![0; short]),
            0,
            "{len} bytes do not fit into {short}"
        );
    }
    let mut buf = vec![0xa5; len + 9];
    assert_eq!(emit(&mut buf), len);
    assert_eq!(buf.split_off(len), [0xa5; 9], "emit wrote past its end");
    buf
}

proptest! {
    #[test]
    fn ethernet(header in ethernet_header()) {
        let frame = emit_everywhere(header.len(), |buf| header.emit(buf));
        prop_assert_eq!(ethernet::Header::parse(&frame), Ok((header, frame.len())));
        for end in 0..frame.len() {
            prop_assert_eq!(ethernet::Header::parse(&frame[..end]), Err(Error::Truncated));
        }
    }

    #[test]
    fn arp(packet in arp_packet()) {
        let bytes = emit_everywhere(arp::LEN, |buf| packet.emit(buf));
        prop_assert_eq!(arp::Packet::parse(&bytes), Ok(packet));
        for end in 0..bytes.len() {
            prop_assert_eq!(arp::Packet::parse(&bytes[..end]), Err(Error::Truncated));
        }
    }

    #[test]
    fn ipv4(header in ipv4_header(), payload in bytes(100), padding in 0_usize..40) {
        let mut packet = emit_everywhere(20, |buf| header.emit(payload.len(), buf));
        packet.extend(&payload);
        let total = packet.len();
        let expected = ipv4::Header { total_len: u16::try_from(total).unwrap(), ..header };
        packet.resize(total + padding, 0xee);
        let parsed = ipv4::Header::parse(&packet);
        prop_assert_eq!(parsed, Ok(expected));
        prop_assert_eq!(expected.payload(&packet), &payload[..]);
        prop_assert_eq!(expected.options(&packet), b"");
        for end in 0..total {
            prop_assert!(ipv4::Header::parse(&packet[..end]).is_err());
        }
    }

    #[test]
    fn ipv6(header in ipv6_header(), payload in bytes(100), padding in 0_usize..40) {
        let mut packet = emit_everywhere(40, |buf| header.emit(payload.len(), buf));
        packet.extend(&payload);
        let total = packet.len();
        let payload_len = u16::try_from(payload.len()).unwrap();
        let expected = ipv6::Header { payload_len, ..header };
        packet.resize(total + padding, 0xee);
        prop_assert_eq!(ipv6::Header::parse(&packet), Ok(expected));
        prop_assert_eq!(expected.payload(&packet), &payload[..]);
        for end in 0..total {
            prop_assert!(ipv6::Header::parse(&packet[..end]).is_err());
        }
    }

    #[test]
    fn fragment(header in fragment_header()) {
        let bytes = emit_everywhere(8, |buf| header.emit(buf));
        prop_assert_eq!(FragmentHeader::parse(bytes.first_chunk().unwrap()), header);
    }

    #[test]
    fn udp(
        header in udp_header(),
        payload in bytes(100),
        v4 in (v4(), v4()),
        v6 in (v6(), v6()),
        flip in any::<prop::sample::Index>(),
    ) {
        let addresses = [
            (IpAddr::V4(v4.0), IpAddr::V4(v4.1)),
            (IpAddr::V6(v6.0), IpAddr::V6(v6.1)),
        ];
        for (from, to) in addresses {
            let sum = checksum::sum(&payload);
            let mut datagram =
                emit_everywhere(8, |buf| header.emit(from, to, sum, payload.len(), buf));
            datagram.extend(&payload);
            let parsed = udp::Header::parse(&datagram).unwrap();
            prop_assert_eq!(parsed.source_port, header.source_port);
            prop_assert_eq!(parsed.destination_port, header.destination_port);
            prop_assert_eq!(usize::from(parsed.length), datagram.len());
            prop_assert!(parsed.checksum != 0);
            prop_assert_eq!(parsed.payload(&datagram), &payload[..]);
            prop_assert!(parsed.verify(from, to, &datagram));
            for end in 0..datagram.len() {
                prop_assert!(udp::Header::parse(&datagram[..end]).is_err());
            }
            // Any one bit matters. Bytes 4..8 rule the length and whether there is a checksum.
            let bit = flip.index(datagram.len() * 8);
            if !(32..64).contains(&bit) {
                datagram[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(!parsed.verify(from, to, &datagram), "bit {} went unseen", bit);
            }
        }
        let mixed = header.emit(addresses[0].0, addresses[1].0, Partial::ZERO, 0, &mut [0; 8]);
        prop_assert_eq!(mixed, 0);
    }

    #[test]
    fn tcp(header in tcp_header(), payload in bytes(100)) {
        let mut segment = emit_everywhere(header.len(), |buf| header.emit(buf));
        prop_assert_eq!(segment.len() % 4, 0);
        segment.extend(&payload);
        let len = header.len();
        prop_assert_eq!(tcp::Header::parse(&segment), Ok((header, len)));
        for end in 0..len {
            prop_assert!(tcp::Header::parse(&segment[..end]).is_err());
        }
    }

    #[test]
    fn tcp_checksum(
        header in tcp_header(),
        payload in bytes(100),
        v4 in (v4(), v4()),
        v6 in (v6(), v6()),
        flip in any::<prop::sample::Index>(),
    ) {
        let addresses = [
            (IpAddr::V4(v4.0), IpAddr::V4(v4.1)),
            (IpAddr::V6(v6.0), IpAddr::V6(v6.1)),
        ];
        for (from, to) in addresses {
            let len = header.len();
            let mut segment = vec![0; len + payload.len()];
            let sum = checksum::copy_and_sum(&payload, &mut segment[len..]);
            prop_assert_eq!(header.emit(&mut segment), len);
            prop_assert!(tcp::fill_checksum(&mut segment[..len], sum, payload.len(), from, to));
            prop_assert!(tcp::verify_checksum(from, to, &segment));
            let both = emit_everywhere(len, |buf| {
                header.emit_with_checksum(buf, sum, payload.len(), from, to)
            });
            prop_assert_eq!(&both[..], &segment[..len]);
            let bit = flip.index(segment.len() * 8);
            segment[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!tcp::verify_checksum(from, to, &segment), "bit {} went unseen", bit);
        }
        let (a, b) = (addresses[0].0, addresses[1].0);
        prop_assert!(!tcp::verify_checksum(a, b, &[0; 20]));
        prop_assert!(!tcp::fill_checksum(&mut [0; 20], Partial::ZERO, 0, a, b));
        prop_assert_eq!(header.emit_with_checksum(&mut [0; 60], Partial::ZERO, 0, a, b), 0);
        let wide = tcp::fill_checksum(&mut [0; 20], Partial::ZERO, 65_516, a, a);
        prop_assert!(!wide, "65536 bytes are no IPv4 payload");
    }

    /// What a segment may not carry is left out, and what is too much is cut: never a wrong length.
    #[test]
    fn tcp_leaves_out_what_has_no_place(
        header in tcp_header(),
        other in tcp_header(),
        blocks in prop::collection::vec(any::<(u32, u32)>(), 4),
    ) {
        let mut mixed = tcp::Header { options: other.options, ..header };
        for (left, right) in blocks {
            mixed.options.sack.push(SeqNum(left), SeqNum(right));
        }
        let syn = mixed.flags.contains(Flags::SYN);
        let segment = emit_everywhere(mixed.len(), |buf| mixed.emit(buf));
        let (parsed, len) = tcp::Header::parse(&segment).unwrap();
        prop_assert_eq!(len, segment.len());
        let options = parsed.options;
        prop_assert_eq!(options.timestamps, mixed.options.timestamps);
        prop_assert_eq!(options.mss, mixed.options.mss.filter(|_| syn));
        prop_assert_eq!(options.window_scale, mixed.options.window_scale.filter(|_| syn));
        prop_assert_eq!(options.sack_permitted, mixed.options.sack_permitted && syn);
        let fit = if syn { 0 } else if options.timestamps.is_some() { 3 } else { 4 };
        let sent = mixed.options.sack.as_slice();
        prop_assert_eq!(options.sack.as_slice(), &sent[..sent.len().min(fit)]);
    }

    #[test]
    fn icmpv4(message in icmpv4_message(), payload in bytes(100)) {
        let len = 8 + payload.len();
        let bytes = emit_everywhere(len, |buf| message.emit(&payload, buf));
        prop_assert_eq!(icmpv4::Message::parse(&bytes), Ok((message, &payload[..])));
        for end in 0..8 {
            prop_assert_eq!(icmpv4::Message::parse(&bytes[..end]), Err(Error::Truncated));
        }
    }

    #[test]
    fn icmpv6(message in icmpv6_message(), payload in bytes(100), from in v6(), to in v6()) {
        let len = 8 + payload.len();
        let bytes = emit_everywhere(len, |buf| message.emit(from, to, &payload, buf));
        prop_assert_eq!(icmpv6::Message::parse(from, to, &bytes), Ok((message, &payload[..])));
        for end in 0..len {
            // One cut in 65536 has the right checksum by chance, so no result is promised.
            let _ = icmpv6::Message::parse(from, to, &bytes[..end]);
        }
    }

    #[test]
    fn ndp(packet in discovery()) {
        let (from, to) = (packet.source, packet.destination);
        let message = packet.message.borrow();
        let mut buf = vec![0; 4096];
        let len = message.emit(from, to, &mut buf);
        let bytes = emit_everywhere(len, |buf| message.emit(from, to, buf));
        let (outer, _) = icmpv6::Message::parse(from, to, &bytes).unwrap();
        prop_assert_eq!(outer, icmpv6::Message::NeighborDiscovery);
        prop_assert_eq!(ndp::Message::parse(from, to, 255, &bytes), Ok(message));
        prop_assert_eq!(ndp::Message::parse(from, to, 254, &bytes), Err(Error::Value));
        for end in 0..len {
            // A cut between options leaves a shorter but whole message.
            let _ = ndp::Message::parse(from, to, 255, &bytes[..end]);
        }
    }
}
