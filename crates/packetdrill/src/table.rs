//! The C edge: the table of functions that packetdrill calls, in the order in which it declares them.
//!
//! Socket calls go to the functions that `netchan-preload` exports under their own names; what is here is time, packets, and the start.

use std::{
    ffi::{CStr, c_char, c_longlong},
    io, ptr, slice,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use libc::{
    c_int, c_uint, c_ulong, c_void, epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr,
    socklen_t, ssize_t, timeval,
};
use netchan::{Clock, Net};
use netchan_preload::{
    driver::{self, Driver},
    export::{descriptors, endpoints, transfers, waiting},
};
use proto::time::{Duration, Instant};

use crate::{
    settings::{Rest, Settings},
    turns,
    world::World,
};

/// Longest time, in virtual seconds, that the first thread waits for a packet or for a call of its own to come back.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long, in real time, packetdrill's second thread is given to put away the result of a call.
const ROOM: std::time::Duration = std::time::Duration::from_millis(2);
/// What asking for the time costs.
const LOOK: Duration = Duration::from_micros(1);

static CLOCK: OnceLock<Clock> = OnceLock::new();
static WORLD: OnceLock<World> = OnceLock::new();
static FLAGS: Mutex<String> = Mutex::new(String::new());
/// What was set so far, and where more may come from.
static LATER: Mutex<Option<(Settings, Rest)>> = Mutex::new(None);

fn clock() -> &'static Clock {
    CLOCK.get_or_init(Clock::new_virtual)
}

/// Says why on stderr and ends the process with status 1: the interface has no way to say that nothing will ever come.
fn give_up(why: &str) -> ! {
    eprintln!("netchan: {why}, at {:?} of virtual time", elapsed());
    // SAFETY: ends the process.
    unsafe { libc::_exit(1) }
}

fn elapsed() -> Duration {
    clock().now().since(Instant::ZERO)
}

/// Starts the stack, when the script makes its first socket netchan's: its first settings are made by then.
fn start() -> io::Result<Net> {
    let flags = FLAGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (settings, rest) = Settings::read(&flags)?;
    let world = World::start(&settings, clock().clone())?;
    let net = world.net().clone();
    *LATER.lock().unwrap_or_else(PoisonError::into_inner) = rest.map(|rest| (settings, rest));
    let _ = WORLD.set(world); // started once: netchan-preload sees to that
    Ok(net)
}

/// Tells the stack what the script has set since it was last looked at.
fn follow_settings() {
    let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some((settings, rest)), Some(world)) = (later.as_mut(), WORLD.get()) else {
        return;
    };
    settings.forget_peers = false;
    let changed = match rest.take(settings) {
        Ok(true) => world.change(settings),
        Ok(false) => return,
        Err(e) => Err(e),
    };
    if let Err(e) = changed {
        give_up(&format!("the script's settings: {e}"));
    }
}

/// A call of the script's.
fn called<T>(call: impl FnOnce() -> T) -> T {
    follow_settings();
    turns::inside(call)
}

/// Lets time pass until `at`.
fn advance_to(at: Instant) {
    match WORLD.get() {
        Some(world) => world.advance_to(at),
        None => clock().advance_to(at),
    }
    turns::moved();
}

/// A blocking call waits: on the first thread for time alone, on others for whatever the first one does.
fn wait(fds: &mut [pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    if !turns::is_first() {
        if timeout.is_none_or(|timeout| !timeout.is_zero()) && !turns::await_move() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        return Ok(kernels(fds));
    }
    turns::settle();
    let now = clock().now();
    let deadline = timeout.map(|timeout| now + timeout);
    let due = WORLD.get().and_then(World::next_event);
    match due.into_iter().chain(deadline).min() {
        Some(next) if elapsed() < PATIENCE => advance_to(next.max(now + LOOK)),
        _ => give_up("a call waits for what nothing will bring"),
    }
    Ok(kernels(fds))
}

/// How many of the kernel's descriptors are ready.
fn kernels(fds: &mut [pollfd]) -> usize {
    let count = nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: `fds` is writable for its length; it does not wait.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), count, 0) };
    usize::try_from(ready).unwrap_or(0)
}

