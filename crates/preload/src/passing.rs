//! Descriptors that go from process to process over UNIX sockets (SCM_RIGHTS): what another process gets of a socket of netchan's is the end of a pair.

use std::os::fd::RawFd;

use libc::{c_int, cmsghdr, msghdr};

use crate::{buffers, crossing, edge, fork, process, shared, state::SOCKETS};

/// Before sendmsg(2) on a socket of the kernel's: sockets of netchan's that go along are the kernel's from now on.
///
/// # Safety
/// `message` must be a valid msghdr for sending, or NULL.
#[inline]
pub unsafe fn before(message: *const msghdr) {
    if !process::has_sockets() {
        return;
    }
    // SAFETY: the caller's.
    unsafe { each(message, |fd| !SOCKETS.is_vacant(fd), hand_over) }
}

fn hand_over(fd: RawFd) {
    let Some(state) = SOCKETS.get(fd).filter(|state| state.socket.get().is_some()) else {
        return;
    };
    if state.is_inherited() {
        shared::adopt(fd, &state);
    } else {
        shared::hand_over(fd, &state);
    }
}

/// After recvmsg(2): datagram sockets that have come along are known.
///
/// # Safety
/// `message` must be what the kernel has filled in, or NULL.
#[inline]
pub unsafe fn after(message: *const msghdr) {
    let look = |fd| {
        if crossing::look_at(fd) {
            let _ = fork::claim(); // without it a vfork child takes the table for its own
        }
    };
    // SAFETY: the caller's.
    unsafe { each(message, |_| true, look) }
}

/// Each descriptor that goes along, and is wanted.
///
/// # Safety
/// `message` must be a valid msghdr, or NULL.
#[inline]
unsafe fn each(message: *const msghdr, is_wanted: impl Fn(RawFd) -> bool, each: impl Fn(RawFd)) {
    if buffers::is_bad(message) {
        return;
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &*message };
    if message.msg_controllen == 0 || buffers::is_bad(message.msg_control) {
        return;
    }
    // SAFETY: the caller's.
    let Ok(mut rest) = (unsafe { buffers::readable(message.msg_control, message.msg_controllen) })
    else {
        return;
    };
    while let Some((header, data)) = rest.split_at_checked(size_of::<cmsghdr>()) {
        let word = |at: usize| header[at..].first_chunk().copied().unwrap_or_default();
        let len = usize::from_ne_bytes(*header.first_chunk().unwrap_or(&[0; 8]));
        let what = (
            c_int::from_ne_bytes(word(8)),
            c_int::from_ne_bytes(word(12)),
        );
        let Some(data) = (len.checked_sub(header.len())).and_then(|len| data.get(..len)) else {
            return;
        };
        if what == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let numbers = data.as_chunks().0.iter().copied().map(c_int::from_ne_bytes);
            for fd in numbers.filter(|fd| is_wanted(*fd)) {
                edge::unit(|| {
                    each(fd);
                    Ok(())
                });
            }
        }
        rest = rest
            .get(len.next_multiple_of(size_of::<usize>())..)
            .unwrap_or_default();
    }
}
