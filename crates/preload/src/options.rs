//! getsockopt and setsockopt. What is served, and what is taken without effect, is listed in the crate's documentation.

mod answer;
mod ao;
pub mod device;
mod parse;

use std::{io, os::fd::RawFd, sync::atomic::Ordering::Relaxed};

use libc::{c_int, c_void, socklen_t};
use netchan::socket::{Domain, Kind, Socket, SocketOption};

pub use self::answer::get;
use self::parse::parse;
use crate::{
    buffers, decide, errno,
    errno::fail,
    multicast::{self, filter},
    process,
    setting::{Device, Setting, apply},
    stamping, start,
    state::{Live, SocketState},
    sys,
    values::int_or_byte,
};

const TCP_NOTSENT_LOWAT: c_int = 25;
const TCP_FASTOPEN_CONNECT: c_int = 30;
const TCP_FASTOPEN_KEY: c_int = 33;
const TCP_FASTOPEN_NO_COOKIE: c_int = 34;
const TCP_INQ: c_int = 36;

/// TCP_CA_NAME_MAX.
const NAME_MAX: usize = 16;

/// Before setsockopt(2): an option that names one of netchan's interfaces decides.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn before(
    fd: RawFd,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> io::Result<()> {
    let Some(handle) = decide::open_question(fd) else {
        return Ok(());
    };
    // SAFETY: the caller's.
    let value = unsafe { buffers::readable(value, len as usize) };
    let to_link = names_link(level, name, value.unwrap_or_default());
    if to_link {
        handle.returnable.store(false, Relaxed);
    }
    let is_open = handle.socket.get().is_none();
    if is_open && (to_link || multicast::decides(level, name, handle.kind)) {
        return decide::take_over(fd, &handle);
    }
    Ok(())
}

/// Whether an option names one of netchan's links: the socket is netchan's from then on.
fn names_link(level: c_int, name: c_int, value: &[u8]) -> bool {
    let is_it = matches!(name, libc::SO_BINDTODEVICE | parse::SO_BINDTOIFINDEX);
    if level != libc::SOL_SOCKET || !is_it {
        return false;
    }
    match parse(level, name, value) {
        Ok(Setting::Device(Device::Any)) | Err(_) => false,
        Ok(Setting::Device(device)) => device.find(start::net()).is_some(),
        Ok(_) => false,
    }
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
    if c_int::try_from(len).is_err() {
        return fail(libc::EINVAL);
    }
    if let Some(code) = lacks(live.state, level, name) {
        return fail(code);
    }
    // SAFETY: the caller's.
    let value = unsafe { bytes(value, len) }?;
    // As Linux, once it has read the value.
    if live.state.kind == Kind::Ping
        && is_zero_copy(level, name)
        && value.len() >= size_of::<c_int>()
    {
        return fail(libc::EOPNOTSUPP);
    }
    if let Some(layout) = filter::layout(level, name) {
        return filter::set(live.socket, layout, value).map(|()| 0);
    }
    let setting = parse(level, name, value)?;
    match setting {
        Setting::ReceiveTimeout(timeout) => live.state.set_receive_timeout(timeout),
        Setting::SendTimeout(timeout) => live.state.set_send_timeout(timeout),
        Setting::Ask(what, on) => {
            may_set(live, (level, name), value)?;
            live.state.asked.set(what, on);
        }
        Setting::Priority(priority) => {
            may_set(live, (level, name), value)?;
            live.state.set_priority(priority);
        }
        Setting::Stamping(flags) => stamping::set(live, flags)?,
        Setting::BusyPoll(us) => live.state.set_busy_poll(us),
        Setting::IncomingCpu(cpu) => {
            live.state.set_incoming_cpu(cpu);
            live.socket.set_option(incoming_cpu(cpu))?;
        }
        Setting::Shutdown(_) | Setting::Ignored => {}
        Setting::Keys(_) | Setting::Option(_) | Setting::Device(_) => {
            let before = type_of_service(live.socket);
            apply(live.socket, setting)?;
            let tos = type_of_service(live.socket);
            // As Linux, which compares what it was given, whatever of it a type of service has room for.
            let is_wide = || !matches!(int_or_byte(value), Ok(0..=255));
            if matches!(setting, Setting::Option(SocketOption::TypeOfService(_)))
                && (tos != before || is_wide())
            {
                live.state.set_priority(priority_of(tos));
            }
            if let Setting::Option(SocketOption::FastOpenConnect(on)) = setting {
                live.state.fast_connect.store(on, Relaxed);
            }
        }
    }
    Ok(0)
}

