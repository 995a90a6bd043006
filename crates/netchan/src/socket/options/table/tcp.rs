//! Options of IPPROTO_TCP (tcp(7)).

use std::{io, net::IpAddr, time::Duration};

use libc::c_int;
use proto::tcp::{CongestionControl, FastOpenKeys, Md5Key};

use super::super::{
    CallerFlag as Flag, Setting, SocketOption, keys as ao,
    row::{
        Get, Row, Set, TCP, Value, both, caller_flag, get, of_milliseconds, of_seconds, option,
        row, set,
    },
    values::{flag, in_range, int, invalid, seconds, short, word, zero_or_one},
};
use crate::{
    errno::{error, fail},
    socket::Socket,
};

/// TCP_CA_NAME_MAX.
const NAME_MAX: usize = 16;

#[rustfmt::skip] // a row a line
pub(super) static ROWS: &[Row] = &[
    row(1, "TCP_NODELAY", "flag", TCP, option!(NoDelay, flag)),
    row(2, "TCP_MAXSEG", "bytes", TCP, option!(MaxSegment, short)),
    row(3, "TCP_CORK", "flag", TCP, option!(Cork, flag)),
    row(4, "TCP_KEEPIDLE", "s", TCP, option!(KeepIdle, keep_seconds, of_seconds)),
    row(5, "TCP_KEEPINTVL", "s", TCP, option!(KeepInterval, keep_seconds, of_seconds)),
    row(6, "TCP_KEEPCNT", "int", TCP, option!(KeepCount, probes)),
    row(7, "TCP_SYNCNT", "int", TCP, option!(SynCount, tries)),
    row(8, "TCP_LINGER2", "s", TCP, option!(Linger2, linger2, of_linger2)),
    row(9, "TCP_DEFER_ACCEPT", "s", TCP, option!(DeferAccept, defer_accept, of_seconds)),
    row(10, "TCP_WINDOW_CLAMP", "bytes", TCP, option!(WindowClamp, clamp)),
    row(11, "TCP_INFO", "struct tcp_info", TCP, get(info)).note("up to `tcpi_total_rto_time`"),
    row(12, "TCP_QUICKACK", "flag", TCP, option!(QuickAck, flag)),
    row(13, "TCP_CONGESTION", "name", TCP, option!(Congestion, congestion, of_congestion))
        .only_ours()
        .note(
            "netchan's own: `reno`, `cubic`, `dctcp`, `bbr`, others ENOENT; one that the kernel lacks is taken \
             all the same before it is decided",
        ),
    row(14, "TCP_MD5SIG", "struct tcp_md5sig", TCP, set(md5)).note("feature tcp-auth"),
    row(16, "TCP_THIN_LINEAR_TIMEOUTS", "flag", TCP, caller_flag(Flag::ThinLinearTimeouts, zero_or_one))
        .note("only kept"),
    row(17, "TCP_THIN_DUPACK", "flag", TCP, (Set::Ignored(check_thin), Get::By(zero)))
        .note("reads 0, as in Linux"),
    row(18, "TCP_USER_TIMEOUT", "ms", TCP, option!(UserTimeout, milliseconds, of_milliseconds))
        .note("RFC 5482"),
    row(23, "TCP_FASTOPEN", "int", TCP, option!(FastOpen, queue)).only_ours().note("RFC 7413"),
    row(25, "TCP_NOTSENT_LOWAT", "bytes", TCP, option!(UnsentLowWater, word)),
    row(26, "TCP_CC_INFO", "union", TCP, get(nothing)).note("empty"),
    row(30, "TCP_FASTOPEN_CONNECT", "flag", TCP, option!(FastOpenConnect, zero_or_one)).only_ours(),
    row(32, "TCP_MD5SIG_EXT", "struct tcp_md5sig", TCP, set(md5_of_network))
        .note("feature tcp-auth; no interfaces"),
    row(33, "TCP_FASTOPEN_KEY", "16 or 32 bytes", TCP, option!(FastOpenKeys, keys, of_keys))
        .only_ours(),
    row(34, "TCP_FASTOPEN_NO_COOKIE", "flag", TCP, option!(FastOpenNoCookie, zero_or_one))
        .only_ours(),
    row(36, "TCP_INQ", "flag", TCP, caller_flag(Flag::Unread, zero_or_one)),
    row(38, "TCP_AO_ADD_KEY", "struct tcp_ao_add", TCP, set(ao_add))
        .only_ours()
        .note(
            "RFC 5925, feature tcp-auth: no interfaces; `hmac(sha1)`, `cmac(aes128)`, others ENOENT; before it is \
             decided keys are taken, checked one by one, but not listed",
        ),
    row(39, "TCP_AO_DEL_KEY", "struct tcp_ao_del", TCP, set(ao_delete)).only_ours().note("likewise"),
    row(40, "TCP_AO_INFO", "struct tcp_ao_info_opt", TCP, both(ao_set, ao_info))
        .only_ours()
        .note("likewise"),
    row(41, "TCP_AO_GET_KEYS", "struct tcp_ao_getsockopt", TCP, (Set::No, Get::Keys))
        .note("likewise"),
];

