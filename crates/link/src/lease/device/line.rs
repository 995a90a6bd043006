//! A line: packets copied out of one slab and into another, over an edge, and names that come back. One leads to the lender, the others to other leases.
//!
//! What the other end writes is checked, work and memory are bounded whatever it writes, and its end is noticed also where it could not say so.

use std::{collections::VecDeque, mem, os::fd::BorrowedFd, sync::Arc};

use netchan_base::{
    descriptor::{Bounds, Descriptor, FRAME, Return, TO_MANY, WANTS_BUFFERS, Writer},
    packet::Packet,
};
use percore::{
    doorbell::{Sleep, several::Several},
    edge::{Bell, Notice, Receiving, Sending, Side},
    slab::{BorrowedSlab, BufferName},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Back, Item};
use crate::BURST;

/// Looks that find nothing, after which the socket is asked whether the other end is gone: one that was killed says nothing in the edge. A system call
/// each time, so not at every look; a socket at its end wakes a sleeper again and again, and it has looked so often in a moment.
const LOOKS: u32 = 64;

/// The generation of the names that are lent from the beginning.
const FIRST: u32 = 1;

/// Both directions of a line over a side that nothing has used yet. `writer`: what the other end may say ([`Descriptor::decode`]). Frames
/// come from the slab's owner, the lender, alone: no other lease says what a frame is.
pub(super) fn of(
    side: Side<Item, Back>,
    inward: BorrowedSlab,
    outward: BorrowedSlab,
    writer: Writer,
) -> (Inlet, Outlet, Notice) {
    let Side {
        sending,
        receiving,
        own_bell,
        far_bell,
        notice,
    } = side;
    let far_bell = Arc::new(far_bell);
    let inlet = Inlet {
        receiving,
        slab: inward,
        bell: own_bell,
        far_bell: far_bell.clone(),
        writer,
        items: Vec::with_capacity(BURST),
        owed: VecDeque::new(),
        armed: None,
        looks: 0,
        is_hung_up: false,
    };
    let buffers = outward.layout().buffers();
    let name = |index| BufferName {
        index,
        generation: FIRST,
    };
    let outlet = Outlet {
        sending,
        slab: outward,
        far_bell,
        // The first name is taken first.
        free: (0..buffers).rev().map(name).collect(),
        lent: vec![false; buffers as usize], // widening: u32 to usize
        is_staged: false,
    };
    (inlet, outlet, notice)
}

/// What comes from the other end.
pub(super) struct Inlet {
    receiving: Receiving<Item, Back>,
    slab: BorrowedSlab,
    bell: Bell,
    far_bell: Arc<Bell>,
    writer: Writer,
    /// Descriptors just taken; empty between two calls.
    items: Vec<Item>,
    /// Names for which the ring had no room.
    owed: VecDeque<Back>,
    /// For which sleep: since a look that found nothing, until one that finds something.
    armed: Option<Sleep>,
    /// Looks that found nothing since it was armed.
    looks: u32,
    /// The socket said that the other end is gone.
    is_hung_up: bool,
}

/// What a look brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    /// Descriptors that were taken from the ring.
    pub taken: usize,
    /// Of these, packets that were given on.
    pub given: usize,
    /// Those that cannot be.
    pub nonsense: u64,
}

impl Inlet {
    /// Whether the other end has gone. What it sent before can still be taken.
    pub fn is_over(&self) -> bool {
        self.is_hung_up || self.receiving.is_over()
    }

    /// Takes at most `max` descriptors, and a burst; how many. [`give`](Self::give) is to follow.
    pub fn look(&mut self, max: usize) -> usize {
        let items = &mut self.items;
        let n = (self.receiving).take(max.min(BURST), |item| items.push(item));
        if self.armed.is_some() && (n > 0 || self.is_rung_for_nothing()) {
            self.disarm();
        }
        n
    }

    /// Gives the packets on of which [`look`](Self::look) has `taken` the descriptors. Their buffers go back.
    pub fn give(
        &mut self,
        taken: usize,
        mut take: impl FnMut(&BorrowedSlab, &Descriptor) -> bool,
    ) -> Came {
        let mut came = Came {
            taken,
            ..Came::default()
        };
        if !self.owed.is_empty() {
            self.settle();
        }
        if taken == 0 {
            return came;
        }
        let bounds = Bounds {
            layout: self.slab.layout(),
            links: 1,
            frames: self.writer == Writer::Owner,
        };
        let mut wants_buffers = false;
        let mut items = mem::take(&mut self.items);
        for item in items.drain(..) {
            let Ok(descriptor) = Descriptor::decode(&item, self.writer, &bounds) else {
                came.nonsense += 1;
                continue;
            };
            came.given += usize::from(take(&self.slab, &descriptor));
            self.give_back(descriptor.name);
            wants_buffers |= descriptor.flags & WANTS_BUFFERS != 0;
        }
        self.items = items;
        self.receiving.publish_returns();
        if wants_buffers {
            self.far_bell.ring();
        }
        came
    }

