//! What a socket has to tell of its sends (MSG_ERRQUEUE): time stamps, and which of its zero-copy sends are done.

use std::collections::VecDeque;

use proto::time::Instant;

use crate::{
    api::{Notice, Stamp},
    limits,
};

/// Of one socket, until its program takes it.
#[derive(Debug, Default)]
pub(super) struct Told {
    stamps: VecDeque<(Stamp, u32, Instant)>,
    /// Zero-copy sends that were not told of yet, as their numbers: the first, and how many.
    copies: (u32, u32),
}

impl Told {
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty() && self.copies.1 == 0
    }

    /// False: no place is left.
    pub fn stamp(&mut self, stamp: Stamp, id: u32, at: Instant) -> bool {
        let has_room = self.stamps.len() < limits::SEND_NOTICES;
        if has_room {
            self.stamps.push_back((stamp, id, at));
        }
        has_room
    }

    /// A zero-copy send returned: what it sent was copied, its memory is free.
    pub const fn copied(&mut self) {
        self.copies.1 = self.copies.1.saturating_add(1);
    }

    /// The next thing to tell.
    pub fn take(&mut self, now: Instant) -> Option<Notice> {
        let (first, count) = self.copies;
        if count > 0 {
            self.copies = (first.wrapping_add(count), 0);
            let last = first.wrapping_add(count - 1);
            return Some(Notice::ZeroCopy { first, last });
        }
        let (stamp, id, at) = self.stamps.pop_front()?;
        let age = now.since(at);
        Some(Notice::Stamp { stamp, id, age })
    }
}
