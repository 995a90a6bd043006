//! Initial sequence numbers and timestamp offsets that nobody outside can predict (RFC 6528,
//! RFC 7323 §7.1).

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// What a hash is for, so that one secret serves several.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Purpose {
    SequenceNumber = 1,
    TimestampOffset = 2,
    Port = 3,
}

/// SipHash-2-4 of the purpose, two addresses and two ports, keyed.
pub(super) fn keyed_hash(
    secret: &[u8; 16],
    purpose: Purpose,
    local: SocketAddr,
    remote: SocketAddr,
) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    let mut message = [0_u8; 40];
    message[..16].copy_from_slice(&address_bytes(local.ip()));
    message[16..32].copy_from_slice(&address_bytes(remote.ip()));
    message[32..34].copy_from_slice(&local.port().to_be_bytes());
    message[34..36].copy_from_slice(&remote.port().to_be_bytes());
    message[36] = purpose as u8;
    hasher.write(&message);
    hasher.finish()
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The initial sequence number of a connection opened now: a clock of 4 µs plus a keyed hash of
/// the connection's addresses and ports (RFC 6528 §3; RFC 9293 MUST-8, MUST-9).
///
/// `secret` is random, chosen once at start-up and told to nobody.
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
