//! A host of a hundred lines: enough ARP, NDP and ICMP to ask a kernel whether it is there.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use netchan::{
    Clock,
    link::{Link, LinkError, Properties, Queue},
    packet::{HEADROOM, Packet},
};
use percore::slab::Slab;
use rustix::event::{PollFd, PollFlags, poll};

/// For what the kernel answers at once where it has a core to itself.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Host {
    pub properties: Properties,
    pub queue: Queue,
    pub slab: Slab,
    pub clock: Clock,
    pub seen: VecDeque<Packet>,
}

impl Host {
    pub fn new(link: Box<dyn Link>) -> Self {
        let properties = link.properties().clone();
        let slab = Slab::new(64, properties.frame_max + HEADROOM).expect("memory for 64 buffers");
        Self {
            properties,
            queue: Queue::of(link).expect("the link starts"),
            slab,
            clock: Clock::Real,
            seen: VecDeque::new(),
        }
    }

    pub fn mac(&self) -> [u8; 6] {
        self.properties.mac.0
    }

    pub fn send(&mut self, to: [u8; 6], kind: u16, body: &[u8]) {
        let frame = [&to[..], &self.mac(), &kind.to_be_bytes(), body].concat();
        let mut packet = Packet::new(
            self.slab.alloc().expect("the test holds few buffers"),
            HEADROOM,
        );
        packet.room_mut()[..frame.len()].copy_from_slice(&frame);
        packet.set_len(frame.len());
        let mut out = VecDeque::from([packet]);
        assert_eq!(
            self.queue
                .tx
                .transmit(self.clock.now(), &mut out)
                .expect("the link is up"),
            1
        );
    }

    /// Receives until `wanted` likes a frame, or [`PATIENCE`] is over.
    pub fn until<T>(&mut self, mut wanted: impl FnMut(&Packet) -> Option<T>) -> Option<T> {
        let end = self.clock.now() + PATIENCE;
        while self.clock.now() < end {
            self.receive(Duration::from_millis(10))
                .expect("the link is up");
            while let Some(packet) = self.seen.pop_front() {
                if let Some(found) = wanted(&packet) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Receives what there is, or sleeps on the descriptor for `patience` first.
    pub fn receive(&mut self, patience: Duration) -> Result<usize, LinkError> {
        let (now, max) = (self.clock.now(), 32);
        let n = self
            .queue
            .rx
            .receive(now, &mut self.slab, &mut self.seen, max)?;
        if n > 0 {
            return Ok(n);
        }
        if let Some(fd) = self.queue.rx.fd() {
            let patience = patience.try_into().expect("milliseconds");
            poll(
                &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                Some(&patience),
            )
            .expect("poll");
        }
        self.queue
            .rx
            .receive(self.clock.now(), &mut self.slab, &mut self.seen, max)
    }

    /// Asks for the link-layer address of `target` (RFC 826, RFC 4861 §7.2.2), from `me`.
    pub fn resolve(&mut self, me: IpAddr, target: IpAddr) -> Option<[u8; 6]> {
        match (me, target) {
            (IpAddr::V4(me), IpAddr::V4(target)) => self.resolve_v4(me, target),
            (IpAddr::V6(me), IpAddr::V6(target)) => self.resolve_v6(me, target),
            _ => None,
        }
    }

    fn resolve_v4(&mut self, me: Ipv4Addr, target: Ipv4Addr) -> Option<[u8; 6]> {
        let mac = self.mac();
        let request = [
            &[0, 1, 8, 0, 6, 4, 0, 1][..],
            &mac,
            &me.octets(),
            &[0; 6],
            &target.octets(),
        ]
        .concat();
        self.send([0xff; 6], 0x0806, &request);
        self.until(|p| {
            let reply = p.bytes().get(12..42)?;
            let answers = reply[..2] == [8, 6] && reply[9] == 2 && reply[16..20] == target.octets();
            answers.then(|| reply[10..16].try_into().expect("six bytes"))
        })
    }

    fn resolve_v6(&mut self, me: Ipv6Addr, target: Ipv6Addr) -> Option<[u8; 6]> {
        let mac = self.mac();
        let [.., a, b, c] = target.octets();
        let group = Ipv6Addr::new(
            0xff02,
            0,
            0,
            0,
            0,
            1,
            0xff00 | u16::from(a),
            u16::from_be_bytes([b, c]),
        );
        let solicitation = [
            &[135, 0, 0, 0, 0, 0, 0, 0][..],
            &target.octets(),
            &[1, 1],
            &mac,
        ]
        .concat();
        self.send(
            [0x33, 0x33, 0xff, a, b, c],
            0x86dd,
            &icmp6(me, group, solicitation),
        );
        self.until(|p| {
            let p = p.bytes();
            let answers = p.get(12..14)? == [0x86, 0xdd]
                && *p.get(54)? == 136
                && p.get(62..78)? == target.octets();
            answers.then(|| p[80..86].try_into().expect("six bytes"))
        })
    }

    /// Pings `target` at `mac` with `len` bytes; whether the same came back, and whether its checksum is said to be verified.
    pub fn ping(&mut self, me: IpAddr, target: IpAddr, mac: [u8; 6], len: usize) -> Option<bool> {
        let data: Vec<u8> = (0..len)
            .map(|i| u8::try_from(i % 251).expect("small"))
            .collect();
        let (kind, body, ip, reply) = match (me, target) {
            (IpAddr::V4(me), IpAddr::V4(target)) => (
                0x0800,
                icmp4(me, target, [&[8, 0, 0, 0, 1, 2, 0, 1][..], &data].concat()),
                20,
                0,
            ),
            (IpAddr::V6(me), IpAddr::V6(target)) => (
                0x86dd,
                icmp6(
                    me,
                    target,
                    [&[128, 0, 0, 0, 1, 2, 0, 1][..], &data].concat(),
                ),
                40,
                129,
            ),
            _ => return None,
        };
        self.send(mac, kind, &body);
        self.until(|p| {
            let bytes = p.bytes();
            let echo = bytes.get(14 + ip..14 + ip + 8 + len)?;
            let same = bytes[12..14] == kind.to_be_bytes() && echo[0] == reply && echo[8..] == data;
            same.then_some(p.meta.checksum_verified.get())
        })
    }

    /// Takes in the connection that a kernel opens to `me`, and what it sends in its first flight: length, whether the
    /// checksum was verified, and the longest frame.
    pub fn accept_tcp(&mut self, me: Ipv4Addr) -> (usize, bool, usize) {
        let (mut total, mut verified, mut longest) = (0, true, 0);
        let (mut next, mut sequence) = (None, [0, 0, 0, 1]);
        let end = self.clock.now() + PATIENCE;
        while self.clock.now() < end {
            self.receive(Duration::from_millis(10))
                .expect("the link is up");
            while let Some(packet) = self.seen.pop_front() {
                let bytes = packet.bytes().to_vec();
                if bytes.len() < 54
                    || bytes[12..14] != [8, 0]
                    || bytes[23] != 6
                    || bytes[30..34] != me.octets()
                {
                    continue;
                }
                let their: u32 = u32::from_be_bytes(bytes[38..42].try_into().expect("four bytes"));
                let len = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]))
                    - 20
                    - usize::from(bytes[46] >> 4) * 4;
                if bytes[47] & 2 != 0 {
                    next = Some(their.wrapping_add(1));
                    self.answer_tcp(&bytes, sequence, next, 0x12);
                    sequence[3] = 2;
                } else if len > 0 && next == Some(their) {
                    total += len;
                    verified &= packet.meta.checksum_verified.get();
                    longest = longest.max(bytes.len());
                    next = Some(their.wrapping_add(u32::try_from(len).expect("a segment")));
                    self.answer_tcp(&bytes, sequence, next, 0x10);
                }
            }
            if total >= 200_000 {
                break;
            }
        }
        (total, verified, longest)
    }

