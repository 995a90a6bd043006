//! An interface: a link with our addresses on it. What it keeps stands here; packets get their frame header in `transmit` and their next
//! hop in `next_hop`, and the host's own work (ARP, NDP, echo), which needs no application, lies in `host_work` and `neighbors`. Its
//! receiving half (slab and classifier) is a thing of its own, in `receive`, so that sending does not wait for receiving.

mod groups;
mod hops;
pub mod host_work;
mod leases;
mod neighbors;
mod networks;
mod next_hop;
mod onward;
mod receive;
mod rejected;
mod transmit;

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use percore::{ring::Consumer, slab::Slab};
use proto::{
    icmp::{
        error::Kind,
        limit::{self, Limiter},
    },
    ip::{
        ident,
        keyed::{Random, Seed},
        reassembly::{self, Reassembler},
    },
    neighbor::{self, claim::Claim},
    time::Instant,
};

use self::hops::Hops;
pub use self::receive::Receive;
use crate::{
    channel::TransmitEnd,
    counters::{Counter, Counters},
    driver::{
        host::{Host, HostView},
        module::{Point, registry::HookChain},
        network::InterfaceFacts,
        steer::NthQueue,
    },
    errno::invalid,
    limits,
    link::{BURST, LinkError, LinkTx, TxStatistics, closed::Closed},
    packet::{HEADROOM, Packet},
    tap::{self, Begins, Place, Reason, Way},
};

/// Which queue of which link a half belongs to.
#[derive(Clone, Copy, Debug)]
pub struct QueueId {
    /// The link's number.
    pub link: u8,
    /// Which of its link's queues it is.
    pub nth: NthQueue,
    /// The slot among the counters of the queue's receiving half; the transmitting half's is the next one.
    pub writer: usize,
}

impl QueueId {
    /// Of queue number `queue`, which is one of `link`'s, of a stack with so many shards.
    ///
    /// # Errors
    /// `InvalidInput`: more than [`limits::QUEUES_ALL`].
    pub fn new(link: u8, queue: usize, nth: NthQueue, shards: usize) -> io::Result<Self> {
        let writer = shards + 2 * queue;
        if queue >= limits::QUEUES_ALL {
            return Err(invalid("too many queues: 64 at most, of all links"));
        }
        Ok(Self { link, nth, writer })
    }
}

/// The transmitting half of a link's queue; of its first one, with the host's own work. (In a further queue's the tables of that work stay empty.)
pub struct Interface {
    number: u8,
    /// It is of a further queue of the link.
    is_further: bool,
    /// Of a further queue: packets whose next hop its cache does not know, and what came behind them, for the first one to send.
    pub for_first: VecDeque<Packet>,
    /// Its slot among the counters.
    writer: usize,
    /// The link's transmitting half.
    link: Box<dyn LinkTx>,
    taps: tap::Point,
    /// When it was turned last.
    latest: Instant,
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
    /// What applications with leases send by it.
    pub leases: leases::Leases,
    /// The ends of the channels from the links, one for each, where packets are forwarded.
    pub forward_rings: Vec<Consumer<Packet>>,
    /// Modules that look at what goes out.
    pub modules: HookChain,
    limiter: Limiter,
    reassembler: Reassembler,
    /// Buffers for what the reassembler puts together.
    reassembled: Slab,
    idents: ident::Generator,
    /// Scratch: an answer longer than the MTU, and its pieces.
    datagram: Vec<u8>,
    pieces: Vec<Packet>,
    /// Packets that no route leads to, or whose next hop did not answer.
    pub unreachable: Vec<(Kind, Packet)>,
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
    /// The same, to be read without this half's lock.
    pub gone_flag: Arc<AtomicBool>,
}

