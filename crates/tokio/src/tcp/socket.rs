//! A socket that is no stream and no listener yet: what has to be set before.

use std::{fmt, io, net::SocketAddr};

use netchan::{
    Net,
    socket::{Domain, Kind, Socket, SocketOption},
};

use super::{TcpListener, TcpStream};

/// A TCP socket before it connects or listens, as tokio's.
pub struct TcpSocket {
    net: Net,
    socket: Socket,
}

impl TcpSocket {
    /// Of IPv4.
    ///
    /// # Errors
    /// The stack has no room.
    pub fn new_v4(net: &Net) -> io::Result<Self> {
        Self::new(net, Domain::V4)
    }

    /// Of IPv6.
    ///
    /// # Errors
    /// The stack has no room.
    pub fn new_v6(net: &Net) -> io::Result<Self> {
        Self::new(net, Domain::V6)
    }

    fn new(net: &Net, domain: Domain) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(net, domain, Kind::Stream)?,
            net: net.clone(),
        })
    }

    /// The socket underneath: more options.
    #[must_use]
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// `SO_REUSEADDR`.
    ///
    /// # Errors
    /// Those of setsockopt(2), here and below.
    pub fn set_reuseaddr(&self, on: bool) -> io::Result<()> {
        self.socket.set_option(SocketOption::ReuseAddress(on))
    }

    /// `SO_REUSEPORT`.
    ///
    /// # Errors
    /// As above.
    pub fn set_reuseport(&self, on: bool) -> io::Result<()> {
        self.socket.set_option(SocketOption::ReusePort(on))
    }

    /// `TCP_NODELAY`.
    ///
    /// # Errors
    /// As above.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.socket.set_option(SocketOption::NoDelay(on))
    }

    /// `SO_KEEPALIVE`.
    ///
    /// # Errors
    /// As above.
    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        self.socket.set_option(SocketOption::KeepAlive(on))
    }

    /// `SO_RCVBUF`, bytes.
    ///
    /// # Errors
    /// As above.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        let option = SocketOption::ReceiveBuffer(bytes as usize);
        self.socket.set_option(option)
    }

    /// `SO_SNDBUF`, bytes.
    ///
    /// # Errors
    /// As above.
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.socket
            .set_option(SocketOption::SendBuffer(bytes as usize))
    }

    /// Gives it an address of the stack's, and a port (0: any).
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        self.socket.bind(address)
    }

    /// Its address.
    ///
    /// # Errors
    /// None today; a `Result` as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_address())
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_by(&self.net, self.socket, address).await
    }

    /// Listens, with so many connections waiting to be accepted at most.
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.net.poll_in_background();
        self.socket.listen(backlog as usize)?;
        Ok(TcpListener::of(self.socket))
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSocket")
            .field("local", &self.local_addr().ok())
            .finish()
    }
}
