//! The ports of sockets that name none (RFC 6335 §6): those of this host, or those that a lease has.

use std::ops::RangeInclusive;

use crate::{limits::EPHEMERAL_PORTS, link::lease::PortRange};

/// Where such ports are chosen from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EphemeralPorts {
    /// None: this host's.
    leased: Vec<PortRange>,
}

impl EphemeralPorts {
    /// Those of a lease, and no others.
    pub const fn of_lease(ranges: Vec<PortRange>) -> Self {
        Self { leased: ranges }
    }

    /// What [`Self::port`] takes.
    pub fn indexes(&self) -> RangeInclusive<u16> {
        if self.leased.is_empty() {
            return EPHEMERAL_PORTS;
        }
        let count: u32 = self.leased.iter().map(|range| range.count()).sum();
        1..=u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// The port with this index; 0 for an index that is none.
    pub fn port(&self, index: u16) -> u16 {
        if self.leased.is_empty() {
            return index;
        }
        let mut left = u32::from(index).saturating_sub(1);
        for range in &self.leased {
            if left < range.count() {
                return range.0 + u16::try_from(left).unwrap_or(0);
            }
            left -= range.count();
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_a_port_of_its_own() {
        let own = EphemeralPorts::default();
        assert_eq!(own.indexes(), EPHEMERAL_PORTS);
        assert_eq!(own.port(40_000), 40_000);
        let ranges = vec![PortRange(50_000, 50_002), PortRange(7, 7), PortRange(9, 8)];
        let leased = EphemeralPorts::of_lease(ranges);
        let ports: Vec<_> = leased.indexes().map(|index| leased.port(index)).collect();
        assert_eq!(ports, [50_000, 50_001, 50_002, 7]);
        assert_eq!(leased.port(5), 0);
    }
}
