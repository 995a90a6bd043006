//! Which addresses stay with the kernel's stack, where a program could have both.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use super::{KERNEL, has_loopback};
use crate::{Net, errno::invalid};

/// What stays with the kernel's stack: the prefixes of [`KERNEL`], and loopback where the stack has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    prefixes: Vec<Prefix>,
    has_loopback: bool,
}

impl Kernels {
    /// As the variables say that `variable` looks up.
    ///
    /// # Errors
    /// `InvalidInput`: a value that is not understood; the message names its variable. As for [`builder`](super::builder).
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Self> {
        let text = variable(KERNEL).unwrap_or_default();
        let parts = text.split(',').map(str::trim);
        let prefixes = parts.filter(|part| !part.is_empty()).map(|part| {
            Prefix::parse(part).ok_or_else(|| {
                invalid(format!(
                    "{KERNEL}: '{part}' is not an address prefix such as 10.0.0.0/8"
                ))
            })
        });
        Ok(Self {
            prefixes: prefixes.collect::<io::Result<_>>()?,
            has_loopback: !has_loopback(variable)?,
        })
    }

    /// Loopback addresses are among them, whatever the variables say.
    pub fn with_loopback(mut self) -> Self {
        self.has_loopback = true;
        self
    }

    /// Whether `ip` is one of them.
    pub fn has(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_loopback() && self.has_loopback
            || self.prefixes.iter().any(|prefix| prefix.contains(ip))
    }

    /// Whether `ip` is one of them, as the peer of a socket: "this host" is whose 127.0.0.1 is.
    pub fn has_peer(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            ip if ip.is_unspecified() => self.has(Ipv4Addr::LOCALHOST.into()),
            ip => self.has(ip),
        }
    }

    /// Whether `net` serves a socket that is bound to `address`: a wildcard, or an address of its own.
    pub fn leave_to(&self, net: &Net, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        !self.has(ip)
            && (ip.is_unspecified()
                || ip.is_multicast()
                || net.is_local(ip)
                || net.is_broadcast(ip))
    }
}

/// An address range that stays with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Reads `10.0.0.0/8`, `fd00::/8`, or an address for itself alone; `None` if it is neither.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address.parse().ok()?, Some(bits.parse().ok()?)),
            None => (text.parse().ok()?, None),
        };
        let most = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits: u8 = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether `ip` lies in it.
    fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let shift = 32 - u32::from(self.bits);
                (u32::from(a) ^ u32::from(b))
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let shift = 128 - u32::from(self.bits);
                (u128::from(a) ^ u128::from(b))
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "kernels_tests.rs"]
mod tests;
