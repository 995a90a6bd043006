//! The shelf: where received packets wait for their readers without holding what the link needs to receive.
//!
//! A link's buffer is as large as its longest frame, 64 KiB where segments come merged, and there are few of them; what lies in it may be
//! one byte. Packets that fill less than an eighth of theirs are copied, into the smallest of three sizes that takes them, before they are
//! queued: so no peer makes us hold more than eight times what it sent, and the link has its buffers back. Others stay where they are, but at most so
//! many. The last places are for connections that have nothing to read: one for each connection that the shard can have.
//!
//! What is taken although its peer, or all of them, hold what they may is the beginning of a packet, a whole segment where there is a place for
//! it: half of the larger places are never given for that.

use std::io;

use percore::slab::Slab;
use proto::tcp::{self, Keep, SegmentPool};

use crate::{limits, packet::Packet};

/// A packet in its own buffer that is not counted here: a datagram, which the account of UDP limits.
pub const UNCOUNTED: u8 = u8::MAX;
/// A packet in its own buffer.
const AS_IT_CAME: u8 = 0;
/// Bytes of a place of each size.
const SIZES: [usize; 3] = [256, 2048, 8192];
/// A buffer for ordinary frames: what is in order may stay there, and what follows is put behind it.
const ORDINARY: usize = 4096;

/// Bytes of memory that a packet of `len` bytes holds, which came in `size`, once it is kept.
#[inline]
pub fn size_kept(len: usize, size: usize) -> usize {
    if len * 8 >= size {
        return size;
    }
    let fits = SIZES.into_iter().find(|&place| len <= place);
    fits.map_or(size, |place| place.min(size))
}

/// Places of one size.
#[derive(Debug)]
struct Row {
    slab: Slab,
    /// Those not taken.
    free: usize,
    /// Of these, for first packets only.
    reserved: usize,
}

impl Row {
    /// Free places that are not for such text.
    fn spared(&self, why: Keep, little: bool) -> usize {
        match why {
            _ if little => self.slab.capacity() / 2,
            Keep::First => 0,
            Keep::InOrder | Keep::Behind => self.reserved,
        }
    }
}

/// All of a shard's.
#[derive(Debug)]
pub struct Shelf {
    rows: [Row; 3],
    /// Packets that may still stay in their own buffers.
    own: usize,
    /// How many may altogether.
    own_all: usize,
    places: usize,
}

impl Shelf {
    /// For `own` packets in their own buffers, and places as a shard's `room` says, of which `reserved` small ones are for first packets.
    ///
    /// # Errors
    /// When the machine has no memory for it.
    pub fn new(own: usize, places: [usize; 3], reserved: usize) -> io::Result<Self> {
        let row = |at: usize| {
            let reserved = if at == 0 { reserved } else { 0 };
            let free = places[at] + reserved;
            let slab = Slab::with_ready(free, SIZES[at], 0)?;
            Ok::<_, io::Error>(Row {
                slab,
                free,
                reserved,
            })
        };
        let rows = [row(0)?, row(1)?, row(2)?];
        let all = own + rows.iter().map(|row| row.free).sum::<usize>();
        Ok(Self {
            rows,
            own,
            own_all: own,
            places: all,
        })
    }

    /// Whether more than half of those that may are in their own buffers.
    #[inline]
    pub const fn is_busy(&self) -> bool {
        self.own < self.own_all / 2
    }

    /// Of buffers of `size` bytes, what half of them come to: no more is one peer's while it is busy.
    #[inline]
    pub const fn half(&self, size: usize) -> u64 {
        (self.own_all / 2) as u64 * size as u64
    }

    /// Bytes of text from ourselves that are always taken: such segments stay in the small buffers they were sent in, and no more of them than
    /// [`Self::half`] counts.
    #[inline]
    pub fn own_share(&self) -> u32 {
        let packets = u32::try_from(self.own_all / 2).unwrap_or(u32::MAX);
        packets.saturating_mul(limits::SEGMENT_EXPECTED)
    }

    /// A pool with a node for each of its places, those in packets' own buffers included.
    pub fn pool(self) -> SegmentPool<Packet> {
        SegmentPool::with_shelf(self.places, self)
    }

    /// Places of one size, the smallest first: free, all, bytes of each.
    pub fn rows(&self) -> [(usize, usize, usize); 3] {
        [0, 1, 2].map(|at| {
            let row = &self.rows[at];
            (row.free, row.slab.capacity(), SIZES[at])
        })
    }

    /// Copies a packet into the smallest place that is free for it; gives it back if there is none.
    #[inline(never)]
    fn copy(&mut self, packet: Packet, why: Keep, little: bool) -> Result<(Packet, u8), Packet> {
        for (place, row) in (1_u8..).zip(&mut self.rows) {
            let spare = row.spared(why, little && place > 1);
            if packet.len() > row.slab.buffer_size() || row.free <= spare {
                continue;
            }
            let Some(buffer) = row.slab.alloc() else {
                continue;
            };
            let Ok(mut copy) = packet.copy(buffer) else {
                break;
            };
            copy.meta = packet.meta;
            row.free -= 1;
            return Ok((copy, place));
        }
        Err(packet)
    }

    /// Whether a datagram is not to stay in its own buffer.
    #[inline]
    pub fn moves_datagram(packet: &Packet, is_first: bool) -> bool {
        let size = packet.true_size();
        packet.len() * 8 < size && !(is_first && size <= ORDINARY)
    }

