//! What getsockopt answers.

use std::{io, sync::atomic::Ordering::Relaxed, time::Duration};

use libc::{c_int, c_void, socklen_t};
use netchan::{
    CongestionControl,
    socket::{Domain, Kind, SocketOption},
};

use super::{
    NAME_MAX, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE, TCP_INQ,
    TCP_NOTSENT_LOWAT, ao, device, has_level,
    parse::{
        IP_BIND_ADDRESS_NO_PORT, SO_BINDTOIFINDEX, SO_PREFER_BUSY_POLL, TCP_THIN_DUPACK,
        TCP_THIN_LINEAR_TIMEOUTS,
    },
};
use crate::{
    address,
    asked::Ask,
    buffers, datagram_options, diagnosis, errno,
    errno::fail,
    fast_open, multicast,
    multicast::{Answer, filter},
    setting::unsupported,
    stamping,
    state::Live,
};

/// What a program reads.
enum Value {
    Int(c_int),
    Bytes(Vec<u8>),
    /// An unsigned long where there is room for one, else an unsigned int.
    Rate(u64),
}

impl From<Answer> for Value {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Int(n) => Self::Int(n),
            Answer::Address(octets) => Self::Bytes(octets.to_vec()),
        }
    }
}

/// getsockopt(2) on netchan's socket.
///
/// # Safety
/// `value` must be writable for `*len` bytes, `len` readable and writable; either may be NULL.
pub unsafe fn get(
    live: Live<'_>,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> io::Result<usize> {
    if !has_level(live.state, level) {
        return fail(match live.state.domain {
            Domain::V4 => libc::EOPNOTSUPP,
            Domain::V6 => libc::ENOPROTOOPT,
        });
    }
    if buffers::is_bad(len) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest. Linux asks for no alignment.
    let room = unsafe { len.read_unaligned() };
    if c_int::try_from(room).is_err() {
        return fail(libc::EINVAL);
    }
    if (level, name) == (libc::IPPROTO_TCP, ao::TCP_AO_GET_KEYS) {
        // SAFETY: the caller's.
        return unsafe { get_keys(live, value, room) };
    }
    // SAFETY: the caller's.
    let given = unsafe { answer(live, (level, name), value, room) }?;
    // SAFETY: not NULL; the caller vouches for the rest.
    unsafe { len.write_unaligned(given) };
    Ok(0)
}

/// Finds out and writes; how many bytes that are.
///
/// # Safety
/// `value` must be readable and writable for `room` bytes, or NULL.
unsafe fn answer(
    live: Live<'_>,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    room: socklen_t,
) -> io::Result<socklen_t> {
    if let Some(layout) = filter::layout(level, name) {
        // SAFETY: the caller's.
        let asked = unsafe { buffers::readable(value, room as usize) }?;
        let answer = filter::get(live.socket, layout, asked)?;
        // SAFETY: the caller's.
        return unsafe { give(&answer, value, room) };
    }
    if let Some(answer) = multicast::get(live, level, name) {
        // SAFETY: the caller's.
        return unsafe {
            give(
                &bytes_of(answer.map_err(unsupported)?.into(), level, room),
                value,
                room,
            )
        };
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) {
        let name = device::name_of(live, room as usize)?;
        // SAFETY: the caller's.
        return unsafe { give(&name, value, room) };
    }
    let known = match datagram_options::get(live, level, name) {
        Some(number) => Some(number.map(Value::Int).map_err(unsupported)?),
        None => diagnosis::get(live, level, name).map(Value::Bytes),
    };
    let answer = match (level, known) {
        (_, Some(value)) => Ok(value),
        (libc::SOL_SOCKET, None) => get_socket(live, name),
        (libc::IPPROTO_TCP, None) => get_tcp(live, name),
        (libc::IPPROTO_IP, None) => get_ip(live, name),
        (libc::IPPROTO_IPV6, None) => get_ipv6(live, name),
        _ => fail(libc::ENOPROTOOPT),
    }?;
    // SAFETY: the caller's.
    unsafe { give(&bytes_of(answer, level, room), value, room) }
}

