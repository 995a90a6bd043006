//! The links' side of a stack: the queues of its links, and which thread polls them. Nothing here names a shard or a socket: packets and requests come and
//! go through the ends of channels that lie in the queues' halves.
//!
//! The first queue of link *n* is queue *n*; further queues of links that have several come behind those. The first queue's transmitting half does the
//! host's own work (ARP, NDP, ICMP, groups) for all queues of its link; the others' send what their hop caches know.

use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use percore::{
    doorbell::Doorbell,
    leader::Leader,
    lock::{Mutex, mutex},
    own::Own,
};
use proto::time::Instant;

use super::directory::BoundPorts;
use crate::{
    counters::Counters,
    driver::{
        host::Host,
        interface::{Interface, Receive},
        module::registry::HookChain,
    },
    giant::Concurrency,
    locks,
};

/// What receives, classifies, checks and transmits.
pub(crate) struct DriverSide {
    pub host: Arc<Host>,
    pub counters: Arc<Counters>,
    /// The TCP ports that are bound; the control plane writes them.
    pub bound_ports: Arc<BoundPorts>,
    /// The UDP ports of this process's own sockets.
    pub udp_ports: Arc<BoundPorts>,
    pub queues: Vec<SharedQueue>,
    /// The queues of each link, by number: its first, then the others.
    pub links: Vec<Vec<usize>>,
    /// As many as the link has queues that has most.
    pub lanes: Vec<Lane>,
    /// The queue of the loopback interface, which no thread has to be woken for.
    pub own: Option<usize>,
    /// Whether threads that wait may lead the links.
    pub can_lead: AtomicBool,
    /// See [`lends`](Self::lends).
    pub lends: AtomicBool,
    /// A link leader that is away for so long is replaced; zero: the links' threads poll always.
    pub background: Duration,
    /// Packets wake a link's thread at most once in this time (D6).
    pub moderation: Duration,
}

/// A part of the links that one thread polls: the n-th queue of each link that has so many. The shards take turns among the lanes.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// The link leader: which thread polls these queues.
    pub leader: Leader,
    /// When an application's thread last looked at them, ns of the stack's clock.
    pub looked: AtomicU64,
}

impl Lane {
    /// As many as the link has queues that has most.
    pub fn of_links(links: &[Vec<usize>]) -> Vec<Self> {
        let most = links.iter().map(Vec::len).max().unwrap_or(1);
        (0..most).map(|_| Self::default()).collect()
    }

    /// When an application's thread last turned its queues.
    pub fn looked(&self) -> Instant {
        Instant(self.looked.load(Relaxed))
    }
}

/// What does not change of a queue.
pub(crate) struct QueueFacts {
    /// Its link's number.
    pub link: u8,
    /// Which of its link's queues it is, and so its lane's number.
    pub lane: usize,
    /// Of its link: `tap`, `packet`, `wire`, …
    pub kind: &'static str,
    /// Whether its link's driver runs under Giant.
    pub concurrency: Concurrency,
    /// Wakes the queue's thread.
    pub doorbell: Arc<Doorbell>,
}

/// A queue of a link, as every thread sees it.
pub(crate) struct SharedQueue {
    pub facts: QueueFacts,
    /// Its two halves; `None`: they are under the shard's lock (`stack::cell::LinkAccess::Own`).
    pub halves: Option<Halves>,
    /// The link is gone for good.
    pub gone: Arc<AtomicBool>,
    /// Its connections know.
    pub told: Arc<AtomicBool>,
    /// Times that packets woke its thread, which alone writes it.
    pub wakeups: AtomicU64,
    /// Where the link is lent: readable when an application has sent something to the thread while it sleeps.
    pub lease_bells: OnceLock<Arc<Own>>,
}

impl Deref for SharedQueue {
    type Target = QueueFacts;

    #[inline(always)]
    fn deref(&self) -> &QueueFacts {
        &self.facts
    }
}

/// Both halves of a queue.
pub struct OwnLink {
    /// The receiving half.
    pub receive: Receive,
    /// The transmitting half.
    pub interface: Interface,
}

impl OwnLink {
    /// These modules look at what is received, passed on and sent.
    pub fn set_modules(&mut self, modules: [HookChain; 4]) {
        let (receive, interface) = (&mut self.receive, &mut self.interface);
        [
            receive.arrival_modules,
            receive.modules,
            receive.forward_modules,
            interface.modules,
        ] = modules;
    }
}

/// The two halves of a queue, each under its own lock. Order: `receive`, then a shard, then `interface`, then that of the link's first queue.
pub(crate) struct Halves {
    /// Receiving: for the thread that turns the queue.
    pub receive: Mutex<Receive>,
    /// Transmitting; of a link's first queue, the host's own work, too.
    pub interface: Mutex<Interface>,
}

