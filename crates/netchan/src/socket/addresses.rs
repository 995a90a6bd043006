//! A socket's addresses: IPv4 as an IPv6 socket has it outside, and as the stack has it inside.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{Role, Socket, options::SocketOptions};
use crate::api::{Domain, Kind};
use crate::driver::network::Network;
use crate::errno::error;

impl Socket {
    /// getsockname(2).
    pub fn local_address(&self) -> SocketAddr {
        let any = SocketAddr::new(self.wildcard(), 0);
        let inner = match self.role() {
            Some(Role::Stream(stream)) if !stream.is_over(self.stack()) => {
                stream.local(self.stack()).unwrap_or(any)
            }
            Some(Role::Datagram(datagram)) => datagram.local(self.stack()),
            // After the end of a connection it is shown until the next one, and the port, if it was given up, for good.
            role => {
                let options = self.options.lock();
                let was = self.stream.local(self.stack());
                let bound = options.binding().map(|(_, bound)| bound);
                match (role, bound, was) {
                    (Some(Role::Stream(_)), None, Some(was)) if !options.is_bound_anew() => was,
                    (Some(Role::Stream(_)), Some(bound), Some(was))
                        if bound.port() == was.port() && !options.is_bound_anew() =>
                    {
                        was
                    }
                    (_, Some(bound), _) => bound,
                    (_, None, _) => SocketAddr::new(
                        options.source().unwrap_or(any).ip(),
                        self.port_shown(&options),
                    ),
                }
            }
        };
        self.outward(inner)
    }

    /// The port that getsockname shows of one that has none any more: as in Linux the last one, whichever call gave it.
    pub(super) fn port_shown(&self, options: &SocketOptions) -> u16 {
        let was = self.stream.local(self.stack());
        let was = was.filter(|_| !options.is_bound_anew());
        was.map_or(options.last_port(), |was| was.port())
    }

    /// getpeername(2).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let peer = match self.role() {
            Some(Role::Stream(stream)) if stream.is_connected(self.stack()) => {
                stream.remote(self.stack())
            }
            // As Linux: a peer without a port is none.
            Some(Role::Datagram(datagram)) => {
                datagram.peer(self.stack()).filter(|peer| peer.port() != 0)
            }
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
        self.inward_by(&self.options.lock(), address)
    }

    pub(super) fn inward_by(
        &self,
        options: &SocketOptions,
        address: SocketAddr,
    ) -> io::Result<SocketAddr> {
        match (self.domain, address) {
            (Domain::V4, SocketAddr::V4(_)) => Ok(address),
            (Domain::V6, SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
                Some(_) if options.v6_only => Err(error(libc::ENETUNREACH)),
                Some(v4) => Ok(SocketAddr::new(v4.into(), v6.port())),
                None => Ok(SocketAddr::new((*v6.ip()).into(), v6.port())),
            },
            // As Linux, of a datagram's destination.
            (Domain::V6, SocketAddr::V4(_)) if self.kind == Kind::Datagram && !options.v6_only => {
                Ok(address)
            }
            _ => Err(error(libc::EAFNOSUPPORT)),
        }
    }

    /// Whether its address lets it send to `remote`: an IPv4 address, or IPv6's wildcard as a mapped one, does not reach IPv6
    /// (EAFNOSUPPORT), a loopback address reaches this host only (EINVAL; ENETUNREACH where no address of ours does). (One bound to an IPv6 address is of IPv6 alone: [`Self::inward`].)
    pub(super) fn may_reach(&self, options: &SocketOptions, remote: SocketAddr) -> io::Result<()> {
        let Some(local) = self.source_of(options, remote.ip()) else {
            return Ok(());
        };
        if local.is_ipv4() && remote.is_ipv6() {
            return Err(error(libc::EAFNOSUPPORT));
        }
        if local.is_ipv4() != remote.is_ipv4() {
            return Ok(());
        }
        let ends = (local, remote.ip());
        if !self.stays(&self.stack().control.host.network(), None, ends) {
            return Ok(());
        }
        match self.way_to(options, remote.ip()) {
            None => Err(error(libc::ENETUNREACH)),
            Some((interface, _)) => {
                let net = self.stack().control.host.network();
                match self.stays(&net, Some(interface), ends) {
                    true => Err(error(libc::EINVAL)),
                    false => Ok(()),
                }
            }
        }
    }

    /// Whether what comes from `local` may not go to `remote` by this interface (`None`: by any but loopback's), and a send says so. As Linux: of an IPv6 datagram it does not.
    pub(super) fn stays(
        &self,
        net: &Network,
        interface: Option<u8>,
        (local, remote): (IpAddr, IpAddr),
    ) -> bool {
        let is_silent = self.kind == Kind::Datagram && remote.is_ipv6();
        !is_silent && !net.may_send(interface.unwrap_or(u8::MAX), local, remote)
    }

    /// The address that it has, by bind(2) or by a connect.
    fn address_of(&self, options: &SocketOptions) -> Option<IpAddr> {
        let has = match self.role() {
            Some(Role::Datagram(datagram)) => Some(datagram.local(self.stack())),
            _ => options.source(),
        };
        has.map(|address| address.ip())
    }

    /// The same, toward this address: of an IPv6 datagram socket with an IPv6 address, what a connect to IPv4 gave it beside that.
    pub(super) fn source_of(&self, options: &SocketOptions, remote: IpAddr) -> Option<IpAddr> {
        let mapped = options.mapped_source.filter(|_| remote.is_ipv4());
        mapped.or_else(|| self.address_of(options))
    }

    /// What 0.0.0.0 and :: are as a destination, as everywhere: this host itself; as in Linux, of IPv4 at the address that the socket has,
    /// and :: is IPv4's loopback to a socket with an IPv4 address.
    pub(super) fn this_host(
        &self,
        options: &SocketOptions,
        unspecified: IpAddr,
    ) -> io::Result<IpAddr> {
        let has = self.source_of(options, unspecified).filter(IpAddr::is_ipv4);
        let own = match has {
            Some(ip)
                if unspecified.is_ipv4() && self.stack().control.host.network().is_local(ip) =>
            {
                Some(ip)
            }
            Some(ip) => self.stack().control.host.network().this_host(ip),
            None => self.stack().control.host.network().this_host(unspecified),
        };
        own.ok_or_else(|| error(libc::ENETUNREACH))
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
