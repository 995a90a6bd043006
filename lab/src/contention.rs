//! Experiment `contention`: what makes cores talk to each other, counted for each packet of a stream under each regime; and what a model makes of the counts for 2 to 64 cores.

use std::time::Duration;

use netchan::Regime;
use percore::operations::{self, Operation};

use crate::{
    experiment::{Experiment, LabError, Options},
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Entry, Found, Job, Outcome, Pace, Place, Rig, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "contention",
    question: "How many locks, atomic exchanges and cache lines that change hands does a packet cost under each regime? And, by a model that takes nothing but these counts and its assumptions: how far would each go on 2 to 64 cores?",
    prediction: "giant and locked 2 to 3 locks a packet in bursts of a few, half of them last held by the other side; app-channel under one, none of them moved, and 1.5 lines a packet for its ring and the way home. \
        The model: giant flat at 1.3, locked at its number of shards, the channel regimes near 40 of 64.",
    run,
};

/// What the model takes for given; see the experiment's README.
mod assumed {
    /// Work on a packet that touches no other core's lines, ns: what `regimes` measures for `locked`.
    pub const WORK_NS: f64 = 400.0;
    /// The part of it that is done under the shard's lock, or in the one network thread.
    pub const HELD: f64 = 0.75;
    /// An atomic exchange on a line that is here already.
    pub const RMW_NS: f64 = 5.0;
    /// A line from another core of the same die, and from farther away.
    pub const NEAR_NS: f64 = 60.0;
    pub const FAR_NS: f64 = 140.0;
    /// Cores of a die.
    pub const DIE: f64 = 8.0;
    /// Shards of `locked`.
    pub const SHARDS: f64 = 8.0;
}

const CORES: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// For each packet, in the order of [`Operation::ALL`].
type Counts = [f64; operations::COUNT];

/// A rate at which is counted: its end in row ids, and how fast.
const RATES: [(&str, Pace); 2] = [
    (
        "",
        Pace {
            per_second: 0,
            burst: 0,
        },
    ),
    (
        "_50k",
        Pace {
            per_second: 50_000,
            burst: 1,
        },
    ),
];

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    if !operations::ON {
        return Err(LabError::Failed(
            "this build does not count; `make bench-contention` makes one that does (feature `operations`)".into(),
        ));
    }
    let watch = Watch::start();
    let rig = Rig::apart(Duration::from_secs(20));
    let packets = options.choose([12_000, 5_000], [92_000, 25_000]);
    let rows = rows(&rig, options.choose(3, 7), packets);
    Ok(experiment.report(watch.machine(false), rows))
}

/// All rows: what was counted, then what the model makes of it.
fn rows(rig: &Rig, rounds: usize, packets: [usize; RATES.len()]) -> Vec<Row> {
    let place = Place::of_roles();
    let mut entries = Vec::new();
    for ((suffix, pace), packets) in RATES.into_iter().zip(packets) {
        for regime in Regime::ALL {
            let work = Work::Stream { packets, pace };
            let job = Job::new(Carrier::of(regime), work, place.clone());
            entries.push(Entry::new(format!("{}{suffix}", id(regime)), job));
        }
    }
    let found = rig.rounds(&entries, rounds, 240.0);
    let mut rows = Vec::new();
    for (suffix, _) in RATES {
        let counted = |regime| counted(regime, suffix, &found);
        rows.extend(Regime::ALL.into_iter().flat_map(counted));
    }
    let modelled = |regime| modelled(regime, &found);
    rows.extend(Regime::ALL.into_iter().flat_map(modelled));
    rows.extend(found.failures());
    rows
}

fn id(regime: Regime) -> String {
    regime.name().replace('-', "_")
}

#[allow(clippy::cast_precision_loss)] // below 2^52
fn per_packet(done: &Outcome) -> Counts {
    done.operations.map(|n| n as f64 / done.packets.max(1.0))
}

/// What percore's primitives and the kernel counted.
fn counted(regime: Regime, suffix: &str, found: &Found) -> Vec<Row> {
    let name = format!("{}{suffix}", id(regime));
    let mut rows: Vec<Row> = Operation::ALL
        .into_iter()
        .filter_map(|operation| {
            let id = format!("{}_{}_per_packet{suffix}", id(regime), operation.name());
            found.row(&id, &name, &|o| per_packet(o)[operation as usize])
        })
        .collect();
    let switches = format!("{}_switches_per_packet{suffix}", id(regime));
    rows.extend(found.row(&switches, &name, &|o| o.switches_per_1000() / 1000.0));
    rows
}

/// What the model makes of the counts of a stream as fast as it goes.
fn modelled(regime: Regime, found: &Found) -> Vec<Row> {
    let row = |n: u32| {
        let id = format!("{}_model_{n}_cores_ratio", id(regime));
        let figure = |o: &Outcome| model(regime, &per_packet(o), f64::from(n));
        let row = found.row(&id, &self::id(regime), &figure)?;
        Some(row.reference("a model's: computed from the counts, not measured"))
    };
    CORES.into_iter().filter_map(row).collect()
}

/// How many times what one core does, `n` cores would do.
fn model(regime: Regime, counts: &Counts, n: f64) -> f64 {
    let of = |operation: Operation| counts[operation as usize];
    let alone = assumed::WORK_NS + of(Operation::Rmw) * assumed::RMW_NS;
    // Of the other cores, so many are as near as this one's neighbours.
    let near = ((assumed::DIE.min(n) - 1.0) / (n - 1.0).max(1.0)).clamp(0.0, 1.0);
    let line = assumed::NEAR_NS * near + assumed::FAR_NS * (1.0 - near);
    let together = alone + of(Operation::Line) * line;
    // What only one at a time can do, of each of so many things.
    let held = assumed::WORK_NS * assumed::HELD + of(Operation::LockMoved) * line;
    let limit = match regime {
        Regime::Giant | Regime::DriverChannel => 1.0 / held,
        Regime::Locked => assumed::SHARDS / held,
        Regime::PerCpu | Regime::SocketChannel | Regime::AppChannel => f64::INFINITY,
    };
    (n / together).min(limit) * alone
}

#[cfg(test)]
mod tests {
    use netchan::Regime;

    use super::{Counts, model, rows};
    use crate::rig::Rig;

    /// In a build that does not count the counts are zero, but there.
    #[test]
    fn smallest_run_has_every_row() {
        let rows = rows(&Rig::in_this_process(), 2, [800, 200]);
        crate::report::tests::are_sane(&rows);
        let ids = [
            "app_channel_switches_per_packet_50k",
            "giant_model_64_cores_ratio",
        ];
        crate::report::tests::has(&rows, &ids);
        let counted = |id: &str| rows.iter().any(|row| row.id == id);
        assert!(counted("locked_locks_moved_per_packet_50k"));
    }

    #[test]
    fn the_model_knows_what_is_shared() {
        let none: Counts = [0.0; percore::operations::COUNT];
        assert!((model(Regime::AppChannel, &none, 64.0) - 64.0).abs() < 1e-9);
        assert!((model(Regime::Giant, &none, 64.0) - 1.0 / 0.75).abs() < 1e-9);
        assert!(model(Regime::Locked, &none, 64.0) < 11.0);
        let mut moved = none;
        moved[percore::operations::Operation::Line as usize] = 2.0;
        let (few, many) = (
            model(Regime::PerCpu, &moved, 8.0),
            model(Regime::PerCpu, &moved, 64.0),
        );
        assert!(
            few < 8.0 && few > 6.0 && many < 45.0 && many > 30.0,
            "{few} {many}"
        );
    }
}
