//! Between two kernels: the world's own links, in real time. Each flow is told by its port; some flows are ours, and their ends live here.

use std::collections::VecDeque;

use netchan::{
    link::{Queue, tap::Tap},
    packet::Packet as Frame,
};
use percore::{clock::now_ns, slab::Slab};
use proto::{
    ip::Ecn,
    tcp::{CongestionControl, SegmentPool},
    time::{Duration, Instant},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::paths::{ENDLESS, Path, netchan_end};
use crate::world::{
    endpoint::{Endpoint, Segment},
    link::{Link, LinkShape, Packet},
    text::Text,
};

/// The first flow's port at the receiver; the others' follow.
pub(super) const PORT: u16 = 5001;
/// Later than this, the relay is counted as late.
const LATE: Duration = Duration::from_millis(1);

/// What is on its way, and of which flow.
#[derive(Clone)]
struct Body {
    flow: usize,
    what: What,
}

#[derive(Clone)]
enum What {
    Frame(Vec<u8>),
    Ours(Segment),
}

/// One end of ours.
type Ours = (Endpoint, SegmentPool<Text>);

/// A flow's way back, which bottleneck it shares, and its ends if they are ours.
struct Lane {
    bottleneck: usize,
    back: Link<Body>,
    ours: Option<[Ours; 2]>,
}

/// All flows, and the kernels.
pub(super) struct Relay {
    taps: [Queue; 2],
    bottlenecks: Vec<Link<Body>>,
    lanes: Vec<Lane>,
    slab: Slab,
    burst: VecDeque<Frame>,
    out: Vec<Segment>,
    turns: u64,
    late: u64,
}

/// The flow of a kernel's frame: the port of its receiver says it. `None`: not TCP over IPv4.
fn flow_of(frame: &[u8], flows: usize) -> Option<usize> {
    let ip = frame.get(14..)?;
    if frame.get(12..14)? != [8, 0] || *ip.get(9)? != 6 {
        return None;
    }
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    let flow = |port: u16| Some(usize::from(port.checked_sub(PORT)?)).filter(|&f| f < flows);
    flow(port(2)?).or(flow(port(0)?))
}

impl Relay {
    pub fn new(taps: [Tap; 2]) -> Result<Self, String> {
        let [first, second] = taps.map(|tap| Queue::of(Box::new(tap)));
        let started = |queue: std::io::Result<Queue>| queue.map_err(|e| e.to_string());
        Ok(Self {
            taps: [started(first)?, started(second)?],
            bottlenecks: Vec::new(),
            lanes: Vec::new(),
            slab: Slab::new(4096, 2048).map_err(|e| e.to_string())?,
            burst: VecDeque::new(),
            out: Vec::new(),
            turns: 0,
            late: 0,
        })
    }

    /// A bottleneck.
    pub fn bottleneck(&mut self, path: &Path, seed: u64) -> usize {
        self.bottlenecks.push(Link::new(path.bottleneck(), seed));
        self.bottlenecks.len() - 1
    }

    /// A flow through it, `farther` away than `path` says; ours if it has a congestion control. Its number.
    pub fn flow(
        &mut self,
        path: &Path,
        bottleneck: usize,
        farther: Duration,
        ours: Option<CongestionControl>,
        now: Instant,
    ) -> usize {
        let back = LinkShape {
            delay: path.rtt / 2 + farther,
            ..path.back()
        };
        let ours = ours.map(|congestion| {
            [true, false].map(|sends| {
                let end = our_end(sends, congestion, now);
                (end, SegmentPool::with_capacity(1 << 15))
            })
        });
        self.lanes.push(Lane {
            bottleneck,
            back: Link::new(back, self.lanes.len() as u64 + 1),
            ours,
        });
        self.lanes.len() - 1
    }

    /// Bytes that our flow's receiver has read.
    pub fn read_bytes(&self, flow: usize) -> u64 {
        let ends = self.lanes[flow].ours.as_ref();
        ends.map_or(0, |[_, (receiver, _)]| receiver.read_bytes())
    }

    /// How many of its turns came more than a millisecond late, in percent.
    #[allow(clippy::cast_precision_loss)] // below 2^52
    pub fn late_percent(&self) -> f64 {
        self.late as f64 * 100.0 / self.turns.max(1) as f64
    }

    /// Everything that is due by `now`.
    pub fn turn(&mut self, now: Instant) -> Result<(), String> {
        let due = self.next();
        if due <= now {
            self.turns += 1;
            self.late += u64::from(now.since(due) > LATE);
        }
        for index in 0..self.bottlenecks.len() {
            while let Some(packet) = self.bottlenecks[index].poll(now) {
                self.arrive(1, packet.body, now)?;
            }
        }
        // What is due in the same turn comes at the same time; the kinds go first by turns, or a full queue would spare one.
        if self.turns.is_multiple_of(2) {
            self.take_frames(now)?;
            self.return_acknowledgments(now)
        } else {
            self.return_acknowledgments(now)?;
            self.take_frames(now)
        }
    }

    /// What the kernels sent enters.
    fn take_frames(&mut self, now: Instant) -> Result<(), String> {
        for side in [0, 1] {
            let taken = self.taps[side]
                .rx
                .receive(now, &mut self.slab, &mut self.burst, 256);
            taken.map_err(|e| e.to_string())?;
            while let Some(frame) = self.burst.pop_front() {
                let bytes = frame.bytes().to_vec();
                drop(frame);
                match flow_of(&bytes, self.lanes.len()) {
                    Some(flow) => {
                        self.enter(side, flow, bytes.len() - 14, What::Frame(bytes), now);
                    }
                    // Neighbours are found without delay: they are not what is measured.
                    None => self.deliver(1 - side, &bytes, now)?,
                }
            }
        }
        Ok(())
    }

    /// What has come back arrives, and our ends do what is due.
    fn return_acknowledgments(&mut self, now: Instant) -> Result<(), String> {
        for flow in 0..self.lanes.len() {
            while let Some(packet) = self.lanes[flow].back.poll(now) {
                self.arrive(0, packet.body, now)?;
            }
            for side in [0, 1] {
                self.ours(side, flow, now, |end, pool, out| {
                    if end.next() <= now {
                        end.wake(pool, now, out);
                    }
                });
            }
        }
        Ok(())
    }

    fn enter(&mut self, side: usize, flow: usize, size: usize, what: What, now: Instant) {
        let packet = Packet {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            ecn: Ecn::NotEct,
            body: Body { flow, what },
        };
        let lane = &mut self.lanes[flow];
        let link = match side {
            0 => &mut self.bottlenecks[lane.bottleneck],
            _ => &mut lane.back,
        };
        // What does not fit is gone; nothing here is larger than the path.
        let _ = link.send(packet, now);
    }

    fn arrive(&mut self, side: usize, body: Body, now: Instant) -> Result<(), String> {
        match body.what {
            What::Frame(bytes) => self.deliver(side, &bytes, now)?,
            What::Ours(segment) => self.ours(side, body.flow, now, |end, pool, out| {
                end.receive(&segment, pool, now, out);
            }),
        }
        Ok(())
    }

    fn deliver(&mut self, side: usize, bytes: &[u8], now: Instant) -> Result<(), String> {
        let Some(buffer) = self.slab.alloc() else {
            return Err("the relay is out of buffers".to_owned());
        };
        let mut frame = Frame::new(buffer, 0);
        frame.room_mut()[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        let mut one = VecDeque::from([frame]);
        let sent = self.taps[side].tx.transmit(now, &mut one);
        sent.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Our end on this side acts; what it sends goes into the same link as the kernel's.
    fn ours(
        &mut self,
        side: usize,
        flow: usize,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut SegmentPool<Text>, &mut Vec<Segment>),
    ) {
        let Some(ends) = &mut self.lanes[flow].ours else {
            return;
        };
        let (end, pool) = &mut ends[side];
        let mut out = std::mem::take(&mut self.out);
        act(end, pool, &mut out);
        for segment in out.drain(..) {
            let size = segment.size() as usize;
            self.enter(side, flow, size, What::Ours(segment), now);
        }
        self.out = out;
    }

    /// When something happens here next.
    fn next(&self) -> Instant {
        let lane = |lane: &Lane| {
            let ends = lane.ours.iter().flatten().map(|(end, _)| end.next());
            ends.fold(lane.back.next(), Instant::min)
        };
        let links = self.bottlenecks.iter().map(Link::next);
        let next = links.chain(self.lanes.iter().map(lane)).min();
        next.unwrap_or(Instant::FAR)
    }

    /// Until something happens, 10 ms at most.
    pub fn sleep(&self) {
        let most = self.next().since(Instant(now_ns()));
        let timeout = Timespec::try_from(most.min(Duration::from_millis(10))).ok();
        let fds = self.taps.each_ref().map(|tap| tap.rx.fd());
        let mut fds: Vec<_> = fds
            .iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        // Woken early is as good as in time.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

fn our_end(sends: bool, congestion: CongestionControl, now: Instant) -> Endpoint {
    let shape = netchan_end(
        congestion,
        sends.then_some(ENDLESS),
        sends.then_some(now),
        5,
    );
    let ports = if sends { (1, 2) } else { (2, 1) };
    Endpoint::new(shape, ports, if sends { (0, 1) } else { (1, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_told_by_the_receivers_port() {
        let frame = |kind: [u8; 2], protocol: u8, ports: [u16; 2]| {
            let mut frame = vec![0; 54];
            frame[12..14].copy_from_slice(&kind);
            frame[14] = 0x45;
            frame[23] = protocol;
            frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
            frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
            frame
        };
        assert_eq!(flow_of(&frame([8, 0], 6, [40_000, PORT + 2]), 3), Some(2));
        assert_eq!(flow_of(&frame([8, 0], 6, [PORT, 40_000]), 3), Some(0));
        assert_eq!(flow_of(&frame([8, 0], 6, [PORT + 3, 40_000]), 3), None);
        assert_eq!(flow_of(&frame([8, 6], 6, [PORT, 1]), 3), None, "ARP");
        assert_eq!(flow_of(&frame([8, 0], 1, [PORT, 1]), 3), None, "ICMP");
        assert_eq!(flow_of(&[0; 20], 3), None, "too short");
    }
}
