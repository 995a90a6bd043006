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
/// One in a hundred SYNs is lost, and who lost it waits a second (RFC 6298 §2.1), here as in Linux: the 99th percentile stands where that begins, the 95th
/// shows the rest.
const PERCENTS: [usize; 3] = [50, 95, 99];

/// Transfers of Linux that go on at a time, each with a path to itself.
const WORKERS: usize = 25;

/// 100 Mbit/s and 50 ms with 1 % loss.
const LOSSY: Path = Path {
    rtt: Duration::from_millis(50),
    queue: 625_000,
    loss_ppm: 10_000,
    ..Path::WIDE
};

/// `fct_<size>_loss1_p<percent>_ms`: from the first SYN to the last byte read, CUBIC, Linux in real time beside it; `_without_rack`: losses found by
/// counting (RFC 6675), and no tail loss probes.
pub(super) fn completion(effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bytes) in SIZES {
        let times = |seed: u64, stack| {
            let first = seed * 1_000_000;
            completions(&LOSSY, stack, bytes, first..first + effort.transfers)
        };
        let of = |stack| effort.each(|seed| times(seed, stack));
        let ours = of(Stack::Netchan(CongestionControl::Cubic));
        let others = [
            (
                "without_rack",
                of(Stack::NetchanWithoutRack(CongestionControl::Cubic)),
            ),
            ("smoltcp", of(Stack::Smoltcp)),
        ];
        let linux = linux(effort, bytes);
        for percent in PERCENTS {
            let at = |all: &[Vec<f64>]| {
                let of = |sorted: &Vec<f64>| percentile(sorted, percent);
                Sample::of(all.iter().map(of).collect())
            };
            let id = format!("fct_{name}_loss1_p{percent}");
            let row = Row::new(&format!("{id}_ms"), &at(&ours)).target("not behind Linux");
            rows.push(match &linux {
                Ok(linux) => row.against("Linux cubic", &at(std::slice::from_ref(linux))),
                Err(why) => row.reference(&format!("no Linux: {why}")),
            });
            for (other, times) in &others {
                rows.push(Row::new(&format!("{id}_{other}_ms"), &at(times)));
            }
        }
    }
    rows
}

/// The same of Linux.
fn linux(effort: &Effort, bytes: u64) -> Result<Vec<f64>, String> {
    effort.kernel_seconds.ok_or("not with --quick")?;
    let count = usize::try_from(effort.transfers).unwrap_or(WORKERS) / WORKERS;
    let control = CongestionControl::Cubic;
    kernel::completions(&LOSSY, control, bytes, (WORKERS, count))
}
