//! The sockets' side of a stack: its shards, and which threads wait for them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use super::cell::Cell;
use crate::{channel::BackgroundPoller, memory::Account};

/// What runs the protocols, for applications.
pub(crate) struct SocketSide {
    pub cells: Vec<Cell>,
    /// What sockets of TCP and of UDP hold together, and may.
    pub memory: [Arc<Account>; 2],
    /// Wakes the background poller.
    pub background: Arc<BackgroundPoller>,
    /// The background poller turns shards at once.
    pub background_at_once: AtomicBool,
    /// The application's threads that wait for its shards.
    pub waiting: AtomicUsize,
    /// How often threads that wait were woken; wraps.
    pub wakes: Arc<AtomicU32>,
    /// Threads so far that wait for sets of sockets: each has its home in the next shard.
    pub homes: AtomicUsize,
    /// Connections opened so far without threads of its own: each takes the next shard, so that a run does not depend on its callers' threads.
    pub opened: AtomicUsize,
}

impl SocketSide {
    /// Of these shards, nothing happened yet.
    pub fn new(
        cells: Vec<Cell>,
        memory: [Arc<Account>; 2],
        background: Arc<BackgroundPoller>,
    ) -> Self {
        Self {
            cells,
            memory,
            background,
            background_at_once: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            wakes: Arc::default(),
            homes: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
        }
    }

    /// Has the background poller turn shards at once from now on.
    pub fn poll_in_background(&self) {
        self.background_at_once.store(true, SeqCst);
        self.background.bell.ring();
    }

    /// Whether the background poller turns shards at once.
    pub fn polls_in_background(&self) -> bool {
        self.background_at_once.load(SeqCst)
    }
}
