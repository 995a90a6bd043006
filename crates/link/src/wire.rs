//! The wire: two ends in one process. Packet handles move, bytes stay; each direction is a ring of one writer and one reader.
//!
//! A direction without impairments is that ring and nothing else. One with impairments has a model in front of it
//! (`shape`), which decides when a frame is sent whether and when it arrives, and a heap behind it, which lets frames
//! overtake each other. Time is the `now` of each call, real or virtual; the same seed and the same calls give the same trace.
//!
//! Each end may be used by a thread of its own, or both by one: nothing blocks. A wire whose other end was dropped is
//! [`LinkError::Ended`], once what was under way has arrived.

mod direction;
mod options;
pub(crate) mod registry;
mod shape;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{
            Ordering::{Acquire, SeqCst},
            fence,
        },
    },
};

use netchan_base::packet::Packet;
use percore::{doorbell::Doorbell, slab::Slab};
use proto::time::Instant;

use self::direction::{Direction, Incoming, Outgoing, direction};
pub use self::{options::Options, shape::Impairments};
use super::{
    FRAME_OVERHEAD, IP_MAX, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
    Segmentation, TxStatistics, mac,
};
pub use netchan_base::units::Probability;

/// Both ends of a wire that treats the frames of each direction as `options` says.
#[must_use]
pub fn pair(options: &Options) -> (Wire, Wire) {
    pair_with(options, options)
}

/// Both ends of a wire: `first` for what the first end sends, `second` for what the second one sends.
#[must_use]
pub fn pair_with(first: &Options, second: &Options) -> (Wire, Wire) {
    let (out0, in1) = direction(first, 0);
    let (out1, in0) = direction(second, 1);
    let (mut a, mut b) = (
        Wire::new("wire", first, 0, out0),
        Wire::new("wire", second, 1, out1),
    );
    let frame_max = a.properties.frame_max.max(b.properties.frame_max);
    (a.properties.frame_max, b.properties.frame_max) = (frame_max, frame_max);
    (a.rx.incoming, b.rx.incoming) = (Some(in0), Some(in1));
    (a, b)
}

/// One end of a wire. It may be used as it is, by one thread, or be started, for the two halves of its queue.
#[derive(Debug)]
pub struct Wire {
    properties: Properties,
    rx: Rx,
    tx: Tx,
}

/// The receiving half of an end.
#[derive(Debug, Default)]
struct Rx {
    /// `None` while the other end of a wire with a name is not open.
    incoming: Option<Incoming>,
    /// Where the half that `incoming` waits for will be put.
    slot: Option<Arc<registry::Slot>>,
    bell: Option<Arc<Doorbell>>,
    counts: RxStatistics,
}

/// The transmitting half of an end.
#[derive(Debug)]
struct Tx {
    out: Outgoing,
    /// Longest frame this end sends, bytes.
    longest: usize,
    counts: TxStatistics,
}

impl Wire {
    fn new(name: &str, options: &Options, end: u8, out: Outgoing) -> Self {
        let mac = options.mac.unwrap_or_else(|| {
            mac::derive(&[
                b"wire",
                name.as_bytes(),
                &options.seed.to_be_bytes(),
                &[end],
            ])
        });
        let segmentation = options.segmentation();
        let longest = match segmentation {
            Segmentation::None => options.mtu,
            _ => IP_MAX,
        } + FRAME_OVERHEAD;
        let properties = Properties {
            name: name.to_owned(),
            kind: "wire",
            mac,
            mtu: options.mtu,
            frame_max: options.mtu + FRAME_OVERHEAD,
            segmentation,
        };
        Self {
            properties,
            rx: Rx::default(),
            tx: Tx {
                out,
                longest,
                counts: TxStatistics::default(),
            },
        }
    }

    /// What the wire did to the frames this end sent, and goes on doing: a live view that stays when the end is given away.
    #[must_use]
    pub fn impairments(&self) -> WireView {
        WireView {
            direction: self.tx.out.direction.clone(),
        }
    }

