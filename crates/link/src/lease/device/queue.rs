//! The queue of a lease: a line to the lender, and those to other leases past it. IP packets get a frame header here, and lose it; other frames keep theirs,
//! and cross between lender and application only.
//!
//! The lender is believed to hand over this program's packets, and nothing else. Of other leases nothing is believed.

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    os::fd::BorrowedFd,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use netchan_base::{
    descriptor::{CHECKSUM_VERIFIED, Descriptor, FRAME, TO_MANY, Writer},
    packet::{Course, Flag, Packet},
};
use percore::{
    doorbell::several::Several,
    edge::Side,
    own::Own,
    slab::{BorrowedSlab, Slab},
};
use proto::{
    time::Instant,
    wire::{
        checksum::Partial,
        ethernet::{EtherType, MacAddr},
        ipv4::{self, Protocol},
        ipv6, tcp,
    },
};

use super::{
    Back, Item, LENDER,
    line::{self, Inlet, NotSent, Outlet},
    peers::{Flow, Incoming, Intake, Outgoing, Shared},
};
use crate::{
    BURST, HEADER_MIN, LinkError, LinkRx, LinkTx, Queue, RxStatistics, TxStatistics,
    lease::client::Leased,
};

/// What a queue is made of, beside its side of the edge.
pub(super) struct Parts {
    /// The link's address.
    pub mac: MacAddr,
    pub mtu: usize,
    pub leased: Arc<Leased>,
    pub inward: BorrowedSlab,
    pub outward: BorrowedSlab,
    /// Where the lender tells of short cuts.
    pub news: Own,
}

/// The queue over a side that nothing has used yet.
///
/// # Errors
/// The system's: no descriptors are left.
pub(super) fn of(side: Side<Item, Back>, parts: Parts) -> io::Result<Queue> {
    let (inlet, outlet, notice) = line::of(side, parts.inward, parts.outward, Writer::Owner);
    parts.leased.pipes.open(notice.clone());
    let shared = Arc::new(Shared::new(notice, parts.news));
    let mut header = [0; HEADER_MIN];
    let addresses = parts.mac.0.into_iter().chain(LENDER.0);
    header.iter_mut().zip(addresses).for_each(|(h, a)| *h = a);
    let peers = Incoming::new(shared.clone(), &parts.leased, parts.mtu, &inlet)?;
    let rx = Rx {
        lender: inlet,
        peers,
        header,
        first: 0,
        all_dropped: false,
        shared: shared.clone(),
        counts: RxStatistics::default(),
        _leased: parts.leased.clone(),
    };
    let tx = Tx {
        lender: outlet,
        peers: Outgoing::new(shared.clone(), &parts.leased),
        shared,
        counts: TxStatistics::default(),
        _leased: parts.leased,
    };
    Ok(Queue {
        rx: Box::new(rx),
        tx: Box::new(tx),
    })
}

fn ended() -> LinkError {
    LinkError::Gone("the daemon has ended".into())
}

struct Rx {
    lender: Inlet,
    peers: Incoming,
    /// Of every frame, but for the type.
    header: [u8; HEADER_MIN],
    /// The line that is looked at first; another one each time, so that none starves the others.
    first: usize,
    /// The last call took packets and gave none: there may be more, and the bells are not armed.
    all_dropped: bool,
    shared: Arc<Shared>,
    counts: RxStatistics,
    /// The lease ends with the queue.
    _leased: Arc<Leased>,
}

/// Makes frames of packets, for a burst.
struct Frames<'a> {
    header: [u8; HEADER_MIN],
    counts: &'a mut RxStatistics,
    slab: &'a mut Slab,
    burst: &'a mut VecDeque<Packet>,
    /// Frames of the lender's: it says whose checksums it has verified. Those of other leases have never left this host's memory.
    is_lender: bool,
}

impl Intake for Frames<'_> {
    fn take(
        &mut self,
        from: &BorrowedSlab,
        descriptor: &Descriptor,
        passes: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let offset = descriptor.offset as usize; // widening: u32 to usize
        let length = descriptor.length as usize; // widening: u32 to usize
        let copy = |room: &mut [u8]| from.copy_out(descriptor.name, offset, room).is_ok();
        let copied = match descriptor.flags & (FRAME | TO_MANY) {
            0 => self.make(self.header, length, copy),
            TO_MANY if self.is_lender => self.make(self.header_to_many(), length, copy),
            TO_MANY => self.make(self.header, length, copy),
            _ => self.copy_frame(length, copy),
        };
        let Some(mut packet) = copied else {
            return false;
        };
        let bytes = packet.bytes().get(HEADER_MIN..).unwrap_or_default();
        if !passes(bytes) {
            self.counts.missed += 1;
            self.slab.free(packet.into_buffer());
            return false;
        }
        self.count(&packet);
        let is_verified = !self.is_lender || descriptor.flags & CHECKSUM_VERIFIED != 0;
        packet.meta.checksum_verified = is_verified.into();
        self.burst.push_back(packet);
        true
    }
}

