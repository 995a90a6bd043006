//! The hop cache: the frame header of packets between two addresses that passed the check and found their neighbour lately.
//! A hint that saves the way through *check*, routes and neighbours; it knows nothing that these do not.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use proto::{
    neighbor::Settled,
    time::Instant,
    wire::ethernet::{self, EtherType, MacAddr},
};

use crate::packet::{Hint, Packet};

/// Pairs kept: 256 × 80 bytes, of which only those in use are touched. More peers than that share places.
const PLACES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Hop {
    /// Source and destination as they lie in the packet; of IPv4, in the first word.
    ends: [u64; 4],
    /// When the neighbour wants to be looked at again.
    until: Instant,
    /// From when on the neighbour wants to hear of progress.
    confirm_from: Instant,
    generation: u32,
    header: [u8; ethernet::HEADER_LEN],
}

/// The cache of one queue of an interface.
#[derive(Debug)]
pub struct Hops {
    places: Vec<Hop>,
    /// What was kept under an earlier one counts no more.
    generation: u32,
    /// How often the cache of the link's first queue has forgotten everything: written there, followed by those of further queues.
    forgotten: Arc<AtomicU32>,
}

/// What a cache knows of one pair of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Known(Hop);

impl Hops {
    /// Empty.
    pub fn new() -> Self {
        let none = Hop {
            ends: [0; 4],
            until: Instant::ZERO,
            confirm_from: Instant::ZERO,
            generation: 0,
            header: [0; ethernet::HEADER_LEN],
        };
        Self {
            places: vec![none; PLACES],
            generation: 1,
            forgotten: Arc::new(AtomicU32::new(1)),
        }
    }

    /// For a further queue of the link: [`Self::follow`]s what `first` forgets.
    pub fn behind(first: &Self) -> Self {
        Self {
            forgotten: first.forgotten.clone(),
            ..Self::new()
        }
    }

    /// Forgets everything: the neighbours have changed.
    pub fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.forgotten.store(self.generation, Relaxed); // what is stamped meanwhile goes where it went before
    }

    /// Forgets everything, if the first queue's cache has since the last call.
    #[inline]
    pub fn follow(&mut self) {
        self.generation = self.forgotten.load(Relaxed);
    }

    /// What it knows of the addresses of a packet.
    pub fn known(&self, ends: &Ends) -> Option<Known> {
        let hop = self.places.get(ends.1)?;
        let is_known = hop.ends == ends.0 && hop.generation == self.generation;
        is_known.then_some(Known(*hop))
    }

    /// Keeps what the first queue's cache knows.
    pub fn learn(&mut self, ends: &Ends, Known(hop): Known) {
        if let Some(place) = self.places.get_mut(ends.1) {
            *place = Hop {
                generation: self.generation,
                ..hop
            };
        }
    }

    /// The frame header for a packet, if it is known and no other part needs to hear of the packet.
    #[inline]
    pub fn get(&self, packet: &Packet, now: Instant) -> Option<&[u8; ethernet::HEADER_LEN]> {
        let (ends, place) = ends_of(packet.bytes())?;
        let hop = self.places.get(place)?;
        let known = hop.ends == ends && hop.generation == self.generation && now < hop.until;
        let silent = match packet.meta.hint {
            Hint::NONE => true,
            Hint::PROGRESS => now < hop.confirm_from,
            _ => false,
        };
        (known && silent).then_some(&hop.header)
    }

    /// Puts the frame header in front of a packet, if [`Self::get`] knows it (and the packet has room for it).
    #[inline(always)]
    pub fn stamp(&self, packet: &mut Packet, now: Instant) -> bool {
        let Some(&header) = self.get(packet, now) else {
            return false;
        };
        match packet.push(ethernet::HEADER_LEN) {
            Some(room) => room.copy_from_slice(&header),
            None => return false,
        }
        true
    }

    /// Keeps the frame header for packets between the addresses of `packet`.
    pub fn put(&mut self, packet: &Packet, ours: MacAddr, settled: &Settled) {
        let Some((ends, place)) = ends_of(packet.bytes()) else {
            return;
        };
        let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
        let mut header = [0; ethernet::HEADER_LEN];
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        ethernet::Header::new(settled.mac, ours, ethertype).emit(&mut header);
        let (until, confirm_from) = (settled.until, settled.confirm_from);
        if let Some(hop) = self.places.get_mut(place) {
            *hop = Hop {
                ends,
                until,
                confirm_from,
                generation: self.generation,
                header,
            };
        }
    }
}

/// The addresses of an IP packet as a cache keeps them, and their place in it.
pub type Ends = ([u64; 4], usize);

