//! getsockopt and setsockopt. What is served, and what is taken without effect, is listed in the crate's documentation.

mod ao;

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    time::Duration,
};

use libc::{c_int, c_void, socklen_t};
use netchan::{
    CongestionControl,
    socket::{Kind, Md5Key, Socket, SocketOption},
};

use crate::{
    address, ancillary::Ask, buffers, datagram_options, descriptor, diagnosis, errno, errno::fail,
    fast_open, multicast, multicast::Answer, state::Live,
};

/// What a program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // few, and short-lived
pub enum Setting {
    /// netchan's own.
    Option(SocketOption),
    /// SO_RCVTIMEO.
    ReceiveTimeout(Option<Duration>),
    /// SO_SNDTIMEO.
    SendTimeout(Option<Duration>),
    /// What recvmsg(2) shall tell.
    Ask(Ask, bool),
    /// Keys of TCP-AO.
    Keys(ao::Command),
    /// Taken without effect.
    Ignored,
}

const IP_BIND_ADDRESS_NO_PORT: c_int = 24;
const TCP_NOTSENT_LOWAT: c_int = 25;
const TCP_THIN_LINEAR_TIMEOUTS: c_int = 16;
const TCP_THIN_DUPACK: c_int = 17;
const TCP_MD5SIG_EXT: c_int = 32;
const TCP_FASTOPEN_CONNECT: c_int = 30;
const TCP_FASTOPEN_KEY: c_int = 33;
const TCP_FASTOPEN_NO_COOKIE: c_int = 34;
const SO_PREFER_BUSY_POLL: c_int = 69;

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
    Ok(Setting::Option(match name {
        libc::SO_REUSEADDR => O::ReuseAddress(flag(value)?),
        libc::SO_REUSEPORT => O::ReusePort(flag(value)?),
        libc::SO_KEEPALIVE => O::KeepAlive(flag(value)?),
        libc::SO_BROADCAST => O::Broadcast(flag(value)?),
        libc::SO_LINGER => O::Linger(linger(value)?),
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => O::ReceiveBuffer(size(value)?),
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => O::SendBuffer(size(value)?),
        libc::SO_RCVTIMEO => return timeval(value).map(Setting::ReceiveTimeout),
        libc::SO_SNDTIMEO => return timeval(value).map(Setting::SendTimeout),
        libc::SO_OOBINLINE => O::UrgentInline(flag(value)?),
        libc::SO_RCVLOWAT => O::ReceiveLowWater(low_water(value)?),
        libc::SO_MAX_PACING_RATE => O::PacingRateMax(rate(value)?),
        libc::SO_PRIORITY
        | libc::SO_DEBUG
        | libc::SO_DONTROUTE
        | libc::SO_BUSY_POLL
        | SO_PREFER_BUSY_POLL
        | libc::SO_INCOMING_CPU => return int(value).map(|_| Setting::Ignored),
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
        libc::TCP_WINDOW_CLAMP => O::WindowClamp(unsigned(int(value)?)),
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
        ao::TCP_AO_ADD_KEY..=ao::TCP_AO_INFO => return ao::parse(name, value).map(Setting::Keys),
        TCP_THIN_LINEAR_TIMEOUTS | TCP_THIN_DUPACK => {
            return int(value).map(|_| Setting::Ignored);
        }
        _ => return fail(libc::ENOPROTOOPT),
    }))
}

fn parse_ip(name: c_int, value: &[u8]) -> io::Result<Setting> {
    match name {
        libc::IP_TOS => Ok(Setting::Option(SocketOption::TypeOfService(octet(value)?))),
        libc::IP_TTL => ttl(int_or_byte(value)?),
        IP_BIND_ADDRESS_NO_PORT => int_or_byte(value).map(|_| Setting::Ignored),
        _ => parse_datagrams(libc::IPPROTO_IP, name, value),
    }
}

