//! percore's primitives, each beside what else there is for the same thing, in the same run: what they have in common.
//!
//! The players of a contest take turns, many times; a figure is the median of its turns. Turns in which the kernel gave one of
//! the player's cores to other work are left out, as far as enough others are left, and counted (`disturbed_percent`).

pub(crate) mod channels;
pub(crate) mod counters;
pub(crate) mod crossbar;
mod doorbell;
pub(crate) mod epoch;
pub(crate) mod interrupts;
pub(crate) mod locks;
mod moderation;
pub(crate) mod sched;
pub(crate) mod slab;
pub(crate) mod trace;
mod traffic;

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{self, Pinned, Sample, Stopwatch},
    machine::involuntary_switches,
    report::{Report, Row},
};

/// What the machine allows, and how long to measure.
pub(crate) struct Bench {
    /// Two different cores; none where this process may use one only.
    pub two: Option<[usize; 2]>,
    /// The core for what needs one.
    pub one: usize,
    /// Turns of each player.
    rounds: usize,
    /// From here on the experiment runs.
    begin: Stopwatch,
    /// So many seconds it may take before every contest is cut to one turn each: on a machine that is too busy for figures.
    limit: f64,
    /// So many seconds a contest may take before disturbed turns are no longer made up for.
    patience: f64,
    /// Operations in one turn, for what takes a few nanoseconds.
    pub work: usize,
    /// Times that the kernel took a core from a thread of ours in the midst of something timed.
    disturbances: AtomicU64,
    turns: AtomicU64,
    disturbed: AtomicU64,
}

/// A contender that takes turns, each of which gives `K` figures.
pub(crate) struct Player<'a, const K: usize = 1> {
    name: &'static str,
    is_peer: bool,
    turn: Box<dyn FnMut() -> [f64; K] + 'a>,
}

impl<'a> Player<'a> {
    /// Something of percore; `turn` returns the figure of one turn.
    pub fn own(name: &'static str, mut turn: impl FnMut() -> f64 + 'a) -> Self {
        Player::own_of(name, move || [turn()])
    }

    /// Something else.
    pub fn peer(name: &'static str, mut turn: impl FnMut() -> f64 + 'a) -> Self {
        Player::peer_of(name, move || [turn()])
    }
}

impl<'a, const K: usize> Player<'a, K> {
    /// As [`own`](Player::own), with several figures.
    pub fn own_of(name: &'static str, turn: impl FnMut() -> [f64; K] + 'a) -> Self {
        let turn = Box::new(turn);
        Self {
            name,
            is_peer: false,
            turn,
        }
    }

    /// As [`peer`](Player::peer), with several figures.
    pub fn peer_of(name: &'static str, turn: impl FnMut() -> [f64; K] + 'a) -> Self {
        let is_peer = true;
        Self {
            is_peer,
            ..Self::own_of(name, turn)
        }
    }
}

/// The figures of one player's turns.
#[derive(Clone)]
struct Turns<const K: usize> {
    clean: Vec<[f64; K]>,
    disturbed: Vec<[f64; K]>,
}

impl<const K: usize> Default for Turns<K> {
    fn default() -> Self {
        let (clean, disturbed) = (Vec::new(), Vec::new());
        Self { clean, disturbed }
    }
}

impl<const K: usize> Turns<K> {
    /// The clean ones, if there are a few.
    fn that_count(mut self) -> Vec<[f64; K]> {
        if self.clean.len() < 3 {
            self.clean.append(&mut self.disturbed);
        }
        self.clean
    }
}

