//! socket, bind, listen, connect, accept and names: where it is decided which stack serves a socket (C7).

use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr},
    os::fd::{AsRawFd, RawFd},
    sync::{OnceLock, atomic::Ordering::Relaxed},
};

use libc::{c_int, c_void, sockaddr, socklen_t};
use netchan::{
    own::Own,
    socket::{Domain, Kind, Readiness, Socket, SocketOption},
};

use crate::{
    address::{self, Given},
    buffers, descriptor, epoll,
    errno::{self, fail},
    lifecycle, multicast,
    options::{self, Setting, device},
    real,
    state::{Live, SOCKETS, SocketState},
    sys,
    table::Handle,
    wait,
};

/// What socket(2)'s arguments mean, if netchan can serve them.
pub fn kind_of(domain: c_int, kind: c_int, protocol: c_int) -> Option<(Domain, Kind)> {
    let domain = match domain {
        libc::AF_INET => Domain::V4,
        libc::AF_INET6 => Domain::V6,
        _ => return None,
    };
    let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    match (plain, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Some((domain, Kind::Stream)),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some((domain, Kind::Datagram)),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMP) if domain == Domain::V4 => {
            Some((domain, Kind::Ping))
        }
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6) if domain == Domain::V6 => {
            Some((domain, Kind::Ping))
        }
        _ => None,
    }
}

/// The kernel made `fd`: watch it until it is decided. Out of the table's range it stays the kernel's.
pub fn created(fd: RawFd, domain: Domain, kind: Kind) -> io::Result<()> {
    lifecycle::claim()?;
    descriptor::renewed(fd);
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
        descriptor::close_ours(fd);
        return Err(error);
    }
    Ok(fd)
}

/// The record of `fd` while it is undecided or may still be handed back.
fn open_question(fd: RawFd) -> Option<Handle<SocketState>> {
    if SOCKETS.is_vacant(fd) || lifecycle::is_forked() {
        return None;
    }
    SOCKETS.get(fd).filter(|handle| is_open(handle))
}

fn is_open(handle: &SocketState) -> bool {
    handle.socket.get().is_none() || handle.returnable.load(Relaxed)
}

/// The kernel keeps the socket: its numbers are watched no more.
fn leave_to_kernel(fd: RawFd, handle: &Handle<SocketState>) {
    epoll::handed_back(handle);
    if handle.numbers() == 1 {
        SOCKETS.remove(fd);
    } else {
        SOCKETS.remove_all(handle);
    }
}

