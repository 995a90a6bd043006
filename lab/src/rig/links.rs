//! Links that differ from a wire in one respect: they hand over few frames at a time, or declare that their driver needs Giant (F4).

use std::{collections::VecDeque, io, sync::Arc};

use netchan::{
    Doorbell, Instant, Slab,
    link::{Link, LinkError, LinkRx, Properties, Queue, RxStatistics, wire::Wire},
    module::Concurrency,
    packet::Packet,
};

/// A wire with these differences.
pub(super) struct Odd {
    pub wire: Wire,
    /// Frames handed over at once; 0: no bound of its own.
    pub batch: usize,
    pub needs_giant: bool,
}

impl Link for Odd {
    fn properties(&self) -> &Properties {
        self.wire.properties()
    }

    fn concurrency(&self) -> Concurrency {
        if self.needs_giant {
            Concurrency::Giant
        } else {
            Concurrency::Any
        }
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let batch = self.batch;
        let queues = Link::start(Box::new(self.wire), bells)?.into_iter();
        if batch == 0 {
            return Ok(queues.collect());
        }
        let bounded = |Queue { rx, tx }| Queue {
            rx: Box::new(Bounded { rx, batch }),
            tx,
        };
        Ok(queues.map(bounded).collect())
    }
}

/// A receiving half that hands over few frames at a time.
struct Bounded {
    rx: Box<dyn LinkRx>,
    batch: usize,
}

impl LinkRx for Bounded {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.rx.receive(now, slab, burst, max.min(self.batch))
    }

    fn next_event(&mut self) -> Instant {
        self.rx.next_event()
    }

    fn statistics(&self) -> RxStatistics {
        self.rx.statistics()
    }
}
