//! The counters beside atomics: additions of one core, of two at once, and reads.

use crate::harness::{Plan, pin, print_head, repeat, together};
use percore::counter::{Atomic, Batched, Flip, PerCore};
use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// What a slot holds back: 64 additions of one packet, say.
const BATCH: u64 = 64;

pub fn run(plan: &Plan) {
    let names = ["PerCore", "Batched", "Flip", "Atomic", "fetch_add own"];
    print_head("add", &names);
    let (counts, batched) = (PerCore::<4>::new(2), Batched::new(2, BATCH));
    let (flip, shared) = (Flip::<4>::new(2), Atomic::new());
    let own = [const { crossbeam_utils::CachePadded::new(AtomicU64::new(0)) }; 2];
    let n = 50_000 * plan.scale;
    let add_counts = |slot: usize| repeat(n, || black_box(&counts).add(slot, 1, 1));
    let add_batched = |slot: usize| repeat(n, || black_box(&batched).add(slot, 1));
    let add_flip = |slot: usize| repeat(n, || black_box(&flip).add(slot, 1, 1));
    let add_atomic = |_| repeat(n, || black_box(&shared).add(1));
    let add_own = |slot: usize| {
        let own = &own[slot];
        repeat(n, || black_box(own).fetch_add(1, Ordering::Relaxed))
    };
    pin(plan.cores[0]);
    plan.row(
        "one core",
        &mut [
            &mut || add_counts(0),
            &mut || add_batched(0),
            &mut || add_flip(0),
            &mut || add_atomic(0),
            &mut || add_own(0),
        ],
    );
    if plan.two_cores() {
        plan.row(
            "two cores, each",
            &mut [
                &mut || both(plan, &add_counts),
                &mut || both(plan, &add_batched),
                &mut || both(plan, &add_flip),
                &mut || both(plan, &add_atomic),
                &mut || both(plan, &add_own),
            ],
        );
    }
    print_head("read", &["PerCore", "Batched", "Batched sum", "Flip"]);
    let mut read = || repeat(n, || black_box(&counts).read(1));
    let mut near = || repeat(n, || black_box(&batched).approximate());
    let mut sum = || repeat(n, || black_box(&batched).sum());
    let mut exact = || repeat(n / 100, || black_box(&flip).read());
    plan.row(
        "two slots, nobody writes",
        &mut [&mut read, &mut near, &mut sum, &mut exact],
    );
}

/// The time of one core's additions while the other adds too, from start to end.
fn both(plan: &Plan, add: &(impl Fn(usize) -> f64 + Sync)) -> f64 {
    let done = AtomicBool::new(false);
    let there = || {
        while !done.load(Ordering::Relaxed) {
            add(1);
        }
    };
    let here = || {
        let each = add(0);
        done.store(true, Ordering::Relaxed);
        each
    };
    together(plan.cores, here, there)
}
