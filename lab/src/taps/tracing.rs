//! Request and response over a link in memory, with the trace off, at its default level, and with all of it.

use netchan::Net;

use super::{Effort, in_turns, lane::Lane, row};
use crate::{
    experiment::LabError,
    kit::seconds,
    path::{Pair, Setup, netchan_side::NetchanPair},
    report::Row,
};

/// Bytes of a request and of a response.
const SIZE: usize = 64;

/// Nanoseconds for each request.
#[allow(clippy::cast_precision_loss)] // a few
fn turn(net: &Net, pair: &mut NetchanPair, level: &str, n: usize) -> Result<f64, LabError> {
    net.set("trace", level)?; // the process's
    Ok(seconds(|| pair.round_trips(n, SIZE)) * 1e9 / n as f64)
}

pub(super) fn rows(effort: &Effort) -> Result<Vec<Row>, LabError> {
    let lane = Lane::straight()?;
    let pair = std::cell::RefCell::new(NetchanPair::new(Setup::default())?);
    let n = effort.requests;
    let at = |level| turn(lane.measured(), &mut pair.borrow_mut(), level, n);
    let turns = in_turns(
        effort.rounds,
        [&mut || at("off"), &mut || at("rare"), &mut || at("all")],
    );
    lane.measured().set("trace", "rare")?; // as it was, whatever happened
    let turns = turns?;
    let ratio = |id: &str, side: usize| row(id, &turns, |turn| turn[side] / turn[0]);
    Ok(vec![
        ratio("trace_on_over_off_ratio", 1).target("<= 1.02"),
        ratio("trace_all_over_off_ratio", 2),
        row("trace_off_request_ns", &turns, |turn| turn[0]),
    ])
}
