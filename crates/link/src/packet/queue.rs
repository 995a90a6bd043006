//! The queue of a packet socket.

use std::{
    cell::Cell,
    collections::VecDeque,
    io::{self, ErrorKind, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use netchan_base::packet::{Meta, Packet};
use percore::{own::Own, slab::Slab};
use proto::time::Instant;
use rustix::net::{RecvFlags, recv};

use crate::{
    BURST, HEADER_MIN, LinkError, LinkRx, LinkTx, Queue, RxStatistics, TxStatistics,
    datagrams::{Datagrams, NoBuffer},
    netlink, sys,
    virtio::{self, Frame},
};

/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// Between two looks at an interface that is down: whether it is gone for good.
const LOOK: Duration = Duration::from_millis(100);

/// The queue over a socket that is set up, with the one that claims the link's address, if that is another; the link's name is `packet:INTERFACE`.
pub(super) fn of(socket: Arc<Own>, claim: Option<Arc<Own>>, name: &str) -> Queue {
    let rx = Rx {
        socket: socket.clone(),
        name: name.to_owned(),
        pending: VecDeque::with_capacity(BURST),
        appetite: BURST,
        look_at: None,
        gone: false,
        counts: RxStatistics::default(),
        missed: Cell::new(0),
        _claim: claim,
    };
    let tx = Tx {
        socket,
        name: name.to_owned(),
        counts: TxStatistics::default(),
    };
    Queue {
        rx: Box::new(rx),
        tx: Box::new(tx),
    }
}

/// A frame as the kernel handed it over.
#[derive(Debug)]
enum Accepted {
    Whole(Packet),
    Merged(Datagrams),
}

struct Rx {
    socket: Arc<Own>,
    name: String,
    /// Merged datagrams that are being cut, and what came behind them: at most one burst of the kernel.
    pending: VecDeque<Accepted>,
    /// Frames to ask the kernel for at once: twice what came last, so that idle polls borrow few buffers.
    appetite: usize,
    /// When to look next whether an interface that is down still exists.
    look_at: Option<Instant>,
    gone: bool,
    counts: RxStatistics,
    /// Frames the kernel dropped; it forgets them when asked.
    missed: Cell<u64>,
    /// Kept open: see [`PacketSocket`](super::PacketSocket).
    _claim: Option<Arc<Own>>,
}

impl Rx {
    /// One recvmmsg(2) for at most `max` frames; how many were appended, and whether there may be more.
    fn receive_some(
        &mut self,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> io::Result<(usize, bool)> {
        let mut empty: [Option<Packet>; BURST] = [const { None }; BURST];
        let mut asked = 0;
        for slot in empty.iter_mut().take(max.min(self.appetite)) {
            *slot = slab.alloc().map(|buffer| Packet::new(buffer, 0));
            asked += usize::from(slot.is_some());
        }
        if asked == 0 {
            self.drop_one()?;
            return Ok((0, true));
        }
        let mut received = [sys::Received::default(); BURST];
        let mut slots = empty.iter_mut();
        let mut buffers: [IoSliceMut<'_>; BURST] = std::array::from_fn(|_| {
            IoSliceMut::new(
                slots
                    .next()
                    .and_then(Option::as_mut)
                    .map_or(&mut [], Packet::room_mut),
            )
        });
        let buffers = buffers.get_mut(..asked).unwrap_or_default();
        let came = sys::receive_many(self.socket.as_fd(), buffers, &mut received);
        let n = came.as_ref().map_or(0, |&n| n);
        let before = burst.len();
        for (i, (slot, what)) in empty.iter_mut().zip(&received).enumerate() {
            let Some(packet) = slot.take() else { continue };
            let accepted = if i < n {
                self.accept(packet, what)
            } else {
                Err(packet)
            };
            match accepted {
                // What comes after merged datagrams waits until they are cut.
                Ok(Accepted::Whole(packet)) if self.pending.is_empty() => burst.push_back(packet),
                Ok(accepted) => self.pending.push_back(accepted),
                Err(packet) => slab.free(packet.into_buffer()),
            }
        }
        self.appetite = (2 * n).clamp(4, BURST);
        came?;
        Ok((burst.len() - before, n == asked))
    }

    /// Appends frames that came with the last call of the kernel, at most `max`; how many.
    fn receive_pending(
        &mut self,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> usize {
        let before = burst.len();
        while burst.len() - before < max {
            match self.pending.front_mut() {
                None => break,
                Some(Accepted::Merged(datagrams)) => match datagrams.next(slab) {
                    Some(Ok(packet)) => {
                        burst.push_back(packet);
                        continue;
                    }
                    Some(Err(NoBuffer)) => {
                        self.counts.no_buffer += 1;
                        continue;
                    }
                    None => {}
                },
                Some(Accepted::Whole(_)) => {}
            }
            if let Some(Accepted::Whole(packet)) = self.pending.pop_front() {
                burst.push_back(packet);
            }
        }
        burst.len() - before
    }

    /// Makes a frame just read what it was on the wire; gives it back (counted) if it is none of ours.
    fn accept(&mut self, mut packet: Packet, what: &sys::Received) -> Result<Accepted, Packet> {
        packet.set_len(what.len);
        let header = virtio::read(packet.bytes());
        packet.pull(virtio::LEN);
        let whole = !what.cut && packet.len() >= HEADER_MIN;
        if !whole || matches!(header, None | Some(Frame::Unknown)) {
            self.counts.length += 1;
            return Err(packet);
        }
        packet.meta = Meta {
            checksum_verified: (header != Some(Frame::Plain)).into(),
            ..Meta::default()
        };
        let tagged = what.vlan.is_some_and(|tag| restore(&mut packet, tag));
        let len = packet.len() as u64;
        let accepted = match header {
            Some(Frame::Datagrams { start, size }) => {
                let start = if tagged { start + TAG } else { start };
                match Datagrams::new(packet, start, size) {
                    Ok(datagrams) => Accepted::Merged(datagrams),
                    Err(packet) => {
                        self.counts.length += 1;
                        return Err(packet);
                    }
                }
            }
            _ => Accepted::Whole(packet),
        };
        self.counts.packets += 1;
        self.counts.bytes += len;
        Ok(accepted)
    }

    /// Takes a frame for which there is no buffer: what is dropped is counted here (R1), and the descriptor does not stay readable.
    fn drop_one(&mut self) -> io::Result<()> {
        recv(&self.socket, &mut [0; 64][..], RecvFlags::DONTWAIT)?;
        self.counts.no_buffer += 1;
        Ok(())
    }

    /// The interface is down, or was when we last looked.
    fn look(&mut self, now: Instant) -> Result<(), LinkError> {
        let state = state(&self.socket, &self.name);
        self.gone = matches!(state, Err(LinkError::Gone(_)));
        self.look_at = (!state?).then(|| now + LOOK);
        Ok(())
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
        if self.gone {
            return Err(deleted(&self.name));
        }
        let mut n = self.receive_pending(slab, burst, max);
        while n < max {
            match self.receive_some(slab, burst, max - n) {
                Ok((taken, more)) => {
                    n += taken + self.receive_pending(slab, burst, max - n - taken);
                    if !more {
                        break;
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    break;
                }
                Err(e) if e.kind() == ErrorKind::NetworkDown => {
                    self.look_at = Some(now);
                    break;
                }
                // What came before it is not lost; the next call meets the error again if it lasts.
                Err(_) if n > 0 => break,
                Err(e) => {
                    self.look(now)?;
                    return Err(LinkError::Io(e));
                }
            }
        }
        if n == 0 && self.look_at.is_some_and(|at| at <= now) {
            self.look(now)?;
        }
        Ok(n)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    /// At once while datagrams wait to be cut; while the interface is down, when to look whether it is gone.
    fn next_event(&mut self) -> Instant {
        if !self.pending.is_empty() {
            return Instant::ZERO;
        }
        self.look_at.unwrap_or(Instant::FAR)
    }

    fn statistics(&self) -> RxStatistics {
        let new = sys::packet_drops(self.socket.as_fd()).unwrap_or(0);
        self.missed.set(self.missed.get() + u64::from(new));
        RxStatistics {
            missed: self.missed.get(),
            ..self.counts
        }
    }
}

struct Tx {
    socket: Arc<Own>,
    name: String,
    counts: TxStatistics,
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let mut n = 0;
        while !frames.is_empty() {
            let bytes = (frames.iter()).map(|frame| (virtio::header_for(frame), frame.bytes()));
            match sys::send_many(self.socket.as_fd(), bytes) {
                Ok(sent) => {
                    n += sent;
                    self.counts.packets += sent as u64;
                    self.counts.bytes += frames
                        .drain(..sent)
                        .map(|frame| frame.len() as u64)
                        .sum::<u64>();
                    continue;
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => break,
                    Some(libc::ENXIO | libc::ENODEV) => _ = state(&self.socket, &self.name)?,
                    // EMSGSIZE, EINVAL: sending it again would not help. ENETDOWN: the receiving half sees to that.
                    _ => {}
                },
            }
            self.counts.errors += 1;
            frames.pop_front();
            n += 1;
        }
        Ok(n)
    }

    fn statistics(&self) -> TxStatistics {
        self.counts
    }
}

/// Whether the interface of a socket is up.
///
/// # Errors
/// The interface is gone, or the system cannot tell.
fn state(socket: &Own, name: &str) -> Result<bool, LinkError> {
    if !sys::packet_is_bound(socket.as_fd()).map_err(LinkError::Io)? {
        return Err(deleted(name));
    }
    let found = netlink::find(name.trim_start_matches("packet:"));
    Ok(found.ok().flatten().is_some_and(|interface| interface.up))
}

fn deleted(name: &str) -> LinkError {
    LinkError::Gone(format!("{name} was deleted"))
}

/// Puts a VLAN tag (protocol, control information) back behind the addresses; false if there is no room in front.
fn restore(packet: &mut Packet, (protocol, control): (u16, u16)) -> bool {
    // The virtio header stood there.
    if packet.push(TAG).is_none() {
        return false;
    }
    let bytes = packet.bytes_mut();
    bytes.copy_within(TAG..TAG + 12, 0);
    if let Some(tag) = bytes.get_mut(12..12 + TAG) {
        let (p, c) = (protocol.to_be_bytes(), control.to_be_bytes());
        tag.copy_from_slice(&[p[0], p[1], c[0], c[1]]);
    }
    true
}
