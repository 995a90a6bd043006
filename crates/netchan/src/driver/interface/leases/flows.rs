//! The TCP connections of a lease, as far as its packets tell of them: their peers are to hear of its end, as they hear from a kernel whose process ends.

use std::collections::HashMap;

use proto::wire::{
    ipv4::Protocol,
    tcp::{Flags, Header, Options, SeqNum},
};

use crate::{flow::FlowKey, limits, packet::Packet};

/// Connections, and what a reset for each has to say.
#[derive(Debug, Default)]
pub struct Flows(HashMap<FlowKey, Sent>);

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Behind the last octet that was sent.
    next: SeqNum,
    /// What was acknowledged last; nothing before the peer was heard.
    acknowledged: Option<SeqNum>,
    /// The application has ended its direction.
    is_ended: bool,
}

impl Flows {
    /// A packet that has passed *check*.
    pub fn note(&mut self, packet: &Packet) {
        if packet.meta.protocol != Protocol::TCP {
            return;
        }
        let upper = packet.bytes().get(usize::from(packet.meta.upper)..);
        let (Some(key), Some(segment)) = (FlowKey::of_sent(packet.bytes()), upper) else {
            return; // a fragment of IPv6
        };
        let Some(
            &[
                _,
                _,
                _,
                _,
                s0,
                s1,
                s2,
                s3,
                a0,
                a1,
                a2,
                a3,
                offset,
                flags,
                ..,
            ],
        ) = segment.first_chunk::<20>()
        else {
            return;
        };
        let flags = Flags(flags.into());
        if flags.contains(Flags::RST) {
            self.0.remove(&key);
            return;
        }
        let text = segment.len().saturating_sub(4 * usize::from(offset >> 4));
        let controls = [Flags::SYN, Flags::FIN].map(|flag| u32::from(flags.contains(flag)));
        let length = u32::try_from(text).unwrap_or(0) + controls[0] + controls[1];
        let next = SeqNum(u32::from_be_bytes([s0, s1, s2, s3])) + length;
        let acknowledged = SeqNum(u32::from_be_bytes([a0, a1, a2, a3]));
        let acknowledged = flags.contains(Flags::ACK).then_some(acknowledged);
        let is_ended = flags.contains(Flags::FIN);
        let sent = Sent {
            next,
            acknowledged,
            is_ended,
        };
        if let Some(known) = self.0.get_mut(&key) {
            if next > known.next || flags.contains(Flags::SYN) {
                known.next = next;
            }
            known.acknowledged = acknowledged.or(known.acknowledged);
            known.is_ended |= is_ended;
            return;
        }
        if self.0.len() >= limits::LEASE_FLOWS {
            self.0.retain(|_, sent| !sent.is_ended);
        }
        if self.0.len() < limits::LEASE_FLOWS {
            self.0.insert(key, sent);
        }
    }

    /// A reset for each, as its peer takes it (RFC 9293 §3.5.2): with the sequence number that it expects, unless something was lost; then it asks, and
    /// is answered by the host's own TCP.
    pub fn resets(self) -> impl Iterator<Item = (FlowKey, Header)> {
        self.0.into_iter().map(|(key, sent)| {
            let flags = match sent.acknowledged {
                Some(_) => Flags::RST | Flags::ACK,
                None => Flags::RST,
            };
            let reset = Header {
                source_port: key.local_port,
                destination_port: key.remote_port,
                seq: sent.next,
                ack: sent.acknowledged.unwrap_or(SeqNum(0)),
                flags,
                window: 0,
                urgent: 0,
                options: Options::default(),
            };
            (key, reset)
        })
    }
}