impl Frames<'_> {
    /// The header of what came to a group of stations: which one does not count.
    #[cold]
    fn header_to_many(&self) -> [u8; HEADER_MIN] {
        let mut header = self.header;
        let to = header.iter_mut().zip(MacAddr::BROADCAST.0);
        to.for_each(|(h, a)| *h = a);
        header
    }

    /// A frame with a packet of this length, which `fill` writes; `None`: counted.
    fn make(
        &mut self,
        header: [u8; HEADER_MIN],
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<Packet> {
        self.fill(HEADER_MIN + length, |frame| frame_of(header, frame, fill))
    }

    /// A frame of this length, which `copy` writes with its header: none of IP, whose packets cross without. `None`: counted.
    fn copy_frame(
        &mut self,
        length: usize,
        copy: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<Packet> {
        self.fill(length, |frame| {
            (copy(frame) && Content::of(frame)? == Content::Frame).then_some(())
        })
    }

    fn fill(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<Packet> {
        let Some(buffer) = self.slab.alloc() else {
            self.counts.no_buffer += 1;
            return None;
        };
        let mut packet = Packet::new(buffer, 0);
        packet.set_len(length);
        if packet.len() < length || fill(packet.bytes_mut()).is_none() {
            self.counts.length += 1;
            self.slab.free(packet.into_buffer());
            return None;
        }
        Some(packet)
    }

    fn count(&mut self, packet: &Packet) {
        self.counts.packets += 1;
        self.counts.bytes += packet.len() as u64;
    }

    /// A connection whose peer is gone is asked whether it is alive, by a SYN from there: it answers, whatever its state (RFC 5961 §4), and the lender,
    /// which has no such port any more, answers that by a reset. False: there is no buffer for it.
    fn ask(&mut self, flow: Flow) -> bool {
        self.put(flow, tcp::Flags::SYN, Course::OURS)
    }

    /// A connection is told something by a packet that was never sent. False: there is no buffer for it.
    fn tell(&mut self, flow: Flow, what: Course) -> bool {
        self.put(flow, tcp::Flags(0), what)
    }

    /// A packet of our own making, from the peer's end of a connection.
    fn put(&mut self, (here, there): Flow, flags: tcp::Flags, course: Course) -> bool {
        let header = tcp::Header {
            source_port: there.port(),
            destination_port: here.port(),
            seq: tcp::SeqNum(0),
            ack: tcp::SeqNum(0),
            flags,
            window: 0,
            urgent: 0,
            options: tcp::Options::default(),
        };
        let ip_len = match here.is_ipv4() {
            true => ipv4::HEADER_LEN,
            false => ipv6::HEADER_LEN,
        };
        let made = self.make(self.header, ip_len + tcp::HEADER_LEN, |packet| {
            let (ip, segment) = packet.split_at_mut(ip_len);
            let (from, to) = (there.ip(), here.ip());
            emit_ip(ip, from, to)
                && header.emit_with_checksum(segment, Partial::ZERO, 0, from, to) == tcp::HEADER_LEN
        });
        let Some(mut packet) = made else {
            return false;
        };
        packet.meta.checksum_verified = Flag::YES;
        packet.meta.course = course;
        self.count(&packet);
        self.burst.push_back(packet);
        true
    }
}

/// Writes a header, all of it but the type from `most`, and the packet behind it. `None` if that is not of IP.
fn frame_of(
    most: [u8; HEADER_MIN],
    frame: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<()> {
    let (header, packet) = frame.split_first_chunk_mut::<HEADER_MIN>()?;
    if !fill(packet) {
        return None;
    }
    let kind = match packet.first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    *header = most;
    let (_, place) = header.split_last_chunk_mut::<2>()?;
    *place = kind.0.to_be_bytes();
    Some(())
}

/// The header of an IP packet with a segment of TCP that has no options and no text.
fn emit_ip(room: &mut [u8], from: IpAddr, to: IpAddr) -> bool {
    let written = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ipv4::Header::new(Protocol::TCP, from, to).emit(tcp::HEADER_LEN, room)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ipv6::Header::new(Protocol::TCP, from, to).emit(tcp::HEADER_LEN, room)
        }
        _ => 0,
    };
    written > 0
}

impl Rx {
    /// Takes from so many lines, another one first each time.
    fn receive_from(
        &mut self,
        lines: usize,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> usize {
        let Self {
            lender,
            peers,
            header,
            counts,
            ..
        } = self;
        let mut frames = Frames {
            header: *header,
            counts,
            slab,
            burst,
            is_lender: true,
        };
        let before = frames.burst.len();
        let mut left = max.min(BURST);
        while left > 0
            && let Some(&flow) = peers.orphans.front()
            && frames.ask(flow)
        {
            peers.orphans.pop_front();
            left -= 1;
        }
        self.first = if self.first + 1 < lines {
            self.first + 1
        } else {
            0
        };
        let mut taken = 0;
        for line in (self.first..lines).chain(0..self.first) {
            frames.is_lender = line == 0;
            let came = match line.checked_sub(1) {
                None => {
                    let taken = lender.look(left);
                    lender.give(taken, |slab, descriptor| {
                        frames.take(slab, descriptor, |_| true)
                    })
                }
                Some(place) => peers.receive((place, left), &mut frames),
            };
            frames.counts.length += came.nonsense;
            taken += came.taken;
            left -= came.taken;
            if left == 0 {
                break;
            }
        }
        let told = [
            (&mut peers.beside, Course::BESIDE),
            (&mut peers.in_vain, Course::IN_VAIN),
        ];
        for (flows, what) in told {
            while left > 0
                && let Some(&flow) = flows.front()
                && frames.tell(flow, what)
            {
                flows.pop_front();
                left -= 1;
            }
        }
        let given = frames.burst.len() - before;
        self.all_dropped = taken > 0 && given == 0;
        given
    }
}

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        // Asked first: what was sent before the end is still taken.
        let is_over = self.shared.gone.load(Relaxed) || self.lender.is_over();
        if self.peers.has_news() {
            self.peers.read_news();
        }
        let lines = if is_over { 1 } else { 1 + self.peers.len() };
        let given = self.receive_from(lines, slab, burst, max);
        if is_over && given == 0 && !self.all_dropped {
            self.shared.gone.store(true, Relaxed);
            return Err(ended());
        }
        Ok(given)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.peers.fd())
    }

    /// At once, where packets wait; else the bells are armed, and ring for the next: a thread asks this before it sleeps.
    fn next_event(&mut self) -> Instant {
        if self.all_dropped || !self.lender.arm() || !self.peers.arm() {
            return Instant::ZERO;
        }
        self.shared.retry_at()
    }

    fn next_event_by_bells(&mut self, bells: &mut Several) -> Option<Instant> {
        let is_quiet = self.lender.arm_among(bells)? && self.peers.arm_among(bells)?;
        Some(match is_quiet && !self.all_dropped {
            true => self.shared.retry_at(),
            false => Instant::ZERO,
        })
    }

    fn leave_bells(&mut self) {
        self.lender.leave_bells();
        self.peers.leave_bells();
    }

    fn statistics(&self) -> RxStatistics {
        self.counts
    }
}

