//! The cycle clock: the one place where time is read.
//!
//! Guarantees:
//! * [`now_ns`] never goes backwards on one core, nor from a thread to another that heard of it. It never blocks.
//! * It starts out as CLOCK_MONOTONIC, read through the vDSO. Once 20 ms have passed since the first call, the time-stamp counter has been
//!   seen against that clock for long enough and takes over, if it is invariant (cpuid) and the kernel has not found it unstable;
//!   otherwise all stays as it is. So there is no calibration to wait for.
//! * When the counter takes over it is at most 1 µs ahead of CLOCK_MONOTONIC, never behind. Its rate is measured again after 1 s and
//!   after 60 s. Drift: 20 ns of reading error over 20 ms is 1 ppm, over 1 s 0.02 ppm, over 60 s 0.0003 ppm; together less than 3 µs. From then
//!   on the clock runs freely: it does not follow NTP, which may slew CLOCK_MONOTONIC by up to 500 ppm (usually less than 1), and it
//!   counts the time that the machine is suspended, if the counter does.
//! * Cost: one RDTSC and about 2 ns. RDTSC waits for nothing: a reading may be taken some ns before the instructions that precede it.

mod line;
#[cfg(all(test, not(loom)))]
mod tests;
mod tsc;

use line::{Line, Sample};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{
    Mutex, PoisonError, TryLockError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::time::Duration;

/// When the counter's rate is measured: this long after the first sample.
const STAGES_NS: [u64; 3] = [20_000_000, 1_000_000_000, 60_000_000_000];
const FIRST_STAGE: Duration = Duration::from_nanos(STAGES_NS[0]);
/// A sample that took longer than this is not good enough: try again at the next call.
const SAMPLE_WIDTH_NS_MAX: u64 = 500;
/// A measurement that was held up for longer than this is thrown away.
const PUBLISH_NS_MAX: u64 = 10_000_000;
/// Counters of two cores may differ by some cycles; one that is further behind was reset (the machine slept).
const BACKWARDS_CYCLES_MAX: u64 = 1_000_000;

static LINES: [Line; STAGES_NS.len()] = [const { Line::new() }; STAGES_NS.len()];
/// How many of `LINES` have been drawn; the last of them is valid. 0: ask the kernel.
static DRAWN: AtomicUsize = AtomicUsize::new(0);
/// Whether the kernel's clock is used for good.
static KERNEL_ONLY: AtomicBool = AtomicBool::new(false);
/// The first sample, and the lock under which lines are drawn.
static FIRST: Mutex<Option<Sample>> = Mutex::new(None);

/// Nanoseconds of a monotonic clock, read from the time-stamp counter where it is invariant.
///
/// Never goes backwards on one core. The origin is that of CLOCK_MONOTONIC (see the module's docs for how exactly), the same in the whole process.
#[inline]
pub fn now_ns() -> u64 {
    let drawn = DRAWN.load(Ordering::Acquire); // pairs with Release in `draw`
    if let Some(line) = LINES.get(drawn.wrapping_sub(1)) {
        let cycles = tsc::cycles();
        if let Some(now) = line.at(cycles) {
            return now;
        }
        return off_the_line(line, cycles, drawn);
    }
    kernel_now(drawn)
}

/// The processor's time-stamp counter where it has one (x86-64: RDTSC, not serialising), else nanoseconds. For differences; see [`cycles_to_ns`].
#[inline]
pub fn cycles() -> u64 {
    tsc::cycles()
}

/// [`cycles`], read after all that the program does before, and before all that it does after: for bounds that must hold. Takes some ns more.
pub fn cycles_in_order() -> u64 {
    tsc::cycles_in_order()
}

/// How many [`cycles`] make a second. Waits for up to 20 ms if the counter has not been measured yet.
pub fn hz() -> u64 {
    line::hz(rate())
}

/// The duration of `cycles` cycles in nanoseconds. Waits for up to 20 ms if the counter has not been measured yet.
pub fn cycles_to_ns(cycles: u64) -> u64 {
    line::scale(cycles, rate())
}

/// Whether [`now_ns`] reads the time-stamp counter by now.
pub fn is_tsc() -> bool {
    DRAWN.load(Ordering::Relaxed) != 0
}

/// CLOCK_MONOTONIC, as the kernel has it.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// Nanoseconds per cycle, as a [`Line`] has it.
#[cold]
fn rate() -> u64 {
    static KERNEL_ONLY_RATE: Mutex<Option<u64>> = Mutex::new(None);
    loop {
        let drawn = DRAWN.load(Ordering::Acquire); // pairs with Release in `draw`
        if let Some(line) = LINES.get(drawn.wrapping_sub(1)) {
            return line.rate();
        }
        if KERNEL_ONLY.load(Ordering::Relaxed) {
            let mut rate = KERNEL_ONLY_RATE
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            return *rate.get_or_insert_with(|| {
                let first = Sample::take();
                std::thread::sleep(FIRST_STAGE);
                line::rate_between(first, Sample::take())
            });
        }
        kernel_now(drawn);
        std::thread::sleep(FIRST_STAGE / 20);
    }
}

/// The kernel's time, while no line has been drawn; draws the first as soon as it can be.
#[cold]
fn kernel_now(drawn: usize) -> u64 {
    if !KERNEL_ONLY.load(Ordering::Relaxed) {
        draw(drawn);
    }
    monotonic_ns()
}

/// The counter is behind the line's start, or has run so far that it is time for the next line.
#[cold]
fn off_the_line(line: &Line, cycles: u64, drawn: usize) -> u64 {
    if was_reset(line, cycles) {
        KERNEL_ONLY.store(true, Ordering::Relaxed);
        DRAWN.store(0, Ordering::Release);
        return monotonic_ns();
    }
    draw(drawn);
    line.extrapolate(cycles)
}

fn was_reset(line: &Line, cycles: u64) -> bool {
    line.start().saturating_sub(cycles) > BACKWARDS_CYCLES_MAX
}

/// Draws line number `drawn`, if its time has come and no other thread is at it.
fn draw(drawn: usize) {
    let mut first = match FIRST.try_lock() {
        Ok(first) => first,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let Some(line) = LINES.get(drawn) else { return };
    if DRAWN.load(Ordering::Relaxed) != drawn || KERNEL_ONLY.load(Ordering::Relaxed) {
        return; // another thread was first
    }
    let Some(first) = *first else {
        if tsc::is_invariant() {
            *first = Some(Sample::take()).filter(Sample::is_sharp);
        } else {
            KERNEL_ONLY.store(true, Ordering::Relaxed);
        }
        return;
    };
    if monotonic_ns().saturating_sub(first.ns) < STAGES_NS[drawn] {
        return;
    }
    let now = Sample::take();
    if !now.is_sharp() {
        return;
    }
    let before = drawn.checked_sub(1).map(|i| &LINES[i]);
    line.draw(first, now, before, STAGES_NS.get(drawn + 1).copied());
    if tsc::cycles().saturating_sub(now.cycles) < line.cycles_in(PUBLISH_NS_MAX) {
        DRAWN.store(drawn + 1, Ordering::Release); // pairs with Acquire in `now_ns`
    }
}
