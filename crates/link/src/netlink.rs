//! As much of rtnetlink(7) as a link needs: find an interface, set its MTU, bring it up, give it an address.
//!
//! Written against the kernel's uapi headers rather than over a library: four requests, one answer each.

use std::{
    io,
    net::{IpAddr, Ipv6Addr},
    os::fd::OwnedFd,
};

use percore::own::Own;
use proto::wire::ethernet::MacAddr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
/// A route that ends here.
const RTN_LOCAL: u8 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// No duplicate address detection (RFC 4862 §5.4): the address is usable at once, not after a second.
const IFA_F_NODAD: u8 = 0x02;
const IFF_UP: u32 = 1;
const HEADER: usize = 16;

/// An interface of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its MTU, bytes.
    pub mtu: usize,
    /// Its link-layer address; all zero where it has none of six bytes.
    pub mac: MacAddr,
    /// Whether it is up (IFF_UP: what the administrator wants).
    pub up: bool,
    /// Whether it carries Ethernet (ARPHRD_ETHER), which a loopback does not.
    pub ethernet: bool,
}

/// A request under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    /// A request about an interface: `ifinfomsg`.
    fn link(kind: u16, flags: u16, index: u32, set: u32) -> Self {
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..12].copy_from_slice(&set.to_ne_bytes());
        body[12..16].copy_from_slice(&set.to_ne_bytes());
        Self::new(kind, flags, &body)
    }

    /// Appends an attribute of at most 64 bytes.
    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Sends it; the first message of the answer (header included).
    fn ask(mut self) -> io::Result<Vec<u8>> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        // Protocol 0: NETLINK_ROUTE.
        let fd: OwnedFd = socket_with(family, SocketType::RAW, flags, None)?;
        let fd = Own::stay(fd);
        send(&fd, &self.0, SendFlags::empty())?;
        let mut answer = vec![0; 32 << 10];
        let (n, _) = recv(&fd, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(n);
        match (u16_at(&answer, 4), i32_at(&answer, HEADER)) {
            (Some(NLMSG_ERROR), Some(0)) => Ok(answer),
            (Some(NLMSG_ERROR), Some(errno)) => Err(io::Error::from_raw_os_error(-errno)),
            (Some(_), _) => Ok(answer),
            (None, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..at + 2)?
        .try_into()
        .ok()
        .map(u16::from_ne_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(i32::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

/// The interface called `name`, if there is one.
pub fn find(name: &str) -> io::Result<Option<Interface>> {
    let mut zero_ended = name.as_bytes().to_vec();
    zero_ended.push(0);
    let answer = match Request::link(RTM_GETLINK, 0, 0, 0)
        .attribute(IFLA_IFNAME, &zero_ended)
        .ask()
    {
        Ok(answer) => answer,
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(interface(&answer))
}

/// Reads RTM_NEWLINK.
fn interface(message: &[u8]) -> Option<Interface> {
    if u16_at(message, 4)? != RTM_NEWLINK {
        return None;
    }
    let mut found = Interface {
        index: u32_at(message, HEADER + 4)?,
        mtu: 0,
        mac: MacAddr([0; 6]),
        up: u32_at(message, HEADER + 8)? & IFF_UP != 0,
        ethernet: u16_at(message, HEADER + 2)? == libc::ARPHRD_ETHER,
    };
    let mut rest = message.get(HEADER + 16..)?;
    while let (Some(len), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let len = usize::from(len);
        let Some(value) = rest.get(4..len) else { break };
        match kind {
            IFLA_ADDRESS => found.mac = value.try_into().map_or(found.mac, MacAddr),
            IFLA_MTU => found.mtu = usize::try_from(u32_at(value, 0)?).ok()?,
            _ => {}
        }
        let Some(next) = rest.get(len.next_multiple_of(4)..) else {
            break;
        };
        rest = next;
    }
    Some(found)
}

/// Brings an interface up.
pub fn bring_up(index: u32) -> io::Result<()> {
    Request::link(RTM_NEWLINK, NLM_F_ACK, index, IFF_UP)
        .ask()
        .map(drop)
}

/// Sets an interface's MTU, bytes.
pub fn set_mtu(index: u32, mtu: usize) -> io::Result<()> {
    let mtu = u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
    Request::link(RTM_NEWLINK, NLM_F_ACK, index, 0)
        .attribute(IFLA_MTU, &mtu.to_ne_bytes())
        .ask()
        .map(drop)
}

/// Gives an interface an address, usable at once. That it has it already is fine.
pub fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets, flags) = match address {
        IpAddr::V4(a) => (libc::AF_INET, a.octets().to_vec(), 0),
        IpAddr::V6(a) => (libc::AF_INET6, a.octets().to_vec(), IFA_F_NODAD),
    };
    let mut body = [
        u8::try_from(family).unwrap_or(0),
        prefix,
        flags,
        0,
        0,
        0,
        0,
        0,
    ];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    Request::new(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &body)
        .attribute(IFA_LOCAL, &octets)
        .attribute(IFA_ADDRESS, &octets)
        .ask()
        .map(drop)
}

/// Whether the kernel answers for this IPv6 address of its own. Even without duplicate address detection its work queue
/// takes a moment to join the group that solicitations are sent to and then, last, to make the local route (addrconf.c).
pub fn is_usable(address: Ipv6Addr) -> io::Result<bool> {
    let mut body = [0; 12];
    body[0] = u8::try_from(libc::AF_INET6).unwrap_or(0);
    body[1] = 128;
    let answer = Request::new(RTM_GETROUTE, 0, &body)
        .attribute(RTA_DST, &address.octets())
        .ask()?;
    Ok(answer.get(HEADER + 7) == Some(&RTN_LOCAL))
}
