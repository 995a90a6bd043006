//! getifaddrs and freeifaddrs, if_nametoindex and if_indextoname.

use libc::{c_char, c_int, c_uint, ifaddrs};

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
