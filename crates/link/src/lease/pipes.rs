//! Text of connections between two leases, past TCP and past packets: by pipes in memory that both map (`docs/decisions/0024-pipes.md`).
//!
//! TCP opens a connection, and closes it; between the two its text goes by a pipe in each direction, where both sides have agreed on one. The side that
//! opened the connection offers them ([`PipeTable::offer`]), its peer accepts ([`PipeTable::accept`]). What a pipe has for a connection the receiving half
//! of the lease's queue finds, and tells with a packet that was never sent ([`Course::BESIDE`](netchan_base::packet::Course::BESIDE)).
//!
//! Nothing that the peer says is believed: a stream that it offers has to be a connection of one of its ports, and both have to know what its sequence
//! numbers began with.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use netchan_base::locks;
use percore::{
    edge::{Bell, Notice},
    lock::{Mutex, mutex},
    pipe::{End, LOG, Label, Look, Pipes},
};

use super::{Holding, Transport};

/// The bit of the edge's notice that holds short cuts back; the rest counts the news.
pub(super) const HELD: u32 = 1;

/// A connection, as both its ends know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The first sequence number of what we send (RFC 9293 §3.3.1).
    pub iss: u32,
    /// That of what the peer sends.
    pub irs: u32,
}

impl Stream {
    /// The same as the peer has it.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
            iss: self.irs,
            irs: self.iss,
        }
    }

    /// As a label: two addresses (of IPv4: mapped), two ports, two sequence numbers, and whether it is of IPv4; the rest is 0.
    fn label(&self) -> Label {
        let mut label = [0; size_of::<Label>()];
        let ip = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let bytes = ip(&self.local)
            .into_iter()
            .chain(ip(&self.remote))
            .chain(self.local.port().to_be_bytes())
            .chain(self.remote.port().to_be_bytes())
            .chain(self.iss.to_be_bytes())
            .chain(self.irs.to_be_bytes())
            .chain([u8::from(self.local.is_ipv4())]);
        label.iter_mut().zip(bytes).for_each(|(l, byte)| *l = byte);
        label
    }

    /// Of a label. `None`: it says something else.
    fn of(label: &Label) -> Option<Self> {
        let (local, rest) = label.split_first_chunk::<16>()?;
        let (remote, rest) = rest.split_first_chunk::<16>()?;
        let (&[l0, l1, r0, r1], rest) = rest.split_first_chunk::<4>()?;
        let (&iss, rest) = rest.split_first_chunk::<4>()?;
        let (&irs, rest) = rest.split_first_chunk::<4>()?;
        let is_v4 = match rest.first()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let ip = |octets: &[u8; 16]| {
            let ip = Ipv6Addr::from(*octets);
            match is_v4 {
                true => ip.to_ipv4_mapped().map(IpAddr::V4),
                false => Some(IpAddr::V6(ip)),
            }
        };
        Some(Self {
            local: (ip(local)?, u16::from_be_bytes([l0, l1])).into(),
            remote: (ip(remote)?, u16::from_be_bytes([r0, r1])).into(),
            iss: u32::from_be_bytes(iss),
            irs: u32::from_be_bytes(irs),
        })
    }
}

/// The leases to which a lease's connections can have pipes.
pub struct PipeTable {
    /// How often there was another one; wraps.
    epoch: AtomicU32,
    /// The lender's word, once the lease is in use.
    notice: OnceLock<Notice>,
    /// Something of our own has to see each packet.
    is_watched: AtomicBool,
    peers: Mutex<Vec<Arc<PipePeer>>>,
}

impl fmt::Debug for PipeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipeTable {{ epoch {} }}", self.epoch())
    }
}

