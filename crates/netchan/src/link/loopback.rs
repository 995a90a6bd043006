//! The loopback: what is transmitted is received.

use std::{collections::VecDeque, sync::Arc};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::{time::Instant, wire::ethernet::MacAddr};

use super::{FRAME_OVERHEAD, Link, LinkError, Properties, Segmentation, Statistics, mac};
use crate::packet::{Meta, Packet};

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
    queue: VecDeque<Packet>,
    bell: Option<Arc<Doorbell>>,
    counts: Statistics,
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
            queue: VecDeque::with_capacity(QUEUE),
            bell: None,
            counts: Statistics::default(),
        }
    }
}

impl Link for Loopback {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        self.bell = Some(doorbell);
    }

    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let n = self.queue.len().min(max);
        for mut packet in self.queue.drain(..n) {
            packet.meta = Meta {
                checksum_verified: self.trusted.into(),
                ..Meta::default()
            };
            self.counts.rx_packets += 1;
            self.counts.rx_bytes += packet.len() as u64;
            burst.push_back(packet);
        }
        Ok(n)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let n = frames.len().min(QUEUE - self.queue.len());
        for packet in frames.drain(..n) {
            if packet.len() > self.properties.frame_max {
                self.counts.tx_errors += 1;
                continue;
            }
            self.counts.tx_packets += 1;
            self.counts.tx_bytes += packet.len() as u64;
            self.queue.push_back(packet);
        }
        if let Some(bell) = self.bell.as_ref().filter(|_| n > 0) {
            bell.ring();
        }
        Ok(n)
    }

    /// What was sent is there at once.
    fn next_event(&self) -> Instant {
        if self.queue.is_empty() {
            Instant::FAR
        } else {
            Instant::ZERO
        }
    }

    fn statistics(&self) -> Statistics {
        self.counts
    }
}
