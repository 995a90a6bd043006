//! An interface: a link with our addresses on it. Here packets get their next hop and their link header, and here lies the
//! host's own work (ARP, NDP, echo), which needs no application. Its receiving half (slab and classifier) stands apart, in `receive`,
//! so that sending does not wait for receiving.

mod groups;
mod hops;
pub mod host_work;
mod neighbors;
mod networks;
mod onward;

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use percore::{ring::Consumer, ring::Producer, slab::Slab};
use proto::{
    icmp::limit::{self, Limiter},
    ip::{
        ident,
        keyed::{Random, Seed},
        reassembly::{self, Reassembler},
    },
    neighbor::{self, Resolution, claim::Claim},
    time::Instant,
    wire::ethernet::{self, EtherType, MacAddr},
};

use self::hops::Hops;
use crate::{
    channel::TransmitEnd,
    counters::{Counter, Counters},
    driver::{
        host::{Host, HostView},
        module::{Point, registry::Eyes},
        network::InterfaceFacts,
    },
    limits,
    link::{BURST, LinkError, LinkRx, LinkTx, TxStatistics, closed::Closed},
    packet::{HEADROOM, Hint, Packet},
};

/// The transmitting half of an interface, and its host's work.
pub struct Interface {
    number: u8,
    /// Its slot among the counters.
    writer: usize,
    /// The link's transmitting half.
    link: Box<dyn LinkTx>,
    host: HostView,
    counters: Arc<Counters>,
    neighbors: neighbor::Table<Packet>,
    hops: Hops,
    groups: groups::Groups,
    /// Scratch: what the neighbours' timers ask for.
    actions: Vec<neighbor::Action<Packet>>,
    claims: Vec<Claim>,
    /// Claims, by number, whose first conflict was reported.
    conflicts: u64,
    random: Random,
    /// Buffers of what the host itself sends.
    slab: Slab,
    /// Frames that wait for the link.
    frames: VecDeque<Packet>,
    /// Packets to ourselves: they start at their IP header.
    pub local: VecDeque<Packet>,
    /// What the host itself says and another link has to send, with its number.
    pub elsewhere: VecDeque<(u8, Packet)>,
    /// The ends of the shards' channels, in regimes that have them.
    pub channels: Vec<TransmitEnd>,
    /// Where it begins with them: the one behind the one that took the last place of a full link.
    pub first_channel: usize,
    /// The ends of the channels from the links, one for each, where packets are forwarded.
    pub ways: Vec<Consumer<Packet>>,
    /// Who looks at what goes out.
    pub modules: Eyes,
    limiter: Limiter,
    reassembler: Reassembler,
    /// Buffers for what the reassembler puts together.
    reassembled: Slab,
    idents: ident::Generator,
    /// Scratch: an answer longer than the MTU, and its pieces.
    datagram: Vec<u8>,
    pieces: Vec<Packet>,
    /// Packets whose next hop did not answer.
    pub unreachable: Vec<Packet>,
    /// When timers are looked at again.
    look_at: Instant,
    /// A timer is due earlier than the thread knows that polls the link.
    timer_moved: bool,
    /// A packet to ourselves has come since the last turn.
    returned: bool,
    /// Why the link is gone.
    pub gone: Option<String>,
    /// The stack is ending.
    pub ending: bool,
    /// The same for those who must not wait for this half's lock.
    pub gone_flag: Arc<AtomicBool>,
}

