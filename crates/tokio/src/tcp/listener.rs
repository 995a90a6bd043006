//! The listener.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::{SocketAddr, ToSocketAddrs},
    task::{Context, Poll},
};

use netchan::{
    Net,
    socket::{Readiness, Socket},
};

use super::{TcpSocket, TcpStream};
use crate::{addresses, direction::Direction};

/// Connections that wait to be accepted (std's figure is 128; ours is `netchan::TcpListener`'s).
const BACKLOG: u32 = 1024;

/// A TCP listener.
pub struct TcpListener {
    socket: Socket,
    accepting: Direction,
}

impl TcpListener {
    /// Listens on `address` (`"0.0.0.0:80"`, `"[::]:80"`, port 0 for any), with SO_REUSEADDR.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address, `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(net: &Net, address: impl ToSocketAddrs) -> io::Result<Self> {
        addresses::first_of(address, |address| {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4(net)?,
                SocketAddr::V6(_) => TcpSocket::new_v6(net)?,
            };
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        })
    }

    pub(super) fn of(socket: Socket) -> Self {
        Self {
            socket,
            accepting: Direction::new(Readiness::READABLE),
        }
    }

    /// Waits for a connection. Cancel-safe: a connection that was not taken stays in the queue.
    ///
    /// # Errors
    /// Those of accept(2).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Accepts in a hand-written future. One task at a time: the one that polled last is woken.
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

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("local", &self.local_addr().ok())
            .finish()
    }
}

/// As axum takes it: an accept that fails is tried again after a moment, as axum does with tokio's listener.
#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match Self::accept(self).await {
                Ok(accepted) => return accepted,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// Between two tries to accept.
#[cfg(feature = "axum")]
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
