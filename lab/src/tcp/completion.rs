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
/// The same, with the handshake.
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
        let row = Row::new(&format!("{id}_p{percent}_ms"), &at(ours, percent));
        let row = row.target("not behind Linux");
        match &linux {
            Ok(linux) => row.against("Linux cubic", &at(std::slice::from_ref(linux), percent)),
            Err(why) => row.reference(&format!("no Linux: {why}")),
        }
    };
    PERCENTS.into_iter().map(row).collect()
}

/// The same of Linux.
fn linux(effort: &Effort, path: &Path, bytes: u64) -> Result<Vec<f64>, String> {
    effort.kernel_seconds.ok_or("not with --quick")?;
    let count = usize::try_from(effort.transfers).unwrap_or(WORKERS) / WORKERS;
    let control = CongestionControl::Cubic;
    kernel::completions(path, control, bytes, (WORKERS, count))
}