impl Interface {
    /// Makes the interface of a link; `writer` is its slot among the counters.
    ///
    /// # Errors
    /// When the machine has no memory for its slab.
    pub fn new(
        number: u8,
        writer: usize,
        link: Box<dyn LinkTx>,
        host: &Arc<Host>,
        counters: Arc<Counters>,
        channels: Vec<TransmitEnd>,
        now: Instant,
    ) -> io::Result<Self> {
        let host = host.view();
        let seed = Seed([u64::from(number) ^ host.seed.0[0], host.seed.0[1]]);
        let mut random = Random::new(seed.derive(1));
        let facts = &host.net.interfaces[usize::from(number)];
        let claims = (facts.addresses.iter())
            .filter(|a| !a.ip().is_loopback())
            .map(|a| claim(a.ip(), now, &mut random))
            .collect();
        let (buffers, elsewhere) = if host.forwarding {
            (limits::HOST_SLAB + limits::FORWARD_SLAB, limits::ELSEWHERE)
        } else {
            (limits::HOST_SLAB, 0)
        };
        Ok(Self {
            number,
            writer,
            neighbors: neighbor::Table::new(neighbor::Config::default(), seed),
            hops: Hops::new(),
            groups: groups::Groups::new(seed, facts),
            actions: Vec::with_capacity(64),
            claims,
            conflicts: 0,
            random,
            slab: Slab::new(buffers, (HEADROOM + facts.mtu).next_multiple_of(64))?,
            frames: VecDeque::with_capacity(limits::LINK_QUEUE),
            local: VecDeque::with_capacity(limits::LINK_QUEUE),
            elsewhere: VecDeque::with_capacity(elsewhere),
            channels,
            first_channel: 0,
            ways: Vec::new(),
            modules: Eyes::closed(Point::Out),
            limiter: Limiter::new(limit::Config::default(), seed.derive(2)),
            reassembler: Reassembler::new(reassembly::Config::default(), seed.derive(3)),
            reassembled: Slab::new(limits::REASSEMBLED, 65_535 + 64)?,
            idents: ident::Generator::new(seed.derive(4)),
            datagram: Vec::with_capacity(1 << 16),
            pieces: Vec::with_capacity(64),
            unreachable: Vec::with_capacity(limits::UNREACHABLE),
            look_at: now,
            timer_moved: false,
            returned: false,
            gone: None,
            ending: false,
            gone_flag: Arc::new(AtomicBool::new(false)),
            link,
            host,
            counters,
        })
    }

    fn facts(&self) -> &InterfaceFacts {
        &self.host.net.interfaces[usize::from(self.number)]
    }

    /// Its number.
    pub const fn number(&self) -> u8 {
        self.number
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(self.writer, counter, 1);
    }

    /// The stack ends: the device is closed now, whoever still holds a handle to the stack's memory.
    pub fn close(&mut self) {
        self.gone
            .get_or_insert_with(|| "the stack was stopped".into());
        self.frames.clear();
        self.link = Box::new(Closed(self.link.statistics()));
    }

    /// What the link has taken.
    pub fn statistics(&self) -> TxStatistics {
        self.link.statistics()
    }

    /// Goes by the networks as they are now.
    #[inline(always)]
    pub fn refresh(&mut self, now: Instant) {
        if let Some(before) = self.host.refresh() {
            self.networks_changed(&before.net, now);
        }
    }

    /// Whether frames wait for the link.
    pub fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Frames that it would keep for its link, beside what the host has to say for itself.
    #[inline]
    pub fn room(&self) -> usize {
        (limits::LINK_QUEUE - limits::LINK_QUEUE_HOST).saturating_sub(self.frames.len())
    }

    /// Whether packets wait that come back without having been on the link.
    pub fn has_returns(&self) -> bool {
        !self.local.is_empty() || !self.unreachable.is_empty() || !self.elsewhere.is_empty()
    }

    /// Whether the link has to be turned for what was done here, once: asked by whoever lets go of this half.
    #[inline]
    pub const fn take_call(&mut self) -> bool {
        let returned = std::mem::replace(&mut self.returned, false);
        self.take_timer_moved() || returned
    }

    /// Whether a timer is due earlier than the thread knows that polls the link, once.
    #[inline]
    pub const fn take_timer_moved(&mut self) -> bool {
        std::mem::replace(&mut self.timer_moved, false)
    }