/// packetdrill's table. Every function takes `userdata` first, which is not used: one process, one stack.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)] // each is the function of its name
pub struct Interface {
    pub userdata: *mut c_void,
    pub free: extern "C" fn(User),
    pub socket: extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: extern "C" fn(User, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    pub readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    pub writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        User,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(User, c_int, c_int, usize) -> c_int,
    pub ioctl: unsafe extern "C" fn(User, c_int, c_ulong, usize) -> c_int,
    pub close: extern "C" fn(User, c_int) -> c_int,
    pub shutdown: extern "C" fn(User, c_int, c_int) -> c_int,
    pub getsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(User, *const c_void, size_t) -> c_int,
    pub netdev_receive:
        unsafe extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: extern "C" fn(User, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: extern "C" fn(User, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    pub splice:
        unsafe extern "C" fn(User, c_int, *mut i64, c_int, *mut i64, size_t, c_uint) -> ssize_t,
}

/// What packetdrill hands back with each call.
type User = *mut c_void;

/// Fills in the table.
///
/// # Safety
/// `flags` must be a C string or NULL, `interface` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    if !flags.is_null() {
        // SAFETY: not NULL; the caller vouches for the rest.
        let text = unsafe { CStr::from_ptr(flags) };
        *FLAGS.lock().unwrap_or_else(PoisonError::into_inner) = text.to_string_lossy().into_owned();
    }
    turns::begin();
    driver::install(Driver {
        start,
        now: elapsed,
        wait,
    });
    // SAFETY: the caller's.
    unsafe { interface.write(TABLE) };
}

const TABLE: Interface = Interface {
    userdata: ptr::null_mut(),
    free,
    socket,
    bind,
    listen,
    accept,
    connect,
    read,
    readv,
    recv,
    recvfrom,
    recvmsg,
    write,
    writev,
    send,
    sendto,
    sendmsg,
    fcntl,
    ioctl,
    close,
    shutdown,
    getsockopt,
    setsockopt,
    poll,
    netdev_send,
    netdev_receive,
    usleep,
    gettimeofday,
    epoll_create,
    epoll_ctl,
    epoll_wait,
    pipe,
    splice,
};

extern "C" fn free(_: User) {}

extern "C" fn socket(_: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: numbers only.
    called(|| unsafe { endpoints::socket(domain, kind, protocol) })
}

unsafe extern "C" fn bind(_: User, fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { endpoints::bind(fd, address, len) })
}

extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: numbers only.
    called(|| unsafe { endpoints::listen(fd, backlog) })
}

unsafe extern "C" fn accept(
    _: User,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { endpoints::accept(fd, address, len) })
}

unsafe extern "C" fn connect(
    _: User,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { endpoints::connect(fd, address, len) })
}

unsafe extern "C" fn read(_: User, fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::read(fd, buffer, len) })
}

unsafe extern "C" fn readv(_: User, fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::readv(fd, vectors, count) })
}

unsafe extern "C" fn recv(
    _: User,
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::recv(fd, buffer, len, flags) })
}

unsafe extern "C" fn recvfrom(
    _: User,
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::recvfrom(fd, buffer, len, flags, from, from_len) })
}

unsafe extern "C" fn recvmsg(_: User, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::recvmsg(fd, message, flags) })
}

unsafe extern "C" fn write(_: User, fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::write(fd, buffer, len) })
}

unsafe extern "C" fn writev(_: User, fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::writev(fd, vectors, count) })
}

unsafe extern "C" fn send(
    _: User,
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::send(fd, buffer, len, flags) })
}

unsafe extern "C" fn sendto(
    _: User,
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::sendto(fd, buffer, len, flags, to, to_len) })
}

unsafe extern "C" fn sendmsg(_: User, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's.
    called(|| unsafe { transfers::sendmsg(fd, message, flags) })
}

unsafe extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { descriptors::fcntl(fd, command, argument) })
}

unsafe extern "C" fn ioctl(_: User, fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { descriptors::ioctl(fd, request, argument) })
}

extern "C" fn close(_: User, fd: c_int) -> c_int {
    // SAFETY: numbers only.
    called(|| unsafe { descriptors::close(fd) })
}

extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    // SAFETY: numbers only.
    called(|| unsafe { endpoints::shutdown(fd, how) })
}

