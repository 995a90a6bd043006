//! What taps cost a stack that receives, and one that forwards.

use netchan::tap::{Filter, Options, Way};

use super::{
    Effort, Places, filters, in_turns,
    lane::{Lane, SNAP},
    row,
};
use crate::{experiment::LabError, report::Row};

/// A tap on what is received.
fn receiving(filter: Filter) -> Options {
    Options {
        way: Some(Way::In),
        snap: SNAP,
        filter,
        ..Options::default()
    }
}

/// A turn with a tap that nothing passes.
fn unmatched(lane: &Lane, batches: usize, filter: &Filter) -> Result<f64, LabError> {
    let tap = lane.measured().tap(receiving(filter.clone()))?;
    let passed = lane.batches(batches, |_| ())?;
    let counted = tap.statistics();
    if counted.seen < passed.sent || counted.matched > 0 {
        let what = format!("a tap that nothing passes counts {counted:?}");
        return Err(LabError::Failed(what));
    }
    Ok(passed.each_ns())
}

/// The cost of a packet: with a tap less without.
pub(super) fn tap_rows(effort: &Effort, places: Places) -> Result<Vec<Row>, LabError> {
    let lane = Lane::straight()?;
    let (nothing, five) = (filters::nothing()?, filters::five_terms()?);
    let n = effort.batches;
    let turns = in_turns(
        effort.rounds,
        [
            &mut || Ok(lane.batches(n, |_| ())?.each_ns()),
            &mut || unmatched(&lane, n, &nothing),
            &mut || unmatched(&lane, n, &five),
            &mut || {
                let all = receiving(Filter::default());
                Ok(lane.batches_read(n, all, 1, places)?.each_ns())
            },
        ],
    )?;
    let added = |id: &str, side: usize, target: &str, reference: &str| {
        let row = row(id, &turns, |turn| turn[side] - turn[0]);
        let reference = format!("kernel + tcpdump: {reference} ns");
        row.target(target).reference(&reference)
    };
    Ok(vec![
        added("tap_none_ns", 1, "<= 15 ns", "97"),
        added("tap_five_terms_ns", 2, "<= 20 ns", "98"),
        added("tap_all_ns", 3, "<= 60 ns", "365"),
        row("untapped_packet_ns", &turns, |turn| turn[0]),
    ])
}

/// Packets a second of a stack that forwards, with a tap by without.
pub(super) fn forward_rows(effort: &Effort, places: Places) -> Result<Vec<Row>, LabError> {
    let lane = Lane::forwarding()?;
    let n = effort.batches;
    let everything = Options {
        snap: SNAP,
        ..Options::default()
    };
    let one = Options {
        link: Some(0),
        ..receiving(Filter::default())
    };
    let turns = in_turns(
        effort.rounds,
        [
            &mut || Ok(lane.batches(n, |_| ())?.each_ns()),
            // Each packet comes in and goes out.
            &mut || {
                let all = everything.clone();
                Ok(lane.batches_read(n, all, 2, places)?.each_ns())
            },
            &mut || Ok(lane.batches_read(n, one.clone(), 1, places)?.each_ns()),
        ],
    )?;
    let ratio = |id: &str, side: usize| row(id, &turns, |turn| turn[0] / turn[side]);
    Ok(vec![
        ratio("forward_with_tap_ratio", 1).target(">= 0.95"),
        ratio("forward_with_tap_on_one_link_ratio", 2),
        row("forward_packet_ns", &turns, |turn| turn[0]),
    ])
}
