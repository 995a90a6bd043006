//! Path MTU discovery: what ICMP and probes do to the segment size. `tcp::path_mtu` has the state.

use super::Connection;
use crate::tcp::config::MtuProbing;
use crate::tcp::path_mtu::{BASE, NEVER, PathMtu, Probe};
use crate::tcp::types::State;
use crate::tcp::variables::MSS_MIN;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// How long a lowered size is believed before larger ones are tried: RFC 1191 §6.3 and RFC 8201 §4 say 5 minutes at least, and recommend 10.
/// In units of [`Instant::coarse`], which are longer than a second.
const LIFETIME: u32 = 600 * 100 / 107;

/// Timeouts in a row without an answer after which a path may be a black hole (RFC 4821 §7.7; Linux's tcp_retries1).
const SILENT_TIMEOUTS: u8 = 3;

/// Probes of one size that may get lost by chance (RFC 8899 §5.1.3, MAX_PROBES).
pub(in crate::tcp) const PROBES_MAX: u8 = 3;

/// Without SACK, which probes need, so soon after a suspicion full segments are tried again; in units of [`Instant::coarse`].
const SECOND_THOUGHTS: u32 = 2;

/// A search ends when what it would still gain is less than this (Linux's tcp_probe_threshold).
const WORTH: u16 = 8;

/// Full segments of text that must wait behind a probe, so that its loss is noticed by what follows (RFC 4821 §7.4).
const FOLLOWERS: u32 = 5;

impl Connection {
    /// What link and peer take.
    const fn size_max(&self) -> u16 {
        let own = if self.settings.mss < self.path.link {
            self.settings.mss
        } else {
            self.path.link
        };
        if own < self.peer_mss {
            own
        } else {
            self.peer_mss
        }
    }

    /// Bytes of text and options in a full segment.
    pub(super) const fn segment_size(&self) -> u16 {
        let (most, path) = (self.size_max(), self.path.limit);
        if most < path { most } else { path }
    }

    /// Bytes of text and options that the path is known to be limited to; `None`: link and peer say.
    pub fn path_limit(&self) -> Option<u16> {
        (self.path.limit < self.size_max()).then_some(self.path.limit)
    }

    /// What was found out about the path by another connection to the same host; before anything is sent.
    pub fn set_path_limit(&mut self, size: u16, now: Instant) {
        self.path.limit = size.max(MSS_MIN);
        self.path.raise_at = now.coarse() + LIFETIME;
        if self.state != State::SynSent {
            self.update_send_mss();
        }
    }

    /// The MTU of its link has changed: a full segment carries at most `size` bytes of text and options from now on, whatever becomes known of
    /// the path (RFC 1191 §3, RFC 8201 §4: no path takes more than its first hop), and never more than the SYNs said.
    pub fn set_link_limit(&mut self, size: u16) {
        self.path.link = size.max(MSS_MIN);
        if self.state != State::SynSent {
            self.update_send_mss();
        }
    }

    /// The path's first size, once the peer has said what it takes.
    pub(super) fn begin_path(&mut self) {
        self.path = PathMtu {
            limit: self.path.limit,
            raise_at: self.path.raise_at,
            ..self.path.again(self.snd.nxt)
        };
        if self.settings.mtu_probing == MtuProbing::Always {
            self.path.limit = self.path.limit.min(self.base(0));
            self.search();
        }
    }

    /// A router says that a segment was too long (RFC 1191, RFC 8201); `quoted` lies in flight. One that says nothing new is ignored, and
    /// none makes segments longer (RFC 8201 §4).
    pub(super) fn too_big(&mut self, size: u16, quoted: SeqNum) {
        let size = size.max(MSS_MIN);
        let probe = self.path.probe;
        if probe.len > 0 && quoted >= probe.start && quoted < probe.end() {
            // Of a probe: nothing else was too long. That it was lost will be noticed.
            self.path.high = self.path.high.min(size.max(self.path.low));
            self.path.failures = PROBES_MAX;
            return;
        }
        if size >= self.segment_size() {
            return;
        }
        if size < self.path.low && self.state.is_synchronized() {
            // RFC 5927 §7.2: longer ones have arrived. It is believed once the one that it quotes stays away.
            (self.cold.claim, self.cold.quoted) = (size, quoted);
            return;
        }
        self.shorten(size, self.last_sent);
    }

