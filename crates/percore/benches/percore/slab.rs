//! The slab beside the allocator, and beside a pool behind crossbeam's ArrayQueue.

use crate::harness::{Plan, pin, print_head, repeat, time, together};
use crossbeam_queue::ArrayQueue;
use percore::{
    ring::ring,
    slab::{Buffer, Slab},
};
use std::{cell::RefCell, hint::black_box, rc::Rc};

const BUFFERS: usize = 4096;
const BURST: usize = 32;
const SIZE: usize = 2048;
type Bytes = Box<[u8; SIZE]>;

fn bytes() -> Bytes {
    Box::new([0; SIZE])
}

pub fn run(plan: &Plan) {
    pin(plan.cores[0]);
    local(plan);
    magazines(plan);
    remote(plan);
}

/// A buffer out, another one home by the lane: what looking seldom saves, and where it stops saving.
fn magazines(plan: &Plan) {
    const SIZES: [usize; 5] = [1, 8, 32, 64, 256];
    let names = SIZES.map(|size| format!("{size}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print_head("alloc+drop, by magazine", &names);
    let rounds = 20_000 * plan.scale / BURST;
    let slabs = SIZES.map(|magazine| {
        let mut slab = Slab::new(BUFFERS, SIZE).expect("memory");
        slab.set_magazine(magazine);
        RefCell::new(slab)
    });
    let turn = |slab: &RefCell<Slab>| {
        let (mut slab, mut taken) = (slab.borrow_mut(), Vec::with_capacity(BURST));
        time(rounds * BURST, || {
            for _ in 0..rounds {
                taken.extend((0..BURST).filter_map(|_| slab.alloc()));
                // The first line of each is written: a cold buffer costs a cache miss.
                taken
                    .iter_mut()
                    .for_each(|buffer: &mut Buffer| buffer[0] = 1);
                black_box(&mut taken).clear();
            }
        })
    };
    let mut turns = slabs.each_ref().map(|slab| move || turn(slab));
    let mut turns: Vec<&mut dyn FnMut() -> f64> = turns
        .iter_mut()
        .map(|turn| turn as &mut dyn FnMut() -> f64)
        .collect();
    plan.row("bursts of 32", &mut turns);
}

fn local(plan: &Plan) {
    print_head(
        "2 KiB buffer, one thread",
        &["alloc+free", "alloc+drop", "Box (zeroed)", "ArrayQueue"],
    );
    let slab = Rc::new(RefCell::new(Slab::new(BUFFERS, SIZE).expect("memory")));
    let pool: ArrayQueue<Bytes> = ArrayQueue::new(BUFFERS);
    (0..BUFFERS).for_each(|_| drop(pool.push(bytes())));
    one_by_one(plan, &slab, &pool);
    for burst in [BURST, 16 * BURST] {
        let rounds = 20_000 * plan.scale / burst;
        let bursts =
            |out: &mut dyn FnMut()| time(rounds * burst, || (0..rounds).for_each(|_| out()));
        let mut taken: Vec<Buffer> = Vec::with_capacity(burst);
        let mut dropped: Vec<Buffer> = Vec::with_capacity(burst);
        let mut boxes: Vec<Bytes> = Vec::with_capacity(burst);
        let mut pooled: Vec<Bytes> = Vec::with_capacity(burst);
        let mut free = || {
            let mut slab = slab.borrow_mut();
            bursts(&mut || {
                taken.extend((0..burst).filter_map(|_| slab.alloc()));
                black_box(&mut taken)
                    .drain(..)
                    .for_each(|buffer| slab.free(buffer));
            })
        };
        let mut drop_them = || {
            let mut slab = slab.borrow_mut();
            bursts(&mut || {
                dropped.extend((0..burst).filter_map(|_| slab.alloc()));
                black_box(&mut dropped).clear();
            })
        };
        let mut allocator = || {
            bursts(&mut || {
                boxes.extend((0..burst).map(|_| bytes()));
                black_box(&mut boxes).clear();
            })
        };
        let mut queue = || {
            bursts(&mut || {
                pooled.extend((0..burst).filter_map(|_| pool.pop()));
                black_box(&mut pooled)
                    .drain(..)
                    .for_each(|item| drop(pool.push(item)));
            })
        };
        let name = format!("bursts of {burst}");
        plan.row(
            &name,
            &mut [&mut free, &mut drop_them, &mut allocator, &mut queue],
        );
    }
}

fn one_by_one(plan: &Plan, slab: &RefCell<Slab>, pool: &ArrayQueue<Bytes>) {
    let n = 20_000 * plan.scale;
    let mut free = || {
        let mut slab = slab.borrow_mut();
        repeat(n, || {
            let buffer = black_box(slab.alloc());
            buffer.map(|buffer| slab.free(buffer))
        })
    };
    let mut drop_it = || {
        let mut slab = slab.borrow_mut();
        repeat(n, || drop(black_box(slab.alloc())))
    };
    let mut allocator = || repeat(n, || drop(black_box(bytes())));
    let mut queue = || {
        repeat(n, || {
            let item = black_box(pool.pop());
            item.map(|item| pool.push(item).is_ok())
        })
    };
    plan.row(
        "one by one",
        &mut [&mut free, &mut drop_it, &mut allocator, &mut queue],
    );
}

/// The holder hands all buffers to the other core, which drops them in one go; then the holder takes them in.
fn remote(plan: &Plan) {
    if !plan.two_cores() {
        return;
    }
    print_head(
        "2 KiB buffer, freed on another core",
        &["drop there", "take in here", "Box drop"],
    );
    let mut slab = Slab::new(BUFFERS, SIZE).expect("memory");
    let (mut here_ns, mut there_ns, mut box_ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.turns * plan.scale {
        let (mut tx, mut rx) = ring::<Buffer>(BUFFERS);
        let (mut box_tx, mut box_rx) = ring::<Bytes>(BUFFERS);
        tx.push_iter(std::iter::from_fn(|| slab.alloc()));
        box_tx.push_iter((0..BUFFERS).map(|_| bytes()));
        let (mut mine, mut boxes) = (Vec::with_capacity(BUFFERS), Vec::with_capacity(BUFFERS));
        let drop_all = || {
            rx.pop_batch(BUFFERS, |buffer| mine.push(buffer));
            box_rx.pop_batch(BUFFERS, |item| boxes.push(item));
            drop(mine.pop()); // the thread's first: it claims the lane
            there_ns.push(time(mine.len(), || mine.clear()));
            box_ns.push(time(boxes.len(), || boxes.clear()));
        };
        together(plan.cores, || (), drop_all);
        here_ns.push(time(BUFFERS, || assert_eq!(slab.available(), BUFFERS)));
    }
    let cells = [there_ns, here_ns, box_ns].map(crate::harness::Figure::of);
    crate::harness::print_row("per buffer, bursts of 4096", &cells);
}
