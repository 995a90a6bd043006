//! Rows of what one flow gets: with losses, and with reordering; Linux beside it, where it can be put on the same path.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    CONTROLS, Effort,
    kernel::{self, Control, Scene},
    paths::{Path, Stack, rate},
    span,
};
use crate::{kit::Sample, report::Row};

/// Losses in a million, with their names in ids.
const LOSSES: [(&str, u32); 4] = [("0", 0), ("0_1", 1_000), ("1", 10_000), ("5", 50_000)];

/// Linux and netchan in real time, side by side in one run, each with a path to itself.
struct Beside {
    linux: Sample,
    netchan: Sample,
    /// How late the relay was.
    late: String,
}

/// What both get out of each of `paths`, `seeds` times: the rate on the first, or what the first is of the second.
fn beside(
    effort: &Effort,
    paths: &[Path],
    congestion: CongestionControl,
    seeds: u64,
) -> Result<Beside, String> {
    let seconds = effort.kernel_seconds.ok_or("not with --quick")?;
    let mut scenes = Vec::new();
    for seed in 1..=seeds {
        for control in [Control::Linux(congestion), Control::Netchan(congestion)] {
            scenes.extend(paths.iter().map(|&path| Scene {
                path,
                seed,
                players: vec![control.into()],
            }));
        }
    }
    let outcome = kernel::rates(&scenes, span(5, 5 + seconds))?;
    let of = |skipped: usize| {
        let scenes = outcome.rates.chunks(paths.len());
        let figure = |rates: &[Vec<f64>]| rates[0][0] / rates.get(1).map_or(1.0, |r| r[0]);
        Sample::of(scenes.skip(skipped).step_by(2).map(figure).collect())
    };
    Ok(Beside {
        linux: of(0),
        netchan: of(1),
        late: format!("real time; relay late {:.1} %", outcome.late_percent),
    })
}

/// Adds Linux to a row of the world, and the row of netchan through the same relay in real time.
fn with_linux(
    row: Row,
    congestion: CongestionControl,
    beside: &Result<Beside, String>,
) -> Vec<Row> {
    let name = format!("Linux {}", congestion.name());
    match beside {
        Ok(Beside {
            linux,
            netchan,
            late,
        }) => {
            let id = format!("relay_{}", row.id);
            let real = Row::new(&id, netchan).against(&name, linux).reference(late);
            let target = row.target.clone().unwrap_or_default();
            vec![row.against(&name, linux), real.target(&target)]
        }
        Err(why) => vec![row.reference(&format!("no Linux: {why}"))],
    }
}

/// `rate_loss_<loss>_mbit_per_s_<control>`: one endless flow, in virtual time; `relay_…`: the same in real time, in one run with Linux. smoltcp has rows of its
/// own.
pub(super) fn throughput(effort: &Effort) -> Vec<Row> {
    let (from, to) = effort.span();
    let mut rows = Vec::new();
    for (name, loss_ppm) in LOSSES {
        let path = Path {
            loss_ppm,
            ..Path::WIDE
        };
        let of = |stack| effort.sample(|seed| rate(&path, stack, seed, from, to));
        let id = format!("rate_loss_{name}_mbit_per_s_smoltcp");
        rows.push(Row::new(&id, &of(Stack::Smoltcp)));
        for (control, congestion) in CONTROLS {
            let id = format!("rate_loss_{name}_mbit_per_s_{control}");
            let row = Row::new(&id, &of(Stack::Netchan(congestion)))
                .target("within 5 % of Linux on the same path");
            // Slow flows, whose figures vary more, leave room for one another.
            let seeds = if loss_ppm > 0 && control == "cubic" {
                5
            } else {
                1
            };
            let linux = beside(effort, &[path], congestion, seeds);
            rows.extend(with_linux(row, congestion, &linux));
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
    let mut rows = Vec::new();
    for (control, congestion) in CONTROLS {
        let stack = Stack::Netchan(congestion);
        let ratio = effort.sample(|seed| {
            rate(&uneven, stack, seed, from, to) / rate(&even, stack, seed, from, to)
        });
        let id = match control {
            "cubic" => "reordering_rate_ratio".to_owned(),
            other => format!("reordering_rate_ratio_{other}"),
        };
        let row = Row::new(&id, &ratio).target("0.9 and more");
        let linux = beside(effort, &[uneven, even], congestion, 1);
        rows.extend(with_linux(row, congestion, &linux));
    }
    rows
}
