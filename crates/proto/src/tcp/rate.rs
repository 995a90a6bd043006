//! How fast the path delivers: each acknowledgment's sample of the delivery rate (draft-ietf-ccwg-bbr §4.1, delivery rate estimation).

use super::congestion::RateSample;
use super::image::imaged;
use super::sent::{Fate, Record, Traits, elapsed_us, not_too_old};
use crate::wire::tcp::SeqNum;

/// Running totals of one connection; all wrap.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Rate {
    /// Bytes delivered: acknowledged or sacked.
    pub delivered: u32,
    /// When the last of them was, in microseconds.
    pub delivered_us: u32,
    /// When the segment left that was delivered last.
    pub first_sent_us: u32,
    /// Bytes found lost.
    pub lost: u32,
    /// The application had nothing to send until this many bytes are delivered.
    limited_until: u32,
    is_limited: bool,
    /// The last sample: bytes and microseconds.
    pub last: (u32, u32),
    pub last_limited: bool,
}

/// The newest of the segments that one acknowledgment delivers.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Newest {
    prior_delivered: u32,
    prior_us: u32,
    sent_us: u32,
    first_sent_us: u32,
    tx_in_flight: u32,
    lost: u32,
    is_app_limited: bool,
    is_some: bool,
}

fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Rate {
    /// Takes what is older than can be told for as old as can be.
    pub fn limit_ages(&mut self, now_us: u32) {
        self.first_sent_us = not_too_old(self.first_sent_us, now_us);
        self.delivered_us = not_too_old(self.delivered_us, now_us);
    }

    /// The record of `len` bytes, in segments of `segment` and with these traits, that leave now, up to `end`, with `in_flight` bytes under way before it.
    #[inline(always)]
    pub fn record(
        &mut self,
        end: SeqNum,
        len: u32,
        (segment, traits): (u32, Traits),
        in_flight: u32,
        now_us: u32,
    ) -> Record {
        if in_flight == 0 {
            self.first_sent_us = now_us;
            self.delivered_us = now_us;
        }
        Record {
            end,
            sent_us: now_us,
            first_sent_us: self.first_sent_us,
            delivered: self.delivered,
            delivered_us: self.delivered_us,
            tx_in_flight: in_flight.saturating_add(len),
            lost: self.lost,
            segment: u16::try_from(segment).unwrap_or(u16::MAX),
            fate: Fate::InFlight,
            traits: if self.is_limited {
                traits.and(Traits::APP_LIMITED)
            } else {
                traits
            },
        }
    }

    /// The application had nothing more to send while the window was open: samples say nothing about the path until what is in
    /// flight now has been delivered.
    #[inline]
    pub fn limited_by_application(&mut self, in_flight: u32) {
        self.is_limited = true;
        self.limited_until = self.delivered.wrapping_add(in_flight);
    }

    /// Whether the application is the limit.
    pub const fn is_app_limited(&self) -> bool {
        self.is_limited
    }

    /// `bytes` of `record` were delivered.
    #[inline]
    pub fn delivers(&mut self, newest: &mut Newest, record: &Record, bytes: u32, now_us: u32) {
        self.delivered = self.delivered.wrapping_add(bytes);
        self.delivered_us = now_us;
        let newer = !newest.is_some
            || after(record.delivered, newest.prior_delivered)
            || (record.delivered == newest.prior_delivered
                && after(record.sent_us, newest.sent_us));
        if newer {
            *newest = Newest {
                prior_delivered: record.delivered,
                prior_us: record.delivered_us,
                sent_us: record.sent_us,
                first_sent_us: record.first_sent_us,
                tx_in_flight: record.tx_in_flight,
                lost: record.lost,
                is_app_limited: record.traits.has(Traits::APP_LIMITED),
                is_some: true,
            };
            self.first_sent_us = record.sent_us;
        }
    }

    /// The sample of an acknowledgment. One over less than the least round trip is no sample: acknowledgments came in a heap.
    #[inline]
    pub fn sample(&mut self, newest: &Newest, min_rtt_us: u32) -> RateSample {
        if self.is_limited && after(self.delivered, self.limited_until) {
            self.is_limited = false;
        }
        if !newest.is_some {
            return RateSample::default();
        }
        let sending = elapsed_us(newest.sent_us, newest.first_sent_us);
        let arriving = elapsed_us(self.delivered_us, newest.prior_us);
        let mut interval_us = sending.max(arriving);
        if interval_us < min_rtt_us {
            interval_us = 0;
        }
        let sample = RateSample {
            delivered: self.delivered.wrapping_sub(newest.prior_delivered),
            interval_us,
            prior_delivered: newest.prior_delivered,
            tx_in_flight: newest.tx_in_flight,
            lost: self.lost.wrapping_sub(newest.lost),
            is_app_limited: newest.is_app_limited,
        };
        if interval_us > 0 {
            self.last = (sample.delivered, interval_us);
            self.last_limited = sample.is_app_limited;
        }
        sample
    }
}

imaged! {
    /// [`Rate`] as plain data.
    pub(super) struct RateImage of Rate {
        delivered: u32,
        delivered_us: u32 as micros,
        first_sent_us: u32 as micros,
        lost: u32,
        limited_until: u32,
        is_limited: bool,
        last: (u32, u32),
        last_limited: bool,
    }
}

#[cfg(test)]
#[path = "tests/rate.rs"]
mod tests;
