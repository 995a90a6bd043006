//! Rows of what one flow gets: with losses, and with reordering.

use std::time::Duration;

use super::{
    CONTROLS, Effort, kernel,
    paths::{Path, Stack, rate},
    span,
};
use crate::{kit::Sample, report::Row};

/// Losses in a million, with their names in ids.
const LOSSES: [(&str, u32); 4] = [("0", 0), ("0_1", 1_000), ("1", 10_000), ("5", 50_000)];

/// `rate_loss_<loss>_mbit_per_s_<control>`: one endless flow; Linux on the same path in real time beside it, or else smoltcp, which has rows of its
/// own as well.
pub(super) fn throughput(effort: &Effort) -> Vec<Row> {
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
            let linux = effort.kernel_seconds.map(|seconds| {
                let span = span(5, 5 + seconds);
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
pub(super) fn reordering(effort: &Effort) -> Vec<Row> {
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
