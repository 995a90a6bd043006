//! UDP sockets in a shard.

use std::{
    collections::VecDeque,
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    task::Waker,
};

use proto::{
    time::Instant,
    wire::{
        checksum::{Partial, combine, copy_and_sum},
        ipv4::Protocol,
        udp::{HEADER_LEN, Header},
    },
};

use super::{Addresses, Shard, wakers::Wakers};
use crate::{
    counters::Counter,
    emit::{IpFields, emit_ip, fragments, ip_header_len},
    limits,
    packet::{HEADROOM, Packet},
    socket::{Readiness, ReceiveFlags, Received},
};

/// A UDP socket's part in one shard.
#[derive(Debug)]
pub struct UdpSocket {
    /// Unspecified: every address of the family (of both, if IPv6 and not `v6_only`).
    pub local: SocketAddr,
    /// Set by connect(2): only this peer is heard.
    pub peer: Option<SocketAddr>,
    v6_only: bool,
    /// Datagrams and where they came from; each packet is the payload.
    queue: VecDeque<(Packet, SocketAddr)>,
    error: Option<i32>,
    wakers: Wakers,
    /// Addresses of the IP header of what it sends.
    pub fields: IpFields,
    read_shut: bool,
}

impl UdpSocket {
    /// How well it fits a datagram; `None`: not at all.
    fn score(&self, local: SocketAddr, remote: SocketAddr) -> Option<u8> {
        if self.local.port() != local.port() {
            return None;
        }
        let mut score = match (self.local.ip(), local.ip()) {
            (mine, its) if mine == its => 3,
            (IpAddr::V4(mine), IpAddr::V4(_)) if mine.is_unspecified() => 2,
            (IpAddr::V6(mine), IpAddr::V6(_)) if mine.is_unspecified() => 2,
            (IpAddr::V6(mine), IpAddr::V4(_)) if mine.is_unspecified() && !self.v6_only => 1,
            _ => return None,
        };
        match self.peer {
            Some(peer) if peer == remote => score += 4,
            Some(_) => return None,
            None => {}
        }
        Some(score)
    }

    /// Datagrams that wait.
    pub fn depth(&self) -> usize {
        self.queue.len()
    }

    /// Memory of the datagrams that wait.
    pub fn memory(&self) -> usize {
        self.queue
            .iter()
            .map(|(packet, _)| packet.true_size())
            .sum()
    }

    /// FIONREAD: bytes of the first datagram.
    pub fn first_len(&self) -> usize {
        self.queue.front().map_or(0, |(packet, _)| packet.len())
    }

    fn readiness(&self) -> Readiness {
        let mut ready = Readiness::WRITABLE;
        if !self.queue.is_empty() || self.read_shut {
            ready = ready | Readiness::READABLE;
        }
        if self.error.is_some() {
            ready = ready | Readiness::ERROR | Readiness::READABLE;
        }
        ready
    }
}

impl Shard {
    #[inline]
    pub(super) fn udp_input(&mut self, mut packet: Packet, addresses: Addresses, now: Instant) {
        self.count(Counter::UdpIn);
        let Addresses {
            source,
            destination,
        } = addresses;
        let upper = usize::from(packet.meta.upper);
        let datagram = packet.bytes().get(upper..).unwrap_or_default();
        let Ok(header) = Header::parse(datagram) else {
            return self.count(Counter::DropUdpHeader);
        };
        if !packet.meta.checksum_verified.get() && !header.verify(source, destination, datagram) {
            return self.count(Counter::DropUdpChecksum);
        }
        let local = SocketAddr::new(destination, header.destination_port);
        let remote = SocketAddr::new(source, header.source_port);
        let Some(number) = self.udp_socket_for(local, remote) else {
            self.count(Counter::DropUdpNoSocket);
            return self.port_unreachable(&packet, now);
        };
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        if socket.queue.len() >= limits::UDP_QUEUE
            || self.udp_queued >= self.segments / limits::UDP_SHARE
        {
            return self.count(Counter::DropUdpQueue);
        }
        let is_first = socket.queue.is_empty();
        if !self.may_keep_datagram(packet.true_size(), is_first) {
            return;
        }
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        self.udp_queued += 1;
        packet.pull(upper + HEADER_LEN);
        packet.truncate(usize::from(header.length) - HEADER_LEN);
        socket.queue.push_back((packet, remote));
        socket.wakers.wake(Readiness::READABLE, &mut self.woken);
    }

