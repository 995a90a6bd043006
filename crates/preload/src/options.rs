//! getsockopt and setsockopt. What is served is in the table of `rows`, from which docs/socket-options.md is made.

mod answer;
mod ao;
pub mod device;
mod lacking;
mod row;
mod rows;

use std::{io, os::fd::RawFd, sync::atomic::Ordering::Relaxed};

use libc::{c_int, c_void, socklen_t};
use netchan::socket::{Domain, Kind, Socket, SocketOption};

pub use self::answer::get;
use self::row::{Decides, Row, Set};
use crate::{
    buffers, decide, errno,
    errno::fail,
    multicast::filter,
    process,
    setting::{Device, Setting, apply},
    stamping, start,
    state::{Live, SocketState},
    sys,
    values::{int, int_or_byte},
};

/// What is said of an option that there is not.
fn refusal_code(level: c_int, name: c_int) -> c_int {
    let is_it = |lacking: &&lacking::Lacking| {
        lacking.level == level && lacking.options.iter().any(|(number, _)| *number == name)
    };
    let lacking = lacking::LACKING.iter().find(is_it);
    lacking.map_or(libc::ENOPROTOOPT, |lacking| lacking.code)
}

/// Reads one option as setsockopt passes it: ENOPROTOOPT (not served), EINVAL (too short, out of range).
fn parse(level: c_int, name: c_int, value: &[u8]) -> io::Result<Setting> {
    let row = rows::find(level, name);
    // As Linux: whatever it is, also where there is no such option.
    if level == libc::SOL_SOCKET && !row.is_some_and(|row| row.rules.may_be_short) {
        int(value)?;
    }
    let Some(row) = row else {
        return fail(refusal_code(level, name));
    };
    match row.set {
        Set::No | Set::Filter(_) => fail(libc::ENOPROTOOPT),
        Set::Ignored(check) => check(value).map(|()| Setting::Ignored),
        Set::Asked(what, read) => read(value).map(|on| Setting::Ask(what, on)),
        Set::To(read) => read(value),
    }
}

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
    let decides = rows::find(level, name).map_or(Decides::No, |row| row.rules.decides);
    // SAFETY: the caller's.
    let value = || unsafe { buffers::readable(value, len as usize) }.unwrap_or_default();
    let to_link = decides == Decides::ByLink && names_link(level, name, value());
    if to_link {
        handle.returnable.store(false, Relaxed);
    }
    let is_open = handle.socket.get().is_none();
    let to_group = decides == Decides::UnlessStream && handle.kind != Kind::Stream;
    if is_open && (to_link || to_group) {
        return decide::take_over(fd, &handle);
    }
    Ok(())
}

/// Whether a value names one of netchan's links.
fn names_link(level: c_int, name: c_int, value: &[u8]) -> bool {
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
    if !has_level(live.state, level) {
        return fail(libc::ENOPROTOOPT);
    }
    let row = rows::find(level, name);
    let code_for = |kind, code: fn(&Row) -> Option<c_int>| {
        row.filter(|_| live.state.kind == kind).and_then(code)
    };
    if let Some(code) = code_for(Kind::Stream, |row| row.rules.of_streams) {
        return fail(code);
    }
    // SAFETY: the caller's.
    let value = unsafe { bytes(value, len) }?;
    // As Linux, once it has read the value.
    if let Some(code) = code_for(Kind::Ping, |row| row.rules.of_pings)
        && value.len() >= size_of::<c_int>()
    {
        return fail(code);
    }
    if let Some(Set::Filter(layout)) = row.map(|row| &row.set) {
        return filter::set(live.socket, *layout, value).map(|()| 0);
    }
    let setting = parse(level, name, value)?;
    if row.is_some_and(|row| row.rules.is_privileged) {
        sys::set_of_socket(live.fd, name, value)?;
    }
    match setting {
        Setting::ReceiveTimeout(timeout) => live.state.set_receive_timeout(timeout),
        Setting::SendTimeout(timeout) => live.state.set_send_timeout(timeout),
        Setting::Ask(what, on) => live.state.asked.set(what, on),
        Setting::Priority(priority) => live.state.set_priority(priority),
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

/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
unsafe fn bytes<'a>(value: *const c_void, len: socklen_t) -> io::Result<&'a [u8]> {
    if c_int::try_from(len).is_err() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's.
    unsafe { buffers::readable(value, len as usize) }
}

/// What an undecided socket takes although the kernel may not: what netchan has, and the kernel's socket only if it was built or set so.
pub fn is_only_ours(level: c_int, name: c_int) -> bool {
    rows::find(level, name).is_some_and(|row| row.rules.is_only_ours)
}

/// Why an undecided socket does not take an option, whatever the kernel says: once the decision is made its answer is no longer heard, and a program
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
    if process::is_forked() {
        return None;
    }
    // SAFETY: the caller's.
    let setting = parse(level, name, unsafe { bytes(value, len) }.ok()?);
    let asks = setting.ok() == Some(Setting::Option(SocketOption::FastOpenConnect(true)));
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
