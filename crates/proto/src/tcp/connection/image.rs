//! A connection's own variables in its image, and what must hold of a connection that was made of one.

use super::path_mtu::PROBES_MAX;
use super::{Connection, RECORDS_MAX};
use crate::tcp::busy::BusyImage;
use crate::tcp::cold::ColdImage;
use crate::tcp::cold::Periods;
use crate::tcp::congestion::CongestionImage;
use crate::tcp::ecn::EcnImage;
use crate::tcp::fast_open::FastOpenImage;
use crate::tcp::image::{Distance, ImageError, Imaged, imaged};
use crate::tcp::path_mtu::PathMtuImage;
use crate::tcp::payload::Payload;
use crate::tcp::rate::RateImage;
use crate::tcp::reassembly::image::{HeldText, Known, ReceiveQueueImage};
use crate::tcp::reassembly::{ReceiveQueue, SegmentPool};
use crate::tcp::receive_buffer::ReceiveTuningImage;
use crate::tcp::recovery::RecoveryImage;
use crate::tcp::rtt::RttImage;
use crate::tcp::sent::image::SentImage;
use crate::tcp::timer::TimersImage;
use crate::tcp::types::{Error, State};
use crate::tcp::user_timeout::UserTimeout;
use crate::tcp::variables::{
    Counters, MSS_MIN, Pending, RECEIVE_BUFFER_MAX, ReceiveVariables, SendVariables, Settings,
    TIMESTAMPS_LEN, Talk,
};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

imaged! {
    /// One TCP connection as plain data, without its text: numbers, flags and lists, nothing that points into a process.
    #[allow(clippy::struct_excessive_bools)] // the connection's own
    pub struct ConnectionImage of Connection {
        state: State,
        pending: Pending,
        passive: bool,
        nagle: bool,
        corked: bool,
        quick_ack: bool,
        talk: Talk as part,
        timestamps: bool,
        timestamps_required: bool,
        sack: bool,
        scaling: bool,
        keepalive: bool,
        fin_queued: bool,
        peer_fin_known: bool,
        peer_fin_reached: bool,
        no_reader: bool,
        read_shut: bool,
        no_writer: bool,
        probing: bool,
        urgent: bool,
        duplicate_block: bool,
        sends_marks: bool,
        icmp_is_noted: bool,
        error: Option<Error>,
        soft_error: Option<Error>,
        iss: SeqNum,
        irs: SeqNum,
        snd: SendVariables as part,
        rcv: ReceiveVariables as part,
        peer_mss: u16,
        last_ack_sent: SeqNum,
        unread: u32,
        window_limit: u32,
        quick_acks: u8,
        duplicate_acks_owed: u8,
        peer_fin: SeqNum,
        ts_offset: u32 as stamp,
        ts_recent: u32,
        ts_recent_at: u32 as coarse,
        // A timestamp, not a time: it goes on to mean the same.
        ts_retransmitted: u32,
        fast_open: Option<FastOpenImage> as part,
        ecn: EcnImage as part,
        path: PathMtuImage as part,
        rtt: RttImage as part,
        congestion: CongestionImage as part,
        recovery: RecoveryImage as part,
        sent: SentImage as part,
        rate: RateImage as part,
        timers: TimersImage as part,
        busy: BusyImage as part,
        last_received: Distance as part,
        last_sent: Distance as part,
        stalled_since: Distance as part,
        attempts: u8,
        keepalives_sent: u8,
        signature: u8,
        local_port: u16,
        remote_port: u16,
        settings: Settings as part,
        periods: Option<Periods> as part,
        tuning: ReceiveTuningImage as part,
        user_timeout: UserTimeout as part,
        counters: Counters as part,
        cold: Option<ColdImage> as part,
    }
}

/// More may not lie between two sequence numbers that are compared (RFC 9293 §3.4).
const SPAN_MAX: u32 = 1 << 31;

/// Bytes that no connection has moved: at 100 Gbit/s they take 11 years.
const TOTAL_MAX: u64 = 1 << 62;

/// Whether these follow each other, within half of the sequence space.
fn ascend(numbers: &[SeqNum]) -> bool {
    let first = numbers.first().copied().unwrap_or(SeqNum(0));
    let mut before = 0;
    numbers.iter().all(|number| {
        let distance = number.0.wrapping_sub(first.0);
        let fits = distance >= before && distance < SPAN_MAX;
        before = distance;
        fits
    })
}

impl ConnectionImage {
    /// Bytes of the send queue: those from SND.UNA on that are not acknowledged, sent or not.
    #[must_use]
    pub fn queued_bytes(&self) -> u32 {
        let syn = self.snd.una == self.iss && !self.state.is_synchronized();
        let first = self.snd.una + u32::from(syn);
        (self.snd.end - first).max(0).unsigned_abs()
    }

    /// Our port and the peer's.
    #[must_use]
    pub const fn ports(&self) -> (u16, u16) {
        (self.local_port, self.remote_port)
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }
}

/// `Err(error)` unless `holds`.
const fn require(holds: bool, error: ImageError) -> Result<(), ImageError> {
    if holds { Ok(()) } else { Err(error) }
}

impl Connection {
    /// The connection as plain data, at `now`. It goes on as if nothing had been asked.
    #[must_use]
    pub fn take_apart(&self, now: Instant) -> ConnectionImage {
        self.image(now)
    }

    /// The connection that the image was taken of, at `now` (see the module's documentation for what another moment, or another clock, means).
    ///
    /// # Errors
    /// Whatever of the image no connection could have come to.
    pub fn from_image(image: ConnectionImage, now: Instant) -> Result<Self, ImageError> {
        let connection = <Self as Imaged>::from_image(image, now);
        connection.check_image()?;
        Ok(connection)
    }

