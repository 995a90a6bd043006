//! Opening and ending a stack, and its sockets.

use std::{
    ffi::{CStr, c_char, c_void},
    io, ptr,
};

use libc::c_int;
use netchan::c::buffers;

use crate::{
    edge::{self, fail},
    names, socket,
    stack::{self, Described},
};

/// A string. EFAULT for what is none, EINVAL for bytes that are not UTF-8.
///
/// # Safety
/// `pointer` must be a string that does not change meanwhile, or NULL.
unsafe fn text<'a>(pointer: *const c_char) -> io::Result<&'a str> {
    if buffers::is_bad(pointer) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().or_else(|_| fail(libc::EINVAL))
}

/// The same, where NULL is an empty one.
///
/// # Safety
/// As there.
unsafe fn text_or_empty<'a>(pointer: *const c_char) -> io::Result<&'a str> {
    match pointer.is_null() {
        true => Ok(""),
        // SAFETY: the caller's.
        false => unsafe { text(pointer) },
    }
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// Why the calling thread's last open failed, in words.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_error() -> *const c_char {
    stack::last_error()
}

/// Opens a stack by the text of a configuration file, or, for NULL, by the environment.
///
/// # Safety
/// `config` must be a string, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_open(config: *const c_char) -> *mut c_void {
    ptr::without_provenance_mut(edge::handle(|| {
        if config.is_null() {
            return stack::open(&Described::Environment);
        }
        // SAFETY: the caller's.
        stack::open(&Described::Text(unsafe { text(config) }?))
    }))
}

/// Opens a stack with one link.
///
/// # Safety
/// Each must be a string; `addresses` and `gateways` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_open_link(
    link: *const c_char,
    addresses: *const c_char,
    gateways: *const c_char,
) -> *mut c_void {
    ptr::without_provenance_mut(edge::handle(|| {
        // SAFETY: the caller's.
        let link = unsafe { text(link) }?;
        // SAFETY: the caller's.
        let addresses = unsafe { text_or_empty(addresses) }?;
        // SAFETY: the caller's.
        let gateways = unsafe { text_or_empty(gateways) }?;
        stack::open(&Described::Link {
            link,
            addresses,
            gateways,
        })
    }))
}

/// Waits until the peers have what was sent.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_drain(stack: *mut c_void, timeout_ms: c_int) -> c_int {
    edge::unit(|| stack::drain(stack.addr(), timeout_ms))
}

/// Gives up a stack.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_end(stack: *mut c_void) -> c_int {
    edge::unit(|| stack::end(stack.addr()))
}

/// socket(2).
#[unsafe(no_mangle)]
pub extern "C" fn netchan_socket(
    stack: *mut c_void,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> *mut c_void {
    ptr::without_provenance_mut(edge::handle(|| {
        socket::open(&stack::named(stack.addr())?, domain, kind, protocol)
    }))
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn netchan_close(socket: *mut c_void) -> c_int {
    edge::unit(|| socket::close(socket.addr()))
}

/// fcntl(2) with O_NONBLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_set_nonblocking(socket: *mut c_void, on: c_int) -> c_int {
    edge::unit(|| {
        names::set_nonblocking(&*socket::named(socket.addr())?, on != 0);
        Ok(())
    })
}
