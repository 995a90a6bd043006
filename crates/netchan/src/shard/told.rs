//! What a socket has to tell of its sends (MSG_ERRQUEUE): time stamps, and which of its zero-copy sends are done.

use std::{collections::VecDeque, sync::Arc};

use proto::time::Instant;

use crate::{
    api::{Notice, SentPacket, Stamp},
    limits,
};

/// What there is to tell, and the packet that it is about, where that is kept.
pub type ToldOf = (Notice, Option<Arc<SentPacket>>);

/// Of one socket, until its program takes it.
#[derive(Debug, Default)]
pub(super) struct Told {
    stamps: VecDeque<(Stamp, u32, Instant, Option<Arc<SentPacket>>)>,
    /// Bytes of the packets that they show, those of one that several show as often.
    packets: usize,
    /// Zero-copy sends that were not told of yet, as their numbers: the first, and how many.
    copies: (u32, u32),
}

impl Told {
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty() && self.copies.1 == 0
    }

    /// False: no place is left.
    pub fn stamp(&mut self, stamp: Stamp, id: u32, at: Instant) -> bool {
        self.stamp_packet(stamp, id, at, None)
    }

    /// The same with the packet.
    pub fn stamp_packet(
        &mut self,
        stamp: Stamp,
        id: u32,
        at: Instant,
        packet: Option<Arc<SentPacket>>,
    ) -> bool {
        let bytes = self.packets + len_of(packet.as_ref());
        let has_room =
            self.stamps.len() < limits::SEND_NOTICES && bytes <= limits::SEND_NOTICE_BYTES;
        if has_room {
            self.stamps.push_back((stamp, id, at, packet));
            self.packets = bytes;
        }
        has_room
    }

    /// A zero-copy send returned: what it sent was copied, its memory is free.
    pub const fn copied(&mut self) {
        self.copies.1 = self.copies.1.saturating_add(1);
    }

    /// The next thing to tell.
    pub fn take(&mut self, now: Instant) -> Option<ToldOf> {
        let (first, count) = self.copies;
        if count > 0 {
            self.copies = (first.wrapping_add(count), 0);
            let last = first.wrapping_add(count - 1);
            return Some((Notice::ZeroCopy { first, last }, None));
        }
        let (stamp, id, at, packet) = self.stamps.pop_front()?;
        self.packets -= len_of(packet.as_ref());
        let age = now.since(at);
        Some((Notice::Stamp { stamp, id, age }, packet))
    }
}

fn len_of(packet: Option<&Arc<SentPacket>>) -> usize {
    packet.map_or(0, |packet| packet.frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::time::Duration;

    /// As MSG_ERRQUEUE of Linux has it: one notice for all completions since the last, each number once, also where they come round.
    #[test]
    fn completions_come_as_one_range() {
        let mut told = Told::default();
        assert!(told.is_empty() && told.take(Instant::ZERO).is_none());
        told.copies.0 = u32::MAX;
        for (count, first, last) in [(1, u32::MAX, u32::MAX), (3, 0, 2), (1, 3, 3)] {
            (0..count).for_each(|_| told.copied());
            assert!(!told.is_empty());
            assert_eq!(
                told.take(Instant::ZERO),
                Some((Notice::ZeroCopy { first, last }, None))
            );
            assert!(told.is_empty() && told.take(Instant::ZERO).is_none());
        }
    }

    #[test]
    fn stamps_come_in_order_with_their_age_and_are_bounded() {
        let mut told = Told::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert!(told.stamp(Stamp::Scheduled, 7, at(1)) && told.stamp(Stamp::Sent, 8, at(3)));
        assert!(!told.is_empty());
        for (stamp, id, ms) in [(Stamp::Scheduled, 7, 9), (Stamp::Sent, 8, 7)] {
            let age = Duration::from_millis(ms);
            let told = told.take(at(10));
            assert_eq!(told, Some((Notice::Stamp { stamp, id, age }, None)));
        }
        assert!(told.is_empty() && told.take(at(10)).is_none());
        let places = (0..).take_while(|&id| told.stamp(Stamp::Sent, id, at(1)));
        assert_eq!(places.count(), limits::SEND_NOTICES);
        told.take(at(2));
        assert!(told.stamp(Stamp::Sent, 1, at(1)) && !told.stamp(Stamp::Sent, 2, at(1)));
    }
}
