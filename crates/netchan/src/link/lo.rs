//! The interface of 127.0.0.0/8 and ::1. What is for addresses of ours never comes as far as a link, and nothing else is behind it.

use std::collections::VecDeque;

use percore::slab::Slab;
use proto::time::Instant;

use super::{FRAME_OVERHEAD, Link, LinkError, Properties, Segmentation, Statistics, mac};
use crate::packet::Packet;

/// Largest IP packet, bytes. Less than Linux's 65,536: what waits in a socket's queue lies in the buffer it was sent in, and of larger
/// ones a shard has few.
const MTU: usize = 9_000;
/// Nothing is received here. The memory that sockets may hold follows from the links' buffers, so they are as with Ethernet.
const FRAME_MAX: usize = 1_500 + FRAME_OVERHEAD;

/// A link that leads nowhere.
#[derive(Debug)]
pub struct Lo {
    properties: Properties,
    counts: Statistics,
}

impl Lo {
    /// One.
    pub fn new() -> Self {
        let properties = Properties {
            name: "lo".into(),
            kind: "lo",
            mac: mac::derive(&[b"lo"]),
            mtu: MTU,
            frame_max: FRAME_MAX,
            segmentation: Segmentation::None,
        };
        Self {
            properties,
            counts: Statistics::default(),
        }
    }
}

impl Link for Lo {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        _burst: &mut VecDeque<Packet>,
        _max: usize,
    ) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Groups' and broadcast packets: our own members have their copy, and there is no one else.
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let sent = frames.len();
        for frame in frames.drain(..) {
            self.counts.tx_packets += 1;
            self.counts.tx_bytes += frame.len() as u64;
        }
        Ok(sent)
    }

    fn statistics(&self) -> Statistics {
        self.counts
    }
}
