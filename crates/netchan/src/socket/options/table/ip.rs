//! Options of IPPROTO_IP (ip(7)).

use std::io;

use libc::{AF_INET, c_int};

use super::{
    super::{
        CallerFlag as Flag, Setting, SocketOption,
        groups::{
            Deed::{Block, Join, Leave, Unblock},
            filter::Layout::{Group, V4},
            group_request, group_source, interface_v4, join, leave, membership, source_v4,
        },
        row::{
            ALL, Decides, GROUPS, Get, Row, Set, Value, both, caller_flag, datagram, get,
            multicast, option, row, set,
        },
        values::{int_or_byte, invalid, octet},
    },
    OF_DATAGRAMS,
};
use crate::{
    api::{
        Discovery, UdpOption,
        multicast::{Multicast, Via},
    },
    errno::fail,
    socket::Socket,
};

#[rustfmt::skip] // a row a line
pub(super) static ROWS: &[Row] = &[
    row(1, "IP_TOS", "octet", ALL, option!(TypeOfService, octet)),
    row(2, "IP_TTL", "octet", ALL, option!(Ttl, hops)).note("of packets of IPv4"),
    row(4, "IP_OPTIONS", "bytes", ALL, get(nothing)).note("reads as none"),
    row(8, "IP_PKTINFO", "flag", ALL, caller_flag(Flag::PacketInfo, flag)).note(OF_DATAGRAMS),
    row(10, "IP_MTU_DISCOVER", "int", ALL, datagram!(Discovery, discovery, super::of_discovery)),
    row(11, "IP_RECVERR", "flag", ALL, datagram!(ReceiveErrors, flag)).note(OF_DATAGRAMS),
    row(12, "IP_RECVTTL", "flag", ALL, caller_flag(Flag::Ttl, flag)).note(OF_DATAGRAMS),
    row(13, "IP_RECVTOS", "flag", ALL, caller_flag(Flag::Tos, flag)).note(OF_DATAGRAMS),
    row(14, "IP_MTU", "bytes", GROUPS, get(super::mtu)).note("of a connected socket"),
    row(20, "IP_ORIGDSTADDR", "flag", ALL, caller_flag(Flag::OriginalDestination, flag))
        .note("IP_RECVORIGDSTADDR; of streams only kept"),
    row(24, "IP_BIND_ADDRESS_NO_PORT", "flag", ALL, caller_flag(Flag::BindAddressNoPort, flag))
        .note("only kept: ports are chosen late anyway"),
    row(32, "IP_MULTICAST_IF", "struct ip_mreqn", ALL, both(interface_v4, interface))
        .decides(Decides::UnlessStream),
    row(33, "IP_MULTICAST_TTL", "octet", ALL, multicast!(Ttl, group_hops)),
    row(34, "IP_MULTICAST_LOOP", "flag", ALL, multicast!(LoopV4, some_flag)).note(OF_DATAGRAMS),
    row(35, "IP_ADD_MEMBERSHIP", "struct ip_mreqn", GROUPS, set(|v| Ok(join(membership(v)?))))
        .decides(Decides::UnlessStream)
        .refused_by_streams(libc::EPROTO),
    row(36, "IP_DROP_MEMBERSHIP", "struct ip_mreqn", GROUPS, set(|v| Ok(leave(membership(v)?))))
        .refused_by_streams(libc::EPROTO),
    row(37, "IP_UNBLOCK_SOURCE", "struct ip_mreq_source", GROUPS, set(|v| source_v4(v, Unblock))),
    row(38, "IP_BLOCK_SOURCE", "struct ip_mreq_source", GROUPS, set(|v| source_v4(v, Block))),
    row(39, "IP_ADD_SOURCE_MEMBERSHIP", "struct ip_mreq_source", GROUPS, set(|v| source_v4(v, Join)))
        .decides(Decides::UnlessStream),
    row(40, "IP_DROP_SOURCE_MEMBERSHIP", "struct ip_mreq_source", GROUPS, set(|v| source_v4(v, Leave))),
    row(41, "IP_MSFILTER", "struct ip_msfilter", GROUPS, (Set::Filter(V4), Get::Filter(V4))),
    row(42, "MCAST_JOIN_GROUP", "struct group_req", GROUPS, set(|v| Ok(join(group_request(AF_INET, v)?))))
        .decides(Decides::UnlessStream)
        .note("RFC 3678, as the next six"),
    row(43, "MCAST_BLOCK_SOURCE", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET, v, Block))),
    row(44, "MCAST_UNBLOCK_SOURCE", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET, v, Unblock))),
    row(45, "MCAST_LEAVE_GROUP", "struct group_req", GROUPS, set(|v| Ok(leave(group_request(AF_INET, v)?)))),
    row(46, "MCAST_JOIN_SOURCE_GROUP", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET, v, Join)))
        .decides(Decides::UnlessStream),
    row(47, "MCAST_LEAVE_SOURCE_GROUP", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET, v, Leave))),
    row(48, "MCAST_MSFILTER", "struct group_filter", GROUPS, FILTER),
    row(49, "IP_MULTICAST_ALL", "flag", ALL, multicast!(AllV4, strict_flag)).note(OF_DATAGRAMS),
];

const FILTER: (Set, Get) = (Set::Filter(Group(AF_INET)), Get::Filter(Group(AF_INET)));

/// No options: as many bytes of them.
fn nothing(_: &Socket) -> io::Result<Value> {
    Ok(Value::Bytes(Vec::new()))
}

fn flag(value: &[u8]) -> io::Result<bool> {
    int_or_byte(value).map(|value| value != 0)
}

/// -1 is the default, else 1..=255.
fn hops(value: &[u8]) -> io::Result<u8> {
    match int_or_byte(value)? {
        -1 => Ok(64),
        hops @ 1..=255 => u8::try_from(hops).map_err(|_| invalid()),
        _ => fail(libc::EINVAL),
    }
}

fn discovery(value: &[u8]) -> io::Result<Discovery> {
    super::discovery(int_or_byte(value)?)
}

/// Where options of groups may come as one byte, but not as none.
fn int_or_a_byte(value: &[u8]) -> io::Result<c_int> {
    if value.is_empty() {
        return fail(libc::EINVAL);
    }
    int_or_byte(value)
}

fn group_hops(value: &[u8]) -> io::Result<u8> {
    super::group_hops(int_or_a_byte(value)?)
}

fn some_flag(value: &[u8]) -> io::Result<bool> {
    int_or_a_byte(value).map(|on| on != 0)
}

fn strict_flag(value: &[u8]) -> io::Result<bool> {
    super::strict(int_or_a_byte(value)?)
}

fn interface(socket: &Socket) -> io::Result<Value> {
    let like = SocketOption::Multicast(Multicast::InterfaceV4(Via::Index(0)));
    let octets = match socket.option(like)? {
        SocketOption::Multicast(Multicast::InterfaceV4(Via::Address(ip))) => ip.octets(),
        _ => [0; 4],
    };
    Ok(Value::Bytes(octets.to_vec()))
}
