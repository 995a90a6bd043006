//! The options of datagram sockets: udp(7), and those of ip(7), ipv6(7) and socket(7) that say what recvmsg(2) tells.

use std::io;

use libc::c_int;
use netchan::socket::{Discovery, Kind, SocketOption, UdpOption};

use crate::{asked::Ask, errno::fail, setting::Setting, state::Live};

const IP_RECVERR: c_int = 11;
const IPV6_RECVERR: c_int = 25;
const IPV6_MTU_DISCOVER: c_int = 23;
const IPV6_MTU: c_int = 24;
const IPV6_RECVORIGDSTADDR: c_int = 74;
const UDP_CORK: c_int = 1;
const UDP_NO_CHECK6_TX: c_int = 101;
const UDP_NO_CHECK6_RX: c_int = 102;
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;

/// What an option asks recvmsg(2) to tell.
const fn ask(level: c_int, name: c_int) -> Option<Ask> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP) => Ask::Timestamp,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => Ask::TimestampNs,
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => Ask::Drops,
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => Ask::PacketInfo,
        (libc::IPPROTO_IP, libc::IP_RECVTTL) => Ask::Ttl,
        (libc::IPPROTO_IP, libc::IP_RECVTOS) => Ask::Tos,
        (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR) => Ask::OriginalDestination,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => Ask::PacketInfoV6,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT) => Ask::HopLimit,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS) => Ask::TrafficClass,
        (libc::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR) => Ask::OriginalDestinationV6,
        _ => return None,
    })
}

/// Reads one option with an integer `value`; `None`: not one of these.
pub fn parse(level: c_int, name: c_int, value: c_int) -> Option<io::Result<Setting>> {
    if let Some(what) = ask(level, name) {
        return Some(Ok(Setting::Ask(what, value != 0)));
    }
    let on = value != 0;
    let option = match (level, name) {
        (libc::IPPROTO_IP, IP_RECVERR) => UdpOption::ReceiveErrors(on),
        (libc::IPPROTO_IPV6, IPV6_RECVERR) => UdpOption::ReceiveErrorsV6(on),
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) | (libc::IPPROTO_IPV6, IPV6_MTU_DISCOVER) => {
            match discovery(value) {
                Ok(mode) => UdpOption::Discovery(mode),
                Err(error) => return Some(Err(error)),
            }
        }
        (libc::SOL_UDP, UDP_CORK) => UdpOption::Cork(on),
        (libc::SOL_UDP, UDP_NO_CHECK6_TX) => UdpOption::NoChecksumOut(on),
        (libc::SOL_UDP, UDP_NO_CHECK6_RX) => UdpOption::NoChecksumIn(on),
        (libc::SOL_UDP, UDP_GRO) => UdpOption::Merge(on),
        (libc::SOL_UDP, UDP_SEGMENT) => match u16::try_from(value) {
            Ok(bytes) => UdpOption::Segment(bytes),
            Err(_) => return Some(fail(libc::EINVAL)),
        },
        _ => return None,
    };
    Some(Ok(Setting::Option(SocketOption::Udp(option))))
}

fn discovery(value: c_int) -> io::Result<Discovery> {
    Ok(match value {
        libc::IP_PMTUDISC_DONT => Discovery::Dont,
        libc::IP_PMTUDISC_WANT => Discovery::Want,
        libc::IP_PMTUDISC_DO => Discovery::Do,
        libc::IP_PMTUDISC_PROBE => Discovery::Probe,
        4 => Discovery::Interface,
        5 => Discovery::Omit,
        _ => return fail(libc::EINVAL),
    })
}

/// The value of one option; `None`: not one of these.
pub fn get(live: Live<'_>, level: c_int, name: c_int) -> Option<io::Result<c_int>> {
    if let Some(what) = ask(level, name) {
        return Some(Ok(c_int::from(live.state.asked.get(what))));
    }
    let like = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, IPV6_MTU) => {
            if live.state.kind == Kind::Stream {
                return None;
            }
            let mtu = live.socket.path_mtu();
            return Some(mtu.map(|mtu| c_int::try_from(mtu).unwrap_or(c_int::MAX)));
        }
        (libc::SOL_UDP, _) if live.state.kind == Kind::Stream => return None,
        // The value does not matter.
        _ => match parse(level, name, 0)? {
            Ok(Setting::Option(like)) => like,
            _ => return None,
        },
    };
    Some(live.socket.option(like).map(|option| match option {
        SocketOption::Udp(option) => number(option),
        _ => 0,
    }))
}

fn number(option: UdpOption) -> c_int {
    match option {
        UdpOption::Segment(bytes) => c_int::from(bytes),
        UdpOption::Discovery(mode) => match mode {
            Discovery::Dont => libc::IP_PMTUDISC_DONT,
            Discovery::Want => libc::IP_PMTUDISC_WANT,
            Discovery::Do => libc::IP_PMTUDISC_DO,
            Discovery::Probe => libc::IP_PMTUDISC_PROBE,
            Discovery::Interface => 4,
            Discovery::Omit => 5,
        },
        UdpOption::ReceiveErrors(on)
        | UdpOption::ReceiveErrorsV6(on)
        | UdpOption::Merge(on)
        | UdpOption::Cork(on)
        | UdpOption::NoChecksumOut(on)
        | UdpOption::NoChecksumIn(on) => c_int::from(on),
    }
}
