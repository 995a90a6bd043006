//! From a shard's packet to a frame that the link took: *check*, the hop cache, the queue of a link that is full.

use std::{collections::VecDeque, net::IpAddr};

use proto::{
    time::Instant,
    wire::ethernet::{self, EtherType, MacAddr},
};

use super::{Interface, ends_of, hops};
use crate::{
    counters::Counter,
    driver::module::{Place, Side, registry::Answer},
    emit::frame::take_label,
    limits,
    link::{LinkError, LinkTx},
    packet::Packet,
    tap::{Begins, Point, Reason},
};

impl Interface {
    /// Sends a shard's packet: *check*, the next hop's link address, the frame header; all three by the hop cache where it knows. What comes behind
    /// a packet for the link's first queue goes there, too: a flow stays in order.
    #[inline]
    pub fn send(&mut self, mut packet: Packet, now: Instant) {
        if self.frames.len() < limits::LINK_QUEUE
            && self.for_first.is_empty()
            && self.hops.stamp(&mut packet, now)
        {
            return self.frames.push_back(packet);
        }
        self.send_slowly(packet, now);
    }

    /// Shows the modules a packet that is to leave by this link; false: it does not.
    #[inline(always)]
    pub fn screen(&mut self, packet: &mut Packet, now: Instant) -> bool {
        !self.modules.has_hooks() || self.ask_modules(packet, now)
    }

    #[cold]
    fn ask_modules(&mut self, packet: &mut Packet, now: Instant) -> bool {
        let net = &self.host.net;
        let is_ours = ends_of(packet.bytes()).is_some_and(|ends| net.is_local(ends.1));
        let place = Place {
            net,
            from: Side::Unknown,
            to: if is_ours {
                Side::Host
            } else {
                Side::Link(self.number)
            },
        };
        // The sender of what is rejected is one of our own sockets: it hears nothing.
        match self.modules.pass(packet, place, now) {
            Answer::Pass { .. } => true,
            Answer::Drop(id) | Answer::Reject(id, _) => {
                self.show_lost(Reason::module(id), packet, Begins::Own);
                false
            }
        }
    }

    /// Has the half of the link's first queue send what this one could not, and learns the next hops.
    pub fn send_by(&mut self, first: &mut Self, now: Instant) {
        while let Some(packet) = self.for_first.pop_front() {
            let ends = hops::ends_of(packet.bytes());
            first.send(packet, now);
            if let Some(ends) = ends
                && let Some(known) = first.hops.known(&ends)
            {
                self.hops.learn(&ends, known);
            }
        }
    }

    /// Sends packets of a shard. Where nothing waits for the link and the hop cache knows them all, the link takes them right
    /// from where they are.
    ///
    /// # Errors
    /// The link's.
    pub fn send_all(
        &mut self,
        packets: &mut VecDeque<Packet>,
        now: Instant,
    ) -> Result<(), LinkError> {
        if !self.frames.is_empty() {
            return self.send_one_by_one(packets, 0, now);
        }
        let mut stamped = 0;
        while let Some(packet) = packets.get_mut(stamped)
            && self.hops.stamp(packet, now)
        {
            stamped += 1;
        }
        if stamped < packets.len() {
            return self.send_one_by_one(packets, stamped, now);
        }
        let sent = give(&mut *self.link, &mut self.taps, packets, now);
        if !packets.is_empty() {
            self.queue(packets, stamped);
        }
        let sent = sent? as u64;
        self.counters.add(self.writer, Counter::FramesOut, sent);
        Ok(())
    }

    /// [`Self::send_all`], the first `stamped` having their frame header already.
    #[inline(never)]
    fn send_one_by_one(
        &mut self,
        packets: &mut VecDeque<Packet>,
        stamped: usize,
        now: Instant,
    ) -> Result<(), LinkError> {
        self.queue(packets, stamped);
        while let Some(packet) = packets.pop_front() {
            self.send(packet, now);
        }
        self.flush(now).map(|_| ())
    }

    /// Queues up to `most` frames for the link.
    #[cold]
    fn queue(&mut self, frames: &mut VecDeque<Packet>, most: usize) {
        let most = most.min(frames.len());
        for frame in frames.drain(..most) {
            if self.frames.len() < limits::LINK_QUEUE {
                self.frames.push_back(frame);
            } else {
                self.count_lost(Counter::DropLinkQueue, &frame, Begins::Frame);
            }
        }
    }

