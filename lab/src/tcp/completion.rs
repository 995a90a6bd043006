//! Rows of how soon short transfers are done.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    Effort,
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

/// 100 Mbit/s and 50 ms with 1 % loss.
pub(super) const LOSSY: Path = Path {
    rtt: Duration::from_millis(50),
    queue: 625_000,
    loss_ppm: 10_000,
    ..Path::WIDE
};

/// `fct_<size>_loss1_p<percent>_ms`: from the first SYN to the last byte read, CUBIC; `_without_rack`: losses found by counting (RFC 6675), and no tail
/// loss probes.
pub(super) fn completion(effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bytes) in SIZES {
        let times = |seed: u64, stack| {
            let first = seed * 1_000_000;
            completions(&LOSSY, stack, bytes, first..first + effort.transfers)
        };
        let of = |stack| effort.each(|seed| times(seed, stack));
        let ours = of(Stack::Netchan(CongestionControl::Cubic));
        let counting = of(Stack::NetchanWithoutRack(CongestionControl::Cubic));
        let theirs = of(Stack::Smoltcp);
        for percent in PERCENTS {
            let at = |all: &[Vec<f64>]| {
                let of = |sorted: &Vec<f64>| percentile(sorted, percent);
                Sample::of(all.iter().map(of).collect())
            };
            let id = format!("fct_{name}_loss1_p{percent}_ms");
            let row = Row::new(&id, &at(&ours)).against("smoltcp 0.14 (CUBIC)", &at(&theirs));
            rows.push(row.target("not behind Linux"));
            let id = format!("fct_{name}_loss1_p{percent}_without_rack_ms");
            rows.push(Row::new(&id, &at(&counting)));
        }
    }
    rows
}
