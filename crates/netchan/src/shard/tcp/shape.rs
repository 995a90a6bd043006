//! What a socket's options make of reading and writing: how much must be there, how much may wait, and who is told of it.

use std::{io::IoSliceMut, ops::Deref};

use super::{TcpSocket, notices::Notices};
use crate::socket::Readiness;

/// What Linux charges a socket for a portion of its send queue beside the text: the buffer's own structures.
const PORTION_OVERHEAD: usize = 1280;

/// Text is charged with no more than so many times its length, for the portions of usual segments.
const CHARGED_MOST: usize = 4;

/// What `queued` bytes count for.
const fn charge(queued: usize, portion: usize) -> usize {
    queued.saturating_add(queued.div_ceil(portion).saturating_mul(PORTION_OVERHEAD))
}

/// Options that change when a connection is readable or writable. Nearly all connections have none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// SO_RCVLOWAT: readable from so many bytes on.
    pub low_water: u32,
    /// TCP_NOTSENT_LOWAT: writable while fewer bytes wait to be sent for the first time.
    pub unsent_low_water: u32,
    /// SO_SNDBUF, twice what was asked for: what the send queue is charged for until no portion is begun; 0: as many as the congestion window is worth.
    pub send_limit: u32,
    /// SO_OOBINLINE: urgent data is read like all other.
    pub urgent_inline: bool,
    /// SO_MARK.
    pub mark: u32,
}

impl Shape {
    /// Of who sets no options.
    const USUAL: Self = Self {
        low_water: 1,
        unsent_low_water: u32::MAX,
        send_limit: 0,
        urgent_inline: false,
        mark: 0,
    };
}

impl Default for Shape {
    fn default() -> Self {
        Self::USUAL
    }
}

/// A connection's [`Shape`], and what it tells of its sends: elsewhere where options were set.
#[derive(Debug, Default)]
pub struct OwnShape(Option<Box<Own>>);

#[derive(Debug, Default)]
struct Own {
    shape: Shape,
    notices: Option<Notices>,
}

impl OwnShape {
    fn set(&mut self, shape: Shape) {
        if self.0.is_some() || shape != Shape::USUAL {
            self.0.get_or_insert_default().shape = shape;
        }
    }

    pub(super) fn notices(&self) -> Option<&Notices> {
        self.0.as_deref()?.notices.as_ref()
    }

