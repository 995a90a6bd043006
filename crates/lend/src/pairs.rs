//! Short cuts between leases: which there are, and what their applications are told of each other (`docs/decisions/0023-short-cuts.md`).
//!
//! A lease's application wishes for one when it sends to a port of another lease. Both are told then, each with the other one's ports, and again whenever
//! these change: before the application that asked for the port has its answer, so that no packet comes from a port that its receiver has not heard of.

use std::os::fd::BorrowedFd;

use netchan::{
    PairEnd,
    link::lease::{Binding, MESSAGE_MAX, News, PeerPorts, PortRange, Wish},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    holders::Holders,
    request::{Connection, Lease, send},
};

/// Short cuts of one lease, and of all: each takes memory and, in both applications, a look at each turn.
const EACH_MAX: usize = 16;
const ALL_MAX: usize = 512;

/// A short cut, and the numbers of its two leases.
#[derive(Debug)]
struct Pair {
    number: u64,
    leases: [u64; 2],
}

impl Pair {
    /// The other lease.
    fn other(&self, lease: u64) -> Option<u64> {
        match self.leases {
            [one, other] if one == lease => Some(other),
            [other, one] if one == lease => Some(other),
            _ => None,
        }
    }
}

/// All short cuts.
#[derive(Debug, Default)]
pub struct Pairs {
    all: Vec<Pair>,
    holders: Holders,
    /// The last one's number.
    last: u64,
}

/// The lease of a connection, where it has one.
fn lease_of<L: Lease>(connections: &[Connection<L>], number: u64) -> Option<&L> {
    let mut leases = connections.iter().filter_map(|one| one.lease.as_ref());
    leases.find(|lease| lease.number() == number)
}