    fn udp_socket_for(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        // Few sockets share a shard, and connected ones are rare: a scan. Many are served by a table when an experiment asks for it.
        self.udp
            .iter()
            .filter_map(|(number, socket)| Some((socket.score(local, remote)?, number)))
            .max_by_key(|(score, _)| *score)
            .map(|(_, number)| number)
    }

    /// Opens a socket on `local`. `None`: too many.
    pub fn udp_open(&mut self, local: SocketAddr, v6_only: bool, fields: IpFields) -> Option<u32> {
        let socket = UdpSocket {
            local,
            peer: None,
            v6_only,
            queue: VecDeque::with_capacity(limits::UDP_QUEUE),
            error: None,
            wakers: Wakers::default(),
            fields,
            read_shut: false,
        };
        let number = self.udp.insert(socket).ok();
        self.publish_load();
        number
    }

    /// The socket with this number.
    pub fn udp(&self, number: u32) -> Option<&UdpSocket> {
        self.udp.get(number)
    }

    /// The socket with this number, to change.
    pub fn udp_mut(&mut self, number: u32) -> Option<&mut UdpSocket> {
        self.udp.get_mut(number)
    }

    /// Closes it.
    pub fn udp_close(&mut self, number: u32) {
        if let Some(socket) = self.udp.remove(number) {
            self.udp_queued -= socket.queue.len();
            self.datagram_gone(socket.memory());
        }
        if self.udp.len() == 0 {
            self.memory.udp.give_back(&mut self.memory.datagrams);
        }
        self.publish_load();
    }