/// Whether this process may set what Linux grants not to all: the kernel's socket of this number, which serves nobody, is asked.
fn may_set(live: Live<'_>, (level, name): (c_int, c_int), value: &[u8]) -> io::Result<()> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PRIORITY | libc::SO_DEBUG) => {
            sys::set_of_socket(live.fd, name, value)
        }
        _ => Ok(()),
    }
}

/// IP_TOS as it is.
fn type_of_service(socket: &Socket) -> u8 {
    match socket.option(SocketOption::TypeOfService(0)) {
        Ok(SocketOption::TypeOfService(tos)) => tos,
        _ => 0,
    }
}

/// The priority that Linux gives a type of service (`rt_tos2priority`): best effort, bulk, interactive, interactive bulk.
fn priority_of(tos: u8) -> c_int {
    [0, 2, 6, 4][usize::from(tos >> 3 & 3)]
}

/// SO_INCOMING_CPU: a number that no processor has names none.
fn incoming_cpu(cpu: c_int) -> SocketOption {
    SocketOption::IncomingCpu(u16::try_from(cpu).ok())
}

/// Whether sockets of this kind and family have options of a level.
const fn has_level(state: &SocketState, level: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => matches!(state.kind, Kind::Stream),
        libc::SOL_UDP => matches!(state.kind, Kind::Datagram),
        libc::IPPROTO_IPV6 => matches!(state.domain, Domain::V6),
        _ => true,
    }
}

const fn is_zero_copy(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY
}

/// What setsockopt says, as Linux, before it looks at a value: of levels that a socket does not have, and to streams of groups.
fn lacks(state: &SocketState, level: c_int, name: c_int) -> Option<c_int> {
    if !has_level(state, level) {
        return Some(libc::ENOPROTOOPT);
    }
    if state.kind != Kind::Stream {
        return None;
    }
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP) => {
            Some(libc::EPROTO)
        }
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS | libc::IPV6_MULTICAST_IF) => {
            Some(libc::ENOPROTOOPT)
        }
        _ => None,
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

/// Why an undecided socket does not take an option, whatever the kernel says: once the decision is made nobody listens any more, and a program
/// that was told yes would wait for a handshake that its first write should have begun.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn refusal(
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Option<io::Error> {
    let is_it = (level, name) == (libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
    if !is_it || process::is_forked() {
        return None;
    }
    // SAFETY: the caller's.
    let setting = parse(level, name, unsafe { bytes(value, len) }.ok()?);
    let asks = matches!(
        setting,
        Ok(Setting::Option(SocketOption::FastOpenConnect(true)))
    );
    let lacks = asks && !start::net().tcp().settings().fast_open.client;
    lacks.then(|| errno::error(libc::EOPNOTSUPP))
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
    if matches!(
        setting,
        Ok(Setting::Priority(_) | Setting::Option(SocketOption::TypeOfService(_)))
    ) && let Some(priority) = sys::priority(fd)
    {
        decide::note(fd, |state| state.set_priority(priority));
    }
    match setting {
        Ok(setting @ (Setting::Option(_) | Setting::Keys(_))) => {
            decide::note_setting(fd, setting);
        }
        Ok(Setting::ReceiveTimeout(timeout)) => {
            decide::note(fd, |state| state.set_receive_timeout(timeout));
        }
        Ok(Setting::SendTimeout(timeout)) => {
            decide::note(fd, |state| state.set_send_timeout(timeout));
        }
        Ok(Setting::Ask(what, on)) => decide::note(fd, |state| state.asked.set(what, on)),
        Ok(Setting::BusyPoll(us)) => {
            decide::note(fd, |state| state.set_busy_poll(us));
        }
        Ok(Setting::IncomingCpu(cpu)) => {
            decide::note(fd, |state| state.set_incoming_cpu(cpu));
            decide::note_setting(fd, Setting::Option(incoming_cpu(cpu)));
        }
        Ok(Setting::Stamping(flags)) => {
            decide::note(fd, |state| state.stamping.store(flags, Relaxed));
        }
        // One of netchan's links would have decided: of the kernel's interfaces netchan has none.
        Ok(Setting::Device(device)) if device != Device::Any => {
            decide::leave(fd);
        }
        Ok(Setting::Device(_) | Setting::Shutdown(_) | Setting::Priority(_) | Setting::Ignored)
        | Err(_) => {}
    }
    is_ours
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;

#[cfg(test)]
mod document_tests;
