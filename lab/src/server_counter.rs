//! Experiment `counter-in-a-server` (N1 to N3): a server that counts each request, with one counter for all threads or one for each.

use std::time::Duration;

use netchan::Regime;
use percore::counter::Batched;

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::Sample,
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Counter, Entry, Found, Job, Outcome, Place, Rig, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "counter-in-a-server",
    question: "How much more does a server with many threads do when the counter that all of them change is one for each thread (N2, N3) and not one atomic (N1)?",
    prediction: "On two cores nothing that shows: a contended addition is 30 ns of a request's 10 us. With 64 additions a request N2 and N3 are 1.1 to 1.2 times the atomic.",
    run,
};

/// As the document's server had CPUs.
const CLIENTS: usize = 8;
/// Additions for each request: one, and as many as a server has that counts at every step.
const TIMES: [u32; 2] = [1, 64];

/// The counters, and their names in rows.
const fn kinds(times: u32) -> [(&'static str, Counter); 3] {
    [
        ("atomic", Counter::Atomic(times)),
        ("batched", Counter::Batched(times)),
        ("flip", Counter::Flip(times)),
    ]
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let rig = Rig::apart(Duration::from_secs(20));
    let (rounds, transactions) = options.choose((6, 400), (15, 2000));
    let rows = rows(&rig, rounds, transactions);
    Ok(experiment.report(watch.machine(false), rows))
}

/// All rows.
fn rows(rig: &Rig, rounds: usize, transactions: usize) -> Vec<Row> {
    let work = Work::Service {
        clients: CLIENTS,
        transactions,
    };
    let job = |counter| Job {
        counter,
        ..Job::new(Carrier::of(Regime::Locked), work, Place::on(2))
    };
    let mut entries = vec![Entry::new("none", job(Counter::None))];
    for times in TIMES {
        let entry = |(name, counter)| Entry::new(format!("{name}_{times}"), job(counter));
        entries.extend(kinds(times).map(entry));
    }
    let found = rig.rounds(&entries, rounds, 200.0);
    let mut rows: Vec<Row> = TIMES
        .into_iter()
        .flat_map(|times| ratios(times, &found))
        .collect();
    for entry in &entries {
        let name = &entry.name;
        rows.extend(found.row(
            &format!("requests_{name}_per_s"),
            name,
            &Outcome::per_second,
        ));
        rows.extend(found.row(
            &format!("cpu_per_request_{name}_ns"),
            name,
            &Outcome::transaction_ns,
        ));
    }
    rows.push(error_max());
    rows.extend(found.failures());
    rows
}

/// Requests a second with each counter by those with the atomic, and with the atomic by those without a counter.
fn ratios(times: u32, found: &Found) -> Vec<Row> {
    let atomic = format!("atomic_{times}");
    let ratio = |name: &str| {
        let id = format!("requests_{name}_over_atomic_{times}_ratio");
        found.ratio_row(
            &id,
            &format!("{name}_{times}"),
            &atomic,
            &Outcome::per_second,
        )
    };
    let batched = ratio("batched").map(|row| match times {
        1 => row.reference("1.05, 8 CPUs, one counter changed (N2)"),
        _ => row,
    });
    let none = found.ratio_row(
        &format!("requests_atomic_over_none_{times}_ratio"),
        &atomic,
        "none",
        &Outcome::per_second,
    );
    [batched, ratio("flip"), none]
        .into_iter()
        .flatten()
        .collect()
}

/// By how much N2's cheap answer may be off, with a slot for each thread.
#[allow(clippy::cast_precision_loss)] // hundreds
fn error_max() -> Row {
    let bound = Batched::new(CLIENTS, crate::rig::BATCH).error_max();
    Row::new("batched_error_max", &Sample::of(vec![bound as f64; 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_run_has_every_row() {
        let rows = rows(&Rig::in_this_process(), 2, 10);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "requests_batched_over_atomic_1_ratio",
            "requests_flip_over_atomic_64_ratio",
            "requests_atomic_over_none_1_ratio",
            "cpu_per_request_none_ns",
        ];
        crate::report::tests::has(&rows, &ids);
    }
}