    /// Looks at the timers once a millisecond, which none of them notices; true if it was time.
    #[inline]
    pub fn is_time_to_look(&mut self, now: Instant) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now + limits::LOOK_INTERVAL;
        }
        due
    }

    /// Frames that wait for the link.
    pub fn queued(&self) -> usize {
        self.frames.len()
    }

    /// Sends a shard's packet: *check*, the next hop's link address, the frame header; all three by the hop cache where it knows.
    #[inline]
    pub fn send(&mut self, mut packet: Packet, now: Instant) {
        if self.frames.len() < limits::LINK_QUEUE && self.hops.stamp(&mut packet, now) {
            return self.frames.push_back(packet);
        }
        self.send_slowly(packet, now);
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
        for packet in packets.iter_mut() {
            if !self.hops.stamp(packet, now) {
                break;
            }
            stamped += 1;
        }
        if stamped < packets.len() {
            return self.send_one_by_one(packets, stamped, now);
        }
        let sent = self.link.transmit(now, packets);
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
                self.count(Counter::DropLinkQueue);
            }
        }
    }

    #[inline(never)]
    fn send_slowly(&mut self, packet: Packet, now: Instant) {
        match self.check(&packet) {
            Some(destination) => self.stamp(destination, packet, now),
            None => self.count(Counter::DropCheck),
        }
    }

    /// *check*: whether the sender may send this; then its destination.
    fn check(&self, packet: &Packet) -> Option<IpAddr> {
        let (source, destination) = ends_of(packet.bytes())?;
        let may = self.host.net.is_local(source) && self.host.net.may_send(source, destination);
        may.then_some(destination)
    }

    /// Sends what the host itself has to say, past the modules.
    fn say(&mut self, destination: IpAddr, packet: Packet, now: Instant) {
        let link = self.link_to(destination);
        if link != self.number {
            return self.say_elsewhere(link, packet);
        }
        if !self.modules.are_open() || self.modules.pass(&packet, now) {
            self.stamp(destination, packet, now);
        }
    }

    /// Finds the next hop's link address and stamps the frame header; the frame goes to the link's queue, or the packet waits for its neighbour.
    pub fn stamp(&mut self, destination: IpAddr, packet: Packet, now: Instant) {
        if let Some(mac) = self.group_mac(destination) {
            if packet.meta.to_group.get() {
                return self.loop_back(packet); // the copy for our own members
            }
            return self.frame(mac, packet);
        }
        if self.host.net.is_local(destination) {
            return self.loop_back(packet);
        }
        // What is sent on its own account carries its socket's mark there.
        let mark = packet.meta.flow;
        let Some(hop) = self.next_hop(destination, mark) else {
            return self.count(Counter::DropNoRoute);
        };
        let due = self.neighbors.deadline();
        match packet.meta.hint {
            Hint::PROGRESS => self.neighbors.confirm(hop, now),
            Hint::DOUBT => {
                self.neighbors.doubt(hop, now);
                self.hops.forget();
            }
            _ => {}
        }
        let resolved = self.resolve(hop, packet, now);
        self.timer_moved |= is_earlier(self.neighbors.deadline(), due);
        let Some((mac, packet)) = resolved else {
            return;
        };
        // The hop cache does not know marks.
        let is_sure = !self.host.net.routes.depends_on_mark(destination);
        if let Some(settled) = self.neighbors.settled(hop, now).filter(|_| is_sure) {
            self.hops.put(
                &packet,
                self.host.net.interfaces[usize::from(self.number)].mac,
                &settled,
            );
        }
        self.frame(mac, packet);
    }

    /// The next hop's link address, for this packet; or it waits for it, and comes back from the table.
    fn resolve(&mut self, hop: IpAddr, packet: Packet, now: Instant) -> Option<(MacAddr, Packet)> {
        match self.neighbors.resolve(hop, packet, now) {
            Resolution::Ready(mac, packet) => return Some((mac, packet)),
            Resolution::Queued { solicit, displaced } => {
                if displaced.is_some() {
                    self.count(Counter::DropNeighbor);
                }
                if solicit {
                    self.solicit(hop, None, now);
                }
            }
            Resolution::Dropped(..) => self.count(Counter::DropNeighbor),
        }
        None
    }

    /// Keeps a packet for one of our own addresses until the receiving half takes it in.
    fn loop_back(&mut self, packet: Packet) {
        if self.local.len() < limits::LINK_QUEUE {
            self.local.push_back(packet);
            self.returned = true;
        } else {
            self.count(Counter::DropLinkQueue);
        }
    }

    #[inline]
    fn next_hop(&self, destination: IpAddr, mark: u32) -> Option<IpAddr> {
        if self.facts().addresses.is_on_link(destination) {
            return Some(destination);
        }
        let routes = &self.host.net.routes;
        let next = routes.lookup_marked(destination, mark)?;
        if next.interface == u16::from(self.number) {
            return Some(next.neighbor(destination));
        }
        // It leaves here because its socket said so: as Linux, by a route of this link's, else its destination is a neighbour.
        let next = routes.lookup_by(destination, self.number.into(), mark);
        Some(next.map_or(destination, |next| next.neighbor(destination)))
    }

    /// The link address of a multicast group or of broadcast.
    fn group_mac(&self, destination: IpAddr) -> Option<MacAddr> {
        match destination {
            IpAddr::V4(ip) if ip.is_multicast() => Some(MacAddr::from_multicast_v4(ip)),
            IpAddr::V6(ip) if ip.is_multicast() => Some(MacAddr::from_multicast_v6(ip)),
            IpAddr::V4(_) if self.facts().addresses.is_broadcast(destination) => {
                Some(MacAddr::BROADCAST)
            }
            _ => None,
        }
    }

    /// Puts the frame header in front and queues the frame for the link.
    fn frame(&mut self, destination: MacAddr, packet: Packet) {
        let ethertype = match packet.bytes().first().map(|b| b >> 4) {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            _ => EtherType::ARP,
        };
        let header = ethernet::Header::new(destination, self.facts().mac, ethertype);
        self.enqueue(packet, |room| {
            header.emit(room);
        });
    }

    /// Queues a packet for the link, with the frame header that `write` puts in front.
    #[inline]
    fn enqueue(&mut self, mut packet: Packet, write: impl FnOnce(&mut [u8])) {
        if self.frames.len() >= limits::LINK_QUEUE {
            return self.count(Counter::DropLinkQueue);
        }
        match packet.push(ethernet::HEADER_LEN) {
            Some(room) => {
                write(room);
                self.frames.push_back(packet);
            }
            None => self.count(Counter::DropCheck),
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
        let sent = self.link.transmit(now, &mut self.frames)?;
        self.counters
            .add(self.writer, Counter::FramesOut, sent as u64);
        Ok(sent)
    }

    /// The link failed: for good, then nothing is offered to it again.
    pub fn link_failed(&mut self, error: &LinkError) {
        match error {
            LinkError::Gone(what) | LinkError::Ended(what) if self.gone.is_none() => {
                self.gone = Some(what.clone());
                // Relaxed: the flag alone.
                self.gone_flag.store(true, Relaxed);
                self.frames.clear();
                let name = &self.facts().name;
                match error {
                    // Where the stack itself is ending, that is no news.
                    _ if self.ending => {}
                    LinkError::Ended(_) => {
                        tracing::debug!(target: "netchan::link", link = %name, "{name}: {error}");
                    }
                    _ => tracing::error!(target: "netchan::link", link = %name, "{name}: {error}"),
                }
            }
            LinkError::Gone(_) | LinkError::Ended(_) | LinkError::Io(_) => {}
        }
    }

    /// When timers, or frames that wait for the link, want to be looked at again. Timers that are due wait for the next look: a caller that asked before it would find
    /// nothing to do and ask again, for a millisecond.
    pub fn next_event(&self) -> Instant {
        let claims = self.claims.iter().filter_map(Claim::deadline);
        let timers = claims
            .chain(self.neighbors.deadline())
            .chain(self.reassembler.deadline())
            .fold(self.groups.deadline(), Instant::min);
        // A link that was full is tried again: not all of them can say when they have room.
        if self.has_frames() {
            self.look_at
        } else {
            timers.max(self.look_at)
        }
    }
}

