//! The deterministic world: hosts with TCP connections, links between them and applications on them, in virtual time. A seed and a commit
//! replay a run exactly; a referee looks at every segment.
//!
//! Three nouns: an *end* (one side of a connection with its application), a *link* (one way, [`link`]), a *flow* (two ends and the links
//! that its segments pass each way; links may be shared by many). [`World::run`] takes the next thing that happens until nothing does.
//! What may not happen, panics: [`run`](shape::Shape::run) of a [`shape::Shape`] catches that and says where.

pub mod app;
mod codel;
pub mod dice;
pub mod endpoint;
pub mod link;
pub mod peer;
mod referee;
pub mod shape;
pub mod text;

use std::{cmp::Reverse, collections::BinaryHeap};

use proto::{
    tcp::SegmentPool,
    time::{Duration, Instant},
    wire::tcp::{Flags, SeqNum},
};

use self::{
    dice::Dice,
    endpoint::{EndShape, Endpoint, Segment},
    link::{Link, LinkShape, Packet},
    peer::{Peer, PeerShape},
    text::Text,
};

/// When worlds begin: not at the origin, where differences could hide.
pub const START: Instant = Instant(1_000_000_000);

/// A segment and the way it has come.
#[derive(Clone)]
struct Travelling {
    segment: Segment,
    from: usize,
    hop: usize,
}

/// What comes from outside, at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    /// A link changes: index into `changes`.
    Change(usize),
    /// An end is told that its segment did not fit.
    TooBig { end: usize, mtu: u32, seq: u32 },
}

/// A host: what the connections on it share.
struct Host {
    pool: SegmentPool<Text>,
    segments: u32,
}

/// What is at an end.
#[derive(Clone, Debug)]
pub enum Party {
    /// netchan's TCP.
    Netchan(Box<EndShape>),
    /// smoltcp's.
    Smoltcp(PeerShape),
}

impl From<EndShape> for Party {
    fn from(shape: EndShape) -> Self {
        Self::Netchan(Box::new(shape))
    }
}
impl From<PeerShape> for Party {
    fn from(shape: PeerShape) -> Self {
        Self::Smoltcp(shape)
    }
}

/// An end at work.
enum End {
    Netchan(Box<Endpoint>),
    Smoltcp(Box<Peer>),
}

impl End {
    fn new(party: Party, ports: (u16, u16), streams: (u32, u32), now: Instant) -> Self {
        match party {
            Party::Netchan(shape) => Self::Netchan(Box::new(Endpoint::new(*shape, ports, streams))),
            Party::Smoltcp(shape) => Self::Smoltcp(Box::new(Peer::new(shape, ports, streams, now))),
        }
    }

    fn next(&self) -> Instant {
        match self {
            Self::Netchan(end) => end.next(),
            Self::Smoltcp(peer) => peer.next(),
        }
    }

    const fn netchan(&self) -> Option<&Endpoint> {
        match self {
            Self::Netchan(end) => Some(end),
            Self::Smoltcp(_) => None,
        }
    }
}

/// See the module's documentation.
pub struct World {
    now: Instant,
    seed: u64,
    hosts: Vec<Host>,
    ends: Vec<End>,
    /// On which host each end is, and the links that its segments pass.
    homes: Vec<usize>,
    routes: Vec<Vec<usize>>,
    links: Vec<Link<Travelling>>,
    changes: Vec<(usize, LinkShape)>,
    notices: BinaryHeap<Reverse<(Instant, Notice)>>,
    /// Which end acts when; an entry that is later than what `armed` says is stale.
    agenda: BinaryHeap<Reverse<(Instant, usize)>>,
    armed: Vec<Instant>,
    /// After how long routers' complaints about size arrive; `None`: they keep silent.
    icmp_after: Option<Duration>,
    digest: u64,
    steps: u64,
    steps_max: u64,
    trace: bool,
    out: Vec<Segment>,
}

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of every segment and when it was sent.
    pub digest: u64,
    /// Of the bytes that each end read, and of when it had read all.
    pub delivered: u64,
    /// Things that happened.
    pub steps: u64,
    /// Virtual time that passed.
    pub lasted: Duration,
}

