//! How a server is reached: over which device, on whose TCP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The servers' end of the veth.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
/// netchan's end of a TAP.
const TAP_SERVER: Ipv4Addr = Ipv4Addr::new(10, 92, 0, 2);
/// Every server's.
pub(super) const PORT: u16 = 7379;

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The kernel's TCP, over the veth.
    Kernel,
    /// The kernel's TCP, over the clients' loopback.
    Loopback,
    /// netchan on the servers' end of the veth.
    Packet,
    /// The same, through a `netchan daemon` that has the veth's end.
    Daemon,
    /// netchan on a TAP in the clients' namespace.
    Tap,
}

impl Way {
    pub const fn address(self) -> SocketAddr {
        let ip = match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Kernel | Self::Packet | Self::Daemon => SERVER,
            Self::Tap => TAP_SERVER,
        };
        SocketAddr::new(IpAddr::V4(ip), PORT)
    }
}
