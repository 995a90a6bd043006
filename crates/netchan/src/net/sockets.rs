//! A stack's TCP and UDP: sockets as in std, and what can be set for all of them.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use proto::tcp;

use super::Net;
use crate::{
    errno::invalid,
    socket::{PacketChannel, PacketProtocol, TcpListener, TcpStream, UdpSocket},
};

impl Net {
    /// TCP.
    pub const fn tcp(&self) -> Tcp<'_> {
        Tcp { net: self }
    }
    /// UDP.
    pub const fn udp(&self) -> Udp<'_> {
        Udp { net: self }
    }
    /// An application's own channel for packets of a protocol that the stack does not speak: of an IP protocol number, or frames of an EtherType.
    /// Such packets are unserved until then (ICMP says so of IP packets), and again when it is dropped. Not to be called from within a module.
    ///
    /// # Errors
    /// `InvalidInput`, in words: the stack speaks the protocol. `AddrInUse`: it has a channel, or on a daemon another program has it. EMFILE: there are 32. EACCES: a daemon
    /// does not give it to this user.
    pub fn packet_channel(&self, protocol: PacketProtocol) -> io::Result<PacketChannel> {
        PacketChannel::open(self, protocol)
    }
}

/// TCP of one stack.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    net: &'a Net,
}

impl Tcp<'_> {
    /// Listens on `address` (`"0.0.0.0:80"`, `"[::]:80"`) with a backlog of 1024.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address; `AddrInUse`, `AddrNotAvailable`.
    pub fn listen(&self, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        first_of(address, |address| {
            TcpListener::bind(self.net, address, 1024)
        })
    }
    /// Opens a connection and waits for it. Of several addresses the first that answers. A name is looked up as std does it: by the C library,
    /// over the kernel's network.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`, `HostUnreachable`.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_of(address, |address| {
            TcpStream::connect(self.net, address, None)
        })
    }
    /// Opens a connection and waits for it at most `timeout`.
    ///
    /// # Errors
    /// As for `connect`.
    pub fn connect_timeout(&self, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        TcpStream::connect(self.net, address, Some(timeout))
    }
    /// What connections start with now.
    pub fn settings(&self) -> tcp::Config {
        self.net.stack().control.host.tcp()
    }
    /// Changes what connections start with while the stack runs, as sysctl(8) does for the kernel's:
    /// `net.tcp().configure(|tcp| tcp.ecn = EcnMode::Classic)`.
    ///
    /// When this returns, it holds for every connection that is opened, from this side or by a listener that was there before; those that are
    /// open stay as they are. What a socket was told by an option counts more, as always. Another `fast_open.black_hole` ends a rest from
    /// Fast Open that goes on. Waits until each shard has a moment; not to be called from within a module.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: `mss` and `default_mss` are an interface's, `receive_buffer`, `receive_buffer_max` and `max_segments`
    /// belong to memory that was reserved at the start.
    pub fn configure(&self, change: impl FnOnce(&mut tcp::Config)) -> io::Result<()> {
        let stack = self.net.stack();
        stack.control.host.change_tcp(change)
    }
    /// Forgets what earlier connections told of their peers and paths: Fast Open's cookies, and whether a path swallows its SYNs (RFC 7413 §4.1.3),
    /// and path MTUs (RFC 8201 §5.2). As `ip tcp_metrics flush` and `ip route flush cache` for the kernel's. Open connections keep what they know.
    pub fn forget_peers(&self) {
        let stack = self.net.stack();
        for shard in 0..stack.sockets.cells.len() {
            stack.with_shard(shard, |shard, _| shard.forget_peers());
        }
    }
}

/// UDP of one stack.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    net: &'a Net,
}

impl Udp<'_> {
    /// A socket bound to `address`.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address; `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        first_of(address, |address| UdpSocket::bind(self.net, address))
    }
}

/// What `call` gives for the first of the addresses for which it works; its last error where there is none.
pub(crate) fn first_of<T>(
    addresses: impl ToSocketAddrs,
    mut call: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match call(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| invalid("no address was given")))
}
