//! What setsockopt is given: levels, names and values, read as C has them.

use std::{io, net::IpAddr, time::Duration};

use libc::c_int;
use netchan::{
    CongestionControl,
    socket::{Md5Key, SocketOption},
};

use super::{
    NAME_MAX, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE, TCP_INQ,
    TCP_NOTSENT_LOWAT, ao,
};
use crate::{
    asked::Ask,
    datagram_options, errno,
    errno::fail,
    fast_open, limits, multicast,
    setting::{Device, Setting},
    stamping,
    values::{
        flag, forced, in_range, int, int_or_byte, invalid, linger, low_water, octet, rate, seconds,
        size, timeval, unsigned,
    },
};

pub const IP_BIND_ADDRESS_NO_PORT: c_int = 24;
pub const TCP_THIN_LINEAR_TIMEOUTS: c_int = 16;
pub const TCP_THIN_DUPACK: c_int = 17;
const TCP_MD5SIG_EXT: c_int = 32;
pub const SO_BINDTOIFINDEX: c_int = 62;
pub const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;

/// Reads one option as setsockopt passes it: ENOPROTOOPT (not served), EINVAL (too short, out of range).
pub fn parse(level: c_int, name: c_int, value: &[u8]) -> io::Result<Setting> {
    match level {
        libc::SOL_SOCKET => parse_socket(name, value),
        libc::IPPROTO_TCP => parse_tcp(name, value),
        libc::IPPROTO_IP => parse_ip(name, value),
        libc::IPPROTO_IPV6 => parse_ipv6(name, value),
        _ => parse_datagrams(level, name, value),
    }
}

fn parse_datagrams(level: c_int, name: c_int, value: &[u8]) -> io::Result<Setting> {
    if let Some(option) = multicast::parse(level, name, value) {
        return option.map(Setting::Option);
    }
    let number = match level {
        libc::IPPROTO_IP => int_or_byte(value),
        _ => int(value),
    };
    match datagram_options::parse(level, name, *number.as_ref().unwrap_or(&0)) {
        Some(setting) => number.and(setting),
        None => fail(libc::ENOPROTOOPT),
    }
}

fn parse_socket(name: c_int, value: &[u8]) -> io::Result<Setting> {
    use SocketOption as O;
    if name == libc::SO_BINDTODEVICE {
        return Ok(Setting::Device(Device::named(value)));
    }
    int(value)?; // whatever it is
    Ok(Setting::Option(match name {
        libc::SO_REUSEADDR => O::ReuseAddress(flag(value)?),
        libc::SO_REUSEPORT => O::ReusePort(flag(value)?),
        libc::SO_KEEPALIVE => O::KeepAlive(flag(value)?),
        libc::SO_BROADCAST => O::Broadcast(flag(value)?),
        libc::SO_LINGER => O::Linger(linger(value)?),
        libc::SO_RCVBUF => O::ReceiveBuffer(size(value)?.min(limits::receive_buffer())),
        libc::SO_SNDBUF => O::SendBuffer(size(value)?.min(limits::send_buffer())),
        libc::SO_RCVBUFFORCE => O::ReceiveBuffer(forced(value)?),
        libc::SO_SNDBUFFORCE => O::SendBuffer(forced(value)?),
        libc::SO_RCVTIMEO => return timeval(value).map(Setting::ReceiveTimeout),
        libc::SO_SNDTIMEO => return timeval(value).map(Setting::SendTimeout),
        libc::SO_OOBINLINE => O::UrgentInline(flag(value)?),
        libc::SO_RCVLOWAT => O::ReceiveLowWater(low_water(value)?),
        libc::SO_MAX_PACING_RATE => O::PacingRateMax(rate(value)?),
        libc::SO_MARK => O::Mark(unsigned(int(value)?)),
        libc::SO_TIMESTAMPING => {
            return stamping::parse(unsigned(int(value)?)).map(Setting::Stamping);
        }
        libc::SO_ZEROCOPY => {
            let on = in_range(value, 0, 1)? != 0;
            return Ok(Setting::Ask(Ask::ZeroCopy, on));
        }
        SO_BINDTOIFINDEX => return Device::numbered(int(value)?).map(Setting::Device),
        libc::SO_NO_CHECK => return Ok(Setting::Ask(Ask::NoCheck, flag(value)?)),
        // Linux has them for UNIX sockets alone, since 6.16.
        libc::SO_PASSCRED | libc::SO_PASSSEC => return fail(libc::EOPNOTSUPP),
        libc::SO_PRIORITY => return int(value).map(Setting::Priority),
        libc::SO_DEBUG => return Ok(Setting::Ask(Ask::Debug, flag(value)?)),
        libc::SO_DONTROUTE => return Ok(Setting::Ask(Ask::DontRoute, flag(value)?)),
        libc::SO_BUSY_POLL => {
            let us = u32::try_from(int(value)?).map_err(|_| invalid())?;
            return Ok(Setting::BusyPoll(us));
        }
        SO_PREFER_BUSY_POLL => return Ok(Setting::Ask(Ask::PreferBusyPoll, flag(value)?)),
        SO_BUSY_POLL_BUDGET => {
            return in_range(value, 0, c_int::from(u16::MAX)).map(|_| Setting::Ignored);
        }
        libc::SO_INCOMING_CPU => return Ok(Setting::IncomingCpu(int(value)?)),
        _ => return parse_datagrams(libc::SOL_SOCKET, name, value),
    }))
}