    pub(super) fn notices_mut(&mut self) -> Option<&mut Notices> {
        self.0.as_deref_mut()?.notices.as_mut()
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

impl Deref for OwnShape {
    type Target = Shape;
    #[inline]
    fn deref(&self) -> &Shape {
        match &self.0 {
            Some(own) => &own.shape,
            None => &Shape::USUAL,
        }
    }
}

impl TcpSocket {
    /// Options that were set.
    pub fn set_shape(&mut self, shape: Shape) {
        self.shape.set(shape);
        if shape.send_limit > 0 {
            self.send_limit = shape.send_limit;
        }
        self.connection.expect_at_once(shape.low_water);
    }

    /// SO_MARK, from its first packet on.
    pub(in crate::shard) fn set_mark(&mut self, mark: u32) {
        self.shape.set(Shape {
            mark,
            ..*self.shape
        });
    }

    /// The send queue is full: it may hold two congestion windows, so that as much waits as is under way, and `most` bytes. Whether it
    /// grew.
    #[cold]
    pub(in crate::shard) fn widen_send_queue(&mut self, most: usize) -> bool {
        let due = (2 * u64::from(self.connection.cwnd())).min(most as u64);
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        let grows = self.shape.send_limit == 0 && due > self.send_limit;
        if grows {
            self.send_limit = due;
        }
        grows
    }

    /// Of `wanted` bytes, how many may be appended to the send queue, as far as options say.
    #[inline]
    pub(in crate::shard) fn may_append(&self, wanted: usize) -> usize {
        let at_most = (self.send.len().saturating_mul(CHARGED_MOST)).saturating_add(wanted);
        if at_most <= self.send_limit as usize && !self.limits_unsent() {
            return wanted;
        }
        wanted.min(self.room_in_portions())
    }

    /// As Linux counts: a portion of the queue is begun while less than the limit is charged, and less than TCP_NOTSENT_LOWAT waits; one that
    /// was begun is filled. What may leave at once leaves while a write is under way, and does not wait.
    #[cold]
    fn room_in_portions(&self) -> usize {
        let portion = self.connection.portion() as usize;
        let unsent = self.connection.unsent() as usize;
        let leaves = self.connection.may_leave() as usize;
        let queued = self.send.len();
        let at_once = leaves.saturating_sub(unsent);
        let begun = self.portions_within_limit(queued, portion);
        if begun.saturating_mul(portion) < at_once {
            return (begun * portion).min(self.room_in_ring());
        }
        let when_gone = (queued + leaves).saturating_sub(unsent);
        let begun = self.portions_within_limit(when_gone, portion);
        let begun = if self.limits_unsent() {
            begun.min((self.shape.unsent_low_water as usize).div_ceil(portion))
        } else {
            begun
        };
        let room = (leaves + begun.saturating_mul(portion)).saturating_sub(unsent);
        room.min(self.room_in_ring())
    }

    /// Where no SO_SNDBUF asks for more, the queue stays in the memory that its limit comes to.
    fn room_in_ring(&self) -> usize {
        if self.shape.send_limit > 0 {
            return usize::MAX;
        }
        let ring = (self.send_limit as usize).next_power_of_two();
        ring.saturating_sub(self.send.len())
    }

    /// How many portions may be begun behind `queued` bytes.
    fn portions_within_limit(&self, queued: usize, portion: usize) -> usize {
        let left = (self.send_limit as usize).saturating_sub(charge(queued, portion));
        left.div_ceil(portion + PORTION_OVERHEAD)
    }

    /// As Linux: writable once a third of the buffer is free, and with TCP_NOTSENT_LOWAT once less than half of that waits.
    pub(super) fn has_room_to_tell_of(&self) -> bool {
        let queued = self.send.len();
        if self.limits_unsent()
            && u64::from(self.connection.unsent()) * 2 >= self.shape.unsent_low_water.into()
        {
            return false;
        }
        let limit = self.send_limit as usize;
        if queued.saturating_mul(2 * CHARGED_MOST) < limit {
            return true;
        }
        let charged = charge(queued, self.connection.portion() as usize);
        charged.saturating_add(charged / 2) <= limit && limit > 0
    }

    /// Whether so much text may wait to be sent, and no more than that.
    pub(super) fn limits_unsent(&self) -> bool {
        self.shape.unsent_low_water != u32::MAX
    }

    /// Whether a read brings something: text, as much as SO_RCVLOWAT wants.
    pub(super) fn has_text_to_read(&self) -> bool {
        let there = self.receive.readable_bytes();
        there > 0 && (self.is_plain() || self.has_enough(self.shape.low_water))
    }

    /// Nothing but text, and any of it is enough.
    #[inline]
    fn is_plain(&self) -> bool {
        self.shape.low_water <= 1 && self.connection.urgent_remaining().is_none()
    }

    /// As Linux: `wanted` bytes, one more where the urgent byte is the first, or all that the window lets come.
    #[cold]
    pub(super) fn has_enough(&self, wanted: u32) -> bool {
        let passes_mark = self.is_at_mark() && !self.shape.urgent_inline;
        let wanted = wanted.max(1).saturating_add(passes_mark.into());
        let there = self.receive.readable_bytes();
        there >= wanted || (there > 1 && self.connection.is_window_nearly_closed())
    }

    /// Whether a read that waits for SO_RCVLOWAT, or as much as it has room for, has to wait on.
    #[inline]
    pub(super) fn is_short_of_low_water(&self, buffers: &[IoSliceMut<'_>]) -> bool {
        if self.shape.low_water <= 1 || self.end_of_stream() {
            return false;
        }
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let wanted = u32::try_from(room).unwrap_or(u32::MAX);
        !self.has_enough(wanted.min(self.shape.low_water))
    }

    /// Of what an event made ready, what those who wait are to be told.
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
