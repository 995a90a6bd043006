//! The receiving half of an interface: its link's, the slab, the classifier, and where packets are kept until a burst is through.

use std::{collections::VecDeque, io};

use percore::{ring::Producer, slab::Slab};
use proto::time::Instant;

use super::QueueId;
use crate::{
    channel::LinkEnd,
    driver::{
        host::HostView,
        module::{
            self, Place, Side,
            registry::{Answer, HookChain},
        },
        steer::{HostWork, Steer, Verdict},
    },
    limits,
    link::{BURST, LinkError, LinkRx, closed::Closed},
    packet::Packet,
    tap::{self, Begins, Point, Reason, Way},
    trace::{self, latency},
};

/// The receiving half of an interface.
pub struct Receive {
    /// What it knows of the stack.
    pub host: HostView,
    /// The link's receiving half.
    pub link: Box<dyn LinkRx>,
    /// Buffers for what comes in.
    pub slab: Slab,
    /// A burst on its way.
    pub burst: VecDeque<Packet>,
    /// The classifier.
    pub steer: Steer,
    /// Shards for which a packet without an owner was found (a bit each): the background poller is called, even where a shard's call is not armed.
    pub unowned: u64,
    /// Classified packets, for each shard.
    pub inboxes: Vec<VecDeque<Packet>>,
    /// Whether the inboxes or the host's work hold anything.
    pub has_sorted: bool,
    /// Packets whose shard the flow table names, until the burst is through.
    pub by_flow: VecDeque<(u64, Packet)>,
    /// Packets for the host's own work.
    pub host_work: VecDeque<(HostWork, Packet)>,
    /// Scratch: ends of leases that a datagram to many is for.
    pub hearers: Vec<usize>,
    /// Packets for other hosts, until the burst is through.
    pub onward: VecDeque<Packet>,
    /// The ends of the channels to the links, one for each, where packets are forwarded.
    pub forward_rings: Vec<Producer<Packet>>,
    /// Links into whose channel something was put and not published yet (a bit each).
    pub staged: u64,
    /// The ends of the shards' channels, in regimes that have them.
    pub channels: Vec<LinkEnd>,
    /// This link's parts of the shards' backlogs, where there are such.
    pub backlogs: Vec<Producer<Packet>>,
    /// Packets for which each shard's channel or backlog had no room.
    pub refused: Vec<u64>,
    /// Taps that look at what comes in, or is dropped here.
    pub taps: Point,
    /// Modules that look at what arrives, before it is found whose it is.
    pub arrival_modules: HookChain,
    /// Modules that look at what comes in.
    pub modules: HookChain,
    /// Modules that look at what came in and is passed on.
    pub forward_modules: HookChain,
    /// Its slot among the counters.
    pub writer: usize,
    /// Packets until the next one that is timed.
    until_timed: i32,
    /// Packets that are timed came, and were not handed over yet.
    pub has_timed: bool,
}

impl Receive {
    /// The receiving half for a link with frames of at most `frame_max` bytes for `shards` shards; with room for sockets of which each has a
    /// shard of its own, or not.
    ///
    /// # Errors
    /// When the machine has no memory for its slab.
    pub fn new(
        id: QueueId,
        host: HostView,
        (link, frame_max): (Box<dyn LinkRx>, usize),
        (shards, own_shards): (usize, bool),
        steer: Steer,
        channels: Vec<LinkEnd>,
        backlogs: Vec<Producer<Packet>>,
    ) -> io::Result<Self> {
        let (buffers, for_sockets) = if frame_max > 9200 {
            (
                limits::RECEIVE_SLAB_LARGE,
                limits::RECEIVE_SLAB_SOCKETS_LARGE,
            )
        } else {
            (limits::RECEIVE_SLAB, limits::RECEIVE_SLAB_SOCKETS)
        };
        let buffers = if own_shards { for_sockets } else { buffers };
        let size = frame_max.next_multiple_of(64);
        let ready = (limits::RECEIVE_READY_BYTES / size).min(buffers);
        Ok(Self {
            taps: (host.taps).point(tap::Place::Link(id.link, Way::In), id.writer),
            host,
            link,
            slab: Slab::with_ready(buffers, size, ready)?,
            burst: VecDeque::with_capacity(BURST),
            steer,
            unowned: 0,
            inboxes: (0..shards)
                .map(|_| VecDeque::with_capacity(BURST))
                .collect(),
            has_sorted: false,
            by_flow: VecDeque::with_capacity(BURST),
            host_work: VecDeque::with_capacity(BURST),
            hearers: Vec::new(),
            onward: VecDeque::with_capacity(BURST),
            forward_rings: Vec::new(),
            staged: 0,
            channels,
            backlogs,
            refused: vec![0; shards],
            arrival_modules: HookChain::empty(module::Point::Arrival),
            modules: HookChain::empty(module::Point::In),
            forward_modules: HookChain::empty(module::Point::Forward),
            writer: id.writer,
            until_timed: latency::STRIDE,
            has_timed: false,
        })
    }