fn parse_tcp(name: c_int, value: &[u8]) -> io::Result<Setting> {
    use SocketOption as O;
    Ok(Setting::Option(match name {
        libc::TCP_NODELAY => O::NoDelay(flag(value)?),
        libc::TCP_CORK => O::Cork(flag(value)?),
        libc::TCP_QUICKACK => O::QuickAck(flag(value)?),
        libc::TCP_MAXSEG => O::MaxSegment(u16::try_from(int(value)?).map_err(|_| invalid())?),
        libc::TCP_KEEPIDLE => O::KeepIdle(seconds(value, 32_767)?),
        libc::TCP_KEEPINTVL => O::KeepInterval(seconds(value, 32_767)?),
        libc::TCP_KEEPCNT => O::KeepCount(in_range(value, 1, 127)?),
        libc::TCP_USER_TIMEOUT => O::UserTimeout(Duration::from_millis(u64::from(in_range(
            value,
            0,
            c_int::MAX,
        )?))),
        // As Linux: negative is as little as may be.
        libc::TCP_WINDOW_CLAMP => O::WindowClamp(u32::try_from(int(value)?).unwrap_or(1)),
        TCP_NOTSENT_LOWAT => O::UnsentLowWater(unsigned(int(value)?)),
        libc::TCP_CONGESTION => O::Congestion(congestion_control(value)?),
        libc::TCP_SYNCNT => {
            O::SynCount(u8::try_from(in_range(value, 1, 127)?).map_err(|_| invalid())?)
        }
        libc::TCP_LINGER2 => O::Linger2(u64::try_from(int(value)?).ok().map(Duration::from_secs)),
        libc::TCP_DEFER_ACCEPT => {
            O::DeferAccept(Duration::from_secs(u64::try_from(int(value)?).unwrap_or(0)))
        }
        libc::TCP_MD5SIG | TCP_MD5SIG_EXT => md5_key(value, name == TCP_MD5SIG_EXT)?,
        libc::TCP_FASTOPEN => O::FastOpen(in_range(value, 0, c_int::MAX)?),
        TCP_FASTOPEN_CONNECT => O::FastOpenConnect(in_range(value, 0, 1)? != 0),
        TCP_FASTOPEN_NO_COOKIE => O::FastOpenNoCookie(in_range(value, 0, 1)? != 0),
        TCP_FASTOPEN_KEY => O::FastOpenKeys(Some(fast_open::keys(value)?)),
        TCP_INQ => {
            let on = in_range(value, 0, 1)? != 0;
            return Ok(Setting::Ask(Ask::Unread, on));
        }
        ao::TCP_AO_ADD_KEY..=ao::TCP_AO_INFO => return ao::parse(name, value).map(Setting::Keys),
        TCP_THIN_LINEAR_TIMEOUTS => {
            let on = in_range(value, 0, 1)? != 0;
            return Ok(Setting::Ask(Ask::ThinLinearTimeouts, on));
        }
        // Of no effect in Linux, too, and read as 0.
        TCP_THIN_DUPACK => return in_range(value, 0, 1).map(|_| Setting::Ignored),
        _ => return fail(libc::ENOPROTOOPT),
    }))
}

