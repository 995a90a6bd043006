//! The C library's own functions behind the ones this library exports, looked up when they are first used.
//!
//! A lookup may allocate, and an allocator may read, write or close: such a nested call goes to the system
//! call itself, as does a function that this C library lacks. Cancellation points stay cancellation points:
//! everything here is `C-unwind` and the callers hold nothing that would need dropping.

use std::{
    cell::Cell,
    ffi::CStr,
    marker::PhantomData,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use libc::{c_char, c_int, c_long, c_uint, c_void, size_t, sockaddr, socklen_t, ssize_t};

use crate::sys;

/// Six register arguments: what every function here needs at most.
pub type Raw = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// One function of the C library, as a function pointer type `F`.
pub struct Symbol<F> {
    name: &'static CStr,
    fallback: Raw,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

thread_local! {
    /// This thread is inside `dlsym`: whatever it calls now must not look up again.
    static RESOLVING: Cell<bool> = const { Cell::new(false) };
}

impl<F: Copy> Symbol<F> {
    const fn new(name: &'static CStr, fallback: Raw) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Self {
            name,
            fallback,
            address: AtomicPtr::new(ptr::null_mut()),
            function: PhantomData,
        }
    }

    /// The function itself: the next definition after ours, else the system call.
    #[inline]
    pub fn get(&self) -> F {
        let address = self.address.load(Acquire); // pairs with Release in resolve
        let address = if address.is_null() {
            self.resolve()
        } else {
            address
        };
        // SAFETY: `address` is a function of the C library with F's signature (the constants below pair each name
        // with its type), or the fallback, which takes its arguments in the same registers; F is pointer-sized.
        unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) }
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        let fallback = self.fallback as *mut c_void;
        if RESOLVING.replace(true) {
            return fallback;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        RESOLVING.set(false);
        let address = if found.is_null() { fallback } else { found };
        self.address.store(address, Release); // pairs with Acquire in get
        address
    }
}

/// The system call `N` with the arguments as they came; -1 and errno as the C library does.
unsafe extern "C-unwind" fn raw<const N: c_long>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: the arguments are the caller's own.
    unsafe { sys::as_c(N, [a, b, c, d, e, f]) }
}

/// System call numbers that not every architecture has.
mod number {
    use libc::c_long;
    #[cfg(target_arch = "x86_64")]
    pub use libc::{
        SYS_dup2, SYS_epoll_create, SYS_epoll_wait, SYS_fork, SYS_open, SYS_poll, SYS_select,
        SYS_sendfile,
    };
    /// No such call: the kernel answers ENOSYS.
    pub const NONE: c_long = 0xffff;
    #[cfg(not(target_arch = "x86_64"))]
    mod absent {
        #![allow(non_upper_case_globals)]
        use super::{NONE, c_long};
        pub const SYS_dup2: c_long = NONE;
        pub const SYS_epoll_create: c_long = NONE;
        pub const SYS_epoll_wait: c_long = NONE;
        pub const SYS_fork: c_long = NONE;
        pub const SYS_open: c_long = NONE;
        pub const SYS_poll: c_long = NONE;
        pub const SYS_select: c_long = NONE;
        pub const SYS_sendfile: c_long = libc::SYS_sendfile;
    }
    #[cfg(not(target_arch = "x86_64"))]
    pub use absent::*;
}

type Fd1 = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Fd2 = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
type Fd3 = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type Transfer = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
type TransferConst = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Vector = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int) -> ssize_t;
type Name = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type NameConst = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Sendfile = unsafe extern "C-unwind" fn(c_int, c_int, *mut i64, size_t) -> ssize_t;
type Exec1 = unsafe extern "C-unwind" fn(*const c_char, *const *const c_char) -> c_int;
type Exec2 =
    unsafe extern "C-unwind" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
type Control = unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int;

pub static SOCKET: Symbol<Fd3> = Symbol::new(c"socket", raw::<{ libc::SYS_socket }>);
pub static LISTEN: Symbol<Fd2> = Symbol::new(c"listen", raw::<{ libc::SYS_listen }>);
pub static SHUTDOWN: Symbol<Fd2> = Symbol::new(c"shutdown", raw::<{ libc::SYS_shutdown }>);
pub static BIND: Symbol<NameConst> = Symbol::new(c"bind", raw::<{ libc::SYS_bind }>);
pub static CONNECT: Symbol<NameConst> = Symbol::new(c"connect", raw::<{ libc::SYS_connect }>);
pub static ACCEPT: Symbol<Name> = Symbol::new(c"accept", raw::<{ libc::SYS_accept }>);
pub static ACCEPT4: Symbol<
    unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
