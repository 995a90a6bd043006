//! Short cuts: lines to other leases of the same lender, past it (`docs/decisions/0023-short-cuts.md`).
//!
//! The transmitting half sends by one what is for a port of its peer's ([`Outgoing`]), and asks for one where there is none yet. The receiving half
//! ([`Incoming`]) reads the lender's news, and takes from a line what comes from its peer's ports: it does for its own process what the lender's *check*
//! does for all.
//!
//! The lender holds them all back by a bit of the edge's notice, while something of its own (a module, a tap) has to see each packet.

use std::{
    collections::{HashSet, VecDeque},
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use netchan_base::{
    descriptor::{Descriptor, Writer},
    locks,
    packet::Packet,
};
use percore::{
    doorbell::several::Several,
    edge::{self, Notice},
    lock::{Mutex, mutex},
    own::Own,
    pipe::Pipes,
    slab::{BorrowedSlab, MapError},
};
use proto::{
    time::{Duration, Instant},
    wire::tcp::Flags,
};
use rustix::{
    event::epoll,
    io::Errno,
    net::{SendFlags, send},
};

use super::{
    ends::Ends,
    line::{self, Came, Inlet, NotSent, Outlet},
};
use crate::lease::{
    Binding, Holding, News, PEER_FILES, PeerPorts, PeerTerms, Transport, Wish,
    client::{Leased, Message, Ours},
    pipes::{HELD, PipePeer, PipeTable},
};

/// News that one look reads; what is beyond is read by the next.
const NEWS_MAX: usize = 64;

/// Most short cuts of a lease: each look goes through all of them.
const PEERS_MAX: usize = 64;

/// Connections of a short cut that are known by their first segments: as many as a lender knows of a lease.
const FLOWS_MAX: usize = netchan_base::limits::LEASE_FLOWS;

/// Connections of a short cut that its peer has closed lately, and in which there may be something of ours for it yet.
const CLOSED_MAX: usize = 256;

/// How long a peer that gives no buffers back holds up the packets behind its own. Then what is for it is dropped, until it does.
const STALLED: Duration = Duration::from_millis(10);

/// A wish for the same port is not repeated before.
const WISH_AGAIN: Duration = Duration::from_secs(1);

/// Ports that were wished for lately.
const WISHES_MAX: usize = 64;

/// What both halves of a queue share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The lender has ended.
    pub gone: AtomicBool,
    /// What the receiving half has for the transmitting one.
    told: Mutex<Vec<Told>>,
    has_told: AtomicBool,
    /// When the transmitting half looks again for a peer that holds it up; 0: none does. Nanoseconds.
    retry_at: AtomicU64,
    notice: Notice,
    news: Own,
}

impl Shared {
    pub fn new(notice: Notice, news: Own) -> Self {
        Self {
            gone: AtomicBool::new(false),
            told: mutex(&locks::LEASE_PEERS, Vec::new()),
            has_told: AtomicBool::new(false),
            retry_at: AtomicU64::new(0),
            notice,
            news,
        }
    }

    fn is_held(&self) -> bool {
        self.notice.get() & HELD != 0
    }

    fn tell(&self, told: Told) {
        self.told.lock().push(told);
        // Relaxed: `hear` clears it ahead of the lock, so that it stays set for what is pushed later. Where it is seen late, packets go by the lender.
        self.has_told.store(true, Relaxed);
    }

    /// When the transmitting half has to be turned, though nothing comes.
    pub fn retry_at(&self) -> Instant {
        match self.retry_at.load(Relaxed) {
            0 => Instant::FAR,
            at => Instant(at),
        }
    }
}

/// What the receiving half tells the transmitting one.
#[derive(Debug)]
enum Told {
    Peer(Box<PeerOut>),
    Ports(u64, Holding),
    Gone(u64),
}

/// The ports of a peer that are sent to by a short cut.
fn sent_to(ports: &PeerPorts) -> Holding {
    let mut sent = Holding::default();
    ports.bindings.iter().for_each(|one| sent.bind(one));
    ports.ranges.iter().for_each(|&range| sent.add_ports(range));
    if ports.loopback {
        sent.share_loopback();
    }
    sent
}