fn parse_ip(name: c_int, value: &[u8]) -> io::Result<Setting> {
    match name {
        libc::IP_TOS => Ok(Setting::Option(SocketOption::TypeOfService(octet(value)?))),
        libc::IP_TTL => ttl(int_or_byte(value)?),
        IP_BIND_ADDRESS_NO_PORT => {
            let on = int_or_byte(value)? != 0;
            Ok(Setting::Ask(Ask::BindAddressNoPort, on))
        }
        _ => parse_datagrams(libc::IPPROTO_IP, name, value),
    }
}

fn parse_ipv6(name: c_int, value: &[u8]) -> io::Result<Setting> {
    match name {
        libc::IPV6_V6ONLY => Ok(Setting::Option(SocketOption::V6Only(flag(value)?))),
        libc::IPV6_TCLASS => match int(value)? {
            -1 => Ok(Setting::Option(SocketOption::TrafficClass(0))),
            class => {
                let class = u8::try_from(class).map_err(|_| invalid())?;
                Ok(Setting::Option(SocketOption::TrafficClass(class)))
            }
        },
        libc::IPV6_UNICAST_HOPS => {
            let hops = match int(value)? {
                -1 => 64,
                hops => u8::try_from(hops).map_err(|_| invalid())?,
            };
            Ok(Setting::Option(SocketOption::HopLimit(hops)))
        }
        _ => parse_datagrams(libc::IPPROTO_IPV6, name, value),
    }
}

/// IP_TTL: -1 is the default, else 1..=255.
fn ttl(value: c_int) -> io::Result<Setting> {
    let hops = match value {
        -1 => 64,
        1..=255 => u8::try_from(value).map_err(|_| invalid())?,
        _ => return fail(libc::EINVAL),
    };
    Ok(Setting::Option(SocketOption::Ttl(hops)))
}

/// A struct tcp_md5sig: a struct sockaddr_storage, flags, prefix length, key length (none: the key goes), interface, 80 bytes of key.
fn md5_key(value: &[u8], extended: bool) -> io::Result<SocketOption> {
    const PREFIX: u8 = 1;
    let (Some(address), Some(rest)) = (value.get(..128), value.get(128..216)) else {
        return fail(libc::EINVAL);
    };
    let [flags, prefix, len @ .., _, _, _, _] = rest.first_chunk::<8>().ok_or_else(invalid)?;
    let family = c_int::from(u16::from_ne_bytes([address[0], address[1]]));
    let peer = match family {
        libc::AF_INET => address[4..].first_chunk::<4>().map(|ip| IpAddr::from(*ip)),
        libc::AF_INET6 => address[8..].first_chunk::<16>().map(|ip| IpAddr::from(*ip)),
        _ => None,
    };
    let peer = peer.ok_or_else(invalid)?;
    let prefix = match *flags {
        PREFIX if extended => *prefix,
        // No keys by interface.
        1.. if extended => return fail(libc::EINVAL),
        _ if peer.is_ipv4() => 32,
        _ => 128,
    };
    let len = usize::from(u16::from_ne_bytes(*len));
    let key = rest.get(8..8 + len).ok_or_else(invalid)?;
    Ok(SocketOption::Md5Key {
        peer,
        prefix,
        key: Md5Key::new(key),
    })
}

/// A name as TCP_CONGESTION has it: up to 15 bytes, or to the first NUL.
fn congestion_control(value: &[u8]) -> io::Result<CongestionControl> {
    if value.is_empty() {
        return fail(libc::EINVAL);
    }
    let value = value.get(..NAME_MAX - 1).unwrap_or(value);
    let name = value.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let known = std::str::from_utf8(name)
        .ok()
        .and_then(CongestionControl::called);
    known.ok_or_else(|| errno::error(libc::ENOENT))
}
