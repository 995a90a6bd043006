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

/// `share_against_kernel_ratio`: what a flow of ours gets by what one of the kernel's gets, both CUBIC, through one bottleneck of 20 Mbit/s and 40 ms in
/// real time. `jain_linux_…`: how two of the kernel's share, in the same run.
pub(super) fn against_kernel(effort: &Effort) -> Vec<Row> {
    let linux = Control::Linux(CongestionControl::Cubic);
    let ours = Control::Netchan(CongestionControl::Cubic);
    let narrow = Path {
        rate: 2_500_000,
        rtt: Duration::from_millis(40),
        queue: 100_000,
        ..Path::WIDE
    };
    let alike = |path: Path, players: [Control; 2]| Scene {
        path,
        seed: 1,
        players: players.map(Player::from).to_vec(),
    };
    let crowd = |mixed| {
        let crowd = Crowd { n: 2, mixed };
        let mut scene = alike(crowd.path(), [linux; 2]);
        scene.players[1].farther = crowd.farther(1);
        scene
    };
    let scenes = [alike(narrow, [ours, linux]), crowd(false), crowd(true)];
    let outcome = match kernel::rates(&scenes, span(effort.shared.0, effort.shared.1)) {
        Ok(outcome) => outcome,
        // Without root there is nothing to compare with, and no row.
        Err(why) => {
            eprintln!("tcp: nothing is shared with Linux: {why}");
            return Vec::new();
        }
    };
    let late = format!("real time; relay late {:.1} %", outcome.late_percent);
    let row = |id, value| Row::new(id, &Sample::of(vec![value])).reference(&late);
    let [against, same, mixed] = outcome.rates.as_slice() else {
        return Vec::new();
    };
    vec![
        row("share_against_kernel_ratio", against[0] / against[1]).target("0.8 to 1.25"),
        row("jain_linux_2_flows_ratio", jain(same)),
        row("jain_linux_2_flows_mixed_rtt_ratio", jain(mixed)),
    ]
}
