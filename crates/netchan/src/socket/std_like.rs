//! Blocking sockets as in `std::net`: same names, same semantics, same error kinds.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use percore::lock::{Mutex, mutex};
use proto::time::Instant;

use super::{
    DatagramInfo, Domain, Kind, Readiness, ReceiveFlags, ReceivedError, SendInfo, Socket,
    SocketOption, Waiter,
};
use crate::{net::Net, stack::Stack};

use std::cell::RefCell;

thread_local! {
    /// This thread's waiter, for the stack it last waited on.
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Whether this thread has waited on `stack` before, and on no other since.
fn has_waiter(stack: &Arc<Stack>) -> bool {
    WAITER.with_borrow(|kept| (kept.as_ref()).is_some_and(|w| Arc::ptr_eq(w.stack(), stack)))
}

/// Runs `f` with this thread's waiter on `stack`.
fn with_waiter<R>(
    stack: &Arc<Stack>,
    f: impl FnOnce(&mut Waiter) -> io::Result<R>,
) -> io::Result<R> {
    let kept = WAITER
        .take()
        .filter(|waiter| Arc::ptr_eq(waiter.stack(), stack));
    let mut waiter = match kept {
        Some(waiter) => waiter,
        None => Waiter::on(stack.clone())?,
    };
    let result = f(&mut waiter);
    WAITER.set(Some(waiter));
    result
}

/// Tries `call` until it does not say `WouldBlock`, and waits for `interest` in between.
fn block<R>(
    socket: &Socket,
    interest: Readiness,
    timeout: Option<Duration>,
    mut call: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    match call() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        done => return done,
    }
    let deadline = timeout.map(|t| socket.stack().clock.now() + t);
    with_waiter(socket.stack(), |waiter| {
        let result = loop {
            // Once more if it became ready since.
            if waiter.register(socket, interest) {
                match call() {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => break done,
                }
            }
            if let Err(e) = sleep(waiter, deadline) {
                break Err(e);
            }
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => break done,
            }
        };
        socket.deregister(waiter.waker());
        result
    })
}

/// The same for calls of a stream that register a waker themselves where they would block, and forget it where they do not: one turn of the
/// shard before the wait and one after it.
fn block_in_call<R>(
    socket: &Socket,
    timeout: Option<Duration>,
    mut call: impl FnMut(Option<&Waker>) -> io::Result<R>,
) -> io::Result<R> {
    let stack = socket.stack();
    // A thread that never waits needs no waiter.
    if !has_waiter(stack) {
        match call(None) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
    let mut deadline = None;
    with_waiter(stack, |waiter| {
        let error = loop {
            match call(Some(waiter.waker())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let end = |t| stack.clock.now() + t;
            deadline = deadline.or_else(|| timeout.map(end));
            waiter.expect(socket);
            if let Err(e) = sleep(waiter, deadline) {
                break e;
            }
        };
        socket.deregister(waiter.waker());
        Err(error)
    })
}

/// Sleeps until the waker is woken. `WouldBlock` after `deadline`: as in std::net on Unix, the kind of EAGAIN.
fn sleep(waiter: &mut Waiter, deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|d| d.since(waiter.stack().clock.now()));
    if left == Some(Duration::ZERO) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    match waiter.wait(&mut [], left) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// What a blocking socket keeps beside the socket.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    nonblocking: bool,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

struct Shared {
    socket: Socket,
    settings: Mutex<Settings>,
}

impl Shared {
    fn new(socket: Socket) -> Arc<Self> {
        Arc::new(Self {
            socket,
            settings: mutex(&crate::locks::SETTINGS, Settings::default()),
        })
    }

    fn read<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let settings = *self.settings.lock();
        self.call(
            Readiness::READABLE,
            settings.nonblocking,
            settings.read_timeout,
            call,
        )
    }

    fn write<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let settings = *self.settings.lock();
        self.call(
            Readiness::WRITABLE,
            settings.nonblocking,
            settings.write_timeout,
            call,
        )
    }

    fn call<R>(
        &self,
        interest: Readiness,
        nonblocking: bool,
        timeout: Option<Duration>,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        if nonblocking {
            call()
        } else {
            block(&self.socket, interest, timeout, call)
        }
    }
}

fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    if timeout == Some(Duration::ZERO) {
        return Err(crate::errno::invalid(
            "a timeout of zero would never wait: use None or set_nonblocking",
        ));
    }
    Ok(timeout)
}

/// A TCP connection, as `std::net::TcpStream`. Clones are handles to one connection.
#[derive(Clone)]
pub struct TcpStream(Arc<Shared>);

impl TcpStream {
    pub(crate) fn connect(
        net: &Net,
        address: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        let socket = Socket::new(net, domain, Kind::Stream)?;
        let in_progress = |e: io::Error| match e.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EALREADY) => io::ErrorKind::WouldBlock.into(),
            _ => e,
        };
        let result = block(&socket, Readiness::WRITABLE, timeout, || {
            socket.connect(address).map_err(in_progress)
        });
        match result {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            Err(e) => Err(e),
            Ok(()) => Ok(Self(Shared::new(socket))),
        }
    }

    /// The socket underneath (async, options).
    pub fn socket(&self) -> &Socket {
        &self.0.socket
    }

    /// Another handle to the same connection.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Address and port of the peer.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.peer_address()
    }

    /// Our address and port.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.socket.local_address())
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.socket.shutdown(how)
    }

    /// Reads without taking.
    ///
    /// # Errors
    /// As for reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        self.receive(&mut [IoSliceMut::new(buf)], flags)
    }

    fn receive(&self, bufs: &mut [IoSliceMut<'_>], flags: ReceiveFlags) -> io::Result<usize> {
        let (socket, settings) = (&self.0.socket, *self.0.settings.lock());
        let flags = ReceiveFlags {
            enough: !settings.nonblocking,
            ..flags
        };
        let mut call = |waker: Option<&Waker>| match waker {
            Some(waker) => socket.receive_or_wait(bufs, flags, waker),
            None => socket.receive(bufs, flags).map(|received| received.len),
        };
        if settings.nonblocking {
            return call(None);
        }
        let received = block_in_call(socket, settings.read_timeout, call);
        match received {
            // Less than SO_RCVLOWAT in all this time: what there is.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && flags.enough => {
                let flags = ReceiveFlags {
                    enough: false,
                    ..flags
                };
                socket.receive(bufs, flags).map(|received| received.len)
            }
            received => received,
        }
    }

    fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let (socket, settings) = (&self.0.socket, *self.0.settings.lock());
        let call = |waker: Option<&Waker>| match waker {
            Some(waker) => socket.send_or_wait(bufs, waker),
            None => socket.send(bufs, None),
        };
        if settings.nonblocking {
            return call(None);
        }
        block_in_call(socket, settings.write_timeout, call)
    }

    /// How long a read waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.settings.lock().read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long a write waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.settings.lock().write_timeout = checked(timeout)?;
        Ok(())
    }

    /// Calls do not wait.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.settings.lock().nonblocking = nonblocking;
        Ok(())
    }

    /// TCP_NODELAY: small segments do not wait for company.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.socket.set_option(SocketOption::NoDelay(nodelay))
    }

    /// SO_ERROR.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.socket.take_error())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(buf)], ReceiveFlags::default())
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive(bufs, ReceiveFlags::default())
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(buf)])
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(bufs)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TCP listener, as `std::net::TcpListener`.
#[derive(Clone)]
pub struct TcpListener(Arc<Shared>);

impl TcpListener {
    pub(crate) fn bind(net: &Net, address: SocketAddr, backlog: usize) -> io::Result<Self> {
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        let socket = Socket::new(net, domain, Kind::Stream)?;
        // As std::net on Unix: a server can start again while its old connections are in TIME-WAIT.
        socket.set_option(SocketOption::ReuseAddress(true))?;
        socket.bind(address)?;
        socket.listen(backlog)?;
        Ok(Self(Shared::new(socket)))
    }