/// All ports of a peer: those that it may send from.
fn all_of(ports: &PeerPorts) -> Holding {
    let mut all = sent_to(ports);
    ports.shared.iter().for_each(|one| all.bind(one));
    all
}

/// A connection, from our end to the peer's.
pub(super) type Flow = (SocketAddr, SocketAddr);

/// A line from a peer.
struct PeerIn {
    pair: u64,
    inlet: Inlet,
    guard: Guard,
    pipes: Arc<PipePeer>,
    /// What it had to say of them at the last look ([`PipePeer::posts`]).
    posts: u32,
    /// The lender says that it has gone: so many descriptors are still taken.
    left: Option<usize>,
    /// Its bell is no longer among those that are slept on.
    is_parted: bool,
}

/// What a peer's packets are held against.
struct Guard {
    /// What it may send from.
    ports: Holding,
    /// One of them, which was looked for last.
    last: Option<(Transport, SocketAddr)>,
    /// Connections that it began, or answered, here.
    flows: HashSet<Flow>,
    /// Those of them that it has closed last.
    closed: VecDeque<Flow>,
}

impl Guard {
    /// Whether a packet is one that this peer may send to one of `ours`.
    fn passes(&mut self, packet: &[u8], ours: &Ours) -> bool {
        let Some(ends) = Ends::of(packet) else {
            return false;
        };
        let from = (ends.transport, ends.source);
        if self.last != Some(from) {
            if !ours.has_peer(ends.source.ip()) || !self.ports.has(from.0, from.1) {
                return false;
            }
            self.last = Some(from);
        }
        if !ours.has(ends.destination.ip()) {
            return false;
        }
        if ends.flags.0 & (Flags::SYN | Flags::FIN | Flags::RST).0 != 0 {
            self.note(&ends);
        }
        true
    }

    /// The first and the last segments tell which connections there are.
    fn note(&mut self, ends: &Ends) {
        let flow = (ends.destination, ends.source);
        if !ends.flags.contains(Flags::SYN) {
            if self.flows.remove(&flow) {
                self.closed.truncate(CLOSED_MAX - 1);
                self.closed.push_front(flow);
            }
        } else if self.flows.len() < FLOWS_MAX {
            self.flows.insert(flow);
        }
    }
}

/// The short cuts of a receiving half.
pub(super) struct Incoming {
    all: Vec<PeerIn>,
    shared: Arc<Shared>,
    /// The lender's.
    addresses: Ours,
    mtu: usize,
    /// News that were read, as the notice counts them.
    seen: u32,
    /// The bells of all lines (epoll(7)): one thread may read that there is another line while another one sleeps.
    bells: Own,
    table: Arc<PipeTable>,
    /// They were held back at the last look.
    was_held: bool,
    /// Connections whose peer is gone, and which have not heard of it yet.
    pub orphans: VecDeque<Flow>,
    /// Those that it has closed before. What we sent to it last, it has not taken.
    pub in_vain: VecDeque<Flow>,
    /// Those for which there is something in a pipe, or else than in packets; each of them once, or twice.
    pub beside: VecDeque<Flow>,
}

