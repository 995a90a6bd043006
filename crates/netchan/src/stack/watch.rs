//! What a stack's threads are doing (F8), for `netchan show threads` and for the watchdog, which notices one that stopped turning.
//!
//! Each thread writes one word, relaxed, each time round its loop: what it does and since when. Reading it waits for no thread, so that the answer is
//! there when one hangs. A thread beats each time it turns and says when it goes to sleep; one that neither beats nor sleeps for a second is
//! stuck in a turn, with work in its hands. The watchdog (`netchan-watch`) looks four times a second and says so once (`crate::log`).
//! It counts its own looks, not the clock: a process that was stopped and goes on has not hung.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use percore::{
    doorbell::{Doorbell, Sleep},
    lock::{Mutex, mutex},
};
use proto::time::Instant;

use crate::{
    locks,
    regime::Handoff,
    stack::{Stack, driver_side::SharedQueue},
    trace::{
        self,
        stages::{self, Stage},
        trigger::{self, Cause},
    },
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// The same, at most, where a look has found all at rest: each doubles the time to the next.
const LOOK_QUIET: Duration = Duration::from_secs(2);
/// A thread that has slept for so long has nothing to do. Those of links wake each second.
const LONG_ASLEEP: Duration = Duration::from_millis(50);
/// Looks at the same word after which a thread counts as stuck: more than a second.
const LOOKS: u32 = 5;

/// The low bits of the word; the others are a time in nanoseconds.
const MASK: u64 = 3;
const TURNING: u64 = 1;
const ASLEEP: u64 = 2;
const ENDED: u64 = 3;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has just been made.
    Starting,
    /// In a turn.
    Turning,
    /// Waiting for its doorbell, its link or a timer.
    Asleep,
    /// It has ended.
    Ended,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// R: it runs; S: it sleeps in the kernel.
    pub state: char,
    /// Processor time, seconds.
    pub cpu_s: f64,
    /// The core that it runs on, or ran on last.
    pub core: u32,
}

/// One thread's word.
#[derive(Debug)]
pub struct Pulse {
    /// Its name.
    pub name: String,
    /// What it turns, in words.
    pub work: String,
    /// Its link, if it is one's.
    pub link: Option<usize>,
    thread: AtomicU32,
    word: AtomicU64,
    stuck: AtomicBool,
}

impl Pulse {
    fn write(&self, state: u64, now: Instant) {
        // Relaxed: one word, for a look from outside.
        self.word.store(now.0 & !MASK | state, Relaxed);
    }

    /// What it does, and since when: the begin of this turn, of this sleep.
    pub fn read(&self) -> (State, Instant) {
        let word = self.word.load(Relaxed);
        let state = match word & MASK {
            TURNING => State::Turning,
            ASLEEP => State::Asleep,
            ENDED => State::Ended,
            _ => State::Starting,
        };
        (state, Instant(word & !MASK))
    }

    /// Whether the watchdog found it stuck, and it has not turned since.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Relaxed)
    }

    /// What the kernel says of it.
    pub fn kernel(&self) -> Option<Kernel> {
        Kernel::of(self.thread.load(Acquire)) // pairs with Release in `run`
    }
}

impl Kernel {
    /// Of a thread of this process.
    pub fn of(thread: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
        // The name in parentheses may hold anything. proc(5): state is field 3, utime and stime 14 and 15, in ticks of 10 ms, processor 39.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |n: usize| fields.get(n)?.parse::<u32>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            cpu_s: (f64::from(ticks(11)?) + f64::from(ticks(12)?)) / 100.0,
            core: ticks(36)?,
        })
    }
}

/// The threads of a stack.
pub struct Watch {
    pulses: Mutex<Vec<Arc<Pulse>>>,
    /// Wakes the watchdog.
    pub bell: Doorbell,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Pulse>>> = const { RefCell::new(None) };
}

