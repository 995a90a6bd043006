//! The shard: protocol state that one holder at a time touches through `&mut`. Inside there are no locks and no atomics.
//! It knows nothing of regimes: packets come in by [`Shard::receive_batch`] and leave by its outboxes.

mod behind;
mod bound;
mod check;
mod defaults;
mod fast_open;
mod group;
mod icmp;
mod listen;
mod live;
mod memory;
mod packets;
mod path;
mod peers;
mod ports;
#[cfg(test)]
mod pressure_tests;
mod receive_batch;
mod samples;
mod send_queue;
mod shares;
mod signed;
mod table;
mod tcp;
#[cfg(test)]
mod tests;
mod time_wait;
mod timer;
mod told;
mod udp;
mod wakers;

use std::{collections::VecDeque, io, net::IpAddr, sync::Arc, task::Waker};

use hashbrown::HashTable;
pub use netchan_base::shelf::Shelf;
use percore::slab::Slab;
use proto::{
    icmp::limit::{self, Limiter},
    ip::{ident, path_mtu},
    tcp::{AoIds, SegmentPool},
    time::Instant,
    wire::{icmpv4, icmpv6, ipv4::Protocol},
};

pub use self::{
    bound::Binding,
    defaults::{RECEIVE_BUFFER_MIN, TcpOverrides},
    fast_open::FastOpenOptions,
    listen::{Listener, Parts},
    packets::{PacketFields, Path},
    ports::Reuse,
    receive_batch::ReceiveBatch,
    send_queue::SendLease,
    signed::{AoSettings, Auth, Keys, Network},
    tcp::{Connect, Movable, TcpOptions, TcpSocket, Watermarks},
    udp::{Destination, Echo, RouteCache, Stamped, Together, UdpSocket},
};
use self::{
    bound::Lookup,
    defaults::Defaults,
    fast_open::FastOpens,
    memory::Memory,
    peers::Peers,
    ports::Ports,
    samples::Samples,
    send_queue::SendMemory,
    table::Table,
    time_wait::{TimeWaits, Waiting},
    timer::Wheel,
};
use crate::{
    channel::Request,
    counters::{Counter, Counters},
    driver::{
        host::{Host, HostView},
        network::{InterfaceFacts, Network as Networks},
    },
    emit,
    flow::{FlowKey, Tuple},
    limits::{self, Room},
    link::{IP_MAX, Segmentation},
    memory::Account,
    packet::{Course, HEADROOM, Packet},
    tap, trace,
};

/// Bytes of a buffer for text that leaves uncut.
const BURST_BUFFER: usize = emit::buffer_for(IP_MAX).next_multiple_of(64);

/// What a shard is made with.
pub struct ShardSettings {
    /// Its number, and its slot among the counters.
    pub number: usize,
    /// How many shards there are: local ports of connections are chosen so that steering by hash finds the shard.
    pub shards: usize,
    /// Facts of the stack.
    pub host: Arc<Host>,
    /// Where it counts.
    pub counters: Arc<Counters>,
    /// Whether the classifier wants to know its flows.
    pub leases: bool,
    /// Received packets that its connections may hold together in the buffers in which they came.
    pub segments: usize,
    /// What sockets of TCP and of UDP may hold, in all shards together.
    pub memory: [Arc<Account>; 2],
    /// What else it has room for.
    pub room: Room,
}