impl Incoming {
    /// None yet. `lender`: its own line.
    ///
    /// # Errors
    /// epoll_create(2)'s, and epoll_ctl(2)'s.
    pub fn new(
        shared: Arc<Shared>,
        leased: &Leased,
        mtu: usize,
        lender: &Inlet,
    ) -> io::Result<Self> {
        let bells = Own::open(|| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?))?;
        add_bell(&bells, lender, 0)?;
        Ok(Self {
            all: Vec::new(),
            shared,
            addresses: leased.ends(),
            mtu,
            seen: 0,
            bells,
            table: leased.pipes.clone(),
            was_held: false,
            orphans: VecDeque::new(),
            in_vain: VecDeque::new(),
            beside: VecDeque::new(),
        })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the lender has told something since the last look.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shared.notice.get() & !HELD != self.seen
    }

    /// Reads what the lender has told.
    #[cold]
    pub fn read_news(&mut self) {
        let count = self.shared.notice.get() & !HELD;
        for _ in 0..NEWS_MAX {
            match Message::of(&self.shared.news) {
                Ok(Some(message)) => self.read(message),
                Err(Errno::INTR) => {}
                // What came since `count` was read is looked for once more.
                Err(Errno::AGAIN) => {
                    self.seen = count;
                    return;
                }
                Ok(None) | Err(_) => {
                    self.seen = count;
                    (0..self.all.len()).for_each(|place| self.leave(place));
                    return;
                }
            }
        }
    }

    fn read(&mut self, message: Message) {
        let Ok(news) = serde_json::from_slice::<News>(&message.text) else {
            tracing::debug!(target: "netchan::link", "the daemon's news cannot be understood");
            return;
        };
        let place = |pair| self.all.iter().position(|peer| peer.pair == pair);
        match news {
            // Files that are of no use here are closed, which ends the line for its other end, too.
            News::Peer(terms) if message.is_whole && self.all.len() < PEERS_MAX => {
                if let Err(why) = self.meet(&terms, message.files) {
                    tracing::debug!(target: "netchan::link", "no short cut: {why}");
                }
            }
            News::Peer(_) => {}
            News::Ports { pair, ports } => {
                if let Some(peer) = place(pair).and_then(|place| self.all.get_mut(place)) {
                    peer.guard.ports = all_of(&ports);
                    peer.guard.last = None;
                    peer.pipes.set_ports(all_of(&ports));
                    self.shared.tell(Told::Ports(pair, sent_to(&ports)));
                }
            }
            News::Gone { pair } => {
                if let Some(place) = place(pair) {
                    self.leave(place);
                }
            }
        }
    }

    /// A short cut begins.
    fn meet(&mut self, terms: &PeerTerms, files: Vec<OwnedFd>) -> io::Result<()> {
        let other = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let ([inward, outward], layout, pipes) = terms.check(self.mtu).map_err(other)?;
        let files: Vec<Own> = files.into_iter().map(Own::keep).collect();
        let [to_us, from_us, file, socket, pipes_file] = <[Own; PEER_FILES]>::try_from(files)
            .map_err(|files| other(format!("{} descriptors came with it", files.len())))?;
        let mapped = |e: MapError| other(e.to_string());
        let inward = BorrowedSlab::map(&to_us, inward).map_err(mapped)?;
        let outward = BorrowedSlab::map(&from_us, outward).map_err(mapped)?;
        let side = edge::map(file, layout, socket, terms.side()).map_err(mapped)?;
        let pipes = Pipes::map(&pipes_file, pipes, terms.side()).map_err(mapped)?;
        let (inlet, outlet, _) = line::of(side, inward, outward, Writer::FarSide);
        let bell = inlet.far_bell().clone();
        let pipes = PipePeer::new(terms.pair, pipes, bell, all_of(&terms.ports));
        add_bell(&self.bells, &inlet, terms.pair)?;
        self.table.add(pipes.clone());
        self.all.push(PeerIn {
            pair: terms.pair,
            pipes,
            posts: 0,
            left: None,
            is_parted: false,
            guard: Guard {
                ports: all_of(&terms.ports),
                last: None,
                flows: HashSet::new(),
                closed: VecDeque::new(),
            },
            inlet,
        });
        self.shared.tell(Told::Peer(Box::new(PeerOut {
            pair: terms.pair,
            outlet,
            ports: sent_to(&terms.ports),
            stalled: None,
        })));
        Ok(())
    }

    /// The lender says that this peer is gone. What it sent before is still taken, as much as its ring holds.
    fn leave(&mut self, place: usize) {
        if let Some(peer) = self.all.get_mut(place) {
            let slots = peer.inlet.buffers();
            peer.left.get_or_insert(slots);
            self.table.remove(peer.pair);
            self.shared.tell(Told::Gone(peer.pair));
        }
    }

    /// Takes at most `max` packets from the peer at `place`, those of them that it may send.
    pub fn receive(&mut self, (place, max): (usize, usize), intake: &mut impl Intake) -> Came {
        let Some(peer) = self.all.get_mut(place) else {
            return Came::default();
        };
        // What came ahead of a post is given ahead of it.
        let posts = peer.pipes.posts();
        // First what came, then the news: of a port that the peer has used, the lender has told before.
        let taken = peer.inlet.look(max);
        if taken > 0 && self.has_news() {
            self.read_news();
        }
        // What comes while they are held back has not been seen by what holds them back.
        let is_held = self.shared.is_held();
        if self.was_held && !is_held {
            self.table.changed();
        }
        self.was_held = is_held;
        let (Some(peer), addresses) = (self.all.get_mut(place), &self.addresses) else {
            return Came::default();
        };
        // One look at a time: so no more wait than there are pipes and offers.
        if posts != peer.posts && self.beside.is_empty() && taken < max {
            let before = std::mem::replace(&mut peer.posts, posts);
            peer.pipes
                .look((before, posts), |flow| self.beside.push_back(flow));
        }
        let PeerIn { inlet, guard, .. } = peer;
        let came = inlet.give(taken, |slab, descriptor| {
            intake.take(slab, descriptor, |packet| {
                !is_held && guard.passes(packet, addresses)
            })
        });
        if came.taken == 0 || peer.left.is_some() {
            self.part(place, came.taken);
        }
        came
    }

    /// Nothing came from a peer, or it has gone: what is to be done then.
    fn part(&mut self, place: usize, taken: usize) {
        let Some(peer) = self.all.get_mut(place) else {
            return;
        };
        let is_over = peer.inlet.is_over();
        if (is_over || peer.left.is_some()) && !peer.is_parted {
            peer.is_parted = true;
            // It stays readable for ever.
            let _ = epoll::delete(&self.bells, peer.inlet.fd());
            self.table.remove(peer.pair);
            self.shared.tell(Told::Gone(peer.pair));
        }
        let Some(left) = &mut peer.left else {
            return;
        };
        *left = left.saturating_sub(taken);
        if taken == 0 || *left == 0 {
            let gone = self.all.swap_remove(place);
            // What it has left in them is read, ahead of its end.
            let posts = (gone.posts, gone.pipes.posts());
            gone.pipes.look(posts, |flow| self.beside.push_back(flow));
            self.orphans.extend(gone.guard.flows);
            self.in_vain.extend(gone.guard.closed);
        }
    }

    /// A thread is about to sleep. False: something waits already.
    pub fn arm(&mut self) -> bool {
        self.arm_each(|inlet| Some(inlet.arm())).unwrap_or(false)
    }

    /// The same for a sleep on the bells, which are put among `bells`; `None`: there is no place for one.
    pub fn arm_among(&mut self, bells: &mut Several) -> Option<bool> {
        self.arm_each(|inlet| inlet.arm_among(bells))
    }

    fn arm_each(&mut self, mut arm: impl FnMut(&mut Inlet) -> Option<bool>) -> Option<bool> {
        let mut is_quiet =
            self.orphans.is_empty() && self.in_vain.is_empty() && self.beside.is_empty();
        for peer in &mut self.all {
            if !peer.is_parted || peer.left.is_some() {
                is_quiet &= arm(&mut peer.inlet)?;
            }
            is_quiet &= peer.pipes.posts() == peer.posts;
        }
        Some(is_quiet && !self.has_news())
    }

    /// No thread sleeps on the bells.
    pub fn leave_bells(&mut self) {
        self.all
            .iter_mut()
            .for_each(|peer| peer.inlet.leave_bells());
    }

    /// Readable once one of the lines has rung, the lender's among them.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }
}

