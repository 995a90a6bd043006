//! Which rows come of it: the first, then the document's table, cell by cell, then what explains them.

use netchan::trace::stages::Stage;

use super::{
    effort::{Effort, PLAIN, STEADY, Scenario},
    plain,
    players::Player,
    service_name,
};
use crate::{
    kit::Sample,
    report::Row,
    rig::{Found, Outcome},
};

/// C5, percent of a CPU: total, then the columns in the order of [`Stage::ALL`] (interrupt, soft interrupt, socket, locks, scheduler, application).
const fn document(player: &str, one_cpu: bool) -> Option<[u32; 7]> {
    Some(match (player.as_bytes(), one_cpu) {
        (b"per_packet", true) => [50, 7, 11, 16, 8, 5, 1],
        (b"per_packet", false) => [77, 9, 13, 24, 14, 12, 1],
        (b"driver_channel", false) => [58, 6, 12, 16, 9, 9, 1],
        (b"socket_channel", false) => [28, 6, 0, 16, 1, 3, 1],
        (b"app_channel", false) => [14, 6, 0, 0, 0, 2, 5],
        _ => return None,
    })
}

const fn speedup_target(player: &str) -> (&'static str, &'static str) {
    match player.as_bytes() {
        b"giant" => ("1.07 (F9)", ""),
        b"locked" => ("1.42 (F9)", ">= 1.42"),
        b"percpu" | b"app_channel" => ("", ">= 1.9"),
        _ => ("", ""),
    }
}

fn with(row: Row, reference: &str, target: &str) -> Row {
    let row = if reference.is_empty() {
        row
    } else {
        row.reference(reference)
    };
    if target.is_empty() {
        row
    } else {
        row.target(target)
    }
}

/// All rows; `looked` are the runs with stages and counted calls.
pub(super) fn rows(effort: &Effort, players: &[Player], found: &Found, looked: &Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for scenario in &effort.scenarios {
        rows.extend(
            players
                .iter()
                .filter_map(|p| packet_row(scenario, p, found)),
        );
        rows.extend(ratio_rows(scenario, found));
    }
    rows.extend(speedup_rows(effort, players, found));
    for scenario in &effort.scenarios {
        let each = |p: &Player| crossing_rows(scenario, p, found, looked);
        rows.extend(players.iter().flat_map(each));
    }
    for scenario in effort.scenarios.iter().filter(|s| s.pace.per_second > 0) {
        let each = |p: &Player| cells(scenario, p, found, looked);
        rows.extend(players.iter().flat_map(each));
    }
    for player in players {
        rows.extend(stage_rows(player, looked));
        rows.extend(explaining(effort, player, found));
    }
    rows.extend(found.failures().chain(looked.failures()));
    rows
}

fn packet_row(scenario: &Scenario, player: &Player, found: &Found) -> Option<Row> {
    let name = player.run(scenario);
    let row = found.row(
        &format!("cpu_per_packet_{name}_ns"),
        &name,
        &Outcome::packet_ns,
    )?;
    let said = match player.id.as_str() {
        "linux" => "both ends: loopback runs the receiver in the sender's thread".to_owned(),
        "per_packet" => "baseline: one packet, one way through the locks, one wake-up".to_owned(),
        "batched" => "baseline: locked as it comes, 32 packets at once".to_owned(),
        _ => format!("best settings: {}", player.settings(scenario)),
    };
    Some(row.reference(&said))
}

/// app-channel against the others, round by round.
fn ratio_rows(scenario: &Scenario, found: &Found) -> Vec<Row> {
    let suffix = scenario.suffix;
    let row = |other: &str| {
        let id = format!("cpu_app_channel_over_{other}{suffix}_ratio");
        let (ours, theirs) = (format!("app_channel{suffix}"), format!("{other}{suffix}"));
        let row = found.ratio_row(&id, &ours, &theirs, &Outcome::packet_ns)?;
        Some(match other {
            "locked" if suffix == PLAIN.suffix => with(row, "0.18 (C5: 14 against 77)", "<= 0.18"),
            "giant" if suffix == STEADY.suffix => with(row, "0.18 (C5: 14 against 77)", ""),
            _ => row,
        })
    };
    ["locked", "giant", "per_packet", "batched"]
        .into_iter()
        .filter_map(row)
        .collect()
}

