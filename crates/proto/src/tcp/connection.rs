//! The connection: its variables (RFC 9293 §3.3.1), what can be asked of it and set on it.

mod ack;
mod acknowledge;
mod burst;
mod busy;
mod check;
pub(super) mod close;
mod delivery;
mod ecn;
mod fast_open;
mod headers;
pub(super) mod icmp;
pub(super) mod image;
pub(super) mod info;
pub(super) mod input;
mod open;
mod options;
mod output;
mod path_mtu;
mod persist;
mod receive_buffer;
mod recovery;
mod sack;
mod scoreboard;
mod signature;
mod tail_probe;
mod timer;
mod undo;
mod user_timeout;
pub(super) mod window;

use alloc::boxed::Box;

use super::busy::Busy;
use super::cold::{BoxedDefault, Cold, Periods};
use super::config::{Config, IcmpWhileConnecting, Keepalive};
use super::congestion::{Congestion, CongestionControl};
use super::ecn::EcnState;
use super::fast_open::FastOpen;
use super::path_mtu::PathMtu;
use super::rate::Rate;
use super::receive_buffer::ReceiveTuning;
use super::recovery::Recovery;
use super::rtt::RttEstimator;
use super::sent::Sent;
use super::timer::Timers;
use super::types::{Error, Events, State};
use super::user_timeout::UserTimeout;
use super::variables::{
    Counters, MSS_MIN, Pending, QUICK_ACKS, RECEIVE_BUFFER_MAX, ReceiveVariables, SendVariables,
    Settings, Talk, millis,
};
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNum;

/// Ends of records that a connection keeps at most.
pub const RECORDS_MAX: usize = 1024;

/// One TCP connection, without its data.
///
/// See the module's documentation for what each side keeps, and the order of calls. `Clone` is for [`super::Template`] alone.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
#[allow(clippy::struct_excessive_bools)] // each is one of the RFC's own facts
pub struct Connection {
    pub(super) state: State,
    pub(super) pending: Pending,
    /// RFC 9293 MUST-11: SYN-RECEIVED remembers how it came to be.
    pub(super) passive: bool,
    pub(super) nagle: bool,
    pub(super) corked: bool,
    /// SYN-ACK and FIN are acknowledged at once.
    pub(super) quick_ack: bool,
    pub(super) talk: Talk,
    pub(super) timestamps: bool,
    /// A segment without one is dropped, once they were agreed upon.
    pub(super) timestamps_required: bool,
    pub(super) sack: bool,
    /// Window scaling: offered, then agreed upon.
    pub(super) scaling: bool,
    pub(super) keepalive: bool,
    /// The send side is shut: a FIN follows the last byte written.
    pub(super) fin_queued: bool,
    /// Where the peer's stream ends is known.
    pub(super) peer_fin_known: bool,
    /// The peer's FIN was reached.
    pub(super) peer_fin_reached: bool,
    /// The application reads no more: text is answered with RST.
    pub(super) no_reader: bool,
    /// The receive side is shut: once the send side is, too, text is answered with RST.
    pub(super) read_shut: bool,
    /// The send side was shut before there was a connection: no FIN says so, and nothing is written.
    pub(super) no_writer: bool,
    /// The window is closed; the retransmission timer is the persist timer.
    pub(super) probing: bool,
    /// The peer announced urgent data up to `cold.urgent_end`.
    pub(super) urgent: bool,
    /// The first of `cold.sack_blocks` reports a duplicate, once.
    pub(super) duplicate_block: bool,
    /// We announce urgent data up to `cold.urgent_out`, or keep records apart (`cold.records`).
    pub(super) sends_marks: bool,
    /// What ICMP says while connecting is noted, where waiting may mend it.
    pub(super) icmp_is_noted: bool,
    pub(super) error: Option<Error>,
    /// What ICMP said meanwhile (RFC 9293 SHLD-25); the reason given if the connection times out.
    pub(super) soft_error: Option<Error>,

    pub(super) iss: SeqNum,
    pub(super) irs: SeqNum,
    pub(super) snd: SendVariables,
    pub(super) rcv: ReceiveVariables,
    /// What the peer announced (or the default), options included.
    pub(super) peer_mss: u16,
    pub(super) last_ack_sent: SeqNum,
    /// In-order bytes that the application has not taken.
    pub(super) unread: u32,
    /// Most bytes that a window may offer for the time being, whatever the buffer's size.
    pub(super) window_limit: u32,
    /// Segments still to be acknowledged at once, while the peer is in slow start.
    pub(super) quick_acks: u8,
    /// Further duplicate acknowledgments owed; without SACK their number is all the peer learns.
    pub(super) duplicate_acks_owed: u8,
    pub(super) peer_fin: SeqNum,