struct Tx {
    lender: Outlet,
    peers: Outgoing,
    shared: Arc<Shared>,
    counts: TxStatistics,
    /// The lease ends with the queue.
    _leased: Arc<Leased>,
}

impl Tx {
    fn send_one(&mut self, frame: &Packet, now: Instant) -> Result<(), NotSent> {
        let packet = match Content::of(frame.bytes()).ok_or(NotSent::Refused)? {
            Content::Packet(packet) => packet,
            Content::Frame => return self.lender.send_frame(frame),
        };
        match self.peers.place_for(packet, frame.meta.segment, now) {
            Some(place) => self.peers.send(place, (frame, packet), now),
            None => self.lender.send(frame, packet),
        }
    }
}

/// What of a frame crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content<'a> {
    /// Its IP packet.
    Packet(&'a [u8]),
    /// All of it.
    Frame,
}

impl<'a> Content<'a> {
    /// `None`: nothing of it. Neighbours are the lender's, so there is no ARP.
    fn of(frame: &'a [u8]) -> Option<Self> {
        let (header, packet) = frame.split_first_chunk::<HEADER_MIN>()?;
        let (_, kind) = header.split_last_chunk::<2>()?;
        match EtherType(u16::from_be_bytes(*kind)) {
            EtherType::IPV4 | EtherType::IPV6 => {
                (!packet.is_empty()).then_some(Self::Packet(packet))
            }
            EtherType::ARP => None,
            _ => Some(Self::Frame),
        }
    }
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        if self.shared.gone.load(Relaxed) || self.lender.is_over() {
            self.shared.gone.store(true, Relaxed);
            return Err(ended());
        }
        self.lender.collect();
        self.peers.begin();
        let mut taken = 0;
        while let Some(frame) = frames.front() {
            let len = frame.len();
            match self.send_one(frame, now) {
                Ok(()) => {
                    self.counts.packets += 1;
                    self.counts.bytes += len as u64;
                }
                Err(NotSent::Full) => break,
                Err(NotSent::Refused) => self.counts.errors += 1,
            }
            frames.pop_front();
            taken += 1;
        }
        self.lender.flush();
        self.peers.flush();
        Ok(taken)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}