/// An answer as a program that has `room` wants it.
fn bytes_of(answer: Value, level: c_int, room: socklen_t) -> Vec<u8> {
    match answer {
        // As Linux: one byte where there is no room for an int, but for one.
        Value::Int(value @ 0..=255) if level == libc::IPPROTO_IP && (1..4).contains(&room) => {
            value.to_ne_bytes()[..1].to_vec()
        }
        Value::Int(value) => value.to_ne_bytes().to_vec(),
        Value::Bytes(bytes) => bytes,
        Value::Rate(rate) if room >= 8 => rate.to_ne_bytes().to_vec(),
        Value::Rate(rate) => u32::try_from(rate)
            .unwrap_or(u32::MAX)
            .to_ne_bytes()
            .to_vec(),
    }
}

/// Writes an answer to where a program wants it, cut to the room there is; how many bytes that are.
///
/// # Safety
/// `value` must be writable for `room` bytes, or NULL.
unsafe fn give(answer: &[u8], value: *mut c_void, room: socklen_t) -> io::Result<socklen_t> {
    // SAFETY: the caller's.
    let room = unsafe { buffers::writable(value, room as usize) }?;
    let count = room.len().min(answer.len());
    room[..count].copy_from_slice(&answer[..count]);
    socklen_t::try_from(count).map_err(|_| errno::error(libc::EINVAL))
}

/// TCP_AO_GET_KEYS, whose buffer has room for as many structures as the first of them says, each `each` bytes long.
///
/// # Safety
/// `value` must be readable and writable for all of them, or NULL.
unsafe fn get_keys(live: Live<'_>, value: *mut c_void, each: socklen_t) -> io::Result<usize> {
    let each = each as usize;
    // SAFETY: the caller's.
    let asked = unsafe { buffers::readable(value, each) }?;
    let (keys, room) = ao::keys(&live.socket.ao_keys()?, asked)?;
    let count = keys.len().min(room);
    // SAFETY: the caller's: there are as many as it said.
    let all = unsafe { buffers::writable(value, each * count) }?;
    for (place, key) in all.chunks_exact_mut(each).zip(keys) {
        let (front, rest) = place.split_at_mut(ao::KEY_LEN);
        front.copy_from_slice(&key);
        rest.fill(0);
    }
    Ok(0)
}

fn get_socket(live: Live<'_>, name: c_int) -> io::Result<Value> {
    use SocketOption as O;
    let stream = live.state.kind == Kind::Stream;
    Ok(match name {
        libc::SO_TYPE if stream => Value::Int(libc::SOCK_STREAM),
        libc::SO_TYPE => Value::Int(libc::SOCK_DGRAM),
        libc::SO_DOMAIN => Value::Int(address::family(live.state.domain)),
        libc::SO_PROTOCOL if stream => Value::Int(libc::IPPROTO_TCP),
        libc::SO_PROTOCOL if live.state.kind == Kind::Datagram => Value::Int(libc::IPPROTO_UDP),
        libc::SO_PROTOCOL if live.state.domain == Domain::V4 => Value::Int(libc::IPPROTO_ICMP),
        libc::SO_PROTOCOL => Value::Int(libc::IPPROTO_ICMPV6),
        libc::SO_ERROR => Value::Int(
            live.socket
                .take_error()
                .map_or(0, |error| errno::code(&error)),
        ),
        libc::SO_ACCEPTCONN => Value::Int(c_int::from(live.socket.is_listening())),
        libc::SO_REUSEADDR => ask(live, O::ReuseAddress(false))?,
        libc::SO_REUSEPORT => ask(live, O::ReusePort(false))?,
        libc::SO_KEEPALIVE => ask(live, O::KeepAlive(false))?,
        libc::SO_BROADCAST => ask(live, O::Broadcast(false))?,
        libc::SO_LINGER => ask(live, O::Linger(None))?,
        libc::SO_RCVBUF => ask(live, O::ReceiveBuffer(0))?,
        libc::SO_SNDBUF => ask(live, O::SendBuffer(0))?,
        libc::SO_RCVTIMEO => of_timeout(live.state.receive_timeout()),
        libc::SO_SNDTIMEO => of_timeout(live.state.send_timeout()),
        libc::SO_RCVLOWAT => ask(live, O::ReceiveLowWater(0))?,
        libc::SO_OOBINLINE => ask(live, O::UrgentInline(false))?,
        libc::SO_MARK => ask(live, O::Mark(0))?,
        libc::SO_MAX_PACING_RATE => ask(live, O::PacingRateMax(0))?,
        libc::SO_INCOMING_CPU => {
            let shard = || c_int::try_from(live.socket.incoming_cpu()?).ok();
            Value::Int(live.state.incoming_cpu().or_else(shard).unwrap_or(-1))
        }
        SO_BINDTOIFINDEX => Value::Int(device::index_of(live)?),
        libc::SO_TIMESTAMPING => Value::Bytes(stamping::answer(live)),
        libc::SO_ZEROCOPY => Value::Int(live.state.asked.get(Ask::ZeroCopy).into()),
        libc::SO_NO_CHECK => Value::Int(live.state.asked.get(Ask::NoCheck).into()),
        libc::SO_PASSCRED | libc::SO_PASSSEC => return fail(libc::EOPNOTSUPP),
        libc::SO_BUSY_POLL => Value::Int(live.state.busy_poll_us.load(Relaxed).cast_signed()),
        SO_PREFER_BUSY_POLL => Value::Int(live.state.asked.get(Ask::PreferBusyPoll).into()),
        libc::SO_PRIORITY => Value::Int(live.state.priority()),
        libc::SO_DEBUG => Value::Int(live.state.asked.get(Ask::Debug).into()),
        libc::SO_DONTROUTE => Value::Int(live.state.asked.get(Ask::DontRoute).into()),
        _ => return fail(libc::ENOPROTOOPT),
    })
}

