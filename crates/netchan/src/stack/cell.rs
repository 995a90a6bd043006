//! The cell: a shard with the ends of its channels, under the lock by which its holders take turns, and the leader of those that wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
};

use percore::{
    doorbell::Doorbell,
    lock::{Backlog, Mutex, mutex},
    remote_call::{CallSender, CallServer, remote_calls},
    ring::Consumer,
};
use proto::time::Instant;

use crate::{
    channel::{BackgroundCall, ShardEnd},
    limits, locks,
    packet::Packet,
    regime::Holder,
    shard::Shard,
    stack::{driver_side::OwnLink, shard_leader::ShardLeader},
};

/// What one holder at a time holds.
pub struct Held {
    /// The shard.
    pub shard: Shard,
    /// How it reaches its links.
    pub access: LinkAccess,
}

/// How a shard reaches its links.
pub enum LinkAccess {
    /// By a call, under the interface's lock (`stack::Halves`).
    Calls,
    /// As above; and what links brought while another thread held the shard lies here, for each interface.
    Backlogs(Vec<Consumer<Packet>>),
    /// By the ends of its channels, one for each interface.
    Channels(Vec<ShardEnd>),
    /// They are its own, under its lock: where there is one shard, and its callers turn the links, too.
    Own(Vec<OwnLink>),
}

impl Held {
    /// The ends of its channels.
    pub fn channels(&mut self) -> &mut [ShardEnd] {
        match &mut self.access {
            LinkAccess::Channels(ends) => ends,
            LinkAccess::Calls | LinkAccess::Backlogs(_) | LinkAccess::Own(_) => &mut [],
        }
    }

    /// Whether the classifiers have heeded all that the shard asked of them.
    pub fn requests_are_heeded(&mut self) -> bool {
        let are_out = self.shard.requests.is_empty();
        let mut ends = self.channels().iter_mut();
        are_out && ends.all(|end| end.requests.room() == end.requests.capacity())
    }

    /// Its backlog, a part for each interface.
    pub fn backlogs(&mut self) -> &mut [Consumer<Packet>] {
        match &mut self.access {
            LinkAccess::Backlogs(ends) => ends,
            LinkAccess::Calls | LinkAccess::Channels(_) | LinkAccess::Own(_) => &mut [],
        }
    }

    /// Panics if an invariant of what is held is broken: for builds that check them.
    #[cold]
    pub fn check(&mut self) {
        self.shard.check();
        for end in self.channels() {
            let (used, room) = (end.received.len(), end.outgoing.room());
            assert!(used <= limits::CHANNEL_RX && room <= limits::CHANNEL_TX);
        }
        for end in self.backlogs() {
            assert!(end.len() <= limits::CHANNEL_RX);
        }
        for link in self.own_links() {
            let slab = &mut link.receive.slab;
            assert!(slab.available() <= slab.capacity(), "receive buffers");
        }
    }

    /// The links that are the shard's own.
    pub fn own_links(&mut self) -> &mut [OwnLink] {
        match &mut self.access {
            LinkAccess::Own(links) => links,
            LinkAccess::Calls | LinkAccess::Backlogs(_) | LinkAccess::Channels(_) => &mut [],
        }
    }
}

/// A shard and the way to it.
pub struct Cell {
    /// In the regimes of one lock or many: the lock that links and applications share. In the channel regimes: how the threads of an
    /// application take turns; no link ever touches it. Where the shard is its core's, only that core's thread takes it, as long as
    /// it lives.
    pub held: Mutex<Held>,
    /// Whether links have left packets with its holder, where they do: each unlock is followed by a look here (`Stack::leave`).
    pub backlog: Option<Backlog>,
    /// Rung when a packet was put into one of the channels.
    pub doorbell: Arc<Doorbell>,
    /// Where the shard is the application's to turn: which of the threads that wait for it does.
    pub leader: ShardLeader,
    /// The way to a shard that is its core's alone.
    pub call_sender: Option<CallSender<Held>>,
    /// The other end, until the core's thread takes it.
    call_server: Mutex<Option<CallServer<Held>>>,
    /// Wakes the background poller, where the shard is the application's to turn.
    pub background_call: Option<Arc<BackgroundCall>>,
    /// The watchdog found that packets wait for it and no thread takes them.
    pub forsaken: AtomicBool,
    next_timer: AtomicU64,
}

thread_local! {
    /// The address of the cell whose call server this thread is; 0: of none.
    static OWN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Cell {
    /// A cell.
    pub fn new(
        shard: Shard,
        access: LinkAccess,
        doorbell: Arc<Doorbell>,
        background_call: Option<Arc<BackgroundCall>>,
    ) -> Self {
        let backlog = matches!(access, LinkAccess::Backlogs(_)).then(Backlog::new);
        Self {
            held: mutex(&locks::SHARD, Held { shard, access }),
            backlog,
            doorbell,
            leader: ShardLeader::default(),
            background_call,
            call_sender: None,
            call_server: mutex(&locks::CALL_SERVER, None),
            forsaken: AtomicBool::new(false),
            next_timer: AtomicU64::new(u64::MAX),
        }
    }

    /// With a call sender, where one thread alone holds the shard.
    pub fn held_by(mut self, holder: Holder) -> Self {
        if holder != Holder::Core {
            return self;
        }
        let (sender, server) = remote_calls(self.doorbell.clone());
        self.call_sender = Some(sender);
        self.call_server = mutex(&locks::CALL_SERVER, Some(server));
        self
    }

    /// Makes the calling thread the shard's leader, unless another one leads it.
    pub fn lead(&self) -> bool {
        self.leader.lead(self.background_call.as_deref())
    }

    /// Makes the calling thread the shard's call server; `None` if it has one already.
    pub fn own(&self) -> Option<CallServer<Held>> {
        let server = self.call_server.lock().take()?;
        OWN.set(std::ptr::from_ref(self).addr());
        Some(server)
    }

    /// The thread that was the shard's call server ends, and another one may become it. What is called meanwhile waits for that.
    pub fn disown(&self, server: Option<CallServer<Held>>) {
        OWN.set(0);
        *self.call_server.lock() = server;
    }

    /// Has the shard's own thread do it. Gives `f` back where there is none: the shard is not one thread's, or that thread has ended; and where
    /// it is the calling thread itself, outside of a turn (in a waker, say). Then the lock says whose the shard is.
    ///
    /// # Errors
    /// `f`, not called.
    pub fn ask<R: Send, F: FnOnce(&mut Held) -> R + Send>(&self, f: F) -> Result<R, F> {
        match &self.call_sender {
            Some(sender) if OWN.get() != std::ptr::from_ref(self).addr() => sender.run(f),
            _ => Err(f),
        }
    }

    /// When the shard's timers want to be served, as of the last holder. A hint: the lock decides.
    #[inline]
    pub fn next_timer(&self) -> Instant {
        // Relaxed: a hint; a thread that acts on it takes the lock.
        Instant(self.next_timer.load(Relaxed))
    }

    /// Publishes when timers are due; true if that is earlier than it was.
    #[inline]
    pub fn publish_timer(&self, at: Instant) -> bool {
        // Relaxed, and no exchange: written under the lock only.
        let before = self.next_timer.load(Relaxed);
        if before != at.0 {
            self.next_timer.store(at.0, Relaxed);
        }
        at.0 < before
    }
}

/// Wakers collected under the lock, to be woken after it.
pub fn wake_all(woken: &mut Vec<Waker>) {
    for waker in woken.drain(..) {
        waker.wake();
    }
}