impl Pairs {
    /// Reads what an application wishes, once. `heeds`: whether it has not wished too often. False: there is nothing more to be read, ever.
    pub fn hear<L: Lease>(
        &mut self,
        connections: &[Connection<L>],
        lease: &L,
        heeds: impl FnOnce() -> bool,
    ) -> bool {
        let mut message = [0; MESSAGE_MAX + 1];
        match recv(lease.news(), &mut message[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok((read, _)) if heeds() => {
                let text = message.get(..read).unwrap_or_default();
                // Nonsense is no wish.
                if let Ok(Wish { to }) = serde_json::from_slice(text) {
                    self.wish(connections, lease, &to);
                }
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        true
    }

    fn wish<L: Lease>(&mut self, connections: &[Connection<L>], lease: &L, to: &Binding) {
        let (here, there) = (lease.number(), self.holders.find(to));
        let Some(other) = there.and_then(|there| lease_of(connections, there)) else {
            return;
        };
        let there = other.number();
        let is_there = |pair: &Pair| pair.other(here) == Some(there);
        if here == there || self.all.iter().any(is_there) || self.all.len() >= ALL_MAX {
            return;
        }
        let count = |number| {
            let has = |pair: &&Pair| pair.other(number).is_some();
            self.all.iter().filter(has).count()
        };
        if [here, there]
            .map(count)
            .iter()
            .any(|&count| count >= EACH_MAX)
        {
            return;
        }
        self.last += 1;
        let number = self.last;
        let ends = match lease.pair(other, number) {
            Ok(ends) => ends,
            Err(e) => {
                tracing::debug!(target: "netchan::daemon", "no short cut: {e}");
                return;
            }
        };
        let [ours, theirs] = &ends;
        let meets = |of: &L, end: &PairEnd, met: &L| {
            let news = News::Peer(Box::new(end.terms(self.ports_of(met))));
            tell(of, &news, &end.files())
        };
        // First the one that has not asked: what the other one sends at once is taken then. An end that is not told of closes with `ends`, and its other
        // end sees that.
        if meets(other, theirs, lease) && meets(lease, ours, other) {
            let leases = [here, there];
            self.all.push(Pair { number, leases });
        }
    }

    /// The ports of a lease, as others are told.
    fn ports_of<L: Lease>(&self, lease: &L) -> PeerPorts {
        let number = lease.number();
        let (bindings, ranges) = lease.ports();
        let is_shared = |binding: &Binding| self.holders.is_shared(number, binding);
        let (shared, bindings) = bindings.into_iter().partition(is_shared);
        PeerPorts {
            bindings,
            shared,
            ranges,
            loopback: lease.has_loopback(),
        }
    }

    /// A lease has come, or has more ports for sockets that name none: those that have a short cut to it hear of them.
    pub fn gained<L: Lease>(
        &mut self,
        connections: &[Connection<L>],
        lease: u64,
        ranges: &[PortRange],
    ) {
        self.holders.add_ranges(lease, ranges);
        self.announce(connections, lease);
    }

    /// A lease has a port, which it shares with others or not.
    pub fn bound<L: Lease>(
        &mut self,
        connections: &[Connection<L>],
        (lease, binding): (u64, &Binding),
        shares: bool,
    ) {
        self.holders.bind(lease, *binding, shares);
        self.changed(connections, lease, binding);
    }

    /// Nothing new comes to a port of a lease. Its connections go on as before: by the short cut, as long as no other lease has it.
    pub fn closed(&mut self, lease: u64, binding: &Binding) {
        self.holders.close(lease, binding);
    }

    /// A lease has a port no more.
    pub fn unbound<L: Lease>(
        &mut self,
        connections: &[Connection<L>],
        lease: u64,
        binding: &Binding,
    ) {
        self.holders.unbind(lease, binding);
        self.changed(connections, lease, binding);
    }

    /// The other leases that have the same port, at whatever address.
    pub fn rivals(&self, lease: u64, binding: &Binding) -> Vec<u64> {
        self.holders.rivals(lease, binding).collect()
    }

    /// Tells of a port whose holders have changed: others have, or had, it alone.
    fn changed<L: Lease>(&mut self, connections: &[Connection<L>], lease: u64, binding: &Binding) {
        let rivals = self.rivals(lease, binding);
        for number in [lease].into_iter().chain(rivals) {
            self.announce(connections, number);
        }
    }

    fn announce<L: Lease>(&mut self, connections: &[Connection<L>], number: u64) {
        let has = |pair: &&Pair| pair.other(number).is_some();
        let Some(lease) = lease_of(connections, number) else {
            return;
        };
        if !self.all.iter().any(|pair| has(&pair)) {
            return;
        }
        let ports = self.ports_of(lease);
        let mut lost = Vec::new();
        for pair in self.all.iter().filter(has) {
            let news = News::Ports {
                pair: pair.number,
                ports: ports.clone(),
            };
            let other = pair.other(number).and_then(|it| lease_of(connections, it));
            if !other.is_some_and(|other| tell(other, &news, &[])) {
                lost.push(pair.number);
            }
        }
        for pair in lost {
            self.end(connections, pair);
        }
    }

    /// Ends a short cut. Both go on by the daemon.
    fn end<L: Lease>(&mut self, connections: &[Connection<L>], number: u64) {
        let Some(place) = self.all.iter().position(|pair| pair.number == number) else {
            return;
        };
        let pair = self.all.swap_remove(place);
        for lease in pair.leases {
            if let Some(lease) = lease_of(connections, lease) {
                gone(lease, number);
            }
        }
    }

    /// A lease has ended, which had these ports: those that had a short cut to it hear of that.
    pub fn lost<L: Lease>(
        &mut self,
        connections: &[Connection<L>],
        lease: u64,
        (bindings, ranges): &(Vec<Binding>, Vec<PortRange>),
    ) {
        self.holders.remove(lease, bindings, ranges);
        let has = |pair: &&Pair| pair.other(lease).is_some();
        while let Some(pair) = self.all.iter().find(has) {
            let number = pair.number;
            self.end(connections, number);
        }
    }
}

/// Tells an application something; false: it has not read what it was told before, or there is more than a message holds.
fn tell<L: Lease>(lease: &L, news: &News, files: &[BorrowedFd<'_>]) -> bool {
    let is_told = send(lease.news(), news, files).is_ok();
    if is_told {
        lease.ring();
    }
    is_told
}

/// Tells an application that a short cut is gone. Where it does not read that, it loses all of them: the socket's end says so.
fn gone<L: Lease>(lease: &L, pair: u64) {
    if !tell(lease, &News::Gone { pair }, &[]) {
        let _ = rustix::net::shutdown(lease.news(), rustix::net::Shutdown::Both);
        lease.ring();
    }
}
