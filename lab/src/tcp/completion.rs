//! Rows of how soon short transfers are done.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    Effort, kernel,
    paths::{Path, Stack, completions, percentile},
};
use crate::{kit::Sample, report::Row};

/// What is transferred, with its name in ids.
const SIZES: [(&str, u64); 4] = [
    ("1k", 1_000),
    ("10k", 10_000),
    ("100k", 100_000),
    ("1m", 1_000_000),
];
const PERCENTS: [usize; 3] = [50, 95, 99];
/// Text of a full segment with timestamps.
const MSS: u64 = 1448;

/// Transfers of Linux that go on at a time, each with a path to itself.
const WORKERS: usize = 25;

/// 100 Mbit/s and 50 ms with 1 % loss of what carries text. The handshake is spared: a lost SYN waits a second (RFC 6298 §2.1), here as in Linux, so
/// that with one in a hundred the 99th percentile would lie just where that begins, and chance would decide.
const LOSSY: Path = Path {
    rtt: Duration::from_millis(50),
    queue: 625_000,
    loss_ppm: 10_000,
    spared: 60,
    ..Path::WIDE
};
/// [`LOSSY`] without chance: packets are lost by their numbers.
const SURE: Path = Path {
    loss_ppm: 0,
    ..LOSSY
};
/// [`LOSSY`] from the handshake on.
const LOSSY_FROM_THE_FIRST: Path = Path { spared: 0, ..LOSSY };

/// `fct_<size>_loss1_p<percent>_ms`: from the first SYN to the last byte read, CUBIC, Linux in real time beside it; `_without_rack`: losses found by
/// counting (RFC 6675), and no tail loss probes; `_syn_too`: SYNs are lost as well.
pub(super) fn completion(effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bytes) in SIZES {
        let ours = times(
            effort,
            &LOSSY,
            Stack::Netchan(CongestionControl::Cubic),
            bytes,
        );
        let without = Stack::NetchanWithoutRack(CongestionControl::Cubic);
        let others = [
            ("without_rack", times(effort, &LOSSY, without, bytes)),
            ("smoltcp", times(effort, &LOSSY, Stack::Smoltcp, bytes)),
        ];
        rows.extend(against_linux(
            effort,
            &LOSSY,
            &format!("fct_{name}_loss1"),
            bytes,
            &ours,
        ));
        for percent in PERCENTS {
            for (other, times) in &others {
                let id = format!("fct_{name}_loss1_p{percent}_{other}_ms");
                rows.push(Row::new(&id, &at(times, percent)));
            }
        }
    }
    for (name, bytes) in &SIZES[1..3] {
        let path = &LOSSY_FROM_THE_FIRST;
        let ours = times(
            effort,
            path,
            Stack::Netchan(CongestionControl::Cubic),
            *bytes,
        );
        let id = format!("fct_{name}_loss1_syn_too");
        rows.extend(against_linux(effort, path, &id, *bytes, &ours));
    }
    rows
}

/// `fct_<size>_each_lost_mean_ms`, `_max_ms`: of transfers of which each loses another one of its segments; `_each_two_lost`: two neighbours. Nothing is
/// left to chance, so that few are enough to tell where ours mends a loss later than Linux.
pub(super) fn each_loss(effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bytes) in &SIZES[1..3] {
        for (losses, second) in [("each", 0), ("each_two", 1)] {
            let segments = u32::try_from(bytes.div_ceil(MSS)).unwrap_or(u32::MAX);
            let doomed = |first| [first, if second > 0 { first + second } else { 0 }];
            let paths: Vec<Path> = (1..=segments - second)
                .map(|first| Path {
                    doomed: doomed(first),
                    ..SURE
                })
                .collect();
            let stack = Stack::Netchan(CongestionControl::Cubic);
            let ours = paths
                .iter()
                .flat_map(|path| completions(path, stack, *bytes, 1..2));
            let ours: Vec<f64> = ours.collect();
            let linux = each_loss_of_linux(effort, &paths, *bytes);
            for (what, figure) in [("mean", mean as fn(&[f64]) -> f64), ("max", max)] {
                let id = format!("fct_{name}_{losses}_lost_{what}_ms");
                let of = |times: &Vec<f64>| Sample::of(vec![figure(times)]);
                rows.push(beside(&id, &of(&ours), linux.as_ref().map(of)));
            }
        }
    }
    rows
}

fn each_loss_of_linux(effort: &Effort, paths: &[Path], bytes: u64) -> Result<Vec<f64>, String> {
    effort.kernel_seconds.ok_or("not with --quick")?;
    let some = |paths| kernel::completions(paths, CongestionControl::Cubic, bytes, (1, 1));
    let all: Result<Vec<_>, _> = paths.chunks(WORKERS).map(some).collect();
    Ok(all?.concat())
}

#[allow(clippy::cast_precision_loss)] // a few
fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn max(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

/// Sorted times of each seed's transfers.
fn times(effort: &Effort, path: &Path, stack: Stack, bytes: u64) -> Vec<Vec<f64>> {
    effort.each(|seed| {
        let first = seed * 1_000_000;
        completions(path, stack, bytes, first..first + effort.transfers)
    })
}

fn at(times: &[Vec<f64>], percent: usize) -> Sample {
    let of = |sorted: &Vec<f64>| percentile(sorted, percent);
    Sample::of(times.iter().map(of).collect())
}

/// Our times with Linux's beside them.
fn against_linux(
    effort: &Effort,
    path: &Path,
    id: &str,
    bytes: u64,
    ours: &[Vec<f64>],
) -> Vec<Row> {
    let linux = linux(effort, path, bytes);
    let row = |percent| {
        let id = format!("{id}_p{percent}_ms");
        let linux = linux.as_ref().map(|linux| at(linux, percent));
        beside(&id, &at(ours, percent), linux)
    };
    PERCENTS.into_iter().map(row).collect()
}

fn beside(id: &str, ours: &Sample, linux: Result<Sample, &String>) -> Row {
    let row = Row::new(id, ours).target("not behind Linux");
    match linux {
        Ok(linux) => row.against("Linux cubic", &linux),
        Err(why) => row.reference(&format!("no Linux: {why}")),
    }
}

/// [`times`] of Linux, of fewer seeds where a transfer takes long.
fn linux(effort: &Effort, path: &Path, bytes: u64) -> Result<Vec<Vec<f64>>, String> {
    effort.kernel_seconds.ok_or("not with --quick")?;
    let count = usize::try_from(effort.transfers).unwrap_or(WORKERS) / WORKERS;
    let control = CongestionControl::Cubic;
    let seeds = if bytes > 100_000 { 1 } else { effort.seeds };
    let seed = |seed| {
        let mut all =
            kernel::completions(&[*path; WORKERS], control, bytes, (count, seed * 1_000))?;
        all.sort_by(f64::total_cmp);
        Ok(all)
    };
    (0..seeds).map(seed).collect()
}
