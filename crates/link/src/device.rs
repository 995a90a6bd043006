//! Queues without a stack, and of devices that have one state for both directions.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use netchan_base::{locks, packet::Packet};
use percore::{
    doorbell::Doorbell,
    lock::{Mutex, mutex},
    own::Own,
    slab::Slab,
};
use proto::time::Instant;
use rustix::io::fcntl_dupfd_cloexec;

use super::{Link, LinkError, LinkRx, LinkTx, Queue, RxStatistics, TxStatistics};

impl Queue {
    /// The only queue of `link`, started for use without a stack.
    ///
    /// # Errors
    /// As for [`Link::start`], and when the process has no descriptor left for its bell.
    pub fn of(link: Box<dyn Link>) -> io::Result<Self> {
        let queues = link.start(&[Arc::new(Doorbell::new()?)])?;
        let none = || io::Error::other("the link has no queue");
        queues.into_iter().next().ok_or_else(none)
    }

    /// The queue of a device that cannot receive and transmit at the same time: each call takes a lock around it.
    ///
    /// # Errors
    /// When the process has no descriptor left: the receiving half has its own copy of the device's.
    pub fn of_one(device: impl LinkRx + LinkTx + 'static) -> io::Result<Self> {
        let copy = |fd: BorrowedFd<'_>| Own::<OwnedFd>::open(|| Ok(fcntl_dupfd_cloexec(fd, 0)?));
        let fd = device.fd().map(copy).transpose()?;
        let device = Arc::new(mutex(&locks::DEVICE, device));
        Ok(Self {
            rx: Box::new(Rx {
                device: device.clone(),
                fd,
            }),
            tx: Box::new(Tx(device)),
        })
    }
}

struct Rx<D> {
    device: Arc<Mutex<D>>,
    fd: Option<Own>,
}

struct Tx<D>(Arc<Mutex<D>>);

impl<D: LinkRx> LinkRx for Rx<D> {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.device.lock().receive(now, slab, burst, max)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    fn next_event(&mut self) -> Instant {
        self.device.lock().next_event()
    }

    fn statistics(&self) -> RxStatistics {
        LinkRx::statistics(&*self.device.lock())
    }
}

impl<D: LinkTx> LinkTx for Tx<D> {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        self.0.lock().transmit(now, frames)
    }

    fn statistics(&self) -> TxStatistics {
        LinkTx::statistics(&*self.0.lock())
    }
}
