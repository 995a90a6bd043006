//! A socket that speaks UDP.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Waker,
};

use super::{Readiness, ReceiveFlags, Received, Role, Socket, options::Fresh};
use crate::{emit::IpFields, errno::error, shard::Shard, stack::Stack};

/// A UDP socket: a part of it in each shard, since anyone may send to it; or in one, where each socket has a shard of its own.
pub(super) struct Datagram {
    /// The shard of the first part.
    begin: usize,
    parts: Vec<u32>,
    /// Where receive looks first: each shard gets its turn.
    next: AtomicUsize,
}

impl Datagram {
    fn each(&self, stack: &Stack, mut f: impl FnMut(&mut Shard, u32) + Send) {
        for (shard, &part) in (self.begin..).zip(&self.parts) {
            stack.with_shard(shard, |shard, _| f(shard, part));
        }
    }

    fn first<R: Send>(&self, stack: &Stack, f: impl FnOnce(&mut Shard, u32) -> R + Send) -> R {
        stack.with_shard(self.begin, |shard, _| f(shard, self.parts[0]))
    }

    /// The shard where it lives, if that is one.
    pub const fn shard(&self) -> Option<usize> {
        if self.parts.len() == 1 {
            Some(self.begin)
        } else {
            None
        }
    }

    pub fn local(&self, stack: &Stack) -> SocketAddr {
        self.first(stack, |shard, part| shard.udp(part).map(|s| s.local))
            .unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
    }

    pub fn peer(&self, stack: &Stack) -> Option<SocketAddr> {
        self.first(stack, |shard, part| shard.udp(part)?.peer)
    }

    pub fn set_fields(&self, stack: &Stack, fields: IpFields) {
        self.each(stack, |shard, part| {
            if let Some(socket) = shard.udp_mut(part) {
                socket.fields = fields;
            }
        });
    }

    pub fn shutdown(&self, stack: &Stack, read: bool) -> Result<(), i32> {
        if self.peer(stack).is_none() {
            return Err(libc::ENOTCONN);
        }
        if read {
            self.each(stack, Shard::udp_shutdown_read);
        }
        Ok(())
    }

    pub fn readiness(&self, stack: &Stack) -> Readiness {
        let mut ready = Readiness::NONE;
        self.each(stack, |shard, part| {
            ready = ready | shard.udp_readiness(part)
        });
        ready
    }

    pub fn register(&self, stack: &Stack, interest: Readiness, waker: &Waker) -> bool {
        let mut ready = false;
        self.each(stack, |shard, part| {
            ready |= shard.udp_register(part, interest, waker);
        });
        ready
    }

    pub fn deregister(&self, stack: &Stack, waker: &Waker) {
        self.each(stack, |shard, part| shard.udp_deregister(part, waker));
    }

    pub fn take_error(&self, stack: &Stack) -> Option<i32> {
        let mut error = None;
        self.each(stack, |shard, part| {
            if error.is_none() {
                error = shard.udp_take_error(part);
            }
        });
        error
    }

    pub fn available(&self, stack: &Stack) -> usize {
        let mut available = 0;
        self.each(stack, |shard, part| {
            if available == 0 {
                available = shard
                    .udp(part)
                    .map_or(0, crate::shard::UdpSocket::first_len);
            }
        });
        available
    }

    pub fn close(&self, stack: &Stack) {
        self.each(stack, Shard::udp_close);
    }
}

impl Socket {
    /// A bound datagram socket starts to receive.
    pub(super) fn open_datagram(&self, fresh: &Fresh) -> io::Result<()> {
        let Some((_, local)) = fresh.binding else {
            return Err(error(libc::EINVAL));
        };
        let shards = match &self.stack().host.places {
            Some(places) => {
                let own = places.of_port(local.port());
                own..own + 1
            }
            None => 0..self.stack().cells.len(),
        };
        let mut datagram = Datagram {
            begin: shards.start,
            parts: Vec::with_capacity(shards.len()),
            next: AtomicUsize::new(0),
        };
        for shard in shards {
            let part = self.stack().with_shard(shard, |shard, _| {
                shard.udp_open(local, fresh.v6_only, fresh.fields())
            });
            match part {
                Some(part) => datagram.parts.push(part),
                None => {
                    datagram.close(self.stack());
                    return Err(error(libc::ENOBUFS));
                }
            }
        }
        let _ = self.role.set(Role::Datagram(datagram));
        Ok(())
    }

