//! What stands in a stopped stack's place of a link: the device is closed, and says so to whoever still asks.

use std::collections::VecDeque;

use percore::slab::Slab;
use proto::time::Instant;

use super::{Link, LinkError, Properties, Statistics};
use crate::packet::Packet;

/// A link that was closed, with the facts and counters it had.
pub struct Closed {
    properties: Properties,
    statistics: Statistics,
}

impl Closed {
    /// What is left of `link`.
    pub fn of(link: &dyn Link) -> Self {
        Self::with(link.properties().clone(), link.statistics())
    }

    /// One with these facts.
    pub const fn with(properties: Properties, statistics: Statistics) -> Self {
        Self {
            properties,
            statistics,
        }
    }
}

impl Link for Closed {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn receive(
        &mut self,
        _now: Instant,
        _slab: &mut Slab,
        _burst: &mut VecDeque<Packet>,
        _max: usize,
    ) -> Result<usize, LinkError> {
        Err(LinkError::Gone("the stack was stopped".into()))
    }
    fn transmit(
        &mut self,
        _now: Instant,
        _frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        Err(LinkError::Gone("the stack was stopped".into()))
    }
    fn statistics(&self) -> Statistics {
        self.statistics
    }
}
