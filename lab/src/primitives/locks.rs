//! Experiment `locks` (F6): the adaptive mutex beside parking_lot's and the standard library's, alone and with two cores that compete.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use percore::lock::{Class, mutex, reentrant};

use super::{Bench, Player, Scores, report};
use crate::{
    experiment::{Experiment, LabError},
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "locks",
    question: "What does a lock cost without contention, and how much gets through when two cores want it?",
    prediction: "Alone: 3 to 4 ns, ahead of parking_lot and std (6 to 7 ns), since unlocking has no locked instruction; counting adds 1 ns. Two cores: 20 to 60 ns a round in all, \
        within 20 % of the best peer; the lock that barges most wins there, because a lock that stays with one core moves no line.",
    run: |experiment, options| report(experiment, options, rows),
};

static PLAIN: Class = Class::new(1, "lab's");
static COUNTED: Class = Class::new(1, "lab's counted").counted();
static GIANT: Class = Class::new(1, "lab's giant");

const OURS: &str = "adaptive";
const WITH_COUNTS: &str = "adaptive, counted";

/// The contenders: lock, work, unlock.
struct Locks {
    ours: percore::lock::Mutex<u64>,
    counted: percore::lock::Mutex<u64>,
    parking_lot: parking_lot::Mutex<u64>,
    std: std::sync::Mutex<u64>,
}

impl Locks {
    fn new() -> Self {
        Self {
            ours: mutex(&PLAIN, 0),
            counted: mutex(&COUNTED, 0),
            parking_lot: parking_lot::Mutex::new(0),
            std: std::sync::Mutex::new(0),
        }
    }

    /// Every lock does `work`, in the way that `measure` says.
    fn contest(&self, bench: &Bench, work: Work, measure: impl Measure) -> Scores {
        let ours = || work.once(|inside| inside(&mut black_box(&self.ours).lock()));
        let counted = || work.once(|inside| inside(&mut black_box(&self.counted).lock()));
        let parking_lot = || work.once(|inside| inside(&mut black_box(&self.parking_lot).lock()));
        let std = || {
            work.once(|inside| {
                let lock = black_box(&self.std).lock();
                // No thread panics under it.
                inside(&mut lock.unwrap_or_else(std::sync::PoisonError::into_inner));
            });
        };
        bench.contest(vec![
            Player::own(OURS, || measure.of(bench, ours)),
            Player::own(WITH_COUNTS, || measure.of(bench, counted)),
            Player::peer("parking_lot 0.12", || measure.of(bench, parking_lot)),
            Player::peer("std", || measure.of(bench, std)),
        ])
    }
}

/// What each side does in a round, in pauses of the processor.
#[derive(Clone, Copy)]
struct Work {
    inside: u32,
    between: u32,
}

impl Work {
    #[inline(always)]
    fn once(self, locked: impl Fn(&mut dyn FnMut(&mut u64))) {
        locked(&mut |value| {
            *value += 1;
            (0..self.inside).for_each(|_| spin_loop());
        });
        (0..self.between).for_each(|_| spin_loop());
    }
}

/// What is measured of a round.
trait Measure {
    fn of(&self, bench: &Bench, round: impl Fn() + Sync) -> f64;
}

/// Its nanoseconds, without contention.
struct Alone;

impl Measure for Alone {
    fn of(&self, bench: &Bench, round: impl Fn() + Sync) -> f64 {
        bench.repeat(bench.work, round)
    }
}

/// Wall time for one round of either core, while both go on: what gets through, whichever core gets more of it.
struct Both {
    cores: [usize; 2],
    rounds: usize,
}

impl Measure for Both {
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    fn of(&self, bench: &Bench, round: impl Fn() + Sync) -> f64 {
        let (done, others) = (AtomicBool::new(false), AtomicUsize::new(0));
        let there = || {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                round();
                rounds += 1;
            }
            others.store(rounds, Ordering::Relaxed); // ordered by the join
        };
        let here = || {
            let each = bench.repeat(self.rounds, &round);
            done.store(true, Ordering::Relaxed);
            each
        };
        let each = bench.together(self.cores, here, there);
        let all = self.rounds + others.load(Ordering::Relaxed);
        each * self.rounds as f64 / all as f64
    }
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let locks = Locks::new();
    let nothing = Work {
        inside: 0,
        between: 0,
    };
    let alone = locks.contest(bench, nothing, Alone);
    let mut rows = vec![
        alone.row("lock_alone_ns", OURS).target("not behind"),
        alone.row("lock_counted_alone_ns", WITH_COUNTS),
        again(bench),
    ];
    if let Some(cores) = bench.two {
        for (name, inside, between) in [
            ("back_to_back", 0_u32, 0_u32),
            ("work_between", 0, 5),
            ("work_inside", 5, 5),
        ] {
            let rounds = bench.work / (1 + inside + between).ilog2().max(1) as usize; // widening
            let work = Work { inside, between };
            let scores = locks.contest(bench, work, Both { cores, rounds });
            let row = scores.row(&format!("lock_two_cores_{name}_ns"), OURS);
            rows.push(row.target("not behind"));
            let id = format!("lock_counted_two_cores_{name}_ns");
            rows.push(scores.row(&id, WITH_COUNTS));
        }
    }
    Ok(rows)
}

/// A lock that its owner takes once more (Giant, from within the stack).
fn again(bench: &Bench) -> Row {
    const AGAIN: &str = "again";
    let (ours, other) = (reentrant(&GIANT, ()), parking_lot::ReentrantMutex::new(()));
    let _held = (ours.lock(), other.lock());
    let n = bench.work;
    let scores = bench.contest(vec![
        Player::own(AGAIN, || bench.repeat(n, || drop(black_box(&ours).lock()))),
        Player::peer("parking_lot 0.12", || {
            bench.repeat(n, || drop(black_box(&other).lock()))
        }),
    ]);
    scores.row("lock_again_ns", AGAIN).target("not behind")
}
