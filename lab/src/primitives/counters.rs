//! Experiment `counters` (N1 to N3): an addition by one core and by two at once, and what reading costs.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crossbeam_utils::CachePadded;
use percore::counter::{Atomic, Batched, Flip, PerCore};

use super::{Bench, Player, Scores, report};
use crate::{
    experiment::{Experiment, LabError},
    kit::Sample,
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "counters",
    question: "What does adding to a counter cost, how much more when a second core adds too, and what does the reader pay?",
    prediction: "Per-core, batched and flip counters: 1 to 2.5 ns, and the same with a second core (ratio 1.0). One atomic: 2 ns alone, 10 to 25 times that with a second core. \
        Reading: N2 in 1 ns, off by at most slots x (batch - 1); N3 exactly, in 1 to 5 us, most of it the barrier.",
    run: |experiment, options| report(experiment, options, rows),
};

/// What a slot of N2 holds back: 64 additions of one packet, say.
const BATCH: u64 = 64;

/// The counters of a run, with two slots each: the second core's is slot 1.
struct Counters {
    per_core: PerCore<4>,
    batched: Batched,
    flip: Flip<4>,
    atomic: Atomic,
    /// What a program without percore would do: an atomic for each core.
    own: [CachePadded<AtomicU64>; 2],
}

impl Counters {
    fn new() -> Self {
        Self {
            per_core: PerCore::new(2),
            batched: Batched::new(2, BATCH),
            flip: Flip::new(2),
            atomic: Atomic::new(),
            own: [const { CachePadded::new(AtomicU64::new(0)) }; 2],
        }
    }
}

/// Nanoseconds for one addition of this core. Never inlined: with a second core and without, the very same instructions are timed.
#[inline(never)]
fn alone<F: Fn(usize)>(bench: &Bench, add: &F) -> f64 {
    bench.repeat(bench.work, || add(0))
}

/// [`alone`] while the other core adds too, from start to end.
fn both<F: Fn(usize) + Sync>(bench: &Bench, cores: [usize; 2], add: &F) -> f64 {
    let done = AtomicBool::new(false);
    let there = || {
        while !done.load(Ordering::Relaxed) {
            (0..256).for_each(|_| add(1));
        }
    };
    let here = || {
        let each = alone(bench, add);
        done.store(true, Ordering::Relaxed);
        each
    };
    bench.together(cores, here, there)
}

const PER_CORE: &str = "per core";
const BATCHED: &str = "N2";
const FLIP: &str = "N3";
const ATOMIC: &str = "one atomic (N1)";
const OWN: &str = "an atomic for each core";

/// Every counter does what `measure` says with an addition on behalf of a slot.
fn contest<const K: usize>(
    counters: &Counters,
    bench: &Bench,
    measure: impl Measure<K>,
) -> [Scores; K] {
    let c = black_box(counters);
    let per_core = |slot| black_box(c).per_core.add(slot, 1, 1);
    let batched = |slot| black_box(c).batched.add(slot, 1);
    let flip = |slot| black_box(c).flip.add(slot, 1, 1);
    let atomic = |_| black_box(c).atomic.add(1);
    let own = |slot: usize| {
        black_box(c).own[slot].fetch_add(1, Ordering::Relaxed);
    };
    bench.contest_of(vec![
        Player::own_of(PER_CORE, || measure.of(per_core)),
        Player::own_of(BATCHED, || measure.of(batched)),
        Player::own_of(FLIP, || measure.of(flip)),
        Player::peer_of(ATOMIC, || measure.of(atomic)),
        Player::own_of(OWN, || measure.of(own)),
    ])
}

/// What is measured of an addition.
trait Measure<const K: usize> {
    fn of(&self, add: impl Fn(usize) + Sync) -> [f64; K];
}

/// Its nanoseconds, alone.
struct Alone<'a>(&'a Bench);

impl Measure<1> for Alone<'_> {
    fn of(&self, add: impl Fn(usize) + Sync) -> [f64; 1] {
        [alone(self.0, &add)]
    }
}

/// Its nanoseconds with another core at it, and how many times those alone that is: both measured right after each other, by the same code.
struct Both<'a>(&'a Bench, [usize; 2]);