fn keep_seconds(value: &[u8]) -> io::Result<Duration> {
    seconds(value, 32_767)
}

fn probes(value: &[u8]) -> io::Result<u32> {
    in_range(value, 1, 127)
}

fn tries(value: &[u8]) -> io::Result<u8> {
    u8::try_from(in_range(value, 1, 127)?).map_err(|_| invalid())
}

/// As Linux: negative is no FIN-WAIT-2 at all.
fn linger2(value: &[u8]) -> io::Result<Option<Duration>> {
    Ok(u64::try_from(int(value)?).ok().map(Duration::from_secs))
}

fn of_linger2(time: Option<Duration>) -> Value {
    time.map_or(Value::Int(-1), of_seconds)
}

/// As Linux: negative is off.
fn defer_accept(value: &[u8]) -> io::Result<Duration> {
    let seconds = u64::try_from(int(value)?).unwrap_or(0);
    Ok(Duration::from_secs(seconds))
}

/// As Linux: negative is as little as may be.
fn clamp(value: &[u8]) -> io::Result<u32> {
    Ok(u32::try_from(int(value)?).unwrap_or(1))
}

fn milliseconds(value: &[u8]) -> io::Result<Duration> {
    in_range(value, 0, c_int::MAX).map(|ms| Duration::from_millis(ms.into()))
}

fn queue(value: &[u8]) -> io::Result<u32> {
    in_range(value, 0, c_int::MAX)
}

/// TCP_FASTOPEN_KEY: one key, or the one that makes cookies and the one that did before.
fn keys(value: &[u8]) -> io::Result<Option<FastOpenKeys>> {
    let (keys, []) = value.as_chunks::<16>() else {
        return fail(libc::EINVAL);
    };
    let (current, previous) = match *keys {
        [current] => (current, None),
        [current, previous] => (current, Some(previous)),
        _ => return fail(libc::EINVAL),
    };
    Ok(Some(FastOpenKeys { current, previous }))
}

/// The same the other way; without keys of its own the listener's are the stack's secret.
fn of_keys(keys: Option<FastOpenKeys>) -> Value {
    let bytes = keys.map(|keys| {
        let previous = keys.previous.into_iter().flatten();
        keys.current.into_iter().chain(previous).collect()
    });
    Value::Bytes(bytes.unwrap_or_default())
}

/// Of no effect in Linux, too.
fn check_thin(value: &[u8]) -> io::Result<()> {
    in_range(value, 0, 1).map(|_| ())
}

fn zero(_: &Socket) -> io::Result<Value> {
    Ok(Value::Int(0))
}

/// As for a congestion control that has nothing to tell.
fn nothing(_: &Socket) -> io::Result<Value> {
    Ok(Value::Bytes(Vec::new()))
}

fn info(socket: &Socket) -> io::Result<Value> {
    match socket.tcp_info_as_linux() {
        Some(info) => Ok(Value::Bytes(info.to_vec())),
        None => fail(libc::ENOPROTOOPT),
    }
}

/// A name: up to 15 bytes, or to the first NUL.
fn congestion(value: &[u8]) -> io::Result<CongestionControl> {
    if value.is_empty() {
        return fail(libc::EINVAL);
    }
    let value = value.get(..NAME_MAX - 1).unwrap_or(value);
    let name = value.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let known = std::str::from_utf8(name)
        .ok()
        .and_then(CongestionControl::called);
    known.ok_or_else(|| error(libc::ENOENT))
}

fn of_congestion(control: CongestionControl) -> Value {
    let mut name = vec![0; NAME_MAX];
    for (place, byte) in name.iter_mut().zip(control.name().bytes()) {
        *place = byte;
    }
    Value::Bytes(name)
}

fn md5(value: &[u8]) -> io::Result<Setting> {
    md5_key(value, false).map(Setting::Option)
}

fn md5_of_network(value: &[u8]) -> io::Result<Setting> {
    md5_key(value, true).map(Setting::Option)
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

fn ao_add(value: &[u8]) -> io::Result<Setting> {
    ao::parse_add(value).map(Setting::Keys)
}

fn ao_delete(value: &[u8]) -> io::Result<Setting> {
    ao::parse_delete(value).map(Setting::Keys)
}

fn ao_set(value: &[u8]) -> io::Result<Setting> {
    ao::parse_info(value).map(Setting::Keys)
}

fn ao_info(socket: &Socket) -> io::Result<Value> {
    Ok(Value::Bytes(ao::info(&socket.ao_info()?)))
}
