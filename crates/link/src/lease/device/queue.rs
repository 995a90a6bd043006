//! The queue of a lease: packets copied out of one slab and into the other, and names that come back.
//!
//! The lender is believed to hand over this program's packets, and nothing else: what it writes is checked, work and memory are bounded whatever it
//! writes, and its end is noticed also where it could not say so.

use std::{
    collections::VecDeque,
    mem,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use netchan_base::{
    descriptor::{Bounds, CHECKSUM_VERIFIED, Descriptor, Return, WANTS_BUFFERS, Writer},
    packet::Packet,
};
use percore::{
    doorbell::Sleep,
    edge::{Bell, Receiving, Sending, Side},
    slab::{BorrowedSlab, BufferName, Slab},
};
use proto::{
    time::Instant,
    wire::ethernet::{EtherType, MacAddr},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Back, Item, LENDER};
use crate::{
    BURST, HEADER_MIN, LinkError, LinkRx, LinkTx, Queue, RxStatistics, TxStatistics,
    lease::client::Leased,
};

/// Looks that find nothing, after which the socket is asked whether the lender is gone: one that was killed says nothing in the edge. A system call
/// each time, so not at every look; a socket at its end wakes a sleeper again and again, and it has looked so often in a moment.
const LOOKS: u32 = 64;

/// The generation of the names that are lent from the beginning.
const FIRST: u32 = 1;

/// What a queue is made of, beside its side of the edge.
pub(super) struct Parts {
    /// The link's address.
    pub mac: MacAddr,
    pub leased: Arc<Leased>,
    pub inward: BorrowedSlab,
    pub outward: BorrowedSlab,
}

/// The queue over a side that nothing has used yet.
pub(super) fn of(side: Side<Item, Back>, parts: Parts) -> Queue {
    let Side {
        sending,
        receiving,
        own_bell,
        far_bell,
    } = side;
    let far_bell = Arc::new(far_bell);
    let gone = Arc::new(AtomicBool::new(false));
    let mut header = [0; HEADER_MIN];
    let addresses = parts.mac.0.into_iter().chain(LENDER.0);
    header.iter_mut().zip(addresses).for_each(|(h, a)| *h = a);
    let buffers = parts.outward.layout().buffers();
    let rx = Rx {
        receiving,
        inward: parts.inward,
        bell: own_bell,
        far_bell: far_bell.clone(),
        header,
        items: Vec::with_capacity(BURST),
        owed: VecDeque::new(),
        is_armed: false,
        looks: 0,
        all_dropped: false,
        gone: gone.clone(),
        counts: RxStatistics::default(),
        _leased: parts.leased.clone(),
    };
    let name = |index| BufferName {
        index,
        generation: FIRST,
    };
    let tx = Tx {
        sending,
        outward: parts.outward,
        far_bell,
        // The first name is taken first.
        free: (0..buffers).rev().map(name).collect(),
        lent: vec![false; buffers as usize], // widening: u32 to usize
        gone,
        counts: TxStatistics::default(),
        _leased: parts.leased,
    };
    Queue {
        rx: Box::new(rx),
        tx: Box::new(tx),
    }
}

fn ended() -> LinkError {
    LinkError::Gone("the daemon has ended".into())
}

struct Rx {
    receiving: Receiving<Item, Back>,
    inward: BorrowedSlab,
    bell: Bell,
    far_bell: Arc<Bell>,
    /// Of every frame, but for the type.
    header: [u8; HEADER_MIN],
    /// Descriptors just taken; empty between two calls.
    items: Vec<Item>,
    /// Names for which the ring had no room.
    owed: VecDeque<Back>,
    /// Since a look that found nothing, until one that finds something.
    is_armed: bool,
    /// Looks that found nothing since it was armed.
    looks: u32,
    /// The last call took packets and gave none: there may be more, and the bell is not armed.
    all_dropped: bool,
    /// Both halves' together.
    gone: Arc<AtomicBool>,
    counts: RxStatistics,
    /// The lease ends with the queue.
    _leased: Arc<Leased>,
}

impl Rx {
    /// Takes at most `max` descriptors, and a burst; how many.
    fn take(&mut self, max: usize) -> usize {
        let n = self.look(max);
        if self.is_armed && (n > 0 || self.is_rung_for_nothing()) {
            self.bell.disarm();
            self.is_armed = false;
        }
        n
    }

    fn look(&mut self, max: usize) -> usize {
        let items = &mut self.items;
        self.receiving.take(max.min(BURST), |item| items.push(item))
    }

    /// Nothing was found. Whether the bell was rung all the same, and its descriptor would stay readable.
    fn is_rung_for_nothing(&mut self) -> bool {
        self.looks += 1;
        let mut is_rung = self.bell.is_rung();
        if self.looks >= LOOKS {
            self.looks = 0;
            let state = state_of(&self.bell);
            if state.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                self.gone.store(true, Relaxed);
            }
            is_rung |= !state.is_empty();
        }
        is_rung
    }

    /// Gives a name back, now or when there is room. The lender has no more names than it has buffers: what is beyond that it made up.
    fn give_back(&mut self, name: BufferName) {
        let back = Return { name }.encode();
        if self.owed.is_empty() && self.receiving.give_back(back).is_ok() {
            return;
        }
        if self.owed.len() < self.inward.layout().buffers() as usize {
            self.owed.push_back(back);
        }
    }

    /// Gives back what there was no room for.
    fn settle(&mut self) {
        while let Some(&back) = self.owed.front() {
            if self.receiving.give_back(back).is_err() {
                break;
            }
            self.owed.pop_front();
        }
        self.receiving.publish_returns();
    }

    /// The packet in a frame of this program's own; `None`: counted.
    fn copy(&mut self, descriptor: &Descriptor, slab: &mut Slab) -> Option<Packet> {
        let Some(buffer) = slab.alloc() else {
            self.counts.no_buffer += 1;
            return None;
        };
        let mut packet = Packet::new(buffer, 0);
        let length = HEADER_MIN + descriptor.length as usize; // widening: u32 to usize
        packet.set_len(length);
        if packet.len() < length || self.fill(packet.bytes_mut(), descriptor).is_none() {
            self.counts.length += 1;
            slab.free(packet.into_buffer());
            return None;
        }
        packet.meta.checksum_verified = (descriptor.flags & CHECKSUM_VERIFIED != 0).into();
        self.counts.packets += 1;
        self.counts.bytes += length as u64;
        Some(packet)
    }

    /// Writes a frame: a header, and the packet behind it. `None` if that is not of IP.
    fn fill(&self, frame: &mut [u8], descriptor: &Descriptor) -> Option<()> {
        let (header, packet) = frame.split_first_chunk_mut::<HEADER_MIN>()?;
        let offset = descriptor.offset as usize; // widening: u32 to usize
        self.inward.copy_out(descriptor.name, offset, packet).ok()?;
        let kind = match packet.first()? >> 4 {
            4 => EtherType::IPV4,
            6 => EtherType::IPV6,
            _ => return None,
        };
        *header = self.header;
        let (_, place) = header.split_last_chunk_mut::<2>()?;
        *place = kind.0.to_be_bytes();
        Some(())
    }
}

