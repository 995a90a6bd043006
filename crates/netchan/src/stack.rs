//! A running stack, in three parts: the links' side ([`driver_side`]), the sockets' side ([`socket_side`]) and the control plane ([`control_plane`]). What
//! needs more than one of them is here and in the files beside.

#[cfg(test)]
mod answer_tests;
pub(crate) mod background;
mod backlog;
mod batch;
pub(crate) mod cell;
pub(crate) mod control_plane;
pub(crate) mod directory;
pub(crate) mod driver_side;
mod forward;
mod hold;
pub(crate) mod leased;
mod lending;
pub(crate) mod link_leader;
mod moving;
mod packet_channels;
mod returned;
mod rx;
pub(crate) mod shard_leader;
pub(crate) mod sleep;
pub(crate) mod socket_side;
#[cfg(test)]
mod tests;
mod turn;
pub(crate) mod tx;
pub(crate) mod visitors;
pub(crate) mod watch;
pub(crate) mod worker;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
};

use percore::doorbell::several::Several;
use proto::{
    tcp::{Connection, State},
    time::Instant,
    wire::ipv4::Protocol,
};

use self::{
    cell::Cell, control_plane::ControlPlane, driver_side::DriverSide, sleep::readable,
    socket_side::SocketSide,
};
pub(crate) use self::{hold::Before, turn::Core};
use crate::{
    api::{Kind, binding::BindRequest},
    assignment::ShardAssignment,
    clock::Clock,
    driver::{module::Giant, steer::spread},
    flow::FlowKey,
    limits,
    regime::Layout,
    shard::Binding,
    tap::{self, Place},
};

/// Everything of one stack: its three parts, and what all of them go by.
pub(crate) struct Stack {
    pub layout: Layout,
    pub clock: Clock,
    /// Threads of its own turn it; else its callers do.
    pub threaded: bool,
    /// It is as with threads, but a program takes their turns (`steps`).
    pub stepped: bool,
    /// The links are the only shard's own ([`LinkAccess::Own`](cell::LinkAccess::Own)): one lock for all, under which a call receives, works and sends.
    pub owns_links: bool,
    /// F1: Giant, where the whole stack runs under it; else it is the modules' (`control.modules.giant`).
    pub giant: Option<Arc<Giant>>,
    /// Spins of this long come before a sleep, ns.
    pub spin_ns: u64,
    pub stop: AtomicBool,
    /// Its threads end, and others go on later ([`Net::pause`](crate::Net::pause)).
    pub paused: AtomicBool,
    pub driver: DriverSide,
    pub sockets: SocketSide,
    pub control: ControlPlane,
}

impl Stack {
    /// Whether a connection has sent, or was given to send, what its peer has not acknowledged: text, or the end of the stream.
    pub fn owes_peers(&self) -> bool {
        let owes = |connection: &Connection| match connection.state() {
            State::FinWait1 | State::Closing | State::LastAck => true,
            State::Established | State::CloseWait => connection.unacknowledged() > 0,
            _ => false,
        };
        !self.all_connections(|connection| !owes(connection))
    }

    /// Whether all connections are so.
    fn all_connections(&self, is_so: impl Fn(&Connection) -> bool + Sync) -> bool {
        (0..self.sockets.cells.len()).all(|number| {
            self.peek(number, |held| {
                let mut connections = held.shard.connections();
                connections.all(|(_, c)| is_so(&c.connection))
            })
        })
    }

    /// The points of its taps.
    pub fn places(&self) -> Vec<Place> {
        let shards = self.sockets.cells.len();
        tap::places(shards, &self.driver.links_of_queues())
    }

    /// When something is due by time alone.
    pub fn next_event(&self) -> Instant {
        let timers = self.sockets.cells.iter().map(Cell::next_timer);
        let links = (0..self.driver.queues.len()).map(|number| self.next_event_of(number));
        timers.chain(links).min().unwrap_or(Instant::FAR)
    }

    /// When something is due at a link by time alone. At once, where what was sent since its last turn has found it gone: its descriptor may not tell.
    pub fn next_event_of(&self, link: usize) -> Instant {
        if self.driver.is_untold(link) {
            return Instant::ZERO;
        }
        let receives = self.with_receive(link, |receive| receive.link.next_event());
        receives.min(self.with_interface(link, |interface| interface.next_event()))
    }

    /// The same for a thread that is about to sleep on doorbells alone: the link's are among `bells`. `None`: it has a descriptor.
    pub fn next_event_by_bells(&self, link: usize, bells: &mut Several) -> Option<Instant> {
        if self.driver.is_gone(link) {
            return Some(match self.driver.is_untold(link) {
                true => Instant::ZERO,
                false => Instant::FAR,
            });
        }
        let receives = self.with_receive(link, |half| half.link.next_event_by_bells(bells))?;
        Some(receives.min(self.with_interface(link, |interface| interface.next_event())))
    }

    /// The thread is awake again.
    pub fn leave_bells(&self, link: usize) {
        self.with_receive(link, |half| half.link.leave_bells());
    }

