//! getifaddrs and freeifaddrs, if_nametoindex and if_indextoname, and getaddrinfo.

use libc::{addrinfo, c_char, c_int, c_uint, ifaddrs};

use crate::{buffers, edge, interfaces, real};

/// getifaddrs(3).
///
/// # Safety
/// As getifaddrs(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { (real::GETIFADDRS.get())(list) };
    if result != 0 {
        return result;
    }
    edge::int(|| {
        // SAFETY: the call has filled it in.
        let list = unsafe { &mut *list };
        // SAFETY: as above.
        let added = unsafe { interfaces::extend(list) };
        if added.is_err() {
            // SAFETY: the list that it has made.
            unsafe { (real::FREEIFADDRS.get())(*list) };
        }
        added.map(|()| 0)
    })
}

/// freeifaddrs(3).
///
/// # Safety
/// As freeifaddrs(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freeifaddrs(list: *mut ifaddrs) {
    // SAFETY: the caller's.
    let rest = unsafe { interfaces::cut(list) };
    if !rest.is_null() {
        // SAFETY: what the C library has made.
        unsafe { (real::FREEIFADDRS.get())(rest) };
    }
}

/// if_nametoindex(3).
///
/// # Safety
/// As if_nametoindex(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn if_nametoindex(name: *const c_char) -> c_uint {
    if !buffers::is_bad(name)
        // SAFETY: the caller's.
        && let Some(number) = unsafe { interfaces::number_of(name) }
    {
        return number;
    }
    // SAFETY: the caller's.
    unsafe { (real::IF_NAMETOINDEX.get())(name) }
}

/// if_indextoname(3).
///
/// # Safety
/// As if_indextoname(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn if_indextoname(number: c_uint, name: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's.
    if !buffers::is_bad(name) && unsafe { interfaces::name_of(number, name) }.is_some() {
        return name;
    }
    // SAFETY: the caller's.
    unsafe { (real::IF_INDEXTONAME.get())(number, name) }
}

/// getaddrinfo(3). With AI_ADDRCONFIG it leaves out what the kernel has no address to go from, which netchan may have: what is not found that way is asked
/// for without.
///
/// # Safety
/// As getaddrinfo(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    into: *mut *mut addrinfo,
) -> c_int {
    let real = real::GETADDRINFO.get();
    // SAFETY: the caller's.
    let found = unsafe { real(node, service, hints, into) };
    let is_left_out = matches!(found, libc::EAI_NONAME | libc::EAI_NODATA | EAI_ADDRFAMILY);
    if !is_left_out || buffers::is_bad(hints) || !interfaces::are_ours() {
        return found;
    }
    // SAFETY: the caller's, which the call has read.
    let mut hints = unsafe { hints.read() };
    if hints.ai_flags & libc::AI_ADDRCONFIG == 0 {
        return found;
    }
    hints.ai_flags &= !libc::AI_ADDRCONFIG;
    // SAFETY: as above.
    unsafe { real(node, service, &raw const hints, into) }
}

/// Of netdb.h.
const EAI_ADDRFAMILY: c_int = -9;
