//! A link whose driver needs Giant (F4).

use std::{collections::VecDeque, io, os::fd::BorrowedFd, sync::Arc};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::time::Instant;

use crate::{
    giant::{Concurrency, Giant},
    link::{Link, LinkError, LinkRx, LinkTx, Queue, RxStatistics, TxStatistics},
    packet::Packet,
};

/// The queues of `link` as the rest of the stack may use them: behind a shim that takes Giant around the driver, and around nothing else, where
/// the link declares that it needs it (F4). Where `everything` is done under Giant, the driver is, too.
///
/// # Errors
/// The link's.
pub fn start<T: Default + Send + 'static>(
    link: Box<dyn Link>,
    bells: &[Arc<Doorbell>],
    everything: bool,
    giant: &Arc<Giant<T>>,
) -> io::Result<Vec<Queue>> {
    if everything || link.concurrency() == Concurrency::Any {
        return link.start(bells);
    }
    let _inside = giant.enter();
    let queues = link.start(bells)?.into_iter();
    let shim = |queue: Queue| Queue {
        rx: Box::new(Shim::around(queue.rx, giant)),
        tx: Box::new(Shim::around(queue.tx, giant)),
    };
    Ok(queues.map(shim).collect())
}

/// A half of a queue whose driver is called under Giant only.
struct Shim<T: Default, H> {
    /// Not there once it is being dropped.
    half: Option<H>,
    giant: Arc<Giant<T>>,
}

impl<T: Default, H> Shim<T, H> {
    fn around(half: H, giant: &Arc<Giant<T>>) -> Self {
        Self {
            half: Some(half),
            giant: giant.clone(),
        }
    }

    fn gone() -> LinkError {
        LinkError::Gone("it was closed".into())
    }
}

impl<T: Default + Send> LinkRx for Shim<T, Box<dyn LinkRx>> {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        let half = self.half.as_mut().ok_or_else(Self::gone)?;
        half.receive(now, slab, burst, max)
    }

    /// Not the driver's work: the descriptor does not change.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.half.as_ref()?.fd()
    }

    fn next_event(&mut self) -> Instant {
        let _giant = self.giant.enter();
        (self.half.as_mut()).map_or(Instant::FAR, |half| half.next_event())
    }

    fn statistics(&self) -> RxStatistics {
        let _giant = self.giant.enter();
        (self.half.as_ref())
            .map(|half| half.statistics())
            .unwrap_or_default()
    }
}

impl<T: Default + Send> LinkTx for Shim<T, Box<dyn LinkTx>> {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        let half = self.half.as_mut().ok_or_else(Self::gone)?;
        half.transmit(now, frames)
    }

    fn statistics(&self) -> TxStatistics {
        let _giant = self.giant.enter();
        (self.half.as_ref())
            .map(|half| half.statistics())
            .unwrap_or_default()
    }
}

impl<T: Default, H> Drop for Shim<T, H> {
    fn drop(&mut self) {
        // A driver may have to let go of what it shares with others of its kind: that, too, is its work.
        let _giant = self.giant.enter();
        self.half = None;
    }
}
