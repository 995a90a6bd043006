//! Rows of how flows share a bottleneck, with one another and with Linux.

use std::time::Duration;

use proto::tcp::CongestionControl;

use super::{
    CONTROLS, Effort,
    kernel::{self, Control, Player, Scene},
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

/// Flows of ours, and as many of Linux's.
const PAIRS: u32 = 4;

/// CUBIC flows of ours and of the kernel's through one bottleneck of 80 Mbit/s, in real time: pairs of one of each, 40 to 61 ms away.
///
/// Not one pair alone: where a queue drops what comes last, which of two flows that is can hang on less than the time of one packet, again and again. Whose
/// acknowledgments come back just after a packet has left finds room (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992): of two
/// alone, ours got from 0.4 to 3 times as much, by tenths of a millisecond in the way. Flows of several round trips, and acknowledgments that are late by
/// the time of some packets at most, keep no step.
fn both_together(seed: u64) -> Scene {
    let path = Path {
        rate: 10_000_000,
        rtt: Duration::from_millis(40),
        queue: 400_000,
        jitter: Duration::from_micros(600),
        ..Path::WIDE
    };
    let pair = |i| {
        [OURS, LINUX].map(|control| Player {
            farther: Duration::from_millis(7) * i,
            control,
        })
    };
    Scene {
        path,
        seed,
        players: (0..PAIRS).flat_map(pair).collect(),
    }
}

const LINUX: Control = Control::Linux(CongestionControl::Cubic);
const OURS: Control = Control::Netchan(CongestionControl::Cubic);

/// Two of the same stack, alike or of mixed round trips.
fn two_of(control: Control, mixed: bool) -> Scene {
    let crowd = Crowd { n: 2, mixed };
    let farther = Player {
        farther: crowd.farther(1),
        control,
    };
    Scene {
        path: crowd.path(),
        seed: 1,
        players: vec![control.into(), farther],
    }
}

/// Rows of two flows of one stack: name, whose, mixed round trips.
const TWO: [(&str, Control, bool); 4] = [
    ("jain_linux_2_flows_ratio", LINUX, false),
    ("relay_jain_2_flows_ratio", OURS, false),
    ("jain_linux_2_flows_mixed_rtt_ratio", LINUX, true),
    ("relay_jain_2_flows_mixed_rtt_ratio", OURS, true),
];

/// `share_against_kernel_ratio`: what four flows of ours get by what four of the kernel's get, through several bottlenecks side by side.
/// `jain_linux_…`: how two of the kernel's share; `relay_jain_…`: two of ours in the same place, for as long.
pub(super) fn against_kernel(effort: &Effort) -> Vec<Row> {
    let seeds = 1..=effort.seeds.min(3);
    let mut scenes: Vec<Scene> = seeds.map(both_together).collect();
    let shared = scenes.len();
    scenes.extend(TWO.map(|(_, control, mixed)| two_of(control, mixed)));
    let outcome = match kernel::rates(&scenes, span(effort.shared.0, effort.shared.1)) {
        Ok(outcome) => outcome,
        // Without root there is nothing to compare with, and no row.
        Err(why) => {
            eprintln!("tcp: nothing is shared with Linux: {why}");
            return Vec::new();
        }
    };
    let late = format!("real time; relay late {:.1} %", outcome.late_percent);
    let row = |id, of: Vec<f64>| Row::new(id, &Sample::of(of)).reference(&late);
    let (together, two) = outcome.rates.split_at(shared);
    let share = |rates: &Vec<f64>| {
        let got = |player: usize| -> f64 { rates.iter().skip(player).step_by(2).sum() };
        got(0) / got(1)
    };
    let all = |figure: &dyn Fn(&Vec<f64>) -> f64| together.iter().map(figure).collect();
    let mut rows = vec![
        row("share_against_kernel_ratio", all(&share)).target("0.8 to 1.25"),
        row("share_jain_of_all_ratio", all(&|rates| jain(rates))),
    ];
    rows.extend(
        TWO.iter()
            .zip(two)
            .map(|((id, ..), rates)| row(id, vec![jain(rates)])),
    );
    rows
}
