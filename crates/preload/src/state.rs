//! What stands behind a socket's number: undecided at first (the kernel's socket of that number serves), then netchan's socket.

use std::{
    cell::Cell,
    os::fd::RawFd,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicI32, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::Duration,
};

use libc::c_int;
use netchan::socket::{Domain, Kind, Socket, SocketOption};
use parking_lot::Mutex;

use crate::{
    ancillary::Asked,
    descriptor,
    epoll::{self, Watch},
    errno, forked, lifecycle,
    options::{Setting, limits},
    stamping::Arrival,
    sys,
    table::{Handle, Removed, Table},
};

/// Every socket number that netchan serves or may come to serve.
pub static SOCKETS: Table<SocketState> = Table::new();

/// One open socket description; `dup`ed numbers share it.
pub struct SocketState {
    /// AF_INET or AF_INET6.
    pub domain: Domain,
    /// SOCK_STREAM or SOCK_DGRAM.
    pub kind: Kind,
    /// What a forked child calls it.
    pub name: forked::Name,
    /// accept(2) made it.
    pub accepted: bool,
    /// netchan's socket, once decided.
    pub socket: OnceLock<Socket>,
    /// Options set while undecided, in order; locked while the decision is made.
    pub undecided: Mutex<Vec<Setting>>,
    /// Bound to a wildcard address and nothing more: a connect to a kernel address may still hand it back.
    pub returnable: AtomicBool,
    /// O_NONBLOCK, once decided.
    pub nonblocking: AtomicBool,
    /// The last number was closed: who still waits gives up with EBADF.
    pub closed: AtomicBool,
    /// The last send said MSG_MORE.
    pub more: AtomicBool,
    /// TCP_FASTOPEN_CONNECT was set, and nothing was written yet.
    pub fast_connect: AtomicBool,
    /// What recvmsg(2) shall tell of datagrams.
    pub asked: Asked,
    /// SO_TIMESTAMPING.
    pub stamping: AtomicU32,
    /// SO_BUSY_POLL, in microseconds.
    pub busy_poll_us: AtomicU32,
    /// SO_INCOMING_CPU, once it was set: its number, and a bit above it.
    incoming_cpu: AtomicU64,
    /// SO_PRIORITY, which is only kept.
    priority: AtomicI32,
    /// When the datagram came that was read last, for SIOCGSTAMP.
    pub arrival: Arrival,
    receive_timeout_ns: AtomicU64,
    send_timeout_ns: AtomicU64,
    /// Threads that wait in a call.
    sleepers: Mutex<Vec<Waker>>,
    /// The epoll instances that watch it.
    pub watch: Watch,
}

impl SocketState {
    /// A socket that the kernel serves until it is decided.
    pub fn new(domain: Domain, kind: Kind) -> Self {
        Self {
            domain,
            kind,
            name: forked::Name::new(),
            accepted: false,
            socket: OnceLock::new(),
            undecided: Mutex::new(Vec::new()),
            returnable: AtomicBool::new(false),
            nonblocking: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            more: AtomicBool::new(false),
            fast_connect: AtomicBool::new(false),
            asked: Asked::default(),
            stamping: AtomicU32::new(0),
            busy_poll_us: AtomicU32::new(0),
            incoming_cpu: AtomicU64::new(0),
            priority: AtomicI32::new(0),
            arrival: Arrival::default(),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            sleepers: Mutex::new(Vec::new()),
            watch: Watch::default(),
        }
    }

    /// An accepted connection: decided from birth.
    pub fn decided(domain: Domain, kind: Kind, socket: Socket, nonblocking: bool) -> Self {
        let mut state = Self::new(domain, kind);
        state.accepted = true;
        state.nonblocking.store(nonblocking, Relaxed);
        // A fresh OnceLock takes its first value.
        let _ = state.socket.set(socket);
        state
    }

    /// What an accepted connection takes over from its listener.
    pub fn inherit(&self, listener: &Self) {
        let copy = |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(&self.receive_timeout_ns, &listener.receive_timeout_ns);
        copy(&self.send_timeout_ns, &listener.send_timeout_ns);
        self.asked.copy(&listener.asked);
        let busy_poll_us = listener.busy_poll_us.load(Relaxed);
        self.busy_poll_us.store(busy_poll_us, Relaxed);
        // Plain loads and stores: the new one is nobody's yet.
        self.stamping
            .store(listener.stamping.load(Relaxed), Relaxed);
    }

