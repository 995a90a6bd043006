//! What a wire does to the frames of one direction.

use std::{num::NonZeroU64, time::Duration};

use netchan_base::units::Probability;
use proto::wire::ethernet::MacAddr;

use crate::Segmentation;

/// What a wire does to the frames that one end sends. [`Options::default`] is a perfect wire: no delay, no loss, no limit but its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest IP packet, bytes: 68 to 65535.
    pub mtu: usize,
    /// Time under way, beside the time that `rate` takes.
    pub delay: Duration,
    /// Up to this much more for each frame, evenly spread; may reorder.
    pub jitter: Duration,
    /// Probability that a frame is held back so that later ones overtake it.
    pub reorder: Probability,
    /// How long at most it is held back (evenly spread).
    pub extent: Duration,
    /// Probability that a frame is lost.
    pub loss: Probability,
    /// Probability that a frame arrives twice. The copy lies in the receiver's slab; when that is empty there is none.
    pub duplicate: Probability,
    /// Probability that a byte is changed so that a checksum of the network or transport layer is sure to notice. What has no
    /// such checksum (ARP) is lost instead, as an Ethernet with its frame check sequence would lose it.
    pub corrupt: Probability,
    /// Bits of frame per second (no preamble, gap or frame check sequence); `None`: no limit.
    pub rate: Option<NonZeroU64>,
    /// Frames that may wait, the one being sent included; more are dropped at the tail and counted. `None`: [`Options::QUEUE`]
    /// with a rate; without one the wire pushes back when its ring is full, and nothing is dropped.
    /// Without a rate, what waits is what is under way.
    pub queue_frames: Option<usize>,
    /// Bytes of frames that may wait, as `queue_frames` counts them.
    pub queue_bytes: Option<usize>,
    /// Seed of everything that is left to chance.
    pub seed: u64,
    /// Frames the ring between the two ends holds, rounded up to a power of two.
    pub ring: usize,
    /// Whether the receiver may take checksums as verified. A wire in memory does not change a byte, so that may well be; but
    /// then nothing notices what `corrupt` did, and a measurement that skips checksums has to say so.
    pub trusted: bool,
    /// Whether text that several segments would carry goes uncut to the peer, as between two ends of a virtual Ethernet. The peer must take it
    /// so, as netchan's TCP does. Nothing comes of it where frames go through a model: it counts and drops what a network would carry.
    pub offload: bool,
    /// Address of the end that sends with these options; derived from the seed and the end if `None`.
    pub mac: Option<MacAddr>,
}

impl Options {
    /// Frames that wait at most when a rate is set and no limit: what Linux gives an interface (`txqueuelen`).
    pub const QUEUE: usize = 1000;

    /// Slots of the ring: what `ring` says, or a queue limit that no rate turns into time.
    pub(super) fn slots(&self) -> usize {
        match (self.rate, self.queue_frames) {
            (None, Some(frames)) => frames.clamp(1, 1 << 16),
            _ => self.ring.clamp(1, 1 << 20),
        }
    }

    /// What becomes of segments that are not cut.
    pub(super) fn segmentation(&self) -> Segmentation {
        if self.offload && !self.shapes() {
            Segmentation::Carried
        } else {
            Segmentation::None
        }
    }

    /// Whether the frames have to go through the model at all.
    pub(super) fn shapes(&self) -> bool {
        !(self.delay.is_zero()
            && self.jitter.is_zero()
            && self.reorder.is_never()
            && self.loss.is_never()
            && self.duplicate.is_never()
            && self.corrupt.is_never()
            && self.rate.is_none()
            && self.queue_frames.is_none()
            && self.queue_bytes.is_none())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: 1500,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: Probability::NEVER,
            extent: Duration::from_millis(1),
            loss: Probability::NEVER,
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            rate: None,
            queue_frames: None,
            queue_bytes: None,
            seed: 1,
            ring: 512,
            trusted: false,
            offload: false,
            mac: None,
        }
    }
}
