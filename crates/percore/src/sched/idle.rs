//! What a core does that has nothing to do.

use std::time::Duration;
#[cfg(not(loom))]
use {
    crate::{
        clock,
        doorbell::{Doorbell, Sleep},
    },
    std::{
        io,
        sync::{
            OnceLock,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    },
};

/// About what sleeping and being woken costs: 5 µs between cores (`netchan lab run interrupts`). To spin for as long is never
/// more than twice as bad as the best decision would have been.
pub(super) const SPIN: Duration = Duration::from_micros(5);
#[cfg(not(loom))]
const WAKES: usize = 9;

/// What a core does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Look again and again for so long, then sleep on the doorbell.
    SpinThenSleep(Duration),
    /// Look again and again: the least latency, a whole core.
    Spin,
    /// Sleep at once: the least power.
    Sleep,
}

impl Idle {
    /// [`SpinThenSleep`](Self::SpinThenSleep) for as long as a wake-up takes on this machine, measured once in a process with a thread of
    /// its own (some milliseconds).
    ///
    /// # Errors
    /// As eventfd(2), or if there can be no thread.
    #[cfg(not(loom))]
    pub fn measured() -> io::Result<Self> {
        static MEASURED: OnceLock<Duration> = OnceLock::new();
        if let Some(&time) = MEASURED.get() {
            return Ok(Self::SpinThenSleep(time));
        }
        let time = wake_up_time()?;
        Ok(Self::SpinThenSleep(*MEASURED.get_or_init(|| time)))
    }
}

/// From ringing a doorbell until the sleeper runs: the median of a few.
#[cfg(not(loom))]
fn wake_up_time() -> io::Result<Duration> {
    let (bell, woken_at) = (Doorbell::new()?, AtomicU64::new(0));
    let asleep = AtomicU64::new(0);
    let mut times = [0; WAKES];
    thread::scope(|scope| {
        let sleeper = || {
            for i in 1..=WAKES as u64 {
                bell.arm(Sleep::Futex);
                asleep.store(i, Ordering::Release);
                while !bell.wait(None) {}
                woken_at.store(clock::now_ns(), Ordering::Release);
                bell.disarm();
            }
        };
        thread::Builder::new().spawn_scoped(scope, sleeper)?;
        for (i, time) in (1..).zip(&mut times) {
            while asleep.load(Ordering::Acquire) < i {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(100)); // it sleeps by now
            woken_at.store(0, Ordering::Relaxed);
            let rung = clock::now_ns();
            bell.ring();
            while woken_at.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            *time = woken_at.load(Ordering::Acquire).saturating_sub(rung);
        }
        io::Result::Ok(())
    })?;
    times.sort_unstable();
    Ok(Duration::from_nanos(times[WAKES / 2]))
}
