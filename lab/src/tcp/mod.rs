//! Experiment `tcp`: what netchan's TCP gets out of bad paths, how it shares, and what a segment and a connection cost.

mod completion;
mod cost;
pub(crate) mod fast_path;
mod kernel;
pub mod paths;
mod rates;
mod sharing;
pub(crate) mod slow_path;

use std::{thread, time::Duration};

use proto::tcp::CongestionControl;

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::Sample,
    machine::Watch,
    report::Report,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "tcp",
    question: "What does TCP get out of 100 Mbit/s over 100 ms with losses, how evenly do flows share it, how soon are short ones done, and what \
        do a segment and an idle connection cost?",
    prediction: "Without loss both fill the path. CUBIC falls with the loss as RFC 9438 says (some 12 Mbit/s at 0.1 %, 3 at 1 %, below 1 at 5 %), BBR \
        holds 80 % of the path up to 1 % and half of it at 5 %. Equal flows share at 0.95 and better; with round trips of 20 to 200 ms CUBIC does not. \
        The fast path in takes 150 cycles, a third of smoltcp's; an idle connection 1 KiB.",
    run,
};

/// The congestion controls that are compared, with the ends of their ids.
const CONTROLS: [(&str, CongestionControl); 2] = [
    ("cubic", CongestionControl::Cubic),
    ("bbr", CongestionControl::Bbr),
];

/// How much is done.
#[derive(Clone, Copy)]
struct Effort {
    seeds: u64,
    seconds: u64,
    /// How many flows share, and from when to when they are watched, in seconds.
    crowds: &'static [u32],
    settled: (u64, u64),
    /// When a flow of ours and one of the kernel's are watched, in seconds.
    shared: (u64, u64),
    kernel_seconds: Option<u64>,
    transfers: u64,
    batches: usize,
    idle: usize,
}

impl Effort {
    const QUICK: Self = Self {
        seeds: 1,
        seconds: 6,
        crowds: &[64],
        settled: (10, 20),
        shared: (4, 16),
        kernel_seconds: None,
        transfers: 60,
        batches: 5_000,
        idle: 2_000,
    };
    const WHOLE: Self = Self {
        seeds: 7,
        seconds: 60,
        crowds: &[2, 8, 16, 64],
        settled: (120, 300),
        shared: (15, 75),
        kernel_seconds: Some(15),
        transfers: 1_000,
        batches: 50_000,
        idle: 20_000,
    };

    /// `f` of each seed. The world's time is its own: seeds may run beside one another.
    fn each<T: Send>(&self, f: impl Fn(u64) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let run = |seed| {
                scope.spawn({
                    let f = &f;
                    move || f(seed)
                })
            };
            let threads: Vec<_> = (1..=self.seeds).map(run).collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|seed| seed.expect("a world that ends")).collect()
        })
    }

    /// This effort with fewer seeds, for what takes long.
    fn at_most(self, seeds: u64) -> Self {
        Self {
            seeds: self.seeds.min(seeds),
            ..self
        }
    }

    fn sample(&self, f: impl Fn(u64) -> f64 + Sync) -> Sample {
        Sample::of(self.each(f))
    }

    /// The time that is measured: the first seconds belong to slow start.
    const fn span(&self) -> (Duration, Duration) {
        span(5, 5 + self.seconds)
    }
}

const fn span(from: u64, to: u64) -> (Duration, Duration) {
    (Duration::from_secs(from), Duration::from_secs(to))
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let effort = options.choose(Effort::QUICK, Effort::WHOLE);
    // First: what others did before would stay in memory.
    let mut last = cost::memory(&effort)?;
    let mut rows = rates::throughput(&effort);
    rows.extend(rates::reordering(&effort));
    rows.extend(sharing::sharing(&effort.at_most(3)));
    rows.extend(sharing::against_kernel(&effort));
    rows.extend(completion::completion(&effort));
    rows.extend(completion::each_loss(&effort));
    rows.extend(cost::cycles(&effort));
    rows.append(&mut last);
    Ok(experiment.report(watch.machine(false), rows))
}

#[allow(clippy::cast_precision_loss)] // below 2^52
const fn count(n: usize) -> f64 {
    n as f64
}
