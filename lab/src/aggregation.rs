//! Experiment `aggregation` (D6, D9): bursts against single packets, warm caches against cold ones, with and without something that preempts.

use std::time::Duration;

use netchan::{Regime, link::BURST};

use crate::{
    experiment::{Experiment, LabError, Options},
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Disturbance, Entry, Found, Job, Outcome, Place, Rig, Settings, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "aggregation",
    question: "How much does a packet save by coming in a burst, where caches are warm and where other work has filled them, and what does a thread that preempts cost?",
    prediction: "A packet alone 6 us, in a burst of 32 0.6 us: ten times less. Cold caches: 1.3 times alone, 1.1 times in a burst, whose first packet warms them for the rest. \
        A thread that has the core half of the time in steps of 50 us: 1.2 times alone what the same thread costs when it yields, nothing that shows in a burst; the packets come later, and are not dearer.",
    run,
};

/// Bursts a second: there is time for other work between two.
const BURSTS_PER_SECOND: usize = 1000;
/// More than a core's own caches hold.
const OTHER_WORK_BYTES: usize = 4 << 20;
const PREEMPT_US: u64 = 50;

/// What else there is.
const CONDITIONS: [(&str, Disturbance); 4] = [
    ("warm", Disturbance::None),
    (
        "cold",
        Disturbance::ColdCaches {
            bytes: OTHER_WORK_BYTES,
        },
    ),
    (
        "busy",
        Disturbance::Preempt {
            us: PREEMPT_US,
            yields: true,
        },
    ),
    (
        "preempted",
        Disturbance::Preempt {
            us: PREEMPT_US,
            yields: false,
        },
    ),
];

/// How much work.
#[derive(Clone, Debug)]
struct Effort {
    rounds: usize,
    seconds: f64,
    /// From one packet to a full burst.
    bursts: &'static [usize],
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let effort = if options.quick {
        Effort {
            rounds: 3,
            seconds: 0.12,
            bursts: &[1, 8, BURST],
        }
    } else {
        Effort {
            rounds: 7,
            seconds: 0.4,
            bursts: &[1, 2, 4, 8, 16, BURST],
        }
    };
    let rig = Rig::apart(Duration::from_secs(20));
    let rows = rows(&rig, &effort);
    Ok(experiment.report(watch.machine(false), rows))
}

/// Message passing between cores, as the document's; and the default. Protocol and application are on one core.
fn players() -> [(&'static str, Carrier); 2] {
    let settings = Settings {
        shards: 1,
        ..Settings::default()
    };
    [
        ("percpu", Carrier::with(Regime::PerCpu, settings)),
        ("app_channel", Carrier::of(Regime::AppChannel)),
    ]
}

/// All rows.
fn rows(rig: &Rig, effort: &Effort) -> Vec<Row> {
    let mut entries = Vec::new();
    for (name, carrier) in players() {
        for &burst in effort.bursts {
            let work = Work::paced(BURSTS_PER_SECOND * burst, burst, effort.seconds);
            for (condition, disturbance) in CONDITIONS {
                let job = Job {
                    disturbance,
                    ..Job::new(carrier, work, Place::of_roles())
                };
                entries.push(Entry::new(format!("{name}_burst_{burst}_{condition}"), job));
            }
        }
    }
    let found = rig.rounds(&entries, effort.rounds, 200.0);
    let mut rows = Vec::new();
    for (name, _) in players() {
        rows.extend(ratios(name, &found));
        for &burst in effort.bursts {
            rows.extend(figures(name, burst, &found));
        }
    }
    rows.extend(found.failures());
    rows
}

/// What aggregation saves, and what the conditions cost.
fn ratios(name: &str, found: &Found) -> Vec<Row> {
    let ratio = |id: String, one: String, other: String| {
        found.ratio_row(&id, &one, &other, &Outcome::packet_ns)
    };
    let run = |burst: usize, condition: &str| format!("{name}_burst_{burst}_{condition}");
    let mut rows = Vec::new();
    for (condition, _) in CONDITIONS {
        let id = format!("{name}_single_over_burst_{condition}_ratio");
        let row = ratio(id, run(1, condition), run(BURST, condition));
        rows.extend(row.map(|row| row.reference("2.0: 2.5 us by 1.26 us (D6)")));
    }
    for (burst, said) in [(1, "single"), (BURST, "burst")] {
        // A core that is never idle is compared with one that is not, either.
        for (condition, base) in [("cold", "warm"), ("busy", "warm"), ("preempted", "busy")] {
            let id = format!("{name}_{condition}_over_{base}_{said}_ratio");
            let row = ratio(id, run(burst, condition), run(burst, base));
            rows.extend(row.map(|row| match condition {
                "cold" => row.reference("a trace event: 1.6 to 3.3 us cold, 40 ns warm (D9)"),
                _ => row,
            }));
        }
    }
    rows
}

/// What a packet costs, and how often threads switch.
fn figures(name: &str, burst: usize, found: &Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for (condition, _) in CONDITIONS {
        let run = format!("{name}_burst_{burst}_{condition}");
        rows.extend(found.row(&format!("{run}_ns"), &run, &Outcome::packet_ns));
        let id = format!("switches_per_1000_packets_{run}");
        rows.extend(found.row(&id, &run, &Outcome::switches_per_1000));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_run_has_every_row() {
        let effort = Effort {
            rounds: 2,
            seconds: 0.1, // what another thread took is known to a step of it
            bursts: &[1, BURST],
        };
        let rows = rows(&Rig::in_this_process(), &effort);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "percpu_burst_1_warm_ns",
            "percpu_single_over_burst_cold_ratio",
            "percpu_cold_over_warm_burst_ratio",
            "app_channel_preempted_over_busy_single_ratio",
            "switches_per_1000_packets_app_channel_burst_32_preempted",
        ];
        crate::report::tests::has(&rows, &ids);
    }
}
