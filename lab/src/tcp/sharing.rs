//! Rows of how flows share a bottleneck, with one another and with Linux.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    CONTROLS, Effort,
    kernel::{self, Control, Outcome, Player, Scene},
    paths::{Crowd, Path, Stack, fairness, jain},
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

/// Bottlenecks side by side, which one flow of ours and one of Linux's share each.
const PHASES: u32 = 8;

/// What flows of ours get by what the kernel's get, all CUBIC, one of each through a bottleneck of 20 Mbit/s and 40 ms, in real time.
///
/// Where a queue drops what comes last, which of two flows that is can hang on less than the time of one packet: whose acknowledgments come back just
/// after a packet has left finds room (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992). With the same path for both, ours
/// got 0.4 to 3 times as much, as one flow was 0.1 or 0.4 ms farther away. So here, as they advise, each acknowledgment is late by chance, by the time of a packet
/// at most, and ours are farther away by another part of that time at each bottleneck.
fn against_one_of_the_kernels() -> Vec<Scene> {
    let narrow = Path {
        rate: 2_500_000,
        rtt: Duration::from_millis(40),
        queue: 100_000,
        jitter: Duration::from_micros(600),
        ..Path::WIDE
    };
    let scene = |phase| {
        let ours = Player {
            farther: narrow.jitter * phase / PHASES,
            ..Control::Netchan(CongestionControl::Cubic).into()
        };
        Scene {
            path: narrow,
            seed: phase.into(),
            players: vec![ours, LINUX.into()],
        }
    };
    (0..PHASES).map(scene).collect()
}

const LINUX: Control = Control::Linux(CongestionControl::Cubic);

/// Two of the kernel's, alike and of mixed round trips.
fn the_kernels_own() -> Vec<Scene> {
    let scene = |mixed| {
        let crowd = Crowd { n: 2, mixed };
        let farther = Player {
            farther: crowd.farther(1),
            ..LINUX.into()
        };
        Scene {
            path: crowd.path(),
            seed: 1,
            players: vec![LINUX.into(), farther],
        }
    };
    [false, true].map(scene).into()
}

/// `share_against_kernel_ratio`: what ours get together by what the kernel's get together; `_least` and `_most`: of the single pairs.
/// `jain_linux_…`: how two of the kernel's share.
pub(super) fn against_kernel(effort: &Effort) -> Vec<Row> {
    let run = |scenes: &[Scene]| kernel::rates(scenes, span(effort.shared.0, effort.shared.1));
    let outcomes =
        run(&against_one_of_the_kernels()).and_then(|a| Ok([a, run(&the_kernels_own())?]));
    let [against, own] = match outcomes {
        Ok(outcomes) => outcomes,
        // Without root there is nothing to compare with, and no row.
        Err(why) => {
            eprintln!("tcp: nothing is shared with Linux: {why}");
            return Vec::new();
        }
    };
    let row = |id, value, outcome: &Outcome| {
        let late = format!("real time; relay late {:.1} %", outcome.late_percent);
        Row::new(id, &Sample::of(vec![value])).reference(&late)
    };
    let got = |player: usize| -> f64 { against.rates.iter().map(|pair| pair[player]).sum() };
    let single = against.rates.iter().map(|pair| pair[0] / pair[1]);
    let (least, most) = (
        single.clone().fold(f64::INFINITY, f64::min),
        single.fold(0.0, f64::max),
    );
    vec![
        row("share_against_kernel_ratio", got(0) / got(1), &against).target("0.8 to 1.25"),
        row("share_against_kernel_least_ratio", least, &against),
        row("share_against_kernel_most_ratio", most, &against),
        row("jain_linux_2_flows_ratio", jain(&own.rates[0]), &own),
        row(
            "jain_linux_2_flows_mixed_rtt_ratio",
            jain(&own.rates[1]),
            &own,
        ),
    ]
}
