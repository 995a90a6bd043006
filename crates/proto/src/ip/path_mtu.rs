//! What is known of the largest packet a path carries: RFC 1191, RFC 8201. Bounded; an attacker can
//! fill it only with entries that make room for the next.

use super::keyed::{Map, Seed};
use crate::time::{Duration, Instant};
use core::net::IpAddr;

/// No IPv4 link carries less (RFC 791 §3.2).
pub const MTU_MIN_V4: u16 = 68;
/// No IPv6 link carries less (RFC 8200 §5).
pub const MTU_MIN_V6: u16 = 1280;
/// How long a lowered path MTU is believed (RFC 1191 §6.3: at least 5 minutes, 10 recommended; RFC
/// 8201 §5.3).
pub const LIFETIME: Duration = Duration::from_secs(600);

/// What became of a report that a packet was too big.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Learned {
    /// The path MTU is now this many octets.
    Lowered(u16),
    /// The report names the known path MTU or a larger one; nothing changes (RFC 8201 §4, negative
    /// 33).
    NotLower,
    /// The report names less than any link of this family carries (negative 33).
    Impossible,
    /// Every entry is in use and younger; cannot happen while entries may be evicted.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mtu: u16,
    expires: Instant,
}

/// Path MTU per destination, in octets of the whole IP packet.
pub struct Cache {
    map: Map<IpAddr, Entry>,
}

impl Cache {
    /// Room for `capacity` destinations whose path is narrower than the link.
    #[must_use]
    pub fn new(capacity: usize, seed: Seed) -> Self {
        Self {
            map: Map::new(capacity, seed.derive(0x504d_5455)),
        }
    }

    /// The path MTU to `destination`, where the link's own is `link`.
    #[must_use]
    pub fn lookup(&self, destination: IpAddr, link: u16, now: Instant) -> u16 {
        if self.map.len() == 0 {
            return link; // the usual case costs no hash
        }
        match self.map.get(&destination) {
            Some(entry) if now < entry.expires => entry.mtu.min(link),
            _ => link,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// Takes a Packet Too Big (or Fragmentation Needed) that the transport has matched to what it
    /// sent. `mtu` 0 is a router older than RFC 1191: the next lower plateau under the `sent`
    /// octets is taken (§7.1).
    pub fn report(
        &mut self,
        destination: IpAddr,
        mtu: u32,
        sent: u16,
        link: u16,
        now: Instant,
    ) -> Learned {
        let floor = if destination.is_ipv4() {
            MTU_MIN_V4
        } else {
            MTU_MIN_V6
        };
        let mtu = match (mtu, destination) {
            (0, IpAddr::V4(_)) => plateau_below(sent),
            _ => u16::try_from(mtu).unwrap_or(u16::MAX),
        };
        if mtu < floor {
            return Learned::Impossible;
        }
        // RFC 8201 §4: a node must not raise its estimate on a Packet Too Big.
        if mtu >= self.lookup(destination, link, now) {
            return Learned::NotLower;
        }
        let entry = Entry {
            mtu,
            expires: now + LIFETIME,
        };
        if let Some(old) = self.map.get_mut(&destination) {
            *old = entry;
            return Learned::Lowered(mtu);
        }
        match self
            .map
            .insert(destination, entry, |_, e| Some(e.expires.0))
        {
            Some(_) => Learned::Lowered(mtu),
            None => Learned::Full,
        }
    }

    /// Forgets what is known of a path (a larger probe got through, or the route changed).
    pub fn forget(&mut self, destination: IpAddr) {
        if let Some(place) = self.map.find(&destination) {
            self.map.remove(place);
        }
    }

    /// What is known: destination, path MTU in octets, when it will be forgotten.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u16, Instant)> {
        self.map.iter().map(|(ip, e)| (*ip, e.mtu, e.expires))
    }
}

/// RFC 1191 §7, the table of common MTUs: the largest below `sent`.
fn plateau_below(sent: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    PLATEAUS
        .into_iter()
        .find(|p| *p < sent)
        .unwrap_or(MTU_MIN_V4)
}

#[cfg(test)]
#[path = "path_mtu_tests.rs"]
mod tests;
