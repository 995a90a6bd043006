//! A UDP socket, as `std::net::UdpSocket`.

use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use super::{Shared, checked, domain_of};
use crate::{
    api::{DatagramInfo, Kind, ReceiveFlags, ReceivedError, SendInfo},
    errno::invalid,
    net::{Net, first_of},
    socket::{Socket, SocketOption},
};

/// A UDP socket, as `std::net::UdpSocket`.
#[derive(Clone)]
pub struct UdpSocket(Arc<Shared>);

impl UdpSocket {
    pub(crate) fn bind(net: &Net, address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(net, domain_of(address), Kind::Datagram)?;
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
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        first_of(peer, |peer| self.0.socket.connect(peer))
    }

    /// Address and port of the peer.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.peer_address()
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    /// EDESTADDRREQ, EMSGSIZE, what an ICMP error said.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0
            .write(|| self.0.socket.send(&[IoSlice::new(buf)], None))
    }

    /// Sends a datagram, to the first of several addresses.
    ///
    /// # Errors
    /// `InvalidInput` where there is no address; EMSGSIZE, ENETUNREACH, what an ICMP error said.
    pub fn send_to(&self, buf: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.to_socket_addrs()?.next();
        let to = to.ok_or_else(|| invalid("no address was given"))?;
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

    /// Receives a datagram (several of one size with [`UdpOption::Merge`](crate::api::UdpOption::Merge)), where it came from, and what else is known of
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

    /// Takes the oldest error that was kept ([`UdpOption::ReceiveErrors`](crate::api::UdpOption::ReceiveErrors)), and in `buf` what the datagram carried. Never
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

    /// The same, as it is.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.settings.lock().read_timeout)
    }

    /// How long a send waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.settings.lock().write_timeout = checked(timeout)?;
        Ok(())
    }

    /// The same, as it is.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.settings.lock().write_timeout)
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
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

    /// SO_BROADCAST: it may send to broadcast addresses.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        let option = SocketOption::Broadcast(broadcast);
        self.0.socket.set_option(option)
    }

    /// The same, as it is.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn broadcast(&self) -> io::Result<bool> {
        let like = SocketOption::Broadcast(false);
        Ok(self.0.socket.option(like)? == SocketOption::Broadcast(true))
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

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