/// Two cores' throughput by one core's, round by round.
fn speedup_rows(effort: &Effort, players: &[Player], found: &Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, &(clients, _)) in effort.services.iter().enumerate() {
        let many = if number == 0 {
            String::new()
        } else {
            format!("{clients}_clients_")
        };
        for player in players {
            let (one, two) = (
                service_name(player, clients, 1),
                service_name(player, clients, 2),
            );
            let id = format!("speedup_{many}{}_ratio", player.id);
            let row = found.ratio_row(&id, &two, &one, &Outcome::per_second);
            let (reference, target) = speedup_target(&player.id);
            rows.extend(row.map(|row| with(row, reference, target)));
        }
    }
    rows
}

/// Thread switches and system calls for 1,000 packets of the receiving side.
fn crossing_rows(scenario: &Scenario, player: &Player, found: &Found, looked: &Found) -> Vec<Row> {
    let name = player.run(scenario);
    let id = format!("switches_per_1000_packets_{name}");
    let switches = found.row(&id, &name, &Outcome::switches_per_1000);
    let id = format!("system_calls_per_1000_packets_{name}");
    let counted = |o: &Outcome| o.calls_per_1000().unwrap_or(0.0);
    let calls = looked.row(&id, &format!("{name}@calls"), &counted);
    switches.into_iter().chain(calls).collect()
}

/// A line of the document's table: the share of a CPU that each column takes at this rate. Total: ns a packet × rate, from the runs without stages; columns: the
/// stages' shares of it.
#[allow(clippy::cast_precision_loss)] // rates
fn cells(scenario: &Scenario, player: &Player, found: &Found, looked: &Found) -> Vec<Row> {
    let name = player.run(scenario);
    let rate = scenario.pace.per_second as f64;
    let percent = |outcome: &Outcome| 100.0 * outcome.packet_ns() * 1e-9 * rate;
    let document = document(&player.id, scenario.one_cpu);
    let said = |row: Row, column: usize| match document {
        Some(cells) => row.reference(&format!("{} % (C5)", cells[column])),
        None => row,
    };
    let id = |column: &str| format!("share_{name}_{column}_percent");
    let mut rows = Vec::new();
    rows.extend(
        found
            .row(&id("total"), &name, &percent)
            .map(|row| said(row, 0)),
    );
    let reached = |o: &Outcome| 100.0 * o.packets / o.seconds / rate;
    rows.extend(found.row(&format!("rate_reached_{name}_percent"), &name, &reached));
    let staged = looked.outcomes(&format!("{name}@stages"));
    for (column, stage) in Stage::ALL.into_iter().enumerate() {
        let pairs = staged.iter().zip(found.outcomes(&name));
        let cell = pairs.map(|(staged, timed)| staged.share(stage) * percent(timed));
        let values: Vec<f64> = cell.collect();
        if !values.is_empty() {
            let row = Row::new(&id(stage.name()), &Sample::of(values));
            rows.push(said(row, column + 1));
        }
    }
    rows
}

/// Shares of the receiving side's time as fast as it goes.
fn stage_rows(player: &Player, looked: &Found) -> Vec<Row> {
    let name = format!("{}@stages", plain(player));
    let row = |stage: Stage| {
        let id = format!("stage_{}_{}_percent", player.id, stage.name());
        looked.row(&id, &name, &|o| 100.0 * o.share(stage))
    };
    Stage::ALL.into_iter().filter_map(row).collect()
}

/// The figures that the others were made of.
fn explaining(effort: &Effort, player: &Player, found: &Found) -> Vec<Row> {
    let (id, name) = (&player.id, plain(player));
    let both = format!("cpu_both_ends_per_packet_{id}_ns");
    let rate = format!("stream_{id}_gbit_per_s");
    let mut rows: Vec<_> = [
        found.row(&both, &name, &Outcome::both_ends_ns),
        found.row(&rate, &name, &Outcome::gbit_per_s),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (number, &(clients, _)) in effort.services.iter().enumerate() {
        let many = if number == 0 {
            String::new()
        } else {
            format!("{clients}_clients_")
        };
        for (cores, said) in [(1, "one_core"), (2, "two_cores")] {
            let name = service_name(player, clients, cores);
            let row = found.row(
                &format!("rr_{many}{said}_{id}_per_s"),
                &name,
                &Outcome::per_second,
            );
            let settings = player.service_settings();
            rows.extend(row.map(|row| with(row, &settings, "")));
        }
        let name = service_name(player, clients, 2);
        let each = format!("cpu_per_transaction_{many}{id}_ns");
        rows.extend(found.row(&each, &name, &Outcome::transaction_ns));
    }
    rows
}
