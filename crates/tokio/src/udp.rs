//! UDP: one socket, many peers or one.

use std::{
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Received, Socket},
};

use crate::{direction::Direction, tcp::parse};

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
    pub fn bind(net: &Net, address: &str) -> io::Result<Self> {
        let address = parse(address)?;
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        net.attend();
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
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        self.socket.connect(address)
    }

    /// Sends a datagram to `to`.
    ///
    /// # Errors
    /// Those of sendto(2).
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.transmit(data, Some(to)).await
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
        let received = self.receive(buf).await?;
        match received.from {
            Some(from) => Ok((received.len, from)),
            None => Ok((received.len, self.socket.peer_address()?)),
        }
    }

    /// Receives a datagram from the connected peer.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.receive(buf).await?.len)
    }

    async fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        poll_fn(|cx| {
            self.reading.poll(&self.socket, cx, |socket| {
                socket.receive(&mut [IoSliceMut::new(buf)], ReceiveFlags::default())
            })
        })
        .await
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