    /// A place for a datagram that does not, headers included. Where there is none it does.
    #[inline(never)]
    pub fn keep_datagram(&mut self, packet: Packet) -> (Packet, u8) {
        // The reserve is TCP's.
        self.copy(packet, Keep::InOrder, false)
            .unwrap_or_else(|packet| (packet, UNCOUNTED))
    }

    /// What is not kept as it came.
    #[inline(never)]
    fn keep_elsewhere(
        &mut self,
        mut packet: Packet,
        why: Keep,
        little: bool,
    ) -> Option<(Packet, u8)> {
        if !little {
            packet = match self.copy(packet, why, little) {
                Ok(kept) => return Some(kept),
                Err(packet) => packet,
            };
            if let Some(left) = self.own.checked_sub(1) {
                self.own = left;
                return Some((packet, AS_IT_CAME));
            }
            if why != Keep::First {
                return None;
            }
        }
        // What is cut off comes again, as it is not acknowledged: after a timeout, so that a segment is not cut if that can be.
        packet.truncate(self.most_of_little());
        self.copy(packet, why, true).ok()
    }

    /// Bytes of a packet of which only a little is taken.
    fn most_of_little(&self) -> usize {
        let large = self.rows.iter().zip(SIZES).skip(1).rev();
        { large }
            .find(|(row, _)| row.free > row.spared(Keep::First, true))
            .map_or(SIZES[0], |(_, size)| size)
    }
}

impl tcp::Shelf<Packet> for Shelf {
    #[inline]
    fn is_roomy(&self) -> bool {
        self.own > 0
    }

    #[inline(always)]
    fn keep_as_it_came(&mut self, packet: &Packet, why: Keep, little: bool) -> Option<u8> {
        let size = packet.true_size();
        let stays = (size <= ORDINARY && why != Keep::Behind) || packet.len() * 8 >= size;
        if !stays || self.own == 0 || little {
            return None;
        }
        self.own -= 1;
        Some(AS_IT_CAME)
    }

    fn keep(&mut self, packet: Packet, why: Keep, little: bool) -> Option<(Packet, u8)> {
        match self.keep_as_it_came(&packet, why, little) {
            Some(place) => Some((packet, place)),
            None => self.keep_elsewhere(packet, why, little),
        }
    }

    #[inline]
    fn free(&mut self, place: u8) {
        match place {
            AS_IT_CAME => self.own += 1,
            UNCOUNTED => {}
            row => {
                if let Some(row) = self.rows.get_mut(usize::from(row) - 1) {
                    row.free += 1;
                }
            }
        }
    }
}

const _: () = assert!(
    limits::SHARD.shelf[0] > 0 && limits::SOCKET_SHARD.shelf[0] > 0,
    "small packets that are not first need places"
);

#[cfg(test)]
mod tests {
    use proto::tcp::Shelf as _;

    use super::*;

    fn packet(slab: &mut Slab, len: usize) -> Packet {
        let mut packet = Packet::new(slab.alloc().unwrap(), 0);
        packet.set_len(len);
        packet.bytes_mut().fill(7);
        packet
    }

    /// However a peer cuts what it sends, with headers of 54 bytes for each piece: no more than eight times as much is held for it.
    #[test]
    fn nothing_kept_holds_more_than_eight_times_what_was_sent() {
        for frame in [1600, 9216, 65_600] {
            let mut link = Slab::with_ready(4, frame, 0).unwrap();
            let mut shelf = Shelf::new(4, [4; 3], 4).unwrap();
            for len in 1..=frame - 100 {
                let came = packet(&mut link, len);
                let (kept, place) = shelf.keep(came, Keep::Behind, false).unwrap();
                assert!(kept.bytes().iter().all(|&b| b == 7) && kept.len() == len);
                let held = kept.true_size();
                assert!(held <= 8 * (len + 54), "{len} bytes hold {held}");
                assert!(held <= size_kept(len, frame.next_multiple_of(64)));
                shelf.free(place);
            }
            assert_eq!((shelf.own, shelf.rows()[0].0), (4, 8));
        }
    }

    #[test]
    fn a_holder_of_nothing_finds_a_place_and_others_leave_it() {
        let mut link = Slab::with_ready(64, 65_600, 0).unwrap();
        let mut shelf = Shelf::new(2, [1, 1, 1], 3).unwrap();
        assert_eq!(shelf.places, 8);
        let mut keep = |len, why| {
            let kept = shelf.keep(packet(&mut link, len), why, false);
            kept.map(|(kept, place)| (kept.len(), place, kept))
        };
        let mut all = Vec::new();
        // A small one in each size, then in their own buffers.
        for place in [1, 2, 3, AS_IT_CAME, AS_IT_CAME] {
            let kept = keep(10, Keep::InOrder).unwrap();
            assert_eq!((kept.0, kept.1), (10, place));
            all.push(kept);
        }
        assert!(keep(10, Keep::InOrder).is_none() && keep(60_000, Keep::Behind).is_none());
        // The beginning, at least.
        for (len, kept) in [(10, 10), (60_000, 256), (257, 256)] {
            let first = keep(len, Keep::First).unwrap();
            assert_eq!((first.0, first.1), (kept, 1));
            all.push(first);
        }
        assert!(keep(10, Keep::First).is_none(), "more than there are");
        for (_, place, packet) in all {
            drop(packet);
            shelf.free(place);
        }
        let free = shelf.rows().map(|(free, _, _)| free);
        assert_eq!((shelf.own, free), (2, [4, 1, 1]));
    }
}