    /// The socket underneath.
    pub fn socket(&self) -> &Socket {
        &self.0.socket
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// `WouldBlock` when it is non-blocking and there is none.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, from) = self.0.read(|| self.0.socket.accept())?;
        Ok((TcpStream(Shared::new(socket)), from))
    }

    /// Connections as they come, for ever.
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Address and port.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.socket.local_address())
    }

    /// Calls do not wait.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.settings.lock().nonblocking = nonblocking;
        Ok(())
    }
}

/// Connections of a listener, as they come.
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

/// A UDP socket, as `std::net::UdpSocket`.
#[derive(Clone)]
pub struct UdpSocket(Arc<Shared>);

impl UdpSocket {
    pub(crate) fn bind(net: &Net, address: SocketAddr) -> io::Result<Self> {
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        let socket = Socket::new(net, domain, Kind::Datagram)?;
        socket.bind(address)?;
        Ok(Self::from_socket(socket))
    }

    /// Of a datagram socket that got its options (SO_REUSEADDR, say) before it was bound.
    pub fn from_socket(socket: Socket) -> Self {
        Self(Shared::new(socket))
    }

    /// The socket underneath.
    pub fn socket(&self) -> &Socket {
        &self.0.socket
    }

    /// Only this peer is heard and sent to.
    ///
    /// # Errors
    /// ENETUNREACH.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.0.socket.connect(peer)
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    /// EDESTADDRREQ, EMSGSIZE, what an ICMP error said.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0
            .write(|| self.0.socket.send(&[IoSlice::new(buf)], None))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// EMSGSIZE, ENETUNREACH, what an ICMP error said.
    pub fn send_to(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.0
            .write(|| self.0.socket.send(&[IoSlice::new(buf)], Some(to)))
    }

    /// Sends `buf` to `to` (or to the peer) as datagrams of `segment` bytes each, of which the last one may be shorter: up to 128 of them, 64 KiB
    /// in all (UDP_SEGMENT). All of them go, or none.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to); `InvalidInput` for too many, EMSGSIZE where one would have to be fragmented.
    pub fn send_segmented(
        &self,
        buf: &[u8],
        segment: u16,
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let info = SendInfo::segmented(segment);
        self.0
            .write(|| self.0.socket.send_message(&[IoSlice::new(buf)], to, &info))
    }

    /// Receives a datagram (several of one size with [`UdpOption::Merge`](super::UdpOption)), where it came from, and what else is known of
    /// it.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_with_info(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr, DatagramInfo)> {
        let received = self.0.read(|| {
            self.0
                .socket
                .receive(&mut [IoSliceMut::new(buf)], ReceiveFlags::default())
        })?;
        match (received.from, received.info) {
            (Some(from), Some(info)) => Ok((received.len, from, info)),
            _ => Err(crate::errno::error(libc::ENOTCONN)),
        }
    }

    /// Takes the oldest error that was kept ([`UdpOption::ReceiveErrors`](super::UdpOption)), and in `buf` what the datagram carried. Never
    /// waits.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn recv_error(&self, buf: &mut [u8]) -> io::Result<ReceivedError> {
        self.0.socket.receive_error(&mut [IoSliceMut::new(buf)])
    }

    /// Receives a datagram; what does not fit is lost.
    ///
    /// # Errors
    /// `WouldBlock` after the read timeout, what an ICMP error said.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(buf)?.0)
    }

    /// Receives a datagram and where it came from.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.0.read(|| {
            self.0
                .socket
                .receive(&mut [IoSliceMut::new(buf)], ReceiveFlags::default())
        })?;
        let from = received
            .from
            .ok_or_else(|| crate::errno::error(libc::ENOTCONN))?;
        Ok((received.len, from))
    }

    /// Address and port.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.socket.local_address())
    }

    /// How long a receive waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.settings.lock().read_timeout = checked(timeout)?;
        Ok(())
    }

    /// Calls do not wait.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.settings.lock().nonblocking = nonblocking;
        Ok(())
    }
}
