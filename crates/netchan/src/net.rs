//! Holding a stack: what `netchan::Net` is.

mod builder;
mod from_config;
mod lending;
pub(crate) mod live;
mod modules;
mod parts;
mod pause;
mod plan;
mod queues;
mod sockets;
mod start;
#[cfg(test)]
mod told_tests;

use std::{fmt, io, net::IpAddr, sync::Arc, time::Duration};

pub(crate) use self::sockets::first_of;
pub use self::{
    builder::{Builder, Threads},
    lending::{LeaseSet, Lent},
    pause::Paused,
    sockets::{Tcp, Udp},
};
use crate::{
    clock::Clock,
    driver::network::{InterfaceFacts, LinkFacts},
    regime::Regime,
    stack::{Stack, worker},
    tap,
};

/// Ends the stack when the last handle or socket is gone.
struct Guard(Arc<Stack>);

impl Drop for Guard {
    fn drop(&mut self) {
        worker::stop(&self.0);
    }
}

/// A running stack; clones share it. It ends with the last clone and the last socket.
#[derive(Clone)]
pub struct Net(Arc<Guard>);

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.stack().control.host.network();
        let links: Vec<_> = net.interfaces.iter().map(|i| &i.name).collect();
        f.debug_struct("Net")
            .field("regime", &self.regime())
            .field("links", &links)
            .finish_non_exhaustive()
    }
}

impl Net {
    /// Settings before the start.
    pub fn builder() -> Builder {
        Builder::default()
    }
    pub(crate) fn of(stack: Arc<Stack>) -> Self {
        Self(Arc::new(Guard(stack)))
    }
    pub(crate) fn stack(&self) -> &Arc<Stack> {
        &self.0.0
    }
    /// Turns the links and shards once, without waiting: for [`Threads::Caller`]. With threads of its own: looks at the links if no thread
    /// polls them at the moment ([`Builder::background`]). True if there was work.
    pub fn poll(&self) -> bool {
        let stack = self.stack();
        if !stack.threaded || stack.stepped {
            return stack.turn_all();
        }
        stack.end_batch();
        stack.turn_lanes_away()
    }
    /// The same, whichever thread polls the links: what has come is with the sockets afterwards, unless another thread is at it just then.
    pub fn look(&self) -> bool {
        let stack = self.stack();
        match stack.threaded && !stack.stepped {
            true => stack.turn_all_lanes(),
            false => stack.turn_all(),
        }
    }
    /// The calling thread has found `ready` sockets ready, and serves them before it waits again. What it sends to them may be held meanwhile, so that the link
    /// takes it in one call: until as many sends were made, or 16, or it waits ([`Waiter`](crate::socket::Waiter)) or calls [`Self::poll`]; for
    /// [`Builder::background`] at most. Where threads that wait poll the links; elsewhere without effect.
    pub fn more_follows(&self, ready: usize) {
        self.stack().begin_batch(ready);
    }
    /// When `poll` has something to do by time alone; `None` if never. For virtual time.
    pub fn next_event(&self) -> Option<proto::time::Instant> {
        let at = self.stack().next_event();
        (at != proto::time::Instant::FAR).then_some(at)
    }
    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.stack().clock
    }
    /// Its regime.
    pub fn regime(&self) -> Regime {
        self.stack().control.regime
    }
    /// Whether all of its links were lent to it by others ([`crate::link::lease`]): other processes may have stacks of the same addresses.
    pub fn is_lent(&self) -> bool {
        let stack = self.stack();
        let leases = stack.control.leases.all().len();
        leases > 0 && leases + usize::from(stack.driver.own.is_some()) == stack.driver.links.len()
    }
    /// Whether `ip` is one of this stack's own addresses.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.stack().control.host.network().is_local(ip)
    }
    /// The number of the link with this name, as `netchan show` has it, with its kind or without (`tap:nc0`, `nc0`).
    pub fn link_named(&self, name: &str) -> Option<u8> {
        let net = self.stack().control.host.network();
        let mut all = net.interfaces.iter();
        let number = all.position(|link| link.name == name || link.device() == name)?;
        u8::try_from(number).ok().filter(|_| !name.is_empty())
    }
    /// A link's name without its kind; `None`: there is no link with this number.
    pub fn link_name(&self, number: u8) -> Option<String> {
        let net = self.stack().control.host.network();
        let link = net.interfaces.get(usize::from(number))?;
        Some(link.device().to_owned())
    }
    /// The links, in the order of their numbers.
    pub fn links(&self) -> Vec<LinkFacts> {
        let facts = |link: &InterfaceFacts| LinkFacts {
            name: link.device().to_owned(),
            mac: link.mac.0,
            mtu: link.mtu,
            addresses: (link.addresses.iter())
                .map(|address| (address.ip(), address.prefix_len()))
                .collect(),
            is_loopback: link
                .addresses
                .iter()
                .any(|address| address.ip().is_loopback()),
        };
        self.stack()
            .control
            .host
            .network()
            .interfaces
            .iter()
            .map(facts)
            .collect()
    }
    /// Whether `ip` is the broadcast address, or that of one of this stack's networks.
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        self.stack().control.host.network().is_broadcast(ip)
    }
    /// From now on the background poller turns the shards at once instead of after two ticks: for event loops that wait by themselves (tokio).
    pub fn poll_in_background(&self) {
        self.stack().sockets.poll_in_background();
    }
    /// Waits, at most `limit` (of real time), until the peers have acknowledged all that was sent to them, the end of each closed
    /// stream included: for a program that ends, since its connections end with it. True if nothing is owed any more.
    pub fn drain(&self, limit: Duration) -> bool {
        let begin = percore::clock::now_ns();
        loop {
            self.poll(); // what is in the channels goes out, even where other threads turn them
            if !self.stack().owes_peers() {
                self.stack().tell_lenders_if_over();
                return true;
            }
            if u128::from(percore::clock::now_ns().saturating_sub(begin)) >= limit.as_nanos() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    /// Copies of the frames that enter and leave links, from now on, or of what else [`tap::Subject`] says (see [`tap`](crate::tap)).
    ///
    /// # Errors
    /// `InvalidInput` for a link or a shard that is not there, or a snap length that is not 1 to 65,535; `QuotaExceeded` while there are sixteen taps;
    /// `OutOfMemory`.
    pub fn tap(&self, options: tap::Options) -> io::Result<tap::Tap> {
        let stack = self.stack();
        let taps = &stack.control.host.taps;
        taps.attach(options, &stack.places(), &stack.clock)
    }
    /// Writes frames into a link, from now on: out of it, or in by it (see [`tap::Writer`]).
    ///
    /// # Errors
    /// `InvalidInput` for a link that is not there; `QuotaExceeded` while there are four writers; `OutOfMemory`.
    pub fn writer(&self, link: u8) -> io::Result<tap::Writer> {
        live::writer(self.stack(), link.into())
    }
    /// The facts behind `netchan show TOPIC` as JSON; `None` for an unknown topic.
    pub fn show(&self, topic: &str) -> Option<serde_json::Value> {
        crate::show::topic(self.stack(), topic)
    }
}
