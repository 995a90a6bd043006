//! The referee of one end: knows what was sent and heard from headers alone, and panics when an end does what it may not.

use proto::{
    tcp::{Config, Info},
    wire::tcp::{Flags, Header, SeqNum},
};

use super::text::Text;

/// What a SYN offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    scale: Option<u8>,
    timestamps: bool,
    sack: bool,
}

impl Offer {
    const fn of(header: &Header) -> Self {
        Self {
            scale: header.options.window_scale,
            timestamps: header.options.timestamps.is_some(),
            sack: header.options.sack_permitted,
        }
    }
}

/// What the end itself says, before it is asked for a segment.
pub(super) struct Claims<'a> {
    pub info: &'a Info,
    pub probing: bool,
    /// All bytes its application has written.
    pub written: u64,
}

/// One end, as its segments show it.
#[derive(Clone, Debug)]
pub(super) struct Referee {
    iss: SeqNum,
    mss: u16,
    default_mss: u16,
    offered: Option<Offer>,
    heard: Option<Offer>,
    peer_mss: u16,
    /// The farthest that the peer has allowed.
    edge: Option<SeqNum>,
    /// Acknowledged, as far as heard.
    una: SeqNum,
    /// Acknowledgments that repeated it: each tells of a segment that arrived.
    repeats: u32,
    /// The farthest block sacked.
    sacked_to: SeqNum,
    /// One past the last heard.
    heard_to: Option<SeqNum>,
    /// One past the last sent.
    sent_to: SeqNum,
    /// Something was sent again while this was the farthest sent: what is in flight cannot be told from headers until it is acknowledged.
    repaired_to: SeqNum,
    /// The congestion window when text was last sent for the first time: it may have become smaller by that (RFC 5681 §4.1).
    cwnd: u32,
    /// The last acknowledgment sent, and the farthest edge announced.
    acked_to: Option<SeqNum>,
    announced: Option<SeqNum>,
}

fn later(a: Option<SeqNum>, b: SeqNum) -> SeqNum {
    a.map_or(b, |a| if b > a { b } else { a })
}

fn space(header: &Header, len: u32) -> u32 {
    let one = |flag| u32::from(header.flags.contains(flag));
    len + one(Flags::SYN) + one(Flags::FIN)
}

impl Referee {
    pub(super) fn new(config: &Config, iss: SeqNum) -> Self {
        Self {
            iss,
            mss: config.mss,
            default_mss: config.default_mss,
            offered: None,
            heard: None,
            peer_mss: config.default_mss,
            edge: None,
            una: iss,
            repeats: 0,
            sacked_to: iss,
            heard_to: None,
            sent_to: iss,
            repaired_to: iss,
            cwnd: 0,
            acked_to: None,
            announced: None,
        }
    }

    fn both(&self, has: fn(&Offer) -> bool) -> bool {
        self.offered.as_ref().is_some_and(has) && self.heard.as_ref().is_some_and(has)
    }

    /// The shift of windows that the end that offered `of` announces.
    fn shift(&self, of: Option<Offer>) -> u32 {
        if self.both(|o| o.scale.is_some()) {
            of.and_then(|o| o.scale).map_or(0, |s| u32::from(s.min(14)))
        } else {
            0
        }
    }

    /// Whether everything sent is acknowledged, as far as heard.
    pub(super) fn is_idle(&self) -> bool {
        self.una == self.sent_to
    }

    /// A segment reaches the end.
    pub(super) fn heard(&mut self, header: &Header, len: u32) {
        if header.flags.contains(Flags::RST) {
            return;
        }
        let syn = header.flags.contains(Flags::SYN);
        if syn {
            self.heard = Some(Offer::of(header));
            self.peer_mss = header.options.mss.unwrap_or(self.default_mss);
        }
        self.heard_to = Some(later(self.heard_to, header.seq + space(header, len)));
        let window = if syn {
            u32::from(header.window)
        } else {
            u32::from(header.window) << self.shift(self.heard)
        };
        let from = if header.flags.contains(Flags::ACK) {
            header.ack
        } else {
            self.iss + 1
        };
        self.edge = Some(later(self.edge, from + window));
        if header.flags.contains(Flags::ACK) && header.ack > self.una && header.ack <= self.sent_to
        {
            self.una = header.ack;
            self.repeats = 0;
        } else if len == 0 {
            self.repeats += 1;
        }
        for &(_, right) in header.options.sack.as_slice() {
            if right > self.sacked_to && right <= self.sent_to {
                self.sacked_to = right;
            }
        }
    }

    /// A segment leaves the end.
    pub(super) fn sent(&mut self, header: &Header, text: &Text, claims: &Claims<'_>) {
        let len = text.len;
        if header.flags.contains(Flags::RST) {
            return;
        }
        if header.flags.contains(Flags::SYN) {
            assert_eq!(header.seq, self.iss, "a SYN has one place: {header:?}");
            self.offered = Some(Offer::of(header));
        }
        self.check_place(header, text, claims);
        self.check_window(header, len, claims);
        self.check_congestion(header, len, claims);
        self.check_options(header, len);
        self.check_acknowledgment(header);
        if space(header, len) > 0 && header.seq < self.sent_to {
            self.repaired_to = self.sent_to;
        }
        self.sent_to = later(Some(self.sent_to), header.seq + space(header, len));
    }

