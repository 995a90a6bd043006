//! System calls that this library makes for itself: never a symbol that it exports, never a cancellation point.

use std::{io, os::fd::RawFd, time::Duration};

use libc::{c_int, c_void, pollfd};

/// The result of a system call as `io::Result`.
fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A system call's result that is a descriptor or a small count.
fn small(result: libc::c_long) -> io::Result<c_int> {
    check(result).map(|n| c_int::try_from(n).unwrap_or(c_int::MAX))
}

/// close(2).
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: closes a number; the caller owns it.
    small(unsafe { libc::syscall(libc::SYS_close, fd) }).map(|_| ())
}

/// fcntl(2) with an integer argument.
pub fn fcntl(fd: RawFd, command: c_int, argument: usize) -> io::Result<c_int> {
    // SAFETY: the commands used here take integers.
    small(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

/// dup3(2).
pub fn dup3(old: RawFd, new: RawFd, flags: c_int) -> io::Result<c_int> {
    // SAFETY: numbers only.
    small(unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) })
}

/// socket(2).
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<RawFd> {
    // SAFETY: numbers only.
    small(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) })
}

/// eventfd2(2), non-blocking and closed on exec.
pub fn eventfd() -> io::Result<RawFd> {
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    // SAFETY: numbers only.
    small(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) })
}

/// Makes an eventfd readable; a full one is readable already.
pub fn eventfd_signal(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: `one` is 8 readable bytes.
    unsafe { libc::syscall(libc::SYS_write, fd, &raw const one, 8) };
}

/// Makes an eventfd unreadable.
pub fn eventfd_clear(fd: RawFd) {
    let mut count = 0_u64;
    // SAFETY: `count` is 8 writable bytes.
    unsafe { libc::syscall(libc::SYS_read, fd, &raw mut count, 8) };
}

/// epoll_ctl(2); `event` is `None` for EPOLL_CTL_DEL.
pub fn epoll_ctl(
    epfd: RawFd,
    operation: c_int,
    fd: RawFd,
    event: Option<libc::epoll_event>,
) -> io::Result<()> {
    let mut event = event.unwrap_or(libc::epoll_event { events: 0, u64: 0 });
    // SAFETY: `event` outlives the call.
    small(unsafe { libc::syscall(libc::SYS_epoll_ctl, epfd, operation, fd, &raw mut event) })
        .map(|_| ())
}

/// epoll_pwait(2) without waiting, into `events`.
///
/// # Safety
/// `events` must be writable for `max` entries.
pub unsafe fn epoll_poll(
    epfd: RawFd,
    events: *mut libc::epoll_event,
    max: c_int,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for `events`.
    check(unsafe { libc::syscall(libc::SYS_epoll_pwait, epfd, events, max, 0, 0, 8) })
}

/// poll(2) without waiting.
pub fn poll_now(fds: &mut [pollfd]) -> io::Result<usize> {
    if fds.is_empty() {
        return Ok(0);
    }
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `fds` and `zero` outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            &raw const zero,
            0,
            8,
        )
    })
}

/// read(2).
pub fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let pointer = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: `buffer` is writable for its length.
    check(unsafe { libc::syscall(libc::SYS_read, fd, pointer, buffer.len()) })
}

/// write(2).
pub fn write(fd: RawFd, buffer: &[u8]) -> io::Result<usize> {
    let pointer = buffer.as_ptr().cast::<c_void>();
    // SAFETY: `buffer` is readable for its length.
    check(unsafe { libc::syscall(libc::SYS_write, fd, pointer, buffer.len()) })
}

/// Whether a number is a pipe's: nothing else has a pipe's size.
pub fn is_pipe(fd: RawFd) -> bool {
    fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok()
}

/// Bytes that an empty pipe takes.
pub fn pipe_size(fd: RawFd) -> usize {
    let size = fcntl(fd, libc::F_GETPIPE_SZ, 0).unwrap_or(0);
    usize::try_from(size).unwrap_or(0)
}

/// Whether nothing is in a pipe.
pub fn is_empty_pipe(fd: RawFd) -> bool {
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    let asked = unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut count) };
    asked == 0 && count == 0
}

/// pread64(2) into `buffer`.
pub fn pread(fd: RawFd, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    let pointer = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: `buffer` is writable for its length.
    check(unsafe { libc::syscall(libc::SYS_pread64, fd, pointer, buffer.len(), offset) })
}

/// lseek(2).
pub fn lseek(fd: RawFd, offset: i64, whence: c_int) -> io::Result<i64> {
    // SAFETY: numbers only.
    let position = unsafe { libc::syscall(libc::SYS_lseek, fd, offset, whence) };
    check(position).map(|_| position)
}

/// getpid(2), from the kernel: a vfork child shares every cache with its parent.
pub fn pid() -> c_int {
    // SAFETY: takes nothing.
    small(unsafe { libc::syscall(libc::SYS_getpid) }).unwrap_or(0)
}

/// Whether a process `pid` exists.
pub fn process_exists(pid: c_int) -> bool {
    // SAFETY: signal 0 is only a question.
    match small(unsafe { libc::syscall(libc::SYS_kill, pid, 0) }) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// Raises SIGPIPE in this thread.
pub fn raise_sigpipe() {
    // SAFETY: takes nothing.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: numbers only; the handler, if any, is the program's own.
    unsafe { libc::syscall(libc::SYS_tgkill, pid(), thread, libc::SIGPIPE) };
}

/// CLOCK_MONOTONIC since its origin.
pub fn monotonic() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME: since 1970.
pub fn wall_clock() -> Duration {
    clock(libc::CLOCK_REALTIME)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
