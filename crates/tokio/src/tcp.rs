//! TCP: the listener, the stream and its halves.

use std::{
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, SocketOption},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::direction::Direction;

/// Connections that wait to be accepted (std's figure is 128; ours is `netchan::TcpListener`'s).
const BACKLOG: usize = 1024;

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

pub(crate) fn parse(address: &str) -> io::Result<SocketAddr> {
    address.parse().map_err(|_| {
        let message =
            format!("{address:?} is not an address with a port, like 0.0.0.0:80 or [::]:80");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// A TCP connection.
///
/// Dropping it closes it; what was written is still delivered.
pub struct TcpStream {
    shared: Shared,
}

impl TcpStream {
    /// Opens a connection from `net` to `address`.
    ///
    /// # Errors
    /// Those of connect(2): `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`, `AddrNotAvailable` …
    pub async fn connect(net: &Net, address: SocketAddr) -> io::Result<Self> {
        net.attend();
        let socket = Socket::new(net, domain_of(address), Kind::Stream)?;
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

    /// Both halves, to be moved into different tasks. The write half shuts its direction down when dropped.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let shared = Arc::new(self.shared);
        (
            OwnedReadHalf {
                shared: shared.clone(),
            },
            OwnedWriteHalf { shared },
        )
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shared.shutdown_write())
    }
}

/// The reading half of a [`TcpStream`].
pub struct OwnedReadHalf {
    shared: Arc<Shared>,
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.poll_read(cx, buf)
    }
}

/// The writing half of a [`TcpStream`]; dropped, it ends what we send.
pub struct OwnedWriteHalf {
    shared: Arc<Shared>,
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shared.shutdown_write())
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // An error means that there is no connection left to shut down.
        let _ = self.shared.shutdown_write();
    }
}

/// A TCP listener.
pub struct TcpListener {
    socket: Socket,
    accepting: Direction,
}

impl TcpListener {
    /// Listens on `address` (`"0.0.0.0:80"`, `"[::]:80"`, port 0 for any).
    ///
    /// # Errors
    /// `InvalidInput` for what is no address, `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(net: &Net, address: &str) -> io::Result<Self> {
        let address = parse(address)?;
        net.attend();
        let socket = Socket::new(net, domain_of(address), Kind::Stream)?;
        socket.set_option(SocketOption::ReuseAddress(true))?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?;
        Ok(Self {
            socket,
            accepting: Direction::new(Readiness::READABLE),
        })
    }

    /// Waits for a connection. Cancel-safe: a connection that nobody took stays in the queue.
    ///
    /// # Errors
    /// Those of accept(2).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The same for a hand-written future. One task at a time: the one that polled last is woken.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.accepting.poll(&self.socket, cx, Socket::accept);
        accepted.map_ok(|(socket, peer)| (TcpStream::from_socket(socket), peer))
    }

    /// The socket underneath.
    #[must_use]
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Our address.
    ///
    /// # Errors
    /// None today; a `Result` as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_address())
    }
}
