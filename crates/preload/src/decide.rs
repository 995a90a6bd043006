//! Where it is decided which stack serves a socket (C7): before bind, connect, listen, and a datagram to an address.

use std::{
    io,
    os::fd::RawFd,
    sync::{OnceLock, atomic::Ordering::Relaxed},
};

use libc::{c_int, sockaddr, socklen_t};
use netchan::{
    environment::Kernels,
    socket::{Domain, Kind, Socket, SocketOption, options::Setting},
};

use crate::{
    address::{self, FAMILY, Given},
    anew, buffers, driver, epoll,
    errno::{self, fail},
    fork, instances, notices, numbers, process, real, start,
    state::{SOCKETS, SocketState, Undecided},
    sys,
    table::Handle,
};

/// What stays with the kernel.
fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let read = Kernels::read(&process::variable);
        let kernels = read.unwrap_or_else(|error| notices::give_up(&error.to_string()));
        match driver::driver() {
            Some(_) => kernels.with_loopback(), // a driver's stack has none
            None => kernels,
        }
    })
}

/// The kernel made `fd`: watch it until it is decided. Out of the table's range it stays the kernel's.
pub fn created(fd: RawFd, domain: Domain, kind: Kind) -> io::Result<()> {
    fork::claim()?;
    numbers::renewed(fd);
    let _ = SOCKETS.insert(fd, &SOCKETS.create(SocketState::new(domain, kind)));
    Ok(())
}

