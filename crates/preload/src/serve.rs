//! Which stack answers a call about a number: the kernel, netchan in this process, or netchan in the parent of it, which answers none here.

use std::{cell::Cell, io, os::fd::RawFd};

use libc::c_int;

use crate::{
    edge, errno, numbers, orphan, process, share, shared,
    state::{Live, SOCKETS, SocketState},
    sys,
    table::Handle,
};

/// What a number means to the calls that netchan serves.
enum Meaning {
    Kernel,
    /// Inherited from the parent process, where the stack is, and not to be shared with it.
    Orphan,
    Netchan(Handle<SocketState>),
}

impl Meaning {
    fn of(fd: RawFd) -> Self {
        let Some(handle) = SOCKETS.get(fd) else {
            return Self::Kernel;
        };
        if handle.socket.get().is_none() {
            return Self::Kernel;
        }
        if handle.is_inherited() {
            return match shared::adopt(fd, &handle) {
                true => Self::Kernel,
                false => Self::Orphan,
            };
        }
        Self::Netchan(handle)
    }

    /// The record, if the stack is in this process; `None`, and `kernels` set, if the kernel serves the number.
    fn here(self, fd: RawFd, kernels: &Cell<bool>) -> io::Result<Option<Handle<SocketState>>> {
        match self {
            Self::Kernel => {
                kernels.set(true);
                Ok(None)
            }
            Self::Orphan => Err(orphan::refusal(fd)),
            Self::Netchan(handle) => Ok(Some(handle)),
        }
    }
}

/// Runs `call` on netchan's socket behind `fd`, at the C edge; `None` if `fd` is the kernel's. The call may wait: a cancellation point.
#[inline]
pub fn serve(fd: RawFd, call: impl FnMut(Live<'_>) -> io::Result<usize>) -> Option<isize> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    let result = serve_waiting(fd, call)?;
    // The end of a stream is as rare as an error.
    if result <= 0 && is_past(fd, result) {
        return None;
    }
    Some(result)
}

/// After a call that told of an end or an error: whether the number was closed where this library does not see it, and means something
/// else by now. Then it is the kernel's.
#[cold]
fn is_past(fd: RawFd, result: isize) -> bool {
    let code = errno::get();
    // Another process has come to share it while the call waited.
    if result < 0 && code == libc::EBADF && share::name_of(fd).is_some() {
        return true;
    }
    // Of a call that waited while its number was closed EBADF is all there is to say, whatever that number is by now.
    let usual = matches!(
        code,
        libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EBADF
    );
    if (result < 0 && usual) || process::is_forked() || sys::is_socket(fd) {
        return false;
    }
    edge::unit(|| {
        numbers::renewed(fd);
        Ok(())
    });
    errno::set(code);
    true
}

fn serve_waiting(fd: RawFd, mut call: impl FnMut(Live<'_>) -> io::Result<usize>) -> Option<isize> {
    let kernels = Cell::new(false);
    let served = || {
        let Some(handle) = Meaning::of(fd).here(fd, &kernels)? else {
            return Ok(0);
        };
        call(live(fd, &handle)?)
    };
    let result = edge::waiting(served);
    (!kernels.get()).then_some(result)
}

/// As [`serve`], for calls that return an int.
#[inline]
pub fn serve_int(fd: RawFd, call: impl FnMut(Live<'_>) -> io::Result<usize>) -> Option<c_int> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    let result = serve_waiting(fd, call)?;
    if result < 0 && is_past(fd, result) {
        return None;
    }
    Some(int(result))
}

/// As [`serve_int`], for calls that never wait.
#[inline]
pub fn ask(fd: RawFd, call: impl FnOnce(Live<'_>) -> io::Result<usize>) -> Option<c_int> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    let kernels = Cell::new(false);
    let result = edge::long(|| match Meaning::of(fd).here(fd, &kernels)? {
        Some(handle) => call(live(fd, &handle)?),
        None => Ok(0),
    });
    (!kernels.get()).then(|| int(result))
}

/// As [`ask`], for names. A child that asks for them is not about to serve: Python does when it ends, to say which socket was left open.
pub fn ask_name(fd: RawFd, call: impl FnOnce(Live<'_>) -> io::Result<usize>) -> Option<c_int> {
    if is_parents(fd) && share::name_of(fd).is_some() {
        return None; // the kernel's has the name
    }
    if is_orphan(fd) {
        return Some(edge::unit(|| errno::fail(libc::EBADF)));
    }
    ask(fd, call)
}

/// As [`ask`], but a socket of the parent process is the kernel's: for calls about the number rather than the socket.
#[inline]
pub fn ask_here(fd: RawFd, call: impl FnOnce(Live<'_>) -> io::Result<usize>) -> Option<c_int> {
    if SOCKETS.is_vacant(fd) || is_parents(fd) {
        return None;
    }
    ask(fd, call)
}

fn int(value: isize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn live(fd: RawFd, handle: &Handle<SocketState>) -> io::Result<Live<'_>> {
    match handle.socket.get() {
        Some(socket) => Ok(Live {
            fd,
            state: handle,
            socket,
        }),
        None => errno::fail(libc::EBADF),
    }
}

/// The record behind `fd` if netchan serves it in this process.
pub fn netchan(fd: RawFd) -> Option<Handle<SocketState>> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    match Meaning::of(fd) {
        Meaning::Netchan(handle) => Some(handle),
        Meaning::Kernel | Meaning::Orphan => None,
    }
}

/// Whether `fd` is a socket of the parent process, or a number of the kernel's that was watched there.
fn is_parents(fd: RawFd) -> bool {
    process::has_parents_sockets() && SOCKETS.get(fd).is_some_and(|state| state.is_inherited())
}

/// Whether `fd` is a socket of the parent process that cannot be shared.
pub fn is_orphan(fd: RawFd) -> bool {
    process::has_parents_sockets() && matches!(Meaning::of(fd), Meaning::Orphan)
}

/// Whether a call about `fd` must look closer: netchan serves it, or the parent of this process did.
pub fn is_ours(fd: RawFd) -> bool {
    !SOCKETS.is_vacant(fd) && !matches!(Meaning::of(fd), Meaning::Kernel)
}