/// What the players scored; less is better.
pub(crate) struct Scores(Vec<(&'static str, bool, Sample)>);

impl Scores {
    /// The figures of `name`.
    fn of(&self, name: &str) -> &Sample {
        let found = self.0.iter().find(|(n, ..)| *n == name);
        &found.expect("a player of this contest").2
    }

    /// The row of `name`, against the best of the peers.
    pub fn row(&self, id: &str, name: &str) -> Row {
        let peers = self.0.iter().filter(|(_, is_peer, _)| *is_peer);
        let best = peers.min_by(|a, b| a.2.median().total_cmp(&b.2.median()));
        let row = Row::new(id, self.of(name));
        match best {
            Some((peer, _, sample)) => row.against(peer, sample),
            None => row,
        }
    }

    /// The row of `name`, without a peer.
    pub fn bare_row(&self, id: &str, name: &str) -> Row {
        Row::new(id, self.of(name))
    }
}

impl Bench {
    fn new(options: &Options) -> Self {
        if options.quick {
            Self::with(5, 20_000, [0.3, 10.0])
        } else {
            Self::with(21, 80_000, [4.0, 300.0])
        }
    }

    /// So little that it says nothing about speed.
    #[cfg(test)]
    pub fn tiny() -> Self {
        Self::with(1, 200, [0.0, 0.0])
    }

    fn with(rounds: usize, work: usize, [patience, limit]: [f64; 2]) -> Self {
        let cores = kit::cores();
        // The last one first: interrupts and idle work like core 0.
        let (one, other) = match cores.as_slice() {
            [first, .., last] => (*last, Some(*first)),
            [only] => (*only, None),
            [] => (0, None),
        };
        let zero = || AtomicU64::new(0);
        Self {
            two: other.map(|other| [one, other]),
            one,
            rounds,
            begin: Stopwatch::start(),
            limit,
            patience,
            work,
            disturbances: zero(),
            turns: zero(),
            disturbed: zero(),
        }
    }

    /// Lets the players take turns, after one each that is thrown away. Disturbed turns are made up for, up to three times as many in all, while patience lasts.
    pub fn contest(&self, players: Vec<Player<'_>>) -> Scores {
        let [scores] = self.contest_of(players);
        scores
    }

    /// As [`contest`](Self::contest), with the scores of each of several figures.
    pub fn contest_of<const K: usize>(&self, mut players: Vec<Player<'_, K>>) -> [Scores; K] {
        let mut turns = vec![Turns::default(); players.len()];
        let is_late = || self.begin.seconds() > self.limit;
        for player in players.iter_mut().filter(|_| !is_late()) {
            (player.turn)();
        }
        let watch = Stopwatch::start();
        for round in 0..3 * self.rounds {
            let all_clean = turns.iter().all(|t| t.clean.len() >= self.rounds);
            if round > 0 && is_late() {
                break;
            }
            if round >= self.rounds && (all_clean || watch.seconds() > self.patience) {
                break;
            }
            for (player, turns) in players.iter_mut().zip(&mut turns) {
                let before = self.disturbances.load(Ordering::Relaxed);
                let figures = (player.turn)();
                self.turns.fetch_add(1, Ordering::Relaxed);
                if self.disturbances.load(Ordering::Relaxed) == before {
                    turns.clean.push(figures);
                } else {
                    self.disturbed.fetch_add(1, Ordering::Relaxed);
                    turns.disturbed.push(figures);
                }
            }
        }
        let turns: Vec<_> = turns.into_iter().map(Turns::that_count).collect();
        let sample = |turns: &Vec<[f64; K]>, i| Sample::of(turns.iter().map(|t| t[i]).collect());
        std::array::from_fn(|i| {
            let scores = players.iter().zip(&turns);
            let score = scores.map(|(p, turns)| (p.name, p.is_peer, sample(turns, i)));
            Scores(score.collect())
        })
    }

    /// Nanoseconds for each of `operations`, which `run` does.
    pub fn time(&self, operations: usize, run: impl FnOnce()) -> f64 {
        let seconds = self.watched(|| kit::seconds(run));
        per_operation(seconds, operations)
    }

    /// Nanoseconds for each of `n` calls of `operation`.
    pub fn repeat<R>(&self, n: usize, mut operation: impl FnMut() -> R) -> f64 {
        self.time(n, || {
            for _ in 0..n {
                black_box(operation());
            }
        })
    }

    /// Runs `run` and counts the disturbances of the calling thread meanwhile.
    fn watched<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = involuntary_switches();
        let result = run();
        let disturbances = involuntary_switches() - before;
        self.disturbances.fetch_add(disturbances, Ordering::Relaxed);
        result
    }

    /// Runs `there` on another thread pinned to `cores[1]` and `here` on this one, pinned to `cores[0]`. Both start together; what `here`
    /// returns is returned once both are done. On one core they disturb each other on purpose, which does not count.
    pub fn together<R>(
        &self,
        cores: [usize; 2],
        here: impl FnOnce() -> R,
        there: impl FnOnce() + Send,
    ) -> R {
        let one_core = cores[0] == cores[1];
        let ready = AtomicU64::new(0);
        let wait = || {
            ready.fetch_add(1, Ordering::AcqRel);
            while ready.load(Ordering::Acquire) < 2 {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pinned = Pinned::to(cores[1]);
                wait();
                if one_core {
                    there()
                } else {
                    self.watched(there)
                }
            });
            let _pinned = Pinned::to(cores[0]);
            wait();
            if one_core { here() } else { self.watched(here) }
        })
    }

    /// How many of the turns were disturbed.
    #[allow(clippy::cast_precision_loss)] // counts of a run are far below 2^52
    fn disturbed_percent(&self) -> Row {
        let turns = self.turns.load(Ordering::Relaxed).max(1);
        let disturbed = self.disturbed.load(Ordering::Relaxed);
        let percent = 100.0 * disturbed as f64 / turns as f64;
        Row::new("disturbed_percent", &Sample::of(vec![percent]))
    }
}

/// Nanoseconds for each of `operations` that took so many seconds together.
#[allow(clippy::cast_precision_loss)] // far below 2^52
pub(crate) fn per_operation(seconds: f64, operations: usize) -> f64 {
    seconds * 1e9 / operations as f64
}

/// Runs an experiment that consists of `rows`.
fn report(
    experiment: &Experiment,
    options: &Options,
    rows: fn(&Bench) -> Result<Vec<Row>, LabError>,
) -> Result<Report, LabError> {
    let bench = Bench::new(options);
    experiment.on_one_core(
        || Pinned::to(bench.one),
        || {
            let mut rows = rows(&bench)?;
            rows.push(bench.disturbed_percent());
            Ok(rows)
        },
    )
}

#[cfg(test)]
mod tests;
