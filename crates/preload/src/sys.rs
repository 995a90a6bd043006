//! System calls that this library makes for itself: never a symbol that it exports, never a cancellation point.

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    ptr,
    sync::OnceLock,
    time::Duration,
};

use libc::{c_int, pollfd};
use netchan::{own::Own, raw};

use crate::errno;

/// An integer, as a system call takes it: sign-extended.
fn integer(value: c_int) -> usize {
    (value as isize).cast_unsigned()
}

/// A result that is a descriptor or a small count.
fn small(result: io::Result<usize>) -> io::Result<c_int> {
    result.map(|n| c_int::try_from(n).unwrap_or(c_int::MAX))
}

/// The system call `number` as the C library makes it: -1 and errno for an error.
///
/// # Safety
/// As the call itself.
pub unsafe fn as_c(number: libc::c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    let result = unsafe { raw::syscall(number, arguments) };
    if (-4095..0).contains(&result) {
        errno::set(c_int::try_from(-result).unwrap_or(libc::EIO));
        return -1;
    }
    result
}

/// close(2).
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: closes a number; the caller owns it.
    unsafe { raw::call(libc::SYS_close, [integer(fd), 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// close_range(2).
pub fn close_range(first: u32, last: u32, flags: c_int) -> io::Result<()> {
    let arguments = [first as usize, last as usize, integer(flags), 0, 0, 0];
    // SAFETY: closes numbers; the caller owns them.
    unsafe { raw::call(libc::SYS_close_range, arguments) }.map(|_| ())
}

/// fcntl(2) with an integer argument.
pub fn fcntl(fd: RawFd, command: c_int, argument: usize) -> io::Result<c_int> {
    let arguments = [integer(fd), integer(command), argument, 0, 0, 0];
    // SAFETY: the commands used here take integers.
    small(unsafe { raw::call(libc::SYS_fcntl, arguments) })
}

/// dup3(2).
pub fn dup3(old: RawFd, new: RawFd, flags: c_int) -> io::Result<c_int> {
    let arguments = [integer(old), integer(new), integer(flags), 0, 0, 0];
    // SAFETY: numbers only.
    small(unsafe { raw::call(libc::SYS_dup3, arguments) })
}

/// A number that a system call has made, as the owner of it.
///
/// # Safety
/// The call must make a descriptor, and its pointers must be valid.
unsafe fn made(number: libc::c_long, arguments: [usize; 6]) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let fd = small(unsafe { raw::call(number, arguments) })?;
    // SAFETY: made just now.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

/// An AF_UNIX stream socket of ours.
pub fn socket() -> io::Result<Own> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let arguments = [integer(libc::AF_UNIX), integer(kind), 0, 0, 0, 0];
    // SAFETY: numbers only.
    Own::open(|| unsafe { made(libc::SYS_socket, arguments) })
}

/// Two connected AF_UNIX sockets of ours that keep messages apart.
pub fn socket_pair() -> io::Result<(Own, Own)> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let mut ends: [c_int; 2] = [-1; 2];
    let to = ends.as_mut_ptr().expose_provenance();
    let arguments = [integer(libc::AF_UNIX), integer(kind), 0, to, 0, 0];
    // SAFETY: `ends` has room for two numbers.
    unsafe { raw::call(libc::SYS_socketpair, arguments) }?;
    // SAFETY: made just now.
    let own = |fd| Own::keep(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    Ok((own(ends[0]), own(ends[1])))
}

/// bind(2) or connect(2) of a supervised program, with a word behind its arguments that says what this library can do.
///
/// # Safety
/// As the call's.
pub unsafe fn ask_supervisor(
    call: libc::c_long,
    fd: RawFd,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> io::Result<()> {
    let at = address.expose_provenance();
    let word = usize::try_from(netchan::relay::letter::CAN_WRITE).unwrap_or(0);
    // SAFETY: the caller's.
    unsafe { raw::call(call, [integer(fd), at, len as usize, word, 0, 0]) }.map(|_| ())
}

/// send(2) that never waits and raises no signal.
pub fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = integer(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let from = bytes.as_ptr().expose_provenance();
    let arguments = [integer(fd), from, bytes.len(), flags, 0, 0];
    // SAFETY: `bytes` is readable for its length.
    unsafe { raw::call(libc::SYS_sendto, arguments) }
}

/// An eventfd of ours, non-blocking and closed on exec.
pub fn eventfd() -> io::Result<Own> {
    let flags = integer(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
    // SAFETY: numbers only.
    Own::open(|| unsafe { made(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) })
}

/// Makes an eventfd readable; a full one is readable already.
pub fn eventfd_signal(fd: &Own) {
    let one = 1_u64;
    let from = ptr::from_ref(&one).expose_provenance();
    // SAFETY: `one` is 8 readable bytes.
    let _ = unsafe { raw::call(libc::SYS_write, [integer(fd.as_raw_fd()), from, 8, 0, 0, 0]) };
}

/// Makes an eventfd unreadable.
pub fn eventfd_clear(fd: &Own) {
    let mut count = 0_u64;
    let to = ptr::from_mut(&mut count).expose_provenance();
    // SAFETY: `count` is 8 writable bytes.
    let _ = unsafe { raw::call(libc::SYS_read, [integer(fd.as_raw_fd()), to, 8, 0, 0, 0]) };
}

/// epoll_ctl(2); `event` is `None` for EPOLL_CTL_DEL.
pub fn epoll_ctl(
    epfd: RawFd,
    operation: c_int,
    fd: RawFd,
    event: Option<libc::epoll_event>,
) -> io::Result<()> {
    let mut event = event.unwrap_or(libc::epoll_event { events: 0, u64: 0 });
    let at = ptr::from_mut(&mut event).expose_provenance();
    let arguments = [integer(epfd), integer(operation), integer(fd), at, 0, 0];
    // SAFETY: `event` outlives the call.
    unsafe { raw::call(libc::SYS_epoll_ctl, arguments) }.map(|_| ())
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
    let at = events.expose_provenance();
    // SAFETY: the caller vouches for `events`.
    unsafe {
        raw::call(
            libc::SYS_epoll_pwait,
            [integer(epfd), at, integer(max), 0, 0, 8],
        )
    }
}

/// poll(2) without waiting.
pub fn poll_now(fds: &mut [pollfd]) -> io::Result<usize> {
    if fds.is_empty() {
        return Ok(0);
    }
    poll(fds, Some(Duration::ZERO))
}

/// poll(2) of the kernel's descriptors alone.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let mut time = timeout.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let time = time.expose_provenance();
    let arguments = [
        fds.as_mut_ptr().expose_provenance(),
        fds.len(),
        time,
        0,
        8,
        0,
    ];
    // SAFETY: `fds` and `time` outlive the call.
    unsafe { raw::call(libc::SYS_ppoll, arguments) }
}

/// read(2).
pub fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let at = buffer.as_mut_ptr().expose_provenance();
    // SAFETY: `buffer` is writable for its length.
    unsafe { raw::call(libc::SYS_read, [integer(fd), at, buffer.len(), 0, 0, 0]) }
}

/// write(2).
pub fn write(fd: RawFd, buffer: &[u8]) -> io::Result<usize> {
    let at = buffer.as_ptr().expose_provenance();
    // SAFETY: `buffer` is readable for its length.
    unsafe { raw::call(libc::SYS_write, [integer(fd), at, buffer.len(), 0, 0, 0]) }
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

/// Bytes in a pipe, as far as they can be counted.
pub fn in_pipe(fd: RawFd) -> Option<usize> {
    let mut count: c_int = 0;
    let at = ptr::from_mut(&mut count).expose_provenance();
    let request = usize::from_ne_bytes(libc::FIONREAD.to_ne_bytes());
    // SAFETY: `count` is writable.
    let asked = unsafe { raw::call(libc::SYS_ioctl, [integer(fd), request, at, 0, 0, 0]) };
    asked.ok()?;
    usize::try_from(count).ok()
}

/// What a UNIX socket has sent and the other end has not taken yet, as the kernel counts its memory.
pub fn unsent(fd: BorrowedFd<'_>) -> usize {
    let mut count: c_int = 0;
    let at = ptr::from_mut(&mut count).expose_provenance();
    let request = usize::from_ne_bytes(libc::TIOCOUTQ.to_ne_bytes());
    let arguments = [integer(fd.as_raw_fd()), request, at, 0, 0, 0];
    // SAFETY: `count` is writable.
    let asked = unsafe { raw::call(libc::SYS_ioctl, arguments) };
    asked.map_or(0, |_| usize::try_from(count).unwrap_or(0))
}

/// pread64(2) into `buffer`.
pub fn pread(fd: RawFd, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    let at = buffer.as_mut_ptr().expose_provenance();
    let offset = usize::try_from(offset).map_err(|_| errno::error(libc::EINVAL))?;
    let arguments = [integer(fd), at, buffer.len(), offset, 0, 0];
    // SAFETY: `buffer` is writable for its length.
    unsafe { raw::call(libc::SYS_pread64, arguments) }
}

/// lseek(2).
pub fn lseek(fd: RawFd, offset: i64, whence: c_int) -> io::Result<i64> {
    let arguments = [
        integer(fd),
        usize::from_ne_bytes(offset.to_ne_bytes()),
        integer(whence),
        0,
        0,
        0,
    ];
    // SAFETY: numbers only.
    let position = unsafe { raw::call(libc::SYS_lseek, arguments) }?;
    Ok(i64::try_from(position).unwrap_or(i64::MAX))
}

/// getpid(2), from the kernel: a vfork child shares every cache with its parent.
pub fn pid() -> c_int {
    // SAFETY: takes nothing.
    small(unsafe { raw::call(libc::SYS_getpid, [0; 6]) }).unwrap_or(0)
}

/// fstat(2); `None` where nothing is open.
fn facts(fd: RawFd) -> Option<libc::stat> {
    let mut facts = MaybeUninit::<libc::stat>::zeroed();
    let at = facts.as_mut_ptr().expose_provenance();
    // SAFETY: `facts` is writable.
    let asked = unsafe { raw::call(libc::SYS_fstat, [integer(fd), at, 0, 0, 0, 0]) };
    // SAFETY: zeroed is valid, too.
    asked.is_ok().then(|| unsafe { facts.assume_init() })
}

/// The file at `path`, opened so that a FIFO does not wait for its writer.
pub fn open_to_read(path: &CStr) -> io::Result<OwnedFd> {
    let flags = integer(libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let at = path.as_ptr().expose_provenance();
    let arguments = [integer(libc::AT_FDCWD), at, flags, 0, 0, 0];
    // SAFETY: a C string.
    unsafe { made(libc::SYS_openat, arguments) }
}

/// stat(2).
pub fn facts_of(path: &CStr) -> Option<libc::stat> {
    let mut facts = MaybeUninit::<libc::stat>::zeroed();
    let to = facts.as_mut_ptr().expose_provenance();
    let at = path.as_ptr().expose_provenance();
    let arguments = [integer(libc::AT_FDCWD), at, to, 0, 0, 0];
    // SAFETY: a C string, and room for the answer.
    let asked = unsafe { raw::call(libc::SYS_newfstatat, arguments) };
    // SAFETY: zeroed is valid, too.
    asked.is_ok().then(|| unsafe { facts.assume_init() })
}

/// getxattr(2): the file capabilities of `path`, as they lie in its attribute (linux/capability.h, struct vfs_cap_data).
pub fn capabilities_of(path: &CStr) -> Option<[u8; 20]> {
    let mut data = [0; 20];
    let name = c"security.capability".as_ptr().expose_provenance();
    let to = data.as_mut_ptr().expose_provenance();
    let at = path.as_ptr().expose_provenance();
    let arguments = [at, name, to, data.len(), 0, 0];
    // SAFETY: two C strings, and room for the answer.
    unsafe { raw::call(libc::SYS_getxattr, arguments) }.ok()?;
    Some(data)
}

/// Whether access(2) lets this process execute `path`.
pub fn may_execute(path: &CStr) -> bool {
    let at = path.as_ptr().expose_provenance();
    let arguments = [integer(libc::AT_FDCWD), at, integer(libc::X_OK), 0, 0, 0];
    // SAFETY: a C string.
    unsafe { raw::call(libc::SYS_faccessat, arguments) }.is_ok()
}

/// Whether this process has children, which may go on when it ends.
pub fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let kind = usize::try_from(libc::P_ALL).unwrap_or(0);
    // SAFETY: nothing is to be written.
    unsafe { raw::call(libc::SYS_waitid, [kind, 0, 0, integer(flags), 0, 0]) }.is_ok()
}

/// Sets an option of SOL_SOCKET of the kernel's socket `fd`.
pub fn set_of_socket(fd: RawFd, name: c_int, value: &[u8]) -> io::Result<()> {
    let (at, len) = (value.as_ptr().expose_provenance(), value.len());
    let arguments = [
        integer(fd),
        integer(libc::SOL_SOCKET),
        integer(name),
        at,
        len,
        0,
    ];
    // SAFETY: `value` is readable for its length.
    unsafe { raw::call(libc::SYS_setsockopt, arguments) }.map(|_| ())
}

/// What the kernel tells of any of its sockets.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    Type,
    Family,
    Protocol,
    Listens,
}

/// Which of them getsockopt(2) is asked for.
pub fn fact_asked(level: c_int, name: c_int) -> Option<Fact> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) => Some(Fact::Type),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(Fact::Family),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(Fact::Protocol),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Some(Fact::Listens),
        _ => None,
    }
}

