//! The queue of a TAP: what is read from its descriptor and written to it.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use netchan_base::packet::{Flag, Meta, Packet};
use percore::{own::Own, slab::Slab};
use proto::time::Instant;
use rustix::io::Errno;

use crate::{
    FRAME_OVERHEAD, HEADER_MIN, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
    TxStatistics,
    datagrams::{Datagrams, NoBuffer},
    virtio::{self, Frame},
};

/// The queue over an end that is attached.
pub(super) fn of(tun: Arc<Own>, properties: &Properties, header: bool) -> Queue {
    let rx = Rx {
        tun: tun.clone(),
        name: properties.name.clone(),
        header,
        merged: None,
        gone: false,
        counts: RxStatistics::default(),
    };
    let tx = Tx {
        tun,
        name: properties.name.clone(),
        header,
        longest: properties.mtu + FRAME_OVERHEAD,
        counts: TxStatistics::default(),
    };
    Queue {
        rx: Box::new(rx),
        tx: Box::new(tx),
    }
}

struct Rx {
    tun: Arc<Own>,
    name: String,
    /// Whether each frame has a [`virtio`] header before it.
    header: bool,
    /// Datagrams that came merged and are not all cut yet.
    merged: Option<Datagrams>,
    gone: bool,
    counts: RxStatistics,
}

impl Rx {
    /// Takes one frame into a buffer of `slab`; `None` when there is none now.
    fn receive_one(&mut self, slab: &mut Slab) -> Result<Option<Packet>, Errno> {
        loop {
            let Some(buffer) = slab.alloc() else {
                // Read it nevertheless: what is dropped is counted here (R1), and the descriptor does not stay readable.
                rustix::io::read(&self.tun, &mut [0; 64][..])?;
                self.counts.no_buffer += 1;
                continue;
            };
            let mut packet = Packet::new(buffer, 0);
            let room = packet.room_mut().len();
            let n = match rustix::io::read(&self.tun, packet.room_mut()) {
                Ok(n) => n,
                Err(e) => {
                    slab.free(packet.into_buffer());
                    return Err(e);
                }
            };
            packet.set_len(n);
            if let Some(packet) = self.accept(packet, n == room, slab) {
                return Ok(Some(packet));
            }
        }
    }

    /// The next of the datagrams that came merged; one that finds no buffer is counted and lost.
    fn next_merged(&mut self, slab: &mut Slab) -> Option<Packet> {
        loop {
            match self.merged.as_mut()?.next(slab) {
                Some(Ok(packet)) => return Some(packet),
                Some(Err(NoBuffer)) => self.counts.no_buffer += 1,
                None => self.merged = None,
            }
        }
    }

    /// Takes the header off a frame just read; `None` if it is none of ours (counted), or datagrams that are to be cut.
    fn accept(&mut self, mut packet: Packet, cut: bool, slab: &mut Slab) -> Option<Packet> {
        let mut meta = Meta::default();
        let mut datagrams = None;
        if self.header {
            match virtio::read(packet.bytes()) {
                Some(Frame::Plain) => {}
                Some(Frame::Verified) => meta.checksum_verified = Flag::YES,
                Some(Frame::Datagrams { start, size }) => {
                    meta.checksum_verified = Flag::YES;
                    datagrams = Some((start, size));
                }
                Some(Frame::Unknown) | None => packet.set_len(0),
            }
            packet.pull(virtio::LEN);
        }
        packet.meta = meta;
        let len = packet.len();
        let accepted = match datagrams {
            _ if cut || len < HEADER_MIN => Err(packet),
            None => Ok(Some(packet)),
            Some((start, size)) => Datagrams::new(packet, start, size).map(|datagrams| {
                self.merged = Some(datagrams);
                None
            }),
        };
        match accepted {
            Ok(packet) => {
                self.counts.packets += 1;
                self.counts.bytes += len as u64;
                packet.or_else(|| self.next_merged(slab))
            }
            Err(packet) => {
                self.counts.length += 1;
                slab.free(packet.into_buffer());
                None
            }
        }
    }
}

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        if self.gone {
            return Err(deleted(&self.name));
        }
        let mut n = 0;
        while n < max {
            if let Some(packet) = self.next_merged(slab) {
                burst.push_back(packet);
                n += 1;
                continue;
            }
            match self.receive_one(slab) {
                Ok(Some(packet)) => burst.push_back(packet),
                Ok(None) | Err(Errno::AGAIN | Errno::INTR) => break,
                Err(e) => {
                    self.gone = is_deleted(e);
                    // What came before it is not lost: the error comes again with the next call.
                    return if n > 0 {
                        Ok(n)
                    } else {
                        Err(error(&self.name, e))
                    };
                }
            }
            n += 1;
        }
        Ok(n)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tun.as_fd())
    }

    /// At once while datagrams wait to be cut.
    fn next_event(&mut self) -> Instant {
        if self.merged.is_some() {
            Instant::ZERO
        } else {
            Instant::FAR
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.counts
    }
}

struct Tx {
    tun: Arc<Own>,
    name: String,
    header: bool,
    /// The longest frame that the kernel need not cut, bytes.
    longest: usize,
    counts: TxStatistics,
}

impl Tx {
    fn send_one(&self, frame: &Packet) -> Result<(), Errno> {
        if self.header {
            let header = virtio::header_for(frame);
            rustix::io::writev(
                &self.tun,
                &[IoSlice::new(&header), IoSlice::new(frame.bytes())],
            )?;
        } else {
            rustix::io::write(&self.tun, frame.bytes())?;
        }
        Ok(())
    }
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let mut n = 0;
        while let Some(frame) = frames.front() {
            let len = frame.len();
            let sent = if len <= self.longest || (frame.meta.segment != 0 && self.header) {
                self.send_one(frame)
            } else {
                Err(Errno::MSGSIZE)
            };
            match sent {
                Ok(()) => {
                    self.counts.packets += 1;
                    self.counts.bytes += len as u64;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => break,
                Err(e) if is_deleted(e) => return Err(deleted(&self.name)),
                // EIO: the kernel's end is down; EINVAL: the kernel takes it for no frame. Sending it again would not help.
                Err(_) => self.counts.errors += 1,
            }
            frames.pop_front();
            n += 1;
        }
        Ok(n)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}

/// tun.c: a descriptor whose device was deleted is "in a bad state".
const fn is_deleted(error: Errno) -> bool {
    matches!(error, Errno::BADFD | Errno::NODEV | Errno::NXIO)
}

fn deleted(name: &str) -> LinkError {
    LinkError::Gone(format!("{name} was deleted"))
}

fn error(name: &str, error: Errno) -> LinkError {
    if is_deleted(error) {
        return deleted(name);
    }
    LinkError::Io(error.into())
}