/// The two addresses of an IP packet, and the place of what is known of them. The families do not meet: no IPv6 packet is
/// for `::`, which the last words of an IPv4 pair would say.
#[inline]
pub fn ends_of(bytes: &[u8]) -> Option<Ends> {
    let word = |at: &[u8; 8]| u64::from_ne_bytes(*at);
    if bytes.first()? >> 4 == 4 {
        let ends = bytes.get(12..20)?.first_chunk::<8>()?;
        let place = usize::from(ends[7] ^ ends[6]);
        return Some(([word(ends), 0, 0, 0], place % PLACES));
    }
    let ends = bytes.get(8..40)?;
    let ([a, b, c, d], []) = ends.as_chunks::<8>() else {
        return None;
    };
    Some((
        [word(a), word(b), word(c), word(d)],
        usize::from(d[7] ^ d[6]) % PLACES,
    ))
}

#[cfg(test)]
mod tests {
    use percore::slab::Slab;
    use proto::time::Duration;

    use super::*;

    fn packet(slab: &mut Slab, bytes: &[u8]) -> Packet {
        let mut packet = Packet::new(slab.alloc().expect("a buffer"), 40);
        packet.set_len(bytes.len());
        packet.bytes_mut().copy_from_slice(bytes);
        packet
    }

    #[test]
    fn a_further_queue_knows_what_the_first_one_told_it_until_that_forgets() {
        let mut slab = Slab::new(8, 256).unwrap();
        let mut v4 = [0; 28];
        (v4[0], v4[15], v4[19]) = (0x45, 1, 2);
        let sent = packet(&mut slab, &v4);
        let (now, ends) = (Instant(1000), ends_of(&v4).unwrap());
        let settled = Settled {
            mac: MacAddr([4; 6]),
            until: now + Duration::from_secs(2),
            confirm_from: now + Duration::from_secs(1),
        };
        let mut first = Hops::new();
        first.forget(); // it is older than the further one
        let mut further = Hops::behind(&first);
        further.follow();
        assert!(first.known(&ends).is_none());
        first.put(&sent, MacAddr([2; 6]), &settled);
        further.learn(&ends, first.known(&ends).expect("it was put there"));
        assert_eq!(further.get(&sent, now), first.get(&sent, now));
        assert!(further.get(&sent, now).is_some());
        further.follow();
        assert!(further.get(&sent, now).is_some(), "nothing was forgotten");
        first.forget();
        assert!(further.get(&sent, now).is_some(), "it has not looked yet");
        further.follow();
        assert!(further.get(&sent, now).is_none());
    }

    #[test]
    fn known_until_its_time_or_until_forgotten() {
        let mut slab = Slab::new(8, 256).unwrap();
        let (mut v4, mut v6) = ([0; 28], [0; 48]);
        (v4[0], v4[15], v4[19]) = (0x45, 1, 2);
        (v6[0], v6[23], v6[39]) = (0x60, 1, 2);
        let (ours, mac) = (MacAddr([2; 6]), MacAddr([4; 6]));
        for bytes in [&v4[..], &v6[..]] {
            let mut hops = Hops::new();
            let mut sent = packet(&mut slab, bytes);
            let now = Instant(1000);
            assert!(hops.get(&sent, now).is_none());
            let (until, confirm_from) =
                (now + Duration::from_secs(2), now + Duration::from_secs(1));
            hops.put(
                &sent,
                ours,
                &Settled {
                    mac,
                    until,
                    confirm_from,
                },
            );
            let header = *hops.get(&sent, now).expect("known");
            assert_eq!((&header[..6], &header[6..12]), (&mac.0[..], &ours.0[..]));
            assert_eq!(
                header[12..],
                if bytes.len() == 48 {
                    [0x86, 0xdd]
                } else {
                    [8, 0]
                }
            );
            assert!(hops.get(&sent, until).is_none());
            sent.meta.hint = Hint::PROGRESS;
            assert!(hops.get(&sent, now).is_some() && hops.get(&sent, confirm_from).is_none());
            sent.meta.hint = Hint::DOUBT;
            assert!(hops.get(&sent, now).is_none());
            sent.meta.hint = Hint::NONE;
            let mut other = bytes.to_vec();
            other[18] ^= 1; // a part of the source or of the destination
            assert!(hops.get(&packet(&mut slab, &other), now).is_none());
            hops.forget();
            assert!(hops.get(&sent, now).is_none());
        }
        assert!(
            Hops::new()
                .get(&packet(&mut slab, &[0x45; 19]), Instant::ZERO)
                .is_none()
        );
        assert!(
            Hops::new()
                .get(&packet(&mut slab, &[]), Instant::ZERO)
                .is_none()
        );
    }
}
