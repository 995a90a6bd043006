//! A link over a socket pair.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use netchan::{
    Doorbell, Instant, MacAddr, Slab,
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::Packet,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

/// One end of a link over a socket pair: it has a descriptor to sleep on, as a TAP has.
struct Pair {
    properties: Properties,
    socket: Arc<OwnedFd>,
    batches: Arc<AtomicU64>,
}

pub fn pair() -> [Box<dyn Link>; 2] {
    counted_pair(Arc::default())
}

/// The same, and both sockets: what the first end sends fails once its socket is shut down for that, and nothing says so to one that sleeps on it.
pub fn pair_and_sockets() -> ([Box<dyn Link>; 2], [OwnedFd; 2]) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let sockets = [ends.0.try_clone().unwrap(), ends.1.try_clone().unwrap()];
    ([end(ends.0, 1), end(ends.1, 2)], sockets)
}

/// The same; `batches` counts the first one's calls that brought it several frames to send.
pub fn counted_pair(batches: Arc<AtomicU64>) -> [Box<dyn Link>; 2] {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    [counted_end(ends.0, 1, batches), end(ends.1, 2)]
}

pub fn end(socket: OwnedFd, number: u8) -> Box<dyn Link> {
    counted_end(socket, number, Arc::default())
}

/// The same; `batches` counts the calls that brought it several frames to send.
fn counted_end(socket: OwnedFd, number: u8, batches: Arc<AtomicU64>) -> Box<dyn Link> {
    let properties = Properties {
        name: "pair".to_owned(),
        kind: "pair",
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        frame_max: 1500 + FRAME_OVERHEAD,
        segmentation: Segmentation::None,
    };
    let socket = Arc::new(socket);
    Box::new(Pair {
        properties,
        socket,
        batches,
    })
}

impl Link for Pair {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn start(self: Box<Self>, _: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: Box::new(Rx(self.socket.clone(), RxStatistics::default())),
            tx: Box::new(Tx(self.socket, TxStatistics::default(), self.batches)),
        }])
    }
}

struct Rx(Arc<OwnedFd>, RxStatistics);

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        for n in 0..max {
            let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
            match recv(&self.0, packet.room_mut(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(LinkError::Gone("the other end was closed".into())),
                Ok((len, _)) => packet.set_len(len),
                Err(Errno::AGAIN) => return Ok(n),
                Err(e) => return Err(LinkError::Io(e.into())),
            }
            self.1.packets += 1;
            burst.push_back(packet);
        }
        Ok(max)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
    fn statistics(&self) -> RxStatistics {
        self.1
    }
}

/// Counts the calls that bring it several frames.
struct Tx(Arc<OwnedFd>, TxStatistics, Arc<AtomicU64>);

impl LinkTx for Tx {
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let offered = frames.len();
        if offered > 1 {
            self.2.fetch_add(1, Relaxed);
        }
        while let Some(frame) = frames.front() {
            match send(&self.0, frame.bytes(), SendFlags::NOSIGNAL) {
                Ok(_) => self.1.packets += 1,
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(LinkError::Gone("the other end was closed".into())),
            }
            frames.pop_front();
        }
        Ok(offered - frames.len())
    }
    fn statistics(&self) -> TxStatistics {
        self.1
    }
}