    /// connect(2), or the end of it, on a datagram socket.
    pub(super) fn connect_datagram(
        &self,
        fresh: &mut Fresh,
        peer: Option<SocketAddr>,
    ) -> io::Result<()> {
        let source = match peer {
            Some(peer) => Some(
                self.stack()
                    .host
                    .route(peer.ip())
                    .ok_or_else(|| error(libc::ENETUNREACH))?
                    .1,
            ),
            None => None,
        };
        if self.role.get().is_none() {
            self.bind_fresh(fresh, SocketAddr::new(self.wildcard(), 0))?;
            self.open_datagram(fresh)?;
        }
        let Some(Role::Datagram(datagram)) = self.role.get() else {
            return Err(error(libc::EINVAL));
        };
        let bound = fresh.binding.map(|(_, address)| address);
        datagram.each(self.stack(), |shard, part| {
            if let Some(socket) = shard.udp_mut(part) {
                socket.peer = peer;
                // As Linux: a connected socket has the source address that its route gives it.
                match (source, bound) {
                    (Some(source), Some(bound)) if bound.ip().is_unspecified() => {
                        socket.local.set_ip(source)
                    }
                    (None, Some(bound)) => socket.local = bound,
                    _ => {}
                }
            }
        });
        Ok(())
    }

    pub(super) fn send_datagram(
        &self,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let Some(Role::Datagram(datagram)) = self.role.get() else {
            return Err(error(libc::EINVAL));
        };
        let to = to.map(|to| self.inward(to)).transpose()?;
        let (local, peer) = datagram
            .first(self.stack(), |shard, part| {
                shard.udp(part).map(|s| (s.local, s.peer))
            })
            .ok_or_else(|| error(libc::EBADF))?;
        let remote = to.or(peer).ok_or_else(|| error(libc::EDESTADDRREQ))?;
        if remote.port() == 0 {
            return Err(error(libc::EINVAL));
        }
        let host = &self.stack().host;
        if host.is_broadcast(remote.ip()) && !self.fresh.lock().may_broadcast() {
            return Err(error(libc::EACCES));
        }
        let (interface, source) = host
            .route(remote.ip())
            .ok_or_else(|| error(libc::ENETUNREACH))?;
        let ip = if local.ip().is_unspecified() || local.is_ipv4() != remote.is_ipv4() {
            source
        } else {
            local.ip()
        };
        let from = SocketAddr::new(ip, local.port());
        datagram
            .first(self.stack(), |shard, part| {
                shard.udp_send(part, from, remote, interface, buffers)
            })
            .map_err(error)
    }

    pub(super) fn receive_datagram(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> io::Result<Received> {
        let Some(Role::Datagram(datagram)) = self.role.get() else {
            return Err(error(libc::EINVAL));
        };
        let count = datagram.parts.len();
        // Relaxed: only spreads the load.
        let first = if count == 1 {
            0
        } else {
            datagram.next.fetch_add(1, Relaxed)
        };
        let mut result = Err(libc::EAGAIN);
        for step in 0..count {
            let at = (first + step) % count;
            let (shard, part) = (datagram.begin + at, datagram.parts[at]);
            result = self
                .stack()
                .with_shard_fresh(shard, |shard, _| shard.udp_receive(part, buffers, flags));
            if result != Err(libc::EAGAIN) {
                break;
            }
        }
        let mut received = result.map_err(error)?;
        received.from = received.from.map(|from| self.outward(from));
        Ok(received)
    }
}
