//! The players of `regimes`, how much work it is, and which rows come of it.

use std::time::Duration;

use netchan::{Regime, trace::stages::Stage};

use super::{
    Contest, Figure,
    child::{Carrier, DISPATCHES},
    regime,
};
use crate::{experiment::Options, kit::Sample, report::Row};

/// A contender that takes turns.
pub(super) struct Player {
    pub carrier: Carrier,
}

impl Player {
    /// Its name in row ids.
    pub fn id(&self) -> String {
        regime(self.carrier).map_or_else(|| "linux".to_owned(), |r| r.name().replace('-', "_"))
    }

    /// [`Self::id`] with the settings that tell it from the regime's other players.
    pub fn id_with_settings(&self) -> String {
        match self.carrier {
            Carrier::Netchan {
                shards: shards @ 1..,
                dispatch,
                ..
            } => format!("{}_{:?}_{shards}", self.id(), DISPATCHES[dispatch]).to_lowercase(),
            _ => self.id(),
        }
    }

    /// Its name and settings, for people.
    pub fn name(&self) -> String {
        match self.carrier {
            Carrier::Linux => "the kernel's stack".to_owned(),
            Carrier::Netchan {
                regime,
                shards,
                dispatch,
            } => {
                let shards = if shards > 0 {
                    format!(", {shards} shards")
                } else {
                    String::new()
                };
                let dispatch = format!("{:?}", DISPATCHES[dispatch]).to_lowercase();
                format!("{} ({dispatch}{shards})", Regime::ALL[regime])
            }
        }
    }
}

/// Every regime as it comes; `locked` with each of its settings, of which the best counts; and the kernel.
pub(super) fn players() -> Vec<Player> {
    let mut all = Vec::new();
    for (number, which) in Regime::ALL.into_iter().enumerate() {
        let settings: &[(usize, usize)] = match which {
            Regime::Locked => &[(1, 0), (8, 0), (1, 1), (8, 1), (1, 2), (8, 2)],
            _ => &[(0, 0)],
        };
        all.extend(settings.iter().map(|&(shards, dispatch)| Player {
            carrier: Carrier::Netchan {
                regime: number,
                shards,
                dispatch,
            },
        }));
    }
    all.push(Player {
        carrier: Carrier::Linux,
    });
    all
}

/// How much work a round is, and when to stop.
pub(super) struct Effort {
    pub rounds: usize,
    pub bytes: usize,
    pub transactions: usize,
    many: usize,
    /// No round but the first goes on after so many seconds.
    pub limit: f64,
    /// A job's process is ended after this.
    pub deadline: Duration,
}

impl Effort {
    pub const fn new(options: &Options) -> Self {
        if options.quick {
            Self {
                rounds: 3,
                bytes: 32 << 20,
                transactions: 1000,
                many: 0,
                limit: 30.0,
                deadline: Duration::from_secs(10),
            }
        } else {
            Self {
                rounds: 7,
                bytes: 256 << 20,
                transactions: 1000,
                many: 64,
                limit: 400.0,
                deadline: Duration::from_secs(30),
            }
        }
    }

    /// Numbers of clients: the document's 11, then more.
    pub fn services(&self) -> Vec<(usize, Figure, Figure)> {
        let mut all = vec![(11, Figure::OneCore, Figure::TwoCores)];
        if self.many > 0 {
            all.push((self.many, Figure::OneCoreMany, Figure::TwoCoresMany));
        }
        all
    }
}

/// C5: total processor time, percent of two cores, in the document's words.
const fn reference(regime: Option<Regime>) -> &'static str {
    match regime {
        Some(Regime::Locked) => "77 % of two CPUs (C5)",
        Some(Regime::DriverChannel) => "58 % of two CPUs (C5)",
        Some(Regime::SocketChannel) => "28 % of two CPUs (C5)",
        Some(Regime::AppChannel) => "14 % of two CPUs (C5)",
        None => "both ends: loopback runs the receiver in the sender's thread",
        Some(Regime::Giant | Regime::PerCpu) => "",
    }
}

const fn speedup_target(regime: Option<Regime>) -> (&'static str, &'static str) {
    match regime {
        Some(Regime::Giant) => ("1.07 (F9)", ""),
        Some(Regime::Locked) => ("1.42 (F9)", ">= 1.42"),
        Some(Regime::PerCpu | Regime::AppChannel) => ("", ">= 1.9"),
        _ => ("", ""),
    }
}

/// The one of a regime's players that did best by `figure`.
fn best(contest: &Contest, id: &str, figure: Figure, least: bool) -> Option<usize> {
    let median = |player: usize| contest.sample(player, figure).map(|s| s.median());
    let players = (0..contest.players.len()).filter(|&p| contest.players[p].id() == id);
    let scored = players.filter_map(|p| Some((p, median(p)?)));
    let order = |a: &(usize, f64), b: &(usize, f64)| {
        if least {
            a.1.total_cmp(&b.1)
        } else {
            b.1.total_cmp(&a.1)
        }
    };
    scored.min_by(order).map(|(p, _)| p)
}