impl PipeTable {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: AtomicU32::new(0),
            notice: OnceLock::new(),
            is_watched: AtomicBool::new(false),
            peers: mutex(&locks::LEASE_PIPES, Vec::new()),
        })
    }

    /// The lease is in use: what the lender says there counts.
    pub(super) fn open(&self, notice: Notice) {
        let _ = self.notice.set(notice); // once, as a queue is made once
    }

    /// Counts what may let a connection have pipes that has none: another lease, or that they are no longer held back. 0: there was nothing yet.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed) // a hint: an offer looks at the peers
    }

    /// Something else than before may be possible for connections that have no pipes.
    pub(super) fn changed(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    pub(super) fn add(&self, peer: Arc<PipePeer>) {
        peer.pipes.hold(self.is_watched());
        self.peers.lock().push(peer);
        self.changed();
    }

    pub(super) fn remove(&self, pair: u64) {
        self.peers.lock().retain(|peer| peer.pair != pair);
    }

    /// Something of our own has to see each packet from now on, or no longer: the peers send in packets meanwhile.
    pub fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Relaxed); // the peers are told by words of their own
        for peer in self.peers.lock().iter() {
            peer.pipes.hold(is_watched);
            peer.tell(None);
        }
        if !is_watched {
            self.changed();
        }
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// Whether text has to go in packets: the lender or something of our own has to see them.
    #[inline]
    pub fn is_held(&self) -> bool {
        let is_held = |notice: &Notice| notice.get() & HELD != 0;
        self.is_watched() || self.notice.get().is_some_and(is_held)
    }

    /// Offers pipes for a connection that this side opened. `None`: there is no short cut to its peer, all pipes are in use, or text has to go in packets.
    pub fn offer(&self, stream: &Stream) -> Option<Pipe> {
        if self.is_held() {
            return None;
        }
        let peer = self.peers.lock().iter().find(|p| p.has(stream)).cloned()?;
        let end = peer.pipes.offer(&stream.label())?;
        Some(peer.begin(*stream, end))
    }

    /// Accepts the pipes that a peer has offered for a connection. `None`: it has not.
    pub fn accept(&self, stream: &Stream) -> Option<Pipe> {
        let peers = self.peers.lock();
        let (peer, end) = peers.iter().find_map(|peer| {
            let (slot, generation) = peer.offered(stream)?;
            Some((peer.clone(), peer.pipes.accept(slot, generation)?))
        })?;
        drop(peers);
        Some(peer.begin(*stream, end))
    }
}

/// One lease to which connections can have pipes.
pub struct PipePeer {
    pair: u64,
    pipes: Arc<Pipes>,
    /// Wakes its receiving half.
    bell: Arc<Bell>,
    streams: Mutex<Streams>,
}

impl fmt::Debug for PipePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipePeer {{ pair {}, {:?} }}", self.pair, self.pipes)
    }
}

#[derive(Debug, Default)]
struct Streams {
    /// What the peer may send from, and what is sent to it.
    ports: Holding,
    /// Those that have pipes here.
    all: Vec<Piped>,
    /// Those that the peer offers, in which slot and how often that was.
    offers: Vec<(u32, u32, Stream)>,
    /// The peer's count of offers at the last look.
    seen: u32,
    /// One has begun since: a post about it may have been told before it was among these.
    has_new: bool,
}

/// A stream with pipes, and what of it was seen at the last look.
#[derive(Debug)]
struct Piped {
    slot: u32,
    stream: Stream,
    seen: Look,
}

impl PipePeer {
    pub(super) fn new(pair: u64, pipes: Pipes, bell: Arc<Bell>, ports: Holding) -> Arc<Self> {
        let streams = Streams {
            ports,
            ..Streams::default()
        };
        Arc::new(Self {
            pair,
            pipes: Arc::new(pipes),
            bell,
            streams: mutex(&locks::LEASE_STREAMS, streams),
        })
    }

    /// The peer's ports are these now.
    pub(super) fn set_ports(&self, ports: Holding) {
        self.streams.lock().ports = ports;
    }

    /// Has the peer look at a slot; `None`: at all.
    #[inline]
    fn tell(&self, slot: Option<u32>) {
        self.pipes.post(slot);
        self.bell.ring();
    }

    /// Whether the peer has the stream's other end.
    fn has(&self, stream: &Stream) -> bool {
        let streams = self.streams.lock();
        streams.ports.has(Transport::Tcp, stream.remote)
    }

    /// Where the peer offers a stream, if it does.
    fn offered(&self, stream: &Stream) -> Option<(u32, u32)> {
        let offers = &mut self.streams.lock().offers;
        let place = offers.iter().position(|(_, _, other)| other == stream)?;
        let (slot, generation, _) = offers.swap_remove(place);
        Some((slot, generation))
    }

