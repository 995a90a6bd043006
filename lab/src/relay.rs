//! A relay before a link: what passes it is delayed, lost, late, repeated and broken as by the [world](crate::world)'s links, which decide by a seed.
//!
//! The relay is a link itself, of a stack on one side; on the other may be Linux (behind a TAP or a packet socket) or any stack (behind a wire). Time
//! is the stack's, real or virtual. What neighbours ask each other passes untouched: that is not what is tried.

use std::{collections::VecDeque, io, os::fd::BorrowedFd, sync::Arc};

use netchan::{
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::Packet,
};
use percore::{doorbell::Doorbell, slab::Slab};
use proto::{ip::Ecn, time::Instant, wire::checksum::checksum};

use crate::world::{
    dice::Dice,
    link::{self, LinkShape},
};

/// Frames taken from the device at once.
const BURST: usize = 64;
const ETHERNET: usize = 14;

/// One way through the relay.
struct Way {
    link: link::Link<Vec<u8>>,
    corrupt_ppm: u32,
    dice: Dice,
    corrupted: u64,
}

impl Way {
    fn new(shape: LinkShape, seed: u64) -> Self {
        // Here a packet has bytes to break, and its receiver shall find out.
        let whole = LinkShape {
            corrupt_ppm: 0,
            ..shape
        };
        Self {
            link: link::Link::new(whole, seed),
            corrupt_ppm: shape.corrupt_ppm,
            dice: Dice::of(seed, 1),
            corrupted: 0,
        }
    }

    fn enter(&mut self, frame: &[u8], now: Instant) {
        let mut body = frame.to_vec();
        let header = ip_header(frame);
        if self.dice.per_million(self.corrupt_ppm) && frame.len() > header {
            // One bit behind the IP header: no checksum misses it (RFC 1071 §2), and it goes where it was to go.
            let bit = self.dice.below((frame.len() - header) as u64 * 8);
            let at = usize::try_from(bit / 8).unwrap_or(0);
            body[header + at] ^= 1 << (bit % 8);
            self.corrupted += 1;
        }
        let size = frame.len().saturating_sub(ETHERNET);
        let packet = link::Packet {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            ecn: ecn(frame),
            body,
        };
        // What does not fit is lost, and counted there.
        let _ = self.link.send(packet, now);
    }

    fn leave(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut packet = self.link.poll(now)?;
        if packet.ecn == Ecn::Ce && ecn(&packet.body) != Ecn::Ce {
            mark(&mut packet.body);
        }
        Some(packet.body)
    }
}

/// Bytes before what IP carries, in a frame with an IP packet.
fn ip_header(frame: &[u8]) -> usize {
    match frame.get(ETHERNET).map(|b| b >> 4) {
        Some(4) => ETHERNET + usize::from(frame[ETHERNET] & 15) * 4,
        _ => ETHERNET + 40,
    }
}

/// ARP, and ICMPv6 with its neighbour discovery.
fn is_of_neighbours(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => false,
        Some([0x86, 0xdd]) => frame.get(20) == Some(&58),
        _ => true,
    }
}

fn ecn(frame: &[u8]) -> Ecn {
    Ecn::of_packet(frame.get(ETHERNET..).unwrap_or_default())
}

