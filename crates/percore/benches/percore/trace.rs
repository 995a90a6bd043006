//! A trace event beside reading the counter and beside the same words stored without protection.

use crate::harness::{Plan, pin, print_head, repeat};
use percore::{
    clock,
    trace::{self, Cost, Event, Offset, Writer},
};
use std::hint::black_box;

const BARE: Event<0> = Event::new(0, "bare", "no arguments");
const FULL: Event<4> = Event::new(1, "full", "{a} {b} {c} {d}");
const RECORDS: usize = 4096;

pub fn run(plan: &Plan) {
    pin(plan.cores[0]);
    let names = ["writer", "thread's", "off", "rdtsc", "bare stores"];
    print_head("trace event", &names);
    let n = 20_000 * plan.scale;
    let writer = Writer::new(RECORDS);
    let mut stamp = || repeat(n, clock::cycles);
    let mut mine = || repeat(n, || black_box(&writer).event(BARE, []));
    let mut here = || {
        let _attached = trace::attach(Writer::new(RECORDS));
        repeat(n, || trace::event(BARE, []))
    };
    let mut off = || repeat(n, || trace::event(BARE, []));
    let mut bare = stores::<0>(n);
    plan.row(
        "without arguments",
        &mut [&mut mine, &mut here, &mut off, &mut stamp, &mut bare],
    );
    let args = || black_box([1, 2, 3, 4]);
    let mut mine = || repeat(n, || black_box(&writer).event(FULL, args()));
    let mut here = || {
        let _attached = trace::attach(Writer::new(RECORDS));
        repeat(n, || trace::event(FULL, args()))
    };
    let mut off = || repeat(n, || trace::event(FULL, args()));
    let mut bare = stores::<4>(n);
    plan.row(
        "with four",
        &mut [&mut mine, &mut here, &mut off, &mut stamp, &mut bare],
    );
    println!("{}", Cost::measure());
    if plan.two_cores() {
        let [here, there] = plan.cores;
        match Offset::measure(here, there) {
            Ok(offset) => println!("core {there}'s counter is {offset}"),
            Err(error) => println!("the cores' counters cannot be compared: {error}"),
        }
    }
}

/// The same cache lines written with a stamp and `N` words, for nobody to read.
fn stores<const N: usize>(n: usize) -> impl FnMut() -> f64 {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; 8]);
    let mut lines = vec![Line([0; 8]); RECORDS];
    move || {
        let mut i = 0;
        repeat(n, || {
            let line = &mut black_box(&mut lines)[i % RECORDS].0;
            line[0] = clock::cycles();
            line[1..=N].copy_from_slice(&black_box([1, 2, 3, 4])[..N]);
            i += 1;
        })
    }
}
