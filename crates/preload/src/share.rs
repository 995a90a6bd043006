//! What stands at the number of a socket that several processes hold: one end of a pair of UNIX sockets.
//!
//! A socket of netchan's lives on the heap of the process that has the stack; other processes can have a descriptor of the kernel's alone. They share
//! one end of a pair, whose other end stays with that process. The kernel counts its holders, through fork, exec, dup and SCM_RIGHTS, and when the last
//! of them goes the other end learns it.
//!
//! Of a connection it is a pair of streams: bytes go through it as they would through the connection. Of a listener it is a pair that keeps messages
//! apart: each message is one accepted connection, its name as the text and its descriptor beside it. All that have the listener take from one queue. Of a
//! datagram socket it is such a pair, too, and each message a datagram behind a head (`netchan::relay::letter`).
//!
//! The shared end has an abstract name that says what it stands for, since a program that came by it through exec knows nothing else of it.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use netchan::{own::Own, socket::Domain};
use rustix::{
    fs::OFlags,
    net::{
        AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname,
        shutdown, socketpair,
    },
};

use crate::{locks, sys};

/// What a shared end stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Connection,
    Listener,
    Datagrams,
}

/// What the name of a shared end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub role: Role,
    pub domain: Domain,
    /// What processes call it to each other (`line`).
    pub number: u64,
    pub local: SocketAddr,
    /// Of a connection; of a datagram socket port 0, if it is not connected.
    pub peer: SocketAddr,
    /// What recvmsg(2) shall tell of datagrams, as bits.
    pub asked: u32,
}

/// How each of these names begins; the last byte is their version.
const MAGIC: &[u8; 8] = b"netchan\x01";
const ADDRESS: usize = 22;
/// Bytes of a name: magic, role, domain, number, two addresses, what it is asked, and what makes it the only one of its kind.
pub const LEN: usize = MAGIC.len() + 2 + 8 + 2 * ADDRESS + 4 + 20;

/// A name's bytes.
pub type Encoded = [u8; LEN];

impl Name {
    /// As bytes, which no other shared end has.
    pub fn encode(&self) -> Encoded {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Relaxed); // only has to differ
        let mut bytes = [0; LEN];
        let mut rest = bytes.as_mut_slice();
        let mut put = |part: &[u8]| {
            let room = rest.split_off_mut(..part.len()).unwrap_or_default();
            room.copy_from_slice(part);
        };
        put(MAGIC);
        let role = match self.role {
            Role::Connection => 0,
            Role::Listener => 1,
            Role::Datagrams => 2,
        };
        let is_v6 = self.domain == Domain::V6;
        put(&[role, u8::from(is_v6)]);
        put(&self.number.to_le_bytes());
        put(&address(self.local));
        put(&address(self.peer));
        put(&self.asked.to_le_bytes());
        put(&sys::pid().to_le_bytes());
        put(&next.to_le_bytes());
        // Process ids repeat, also beside each other in several namespaces.
        let ns = u64::try_from(sys::monotonic().as_nanos()).unwrap_or(0);
        put(&ns.to_le_bytes());
        bytes
    }

    /// `None`: these are no name's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &Encoded = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk()?;
        let ([role, domain], rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (local, rest) = rest.split_first_chunk()?;
        let (peer, rest) = rest.split_first_chunk()?;
        let (asked, _) = rest.split_first_chunk()?;
        let role = match role {
            0 => Role::Connection,
            1 => Role::Listener,
            2 => Role::Datagrams,
            _ => return None,
        };
        (magic == MAGIC).then(|| Self {
            role,
            domain: if *domain == 0 { Domain::V4 } else { Domain::V6 },
            number: u64::from_le_bytes(*number),
            local: of_bytes(local),
            peer: of_bytes(peer),
            asked: u32::from_le_bytes(*asked),
        })
    }
}

/// IPv4 as IPv6 carries it, or IPv6; port; scope.
fn address(address: SocketAddr) -> [u8; ADDRESS] {
    let (ip, scope) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    let mut bytes = [0; ADDRESS];
    let (to, rest) = bytes.split_at_mut(16);
    let (port, to_scope) = rest.split_at_mut(2);
    to.copy_from_slice(&ip.octets());
    port.copy_from_slice(&address.port().to_le_bytes());
    to_scope.copy_from_slice(&scope.to_le_bytes());
    bytes
}

fn of_bytes(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let [ip @ .., p0, p1, s0, s1, s2, s3] = *bytes;
    let port = u16::from_le_bytes([p0, p1]);
    let scope = u32::from_le_bytes([s0, s1, s2, s3]);
    let ip = Ipv6Addr::from(ip);
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        None => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

/// A pair: the end that is to be shared, which has no name yet, and the one that stays. Both are closed on exec, and ours does not block.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn pair(role: Role) -> io::Result<(OwnedFd, Own)> {
    let kind = match role {
        Role::Connection => SocketType::STREAM,
        Role::Listener | Role::Datagrams => SocketType::SEQPACKET,
    };
    let (shared, ours) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    set_nonblocking(ours.as_fd(), true)?;
    if role == Role::Listener {
        shutdown(&ours, Shutdown::Read)?; // what is written to a listener is refused
    }
    Ok((shared, Own::keep(ours)))
}

/// A pair of which both ends are ours as yet. No child is made meanwhile, which would keep an end that is not marked.
///
/// # Errors
/// As [`pair`].
pub fn own_pair(role: Role) -> io::Result<(Own, Own)> {
    let _no_fork = locks::giving_back();
    let (shared, ours) = pair(role)?;
    Ok((Own::keep(shared), ours))
}

/// O_NONBLOCK.
///
/// # Errors
/// The system's.
pub fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let flags = if on {
        OFlags::NONBLOCK
    } else {
        OFlags::empty()
    };
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Gives a shared end its name.
///
/// # Errors
/// The system's.
pub fn set_name(shared: BorrowedFd<'_>, name: &Encoded) -> io::Result<()> {
    Ok(bind(shared, &SocketAddrUnix::new_abstract_name(name)?)?)
}

/// What `fd` stands for, if it is a shared end. One system call.
pub fn name_of(fd: RawFd) -> Option<Name> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel says so where it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let bound = SocketAddrUnix::try_from(getsockname(fd).ok()?).ok()?;
    Name::decode(bound.abstract_name()?)
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
