//! Experiment `tcp`: what netchan's TCP gets out of bad paths, how it shares, and what a segment and a connection cost.

mod cost;
mod kernel;
pub mod paths;

use std::time::Duration;

use proto::tcp::{CongestionControl, TimeWait};

use self::{
    cost::{FastPath, resident_bytes},
    paths::{Path, Stack, completions, fairness, percentile, rate},
};
use crate::{
    experiments::{Experiment, LabError, Options},
    kit::{Pinned, Sample},
    machine::Watch,
    path::{
        Pair as _, Setup,
        netchan_side::NetchanPair,
        smoltcp_side::{SmoltcpPair, Tuning},
    },
    report::{ChecksOn, Report, Row},
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
/// Losses in a million, with their names in ids.
const LOSSES: [(&str, u32); 4] = [("0", 0), ("0_1", 1_000), ("1", 10_000), ("5", 50_000)];

/// How much is done.
struct Effort {
    seeds: u64,
    seconds: u64,
    kernel_seconds: Option<u64>,
    transfers: u64,
    batches: usize,
    idle: usize,
}

impl Effort {
    const fn new(options: &Options) -> Self {
        if options.quick {
            Self {
                seeds: 1,
                seconds: 6,
                kernel_seconds: None,
                transfers: 60,
                batches: 5_000,
                idle: 2_000,
            }
        } else {
            Self {
                seeds: 7,
                seconds: 60,
                kernel_seconds: Some(25),
                transfers: 1_000,
                batches: 50_000,
                idle: 20_000,
            }
        }
    }

    fn sample(&self, f: impl Fn(u64) -> f64) -> Sample {
        Sample::of((1..=self.seeds).map(f).collect())
    }

    /// The same for the kernel, which takes real time.
    fn kernel_span(&self) -> Option<(Duration, Duration)> {
        self.kernel_seconds
            .map(|seconds| (Duration::from_secs(5), Duration::from_secs(5 + seconds)))
    }

    /// The time that is measured: the first seconds belong to slow start.
    const fn span(&self) -> (Duration, Duration) {
        (
            Duration::from_secs(5),
            Duration::from_secs(5 + self.seconds),
        )
    }
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let pinned = Pinned::to_last_core();
    let effort = Effort::new(options);
    // First: what others did before would stay in memory.
    let mut last = memory(&effort)?;
    let mut rows = throughput(&effort);
    rows.extend(reordering(&effort));
    rows.extend(sharing(&effort));
    rows.extend(against_kernel(&effort));
    rows.extend(completion(&effort));
    rows.extend(cycles(&effort));
    rows.append(&mut last);
    let machine = watch.machine(pinned.is_pinned());
    drop(pinned);
    Ok(Report {
        name: experiment.name,
        question: experiment.question,
        machine,
        checks_on: ChecksOn::here(),
        prediction: experiment.prediction,
        rows,
    })
}

/// `rate_loss_<loss>_mbit_per_s_<control>`: one endless flow; Linux on the same path in real time beside it, or else smoltcp, which has rows of its
/// own as well.
fn throughput(effort: &Effort) -> Vec<Row> {
    let (from, to) = effort.span();
    let mut rows = Vec::new();
    for (name, loss_ppm) in LOSSES {
        let path = Path {
            loss_ppm,
            ..Path::WIDE
        };
        let of = |stack| effort.sample(|seed| rate(&path, stack, seed, from, to));
        let smoltcp = of(Stack::Smoltcp);
        let id = format!("rate_loss_{name}_mbit_per_s_smoltcp");
        rows.push(Row::new(&id, &smoltcp));
        for (control, congestion) in CONTROLS {
            let id = format!("rate_loss_{name}_mbit_per_s_{control}");
            let row = Row::new(&id, &of(Stack::Netchan(congestion)))
                .target("within 5 % of Linux on the same path");
            let linux = effort.kernel_span().map(|span| {
                let whole = kernel::rates(&path, control, None, 1, span);
                whole.map(|(rate, _)| Sample::of(vec![rate]))
            });
            rows.push(match linux {
                Some(Ok(linux)) => row.against(&format!("Linux {control}"), &linux),
                Some(Err(why)) => row
                    .against("smoltcp 0.14", &smoltcp)
                    .reference(&format!("no Linux: {why}")),
                None => row
                    .against("smoltcp 0.14", &smoltcp)
                    .reference("Linux: not with --quick"),
            });
        }
    }
    rows
}

/// `reordering_rate_ratio`: 66 ms, every 200th packet 5 ms late, by the same without.
fn reordering(effort: &Effort) -> Vec<Row> {
    let (from, to) = effort.span();
    let rtt = Duration::from_millis(66);
    let even = Path {
        rtt,
        queue: 825_000,
        ..Path::WIDE
    };
    let uneven = Path {
        late: (5_000, Duration::from_millis(5)),
        ..even
    };
    let row = |(control, congestion)| {
        let stack = Stack::Netchan(congestion);
        let ratio = effort.sample(|seed| {
            rate(&uneven, stack, seed, from, to) / rate(&even, stack, seed, from, to)
        });
        let id = match control {
            "cubic" => "reordering_rate_ratio".to_owned(),
            other => format!("reordering_rate_ratio_{other}"),
        };
        Row::new(&id, &ratio).target("0.9 and more")
    };
    CONTROLS.into_iter().map(row).collect()
}

/// `jain_<n>_flows_ratio`: how evenly flows of the same round trip share a bottleneck; `_mixed_rtt`: of 20 to 200 ms.
fn sharing(effort: &Effort) -> Vec<Row> {
    let (from, to) = (
        Duration::from_secs(10),
        Duration::from_secs(10 + 2 * effort.seconds),
    );
    let mut rows = Vec::new();
    for (control, congestion) in CONTROLS {
        for (n, mixed) in [2, 8, 16, 64]
            .into_iter()
            .flat_map(|n| [(n, false), (n, true)])
        {
            let stack = Stack::Netchan(congestion);
            let sample = effort.sample(|seed| fairness(stack, n, mixed, seed, from, to));
            let mixed = if mixed { "_mixed_rtt" } else { "" };
            let whose = if control == "cubic" {
                String::new()
            } else {
                format!("_{control}")
            };
            let id = format!("jain_{n}_flows{mixed}_ratio{whose}");
            rows.push(Row::new(&id, &sample).target("0.95 and more"));
        }
    }
    rows
}

/// `share_against_kernel_ratio`: what a flow of ours gets by what one of the kernel's gets, both CUBIC, through one bottleneck of 20 Mbit/s and 40 ms in
/// real time.
fn against_kernel(effort: &Effort) -> Vec<Row> {
    let path = Path {
        rate: 2_500_000,
        rtt: Duration::from_millis(40),
        queue: 100_000,
        ..Path::WIDE
    };
    let seconds = effort.kernel_seconds.unwrap_or(3);
    let span = (Duration::from_secs(2), Duration::from_secs(2 + 2 * seconds));
    let ours = Some(CongestionControl::Cubic);
    match kernel::rates(&path, "cubic", ours, 1, span) {
        Ok((linux, Some(ours))) => {
            let row = Row::new(
                "share_against_kernel_ratio",
                &Sample::of(vec![ours / linux]),
            );
            vec![row.target("0.8 to 1.25")]
        }
        // Without root there is nothing to compare with, and no row.
        Ok((_, None)) | Err(_) => Vec::new(),
    }
}

/// `fct_<size>_loss1_p50_ms` and `_p99_ms`: from the first SYN to the last byte read, over 100 Mbit/s and 50 ms with 1 % loss, CUBIC.
fn completion(effort: &Effort) -> Vec<Row> {
    let path = Path {
        rtt: Duration::from_millis(50),
        queue: 625_000,
        loss_ppm: 10_000,
        ..Path::WIDE
    };
    let sizes = [
        ("1k", 1_000),
        ("10k", 10_000),
        ("100k", 100_000),
        ("1m", 1_000_000),
    ];
    let mut rows = Vec::new();
    for (name, bytes) in sizes {
        let times = |seed: u64, stack| {
            let first = seed * 1_000_000;
            completions(&path, stack, bytes, first..first + effort.transfers)
        };
        let of = |stack| -> Vec<_> { (1..=effort.seeds).map(|seed| times(seed, stack)).collect() };
        let ours = of(Stack::Netchan(CongestionControl::Cubic));
        let theirs = of(Stack::Smoltcp);
        for percent in [50, 99] {
            let at = |all: &[Vec<f64>]| {
                Sample::of(
                    all.iter()
                        .map(|sorted| percentile(sorted, percent))
                        .collect(),
                )
            };
            let id = format!("fct_{name}_loss1_p{percent}_ms");
            let row = Row::new(&id, &at(&ours)).against("smoltcp 0.14 (CUBIC)", &at(&theirs));
            rows.push(row.target("not behind Linux"));
        }
    }
    rows
}

/// `fast_path_in_cycles`, `fast_path_out_cycles`: of the time stamp counter, without checksums.
fn cycles(effort: &Effort) -> Vec<Row> {
    let ours = FastPath::new().measure(effort.batches);
    let setup = Setup {
        checksums: false,
        ..Setup::default()
    };
    let tuning = Tuning {
        buffer: 1 << 18,
        ..Tuning::default()
    };
    let theirs = SmoltcpPair::new(setup, tuning).batches(effort.batches / 5);
    #[allow(clippy::cast_precision_loss)] // thousands
    let median = |of: fn(&(u64, u64)) -> u64| {
        let mut all: Vec<_> = theirs.iter().map(of).collect();
        all.sort_unstable();
        Sample::of(vec![all[all.len() / 2] as f64 / 32.0])
    };
    let row =
        |id, value, peer| Row::new(id, &Sample::of(vec![value])).against("smoltcp 0.14", peer);
    vec![
        row("fast_path_in_cycles", ours.input, &median(|b| b.1))
            .target("250 at most, half of the peer's"),
        row("fast_path_out_cycles", ours.output, &median(|b| b.0)),
    ]
}

/// `idle_connection_bytes`: what the process grew by for each established connection that nobody uses, all of it; `time_wait_bytes` likewise
/// for each closed one.
fn memory(effort: &Effort) -> Result<Vec<Row>, LabError> {
    let grown = |idle: usize| -> Result<f64, LabError> {
        let before = resident_bytes();
        let pair = NetchanPair::new(Setup {
            idle,
            ..Setup::default()
        })?;
        let after = resident_bytes();
        drop(pair);
        Ok(after - before)
    };
    // The first pair takes what every one needs, and leaves it to the next.
    grown(1)?;
    let few = grown(1)?;
    let many = grown(effort.idle + 1)?;
    // Two ends of each connection are here.
    let idle = (many - few) / (2.0 * count(effort.idle));
    let mut pair = NetchanPair::new(Setup::default())?;
    pair.connections(50);
    let before = resident_bytes();
    pair.connections(effort.idle);
    let waiting = (resident_bytes() - before) / count(effort.idle);
    let record = count(size_of::<TimeWait>());
    Ok(vec![
        Row::new("idle_connection_bytes", &Sample::of(vec![idle])).target("1 KiB at most"),
        Row::new("time_wait_bytes", &Sample::of(vec![waiting])).target("128 B at most"),
        Row::new("time_wait_record_bytes", &Sample::of(vec![record])),
    ])
}

#[allow(clippy::cast_precision_loss)] // below 2^52
const fn count(n: usize) -> f64 {
    n as f64
}
