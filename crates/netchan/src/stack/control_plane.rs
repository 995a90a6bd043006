//! The control plane of a stack: what was asked for, what is bound, what is configured. No packet comes here.

use std::{
    sync::{Arc, atomic::AtomicBool},
    thread::JoinHandle,
};

use percore::{
    lock::{Mutex, mutex},
    own::Own,
};
use proto::time::Instant;

use super::{directory::Directory, visitors::Visitors, watch::Watch};
use crate::{
    channel::{LeaseCore, PacketChannelCore},
    counters::Counters,
    driver::{host::Host, module::registry::Registry},
    link::lease::Lease,
    locks,
    regime::{Regime, choice::Choice},
};

/// Leases of this stack's links.
#[derive(Debug, Default)]
pub struct Lending {
    /// The number of the last one.
    pub next: u64,
    /// Those that are.
    pub all: Vec<Arc<LeaseCore>>,
}

/// What was lent with this stack's links.
pub struct Borrowed {
    /// Each with its link's number.
    all: Mutex<Vec<(u8, Arc<dyn Lease>)>>,
    /// A thread looks whether the last connection of a port has ended that is to go back to its lender.
    pub is_settling: AtomicBool,
}

impl Borrowed {
    /// These, each with its link's number.
    pub fn new(leases: Vec<(u8, Arc<dyn Lease>)>) -> Self {
        Self {
            all: mutex(&locks::BORROWED, leases),
            is_settling: AtomicBool::new(false),
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<dyn Lease>> {
        let all = self.all.lock();
        all.iter().map(|(_, lease)| lease.clone()).collect()
    }

    /// That of a link.
    pub fn of(&self, link: u8) -> Option<Arc<dyn Lease>> {
        let all = self.all.lock();
        let found = all.iter().find(|(number, _)| *number == link);
        found.map(|(_, lease)| lease.clone())
    }

    /// They are given up: the stack ends.
    pub fn clear(&self) {
        self.all.lock().clear();
    }
}

/// What the other two sides go by.
pub(crate) struct ControlPlane {
    pub regime: Regime,
    /// What was asked for.
    pub choice: Choice,
    /// Why the stack runs under Giant although another regime was asked for (F3).
    pub degraded: Option<String>,
    /// What said whether it forwards (`host.forwarding`): a configuration, an option, a default.
    pub forwarding_by: &'static str,
    /// The same for the loopback addresses (`host.network().loopback`).
    pub loopback_by: &'static str,
    pub host: Arc<Host>,
    pub directory: Directory,
    /// What looks at packets.
    pub modules: Registry,
    /// What applications receive packets by that the stack does not speak.
    pub packet_channels: Mutex<Vec<Arc<PacketChannelCore>>>,
    /// Parts of links that were lent to applications.
    pub lent: Mutex<Lending>,
    /// What was lent with this stack's links, where it is an application; nothing any more when the stack has ended.
    pub leases: Borrowed,
    pub counters: Arc<Counters>,
    pub started: Instant,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    /// What they do.
    pub watch: Watch,
    /// What the application's threads do.
    pub visitors: Visitors,
    /// What ends with the stack, before its threads do: what answers questions from outside.
    pub companions: Mutex<Vec<Box<dyn Send>>>,
    /// Keeps links that were handed over from other programs of the same run; its lock ends when it is closed.
    pub claim: Option<Own>,
}
