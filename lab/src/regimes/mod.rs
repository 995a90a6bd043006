//! Experiment `regimes` (C5, F9): the same stream and the same service under every discipline, each measurement in a process of its own.

pub(crate) mod child;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use netchan::{Regime, trace::stages::Stage};

use self::{
    child::{Carrier, Job, Outcome, Work},
    plan::{Effort, Player, players},
};
use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Sample, Stopwatch, cores},
    machine::Watch,
    report::{Report, Row},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "regimes",
    question: "What does a packet of the same stream cost under each regime, where does the time go, and how much more does the same service do on two cores than on one, beside the kernel's own stack?",
    prediction: "Not the document's 14 against 77: there, protocol work moved from interrupts that shared nothing with the application; here everything runs in one process, and the protocol's own 300 ns a packet are the same in all regimes. \
        app-channel 0.5 to 0.7 of locked, because its link thread only classifies and it takes no lock twice; giant 1.1 to 1.3 of locked. One to two cores: giant 1.1, locked 1.4, app-channel 1.6 (two links' threads and two shards). Linux 1.7.",
    run,
};

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let rows = Contest::new(options).rows()?;
    Ok(experiment.report(watch.machine(false), rows))
}

/// What is measured of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    /// Processor time a packet, ns.
    Packet,
    /// Processor time a packet with the generator's, ns.
    BothEnds,
    /// Gbit/s of text.
    Rate,
    /// Transactions a second on one core.
    OneCore,
    /// And on two.
    TwoCores,
    /// Both with more clients.
    OneCoreMany,
    TwoCoresMany,
    /// Processor time a transaction on two cores, ns.
    Transaction,
}

/// All players' figures.
struct Contest {
    effort: Effort,
    cores: Vec<usize>,
    begin: Stopwatch,
    players: Vec<Player>,
    figures: BTreeMap<(usize, Figure), Vec<f64>>,
    stages: BTreeMap<usize, [f64; Stage::ALL.len()]>,
    /// What went wrong, by player: then it is not asked again.
    failed: BTreeMap<usize, String>,
}

impl Contest {
    fn new(options: &Options) -> Self {
        Self {
            effort: Effort::new(options),
            cores: cores(),
            begin: Stopwatch::start(),
            players: players(),
            figures: BTreeMap::new(),
            stages: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    fn rows(mut self) -> Result<Vec<Row>, LabError> {
        for round in 0..self.effort.rounds {
            for player in 0..self.players.len() {
                // The first round is always gone through, however slow the machine.
                let late = self.begin.seconds() > self.effort.limit;
                if !self.failed.contains_key(&player) && (round == 0 || !late) {
                    self.play(player, round)?;
                }
            }
        }
        Ok(plan::rows(&self))
    }

    /// One player's turn: every job once.
    fn play(&mut self, player: usize, round: usize) -> Result<(), LabError> {
        let stream = Work::Stream {
            bytes: self.effort.bytes,
        };
        let all = self.cores.len().min(2);
        if let Some(done) = self.job(player, stream, all, false)? {
            let per_packet = 1e9 / done.packets.max(1.0);
            #[allow(clippy::cast_precision_loss)] // below 2^52
            let bits = self.effort.bytes as f64 * 8.0;
            self.note(player, Figure::Packet, done.processor_seconds * per_packet);
            let both = match self.players[player].carrier {
                Carrier::Linux => done.processor_seconds,
                Carrier::Netchan { .. } => done.processor_seconds + done.generator_seconds,
            };
            self.note(player, Figure::BothEnds, both * per_packet);
            self.note(player, Figure::Rate, bits / 1e9 / done.seconds);
        }
        let is_netchan = self.players[player].carrier != Carrier::Linux;
        if round == 0
            && is_netchan
            && let Some(done) = self.job(player, stream, all, true)?
        {
            #[allow(clippy::cast_precision_loss)] // below 2^52
            let ns = done.stages_ns.map(|ns| ns as f64);
            let sum = ns.iter().sum::<f64>().max(1.0);
            self.stages.insert(player, ns.map(|ns| 100.0 * ns / sum));
        }
        for (clients, one, two) in self.effort.services() {
            let work = Work::Service {
                clients,
                transactions: self.effort.transactions,
            };
            if let Some(done) = self.job(player, work, 1, false)? {
                self.note(player, one, done.transactions / done.seconds);
            }
            if all < 2 {
                continue;
            }
            if let Some(done) = self.job(player, work, 2, false)? {
                self.note(player, two, done.transactions / done.seconds);
                if two == Figure::TwoCores {
                    let each = done.processor_seconds * 1e9 / done.transactions;
                    self.note(player, Figure::Transaction, each);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, player: usize, figure: Figure, value: f64) {
        self.figures
            .entry((player, figure))
            .or_default()
            .push(value);
    }

    fn sample(&self, player: usize, figure: Figure) -> Option<Sample> {
        let values = self.figures.get(&(player, figure))?;
        Some(Sample::of(values.clone()))
    }

    /// Does a job in a process of its own; `None` if that failed, or the build does not have it.
    fn job(
        &mut self,
        player: usize,
        work: Work,
        cores: usize,
        stages: bool,
    ) -> Result<Option<Outcome>, LabError> {
        if self.failed.contains_key(&player) {
            return Ok(None);
        }
        // The last ones: interrupts and idle work like the first.
        let from = self.cores.len() - cores.min(self.cores.len());
        let job = Job {
            carrier: self.players[player].carrier,
            work,
            cores: self.cores[from..].to_vec(),
            stages,
        };
        let done = apart(&job, self.effort.deadline).unwrap_or_else(|why| Outcome {
            absent: Some(why),
            ..Outcome::default()
        });
        let Some(why) = done.absent.clone() else {
            return Ok(Some(done));
        };
        eprintln!(
            "regimes: {} is left out: {why}",
            self.players[player].name()
        );
        self.failed.insert(player, why);
        Ok(None)
    }
}

/// Runs a job in a child process, which is ended after `deadline`.
pub(crate) fn apart(job: &Job, deadline: Duration) -> Result<Outcome, String> {
    let text = serde_json::to_string(job).map_err(|e| e.to_string())?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(["__inner", "lab", &text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let watch = Stopwatch::start();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if watch.seconds() > deadline.as_secs_f64() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end within {} s", deadline.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut answer = String::new();
    if let Some(out) = &mut child.stdout {
        out.read_to_string(&mut answer).map_err(|e| e.to_string())?;
    }
    if !status.success() {
        let mut said = String::new();
        if let Some(err) = &mut child.stderr {
            let _ = err.read_to_string(&mut said); // what it said is a help, no more
        }
        let last = said.lines().last().unwrap_or_default();
        return Err(format!("its process ended with {status}: {last}"));
    }
    serde_json::from_str(&answer).map_err(|e| e.to_string())
}

/// The regime of a player.
const fn regime(carrier: Carrier) -> Option<Regime> {
    match carrier {
        Carrier::Netchan { regime, .. } => Some(Regime::ALL[regime]),
        Carrier::Linux => None,
    }
}
