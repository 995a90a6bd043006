//! What writes frames: out of a link, or into the stack as if they had come in by it.
//!
//! A writer has a ring to its link's point for frames that come in, which takes what is there with each burst. The point knows it as it knows taps: without
//! a writer it costs nothing. The link's thread hands what goes out to the transmitting half as it hands over an answer of the host's own.

use std::{fmt, io, sync::Arc, time::Duration};

use percore::{
    lock::{Mutex, mutex},
    ring::{Consumer, Producer, ring},
    slab::Slab,
};

use super::{List, Place, Taps, Way, invalid};
use crate::{
    limits, locks,
    packet::{HEADROOM, Packet},
};

/// Shortest frame: an Ethernet header.
const FRAME_MIN: usize = 14;
/// Beside the link's MTU: the header, and a tag.
const FRAME_OVERHEAD: usize = 18;

/// A frame on its way to a link's thread.
pub(crate) struct Written {
    pub packet: Packet,
    pub way: Way,
}

/// What a writer and a point share.
pub(crate) struct Pipe {
    pub id: u64,
    /// The point's slot.
    slot: usize,
    /// Its end, until it takes it.
    end: Mutex<Option<Consumer<Written>>>,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer {}", self.id)
    }
}

impl Pipe {
    /// The end for the point with this slot, once.
    pub fn end_for(&self, slot: usize) -> Option<Consumer<Written>> {
        (slot == self.slot).then(|| self.end.lock().take())?
    }
}

/// Why a frame was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// It has no Ethernet header.
    Short,
    /// It is longer than the link takes: so many bytes.
    Long(usize),
    /// The link has not yet taken what was written before; try again.
    Full,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(
                f,
                "it is shorter than an Ethernet header, {FRAME_MIN} bytes"
            ),
            Self::Long(most) => write!(f, "it is longer than the {most} bytes that the link takes"),
            Self::Full => f.write_str("the link has not taken what was written before"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes frames into a stack. Dropped, what the link has not taken is lost: see [`Self::is_empty`].
pub struct Writer {
    pipe: Arc<Pipe>,
    taps: Arc<Taps>,
    ring: Producer<Written>,
    slab: Slab,
    longest: usize,
    /// Wakes the link's thread.
    wake: Box<dyn Fn() + Send>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.pipe, f)
    }
}

impl Taps {
    /// What writes frames for a link with this MTU. `wake`: wakes its thread.
    ///
    /// # Errors
    /// `InvalidInput`: no such link; `QuotaExceeded` with [`limits::WRITERS`]; `OutOfMemory`.
    pub fn writer(
        self: &Arc<Self>,
        (link, mtu): (u8, usize),
        places: &[Place],
        wake: Box<dyn Fn() + Send>,
    ) -> io::Result<Writer> {
        // Of several queues the first one's, which does the host's own work.
        let first = Place::Link(link, Way::In);
        let slot = places.iter().position(|place| *place == first);
        let slot = slot.ok_or_else(|| invalid("there is no link with that number"))?;
        let longest = mtu + FRAME_OVERHEAD;
        let size = (HEADROOM + longest).next_multiple_of(64);
        let slab = Slab::with_ready(limits::WRITTEN, size, 0)?;
        let (producer, consumer) = ring(limits::WRITTEN);
        let pipe = Arc::new(Pipe {
            id: self.next_id(),
            slot,
            end: mutex(&locks::TAP, Some(consumer)),
        });
        self.list.try_update(|list: &mut List| {
            if list.pipes.len() >= limits::WRITERS {
                let most = limits::WRITERS;
                let why = format!("{most} writers are there already");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
            }
            list.pipes.push(pipe.clone());
            Ok(())
        })?;
        Ok(Writer {
            pipe,
            taps: self.clone(),
            ring: producer,
            slab,
            longest,
            wake,
        })
    }
}

impl Writer {
    /// Writes a frame, from its Ethernet header on. Never waits.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&mut self, way: Way, frame: &[u8]) -> Result<(), WriteError> {
        if frame.len() < FRAME_MIN {
            return Err(WriteError::Short);
        }
        if frame.len() > self.longest {
            return Err(WriteError::Long(self.longest));
        }
        let buffer = self.slab.alloc().ok_or(WriteError::Full)?;
        let mut packet = Packet::new(buffer, HEADROOM);
        packet.set_len(frame.len());
        packet.bytes_mut().copy_from_slice(frame);
        let pushed = self.ring.push(Written { packet, way });
        pushed.map_err(|_| WriteError::Full)?;
        (self.wake)();
        Ok(())
    }

    /// The longest frame that it takes, bytes.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Whether the link has taken all that was written.
    pub fn is_empty(&mut self) -> bool {
        self.ring.room() == self.ring.capacity()
    }

    /// Waits, for as long as `limit`, until it has. False: it has not.
    pub fn wait_empty(&mut self, limit: Duration) -> bool {
        let begin = percore::clock::now_ns();
        while !self.is_empty() {
            let passed = percore::clock::now_ns().saturating_sub(begin);
            if u128::from(passed) >= limit.as_nanos() {
                return false;
            }
            (self.wake)();
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let id = self.pipe.id;
        (self.taps.list).update(|list| list.pipes.retain(|pipe| pipe.id != id));
    }
}
