//! The thread of [`Disturbance::Preempt`]: computes, sleeps as long, and says how much of the processor it took.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use rustix::{process::setpriority_process, thread::gettid};

use super::{
    job::{Disturbance, Job},
    pace::now_ns,
    place,
    role::PREEMPTER,
};
use crate::kit::processor_seconds;

#[derive(Default)]
pub(super) struct Preempter {
    stop: AtomicBool,
    /// Seconds of processor time, as bits: by the thread's own clock, after each step. What the kernel's files say of a thread that runs is as old as its last
    /// tick, and other threads' lines are read in between.
    spent: AtomicU64,
}

impl Preempter {
    /// Starts the thread, if the job has one.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        job: &Job,
    ) -> io::Result<Option<ScopedJoinHandle<'scope, ()>>> {
        let (Disturbance::Preempt { us, yields }, Some(core)) =
            (job.disturbance, place::protocol_core(job))
        else {
            return Ok(None);
        };
        let body = move || {
            // Elsewhere it disturbs less: the row tells.
            let _ = place::pin_to(None, core);
            if yields {
                // Of this thread alone, on Linux. Any thread may lower its own.
                let _ = setpriority_process(Some(gettid()), 19);
            }
            self.run(us);
        };
        let named = thread::Builder::new().name(PREEMPTER.to_owned());
        named.spawn_scoped(scope, body).map(Some)
    }

    /// Steps of so many microseconds until it is to stop.
    fn run(&self, us: u64) {
        // Relaxed, all three: a flag and a number that nothing is ordered by.
        while !self.stop.load(Relaxed) {
            let until = now_ns() + us * 1000;
            while now_ns() < until {
                std::hint::spin_loop();
            }
            self.spent.store(processor_seconds().to_bits(), Relaxed);
            thread::sleep(Duration::from_micros(us));
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Seconds of processor time so far, but for the step that it is in.
    pub fn spent(&self) -> f64 {
        f64::from_bits(self.spent.load(Relaxed))
    }
}