    /// SO_BUSY_POLL: how long a call looks before it sleeps.
    pub fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.busy_poll_us.load(Relaxed).into())
    }

    /// How long poll and epoll look for it before they sleep: as its calls do, or as Linux's `net.core.busy_poll` says, if that is set.
    pub fn busy_poll_among_others(&self) -> Duration {
        match (self.busy_poll(), limits::busy_poll()) {
            (Duration::ZERO, _) => Duration::ZERO,
            (own, Duration::ZERO) => own,
            (_, all) => all,
        }
    }

    /// Sets SO_BUSY_POLL.
    pub fn set_busy_poll(&self, us: u32) {
        self.busy_poll_us.store(us, Relaxed); // stands for itself
        self.watch.busy_poll_changed();
    }

    /// Sets SO_INCOMING_CPU.
    pub fn set_incoming_cpu(&self, cpu: c_int) {
        let cpu = u64::from(cpu.cast_unsigned());
        self.incoming_cpu.store(cpu | 1 << 32, Relaxed); // stands for itself
    }

    /// SO_INCOMING_CPU, if it was set.
    pub fn incoming_cpu(&self) -> Option<c_int> {
        let word = self.incoming_cpu.load(Relaxed);
        let [a, b, c, d, is_set, ..] = word.to_le_bytes();
        (is_set != 0).then(|| c_int::from_le_bytes([a, b, c, d]))
    }

    /// SO_PRIORITY, or what the type of service made of it since.
    pub fn priority(&self) -> c_int {
        self.priority.load(Relaxed)
    }

    /// Sets SO_PRIORITY.
    pub fn set_priority(&self, priority: c_int) {
        self.priority.store(priority, Relaxed); // stands for itself
    }

    /// SO_RCVTIMEO; `None` waits for ever, no time not at all.
    pub fn receive_timeout(&self) -> Option<Duration> {
        timeout(&self.receive_timeout_ns)
    }

    /// SO_SNDTIMEO; `None` waits for ever.
    pub fn send_timeout(&self) -> Option<Duration> {
        timeout(&self.send_timeout_ns)
    }

    /// Sets SO_RCVTIMEO.
    pub fn set_receive_timeout(&self, value: Option<Duration>) {
        self.receive_timeout_ns.store(nanoseconds(value), Relaxed);
    }

    /// Sets SO_SNDTIMEO.
    pub fn set_send_timeout(&self, value: Option<Duration>) {
        self.send_timeout_ns.store(nanoseconds(value), Relaxed);
    }

    /// Enters `waker` among those that close wakes; false if it is closed already.
    pub fn enter(&self, waker: &Waker) -> bool {
        let mut sleepers = self.sleepers.lock();
        sleepers.push(waker.clone());
        !self.closed.load(SeqCst)
    }

    /// Takes `waker` out again.
    pub fn leave(&self, waker: &Waker) {
        let mut sleepers = self.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|other| other.will_wake(waker)) {
            sleepers.swap_remove(at);
        }
    }

    /// Whether a call waits for it.
    pub fn is_slept_at(&self) -> bool {
        !self.sleepers.lock().is_empty()
    }

    /// It listens or connects now: what waits for it looks again, since a socket that was nothing yet wakes nobody.
    pub fn changed(&self) {
        for waker in self.sleepers.lock().iter() {
            waker.wake_by_ref();
        }
        self.watch.look_again();
    }

    /// The last number is gone: wakes everybody who waits.
    fn close(&self) {
        self.closed.store(true, SeqCst);
        for waker in self.sleepers.lock().iter() {
            waker.wake_by_ref();
        }
    }
}

/// Not at all, in nanoseconds that no timeout has.
const NO_WAIT: u64 = u64::MAX;

fn timeout(ns: &AtomicU64) -> Option<Duration> {
    match ns.load(Relaxed) {
        0 => None,
        NO_WAIT => Some(Duration::ZERO),
        ns => Some(Duration::from_nanos(ns)),
    }
}

fn nanoseconds(value: Option<Duration>) -> u64 {
    match value {
        None => 0,
        Some(Duration::ZERO) => NO_WAIT,
        Some(value) => u64::try_from(value.as_nanos()).unwrap_or(NO_WAIT - 1),
    }
}

/// A decided socket, borrowed for one call.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// The number that was asked about.
    pub fd: RawFd,
    /// The record.
    pub state: &'a SocketState,
    /// netchan's socket in it.
    pub socket: &'a Socket,
}

/// What a number means to the calls that netchan serves.
enum Meaning {
    Kernel,
    /// Inherited from the parent process, where the stack is.
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
        if lifecycle::is_forked() {
            std::mem::forget(handle); // nothing of the parent's may be dropped here
            return Self::Orphan;
        }
        Self::Netchan(handle)
    }

    /// The record, if the stack is in this process; `None`, and `kernels` set, if the kernel serves the number.
    fn here(self, fd: RawFd, kernels: &Cell<bool>) -> std::io::Result<Option<Handle<SocketState>>> {
        match self {
            Self::Kernel => {
                kernels.set(true);
                Ok(None)
            }
            Self::Orphan => Err(lifecycle::orphan(fd)),
            Self::Netchan(handle) => Ok(Some(handle)),
        }
    }
}

