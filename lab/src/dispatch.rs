//! Experiment `dispatch` (F5): protocol work in the thread that received, in a protocol thread, or where the shard is free; one link, two in parallel, and one beside loopback.

use std::time::Duration;

use netchan::{Dispatch, Regime};

use crate::{
    experiment::{Experiment, LabError, Options},
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Entry, Found, Job, Outcome, Place, Rig, Settings, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "dispatch",
    question: "What does a packet cost, and how late is it, with direct, deferred and hybrid dispatch under Giant and under locks; and do links that receive in parallel, or beside loopback, disturb each other?",
    prediction: "Deferred costs a wake-up more than direct: 1.5 to 2 times at 50,000 packets a second. Hybrid as direct with one link. Two links cost as much a packet as one under locks (1.0 to 1.1) and 1.2 to 1.5 times under Giant. \
        As fast as they go, two links and a link beside loopback carry together what one does on two cores (0.9 to 1.1): the generators need them, too.",
    run,
};

/// How much work.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    seconds: f64,
    packets: usize,
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let quick = Effort {
        rounds: 3,
        seconds: 0.06,
        packets: 10_000,
    };
    let whole = Effort {
        rounds: 7,
        seconds: 0.25,
        packets: 90_000,
    };
    let rig = Rig::apart(Duration::from_secs(20));
    let rows = rows(&rig, options.choose(quick, whole));
    Ok(experiment.report(watch.machine(false), rows))
}

/// A regime with a dispatch that goes with it, and its name in rows.
fn players() -> Vec<(String, Carrier)> {
    let mut all = Vec::new();
    for regime in [Regime::Giant, Regime::Locked] {
        for (dispatch, which) in Dispatch::ALL.into_iter().enumerate() {
            // A lock that cannot be tried has no backlog.
            if regime == Regime::Giant && which == Dispatch::Hybrid {
                continue;
            }
            let settings = Settings {
                dispatch,
                ..Settings::default()
            };
            let name = format!("{}_{}", regime.name(), which.name());
            all.push((name, Carrier::with(regime, settings)));
        }
    }
    all
}

/// The runs of a player.
fn entries(effort: Effort, name: &str, carrier: Carrier) -> Vec<Entry> {
    let fast = Job::new(carrier, Work::fast(effort.packets), Place::on(2));
    let paced = |per_second, burst| {
        let work = Work::paced(per_second, burst, effort.seconds);
        Job::new(carrier, work, Place::of_roles())
    };
    let two = |job: Job| Job { links: 2, ..job };
    let beside = Job {
        loopback: true,
        ..fast.clone()
    };
    let late = Job {
        stamps: true,
        ..paced(50_000, 1)
    };
    [
        ("fast", fast.clone()),
        ("fast2", two(fast)),
        ("fast_lo", beside),
        ("paced", paced(50_000, 8)),
        ("paced2", two(paced(25_000, 8))),
        ("late", late),
    ]
    .into_iter()
    .map(|(what, job)| Entry::new(format!("{name}@{what}"), job))
    .collect()
}

/// All rows.
fn rows(rig: &Rig, effort: Effort) -> Vec<Row> {
    let players = players();
    let each = |(name, carrier): &(String, Carrier)| entries(effort, name, *carrier);
    let entries: Vec<_> = players.iter().flat_map(each).collect();
    let found = rig.rounds(&entries, effort.rounds, 200.0);
    let mut rows: Vec<Row> = players
        .iter()
        .flat_map(|(name, _)| of(name, &found))
        .collect();
    rows.extend(found.failures());
    rows
}

/// A player's rows.
fn of(name: &str, found: &Found) -> Vec<Row> {
    let run = |what: &str| format!("{name}@{what}");
    let late = |number: usize| move |o: &Outcome| o.latency_ns.map_or(0.0, |of| of[number]);
    let ratio = |id: &str, what: &str, by: &str, figure| {
        found.ratio_row(&format!("{id}_{name}_ratio"), &run(what), &run(by), figure)
    };
    let row = |id: String, what: &str, figure| found.row(&id, &run(what), figure);
    [
        row(
            format!("cpu_per_packet_{name}_50k_burst_8_ns"),
            "paced",
            &Outcome::packet_ns,
        ),
        // The same packets a second, over one link or over two.
        ratio(
            "two_links_cost_over_one",
            "paced2",
            "paced",
            &Outcome::packet_ns,
        ),
        row(format!("late_{name}_50k_ns"), "late", &late(0)),
        row(format!("late_p99_{name}_50k_ns"), "late", &late(1)),
        row(
            format!("switches_per_1000_packets_{name}_50k"),
            "late",
            &Outcome::switches_per_1000,
        ),
        row(
            format!("link_{name}_gbit_per_s"),
            "fast",
            &Outcome::gbit_per_s,
        ),
        row(
            format!("two_links_{name}_gbit_per_s"),
            "fast2",
            &Outcome::gbit_per_s,
        ),
        row(
            format!("link_and_loopback_{name}_gbit_per_s"),
            "fast_lo",
            &Outcome::gbit_per_s,
        ),
        ratio("two_links_over_one", "fast2", "fast", &Outcome::gbit_per_s),
        ratio(
            "link_and_loopback_over_one",
            "fast_lo",
            "fast",
            &Outcome::gbit_per_s,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_run_has_every_row() {
        let effort = Effort {
            rounds: 2,
            seconds: 0.01,
            packets: 400,
        };
        let rows = rows(&Rig::in_this_process(), effort);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "cpu_per_packet_locked_hybrid_50k_burst_8_ns",
            "two_links_cost_over_one_giant_deferred_ratio",
            "late_p99_locked_direct_50k_ns",
            "link_and_loopback_over_one_giant_direct_ratio",
        ];
        crate::report::tests::has(&rows, &ids);
        assert!(!rows.iter().any(|row| row.id.contains("giant_hybrid")));
    }
}