    // RFC 7323 §4.
    pub(super) ts_offset: u32,
    pub(super) ts_recent: u32,
    /// When that was, by [`Instant::coarse`].
    pub(super) ts_recent_at: u32,
    /// Our timestamp clock when something was last sent again.
    pub(super) ts_retransmitted: u32,

    pub(super) fast_open: Option<Box<FastOpen>>,
    pub(super) ecn: EcnState,
    pub(super) path: PathMtu,
    pub(super) rtt: RttEstimator,
    pub(super) congestion: Congestion,
    pub(super) recovery: Recovery,
    pub(super) sent: Sent,
    pub(super) rate: Rate,
    pub(super) timers: Timers,
    pub(super) busy: Busy,
    pub(super) last_received: Instant,
    pub(super) last_sent: Instant,
    /// Since when the oldest unacknowledged byte waits.
    pub(super) stalled_since: Instant,
    /// Retransmissions of the same data, or probes, without an answer.
    pub(super) attempts: u8,
    pub(super) keepalives_sent: u8,
    /// Bytes of each header that a signature takes.
    pub(super) signature: u8,

    pub(super) local_port: u16,
    pub(super) remote_port: u16,
    pub(super) settings: Settings,
    pub(super) periods: BoxedDefault<Periods>,
    pub(super) tuning: ReceiveTuning,
    pub(super) user_timeout: UserTimeout,
    pub(super) counters: Counters,
    pub(super) cold: BoxedDefault<Cold>,
}

impl Connection {
    /// All variables at their beginning; [`super::Template`] fills in what each open knows.
    pub(super) fn new(config: &Config) -> Self {
        let settings = Settings::new(config);
        let mss = config.default_mss.min(settings.mss);
        let buffer = settings.receive_buffer.max(config.receive_buffer_max);
        let shift = u8::from(config.window_scale) * window_shift(buffer);
        Self {
            state: State::Closed,
            pending: Pending(Pending::SYN),
            passive: false,
            nagle: config.nagle,
            corked: config.cork,
            quick_ack: config.quick_ack,
            talk: Talk::default(),
            timestamps: config.timestamps,
            timestamps_required: config.timestamps_required,
            sack: config.sack,
            scaling: config.window_scale,
            keepalive: config.keepalive.is_some(),
            fin_queued: false,
            peer_fin_known: false,
            peer_fin_reached: false,
            no_reader: false,
            read_shut: false,
            no_writer: false,
            probing: false,
            urgent: false,
            sends_marks: false,
            icmp_is_noted: config.icmp_while_connecting == IcmpWhileConnecting::Note,
            duplicate_block: false,
            error: None,
            soft_error: None,
            iss: SeqNum(0),
            irs: SeqNum(0),
            snd: SendVariables::new(SeqNum(0), mss),
            rcv: ReceiveVariables::new(shift, mss),
            peer_mss: config.default_mss.max(MSS_MIN),
            last_ack_sent: SeqNum(0),
            unread: 0,
            window_limit: u32::MAX,
            quick_acks: if config.quick_ack { QUICK_ACKS } else { 0 },
            duplicate_acks_owed: 0,
            peer_fin: SeqNum(0),
            ts_offset: 0,
            ts_recent: 0,
            ts_recent_at: 0,
            ts_retransmitted: 0,
            fast_open: None,
            ecn: EcnState::new(config.ecn),
            path: PathMtu::new(SeqNum(0)),
            rtt: RttEstimator::new(config),
            congestion: Congestion::new(config.congestion, config.pacing, config.slow_start_limit),
            recovery: Recovery::new(SeqNum(0)),
            sent: Sent::new(SeqNum(0)),
            rate: Rate::default(),
            timers: Timers::new(),
            busy: Busy::NONE,
            last_received: Instant::ZERO,
            last_sent: Instant::ZERO,
            stalled_since: Instant::ZERO,
            attempts: 0,
            keepalives_sent: 0,
            signature: 0,
            local_port: 0,
            remote_port: 0,
            settings,
            periods: BoxedDefault::of(Periods::new(config)),
            tuning: ReceiveTuning::new(config.receive_buffer_max.min(RECEIVE_BUFFER_MAX)),
            user_timeout: UserTimeout::new(config.user_timeout_option, settings.retry_ms),
            counters: Counters::default(),
            cold: BoxedDefault::DEFAULT,
        }
    }