fn get_tcp(live: Live<'_>, name: c_int) -> io::Result<Value> {
    use SocketOption as O;
    Ok(match name {
        libc::TCP_NODELAY => ask(live, O::NoDelay(false))?,
        libc::TCP_CORK => ask(live, O::Cork(false))?,
        libc::TCP_QUICKACK => ask(live, O::QuickAck(false))?,
        libc::TCP_MAXSEG => ask(live, O::MaxSegment(0))?,
        libc::TCP_FASTOPEN => ask(live, O::FastOpen(0))?,
        TCP_FASTOPEN_CONNECT => ask(live, O::FastOpenConnect(false))?,
        TCP_FASTOPEN_NO_COOKIE => ask(live, O::FastOpenNoCookie(false))?,
        TCP_FASTOPEN_KEY => ask(live, O::FastOpenKeys(None))?,
        libc::TCP_KEEPIDLE => ask(live, O::KeepIdle(Duration::ZERO))?,
        libc::TCP_KEEPINTVL => ask(live, O::KeepInterval(Duration::ZERO))?,
        libc::TCP_KEEPCNT => ask(live, O::KeepCount(0))?,
        libc::TCP_USER_TIMEOUT => ask(live, O::UserTimeout(Duration::ZERO))?,
        libc::TCP_CONGESTION => ask(live, O::Congestion(CongestionControl::default()))?,
        libc::TCP_INFO => match live.socket.tcp_info_as_linux() {
            Some(info) => Value::Bytes(info.to_vec()),
            None => return fail(libc::ENOPROTOOPT),
        },
        ao::TCP_AO_INFO => Value::Bytes(ao::info(&live.socket.ao_info()?)),
        libc::TCP_SYNCNT => ask(live, O::SynCount(0))?,
        libc::TCP_LINGER2 => ask(live, O::Linger2(None))?,
        libc::TCP_DEFER_ACCEPT => ask(live, O::DeferAccept(Duration::ZERO))?,
        libc::TCP_WINDOW_CLAMP => ask(live, O::WindowClamp(0))?,
        TCP_NOTSENT_LOWAT => ask(live, O::UnsentLowWater(0))?,
        TCP_THIN_LINEAR_TIMEOUTS => {
            Value::Int(live.state.asked.get(Ask::ThinLinearTimeouts).into())
        }
        TCP_THIN_DUPACK => Value::Int(0),
        TCP_INQ => Value::Int(live.state.asked.get(Ask::Unread).into()),
        _ => return fail(libc::ENOPROTOOPT),
    })
}

