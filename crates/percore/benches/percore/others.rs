//! The doorbell beside a bare futex and an eventfd, the clock beside the kernel's.

use crate::harness::{Plan, per_operation, pin, print_head, repeat, together};
use percore::{
    clock::{self, now_ns},
    doorbell::{Doorbell, Sleep},
};
use rustix::{event::EventfdFlags, event::eventfd, thread::futex};
use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    time::Duration,
};

pub fn doorbell(plan: &Plan) {
    pin(plan.cores[0]);
    print_head(
        "ring, the sleeper is awake",
        &["doorbell", "bare fence", "eventfd write"],
    );
    let bell = Doorbell::new().expect("an eventfd");
    let event = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    let n = 20_000 * plan.scale;
    let mut ring = || repeat(n, || assert!(!black_box(&bell).ring()));
    let mut fences = || repeat(n, || fence(Ordering::SeqCst));
    let one = 1u64.to_ne_bytes();
    let mut write = || repeat(n / 100, || rustix::io::write(&event, &one));
    plan.row("", &mut [&mut ring, &mut fences, &mut write]);
    if plan.two_cores() {
        print_head(
            "wake a sleeper on another core",
            &["doorbell", "bare futex"],
        );
        let figures = |pick: fn((f64, f64)) -> f64| {
            plan.measure(&mut [&mut || pick(wake_by_bell(plan)), &mut || {
                pick(wake_by_futex(plan))
            }])
        };
        crate::harness::print_row("cost to the ringer", &figures(|(cost, _)| cost));
        crate::harness::print_row("until the sleeper runs", &figures(|(_, latency)| latency));
    }
}

const WAKES: u64 = 50;

/// Wakes a thread on the other core `WAKES` times: what a wake-up costs here, and how long it takes there.
fn wake(plan: &Plan, sleep: impl Fn(u64) + Sync + Send, ring: impl Fn(u64)) -> (f64, f64) {
    let (woken_at, awake) = (AtomicU64::new(0), AtomicU64::new(0));
    let there = || {
        for i in 1..=WAKES {
            sleep(i);
            woken_at.store(now_ns(), Ordering::Relaxed);
            awake.store(i, Ordering::Release);
        }
    };
    let here = || {
        let (mut cost, mut latency) = (0, 0);
        for i in 1..=WAKES {
            std::thread::sleep(Duration::from_micros(50)); // the other side falls asleep
            let start = now_ns();
            ring(i);
            cost += now_ns() - start;
            while awake.load(Ordering::Acquire) < i {
                std::hint::spin_loop();
            }
            latency += woken_at.load(Ordering::Relaxed).saturating_sub(start);
        }
        let each = |ns| per_operation(ns, 50);
        (each(cost), each(latency))
    };
    together(plan.cores, here, there)
}

fn wake_by_bell(plan: &Plan) -> (f64, f64) {
    let (bell, rung) = (Doorbell::new().expect("an eventfd"), AtomicU64::new(0));
    let sleep = |i| {
        bell.arm(Sleep::Futex);
        while rung.load(Ordering::Acquire) < i {
            bell.wait(None);
            if rung.load(Ordering::Acquire) < i {
                bell.arm(Sleep::Futex);
            }
        }
        bell.disarm();
    };
    wake(plan, sleep, |i| {
        rung.store(i, Ordering::Release);
        bell.ring();
    })
}

fn wake_by_futex(plan: &Plan) -> (f64, f64) {
    let word = AtomicU32::new(0);
    let number = |i| u32::try_from(i).unwrap_or(0);
    let sleep = |i| {
        let i = number(i);
        while word.load(Ordering::Acquire) < i {
            let _ = futex::wait(&word, futex::Flags::PRIVATE, i - 1, None);
        }
    };
    wake(plan, sleep, |i| {
        word.store(number(i), Ordering::Release);
        let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
    })
}

#[allow(clippy::disallowed_methods)] // it is what we compare with
pub fn clock(plan: &Plan) {
    pin(plan.cores[0]);
    print_head("read the time", &["now_ns", "cycles", "Instant"]);
    let n = 20_000 * plan.scale;
    let mut ours = || repeat(n, now_ns);
    let mut cycles = || repeat(n, clock::cycles);
    let mut instant = || repeat(n, std::time::Instant::now);
    plan.row("", &mut [&mut ours, &mut cycles, &mut instant]);
}
