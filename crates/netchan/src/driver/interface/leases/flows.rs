//! The TCP connections of a lease, as far as its packets tell of them: their peers are to hear of its end, as they hear from a kernel whose process ends.

use indexmap::IndexMap;
use proto::{
    time::{Duration, Instant},
    wire::{
        ipv4::Protocol,
        tcp::{Flags, Header, Options, SeqNum, Timestamps},
    },
};

use crate::{
    flow::{Closed, FlowKey},
    limits,
    packet::Packet,
};

/// Connections, and what a reset for each has to say.
#[derive(Debug, Default)]
pub struct Flows {
    all: IndexMap<FlowKey, Sent>,
    /// Connections that find no place before those that have ended are looked for again: so a packet's work is bounded.
    refused_until_sweep: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Behind the last octet that was sent.
    next: SeqNum,
    /// What was acknowledged last; nothing before the peer was heard.
    acknowledged: Option<SeqNum>,
    /// The application has ended its direction.
    is_ended: bool,
    /// It has closed the connection, and its peer knows.
    is_over: bool,
    /// Of the last segment.
    window: u16,
    timestamps: Option<Timestamps>,
    at: Instant,
}

impl Sent {
    /// A segment that continues what was sent, without options.
    fn next(&self, key: &FlowKey, flags: Flags) -> Header {
        Header {
            source_port: key.local_port,
            destination_port: key.remote_port,
            seq: self.next,
            ack: self.acknowledged.unwrap_or(SeqNum(0)),
            flags,
            window: 0,
            urgent: 0,
            options: Options::default(),
        }
    }
}

impl Flows {
    /// A packet that has passed *check*.
    pub fn note(&mut self, packet: &Packet, now: Instant) {
        if packet.meta.protocol != Protocol::TCP {
            return;
        }
        let upper = packet.bytes().get(usize::from(packet.meta.upper)..);
        let (Some(key), Some(segment)) = (FlowKey::of_sent(packet.bytes()), upper) else {
            return; // a fragment of IPv6
        };
        let Ok((header, text_at)) = Header::parse(segment) else {
            return;
        };
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            self.all.swap_remove(&key);
            return;
        }
        let text = segment.len().saturating_sub(text_at);
        let controls = [Flags::SYN, Flags::FIN].map(|flag| u32::from(flags.contains(flag)));
        let length = u32::try_from(text).unwrap_or(0) + controls[0] + controls[1];
        let next = header.seq + length;
        let acknowledged = flags.contains(Flags::ACK).then_some(header.ack);
        let is_ended = flags.contains(Flags::FIN);
        let sent = Sent {
            next,
            acknowledged,
            is_ended,
            is_over: false,
            window: header.window,
            timestamps: header.options.timestamps,
            at: now,
        };
        if let Some(known) = self.all.get_mut(&key) {
            let begins = flags.contains(Flags::SYN);
            if next > known.next || begins {
                known.next = next;
            }
            known.is_over &= !begins;
            known.acknowledged = acknowledged.or(known.acknowledged);
            known.is_ended |= is_ended;
            (known.window, known.timestamps) = (sent.window, sent.timestamps);
            known.at = now;
            return;
        }
        if self.all.len() >= limits::LEASE_FLOWS {
            self.sweep();
        }
        if self.all.len() < limits::LEASE_FLOWS {
            self.all.insert(key, sent);
        }
    }

    /// Shows the connections below the place `below`, as many as one look goes through; below which place the next one goes on.
    /// From the last to the first: the place of one that goes meanwhile is taken by one that was shown, so that none is passed over.
    pub fn look(&self, below: usize, mut shown: impl FnMut(&FlowKey)) -> usize {
        let end = below.min(self.all.len());
        let begin = end.saturating_sub(limits::LEASE_LOOK);
        for (key, _) in self.all.get_range(begin..end).into_iter().flatten().rev() {
            shown(key);
        }
        begin
    }

    /// All that there are were closed in order.
    pub fn over(&mut self) {
        self.all.values_mut().for_each(|sent| sent.is_over = true);
    }

    /// Forgets those that have ended, at most once for so many that found no place.
    #[cold]
    fn sweep(&mut self) {
        match self.refused_until_sweep.checked_sub(1) {
            Some(left) => self.refused_until_sweep = left,
            None => {
                self.all.retain(|_, sent| !sent.is_ended);
                self.refused_until_sweep = limits::LEASE_FLOWS / 8;
            }
        }
    }

    /// A reset for each that was not closed in order, as its peer takes it (RFC 9293 §3.5.2): with the sequence number that it expects, unless something was lost; then it asks, and
    /// is answered by the host's own TCP.
    pub fn resets(self) -> impl Iterator<Item = (FlowKey, Header)> {
        let open = self.all.into_iter().filter(|(_, sent)| !sent.is_over);
        open.map(|(key, sent)| {
            let flags = match sent.acknowledged {
                Some(_) => Flags::RST | Flags::ACK,
                None => Flags::RST,
            };
            (key, sent.next(&key, flags))
        })
    }

    /// Those that were closed in order, as far as their packets tell.
    pub fn closed(&self, now: Instant) -> impl Iterator<Item = Closed> {
        let is_closed = |(_, sent): &(&FlowKey, &Sent)| {
            sent.is_over && sent.is_ended && sent.acknowledged.is_some()
        };
        self.all.iter().filter(is_closed).map(move |(key, sent)| {
            let mut last = sent.next(key, Flags::ACK);
            last.window = sent.window;
            last.options.timestamps = sent.timestamps.map(|ts| Timestamps {
                value: ts.value.wrapping_add(millis(now.since(sent.at))),
                ..ts
            });
            Closed {
                key: *key,
                last,
                at: sent.at,
            }
        })
    }
}

