//! A link with one end in the test: frames go in as the test wrote them, and what the stack sends is there to be read.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use netchan::{
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::Packet,
};
use percore::{doorbell::Doorbell, slab::Slab};
use proto::{time::Instant, wire::ethernet::MacAddr};

/// Frames that wait for the test to read them, at most: a flood of answers is not to take the test's memory.
const OUTWARD_MAX: usize = 100_000;

#[derive(Default)]
struct Queues {
    inward: VecDeque<Vec<u8>>,
    outward: VecDeque<Vec<u8>>,
}

/// The test's end.
#[derive(Clone, Default)]
pub struct Outside(Arc<Mutex<Queues>>);

impl Outside {
    fn with<T>(&self, what: impl FnOnce(&mut Queues) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn push(&self, frame: Vec<u8>) {
        self.with(|queues| queues.inward.push_back(frame));
    }

    /// Frames that the stack has not taken yet.
    pub fn waiting(&self) -> usize {
        self.with(|queues| queues.inward.len())
    }

    pub fn said(&self) -> VecDeque<Vec<u8>> {
        self.with(|queues| std::mem::take(&mut queues.outward))
    }
}

/// The stack's end.
pub struct Door {
    properties: Properties,
    outside: Outside,
    rx: RxStatistics,
    tx: TxStatistics,
}

impl Door {
    /// With buffers for frames of `frame_max` bytes, as a link has whose device merges segments.
    pub fn new(mac: [u8; 6], frame_max: usize) -> (Self, Outside) {
        let outside = Outside::default();
        let properties = Properties {
            name: "door".to_owned(),
            kind: "door",
            mac: MacAddr(mac),
            mtu: 1500,
            frame_max: frame_max.max(1500 + FRAME_OVERHEAD),
            segmentation: Segmentation::None,
        };
        let door = Self {
            properties,
            outside: outside.clone(),
            rx: RxStatistics::default(),
            tx: TxStatistics::default(),
        };
        (door, outside)
    }
}

impl Link for Door {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, _bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue::of_one(*self)?])
    }
}

impl LinkRx for Door {
    fn receive(
        &mut self,
        _: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let frames = self.outside.with(|queues| {
            let some = queues.inward.len().min(max);
            queues.inward.drain(..some).collect::<Vec<_>>()
        });
        let mut given = 0;
        for frame in frames {
            self.rx.packets += 1;
            let Some(buffer) = slab.alloc() else {
                self.rx.no_buffer += 1;
                continue;
            };
            let mut packet = Packet::new(buffer, 0);
            packet.room_mut()[..frame.len()].copy_from_slice(&frame);
            packet.set_len(frame.len());
            burst.push_back(packet);
            given += 1;
        }
        Ok(given)
    }

    fn statistics(&self) -> RxStatistics {
        self.rx
    }
}

impl LinkTx for Door {
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let count = frames.len();
        self.tx.packets += count as u64;
        self.outside.with(|queues| {
            let taken = frames.drain(..).map(|packet| packet.bytes().to_vec());
            queues.outward.extend(taken);
            let beyond = queues.outward.len().saturating_sub(OUTWARD_MAX);
            queues.outward.drain(..beyond);
        });
        Ok(count)
    }

    fn statistics(&self) -> TxStatistics {
        self.tx
    }
}
