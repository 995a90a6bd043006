//! The links' side of a stack: its interfaces, and which thread polls them. Nothing here names a shard or a socket: packets and requests come and go
//! through the ends of channels that lie in the interfaces' halves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use percore::{
    doorbell::Doorbell,
    leader::Leader,
    lock::{Mutex, mutex},
};

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
    pub interfaces: Vec<SharedInterface>,
    /// The link leader: which thread polls the links.
    pub leader: Leader,
    /// Whether threads that wait may lead the links.
    pub can_lead: AtomicBool,
    /// When an application's thread last looked at the links, ns of the stack's clock.
    pub looked: AtomicU64,
    /// A link leader that is away for so long is replaced; zero: the links' threads poll always.
    pub background: Duration,
    /// Packets wake a link's thread at most once in this time (D6).
    pub moderation: Duration,
}

/// An interface, as every thread sees it.
pub(crate) struct SharedInterface {
    /// Of its link: `tap`, `packet`, `wire`, …
    pub kind: &'static str,
    /// Whether its link's driver runs under Giant.
    pub concurrency: Concurrency,
    /// Its two halves; `None`: they are under the shard's lock (`stack::cell::LinkAccess::Own`).
    pub halves: Option<Halves>,
    /// Wakes the link's thread.
    pub doorbell: Arc<Doorbell>,
    /// The link is gone for good.
    pub gone: Arc<AtomicBool>,
    /// Its connections know.
    pub told: AtomicBool,
    /// Times that packets woke its thread, which alone writes it.
    pub wakeups: AtomicU64,
}

/// Both halves of an interface.
pub struct OwnLink {
    /// The receiving half.
    pub receive: Receive,
    /// The transmitting half.
    pub interface: Interface,
}

impl OwnLink {
    /// Both halves, with the modules that look at what is received, passed on and sent.
    pub fn new(mut receive: Receive, mut interface: Interface, modules: [HookChain; 3]) -> Self {
        [receive.modules, receive.forward_modules, interface.modules] = modules;
        Self { receive, interface }
    }
}

/// The two halves of an interface, each under its own lock. Order: `receive`, then a shard, then `interface`.
pub(crate) struct Halves {
    /// Receiving: for the thread that turns the link.
    pub receive: Mutex<Receive>,
    /// Transmitting and the host's own work.
    pub interface: Mutex<Interface>,
}

impl Halves {
    /// Both, free; or `None`, if they are a shard's own: then they are added to `links`.
    pub fn unless(own: bool, link: OwnLink, links: &mut Vec<OwnLink>) -> Option<Self> {
        if own {
            links.push(link);
            return None;
        }
        Some(Self {
            receive: mutex(&locks::RECEIVE, link.receive),
            interface: mutex(&locks::TRANSMIT, link.interface),
        })
    }
}

impl DriverSide {
    /// Whether a link is gone for good.
    pub fn is_gone(&self, link: usize) -> bool {
        // Relaxed: the flag alone; the thread that sets it rings.
        self.interfaces[link].gone.load(Relaxed)
    }

    /// Whether all links are.
    pub fn all_are_gone(&self) -> bool {
        (0..self.interfaces.len()).all(|link| self.is_gone(link))
    }

    /// Whether a link has just gone for good, which its connections and listeners learn once (ENETDOWN); then whether it was the last one.
    #[inline]
    pub fn newly_gone(&self, link: usize) -> Option<bool> {
        // Relaxed: the thread that sees it takes the shard's lock.
        if !self.is_gone(link) || self.interfaces[link].told.swap(true, Relaxed) {
            return None;
        }
        Some(self.all_are_gone())
    }

    /// Wakes the first link's thread, which looks after shards that are called; ringing an awake one costs nothing.
    pub fn call_first_link(&self) {
        if let Some(interface) = self.interfaces.first() {
            interface.doorbell.ring();
        }
    }

    /// Wakes the links' threads.
    pub fn call_all_links(&self) {
        for interface in &self.interfaces {
            interface.doorbell.ring();
        }
    }
}
