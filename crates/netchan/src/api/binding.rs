//! What sockets ask of the directory of bound ports: plain data.

use std::net::{IpAddr, SocketAddr};

use super::Kind;

/// How a socket wants to be bound.
#[derive(Clone, Copy, Debug)]
pub struct BindRequest {
    /// Of the socket.
    pub kind: Kind,
    /// Address and port; port 0: any.
    pub address: SocketAddr,
    /// An IPv6 wildcard that leaves IPv4 alone.
    pub v6_only: bool,
    /// An IPv4 address that an IPv6 socket names.
    pub mapped: bool,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// SO_BINDTODEVICE.
    pub device: Option<u8>,
    /// The number of the lease that it is for: its other bindings do not stand against it, which is for its application to say.
    pub lease: Option<u64>,
    /// The user whose lease that is: as Linux, sockets share a port by SO_REUSEPORT with those of their own user only.
    pub user: Option<u32>,
}

/// A port that bind(2) named, and that is bound no more.
#[derive(Clone, Copy, Debug)]
pub struct Released {
    /// Of the socket.
    pub kind: Kind,
    /// As it was named.
    pub address: SocketAddr,
    /// An IPv6 wildcard that left IPv4 alone.
    pub v6_only: bool,
}

impl BindRequest {
    /// Whether it takes in an address of this host that a connection has, whose socket is of IPv6 alone or not. As Linux: IPv4's wildcard
    /// stands against IPv6's addresses, too, where it is not; but as an IPv6 socket's mapped address.
    pub fn covers(&self, ip: IpAddr, v6_only: bool) -> bool {
        let mine = self.address.ip();
        let takes_both = if mine.is_ipv6() {
            !self.v6_only
        } else {
            !v6_only && !self.mapped
        };
        mine == ip || (mine.is_unspecified() && (mine.is_ipv4() == ip.is_ipv4() || takes_both))
    }

    /// As Linux: a bind that names an IPv6 address is for IPv6 alone.
    pub fn is_v6_only(&self) -> bool {
        let ip = self.address.ip();
        self.v6_only || (ip.is_ipv6() && !ip.is_unspecified())
    }
}

/// What changes of a binding.
#[derive(Clone, Copy, Debug)]
pub enum PortChange {
    /// Its listener was shut: it is bound still, and stands against others as a socket that does not listen.
    StopListening,
    /// It says SO_REUSEADDR and SO_REUSEPORT so from now on: what counts is what it says when another socket is bound.
    Reuse {
        /// SO_REUSEADDR.
        address: bool,
        /// SO_REUSEPORT.
        port: bool,
    },
    /// It hears one link only from now on, or all. As in Linux, that it stands against others is not looked at.
    Device(Option<u8>),
    /// It has another address from now on: a connected socket that of its connection, as in Linux, where others may be bound beside it.
    Address(IpAddr),
}