fn parse_ipv6(name: c_int, value: &[u8]) -> io::Result<Setting> {
    match name {
        libc::IPV6_V6ONLY => Ok(Setting::Option(SocketOption::V6Only(flag(value)?))),
        libc::IPV6_TCLASS => match int(value)? {
            -1 => Ok(Setting::Option(SocketOption::TypeOfService(0))),
            _ => Ok(Setting::Option(SocketOption::TypeOfService(octet(value)?))),
        },
        libc::IPV6_UNICAST_HOPS => ttl(int(value)?),
        _ => parse_datagrams(libc::IPPROTO_IPV6, name, value),
    }
}

/// IP_TTL and IPV6_UNICAST_HOPS: -1 is the default, else 1..=255.
fn ttl(value: c_int) -> io::Result<Setting> {
    let hops = match value {
        -1 => 64,
        1..=255 => u8::try_from(value).map_err(|_| invalid())?,
        _ => return fail(libc::EINVAL),
    };
    Ok(Setting::Option(SocketOption::Ttl(hops)))
}

fn invalid() -> io::Error {
    errno::error(libc::EINVAL)
}

fn int(value: &[u8]) -> io::Result<c_int> {
    match value.first_chunk::<4>() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => fail(libc::EINVAL),
    }
}

/// The options of IPPROTO_IP may come as one byte.
fn int_or_byte(value: &[u8]) -> io::Result<c_int> {
    match value {
        [] => fail(libc::EINVAL),
        [byte, ..] if value.len() < 4 => Ok(c_int::from(*byte)),
        _ => int(value),
    }
}

fn octet(value: &[u8]) -> io::Result<u8> {
    u8::try_from(int_or_byte(value)? & 0xff).map_err(|_| invalid())
}

fn flag(value: &[u8]) -> io::Result<bool> {
    int(value).map(|value| value != 0)
}

fn in_range(value: &[u8], least: c_int, most: c_int) -> io::Result<u32> {
    let value = int(value)?;
    if value < least || value > most {
        return fail(libc::EINVAL);
    }
    u32::try_from(value).map_err(|_| invalid())
}