    #[inline(never)]
    fn send_slowly(&mut self, packet: Packet, now: Instant) {
        if self.is_further {
            self.for_first.push_back(packet);
            return;
        }
        match self.check(&packet) {
            Some(destination) => self.stamp(destination, packet, now),
            None => self.send_frame(packet),
        }
    }

    /// Sends a packet channel's frame, from this link's address whatever it is; any other packet has not passed *check*.
    #[cold]
    fn send_frame(&mut self, mut packet: Packet) {
        match take_label(&mut packet) {
            Some((destination, kind)) => self.frame_of(kind, destination, packet),
            None => self.count_lost(Counter::DropCheck, &packet, Begins::Own),
        }
    }

    /// *check*: whether the sender may send this; then its destination.
    fn check(&self, packet: &Packet) -> Option<IpAddr> {
        let (source, destination) = ends_of(packet.bytes())?;
        let net = &self.host.net;
        let may = packet.meta.translated.get()
            || net.is_local(source) && net.may_send(self.number, source, destination);
        may.then_some(destination)
    }

    /// Sends what the host itself has to say, past the modules.
    pub(super) fn say(&mut self, destination: IpAddr, mut packet: Packet, now: Instant) {
        let link = self.link_to(destination);
        if link != self.number {
            return self.say_elsewhere(link, packet);
        }
        if self.screen(&mut packet, now) {
            self.stamp(destination, packet, now);
        }
    }

    /// Puts the frame header in front and queues the frame for the link.
    pub(super) fn frame(&mut self, destination: MacAddr, packet: Packet) {
        let ethertype = match packet.bytes().first().map(|b| b >> 4) {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            _ => EtherType::ARP,
        };
        self.frame_of(ethertype, destination, packet);
    }

    /// The same of this EtherType.
    #[inline]
    pub(super) fn frame_of(&mut self, kind: EtherType, destination: MacAddr, packet: Packet) {
        let header = ethernet::Header::new(destination, self.facts().mac, kind);
        self.enqueue(packet, |room| {
            header.emit(room);
        });
    }

    /// Queues a packet for the link, with the frame header that `write` puts in front.
    #[inline]
    pub(super) fn enqueue(&mut self, mut packet: Packet, write: impl FnOnce(&mut [u8])) {
        if self.frames.len() >= limits::LINK_QUEUE {
            return self.count_lost(Counter::DropLinkQueue, &packet, Begins::Own);
        }
        match packet.push(ethernet::HEADER_LEN) {
            Some(room) => {
                write(room);
                self.frames.push_back(packet);
            }
            None => self.count_lost(Counter::DropCheck, &packet, Begins::Own),
        }
    }

    /// Queues a frame for the link that was written from outside: as it is, past modules and *check*.
    pub(super) fn send_written(&mut self, frame: Packet) {
        if self.frames.len() < limits::LINK_QUEUE {
            self.frames.push_back(frame);
        } else {
            self.count_lost(Counter::DropLinkQueue, &frame, Begins::Frame);
        }
    }

    /// Gives waiting frames to the link.
    ///
    /// # Errors
    /// The link's.
    #[inline]
    pub fn flush(&mut self, now: Instant) -> Result<usize, LinkError> {
        if self.frames.is_empty() {
            return Ok(0);
        }
        let sent = give(&mut *self.link, &mut self.taps, &mut self.frames, now)?;
        self.counters
            .add(self.writer, Counter::FramesOut, sent as u64);
        Ok(sent)
    }
}

/// tap ──► link: gives frames to the link, the only way out.
///
/// # Errors
/// The link's.
#[inline(always)]
fn give(
    link: &mut dyn LinkTx,
    taps: &mut Point,
    frames: &mut VecDeque<Packet>,
    now: Instant,
) -> Result<usize, LinkError> {
    if taps.is_watched() {
        return give_watched(link, taps, frames, now);
    }
    link.transmit(now, frames)
}

/// The same while taps look: they see what the link has taken, and a full link costs them a few copies, not one of each waiting frame.
#[cold]
#[inline(never)]
fn give_watched(
    link: &mut dyn LinkTx,
    taps: &mut Point,
    frames: &mut VecDeque<Packet>,
    now: Instant,
) -> Result<usize, LinkError> {
    let mut all = 0;
    while !frames.is_empty() {
        let rest = frames.split_off(frames.len().min(limits::TAP_BURST));
        taps.offer(frames.iter(), now);
        let before = frames.len();
        let sent = link.transmit(now, frames);
        taps.sent(before - frames.len());
        let is_full = !frames.is_empty();
        frames.extend(rest);
        all += sent?;
        if is_full {
            break;
        }
    }
    Ok(all)
}