> = Symbol::new(c"accept4", raw::<{ libc::SYS_accept4 }>);
pub static GETSOCKNAME: Symbol<Name> =
    Symbol::new(c"getsockname", raw::<{ libc::SYS_getsockname }>);
pub static GETPEERNAME: Symbol<Name> =
    Symbol::new(c"getpeername", raw::<{ libc::SYS_getpeername }>);
pub static GETSOCKOPT: Symbol<
    unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
> = Symbol::new(c"getsockopt", raw::<{ libc::SYS_getsockopt }>);
pub static SETSOCKOPT: Symbol<
    unsafe extern "C-unwind" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
> = Symbol::new(c"setsockopt", raw::<{ libc::SYS_setsockopt }>);

pub static READ: Symbol<Transfer> = Symbol::new(c"read", raw::<{ libc::SYS_read }>);
pub static WRITE: Symbol<TransferConst> = Symbol::new(c"write", raw::<{ libc::SYS_write }>);
pub static READV: Symbol<Vector> = Symbol::new(c"readv", raw::<{ libc::SYS_readv }>);
pub static WRITEV: Symbol<Vector> = Symbol::new(c"writev", raw::<{ libc::SYS_writev }>);
pub static RECV: Symbol<unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t> =
    Symbol::new(c"recv", raw_recv);
pub static SEND: Symbol<
    unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t,
> = Symbol::new(c"send", raw_send);
pub static RECVFROM: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
> = Symbol::new(c"recvfrom", raw::<{ libc::SYS_recvfrom }>);
pub static SENDTO: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
> = Symbol::new(c"sendto", raw::<{ libc::SYS_sendto }>);
pub static RECVMSG: Symbol<
    unsafe extern "C-unwind" fn(c_int, *mut libc::msghdr, c_int) -> ssize_t,
> = Symbol::new(c"recvmsg", raw::<{ libc::SYS_recvmsg }>);
pub static SENDMSG: Symbol<
    unsafe extern "C-unwind" fn(c_int, *const libc::msghdr, c_int) -> ssize_t,
> = Symbol::new(c"sendmsg", raw::<{ libc::SYS_sendmsg }>);
pub static RECVMMSG: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut libc::mmsghdr,
        c_uint,
        c_int,
        *mut libc::timespec,
    ) -> c_int,
> = Symbol::new(c"recvmmsg", raw::<{ libc::SYS_recvmmsg }>);
pub static SENDMMSG: Symbol<
    unsafe extern "C-unwind" fn(c_int, *mut libc::mmsghdr, c_uint, c_int) -> c_int,
> = Symbol::new(c"sendmmsg", raw::<{ libc::SYS_sendmmsg }>);
pub static SENDFILE: Symbol<Sendfile> = Symbol::new(c"sendfile", raw::<{ number::SYS_sendfile }>);
pub static SENDFILE64: Symbol<Sendfile> =
    Symbol::new(c"sendfile64", raw::<{ number::SYS_sendfile }>);
pub static SPLICE: Symbol<
    unsafe extern "C-unwind" fn(c_int, *mut i64, c_int, *mut i64, size_t, c_uint) -> ssize_t,
> = Symbol::new(c"splice", raw::<{ libc::SYS_splice }>);

pub static POLL: Symbol<
    unsafe extern "C-unwind" fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
> = Symbol::new(c"poll", raw::<{ number::SYS_poll }>);
pub static PPOLL: Symbol<
    unsafe extern "C-unwind" fn(
        *mut libc::pollfd,
        libc::nfds_t,
        *const libc::timespec,
        *const libc::sigset_t,
    ) -> c_int,
> = Symbol::new(c"ppoll", raw::<{ number::NONE }>);
pub static SELECT: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut libc::fd_set,
        *mut libc::fd_set,
        *mut libc::fd_set,
        *mut libc::timeval,
    ) -> c_int,
> = Symbol::new(c"select", raw::<{ number::SYS_select }>);
pub static PSELECT: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut libc::fd_set,
        *mut libc::fd_set,
        *mut libc::fd_set,
        *const libc::timespec,
        *const libc::sigset_t,
    ) -> c_int,
> = Symbol::new(c"pselect", raw::<{ number::NONE }>);
pub static EPOLL_CREATE: Symbol<Fd1> =
    Symbol::new(c"epoll_create", raw::<{ number::SYS_epoll_create }>);
