//! What a stream tells of its own sends (MSG_ERRQUEUE): that the memory of a zero-copy send is free again, and when a send's last byte left and was
//! acknowledged. All of it is rare: a connection whose program asks for none of it has a pointer's width less to look at.

use std::{collections::VecDeque, task::Waker};

use proto::time::Instant;

use super::{
    super::told::{Told, ToldOf},
    Shard, TcpSocket,
};
use crate::{
    api::{Readiness, Stamp, StampRequest},
    counters::Counter,
    limits,
};

/// Of one connection, since its program first asked for any. Places in the stream are bytes since then.
#[derive(Debug, Default)]
pub(in crate::shard) struct Notices {
    /// Acknowledged so far.
    acked: u64,
    /// Where identifiers count from (SOF_TIMESTAMPING_OPT_ID).
    ids_from: u64,
    /// How far text has left at least once, and when it last went farther.
    left: u64,
    left_at: Option<Instant>,
    acked_at: Option<Instant>,
    /// Sends whose time stamps are not complete.
    waiting: VecDeque<Waiting>,
    told: Told,
}

#[derive(Debug)]
struct Waiting {
    /// Behind its last byte.
    end: u64,
    id: u32,
    request: StampRequest,
}

impl Notices {
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Moves what is known by now from those that wait to those that are told; how many found no place.
    fn settle(&mut self) -> u64 {
        let mut lost = 0;
        for waiting in &mut self.waiting {
            let asked = std::mem::take(&mut waiting.request);
            let mut tell = |stamp, is_asked: bool, at: Option<Instant>| match at {
                Some(at) => {
                    let is_lost = is_asked && !self.told.stamp(stamp, waiting.id, at);
                    lost += u64::from(is_lost);
                    false
                }
                None => is_asked,
            };
            let left = self.left_at.filter(|_| waiting.end <= self.left);
            let acked = self.acked_at.filter(|_| waiting.end <= self.acked);
            waiting.request = StampRequest {
                scheduled: tell(Stamp::Scheduled, asked.scheduled, left),
                sent: tell(Stamp::Sent, asked.sent, left),
                acknowledged: tell(Stamp::Acknowledged, asked.acknowledged, acked),
                ..asked
            };
        }
        self.waiting.retain(|waiting| waiting.request.is_any());
        lost
    }
}

impl TcpSocket {
    /// Text left: wakes what waits for its time stamps. How many found no place.
    #[cold]
    #[inline(never)]
    pub(super) fn note_sent(&mut self, now: Instant, woken: &mut Vec<Waker>) -> u64 {
        let lost = self.note_progress(0, now);
        if self.has_notices() {
            self.wakers.wake(Readiness::ERROR, woken);
        }
        lost
    }

    /// Text left, or was acknowledged: `acked` bytes.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn note_progress(&mut self, acked: usize, now: Instant) -> u64 {
        let unsent = u64::from(self.connection.unsent());
        let queued = self.send.len() as u64;
        let Some(notices) = self.watermarks.notices_mut() else {
            return 0;
        };
        if acked > 0 {
            notices.acked += acked as u64;
            notices.acked_at = Some(now);
        }
        let left = notices.acked + queued.saturating_sub(unsent);
        if left > notices.left {
            notices.left = left;
            notices.left_at = Some(now);
        }
        notices.settle()
    }

    /// Whether MSG_ERRQUEUE has something to say.
    pub(super) fn has_notices(&self) -> bool {
        self.watermarks.notices().is_some_and(|n| !n.is_empty())
    }
}

impl Shard {
    /// As `note_progress`, and wakes the waiters.
    #[cold]
    #[inline(never)]
    pub(super) fn tcp_progress(&mut self, number: u32, acked: usize, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        let lost = socket.note_progress(acked, now);
        if socket.has_notices() {
            socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        }
        if lost > 0 {
            self.counters.add(self.number, Counter::DropNotice, lost);
        }
    }

    /// From now on identifiers of time stamps count from the first byte that is not acknowledged, or (`from_end`) from the next to be written.
    pub fn tcp_number_stamps(&mut self, number: u32, from_end: bool) {
        if let Some(socket) = self.tcp.get_mut(number) {
            let queued = if from_end {
                socket.send.len() as u64
            } else {
                0
            };
            let notices = socket.watermarks.make_notices();
            notices.ids_from = notices.acked + queued;
        }
    }

    /// A send has taken what it takes: its last byte gets the time stamps that are asked for.
    pub fn tcp_stamp(&mut self, number: u32, request: StampRequest, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        let queued = socket.send.len() as u64;
        let notices = socket.watermarks.make_notices();
        let end = notices.acked + queued;
        let place = end.wrapping_sub(notices.ids_from).wrapping_sub(1);
        #[allow(clippy::cast_possible_truncation)] // they come round
        let id = if request.with_id { place as u32 } else { 0 };
        // What was acknowledged before anything was asked has left no time.
        notices.left_at.get_or_insert(now);
        notices.acked_at.get_or_insert(now);
        if notices.waiting.len() < limits::SEND_NOTICES {
            notices.waiting.push_back(Waiting { end, id, request });
        } else {
            self.count(Counter::DropNotice);
        }
        self.tcp_progress(number, 0, now);
    }

    /// A zero-copy send returned: what it sent was copied, its memory is free.
    pub fn tcp_copied(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.watermarks.make_notices().told.copied();
            socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        }
    }

    /// MSG_ERRQUEUE.
    pub fn tcp_take_notice(&mut self, number: u32, now: Instant) -> Option<ToldOf> {
        self.tcp
            .get_mut(number)?
            .watermarks
            .notices_mut()?
            .told
            .take(now)
    }
}
