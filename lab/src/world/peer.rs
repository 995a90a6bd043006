//! One end of a connection on smoltcp 0.14, in the same world: one interface, one socket, an application that writes and reads as fast as it may.
//!
//! At its best: buffers of twice what the path holds, CUBIC, no Nagle, no checksums.

use std::collections::VecDeque;

use proto::{
    ip::Ecn,
    time::Instant,
    wire::{ipv4, tcp::Header, tcp::SeqNum},
};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::tcp,
    wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address},
};

use super::{
    endpoint::Segment,
    text::{Text, byte_at},
};

const MTU: usize = 1500;

/// How it begins.
#[derive(Clone, Copy, Debug)]
pub struct PeerShape {
    /// Opens then; listens if `None`.
    pub opens_at: Option<Instant>,
    /// Bytes it writes before it ends.
    pub writes: u64,
    /// Bytes of each buffer.
    pub buffer: usize,
    /// Decides its sequence numbers.
    pub seed: u64,
}

/// Packets on their way into it and out of it.
#[derive(Default)]
struct Port {
    rx: VecDeque<Vec<u8>>,
    tx: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Room<'a>(&'a mut Port);

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = self.0.spare.pop().unwrap_or_default();
        packet.clear();
        packet.resize(len, 0);
        let result = f(&mut packet);
        self.0.tx.push(packet);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Room<'_>)> {
        let packet = self.rx.pop_front()?;
        Some((Received(packet), Room(self)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Room<'_>> {
        Some(Room(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities.checksum.ipv4 = Checksum::Both;
        capabilities
    }
}

/// See the module's documentation.
pub struct Peer {
    shape: PeerShape,
    ports: (u16, u16),
    streams: (u32, u32),
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    port: Port,
    iss: Option<SeqNum>,
    began: bool,
    ended: bool,
    written: u64,
    read: u64,
    read_all_at: Option<Instant>,
    next: Instant,
}

fn micros(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX))
}

/// By its port: an address is all smoltcp tells ends by.
const fn address(port: u16) -> Ipv4Address {
    let [a, b] = port.to_be_bytes();
    Ipv4Address::new(10, 0, a, b)
}

impl Peer {
    pub(super) fn new(
        shape: PeerShape,
        ports: (u16, u16),
        streams: (u32, u32),
        now: Instant,
    ) -> Self {
        let mut port = Port::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = shape.seed;
        let mut interface = Interface::new(config, &mut port, micros(now));
        interface.update_ip_addrs(|addresses| {
            let cidr = IpCidr::new(IpAddress::Ipv4(address(ports.0)), 8);
            addresses.push(cidr).expect("room for one");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; shape.buffer]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_congestion_control(tcp::CongestionControl::Cubic);
        if shape.opens_at.is_none() {
            socket.listen(ports.0).expect("a fresh socket listens");
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            shape,
            ports,
            streams,
            interface,
            sockets,
            handle,
            port,
            iss: None,
            began: shape.opens_at.is_none(),
            ended: false,
            written: 0,
            read: 0,
            read_all_at: None,
            next: shape.opens_at.unwrap_or(Instant::FAR),
        }
    }

    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    pub(super) const fn read_bytes(&self) -> u64 {
        self.read
    }

    pub(super) const fn read_all_at(&self) -> Option<Instant> {
        self.read_all_at
    }

    pub(super) fn receive(&mut self, segment: &Segment, now: Instant, out: &mut Vec<Segment>) {
        let packet = self.packet(segment);
        self.port.rx.push_back(packet);
        self.wake(now, out);
    }

    /// A segment as an IPv4 packet.
    fn packet(&mut self, segment: &Segment) -> Vec<u8> {
        let (header, text) = (&segment.header, &segment.text);
        let mut packet = self.port.spare.pop().unwrap_or_default();
        packet.clear();
        packet.resize(ipv4::HEADER_LEN + header.len(), 0);
        let (source, destination) = (address(self.ports.1), address(self.ports.0));
        let (ip, tcp) = packet.split_at_mut(ipv4::HEADER_LEN);
        header.emit(tcp);
        let total = header.len() + text.len as usize;
        ipv4::Header::new(ipv4::Protocol::TCP, source, destination).emit(total, ip);
        packet.extend((text.offset..text.end()).map(|at| byte_at(text.stream, at)));
        packet
    }

    pub(super) fn wake(&mut self, now: Instant, out: &mut Vec<Segment>) {
        if !self.began && self.shape.opens_at.is_some_and(|at| at <= now) {
            self.began = true;
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
            let remote = (IpAddress::Ipv4(address(self.ports.1)), self.ports.1);
            socket
                .connect(self.interface.context(), remote, self.ports.0)
                .expect("a fresh socket connects");
        }
        if !self.began {
            return;
        }
        self.interface
            .poll(micros(now), &mut self.port, &mut self.sockets);
        self.act(now);
        self.interface
            .poll(micros(now), &mut self.port, &mut self.sockets);
        let sent = std::mem::take(&mut self.port.tx);
        for packet in sent {
            out.extend(self.segment(&packet));
            self.port.spare.push(packet);
        }
        let at = self.interface.poll_at(micros(now), &self.sockets);
        self.next = at.map_or(Instant::FAR, |at| {
            let at = u64::try_from(at.total_micros()).unwrap_or(0) * 1000;
            Instant(at).max(now + proto::time::Duration::from_micros(1))
        });
    }

    fn act(&mut self, now: Instant) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let (mut read, stream) = (self.read, self.streams.1);
        while socket.can_recv() {
            let taken = socket.recv(|bytes| {
                let right = bytes
                    .iter()
                    .zip(read..)
                    .all(|(byte, at)| *byte == byte_at(stream, at));
                assert!(right, "smoltcp read another byte than was written");
                read += bytes.len() as u64;
                (bytes.len(), ())
            });
            taken.expect("open");
        }
        self.read = read;
        if self.began && socket.state() == tcp::State::CloseWait && self.read_all_at.is_none() {
            self.read_all_at = Some(now);
        }
        let mut chunk = [0; 4096];
        while socket.can_send() && self.written < self.shape.writes {
            let left = self.shape.writes - self.written;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            for (byte, at) in chunk[..n].iter_mut().zip(self.written..) {
                *byte = byte_at(self.streams.0, at);
            }
            self.written += socket.send_slice(&chunk[..n]).expect("open") as u64;
        }
        let all = self.written == self.shape.writes;
        let waits = self.shape.writes == 0 && self.read_all_at.is_none();
        if socket.may_send() && all && !waits && !self.ended {
            self.ended = true;
            socket.close();
        }
    }

    /// What it sent, as the world's own segment.
    fn segment(&mut self, packet: &[u8]) -> Option<Segment> {
        let ip = ipv4::Header::parse(packet).ok()?;
        let payload = ip.payload(packet);
        let (header, start) = Header::parse(payload).ok()?;
        let len = u32::try_from(payload.len() - start).ok()?;
        let iss = *self.iss.get_or_insert(header.seq);
        // The place in the stream is what its low 32 bits say, near what was written.
        let low = (header.seq - iss).cast_unsigned().wrapping_sub(1);
        let about = self.written;
        let back = u32::try_from(about & 0xffff_ffff)
            .unwrap_or(0)
            .wrapping_sub(low);
        let offset = about.saturating_sub(u64::from(back));
        Some(Segment {
            header,
            text: Text {
                stream: self.streams.0,
                offset: if len == 0 { 0 } else { offset },
                len,
                room: len,
            },
            ecn: Ecn::NotEct,
        })
    }
}