    /// What a router said and was not believed yet; it is forgotten.
    fn take_claim(&mut self) -> u16 {
        let claim = self.cold.claim;
        if claim > 0 {
            self.cold.claim = 0;
        }
        claim
    }

    /// Segments are made shorter, and what is under way is sent again.
    fn shorten(&mut self, size: u16, now: Instant) {
        self.take_claim();
        self.path = PathMtu {
            limit: size,
            low: self.path.low.min(size),
            high: size,
            raise_at: now.coarse() + LIFETIME,
            ..self.path.again(self.snd.nxt)
        };
        self.update_send_mss();
        self.sent_in_vain();
    }

    /// Nothing was heard for a timeout. A claim that waited is believed; long segments may be what does not arrive (RFC 4821 §7.7).
    pub(super) fn path_timed_out(&mut self, now: Instant) {
        let claim = self.take_claim();
        if claim > 0 && self.cold.quoted >= self.snd.una && claim < self.segment_size() {
            return self.shorten_after_timeout(claim, now);
        }
        self.path.probe = Probe::NONE;
        let silent = self.attempts >= SILENT_TIMEOUTS;
        if !silent || self.settings.mtu_probing == MtuProbing::Off {
            return;
        }
        let step = usize::from(self.attempts > SILENT_TIMEOUTS + 1);
        let base = self.base(step);
        let waits = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        if self.segment_size() > base && waits > u32::from(base) {
            let failures = self.path.failures;
            self.shorten_after_timeout(base, now);
            self.path.high = u16::MAX;
            self.path.low = 0;
            self.search();
            if !self.sack {
                self.suspect_again(failures + u8::from(step == 0), now);
            }
        }
    }

    /// Loss is no black hole (RFC 4821 §7.7): a suspicion is confirmed by full segments that stay away once more after shorter ones have passed,
    /// several times. Until then it is held for moments only.
    fn suspect_again(&mut self, failures: u8, now: Instant) {
        self.path.searches = false;
        self.path.failures = failures.min(PROBES_MAX);
        if failures < PROBES_MAX {
            self.path.raise_at = now.coarse() + SECOND_THOUGHTS;
        }
    }

    /// The one segment that a timeout lets go (RFC 5681 §3.1) is a shorter one.
    fn shorten_after_timeout(&mut self, size: u16, now: Instant) {
        self.shorten(size, now);
        let mss = u32::from(self.snd.mss);
        self.congestion.window.cwnd = self.sent.in_flight().saturating_add(mss);
    }

    /// No path is asked to do with less than its family guarantees (RFC 8200 §5, RFC 791).
    fn base(&self, step: usize) -> u16 {
        BASE[step].max(self.settings.default_mss)
    }

    /// Looks for larger sizes, from the largest down (RFC 4821 §7.3).
    fn search(&mut self) {
        self.path.searches = true;
        self.path.failures = 0;
        self.path.watches = true;
    }

    /// How much a probe would carry, text and options; `None`: the search is over.
    fn probe_size(&self) -> Option<u16> {
        let (low, high) = (self.segment_size(), self.path.high.min(self.size_max()));
        if high < low.saturating_add(WORTH) {
            return None;
        }
        // The largest first: nothing may stand in the way at all. Then by halves.
        Some(if self.path.high > high {
            high
        } else {
            low + (high - low) / 2
        })
    }