impl Measure<2> for Both<'_> {
    fn of(&self, add: impl Fn(usize) + Sync) -> [f64; 2] {
        let Self(bench, cores) = self;
        let before = alone(bench, &add);
        let together = both(bench, *cores, &add);
        [together, together / before]
    }
}

fn adding(bench: &Bench, counters: &Counters) -> Vec<Row> {
    let [scores] = contest(counters, bench, Alone(bench));
    let mut rows = vec![
        scores.row("percpu_add_ns", PER_CORE),
        scores.row("batched_add_ns", BATCHED),
        scores.row("flip_add_ns", FLIP),
        scores.bare_row("atomic_add_ns", ATOMIC),
        scores.bare_row("atomic_each_add_ns", OWN),
    ];
    let Some(cores) = bench.two else { return rows };
    let [scores, ratios] = contest(counters, bench, Both(bench, cores));
    let ratio = |id: &str, name| {
        let row = ratios.row(id, name).target("<= 1.1");
        row.reference("+5 %, one counter changed (N2)")
    };
    rows.extend([
        scores.row("percpu_add_two_cores_ns", PER_CORE),
        scores.row("batched_add_two_cores_ns", BATCHED),
        scores.row("flip_add_two_cores_ns", FLIP),
        scores.bare_row("atomic_add_two_cores_ns", ATOMIC),
        scores.bare_row("atomic_each_add_two_cores_ns", OWN),
        ratio("percpu_add_two_core_ratio", PER_CORE),
        ratio("batched_add_two_core_ratio", BATCHED),
        ratio("flip_add_two_core_ratio", FLIP),
        ratios.bare_row("atomic_add_two_core_ratio", ATOMIC),
        ratios.bare_row("atomic_each_add_two_core_ratio", OWN),
    ]);
    rows
}

/// What a reader pays, without a writer and while the other core writes.
fn reading(bench: &Bench, counters: &Counters) -> Vec<Row> {
    let n = bench.work;
    let c = black_box(counters);
    let exact = || bench.repeat((n / 100).max(1), || black_box(c).flip.read());
    let scores = bench.contest(vec![
        Player::own(PER_CORE, || {
            bench.repeat(n, || black_box(c).per_core.read(1))
        }),
        Player::own(BATCHED, || {
            bench.repeat(n, || black_box(c).batched.approximate())
        }),
        Player::own("sum", || bench.repeat(n, || black_box(c).batched.sum())),
        Player::own(FLIP, exact),
        Player::peer(ATOMIC, || bench.repeat(n, || black_box(c).atomic.read())),
    ]);
    let mut rows = vec![
        scores.row("percpu_read_ns", PER_CORE),
        scores.row("batched_read_ns", BATCHED),
        scores.row("batched_sum_ns", "sum"),
        scores.row("flip_read_exact_ns", FLIP),
    ];
    if let Some(cores) = bench.two {
        let done = AtomicBool::new(false);
        let written = bench.contest(vec![Player::own(FLIP, || {
            done.store(false, Ordering::Relaxed);
            let there = || {
                while !done.load(Ordering::Relaxed) {
                    (0..256).for_each(|_| c.flip.add(1, 1, 1));
                }
            };
            let here = || {
                let each = exact();
                done.store(true, Ordering::Relaxed);
                each
            };
            bench.together(cores, here, there)
        })]);
        rows.push(written.bare_row("flip_read_exact_written_ns", FLIP));
    }
    rows
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let counters = Counters::new();
    let mut rows = adding(bench, &counters);
    rows.extend(reading(bench, &counters));
    rows.push(error_bound(bench, &counters.batched));
    Ok(rows)
}

/// How far N2's cheap answer was off, at most, of what it says it may be: looked at after every addition of a stretch.
#[allow(clippy::cast_precision_loss)] // counts of a run are far below 2^52
fn error_bound(bench: &Bench, batched: &Batched) -> Row {
    let off = (0..bench.work).map(|_| {
        batched.add(0, 1);
        batched.approximate().abs_diff(batched.sum())
    });
    let (worst, bound) = (off.max().unwrap_or(0), batched.error_max());
    let row = Row::new("batched_error_worst", &Sample::of(vec![worst as f64]));
    row.target(&format!("<= {bound}, its bound"))
}
