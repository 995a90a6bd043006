//! A running stack: its shards, its interfaces, and how one comes to hold a shard.

mod backlog;

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    thread::JoinHandle,
    time::Duration,
};

use percore::{
    doorbell::Doorbell,
    errand::Owner,
    lock::{Mutex, MutexGuard, mutex},
};
use proto::{
    tcp::{Connection, State},
    time::Instant,
    wire::ipv4::Protocol,
};

use crate::{
    clock::Clock,
    control::Control,
    counters::Counters,
    directory::Directory,
    giant::Giant,
    host::Host,
    interface::{Interface, Receive},
    locks,
    memory::Account,
    module::registry::Registry,
    path,
    regime::{
        Handoff, Holder, Layout, Regime,
        cell::{Cell, Held, OwnLink, Ways, wake_all},
        choice::Choice,
        places::Places,
    },
    shard::Shard,
    socket::attendant::Attendant,
    stages::{self, Stage},
    steer::{flow::FlowKey, spread},
    trace,
    watch::Watch,
};

/// An interface as all can see it.
pub(crate) struct Port {
    /// Its two halves; `None`: they are under the shard's lock (`regime::cell::Ways::Own`).
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

/// The two halves of an interface, each under its own lock. Order: `receive`, then a shard, then `interface`.
pub(crate) struct Halves {
    /// Receiving: whoever turns the link.
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

/// Everything of one stack.
pub(crate) struct Stack {
    pub regime: Regime,
    /// What was asked for.
    pub choice: Choice,
    pub layout: Layout,
    pub clock: Clock,
    /// Threads of its own turn it; else its callers do.
    pub threaded: bool,
    /// It is as with threads, but somebody else takes their turns (`steps`).
    pub stepped: bool,
    /// The links are the only shard's own ([`Ways::Own`]): one lock for all, under which a call receives, works and sends.
    pub owns_links: bool,
    /// F1: Giant, where the whole stack runs under it; else it is the modules' (`modules.giant`).
    pub giant: Option<Arc<Giant>>,
    /// Why the stack runs under Giant although another regime was asked for (F3).
    pub degraded: Option<String>,
    /// Who said whether it forwards (`host.forwarding`).
    pub forwarding_by: &'static str,
    /// Who looks at packets.
    pub modules: Registry,
    pub host: Arc<Host>,
    pub counters: Arc<Counters>,
    /// What sockets of TCP and of UDP hold together, and may.
    pub memory: [Arc<Account>; 2],
    pub directory: Directory,
    pub ports: Vec<Port>,
    pub cells: Vec<Cell>,
    pub stop: AtomicBool,
    /// The attendant turns shards at once.
    pub attended: AtomicBool,
    /// Wakes the attendant.
    pub attendant: Arc<Attendant>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    /// What they do.
    pub watch: Watch,
    /// Packets wake a link's thread at most once in this time (D6).
    pub moderation: Duration,
    /// Spins of this long come before a sleep, ns.
    pub spin_ns: u64,
    pub started: Instant,
    /// Answers questions from outside.
    pub control: Mutex<Option<Control>>,
}

/// What a core's thread has in its hands.
pub(crate) struct Core {
    /// Runs the errands of others. `None`: they run them in place (`steps`).
    owner: Option<Owner<Held>>,
    /// Links that its shard knows to be gone.
    told: Vec<bool>,
}

impl Core {
    /// At its beginning.
    pub fn of(stack: &Stack, owner: Option<Owner<Held>>) -> Self {
        let told = vec![false; stack.ports.len()];
        Self { owner, told }
    }
}

thread_local! {
    /// Where wakers wait for the lock to be let go; keeps its capacity from call to call.
    static WOKEN: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

impl Stack {
    /// Holds a shard for one call of `f`: what waits in its channels and timers comes first, what `f` leads to goes out after it.
    #[inline]
    pub fn with_shard<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        let now = self.clock.now();
        self.hold(number, now, |held| {
            stages::enter(Stage::Socket);
            f(&mut held.shard, now)
        })
    }

    /// The same for calls that want what has been received: where no thread does it, the links are turned first.
    #[inline]
    pub fn with_shard_fresh<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        let now = self.clock.now();
        if !self.threaded && !self.owns_links {
            self.turn_links();
        }
        self.hold(number, now, |held| {
            if let Ways::Own(links) = &mut held.ways {
                path::receive_own(self, &mut held.shard, links, now);
            }
            stages::enter(Stage::Socket);
            f(&mut held.shard, now)
        })
    }