    /// The connection's receive queue, whose nodes lie in `pool`; `make` puts the bytes that begin there into a payload that holds so much memory,
    /// if it can.
    ///
    /// # Errors
    /// Text that is not what the connection knows of, or more than it or the pool may hold; the pool is as it was then.
    pub fn queue_from_image<P: Payload>(
        &self,
        image: ReceiveQueueImage,
        pool: &mut SegmentPool<P>,
        make: impl FnMut(SeqNum, &HeldText) -> Option<P>,
    ) -> Result<ReceiveQueue<P>, ImageError> {
        // What a closed connection leaves is read, or dropped by its owner; as is what comes to an application that reads no more.
        let counts = self.state != State::Closed && !self.no_reader;
        let known = Known {
            end: self.rcv.nxt - u32::from(self.peer_fin_reached),
            next: self.rcv.nxt,
            unread: counts.then_some(self.unread),
            segments: self.settings.max_segments,
            gaps: self.settings.max_gaps.into(),
        };
        ReceiveQueue::from_image(image, &known, pool, make)
    }

    /// What the code relies on of a connection, wherever it comes from.
    pub(in crate::tcp) fn check_image(&self) -> Result<(), ImageError> {
        require(self.state != State::Listen, ImageError::State)?;
        self.check_sequence_numbers()?;
        self.check_bounds()?;
        self.check_counters()?;
        let bounds = (self.snd.una, self.snd.nxt);
        require(self.congestion.is_sound(), ImageError::Congestion)?;
        require(
            self.sent.is_sound(bounds, self.state.is_synchronized()),
            ImageError::Records,
        )?;
        require(self.cold.is_sound(), ImageError::Bounds)?;
        Ok(())
    }

    fn check_sequence_numbers(&self) -> Result<(), ImageError> {
        let snd = &self.snd;
        let sending = ascend(&[snd.una, snd.nxt, snd.end + 1]);
        require(sending, ImageError::Sequence)?;
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let begins = snd.una == self.iss;
        // Once the SYN is acknowledged its number comes again after 4 GiB, or never.
        let again = !self.state.is_synchronized() || self.counters.bytes_acked > SPAN_MAX.into();
        // Early text follows the SYN-ACK before that is acknowledged.
        let early = self.fast_open.as_ref().is_some_and(|fast| fast.takes_text);
        let begun = match self.state {
            State::SynSent => begins && !early,
            State::SynReceived if early => snd.una == self.iss + 1 || snd.nxt == self.iss,
            State::SynReceived => begins,
            _ => !begins || again,
        };
        require(begun, ImageError::State)?;
        require(!opening || self.is_opening_sound(), ImageError::State)?;
        let fin = self.fin_queued || snd.nxt <= snd.end || snd.nxt == self.iss;
        require(fin, ImageError::Sequence)?;
        if self.state == State::SynSent {
            return Ok(());
        }
        let unread = self.unread <= RECEIVE_BUFFER_MAX;
        let receiving = ascend(&[self.last_ack_sent, self.rcv.nxt, self.rcv.edge]);
        require(unread && receiving, ImageError::Sequence)?;
        let beyond_fin = self.peer_fin_known && self.rcv.nxt > self.peer_fin + 1;
        require(!beyond_fin, ImageError::Sequence)
    }

    /// Whether a handshake under way has sent what it says: its SYN, or that is due; and no text but the SYN's.
    fn is_opening_sound(&self) -> bool {
        let fast = self.fast_open.as_ref();
        let held = fast.is_some_and(|fast| fast.held);
        let sent = self.snd.nxt != self.iss || self.pending.has(Pending::SYN) || held;
        let carried = fast.map_or(0, |fast| fast.sent);
        let reach = self.snd.nxt.0.wrapping_sub(self.iss.0);
        let text = self.state == State::SynReceived || reach.saturating_sub(1) == carried;
        text && sent
            && !self
                .pending
                .has(Pending::PROBE | Pending::TAIL | Pending::KEEPALIVE)
    }

    fn check_bounds(&self) -> Result<(), ImageError> {
        let settings = &self.settings;
        let least = settings.mss.min(settings.default_mss).min(self.peer_mss);
        let sizes = least.min(self.path.limit()) >= MSS_MIN;
        let counts = settings.max_gaps > 0 && settings.max_segments >= 8;
        let buffer = (1..=RECEIVE_BUFFER_MAX).contains(&settings.receive_buffer);
        let scales = self.snd.scale <= 14 && self.rcv.scale <= 14;
        let records = self.cold.records.len() <= RECORDS_MAX;
        // What the header's options take, signature included, and what they leave to text.
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 } + u16::from(self.signature);
        let text = options <= 40 && self.snd.mss.saturating_add(options) >= MSS_MIN;
        let early = matches!(self.state, State::SynSent | State::Closed);
        let whole = early || self.segment_size() == self.snd.mss.saturating_add(options);
        let probe = self.path.probe.len == 0 || self.path.probe.size >= MSS_MIN;
        let claim = self.cold.claim == 0 || self.cold.claim >= MSS_MIN;
        let path = probe && claim && self.path.failures <= PROBES_MAX;
        let all = sizes && counts && buffer && scales && records && text && whole && path;
        require(all, ImageError::Bounds)
    }

    /// Running totals that do not wrap.
    fn check_counters(&self) -> Result<(), ImageError> {
        let bytes = self.counters.bytes_acked.max(self.counters.bytes_received);
        let all = bytes.max(self.cold.bytes_retransmitted) <= TOTAL_MAX;
        require(all, ImageError::Counters)
    }
}
