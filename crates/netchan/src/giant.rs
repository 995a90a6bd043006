//! Giant (F1, F3, F4): the one lock of a stack. Under the regime `giant` everything is done under it. Beside any other regime it still
//! exists, for what declares that it needs it: a module that keeps unsynchronised state, a link driver that is not safe for several threads.
//!
//! What needs Giant lies inside it: a module of concurrency `giant` is stored in the lock, and nobody reaches it without a guard.
//!
//! Lock order: where the whole stack runs under it, before every other lock; else after them all. It is recursive, as FreeBSD's was.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, Release},
        },
    },
};

use percore::{
    clock::now_ns,
    doorbell::Doorbell,
    lock::{ReentrantMutex, ReentrantMutexGuard, reentrant},
    slab::Slab,
    witness,
};
use proto::time::Instant;

use crate::{
    link::{Link, LinkError, Properties, Statistics},
    locks,
    module::{Concurrency, Module},
    packet::Packet,
    stages::{self, Stage},
};

/// What only Giant's holder reaches: the modules that need it, by their place. Theirs may be plain cells, so may this.
#[derive(Default)]
pub struct Guarded {
    pub modules: RefCell<Vec<Option<Box<dyn Module + Send>>>>,
}

/// Who holds Giant.
pub type Held<'a> = ReentrantMutexGuard<'a, Guarded>;

/// The lock, and what it cost.
pub struct Giant {
    lock: ReentrantMutex<Guarded>,
    // All three are written by the holder only.
    taken: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

/// How often Giant was taken, how often that had to wait, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub taken: u64,
    pub waits: u64,
    pub wait_ns: u64,
}

impl Giant {
    /// Free, with nothing in it; around `everything`, or inside all other locks.
    pub fn new(everything: bool) -> Self {
        let class = if everything {
            &locks::GIANT
        } else {
            &locks::GIANT_INSIDE
        };
        Self {
            lock: reentrant(class, Guarded::default()),
            taken: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        }
    }

    /// Takes it, and waits for it where it must.
    #[inline]
    pub fn enter(&self) -> Held<'_> {
        let held = match self.lock.try_lock() {
            // The witness judges only who may have to wait.
            Some(held) if witness::ON => {
                drop(held);
                self.lock.lock()
            }
            Some(held) => held,
            None => self.wait(),
        };
        add(&self.taken, 1);
        held
    }

    #[cold]
    fn wait(&self) -> Held<'_> {
        let before = stages::enter(Stage::Locks);
        let since = now_ns();
        let held = self.lock.lock();
        add(&self.waits, 1);
        add(&self.wait_ns, now_ns().saturating_sub(since));
        stages::back(before);
        held
    }

    /// Takes it if that works at once: for those who only look.
    pub fn try_enter(&self) -> Option<Held<'_>> {
        self.lock.try_lock()
    }

    /// What it has cost up to now.
    pub fn cost(&self) -> Cost {
        // Relaxed: each number by itself, for a person to read.
        Cost {
            taken: self.taken.load(Relaxed),
            waits: self.waits.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
        }
    }
}

/// Adds under the lock: a load and a store.
#[inline]
fn add(count: &AtomicU64, n: u64) {
    // Release, for readers that compare two of the counts; the lock orders the writers.
    count.store(count.load(Relaxed).wrapping_add(n), Release);
}

/// `link` as the rest of the stack may use it: behind a shim that takes Giant around the driver, and around nothing else, where the
/// link declares that it needs it (F4). Where everything is done under Giant, the driver is, too.
pub fn shim(link: Box<dyn Link>, everything: bool, giant: &Arc<Giant>) -> Box<dyn Link> {
    if everything || link.concurrency() == Concurrency::Any {
        return link;
    }
    Box::new(Shim {
        properties: link.properties().clone(),
        link,
        giant: giant.clone(),
    })
}

/// A link whose driver is called under Giant only.
struct Shim {
    properties: Properties,
    link: Box<dyn Link>,
    giant: Arc<Giant>,
}

impl Link for Shim {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        let _giant = self.giant.enter();
        self.link.attach(doorbell);
    }
    fn for_forwarding(&mut self) -> io::Result<()> {
        let _giant = self.giant.enter();
        self.link.for_forwarding()?;
        self.properties = self.link.properties().clone();
        Ok(())
    }
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        self.link.receive(now, slab, burst, max)
    }
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        self.link.transmit(now, frames)
    }
    /// Not the driver's work: the descriptor does not change.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.fd()
    }
    fn next_event(&self) -> Instant {
        let _giant = self.giant.enter();
        self.link.next_event()
    }
    fn statistics(&self) -> Statistics {
        let _giant = self.giant.enter();
        self.link.statistics()
    }
    fn concurrency(&self) -> Concurrency {
        Concurrency::Giant
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // A driver may have to let go of what it shares with others of its kind: that, too, is its work.
        let _giant = self.giant.enter();
        let properties = self.properties.clone();
        self.link = Box::new(crate::link::closed::Closed::with(
            properties,
            Statistics::default(),
        ));
    }
}
