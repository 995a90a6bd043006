//! Reading a list that hardly ever changes: an epoch section beside read-write locks and a mutex around an `Arc`.

use crate::harness::{Plan, pin, print_head, repeat, together};
use percore::epoch::{List, section};
use std::{
    hint::black_box,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

const BURST: usize = 32;

pub fn run(plan: &Plan) {
    let names = [
        "read",
        "in a section",
        "is_empty",
        "RwLock pl",
        "RwLock std",
        "Mutex<Arc>",
    ];
    print_head("read a list of 4", &names);
    let n = 20_000 * plan.scale;
    let items = vec![1_u64, 2, 3, 4];
    let list = List::from(items.clone());
    let (pl, std) = (
        parking_lot::RwLock::new(items.clone()),
        RwLock::new(items.clone()),
    );
    let arc = Mutex::new(Arc::new(items));
    let sum = |items: &[u64]| items.iter().sum::<u64>();
    let read = || repeat(n, || sum(&black_box(&list).read()));
    let in_bursts = || {
        let each = repeat(n / BURST, || {
            let section = section();
            (0..BURST)
                .map(|_| sum(black_box(&list).read_in(&section)))
                .sum::<u64>()
        });
        each / 32.0
    };
    let empty = || repeat(n, || black_box(&list).is_empty());
    let read_pl = || repeat(n, || sum(&black_box(&pl).read()));
    let read_std = || repeat(n, || sum(&black_box(&std).read().expect("nobody panics")));
    let read_arc = || {
        repeat(n, || {
            let items = black_box(&arc).lock().expect("nobody panics").clone();
            sum(&items)
        })
    };
    let all: [&(dyn Fn() -> f64 + Sync); 6] =
        [&read, &in_bursts, &empty, &read_pl, &read_std, &read_arc];
    pin(plan.cores[0]);
    row("one core", plan, all, |read| read());
    if plan.two_cores() {
        row("two cores, each", plan, all, |read| both(plan, read));
    }
}

type Read<'a> = &'a (dyn Fn() -> f64 + Sync);

fn row(name: &str, plan: &Plan, all: [Read<'_>; 6], measure: impl Fn(Read<'_>) -> f64) {
    let measure = &measure;
    let mut turns = all.map(|read| move || measure(read));
    let mut turns: Vec<&mut dyn FnMut() -> f64> = turns
        .iter_mut()
        .map(|turn| turn as &mut dyn FnMut() -> f64)
        .collect();
    plan.row(name, &mut turns);
}

/// The time of one core's reads while the other reads too, from start to end.
fn both(plan: &Plan, read: Read<'_>) -> f64 {
    let done = AtomicBool::new(false);
    let there = || {
        while !done.load(Ordering::Relaxed) {
            read();
        }
    };
    let here = || {
        let each = read();
        done.store(true, Ordering::Relaxed);
        each
    };
    together(plan.cores, here, there)
}
