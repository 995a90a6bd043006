//! smoltcp's in-memory link at its best: frames are written in place into recycled buffers, the one used last is used next (it is warm).

use std::collections::VecDeque;

use smoltcp::{
    phy::{self, ChecksumCapabilities, Device, DeviceCapabilities, Medium},
    time::Instant,
};

/// One direction.
pub struct Lane {
    queue: VecDeque<Frame>,
    free: Vec<Frame>,
}

struct Frame {
    bytes: Box<[u8]>,
    len: usize,
}

impl Lane {
    /// With room for `frames` frames of at most `frame_max` bytes.
    pub fn new(frames: usize, frame_max: usize) -> Self {
        let frame = || Frame {
            bytes: vec![0; frame_max].into_boxed_slice(),
            len: 0,
        };
        Self {
            queue: VecDeque::with_capacity(frames),
            free: (0..frames).map(|_| frame()).collect(),
        }
    }
}

/// One end of the link, made for one call: it borrows a lane each way.
pub struct Port<'a> {
    /// Frames to us.
    pub rx: &'a mut Lane,
    /// Frames from us.
    pub tx: &'a mut Lane,
    /// Largest frame, in the medium's own count.
    pub frame_max: usize,
    /// Ethernet or IP.
    pub medium: Medium,
    /// Whether checksums are computed and verified.
    pub checksums: bool,
}

impl Device for Port<'_> {
    type RxToken<'a>
        = RxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a>
    where
        Self: 'a;

    #[inline]
    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        if self.tx.free.is_empty() {
            return None;
        }
        let frame = self.rx.queue.pop_front()?;
        Some((
            RxToken {
                frame,
                home: &mut self.rx.free,
            },
            TxToken { lane: self.tx },
        ))
    }

    #[inline]
    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        (!self.tx.free.is_empty()).then_some(TxToken { lane: self.tx })
    }

    #[inline]
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit = self.frame_max;
        if !self.checksums {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
        capabilities
    }
}

/// A frame to be read.
pub struct RxToken<'a> {
    frame: Frame,
    home: &'a mut Vec<Frame>,
}

impl phy::RxToken for RxToken<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.frame.bytes[..self.frame.len]);
        self.home.push(self.frame);
        result
    }
}

/// Room for a frame.
pub struct TxToken<'a> {
    lane: &'a mut Lane,
}

impl phy::TxToken for TxToken<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self
            .lane
            .free
            .pop()
            .expect("a token is only made where there is a frame");
        frame.len = len;
        let result = f(&mut frame.bytes[..len]);
        self.lane.queue.push_back(frame);
        result
    }
}