    /// For the receiving side, which turns the links itself.
    #[inline]
    pub fn with_shard_at<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Shard) -> R + Send,
    ) -> R {
        self.hold(number, now, |held| f(&mut held.shard))
    }

    /// An interface's transmitting half.
    pub fn with_interface<R>(&self, number: usize, f: impl FnOnce(&mut Interface) -> R) -> R {
        let _giant = self.giant.as_deref().map(Giant::enter);
        match &self.ports[number].halves {
            Some(halves) => f(&mut halves.interface.lock()),
            None => f(&mut self.cells[0].held.lock().own_links()[number].interface),
        }
    }

    #[inline]
    fn hold<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Held) -> R + Send,
    ) -> R {
        if self.layout.holder == Holder::Core {
            return self.hold_owned(number, now, f);
        }
        self.hold_here(number, now, f)
    }

    /// Has a core's thread do it (D1, D7). What `f` leads to goes out, and wakes whom it wakes, at the end of that thread's turn.
    #[cold]
    #[inline(never)]
    fn hold_owned<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Held) -> R + Send,
    ) -> R {
        if self.stepped {
            return self.hold_here(number, now, f); // one thread is caller and owner
        }
        // The wait is no work of the application's; what the errand does is accounted where it runs.
        match stages::sleeping(|| self.cells[number].ask(f)) {
            Ok(result) => result,
            Err(f) => self.hold_here(number, now, f),
        }
    }

    /// Looks at a shard, without a turn.
    fn peek<R: Send>(&self, number: usize, f: impl FnOnce(&mut Held) -> R + Send) -> R {
        let cell = &self.cells[number];
        if self.stepped {
            return f(&mut cell.held.lock());
        }
        match cell.ask(f) {
            Ok(result) => result,
            Err(f) => {
                let result = f(&mut cell.held.lock());
                self.passed_by(cell);
                result
            }
        }
    }

    /// A core's turn of its shard: packets, timers, errands.
    pub fn turn_owned(&self, number: usize, core: &mut Core, now: Instant) -> bool {
        let cell = &self.cells[number];
        let mut held = lock(cell, number);
        let mut work = path::take_received(&mut held, now);
        if held.shard.next_timer(now) <= now {
            held.shard.run_timers(now);
        }
        for (link, told) in core.told.iter_mut().enumerate() {
            // Relaxed: the flag alone; who set it rings.
            if !*told && self.ports[link].gone.load(Relaxed) {
                *told = true;
                let last = self.ports.iter().all(|port| port.gone.load(Relaxed));
                held.shard.link_gone(link, last, now);
            }
        }
        if let Some(owner) = &mut core.owner {
            work |= owner.serve(&mut held) > 0;
        }
        self.leave(cell, held, now);
        work
    }

    #[inline]
    fn hold_here<R>(&self, number: usize, now: Instant, f: impl FnOnce(&mut Held) -> R) -> R {
        let _giant = self.giant.as_deref().map(Giant::enter);
        let cell = &self.cells[number];
        let mut held = lock(cell, number);
        self.enter(cell, &mut held, now);
        let result = f(&mut held);
        self.leave(cell, held, now);
        result
    }

    // Whatever does not depend on `f` is code of its own: inlined into every socket call it would not fit the instruction
    // cache (a connection's life cost 2,000 misses of it).

    #[inline(always)]
    fn enter(&self, cell: &Cell, held: &mut Held, now: Instant) {
        if self.layout.holder == Holder::Application {
            path::take_received(held, now);
        } else if cell.backlog.is_some() {
            Self::take_backlog(cell, held, now);
        }
        if held.shard.next_timer(now) <= now {
            held.shard.run_timers(now);
        }
    }

    #[inline(never)]
    fn leave(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        if cell.backlog.is_some() {
            return self.leave_backlog(cell, held, now);
        }
        self.let_go(cell, held, now);
    }

    #[inline(always)]
    fn let_go(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        if trace::is_watched() {
            return self.let_go_watched(cell, held, now);
        }
        self.let_go_as::<false>(cell, held, now);
    }

    /// The same while somebody watches: with marks for the trace and the stages.
    #[cold]
    #[inline(never)]
    fn let_go_watched(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        stages::enter(Stage::Protocol);
        let number = held.shard.number() as u64;
        self.let_go_as::<true>(cell, held, now);
        trace::detail(trace::TURN_END, [number]);
        stages::end_of_turn();
    }

    #[inline(always)]
    fn let_go_as<const WATCHED: bool>(
        &self,
        cell: &Cell,
        mut held: MutexGuard<'_, Held>,
        now: Instant,
    ) {
        held.shard.finish(now);
        if held.shard.has_output() {
            if WATCHED {
                sends(&held.shard);
            }
            path::hand_out(self, &mut held, now);
        }
        if percore::checks::INVARIANTS {
            held.check();
        }
        let earlier = cell.publish_timer(held.shard.next_timer(now));
        if held.shard.woken.is_empty() {
            drop(held);
        } else {
            // Woken after the lock is free, or they would wake up only to wait for it.
            let mut woken = WOKEN.take();
            std::mem::swap(&mut woken, &mut held.shard.woken);
            drop(held);
            let before = stages::enter(Stage::Scheduler);
            wake_all(&mut woken);
            stages::back(before);
            WOKEN.set(woken);
        }
        if earlier && self.threaded {
            self.timer_moved(cell);
        }
    }

    /// A timer became due earlier than whoever sleeps for it knows.
    #[cold]
    fn timer_moved(&self, cell: &Cell) {
        match self.layout.holder {
            Holder::Anyone => self.call_first_link(),
            // The attendant looks at the timers by itself, every tick.
            Holder::Application if !cell.seat.is_taken() => {}
            Holder::Application | Holder::Network => {
                cell.doorbell.ring();
            }
            // Whoever moved it looks at it before the next sleep.
            Holder::Core => {}
        }
    }

    /// The first link's thread looks after shards that are called; ringing an awake one costs nothing.
    fn call_first_link(&self) {
        if let Some(port) = self.ports.first() {
            port.doorbell.ring();
        }
    }

    /// Turns a link once: packets of its shards, received packets, timers. True if there was work.
    pub fn turn_link(&self, number: usize, now: Instant) -> bool {
        let _giant = self.giant.as_deref().map(Giant::enter);
        match &self.ports[number].halves {
            Some(halves) => self.turn(number, &mut halves.receive.lock(), &halves.interface, now),
            None => self.turn_own(now),
        }
    }

    /// Turns a link, unless another thread is at it: then it is left to that one.
    fn turn_if_free(&self, number: usize, halves: &Halves, now: Instant) -> bool {
        match halves.receive.try_lock() {
            Some(mut side) => self.turn(number, &mut side, &halves.interface, now),
            None => false,
        }
    }

    fn turn(
        &self,
        number: usize,
        side: &mut Receive,
        interface: &Mutex<Interface>,
        now: Instant,
    ) -> bool {
        let work = self.turn_halves(side, interface, now);
        self.tell_if_gone(number, now);
        work
    }

    #[inline(always)]
    fn turn_halves(&self, side: &mut Receive, interface: &Mutex<Interface>, now: Instant) -> bool {
        let before = stages::enter(Stage::Link);
        let mut interface = interface.lock();
        let mut work = path::transmit_from_channels(&mut interface, now) > 0;
        work |= path::receive(self, side, &mut interface, now);
        self.look_after(&mut interface, now);
        work |= interface.has_returns();
        drop(interface);
        stages::back(before);
        work
    }

    /// The shards learn that a link is gone.
    #[inline(always)]
    fn tell_if_gone(&self, number: usize, now: Instant) {
        if let Some(last) = self.newly_gone(number) {
            self.tell_gone(number, last, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_gone(&self, number: usize, last: bool, now: Instant) {
        if self.layout.holder == Holder::Core {
            // Each finds it out in its next turn.
            return self.cells.iter().for_each(|cell| _ = cell.doorbell.ring());
        }
        for shard in 0..self.cells.len() {
            self.with_shard_at(shard, now, |shard| shard.link_gone(number, last, now));
        }
    }

    /// Turns the links that are a shard's own.
    fn turn_own(&self, now: Instant) -> bool {
        self.hold(0, now, |held| {
            let Held {
                shard,
                ways: Ways::Own(links),
            } = held
            else {
                return false;
            };
            let work = path::receive_own(self, shard, links, now);
            // What that led to goes out before the last look: it may be for ourselves.
            shard.finish(now);
            path::hand_out(self, held, now);
            work | held
                .own_links()
                .iter()
                .any(|link| link.interface.has_returns())
        })
    }

    /// Whether a link has just gone for good, which its connections and listeners learn once (ENETDOWN); then whether it was the last one.
    #[inline]
    pub fn newly_gone(&self, number: usize) -> Option<bool> {
        let port = &self.ports[number];
        // Relaxed: the flag alone; whoever sees it takes the shard's lock.
        if !port.gone.load(Relaxed) || port.told.swap(true, Relaxed) {
            return None;
        }
        Some(self.ports.iter().all(|p| p.gone.load(Relaxed)))
    }

    /// Timers of an interface, and frames that found its link full.
    #[inline]
    pub fn look_after(&self, interface: &mut Interface, now: Instant) {
        if interface.is_time_to_look(now) {
            interface.run_timers(now);
        }
        if interface.has_frames() {
            path::flush(interface, now);
        }
    }

    /// Turns all links, for stacks without threads.
    pub fn turn_links(&self) -> bool {
        let now = self.clock.now();
        if self.owns_links {
            return self.turn_own(now);
        }
        let _giant = self.giant.as_deref().map(Giant::enter);
        let mut work = false;
        for (number, port) in self.ports.iter().enumerate() {
            work |= port
                .halves
                .as_ref()
                .is_some_and(|halves| self.turn_if_free(number, halves, now));
        }
        work
    }

    /// Turns all links and shards once. True if there was work.
    pub fn turn_all(&self) -> bool {
        let mut work = self.turn_links();
        if self.layout.handoff == Handoff::Call {
            // The shards were called with what came in, and have sent what followed from it: only their timers are left.
            self.run_called_timers(self.clock.now(), false);
            return work;
        }
        for number in 0..self.cells.len() {
            self.turn_shard(number);
        }
        work |= self.turn_links();
        work
    }

    /// Turns a shard that has packets or timers waiting. True if a protocol thread found packets.
    pub fn turn_shard(&self, number: usize) -> bool {
        let now = self.clock.now();
        self.hold(number, now, |held| {
            // What the application holds has taken them by now.
            self.layout.holder == Holder::Network && path::take_received(held, now)
        })
    }

    /// Whether a connection has sent, or was given to send, what its peer has not acknowledged: text, or the end of the stream.
    pub fn owes_peers(&self) -> bool {
        let owes = |connection: &Connection| match connection.state() {
            State::FinWait1 | State::Closing | State::LastAck => true,
            State::Established | State::CloseWait => connection.unacknowledged() > 0,
            _ => false,
        };
        (0..self.cells.len()).any(|number| {
            self.peek(number, |held| {
                let mut connections = held.shard.connections();
                connections.any(|(_, c)| owes(&c.connection))
            })
        })
    }

    /// When something is due by time alone.
    pub fn next_event(&self) -> Instant {
        let timers = self.cells.iter().map(Cell::next_timer);
        let links = (0..self.ports.len())
            .map(|number| self.with_interface(number, |interface| interface.next_event()));
        timers.chain(links).min().unwrap_or(Instant::FAR)
    }

    /// Serves the timers of shards that are called, not fed by channels; in vain sometimes, of a shard that somebody holds, if the caller
    /// is `busy`: has more to do than wait for it.
    pub fn run_called_timers(&self, now: Instant, busy: bool) {
        if self.layout.backlogs {
            return self.look_after_shards(now, busy);
        }
        for (number, cell) in self.cells.iter().enumerate() {
            if cell.next_timer() <= now {
                self.hold(number, now, |_| ());
            }
        }
    }

    /// The shard where a connection from `local` to `remote` shall live: where its answers are steered, if its port is chosen already;
    /// else one of its own, or the one of the calling thread.
    /// `None`: no route.
    pub fn shard_for_connect(
        &self,
        source: Option<IpAddr>,
        port: u16,
        remote: SocketAddr,
    ) -> Option<usize> {
        if self.cells.len() == 1 {
            return Some(0);
        }
        if port == 0 {
            let own = self.host.places.as_deref().map(Places::claim_in_turn);
            return Some(own.unwrap_or_else(|| thread_spread() % self.cells.len()));
        }
        let local = match source {
            Some(source) => source,
            None => self.host.route(remote.ip())?.1,
        };
        let key = FlowKey {
            local,
            remote: remote.ip(),
            local_port: port,
            remote_port: remote.port(),
            protocol: Protocol::TCP,
        };
        Some(spread(self.host.flow_hash.hash(&key), self.cells.len()))
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

    /// Whether the stack is ending.
    pub fn is_stopping(&self) -> bool {
        // Relaxed: a flag on its own; whoever sees it late turns once more.
        self.stop.load(Relaxed)
    }
}

/// Takes a shard's lock.
#[inline(always)]
fn lock(cell: &Cell, number: usize) -> MutexGuard<'_, Held> {
    if trace::is_watched() {
        lock_watched(cell, number)
    } else {
        cell.held.lock()
    }
}

/// Takes a shard's lock, unless somebody has it.
#[inline]
fn try_lock(cell: &Cell, number: usize) -> Option<MutexGuard<'_, Held>> {
    let held = cell.held.try_lock()?;
    if trace::is_watched() {
        stages::begin_of_turn();
        taken(number);
    }
    Some(held)
}

/// Takes a shard's lock, and says how long that took if it was somebody else's.
#[cold]
#[inline(never)]
fn lock_watched(cell: &Cell, number: usize) -> MutexGuard<'_, Held> {
    stages::begin_of_turn();
    let held = cell.held.try_lock().unwrap_or_else(|| {
        let since = percore::clock::now_ns();
        let held = cell.held.lock();
        let waited = percore::clock::now_ns().saturating_sub(since);
        trace::detail(trace::LOCK_WAITED, [number as u64, waited]);
        held
    });
    taken(number);
    held
}

/// Marks, while somebody watches, that a turn begins.
fn taken(number: usize) {
    trace::detail(trace::TURN_BEGIN, [number as u64]);
    stages::enter(Stage::Protocol);
}

/// Marks, while somebody watches, that a shard sends.
fn sends(shard: &Shard) {
    for (link, outbox) in shard.outboxes.iter().enumerate() {
        let packets = outbox.len() as u64;
        if packets > 0 {
            let shard = shard.number() as u64;
            trace::detail(trace::SENT, [shard, packets, link as u64]);
        }
    }
    stages::enter(Stage::Link);
}

/// A small number that differs from thread to thread.
fn thread_spread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|mine| *mine)
}