    /// Nothing was found. Whether the bell was rung all the same, and its descriptor would stay readable.
    fn is_rung_for_nothing(&mut self) -> bool {
        self.looks += 1;
        let mut is_rung = self.bell.is_rung();
        if self.looks >= LOOKS {
            self.looks = 0;
            let state = state_of(&self.bell);
            if state.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                self.is_hung_up = true;
            }
            is_rung |= !state.is_empty();
        }
        is_rung
    }

    /// Gives a name back, now or when there is room. The other end has no more names than it has buffers: what is beyond that it made up.
    fn give_back(&mut self, name: BufferName) {
        let back = Return { name }.encode();
        if self.owed.is_empty() && self.receiving.give_back(back).is_ok() {
            return;
        }
        if self.owed.len() < self.buffers() {
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

    /// The other end's bell.
    pub const fn far_bell(&self) -> &Arc<Bell> {
        &self.far_bell
    }

    /// Buffers of the slab: no more packets wait here.
    pub fn buffers(&self) -> usize {
        self.slab.layout().buffers() as usize // widening: u32 to usize
    }

    /// A thread is about to sleep on the descriptor, or another one does on the bell. False: something waits already.
    pub fn arm(&mut self) -> bool {
        self.armed.is_some() || self.arm_for(Sleep::Fd)
    }

    /// The same for a sleep on the bell, which is put among `bells`; `None`: there is no place for it.
    pub fn arm_among(&mut self, bells: &mut Several) -> Option<bool> {
        if self.armed == Some(Sleep::Fd) {
            self.disarm();
        }
        bells.add(&self.bell).then_some(())?;
        Some(self.armed.is_some() || self.arm_for(Sleep::Futex))
    }

    fn arm_for(&mut self, how: Sleep) -> bool {
        if !self.receiving.is_empty() {
            return false;
        }
        self.bell.arm(how);
        self.armed = Some(how);
        self.looks = 0;
        // Once more after arming: what came before it did not ring.
        self.receiving.is_empty()
    }

    /// No thread sleeps on the bell.
    pub fn leave_bells(&mut self) {
        if self.armed == Some(Sleep::Futex) {
            self.disarm();
        }
    }

    fn disarm(&mut self) {
        self.bell.disarm();
        self.armed = None;
    }

    /// Readable once the other end has rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
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

/// Why a packet does not go.
pub(super) enum NotSent {
    /// Not now: no name is free, or the ring is full.
    Full,
    /// Never: it is longer than a buffer.
    Refused,
}

/// What goes to the other end.
#[derive(Debug)]
pub(super) struct Outlet {
    sending: Sending<Item, Back>,
    slab: BorrowedSlab,
    far_bell: Arc<Bell>,
    /// Names that are ours, the last one to be taken next: its buffer is the warmest.
    free: Vec<BufferName>,
    /// By index: whether the other end has it.
    lent: Vec<bool>,
    /// Something is to be shown to the other end.
    is_staged: bool,
}

impl Outlet {
    /// Whether the other end has gone.
    pub fn is_over(&self) -> bool {
        self.sending.is_over()
    }

    /// Whether something was sent that the other end does not see yet.
    pub const fn is_staged(&self) -> bool {
        self.is_staged
    }

    /// Takes the names that came back; how many. One that the other end did not have it has made up.
    pub fn collect(&mut self) -> usize {
        let layout = self.slab.layout();
        let Self { free, lent, .. } = self;
        let before = free.len();
        self.sending.take_returns(lent.len(), |back| {
            let Ok(Return { name }) = Return::decode(&back, layout) else {
                return;
            };
            if lent.get_mut(name.index as usize).is_some_and(mem::take) {
                free.push(name);
            }
        });
        free.len() - before
    }

    /// Sends the IP packet of `frame`. The other end sees it after [`flush`](Self::flush).
    ///
    /// # Errors
    /// Why it does not go.
    pub fn send(&mut self, frame: &Packet, packet: &[u8]) -> Result<(), NotSent> {
        let form = match frame.meta.to_group.get() {
            true => TO_MANY,
            false => 0,
        };
        self.put(packet, frame.meta.segment, form)
    }

    /// Sends a frame as it is, with its header.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_frame(&mut self, frame: &Packet) -> Result<(), NotSent> {
        self.put(frame.bytes(), 0, FRAME)
    }

    fn put(&mut self, packet: &[u8], segment: u16, form: u32) -> Result<(), NotSent> {
        let length = u32::try_from(packet.len()).map_err(|_| NotSent::Refused)?;
        if length > self.slab.layout().buffer_bytes() {
            return Err(NotSent::Refused);
        }
        let &name = self.free.last().ok_or(NotSent::Full)?;
        (self.slab.copy_in(name, 0, packet)).map_err(|_| NotSent::Refused)?;
        let are_few = self.free.len() <= self.lent.len() / 4;
        let descriptor = Descriptor {
            name,
            offset: 0,
            length,
            link: 0,
            flags: form | if are_few { WANTS_BUFFERS } else { 0 },
            segment,
        };
        (self.sending.stage(descriptor.encode())).map_err(|_| NotSent::Full)?;
        self.free.pop();
        if let Some(is_lent) = self.lent.get_mut(name.index as usize) {
            *is_lent = true;
        }
        self.is_staged = true;
        Ok(())
    }

    /// Shows the other end what was sent, and wakes it if it sleeps.
    pub fn flush(&mut self) {
        if mem::take(&mut self.is_staged) {
            self.sending.publish();
            self.far_bell.ring();
        }
    }
}