fn get_ip(live: Live<'_>, name: c_int) -> io::Result<Value> {
    match name {
        libc::IP_TOS => ask(live, SocketOption::TypeOfService(0)),
        libc::IP_TTL => ask(live, SocketOption::Ttl(0)),
        IP_BIND_ADDRESS_NO_PORT => Ok(Value::Int(
            live.state.asked.get(Ask::BindAddressNoPort).into(),
        )),
        // No options: as many bytes of them.
        libc::IP_OPTIONS => Ok(Value::Bytes(Vec::new())),
        _ => fail(libc::ENOPROTOOPT),
    }
}

fn get_ipv6(live: Live<'_>, name: c_int) -> io::Result<Value> {
    match name {
        libc::IPV6_V6ONLY => ask(live, SocketOption::V6Only(false)),
        libc::IPV6_TCLASS => ask(live, SocketOption::TrafficClass(0)),
        libc::IPV6_UNICAST_HOPS => ask(live, SocketOption::HopLimit(0)),
        _ => fail(libc::ENOPROTOOPT),
    }
}

/// The current value of the option that `like` names, as C has it.
fn ask(live: Live<'_>, like: SocketOption) -> io::Result<Value> {
    use SocketOption as O;
    Ok(match live.socket.option(like).map_err(unsupported)? {
        O::ReuseAddress(on)
        | O::ReusePort(on)
        | O::KeepAlive(on)
        | O::Broadcast(on)
        | O::V6Only(on)
        | O::NoDelay(on)
        | O::Cork(on)
        | O::QuickAck(on)
        | O::UrgentInline(on)
        | O::FastOpenConnect(on)
        | O::FastOpenNoCookie(on) => Value::Int(c_int::from(on)),
        O::Md5Key { .. } | O::Udp(_) | O::Multicast(_) | O::Device(_) | O::IncomingCpu(_) => {
            return fail(libc::ENOPROTOOPT);
        }
        O::Linger(time) => {
            let seconds = time.map_or(0, |time| {
                c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX)
            });
            let mut bytes = c_int::from(time.is_some()).to_ne_bytes().to_vec();
            bytes.extend_from_slice(&seconds.to_ne_bytes());
            Value::Bytes(bytes)
        }
        // Linux doubles what was set, for its own bookkeeping, and programs know it.
        O::ReceiveBuffer(size) | O::SendBuffer(size) => {
            Value::Int(c_int::try_from(size.saturating_mul(2)).unwrap_or(c_int::MAX))
        }
        O::MaxSegment(size) => Value::Int(c_int::from(size)),
        O::SynCount(count) => Value::Int(c_int::from(count)),
        O::Linger2(None) => Value::Int(-1),
        O::KeepIdle(time)
        | O::KeepInterval(time)
        | O::DeferAccept(time)
        | O::Linger2(Some(time)) => {
            Value::Int(c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX))
        }
        O::UserTimeout(time) => Value::Int(c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)),
        O::Congestion(control) => name_of(control),
        O::Mark(n) | O::WindowClamp(n) | O::ReceiveLowWater(n) | O::UnsentLowWater(n) => {
            Value::Int(n.cast_signed())
        }
        O::FastOpen(queue) => Value::Int(c_int::try_from(queue).unwrap_or(c_int::MAX)),
        O::FastOpenKeys(keys) => Value::Bytes(fast_open::bytes_of(keys)),
        O::PacingRateMax(rate) => Value::Rate(rate),
        O::KeepCount(count) => Value::Int(c_int::try_from(count).unwrap_or(c_int::MAX)),
        O::Ttl(value) | O::TypeOfService(value) | O::HopLimit(value) | O::TrafficClass(value) => {
            Value::Int(c_int::from(value))
        }
    })
}

fn of_timeout(timeout: Option<Duration>) -> Value {
    let time = timeout.unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let mut bytes = seconds.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&i64::from(time.subsec_micros()).to_ne_bytes());
    Value::Bytes(bytes)
}

/// A name as TCP_CONGESTION has it.
fn name_of(control: CongestionControl) -> Value {
    let mut name = vec![0; NAME_MAX];
    for (place, byte) in name.iter_mut().zip(control.name().bytes()) {
        *place = byte;
    }
    Value::Bytes(name)
}
