//! How large the receive buffer is (R4): twice what the application takes in a round trip, and more while the peer speeds up.
//!
//! A window as wide as the path holds is what lets a sender fill it. What the path holds is not known to the receiver; but what the application
//! took during the last round trip is what the path brought, and a sender in slow start brings twice as much in the next one. An
//! application that reads slowly takes little, whatever has arrived: for it nothing grows. The buffer never shrinks, since a window that was
//! offered is not taken back (RFC 9293 SHLD-14), and it ends where the caller says.
//!
//! The round trip is that of the timestamps that the peer echoes (RFC 7323 §4.1), as the receiver sees it; without them it is what the send side
//! measured: in an end that only receives, the handshake's.

use super::image::{Distance, imaged};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// Segments for which there is room beside what was taken, against small variations.
const CUSHION: u32 = 16;
/// Segments that the first round trip is compared with: the initial window (RFC 6928).
const INITIAL: u32 = 10;

/// What the buffer's size follows from.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct ReceiveTuning {
    /// Nothing is to be looked at before.
    pub look_at: Instant,
    /// When the round trip began that is being watched.
    began: Instant,
    /// The first byte that the application takes in it.
    from: SeqNum,
    /// Bytes that it took in the best one.
    pub taken: u32,
    /// The round trip, smoothed; 0: not known.
    pub rtt_us: u32,
    /// Where growth ends; 0: the buffer stays as it is.
    pub most: u32,
}

impl ReceiveTuning {
    /// Up to `most` bytes; 0: not at all.
    pub const fn new(most: u32) -> Self {
        Self {
            look_at: if most == 0 {
                Instant::FAR
            } else {
                Instant::ZERO
            },
            began: Instant::FAR,
            from: SeqNum(0),
            taken: 0,
            rtt_us: 0,
            most,
        }
    }

    /// The buffer for an application that took so much in a round trip, and `before` in the best one until then.
    pub fn room_for(taken: u32, before: u32, mss: u32) -> u64 {
        let room = 2 * u64::from(taken) + u64::from(CUSHION * mss);
        let more = u64::from(taken.saturating_sub(before));
        room.saturating_add((2 * room).saturating_mul(more) / u64::from(before.max(1)))
    }

    /// A round trip was measured (RFC 6298's weight).
    pub fn measured(&mut self, sample_us: u32) {
        self.rtt_us = match self.rtt_us {
            0 => sample_us,
            old => old - old / 8 + sample_us / 8,
        };
    }

    /// The stream was read up to `read`, at `now`: the size that the buffer is to have, if another than `buffer`.
    pub fn look(&mut self, read: SeqNum, buffer: u32, mss: u32, now: Instant) -> Option<u32> {
        let rtt = u64::from(self.rtt_us);
        if self.began == Instant::FAR {
            self.taken = INITIAL * mss;
        } else if u64::from(now.micros_since(self.began)) < rtt {
            self.look_at = self.began.plus_micros(rtt);
            return None;
        }
        let watched = self.began != Instant::FAR;
        let taken = (read - self.from).max(0).unsigned_abs();
        self.from = read;
        self.began = now;
        self.look_at = now.plus_micros(rtt);
        if !watched || taken <= self.taken {
            return None;
        }
        let room = Self::room_for(taken, self.taken, mss).min(self.most.into());
        self.taken = taken;
        u32::try_from(room).ok().filter(|&room| room > buffer)
    }
}

imaged! {
    /// [`ReceiveTuning`] as plain data.
    pub(super) struct ReceiveTuningImage of ReceiveTuning {
        look_at: Distance as part,
        began: Distance as part,
        from: SeqNum,
        taken: u32,
        rtt_us: u32,
        most: u32,
    }
}