/// An address is said to be ours; it is not asked first whether another station has it.
fn claim(ip: IpAddr, now: Instant, random: &mut Random) -> Claim {
    Claim::new(
        ip,
        neighbor::claim::Policy::of(ip).without_probes(),
        now,
        random,
    )
}

/// Whether a timer is due earlier than it was.
fn is_earlier(due: Option<Instant>, was: Option<Instant>) -> bool {
    due.is_some_and(|due| was.is_none_or(|was| due < was))
}

/// Source and destination of an IP packet.
pub fn ends_of(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    if bytes.first()? >> 4 == 4 {
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *bytes.get(12..20)?.first_chunk::<8>()?;
        return Some(([s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()));
    }
    let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
    Some(((*source).into(), (*rest.first_chunk::<16>()?).into()))
}

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
    pub steer: crate::driver::steer::Steer,
    /// Shards for which a packet without an owner was found: the attendant is called, whoever may be away (a bit each).
    pub unowned: u64,
    /// Classified packets, for each shard.
    pub inboxes: Vec<VecDeque<Packet>>,
    /// Whether the inboxes or the host's work hold anything.
    pub has_sorted: bool,
    /// Packets whose shard the flow table names, until the burst is through.
    pub by_flow: VecDeque<(u64, Packet)>,
    /// Packets for the host's own work.
    pub host_work: VecDeque<(crate::driver::steer::HostWork, Packet)>,
    /// Packets for other hosts, until the burst is through.
    pub onward: VecDeque<Packet>,
    /// The ends of the channels to the links, one for each, where packets are forwarded.
    pub ways: Vec<Producer<Packet>>,
    /// Links into whose channel something was put and not published yet (a bit each).
    pub staged: u64,
    /// The ends of the shards' channels, in regimes that have them.
    pub channels: Vec<crate::channel::LinkEnd>,
    /// This link's parts of the shards' backlogs, where there are such.
    pub backlogs: Vec<Producer<Packet>>,
    /// Who looks at what comes in.
    pub modules: Eyes,
    /// Who looks at what came in and is passed on.
    pub forward_modules: Eyes,
    /// Its slot among the counters.
    pub writer: usize,
}