/// What makes packets of descriptors.
pub(super) trait Intake {
    /// Copies a packet, and gives it on if it `passes`; whether it did.
    fn take(
        &mut self,
        slab: &BorrowedSlab,
        descriptor: &Descriptor,
        passes: impl FnOnce(&[u8]) -> bool,
    ) -> bool;
}

fn add_bell(bells: &Own, inlet: &Inlet, number: u64) -> io::Result<()> {
    let number = epoll::EventData::new_u64(number);
    Ok(epoll::add(
        bells,
        inlet.fd(),
        number,
        epoll::EventFlags::IN,
    )?)
}

/// A line to a peer.
#[derive(Debug)]
struct PeerOut {
    pair: u64,
    outlet: Outlet,
    /// What is sent to by it.
    ports: Holding,
    /// Since when it has given no buffer back that is needed.
    stalled: Option<Instant>,
}

/// The short cuts of a transmitting half.
pub(super) struct Outgoing {
    all: Vec<PeerOut>,
    shared: Arc<Shared>,
    /// The lender's.
    addresses: Ours,
    /// Whose port was looked for last, and its place.
    last: Option<(Transport, SocketAddr, usize)>,
    wishes: Vec<(Binding, Instant)>,
}

impl Outgoing {
    pub fn new(shared: Arc<Shared>, leased: &Leased) -> Self {
        Self {
            all: Vec::new(),
            shared,
            addresses: leased.ends(),
            last: None,
            wishes: Vec::new(),
        }
    }