/// What poll(2) says of the bell's socket at this moment.
fn state_of(bell: &Bell) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(1) => fds[0].revents(),
        _ => PollFlags::empty(),
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
        let is_over = self.gone.load(Relaxed) || self.receiving.is_over();
        self.all_dropped = false;
        if !self.owed.is_empty() {
            self.settle();
        }
        if self.take(max) == 0 {
            if is_over {
                self.gone.store(true, Relaxed);
                return Err(ended());
            }
            return Ok(0);
        }
        let bounds = Bounds {
            layout: self.inward.layout(),
            links: 1,
        };
        let mut n = 0;
        let mut wants_buffers = false;
        let mut items = mem::take(&mut self.items);
        for item in items.drain(..) {
            let Ok(descriptor) = Descriptor::decode(&item, Writer::Owner, &bounds) else {
                self.counts.length += 1;
                continue;
            };
            if let Some(packet) = self.copy(&descriptor, slab) {
                burst.push_back(packet);
                n += 1;
            }
            self.give_back(descriptor.name);
            wants_buffers |= descriptor.flags & WANTS_BUFFERS != 0;
        }
        self.items = items;
        self.receiving.publish_returns();
        if wants_buffers {
            self.far_bell.ring();
        }
        self.all_dropped = n == 0;
        Ok(n)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.fd())
    }

    /// At once, where packets wait; else the bell is armed, and rings for the next: a thread asks this before it sleeps.
    fn next_event(&mut self) -> Instant {
        if self.is_armed && !self.all_dropped {
            return Instant::FAR;
        }
        if self.all_dropped || !self.receiving.is_empty() {
            return Instant::ZERO;
        }
        self.bell.arm(Sleep::Fd);
        self.is_armed = true;
        self.looks = 0;
        // Once more after arming: what came before it did not ring.
        match self.receiving.is_empty() {
            true => Instant::FAR,
            false => Instant::ZERO,
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.counts
    }
}

