//! The options a connection negotiates and then sends and reads: segment size, window scale, SACK
//! permitted (RFC 2018), timestamps with PAWS (RFC 7323).

use super::Connection;
use crate::tcp::congestion::initial_window;
use crate::tcp::types::Drop;
use crate::tcp::variables::{MSS_MIN, TIMESTAMPS_LEN, timestamp_clock};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, Timestamps};

/// RFC 7323 §2.3: a larger shift means this one.
const SHIFT_MAX: u8 = 14;
/// RFC 7323 §5.5: after 24 days TS.Recent says nothing any more; in units of
/// [`Instant::coarse`], which are longer than a second.
const TS_RECENT_LIFE: u32 = 24 * 24 * 3600 / 108 * 100;

impl Connection {
    #[inline]
    pub(in crate::tcp) fn timestamp_value(&self, now: Instant) -> u32 {
        timestamp_clock(now).wrapping_add(self.ts_offset)
    }

    /// Whether the timestamp that a SYN-ACK echoes (RFC 7323 §3.2: TSecr is the TSval of the SYN that it answers) can have been in a SYN of ours.
    /// One that cannot is an old duplicate's, or from a sender that has not seen the SYN; Linux refuses it, too. None, or zero, says nothing.
    pub(super) fn echoes_syn(&self, header: &Header, now: Instant) -> bool {
        let Some(echo) = header.options.timestamps.map(|ts| ts.echo) else {
            return true;
        };
        let first = self.timestamp_value(self.stalled_since);
        let latest = self.timestamp_value(now);
        !self.timestamps || echo == 0 || echo.wrapping_sub(first) <= latest.wrapping_sub(first)
    }

    /// The options of our SYN or SYN-ACK. MSS is always sent (RFC 9293 MUST-14, MUST-65, MAY-3);
    /// the others if we want them and, in a SYN-ACK, the peer offered them.
    pub(super) fn syn_options(&self, now: Instant) -> Options {
        Options {
            mss: Some(self.settings.mss),
            window_scale: self.scaling.then_some(self.rcv.scale),
            sack_permitted: self.sack,
            timestamps: self.timestamps_option(now),
            user_timeout: self.user_timeout_of_syn(),
            ..Options::default()
        }
    }

    #[inline]
    pub(super) fn timestamps_option(&self, now: Instant) -> Option<Timestamps> {
        self.timestamps.then(|| Timestamps {
            value: self.timestamp_value(now),
            echo: self.ts_recent,
        })
    }

    /// Takes the options of the peer's SYN or SYN-ACK, and sets what follows from them.
    pub(in crate::tcp) fn negotiate(&mut self, syn: &Header, now: Instant) {
        let options = &syn.options;
        if let Some(mss) = options.mss {
            self.peer_mss = mss.max(MSS_MIN);
        }
        self.take_user_timeout(syn);
        self.sack &= options.sack_permitted;
        match options.window_scale {
            Some(shift) if self.scaling => self.snd.scale = shift.min(SHIFT_MAX),
            _ => {
                self.scaling = false;
                self.rcv.scale = 0;
            }
        }
        match options.timestamps {
            Some(ts) if self.timestamps => {
                self.ts_recent = ts.value;
                self.ts_recent_at = now.coarse();
            }
            _ => self.timestamps = false,
        }
        self.begin_path();
        self.update_send_mss();
        let mss = u32::from(self.snd.mss);
        let segments = u32::from(self.periods.initial_cwnd);
        self.congestion.open(initial_window(segments, mss), mss);
    }

    /// RFC 9293 §3.7.1 MUST-16: what peer and path take, less the options in every segment.
    pub(in crate::tcp) fn update_send_mss(&mut self) {
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 };
        let options = options + u16::from(self.signature);
        self.snd.mss = self.segment_size() - options;
        self.congestion.mss_changed(u32::from(self.snd.mss));
    }

    /// PAWS (RFC 7323 §5.3 R1), and the rule that timestamps, once agreed upon, are in every segment (§3.2), where it is insisted
    /// upon ([`crate::tcp::Config::timestamps_required`]). A RST is judged by its sequence number alone.
    #[inline]
    pub(super) fn check_timestamp(&self, header: &Header, now: Instant) -> Result<(), Drop> {
        if !self.timestamps || header.flags.contains(Flags::RST) {
            return Ok(());
        }
        let Some(ts) = header.options.timestamps else {
            return match self.timestamps_required {
                true => Err(Drop::TimestampMissing),
                false => Ok(()),
            };
        };
        let older = ts.value.wrapping_sub(self.ts_recent).cast_signed() < 0;
        if older && now.coarse().wrapping_sub(self.ts_recent_at) <= TS_RECENT_LIFE {
            return Err(Drop::Paws);
        }
        Ok(())
    }

    /// RFC 7323 §4.3 (2), (3): the timestamp to echo is that of the earliest segment not yet
    /// acknowledged. The segment is acceptable.
    #[inline]
    pub(super) fn note_timestamp(&mut self, header: &Header, now: Instant) {
        if let Some(ts) = header.options.timestamps
            && self.timestamps
            && header.seq <= self.last_ack_sent
        {
            self.ts_recent = ts.value;
            self.ts_recent_at = now.coarse();
        }
    }

    /// A round trip measured by the peer's echo, in microseconds; for segments that Karn's
    /// algorithm cannot time (RFC 7323 §4.1). The clock is too coarse for anything else.
    ///
    /// An echo from before the last retransmission is as ambiguous as no echo: the peer may have
    /// had the data long ago, and only its acknowledgment was lost.
    #[cold]
    pub(super) fn echoed_rtt_us(
        &self,
        timestamps: Option<Timestamps>,
        now: Instant,
    ) -> Option<u32> {
        let echo = timestamps.filter(|_| self.timestamps)?.echo;
        let unambiguous = echo.wrapping_sub(self.ts_retransmitted).cast_signed() >= 0;
        let elapsed = self.timestamp_value(now).wrapping_sub(echo);
        (echo != 0 && unambiguous && elapsed < 1 << 22).then(|| elapsed.max(1) * 1000)
    }
}
