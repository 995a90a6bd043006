//! Initial sequence numbers and timestamp offsets that an attacker cannot predict (RFC 6528,
//! RFC 7323 §7.1).

use core::net::{IpAddr, SocketAddr};

use crate::siphash::{Key, halves};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// What a hash is for, so that one secret serves several.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Purpose {
    SequenceNumber = 1,
    TimestampOffset = 2,
    Port = 3,
    Cookie = 4,
    FastOpenKey = 5,
}

/// SipHash-2-4 of two addresses, two ports and the purpose, keyed: of 13 bytes (IPv4) or 37 (IPv6), taken as the 2 or 5
/// words that SipHash makes of them. A connection needs five of these.
pub(super) fn keyed_hash(
    secret: &[u8; 16],
    purpose: Purpose,
    local: SocketAddr,
    remote: SocketAddr,
) -> u64 {
    let key = Key::new(secret);
    let ports = u64::from(local.port()) | u64::from(remote.port()) << 16;
    let last = |len: u64| ports | (purpose as u64) << 32 | len << 56;
    match (local.ip(), remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let [local, remote] =
                [local, remote].map(|ip| u64::from(u32::from_le_bytes(ip.octets())));
            key.hash::<2, 4>(&[local | remote << 32, last(13)])
        }
        (local, remote) => {
            let ([a, b], [c, d]) = (words(local), words(remote));
            key.hash::<2, 4>(&[a, b, c, d, last(37)])
        }
    }
}

/// The two words of an IPv6 address, or of a mapped IPv4 one.
pub(super) fn words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    halves(&octets)
}

/// The initial sequence number of a connection opened now: a clock of 4 µs plus a keyed hash of
/// the connection's addresses and ports (RFC 6528 §3; RFC 9293 MUST-8, MUST-9).
///
/// `secret` is random, chosen once at start-up and kept secret.
pub fn initial_sequence(
    secret: &[u8; 16],
    local: SocketAddr,
    remote: SocketAddr,
    now: Instant,
) -> SeqNum {
    let hash = keyed_hash(secret, Purpose::SequenceNumber, local, remote);
    SeqNum(low_half(hash).wrapping_add(low_half(now.0 / 4_000)))
}

/// Where the timestamp clock of connections between two hosts starts. Ports do not matter, so
/// that timestamps grow from one connection to the next (RFC 7323 §7.1, RFC 6191).
pub fn timestamp_offset(secret: &[u8; 16], local: IpAddr, remote: IpAddr) -> u32 {
    let (local, remote) = (SocketAddr::new(local, 0), SocketAddr::new(remote, 0));
    low_half(keyed_hash(secret, Purpose::TimestampOffset, local, remote))
}

#[allow(clippy::cast_possible_truncation)] // 32 of 64 bits are what is wanted
pub(super) const fn low_half(value: u64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher24;

    use super::*;

    #[test]
    fn is_siphash() {
        let v6 = |n: u8| IpAddr::from([n; 16]);
        let v4 = |n: u8| IpAddr::from([10, n, 0, 7]);
        for seed in 1..200_u8 {
            let mut key = [0; 16];
            key.iter_mut()
                .zip(seed..)
                .for_each(|(byte, n): (&mut u8, u8)| *byte = n.wrapping_mul(91));
            for (local, remote) in [(v4(1), v4(seed)), (v6(seed), v6(3)), (v6(200), v6(9))] {
                let (local, remote) = (
                    SocketAddr::new(local, 0x1234),
                    SocketAddr::new(remote, 0xfedc),
                );
                let mut bytes = alloc::vec::Vec::new();
                for ip in [local.ip(), remote.ip()] {
                    match ip {
                        IpAddr::V4(ip) => bytes.extend(ip.octets()),
                        IpAddr::V6(ip) => bytes.extend(ip.octets()),
                    }
                }
                bytes.extend([0x34, 0x12, 0xdc, 0xfe, Purpose::Port as u8]);
                assert_eq!(
                    keyed_hash(&key, Purpose::Port, local, remote),
                    SipHasher24::new_with_key(&key).hash(&bytes)
                );
            }
        }
    }
}