    /// The stack ends: the device is closed now, whatever handles to the stack's memory are left.
    pub fn close(&mut self) {
        self.link = Box::new(Closed(self.link.statistics()));
    }

    /// link ──► tap: a burst, the only way in.
    ///
    /// # Errors
    /// The link's.
    #[inline(always)]
    pub fn take_burst(&mut self, now: Instant) -> Result<usize, LinkError> {
        let mut received = (self.link).receive(now, &mut self.slab, &mut self.burst, BURST);
        if self.taps.is_watched() {
            let written = self.take_written();
            received = received.map(|n| n + written);
            let were_sent = |packet: &&Packet| packet.meta.course.was_sent();
            self.taps.see(self.burst.iter().filter(were_sent), now);
        }
        if let Ok(n) = received {
            // Truncation: at most a burst.
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
            let left = self.until_timed - n as i32;
            if left < 0 || latency::times_all() {
                self.time_some(left);
            } else {
                self.until_timed = left;
            }
        }
        received
    }

    /// Takes what was written for the link: what is to come in, behind the burst, and what is to go out. How many frames came in.
    #[cold]
    #[inline(never)]
    fn take_written(&mut self) -> usize {
        let (burst, work) = (&mut self.burst, &mut self.host_work);
        let (before, room) = (burst.len(), BURST.saturating_sub(burst.len()));
        self.taps.take_written(room, |written| match written.way {
            Way::In => burst.push_back(written.packet),
            Way::Out => work.push_back((HostWork::Written, written.packet)),
        });
        burst.len() - before
    }

