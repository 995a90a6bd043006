//! The sockets' side of a stack: its shards, and which threads wait for them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use super::cell::Cell;
use crate::{channel::Attendant, memory::Account};

/// What runs the protocols, for applications.
pub(crate) struct SocketSide {
    pub cells: Vec<Cell>,
    /// What sockets of TCP and of UDP hold together, and may.
    pub memory: [Arc<Account>; 2],
    /// Wakes the attendant.
    pub attendant: Arc<Attendant>,
    /// The attendant turns shards at once.
    pub attended: AtomicBool,
    /// The application's threads that wait for its shards.
    pub waiting: AtomicUsize,
    /// How often threads that wait were woken; wraps.
    pub wakes: Arc<AtomicU32>,
    /// Connections opened so far without threads of its own: each takes the next shard, so that a run does not depend on its callers' threads.
    pub opened: AtomicUsize,
}

impl SocketSide {
    /// Of these shards, nothing happened yet.
    pub fn new(cells: Vec<Cell>, memory: [Arc<Account>; 2], attendant: Arc<Attendant>) -> Self {
        Self {
            cells,
            memory,
            attendant,
            attended: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            wakes: Arc::default(),
            opened: AtomicUsize::new(0),
        }
    }

    /// The attendant shall turn shards at once.
    pub fn attend(&self) {
        self.attended.store(true, SeqCst);
        self.attendant.bell.ring();
    }

    /// Whether it shall.
    pub fn is_attended(&self) -> bool {
        self.attended.load(SeqCst)
    }
}
