//! Experiment `giant-cost` (F1, F4, F9): what Giant costs on one CPU and on two, over loopback; and what the shim around one link's driver costs.

use std::time::Duration;

use netchan::Regime;

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::cores,
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Entry, Found, Job, Outcome, Place, Rig, Work, candidates},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "giant-cost",
    question: "What does one big lock cost on one CPU and on two, for requests of many clients and for streams over loopback, beside fine locks and the kernel; and what does it cost to take it around one link's driver only?",
    prediction: "On one CPU giant and locked within 5 %: a lock that is free costs 20 ns of a transaction's 10 us. On two, locked does 1.2 to 1.5 times giant's transactions; streams over loopback gain nothing, as in 2004. \
        The shim: 20 to 60 ns a burst, nothing that shows beside a packet's 300 ns.",
    run,
};

/// How much work.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    /// Rounds in which the settings are searched; 0: as they come.
    rounds_of_search: usize,
    transactions: usize,
    packets: usize,
    seconds: f64,
}

/// The document's.
const CLIENTS: usize = 11;

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let quick = Effort {
        rounds: 3,
        rounds_of_search: 0,
        transactions: 150,
        packets: 8_000,
        seconds: 0.08,
    };
    let whole = Effort {
        rounds: 9,
        rounds_of_search: 2,
        transactions: 1000,
        packets: 60_000,
        seconds: 0.25,
    };
    let rig = Rig::apart(Duration::from_secs(20));
    let rows = rows(&rig, options.choose(quick, whole));
    Ok(experiment.report(watch.machine(false), rows))
}