impl Watch {
    /// No threads yet.
    ///
    /// # Errors
    /// When the process has no descriptor left for a doorbell.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            pulses: mutex(&locks::PULSES, Vec::new()),
            bell: Doorbell::new()?,
        })
    }

    /// The word of a thread that is about to be made.
    pub fn pulse(&self, name: &str, work: String, link: Option<usize>, now: Instant) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse {
            name: name.to_owned(),
            work,
            link,
            thread: AtomicU32::new(0),
            word: AtomicU64::new(now.0 & !MASK),
            stuck: AtomicBool::new(false),
        });
        self.pulses.lock().push(pulse.clone());
        pulse
    }

    /// They have ended, and others are about to be made.
    pub fn forget(&self) {
        self.pulses.lock().clear();
    }

    /// All threads, in the order in which they were made.
    pub fn pulses(&self) -> Vec<Arc<Pulse>> {
        self.pulses.lock().clone()
    }
}

/// Runs a thread's work under its word.
pub fn run(stack: &Stack, pulse: Arc<Pulse>, work: impl FnOnce(&Stack)) {
    /// Says that the thread has ended, however it did.
    struct End<'a>(&'a Stack, Arc<Pulse>);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.1.write(ENDED, self.0.clock.now());
        }
    }
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    pulse.thread.store(id.unsigned_abs(), Release);
    OWN.set(Some(pulse.clone()));
    trace::join();
    stages::belongs_to(Stage::Link);
    let _end = End(stack, pulse);
    work(stack);
}

/// The calling thread begins a turn.
#[inline]
pub fn turning(now: Instant) {
    say(TURNING, now);
}

/// The calling thread goes to sleep.
#[inline]
pub fn asleep(now: Instant) {
    say(ASLEEP, now);
}

#[inline]
fn say(state: u64, now: Instant) {
    OWN.with_borrow(|own| {
        if let Some(pulse) = own {
            pulse.write(state, now);
        }
    });
}

/// What the watchdog saw last, and at how many looks since: of each thread its word, of each shard that packets can wait for what it has counted.
pub struct Seen {
    threads: Vec<(Arc<Pulse>, (u64, u32))>,
    shards: Vec<(u64, u32)>,
}

impl Seen {
    /// Of the threads that there are.
    pub fn new(stack: &Stack) -> Self {
        let fed = stack.layout.handoff == Handoff::Channel || stack.layout.backlogs;
        let pulses = stack.control.watch.pulses().into_iter();
        Self {
            threads: pulses.map(|pulse| (pulse, (0, 0))).collect(),
            shards: vec![(0, 0); if fed { stack.sockets.cells.len() } else { 0 }],
        }
    }
}

/// The watchdog's thread.
pub fn guard(stack: &Stack, mut seen: Seen) {
    let mut pause = LOOK;
    while !stack.is_stopping() {
        asleep(stack.clock.now());
        stack.control.watch.bell.arm(Sleep::Futex);
        if !stack.is_stopping() {
            stack.control.watch.bell.wait(Some(pause));
        }
        stack.control.watch.bell.disarm();
        let now = stack.clock.now();
        turning(now);
        let mut is_quiet = true;
        for (pulse, seen) in &mut seen.threads {
            look(stack, pulse, seen, now);
            is_quiet &= is_long_asleep(pulse, now);
        }
        for (number, seen) in seen.shards.iter_mut().enumerate() {
            look_at_shard(stack, number, seen);
            is_quiet &= seen.1 == 0;
        }
        pause = match is_quiet {
            true => (pause * 2).min(LOOK_QUIET),
            false => LOOK,
        };
    }
}

/// Whether a thread sleeps as one does that has nothing to do.
fn is_long_asleep(pulse: &Pulse, now: Instant) -> bool {
    let (state, since) = pulse.read();
    match state {
        State::Asleep => now.since(since) >= LONG_ASLEEP,
        State::Ended => true,
        State::Starting | State::Turning => false,
    }
}

