//! The doorbell on its own, for the experiment `interrupts`: ringing for a thread that is awake, and waking a sleeper, beside a bare futex.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

use percore::{
    clock::now_ns,
    doorbell::{Doorbell, Sleep},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    thread::futex,
};

use super::{Bench, Player};
use crate::{experiment::LabError, kit::Stopwatch, report::Row};

/// So long the sleeper is left alone to fall asleep.
const ASLEEP_AFTER: f64 = 50e-6;

/// No thread sleeps: what the busy side pays.
pub(super) fn awake(bench: &Bench) -> Result<[Row; 2], LabError> {
    const BELL: &str = "doorbell";
    const FENCE: &str = "fence";
    let (bell, event) = (Doorbell::new()?, eventfd(0, EventfdFlags::NONBLOCK));
    let event = event.map_err(std::io::Error::from)?;
    let n = bench.work;
    let one = 1_u64.to_ne_bytes();
    let scores = bench.contest(vec![
        Player::own(BELL, || bench.repeat(n, || black_box(&bell).ring())),
        Player::own(FENCE, || bench.repeat(n, || fence(Ordering::SeqCst))),
        Player::peer("eventfd write", || {
            bench.repeat((n / 100).max(1), || rustix::io::write(&event, &one))
        }),
    ]);
    Ok([
        scores.row("doorbell_awake_ns", BELL),
        scores.bare_row("fence_ns", FENCE),
    ])
}

/// The other core sleeps each time.
pub(super) fn asleep(bench: &Bench, cores: [usize; 2]) -> Result<[Row; 2], LabError> {
    const BELL: &str = "doorbell";
    let wakes = (bench.work / 1000).clamp(3, 100) as u64; // widening
    let bell = Doorbell::new()?;
    let [ringer, latency] = bench.contest_of(vec![
        Player::own_of(BELL, || wake_by_bell(bench, cores, wakes, &bell)),
        Player::peer_of("bare futex", || wake_by_futex(bench, cores, wakes)),
    ]);
    Ok([
        ringer.row("doorbell_asleep_ringer_ns", BELL),
        latency.row("doorbell_asleep_latency_ns", BELL),
    ])
}

/// Wakes a thread on the other core so often: what a wake-up costs here, and how long it takes until the sleeper runs, in ns. Both stamps of a
/// way are of the cycle counter, since two threads take them.
#[allow(clippy::cast_precision_loss)] // far below 2^52
fn wake(
    bench: &Bench,
    cores: [usize; 2],
    wakes: u64,
    sleep: impl Fn(u64) + Sync + Send,
    ring: impl Fn(u64),
) -> [f64; 2] {
    let (woken_at, awake) = (AtomicU64::new(0), AtomicU64::new(0));
    let there = || {
        for i in 1..=wakes {
            sleep(i);
            woken_at.store(now_ns(), Ordering::Relaxed);
            awake.store(i, Ordering::Release); // pairs with Acquire below
        }
    };
    let here = || {
        let (mut cost, mut latency) = (0, 0);
        for i in 1..=wakes {
            let pause = Stopwatch::start();
            while pause.seconds() < ASLEEP_AFTER {
                spin_loop();
            }
            let start = now_ns();
            ring(i);
            cost += now_ns() - start;
            // pairs with Release above
            while awake.load(Ordering::Acquire) < i {
                spin_loop();
            }
            latency += woken_at.load(Ordering::Relaxed).saturating_sub(start);
        }
        let each = |ns: u64| ns as f64 / wakes as f64;
        [each(cost), each(latency)]
    };
    bench.together(cores, here, there)
}

fn wake_by_bell(bench: &Bench, cores: [usize; 2], wakes: u64, bell: &Doorbell) -> [f64; 2] {
    let rung = AtomicU64::new(0);
    let sleep = |i| {
        while rung.load(Ordering::Acquire) < i {
            bell.arm(Sleep::Futex);
            if rung.load(Ordering::Acquire) < i {
                bell.wait(None);
            }
            bell.disarm();
        }
    };
    wake(bench, cores, wakes, sleep, |i| {
        rung.store(i, Ordering::Release);
        bell.ring();
    })
}

fn wake_by_futex(bench: &Bench, cores: [usize; 2], wakes: u64) -> [f64; 2] {
    let word = AtomicU32::new(0);
    let number = |i| u32::try_from(i).unwrap_or(0);
    let sleep = |i| {
        let i = number(i);
        while word.load(Ordering::Acquire) < i {
            let _ = futex::wait(&word, futex::Flags::PRIVATE, i - 1, None);
        }
    };
    wake(bench, cores, wakes, sleep, |i| {
        word.store(number(i), Ordering::Release);
        let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
    })
}