/// SO_PRIORITY of the kernel's socket `fd`.
pub fn priority(fd: RawFd) -> Option<c_int> {
    number_of_socket(fd, libc::SO_PRIORITY)
}

/// Whether `fd` is a UDP socket of the kernel's.
pub fn is_udp(fd: RawFd) -> bool {
    number_of_socket(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_UDP)
}

/// Whether `fd` is a socket of the kernel's routing netlink (rtnetlink(7)).
pub fn is_route_netlink(fd: RawFd) -> bool {
    number_of_socket(fd, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && number_of_socket(fd, libc::SO_PROTOCOL) == Some(libc::NETLINK_ROUTE)
}

/// The name of a netlink socket, which is a number; 0: it has none.
pub fn netlink_port(fd: RawFd) -> u32 {
    // struct sockaddr_nl: family, port, groups.
    let mut name = [0_u32; 3];
    let mut len = size_of_val(&name);
    let at = ptr::from_mut(&mut name).expose_provenance();
    let len_at = ptr::from_mut(&mut len).expose_provenance();
    // SAFETY: `name` is writable for `len` bytes; the kernel reads and writes the first half of `len`, a little-endian number.
    let asked = unsafe { raw::call(libc::SYS_getsockname, [integer(fd), at, len_at, 0, 0, 0]) };
    asked.map_or(0, |_| name[1])
}

/// SO_COOKIE, which no other socket ever has; 0: `fd` is none.
pub fn cookie(fd: RawFd) -> u64 {
    let (mut value, mut len) = (0_u64, size_of::<u64>());
    let at = ptr::from_mut(&mut value).expose_provenance();
    let len = ptr::from_mut(&mut len).expose_provenance();
    let (level, name) = (integer(libc::SOL_SOCKET), integer(libc::SO_COOKIE));
    // SAFETY: as above.
    let asked = unsafe { raw::call(libc::SYS_getsockopt, [integer(fd), level, name, at, len, 0]) };
    asked.map_or(0, |_| value)
}

/// An option of SOL_SOCKET of the kernel's socket `fd` that is a number.
fn number_of_socket(fd: RawFd, name: c_int) -> Option<c_int> {
    let (mut value, mut len) = (0_i32, size_of::<c_int>());
    let at = ptr::from_mut(&mut value).expose_provenance();
    let len = ptr::from_mut(&mut len).expose_provenance();
    let (level, name) = (integer(libc::SOL_SOCKET), integer(name));
    // SAFETY: `value` is writable for `len` bytes; the kernel reads and writes the first half of `len`, a little-endian number.
    let asked = unsafe { raw::call(libc::SYS_getsockopt, [integer(fd), level, name, at, len, 0]) };
    asked.ok().map(|_| value)
}

/// Whether `fd` is open, and a socket.
pub fn is_socket(fd: RawFd) -> bool {
    facts(fd).is_some_and(|facts| facts.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

/// Whether `fd` is a socket that leads nowhere: what the kernel has of one that netchan serves. An internet socket without a port, or, where it was
/// accepted, a UNIX one without a peer.
pub fn is_blank_socket(fd: RawFd) -> bool {
    if !is_socket(fd) {
        return false;
    }
    let mut name = MaybeUninit::<libc::sockaddr_in6>::zeroed();
    let mut len = size_of::<libc::sockaddr_in6>();
    let at = name.as_mut_ptr().expose_provenance();
    let len = ptr::from_mut(&mut len).expose_provenance();
    let ask = |call| {
        // SAFETY: `name` is writable for `len` bytes; the kernel reads and writes the first half of `len`, a little-endian number.
        unsafe { raw::call(call, [integer(fd), at, len, 0, 0, 0]) }.is_ok()
    };
    let (named, has_peer) = (ask(libc::SYS_getsockname), ask(libc::SYS_getpeername));
    // SAFETY: zeroed is valid, too.
    let name = unsafe { name.assume_init() };
    match c_int::from(name.sin6_family) {
        // The port stands at the same place in both families' names, a UNIX name's first bytes there.
        libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX => named && !has_peer && name.sin6_port == 0,
        _ => false,
    }
}

/// getppid(2).
pub fn parent() -> c_int {
    // SAFETY: takes nothing.
    small(unsafe { raw::call(libc::SYS_getppid, [0; 6]) }).unwrap_or(0)
}

/// Whether a process `pid` exists.
pub fn process_exists(pid: c_int) -> bool {
    // SAFETY: signal 0 is only a question.
    match unsafe { raw::call(libc::SYS_kill, [integer(pid), 0, 0, 0, 0, 0]) } {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// Raises SIGPIPE in this thread.
pub fn raise_sigpipe() {
    raise(libc::SIGPIPE);
}

/// Raises `signal` in this thread, and lets it in.
pub fn raise_now(signal: c_int) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: zeroed is the empty set.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    raise(signal);
    // SAFETY: a set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) };
}

fn raise(signal: c_int) {
    // SAFETY: takes nothing.
    let thread = unsafe { raw::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
    let arguments = [integer(pid()), thread, integer(signal), 0, 0, 0];
    // SAFETY: numbers only; the handler, if any, is the program's own.
    let _ = unsafe { raw::call(libc::SYS_tgkill, arguments) };
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

/// No handler runs on this thread until this is dropped.
pub struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    /// Holds them back from now on.
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
        // SAFETY: writes the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: written just now.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: zeroed is a set, too.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the mask that this very thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Ends the process, without handlers.
pub fn exit_group(status: c_int) -> ! {
    loop {
        // SAFETY: a number only; does not return.
        let _ = unsafe { raw::call(libc::SYS_exit_group, [integer(status), 0, 0, 0, 0, 0]) };
    }
}

/// Waits for a child of ours that has ended, or is about to; one that does not is ended.
pub fn reap(child: c_int, by_force: bool) {
    let number = integer(child);
    if by_force {
        // SAFETY: a child of ours, which was not waited for.
        let _ = unsafe { raw::call(libc::SYS_kill, [number, integer(libc::SIGKILL), 0, 0, 0, 0]) };
    }
    // SAFETY: numbers only. ECHILD: the program has waited for it.
    let wait = || unsafe { raw::call(libc::SYS_wait4, [number, 0, 0, 0, 0, 0]) };
    while wait().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
}

/// Leaves what a process has from its parent: session, directory, standard descriptors, and name.
pub fn leave_session(name: &CStr) {
    // SAFETY: takes nothing.
    let _ = unsafe { raw::call(libc::SYS_setsid, [0; 6]) };
    let path = |path: &CStr| path.as_ptr().expose_provenance();
    // SAFETY: a C string.
    let _ = unsafe { raw::call(libc::SYS_chdir, [path(c"/"), 0, 0, 0, 0, 0]) };
    for _ in 0..3 {
        let flags = integer(libc::O_RDWR | libc::O_NOCTTY);
        let arguments = [integer(libc::AT_FDCWD), path(c"/dev/null"), flags, 0, 0, 0];
        // SAFETY: a C string. It gets the lowest number, one of the first three.
        let _ = unsafe { raw::call(libc::SYS_openat, arguments) };
    }
    let arguments = [integer(libc::PR_SET_NAME), path(name), 0, 0, 0, 0];
    // SAFETY: a C string.
    let _ = unsafe { raw::call(libc::SYS_prctl, arguments) };
}

/// nanosleep(2), which a signal ends.
pub fn nap(time: Duration) {
    let mut time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let at = ptr::from_mut(&mut time).expose_provenance();
    // SAFETY: `time` is readable; nothing is written back.
    let _ = unsafe { raw::call(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]) };
}

/// The standard error as it was when the stack started.
static COMPLAINTS: OnceLock<Own> = OnceLock::new();

/// A file or a terminal is kept for complaints: a server may send its standard error to /dev/null, and what cannot be served would never be said. A
/// pipe is not, since what reads it waits for its end.
pub fn keep_complaints() {
    let kind = facts(2).map(|facts| facts.st_mode & libc::S_IFMT);
    if matches!(kind, Some(libc::S_IFREG | libc::S_IFCHR)) {
        // SAFETY: makes a descriptor.
        let open = || unsafe { made(libc::SYS_dup, [2, 0, 0, 0, 0, 0]) };
        if let Ok(copy) = Own::open(open) {
            let _ = COMPLAINTS.set(copy);
        }
    }
}

/// A file that lines are appended to, made if it is not there; netchan's own, which the program does not close.
pub fn append_to(path: &CStr) -> io::Result<Own> {
    const FLAGS: c_int =
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY;
    let at = path.as_ptr().expose_provenance();
    let arguments = [integer(libc::AT_FDCWD), at, integer(FLAGS), 0o600, 0, 0];
    // SAFETY: makes a descriptor; `path` is a C string.
    Own::open(|| unsafe { made(libc::SYS_openat, arguments) })
}

/// Its number; -1 for none.
pub fn complaints() -> RawFd {
    COMPLAINTS.get().map_or(-1, |copy| copy.as_raw_fd())
}

/// Writes one line to the standard error, whatever stands there; where that is closed or /dev/null, to what stood there before.
pub fn complain(line: &str) {
    /// /dev/null.
    const NULL: libc::dev_t = libc::makedev(1, 3);
    let is_heard = facts(2).is_some_and(|facts| {
        facts.st_mode & libc::S_IFMT != libc::S_IFCHR || facts.st_rdev != NULL
    });
    let to = COMPLAINTS.get().filter(|_| !is_heard);
    let _ = write(to.map_or(2, |copy| copy.as_raw_fd()), line.as_bytes());
}
