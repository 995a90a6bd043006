//! The barrier: what it orders between two threads, and that its frequent side is cheap where the kernel helps.

use super::{heavy, kernel, light, prepare};
use rustix::thread::{MembarrierCommand, membarrier_query};
use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

#[test]
fn the_frequent_side_is_cheap_where_the_kernel_helps() {
    let helps = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
    prepare();
    assert_eq!(kernel::is_prepared(), helps);
    assert!(heavy());
}

/// Each writes its word and then reads the other's: of the two barriers one comes first, so at least one sees the other's word.
#[test]
fn of_a_light_and_a_heavy_one_comes_first() {
    const ROUNDS: u32 = 3_000;
    let (mine, theirs) = (Lined::default(), Lined::default());
    let (at, seen) = (Lined::default(), Lined::default());
    prepare();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                at.until(|at| at == round);
                theirs.0.store(round, Relaxed);
                light();
                let saw = mine.0.load(Relaxed) == round;
                seen.0.store(2 * round + u32::from(saw), Relaxed);
            }
        });
        for round in 1..=ROUNDS {
            at.0.store(round, Relaxed);
            // The other one begins a little later than we: now and then in this very moment.
            (0..round % 64).for_each(|_| spin_loop());
            mine.0.store(round, Relaxed);
            let ordered = heavy();
            let saw = theirs.0.load(Relaxed) == round;
            let other = seen.until(|seen| seen / 2 == round) % 2 == 1;
            assert!(
                ordered && (saw || other),
                "neither saw the other in round {round}"
            );
        }
    });
}

/// A word on a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lined(AtomicU32);

impl Lined {
    /// Looks until it is so; gives the core away where that takes long, as there may be one only.
    fn until(&self, is: impl Fn(u32) -> bool) -> u32 {
        let mut looks = 0;
        loop {
            let now = self.0.load(Relaxed);
            if is(now) {
                return now;
            }
            looks += 1;
            if looks < 2_000 {
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}
