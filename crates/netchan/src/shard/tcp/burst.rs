//! Text that a link takes uncut, and cutting it where the link does not, or no large buffer is free.

use std::collections::VecDeque;

use percore::slab::{Buffer, Slab};
use proto::{
    tcp::Transmit,
    wire::tcp::{Flags, Header},
};

use super::TcpSocket;
use crate::{
    counters::{Counter, Counters},
    limits,
    link::Segmentation,
    packet::Packet,
};

/// How much text a link, or the short cut to ourselves, takes in one packet, bytes. 0: a segment.
pub(in crate::shard) const fn text_of(segmentation: Segmentation) -> u32 {
    match segmentation {
        Segmentation::None => 0,
        Segmentation::Carried | Segmentation::Offloaded { .. } => limits::BURST_TEXT,
    }
}

impl TcpSocket {
    /// Whether a segment, or several in one, wants more than [`Self::packet`].
    #[inline(always)]
    pub(super) fn is_for_link(&self, transmit: &Transmit) -> bool {
        transmit.len > u32::from(transmit.segment)
            || (self.segmentation.is_offloaded() && transmit.len >= limits::UNSUMMED_MIN)
    }

    /// Puts the packets of `transmit` into `outbox`: one if its link takes it uncut, else one for each segment. `buffer` is for the first
    /// of these. How many segments they are.
    #[inline(never)]
    pub(super) fn burst(
        &mut self,
        buffer: Buffer,
        transmit: Transmit,
        (slab, bursts): (&mut Slab, Option<&mut Slab>),
        outbox: &mut VecDeque<Packet>,
        (counters, writer): (&Counters, usize),
    ) -> u64 {
        let segment = u32::from(transmit.segment).max(1);
        // CWR as part of a number (RFC 9768 §3.3.4): a device that cuts for us would leave it in the first segment only.
        let is_number =
            transmit.header.flags.contains(Flags::CWR) && self.connection.has_accurate_ecn();
        // The urgent pointer: it would repeat the first segment's in all, where it names another octet. Linux leaves nothing urgent to devices, either.
        let is_cut_here = is_number || transmit.header.flags.contains(Flags::URG);
        let wants = transmit.len > segment && !is_cut_here && self.may_be_large(transmit.len);
        let large = wants.then(|| bursts.and_then(Slab::alloc)).flatten();
        match large {
            Some(large) => {
                slab.free(buffer);
                let packet = self.whole(large, &transmit);
                let segments = transmit.len.div_ceil(segment);
                if self.template.may_be_cut() {
                    // Its link numbers what it cuts from the first on.
                    self.template.advance(segments);
                }
                self.put(packet, outbox) * u64::from(segments)
            }
            None if transmit.len <= segment => {
                let packet = self.whole(buffer, &transmit);
                self.put(packet, outbox)
            }
            None => {
                counters.add(writer, Counter::NoLargeBuffer, u64::from(wants));
                self.cut(buffer, &transmit, is_number, (slab, outbox))
            }
        }
    }

    /// What the connection sends next is no more than there are buffers for, beside the first, if it has to be cut.
    #[cold]
    pub(super) fn fit_burst(&mut self, slab: &mut Slab) {
        let buffers = 1 + slab.available();
        let segments = u32::try_from(buffers).unwrap_or(u32::MAX);
        self.connection.shorten_burst(segments);
    }

    /// A peer in memory keeps the buffer it is sent until the text is read: no large one for little text.
    fn may_be_large(&self, len: u32) -> bool {
        match self.segmentation {
            Segmentation::None => false,
            Segmentation::Carried => len >= limits::BURST_TEXT / 4,
            Segmentation::Offloaded { .. } => true,
        }
    }

    /// Puts a packet, if it could be made, into `outbox`, with what its link is to know of it. How many that are.
    #[inline(always)]
    pub(super) fn put(&mut self, packet: Option<Packet>, outbox: &mut VecDeque<Packet>) -> u64 {
        let Some(mut packet) = packet else { return 0 };
        packet.meta.interface = self.interface;
        packet.meta.hint = std::mem::take(&mut self.hint);
        if self.watermarks.is_made() {
            packet.meta.flow = self.watermarks.mark;
        }
        if self.template.may_be_cut() {
            self.template.advance(1);
        }
        outbox.push_back(packet);
        1
    }

    fn whole(&mut self, buffer: Buffer, transmit: &Transmit) -> Option<Packet> {
        if self.auth.is_some() {
            return self.signed(buffer, *transmit);
        }
        let (offset, len) = (transmit.offset as usize, transmit.len as usize);
        if self.segmentation.is_offloaded() {
            let copy = |text: &mut [u8]| self.send.copy_out_unsummed(offset, text);
            let lengths = (len, transmit.segment);
            return (self.template).unfinished(
                buffer,
                &transmit.header,
                lengths,
                transmit.ecn,
                copy,
            );
        }
        let fill = |text: &mut [u8]| self.send.copy_out(offset, text);
        self.template
            .packet(buffer, &transmit.header, len, transmit.ecn, fill)
    }

    /// One packet for each segment, each copied and summed in one pass.
    fn cut(
        &mut self,
        first: Buffer,
        transmit: &Transmit,
        is_number: bool,
        (slab, outbox): (&mut Slab, &mut VecDeque<Packet>),
    ) -> u64 {
        let (mut at, mut sent, mut buffer) = (0, 0, Some(first));
        while at < transmit.len {
            let Some(room) = buffer.take().or_else(|| slab.alloc()) else {
                break;
            };
            let piece = piece(transmit, at, is_number);
            let packet = self.whole(room, &piece);
            sent += self.put(packet, outbox);
            at += piece.len;
        }
        sent
    }
}

/// The segment of a burst that begins `at` bytes into it. PSH and FIN stand in the last one; CWR in the first (RFC 3168 §6.1.2), but in
/// all if the flags of ECN are a number (RFC 9768 §3.3.4); the urgent pointer names the same octet from wherever it is counted (RFC 9293 §3.8.5):
/// the right one, or one that lies behind the burst.
fn piece(burst: &Transmit, at: u32, is_number: bool) -> Transmit {
    let segment = u32::from(burst.segment).max(1);
    let len = segment.min(burst.len - at);
    let mut gone = 0;
    if at + len < burst.len {
        gone |= Flags::PSH.0 | Flags::FIN.0;
    }
    if at > 0 && !is_number {
        gone |= Flags::CWR.0;
    }
    let urgent = u32::from(burst.header.urgent).saturating_sub(at);
    if urgent == 0 {
        gone |= Flags::URG.0;
    }
    Transmit {
        header: Header {
            seq: burst.header.seq + at,
            flags: Flags(burst.header.flags.0 & !gone),
            urgent: u16::try_from(urgent).unwrap_or(u16::MAX),
            ..burst.header
        },
        offset: burst.offset + at,
        len,
        ..*burst
    }
}

#[cfg(test)]
mod tests;