/// Why a frame does not go.
enum NotSent {
    /// Not now: no name is free, or the ring is full.
    Full,
    /// Never: it is not of IP, or longer than a buffer.
    Refused,
}

struct Tx {
    sending: Sending<Item, Back>,
    outward: BorrowedSlab,
    far_bell: Arc<Bell>,
    /// Names that are ours, the last one to be taken next: its buffer is the warmest.
    free: Vec<BufferName>,
    /// By index: whether the lender has it.
    lent: Vec<bool>,
    /// Both halves' together.
    gone: Arc<AtomicBool>,
    counts: TxStatistics,
    /// The lease ends with the queue.
    _leased: Arc<Leased>,
}

impl Tx {
    /// Takes the names that came back. One that the lender did not have it has made up.
    fn collect(&mut self) {
        let layout = self.outward.layout();
        let Self { free, lent, .. } = self;
        self.sending.take_returns(lent.len(), |back| {
            let Ok(Return { name }) = Return::decode(&back, layout) else {
                return;
            };
            if lent.get_mut(name.index as usize).is_some_and(mem::take) {
                free.push(name);
            }
        });
    }

    fn send_one(&mut self, frame: &Packet) -> Result<(), NotSent> {
        let packet = ip_packet(frame.bytes()).ok_or(NotSent::Refused)?;
        let length = u32::try_from(packet.len()).map_err(|_| NotSent::Refused)?;
        if length > self.outward.layout().buffer_bytes() {
            return Err(NotSent::Refused);
        }
        let &name = self.free.last().ok_or(NotSent::Full)?;
        (self.outward.copy_in(name, 0, packet)).map_err(|_| NotSent::Refused)?;
        let are_few = self.free.len() <= self.lent.len() / 4;
        let descriptor = Descriptor {
            name,
            offset: 0,
            length,
            link: 0,
            flags: if are_few { WANTS_BUFFERS } else { 0 },
            segment: frame.meta.segment,
        };
        (self.sending.stage(descriptor.encode())).map_err(|_| NotSent::Full)?;
        self.free.pop();
        if let Some(is_lent) = self.lent.get_mut(name.index as usize) {
            *is_lent = true;
        }
        Ok(())
    }
}

/// The packet in a frame, where it is of IP.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let (header, packet) = frame.split_first_chunk::<HEADER_MIN>()?;
    let (_, kind) = header.split_last_chunk::<2>()?;
    let kind = EtherType(u16::from_be_bytes(*kind));
    let is_ip = kind == EtherType::IPV4 || kind == EtherType::IPV6;
    (is_ip && !packet.is_empty()).then_some(packet)
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        if self.gone.load(Relaxed) || self.sending.is_over() {
            self.gone.store(true, Relaxed);
            return Err(ended());
        }
        self.collect();
        let mut taken = 0;
        let mut sent = 0;
        while let Some(frame) = frames.front() {
            let len = frame.len();
            match self.send_one(frame) {
                Ok(()) => {
                    sent += 1;
                    self.counts.packets += 1;
                    self.counts.bytes += len as u64;
                }
                Err(NotSent::Full) => break,
                Err(NotSent::Refused) => self.counts.errors += 1,
            }
            frames.pop_front();
            taken += 1;
        }
        if sent > 0 {
            self.sending.publish();
            self.far_bell.ring();
        }
        Ok(taken)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}