    /// An entry for poll(2) with a link's descriptor, where it has one and is not known to be gone.
    pub fn pollfd_of(&self, link: usize) -> Option<libc::pollfd> {
        let here = !self.driver.is_gone(link) || self.driver.is_untold(link);
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
        if self.sockets.cells.len() == 1 {
            return Some(0);
        }
        if port == 0 {
            let own = self
                .control
                .host
                .assignment
                .as_deref()
                .map(ShardAssignment::claim_in_turn);
            return Some(own.unwrap_or_else(|| self.shard_of_caller()));
        }
        let local = match source {
            Some(source) => source,
            None => self.control.host.network().route(remote.ip(), mark)?.1,
        };
        let key = FlowKey {
            local,
            remote: remote.ip(),
            local_port: port,
            remote_port: remote.port(),
            protocol: Protocol::TCP,
        };
        Some(spread(
            self.control.host.flow_hash.hash(&key),
            self.sockets.cells.len(),
        ))
    }

    /// Whether listeners that share a port have homes: where threads turn shards for what they wait for.
    pub const fn has_homes(&self) -> bool {
        self.layout.leases() && !self.layout.own_shards
    }

    /// The home of one more listener at a port that several share: the shard that is home to fewest.
    pub fn home_for(&self, binding: &Binding, device: Option<u8>) -> usize {
        let at_home = |number: &usize| {
            self.with_shard(*number, |shard, _| shard.listeners_at_home(binding, device))
        };
        let shards = 0..self.sockets.cells.len();
        shards.min_by_key(at_home).unwrap_or(0)
    }

    /// Where the calling thread's connections live; of a stack that is turned from outside, which a seed must replay, each in its turn.
    pub fn shard_of_caller(&self) -> usize {
        let number = if self.threaded && !self.stepped {
            THREAD.get().unwrap_or_else(|| {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                let next = NEXT.fetch_add(1, Relaxed);
                THREAD.set(Some(next));
                next
            })
        } else {
            // Relaxed: a number that nothing is ordered by.
            self.sockets.opened.fetch_add(1, Relaxed)
        };
        number % self.sockets.cells.len()
    }

    /// The home of sets that the calling thread waits for: where its connections begin. One that has begun none gets the next shard of those that wait.
    pub fn home_of_caller(&self) -> usize {
        if THREAD.get().is_none() {
            // Relaxed, as above.
            THREAD.set(Some(self.sockets.homes.fetch_add(1, Relaxed)));
        }
        self.shard_of_caller()
    }

    /// The connections that the calling thread opens live in this shard from now on: it waits for sockets there.
    pub fn caller_lives_in(&self, shard: usize) {
        if self.threaded && !self.stepped {
            THREAD.set(Some(shard));
        }
    }

    /// Binds a port, if no binding and no connection stands against it: the binding's id, and the address with its port.
    ///
    /// # Errors
    /// EADDRINUSE.
    pub fn bind(&self, request: BindRequest) -> Result<(u64, SocketAddr), i32> {
        let mut bound = self.bind_free(request);
        let any_port = request.address.port() == 0;
        for _ in 0..limits::LEASE_PORTS_ASKED {
            let is_full = any_port && bound == Err(libc::EADDRINUSE);
            if !is_full || !self.lease_more_ports() {
                break;
            }
            bound = self.bind_free(request);
        }
        bound
    }

    /// The same of the ports that there are.
    fn bind_free(&self, request: BindRequest) -> Result<(u64, SocketAddr), i32> {
        let any_port = request.address.port() == 0;
        for _ in 0..if any_port { limits::BIND_TRIES } else { 1 } {
            // From here on connect(2) chooses this port no more; what chose it before is in its shard.
            let (id, address) = self.bind_once(request)?;
            let request = BindRequest {
                address,
                reuse_address: request.reuse_address && !any_port,
                reuse_port: request.reuse_port && !any_port,
                ..request
            };
            if request.kind != Kind::Stream || self.has_no_connection_at(&request) {
                if !any_port && let Err(errno) = self.lease_port(&request) {
                    self.control.directory.release(id);
                    return Err(errno);
                }
                return Ok((id, address));
            }
            self.control.directory.release(id);
        }
        Err(libc::EADDRINUSE)
    }

    fn bind_once(&self, request: BindRequest) -> Result<(u64, SocketAddr), i32> {
        let ports = self.control.host.live.read().ports.clone();
        self.control.directory.bind(request, &ports)
    }

    /// What is bound as `wish` says starts to listen.
    pub fn listen(&self, id: u64, wish: &BindRequest) -> Result<(), i32> {
        // As Linux, which asks for the port anew: it may have been lent to connections of an earlier listener.
        if !self.has_no_connection_at(wish) {
            return Err(libc::EADDRINUSE);
        }
        self.control.directory.listen(id)
    }

    fn has_no_connection_at(&self, wish: &BindRequest) -> bool {
        (0..self.sockets.cells.len())
            .all(|number| !self.with_shard(number, |shard, _| shard.stands_against(wish)))
    }

    /// To a thread that ends: whether another one will go on in its place.
    pub fn goes_on(&self) -> bool {
        // Acquire pairs with SeqCst in `worker::halt`: `paused` was written before.
        self.stop.load(Acquire) && self.paused.load(Relaxed)
    }

    /// Whether the stack is ending.
    pub fn is_stopping(&self) -> bool {
        // Relaxed: a flag on its own; a thread that sees it late turns once more.
        self.stop.load(Relaxed)
    }
}

thread_local! {
    /// A small number that differs from thread to thread: its shard, among so many as there are.
    static THREAD: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}