/// Runs `call` on netchan's socket behind `fd`, at the C edge; `None` if `fd` is the kernel's. The call may wait: a cancellation point.
#[inline]
pub fn serve(fd: RawFd, call: impl FnMut(Live<'_>) -> std::io::Result<usize>) -> Option<isize> {
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
    // Of a call that waited while its number was closed EBADF is all there is to say, whatever that number is by now.
    let usual = matches!(
        code,
        libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EBADF
    );
    if (result < 0 && usual) || lifecycle::is_forked() || sys::is_socket(fd) {
        return false;
    }
    errno::unit(|| {
        descriptor::renewed(fd);
        Ok(())
    });
    errno::set(code);
    true
}

fn serve_waiting(
    fd: RawFd,
    mut call: impl FnMut(Live<'_>) -> std::io::Result<usize>,
) -> Option<isize> {
    let kernels = Cell::new(false);
    let served = || {
        let Some(handle) = Meaning::of(fd).here(fd, &kernels)? else {
            return Ok(0);
        };
        call(live(fd, &handle)?)
    };
    let result = errno::waiting(served);
    (!kernels.get()).then_some(result)
}

/// As [`serve`], for calls that return an int.
#[inline]
pub fn serve_int(
    fd: RawFd,
    call: impl FnMut(Live<'_>) -> std::io::Result<usize>,
) -> Option<libc::c_int> {
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
pub fn ask(
    fd: RawFd,
    call: impl FnOnce(Live<'_>) -> std::io::Result<usize>,
) -> Option<libc::c_int> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    let kernels = Cell::new(false);
    let result = errno::long(|| match Meaning::of(fd).here(fd, &kernels)? {
        Some(handle) => call(live(fd, &handle)?),
        None => Ok(0),
    });
    (!kernels.get()).then(|| int(result))
}

/// As [`ask`], for names. A child that asks for them is not about to serve: Python does when it ends, to say which socket was left open.
pub fn ask_name(
    fd: RawFd,
    call: impl FnOnce(Live<'_>) -> std::io::Result<usize>,
) -> Option<libc::c_int> {
    if is_orphan(fd) {
        return Some(errno::unit(|| errno::fail(libc::EBADF)));
    }
    ask(fd, call)
}

/// As [`ask`], but a socket of the parent process is the kernel's: for calls about the number rather than the socket.
#[inline]
pub fn ask_here(
    fd: RawFd,
    call: impl FnOnce(Live<'_>) -> std::io::Result<usize>,
) -> Option<libc::c_int> {
    if SOCKETS.is_vacant(fd) || lifecycle::is_forked() {
        return None;
    }
    ask(fd, call)
}

fn int(value: isize) -> libc::c_int {
    libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX)
}

fn live(fd: RawFd, handle: &Handle<SocketState>) -> std::io::Result<Live<'_>> {
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

/// Whether `fd` is a socket of the parent process, where the stack is.
pub fn is_orphan(fd: RawFd) -> bool {
    lifecycle::is_forked() && matches!(Meaning::of(fd), Meaning::Orphan)
}

/// In a forked child, which would use `fd`: lets the parent know.
pub fn tell_parent(fd: RawFd) {
    if let Some(handle) = SOCKETS.get(fd) {
        if handle.socket.get().is_some() {
            handle.name.tell();
        }
        std::mem::forget(handle);
    }
}

/// In a forked child: what its calls about `fd`, a socket of its parent or an instance with such, were answered.
pub fn with_answers<T>(fd: RawFd, ask: impl FnOnce(&forked::Answers) -> T) -> Option<T> {
    if let Some(handle) = SOCKETS.get(fd) {
        let answer = ask(&handle.name.answers);
        std::mem::forget(handle);
        return Some(answer);
    }
    epoll::with_answers(fd, ask)
}

/// Whether a call about `fd` must look closer: netchan serves it, or the parent of this process did.
pub fn is_ours(fd: RawFd) -> bool {
    !SOCKETS.is_vacant(fd) && !matches!(Meaning::of(fd), Meaning::Kernel)
}

/// Ends what a number meant: with the last one, waiting threads are woken and epoll forgets it.
pub fn forget_number(fd: RawFd, removed: Removed<SocketState>) {
    if lifecycle::is_forked() {
        std::mem::forget(removed.handle);
        return;
    }
    epoll::forget_number(fd, &removed.handle);
    if removed.last {
        linger(&removed.handle);
        removed.handle.close();
    }
}

/// SO_LINGER: close waits until the peer has everything, the FIN as well, or for the time set; in Linux also where the socket is non-blocking.
fn linger(state: &SocketState) {
    let Some(socket) = state.socket.get() else {
        return;
    };
    if state.kind != Kind::Stream {
        return;
    }
    let Ok(SocketOption::Linger(Some(limit))) = socket.option(SocketOption::Linger(None)) else {
        return;
    };
    // What is unread makes the close a reset, which nothing answers.
    if limit.is_zero() || socket.available() > 0 {
        return;
    }
    if socket.shutdown(std::net::Shutdown::Write).is_ok() {
        crate::wait::until_closed(socket, limit);
    }
}