/// netchan's socket takes the number over, with the options set so far.
fn take_over(fd: RawFd, handle: &Handle<SocketState>) -> io::Result<()> {
    let net = lifecycle::net();
    let settings = handle.undecided.lock();
    if handle.socket.get().is_some() {
        return Ok(()); // another thread was first
    }
    let socket = Socket::new(net, handle.domain, handle.kind)?;
    for setting in settings.iter() {
        // The kernel took it; what has no meaning here is listed as not supported.
        let _ = options::apply(&socket, *setting);
        if let Setting::Option(SocketOption::FastOpenConnect(on)) = setting {
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

/// Whether netchan can serve a socket bound to `address`: a wildcard, or an address of its own.
fn is_bindable(address: SocketAddr) -> bool {
    let ip = address::unmapped(address.ip());
    if lifecycle::is_kernels(ip) {
        return false;
    }
    let net = lifecycle::net();
    ip.is_unspecified() || ip.is_multicast() || net.is_local(ip) || net.is_broadcast(ip)
}

/// Before bind(2): decides. What the caller does next goes to whom the number then belongs.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn before_bind(fd: RawFd, pointer: *const sockaddr, len: socklen_t) -> io::Result<()> {
    let Some(handle) = open_question(fd).filter(|handle| handle.socket.get().is_none()) else {
        return Ok(());
    };
    // SAFETY: the caller's.
    match unsafe { address::read_bound(pointer, len, handle.domain) } {
        Ok(address) if is_bindable(address) => {
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

/// Before setsockopt(2): an option that names one of netchan's interfaces decides.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn before_option(
    fd: RawFd,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> io::Result<()> {
    let Some(handle) = open_question(fd) else {
        return Ok(());
    };
    // SAFETY: the caller's.
    let value = unsafe { buffers::readable(value, len as usize) };
    let to_link = device::decides(level, name, value.unwrap_or_default());
    if to_link {
        handle.returnable.store(false, Relaxed);
    }
    let is_open = handle.socket.get().is_none();
    if is_open && (to_link || multicast::decides(level, name, handle.kind)) {
        return take_over(fd, &handle);
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
    if SOCKETS.is_vacant(fd) || lifecycle::is_forked() {
        return Ok(());
    }
    let handle = SOCKETS.get(fd);
    let Some(handle) = handle.filter(|handle| is_open(handle) || handle.kind == Kind::Ping) else {
        return Ok(());
    };
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
    let kernels = match address::unmapped(peer.ip()) {
        // "This host" is whose 127.0.0.1 is.
        ip if ip.is_unspecified() => lifecycle::is_kernels(Ipv4Addr::LOCALHOST.into()),
        ip => lifecycle::is_kernels(ip),
    };
    match (handle.socket.get(), kernels) {
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
        let is_other = |setting: &Setting| !matches!(setting, Setting::Shutdown(_));
        handle.undecided.lock().retain(is_other);
    }
}

/// A datagram socket is sent from or connected without an address of use, and gets a port, as on Linux: netchan's, since a bind that
/// comes behind it must say so. Where a peer is the kernel's it is handed back.
fn without_peer(fd: RawFd, handle: &Handle<SocketState>) -> io::Result<()> {
    if handle.kind != Kind::Stream && handle.socket.get().is_none() {
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
    if handle.kind == Kind::Stream {
        take_over(fd, &handle)
    } else {
        Ok(())
    }
}

/// bind(2) on netchan's socket.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn bind(live: Live<'_>, pointer: *const sockaddr, len: socklen_t) -> io::Result<usize> {
    // SAFETY: the caller's.
    let address = unsafe { address::read_bound(pointer, len, live.state.domain) }?;
    live.socket.bind(address)?;
    live.state.changed();
    Ok(0)
}

/// listen(2) on netchan's socket.
pub fn listen(live: Live<'_>, backlog: c_int) -> io::Result<usize> {
    if live.state.kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    // Negative is "as many as allowed", as in Linux; the stack caps it.
    live.socket
        .listen(usize::try_from(backlog).unwrap_or(4096))?;
    live.state.changed();
    Ok(0)
}

/// Bytes of an address that say its family.
const FAMILY: socklen_t = 2;

/// connect(2) on netchan's socket.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn connect(
    live: Live<'_>,
    pointer: *const sockaddr,
    len: socklen_t,
) -> io::Result<usize> {
    let given = match live.state.kind {
        // SAFETY: the caller's.
        Kind::Stream => unsafe { address::read_own(pointer, len, live.state.domain) },
        // SAFETY: the caller's.
        Kind::Datagram | Kind::Ping => unsafe { address::read(pointer, len, live.state.domain) },
    };
    let peer = match given {
        Ok(Given::Inet(peer)) => peer,
        Ok(Given::Unspecified) => {
            live.socket.disconnect()?;
            live.state.changed();
            return Ok(0);
        }
        // As Linux: what it is comes before what the address is.
        Err(wrong) if errno::code(&wrong) != libc::EFAULT && len >= FAMILY => {
            return live
                .socket
                .connect_again()
                .unwrap_or(Err(wrong))
                .map(|()| 0);
        }
        Err(wrong) => return Err(wrong),
    };
    let first = live.socket.connect(peer);
    live.state.changed();
    let nonblocking = live.state.nonblocking.load(Relaxed);
    let under_way = match first {
        Err(error) if is_under_way(&error) && !nonblocking => error,
        result => return result.map(|()| 0),
    };
    let timeout = live.state.send_timeout();
    let waited = wait::until(live, Readiness::WRITABLE, false, timeout, || {
        match live.socket.connect(peer) {
            Err(error) if is_under_way(&error) => fail(libc::EAGAIN),
            result => result,
        }
    });
    match waited {
        // As Linux: SO_SNDTIMEO has passed, the connection goes on being made.
        Err(error) if errno::would_block(&error) => Err(under_way),
        // Another thread collected the success in between.
        Err(error) if errno::code(&error) == libc::EISCONN => Ok(0),
        result => result.map(|()| 0),
    }
}

pub fn is_under_way(error: &io::Error) -> bool {
    matches!(errno::code(error), libc::EINPROGRESS | libc::EALREADY)
}

/// A descriptor number for an accepted connection: a duplicate of one unconnected kernel socket.
fn placeholder(close_on_exec: bool) -> io::Result<RawFd> {
    static MODEL: OnceLock<Own> = OnceLock::new();
    let model = match MODEL.get() {
        Some(model) => model,
        None => {
            let made = sys::socket()?;
            MODEL.get_or_init(|| made)
        }
    };
    let command = if close_on_exec {
        libc::F_DUPFD_CLOEXEC
    } else {
        libc::F_DUPFD
    };
    sys::fcntl(model.as_raw_fd(), command, 0)
}

/// accept4(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn accept(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> io::Result<usize> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    if live.state.kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    let nonblocking = live.state.nonblocking.load(Relaxed);
    let timeout = live.state.receive_timeout();
    let accepted = wait::until(live, Readiness::READABLE, nonblocking, timeout, || {
        accept_one(live, flags)
    });
    live.state.watch.taken(live.socket);
    let (fd, peer) = accepted?;
    // SAFETY: the caller's.
    if let Err(error) = unsafe { address::write(peer, live.state.domain, pointer, len) } {
        descriptor::close_ours(fd);
        return Err(error);
    }
    Ok(usize::try_from(fd).unwrap_or(0))
}

/// One try: the number first where somebody waits, so that EMFILE loses no connection.
fn accept_one(live: Live<'_>, flags: c_int) -> io::Result<(RawFd, SocketAddr)> {
    if !live.socket.readiness().contains(Readiness::READABLE) {
        let (socket, peer) = live.socket.accept()?; // says why not, or was just in time
        return Ok((
            number(live, socket, placeholder(wants_close(flags))?, flags)?,
            peer,
        ));
    }
    let fd = placeholder(wants_close(flags))?;
    match live.socket.accept() {
        Ok((socket, peer)) => Ok((number(live, socket, fd, flags)?, peer)),
        Err(error) => {
            let _ = sys::close(fd);
            Err(error)
        }
    }
}

fn wants_close(flags: c_int) -> bool {
    flags & libc::SOCK_CLOEXEC != 0
}

/// Lets `fd` lead to an accepted connection.
fn number(live: Live<'_>, socket: Socket, fd: RawFd, flags: c_int) -> io::Result<RawFd> {
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let state = SocketState::decided(live.state.domain, Kind::Stream, socket, nonblocking);
    state.inherit(live.state);
    descriptor::renewed(fd);
    if SOCKETS.insert(fd, &SOCKETS.create(state)).is_err() {
        let _ = sys::close(fd);
        return fail(libc::EMFILE); // beyond the table
    }
    Ok(fd)
}

/// getsockname(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn local_name(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<usize> {
    if pointer.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    unsafe { address::write(live.socket.local_address(), live.state.domain, pointer, len) }?;
    Ok(0)
}

/// getpeername(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn peer_name(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<usize> {
    let peer = live.socket.peer_address()?;
    if pointer.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    unsafe { address::write(peer, live.state.domain, pointer, len) }?;
    Ok(0)
}

/// What shutdown(2) is asked for.
fn how(how: c_int) -> Option<Shutdown> {
    Some(match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return None,
    })
}

/// shutdown(2) on netchan's socket.
pub fn shutdown(live: Live<'_>, wanted: c_int) -> io::Result<usize> {
    let how = how(wanted).ok_or_else(|| errno::error(libc::EINVAL))?;
    let result = live.socket.shutdown(how).map(|()| 0);
    live.state.changed();
    result
}

/// shutdown(2) on one that is the kernel's as yet.
pub fn note_shutdown(fd: RawFd, wanted: c_int) {
    if let Some(how) = how(wanted) {
        descriptor::note_setting(fd, Setting::Shutdown(how));
    }
}