/// Protocol state under one holder.
pub struct Shard {
    number: usize,
    shards: usize,
    /// The latest time that it has seen.
    latest: Instant,
    host: HostView,
    defaults: Defaults,
    counters: Arc<Counters>,
    slab: Slab,
    /// Buffers for text that leaves uncut, if a link takes it so.
    bursts: Option<Slab>,
    /// Nodes for received segments of all connections.
    pool: SegmentPool<Packet>,
    /// From a flow's hash to a connection, or to a TIME-WAIT record (see `time_wait`).
    flows: HashTable<u32>,
    tcp: Table<TcpSocket>,
    /// The connection whose segment came last: where the next one is looked for first.
    recent: u32,
    /// Counts those that became readable (`tcp::CameBy`).
    arrivals: u32,
    time_waits: TimeWaits,
    listeners: Table<Listener>,
    udp: Table<UdpSocket>,
    lookup: Lookup,
    mail: group::GroupMail,
    timers: Wheel,
    fast_opens: FastOpens,
    peers: Peers,
    /// Where the last datagram went.
    pub udp_route: RouteCache,
    send_memory: SendMemory,
    memory: Memory,
    /// Connections that may have something to send.
    dirty: Vec<u32>,
    /// Packets to send, for each interface.
    pub(crate) outboxes: Vec<VecDeque<Packet>>,
    /// What the classifier shall know.
    pub(crate) requests: VecDeque<Request>,
    /// To be woken once the holder has let go.
    pub(crate) woken: Vec<Waker>,
    /// Packets of connections that live in another shard now, with its number: for the holder, once it has let go.
    pub(crate) passed: Vec<(usize, Packet)>,
    /// Turns at whose end the invariants were to be checked.
    checked: usize,
    leases: bool,
    /// Connections may have pipes to other leases.
    has_pipes: bool,
    /// No link is left.
    all_gone: bool,
    /// A listener had keys once.
    keyed: bool,
    /// The key ids of the segment for no connection that is being taken.
    asked: Option<AoIds>,
    segments: usize,
    /// UDP sockets that found no buffers to send from.
    udp_waiting: VecDeque<u32>,
    /// Those packet channels, and for how many buffers.
    packet_senders: packets::Senders,
    /// Datagrams that wait in all UDP sockets together.
    udp_queued: usize,
    ports: Ports,
    /// Limits ICMP errors, and resets to what belongs to no socket.
    errors: Limiter,
    resets: Limiter,
    idents: ident::Generator,
    /// What ICMP said to connections of the paths to hosts.
    paths: path_mtu::Cache,
    /// Where a datagram longer than the MTU is built.
    datagram: Vec<u8>,
    /// The first packet of a datagram that is to be shown with its time stamps, as a frame.
    kept: Vec<u8>,
    stamped: Option<Stamped>,
    /// Packets that are timed.
    pub(crate) samples: Samples,
    /// Taps that look at what it takes, sends and drops.
    taps: tap::Point,
}

/// How many buffers to send from: fewer where each is large.
const fn transmit_buffers(room: &Room, mtu: usize) -> usize {
    if mtu > 9000 {
        room.transmit_large
    } else {
        room.transmit
    }
}

/// What it sends from: ordinary buffers and, where a link or the short cut to ourselves takes uncut text, large ones; how many the ordinary ones
/// are.
fn transmit_slabs(host: &HostView, room: &Room) -> io::Result<(Slab, Option<Slab>, usize)> {
    let mtu = host
        .net
        .interfaces
        .iter()
        .map(|i| i.mtu)
        .max()
        .unwrap_or(1500);
    let buffers = transmit_buffers(room, mtu);
    let size = (HEADROOM + mtu).next_multiple_of(64);
    let slab = Slab::with_ready(buffers, size, room.ready)?;
    let takes_bursts = |i: &InterfaceFacts| i.segmentation != Segmentation::None;
    let bursts = (host.net.lo().is_some() || host.net.interfaces.iter().any(takes_bursts))
        .then(|| Slab::with_ready(limits::BURST_SLAB, BURST_BUFFER, 1))
        .transpose()?;
    Ok((slab, bursts, buffers))
}

/// A place for each interface's packets to send; no more wait there than there are buffers.
fn outboxes(host: &HostView, buffers: usize) -> Vec<VecDeque<Packet>> {
    let outbox = |_| VecDeque::with_capacity(buffers + limits::BURST_SLAB);
    host.net.interfaces.iter().map(outbox).collect()
}

/// Bytes, rather more than there are, that tables have for each connection beside itself, and for each received segment.
const PER_CONNECTION: usize = 512;
const PER_SEGMENT: usize = 256;
/// And for all else.
const TABLES: usize = 8 << 20;

/// A packet's addresses, read once.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    source: IpAddr,
    destination: IpAddr,
}

/// What a connection takes.
const EACH: usize = size_of::<TcpSocket>() + PER_CONNECTION;