impl Receive {
    /// The receiving half for a link with frames of at most `frame_max` bytes for `shards` shards; with room for sockets of which each has a
    /// shard of its own, or not.
    ///
    /// # Errors
    /// When the machine has no memory for its slab.
    pub fn new(
        host: HostView,
        (link, frame_max): (Box<dyn LinkRx>, usize),
        (shards, own_shards): (usize, bool),
        steer: crate::driver::steer::Steer,
        channels: Vec<crate::channel::LinkEnd>,
        backlogs: Vec<Producer<Packet>>,
        writer: usize,
    ) -> io::Result<Self> {
        let (ready, for_sockets) = if frame_max > 9200 {
            (
                limits::RECEIVE_SLAB_LARGE,
                limits::RECEIVE_SLAB_SOCKETS_LARGE,
            )
        } else {
            (limits::RECEIVE_SLAB, limits::RECEIVE_SLAB_SOCKETS)
        };
        let buffers = if own_shards { for_sockets } else { ready };
        Ok(Self {
            host,
            link,
            slab: Slab::with_ready(buffers, frame_max.next_multiple_of(64), ready)?,
            burst: VecDeque::with_capacity(BURST),
            steer,
            unowned: 0,
            inboxes: (0..shards)
                .map(|_| VecDeque::with_capacity(BURST))
                .collect(),
            has_sorted: false,
            by_flow: VecDeque::with_capacity(BURST),
            host_work: VecDeque::with_capacity(BURST),
            onward: VecDeque::with_capacity(BURST),
            ways: Vec::new(),
            staged: 0,
            channels,
            backlogs,
            modules: Eyes::closed(Point::In),
            forward_modules: Eyes::closed(Point::Forward),
            writer,
        })
    }

    /// The stack ends: the device is closed now, whatever handles to the stack's memory are left.
    pub fn close(&mut self) {
        self.link = Box::new(Closed(self.link.statistics()));
    }

    /// Goes by the networks and groups as they are now.
    #[inline]
    pub fn refresh(&mut self) {
        if self.host.refresh().is_some() {
            self.steer.forget();
        }
    }

    /// Whether a burst brought something that the transmitting half has to see.
    pub fn has_host_work(&self) -> bool {
        !self.host_work.is_empty() || !self.onward.is_empty()
    }
}