/// A number for a ping socket that the kernel does not allow (`net.ipv4.ping_group_range`): what that says is about the kernel's stack, so
/// it is netchan's from the start. Behind the number lies a UDP socket that is never used.
pub fn ping_without_kernel(domain: Domain, flags: c_int) -> io::Result<c_int> {
    let family = address::family(domain);
    let kind = libc::SOCK_DGRAM | flags & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    // SAFETY: numbers only.
    let fd = unsafe { (real::SOCKET.get())(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    created(fd, domain, Kind::Ping)?;
    let taken = match open_question(fd) {
        Some(handle) => take_over(fd, &handle),
        None => fail(libc::EACCES), // out of the table's range
    };
    if let Err(error) = taken {
        numbers::close_ours(fd);
        return Err(error);
    }
    Ok(fd)
}

/// The record of `fd` while it is undecided or may still be handed back.
pub fn open_question(fd: RawFd) -> Option<Handle<SocketState>> {
    if SOCKETS.is_vacant(fd) || !is_own(fd) {
        return None;
    }
    let handle = SOCKETS.get(fd)?;
    (is_open(&handle) && !handle.is_inherited()).then_some(handle)
}

/// Whether `fd` may be this process's own, not only its parent's.
#[inline]
fn is_own(fd: RawFd) -> bool {
    !process::has_parents_sockets() || takes(fd) || !process::is_forked()
}

/// In a forked child: a socket that was made before the fork, and is nothing yet, is its own from now on, and so it is its parent's. The kernel's behind the number,
/// which both have, does not tell them of each other.
#[cold]
fn takes(fd: RawFd) -> bool {
    let is_nothing = |old: &Handle<SocketState>| old.is_inherited() && old.socket.get().is_none();
    let Some(old) = SOCKETS.get(fd).filter(is_nothing) else {
        return false;
    };
    if !anew::is_configured() {
        return false;
    }
    let own = SOCKETS.create(old.again());
    for number in SOCKETS.occupied(0, c_int::MAX) {
        let is_same = |other: Handle<SocketState>| other.address() == old.address();
        if SOCKETS.get(number).is_some_and(is_same) {
            let _ = SOCKETS.insert(number, &own); // it has a place there
        }
    }
    true
}

/// Whether this process has a stack, which is started now; without one the kernel keeps the socket.
fn has_stack(fd: RawFd, handle: &Handle<SocketState>) -> bool {
    let has_one = start::has_stack();
    if !has_one {
        leave_to_kernel(fd, handle);
    }
    has_one
}

fn is_open(handle: &SocketState) -> bool {
    handle.socket.get().is_none() || handle.returnable.load(Relaxed)
}

/// The kernel keeps the socket: its numbers are watched no more.
fn leave_to_kernel(fd: RawFd, handle: &Handle<SocketState>) {
    instances::handed_back(handle);
    if handle.numbers() == 1 {
        SOCKETS.remove(fd);
    } else {
        SOCKETS.remove_all(handle);
    }
}

/// netchan's socket takes the number over, with the options set so far.
pub fn take_over(fd: RawFd, handle: &Handle<SocketState>) -> io::Result<()> {
    let net = start::net();
    let settings = handle.undecided.lock();
    if handle.socket.get().is_some() {
        return Ok(()); // another thread was first
    }
    let socket = Socket::new(net, handle.domain, handle.kind)?;
    for setting in settings.iter() {
        // The kernel took it; what has no meaning here is listed as not supported.
        let _ = setting.apply(&socket);
        if let Undecided::Setting(Setting::Option(SocketOption::FastOpenConnect(on))) = setting {
            handle.fast_connect.store(*on, Relaxed);
        }
    }
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    handle
        .nonblocking
        .store(flags & libc::O_NONBLOCK != 0, Relaxed);
    let _ = handle.socket.set(socket); // the lock makes us the only one
    drop(settings);
    epoll::taken_over(handle);
    Ok(())
}

/// Before bind(2): decides. What the caller does next goes to the stack that then has the number.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn before_bind(fd: RawFd, pointer: *const sockaddr, len: socklen_t) -> io::Result<()> {
    let Some(handle) = open_question(fd).filter(|handle| handle.socket.get().is_none()) else {
        return Ok(());
    };
    if !has_stack(fd, &handle) {
        return Ok(());
    }
    // SAFETY: the caller's.
    match unsafe { address::read_bound(pointer, len, handle.domain) } {
        Ok(address) if kernels().leave_to(start::net(), address) => {
            take_over(fd, &handle)?;
            let open = handle.kind == Kind::Stream || address.port() == 0;
            handle
                .returnable
                .store(open && address.ip().is_unspecified(), Relaxed);
        }
        Ok(_) => leave_to_kernel(fd, &handle),
        Err(_) => {} // the kernel says what is wrong with it
    }
    Ok(())
}

/// A socket that is not decided is the kernel's from now on.
pub fn leave(fd: RawFd) {
    if let Some(handle) = open_question(fd).filter(|handle| handle.socket.get().is_none()) {
        leave_to_kernel(fd, &handle);
    }
}

/// Before connect(2), and before a datagram to an address: decides.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn before_peer(fd: RawFd, pointer: *const sockaddr, len: socklen_t) -> io::Result<()> {
    if SOCKETS.is_vacant(fd) || !is_own(fd) {
        return Ok(());
    }
    let handle = SOCKETS.get(fd);
    let is_asked = |handle: &Handle<SocketState>| {
        (is_open(handle) || handle.kind == Kind::Ping) && !handle.is_inherited()
    };
    let Some(handle) = handle.filter(is_asked) else {
        return Ok(());
    };
    if !has_stack(fd, &handle) {
        return Ok(());
    }
    // SAFETY: the caller's.
    let peer = match unsafe { address::read(pointer, len, handle.domain) } {
        Ok(Given::Inet(peer)) => peer,
        Ok(Given::Unspecified) => {
            forget_shutdown(&handle);
            return Ok(());
        }
        Err(wrong) if errno::code(&wrong) != libc::EFAULT && len >= FAMILY => {
            return without_peer(fd, &handle);
        }
        Err(_) => return Ok(()),
    };
    match (handle.socket.get(), kernels().has_peer(peer.ip())) {
        (None, true) => leave_to_kernel(fd, &handle),
        (None, false) => take_over(fd, &handle)?,
        // The kernel may have none for us: better than an echo request that nothing answers.
        (Some(_), true) if !is_open(&handle) => return fail(libc::ENETUNREACH),
        (Some(socket), true) => hand_back(fd, &handle, socket)?,
        (Some(_), false) => handle.returnable.store(false, Relaxed),
    }
    Ok(())
}