unsafe extern "C" fn getsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { endpoints::getsockopt(fd, level, name, value, len) })
}

unsafe extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { endpoints::setsockopt(fd, level, name, value, len) })
}

unsafe extern "C" fn poll(_: User, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { waiting::poll(fds, count, timeout) })
}

extern "C" fn epoll_create(_: User, size: c_int) -> c_int {
    // SAFETY: numbers only.
    called(|| unsafe { waiting::epoll_create(size) })
}

unsafe extern "C" fn epoll_ctl(
    _: User,
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { waiting::epoll_ctl(epfd, operation, fd, event) })
}

unsafe extern "C" fn epoll_wait(
    _: User,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { waiting::epoll_wait(epfd, events, max, timeout) })
}

unsafe extern "C" fn pipe(_: User, ends: *mut c_int) -> c_int {
    // SAFETY: the caller's.
    called(|| unsafe { libc::pipe(ends) })
}

unsafe extern "C" fn splice(
    _: User,
    input: c_int,
    input_offset: *mut i64,
    out: c_int,
    out_offset: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // packetdrill passes the addresses of its numbers: 0 is NULL in the script.
    let given = |offset: *mut i64| {
        // SAFETY: the caller's.
        let is_null = offset.is_null() || unsafe { offset.read() } == 0;
        if is_null { ptr::null_mut() } else { offset }
    };
    let (from, to) = (given(input_offset), given(out_offset));
    // SAFETY: the caller's.
    called(|| unsafe { transfers::splice(input, from, out, to, len, flags) })
}

unsafe extern "C" fn netdev_send(_: User, packet: *const c_void, len: size_t) -> c_int {
    turns::settle();
    follow_settings();
    let Some(world) = WORLD.get() else {
        return 0; // no stack is there to receive it
    };
    // SAFETY: the caller's.
    let bytes = unsafe { slice::from_raw_parts(packet.cast::<u8>(), len) };
    world.inject(bytes);
    turns::moved();
    0
}

unsafe extern "C" fn netdev_receive(
    _: User,
    buffer: *mut c_void,
    len: *mut size_t,
    time_us: *mut c_longlong,
) -> c_int {
    turns::settle();
    let Some(world) = WORLD.get() else {
        give_up("a packet is expected of a stack that was not started");
    };
    let limit = clock().now() + PATIENCE;
    let sent = loop {
        if let Some(sent) = world.take() {
            break sent;
        }
        if !world.advance_to_packet(limit) && !world.has_packet() {
            give_up("no packet comes");
        }
        turns::moved();
    };
    // SAFETY: the caller's.
    let room = unsafe { *len };
    let count = sent.bytes.len().min(room);
    // SAFETY: `buffer` has `*len` bytes.
    unsafe { ptr::copy_nonoverlapping(sent.bytes.as_ptr(), buffer.cast::<u8>(), count) };
    // SAFETY: the caller's.
    unsafe { *len = count };
    // SAFETY: the caller's.
    unsafe { *time_us = c_longlong::try_from(sent.at.0 / 1_000).unwrap_or(c_longlong::MAX) };
    0
}

extern "C" fn usleep(_: User, us: c_uint) -> c_int {
    turns::settle();
    if turns::took_result() {
        thread::sleep(ROOM);
    }
    let at = clock().now() + Duration::from_micros(us.into());
    // Step by step: a thread that waits may have something to do at each.
    while let Some(world) = WORLD.get() {
        let now = clock().now();
        match world.next_event().filter(|due| *due < at) {
            Some(due) => advance_to(due.max(now + LOOK).min(at)),
            None => break,
        }
    }
    advance_to(at);
    0
}

unsafe extern "C" fn gettimeofday(_: User, time: *mut timeval, _: *mut c_void) -> c_int {
    let now = clock().now();
    let us = now.0 / 1_000;
    let value = timeval {
        tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        tv_usec: i64::try_from(us % 1_000_000).unwrap_or(0),
    };
    // SAFETY: the caller's.
    unsafe { time.write(value) };
    // Coming back from a call it is only a look; in any other place it is half of a loop that waits for a moment.
    if !turns::paid() {
        turns::settle();
        advance_to(clock().now() + LOOK);
    }
    0
}
