//! What bind(2) asks for.

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
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// SO_BINDTODEVICE.
    pub device: Option<u8>,
}

impl BindRequest {
    /// Whether it takes in an address of this host.
    pub fn covers(&self, ip: IpAddr) -> bool {
        let mine = self.address.ip();
        let takes_both = mine.is_ipv6() && !self.v6_only;
        mine == ip || (mine.is_unspecified() && (mine.is_ipv4() == ip.is_ipv4() || takes_both))
    }
}
