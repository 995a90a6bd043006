//! Cores, turns, medians, and whether somebody else used our cores meanwhile.

use percore::clock;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    cell::Cell,
    hint::black_box,
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
};

/// What the machine allows, and how long to measure.
pub struct Plan {
    /// Two different cores, or one twice.
    pub cores: [usize; 2],
    /// Turns of each contender.
    pub turns: usize,
    /// What to multiply a turn's length with.
    pub scale: usize,
    turns_taken: Cell<usize>,
    turns_disturbed: Cell<usize>,
}

/// Times that the kernel took a core from a thread of ours in the midst of something timed.
static DISTURBANCES: AtomicI64 = AtomicI64::new(0);

impl Plan {
    pub fn new(quick: bool) -> Self {
        let allowed = sched_getaffinity(None).expect("sched_getaffinity");
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let first = cores.next().expect("a core");
        let second = cores.next().unwrap_or(first);
        clock::hz(); // from here on the clock is the counter
        Self {
            cores: [first, second],
            turns: if quick { 5 } else { 21 },
            scale: if quick { 1 } else { 4 },
            turns_taken: Cell::new(0),
            turns_disturbed: Cell::new(0),
        }
    }

    pub fn two_cores(&self) -> bool {
        self.cores[0] != self.cores[1]
    }

    pub fn print(&self) {
        let source = if clock::is_tsc() { "counter" } else { "kernel" };
        let mhz = clock::hz() / 1_000_000;
        println!(
            "cores {:?} · time from the {source}, {mhz} MHz · {} turns · nanoseconds, median",
            self.cores, self.turns
        );
        if cfg!(debug_assertions) {
            println!("DEBUG BUILD: these figures mean nothing");
        }
    }

    pub fn print_noise(&self) {
        let (disturbed, all) = (self.turns_disturbed.get(), self.turns_taken.get());
        println!(
            "\n{disturbed} of {all} turns were disturbed (the kernel gave one of our cores to somebody else) and left out,"
        );
        println!("but for cells with a ~, which had not enough others.");
    }

    /// Lets the contenders take turns; each returns the nanoseconds per operation of one turn.
    pub fn row(&self, name: &str, contenders: &mut [&mut dyn FnMut() -> f64]) {
        let cells = self.measure(contenders);
        print_row(name, &cells);
    }

    /// As [`row`](Self::row), without printing. Disturbed turns are made up for, up to three times as many in all.
    pub fn measure(&self, contenders: &mut [&mut dyn FnMut() -> f64]) -> Vec<Figure> {
        let mut turns = vec![Turns::default(); contenders.len()];
        for round in 0..3 * self.turns {
            if round >= self.turns && turns.iter().all(|t| t.clean.len() >= self.turns) {
                break;
            }
            for (contender, turns) in contenders.iter_mut().zip(&mut turns) {
                let before = DISTURBANCES.load(Ordering::Relaxed);
                let ns = contender();
                if DISTURBANCES.load(Ordering::Relaxed) == before {
                    turns.clean.push(ns);
                } else {
                    turns.disturbed.push(ns);
                }
            }
        }
        for turns in &turns {
            let disturbed = turns.disturbed.len();
            let all = turns.clean.len() + disturbed;
            self.turns_taken.set(self.turns_taken.get() + all);
            self.turns_disturbed
                .set(self.turns_disturbed.get() + disturbed);
        }
        turns.into_iter().map(Turns::figure).collect()
    }
}

/// Nanoseconds per operation in each turn of one contender.
#[derive(Clone, Default)]
struct Turns {
    clean: Vec<f64>,
    disturbed: Vec<f64>,
}

impl Turns {
    fn figure(mut self) -> Figure {
        let noisy = self.clean.len() < 3;
        if noisy {
            self.clean.append(&mut self.disturbed);
        }
        let figure = Figure::of(self.clean);
        Figure { noisy, ..figure }
    }
}

/// The middle of some measurements, and where most of them lie.
#[derive(Clone, Copy)]
pub struct Figure {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub noisy: bool,
}

impl Figure {
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let last = times.len() - 1;
        Self {
            median: times[last / 2],
            low: times[last / 10],
            high: times[last - last / 10],
            noisy: false,
        }
    }
}

pub fn print_head(title: &str, contenders: &[&str]) {
    print!("\n{title:<34}");
    for name in contenders {
        print!("{name:>13}");
    }
    println!("       spread of the first");
}

pub fn print_row(name: &str, cells: &[Figure]) {
    print!("{name:<34}");
    for cell in cells {
        let mark = if cell.noisy { "~" } else { "" };
        print!("{:>13}", format!("{mark}{:.2}", cell.median));
    }
    println!("       {:.2}-{:.2}", cells[0].low, cells[0].high);
}

/// Nanoseconds per operation of `operations` of them.
pub fn time(operations: usize, mut run: impl FnMut()) -> f64 {
    let start = clock::now_ns();
    watched(&mut run);
    per_operation(clock::now_ns() - start, operations)
}

/// Runs `run` and counts the disturbances of the calling thread meanwhile.
fn watched<R>(run: impl FnOnce() -> R) -> R {
    let before = involuntary_switches();
    let result = run();
    let disturbances = involuntary_switches() - before;
    DISTURBANCES.fetch_add(disturbances, Ordering::Relaxed);
    result
}

/// Nanoseconds per call of `operation`.
pub fn repeat<R>(n: usize, mut operation: impl FnMut() -> R) -> f64 {
    time(n, || {
        for _ in 0..n {
            black_box(operation());
        }
    })
}

pub fn per_operation(ns: u64, operations: usize) -> f64 {
    // Precision: both are far below 2^52.
    ns as f64 / operations as f64
}

pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("pinning to a core that was allowed");
}

/// Runs `there` on another thread pinned to `cores[1]` and `here` on this one, pinned to `cores[0]`. Both start together; what `here`
/// returns is returned once both are done. On one core they disturb each other on purpose, which does not count.
pub fn together<R>(cores: [usize; 2], here: impl FnOnce() -> R, there: impl FnOnce() + Send) -> R {
    let one_core = cores[0] == cores[1];
    let ready = AtomicU32::new(0);
    let wait = || {
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(cores[1]);
            wait();
            if one_core { there() } else { watched(there) }
        });
        pin(cores[0]);
        wait();
        if one_core { here() } else { watched(here) }
    })
}

/// Times the kernel took its core from this thread, which wanted to go on (or called sched_yield: the kernel counts that here too).
fn involuntary_switches() -> i64 {
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(done, 0);
    usage.ru_nivcsw
}