pub static EPOLL_CREATE1: Symbol<Fd1> =
    Symbol::new(c"epoll_create1", raw::<{ libc::SYS_epoll_create1 }>);
pub static EPOLL_CTL: Symbol<
    unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
> = Symbol::new(c"epoll_ctl", raw::<{ libc::SYS_epoll_ctl }>);
pub static EPOLL_WAIT: Symbol<
    unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
> = Symbol::new(c"epoll_wait", raw::<{ number::SYS_epoll_wait }>);
pub static EPOLL_PWAIT: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut libc::epoll_event,
        c_int,
        c_int,
        *const libc::sigset_t,
    ) -> c_int,
> = Symbol::new(c"epoll_pwait", raw::<{ number::NONE }>);
pub static EPOLL_PWAIT2: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *mut libc::epoll_event,
        c_int,
        *const libc::timespec,
        *const libc::sigset_t,
    ) -> c_int,
> = Symbol::new(c"epoll_pwait2", raw::<{ number::NONE }>);

pub static CLOSE: Symbol<Fd1> = Symbol::new(c"close", raw::<{ libc::SYS_close }>);
pub static DUP: Symbol<Fd1> = Symbol::new(c"dup", raw::<{ libc::SYS_dup }>);
pub static DUP2: Symbol<Fd2> = Symbol::new(c"dup2", raw::<{ number::SYS_dup2 }>);
pub static DUP3: Symbol<Fd3> = Symbol::new(c"dup3", raw::<{ libc::SYS_dup3 }>);
pub static FCNTL: Symbol<Control> = Symbol::new(c"fcntl", raw::<{ libc::SYS_fcntl }>);
pub static FCNTL64: Symbol<Control> = Symbol::new(c"fcntl64", raw::<{ libc::SYS_fcntl }>);
pub static IOCTL: Symbol<unsafe extern "C-unwind" fn(c_int, libc::c_ulong, usize) -> c_int> =
    Symbol::new(c"ioctl", raw::<{ libc::SYS_ioctl }>);

pub static EXECVE: Symbol<Exec2> = Symbol::new(c"execve", raw::<{ libc::SYS_execve }>);
pub static EXECVEAT: Symbol<
    unsafe extern "C-unwind" fn(
        c_int,
        *const c_char,
        *const *const c_char,
        *const *const c_char,
        c_int,
    ) -> c_int,
> = Symbol::new(c"execveat", raw::<{ libc::SYS_execveat }>);
pub static EXECV: Symbol<Exec1> = Symbol::new(c"execv", raw::<{ number::NONE }>);
pub static EXECVP: Symbol<Exec1> = Symbol::new(c"execvp", raw::<{ number::NONE }>);
pub static EXECVPE: Symbol<Exec2> = Symbol::new(c"execvpe", raw::<{ number::NONE }>);
pub static FEXECVE: Symbol<
    unsafe extern "C-unwind" fn(c_int, *const *const c_char, *const *const c_char) -> c_int,
> = Symbol::new(c"fexecve", raw::<{ number::NONE }>);

type Spawn = unsafe extern "C-unwind" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
pub static POSIX_SPAWN: Symbol<Spawn> = Symbol::new(c"posix_spawn", raw::<{ number::NONE }>);
pub static POSIX_SPAWNP: Symbol<Spawn> = Symbol::new(c"posix_spawnp", raw::<{ number::NONE }>);

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
pub static FORK: Symbol<unsafe extern "C-unwind" fn() -> c_int> =
    Symbol::new(c"_Fork", raw::<{ number::SYS_fork }>);
pub static CLONE: Symbol<
    unsafe extern "C-unwind" fn(
        Option<Start>,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut c_int,
        *mut c_void,
        *mut c_int,
    ) -> c_int,
> = Symbol::new(c"clone", raw::<{ number::NONE }>);

pub static DAEMON: Symbol<Fd2> = Symbol::new(c"daemon", raw::<{ number::NONE }>);

/// Looks the functions up that a forked child calls, in which a lookup might wait for a lock that nothing there gives back.
pub fn prepare_for_children() {
    let _ = (EXECVE.get(), EXECV.get(), EXECVP.get(), EXECVPE.get());
    let _ = (FEXECVE.get(), FORK.get(), CLONE.get(), DAEMON.get());
}

pub static FDOPEN: Symbol<unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut libc::FILE> =
    Symbol::new(c"fdopen", no_stream);
