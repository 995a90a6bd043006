//! Experiment `pipeline` (D7): a TCP packet on its way from the link's core to the application's, stage by stage.

use std::time::Duration;

use netchan::{Regime, link::BURST, trace::stages::Stage};

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::Sample,
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Entry, Found, Job, Look, Outcome, Place, Rig, Role, Settings, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pipeline",
    question: "What does each stage of a TCP packet's way take when its link's thread is on one core and its protocol thread and application on another; and how long is it on the way?",
    prediction: "Alone, 4 to 6 us a packet, three quarters of it the scheduler's; in bursts of 32, below 1 us: 150 ns at the link, 250 ns of protocol, 100 ns in the socket call, the rest wake-ups. \
        On the way, alone: 20 to 40 us where each thread sleeps, 3 to 5 us where they spin.",
    run,
};

const RATE: usize = 50_000;
const BURSTS: [usize; 3] = [1, 8, BURST];

/// How much work.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    seconds: f64,
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let quick = Effort {
        rounds: 3,
        seconds: 0.06,
    };
    let whole = Effort {
        rounds: 7,
        seconds: 0.3,
    };
    let rig = Rig::apart(Duration::from_secs(20));
    let rows = rows(&rig, options.choose(quick, whole));
    Ok(experiment.report(watch.machine(false), rows))
}

/// The pipelines: in each the link's thread is on a core of its own.
fn players() -> Vec<(&'static str, Carrier)> {
    let percpu = |spin_us| {
        let settings = Settings {
            shards: 1,
            spin_us,
            ..Settings::default()
        };
        Carrier::with(Regime::PerCpu, settings)
    };
    vec![
        ("percpu", percpu(0)),
        ("percpu_spin", percpu(50)),
        ("driver_channel", Carrier::of(Regime::DriverChannel)),
        ("app_channel", Carrier::of(Regime::AppChannel)),
    ]
}

fn entries(effort: Effort, name: &str, carrier: Carrier) -> Vec<Entry> {
    let mut all = Vec::new();
    for burst in BURSTS {
        let work = Work::paced(RATE, burst, effort.seconds);
        let job = Job::new(carrier, work, Place::of_roles());
        let look = Look::Stages;
        let staged = Job {
            look,
            ..job.clone()
        };
        all.push(Entry::new(format!("{name}_{burst}@stages"), staged));
        if burst == 1 {
            let stamps = true;
            let stamped = Job {
                stamps,
                ..job.clone()
            };
            all.push(Entry::new(format!("{name}_{burst}@stamps"), stamped));
        }
        all.push(Entry::new(format!("{name}_{burst}"), job));
    }
    all
}

/// All rows.
fn rows(rig: &Rig, effort: Effort) -> Vec<Row> {
    let players = players();
    let each = |(name, carrier): &(&str, Carrier)| entries(effort, name, *carrier);
    let entries: Vec<_> = players.iter().flat_map(each).collect();
    let found = rig.rounds(&entries, effort.rounds, 200.0);
    let mut rows = Vec::new();
    for (name, _) in players {
        for burst in BURSTS {
            rows.extend(totals(name, burst, &found));
            rows.extend(stages(name, burst, &found));
        }
    }
    rows.extend(found.failures());
    rows
}

/// A packet in all, and how long it was on the way.
fn totals(name: &str, burst: usize, found: &Found) -> Vec<Row> {
    let (run, stamped) = (format!("{name}_{burst}"), format!("{name}_{burst}@stamps"));
    let total = found.row(
        &format!("{name}_packet_burst_{burst}_ns"),
        &run,
        &Outcome::packet_ns,
    );
    let id = format!("{name}_switches_per_1000_packets_burst_{burst}");
    let switches = found.row(&id, &run, &Outcome::switches_per_1000);
    let way = |number: usize| move |o: &Outcome| o.latency_ns.map_or(0.0, |of| of[number]);
    let middle = found.row(&format!("{name}_way_ns"), &stamped, &way(0));
    let late = found.row(&format!("{name}_way_p99_ns"), &stamped, &way(1));
    let total = total.map(|row| match name {
        "percpu" | "percpu_spin" => row.reference("~1 us, 2 GHz (D7)"),
        _ => row,
    });
    [total, switches, middle, late]
        .into_iter()
        .flatten()
        .collect()
}

/// Each stage of each thread: its share in the run with stages, of the time in the run without, round by round. What takes less than a
/// nanosecond has no row.
fn stages(name: &str, burst: usize, found: &Found) -> Vec<Row> {
    let staged = found.outcomes(&format!("{name}_{burst}@stages"));
    let timed = found.outcomes(&format!("{name}_{burst}"));
    let mut rows = Vec::new();
    for role in Role::RECEIVING {
        for stage in Stage::ALL {
            let cell = |(staged, timed): (&Outcome, &Outcome)| {
                staged.share_of(role, stage) * timed.packet_ns()
            };
            let values: Vec<f64> = staged.iter().zip(timed).map(cell).collect();
            if values.is_empty() {
                continue;
            }
            let (role, stage) = (role.name(), stage.name());
            let id = format!("{name}_{role}_thread_{stage}_burst_{burst}_ns");
            let row = Row::new(&id, &Sample::of(values));
            rows.extend((row.value >= 1.0).then_some(row));
        }
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
            seconds: 0.02,
        };
        let rows = rows(&Rig::in_this_process(), effort);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "percpu_packet_burst_1_ns",
            "percpu_protocol_thread_protocol_burst_32_ns",
            "percpu_link_thread_link_burst_8_ns",
            "percpu_way_ns",
            "percpu_spin_way_p99_ns",
            "app_channel_application_thread_socket_burst_1_ns",
        ];
        crate::report::tests::has(&rows, &ids);
    }
}
