//! socket, bind, listen, accept, connect, shutdown, names, options.

use std::io;

use libc::{c_int, c_void, sockaddr, socklen_t};
use netchan::socket::Kind;

use crate::{
    across, anew, decide, edge, endpoint, letters, numbers, options, orphan, real, serve, shared,
    state,
};

/// socket(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: numbers only.
    let fd = unsafe { (real::SOCKET.get())(domain, kind, protocol) };
    let is_refused = fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EACCES);
    if (fd >= 0 || is_refused)
        && let Some((domain, what)) = endpoint::kind_of(domain, kind, protocol)
        && (fd >= 0 || what == Kind::Ping)
        && anew::is_configured()
    {
        return edge::int(|| {
            if is_refused {
                return decide::ping_without_kernel(domain, kind);
            }
            decide::created(fd, domain, what)?;
            Ok(fd)
        });
    }
    numbers::fresh(fd)
}

/// bind(2).
///
/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if !state::SOCKETS.is_vacant(fd) {
        // SAFETY: the caller's.
        if edge::unit(|| unsafe { decide::before_bind(fd, address, len) }) < 0 {
            return -1;
        }
    }
    // SAFETY: the caller's.
    let served = serve::ask(fd, |live| unsafe { endpoint::bind(live, address, len) });
    // SAFETY: the caller's.
    let across = || unsafe { across::supervised(libc::SYS_bind, fd, address, len) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::BIND.get())(fd, address, len) })
}

/// listen(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if !state::SOCKETS.is_vacant(fd) && edge::unit(|| decide::before_listen(fd)) < 0 {
        return -1;
    }
    if let Some(served) = serve::ask(fd, |live| endpoint::listen(live, backlog)) {
        return served;
    }
    orphan::say_listens_nowhere(fd);
    // SAFETY: numbers only.
    let result = unsafe { (real::LISTEN.get())(fd, backlog) };
    if result < 0 && across::listens(fd) {
        return 0;
    }
    result
}

/// connect(2).
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    if !state::SOCKETS.is_vacant(fd) {
        // SAFETY: the caller's.
        if edge::unit(|| unsafe { decide::before_peer(fd, address, len) }) < 0 {
            return -1;
        }
    }
    // SAFETY: the caller's.
    let served = serve::serve_int(fd, |live| unsafe { endpoint::connect(live, address, len) });
    // SAFETY: the caller's.
    let across = || unsafe { letters::connect(fd, address, len) };
    // SAFETY: the caller's.
    let supervised = || unsafe { across::supervised(libc::SYS_connect, fd, address, len) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .or_else(supervised)
        .unwrap_or_else(|| unsafe { (real::CONNECT.get())(fd, address, len) })
}

/// accept(2).
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let served = serve::serve_int(fd, |live| unsafe {
        endpoint::accept(live, address, len, 0)
    });
    served.unwrap_or_else(|| {
        // SAFETY: the caller's.
        let new = unsafe { (real::ACCEPT.get())(fd, address, len) };
        // SAFETY: the caller's.
        unsafe { accepted(new, fd, address, len, 0) }
    })
}

/// What the kernel's accept answered; where it refused, of a listener that several processes hold.
///
/// # Safety
/// As accept4(2).
unsafe fn accepted(
    new: c_int,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if new >= 0 {
        return numbers::fresh(new);
    }
    // SAFETY: the caller's.
    unsafe { across::accept(fd, address, len, flags) }.unwrap_or(new)
}

/// accept4(2).
///
/// # Safety
/// As accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let served = serve::serve_int(fd, |live| {
        // SAFETY: the caller's.
        unsafe { endpoint::accept(live, address, len, flags) }
    });
    served.unwrap_or_else(|| {
        // SAFETY: the caller's.
        let new = unsafe { (real::ACCEPT4.get())(fd, address, len, flags) };
        // SAFETY: the caller's.
        unsafe { accepted(new, fd, address, len, flags) }
    })
}

/// shutdown(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if !state::SOCKETS.is_vacant(fd) {
        edge::unit(|| {
            shared::before_shutdown(fd);
            Ok(())
        });
    }
    let served = serve::ask(fd, |live| endpoint::shutdown(live, how));
    if served.is_none() && !state::SOCKETS.is_vacant(fd) {
        endpoint::note_shutdown(fd, how);
    }
    // SAFETY: numbers only.
    served.unwrap_or_else(|| unsafe { (real::SHUTDOWN.get())(fd, how) })
}

/// getsockname(2).
///
/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let served = serve::ask_name(fd, |live| unsafe {
        endpoint::local_name(live, address, len)
    });
    // SAFETY: the caller's.
    let across = || unsafe { across::name(fd, false, address, len) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::GETSOCKNAME.get())(fd, address, len) })
}

/// getpeername(2).
///
/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let served = serve::ask_name(fd, |live| unsafe {
        endpoint::peer_name(live, address, len)
    });
    // SAFETY: the caller's.
    let across = || unsafe { across::name(fd, true, address, len) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::GETPEERNAME.get())(fd, address, len) })
}

/// getsockopt(2).
///
/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let served = serve::ask(fd, |live| {
        // SAFETY: the caller's.
        unsafe { options::get(live, level, name, value, len) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { across::option(fd, level, name, value, len) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::GETSOCKOPT.get())(fd, level, name, value, len) })
}

/// setsockopt(2).
///
/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if !state::SOCKETS.is_vacant(fd) {
        // SAFETY: the caller's.
        let decided = || unsafe { options::before(fd, (level, name), value, len) };
        if edge::unit(decided) < 0 {
            return -1;
        }
    }
    let served = serve::ask(fd, |live| {
        // SAFETY: the caller's.
        unsafe { options::set(live, level, name, value, len) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::set_option(fd, (level, name), value, len) };
    if let Some(result) = served.or_else(across) {
        return result;
    }
    if !state::SOCKETS.is_vacant(fd)
        // SAFETY: the caller's.
        && let Some(refused) = unsafe { options::refusal(level, name, value, len) }
    {
        return edge::unit(|| Err(refused));
    }
    // SAFETY: the caller's.
    let mut result = unsafe { (real::SETSOCKOPT.get())(fd, level, name, value, len) };
    if result < 0 {
        // SAFETY: the caller's.
        result = unsafe { across::set_option(fd, level, name, value, len) }.unwrap_or(result);
    }
    if !state::SOCKETS.is_vacant(fd) && (result == 0 || options::is_only_ours(level, name)) {
        let refused = std::io::Error::last_os_error();
        return edge::unit(|| {
            // SAFETY: the caller's.
            let noted = unsafe { options::note(fd, level, name, value, len) };
            if result == 0 || noted {
                return Ok(());
            }
            Err(refused)
        });
    }
    result
}
