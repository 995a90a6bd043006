//! A link whose driver needs Giant (F4).

use std::{collections::VecDeque, io, os::fd::BorrowedFd, sync::Arc};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::time::Instant;

use super::{Link, LinkError, Properties, Statistics, closed::Closed};
use crate::{
    giant::{Concurrency, Giant},
    packet::Packet,
};

/// `link` as the rest of the stack may use it: behind a shim that takes Giant around the driver, and around nothing else, where the
/// link declares that it needs it (F4). Where everything is done under Giant, the driver is, too.
pub fn shim<T: Default + Send + 'static>(
    link: Box<dyn Link>,
    everything: bool,
    giant: &Arc<Giant<T>>,
) -> Box<dyn Link> {
    if everything || link.concurrency() == Concurrency::Any {
        return link;
    }
    Box::new(Shim {
        properties: link.properties().clone(),
        link,
        giant: giant.clone(),
    })
}

/// A link whose driver is called under Giant only.
struct Shim<T: Default> {
    properties: Properties,
    link: Box<dyn Link>,
    giant: Arc<Giant<T>>,
}

impl<T: Default + Send> Link for Shim<T> {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        let _giant = self.giant.enter();
        self.link.attach(doorbell);
    }
    fn for_forwarding(&mut self) -> io::Result<()> {
        let _giant = self.giant.enter();
        self.link.for_forwarding()?;
        self.properties = self.link.properties().clone();
        Ok(())
    }
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        self.link.receive(now, slab, burst, max)
    }
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let _giant = self.giant.enter();
        self.link.transmit(now, frames)
    }
    /// Not the driver's work: the descriptor does not change.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.fd()
    }
    fn next_event(&self) -> Instant {
        let _giant = self.giant.enter();
        self.link.next_event()
    }
    fn statistics(&self) -> Statistics {
        let _giant = self.giant.enter();
        self.link.statistics()
    }
    fn concurrency(&self) -> Concurrency {
        Concurrency::Giant
    }
}

impl<T: Default> Drop for Shim<T> {
    fn drop(&mut self) {
        // A driver may have to let go of what it shares with others of its kind: that, too, is its work.
        let _giant = self.giant.enter();
        let properties = self.properties.clone();
        self.link = Box::new(Closed::with(properties, Statistics::default()));
    }
}
