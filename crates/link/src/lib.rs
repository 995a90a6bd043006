//! Links: where packets enter and leave, in bursts. A link knows nothing of protocols.
//!
//! `specification` reads what a person writes and opens it: [`wire`] (in memory), [`tap`] and [`packet`](mod@packet) (over the
//! kernel), [`pcap`] (files), [`loopback`], [`lease`] (of another process). A link of your own is any `impl Link`.
//!
//! Programs take this crate from `netchan`, which has it as `netchan::link`.
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use netchan_base::packet::Packet;
//! use netchan_link::{Queue, wire};
//! use percore::slab::Slab;
//! use proto::time::Instant;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (here, there) = wire::pair(&wire::Options::default());
//! let (mut here, mut there) = (Queue::of(Box::new(here))?, Queue::of(Box::new(there))?);
//!
//! let mut slab = Slab::new(4, 2048)?;
//! let mut frame = Packet::new(slab.alloc().expect("four are free"), 0);
//! frame.set_len(60);
//! frame.bytes_mut().fill(0xff);
//! let mut frames = VecDeque::from([frame]);
//! assert_eq!(here.tx.transmit(Instant::ZERO, &mut frames)?, 1);
//!
//! assert_eq!(there.rx.receive(Instant::ZERO, &mut slab, &mut frames, 32)?, 1);
//! assert_eq!(frames[0].bytes(), [0xff; 60]);
//! # Ok(())
//! # }
//! ```

#[doc(hidden)] // what netchan puts in the place of a queue, beside the public names
pub mod closed;
mod datagrams;
mod device;
pub mod lease;
#[doc(hidden)]
pub mod lo;
pub mod loopback;
mod mac;
mod netlink;
pub mod packet;
pub mod pcap;
mod random;
pub mod specification;
mod sys;
pub mod tap;
#[doc(hidden)]
pub mod virtio;
pub mod wire;

use std::{collections::VecDeque, fmt, io, os::fd::BorrowedFd, sync::Arc};

use netchan_base::{Concurrency, packet::Packet};
use percore::{
    doorbell::{Doorbell, several::Several},
    slab::Slab,
};
use proto::{time::Instant, wire::ethernet::MacAddr};

pub use netchan_base::limits::BURST;

/// Bytes a frame may have beside its IP packet: an Ethernet header and two VLAN tags.
pub const FRAME_OVERHEAD: usize = 14 + 8;

/// The shortest frame a link hands over, bytes: an Ethernet header.
const HEADER_MIN: usize = 14;

/// The longest IP packet there is, jumbograms aside (RFC 791, RFC 8200).
pub const IP_MAX: usize = 65_535;

/// What a link does with more payload than its MTU allows ([`Meta::segment`](netchan_base::packet::Meta::segment)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// Nothing: the sender has to cut it.
    #[default]
    None,
    /// Carries TCP's text in one packet to a peer that takes it so. The sender makes its checksum.
    Carried,
    /// The kernel behind it cuts TCP's text, or takes it whole, and makes the checksums.
    Offloaded {
        /// Whether it also cuts many datagrams out of one packet (UDP_SEGMENT).
        datagrams: bool,
    },
}

impl Segmentation {
    /// Whether the kernel behind the link makes checksums.
    #[inline]
    pub const fn is_offloaded(self) -> bool {
        matches!(self, Self::Offloaded { .. })
    }
}

/// What does not change while a link is up.
#[derive(Clone, Debug)]
pub struct Properties {
    /// As the user wrote it (`tap:nc0`).
    pub name: String,
    /// `tap`, `packet`, `wire`, …
    pub kind: &'static str,
    /// Our address on it.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Largest frame that `receive` may produce, bytes (header, tags and segments merged by the sender's offload included): what slab buffers must hold.
    /// A wire whose peer sends segments uncut hands these over in the peer's own buffers, which are longer.
    pub frame_max: usize,
    /// What it does with more text than fits its MTU.
    pub segmentation: Segmentation,
}

/// Why a link can take or give no more.
#[derive(Debug)]
pub enum LinkError {
    /// The device is gone; nothing will ever come again.
    Gone(String),
    /// The other end let go of it in good order, as a stack does that is stopped. Nothing will ever come again, and people need not be told.
    Ended(String),
    /// An error of this moment.
    Io(io::Error),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(what) | Self::Ended(what) => write!(f, "the link is gone: {what}"),
            Self::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LinkError {}

/// What a receiving half counts by itself (R1: running out of buffers is counted where it happens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxStatistics {
    /// Frames (merged datagrams of one sender count as the one frame they came in).
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Dropped because the slab had no buffer.
    pub no_buffer: u64,
    /// Dropped by the device or the kernel's queue before we saw it; on a wire, what it lost or had no room for; by a short cut of a lease, what the other
    /// program may not send, or sent while short cuts were held back.
    pub missed: u64,
    /// Dropped because it was longer than a buffer or shorter than a header, or merged in a way we cannot undo.
    pub length: u64,
}