fn seconds(value: &[u8], most: c_int) -> io::Result<Duration> {
    in_range(value, 1, most).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

/// A buffer size. Negative sizes are huge to Linux, which cuts them to its limit; so does the stack.
fn size(value: &[u8]) -> io::Result<usize> {
    Ok(usize::try_from(int(value)?).unwrap_or(usize::MAX >> 1))
}

/// A number that is unsigned in Linux, where C says int.
const fn unsigned(value: c_int) -> u32 {
    value.cast_unsigned()
}

/// SO_RCVLOWAT: negative is as much as there can be, 0 is 1.
fn low_water(value: &[u8]) -> io::Result<u32> {
    Ok(u32::try_from(int(value)?).unwrap_or(c_int::MAX.unsigned_abs()))
}

/// SO_MAX_PACING_RATE: an unsigned int or an unsigned long; all ones is no limit.
fn rate(value: &[u8]) -> io::Result<u64> {
    if let Some(bytes) = value.first_chunk::<8>() {
        return Ok(u64::from_ne_bytes(*bytes));
    }
    Ok(match unsigned(int(value)?) {
        u32::MAX => u64::MAX,
        rate => rate.into(),
    })
}

fn linger(value: &[u8]) -> io::Result<Option<Duration>> {
    let (on, rest) = (int(value)?, value.get(4..).unwrap_or(&[]));
    let time = int(rest)?;
    let time = Duration::from_secs(u64::try_from(time).unwrap_or(u64::from(u32::MAX)));
    Ok((on != 0).then_some(time))
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

/// A struct timeval; zero and negative times wait for ever. EDOM as Linux has it.
fn timeval(value: &[u8]) -> io::Result<Option<Duration>> {
    let field = |at: usize| {
        value
            .get(at..)?
            .first_chunk::<8>()
            .map(|b| i64::from_ne_bytes(*b))
    };
    let (Some(seconds), Some(us)) = (field(0), field(8)) else {
        return fail(libc::EINVAL);
    };
    if !(0..1_000_000).contains(&us) {
        return fail(libc::EDOM);
    }
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(None);
    };
    let time = Duration::from_secs(seconds)
        .saturating_add(Duration::from_micros(u64::try_from(us).unwrap_or(0)));
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// TCP_CA_NAME_MAX.
const NAME_MAX: usize = 16;

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

/// The same the other way.
fn name_of(control: CongestionControl) -> Value {
    let mut name = vec![0; NAME_MAX];
    for (place, byte) in name.iter_mut().zip(control.name().bytes()) {
        *place = byte;
    }
    Value::Bytes(name)
}

/// setsockopt(2) on netchan's socket.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn set(
    live: Live<'_>,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> io::Result<usize> {
    // SAFETY: the caller's.
    let setting = parse(level, name, unsafe { bytes(value, len) }?)?;
    match setting {
        Setting::ReceiveTimeout(timeout) => live.state.set_receive_timeout(timeout),
        Setting::SendTimeout(timeout) => live.state.set_send_timeout(timeout),
        Setting::Ask(what, on) => live.state.asked.set(what, on),
        Setting::Ignored => {}
        Setting::Keys(_) | Setting::Option(_) => {
            apply(live.socket, setting)?;
            if let Setting::Option(SocketOption::FastOpenConnect(on)) = setting {
                live.state
                    .fast_connect
                    .store(on, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
    Ok(0)
}

/// Hands a setting to netchan's socket.
pub fn apply(socket: &Socket, setting: Setting) -> io::Result<()> {
    match setting {
        Setting::Option(option) => socket.set_option(option).map_err(unsupported),
        Setting::Keys(command) => command.apply(socket),
        _ => Ok(()),
    }
}

/// An option that this kind of socket does not have.
fn unsupported(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported if errno::code(&error) != libc::EOPNOTSUPP => {
            errno::error(libc::ENOPROTOOPT)
        }
        _ => error,
    }
}

/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
unsafe fn bytes<'a>(value: *const c_void, len: socklen_t) -> io::Result<&'a [u8]> {
    if c_int::try_from(len).is_err() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's.
    unsafe { buffers::readable(value, len as usize) }
}

/// What an undecided socket takes although the kernel may not: a congestion control that only netchan has, keys of TCP-AO, Fast
/// Open where the kernel's is off.
pub const fn is_only_ours(level: c_int, name: c_int) -> bool {
    let is_ours = matches!(
        name,
        libc::TCP_CONGESTION | ao::TCP_AO_ADD_KEY
            ..=ao::TCP_AO_INFO
                | libc::TCP_FASTOPEN
                | TCP_FASTOPEN_CONNECT
                | TCP_FASTOPEN_NO_COOKIE
                | TCP_FASTOPEN_KEY
    );
    level == libc::IPPROTO_TCP && is_ours
}

/// The kernel's socket of an undecided number took an option: netchan's will too, if it comes to that. Whether it is one of netchan's.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn note(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> bool {
    // SAFETY: the caller's.
    let Ok(value) = (unsafe { bytes(value, len) }) else {
        return false;
    };
    let setting = parse(level, name, value);
    let is_ours = setting.is_ok();
    match setting {
        Ok(setting @ (Setting::Option(_) | Setting::Keys(_))) => {
            descriptor::note_setting(fd, setting);
        }
        Ok(Setting::ReceiveTimeout(timeout)) => {
            descriptor::note(fd, |state| state.set_receive_timeout(timeout));
        }
        Ok(Setting::SendTimeout(timeout)) => {
            descriptor::note(fd, |state| state.set_send_timeout(timeout));
        }
        Ok(Setting::Ask(what, on)) => descriptor::note(fd, |state| state.asked.set(what, on)),
        Ok(Setting::Ignored) | Err(_) => {}
    }
    is_ours
}

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
    // SAFETY: the caller's.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return fail(libc::EFAULT);
    };
    if c_int::try_from(*len).is_err() {
        return fail(libc::EINVAL);
    }
    if (level, name) == (libc::IPPROTO_TCP, ao::TCP_AO_GET_KEYS) {
        // SAFETY: the caller's.
        return unsafe { get_keys(live, value, *len) };
    }
    if let Some(answer) = multicast::get(live, level, name) {
        // SAFETY: the caller's.
        return unsafe { give(answer.map_err(unsupported)?.into(), value, len) };
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
    unsafe { give(answer, value, len) }
}

/// Writes an answer to where a program wants it.
///
/// # Safety
/// `value` must be writable for `*len` bytes, or NULL.
unsafe fn give(answer: Value, value: *mut c_void, len: &mut socklen_t) -> io::Result<usize> {
    let answer = match answer {
        Value::Int(value) => value.to_ne_bytes().to_vec(),
        Value::Bytes(bytes) => bytes,
        Value::Rate(rate) if *len >= 8 => rate.to_ne_bytes().to_vec(),
        Value::Rate(rate) => u32::try_from(rate)
            .unwrap_or(u32::MAX)
            .to_ne_bytes()
            .to_vec(),
    };
    // SAFETY: the caller's.
    let room = unsafe { buffers::writable(value, *len as usize) }?;
    let count = room.len().min(answer.len());
    let (Some(target), Some(source)) = (room.get_mut(..count), answer.get(..count)) else {
        return fail(libc::EINVAL);
    };
    target.copy_from_slice(source);
    *len = socklen_t::try_from(count).unwrap_or(0);
    Ok(0)
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
        libc::SO_PROTOCOL => Value::Int(libc::IPPROTO_UDP),
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
        libc::SO_MAX_PACING_RATE => ask(live, O::PacingRateMax(0))?,
        libc::SO_INCOMING_CPU => {
            let cpu = live.socket.incoming_cpu().map(c_int::try_from);
            Value::Int(cpu.and_then(Result::ok).unwrap_or(-1))
        }
        libc::SO_PRIORITY | libc::SO_DEBUG | libc::SO_DONTROUTE | libc::SO_BUSY_POLL => {
            Value::Int(0)
        }
        _ => return fail(libc::ENOPROTOOPT),
    })
}

