//! Experiment `taps`: what a tap costs the packets that pass it, and that none is lost to it.

mod filters;
mod lane;
mod lists;
mod path;
mod storm;
mod tracing;

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Pinned, Sample, cores},
    report::{Report, Row},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "taps",
    question: "What does a tap cost each packet that passes it, does the path ever lose one to it, and what would a lock around the list of taps cost?",
    prediction: "A filter that matches nothing 5 ns, one of five terms 15 ns, a copy of 96 bytes 60 ns. No packet is lost. A read-write lock that two threads read for each packet costs them a tenth of their throughput, views nothing. \
        Forwarding with a tap on everything has 0.85 of its rate, since it sees each packet twice; with a tap on what one link brings, 0.93. Filters 5 to 15 ns each. The trace's default level costs nothing, all of it a tenth.",
    run,
};

/// How much work.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    /// Batches of datagrams in a turn.
    batches: usize,
    /// Of taps that come and go.
    storm_seconds: f64,
    /// Runs of each filter in a turn.
    runs: usize,
    /// Requests in a turn.
    requests: usize,
}

/// Two cores: the one that is measured, and the one for what reads or disturbs. The same one where there is no other.
#[derive(Clone, Copy, Debug)]
struct Places {
    measured: usize,
    other: usize,
}

impl Places {
    /// The last core is measured, since interrupts and idle work like the first.
    fn here() -> Self {
        let all = cores();
        let end = |core: Option<&usize>| core.copied().unwrap_or_default();
        Self {
            measured: end(all.last()),
            other: end(all.first()),
        }
    }
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let quick = Effort {
        rounds: 6,
        batches: 60,
        storm_seconds: 1.0,
        runs: 40_000,
        requests: 4_000,
    };
    let whole = Effort {
        rounds: 31,
        batches: 400,
        storm_seconds: 60.0,
        runs: 400_000,
        requests: 40_000,
    };
    let places = Places::here(); // before this thread is pinned to one
    let rows = || rows(&options.choose(quick, whole), places);
    experiment.on_one_core(Pinned::to_last_core, rows)
}

/// All rows.
fn rows(effort: &Effort, places: Places) -> Result<Vec<Row>, LabError> {
    let mut rows = path::tap_rows(effort, places)?;
    rows.extend(storm::rows(effort, places)?);
    rows.extend(lists::rows(effort, places)?);
    rows.extend(path::forward_rows(effort, places)?);
    rows.extend(filters::rows(effort)?);
    rows.extend(tracing::rows(effort)?);
    Ok(rows)
}

/// One side of a comparison: a turn, and its figure.
type Side<'a> = &'a mut dyn FnMut() -> Result<f64, LabError>;

/// Rounds in which the sides take turns, after one each that is thrown away: the figures, round by round.
fn in_turns<const N: usize>(
    rounds: usize,
    mut sides: [Side<'_>; N],
) -> Result<Vec<[f64; N]>, LabError> {
    let mut figures = Vec::with_capacity(rounds);
    for round in 0..=rounds.max(1) {
        let mut turn = [0.0; N];
        for (side, figure) in sides.iter_mut().zip(&mut turn) {
            *figure = side()?;
        }
        if round > 0 {
            figures.push(turn);
        }
    }
    Ok(figures)
}

/// A row of what `figure` makes of each round.
fn row<const N: usize>(id: &str, turns: &[[f64; N]], figure: impl Fn(&[f64; N]) -> f64) -> Row {
    Row::new(id, &Sample::of(turns.iter().map(figure).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Effort = Effort {
        rounds: 2,
        batches: 3,
        storm_seconds: 0.2,
        runs: 200,
        requests: 50,
    };

    #[test]
    fn smallest_run_has_every_row() {
        let rows = rows(&TINY, Places::here()).expect("it runs to its end");
        crate::report::tests::are_sane(&rows);
        // Differences, in so short a run those of noise.
        let noisy = [
            "tap_none_ns",
            "tap_five_terms_ns",
            "tap_all_ns",
            "lost_packets",
        ];
        for id in noisy {
            assert!(rows.iter().any(|row| row.id == id), "no row {id}");
        }
        let ids = [
            "storm_packets",
            "tap_changes_per_s",
            "rwlock_loss_ratio",
            "snapshot_loss_ratio",
            "forward_with_tap_ratio",
            "forward_with_tap_on_one_link_ratio",
            "filter_ns",
            "filter_interpreted_ns",
            "trace_on_over_off_ratio",
            "trace_all_over_off_ratio",
        ];
        crate::report::tests::has(&rows, &ids);
        let each: Vec<_> = (1..=filters::COUNT)
            .flat_map(|n| {
                [
                    format!("filter_{n}_ns"),
                    format!("filter_interpreted_{n}_ns"),
                ]
            })
            .collect();
        crate::report::tests::has(&rows, &each);
        let lost = rows.iter().find(|row| row.id == "lost_packets");
        assert_eq!(lost.map(|row| row.value), Some(0.0));
    }

    #[test]
    fn sides_take_turns_and_the_first_is_thrown_away() {
        let count = std::cell::Cell::new(0.0);
        let next = || {
            count.set(count.get() + 1.0);
            Ok(count.get())
        };
        let (mut a, mut b) = (next, next);
        let turns = in_turns(2, [&mut a, &mut b]).expect("no side fails");
        assert_eq!(turns, [[3.0, 4.0], [5.0, 6.0]]);
        let failing = || Err(LabError::Failed("on purpose".to_owned()));
        assert!(in_turns(2, [&mut a, &mut { failing }]).is_err());
    }
}
