//! Identifications for datagrams that are fragmented: unique for long (RFC 6864 §4.2), and of no
//! use to an attacker that guesses them (RFC 7739 §5.3).

use alloc::vec::Vec;
use core::net::IpAddr;

use super::keyed::Seed;

/// A counter per bunch of destinations, each started at a secret place per destination.
pub struct Generator {
    offset: Seed,
    bunch: Seed,
    counters: Vec<u32>,
}

/// Counters. 1024: two busy destinations rarely share one, and sharing one tells an observer
/// little.
const COUNTERS: usize = 1024;

impl Generator {
    /// A generator; equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let bunch = seed.derive(0x4944_0002);
        // The value a counter starts at is secret, too.
        let counters = (0..COUNTERS as u64)
            .map(|n| low(bunch.hash(&n.to_le_bytes())))
            .collect();
        Self {
            offset: seed.derive(0x4944_0001),
            bunch,
            counters,
        }
    }

    /// The next identification for a datagram; IPv4 takes the low 16 bits.
    pub fn next(&mut self, source: IpAddr, destination: IpAddr, protocol: u8) -> u32 {
        let mut bytes = [0; 33];
        for (ip, place) in [source, destination].into_iter().zip(bytes.chunks_mut(16)) {
            let octets = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            place.copy_from_slice(&octets);
        }
        bytes[32] = protocol;
        let at = low(self.bunch.hash(&bytes)) as usize % COUNTERS;
        let count = self.counters.get_mut(at).map_or(0, |counter| {
            *counter = counter.wrapping_add(1);
            *counter
        });
        low(self.offset.hash(&bytes)).wrapping_add(count)
    }

    /// [`Self::next`] for IPv4.
    #[allow(clippy::cast_possible_truncation)] // the field has 16 bits
    pub fn next_v4(&mut self, source: IpAddr, destination: IpAddr, protocol: u8) -> u16 {
        self.next(source, destination, protocol) as u16
    }
}

#[allow(clippy::cast_possible_truncation)] // half of a hash is enough
const fn low(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn unique_per_pair_and_not_shared_between_pairs() {
        let mut ids = Generator::new(Seed([1, 2]));
        let (us, a, b) = (
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            [10, 0, 0, 3].into(),
        );
        let to_a: BTreeSet<u16> = (0..=u16::MAX).map(|_| ids.next_v4(us, a, 17)).collect();
        assert_eq!(to_a.len(), 65536, "no repetition before all are used");
        let (first, second) = (ids.next(us, b, 17), ids.next(us, b, 17));
        assert_eq!(second, first.wrapping_add(1));
        let mut other = Generator::new(Seed([1, 3]));
        assert_ne!(
            other.next(us, b, 17),
            first,
            "another secret, another start"
        );
    }
}
