//! Whose fragments are held, and whose make room for others: the oldest datagram of the sender that holds most, so that each sender keeps as
//! much as any other can have.
//!
//! A sender is a source address, of IPv6 its /64 network (but for link-local ones). Senders are told apart by a keyed hash, 256 ways: that two
//! have one share between them is rare, and no sender can arrange it.

use core::net::IpAddr;

use super::{NONE, Reassembler};
use crate::ip::keyed::Seed;

/// Ways in which senders are told apart.
const WAYS: usize = 256;

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// Octets of the arena.
    OfBytes,
    /// Datagrams begun.
    OfPlaces,
}

/// What one sender holds.
#[derive(Clone, Copy, Debug)]
struct Holder {
    bytes: usize,
    datagrams: usize,
    /// Places of its first and of its last datagram.
    oldest: u32,
    newest: u32,
}

impl Holder {
    const fn holds(&self, of: Short) -> usize {
        match of {
            Short::OfBytes => self.bytes,
            Short::OfPlaces => self.datagrams,
        }
    }
}

/// What all senders hold.
pub(super) struct Holders {
    seed: Seed,
    each: [Holder; WAYS],
}

impl Holders {
    /// Nothing is held.
    pub(super) const fn new(seed: Seed) -> Self {
        let none = Holder {
            bytes: 0,
            datagrams: 0,
            oldest: NONE,
            newest: NONE,
        };
        Self {
            seed,
            each: [none; WAYS],
        }
    }

    /// The number of a sender.
    pub(super) fn of(&self, source: IpAddr) -> u8 {
        let hash = match source {
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => self.seed.hash(&ip.octets()[..8]),
            _ => self.seed.hash_ip(source),
        };
        u8::try_from(hash % WAYS as u64).unwrap_or(0)
    }

    fn at(&mut self, holder: u8) -> &mut Holder {
        &mut self.each[usize::from(holder) % WAYS]
    }

    /// So many octets more are held.
    pub(super) fn takes(&mut self, holder: u8, bytes: usize) {
        self.at(holder).bytes += bytes;
    }

    /// So many octets, taken before, are free again.
    pub(super) fn gives(&mut self, holder: u8, bytes: usize) {
        self.at(holder).bytes -= bytes;
    }

    /// The sender that holds most; of equals `asking`, which so never pushes out one that holds no more than itself. `spared` has nothing to give.
    fn worst(&self, short: Short, asking: u8, spared: Option<u8>) -> Option<&Holder> {
        let first = usize::from(asking) % WAYS;
        let mut worst: Option<&Holder> = None;
        for at in (first..WAYS).chain(0..first) {
            let holder = &self.each[at];
            let has_some = holder.datagrams > 0 && spared.map(usize::from) != Some(at);
            if has_some && worst.is_none_or(|worst| holder.holds(short) > worst.holds(short)) {
                worst = Some(holder);
            }
        }
        worst
    }
}

impl Reassembler {
    /// A datagram makes room for one of `asking`, never the one at `spared`. False: there is none. It looks at the sums of all senders and at one datagram.
    pub(super) fn make_room(&mut self, short: Short, asking: u8, spared: u32) -> bool {
        let own = self.map.at(spared).map(|(_, datagram)| datagram.holder);
        let alone = own.filter(|&own| self.holders.at(own).datagrams == 1);
        let Some(worst) = self.holders.worst(short, asking, alone) else {
            return false;
        };
        let victim = match self.map.at(worst.oldest) {
            Some((_, oldest)) if worst.oldest == spared => oldest.holders_newer,
            _ => worst.oldest,
        };
        self.counts.evicted += 1;
        self.discard(victim);
        true
    }

    /// The datagram at `place` is its sender's newest.
    pub(super) fn join_holder(&mut self, place: u32) {
        let Some((_, datagram)) = self.map.at_mut(place) else {
            return;
        };
        let holder = self.holders.at(datagram.holder);
        holder.datagrams += 1;
        let before = core::mem::replace(&mut holder.newest, place);
        datagram.holders_older = before;
        match self.map.at_mut(before) {
            Some((_, before)) => before.holders_newer = place,
            None => holder.oldest = place,
        }
    }

    /// The datagram at `place` is its sender's no more.
    pub(super) fn leave_holder(&mut self, place: u32) {
        let Some((_, datagram)) = self.map.at(place) else {
            return;
        };
        let (older, newer) = (datagram.holders_older, datagram.holders_newer);
        let holder = self.holders.at(datagram.holder);
        holder.datagrams -= 1;
        match self.map.at_mut(older) {
            Some((_, neighbor)) => neighbor.holders_newer = newer,
            None => holder.oldest = newer,
        }
        match self.map.at_mut(newer) {
            Some((_, neighbor)) => neighbor.holders_older = older,
            None => holder.newest = older,
        }
    }

    /// Panics if what is booked is not what is held.
    #[cfg(test)]
    pub(super) fn check_holders(&self) {
        let all = &self.holders.each;
        let bytes: usize = all.iter().map(|holder| holder.bytes).sum();
        assert_eq!(bytes, self.config.bytes - self.free_bytes());
        let datagrams: usize = all.iter().map(|holder| holder.datagrams).sum();
        assert_eq!(datagrams, self.len());
        for (number, holder) in all.iter().enumerate() {
            let (mut at, mut before, mut count) = (holder.oldest, NONE, 0);
            while let Some((_, datagram)) = self.map.at(at) {
                assert_eq!(usize::from(datagram.holder), number);
                assert_eq!(datagram.holders_older, before);
                (before, at, count) = (at, datagram.holders_newer, count + 1);
            }
            assert_eq!((before, count), (holder.newest, holder.datagrams));
        }
    }
}
