//! A TCP listener, as `std::net::TcpListener`.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use super::{Shared, TcpStream, domain_of};
use crate::{
    api::Kind,
    net::Net,
    socket::{Socket, SocketOption},
};

/// A TCP listener, as `std::net::TcpListener`.
#[derive(Clone)]
pub struct TcpListener(Arc<Shared>);

impl TcpListener {
    pub(crate) fn bind(net: &Net, address: SocketAddr, backlog: usize) -> io::Result<Self> {
        let socket = Socket::new(net, domain_of(address), Kind::Stream)?;
        // As std::net on Unix: a server can start again while its old connections are in TIME-WAIT.
        socket.set_option(SocketOption::ReuseAddress(true))?;
        socket.bind(address)?;
        socket.listen(backlog)?;
        Ok(Self(Shared::new(socket)))
    }

    /// Of a socket of kind [`Kind::Stream`] that listens: with options that were set before, as SO_REUSEPORT has to be.
    pub fn from_socket(socket: Socket) -> Self {
        Self(Shared::new(socket))
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

    /// Another handle to the same listener.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// IP_TTL, IPV6_UNICAST_HOPS of connections that are accepted.
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

    /// Calls do not wait.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.settings.lock().nonblocking = nonblocking;
        Ok(())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("local", &self.local_addr().ok())
            .finish()
    }
}

/// Connections of a listener, as they come.
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