impl Halves {
    /// Both, free; or `None`, if they are a shard's own: then they are added to `links`.
    pub fn unless(own: bool, link: OwnLink, links: &mut Vec<OwnLink>) -> Option<Self> {
        if own {
            links.push(link);
            return None;
        }
        let class = if link.interface.is_further() {
            &locks::TRANSMIT_FURTHER
        } else {
            &locks::TRANSMIT
        };
        Some(Self {
            receive: mutex(&locks::RECEIVE, link.receive),
            interface: mutex(class, link.interface),
        })
    }
}

impl DriverSide {
    /// Whether threads that wait for sockets may lead the links.
    pub fn can_be_led(&self) -> bool {
        self.can_lead.load(Relaxed) // written before there are threads
    }

    /// Whether parts of the links are lent.
    pub fn lends(&self) -> bool {
        self.lends.load(Relaxed) // a thread that it concerns is rung for it
    }

    /// Whether a queue's link is gone for good.
    pub fn is_gone(&self, queue: usize) -> bool {
        self.queues[queue].gone.load(Relaxed) // the flag alone
    }

    /// Whether it is, and its connections and listeners have not learned it yet: the next turn of the queue tells them.
    pub fn is_untold(&self, queue: usize) -> bool {
        // Relaxed: where another thread has just told them, a turn too many.
        self.is_gone(queue) && !self.queues[queue].told.load(Relaxed)
    }

    /// Whether all links are.
    pub fn all_are_gone(&self) -> bool {
        (0..self.links.len()).all(|link| self.is_gone(link))
    }

    /// Whether a queue's link has just gone for good, which its connections and listeners learn once (ENETDOWN); then whether it was the last one.
    #[inline]
    pub fn newly_gone(&self, queue: usize) -> Option<bool> {
        // Relaxed: the thread that sees it takes the shard's lock.
        if !self.is_gone(queue) || self.queues[queue].told.swap(true, Relaxed) {
            return None;
        }
        Some(self.all_are_gone())
    }

    /// Whether the thread that has put something into the channels to a queue sends it itself: the queue's lane has a leader, present or away, or its packets
    /// go no further than this host.
    #[inline]
    pub fn is_sent_in_calls(&self, queue: usize) -> bool {
        self.own == Some(queue) || self.lane_of(queue).leader.is_led()
    }

    /// The queue of a link by which a shard sends.
    #[inline]
    pub fn queue_of(&self, link: usize, shard: usize) -> usize {
        match self.links[link].as_slice() {
            [only] => *only,
            several => several[shard % several.len()],
        }
    }

    /// The link's number of each queue.
    pub fn links_of_queues(&self) -> Vec<u8> {
        self.queues.iter().map(|queue| queue.link).collect()
    }

    /// The lane of a shard.
    #[inline]
    pub fn lane_of_shard(&self, shard: usize) -> &Lane {
        match self.lanes.as_slice() {
            [only] => only,
            several => &several[shard % several.len()],
        }
    }

    /// The lane of a queue.
    #[inline]
    pub fn lane_of(&self, queue: usize) -> &Lane {
        &self.lanes[self.queues[queue].lane]
    }

    /// The numbers of the queues in a shard's lane.
    pub fn queues_in_lane_of(&self, shard: usize) -> impl Iterator<Item = usize> {
        let lane = shard % self.lanes.len();
        let queues = self.queues.iter().enumerate();
        queues
            .filter(move |(_, queue)| queue.lane == lane)
            .map(|(number, _)| number)
    }

    /// The transmitting half that does the host's own work for a queue: that of its link's first one.
    pub fn with_host(&self, queue: usize, work: impl FnOnce(&mut Interface)) {
        let first = usize::from(self.queues[queue].link);
        let Some(halves) = &self.queues[first].halves else {
            return;
        };
        let mut interface = halves.interface.lock();
        work(&mut interface);
        // The first queue's own turn goes on.
        let calls = first != queue && (interface.take_call() || interface.has_returns());
        drop(interface);
        if calls {
            self.queues[first].doorbell.ring();
        }
    }

    /// Wakes the first queue's thread, which looks after shards that are called; ringing an awake one costs nothing.
    pub fn call_first_link(&self) {
        if let Some(interface) = self.queues.first() {
            interface.doorbell.ring();
        }
    }

    /// Wakes the links' threads.
    pub fn call_all_links(&self) {
        for interface in &self.queues {
            interface.doorbell.ring();
        }
    }
}
