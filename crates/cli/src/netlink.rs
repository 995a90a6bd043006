//! A little rtnetlink, for a namespace of our own: links up, a veth pair, addresses. Not a library.

use std::net::IpAddr;

use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink},
};

// linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE_EXCL: u16 = 0x600;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;

/// Brings the interface `name` up.
pub fn up(name: &str) -> rustix::io::Result<()> {
    let mut message = interface_header(index(name)?, IFF_UP);
    message.extend(attribute(IFLA_IFNAME, &text(name)));
    request(RTM_NEWLINK, 0, &message)
}

/// Makes a pair of virtual Ethernet interfaces.
pub fn veth_pair(one: &str, other: &str, mtu: u32) -> rustix::io::Result<()> {
    let mtu = attribute(IFLA_MTU, &mtu.to_ne_bytes());
    let mut peer = interface_header(0, 0);
    peer.extend(attribute(IFLA_IFNAME, &text(other)));
    peer.extend(&mtu);
    let data = attribute(VETH_INFO_PEER | NLA_F_NESTED, &peer);
    let mut info = attribute(IFLA_INFO_KIND, b"veth\0");
    info.extend(attribute(IFLA_INFO_DATA | NLA_F_NESTED, &data));
    let mut message = interface_header(0, 0);
    message.extend(attribute(IFLA_IFNAME, &text(one)));
    message.extend(mtu);
    message.extend(attribute(IFLA_LINKINFO | NLA_F_NESTED, &info));
    request(RTM_NEWLINK, NLM_F_CREATE_EXCL, &message)
}

/// Gives `name` the address `ip`/`prefix`, to be used at once (no duplicate address detection).
pub fn address(name: &str, ip: IpAddr, prefix: u8) -> rustix::io::Result<()> {
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (AddressFamily::INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AddressFamily::INET6, ip.octets().to_vec()),
    };
    let family = u8::try_from(family.as_raw()).unwrap_or(0);
    // struct ifaddrmsg: family, prefix length, flags, scope, index
    let mut message = vec![family, prefix, IFA_F_NODAD, 0];
    message.extend(index(name)?.to_ne_bytes());
    message.extend(attribute(IFA_LOCAL, &octets));
    message.extend(attribute(IFA_ADDRESS, &octets));
    request(RTM_NEWADDR, NLM_F_CREATE_EXCL, &message)
}

/// Whether the kernel does IPv6 on new interfaces of this namespace.
pub fn has_ipv6() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    disabled.is_ok_and(|value| value.trim() == "0")
}

/// The number of the interface `name`; [`Errno::NODEV`] where there is none.
pub fn index(name: &str) -> rustix::io::Result<u32> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::netdevice::name_to_index(&socket, name)
}

/// struct ifinfomsg: family, padding, type, index, flags, which flags change.
fn interface_header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header
}

fn text(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// struct rtattr and its payload, padded to four bytes.
fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends one request and waits for its acknowledgement.
fn request(kind: u16, flags: u16, payload: &[u8]) -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // protocol 0 is NETLINK_ROUTE
    )?;
    let length = u32::try_from(payload.len() + 16).map_err(|_| Errno::MSGSIZE)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(payload);
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 4096];
    let (_, n) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // struct nlmsghdr, then struct nlmsgerr, whose first member is 0 or a negative errno.
    let answer = answer.get(..n).unwrap_or_default();
    let kind = answer
        .get(4..6)
        .and_then(|b| b.try_into().ok())
        .map(u16::from_ne_bytes);
    let status = answer
        .get(16..20)
        .and_then(|b| b.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, status) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(errno)) => Err(Errno::from_raw_os_error(-errno)),
        _ => Err(Errno::PROTO),
    }
}
