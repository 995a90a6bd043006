//! Ephemeral ports that are hard to guess and slow to return (RFC 6056 §3.3.3, algorithm 3).

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use super::isn::{Purpose, keyed_hash, low_half};

/// Where the search for a local port begins for connections from `local` to `remote`: each destination has its own
/// sequence. Depends on nothing else, and can be kept.
pub fn port_offset(secret: &[u8; 16], local: IpAddr, remote: SocketAddr) -> u32 {
    low_half(keyed_hash(
        secret,
        Purpose::Port,
        SocketAddr::new(local, 0),
        remote,
    ))
}

/// Picks a local port.
///
/// The search starts at `offset` (from [`port_offset`]) plus `counter`. `counter` (one per stack or shard) is left behind the
/// port found. `is_free` says whether a port can be taken. `None` if no port of the range can.
pub fn ephemeral_port(
    offset: u32,
    range: RangeInclusive<u16>,
    counter: &mut u32,
    mut is_free: impl FnMut(u16) -> bool,
) -> Option<u16> {
    let first = *range.start();
    let count = u32::from(range.end().checked_sub(first)?) + 1;
    for _ in 0..count {
        let step = offset.wrapping_add(*counter) % count;
        *counter = counter.wrapping_add(1);
        let port = first + u16::try_from(step).unwrap_or(0);
        if port != 0 && is_free(port) {
            return Some(port);
        }
    }
    None
}