    /// Text stands where its number says, the FIN behind the last byte.
    fn check_place(&self, header: &Header, text: &Text, claims: &Claims<'_>) {
        let len = text.len;
        let number = |offset: u64| self.iss + 1 + u32::try_from(offset & 0xffff_ffff).unwrap_or(0);
        if len > 0 {
            assert_eq!(header.seq, number(text.offset), "text has its place");
            assert!(
                text.end() <= claims.written,
                "only what was written is sent"
            );
        }
        if header.flags.contains(Flags::FIN) {
            let end = number(claims.written);
            assert_eq!(
                header.seq + len,
                end,
                "the FIN stands behind the last byte: {header:?}"
            );
        }
    }

    /// RFC 9293 §3.8.6: nothing beyond what the peer offered, but for one byte that asks for more.
    fn check_window(&self, header: &Header, len: u32, claims: &Claims<'_>) {
        if header.flags.contains(Flags::SYN) || space(header, len) == 0 {
            return;
        }
        let end = header.seq + space(header, len);
        let edge = self.edge.expect("text or FIN before the peer was heard");
        let more = u32::from(claims.probing);
        assert!(
            end <= edge + more,
            "{} bytes beyond the peer's window (probing: {}): {header:?} len {len}; {:?}",
            end - edge,
            claims.probing,
            claims.info
        );
    }

    /// Text never sent before keeps within the congestion window: a segment more for a tail loss probe, and one for each
    /// repeated acknowledgment where no SACK tells (RFC 3042). While losses are repaired, headers do not show what is in flight.
    fn check_congestion(&mut self, header: &Header, len: u32, claims: &Claims<'_>) {
        let end = header.seq + len;
        let info = claims.info;
        let repairs = info.in_recovery || info.backoff > 0 || self.repaired_to > self.una;
        let clear = !repairs && self.sacked_to <= self.una;
        let before = self.cwnd;
        if len > 0 && end > self.sent_to {
            self.cwnd = info.cwnd_bytes;
        }
        if len == 0 || end <= self.sent_to || !clear || claims.probing {
            return;
        }
        let flight = (end - self.una).max(0).unsigned_abs();
        let more = if self.both(|o| o.sack) {
            1
        } else {
            1 + self.repeats
        };
        let mss = u32::from(info.send_mss);
        assert!(
            flight <= info.cwnd_bytes.max(before) + more * mss || flight <= len,
            "{flight} bytes in flight, the congestion window is {}: {header:?} len {len}; {info:?}",
            info.cwnd_bytes
        );
    }

    /// What was agreed upon is kept to: RFC 7323 §3.2, RFC 2018 §2, RFC 9293 MUST-16.
    fn check_options(&self, header: &Header, len: u32) {
        if header.flags.contains(Flags::SYN) {
            return;
        }
        assert_eq!(
            header.options.timestamps.is_some(),
            self.both(|o| o.timestamps),
            "timestamps as agreed: {header:?}"
        );
        assert!(
            header.options.sack.is_empty() || self.both(|o| o.sack),
            "{header:?}"
        );
        let options = u32::try_from(header.len() - 20).unwrap_or(u32::MAX);
        let most = u32::from(self.mss.min(self.peer_mss).max(64));
        assert!(
            len == 0 || len + options <= most,
            "{len} bytes and {options} of options in segments of {most}: {header:?}"
        );
    }

    /// Acknowledgments: of what was heard, never backwards; the window's edge too (RFC 9293 SHLD-14).
    fn check_acknowledgment(&mut self, header: &Header) {
        if !header.flags.contains(Flags::ACK) {
            return;
        }
        let heard = self.heard_to.expect("an acknowledgment of nothing");
        assert!(
            header.ack <= heard,
            "acknowledged what never came: {header:?}"
        );
        if let Some(before) = self.acked_to {
            assert!(
                header.ack >= before,
                "acknowledged {} bytes less: {header:?}",
                before - header.ack
            );
        }
        self.acked_to = Some(header.ack);
        for &(left, right) in header.options.sack.as_slice() {
            assert!(
                left < right && right <= heard,
                "sacked what never came: {header:?}"
            );
        }
        for &(left, _) in header.options.sack.as_slice().iter().skip(1) {
            // RFC 2883 §4: only the first may tell of a duplicate, and the second of what surrounds it.
            assert!(left > header.ack, "sacked what is acknowledged: {header:?}");
        }
        if header.flags.contains(Flags::SYN) {
            return; // its window is not scaled and says what it can
        }
        let shift = self.shift(self.offered);
        let edge = header.ack + (u32::from(header.window) << shift);
        if let Some(before) = self.announced {
            assert!(
                edge + (1 << shift) > before,
                "the window shrinks by {}: {header:?}",
                before - edge
            );
        }
        self.announced = Some(later(self.announced, edge));
    }
}
