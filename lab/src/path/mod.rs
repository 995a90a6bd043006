//! Experiment `path`: what one core's worth of the whole path costs, beside smoltcp over its own in-memory link.

mod lane;
pub mod smoltcp_side;

use crate::{
    experiments::{Experiment, LabError, Options},
    report::Report,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "path",
    question: "What do a request/response, a bulk byte and a connection cost on one core, both ends included, beside smoltcp?",
    prediction: "Ahead of smoltcp in every row: its socket table is searched linearly, so its cost grows with idle connections (about 66 ns each) \
        while netchan's stays flat; without idle connections the gap is smaller (1.2 to 2 times), since both do the same protocol work.",
    run,
};

/// What both sides are told.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Established connections without traffic beside the busy one.
    pub idle: usize,
    /// Checksums are computed and verified on both ends.
    pub checksums: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mtu: 1500,
            idle: 0,
            checksums: true,
        }
    }
}

/// Two stacks joined in memory, with one established connection, in one thread.
pub trait Pair {
    /// `n` times one byte there and one back.
    fn round_trips(&mut self, n: usize);
    /// `bytes` from the client to the server, from the application's buffer into the application's buffer.
    fn bulk(&mut self, bytes: usize);
    /// `n` times: open, one byte there and one back, close both ways.
    fn connections(&mut self, n: usize);
}

fn run(_: &Experiment, _: &Options) -> Result<Report, LabError> {
    Err(LabError::Failed("not yet".to_owned()))
}