/// What goes over loopback, and its name in rows.
fn works(effort: Effort) -> [(&'static str, Work); 3] {
    let service = Work::Service {
        clients: CLIENTS,
        transactions: effort.transactions,
    };
    let datagrams = Work::Datagrams {
        packets: effort.packets,
    };
    [
        ("rr", service),
        ("tcp_stream", Work::fast(effort.packets)),
        ("udp_stream", datagrams),
    ]
}

fn job(carrier: Carrier, work: Work, cpus: usize) -> Job {
    Job::new(carrier, work, Place::on(cpus)).over_loopback()
}

/// The regime with the settings that serve fastest on two CPUs.
fn best(rig: &Rig, effort: Effort, regime: Regime) -> Carrier {
    let [(_, service), ..] = works(effort);
    let entry = |settings| {
        let carrier = Carrier::with(regime, settings);
        let name = format!("search {regime} {}", settings.text());
        Entry::new(name, job(carrier, service, 2))
    };
    let entries: Vec<_> = candidates(regime).into_iter().map(entry).collect();
    let best = (effort.rounds_of_search > 0)
        .then(|| rig.best(&entries, effort.rounds_of_search, &|o| o.seconds))
        .flatten();
    best.map_or_else(|| Carrier::of(regime), |entry| entry.job.carrier)
}

/// All rows.
fn rows(rig: &Rig, effort: Effort) -> Vec<Row> {
    let players = [Regime::Giant, Regime::Locked].map(|regime| best(rig, effort, regime));
    let players = players.into_iter().chain([Carrier::Linux]);
    let mut entries = Vec::new();
    for carrier in players.clone() {
        for (work, what) in works(effort) {
            for cpus in 1..=cores().len().min(2) {
                let name = format!("{work}_{}_{cpus}", carrier.id());
                entries.push(Entry::new(name, job(carrier, what, cpus)));
            }
        }
    }
    entries.extend(shims(effort));
    let found = rig.rounds(&entries, effort.rounds, 200.0);
    let mut rows = Vec::new();
    for (work, _) in works(effort) {
        rows.extend(comparisons(work, &found));
        for carrier in players.clone() {
            rows.extend(figures(work, carrier, &found));
        }
    }
    rows.extend(shim_rows(&found));
    rows.extend(found.failures());
    rows
}

/// Transactions, or Gbit, a second.
fn rate(work: &str) -> fn(&Outcome) -> f64 {
    if work == "rr" {
        Outcome::per_second
    } else {
        Outcome::gbit_per_s
    }
}

const CPUS: [(usize, &str); 2] = [(1, "one_cpu"), (2, "two_cpus")];

/// Two CPUs by one, and locks by Giant.
fn comparisons(work: &str, found: &Found) -> Vec<Row> {
    let (mut rows, figure) = (Vec::new(), rate(work));
    for (regime, reference) in [
        ("giant", "1.07 (F9)"),
        ("locked", "1.42 (F9)"),
        ("linux", ""),
    ] {
        let id = format!("speedup_{work}_{regime}_ratio");
        let (two, one) = (format!("{work}_{regime}_2"), format!("{work}_{regime}_1"));
        let row = found.ratio_row(&id, &two, &one, &figure);
        rows.extend(row.map(|row| match (work, reference) {
            ("rr", "1.42 (F9)") => row.reference(reference).target(">= 1.42"),
            ("rr", "1.07 (F9)") => row.reference(reference),
            _ => row,
        }));
    }
    for (cpus, said) in CPUS {
        let id = format!("locked_over_giant_{work}_{said}_ratio");
        let (locked, giant) = (
            format!("{work}_locked_{cpus}"),
            format!("{work}_giant_{cpus}"),
        );
        let row = found.ratio_row(&id, &locked, &giant, &figure);
        rows.extend(row.map(|row| match (work, cpus) {
            ("rr", 2) => row.reference("1.3 to 1.4 (F9)").target(">= 1.3"),
            ("rr", _) => row,
            _ => row.reference("no gain (F9)"),
        }));
    }
    rows
}

/// What the comparisons were made of, and how often Giant was waited for.
fn figures(work: &str, carrier: Carrier, found: &Found) -> Vec<Row> {
    let (mut rows, id) = (Vec::new(), carrier.id());
    let unit = if work == "rr" { "per_s" } else { "gbit_per_s" };
    for (cpus, said) in CPUS {
        let name = format!("{work}_{id}_{cpus}");
        let row = found.row(&format!("{work}_{id}_{said}_{unit}"), &name, &rate(work));
        rows.extend(row.map(|row| match carrier {
            Carrier::Netchan { settings, .. } => row.reference(&settings.text()),
            Carrier::Linux => row,
        }));
        if carrier.regime() == Some(Regime::Giant) {
            let waits = |o: &Outcome| 100.0 * o.giant[1] / o.giant[0].max(1.0);
            let id = format!("{work}_giant_waits_{said}_percent");
            rows.extend(found.row(&id, &name, &waits));
        }
    }
    rows
}

/// A link whose driver needs Giant, under locks, beside the same one that does not.
fn shims(effort: Effort) -> Vec<Entry> {
    let locked = Carrier::of(Regime::Locked);
    let works = [
        ("fast", Work::fast(effort.packets)),
        ("50k", Work::paced(50_000, 1, effort.seconds)),
    ];
    let mut entries = Vec::new();
    for (rate, work) in works {
        for (name, needs_giant) in [("plain", false), ("shim", true)] {
            let job = Job {
                needs_giant,
                ..Job::new(locked, work, Place::of_roles())
            };
            entries.push(Entry::new(format!("{name}_{rate}"), job));
        }
    }
    entries
}

fn shim_rows(found: &Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for rate in ["fast", "50k"] {
        let (shim, plain) = (format!("shim_{rate}"), format!("plain_{rate}"));
        let taken = |o: &Outcome| 1000.0 * o.giant[0] / o.packets.max(1.0);
        let waits = |o: &Outcome| 100.0 * o.giant[1] / o.giant[0].max(1.0);
        rows.extend(
            [
                found.ratio_row(
                    &format!("shim_over_plain_{rate}_ratio"),
                    &shim,
                    &plain,
                    &Outcome::packet_ns,
                ),
                found.row(
                    &format!("cpu_per_packet_shim_{rate}_ns"),
                    &shim,
                    &Outcome::packet_ns,
                ),
                found.row(
                    &format!("cpu_per_packet_plain_{rate}_ns"),
                    &plain,
                    &Outcome::packet_ns,
                ),
                found.row(
                    &format!("shim_taken_per_1000_packets_{rate}"),
                    &shim,
                    &taken,
                ),
                found.row(&format!("shim_waits_{rate}_percent"), &shim, &waits),
            ]
            .into_iter()
            .flatten(),
        );
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
            rounds_of_search: 0,
            transactions: 10,
            packets: 640,
            seconds: 0.01,
        };
        let rows = rows(&Rig::in_this_process(), effort);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "locked_over_giant_rr_one_cpu_ratio",
            "locked_over_giant_udp_stream_one_cpu_ratio",
            "tcp_stream_linux_one_cpu_gbit_per_s",
            "shim_over_plain_50k_ratio",
            "shim_taken_per_1000_packets_fast",
        ];
        crate::report::tests::has(&rows, &ids);
    }
}
