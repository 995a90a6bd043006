//! The adaptive mutex beside parking_lot's and the standard library's: alone, and with two cores that compete.

use crate::harness::{Plan, pin, print_head, repeat, together};
use crossbeam_utils::CachePadded;
use percore::{
    lock::{Class, mutex, reentrant},
    witness,
};
use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

static PLAIN: Class = Class::new(1, "plain");
static COUNTED: Class = Class::new(1, "counted").counted();

pub fn run(plan: &Plan) {
    if witness::ON {
        println!("THE WITNESS IS ON: these figures mean nothing");
    }
    let names = [
        "adaptive",
        "counted",
        "parking_lot",
        "std",
        "again; nothing",
    ];
    print_head("lock, add 1, unlock", &names);
    let n = 20_000 * plan.scale;
    // Each on lines of its own.
    let ours = CachePadded::new(mutex(&PLAIN, 0_u64));
    let counted = CachePadded::new(mutex(&COUNTED, 0_u64));
    let other = CachePadded::new(parking_lot::Mutex::new(0_u64));
    let std = CachePadded::new(std::sync::Mutex::new(0_u64));
    let giant = reentrant(&PLAIN, ());
    pin(plan.cores[0]);
    let _giant = giant.lock();
    let mut again = || repeat(n, || drop(black_box(&giant).lock()));
    plan.row(
        "alone",
        &mut [
            &mut || repeat(n, || *black_box(&ours).lock() += 1),
            &mut || repeat(n, || *black_box(&counted).lock() += 1),
            &mut || repeat(n, || *black_box(&other).lock() += 1),
            &mut || repeat(n, || *black_box(&std).lock().expect("nobody panics") += 1),
            &mut again,
        ],
    );
    let work = || (0..40).for_each(|i| _ = black_box(i));
    plan.row(
        "alone, 40 stores between",
        &mut [
            &mut || repeat(n, || (*black_box(&ours).lock() += 1, work())),
            &mut || repeat(n, || (*black_box(&counted).lock() += 1, work())),
            &mut || repeat(n, || (*black_box(&other).lock() += 1, work())),
            &mut || {
                let lock = || std.lock().expect("nobody panics");
                repeat(n, || (*black_box(lock()) += 1, work()))
            },
            &mut || repeat(n, work),
        ],
    );
    if !plan.two_cores() {
        return;
    }
    for (name, inside, outside) in [
        ("two cores, back to back", 0, 0),
        ("two cores, work between", 0, 5),
        ("two cores, work inside", 5, 5),
    ] {
        let work = Work { inside, outside };
        let n = n / (1 + inside + outside).ilog2().max(1) as usize;
        let ours = || work.once(|f| f(&mut ours.lock()));
        let counted = || work.once(|f| f(&mut counted.lock()));
        let other = || work.once(|f| f(&mut other.lock()));
        let std = || work.once(|f| f(&mut std.lock().expect("nobody panics")));
        plan.row(
            name,
            &mut [
                &mut || both(plan, n, &ours),
                &mut || both(plan, n, &counted),
                &mut || both(plan, n, &other),
                &mut || both(plan, n, &std),
            ],
        );
    }
}

/// What each side does, in pauses.
#[derive(Clone, Copy)]
struct Work {
    inside: u32,
    outside: u32,
}

impl Work {
    #[inline(always)]
    fn once(self, locked: impl Fn(&mut dyn FnMut(&mut u64))) {
        locked(&mut |value| {
            *value += 1;
            (0..self.inside).for_each(|_| spin_loop());
        });
        (0..self.outside).for_each(|_| spin_loop());
    }
}

/// Wall time for one round of either core, while both go on: what gets through, whoever gets more of it.
fn both(plan: &Plan, n: usize, round: &(impl Fn() + Sync)) -> f64 {
    let (done, others) = (AtomicBool::new(false), AtomicUsize::new(0));
    let there = || {
        let mut rounds = 0;
        while !done.load(Ordering::Relaxed) {
            round();
            rounds += 1;
        }
        others.store(rounds, Ordering::Relaxed);
    };
    let here = || {
        let each = repeat(n, round);
        done.store(true, Ordering::Relaxed);
        each
    };
    let each = together(plan.cores, here, there);
    // Precision: far below 2^52.
    each * n as f64 / (n + others.load(Ordering::Relaxed)) as f64
}
