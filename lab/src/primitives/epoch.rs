//! Experiment `epoch`: reading a list that hardly ever changes, in an epoch section, beside read-write locks and a mutex around an `Arc`.

use std::{
    hint::black_box,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use percore::snapshot::{Snapshot, section};

use super::{Bench, Player, report};
use crate::{
    experiment::{Experiment, LabError},
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "epoch",
    question: "What does reading a list cost that every packet needs and hardly anything changes, by one core and by two at once?",
    prediction: "In a section of its own 5 to 8 ns, in one section for a burst of 32 about 1 ns each, by a view that is refreshed for each 0.3 ns; the same with a second reader. Read-write locks 10 to 12 ns alone and 40 to 80 with \
        a second reader, because both write the lock's line.",
    run: |experiment, options| report(experiment, options, rows),
};

/// Reads in one section, where a burst shares one.
const BURST: usize = 32;

/// Four numbers, guarded in every way.
struct Lists {
    list: Arc<Snapshot<Vec<u64>>>,
    parking_lot: parking_lot::RwLock<Vec<u64>>,
    std: RwLock<Vec<u64>>,
    arc: Mutex<Arc<Vec<u64>>>,
}

impl Lists {
    fn new() -> Self {
        let items = vec![1_u64, 2, 3, 4];
        Self {
            list: Arc::new(Snapshot::new(items.clone())),
            parking_lot: parking_lot::RwLock::new(items.clone()),
            std: RwLock::new(items.clone()),
            arc: Mutex::new(Arc::new(items)),
        }
    }
}

/// What is done with a list: all of it is read.
#[inline(always)]
fn sum(items: &[u64]) -> u64 {
    items.iter().sum()
}

/// `n` reads, by this thread.
#[inline(never)]
fn alone(bench: &Bench, reads_each: usize, mut read: impl FnMut() -> u64) -> f64 {
    let n = bench.work / reads_each;
    bench.time(n * reads_each, || {
        (0..n).for_each(|_| _ = black_box(read()))
    })
}

/// [`alone`] while the other core reads too, from start to end; each with a reader that `make` gives it.
fn both<R: FnMut() -> u64>(
    bench: &Bench,
    cores: [usize; 2],
    reads_each: usize,
    make: impl Fn() -> R + Sync,
) -> f64 {
    let done = AtomicBool::new(false);
    let there = || {
        let mut read = make();
        while !done.load(Ordering::Relaxed) {
            (0..256).for_each(|_| _ = black_box(read()));
        }
    };
    let here = || {
        let each = alone(bench, reads_each, make());
        done.store(true, Ordering::Relaxed);
        each
    };
    bench.together(cores, here, there)
}

/// By one core, or by two at once.
fn measure<R: FnMut() -> u64>(
    bench: &Bench,
    cores: Option<[usize; 2]>,
    reads_each: usize,
    make: impl Fn() -> R + Sync,
) -> f64 {
    match cores {
        None => alone(bench, reads_each, make()),
        Some(cores) => both(bench, cores, reads_each, make),
    }
}

const SECTION: &str = "a section for each";
const BURSTS: &str = "a section for a burst";
const VIEW: &str = "a view";

/// Every contender reads; on two cores, if there are two in `cores`.
fn contest(bench: &Bench, lists: &Lists, cores: Option<[usize; 2]>) -> super::Scores {
    let l = black_box(lists);
    let read = || sum(&black_box(l).list.read());
    let in_bursts = || {
        let section = section();
        let sums = (0..BURST).map(|_| sum(black_box(l).list.read_in(&section)));
        sums.fold(0, u64::wrapping_add)
    };
    let parking_lot = || sum(&black_box(l).parking_lot.read());
    // No thread panics under them.
    let std = || {
        sum(&black_box(l)
            .std
            .read()
            .unwrap_or_else(PoisonError::into_inner))
    };
    let arc = || {
        let lock = black_box(l).arc.lock();
        let items = lock.unwrap_or_else(PoisonError::into_inner).clone();
        sum(&items)
    };
    let view = || {
        let mut view = black_box(l).list.view();
        move || {
            view.refresh();
            sum(&view)
        }
    };
    bench.contest(vec![
        Player::own(SECTION, || measure(bench, cores, 1, || read)),
        Player::own(BURSTS, || measure(bench, cores, BURST, || in_bursts)),
        Player::own(VIEW, || measure(bench, cores, 1, view)),
        Player::peer("parking_lot RwLock", || {
            measure(bench, cores, 1, || parking_lot)
        }),
        Player::peer("std RwLock", || measure(bench, cores, 1, || std)),
        Player::peer("std Mutex<Arc>", || measure(bench, cores, 1, || arc)),
    ])
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let lists = Lists::new();
    let mut rows = Vec::new();
    let mut add = |scores: &super::Scores, state: &str| {
        let row = |name: &str, contender| scores.row(&format!("epoch_{name}{state}_ns"), contender);
        rows.extend([
            row("read", SECTION).target("not behind"),
            row("read_in_burst", BURSTS).target("not behind"),
            row("view", VIEW).target("not behind"),
        ]);
    };
    add(&contest(bench, &lists, None), "");
    if let Some(cores) = bench.two {
        add(&contest(bench, &lists, Some(cores)), "_two_cores");
    }
    Ok(rows)
}