impl Interface {
    /// Makes that of a link's first queue; of a further one, which still has to be put [`Self::behind`] the first.
    ///
    /// # Errors
    /// When the machine has no memory for its slab.
    pub fn new(
        id: QueueId,
        link: Box<dyn LinkTx>,
        host: &Arc<Host>,
        counters: Arc<Counters>,
        channels: Vec<TransmitEnd>,
        now: Instant,
    ) -> io::Result<Self> {
        let (host, number) = (host.view(), id.link);
        let seed = Seed([u64::from(number) ^ host.seed.0[0], host.seed.0[1]]);
        let mut random = Random::new(seed.derive(1));
        let facts = &host.net.interfaces[usize::from(number)];
        // A lease's addresses are claimed, and its groups joined, by the lender.
        let is_lease = facts.lender.is_some();
        let claims = (facts.addresses.iter())
            .filter(|a| !is_lease && !a.ip().is_loopback())
            .map(|a| claim(a.ip(), now, &mut random))
            .collect();
        let (buffers, elsewhere, reassembled) = match (id.nth.number, host.forwarding) {
            (1.., _) => (1, 0, 1), // no work of the host's is done there
            (_, true) => {
                let buffers = limits::HOST_SLAB + limits::FORWARD_SLAB;
                (buffers, limits::ELSEWHERE, limits::REASSEMBLED)
            }
            (_, false) => (limits::HOST_SLAB, 0, limits::REASSEMBLED),
        };
        Ok(Self {
            number,
            is_further: false,
            for_first: VecDeque::new(),
            writer: id.writer + 1,
            neighbors: neighbor::Table::new(neighbor::Config::default(), seed),
            hops: Hops::new(),
            groups: match is_lease {
                true => groups::Groups::none(),
                false => groups::Groups::new(seed, facts),
            },
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
            leases: leases::Leases::default(),
            forward_rings: Vec::new(),
            modules: HookChain::empty(Point::Out),
            limiter: Limiter::new(limit::Config::default(), seed.derive(2)),
            reassembler: Reassembler::new(reassembly::Config::default(), seed.derive(3)),
            reassembled: Slab::new(reassembled, HEADROOM + 65_535 + 64)?,
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
            taps: (host.taps).point(Place::Link(id.link, Way::Out), id.writer + 1),
            latest: now,
            host,
            counters,
        })
    }

    /// Makes it that of a further queue of the link that `first` sends for.
    pub fn behind(mut self, first: &Self) -> Self {
        self.is_further = true;
        self.for_first = VecDeque::with_capacity(limits::BURSTS_PER_TURN * BURST);
        self.hops = Hops::behind(&first.hops);
        self.groups = groups::Groups::none();
        self.claims.clear();
        self.gone_flag = first.gone_flag.clone();
        self
    }

    /// Whether it is that of a further queue of its link.
    pub const fn is_further(&self) -> bool {
        self.is_further
    }

    fn facts(&self) -> &InterfaceFacts {
        &self.host.net.interfaces[usize::from(self.number)]
    }

    /// The number of its queue among those of all links.
    pub const fn queue_number(&self) -> u64 {
        ((self.writer - 1).saturating_sub(self.channels.len()) / 2) as u64
    }

    /// Its number.
    pub const fn number(&self) -> u8 {
        self.number
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(self.writer, counter, 1);
    }

    /// Counts a packet that is dropped, and shows it to the taps that look at such.
    pub(crate) fn count_lost(&mut self, counter: Counter, packet: &Packet, begins: Begins) {
        self.count(counter);
        self.show_lost(Reason::counted(counter), packet, begins);
    }

    /// Shows a packet that is dropped to the taps that look at such.
    fn show_lost(&mut self, reason: Reason, packet: &Packet, begins: Begins) {
        if self.taps.watches_drops() {
            self.taps.lost(reason, packet, begins, self.latest);
        }
    }

    /// Closes the device, as the stack ends, even while there are handles to the stack's memory.
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
        self.latest = now;
        if let Some(before) = self.host.refresh() {
            self.networks_changed(&before.net, now);
        }
        if self.is_further {
            self.hops.follow();
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

    /// Whether the link has to be turned for what was done here, once: asked by the thread that lets go of this half.
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

    /// The link failed: for good, then nothing is offered to it again.
    pub fn link_failed(&mut self, error: &LinkError) {
        match error {
            LinkError::Gone(what) | LinkError::Ended(what) if self.gone.is_none() => {
                self.gone = Some(what.clone());
                // Relaxed: the flag alone. The halves of a link's queues have one together, and the first of them tells.
                let is_told = self.gone_flag.swap(true, Relaxed);
                self.frames.clear();
                let name = &self.facts().name;
                match error {
                    // Where the stack itself is ending, that is no news.
                    _ if self.ending || is_told => {}
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

/// Source and destination of an IP packet.
pub fn ends_of(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    if bytes.first()? >> 4 == 4 {
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *bytes.get(12..20)?.first_chunk::<8>()?;
        return Some(([s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()));
    }
    let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
    Some(((*source).into(), (*rest.first_chunk::<16>()?).into()))
}

#[cfg(test)]
mod tests;