    /// The sequence variables of a connection that begins at `iss`.
    pub(super) fn begin_at(&mut self, iss: SeqNum, mss: u16) {
        self.iss = iss;
        self.snd = SendVariables::new(iss, mss);
        self.recovery = Recovery::new(iss);
        self.ecn.begin_at(iss);
        self.sent = Sent::new(iss);
    }

    /// Our initial sequence number (RFC 9293 §3.3.1 ISS).
    pub const fn iss(&self) -> SeqNum {
        self.iss
    }

    /// The peer's (RFC 9293 §3.3.1 IRS).
    pub const fn irs(&self) -> SeqNum {
        self.irs
    }

    /// Whether the peer opened it.
    pub const fn is_passive(&self) -> bool {
        self.passive
    }

    /// The number of the next byte that the application writes.
    pub const fn written_end(&self) -> SeqNum {
        self.snd.end
    }

    /// The state.
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Retransmissions of the same data, or probes, without an answer so far.
    pub const fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Segments sent again so far, SYNs and probes included; wraps.
    #[inline]
    pub fn retransmits(&self) -> u32 {
        self.cold.retransmits
    }

    /// Whether the peer's window is closed and is asked for (the persist timer of RFC 9293 §3.8.6.1).
    pub const fn is_probing(&self) -> bool {
        self.probing
    }

    /// Whether text at `seq` is the next in order, or came before.
    #[inline]
    pub fn is_next(&self, seq: SeqNum) -> bool {
        seq <= self.rcv.nxt
    }

    /// Our port.
    pub const fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The peer's port.
    pub const fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Why the connection ended, if not by FINs.
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    /// What the network last said of the path, without ending the connection
    /// (RFC 9293 SHLD-25).
    pub const fn soft_error(&self) -> Option<Error> {
        self.soft_error
    }

    /// The earliest timer, [`Instant::FAR`] if none runs.
    #[inline]
    pub const fn deadline(&self) -> Instant {
        self.timers.earliest()
    }

    /// Whether the application may write (and the handshake allows sending).
    #[inline]
    pub const fn can_send(&self) -> bool {
        (matches!(self.state, State::Established | State::CloseWait) || self.is_early())
            && !self.fin_queued
    }

    /// Whether writes are accepted now or, once the handshake is over, later.
    #[inline]
    pub const fn is_open_for_writing(&self) -> bool {
        match self.state {
            State::SynSent | State::SynReceived => !self.fin_queued,
            State::Established | State::CloseWait => !self.fin_queued && !self.no_writer,
            _ => false,
        }
    }

    /// Whether the send side was shut before there was a connection.
    pub const fn has_no_writer(&self) -> bool {
        self.no_writer
    }

    /// Whether the peer's FIN was reached: end of stream once the receive queue is empty.
    pub const fn peer_closed(&self) -> bool {
        self.peer_fin_reached
    }

