//! A TCP connection, as `std::net::TcpStream`.

use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use super::{Shared, block, block_in_call, checked, domain_of};
use crate::{
    api::{Kind, Readiness, ReceiveFlags},
    net::Net,
    socket::{SendLease, Socket, SocketOption},
};

/// A TCP connection, as `std::net::TcpStream`. Clones are handles to one connection.
#[derive(Clone)]
pub struct TcpStream(pub(super) Arc<Shared>);

impl TcpStream {
    pub(crate) fn connect(
        net: &Net,
        address: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let socket = Socket::new(net, domain_of(address), Kind::Stream)?;
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

    /// Of a socket of kind [`Kind::Stream`] that is connected, or about to be.
    pub fn from_socket(socket: Socket) -> Self {
        Self(Shared::new(socket))
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

    /// Lends what has been received: shows it to `look`, segment by segment and in order, where it lies. Nothing is copied, and nothing is taken before
    /// [`consume`](Self::consume). Waits until there is something, as reading does. How many bytes there are; 0 is the end of the stream.
    ///
    /// `look` runs while the connection is held: it must call nothing of this stack, or waits for itself for ever.
    ///
    /// # Errors
    /// As for reading.
    ///
    /// ```
    /// # use std::io::Write;
    /// # let net = netchan::Net::builder().link("loop")?.address("10.0.0.1/24")?.start()?;
    /// # let listener = net.tcp().listen("10.0.0.1:7")?;
    /// # let mut client = net.tcp().connect("10.0.0.1:7")?;
    /// # client.write_all(b"one\ntwo")?;
    /// # let (stream, _) = listener.accept()?;
    /// let mut lines = 0;
    /// let seen = stream.peek_segments(|bytes| lines += bytes.iter().filter(|&&b| b == b'\n').count())?;
    /// assert_eq!((seen, lines), (7, 1));
    /// stream.consume(4)?; // "two" is left
    /// # let mut rest = [0; 8];
    /// # assert_eq!(std::io::Read::read(&mut &stream, &mut rest)?, 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peek_segments(&self, mut look: impl FnMut(&[u8]) + Send) -> io::Result<usize> {
        let (socket, settings) = (&self.0.socket, *self.0.settings.lock());
        if settings.nonblocking {
            return socket.peek_segments(look, None);
        }
        block_in_call(socket, settings.read_timeout, |waker| {
            socket.peek_segments(&mut look, waker)
        })
    }

    /// Takes at most `n` received bytes and copies none: those that [`peek_segments`](Self::peek_segments) has shown. How many; 0 is the end of the stream,
    /// unless `n` is 0.
    ///
    /// # Errors
    /// As for reading; `WouldBlock` where nothing has been received.
    pub fn consume(&self, n: usize) -> io::Result<usize> {
        self.0.socket.consume(n)
    }

    /// Lends room for what is to be sent next, at most `wanted` bytes (256 KiB at a time): memory of which the send queue is made. What is written there and
    /// [committed](Self::commit) is not copied into the queue as by `write`; only where the queue ends in the midst of a chunk of 64 KiB, the
    /// lesser of what stands there and what was written. Waits until there is room. Nothing is held meanwhile: the program may take its time.
    ///
    /// # Errors
    /// As for writing.
    ///
    /// ```
    /// # use std::io::Read;
    /// # let net = netchan::Net::builder().link("loop")?.address("10.0.0.1/24")?.start()?;
    /// # let listener = net.tcp().listen("10.0.0.1:7")?;
    /// # let client = net.tcp().connect("10.0.0.1:7")?;
    /// # let (mut stream, _) = listener.accept()?;
    /// let mut room = client.reserve(1 << 16)?;
    /// let mut filled = 0;
    /// for slice in room.slices_mut() {
    ///     filled += std::io::repeat(7).read(slice)?; // a file, say
    /// }
    /// client.commit(room, filled)?;
    /// # let mut text = vec![0; filled];
    /// # stream.read_exact(&mut text)?;
    /// # assert!(filled > 1000 && text == vec![7; filled]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reserve(&self, wanted: usize) -> io::Result<SendLease> {
        let (socket, settings) = (&self.0.socket, *self.0.settings.lock());
        if settings.nonblocking {
            return socket.reserve(wanted, None);
        }
        block_in_call(socket, settings.write_timeout, |waker| {
            socket.reserve(wanted, waker)
        })
    }

    /// Sends the first `n` bytes of what was written to a lease. How many: fewer than `n` only where other threads have sent meanwhile, or memory has
    /// become short; the rest is gone. Never waits.
    ///
    /// # Errors
    /// As for writing; then nothing of it is sent.
    pub fn commit(&self, lease: SendLease, n: usize) -> io::Result<usize> {
        self.0.socket.commit(lease, n)
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

    /// Whether TCP_NODELAY is set.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn nodelay(&self) -> io::Result<bool> {
        match self.0.socket.option(SocketOption::NoDelay(false))? {
            SocketOption::NoDelay(nodelay) => Ok(nodelay),
            _ => Ok(false),
        }
    }

    /// How long a read waits; `None`: for ever.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.settings.lock().read_timeout)
    }

    /// How long a write waits; `None`: for ever.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.settings.lock().write_timeout)
    }

    /// IP_TTL, IPV6_UNICAST_HOPS: hops that its packets go at most.
    ///
    /// # Errors
    /// `InvalidInput`: not 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set_ttl(ttl)
    }

    /// The same, as it is.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.ttl()
    }

    /// SO_ERROR.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.socket.take_error())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
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
