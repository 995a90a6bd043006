//! What a socket's options make of reading and writing: how much must be there, how much may wait, and which waiters are told of it.

use std::ops::Deref;

use super::{TcpSocket, notices::Notices, piped::Piped, sink::Sink};
use crate::api::Readiness;

/// Options that change when a connection is readable or writable. Nearly all connections have none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// SO_RCVLOWAT: readable from so many bytes on.
    pub low_water: u32,
    /// TCP_NOTSENT_LOWAT: writable while fewer bytes wait to be sent for the first time.
    pub unsent_low_water: u32,
    /// SO_SNDBUF: most bytes in the send queue; 0: as many as the congestion window is worth.
    pub send_limit: u32,
    /// SO_OOBINLINE: urgent data is read like all other.
    pub urgent_inline: bool,
    /// SO_MARK.
    pub mark: u32,
}

impl Watermarks {
    /// Of a socket without options.
    const USUAL: Self = Self {
        low_water: 1,
        unsent_low_water: u32::MAX,
        send_limit: 0,
        urgent_inline: false,
        mark: 0,
    };
}

impl Default for Watermarks {
    fn default() -> Self {
        Self::USUAL
    }
}

/// A connection's [`Watermarks`], what it tells of its sends, and its pipes: elsewhere where it has any of them.
#[derive(Debug, Default)]
pub struct OwnWatermarks(Option<Box<Own>>);

#[derive(Debug, Default)]
struct Own {
    watermarks: Watermarks,
    notices: Option<Notices>,
    piped: Option<Piped>,
}

impl OwnWatermarks {
    fn set(&mut self, watermarks: Watermarks) {
        if self.0.is_some() || watermarks != Watermarks::USUAL {
            self.0.get_or_insert_default().watermarks = watermarks;
        }
    }

    pub(super) fn notices(&self) -> Option<&Notices> {
        self.0.as_deref()?.notices.as_ref()
    }

    pub(super) fn notices_mut(&mut self) -> Option<&mut Notices> {
        self.0.as_deref_mut()?.notices.as_mut()
    }

    /// Where its text goes past TCP.
    #[inline]
    pub(super) fn piped(&self) -> Option<&Piped> {
        self.0.as_deref()?.piped.as_ref()
    }

    pub(super) fn piped_mut(&mut self) -> Option<&mut Piped> {
        self.0.as_deref_mut()?.piped.as_mut()
    }

    pub(super) fn set_piped(&mut self, piped: Piped) {
        self.0.get_or_insert_default().piped = Some(piped);
    }

    pub(super) fn take_piped(&mut self) -> Option<Piped> {
        self.0.as_deref_mut()?.piped.take()
    }

    pub(super) fn make_notices(&mut self) -> &mut Notices {
        let own = self.0.get_or_insert_default();
        own.notices.get_or_insert_default()
    }

    /// Whether there is anything here at all.
    #[inline]
    pub(super) const fn is_made(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for OwnWatermarks {
    type Target = Watermarks;
    #[inline]
    fn deref(&self) -> &Watermarks {
        match &self.0 {
            Some(own) => &own.watermarks,
            None => &Watermarks::USUAL,
        }
    }
}

impl TcpSocket {
    /// Options that were set.
    pub fn set_watermarks(&mut self, watermarks: Watermarks) {
        self.watermarks.set(watermarks);
        if watermarks.send_limit > 0 {
            self.send_limit = watermarks.send_limit;
        }
        self.connection.expect_at_once(watermarks.low_water);
    }

    /// SO_MARK, from its first packet on.
    pub(in crate::shard) fn set_mark(&mut self, mark: u32) {
        self.watermarks.set(Watermarks {
            mark,
            ..*self.watermarks
        });
    }

    /// The send queue is full: it may hold two congestion windows, so that as much waits as is under way, but no more than four times what the path
    /// holds, since the rest would stand in a queue, and `most` bytes. On a path of microseconds the window grows without end, and text that fits no
    /// cache is twice as dear. Whether it grew.
    #[cold]
    pub(in crate::shard) fn widen_send_queue(&mut self, most: usize) -> bool {
        let path = 2 * u64::from(self.connection.path_holds());
        let due = (2 * path.min(self.connection.cwnd().into())).min(most as u64);
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        let grows = self.watermarks.send_limit == 0 && due > self.send_limit;
        if grows {
            self.send_limit = due;
        }
        grows
    }

    /// Bytes that may be appended to the send queue, as far as options say.
    #[inline]
    pub(in crate::shard) fn may_append(&self) -> usize {
        let room = (self.send_limit as usize).saturating_sub(self.send.len());
        if self.watermarks.unsent_low_water == u32::MAX {
            return room;
        }
        room.min(self.below_unsent_low_water())
    }

    /// What TCP_NOTSENT_LOWAT leaves; a segment at least if it leaves anything.
    #[cold]
    fn below_unsent_low_water(&self) -> usize {
        let left =
            (self.watermarks.unsent_low_water).saturating_sub(self.connection.unsent()) as usize;
        if left == 0 {
            return 0;
        }
        left.max(self.connection.send_mss().into())
    }

    /// As Linux: writable once a third of the buffer is free; with TCP_NOTSENT_LOWAT, once anything may be added.
    pub(super) fn least_room(&self) -> usize {
        if self.limits_unsent() {
            return 0;
        }
        self.send.len() / 2
    }

    /// Whether so much text may wait to be sent, and no more than that.
    pub(super) fn limits_unsent(&self) -> bool {
        self.watermarks.unsent_low_water != u32::MAX
    }

    /// Whether a read brings something: text, as much as SO_RCVLOWAT wants.
    pub(super) fn has_text_to_read(&self) -> bool {
        let there = self.readable_bytes();
        there > 0 && (self.is_plain() || self.has_enough(self.watermarks.low_water))
    }

    /// Nothing but text, and any of it is enough.
    #[inline]
    fn is_plain(&self) -> bool {
        self.watermarks.low_water <= 1 && self.connection.urgent_remaining().is_none()
    }

    /// As Linux: `wanted` bytes, one more where the urgent byte is the first, or all that the window lets come.
    #[cold]
    pub(super) fn has_enough(&self, wanted: u32) -> bool {
        let passes_mark = self.is_at_mark() && !self.watermarks.urgent_inline;
        let wanted = wanted.max(1).saturating_add(passes_mark.into());
        let there = self.readable_bytes();
        let is_all = || self.connection.is_window_nearly_closed() || self.pipe_is_full();
        there >= wanted || (there > 1 && is_all())
    }

    /// Whether a read that waits for SO_RCVLOWAT, or as much as it has room for, has to wait on.
    #[inline]
    pub(super) fn is_short_of_low_water(&self, to: &impl Sink) -> bool {
        if self.watermarks.low_water <= 1 || self.end_of_stream() {
            return false;
        }
        let wanted = u32::try_from(to.room()).unwrap_or(u32::MAX);
        !self.has_enough(wanted.min(self.watermarks.low_water))
    }

    /// Of what an event made ready, what the waiters are to be told.
    #[inline]
    pub(super) fn worth_telling(&self, ready: Readiness) -> Readiness {
        if self.is_plain() {
            return ready;
        }
        self.worth_telling_in_full(ready)
    }

    #[cold]
    fn worth_telling_in_full(&self, ready: Readiness) -> Readiness {
        let mut told = ready;
        if ready == Readiness::READABLE && !self.has_text_to_read() {
            told = Readiness::NONE;
        }
        if self.has_urgent_byte() {
            told = told | Readiness::PRIORITY;
        }
        told
    }
}