    fn begin(self: &Arc<Self>, stream: Stream, end: End) -> Pipe {
        let slot = end.slot();
        // All that the peer has done with it is news.
        let mut streams = self.streams.lock();
        streams.all.push(Piped {
            slot,
            stream,
            seen: Look::default(),
        });
        streams.has_new = true;
        drop(streams);
        self.tell(None); // offers, too, are looked for then
        let listed = Listed {
            peer: self.clone(),
            slot,
        };
        Pipe { listed, end }
    }

    /// How often the peer had something to say; wraps. Another number than at the last look: [`look`](Self::look).
    #[inline]
    pub(super) fn posts(&self) -> u32 {
        self.pipes.posts()
    }

    /// Names each connection for which the peer has something new, by its ends: those that its posts from `since` to `until` were about, in the order of these.
    /// What one writes to several connections is heard of in that order, as from a kernel's loopback.
    #[cold]
    pub(super) fn look(
        &self,
        (since, until): (u32, u32),
        mut tell: impl FnMut((SocketAddr, SocketAddr)),
    ) {
        let mut streams = self.streams.lock();
        let mut look = |piped: &mut Piped| {
            if let Some(now) = self.pipes.look(piped.slot, &piped.seen) {
                piped.seen = now;
                tell((piped.stream.local, piped.stream.remote));
            }
        };
        let posts = until.wrapping_sub(since);
        let known = if posts <= LOG { posts } else { 0 };
        let mut is_told = known == posts;
        for n in 1..=known {
            let slot = self.pipes.posted(since.wrapping_add(n));
            is_told &= slot.is_some();
            let mut all = streams.all.iter_mut();
            all.find(|piped| Some(piped.slot) == slot).map(&mut look);
        }
        if std::mem::take(&mut streams.has_new) || !is_told {
            streams.all.iter_mut().for_each(look);
        }
        let offers = self.pipes.offers();
        if streams.seen == offers {
            return;
        }
        streams.seen = offers;
        streams.offers.clear();
        for slot in self.pipes.far_slots() {
            let Some((generation, label)) = self.pipes.offered(slot) else {
                continue;
            };
            // Ours as the peer has it. Only a connection of one of its own ports.
            let stream = Stream::of(&label).map(Stream::mirrored);
            let is_its_own = |s: &Stream| streams.ports.has(Transport::Tcp, s.remote);
            if let Some(stream) = stream.filter(is_its_own) {
                streams.offers.push((slot, generation, stream));
                tell((stream.local, stream.remote));
            }
        }
    }
}

/// A connection's end of its pipes. Dropped, it lets go of them; what it has sent can still be read.
#[derive(Debug)]
pub struct Pipe {
    /// First: the slot may be another stream's as soon as the end is gone.
    listed: Listed,
    /// The rings' ends. [`tell`](Self::tell) is to follow what the peer has to know.
    pub end: End,
}

impl Pipe {
    /// Tells the peer that something was done, and wakes it if it sleeps.
    #[inline]
    pub fn tell(&self) {
        self.listed.peer.tell(Some(self.listed.slot));
    }

    /// Lets go of it, and tells the peer.
    pub fn close(self) {
        let (peer, slot) = (self.listed.peer.clone(), self.listed.slot);
        drop(self);
        peer.tell(Some(slot));
    }

    /// Whether the peer asks for packets.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.listed.peer.pipes.is_held()
    }
}

/// A stream's place among those that are looked at.
#[derive(Debug)]
struct Listed {
    peer: Arc<PipePeer>,
    slot: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let all = &mut self.peer.streams.lock().all;
        if let Some(place) = all.iter().position(|piped| piped.slot == self.slot) {
            all.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        for (local, remote) in [
            ("10.0.0.1:80", "10.0.0.2:40000"),
            ("[fd00::1]:80", "[::ffff:1.2.3.4]:9"),
        ] {
            let stream = Stream {
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                iss: 0x8000_0001,
                irs: 7,
            };
            assert_eq!(Stream::of(&stream.label()), Some(stream));
            let back = stream.mirrored();
            assert_eq!((back.iss, back.remote), (7, stream.local));
            assert_eq!(back.mirrored(), stream);
        }
    }

    #[test]
    fn labels_that_say_something_else_are_none() {
        let mut label = [0; size_of::<Label>()];
        assert!(Stream::of(&label).is_some(), "of IPv6");
        label[44] = 1;
        assert_eq!(Stream::of(&label), None, "no mapped addresses");
        label[44] = 2;
        assert_eq!(Stream::of(&label), None);
    }
}
