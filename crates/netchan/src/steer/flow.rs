//! Flows: their key, its keyed hash, and the table from hash to shard.

use std::net::IpAddr;

use proto::wire::ipv4::Protocol;
use siphasher::sip::SipHasher13;

/// The five numbers that name a flow, seen from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl FlowKey {
    /// The flow of a packet that we sent: an IP header without options or extension headers, then ports.
    pub fn of_sent(bytes: &[u8]) -> Option<Self> {
        let (source, destination, protocol, upper): (IpAddr, IpAddr, u8, usize) = if bytes.first()? >> 4 == 4 {
            let header = bytes.first_chunk::<20>()?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
            ([s0, s1, s2, s3].into(), [d0, d1, d2, d3].into(), header[9], 20)
        } else {
            let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
            ((*source).into(), (*rest.first_chunk::<16>()?).into(), *bytes.get(6)?, 40)
        };
        let [s0, s1, d0, d1] = *bytes.get(upper..)?.first_chunk::<4>()?;
        let protocol = Protocol(protocol);
        matches!(protocol, Protocol::TCP | Protocol::UDP).then_some(Self {
            local: source,
            remote: destination,
            local_port: u16::from_be_bytes([s0, s1]),
            remote_port: u16::from_be_bytes([d0, d1]),
            protocol,
        })
    }
}

/// A keyed hash: whoever does not know the key cannot choose flows that collide.
#[derive(Clone, Debug)]
pub struct FlowHash(SipHasher13);

impl FlowHash {
    /// With a secret key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(key))
    }

    /// 64 bits for `key`: never 0, so that 0 can mean "none".
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let [lp0, lp1] = key.local_port.to_be_bytes();
        let [rp0, rp1] = key.remote_port.to_be_bytes();
        let hash = match (key.local, key.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut bytes = [0; 13];
                bytes[..4].copy_from_slice(&local.octets());
                bytes[4..8].copy_from_slice(&remote.octets());
                bytes[8..].copy_from_slice(&[lp0, lp1, rp0, rp1, key.protocol.0]);
                self.0.hash(&bytes)
            }
            (local, remote) => {
                let mut bytes = [0; 37];
                bytes[..16].copy_from_slice(&v6_octets(local));
                bytes[16..32].copy_from_slice(&v6_octets(remote));
                bytes[32..].copy_from_slice(&[lp0, lp1, rp0, rp1, key.protocol.0]);
                self.0.hash(&bytes)
            }
        };
        hash | 1
    }
}

const fn v6_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// From a flow's hash to a shard: open addressing, linear probing, a quarter of a cache line per entry.
///
/// The 64-bit keyed hash stands for the flow (two flows of a million collide with a probability of 3·10⁻⁸, and then one of them
/// meets a shard that does not know it); the shard compares the whole key. Its cost does not grow with the number of flows but by cache misses.
#[derive(Debug)]
pub struct FlowTable {
    entries: Vec<(u64, u32)>,
    mask: usize,
    len: usize,
    capacity: usize,
}

impl FlowTable {
    /// A table for `capacity` flows; allocates all of it (16 bytes × twice the capacity, touched only when used).
    pub fn new(capacity: usize) -> Self {
        let slots = (capacity * 2).next_power_of_two().max(8);
        Self { entries: vec![(0, 0); slots], mask: slots - 1, len: 0, capacity }
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits choose the slot
    const fn home(&self, hash: u64) -> usize {
        (hash >> 16) as usize & self.mask
    }

    /// The shard of a flow.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            match self.entries[at] {
                (0, _) => return None,
                (h, shard) if h == hash => return Some(shard),
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    /// Puts a flow into the table or changes its shard; false when it is full.
    pub fn insert(&mut self, hash: u64, shard: u32) -> bool {
        let mut at = self.home(hash);
        loop {
            match &mut self.entries[at] {
                (0, _) if self.len == self.capacity => return false,
                slot @ (0, _) => {
                    *slot = (hash, shard);
                    self.len += 1;
                    return true;
                }
                (h, s) if *h == hash => {
                    *s = shard;
                    return true;
                }
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    /// Takes a flow out; what was probed past it moves up, so that no tombstones gather.
    pub fn remove(&mut self, hash: u64) -> bool {
        let mut hole = self.home(hash);
        loop {
            match self.entries[hole].0 {
                0 => return false,
                h if h == hash => break,
                _ => hole = (hole + 1) & self.mask,
            }
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let h = self.entries[at].0;
            if h == 0 {
                break;
            }
            // Moves up unless its home lies cyclically after the hole.
            if at.wrapping_sub(self.home(h)) & self.mask >= at.wrapping_sub(hole) & self.mask {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
        }
        self.entries[hole] = (0, 0);
        self.len -= 1;
        true
    }

    /// Number of flows.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_map_under_random_changes() {
        let mut table = FlowTable::new(200);
        let mut model = std::collections::HashMap::new();
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for step in 0..200_000_u32 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // Few home slots, so that probing and moving up happen.
            let hash = ((x % 300) << 14) | 1;
            if step % 3 == 0 {
                assert_eq!(table.remove(hash), model.remove(&hash).is_some());
            } else if table.insert(hash, step) {
                model.insert(hash, step);
            } else {
                assert!(model.len() == 200 && !model.contains_key(&hash));
            }
            assert_eq!(table.len(), model.len());
            assert_eq!(table.get(hash), model.get(&hash).copied());
        }
    }
}
