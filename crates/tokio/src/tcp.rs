//! TCP: the stream, its halves, the listener, and the socket before it is either.

mod listener;
mod socket;
mod split;

use std::{
    fmt,
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr, ToSocketAddrs},
    sync::Arc,
    task::{Context, Poll},
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, SocketOption},
};
use tokio::io::ReadBuf;

pub use self::{
    listener::TcpListener,
    socket::TcpSocket,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf},
};
use crate::{addresses, direction::Direction};

/// A socket with a waiting place for each direction.
struct Shared {
    socket: Socket,
    reading: Direction,
    writing: Direction,
}

impl Shared {
    fn new(socket: Socket) -> Self {
        let reading = Direction::new(Readiness::READABLE | Readiness::READ_HANGUP);
        Self {
            socket,
            reading,
            writing: Direction::new(Readiness::WRITABLE),
        }
    }

    fn poll_read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let room = buf.initialize_unfilled();
        let done = self.reading.poll(&self.socket, cx, |socket| {
            socket.receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default())
        });
        done.map_ok(|received| buf.advance(received.len))
    }

    fn poll_write(&self, cx: &Context<'_>, buffers: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if buffers.iter().all(|b| b.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.writing
            .poll(&self.socket, cx, |socket| socket.send(buffers, None))
    }

    /// Our FIN follows what was written; a peer that is gone already has nothing to be told.
    fn shutdown_write(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        }
    }
}

fn domain_of(address: SocketAddr) -> Domain {
    if address.is_ipv4() {
        Domain::V4
    } else {
        Domain::V6
    }
}

/// A TCP connection.
///
/// Dropping it closes it; what was written is still delivered.
pub struct TcpStream {
    shared: Shared,
}

impl TcpStream {
    /// Opens a connection from `net`; of several addresses to the first that answers. A name is looked up as std does it, which blocks.
    ///
    /// # Errors
    /// Those of connect(2): `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`, `AddrNotAvailable` …
    pub async fn connect(net: &Net, address: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = addresses::none();
        for address in address.to_socket_addrs()? {
            let socket = Socket::new(net, domain_of(address), Kind::Stream)?;
            match Self::connect_by(net, socket, address).await {
                Err(error) => last = error,
                done => return done,
            }
        }
        Err(last)
    }

    async fn connect_by(net: &Net, socket: Socket, address: SocketAddr) -> io::Result<Self> {
        net.poll_in_background();
        let shared = Shared::new(socket);
        poll_fn(|cx| {
            shared
                .writing
                .poll(&shared.socket, cx, |socket| socket.connect(address))
        })
        .await?;
        Ok(Self { shared })
    }

    /// Wraps a connected stream socket.
    #[must_use]
    pub fn from_socket(socket: Socket) -> Self {
        Self {
            shared: Shared::new(socket),
        }
    }

    /// The socket underneath: options, facts, non-blocking calls.
    #[must_use]
    pub const fn socket(&self) -> &Socket {
        &self.shared.socket
    }

    /// Our address.
    ///
    /// # Errors
    /// None today; a `Result` as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket().local_address())
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket().peer_address()
    }

    /// `TCP_NODELAY`.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.socket().set_option(SocketOption::NoDelay(on))
    }

    /// Whether `TCP_NODELAY` is set.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn nodelay(&self) -> io::Result<bool> {
        let like = SocketOption::NoDelay(false);
        Ok(self.socket().option(like)? == SocketOption::NoDelay(true))
    }

    /// `SO_ERROR`.
    ///
    /// # Errors
    /// None today; a `Result` as in std.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.socket().take_error())
    }

    /// Waits for text and copies it without taking it; 0: the peer has ended its stream.
    ///
    /// # Errors
    /// Those of recv(2).
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        let (reading, socket) = (&self.shared.reading, self.socket());
        let peeked = poll_fn(|cx| {
            reading.poll(socket, cx, |socket| {
                socket.receive(&mut [IoSliceMut::new(buf)], flags)
            })
        });
        Ok(peeked.await?.len)
    }

    /// Waits until [`try_read`](Self::try_read) has something to say.
    ///
    /// # Errors
    /// None today; a `Result` as in tokio.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.shared.reading.ready(self.socket(), cx)).await;
        Ok(())
    }

    /// Waits until [`try_write`](Self::try_write) takes something.
    ///
    /// # Errors
    /// None today; a `Result` as in tokio.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.shared.writing.ready(self.socket(), cx)).await;
        Ok(())
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock` where there is nothing; those of recv(2).
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buffers = [IoSliceMut::new(buf)];
        let received = self
            .socket()
            .receive(&mut buffers, ReceiveFlags::default())?;
        Ok(received.len)
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `WouldBlock` where there is none; those of send(2).
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket().send(&[IoSlice::new(buf)], None)
    }

    /// Both halves, for one task.
    pub const fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(&self.shared), WriteHalf(&self.shared))
    }

    /// Both halves, to be moved into different tasks. The write half shuts its direction down when dropped.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let shared = Arc::new(self.shared);
        (OwnedReadHalf(shared.clone()), OwnedWriteHalf::new(shared))
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
