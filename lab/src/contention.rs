//! Experiment `contention`: what makes cores talk to each other, counted for each packet of a stream under each regime, and what follows for 2 to 64 cores.

use std::time::Duration;

use netchan::Regime;
use percore::operations::{self, Operation};

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Sample, cores},
    machine::Watch,
    report::{Report, Row},
    rig::{Carrier, Job, Outcome, Pace, Place, Rig, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "contention",
    question: "How many locks, atomic exchanges and cache lines that change hands does a packet cost under each regime, and how far would each go on 2 to 64 cores?",
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

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    if !operations::ON {
        return Err(LabError::Failed(
            "this build does not count; `make bench-contention` makes one that does (feature `operations`)".into(),
        ));
    }
    let watch = Watch::start();
    let (rounds, packets) = if options.quick {
        (2, 12_000)
    } else {
        (7, 92_000)
    };
    let mut rows = Vec::new();
    for regime in Regime::ALL {
        match measure(regime, rounds, packets) {
            Ok(counts) => rows.extend(rows_of(regime, &counts)),
            Err(why) => eprintln!("contention: {regime} is left out: {why}"),
        }
    }
    Ok(experiment.report(watch.machine(false), rows))
}

/// Counts for each packet, one set for each round.
fn measure(regime: Regime, rounds: usize, packets: usize) -> Result<Vec<Counts>, String> {
    let work = Work::Stream {
        packets,
        pace: Pace::default(),
    };
    let job = Job::new(Carrier::of(regime), work, Place::Cores(cores()));
    let rig = Rig::apart(Duration::from_secs(20));
    let one = |_| rig.run(&job).map(|done| per_packet(&done));
    (0..rounds).map(one).collect()
}

#[allow(clippy::cast_precision_loss)] // below 2^52
fn per_packet(done: &Outcome) -> Counts {
    done.operations.map(|n| n as f64 / done.packets.max(1.0))
}

fn rows_of(regime: Regime, counts: &[Counts]) -> Vec<Row> {
    let name = regime.name().replace('-', "_");
    let row = |id: String, of: &dyn Fn(&Counts) -> f64| {
        Row::new(&id, &Sample::of(counts.iter().map(of).collect()))
    };
    let counted = Operation::ALL.into_iter().map(|operation| {
        let id = format!("{name}_{}_per_packet", operation.name());
        row(id, &|counts| counts[operation as usize])
    });
    let modelled = CORES.into_iter().map(|n| {
        let id = format!("{name}_model_{n}_cores_ratio");
        row(id, &|counts| model(regime, counts, f64::from(n)))
    });
    counted.chain(modelled).collect()
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
    use super::{Counts, model};
    use netchan::Regime;

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