/// connect(2) with AF_UNSPEC of one that is the kernel's as yet: a stream that was shut is so no more.
fn forget_shutdown(handle: &Handle<SocketState>) {
    if handle.kind == Kind::Stream {
        let is_other = |done: &Undecided| !matches!(done, Undecided::Shutdown(_));
        handle.undecided.lock().retain(is_other);
    }
}

/// A datagram socket is sent from or connected without an address of use, and gets a port, as on Linux: netchan's, since a bind that
/// comes behind it must say so. Where a peer is the kernel's it is handed back.
fn without_peer(fd: RawFd, handle: &Handle<SocketState>) -> io::Result<()> {
    if handle.kind != Kind::Stream && handle.socket.get().is_none() && has_stack(fd, handle) {
        take_over(fd, handle)?;
        handle.returnable.store(true, Relaxed);
    }
    Ok(())
}

/// Before a send without a destination: of a datagram socket that is undecided.
pub fn before_unaddressed(fd: RawFd) -> io::Result<()> {
    match open_question(fd) {
        Some(handle) => without_peer(fd, &handle),
        None => Ok(()),
    }
}

/// As [`before_peer`], for sendto(2), which connects a stream only with MSG_FASTOPEN.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn before_datagram(
    fd: RawFd,
    pointer: *const sockaddr,
    len: socklen_t,
    flags: c_int,
) -> io::Result<()> {
    let connects = flags & libc::MSG_FASTOPEN != 0;
    if pointer.is_null()
        || SOCKETS
            .get(fd)
            .is_none_or(|handle| handle.kind == Kind::Stream && !connects)
    {
        return Ok(());
    }
    // SAFETY: the caller's.
    unsafe { before_peer(fd, pointer, len) }
}

/// As [`before_datagram`], for sendmsg(2).
///
/// # Safety
/// `message` must be a valid msghdr for sending, or NULL.
pub unsafe fn before_message(
    fd: RawFd,
    message: *const libc::msghdr,
    flags: c_int,
) -> io::Result<()> {
    if buffers::is_bad(message) {
        return Ok(()); // the call itself says so
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &*message };
    if message.msg_namelen == 0 {
        return Ok(()); // as Linux: no name
    }
    // SAFETY: the caller's.
    unsafe { before_datagram(fd, message.msg_name.cast(), message.msg_namelen, flags) }
}

/// A socket bound to a wildcard address wants a peer of the kernel's: binds the kernel's socket to the same port.
fn hand_back(fd: RawFd, handle: &Handle<SocketState>, socket: &Socket) -> io::Result<()> {
    let bound = socket.local_address();
    let mut raw = std::mem::MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let pointer = raw.as_mut_ptr().cast::<sockaddr>();
    let mut len = socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
    // SAFETY: room for any address.
    unsafe { address::write(bound, handle.domain, pointer, &raw mut len) }?;
    // SAFETY: written just now.
    if unsafe { (real::BIND.get())(fd, pointer, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    leave_to_kernel(fd, handle);
    Ok(())
}

/// Before listen(2) on an unbound socket: netchan gives it a port.
pub fn before_listen(fd: RawFd) -> io::Result<()> {
    let Some(handle) = open_question(fd) else {
        return Ok(());
    };
    handle.returnable.store(false, Relaxed);
    if handle.kind == Kind::Stream && has_stack(fd, &handle) {
        take_over(fd, &handle)
    } else {
        Ok(())
    }
}

/// Remembers a setting of a socket while it is undecided.
pub fn note_setting(fd: RawFd, setting: Undecided) {
    if !is_own(fd) {
        return;
    }
    if let Some(handle) = SOCKETS
        .get(fd)
        .filter(|handle| handle.socket.get().is_none() && !handle.is_inherited())
    {
        handle.undecided.lock().push(setting);
    }
}

/// Notes something else about a socket that is undecided.
pub fn note(fd: RawFd, change: impl FnOnce(&SocketState)) {
    if !is_own(fd) {
        return;
    }
    if let Some(handle) = SOCKETS.get(fd).filter(|handle| !handle.is_inherited()) {
        change(&handle);
    }
}
