//! Groups as `std::net::UdpSocket` has them.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::api::multicast::{Multicast, Via};
use crate::{
    errno::error,
    socket::{SocketOption, UdpSocket},
};

impl UdpSocket {
    fn set(&self, option: Multicast) -> io::Result<()> {
        self.socket().set_option(SocketOption::Multicast(option))
    }

    fn get(&self, like: Multicast) -> io::Result<Multicast> {
        match self.socket().option(SocketOption::Multicast(like))? {
            SocketOption::Multicast(value) => Ok(value),
            _ => Ok(like),
        }
    }

    /// IP_ADD_MEMBERSHIP: hears `group` on the link with our address `interface`; 0.0.0.0: the one that leads there.
    ///
    /// # Errors
    /// `AddrInUse` (it does already), ENODEV, `InvalidInput`, ENOBUFS (more than [`MEMBERSHIPS`](crate::limits::MEMBERSHIPS)).
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.set(Multicast::Join {
            group: (*group).into(),
            via: Via::Address(*interface),
            source: None,
        })
    }

    /// IPV6_JOIN_GROUP; `interface` is the link's number, from 1 on, or 0.
    ///
    /// # Errors
    /// As for [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.set(Multicast::Join {
            group: (*group).into(),
            via: Via::Index(interface),
            source: None,
        })
    }

    /// IP_DROP_MEMBERSHIP.
    ///
    /// # Errors
    /// `AddrNotAvailable`: it was not in there.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.set(Multicast::Leave {
            group: (*group).into(),
            via: Via::Address(*interface),
            source: None,
        })
    }

    /// IPV6_LEAVE_GROUP.
    ///
    /// # Errors
    /// `AddrNotAvailable`: it was not in there.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.set(Multicast::Leave {
            group: (*group).into(),
            via: Via::Index(interface),
            source: None,
        })
    }

    /// IP_MULTICAST_LOOP.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.set(Multicast::LoopV4(on))
    }

    /// IP_MULTICAST_LOOP.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        Ok(self.get(Multicast::LoopV4(false))? == Multicast::LoopV4(true))
    }

    /// IPV6_MULTICAST_LOOP.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set(Multicast::LoopV6(on))
    }

    /// IPV6_MULTICAST_LOOP.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        Ok(self.get(Multicast::LoopV6(false))? == Multicast::LoopV6(true))
    }

    /// IP_MULTICAST_TTL.
    ///
    /// # Errors
    /// `InvalidInput` above 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).map_err(|_| error(libc::EINVAL))?;
        self.set(Multicast::Ttl(ttl))
    }

    /// IP_MULTICAST_TTL.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        match self.get(Multicast::Ttl(0))? {
            Multicast::Ttl(ttl) => Ok(ttl.into()),
            _ => Ok(1),
        }
    }
}
