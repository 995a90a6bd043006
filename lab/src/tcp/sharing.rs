//! Rows of how flows share a bottleneck, with one another and with Linux.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    CONTROLS, Effort, kernel,
    paths::{Crowd, Path, Stack, fairness},
    span,
};
use crate::{kit::Sample, report::Row};

/// `jain_<n>_flows_ratio`: how evenly flows of the same round trip share a bottleneck; `_mixed_rtt`: of 20 to 200 ms. `_first_minute`: before they have
/// settled, which takes CUBIC several of its epochs.
pub(super) fn sharing(effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    let (settled, first) = (span(effort.settled.0, effort.settled.1), span(10, 70));
    let crowds = effort.crowds.iter().copied();
    for (control, congestion) in CONTROLS {
        let whose = if control == "cubic" { "" } else { "_bbr" };
        let stack = Stack::Netchan(congestion);
        let jain = |crowd: Crowd, span: (Duration, Duration)| {
            effort.sample(|seed| fairness(stack, &crowd, seed, span))
        };
        for n in crowds.clone() {
            let same = Crowd { n, mixed: false };
            let mixed = Crowd { n, mixed: true };
            let row = |name: &str, sample: Sample| {
                Row::new(&format!("jain_{n}_flows{name}_ratio{whose}"), &sample)
            };
            rows.push(row("", jain(same, settled)).target("0.95 and more"));
            if n < 16 {
                rows.push(row("_first_minute", jain(same, first)));
            }
            let mut uneven = row("_mixed_rtt", jain(mixed, settled)).target("0.95 and more");
            if control == "cubic" {
                let equal = mixed.with_equal_windows();
                uneven = uneven.reference(&format!("{equal:.2}: windows alike, RFC 9438 §3.3"));
            }
            rows.push(uneven);
        }
    }
    rows
}

/// `share_against_kernel_ratio`: what a flow of ours gets by what one of the kernel's gets, both CUBIC, through one bottleneck of 20 Mbit/s and 40 ms in
/// real time.
pub(super) fn against_kernel(effort: &Effort) -> Vec<Row> {
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
