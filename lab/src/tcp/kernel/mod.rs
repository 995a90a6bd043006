//! Linux on the same paths, in real time: two network namespaces, a TAP in each ([`stage`]), and between them the world's own link code
//! ([`relay`]). Connections of ours can run beside, through the same relay or even the same bottleneck.

mod relay;
mod stage;

use percore::clock::now_ns;
use proto::{
    tcp::CongestionControl,
    time::{Duration, Instant},
};

use self::{
    relay::{PORT, Relay},
    stage::{Answer, Stage, open_taps},
};
use super::paths::Path;

/// The sender, and how much farther away it is than the path says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Player {
    /// Ours, or Linux's by this name.
    pub control: Control,
    pub farther: Duration,
}

/// A congestion control and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Linux(CongestionControl),
    Netchan(CongestionControl),
}

impl From<Control> for Player {
    fn from(control: Control) -> Self {
        let farther = Duration::ZERO;
        Self { control, farther }
    }
}

/// A bottleneck and the flows that share it.
pub(super) struct Scene {
    pub path: Path,
    pub seed: u64,
    pub players: Vec<Player>,
}

/// What players got.
pub(super) struct Outcome {
    /// Megabits a second of each scene's players.
    pub rates: Vec<Vec<f64>>,
    /// Turns of the relay that came more than a millisecond late: then Linux is the worse for it.
    pub late_percent: f64,
}

/// Where a player's figure comes from.
enum Figure {
    Theirs(Answer),
    Ours(usize),
}

/// What endless flows get between two times after their beginning; the scenes run side by side.
///
/// # Errors
/// What is missing for it, root for instance.
pub(super) fn rates(scenes: &[Scene], span: (Duration, Duration)) -> Result<Outcome, String> {
    let taps = open_taps()?;
    let mut stage = Stage::new(&taps)?;
    let mut relay = Relay::new(taps)?;
    // Ours begin when the programs have begun.
    let begin = Instant(now_ns()) + Duration::from_secs(1);
    let seconds = (span.0.as_secs_f64(), span.1.as_secs_f64());
    let mut figures = Vec::new();
    for scene in scenes {
        let bottleneck = relay.bottleneck(&scene.path, scene.seed);
        for player in &scene.players {
            let ours = match player.control {
                Control::Netchan(congestion) => Some(congestion),
                Control::Linux(_) => None,
            };
            let flow = relay.flow(&scene.path, bottleneck, player.farther, ours, begin);
            figures.push(match player.control {
                Control::Netchan(_) => Figure::Ours(flow),
                Control::Linux(congestion) => {
                    let port = PORT + u16::try_from(flow).map_err(|e| e.to_string())?;
                    Figure::Theirs(stage.bulk(port, congestion.name(), seconds)?)
                }
            });
        }
    }
    let read = |relay: &Relay| -> Vec<u64> {
        let flow = |figure: &Figure| match figure {
            Figure::Ours(flow) => relay.read_bytes(*flow),
            Figure::Theirs(_) => 0,
        };
        figures.iter().map(flow).collect()
    };
    let (mut before, mut after) = (None, None);
    let limit = begin + span.1 + Duration::from_secs(30);
    let is_there = |figure: &Figure| match figure {
        Figure::Ours(_) => true,
        Figure::Theirs(answer) => answer.is_there(),
    };
    while after.is_none() || !figures.iter().all(is_there) {
        let now = turn(&mut relay, limit)?;
        if before.is_none() && now >= begin + span.0 {
            before = Some(read(&relay));
        }
        if after.is_none() && now >= begin + span.1 {
            after = Some(read(&relay));
        }
    }
    let late_percent = relay.late_percent();
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let pairs = after.iter().zip(&before);
    let ours = pairs.map(|(a, b)| megabits(a - b) / (seconds.1 - seconds.0));
    let mut all = figures
        .into_iter()
        .zip(ours)
        .map(|(figure, ours)| match figure {
            Figure::Ours(_) => Ok(ours),
            Figure::Theirs(answer) => {
                let said = answer.figures()?;
                said.first()
                    .copied()
                    .ok_or_else(|| "a receiver said nothing".to_owned())
            }
        });
    let mut rates = Vec::new();
    for scene in scenes {
        let some = all.by_ref().take(scene.players.len());
        rates.push(some.collect::<Result<Vec<f64>, String>>()?);
    }
    Ok(Outcome {
        rates,
        late_percent,
    })
}

/// One turn, and sleep until the next; the time of it.
fn turn(relay: &mut Relay, limit: Instant) -> Result<Instant, String> {
    let now = Instant(now_ns());
    if now > limit {
        return Err("the kernel's transfers did not end in time".to_owned());
    }
    relay.turn(now)?;
    relay.sleep();
    Ok(now)
}

/// Milliseconds from the first SYN to the last byte read of transfers by Linux: `count` of each path, one after the other, those of the first path first.
/// `seed` is the first path's, the others' follow.
///
/// # Errors
/// See [`rates`].
pub(super) fn completions(
    paths: &[Path],
    control: CongestionControl,
    bytes: u64,
    (count, seed): (usize, u64),
) -> Result<Vec<f64>, String> {
    let taps = open_taps()?;
    let mut stage = Stage::new(&taps)?;
    let mut relay = Relay::new(taps)?;
    let now = Instant(now_ns());
    for (path, seed) in paths.iter().zip(seed..) {
        let bottleneck = relay.bottleneck(path, seed);
        relay.flow(path, bottleneck, Duration::ZERO, None, now);
    }
    let [began, ended] = stage.transfers(PORT, control.name(), (paths.len(), count), bytes)?;
    // At a second each, and then some.
    let limit = now + Duration::from_secs(60) + Duration::from_secs(count as u64);
    while !began.is_there() || !ended.is_there() {
        turn(&mut relay, limit)?;
    }
    let (began, ended) = (began.figures()?, ended.figures()?);
    if began.len() != ended.len() || began.is_empty() {
        return Err("transfers that began and did not end".to_owned());
    }
    Ok(began
        .iter()
        .zip(&ended)
        .map(|(a, b)| (b - a) * 1e3)
        .collect())
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}