fn get_tcp(live: Live<'_>, name: c_int) -> io::Result<Value> {
    use SocketOption as O;
    if live.state.kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
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
        _ => return fail(libc::ENOPROTOOPT),
    })
}

fn get_ip(live: Live<'_>, name: c_int) -> io::Result<Value> {
    match name {
        libc::IP_TOS => ask(live, SocketOption::TypeOfService(0)),
        libc::IP_TTL => ask(live, SocketOption::Ttl(0)),
        // No options: as many bytes of them.
        libc::IP_OPTIONS => Ok(Value::Bytes(Vec::new())),
        _ => fail(libc::ENOPROTOOPT),
    }
}

fn get_ipv6(live: Live<'_>, name: c_int) -> io::Result<Value> {
    match name {
        libc::IPV6_V6ONLY => ask(live, SocketOption::V6Only(false)),
        libc::IPV6_TCLASS => ask(live, SocketOption::TypeOfService(0)),
        libc::IPV6_UNICAST_HOPS => ask(live, SocketOption::Ttl(0)),
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
        O::Md5Key { .. } | O::Udp(_) | O::Multicast(_) => return fail(libc::ENOPROTOOPT),
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
        O::WindowClamp(n) | O::ReceiveLowWater(n) | O::UnsentLowWater(n) => {
            Value::Int(n.cast_signed())
        }
        O::FastOpen(queue) => Value::Int(c_int::try_from(queue).unwrap_or(c_int::MAX)),
        O::FastOpenKeys(keys) => Value::Bytes(fast_open::bytes_of(keys)),
        O::PacingRateMax(rate) => Value::Rate(rate),
        O::KeepCount(count) => Value::Int(c_int::try_from(count).unwrap_or(c_int::MAX)),
        O::Ttl(value) | O::TypeOfService(value) => Value::Int(c_int::from(value)),
    })
}

fn of_timeout(timeout: Option<Duration>) -> Value {
    let time = timeout.unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let mut bytes = seconds.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&i64::from(time.subsec_micros()).to_ne_bytes());
    Value::Bytes(bytes)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