    /// The length of a probe, if one can go as the next new text: with SACK, which tells its loss from others', within `room`, which is the
    /// peer's window and the congestion window (RFC 4821 §7.4), and with enough behind it of the `text` that waits.
    #[cold]
    #[inline(never)]
    pub(super) fn probe_due(&mut self, text: u32, room: u32) -> Option<u32> {
        if !self.is_steady() || !self.sack || self.fin_queued || !self.cold.sack_blocks.is_empty() {
            return None;
        }
        let Some(size) = self.probe_size() else {
            self.path.searches = false;
            return None;
        };
        let (mss, options) = (u32::from(self.snd.mss), self.segment_size() - self.snd.mss);
        let len = u32::from(size - options);
        (room >= len && text >= len + FOLLOWERS * mss).then_some(len)
    }

    /// The next new text, `len` bytes, leaves as a probe.
    pub(super) fn begin_probe(&mut self, len: u32) {
        let start = self.snd.nxt;
        let options = u32::from(self.segment_size() - self.snd.mss);
        let short = |n| u16::try_from(n).unwrap_or(u16::MAX);
        self.path.probe = Probe {
            start,
            len: short(len),
            size: short(len + options),
        };
    }

    /// Whether SND.UNA's move may show the path's size: a full segment's worth since the last small one, a probe, or a size to be tried again.
    #[inline]
    pub(super) fn path_learns(&self) -> bool {
        self.path.watches
            && (self.snd.una - self.snd.small >= i32::from(self.snd.mss)
                || self.path.probe.len > 0
                || self.path.raise_at < NEVER)
    }

    /// SND.UNA has moved, and [`Self::path_learns`].
    #[cold]
    #[inline(never)]
    pub(super) fn path_acknowledged(&mut self, now: Instant) {
        let una = self.snd.una;
        let probe = self.path.probe;
        if probe.len > 0 && una >= probe.end() {
            self.probe_arrived(probe, now);
        }
        let from = if self.snd.small > self.path.mark {
            self.snd.small
        } else {
            self.path.mark
        };
        if una - from >= i32::from(self.snd.mss) {
            self.path.low = self.path.low.max(self.segment_size());
            if !self.sack && self.path.limit == u16::MAX {
                self.path.failures = 0; // full segments pass
            }
        }
        if now.coarse() >= self.path.raise_at {
            self.path.raise_at = NEVER;
            self.path.high = u16::MAX;
            if self.settings.mtu_probing == MtuProbing::Off || !self.sack {
                // RFC 1191 §6.3: as if nothing had been said; routers will say it again, and so will silence.
                self.enlarge(u16::MAX);
            } else {
                self.search();
            }
        }
        let waits_to_raise = self.path.raise_at < NEVER;
        self.path.watches =
            self.path.low < self.segment_size() || self.path.searches || waits_to_raise;
    }

    fn probe_arrived(&mut self, probe: Probe, now: Instant) {
        self.path.probe = Probe::NONE;
        self.path.low = probe.size;
        self.path.failures = 0;
        self.enlarge(probe.size);
        if self.probe_size().is_none() {
            self.path.searches = false;
            let whole = self.path.limit >= self.size_max();
            self.path.raise_at = if whole {
                NEVER
            } else {
                now.coarse() + LIFETIME
            };
        }
    }

    fn enlarge(&mut self, size: u16) {
        self.path.limit = size;
        self.path.mark = self.snd.nxt;
        self.update_send_mss();
    }

    /// The probe did not arrive (RFC 4821 §7.6.2): it goes again in pieces. Lost by chance, the size is tried again.
    pub(super) fn probe_lost(&mut self, now: Instant) {
        let probe = core::mem::replace(&mut self.path.probe, Probe::NONE);
        if probe.len == 0 {
            return;
        }
        self.path.failures = self.path.failures.saturating_add(1);
        if self.path.failures >= PROBES_MAX {
            self.path.failures = 0;
            self.path.high = self.path.high.min(probe.size - 1);
        }
        if self.probe_size().is_none() {
            self.path.searches = false;
            self.path.raise_at = now.coarse() + LIFETIME;
        }
    }
}

#[cfg(test)]
#[path = "../tests/path_mtu.rs"]
mod tests;