/// The clock of timestamps counts them; it wraps.
fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis() & u128::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use percore::slab::Slab;

    use super::*;
    use crate::{
        emit::{IpFields, emit_ip},
        packet::HEADROOM,
    };

    /// Sends a segment from 10.0.0.2:1 to 10.0.0.9:`to`.
    fn send(flows: &mut Flows, to: u16, (seq, ack): (u32, u32), flags: Flags, text: usize) {
        let mut slab = Slab::new(1, 2048).unwrap();
        let mut packet = Packet::new(slab.alloc().unwrap(), HEADROOM);
        let length = 20 + text;
        packet.set_len(20 + length);
        let (ip, segment) = packet.bytes_mut().split_at_mut(20);
        let [ours, theirs] = ["10.0.0.2", "10.0.0.9"].map(|ip| ip.parse().unwrap());
        assert!(emit_ip(
            ip,
            ours,
            theirs,
            Protocol::TCP,
            IpFields::default(),
            length
        ));
        segment.fill(0);
        segment[..2].copy_from_slice(&[0, 1]);
        segment[2..4].copy_from_slice(&to.to_be_bytes());
        segment[4..8].copy_from_slice(&seq.to_be_bytes());
        segment[8..12].copy_from_slice(&ack.to_be_bytes());
        segment[12] = 5 << 4;
        segment[13] = flags.0.to_be_bytes()[1];
        (packet.meta.protocol, packet.meta.upper) = (Protocol::TCP, 20);
        flows.note(&packet, Instant::ZERO);
    }

    /// To which port, and the reset's sequence number, acknowledgment and flags.
    fn resets(flows: Flows) -> Vec<(u16, u32, u32, Flags)> {
        let told = |(key, reset): (FlowKey, Header)| {
            assert_eq!((key.local_port, reset.source_port), (1, 1));
            (key.remote_port, reset.seq.0, reset.ack.0, reset.flags)
        };
        let mut all: Vec<_> = flows.resets().map(told).collect();
        all.sort_by_key(|reset| reset.0);
        all
    }

    #[test]
    fn a_reset_continues_what_was_sent() {
        let mut flows = Flows::default();
        let rst = Flags::RST | Flags::ACK;
        send(&mut flows, 7, (100, 0), Flags::SYN, 0);
        send(&mut flows, 8, (u32::MAX, 0), Flags::SYN, 0);
        send(&mut flows, 8, (0, 50), Flags::ACK, 10);
        // What is sent again moves nothing back; an acknowledgment moves on.
        send(&mut flows, 8, (0, 60), Flags::ACK, 4);
        send(&mut flows, 9, (5, 6), Flags::ACK | Flags::FIN, 3);
        // Its peer has heard already.
        send(&mut flows, 10, (5, 6), Flags::ACK, 3);
        send(&mut flows, 10, (8, 6), Flags::RST, 0);
        let expected = [(7, 101, 0, Flags::RST), (8, 10, 60, rst), (9, 9, 6, rst)];
        assert_eq!(resets(flows), expected);
    }

    #[test]
    fn what_was_closed_in_order_is_let_be() {
        let mut flows = Flows::default();
        for to in [7, 8, 9] {
            send(&mut flows, to, (5, 6), Flags::ACK | Flags::FIN, 3);
        }
        flows.over();
        // Its peer's end is acknowledged.
        send(&mut flows, 7, (9, 7), Flags::ACK, 0);
        // One that comes after it; and one between the same ports.
        send(&mut flows, 10, (5, 6), Flags::ACK, 3);
        send(&mut flows, 9, (100, 0), Flags::SYN, 0);
        let ports: Vec<_> = resets(flows).into_iter().map(|reset| reset.0).collect();
        assert_eq!(ports, [9, 10]);
    }

    #[test]
    fn what_was_closed_in_order_goes_on_where_it_was() {
        let mut flows = Flows::default();
        send(&mut flows, 7, (5, 6), Flags::ACK | Flags::FIN, 3);
        send(&mut flows, 7, (9, 8), Flags::ACK, 0);
        send(&mut flows, 8, (5, 6), Flags::ACK, 3);
        let closed = |flows: &Flows| -> Vec<Closed> { flows.closed(Instant::ZERO).collect() };
        assert!(closed(&flows).is_empty(), "not yet");
        flows.over();
        let closed = closed(&flows);
        assert_eq!(closed.len(), 1, "the other one was not closed");
        let Closed { key, last, .. } = closed[0];
        assert_eq!((key.remote_port, last.destination_port), (7, 7));
        assert_eq!((last.seq.0, last.ack.0, last.flags), (9, 8, Flags::ACK));
    }

    #[test]
    fn so_many_are_known_and_those_that_have_ended_go_first() {
        let mut flows = Flows::default();
        let most = u16::try_from(limits::LEASE_FLOWS).unwrap();
        for to in 0..most {
            let end = if to % 2 == 0 { Flags::FIN } else { Flags(0) };
            send(&mut flows, to, (1, 1), Flags::ACK | end, 0);
        }
        assert_eq!(flows.all.len(), usize::from(most));
        send(&mut flows, most, (1, 1), Flags::ACK, 0);
        assert_eq!(flows.all.len(), usize::from(most) / 2 + 1);
        for to in most + 1..2 * most {
            send(&mut flows, to, (1, 1), Flags::ACK, 0);
        }
        assert_eq!(flows.all.len(), usize::from(most));
    }
}
