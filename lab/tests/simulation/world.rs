//! Two stacks, one wire, one clock that only moves when nothing else does.

use std::{net::SocketAddr, time::Duration};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire::{self, Options},
};
use proto::time::Instant;

use crate::{
    flow::{Datagrams, Stream, Sum},
    plan::Plan,
};

/// What a run has to show.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// SHA-256 of what each end of each stream received.
    pub streams: Vec<[Sum; 2]>,
    /// How often each datagram of each flow arrived.
    pub datagrams: Vec<Vec<usize>>,
    /// Virtual time at the end.
    pub end: Instant,
    /// The counters of both stacks.
    pub counters: [String; 2],
}

/// A run that takes longer than this (in its own time) is stuck.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Turns without a move of the clock after which the world spins.
const TURNS_MAX: usize = 5_000_000;
/// Datagrams get this long to arrive after everything else is over.
const GRACE: Duration = Duration::from_secs(2);

/// Two stacks and their applications.
pub struct World<'a> {
    plan: &'a Plan,
    clock: Clock,
    nets: [Net; 2],
    streams: Vec<Stream>,
    datagrams: Vec<Datagrams>,
}

/// The address of a stack (0 or 1).
fn target(stack: usize, v6: bool, port: u16) -> SocketAddr {
    let number = if stack == 0 { 1 } else { 2 };
    if v6 {
        SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, number], port))
    } else {
        SocketAddr::from(([10, 0, 0, number.to_le_bytes()[0]], port))
    }
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, regime: Regime) -> Result<Self, String> {
        let clock = Clock::new_virtual();
        let back = Options {
            seed: !plan.wire.seed,
            ..plan.wire.clone()
        };
        let (first, second) = wire::pair_with(&plan.wire, &back);
        let start = |link, number: u64| {
            Net::builder()
                .link_with(Box::new(link))
                .address(&format!("10.0.0.{number}/24"))?
                .address(&format!("fd77::{number}/64"))?
                .regime(regime)
                .threads(Threads::Caller)
                .clock(clock.clone())
                .seed(plan.seed ^ number)
                .start()
        };
        let start = |link, number| start(link, number).map_err(|e| format!("start: {e}"));
        let nets = [start(first, 1)?, start(second, 2)?];
        let mut world = Self {
            plan,
            clock,
            nets,
            streams: Vec::new(),
            datagrams: Vec::new(),
        };
        world.open().map_err(|e| format!("open: {e}"))?;
        Ok(world)
    }

    fn open(&mut self) -> std::io::Result<()> {
        let pair = |from_first: bool| if from_first { (0, 1) } else { (1, 0) };
        for (port, plan) in (1000..).zip(&self.plan.streams) {
            let (from, to) = pair(plan.from_first);
            let target = target(to, plan.v6, port);
            self.streams
                .push(Stream::new(plan, &self.nets[from], &self.nets[to], target)?);
        }
        for (port, plan) in (1000..).zip(&self.plan.datagrams) {
            let (from, to) = pair(plan.from_first);
            let target = target(to, plan.v6, port);
            let begin = Instant(self.clock.now().0 + 1_000_000_000);
            let (client, server) = (&self.nets[from], &self.nets[to]);
            self.datagrams
                .push(Datagrams::new(plan, client, server, target, begin)?);
        }
        Ok(())
    }

    /// One turn of everything; true if something moved.
    fn turn(&mut self) -> Result<bool, String> {
        let mut moved = false;
        let now = self.clock.now();
        for net in &self.nets {
            moved |= net.poll();
        }
        for stream in &mut self.streams {
            if !stream.is_done() {
                moved |= stream
                    .step()
                    .map_err(|e| format!("{e} ({})", stream.status()))?;
            }
        }
        for flow in &mut self.datagrams {
            moved |= flow.step(now)?;
        }
        Ok(moved)
    }

    /// When something happens by time alone.
    fn next_event(&self) -> Option<Instant> {
        self.nets
            .iter()
            .filter_map(Net::next_event)
            .filter(|t| *t < Instant::FAR)
            .min()
    }

    fn status(&self) -> String {
        let open = self.streams.iter().filter(|s| !s.is_done());
        let mut lines: Vec<String> = open.map(Stream::status).collect();
        lines.extend(self.counters());
        lines.join("\n  ")
    }

    fn counters(&self) -> [String; 2] {
        [0, 1].map(|i| {
            self.nets[i]
                .show("counters")
                .map(|v| v.to_string())
                .unwrap_or_default()
        })
    }

    /// Until all is said: `Err` says what went wrong, in words.
    pub fn run(&mut self) -> Result<Outcome, String> {
        let begin = self.clock.now();
        let mut over = None;
        for _ in 0..TURNS_MAX {
            let moved = self.turn()?;
            let now = self.clock.now();
            let done = self.streams.iter().all(Stream::is_done)
                && self.datagrams.iter().all(Datagrams::all_sent);
            if done && over.is_none() {
                over = Some(now);
            }
            if over.is_some_and(|at| now.since(at) > GRACE) {
                return self.outcome();
            }
            if now.since(begin) > TIME_MAX {
                return Err(format!("not done after {TIME_MAX:?}\n  {}", self.status()));
            }
            if moved {
                continue;
            }
            // Nothing can move but time: to the next event, or by a little where an application waits for nothing but its own whim.
            let step = Instant(now.0 + 1_000_000);
            let next = self.next_event().unwrap_or(step);
            self.clock.advance_to(if over.is_some() {
                step
            } else {
                next.min(step).max(Instant(now.0 + 1))
            });
        }
        Err(format!(
            "the world spins at {:?}\n  {}",
            self.clock.now(),
            self.status()
        ))
    }

    fn outcome(&mut self) -> Result<Outcome, String> {
        let streams = self
            .streams
            .iter_mut()
            .map(Stream::sums)
            .collect::<Result<_, _>>()?;
        let datagrams: Vec<Vec<usize>> = self.datagrams.iter().map(|d| d.arrived.clone()).collect();
        let doubles = !self.plan.wire.duplicate.is_never();
        for (flow, plan) in datagrams.iter().zip(&self.plan.datagrams) {
            if self.plan.lossless && flow.iter().any(|n| *n != 1) {
                return Err(format!(
                    "{plan:?}: not each datagram arrived once: {flow:?}"
                ));
            }
            if !doubles && flow.iter().any(|n| *n > 1) {
                return Err(format!("{plan:?}: a datagram arrived twice: {flow:?}"));
            }
        }
        Ok(Outcome {
            streams,
            datagrams,
            end: self.clock.now(),
            counters: self.counters(),
        })
    }
}
