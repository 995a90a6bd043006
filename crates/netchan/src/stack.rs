//! A running stack: its shards, its interfaces, and what it knows of them as a whole.

#[cfg(test)]
mod answer_tests;
pub(crate) mod attendant;
mod backlog;
mod batch;
pub(crate) mod cell;
pub(crate) mod directory;
mod forward;
mod hold;
pub(crate) mod lead;
mod rx;
pub(crate) mod seat;
pub(crate) mod sleep;
#[cfg(test)]
mod tests;
mod turn;
pub(crate) mod tx;
pub(crate) mod watch;
pub(crate) mod worker;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::JoinHandle,
    time::Duration,
};

use percore::{
    doorbell::Doorbell,
    leader::Leader,
    lock::{Mutex, mutex},
    own::Own,
};
use proto::{
    tcp::{Connection, State},
    time::Instant,
    wire::ipv4::Protocol,
};

pub(crate) use self::turn::Core;
use crate::{
    api::{Kind, binding::BindRequest},
    channel::Attendant,
    clock::Clock,
    counters::Counters,
    driver::{
        host::Host,
        interface::{Interface, Receive},
        module::{Giant, registry::Registry},
        steer::spread,
    },
    flow::FlowKey,
    giant::Concurrency,
    limits, locks,
    memory::Account,
    places::Places,
    regime::{Layout, Regime, choice::Choice},
    stack::{
        cell::{Cell, OwnLink},
        directory::Directory,
        sleep::readable,
        watch::Watch,
    },
};

/// An interface as all can see it.
pub(crate) struct Port {
    /// Of its link: `tap`, `packet`, `wire`, …
    pub kind: &'static str,
    /// Whether its link's driver runs under Giant.
    pub concurrency: Concurrency,
    /// Its two halves; `None`: they are under the shard's lock (`stack::cell::Ways::Own`).
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

/// Everything of one stack.
pub(crate) struct Stack {
    pub regime: Regime,
    /// Connections opened so far without threads of its own: each takes the next shard, so that a run does not depend on its callers' threads.
    pub opened: AtomicUsize,
    /// What was asked for.
    pub choice: Choice,
    pub layout: Layout,
    pub clock: Clock,
    /// Threads of its own turn it; else its callers do.
    pub threaded: bool,
    /// It is as with threads, but `steps` takes their turns.
    pub stepped: bool,
    /// The links are the only shard's own ([`Ways::Own`]): one lock for all, under which a call receives, works and sends.
    pub owns_links: bool,
    /// F1: Giant, where the whole stack runs under it; else it is the modules' (`modules.giant`).
    pub giant: Option<Arc<Giant>>,
    /// Why the stack runs under Giant although another regime was asked for (F3).
    pub degraded: Option<String>,
    /// What set whether it forwards (`host.forwarding`).
    pub forwarding_by: &'static str,
    /// The same for the loopback addresses (`host.network().loopback`).
    pub loopback_by: &'static str,
    /// Modules that look at packets.
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
    /// Which thread polls the links.
    pub leader: Leader,
    /// Whether threads that wait may do it.
    pub can_lead: AtomicBool,
    /// The application's threads that wait for its shards.
    pub waiting: AtomicUsize,
    /// How often threads that wait were woken; wraps.
    pub wakes: Arc<AtomicU32>,
    /// When an application's thread last looked at the links, ns of the stack's clock.
    pub looked: AtomicU64,
    /// A leader that is away for so long is replaced; zero: the links' threads poll always.
    pub background: Duration,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    /// What they do.
    pub watch: Watch,
    /// Packets wake a link's thread at most once in this time (D6).
    pub moderation: Duration,
    /// Spins of this long come before a sleep, ns.
    pub spin_ns: u64,
    pub started: Instant,
    /// What ends with the stack, before its threads do: what answers questions from outside.
    pub companions: Mutex<Vec<Box<dyn Send>>>,
    /// Keeps links that were handed over from other programs of the same run; its lock ends when it is closed.
    #[expect(dead_code, reason = "held, not read")]
    pub claim: Option<Own>,
}

impl Stack {
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
        let links = (0..self.ports.len()).map(|number| self.next_event_of(number));
        timers.chain(links).min().unwrap_or(Instant::FAR)
    }

    /// When something is due at a link by time alone.
    pub fn next_event_of(&self, link: usize) -> Instant {
        let receives = self.with_receive(link, |receive| receive.link.next_event());
        receives.min(self.with_interface(link, |interface| interface.next_event()))
    }

    /// An entry for poll(2) with a link's descriptor, where it has one and is not gone.
    pub fn pollfd_of(&self, link: usize) -> Option<libc::pollfd> {
        // Relaxed: the flag alone.
        let here = !self.ports[link].gone.load(Relaxed);
        here.then(|| self.with_receive(link, |receive| receive.link.fd().map(readable)))?
    }

    /// The shard where a connection from `local` to `remote` shall live: where its answers are steered, if its port is chosen already;
    /// else one of its own, or the one of the calling thread.
    /// `None`: no route.
    pub fn shard_for_connect(
        &self,
        source: Option<IpAddr>,
        port: u16,
        remote: SocketAddr,
        mark: u32,
    ) -> Option<usize> {
        if self.cells.len() == 1 {
            return Some(0);
        }
        if port == 0 {
            let own = self.host.places.as_deref().map(Places::claim_in_turn);
            return Some(own.unwrap_or_else(|| self.spread_of_caller() % self.cells.len()));
        }
        let local = match source {
            Some(source) => source,
            None => self.host.network().route(remote.ip(), mark)?.1,
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

    /// Where the calling thread's connections live; of a stack that is turned from outside, which a seed must replay, each in its turn.
    fn spread_of_caller(&self) -> usize {
        if self.threaded && !self.stepped {
            return thread_spread();
        }
        // Relaxed: a number that nothing is ordered by.
        self.opened.fetch_add(1, Relaxed)
    }

    /// Binds a port, if no binding and no connection stands against it: the binding's id, and the address with its port.
    ///
    /// # Errors
    /// EADDRINUSE.
    pub fn bind(&self, request: BindRequest) -> Result<(u64, SocketAddr), i32> {
        let any_port = request.address.port() == 0;
        for _ in 0..if any_port { limits::BIND_TRIES } else { 1 } {
            // From here on connect(2) chooses this port no more; what chose it before is in its shard.
            let (id, address) = self.directory.bind(request)?;
            let request = BindRequest {
                address,
                reuse_address: request.reuse_address && !any_port,
                reuse_port: request.reuse_port && !any_port,
                ..request
            };
            if request.kind != Kind::Stream || self.has_no_connection_at(&request) {
                return Ok((id, address));
            }
            self.directory.release(id);
        }
        Err(libc::EADDRINUSE)
    }

    /// What is bound as `wish` says starts to listen.
    pub fn listen(&self, id: u64, wish: &BindRequest) -> Result<(), i32> {
        // As Linux, which asks for the port anew: it may have been lent to connections of an earlier listener.
        if !self.has_no_connection_at(wish) {
            return Err(libc::EADDRINUSE);
        }
        self.directory.listen(id)
    }

    fn has_no_connection_at(&self, wish: &BindRequest) -> bool {
        (0..self.cells.len())
            .all(|number| !self.with_shard(number, |shard, _| shard.stands_against(wish)))
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
        // Relaxed: a flag on its own; a thread that sees it late turns once more.
        self.stop.load(Relaxed)
    }
}

/// A small number that differs from thread to thread.
fn thread_spread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|mine| *mine)
}