impl Shard {
    /// A turn begins: by the networks as they are now. At `now`, or the time of an earlier turn where that was later: its holders look at the
    /// clock before they hold it.
    #[inline(always)]
    pub(crate) fn no_earlier(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.taps.refresh();
        if let Some(before) = self.host.refresh() {
            self.live_changed(&before);
        }
        self.latest
    }

    /// Makes a shard; reserves all its memory.
    ///
    /// # Errors
    /// When the machine has no memory for its slab.
    pub fn new(settings: ShardSettings, now: Instant) -> io::Result<Self> {
        let ShardSettings {
            number,
            shards,
            host,
            counters,
            leases,
            segments,
            memory,
            room,
        } = settings;
        let host = host.view();
        let (slab, bursts, buffers) = transmit_slabs(&host, &room)?;
        let seed = host.seed.derive(number as u64 + 1000);
        let mut pool = Shelf::new(segments, room.shelf, room.connections)?.pool();
        crate::memory::probe(room.connections * EACH + segments * PER_SEGMENT + TABLES)?;
        let defaults = Defaults::new(&host.tcp);
        let largest = (defaults.config.receive_buffer).max(defaults.config.receive_buffer_max);
        let shares = (shards, seed.derive(5));
        Ok(Self {
            number,
            shards,
            latest: now,
            slab,
            bursts,
            memory: Memory::new(memory, number, &mut pool, room.connections, largest, shares),
            segments: pool.available() as usize,
            pool,
            flows: HashTable::with_capacity(room.connections.min(limits::FLOWS_AT_FIRST)),
            tcp: Table::with_capacity(room.connections),
            recent: 0,
            arrivals: 0,
            time_waits: TimeWaits::new(room.connections),
            listeners: Table::with_capacity(limits::LISTENERS_PER_SHARD),
            udp: Table::with_capacity(limits::UDP_SOCKETS_PER_SHARD),
            lookup: Lookup::default(),
            mail: group::GroupMail::default(),
            timers: Wheel::new(room.connections, now),
            fast_opens: FastOpens::default(),
            peers: Peers::new(),
            udp_route: RouteCache::default(),
            send_memory: SendMemory::new(host.send_buffer, room.send_buffers)?,
            dirty: Vec::with_capacity(room.connections),
            outboxes: outboxes(&host, buffers),
            requests: VecDeque::with_capacity(64),
            woken: Vec::with_capacity(64),
            passed: Vec::new(),
            checked: 0,
            leases,
            has_pipes: host.net.interfaces.iter().any(|i| i.pipes.is_some()),
            all_gone: false,
            keyed: false,
            asked: None,
            udp_waiting: VecDeque::with_capacity(limits::UDP_SOCKETS_PER_SHARD),
            packet_senders: packets::Senders::default(),
            udp_queued: 0,
            ports: Ports::new(),
            errors: Limiter::new(limit::Config::default(), seed.derive(1)),
            resets: Limiter::new(limits::RESETS, seed.derive(2)),
            idents: ident::Generator::new(seed.derive(3)),
            paths: path_mtu::Cache::new(limits::PATHS, seed.derive(4)),
            datagram: Vec::with_capacity(1 << 16),
            kept: Vec::new(),
            stamped: None,
            samples: Samples::new(number),
            taps: host.taps.point(tap::Place::Shard(number), number),
            host,
            defaults,
            counters,
        })
    }

    /// The networks as they were at the beginning of the turn.
    #[inline]
    pub fn network(&self) -> &Networks {
        &self.host.net
    }

    /// Its number.
    #[inline]
    pub const fn number(&self) -> usize {
        self.number
    }

    #[inline]
    pub fn count(&self, counter: Counter) {
        if counter.is_drop() {
            let (shard, reason) = (self.number as u64, counter as u64);
            trace::note(trace::SHARD_DROP, [shard, reason]);
            self.taps.note_drop(counter);
        }
        self.counters.add(self.number, counter, 1);
    }

    /// Whether a tap looks at what it takes, sends or drops.
    #[inline(always)]
    pub const fn is_watched(&self) -> bool {
        self.taps.has_taps()
    }