    /// Whether the connection is gone and `output` has nothing more to say.
    #[inline]
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, State::Closed) && self.pending.0 == 0
    }

    /// Whether `output` would look for something to send.
    #[inline]
    pub const fn wants_output(&self) -> bool {
        self.pending.0 != 0
    }

    /// Bytes of the send queue that are not acknowledged, sent or not.
    pub fn unacknowledged(&self) -> u32 {
        let first = self.after_syn(self.snd.una);
        (self.snd.end - first).max(0).unsigned_abs()
    }

    /// Bytes of the send queue that were never sent.
    pub fn unsent(&self) -> u32 {
        let first = self.after_syn(self.snd.nxt);
        (self.snd.end - first).max(0).unsigned_abs()
    }

    /// `at`, or the first byte of text where that is the SYN's own number. In a synchronized state it is text: the numbers have come
    /// round (RFC 9293 §3.4).
    fn after_syn(&self, at: SeqNum) -> SeqNum {
        if at == self.iss && !self.state.is_synchronized() {
            at + 1
        } else {
            at
        }
    }

    /// Bytes that the application has still to take until the urgent data ends, if there is any
    /// (RFC 9293 MUST-33).
    pub fn urgent_remaining(&self) -> Option<u32> {
        let read = self.read_next();
        (self.urgent && self.cold.urgent_end > read)
            .then(|| (self.cold.urgent_end - read).unsigned_abs())
    }

    /// What the application reads next. The peer's FIN, once reached, has a number and no text.
    pub fn read_next(&self) -> SeqNum {
        self.rcv.nxt - self.unread - u32::from(self.peer_fin_reached)
    }

    /// The peer's segment size in use: bytes of text in a full segment.
    pub const fn send_mss(&self) -> u16 {
        self.snd.mss
    }

    /// Turns Nagle's algorithm on or off (RFC 9293 MUST-17). Turning it off pushes what waits, also past a cork (as in Linux).
    pub fn set_nagle(&mut self, on: bool) {
        self.nagle = on;
        if !on {
            self.snd.pushes = true;
        }
        self.pending.set(Pending::SEND);
    }

    /// Holds segments that are not full back until uncorked, whatever is in flight; 200 ms at most once nothing is (RFC 9293
    /// §3.8.6.2.1, the override timeout).
    pub fn set_cork(&mut self, on: bool) {
        self.corked = on;
        self.pending.set(Pending::SEND);
    }

    /// Turns acknowledgments at once on, which also sends one that waits; or off (see
    /// [`Config::quick_ack`]).
    pub fn set_quick_ack(&mut self, on: bool) {
        self.quick_ack = on;
        self.quick_acks = if on { QUICK_ACKS } else { 0 };
        self.talk.interactive = false;
        if on && self.timers.delayed_ack != Instant::FAR {
            self.pending.set(Pending::ACK);
        }
    }

    /// Another congestion control from now on, with the window as it is (Linux's TCP_CONGESTION).
    pub fn set_congestion(&mut self, control: CongestionControl, now: Instant) {
        self.congestion.change(control, self.rtt.srtt_us, now);
        self.timers.pacing = Instant::FAR;
        self.pending.set(Pending::SEND);
    }

    /// Which congestion control it has.
    pub fn congestion_control(&self) -> CongestionControl {
        self.congestion.control()
    }

    /// Text leaves at `bytes_per_second` at most (Linux's SO_MAX_PACING_RATE); 0: as congestion control says.
    pub fn set_pacing_rate_max(&mut self, bytes_per_second: u64) {
        self.congestion.pacing_rate_max = bytes_per_second;
        self.congestion.opened_pace(self.rtt.srtt_us);
        self.timers.pacing = Instant::FAR;
        self.pending.set(Pending::SEND);
    }

    /// Most bytes of text that one [`super::Transmit`] holds from now on (see [`Config::burst`]).
    #[inline]
    pub const fn set_burst(&mut self, bytes: u32) {
        self.settings.burst = bytes;
    }

    /// Whether a burst may be more than so many segments.
    #[inline]
    pub fn bursts_beyond(&self, segments: usize) -> bool {
        let burst = self.settings.burst;
        // 0 where the link takes single segments: then their size does not matter.
        burst > 0 && segments.saturating_mul(self.full_segment() as usize) < burst as usize
    }

    /// From now on they are no more than so many.
    pub fn shorten_burst(&mut self, segments: u32) {
        let most = segments.saturating_mul(self.full_segment());
        self.settings.burst = self.settings.burst.min(most);
    }

    /// Most bytes of text that one [`super::Transmit`] holds.
    #[inline]
    pub const fn burst_max(&self) -> u32 {
        self.settings.burst
    }

    /// Bytes of heap that the records of what was sent take: they grow with what is under way, and with it the peer decides how many they are.
    #[inline]
    pub fn records_bytes(&self) -> usize {
        self.sent.heap_bytes()
    }

    /// Bytes of heap that the connection takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.sent.heap_bytes() + self.cold.heap_bytes() + self.periods.heap_bytes()
    }

    /// Turns keep-alive probes on (`Some`) or off (RFC 9293 MUST-24).
    pub fn set_keepalive(&mut self, keepalive: Option<Keepalive>, now: Instant) {
        self.keepalive = keepalive.is_some();
        if let Some(k) = keepalive {
            self.periods.set(Periods {
                keepalive_idle_ms: millis(k.idle),
                keepalive_interval_ms: millis(k.interval),
                keepalive_probes: k.probes.max(1),
                ..*self.periods
            });
        }
        self.keepalives_sent = 0;
        self.arm_keepalive(now);
    }

    /// R2 for data: how long it may stay unacknowledged (RFC 9293 MUST-21, RFC 5482).
    pub fn set_user_timeout(&mut self, timeout: Duration) {
        self.settings.retry_ms = millis(timeout).max(1);
        self.user_timeout_was_set();
    }

    /// How long a SYN may go unanswered (RFC 9293 MUST-23, TCP_SYNCNT), from the first one on; heard with the next timeout.
    pub fn set_syn_timeout(&mut self, timeout: Duration) {
        self.settings.syn_retry_ms = millis(timeout).max(1);
    }

    /// What memory allows: windows offer at most `bytes` from now on, but nothing that was offered is taken back (RFC 9293 SHLD-14), and
    /// a connection of which nothing waits to be read offers two segments at least. To be said before [`Self::output`].
    #[inline]
    pub const fn limit_window(&mut self, bytes: u32) {
        self.window_limit = bytes;
    }

    /// The application appended `n` bytes to the send queue. They are pushed: the last segment
    /// does not wait for more (RFC 9293 MUST-60, MUST-61), but see Nagle.
    #[inline]
    pub fn written(&mut self, n: u32) {
        if n > 0 && !self.fin_queued && self.state != State::Closed {
            self.snd.end = self.snd.end + n;
            self.pending.set(Pending::SEND);
        }
    }

    /// What was written so far is urgent (RFC 9293 §3.8.5; MUST-31, MUST-62): the urgent pointer
    /// names the octet after it. New programs have better ways (SHLD-13).
    pub fn mark_urgent(&mut self) {
        self.sends_marks = true;
        self.cold.urgent_out = self.snd.end;
        self.pending.set(Pending::SEND);
    }

    /// What was written so far ends a record: no segment has text from before and from behind it (Linux's MSG_EOR). Beyond
    /// `RECORDS_MAX` that are not acknowledged it is forgotten.
    pub fn end_record(&mut self) {
        let end = self.snd.end;
        if end <= self.snd.una || self.cold.records.len() >= RECORDS_MAX {
            return;
        }
        if !self.sends_marks {
            self.sends_marks = true;
            self.cold.urgent_out = self.snd.una; // nothing is urgent
        }
        if self.cold.records.back() != Some(&end) {
            self.cold.records.push_back(end);
        }
    }

    /// Of `len` bytes from `start` on, those of one record; whether it ends with them.
    #[cold]
    pub(super) fn within_record(&self, start: SeqNum, len: u32) -> (u32, bool) {
        let records = &self.cold.records;
        let next = records.partition_point(|end| *end <= start);
        match records.get(next).map(|end| (*end - start).unsigned_abs()) {
            Some(left) if left <= len => (left, true),
            _ => (len, false),
        }
    }

    /// SND.UNA passed what was urgent, if anything was: what is left to be told.
    #[cold]
    pub(super) fn forget_marks(&mut self) {
        let una = self.snd.una;
        self.cold.urgent_out = una;
        while self.cold.records.front().is_some_and(|end| *end <= una) {
            self.cold.records.pop_front();
        }
        self.sends_marks = !self.cold.records.is_empty();
    }

    /// The application took `n` bytes out of the receive queue.
    #[inline]
    pub fn consumed(&mut self, n: u32) {
        self.unread = self.unread.saturating_sub(n);
        if self.urgent && self.cold.urgent_end <= self.read_next() {
            self.urgent = false;
        }
        if self.window_update_is_due() {
            self.pending.set(Pending::ACK);
        }
    }

    /// Ends the connection at once, with `error`; nothing is sent.
    pub(super) fn finish(&mut self, error: Option<Error>) -> Events {
        if self.state == State::Closed {
            return Events::NONE;
        }
        self.state = State::Closed;
        self.pending = Pending::default();
        self.timers = Timers::new();
        self.duplicate_acks_owed = 0;
        self.sent.forget(); // it will not be acknowledged
        if error.is_some() {
            self.error = error;
            Events::RESET | Events::CLOSED
        } else {
            Events::CLOSED
        }
    }
}

/// The least shift with which 16 bits hold `buffer` (RFC 7323 §2.2, at most 14).
fn window_shift(buffer: u32) -> u8 {
    (0..14).find(|shift| buffer >> shift <= 65535).unwrap_or(14)
}