pub static FILENO: Symbol<unsafe extern "C-unwind" fn(*mut libc::FILE) -> c_int> =
    Symbol::new(c"fileno", raw::<{ number::NONE }>);

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int;
pub static OPEN: Symbol<Open> = Symbol::new(c"open", raw::<{ number::SYS_open }>);
pub static OPEN64: Symbol<Open> = Symbol::new(c"open64", raw::<{ number::SYS_open }>);
pub static OPENAT: Symbol<OpenAt> = Symbol::new(c"openat", raw::<{ libc::SYS_openat }>);
pub static OPENAT64: Symbol<OpenAt> = Symbol::new(c"openat64", raw::<{ libc::SYS_openat }>);
pub static PIPE2: Symbol<unsafe extern "C-unwind" fn(*mut c_int, c_int) -> c_int> =
    Symbol::new(c"pipe2", raw::<{ libc::SYS_pipe2 }>);
pub static SOCKETPAIR: Symbol<
    unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_int) -> c_int,
> = Symbol::new(c"socketpair", raw::<{ libc::SYS_socketpair }>);
pub static EVENTFD: Symbol<unsafe extern "C-unwind" fn(c_uint, c_int) -> c_int> =
    Symbol::new(c"eventfd", raw::<{ libc::SYS_eventfd2 }>);
pub static TIMERFD_CREATE: Symbol<Fd2> =
    Symbol::new(c"timerfd_create", raw::<{ libc::SYS_timerfd_create }>);

pub static GETIFADDRS: Symbol<unsafe extern "C-unwind" fn(*mut *mut libc::ifaddrs) -> c_int> =
    Symbol::new(c"getifaddrs", raw::<{ number::NONE }>);
pub static FREEIFADDRS: Symbol<unsafe extern "C-unwind" fn(*mut libc::ifaddrs)> =
    Symbol::new(c"freeifaddrs", raw::<{ number::NONE }>);
pub static IF_NAMETOINDEX: Symbol<unsafe extern "C-unwind" fn(*const c_char) -> c_uint> =
    Symbol::new(c"if_nametoindex", no_stream);
pub static IF_INDEXTONAME: Symbol<unsafe extern "C-unwind" fn(c_uint, *mut c_char) -> *mut c_char> =
    Symbol::new(c"if_indextoname", no_stream);

pub type GetAddrInfo = unsafe extern "C-unwind" fn(
    *const c_char,
    *const c_char,
    *const libc::addrinfo,
    *mut *mut libc::addrinfo,
) -> c_int;
pub static GETADDRINFO: Symbol<GetAddrInfo> = Symbol::new(c"getaddrinfo", raw::<{ number::NONE }>);

pub static SIGACTION: Symbol<
    unsafe extern "C-unwind" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
> = Symbol::new(c"sigaction", raw::<{ number::NONE }>);
type SetHandler = unsafe extern "C-unwind" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
pub static SIGNAL: Symbol<SetHandler> = Symbol::new(c"signal", raw::<{ number::NONE }>);
pub static SYSV_SIGNAL: Symbol<SetHandler> = Symbol::new(c"__sysv_signal", raw::<{ number::NONE }>);
pub static SIGSET: Symbol<SetHandler> = Symbol::new(c"sigset", raw::<{ number::NONE }>);
pub static PTHREAD_CANCEL: Symbol<unsafe extern "C-unwind" fn(libc::pthread_t) -> c_int> =
    Symbol::new(c"pthread_cancel", raw::<{ number::NONE }>);

/// There is no system call that makes a stream, or knows a name: NULL, or 0.
unsafe extern "C-unwind" fn no_stream(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    0
}

/// recv(2) is recvfrom(2) without a name.
unsafe extern "C-unwind" fn raw_recv(
    fd: usize,
    buffer: usize,
    len: usize,
    flags: usize,
    _: usize,
    _: usize,
) -> isize {
    // SAFETY: the arguments are the caller's own.
    unsafe { sys::as_c(libc::SYS_recvfrom, [fd, buffer, len, flags, 0, 0]) }
}

/// send(2) is sendto(2) without a name.
unsafe extern "C-unwind" fn raw_send(
    fd: usize,
    buffer: usize,
    len: usize,
    flags: usize,
    _: usize,
    _: usize,
) -> isize {
    // SAFETY: the arguments are the caller's own.
    unsafe { sys::as_c(libc::SYS_sendto, [fd, buffer, len, flags, 0, 0]) }
}
