//! Opens, active, passive and simultaneous (RFC 9293 §3.10.1, §3.10.7.2, §3.10.7.3).

use super::Connection;
use super::input::{Receiver, Segment};
use crate::tcp::busy::ticks;
use crate::tcp::config::Config;
use crate::tcp::payload::Payload;
use crate::tcp::template::{Start, Template};
use crate::tcp::types::{Drop, Error, Events, Input, State};
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNum};

impl Connection {
    /// Begins an active open: SYN-SENT; `output` emits the SYN.
    ///
    /// `iss` comes from [`crate::tcp::initial_sequence`], `ts_offset` from
    /// [`crate::tcp::timestamp_offset`].
    pub fn open_active(
        config: &Config,
        local_port: u16,
        remote_port: u16,
        iss: SeqNum,
        ts_offset: u32,
        now: Instant,
    ) -> Self {
        let start = Start::new(config, (local_port, remote_port), iss, ts_offset);
        Template::new(config).active(&start, now)
    }

    /// Answers a SYN for which [`crate::tcp::listen`] said `Open`: SYN-RECEIVED; `output` emits the
    /// SYN-ACK. Text in the SYN is left to be sent again.
    pub fn open_passive(
        config: &Config,
        syn: &Header,
        iss: SeqNum,
        ts_offset: u32,
        now: Instant,
    ) -> Self {
        let ports = (syn.destination_port, syn.source_port);
        let start = Start::new(config, ports, iss, ts_offset);
        Template::new(config).passive(&start, syn, now)
    }

    /// The peer's initial sequence number and options.
    pub(in crate::tcp) fn take_syn(&mut self, syn: &Header, now: Instant) {
        // As far as a SYN of ours said, which was before its answer said where counting begins.
        let offered = (self.rcv.edge - self.rcv.nxt).max(0).unsigned_abs();
        self.irs = syn.seq;
        self.rcv.nxt = syn.seq + 1;
        self.last_ack_sent = self.rcv.nxt;
        self.rcv.edge = self.rcv.nxt + offered;
        self.negotiate(syn, now);
        if syn.flags.contains(Flags::ACK) {
            self.ecn.take_syn_ack(syn.flags);
        } else {
            self.ecn.take_syn(syn.flags);
        }
        self.take_window(syn, u32::from(syn.window));
    }

    /// SYN-SENT (RFC 9293 §3.10.7.3), in the RFC's own order.
    pub(super) fn syn_sent<P: Payload>(
        &mut self,
        mut segment: Segment<'_>,
        payload: P,
        receiver: &mut Receiver<'_, P>,
        out: &mut Input,
    ) -> Result<(), Drop> {
        let header = segment.header;
        let ack = header.flags.contains(Flags::ACK);
        // First, the ACK bit.
        if ack && (header.ack <= self.iss || header.ack > self.snd.nxt) {
            if !header.flags.contains(Flags::RST) {
                self.refuse(header.ack);
            }
            return Err(Drop::Ack);
        }
        if ack && !header.flags.contains(Flags::RST) && !self.echoes_syn(header, segment.now) {
            self.refuse(header.ack);
            return Err(Drop::Paws);
        }
        // Second, the RST bit. Without an acceptable ACK it could be forged.
        if header.flags.contains(Flags::RST) {
            if ack {
                out.events |= self.finish(Some(Error::Refused));
            }
            return Err(Drop::Reset);
        }
        // Third, security: none. Fourth, the SYN bit.
        if !header.flags.contains(Flags::SYN) || header.flags.contains(Flags::FIN) && !ack {
            return Err(Drop::Flags);
        }
        self.ecn.syn_ecn = segment.ecn;
        self.take_syn(header, segment.now);
        if !ack {
            // Simultaneous open (RFC 9293 MUST-10): our SYN goes out again, with the ACK.
            self.state = State::SynReceived;
            self.pending.set(Pending::SYN);
            self.attempts = 0;
            if self.no_writer {
                self.shutdown();
            }
            return Ok(());
        }
        self.establish(header, segment.now, out);
        self.acknowledge_syn_ack(segment.now);
        if self.ecn.accurate.answers_syn_ack {
            self.pending.set(Pending::SYN); // a segment of its own
        }
        // Text and FIN in a SYN-ACK are processed as in ESTABLISHED (steps sixth to eighth).
        segment.begin_after_syn();
        self.process_urgent(&segment, out);
        self.process_text(&mut segment, payload, receiver, out)?;
        self.process_fin(&segment, receiver, out)
    }

    /// Our SYN is acknowledged and the peer's is known.
    pub(super) fn establish(&mut self, header: &Header, now: Instant, out: &mut Input) {
        let (was_retransmitted, more_than_once) = (self.attempts > 0, self.attempts > 1);
        self.note_mended(now);
        self.syn_acknowledged(header, out);
        // Behind a cookie it is not known when the SYN-ACK left.
        let sent_at = match &self.fast_open {
            Some(fast) => fast.at,
            None => self.last_sent,
        };
        let is_timed = !was_retransmitted && sent_at <= now;
        let rtt = match is_timed {
            true => Some(now.micros_since(sent_at)),
            false => self.echoed_rtt_us(header.options.timestamps, now),
        };
        self.last_sent = self.last_sent.min(now);
        match rtt {
            Some(rtt) => self.rtt.sample(rtt, self.snd.una, self.snd.nxt, now),
            None if was_retransmitted => self.rtt.syn_was_retransmitted(),
            None => {}
        }
        if more_than_once {
            // RFC 5681 §3.1: one segment to begin with. RFC 6928 §2: not yet for a single loss.
            self.congestion.window.cwnd = u32::from(self.snd.mss);
        }
        self.congestion.opened(self.rtt.srtt_us, now);
        self.attempts = 0;
        self.last_received = now;
        self.busy.last_text = ticks(now);
        self.stalled_since = now;
        self.timers.retransmit = Instant::FAR;
        self.state = if self.fin_queued {
            State::FinWait1
        } else {
            State::Established
        };
        let shift = if header.flags.contains(Flags::SYN) {
            0
        } else {
            self.snd.scale
        };
        self.take_window(header, u32::from(header.window) << shift);
        self.arm_keepalive(now);
        self.pending.clear(Pending::SYN);
        if self.fast_open.is_some() {
            self.watch_early_text(now);
        }
        self.note_more_to_send();
        out.events |= Events::ESTABLISHED | Events::WRITABLE;
    }

    /// RFC 9293 §3.10.7.3 and .4: a segment that acknowledges what we never sent.
    pub(super) fn refuse(&mut self, seq: SeqNum) {
        self.cold.refuse_seq = seq;
        self.pending.set(Pending::REFUSE);
    }
}
