//! Options of IPPROTO_IPV6 (ipv6(7)).

use std::io;

use libc::AF_INET6;

use super::{
    super::{
        CallerFlag as Flag, Setting, SocketOption,
        groups::{
            Deed::{Block, Join, Leave, Unblock},
            filter::Layout::Group,
            group_request, group_source, join, leave, request_v6,
        },
        row::{
            ALL, Decides, GROUPS, Get, Row, Set, Value, both, caller_flag, datagram, get,
            multicast, option, row, set,
        },
        values::{flag, int, invalid},
    },
    OF_DATAGRAMS,
};
use crate::{
    api::{Discovery, UdpOption, multicast::Multicast},
    errno::{error, fail},
    socket::Socket,
};

#[rustfmt::skip] // a row a line
pub(super) static ROWS: &[Row] = &[
    row(16, "IPV6_UNICAST_HOPS", "int", ALL, option!(HopLimit, hops)),
    row(17, "IPV6_MULTICAST_IF", "int", ALL, multicast!(InterfaceV6, link))
        .decides(Decides::UnlessStream)
        .refused_by_streams(libc::ENOPROTOOPT),
    row(18, "IPV6_MULTICAST_HOPS", "int", ALL, multicast!(Hops, group_hops))
        .refused_by_streams(libc::ENOPROTOOPT),
    row(19, "IPV6_MULTICAST_LOOP", "flag", ALL, multicast!(LoopV6, strict)).note(OF_DATAGRAMS),
    row(20, "IPV6_ADD_MEMBERSHIP", "struct ipv6_mreq", GROUPS, set(|v| Ok(join(request_v6(v)?))))
        .decides(Decides::UnlessStream),
    row(21, "IPV6_DROP_MEMBERSHIP", "struct ipv6_mreq", GROUPS, set(|v| Ok(leave(request_v6(v)?)))),
    row(23, "IPV6_MTU_DISCOVER", "int", ALL, datagram!(Discovery, discovery, super::of_discovery)),
    row(24, "IPV6_MTU", "bytes", GROUPS, get(super::mtu)).note("of a connected socket"),
    row(25, "IPV6_RECVERR", "flag", ALL, datagram!(ReceiveErrorsV6, flag)).note(OF_DATAGRAMS),
    row(26, "IPV6_V6ONLY", "flag", ALL, option!(V6Only, flag)),
    row(29, "IPV6_MULTICAST_ALL", "flag", ALL, multicast!(AllV6, flag)).note(OF_DATAGRAMS),
    row(42, "MCAST_JOIN_GROUP", "struct group_req", GROUPS, set(|v| Ok(join(group_request(AF_INET6, v)?))))
        .decides(Decides::UnlessStream)
        .note("RFC 3678, as the next six"),
    row(43, "MCAST_BLOCK_SOURCE", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET6, v, Block))),
    row(44, "MCAST_UNBLOCK_SOURCE", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET6, v, Unblock))),
    row(45, "MCAST_LEAVE_GROUP", "struct group_req", GROUPS, set(|v| Ok(leave(group_request(AF_INET6, v)?)))),
    row(46, "MCAST_JOIN_SOURCE_GROUP", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET6, v, Join)))
        .decides(Decides::UnlessStream),
    row(47, "MCAST_LEAVE_SOURCE_GROUP", "struct group_source_req", GROUPS, set(|v| group_source(AF_INET6, v, Leave))),
    row(48, "MCAST_MSFILTER", "struct group_filter", GROUPS, FILTER),
    row(49, "IPV6_RECVPKTINFO", "flag", ALL, caller_flag(Flag::PacketInfoV6, flag)).note(OF_DATAGRAMS),
    row(51, "IPV6_RECVHOPLIMIT", "flag", ALL, caller_flag(Flag::HopLimit, flag)).note(OF_DATAGRAMS),
    row(66, "IPV6_RECVTCLASS", "flag", ALL, caller_flag(Flag::TrafficClass, flag)).note(OF_DATAGRAMS),
    row(67, "IPV6_TCLASS", "octet", ALL, option!(TrafficClass, class)),
    row(74, "IPV6_ORIGDSTADDR", "flag", ALL, caller_flag(Flag::OriginalDestinationV6, flag))
        .note("IPV6_RECVORIGDSTADDR; of streams only kept"),
];

const FILTER: (Set, Get) = (Set::Filter(Group(AF_INET6)), Get::Filter(Group(AF_INET6)));

fn hops(value: &[u8]) -> io::Result<u8> {
    match int(value)? {
        -1 => Ok(64),
        hops => u8::try_from(hops).map_err(|_| invalid()),
    }
}

fn class(value: &[u8]) -> io::Result<u8> {
    match int(value)? {
        -1 => Ok(0),
        class => u8::try_from(class).map_err(|_| invalid()),
    }
}

fn discovery(value: &[u8]) -> io::Result<Discovery> {
    super::discovery(int(value)?)
}

fn link(value: &[u8]) -> io::Result<u32> {
    u32::try_from(int(value)?).map_err(|_| error(libc::ENODEV))
}

fn group_hops(value: &[u8]) -> io::Result<u8> {
    super::group_hops(int(value)?)
}

fn strict(value: &[u8]) -> io::Result<bool> {
    super::strict(int(value)?)
}