    /// Counts nothing, but shows the taps packets that are dropped here, if any looks.
    #[inline]
    pub fn show_lost<'a>(
        taps: &mut Point,
        reason: Reason,
        packets: impl IntoIterator<Item = &'a Packet>,
        now: Instant,
    ) {
        if taps.watches_drops() {
            for packet in packets {
                taps.lost(reason, packet, Begins::Network, now);
            }
        }
    }

    /// Writes the time into one packet of the burst, or into all; `left`: how many more than it are to pass until the next one.
    #[cold]
    #[inline(never)]
    fn time_some(&mut self, left: i32) {
        let seen = latency::ticks().max(1);
        let link = self.steer.interface().into();
        let mut time = |packet: &mut Packet| {
            (packet.meta.seen, packet.meta.handed) = (seen, 0);
            let (id, size) = (packet.timed_id(), packet.len() as u64);
            trace::detail(trace::PACKET_IN, [link, id, size]);
        };
        if latency::times_all() {
            self.burst.iter_mut().for_each(&mut time);
            self.until_timed = latency::STRIDE;
        } else {
            let nth = usize::try_from(self.until_timed).unwrap_or(0);
            self.burst.get_mut(nth).into_iter().for_each(&mut time);
            self.until_timed = left + latency::STRIDE;
        }
        self.has_timed = true;
    }

    /// The timed packets of the burst go to their shards now.
    #[cold]
    #[inline(never)]
    pub fn time_handed(&mut self) {
        self.has_timed = false;
        let link = self.steer.interface().into();
        for (shard, inbox) in self.inboxes.iter_mut().enumerate() {
            for packet in inbox.iter_mut().filter(|packet| packet.meta.seen != 0) {
                let took = latency::ticks().wrapping_sub(packet.meta.seen).max(1);
                packet.meta.handed = u16::try_from(took).unwrap_or(u16::MAX);
                let id = packet.timed_id();
                trace::detail(trace::PACKET_HANDED, [link, id, shard as u64]);
            }
        }
    }

    /// The number of its queue among those of all links.
    pub fn queue_number(&self) -> u64 {
        (self.writer - self.inboxes.len()) as u64 / 2
    }

    /// Goes by the networks and groups as they are now.
    #[inline]
    pub fn refresh(&mut self) {
        if self.host.refresh().is_some() {
            self.steer.forget();
        }
    }

    /// Whether a module looks at what is received, or a tap asks what becomes of it.
    #[inline(always)]
    pub fn goes_one_by_one(&self) -> bool {
        self.modules.has_hooks() || self.arrival_modules.has_hooks() || self.taps.asks()
    }

    /// steer ──► arrival ──► steer ──► in: shows the modules a packet that was steered to `verdict`. What becomes of it.
    ///
    /// `own`: it never was on a link, but sent by this host; what comes `from` where `arrives` is not set has been seen on arrival before.
    ///
    /// # Errors
    /// The module that dropped it.
    #[cold]
    pub fn admit(
        &mut self,
        mut verdict: Verdict,
        packet: &mut Packet,
        (from, arrives, own): (Side, bool, bool),
        now: Instant,
    ) -> Result<Verdict, Reason> {
        let place = Place {
            net: &self.host.net,
            from,
            to: Side::Unknown,
        };
        if arrives && self.arrival_modules.has_hooks() {
            if verdict == Verdict::Forward && self.is_wanted_whole(packet) {
                return Ok(Verdict::Host(HostWork::Fragment));
            }
            match self.arrival_modules.admit(verdict, packet, place, now) {
                Answer::Pass { changed: false } => {}
                Answer::Pass { changed: true } => {
                    let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
                    let again = self.steer.classify_ip(&self.host, packet, v6, own);
                    verdict = again.unwrap_or_else(Verdict::Drop);
                }
                Answer::Drop(id) => {
                    let reason = Reason::module(id);
                    Self::show_lost(&mut self.taps, reason, [&*packet], now);
                    return Err(reason);
                }
                Answer::Reject(id, what) => {
                    Self::show_lost(&mut self.taps, Reason::module(id), [&*packet], now);
                    return Ok(Verdict::Host(HostWork::Rejected(what)));
                }
            }
        }
        if !self.modules.has_hooks() {
            return Ok(verdict);
        }
        match self.modules.admit(verdict, packet, place, now) {
            Answer::Pass { .. } => Ok(verdict),
            Answer::Drop(id) => {
                let reason = Reason::module(id);
                Self::show_lost(&mut self.taps, reason, [&*packet], now);
                Err(reason)
            }
            Answer::Reject(id, what) => {
                Self::show_lost(&mut self.taps, Reason::module(id), [&*packet], now);
                Ok(Verdict::Host(HostWork::Rejected(what)))
            }
        }
    }

    /// Whether it is a fragment of IPv4 on its way through, and a module wants those whole.
    fn is_wanted_whole(&self, packet: &Packet) -> bool {
        let &[first, _, _, _, _, _, a, b, ..] = packet.bytes() else {
            return false;
        };
        let is_fragment = first >> 4 == 4 && u16::from_be_bytes([a, b]) & 0x3fff != 0;
        is_fragment && self.arrival_modules.wants_whole()
    }

    /// Whether a burst brought something that the transmitting half has to see.
    pub fn has_host_work(&self) -> bool {
        !self.host_work.is_empty() || !self.onward.is_empty()
    }
}