    /// Answers the segment in `frame` with an empty one (RFC 9293 §3.1); with SYN it has MSS 1460 and window scale 7.
    fn answer_tcp(&mut self, frame: &[u8], sequence: [u8; 4], ack: Option<u32>, flags: u8) {
        let options: &[u8] = if flags & 2 != 0 {
            &[2, 4, 5, 180, 3, 3, 7, 1]
        } else {
            &[]
        };
        let offset = u8::try_from((20 + options.len()) / 4 * 16).expect("small");
        let mut segment = [
            &frame[36..38],
            &frame[34..36],
            &sequence,
            &ack.unwrap_or(0).to_be_bytes(),
            &[offset, flags, 0xff, 0xff, 0, 0, 0, 0],
            options,
        ]
        .concat();
        let sum = checksum(&[&frame[26..34], &[0, 6], &length(segment.len()), &segment]);
        segment[16..18].copy_from_slice(&sum);
        let mut header = [
            &[0x45, 0][..],
            &length(20 + segment.len()),
            &[0, 1, 0, 0, 64, 6, 0, 0],
            &frame[30..34],
            &frame[26..30],
        ]
        .concat();
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum);
        let to = frame[6..12].try_into().expect("six bytes");
        self.send(to, 0x0800, &[header, segment].concat());
    }
}

/// RFC 1071.
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | c.get(1).map_or(0, |&b| u32::from(b)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).expect("folded")).to_be_bytes()
}

fn length(n: usize) -> [u8; 2] {
    u16::try_from(n).expect("a packet is shorter").to_be_bytes()
}

pub fn icmp4(from: Ipv4Addr, to: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum);
    let mut header = [
        &[0x45, 0][..],
        &length(20 + message.len()),
        &[0, 1, 0, 0, 64, 1, 0, 0],
        &from.octets(),
        &to.octets(),
    ]
    .concat();
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum);
    [header, message].concat()
}

fn icmp6(from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let len = length(message.len());
    let sum = checksum(&[
        &from.octets(),
        &to.octets(),
        &[0, 0],
        &len,
        &[0, 0, 0, 58],
        &message,
    ]);
    message[2..4].copy_from_slice(&sum);
    [
        &[0x60, 0, 0, 0][..],
        &len,
        &[58, 255],
        &from.octets(),
        &to.octets(),
        &message,
    ]
    .concat()
}
