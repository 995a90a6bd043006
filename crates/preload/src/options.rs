//! getsockopt and setsockopt: a row of netchan's table of options is found by level and number, its bytes are read as it says, and what they
//! mean is done. What the table leaves to a socket's caller is kept here.

mod answer;
pub mod device;

use std::{io, os::fd::RawFd, sync::atomic::Ordering::Relaxed};

use libc::{c_int, c_void, socklen_t};
use netchan::socket::{
    Domain, Kind, Socket, SocketOption,
    options::{
        self as table, CallerOption, Decides, Device, Row, Set, Setting, int_or_byte, parse,
    },
};

pub use self::answer::get;
use crate::{
    buffers, decide, errno,
    errno::{fail, unsupported},
    process, stamping, start,
    state::{Live, SocketState, Undecided},
    sys,
};

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
    let decides = table::find(level, name).map_or(Decides::No, |row| row.rules.decides);
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
    let row = table::find(level, name);
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
        return layout.set(live.socket, value).map(|()| 0);
    }
    let setting = parse(level, name, value)?;
    if row.is_some_and(|row| row.rules.is_privileged) {
        sys::set_of_socket(live.fd, name, value)?;
    }
    if let Setting::Option(SocketOption::TypeOfService(_)) = setting {
        return set_type_of_service(live, setting, value).map(|()| 0);
    }
    setting.apply(live.socket).map_err(unsupported)?;
    match setting {
        Setting::Caller(CallerOption::Timestamping(flags)) => stamping::set(live, flags)?,
        Setting::Caller(option) => {
            live.state.keep(option);
            if let CallerOption::IncomingCpu(cpu) = option {
                live.socket.set_option(incoming_cpu(cpu))?;
            }
        }
        Setting::Option(SocketOption::FastOpenConnect(on)) => {
            live.state.fast_connect.store(on, Relaxed);
        }
        Setting::Option(_) | Setting::Device(_) | Setting::Keys(_) | Setting::Ignored => {}
    }
    Ok(0)
}

/// IP_TOS, which makes a priority.
fn set_type_of_service(live: Live<'_>, setting: Setting, value: &[u8]) -> io::Result<()> {
    let before = type_of_service(live.socket);
    setting.apply(live.socket).map_err(unsupported)?;
    let tos = type_of_service(live.socket);
    // As Linux, which compares what it was given, whatever of it a type of service has room for.
    if tos != before || !matches!(int_or_byte(value), Ok(0..=255)) {
        live.state.keep(CallerOption::Priority(priority_of(tos)));
    }
    Ok(())
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
        // As Linux, which has options of both with its own function of them.
        libc::SOL_UDP | libc::IPPROTO_UDPLITE => matches!(state.kind, Kind::Datagram),
        libc::IPPROTO_IPV6 => matches!(state.domain, Domain::V6),
        libc::SOL_SOCKET | libc::IPPROTO_IP => true,
        _ => false,
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
    table::find(level, name).is_some_and(|row| row.rules.is_only_ours)
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
    let lacks = asks && start::has_stack() && !start::net().tcp().settings().fast_open.client;
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
    let Ok(setting) = setting else { return false };
    let keep = |option| decide::note(fd, |state| state.keep(option));
    match setting {
        // As the kernel's socket has it by now.
        Setting::Caller(CallerOption::Priority(_)) => keep_priority(fd),
        Setting::Caller(option) => {
            keep(option);
            if let CallerOption::IncomingCpu(cpu) = option {
                note_setting(fd, Setting::Option(incoming_cpu(cpu)));
            }
        }
        Setting::Option(option) => {
            if matches!(option, SocketOption::TypeOfService(_)) {
                keep_priority(fd);
            }
            note_setting(fd, setting);
        }
        Setting::Keys(_) => note_setting(fd, setting),
        // One of netchan's links would have decided: of the kernel's interfaces netchan has none.
        Setting::Device(device) if device != Device::Any => decide::leave(fd),
        Setting::Device(_) | Setting::Ignored => {}
    }
    true
}

fn note_setting(fd: c_int, setting: Setting) {
    decide::note_setting(fd, Undecided::Setting(setting));
}

/// SO_PRIORITY of the kernel's socket is netchan's, too.
fn keep_priority(fd: c_int) {
    if let Some(priority) = sys::priority(fd) {
        decide::note(fd, |state| state.keep(CallerOption::Priority(priority)));
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