/// Congestion experienced (RFC 3168 §5), with IPv4's checksum made anew.
fn mark(frame: &mut [u8]) {
    if frame[ETHERNET] >> 4 != 4 {
        frame[ETHERNET + 1] |= 3 << 4;
        return;
    }
    frame[ETHERNET + 1] |= 3;
    let end = ip_header(frame).min(frame.len());
    let header = &mut frame[ETHERNET..end];
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// See the module's documentation.
pub struct Relay {
    device: Box<dyn Link>,
    properties: Properties,
    out: Way,
    back: Way,
    slab: Slab,
}

/// What is between the stack and a device that was started: the state of both directions.
struct Running {
    device: Queue,
    out: Way,
    back: Way,
    slab: Slab,
    burst: VecDeque<Packet>,
    lost: u64,
}

impl Relay {
    /// A relay before `device`, which merges no segments and leaves no checksum to be made; `shapes` of what goes out to it and of what comes back. The
    /// stack sees a link of `mtu` at most.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        device: Box<dyn Link>,
        mtu: usize,
        shapes: [LinkShape; 2],
        seed: u64,
    ) -> std::io::Result<Self> {
        let mut properties = device.properties().clone();
        let slab = Slab::new(4 * BURST, properties.frame_max)?;
        properties.mtu = properties.mtu.min(mtu);
        properties.frame_max = properties.frame_max.max(properties.mtu + FRAME_OVERHEAD);
        properties.segmentation = Segmentation::None;
        let [out, back] = shapes;
        Ok(Self {
            device,
            properties,
            out: Way::new(out, seed),
            back: Way::new(back, !seed),
            slab,
        })
    }
}

impl Link for Relay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let one = bells.get(..1).unwrap_or_default();
        let mut queues = Vec::new();
        if let Some(device) = self.device.start(one)?.into_iter().next() {
            queues.push(Queue::of_one(Running {
                device,
                out: self.out,
                back: self.back,
                slab: self.slab,
                burst: VecDeque::new(),
                lost: 0,
            })?);
        }
        Ok(queues)
    }
}

impl Running {
    /// A frame into a packet of `slab`; lost and counted where there is no room.
    fn packet(&mut self, frame: &[u8], slab: Option<&mut Slab>) -> Option<Packet> {
        let buffer = slab.unwrap_or(&mut self.slab).alloc();
        let Some(buffer) = buffer.filter(|b| b.len() >= frame.len()) else {
            self.lost += 1;
            return None;
        };
        let mut packet = Packet::new(buffer, 0);
        packet.room_mut()[..frame.len()].copy_from_slice(frame);
        packet.set_len(frame.len());
        Some(packet)
    }

    /// What is due on the way out goes to the device, which loses what it has no room for.
    fn push_out(&mut self, now: Instant) -> Result<(), LinkError> {
        while let Some(frame) = self.out.leave(now) {
            if let Some(packet) = self.packet(&frame, None) {
                self.device
                    .tx
                    .transmit(now, &mut VecDeque::from([packet]))?;
            }
        }
        Ok(())
    }
}

impl LinkRx for Running {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.push_out(now)?;
        let most = max.min(BURST);
        let Self {
            device,
            burst: taken,
            ..
        } = self;
        device.rx.receive(now, &mut self.slab, taken, most)?;
        let mut n = 0;
        while let Some(packet) = self.burst.pop_front() {
            if !is_of_neighbours(packet.bytes()) {
                self.back.enter(packet.bytes(), now);
            } else if let Some(packet) = self.packet(packet.bytes(), Some(slab)) {
                burst.push_back(packet);
                n += 1;
            }
        }
        while n < max
            && let Some(frame) = self.back.leave(now)
        {
            if let Some(packet) = self.packet(&frame, Some(slab)) {
                burst.push_back(packet);
                n += 1;
            }
        }
        Ok(n)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.rx.fd()
    }

    fn next_event(&mut self) -> Instant {
        let ways = self.out.link.next().min(self.back.link.next());
        ways.min(self.device.rx.next_event())
    }

    fn statistics(&self) -> RxStatistics {
        RxStatistics {
            missed: self.lost,
            ..self.device.rx.statistics()
        }
    }
}

impl LinkTx for Running {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let mut n = 0;
        while let Some(packet) = frames.pop_front() {
            n += 1;
            if is_of_neighbours(packet.bytes()) {
                self.device
                    .tx
                    .transmit(now, &mut VecDeque::from([packet]))?;
            } else {
                self.out.enter(packet.bytes(), now);
            }
        }
        self.push_out(now)?;
        Ok(n)
    }

    fn statistics(&self) -> TxStatistics {
        self.device.tx.statistics()
    }
}
