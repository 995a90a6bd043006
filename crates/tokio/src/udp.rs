//! UDP: one socket, many peers or one.

use std::{
    fmt,
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, ToSocketAddrs},
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Received, Socket},
};

use crate::{addresses, direction::Direction};

/// A UDP socket. One task may wait for each direction; of two that wait for the same, the later one is woken.
pub struct UdpSocket {
    socket: Socket,
    reading: Direction,
    writing: Direction,
}

impl UdpSocket {
    /// A socket bound to `address` (`"0.0.0.0:53"`, `"[::]:0"`).
    ///
    /// # Errors
    /// `InvalidInput` for what is no address, `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(net: &Net, address: impl ToSocketAddrs) -> io::Result<Self> {
        addresses::first_of(address, |address| Self::bind_to(net, address))
    }

    fn bind_to(net: &Net, address: SocketAddr) -> io::Result<Self> {
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        net.poll_in_background();
        let socket = Socket::new(net, domain, Kind::Datagram)?;
        socket.bind(address)?;
        let reading = Direction::new(Readiness::READABLE);
        Ok(Self {
            socket,
            reading,
            writing: Direction::new(Readiness::WRITABLE),
        })
    }

    /// Takes datagrams only from `address`, and sends there.
    ///
    /// # Errors
    /// Those of connect(2) on a datagram socket.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        addresses::first_of(address, |address| self.socket.connect(address))
    }

    /// Sends a datagram to the first of these addresses.
    ///
    /// # Errors
    /// Those of sendto(2); `InvalidInput` where there is no address.
    pub async fn send_to(&self, data: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.to_socket_addrs()?.next().ok_or_else(addresses::none)?;
        self.transmit(data, Some(to)).await
    }

    /// Waits until there is a datagram, or an error.
    ///
    /// # Errors
    /// None today; a `Result` as in tokio.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.reading.ready(&self.socket, cx)).await;
        Ok(())
    }

    /// Waits until a datagram can be sent.
    ///
    /// # Errors
    /// None today; a `Result` as in tokio.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.writing.ready(&self.socket, cx)).await;
        Ok(())
    }

    /// Sends a datagram to the connected peer, if there is room.
    ///
    /// # Errors
    /// `WouldBlock`; those of send(2).
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        self.socket.send(&[IoSlice::new(data)], None)
    }

    /// Sends a datagram to this address, if there is room.
    ///
    /// # Errors
    /// `WouldBlock`; those of sendto(2).
    pub fn try_send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send(&[IoSlice::new(data)], Some(to))
    }

    /// Receives a datagram, if there is one.
    ///
    /// # Errors
    /// `WouldBlock`; as [`recv_from`](Self::recv_from).
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut buffers = [IoSliceMut::new(buf)];
        let received = self.socket.receive(&mut buffers, ReceiveFlags::default())?;
        self.from(received)
    }

    fn from(&self, received: Received) -> io::Result<(usize, SocketAddr)> {
        match received.from {
            Some(from) => Ok((received.len, from)),
            None => Ok((received.len, self.socket.peer_address()?)),
        }
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// Those of send(2); `NotConnected` (EDESTADDRREQ) without a peer.
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.transmit(data, None).await
    }

    async fn transmit(&self, data: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        poll_fn(|cx| {
            self.writing.poll(&self.socket, cx, |socket| {
                socket.send(&[IoSlice::new(data)], to)
            })
        })
        .await
    }

    /// Receives a datagram; what does not fit into `buf` is lost. Returns its length in `buf` and the sender.
    ///
    /// # Errors
    /// Those of recvfrom(2), such as `ConnectionRefused` after an ICMP error on a connected socket.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(buf, ReceiveFlags::default()).await?;
        self.from(received)
    }

    /// Looks at a datagram that stays in the queue; otherwise as [`recv_from`](Self::recv_from).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        let received = self.receive(buf, flags).await?;
        self.from(received)
    }

    /// Receives a datagram from the connected peer.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.receive(buf, ReceiveFlags::default()).await?.len)
    }

    async fn receive(&self, buf: &mut [u8], flags: ReceiveFlags) -> io::Result<Received> {
        poll_fn(|cx| {
            self.reading.poll(&self.socket, cx, |socket| {
                socket.receive(&mut [IoSliceMut::new(buf)], flags)
            })
        })
        .await
    }

    /// The socket underneath.
    #[must_use]
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_address()
    }

    /// Our address.
    ///
    /// # Errors
    /// None today; a `Result` as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_address())
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
