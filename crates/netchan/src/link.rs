//! Links: where packets enter and leave, in bursts. A link knows nothing of protocols.
//!
//! `specification` reads what a person writes and opens it: [`wire`] (in memory), [`tap`] and [`packet`](mod@packet) (over the
//! kernel), [`pcap`] (files), [`loopback`]. A link of your own is any `impl Link`.

pub(crate) mod closed;
mod datagrams;
pub(crate) mod giant_shim;
pub(crate) mod lo;
pub mod loopback;
pub(crate) mod mac;
mod netlink;
pub mod packet;
pub mod pcap;
pub(crate) mod random;
pub mod specification;
mod sys;
pub(crate) mod sys_handed;
pub mod tap;
pub(crate) mod virtio;
pub mod wire;

use std::{collections::VecDeque, fmt, io, os::fd::BorrowedFd, sync::Arc};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::{time::Instant, wire::ethernet::MacAddr};

use crate::{giant::Concurrency, packet::Packet};

pub use crate::limits::BURST;

/// Bytes a frame may have beside its IP packet: an Ethernet header and two VLAN tags.
pub const FRAME_OVERHEAD: usize = 14 + 8;

/// The shortest frame a link hands over, bytes: an Ethernet header.
const HEADER_MIN: usize = 14;

/// The longest IP packet there is, jumbograms aside (RFC 791, RFC 8200).
pub const IP_MAX: usize = 65_535;

/// What a link does with more payload than its MTU allows ([`Meta::segment`](crate::packet::Meta::segment)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// Nothing: who emits has to cut it.
    #[default]
    None,
    /// Carries TCP's text in one packet to a peer that takes it so. Whoever emits makes its checksum.
    Carried,
    /// Somebody behind it cuts TCP's text, or takes it whole, and makes the checksums: the kernel.
    Offloaded {
        /// The same with many datagrams in one packet (UDP_SEGMENT).
        datagrams: bool,
    },
}

impl Segmentation {
    /// Whether somebody behind the link makes checksums.
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
    /// The other end let go of it in good order, as a stack does that is stopped. Nothing will ever come again, and nobody needs to be told.
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

/// What a link counts by itself (R1: running out of buffers is counted where it happens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames in (merged datagrams of one sender count as the one frame they came in).
    pub rx_packets: u64,
    /// Bytes in.
    pub rx_bytes: u64,
    /// Frames out.
    pub tx_packets: u64,
    /// Bytes out.
    pub tx_bytes: u64,
    /// Dropped because the slab had no buffer.
    pub rx_no_buffer: u64,
    /// Dropped by the device or the kernel's queue before we saw it; on a wire, what it lost or had no room for.
    pub rx_missed: u64,
    /// Dropped because it was longer than a buffer or shorter than a header, or merged in a way we cannot undo.
    pub rx_length: u64,
    /// Refused by the device for good (not "try again").
    pub tx_errors: u64,
}

/// A place where Ethernet frames enter and leave.
///
/// Order of calls: `attach` once; then `receive` and `transmit` at will, from one thread at a time; sleep only when
/// `receive` gave nothing, on `fd` (or, without one, on the doorbell given to `attach`) and not beyond `next_event`.
pub trait Link: Send {
    /// What does not change.
    fn properties(&self) -> &Properties;

    /// The bell to ring when something can be received, for a link without a descriptor.
    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        let _ = doorbell;
    }

    /// Asks that frames come in as they may go out of another link: no segments merged, no checksum left to be made. Called at most
    /// once, before `attach`; [`Self::properties`] may be others after it. What a link cannot do of that, it leaves.
    ///
    /// # Errors
    /// The system's.
    fn for_forwarding(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Appends up to `max` frames to `burst`; returns how many. Never blocks. `0` means nothing now.
    ///
    /// A frame's `meta.checksum_verified` says that the transport checksum need not be looked at. It may not even be there: a
    /// kernel that hands a frame over inside this host leaves it out, so who passes the frame on to another link has to
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

    /// Takes frames from the front of `frames` until it is empty or the link is full; returns how many it took.
    /// What it leaves may be offered again. Never blocks. What is longer than the MTU, or lacks its checksum, comes only where
    /// [`Properties::segmentation`] says so.
    ///
    /// # Errors
    /// As for `receive`; the frames stay.
    fn transmit(&mut self, now: Instant, frames: &mut VecDeque<Packet>)
    -> Result<usize, LinkError>;

    /// Readable when `receive` would give something.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptors with which another process goes on with this link, needing none of the rights that opening it took; none where
    /// it needs none. In the order in which `specification::adopt` takes them.
    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// When `receive` may give something without being told (a delayed frame falls due); [`Instant::FAR`] if never.
    fn next_event(&self) -> Instant {
        Instant::FAR
    }

    /// Its own counters.
    fn statistics(&self) -> Statistics;

    /// Whether the driver may run beside other drivers and modules of its stack. [`Concurrency::Giant`]: it shares something with them
    /// that nothing else guards (a foreign library's globals, say); a shim takes Giant around each call of it (F4).
    fn concurrency(&self) -> Concurrency {
        Concurrency::Any
    }
}
