//! The interface of 127.0.0.0/8 and ::1. What is for addresses of ours never comes as far as a link, and nothing else is behind it.

use std::{collections::VecDeque, io, sync::Arc};

use netchan_base::packet::Packet;
use percore::{doorbell::Doorbell, slab::Slab};
use proto::time::Instant;

use super::{
    FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, Segmentation,
    TxStatistics, mac,
};

/// Largest IP packet, bytes. Less than Linux's 65,536: what waits in a socket's queue lies in the buffer it was sent in, and of larger
/// ones a shard has few.
const MTU: usize = 9_000;
/// Nothing is received here. The memory that sockets may hold follows from the links' buffers, so they are as with Ethernet.
const FRAME_MAX: usize = 1_500 + FRAME_OVERHEAD;

/// A link that leads nowhere.
#[derive(Debug)]
pub struct Lo {
    properties: Properties,
}

impl Default for Lo {
    fn default() -> Self {
        let properties = Properties {
            name: "lo".into(),
            kind: "lo",
            mac: mac::derive(&[b"lo"]),
            mtu: MTU,
            frame_max: FRAME_MAX,
            segmentation: Segmentation::None,
        };
        Self { properties }
    }
}

impl Link for Lo {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, _bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: Box::new(Nothing),
            // Groups' and broadcast packets: our own members have their copy.
            tx: Box::new(Sink::default()),
        }])
    }
}

/// The receiving half: nothing comes.
struct Nothing;

impl LinkRx for Nothing {
    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        _burst: &mut VecDeque<Packet>,
        _max: usize,
    ) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn statistics(&self) -> RxStatistics {
        RxStatistics::default()
    }
}

/// A transmitting half behind which nothing is: what it takes is counted and gone.
#[derive(Debug, Default)]
pub(super) struct Sink(TxStatistics);

impl LinkTx for Sink {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let sent = frames.len();
        self.0.packets += sent as u64;
        self.0.bytes += (frames.drain(..))
            .map(|frame| frame.len() as u64)
            .sum::<u64>();
        Ok(sent)
    }

    fn statistics(&self) -> TxStatistics {
        self.0
    }
}
