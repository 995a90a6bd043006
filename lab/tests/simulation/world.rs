//! Two stacks, one wire, one clock that only moves when nothing else does.

use std::{net::SocketAddr, time::Duration};

use netchan::{
    Clock, Dispatch, Net, Regime, Threads,
    link::{
        Link,
        wire::{self, Options},
    },
    steps::Steps,
};
use proto::time::Instant;

use crate::{
    fan::Fan,
    flow::{Datagrams, Stream, Sum},
    plan::{Plan, Random},
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

/// How both stacks run.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub regime: Regime,
    pub dispatch: Dispatch,
    /// Each role is turned by itself, in an order that the seed chooses; else a poll turns everything, by calls.
    pub stepped: bool,
    /// Shards, where the regime leaves their number open and has several.
    pub shards: Option<usize>,
    /// Of each link.
    pub queues: usize,
}

impl Mode {
    /// For small worlds, whose stacks take longer to make than to run: a few shards of many.
    pub fn small(self) -> Self {
        let has_many = self
            .regime
            .layout(None)
            .is_some_and(|layout| layout.shards > 3);
        Self {
            shards: self.shards.or(has_many.then_some(3)),
            ..self
        }
    }

    pub fn called(regime: Regime) -> Self {
        Self {
            regime,
            dispatch: Dispatch::Direct,
            stepped: false,
            shards: None,
            queues: 1,
        }
    }
}

/// What acts in a stepped world.
#[derive(Clone, Copy)]
enum Actor {
    Role(usize, usize),
    /// A stack's link, while one of its shards is held.
    Held(usize),
    Stream(usize),
    Datagrams(usize),
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
    /// Of a stepped world.
    steps: Vec<Steps>,
    actors: Vec<Actor>,
    random: Random,
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
    pub fn new(plan: &'a Plan, mode: Mode) -> Result<Self, String> {
        let clock = Clock::new_virtual();
        let back = Options {
            seed: !plan.wire.seed,
            ..plan.wire.clone()
        };
        let (first, second) = wire::pair_with(&plan.wire, &back);
        let start = |link, number: u64| {
            let builder = match mode.shards {
                Some(shards) => Net::builder().shards(shards),
                None => Net::builder(),
            };
            let (link, queues): (Box<dyn Link>, _) = (Box::new(link), mode.queues);
            let link = match queues {
                1 => link,
                _ => Box::new(Fan { link, queues }),
            };
            builder
                .link_with(link)
                .address(&format!("10.0.0.{number}/24"))?
                .address(&format!("fd77::{number}/64"))?
                .regime(mode.regime)
                .dispatch(mode.dispatch)
                .threads(if mode.stepped {
                    Threads::Stepped
                } else {
                    Threads::Caller
                })
                .clock(clock.clone())
                .seed(plan.seed ^ number)
                .start()
        };
        let start = |link, number| start(link, number).map_err(|e| format!("start: {e}"));
        let nets = [start(first, 1)?, start(second, 2)?];
        let mut world = Self {
            plan,
            clock,
            steps: nets.iter().filter_map(Steps::new).collect(),
            actors: Vec::new(),
            random: Random::new(plan.seed.rotate_left(32)),
            nets,
            streams: Vec::new(),
            datagrams: Vec::new(),
        };
        world.open().map_err(|e| format!("open: {e}"))?;
        let roles = world.steps.iter().map(Steps::roles).enumerate();
        let roles = roles.flat_map(|(net, n)| (0..n).map(move |role| Actor::Role(net, role)));
        let held = world.steps.iter().enumerate();
        let held = held.filter(|(_, steps)| steps.backlogs() > 0);
        world.actors = roles
            .chain(held.map(|(net, _)| Actor::Held(net)))
            .chain((0..world.streams.len()).map(Actor::Stream))
            .chain((0..world.datagrams.len()).map(Actor::Datagrams))
            .collect();
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
        if self.steps.is_empty() {
            self.turn_in_order()
        } else {
            self.turn_in_any_order()
        }
    }

    /// Some act, twice perhaps, in any order. If that comes to nothing, all do: only then time may go on.
    fn turn_in_any_order(&mut self) -> Result<bool, String> {
        let mut moved = false;
        for at in (1..self.actors.len()).rev() {
            self.actors.swap(at, self.random.below(at + 1));
        }
        for at in 0..self.actors.len() {
            for _ in 0..self.random.below(3) {
                moved |= self.act(self.actors[at])?;
            }
        }
        for at in 0..self.actors.len() {
            if !moved {
                moved = self.act(self.actors[at])?;
            }
        }
        Ok(moved)
    }

    fn act(&mut self, actor: Actor) -> Result<bool, String> {
        match actor {
            Actor::Role(net, role) => {
                let moved = self.steps[net].step(role);
                if moved && self.random.below(4) == 0 {
                    self.move_one();
                }
                Ok(moved)
            }
            Actor::Held(net) => {
                let shard = self.random.below(self.steps[net].backlogs());
                Ok(self.steps[net].step_while_held(0, shard))
            }
            Actor::Stream(number) => {
                let stream = &mut self.streams[number];
                if stream.is_done() {
                    return Ok(false);
                }
                stream
                    .step()
                    .map_err(|e| format!("{e} ({})", stream.status()))
            }
            Actor::Datagrams(number) => self.datagrams[number].step(self.clock.now()),
        }
    }

    /// A connection moves, perhaps while what a link received is under way to it.
    fn move_one(&mut self) {
        let at = self.random.below(self.streams.len());
        let shard = self.random.below(3);
        self.streams[at].move_to_shard(shard);
    }

    /// Ends one stack after so many turns; the other one's sockets must learn it, and have nothing more to wait for.
    pub fn end_one(mut self, turns: usize, ended: usize) -> Result<(), String> {
        for _ in 0..turns {
            if !self.turn()? {
                self.pass_time();
            }
        }
        self.datagrams.clear();
        for stream in &mut self.streams {
            stream.end(ended);
        }
        let [first, second] = self.nets;
        let (gone, _left) = if ended == 0 {
            (first, second)
        } else {
            (second, first)
        };
        drop(gone);
        let roles = |steps: &Steps| 0..steps.roles();
        if roles(&self.steps[ended]).any(|role| self.steps[ended].step(role)) {
            return Err("a role of a stack that has ended had something to do".into());
        }
        let left = &mut self.steps[1 - ended];
        for _ in 0..20_000 {
            for role in roles(left) {
                left.step(role);
            }
            self.streams.retain_mut(|s| s.step_alone().is_some());
            if self.streams.is_empty() {
                return Ok(());
            }
            let now = self.clock.now();
            self.clock.advance_to(Instant(now.0 + 1_000_000));
        }
        let waiting: Vec<_> = self.streams.iter().map(Stream::status).collect();
        Err(format!(
            "a caller still waits for it: {}",
            waiting.join("\n  ")
        ))
    }

    /// Nothing can move but time: to the next event, or by a little where an application waits for nothing but its own whim.
    fn pass_time(&mut self) {
        let now = self.clock.now();
        let step = Instant(now.0 + 1_000_000);
        let next = self.next_event().unwrap_or(step);
        self.clock
            .advance_to(next.min(step).max(Instant(now.0 + 1)));
    }

    fn turn_in_order(&mut self) -> Result<bool, String> {
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
        let called = self.nets.iter().filter_map(Net::next_event);
        called
            .chain(self.steps.iter().map(Steps::next_event))
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
            if over.is_some() {
                self.clock.advance_to(Instant(now.0 + 1_000_000));
            } else {
                self.pass_time();
            }
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
