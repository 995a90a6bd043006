//! The loopback: what is transmitted is received.

use std::{collections::VecDeque, io, sync::Arc};

use netchan_base::packet::{Meta, Packet};
use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
    slab::Slab,
};
use proto::{time::Instant, wire::ethernet::MacAddr};

use super::{
    FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, Segmentation,
    TxStatistics, mac,
};

/// Frames it holds; more stay with the sender.
const QUEUE: usize = 1024;

/// How to make a loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Its address; a fixed one of our own if `None`.
    pub mac: Option<MacAddr>,
    /// Whether checksums may be taken as verified.
    pub trusted: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: 65_535,
            mac: None,
            trusted: false,
        }
    }
}

/// A link with one end.
#[derive(Debug)]
pub struct Loopback {
    properties: Properties,
    trusted: bool,
}

impl Loopback {
    /// A loopback.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let properties = Properties {
            name: "loop".into(),
            kind: "loop",
            mac: options.mac.unwrap_or_else(|| mac::derive(&[b"loop"])),
            mtu: options.mtu,
            frame_max: options.mtu + FRAME_OVERHEAD,
            segmentation: Segmentation::None,
        };
        Self {
            properties,
            trusted: options.trusted,
        }
    }
}

impl Link for Loopback {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let (tx, rx) = ring(QUEUE);
        let rx = Rx {
            ring: rx,
            trusted: self.trusted,
            counts: RxStatistics::default(),
        };
        let tx = Tx {
            ring: tx,
            bell: bells.first().cloned(),
            frame_max: self.properties.frame_max,
            counts: TxStatistics::default(),
        };
        Ok(vec![Queue {
            rx: Box::new(rx),
            tx: Box::new(tx),
        }])
    }
}

struct Rx {
    ring: Consumer<Packet>,
    trusted: bool,
    counts: RxStatistics,
}

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let (trusted, counts) = (self.trusted, &mut self.counts);
        Ok(self.ring.pop_batch(max, |mut packet| {
            packet.meta = Meta {
                checksum_verified: trusted.into(),
                ..Meta::default()
            };
            counts.packets += 1;
            counts.bytes += packet.len() as u64;
            burst.push_back(packet);
        }))
    }

    /// What was sent is there at once.
    fn next_event(&mut self) -> Instant {
        if self.ring.is_empty() {
            Instant::FAR
        } else {
            Instant::ZERO
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.counts
    }
}

struct Tx {
    ring: Producer<Packet>,
    bell: Option<Arc<Doorbell>>,
    frame_max: usize,
    counts: TxStatistics,
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let mut taken = 0;
        while let Some(frame) = frames.front() {
            let len = frame.len();
            let fits = len <= self.frame_max;
            if fits && self.ring.room() == 0 {
                break;
            }
            let Some(packet) = frames.pop_front() else {
                break;
            };
            taken += 1;
            if fits && self.ring.stage(packet).is_ok() {
                self.counts.packets += 1;
                self.counts.bytes += len as u64;
            } else {
                self.counts.errors += 1;
            }
        }
        self.ring.publish();
        if let Some(bell) = self.bell.as_ref().filter(|_| taken > 0) {
            bell.ring();
        }
        Ok(taken)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}