    /// Whether a tap looks at what it sends, or asks which frames are its own.
    #[inline(always)]
    pub const fn shows_outgoing(&self) -> bool {
        self.taps.has_taps() || self.taps.asks()
    }

    /// Shows the taps what is in the outboxes, which leaves right behind: a link takes or queues all, and a channel has room for all packets of a shard.
    #[cold]
    #[inline(never)]
    pub fn show_outgoing(&mut self, now: Instant) {
        let (is_seen, asks) = (self.taps.has_taps(), self.taps.asks());
        let own = u8::try_from(self.number).ok().filter(|_| asks);
        for (link, outbox) in (0..).zip(&mut self.outboxes) {
            for packet in outbox {
                if let Some(own) = own {
                    packet.meta.set_sender(own);
                }
                if is_seen {
                    self.taps.pass(packet, (link, tap::Way::Out), now);
                }
            }
        }
    }

    /// Makes it ready for packets.
    #[inline]
    pub const fn receive_batch(&mut self, now: Instant) -> ReceiveBatch<'_> {
        ReceiveBatch::new(self, now)
    }

    #[inline(never)]
    fn input_other(&mut self, packet: Packet, now: Instant) {
        let Some(addresses) = read_addresses(&packet) else {
            return self.count(Counter::DropIpHeader);
        };
        match packet.meta.course {
            Course::RETURNED => return self.undeliverable(packet, now),
            Course::BESIDE | Course::IN_VAIN => return self.tcp_told(packet, now),
            _ => {}
        }
        match packet.meta.protocol {
            Protocol::UDP => self.udp_input(packet, addresses, now),
            _ if is_echo_reply(&packet) => self.ping_input(packet, addresses, now),
            _ => self.icmp_input(packet, addresses, now),
        }
    }

    /// Serves timers that are due; of many only some: the rest stays due, and packets and socket calls have their turn in between.
    #[inline]
    pub fn run_timers(&mut self, now: Instant) {
        if self.timers.next() <= now {
            for _ in 0..limits::TIMERS_A_TURN {
                let Some(number) = self.timers.expire(now) else {
                    break;
                };
                self.tcp_timer(number, now);
            }
        }
        self.expire_time_waits(now);
    }

    /// Sends what connections have to send. Call after input, timers and socket calls, before letting go.
    #[inline]
    pub fn finish(&mut self, now: Instant) {
        if !self.dirty.is_empty() {
            self.finish_dirty(now);
        }
        if !self.udp_waiting.is_empty() {
            self.udp_wake_senders();
        }
    }

    /// Whether there are packets in the outboxes.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.outboxes.iter().any(|outbox| !outbox.is_empty()) || !self.requests.is_empty()
    }

    #[inline(never)]
    fn finish_dirty(&mut self, now: Instant) {
        // Connections that find no transmit buffer are put back at the end of `dirty`; each is tried once.
        let count = self.dirty.len();
        for at in 0..count {
            if let Some(&number) = self.dirty.get(at) {
                self.tcp_output(number, now);
            }
        }
        if count == self.dirty.len() {
            self.dirty.clear();
        } else {
            self.dirty.drain(..count);
        }
    }

    /// Whether [`Self::run_timers`] has something to do.
    #[inline]
    pub fn timers_are_due(&self, now: Instant) -> bool {
        self.timers.next() <= now || self.time_waits.next() <= now
    }

    /// When [`Self::run_timers`] has something to do; [`Instant::FAR`] if never. At once while output waits for buffers.
    #[inline]
    pub fn next_timer(&self, now: Instant) -> Instant {
        let retry = if self.dirty.is_empty() && self.udp_waiting.is_empty() {
            Instant::FAR
        } else {
            now + limits::BUFFER_RETRY
        };
        self.timers.next().min(self.time_waits.next()).min(retry)
    }

    /// Transmit buffers: free, all, bytes of each.
    pub fn buffers(&mut self) -> (usize, usize, usize) {
        (
            self.slab.available(),
            self.slab.capacity(),
            self.slab.buffer_size(),
        )
    }

    /// Places for received packets that fill little of their buffers, by size: free, all, bytes of each.
    pub fn shelf(&self) -> [(usize, usize, usize); 3] {
        self.pool.shelf().rows()
    }

    /// Nodes of received segments: free and all.
    pub const fn segment_nodes(&self) -> (usize, usize) {
        (self.pool.available() as usize, self.segments)
    }

    /// TIME-WAIT records.
    pub fn time_waits(&self) -> impl Iterator<Item = &Waiting> {
        self.time_waits.iter()
    }

    /// Says how many sockets live here, where that decides which shard the next one gets.
    pub fn publish_load(&self) {
        if let Some(assignment) = &self.host.assignment {
            assignment.publish(self.number, self.tcp.len() + self.udp.len());
        }
    }

    /// The other shard in which the connection of a flow lives that was not found here.
    #[inline]
    fn moved_to(&self, hash: u32, key: &FlowKey) -> Option<usize> {
        let shard = self.host.moved.shard_of(hash, key);
        shard.filter(|&shard| shard != self.number)
    }

    /// A packet is another shard's: its holder takes it there.
    fn pass_on(&mut self, shard: usize, packet: Packet) {
        self.count(Counter::TcpPassedOn);
        self.passed.push((shard, packet));
    }

    /// A flow ends.
    fn flow_ends(&mut self, hash: u32, key: &FlowKey) {
        self.host.moved.remove(hash, key);
        self.request(Request::Remove, key);
    }

    /// Tells the classifier of a flow, where it wants to know.
    fn request(&mut self, request: fn(u64) -> Request, key: &FlowKey) {
        if self.leases {
            let hash = self.host.flow_hash.hash(key);
            self.requests.push_back(request(hash));
        }
    }

    /// The number of the connection or TIME-WAIT record of a flow.
    fn find(&self, hash: u32, key: &FlowKey) -> Option<u32> {
        self.find_tuple(hash, &Tuple::of_key(key))
    }

    /// The same for the flow that a packet names.
    #[inline]
    fn find_tuple(&self, hash: u32, tuple: &Tuple) -> Option<u32> {
        let (tcp, waits) = (&self.tcp, &self.time_waits);
        let same = |&number: &u32| match time_wait::split(number) {
            Ok(number) => tcp.get(number).is_some_and(|s| s.tuple() == tuple),
            Err(number) => waits
                .get(number)
                .is_some_and(|w| Tuple::of_key(&w.key) == *tuple),
        };
        self.flows.find(widen(hash), same).copied()
    }

    fn insert_flow(&mut self, hash: u32, number: u32) {
        let (tcp, waits) = (&self.tcp, &self.time_waits);
        self.flows.insert_unique(widen(hash), number, |&number| {
            match time_wait::split(number) {
                Ok(number) => tcp.get(number).map_or(0, |s| widen(s.hash)),
                Err(number) => waits.get(number).map_or(0, |w| widen(w.hash)),
            }
        });
        self.publish_load();
    }

    fn remove_flow(&mut self, hash: u32, number: u32) {
        if let Ok(entry) = self.flows.find_entry(widen(hash), |&n| n == number) {
            entry.remove();
        }
    }
}

/// The table takes 64 bits and looks at the top ones, too.
#[inline]
const fn widen(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether an ICMP message for this shard is for a ping socket; if not it is an error.
fn is_echo_reply(packet: &Packet) -> bool {
    let kind = packet.bytes().get(usize::from(packet.meta.upper));
    match packet.meta.protocol {
        Protocol::ICMP => kind == Some(&icmpv4::ECHO_REPLY),
        _ => kind == Some(&icmpv6::ECHO_REPLY),
    }
}

/// Reads the addresses that `steer` has checked already.
#[inline]
fn read_addresses(packet: &Packet) -> Option<Addresses> {
    let bytes = packet.bytes();
    if bytes.first()? >> 4 == 4 {
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *bytes.get(12..20)?.first_chunk::<8>()?;
        Some(Addresses {
            source: [s0, s1, s2, s3].into(),
            destination: [d0, d1, d2, d3].into(),
        })
    } else {
        let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
        let destination = rest.first_chunk::<16>()?;
        Some(Addresses {
            source: (*source).into(),
            destination: (*destination).into(),
        })
    }
}
