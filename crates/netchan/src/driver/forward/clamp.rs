//! MSS clamping: a forwarded SYN offers no segment longer than the links it crosses here take, so that connections do without the ICMP
//! errors that a device on their path may drop (RFC 2923 §2.1, RFC 4459 §3.2). The option is never added, only lowered.

use proto::wire::{
    checksum,
    ipv4::{self, Protocol},
    ipv6,
    tcp::Flags,
};

use crate::emit::TCP_CHECKSUM;

/// A TCP header without options.
const HEADER: usize = 20;
/// No option says less: a link of 68 bytes (RFC 791) leaves 28, and a peer's stack may take less for an attack.
const LEAST: u16 = 28;
const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;

/// Lowers the MSS option of a whole packet that is a SYN to what `mtu` bytes carry; its checksum, which is there, stays right. True if it did.
pub fn clamp(packet: &mut [u8], mtu: usize) -> bool {
    let (range, headers) = match packet.first().map(|b| b >> 4) {
        Some(4) => match ipv4::Header::parse(packet) {
            Ok(ip) if ip.protocol == Protocol::TCP && !ip.is_fragment() => (ip.payload_range(), 40),
            _ => return false,
        },
        Some(6) => match ipv6::Header::parse(packet) {
            Ok(ip) if ip.next_header == Protocol::TCP => {
                let end = ipv6::HEADER_LEN + usize::from(ip.payload_len);
                (ipv6::HEADER_LEN..end, 60)
            }
            _ => return false,
        },
        _ => return false,
    };
    let Some(segment) = packet.get_mut(range) else {
        return false;
    };
    let Some(header) = segment.first_chunk::<HEADER>() else {
        return false;
    };
    if u16::from(header[13]) & Flags::SYN.0 == 0 {
        return false;
    }
    let end = usize::from(header[12] >> 4) * 4;
    let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    lower(segment, end, most.max(LEAST))
}

/// The MSS options between the header and `end`.
fn lower(segment: &mut [u8], end: usize, most: u16) -> bool {
    let (mut at, mut changed) = (HEADER, false);
    while at < end {
        let len = match (segment.get(at), segment.get(at + 1)) {
            (Some(&NOTHING), _) => 1,
            (Some(&END) | None, _) | (_, None) => break,
            (_, Some(&len)) => usize::from(len),
        };
        if segment[at] == MSS && len == 4 && at + len <= end {
            changed |= lower_one(segment, at + 2, most);
        } else if len == 0 || (len == 1 && segment[at] != NOTHING) {
            break;
        }
        at += len;
    }
    changed
}

/// RFC 1624: the checksum follows what changed, so that what was broken before stays broken.
fn lower_one(segment: &mut [u8], at: usize, most: u16) -> bool {
    let Some(&[a, b]) = segment.get(at..at + 2) else {
        return false;
    };
    let old = u16::from_be_bytes([a, b]);
    if old <= most {
        return false;
    }
    let (mut from, mut to) = (old, most);
    if !at.is_multiple_of(2) {
        // It lies across two words of the sum, each octet at the other's place.
        (from, to) = (from.swap_bytes(), to.swap_bytes());
    }
    segment[at..at + 2].copy_from_slice(&most.to_be_bytes());
    let sum = &mut segment[TCP_CHECKSUM..TCP_CHECKSUM + 2];
    let new = checksum::update(u16::from_be_bytes([sum[0], sum[1]]), from, to);
    sum.copy_from_slice(&new.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::emit::{IpFields, emit_ip};

    /// A segment with these flags and options, whose checksum is right.
    fn packet(v6: bool, flags: Flags, options: &[u8]) -> Vec<u8> {
        let ends: (IpAddr, IpAddr) = if v6 {
            ([1; 16].into(), [2; 16].into())
        } else {
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        };
        let at = if v6 { 40 } else { 20 };
        let len = HEADER + options.len();
        let mut packet = vec![0; at + len];
        assert!(emit_ip(
            &mut packet,
            ends.0,
            ends.1,
            Protocol::TCP,
            IpFields::default(),
            len
        ));
        packet[at + 3] = 99;
        packet[at + 12] = u8::try_from(len / 4).unwrap() << 4;
        packet[at + 13] = u8::try_from(flags.0).unwrap();
        packet[at + HEADER..].copy_from_slice(options);
        let pseudo = checksum::pseudo_header(ends.0, ends.1, Protocol::TCP, len).unwrap();
        let sum = checksum::finish(pseudo + checksum::sum(&packet[at..]));
        packet[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

    /// RFC 1624 eqn. 3 gives what a new sum over everything would, also where the option lies at an odd place.
    #[test]
    fn a_syn_offers_what_fits_and_its_checksum_stays_right() {
        for (v6, most) in [(false, 1360_u16), (true, 1340)] {
            for flags in [Flags::SYN, SYN_ACK] {
                for option in [
                    |mss: [u8; 2]| vec![2, 4, mss[0], mss[1]],
                    |mss: [u8; 2]| vec![1, 2, 4, mss[0], mss[1], 1, 1, 0],
                    |mss: [u8; 2]| vec![4, 2, 3, 3, 7, 2, 4, mss[0], mss[1], 0, 0, 0],
                ] {
                    let mut long = packet(v6, flags, &option([0x05, 0xb4]));
                    assert!(clamp(&mut long, 1400));
                    assert_eq!(long, packet(v6, flags, &option(most.to_be_bytes())));
                    assert!(!clamp(&mut long, 1400), "it fits now");
                }
            }
        }
    }

    #[test]
    fn what_is_no_long_syn_passes_as_it_is() {
        let mss = [2, 4, 0x05, 0xb4];
        let whole = packet(false, Flags::SYN, &mss);
        let mut fragment = whole.clone();
        fragment[6] = 0x20;
        let mut datagram = whole.clone();
        datagram[9] = 17;
        for packet in [
            packet(false, Flags::ACK, &mss),
            packet(true, Flags::SYN, &[]),
            packet(false, Flags::SYN, &[2, 4, 0x05, 0x00]),
            packet(false, Flags::SYN, &[0, 2, 4, 0xff, 0xff, 0, 0, 0]),
            packet(false, Flags::SYN, &[2, 0, 0xff, 0xff]),
            packet(false, Flags::SYN, &[8, 1, 0xff, 0xff]),
            packet(false, Flags::SYN, &[1, 1, 2, 4]),
            fragment,
            datagram,
        ] {
            let mut after = packet.clone();
            assert!(!clamp(&mut after, 1320));
            assert_eq!(after, packet);
        }
        // Neither what is cut short nor a header that says more than there is makes it panic (house rule: bad input).
        for len in 0..whole.len() {
            clamp(&mut whole.clone()[..len], 68);
        }
        for offset in 0..16 {
            let mut wrong = whole.clone();
            wrong[32] = offset << 4;
            clamp(&mut wrong, 68);
        }
    }
}