    /// What the receiving half has told. Before packets are sent.
    #[inline]
    pub fn begin(&mut self) {
        if self.shared.retry_at.load(Relaxed) != 0 {
            self.shared.retry_at.store(0, Relaxed);
        }
        if self.shared.has_told.load(Relaxed) {
            self.hear();
        }
    }

    #[cold]
    fn hear(&mut self) {
        self.shared.has_told.store(false, Relaxed);
        let told = std::mem::take(&mut *self.shared.told.lock());
        for told in told {
            match told {
                Told::Peer(peer) => self.all.push(*peer),
                Told::Ports(pair, ports) => {
                    if let Some(peer) = self.all.iter_mut().find(|peer| peer.pair == pair) {
                        peer.ports = ports;
                    }
                }
                Told::Gone(pair) => self.all.retain(|peer| peer.pair != pair),
            }
        }
        self.last = None;
    }

    /// The peer that a packet is for, if it can go by a short cut.
    pub fn place_for(&mut self, packet: &[u8], segment: u16, now: Instant) -> Option<usize> {
        let ends = Ends::of(packet)?;
        let (transport, to) = (ends.transport, ends.destination);
        // Many datagrams in one are cut by the lender.
        let is_cut = segment != 0 && transport == Transport::Udp;
        if is_cut || !self.addresses.has_peer(to.ip()) || self.shared.is_held() {
            return None;
        }
        let place = match self.last {
            Some((last, address, place)) if (last, address) == (transport, to) => place,
            _ => {
                let has = |peer: &PeerOut| peer.ports.has(transport, to);
                let Some(place) = self.all.iter().position(has) else {
                    self.wish(transport, to, now);
                    return None;
                };
                self.last = Some((transport, to, place));
                place
            }
        };
        self.all
            .get(place)
            .is_some_and(|peer| !peer.outlet.is_over())
            .then_some(place)
    }

    /// Asks the lender for a short cut to the lease that has this port.
    fn wish(&mut self, transport: Transport, address: SocketAddr, now: Instant) {
        let to = Binding { transport, address };
        if self
            .wishes
            .iter()
            .any(|(old, at)| *old == to && now < *at + WISH_AGAIN)
        {
            return;
        }
        self.wishes.retain(|(_, at)| now < *at + WISH_AGAIN);
        if self.wishes.len() >= WISHES_MAX {
            return;
        }
        self.wishes.push((to, now));
        if let Ok(text) = serde_json::to_vec(&Wish { to }) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&self.shared.news, &text, flags); // else it goes on by the lender
        }
    }

    /// Sends the packet of a frame to the peer at `place`.
    ///
    /// # Errors
    /// Why it does not go; one for a peer that has given nothing back for long is refused.
    pub fn send(
        &mut self,
        place: usize,
        (frame, packet): (&Packet, &[u8]),
        now: Instant,
    ) -> Result<(), NotSent> {
        let peer = self.all.get_mut(place).ok_or(NotSent::Refused)?;
        if !peer.outlet.is_staged() && peer.outlet.collect() > 0 {
            peer.stalled = None;
        }
        match peer.outlet.send(frame, packet) {
            Err(NotSent::Full) => {}
            done => return done,
        }
        if peer.outlet.collect() > 0 {
            peer.stalled = None;
            return peer.outlet.send(frame, packet);
        }
        let until = *peer.stalled.get_or_insert(now) + STALLED;
        if now >= until {
            return Err(NotSent::Refused);
        }
        self.shared.retry_at.store(until.0, Relaxed);
        Err(NotSent::Full)
    }

    /// Shows the peers what was sent.
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(|peer| peer.outlet.flush());
    }
}
