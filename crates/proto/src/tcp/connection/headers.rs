//! What goes at a segment's head: SYN, RST, and the fields that every segment of an open connection carries.

use super::Connection;
use crate::ip::Ecn;
use crate::tcp::ecn::Feedback;
use crate::tcp::types::{State, Transmit};
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNum};

impl Connection {
    /// SYN, SYN-ACK and the two kinds of RST.
    pub(super) fn special_segment(&mut self, now: Instant) -> Option<Transmit> {
        if self.pending.has(Pending::REFUSE) {
            self.pending.clear(Pending::REFUSE);
            let header = self.plain_header(self.cold.refuse_seq, Flags::RST);
            return Some(self.without_text(header));
        }
        if self.pending.has(Pending::RST) {
            self.pending.clear(Pending::RST);
            let mut header = self.plain_header(self.acceptable_seq(), Flags::RST | Flags::ACK);
            header.ack = self.rcv.nxt;
            header.options.timestamps = self.timestamps_option(now); // RFC 7323 §3.2: SHOULD
            return Some(self.without_text(header));
        }
        self.pending.clear(Pending::SYN);
        let passive = match self.state {
            State::SynSent => false,
            State::SynReceived => true,
            _ if self.ecn.accurate.answers_syn_ack => {
                return Some(self.bare(self.acceptable_seq(), now));
            }
            _ => return self.next_segment(now),
        };
        let first = self.snd.nxt == self.iss;
        if first {
            self.snd.nxt = self.iss + 1;
            self.stalled_since = now;
            self.last_sent = now;
        } else {
            self.note_retransmission(now);
        }
        if self.timers.retransmit == Instant::FAR {
            self.arm_retransmit(now);
        }
        let flags = if passive {
            Flags::SYN | Flags::ACK
        } else {
            Flags::SYN
        };
        let mut header = self.plain_header(self.iss, flags);
        header.options = self.syn_options(now);
        self.add_ecn_to_syn(&mut header, passive);
        header.window = self.syn_window();
        let len = match self.fast_open {
            Some(_) => self.add_fast_open(&mut header, first, now),
            None => 0,
        };
        if passive {
            header.ack = self.rcv.nxt;
            self.acknowledged_by_this();
        }
        self.note_edge(header.window.into());
        Some(Transmit {
            header,
            offset: 0,
            len,
            segment: self.snd.mss.max(u16::try_from(len).unwrap_or(u16::MAX)),
            ecn: Ecn::NotEct,
        })
    }

    /// A header without options, acknowledgment and window.
    #[inline]
    fn plain_header(&self, seq: SeqNum, flags: Flags) -> Header {
        Header {
            source_port: self.local_port,
            destination_port: self.remote_port,
            seq,
            ack: SeqNum(0),
            flags,
            window: 0,
            urgent: 0,
            options: Options::default(),
        }
    }

    /// A header with everything that an open connection's segment carries; what it acknowledges
    /// counts as acknowledged.
    #[inline(always)]
    pub(super) fn header<const PLAIN: bool>(
        &mut self,
        seq: SeqNum,
        flags: Flags,
        now: Instant,
    ) -> Header {
        let mut header = self.plain_header(seq, flags | Flags::ACK | self.ecn.out);
        header.ack = self.rcv.nxt;
        header.window = self.window_to_announce();
        header.options.timestamps = self.timestamps_option(now);
        if !PLAIN && !self.cold.sack_blocks.is_empty() {
            // RFC 2018 §3: with timestamps three blocks fit.
            header.options.sack = self.told_blocks(if self.timestamps { 3 } else { 4 });
            self.forget_duplicate();
        }
        if !PLAIN && self.sends_marks && self.cold.urgent_out > seq {
            self.announce_urgent(&mut header);
        }
        self.note_edge(u32::from(header.window) << self.rcv.scale);
        self.acknowledged_by_this();
        header
    }

    /// The urgent pointer (RFC 9293 §3.8.5) names the octet after the urgent data, where its 16 bits reach so far. Where they do not, as in
    /// Linux, it is as large as it can be: the receiver hears of urgent data ahead, and the segments that come before that place move the
    /// pointer on. But it names nothing that was sent already, which the receiver would take for the urgent octet.
    #[cold]
    fn announce_urgent(&self, header: &mut Header) {
        let distance = (self.cold.urgent_out - header.seq).unsigned_abs();
        let farthest = header.seq + u32::from(u16::MAX);
        header.urgent = match u16::try_from(distance) {
            Ok(exact) => exact,
            // SND.NXT is beyond this segment, if that is new.
            Err(_) if farthest > self.snd.nxt => u16::MAX,
            Err(_) => return,
        };
        header.flags = header.flags | Flags::URG;
    }

    /// A segment acknowledges everything up to RCV.NXT.
    #[inline]
    fn acknowledged_by_this(&mut self) {
        self.last_ack_sent = self.rcv.nxt;
        if self.ecn.accurate.has_marks() {
            self.ecn.accurate.acknowledged();
        }
        self.timers.delayed_ack = Instant::FAR;
        self.pending.clear(Pending::ACK);
    }

    /// SEG.SEQ of what carries neither text nor SYN nor FIN: SND.NXT (RFC 9293 §3.10.7.4), unless that lies beyond the peer's window.
    #[inline]
    pub(in crate::tcp) fn acceptable_seq(&self) -> SeqNum {
        let beyond = self.snd.nxt - (self.snd.una + self.snd.wnd);
        if beyond <= 0 {
            return self.snd.nxt;
        }
        self.seq_within_window(beyond)
    }

    /// Beyond the window lie a probe of it (RFC 9293 §3.8.6.1) and, once it has shrunk, text in flight. A peer that drops what begins there whole
    /// would not hear that our own window has opened, and for ever if its application waits for that before it reads: the window's end it
    /// takes, as in Linux and FreeBSD. But where the window moved back by less than its scale can express, that is rounding: the text is
    /// accepted, and the end may be old. And no window holds a SYN back.
    #[cold]
    fn seq_within_window(&self, beyond: i32) -> SeqNum {
        let is_rounding = !self.probing && beyond < 1 << self.snd.scale;
        if is_rounding || self.snd.una == self.iss {
            return self.snd.nxt;
        }
        self.snd.una + self.snd.wnd
    }

    /// An acknowledgment, and nothing else.
    pub(super) fn bare(&mut self, seq: SeqNum, now: Instant) -> Transmit {
        let mut header = self.header::<false>(seq, Flags::ACK, now);
        if self.ecn.feedback == Feedback::Accurate {
            self.add_accurate(&mut header);
        }
        self.add_user_timeout(&mut header.options);
        self.without_text(header)
    }

    const fn without_text(&self, header: Header) -> Transmit {
        Transmit {
            header,
            offset: 0,
            len: 0,
            segment: self.snd.mss,
            ecn: Ecn::NotEct,
        }
    }
}
