//! A socket's addresses: IPv4 as an IPv6 socket has it outside, and as the stack has it inside.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{Domain, Role, Socket};
use crate::errno::error;

impl Socket {
    /// getsockname(2).
    pub fn local_address(&self) -> SocketAddr {
        let inner = match self.role.get() {
            Some(Role::Stream(stream)) => stream
                .local(self.stack())
                .unwrap_or_else(|| SocketAddr::new(self.wildcard(), 0)),
            Some(Role::Listening(listening)) => listening.address(),
            Some(Role::Datagram(datagram)) => datagram.local(self.stack()),
            None => {
                let binding = self.fresh.lock().binding();
                binding.map_or(SocketAddr::new(self.wildcard(), 0), |(_, address)| address)
            }
        };
        self.outward(inner)
    }

    /// getpeername(2).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let peer = match self.role.get() {
            Some(Role::Stream(stream)) if stream.is_connected(self.stack()) => {
                stream.remote(self.stack())
            }
            Some(Role::Datagram(datagram)) => datagram.peer(self.stack()),
            _ => None,
        };
        peer.map(|peer| self.outward(peer))
            .ok_or_else(|| error(libc::ENOTCONN))
    }

    pub(super) const fn wildcard(&self) -> IpAddr {
        match self.domain {
            Domain::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Domain::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// An address as callers write it to one as the stack uses it: mapped IPv4 becomes IPv4.
    pub(super) fn inward(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        match (self.domain, address) {
            (Domain::V4, SocketAddr::V4(_)) => Ok(address),
            (Domain::V6, SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
                Some(v4) if self.fresh.lock().v6_only => {
                    let _ = v4;
                    Err(error(libc::ENETUNREACH))
                }
                Some(v4) => Ok(SocketAddr::new(v4.into(), v6.port())),
                None => Ok(SocketAddr::new((*v6.ip()).into(), v6.port())),
            },
            _ => Err(error(libc::EAFNOSUPPORT)),
        }
    }

    /// The other way.
    pub(super) const fn outward(&self, address: SocketAddr) -> SocketAddr {
        match (self.domain, address) {
            (Domain::V6, SocketAddr::V4(v4)) => {
                SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
            }
            _ => address,
        }
    }
}