/// Links and ends take turns in `armed`.
const fn of_end(end: usize) -> usize {
    2 * end
}
const fn of_link(link: usize) -> usize {
    2 * link + 1
}

impl World {
    /// Nothing yet. What links do follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: START,
            seed,
            hosts: Vec::new(),
            ends: Vec::new(),
            homes: Vec::new(),
            routes: Vec::new(),
            links: Vec::new(),
            changes: Vec::new(),
            notices: BinaryHeap::new(),
            agenda: BinaryHeap::new(),
            armed: Vec::new(),
            icmp_after: None,
            digest: 0,
            steps: 0,
            steps_max: u64::MAX,
            trace: std::env::var_os("NETCHAN_TRACE").is_some(),
            out: Vec::new(),
        }
    }

    /// A host whose connections hold at most so many received segments together.
    pub fn host(&mut self, segments: u32) -> usize {
        let pool = SegmentPool::with_capacity(segments as usize);
        self.hosts.push(Host { pool, segments });
        self.hosts.len() - 1
    }

    /// A link, one way.
    pub fn link(&mut self, shape: LinkShape) -> usize {
        let index = self.links.len();
        let seed = Dice::of(self.seed, 1000 + index as u64).next();
        self.links.push(Link::new(shape, seed));
        index
    }

    /// A connection between two hosts; `routes` are the links that the first one's segments pass, and the second one's. The index of
    /// its first end; the second's follows.
    ///
    /// # Panics
    /// Without a link each way.
    pub fn flow<P: Into<Party>>(
        &mut self,
        hosts: [usize; 2],
        ends: [P; 2],
        routes: [Vec<usize>; 2],
    ) -> usize {
        let first = self.ends.len();
        let port = 1024 + u16::try_from(first).expect("fewer ends than ports");
        let stream = u32::try_from(first).expect("few ends");
        let [a, b] = ends;
        let (there, back) = ((port, port + 1), (port + 1, port));
        let streams = ((stream, stream + 1), (stream + 1, stream));
        self.ends
            .push(End::new(a.into(), there, streams.0, self.now));
        self.ends
            .push(End::new(b.into(), back, streams.1, self.now));
        self.homes.extend(hosts);
        assert!(
            routes.iter().all(|route| !route.is_empty()),
            "a link each way"
        );
        self.routes.extend(routes);
        first
    }

    /// `link` becomes another at `at`.
    pub fn change(&mut self, link: usize, shape: LinkShape, at: Instant) {
        let notice = Notice::Change(self.changes.len());
        self.changes.push((link, shape));
        self.notices.push(Reverse((at, notice)));
    }

    /// Routers tell of segments that were too big, and are heard so long after.
    pub const fn set_icmp(&mut self, after: Option<Duration>) {
        self.icmp_after = after;
    }

    /// Each of netchan's connections is taken apart into its image and put together again at one of so many moments; 0: never.
    pub fn set_apart(&mut self, one_of: u64) {
        for (index, end) in self.ends.iter_mut().enumerate() {
            if let End::Netchan(end) = end {
                let seed = Dice::of(self.seed, 5000 + index as u64).next();
                end.set_apart(seed, one_of);
            }
        }
    }

    /// Panics after so many steps.
    pub const fn set_steps_max(&mut self, steps: u64) {
        self.steps_max = steps;
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// An end that is netchan's.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn end(&self, end: usize) -> &Endpoint {
        self.ends[end].netchan().expect("one of netchan's ends")
    }

    /// Netchan's ends, all there are in most worlds.
    pub fn ends(&self) -> impl Iterator<Item = &Endpoint> {
        self.ends.iter().filter_map(End::netchan)
    }

    /// Bytes that an end's application has read.
    #[must_use]
    pub fn read_bytes(&self, end: usize) -> u64 {
        match &self.ends[end] {
            End::Netchan(end) => end.read_bytes(),
            End::Smoltcp(peer) => peer.read_bytes(),
        }
    }

    /// When an end had read everything up to the peer's FIN.
    #[must_use]
    pub fn read_all_at(&self, end: usize) -> Option<Instant> {
        match &self.ends[end] {
            End::Netchan(end) => end.read_all_at(),
            End::Smoltcp(peer) => peer.read_all_at(),
        }
    }

    /// What became of a link's packets.
    #[must_use]
    pub fn link_counts(&self, link: usize) -> link::LinkCounts {
        *self.links[link].counts()
    }

    /// How the run went so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            digest: self.digest,
            delivered: (0..self.ends.len()).fold(0, |all, end| {
                let at = self.read_all_at(end).map_or(0, |at| at.0);
                let all = Dice::of(all, self.read_bytes(end)).next();
                Dice::of(all, at).next()
            }),
            steps: self.steps,
            lasted: self.now.since(START),
        }
    }

    /// Runs until `until`, or until nothing happens any more: then false.
    ///
    /// # Panics
    /// When an end does what it may not.
    pub fn run(&mut self, until: Instant) -> bool {
        self.arm_all();
        while let Some(at) = self.next() {
            if at > until {
                self.now = until;
                return true;
            }
            self.step();
        }
        self.now = self.now.max(until);
        false
    }

    /// When something happens next.
    fn next(&self) -> Option<Instant> {
        let actor = self.agenda.peek().map(|Reverse((at, _))| *at);
        let notice = self.notices.peek().map(|Reverse((at, _))| *at);
        match (actor, notice) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn arm_all(&mut self) {
        let most = of_end(self.ends.len()).max(of_link(self.links.len()));
        self.armed.resize(most + 1, Instant::FAR);
        (0..self.ends.len()).for_each(|end| self.arm(of_end(end)));
        (0..self.links.len()).for_each(|link| self.arm(of_link(link)));
    }

    /// Notes when `actor` acts next.
    fn arm(&mut self, actor: usize) {
        let at = if actor.is_multiple_of(2) {
            self.ends[actor / 2].next()
        } else {
            self.links[actor / 2].next()
        };
        let at = at.max(self.now);
        if at < self.armed[actor] {
            self.armed[actor] = at;
            self.agenda.push(Reverse((at, actor)));
        }
    }

    /// The next thing happens.
    fn step(&mut self) {
        self.steps += 1;
        assert!(
            self.steps < self.steps_max,
            "too many steps: an end talks without end"
        );
        let notice_at = self.notices.peek().map(|Reverse((at, _))| *at);
        let actor_at = self.agenda.peek().map(|Reverse((at, _))| *at);
        if let Some(at) = notice_at
            && actor_at.is_none_or(|actor| at <= actor)
        {
            self.now = self.now.max(at);
            if let Some(Reverse((_, notice))) = self.notices.pop() {
                self.notice(notice);
            }
            return;
        }
        let Some(Reverse((at, actor))) = self.agenda.pop() else {
            return;
        };
        if at != self.armed[actor] {
            return;
        }
        self.armed[actor] = Instant::FAR;
        self.now = self.now.max(at);
        if actor.is_multiple_of(2) {
            let end = actor / 2;
            let pool = &mut self.hosts[self.homes[end]].pool;
            match &mut self.ends[end] {
                End::Netchan(end) => end.wake(pool, self.now, &mut self.out),
                End::Smoltcp(peer) => peer.wake(self.now, &mut self.out),
            }
            self.send_off(end);
        } else {
            self.carry(actor / 2);
        }
        self.arm(actor);
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Change(index) => {
                let (link, shape) = self.changes[index];
                self.links[link].change(shape);
            }
            Notice::TooBig { end, mtu, seq } => {
                if let End::Netchan(end) = &mut self.ends[end] {
                    end.too_big(mtu, SeqNum(seq));
                }
                self.arm(of_end(end));
            }
        }
    }

    /// What arrived at a link's far end goes on, or is taken.
    fn carry(&mut self, link: usize) {
        while let Some(packet) = self.links[link].poll(self.now) {
            let Travelling { segment, from, hop } = packet.body;
            if let Some(&next) = self.routes[from].get(hop + 1) {
                self.enter(next, segment, packet.ecn, from, hop + 1);
                continue;
            }
            let to = from ^ 1;
            let segment = Segment {
                ecn: packet.ecn,
                ..segment
            };
            let pool = &mut self.hosts[self.homes[to]].pool;
            match &mut self.ends[to] {
                End::Netchan(end) => end.receive(&segment, pool, self.now, &mut self.out),
                End::Smoltcp(peer) => peer.receive(&segment, self.now, &mut self.out),
            }
            self.send_off(to);
            self.arm(of_end(to));
        }
    }

    /// What an end sent goes onto its first link.
    fn send_off(&mut self, from: usize) {
        let mut out = std::mem::take(&mut self.out);
        for segment in out.drain(..) {
            self.note(from, &segment);
            let link = self.routes[from][0];
            self.enter(link, segment, segment.ecn, from, 0);
        }
        self.out = out;
    }

    fn enter(
        &mut self,
        link: usize,
        segment: Segment,
        ecn: proto::ip::Ecn,
        from: usize,
        hop: usize,
    ) {
        let packet = Packet {
            size: segment.size(),
            ecn,
            body: Travelling { segment, from, hop },
        };
        let sent = self.links[link].send(packet, self.now);
        self.arm(of_link(link));
        if let (Err(too_big), Some(after)) = (sent, self.icmp_after) {
            let notice = Notice::TooBig {
                end: from,
                mtu: too_big.mtu,
                seq: segment.header.seq.0,
            };
            self.notices.push(Reverse((self.now + after, notice)));
        }
    }

    /// Everything that was ever sent is in the digest.
    fn note(&mut self, from: usize, segment: &Segment) {
        let header = &segment.header;
        let words = [
            self.now.0,
            from as u64,
            u64::from(header.seq.0) << 32 | u64::from(header.ack.0),
            u64::from(segment.text.len) << 32 | u64::from(header.flags.0) << 16,
            u64::from(header.window),
        ];
        let stamps = header.options.timestamps.unwrap_or_default();
        let stamps = [stamps.value, stamps.echo].map(u64::from);
        let blocks = header.options.sack.as_slice().iter();
        let blocks = blocks.map(|(left, right)| u64::from(left.0) << 32 | u64::from(right.0));
        for word in words.into_iter().chain(stamps).chain(blocks) {
            self.digest = Dice::of(self.digest, word).next();
        }
        if self.trace {
            eprintln!(
                "{:>12.3} ms {from}: seq {} ack {} len {}{} win {} {:?}",
                self.now.since(START).as_secs_f64() * 1e3,
                header.seq.0,
                header.ack.0,
                segment.text.len,
                names(header.flags),
                header.window,
                header.options.sack.as_slice()
            );
        }
    }

    /// Panics unless every host has all its memory back but for what its ends hold.
    ///
    /// # Panics
    /// See above.
    pub fn check_memory(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            let held = |end: usize| self.ends[end].netchan().map_or(0, Endpoint::segments_held);
            let ends = (0..self.ends.len()).filter(|&end| self.homes[end] == index);
            let held: u32 = ends.map(held).sum();
            let free = host.pool.available();
            assert_eq!(free + held, host.segments, "host {index}: nodes lost");
        }
    }
}

/// The flags that tell something.
fn names(flags: Flags) -> String {
    let all = [
        (Flags::SYN, " SYN"),
        (Flags::FIN, " FIN"),
        (Flags::RST, " RST"),
        (Flags::PSH, " PSH"),
        (Flags::URG, " URG"),
        (Flags::ECE, " ECE"),
        (Flags::CWR, " CWR"),
        (Flags::AE, " AE"),
    ];
    let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests;