/// The rows of the issue first, then what explains them.
pub(super) fn rows(contest: &Contest) -> Vec<Row> {
    let mut ids: Vec<String> = contest.players.iter().map(Player::id).collect();
    ids.dedup();
    let mut rows = Vec::new();
    for id in &ids {
        rows.extend(best(contest, id, Figure::Packet, true).and_then(|p| packet_row(contest, p)));
    }
    rows.extend(ratio_row(contest));
    for id in &ids {
        let player = best(contest, id, Figure::TwoCores, false);
        rows.extend(
            player.and_then(|p| speedup_row(contest, p, "", Figure::OneCore, Figure::TwoCores)),
        );
        let player = best(contest, id, Figure::TwoCoresMany, false);
        let (one, two) = (Figure::OneCoreMany, Figure::TwoCoresMany);
        rows.extend(player.and_then(|p| speedup_row(contest, p, "64_clients_", one, two)));
    }
    for id in &ids {
        rows.extend(stage_rows(contest, id));
    }
    for player in 0..contest.players.len() {
        rows.extend(explaining(contest, player));
    }
    rows.extend(failures(contest));
    rows
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

fn packet_row(contest: &Contest, player: usize) -> Option<Row> {
    let measured = &contest.players[player];
    let sample = contest.sample(player, Figure::Packet)?;
    let row = Row::new(&format!("cpu_per_packet_{}_ns", measured.id()), &sample);
    let mut said = reference(regime(measured.carrier)).to_owned();
    if regime(measured.carrier) == Some(Regime::Locked) {
        said = format!("{said}; best of its settings: {}", measured.name());
    }
    Some(with(row, &said, ""))
}

/// app-channel against locked at its best, of the medians.
fn ratio_row(contest: &Contest) -> Option<Row> {
    let of = |id: &str| contest.sample(best(contest, id, Figure::Packet, true)?, Figure::Packet);
    let (ours, locked) = (of("app_channel")?, of("locked")?);
    let row = Row::new(
        "cpu_app_channel_over_locked_ratio",
        &ours.map(|v| v / locked.median()),
    );
    Some(row.reference("0.18 (C5: 14 against 77)").target("<= 0.18"))
}

/// Two cores' throughput by the median of one core's.
fn speedup_row(
    contest: &Contest,
    player: usize,
    many: &str,
    one: Figure,
    two: Figure,
) -> Option<Row> {
    let measured = &contest.players[player];
    let one = contest.sample(player, one)?.median();
    let ratio = contest.sample(player, two)?.map(|v| v / one);
    let row = Row::new(&format!("speedup_{many}{}_ratio", measured.id()), &ratio);
    let (reference, target) = speedup_target(regime(measured.carrier));
    Some(with(row, reference, target))
}

/// C5's columns: shares of the time, from a run of their own.
fn stage_rows(contest: &Contest, id: &str) -> Vec<Row> {
    let player = best(contest, id, Figure::Packet, true);
    let shares = player.and_then(|player| contest.stages.get(&player));
    let row = |(stage, share): (&Stage, &f64)| {
        let id = format!("stage_{id}_{}_percent", stage.name());
        Row::new(&id, &Sample::of(vec![*share]))
    };
    let rows = shares.map(|shares| Stage::ALL.iter().zip(shares).map(row).collect());
    rows.unwrap_or_default()
}

/// The figures that the others were made of, for every setting.
fn explaining(contest: &Contest, player: usize) -> Vec<Row> {
    let measured = &contest.players[player];
    let id = measured.id_with_settings();
    [
        (format!("cpu_{id}_ns"), Figure::Packet),
        (
            format!("cpu_both_ends_per_packet_{id}_ns"),
            Figure::BothEnds,
        ),
        (format!("stream_{id}_gbit_per_s"), Figure::Rate),
        (format!("rr_one_core_{id}_per_s"), Figure::OneCore),
        (format!("rr_two_cores_{id}_per_s"), Figure::TwoCores),
        (format!("cpu_per_transaction_{id}_ns"), Figure::Transaction),
        (
            format!("rr_64_clients_one_core_{id}_per_s"),
            Figure::OneCoreMany,
        ),
        (
            format!("rr_64_clients_two_cores_{id}_per_s"),
            Figure::TwoCoresMany,
        ),
    ]
    .into_iter()
    .filter(|(_, figure)| *figure != Figure::Packet || id != measured.id())
    .filter_map(|(id, figure)| Some(Row::new(&id, &contest.sample(player, figure)?)))
    .collect()
}

/// The players that could not be measured, and why.
fn failures(contest: &Contest) -> impl Iterator<Item = Row> {
    contest.failed.iter().map(|(&player, why)| {
        let measured = &contest.players[player];
        let row = Row::new(
            &format!("left_out_{}", measured.id_with_settings()),
            &Sample::of(vec![1.0]),
        );
        row.reference(&format!("{}: {why}", measured.name()))
    })
}
