//! A socket that listens for TCP connections.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use proto::wire::ipv4::Protocol;

use super::{options::SocketOptions, stream::Stream};
use crate::{
    api::Readiness,
    errno::error,
    limits,
    shard::{Binding, Parts, TcpOptions},
    stack::Stack,
};

/// A listener: a part of it in each shard.
pub(super) struct Listening {
    /// Its number in each shard.
    parts: Vec<u32>,
    /// Where accept looks first if it does not know better: each shard gets its turn.
    next: AtomicUsize,
    /// What the parts share, where there are several.
    shared: Option<Arc<Parts>>,
    /// Of several listeners that share a port, this one goes first for what comes in to this shard, which the thread that waits for it turns.
    home: Option<usize>,
}

impl Listening {
    pub fn open(stack: &Stack, backlog: usize, options: &SocketOptions) -> io::Result<Self> {
        let Some(binding) = options.as_bound(Protocol::TCP) else {
            return Err(error(libc::EINVAL));
        };
        let backlog = backlog.min(limits::BACKLOG_MAX);
        let of_tcp = options.tcp_options();
        let shards = stack.sockets.cells.len();
        // Until it is to be seen in its home: two at once would have the same one.
        let has_home = stack.has_homes() && binding.shares;
        let _homes = has_home.then(|| stack.control.directory.homes.lock());
        let mut listening = Self {
            parts: Vec::with_capacity(shards),
            next: AtomicUsize::new(0),
            shared: (shards > 1).then(|| Arc::new(Parts::new(shards))),
            home: has_home.then(|| stack.home_for(&binding, of_tcp.device)),
        };
        for shard in 0..shards {
            let shared = &listening.shared;
            let binding = listening.in_shard(shard, &binding);
            let part = stack.with_shard(shard, |shard, _| {
                shard.listen(&binding, backlog, of_tcp.clone(), shared.clone())
            });
            match part {
                Some(part) => listening.parts.push(part),
                None => {
                    listening.close(stack);
                    return Err(error(libc::ENOBUFS));
                }
            }
        }
        Ok(listening)
    }

    /// The shard where it goes first.
    pub const fn home(&self) -> Option<usize> {
        self.home
    }

    fn in_shard(&self, shard: usize, binding: &Binding) -> Binding {
        Binding {
            at_home: self.home == Some(shard),
            ..*binding
        }
    }

    /// Takes no connection any more; the parts stay.
    pub fn shut(&self, stack: &Stack) {
        for (shard, &part) in self.parts.iter().enumerate() {
            stack.with_shard(shard, |shard, now| shard.shut_listener(part, now));
        }
    }

    /// Refuses everyone until it is asked about again.
    pub fn refuse(&self, stack: &Stack) {
        for (shard, &part) in self.parts.iter().enumerate() {
            stack.with_shard(shard, |shard, now| shard.refuse_at(part, now));
        }
    }

    /// Listens again.
    pub fn again(&self, stack: &Stack, backlog: usize, options: &SocketOptions) {
        let Some(binding) = options.as_bound(Protocol::TCP) else {
            return;
        };
        let backlog = backlog.min(limits::BACKLOG_MAX);
        let of_tcp = options.tcp_options();
        self.each(stack, |shard, part| {
            let binding = self.in_shard(shard.number(), &binding);
            shard.listen_again(part, &binding, backlog, of_tcp.clone());
        });
    }

    pub fn set_backlog(&self, stack: &Stack, backlog: usize) {
        let backlog = backlog.min(limits::BACKLOG_MAX);
        self.each(stack, |shard, part| shard.set_backlog(part, backlog));
    }

    /// What connections begin with from now on.
    pub fn set_options(&self, stack: &Stack, options: &TcpOptions) {
        self.each(stack, |shard, part| {
            shard.set_listener_options(part, options.clone())
        });
    }

    fn each(&self, stack: &Stack, mut f: impl FnMut(&mut crate::shard::Shard, u32) + Send) {
        for (shard, &part) in self.parts.iter().enumerate() {
            stack.with_shard(shard, |shard, _| f(shard, part));
        }
    }

    /// Connections that wait to be accepted, and how many may.
    pub fn depth(&self, stack: &Stack) -> (usize, usize) {
        let mut depth = (0, 0);
        self.each(stack, |shard, part| {
            if let Some(listener) = shard.listener(part) {
                depth = (depth.0 + listener.depths().0, listener.backlog());
            }
        });
        depth
    }

    /// Connections that wait to be accepted, in each shard.
    pub fn waiting(&self, stack: &Stack) -> Vec<usize> {
        let mut waiting = Vec::with_capacity(self.parts.len());
        self.each(stack, |shard, part| {
            waiting.push(shard.listener(part).map_or(0, |l| l.depths().0));
        });
        waiting
    }

    /// A connection, and whose.
    pub fn accept(&self, stack: &Stack) -> Option<(Stream, SocketAddr)> {
        let count = self.parts.len();
        let first = match &self.shared {
            // Relaxed: only spreads the load.
            Some(shared) => (shared.first()).unwrap_or_else(|| self.next.fetch_add(1, Relaxed)),
            None => 0,
        };
        for step in 0..count {
            let shard = (first + step) % count;
            let part = self.parts[shard];
            if let Some((number, key)) = stack.with_shard_fresh(shard, |shard, _| {
                shard.serve_at(part);
                shard.accept(part)
            }) {
                let remote = SocketAddr::new(key.remote, key.remote_port);
                return Some((Stream::at(shard, number, true), remote));
            }
        }
        None
    }

    pub fn readiness(&self, stack: &Stack) -> Readiness {
        let mut ready = Readiness::NONE;
        self.each(stack, |shard, part| {
            shard.serve_at(part);
            ready = ready | shard.listener_readiness(part);
        });
        ready
    }

    pub fn register(&self, stack: &Stack, interest: Readiness, waker: &Waker) -> bool {
        let mut ready = false;
        self.each(stack, |shard, part| {
            shard.serve_at(part);
            ready |= shard.listener_register(part, interest, waker);
        });
        ready
    }

    pub fn deregister(&self, stack: &Stack, waker: &Waker) {
        self.each(stack, |shard, part| shard.listener_deregister(part, waker));
    }

    pub fn close(&self, stack: &Stack) {
        for (shard, &part) in self.parts.iter().enumerate() {
            stack.with_shard(shard, |shard, now| shard.close_listener(part, now));
        }
    }
}