    /// Later receives say end of stream.
    pub fn udp_shutdown_read(&mut self, number: u32) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.read_shut = true;
            socket.wakers.wake(Readiness::READABLE, &mut self.woken);
        }
    }

    /// Sends one datagram from `local` to `remote` by `interface`; how many bytes.
    ///
    /// # Errors
    /// An errno: EMSGSIZE, EAGAIN (no buffer at the moment), or what an ICMP error said about an earlier datagram.
    pub fn udp_send(
        &mut self,
        number: u32,
        local: SocketAddr,
        remote: SocketAddr,
        interface: u8,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let fields = socket.fields;
        let len: usize = buffers.iter().map(|b| b.len()).sum();
        let ip_len = ip_header_len(remote.ip());
        let mtu = self
            .host
            .interfaces
            .get(usize::from(interface))
            .map_or(0, |i| i.mtu);
        if HEADER_LEN + len > usize::from(u16::MAX) - if remote.is_ipv4() { ip_len } else { 0 } {
            return Err(libc::EMSGSIZE);
        }
        if ip_len + HEADER_LEN + len > mtu {
            return self.udp_send_fragments((local, remote), interface, fields, buffers, len);
        }
        let mut packet = Packet::new(self.slab.alloc().ok_or(libc::EAGAIN)?, HEADROOM);
        packet.set_len(ip_len + HEADER_LEN + len);
        build(packet.bytes_mut(), (local, remote), fields, buffers, len)?;
        self.send(Some(packet), interface, Counter::UdpOut);
        Ok(len)
    }

    /// A datagram longer than the MTU: built whole, then cut.
    fn udp_send_fragments(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        interface: u8,
        fields: IpFields,
        buffers: &[IoSlice<'_>],
        len: usize,
    ) -> Result<usize, i32> {
        let mtu = self
            .host
            .interfaces
            .get(usize::from(interface))
            .map_or(0, |i| i.mtu);
        let mut whole = std::mem::take(&mut self.datagram);
        whole.resize(ip_header_len(remote.ip()) + HEADER_LEN + len, 0);
        let ident = self.idents.next(local.ip(), remote.ip(), Protocol::UDP.0);
        let outbox = self
            .outboxes
            .get_mut(usize::from(interface))
            .ok_or(libc::ENETUNREACH)?;
        let built = build(&mut whole, (local, remote), fields, buffers, len);
        let sent = built.is_ok()
            && fragments(&mut self.slab, &whole, mtu, ident, |packet| {
                outbox.push_back(packet)
            });
        self.datagram = whole;
        built?;
        if !sent {
            return Err(libc::EAGAIN);
        }
        self.count(Counter::UdpOut);
        Ok(len)
    }

    /// Takes (or looks at) the first datagram.
    ///
    /// # Errors
    /// An errno: EAGAIN, or what an ICMP error said.
    pub fn udp_receive(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> Result<Received, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let Some((packet, from)) = socket.queue.front() else {
            if socket.read_shut {
                return Ok(Received {
                    len: 0,
                    from: None,
                    truncated: false,
                });
            }
            return Err(libc::EAGAIN);
        };
        let mut rest = packet.bytes();
        for buffer in buffers {
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        let whole = packet.len();
        let len = if flags.truncate {
            whole
        } else {
            whole - rest.len()
        };
        let received = Received {
            len,
            from: Some(*from),
            truncated: !rest.is_empty(),
        };
        if !flags.peek {
            let memory = packet.true_size();
            socket.queue.pop_front();
            self.udp_queued -= 1;
            self.datagram_gone(memory);
        }
        Ok(received)
    }

    /// What it is ready for.
    pub fn udp_readiness(&self, number: u32) -> Readiness {
        self.udp
            .get(number)
            .map_or(Readiness::HANGUP, UdpSocket::readiness)
    }

    /// Registers a waker, or wakes it at once: then true.
    pub fn udp_register(&mut self, number: u32, interest: Readiness, waker: &Waker) -> bool {
        match self.udp.get_mut(number) {
            Some(socket) if !socket.readiness().intersects(interest | Readiness::ERROR) => {
                socket.wakers.register(interest, waker);
                false
            }
            _ => {
                waker.wake_by_ref();
                true
            }
        }
    }

    /// Forgets a waker.
    pub fn udp_deregister(&mut self, number: u32, waker: &Waker) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.wakers.deregister(waker);
        }
    }

    /// SO_ERROR.
    pub fn udp_take_error(&mut self, number: u32) -> Option<i32> {
        self.udp.get_mut(number)?.error.take()
    }

    /// An ICMP error about what a socket sent; only connected ones hear of it (RFC 1122 §4.1.3.3 leaves the others to error queues).
    pub(super) fn udp_icmp(&mut self, local: SocketAddr, remote: SocketAddr, errno: i32) {
        let number = self
            .udp
            .iter()
            .find(|(_, s)| s.peer == Some(remote) && s.local.port() == local.port());
        let Some(number) = number.map(|(number, _)| number) else {
            return;
        };
        if let Some(socket) = self.udp.get_mut(number) {
            socket.error = Some(errno);
            socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        }
    }

    pub(super) fn wake_datagrams(&mut self) {
        for socket in self.udp.iter_mut() {
            socket.error = Some(libc::ENETDOWN);
            socket.wakers.wake(Readiness(!0), &mut self.woken);
        }
    }

    /// UDP sockets with their numbers.
    pub fn udp_sockets(&self) -> impl Iterator<Item = (u32, &UdpSocket)> {
        self.udp.iter()
    }
}

/// Writes a whole IP packet with a datagram to `room`, which is as long as that.
fn build(
    room: &mut [u8],
    (local, remote): (SocketAddr, SocketAddr),
    fields: IpFields,
    buffers: &[IoSlice<'_>],
    len: usize,
) -> Result<(), i32> {
    let ip_len = ip_header_len(remote.ip());
    let (headers, payload) = room
        .split_at_mut_checked(ip_len + HEADER_LEN)
        .ok_or(libc::EMSGSIZE)?;
    let sum = gather(buffers, payload);
    let (ip, udp) = headers.split_at_mut(ip_len);
    let header = Header {
        source_port: local.port(),
        destination_port: remote.port(),
        ..Header::default()
    };
    header.emit(local.ip(), remote.ip(), sum, len, udp);
    if emit_ip(
        ip,
        local.ip(),
        remote.ip(),
        Protocol::UDP,
        fields,
        HEADER_LEN + len,
    ) {
        Ok(())
    } else {
        Err(libc::EAFNOSUPPORT)
    }
}

/// Copies all of `buffers` to `to`, which is as long as they are together; their sum.
fn gather(buffers: &[IoSlice<'_>], to: &mut [u8]) -> Partial {
    let mut at = 0;
    let mut sum = Partial::default();
    for buffer in buffers {
        let Some(place) = to.get_mut(at..at + buffer.len()) else {
            break;
        };
        sum = combine(sum, at, copy_and_sum(buffer, place));
        at += buffer.len();
    }
    sum
}