    /// The bell to ring when there is something to receive, or room again.
    pub fn attach(&mut self, bell: &Arc<Doorbell>) {
        // A second bell for one end is not rung.
        let _ = self.tx.out.direction.sender.set(bell.clone());
        if let Some(incoming) = &self.rx.incoming {
            let _ = incoming.direction.receiver.set(bell.clone());
        }
        self.rx.bell = Some(bell.clone());
    }
}

impl Rx {
    /// Takes the receiving half once the other end has been opened; false before that.
    fn join(&mut self) -> bool {
        let Some(incoming) = self.slot.as_ref().and_then(|slot| slot.take()) else {
            return false;
        };
        if let Some(bell) = &self.bell {
            // A wire has one receiver: this is the first and only time.
            let _ = incoming.direction.receiver.set(bell.clone());
        }
        self.incoming = Some(incoming);
        self.slot = None;
        true
    }
}

/// A live view of what a wire does to the frames of one direction.
#[derive(Clone, Debug)]
pub struct WireView {
    direction: Arc<Direction>,
}

impl std::ops::Deref for WireView {
    type Target = Impairments;
    fn deref(&self) -> &Impairments {
        &self.direction.seen
    }
}

fn ended() -> LinkError {
    LinkError::Ended("the other end of the wire was dropped".into())
}

impl Link for Wire {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn for_forwarding(&mut self) -> io::Result<()> {
        if self.properties.segmentation == Segmentation::None {
            return Ok(());
        }
        // What comes uncut from the peer could go out by no other link.
        let what = format!(
            "{}: offload=on does not go with forwarding",
            self.properties.name
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    fn start(mut self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        if let Some(bell) = bells.first() {
            self.attach(bell);
        }
        let Self { rx, tx, .. } = *self;
        Ok(vec![Queue {
            rx: Box::new(rx),
            tx: Box::new(tx),
        }])
    }
}

impl LinkRx for Rx {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        if self.incoming.is_none() && !self.join() {
            return Ok(0);
        }
        let Some(incoming) = &mut self.incoming else {
            return Ok(0);
        };
        let n = incoming.receive(now, slab, burst, max, &mut self.counts);
        // In this order: what was sent before the end was dropped is seen by the second look.
        // Acquire: pairs with Release in Outgoing::drop
        if n == 0 && incoming.direction.closed.load(Acquire) && incoming.is_empty() {
            return Err(ended());
        }
        Ok(n)
    }

    fn next_event(&mut self) -> Instant {
        (self.incoming.as_ref()).map_or(Instant::FAR, Incoming::next_event)
    }

    fn statistics(&self) -> RxStatistics {
        let seen = (self.incoming.as_ref()).map(|incoming| &incoming.direction.seen);
        RxStatistics {
            missed: seen.map_or(0, |seen| seen.missed()),
            ..self.counts
        }
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        if self.slot.take().is_some() {
            registry::sweep();
        }
    }
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        // Acquire: pairs with Release in Incoming::drop
        if self.out.direction.closed.load(Acquire) && !frames.is_empty() {
            return Err(ended());
        }
        let offered = frames.len();
        self.out.send(now, frames, self.longest, &mut self.counts);
        if !frames.is_empty() {
            // Say so, then look again: see Incoming::unblock.
            self.out.direction.blocked.store(true, SeqCst); // pairs with the swap there
            fence(SeqCst); // partner: the fence in Doorbell::arm
            self.out.send(now, frames, self.longest, &mut self.counts);
        }
        let taken = offered - frames.len();
        if taken > 0 {
            self.out.ring_bell();
        }
        Ok(taken)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}

impl LinkRx for Wire {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.rx.receive(now, slab, burst, max)
    }

    fn next_event(&mut self) -> Instant {
        self.rx.next_event()
    }

    fn statistics(&self) -> RxStatistics {
        self.rx.statistics()
    }
}

impl LinkTx for Wire {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        self.tx.transmit(now, frames)
    }

    fn statistics(&self) -> TxStatistics {
        self.tx.statistics()
    }
}
