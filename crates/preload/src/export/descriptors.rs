//! close, dup, fcntl, ioctl and their variants.

use libc::{c_int, c_uint, c_ulong};
use netchan::own;

use crate::{
    descriptor, edge, errno, interfaces, letters, numbers, real, region, serve, state::Live,
};

/// close(2), a cancellation point: a thread that was cancelled before leaves the number open.
///
/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if numbers::is_tracked(fd) {
        region::cancellation_point();
        return edge::int(|| numbers::close(fd));
    }
    if own::is_own(fd) {
        return not_theirs();
    }
    // SAFETY: the caller's.
    unsafe { (real::CLOSE.get())(fd) }
}

/// What a call answers about a descriptor that is netchan's own: to the program it is not open.
#[cold]
fn not_theirs() -> c_int {
    errno::set(libc::EBADF);
    -1
}

/// close_range(2).
///
/// # Safety
/// As close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    edge::unit(|| numbers::close_range(first, last, flags))
}

/// closefrom(3).
///
/// # Safety
/// As closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller's; negative is 0, as in the C library.
    unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

/// dup(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    if own::is_own(old) {
        return not_theirs();
    }
    // SAFETY: numbers only.
    let new = unsafe { (real::DUP.get())(old) };
    note_duplicate(old, new)
}

fn note_duplicate(old: c_int, new: c_int) -> c_int {
    if new >= 0 && numbers::is_tracked(old) {
        return edge::int(|| {
            numbers::duplicated(old, new);
            Ok(new)
        });
    }
    new
}

/// dup2(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if own::is_own(old) || own::is_own(new) {
        return not_theirs();
    }
    let tracked = numbers::is_tracked(old) || numbers::is_tracked(new);
    if tracked && old != new {
        return edge::int(|| numbers::dup_onto(old, new, 0));
    }
    // SAFETY: numbers only.
    unsafe { (real::DUP2.get())(old, new) }
}

/// dup3(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if own::is_own(old) || own::is_own(new) {
        return not_theirs();
    }
    let tracked = numbers::is_tracked(old) || numbers::is_tracked(new);
    if tracked && old != new {
        return edge::int(|| numbers::dup_onto(old, new, flags));
    }
    // SAFETY: numbers only.
    unsafe { (real::DUP3.get())(old, new, flags) }
}

type Control = unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int;

/// # Safety
/// As fcntl(2).
unsafe fn control(fd: c_int, command: c_int, argument: usize, kernels: Control) -> c_int {
    if own::is_own(fd) {
        return not_theirs();
    }
    if numbers::is_tracked(fd) {
        let mut answered = false;
        let served = serve::ask_here(fd, |live: Live<'_>| {
            match descriptor::control(fd, live, command, argument) {
                Some(result) => {
                    answered = true;
                    result
                }
                None => Ok(0),
            }
        });
        if let Some(result) = served.filter(|_| answered) {
            return result;
        }
        if descriptor::duplicates(command) {
            // SAFETY: the caller's.
            return note_duplicate(fd, unsafe { kernels(fd, command, argument) });
        }
    }
    // SAFETY: the caller's.
    unsafe { kernels(fd, command, argument) }
}

/// fcntl(2). Variadic in C: on the architectures served, one integer or pointer argument comes where a third one would.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { control(fd, command, argument, real::FCNTL.get()) }
}

/// fcntl(2) as programs with 64-bit file offsets call it.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { control(fd, command, argument, real::FCNTL64.get()) }
}

/// ioctl(2). Variadic in C, see [`fcntl`].
///
/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let mut answered = false;
    let served = serve::ask_here(fd, |live| {
        // SAFETY: the caller's.
        match unsafe { descriptor::device_control(live, request, argument) } {
            Some(result) => {
                answered = true;
                result
            }
            None => Ok(0),
        }
    });
    if let Some(result) = served.filter(|_| answered) {
        return result;
    }
    if request == libc::FIONREAD
        // SAFETY: the caller's.
        && let Some(result) = unsafe { letters::unread(fd, argument as *mut c_int) }
    {
        return result;
    }
    // SAFETY: the caller's.
    let kernels = || unsafe { (real::IOCTL.get())(fd, request, argument) };
    if request != libc::SIOCGIFFLAGS {
        return kernels();
    }
    // SAFETY: the caller's.
    match unsafe { interfaces::tell_flags(argument) } {
        true => 0,
        false => kernels(),
    }
}