impl RxStatistics {
    /// Of two halves together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            no_buffer: self.no_buffer + other.no_buffer,
            missed: self.missed + other.missed,
            length: self.length + other.length,
        }
    }
}

/// What a transmitting half counts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxStatistics {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Refused by the device for good (not "try again"); by a short cut of a lease, for a program that takes nothing.
    pub errors: u64,
}

impl TxStatistics {
    /// Of two halves together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
        }
    }
}

/// A place where Ethernet frames enter and leave: a device that was opened, with its facts. [`Self::start`] makes its queues, which are all
/// that is left of it then.
pub trait Link: Send {
    /// What does not change.
    fn properties(&self) -> &Properties;

    /// Asks that frames come in as they may go out of another link: no segments merged, no checksum left to be made. Called at most
    /// once; [`Self::properties`] may be others after it. What a link cannot do of that, it leaves.
    ///
    /// # Errors
    /// The system's.
    fn for_forwarding(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The descriptors with which another process goes on with this link, needing none of the rights that opening it took; none where
    /// it needs none. In the order in which `specification::adopt` takes them.
    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Whether the driver may run beside other drivers and modules of its stack. [`Concurrency::Giant`]: it shares something with them
    /// that nothing else guards (a foreign library's globals, say); a shim takes Giant around each call of its queues (F4).
    fn concurrency(&self) -> Concurrency {
        Concurrency::Any
    }

    /// What another process has lent with it, where it is one of a daemon's ([`lease`]): addresses that others have, too, and ports.
    fn lease(&self) -> Option<Arc<dyn lease::Lease>> {
        None
    }

    /// How many queues it has: no more bells are made for it, and a stack whose regime leaves the number of its shards open has so many shards.
    fn queues(&self) -> usize {
        1
    }

    /// Its queues: at least one, at most one for each of `bells`, of which there is at least one. A queue without a descriptor rings
    /// its bell when something can be received; all ring it when a full queue has room again, where they can tell.
    ///
    /// # Errors
    /// The system's.
    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>>;
}

/// A queue of a link: one half for each direction. Two threads may use the halves at the same time. Of several queues, all frames of a flow come in by one as
/// long as the stack sends by one; the link chooses which.
pub struct Queue {
    /// The receiving half.
    pub rx: Box<dyn LinkRx>,
    /// The transmitting half.
    pub tx: Box<dyn LinkTx>,
}

/// The receiving half of a queue, used by one thread at a time. Sleep only when [`Self::receive`] gave nothing, on [`Self::fd`] (or,
/// without one, on the queue's bell), and not beyond [`Self::next_event`].
pub trait LinkRx: Send {
    /// Appends up to `max` frames to `burst`; returns how many. Never blocks. `0` means nothing now.
    ///
    /// A frame's `meta.checksum_verified` says that the transport checksum need not be looked at. It may not even be there: a
    /// kernel that hands a frame over inside this host leaves it out, so code that passes the frame on to another link has to
    /// make it first. A buffer smaller than `frame_max` cuts no frame: the frame is dropped and counted.
    ///
    /// # Errors
    /// [`LinkError::Gone`] once the device has vanished, on every further call too.
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError>;

    /// Readable when `receive` would give something.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// When `receive` may give something without being told (a delayed frame falls due, or one is there); [`Instant::FAR`] if never. A thread that is about
    /// to sleep asks this last: a queue whose [`Self::fd`] has to be made ready for a sleep does so here.
    fn next_event(&mut self) -> Instant {
        Instant::FAR
    }

    /// As [`Self::next_event`], for a thread that is about to sleep on doorbells alone: those of this queue are armed, and among `bells`. They do not tell of
    /// the device's end, as [`Self::fd`] does. `None`: the queue has other means. [`Self::leave_bells`] follows.
    fn next_event_by_bells(&mut self, bells: &mut Several) -> Option<Instant> {
        let _ = bells;
        self.fd().is_none().then(|| self.next_event())
    }

    /// The thread is awake again.
    fn leave_bells(&mut self) {}

    /// What it counted.
    fn statistics(&self) -> RxStatistics;
}

/// The transmitting half of a queue, used by one thread at a time.
pub trait LinkTx: Send {
    /// Takes frames from the front of `frames` until it is empty or the link is full; returns how many it took.
    /// What it leaves may be offered again. Never blocks. What is longer than the MTU, or lacks its checksum, comes only where
    /// [`Properties::segmentation`] says so.
    ///
    /// # Errors
    /// As for [`LinkRx::receive`]; the frames stay.
    fn transmit(&mut self, now: Instant, frames: &mut VecDeque<Packet>)
    -> Result<usize, LinkError>;

    /// What it counted.
    fn statistics(&self) -> TxStatistics;
}