/// Whether any thread takes what waits in a shard's channels, or its backlog: a shard without a thread of its own can be left although none hangs.
fn look_at_shard(stack: &Stack, number: usize, seen: &mut (u64, u32)) {
    let cell = &stack.sockets.cells[number];
    let (counted, waiting) = (stack.control.counters.of(number), waiting(stack, number));
    if waiting == 0 || counted != seen.0 {
        *seen = (counted, 0);
        if cell.forsaken.swap(false, Relaxed) {
            tracing::info!(target: "netchan::watch", shard = number, "shard {number} is turned again");
        }
        return;
    }
    seen.1 = seen.1.saturating_add(1);
    if seen.1 >= LOOKS && !cell.forsaken.swap(true, Relaxed) {
        let (shard, packets) = (number as u64, waiting as u64);
        trace::note(trace::SHARD_HANGS, [packets, shard]);
        trigger::watchdog(Cause::Shard(u32::try_from(number).unwrap_or(u32::MAX)));
        let ends_at = match &cell.backlog {
            Some(_) => format!("its lock: {}", suspects(stack, stack.clock.now())),
            None => format!("its leader: {}", cell.leader.holder()),
        };
        tracing::error!(
            target: "netchan::watch",
            shard = number,
            waiting,
            "watchdog: {waiting} packets wait for shard {number}, and no thread has taken one for more than a second ({ends_at}); \
             see netchan show threads"
        );
    }
}

/// Packets in a shard's channels or its backlog, by the links' ends; those of a link that is being turned just now are not looked at.
fn waiting(stack: &Stack, number: usize) -> usize {
    let of = |shared: &SharedQueue| {
        let mut half = shared.halves.as_ref()?.receive.try_lock()?;
        let half = &mut *half;
        let ring = match half.backlogs.get_mut(number) {
            Some(backlog) => backlog,
            None => &mut half.channels.get_mut(number)?.received,
        };
        Some(ring.capacity() - ring.room())
    };
    stack.driver.queues.iter().filter_map(of).sum()
}

fn look(stack: &Stack, pulse: &Pulse, seen: &mut (u64, u32), now: Instant) {
    let word = pulse.word.load(Relaxed);
    if *seen != (word, seen.1) {
        *seen = (word, 0);
        if pulse.stuck.swap(false, Relaxed) {
            tracing::info!(target: "netchan::watch", thread = %pulse.name, "{} turns again", pulse.name);
        }
        return;
    }
    seen.1 = seen.1.saturating_add(1);
    if word & MASK == TURNING && seen.1 >= LOOKS && !pulse.stuck.swap(true, Relaxed) {
        let thread = pulse.thread.load(Relaxed);
        trace::note(trace::THREAD_HANGS, [thread.into()]);
        trigger::watchdog(Cause::Thread(thread));
        tracing::error!(
            target: "netchan::watch",
            thread = %pulse.name,
            "watchdog: {} has not come out of its turn for {} ms: {}; see netchan show threads",
            pulse.name,
            now.since(pulse.read().1).as_millis(),
            describe(stack, pulse, now)
        );
    }
}

/// What a thread does, in words.
pub fn describe(stack: &Stack, pulse: &Pulse, now: Instant) -> String {
    let (state, since) = pulse.read();
    let ms = now.since(since).as_millis();
    match state {
        State::Starting => "starting".into(),
        State::Ended => "ended".into(),
        State::Asleep => format!("asleep for {ms} ms"),
        State::Turning => {
            let inside = pulse
                .link
                .and_then(|link| stack.control.modules.inside(link));
            let inside = inside.map_or(String::new(), |(module, point, since)| {
                let ms = now.since(since).as_millis();
                format!(", in module '{module}' ({}) for {ms} ms", point.name())
            });
            format!("turning {} for {ms} ms{inside}", pulse.work)
        }
    }
}

/// Threads that may hold a lock that cannot be had: those that have been in one turn for long; else one in a socket call.
pub fn suspects(stack: &Stack, now: Instant) -> String {
    let long = |pulse: &Arc<Pulse>| {
        let (state, since) = pulse.read();
        state == State::Turning && now.since(since) >= Duration::from_millis(50)
    };
    let pulses = stack.control.watch.pulses().into_iter().filter(long);
    let all: Vec<_> = pulses
        .map(|pulse| format!("{} ({})", pulse.name, describe(stack, &pulse, now)))
        .collect();
    if all.is_empty() {
        "a thread in a socket call".into()
    } else {
        all.join(", ")
    }
}
