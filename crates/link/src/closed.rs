//! What stands in the place of a stopped stack's queue: the device is closed, and each call says so.

use std::collections::VecDeque;

use netchan_base::packet::Packet;
use percore::slab::Slab;
use proto::time::Instant;

use super::{LinkError, LinkRx, LinkTx, RxStatistics, TxStatistics};

/// A half of a queue that was closed, with the counters it had.
pub struct Closed<S>(pub S);

fn gone() -> LinkError {
    LinkError::Gone("the stack was stopped".into())
}

impl LinkRx for Closed<RxStatistics> {
    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        _burst: &mut VecDeque<Packet>,
        _max: usize,
    ) -> Result<usize, LinkError> {
        Err(gone())
    }

    fn statistics(&self) -> RxStatistics {
        self.0
    }
}

impl LinkTx for Closed<TxStatistics> {
    fn transmit(
        &mut self,
        _now: Instant,
        _frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        Err(gone())
    }

    fn statistics(&self) -> TxStatistics {
        self.0
    }
}
