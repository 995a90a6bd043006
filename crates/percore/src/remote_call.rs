//! Remote calls (D1, D7): the thread that owns something runs a closure on it while the caller waits. Others ask by message; they do not reach in.
//!
//! Guarantees:
//! * A call is run by the server's thread, on what it hands to [`CallServer::serve`], at most once. What the caller wrote before is
//!   visible to it, what it wrote is visible to the caller when [`CallSender::run`] returns.
//! * [`CallSender::run`] returns: with the answer; or, if the server has ended or ends first, with the closure itself and
//!   [`Refusal::Stopped`]. It waits as long as the server does not serve; [`CallSender::run_within`] takes a call back that was not begun in time.
//! * A panic in a call goes to its caller. The server goes on.
//! * Posting is lock-free and allocates nothing: the closure and its answer lie on the caller's stack, and a slot says where. There are
//!   [`SLOTS`] slots; a caller that finds none looks again until one is free, and is [counted](CallSender::full).
//! * A waiting caller spins for about as long as a wake-up takes, but only where the server is awake and on another core: then it may be at
//!   work already. Else, and after that, it sleeps on a futex.
//! * Each serving takes all calls posted by then: one read-modify-write for the burst, none where there is nothing. Between callers there is
//!   no order; no caller waits for more than the burst before its own.
//! * No wake-up is lost, if the server looks at [`CallServer::has_calls`] between [`Doorbell::arm`] and its sleep.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    clock,
    doorbell::Doorbell,
    lock::thread::{Futex, core},
    sync::{Arc, AtomicU32, AtomicU64, Cell, Ordering, spin_loop},
};
use crossbeam_utils::CachePadded;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};

/// Calls that one sender can carry at a time.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 63 };
/// For how long a caller spins, in cycles of the counter: about 5 µs, what it takes to sleep and be woken (`netchan lab run interrupts`,
/// `doorbell_asleep_latency_ns`).
const SPIN_CYCLES: u64 = 12_000;
/// Between two looks for a free slot.
#[cfg(not(loom))]
const PAUSE: Duration = Duration::from_micros(50);

/// Beside the slots' bits in `posted`: the server has ended.
const CLOSED: u64 = 1 << 63;

// A slot's state. With SLEEPS: its caller sleeps, or is about to.
const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const RUNNING: u32 = 3;
const DONE: u32 = 4;
const REFUSED: u32 = 5;
const SLEEPS: u32 = 8;

/// Why a call was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server has ended.
    Stopped,
    /// Not begun in time.
    Late,
}

/// The callers' end, for any number of threads.
pub struct CallSender<T>(Arc<Shared<T>>);

/// The end that runs the calls. When it is dropped, what is posted is refused.
pub struct CallServer<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// A bit for each slot that has been posted, and `CLOSED`.
    posted: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<Slot<T>>]>,
    full: AtomicU64,
    /// The core on which the server last served. A hint.
    core: AtomicU32,
    bell: Arc<Doorbell>,
}

struct Slot<T> {
    state: Futex,
    /// Written by the caller that claimed the slot, read by the server once it runs.
    job: Cell<Option<Job<T>>>,
}

/// A call without its type.
struct Job<T> {
    run: unsafe fn(*mut (), &mut T),
    record: *mut (),
}

impl<T> Clone for Job<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Job<T> {}

// SAFETY: the cell is handed over by `state`; behind the pointer lies a closure that is `Send`, whose answer is `Send`. No `T` is inside.
unsafe impl<T> Send for Slot<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Slot<T> {}

/// On the caller's stack: a call, then its answer.
struct Record<F, R> {
    call: Option<F>,
    answer: Option<thread::Result<R>>,
}

/// Runs the call of a record.
///
/// # Safety
/// `record` points to a `Record<F, R>` that no other code touches meanwhile.
unsafe fn run_record<T, F: FnOnce(&mut T) -> R, R>(record: *mut (), target: &mut T) {
    // SAFETY: the caller's promise.
    let record = unsafe { &mut *record.cast::<Record<F, R>>() };
    if let Some(call) = record.call.take() {
        record.answer = Some(catch_unwind(AssertUnwindSafe(|| call(target))));
    }
}

/// A sender and its server, which sleeps on `bell`: a posted call rings it.
pub fn remote_calls<T>(bell: Arc<Doorbell>) -> (CallSender<T>, CallServer<T>) {
    let slot = |_| {
        CachePadded::new(Slot {
            state: Futex::new(),
            job: Cell::new(None),
        })
    };
    let shared = Arc::new(Shared {
        posted: CachePadded::new(AtomicU64::new(0)),
        slots: (0..SLOTS).map(slot).collect(),
        full: AtomicU64::new(0),
        core: AtomicU32::new(0),
        bell,
    });
    (CallSender(shared.clone()), CallServer(shared))
}

impl<T> fmt::Debug for CallSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let posted = self.0.posted.load(Ordering::Relaxed);
        let (waiting, closed) = ((posted & !CLOSED).count_ones(), posted & CLOSED != 0);
        write!(f, "CallSender {{ {waiting} posted, closed: {closed} }}")
    }
}

impl<T> fmt::Debug for CallServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CallSender(self.0.clone()).fmt(f)
    }
}

impl<T> CallSender<T> {
    /// Has the server run `call`, and waits for its answer. Not for the server's own thread, which would wait for ever.
    ///
    /// # Errors
    /// The closure, not run: the server has ended.
    pub fn run<R: Send, F: FnOnce(&mut T) -> R + Send>(&self, call: F) -> Result<R, F> {
        self.run_until(call, None).map_err(|(_, call)| call)
    }

    /// Does what [`run`](Self::run) does for a call that shall be begun within `patience`.
    ///
    /// # Errors
    /// The closure, not run, and why.
    pub fn run_within<R: Send, F: FnOnce(&mut T) -> R + Send>(
        &self,
        call: F,
        patience: Duration,
    ) -> Result<R, (Refusal, F)> {
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        self.run_until(call, Some(clock::now_ns().saturating_add(patience)))
    }

    fn run_until<R: Send, F: FnOnce(&mut T) -> R + Send>(
        &self,
        call: F,
        deadline: Option<u64>,
    ) -> Result<R, (Refusal, F)> {
        let mut record = Record {
            call: Some(call),
            answer: None,
        };
        let job = Job {
            run: run_record::<T, F, R>,
            record: (&raw mut record).cast(),
        };
        // From here to the end of `carry` the record is the server's, and nothing here panics.
        let refusal = self.0.carry(job, deadline).err();
        match (record.answer, record.call) {
            (Some(Ok(answer)), _) => Ok(answer),
            (Some(Err(panic)), _) => resume_unwind(panic),
            (None, Some(call)) => Err((refusal.unwrap_or(Refusal::Stopped), call)),
            (None, None) => unreachable!("a call that was taken has an answer"),
        }
    }

    /// Times that a caller found no slot.
    pub fn full(&self) -> u64 {
        self.0.full.load(Ordering::Relaxed)
    }

    /// Calls that wait to be begun, about; none once the server has ended, whose end gave them back.
    pub fn waiting(&self) -> usize {
        let posted = self.0.posted.load(Ordering::Relaxed);
        if posted & CLOSED != 0 {
            return 0;
        }
        posted.count_ones() as usize
    }
}

/// Whether a deadline has passed.
fn is_over(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| clock::now_ns() >= deadline)
}

impl<T> Shared<T> {
    /// Posts a job and waits until the server is done with it, or it is certain that the server will not begin.
    fn carry(&self, job: Job<T>, deadline: Option<u64>) -> Result<(), Refusal> {
        crate::witness::sleeping("a remote call"); // it may panic: before anything is posted
        let number = self.claim(deadline)?;
        let slot = &self.slots[number];
        slot.job.with_mut(|place| {
            // SAFETY: we claimed the slot; the server reads it only once it is posted.
            unsafe { *place = Some(job) }
        });
        // Release pairs with Acquire in `begin`: a server that finds it posted finds the job.
        slot.state.0.store(POSTED, Ordering::Release);
        // One word for "posted" and "closed": of a posting and the end of the server one comes first. AcqRel pairs with `serve` and `close`.
        let before = self.posted.fetch_or(1 << number, Ordering::AcqRel);
        let ended = before & CLOSED != 0;
        let was_asleep = !ended && self.bell.ring();
        let outcome = if ended || was_asleep || !self.is_elsewhere() {
            None
        } else {
            slot.spin()
        };
        let outcome = outcome.unwrap_or_else(|| slot.wait(ended, deadline));
        slot.state.0.store(FREE, Ordering::Release); // pairs with Acquire in `claim`
        outcome
    }

    /// Whether the server, if it runs, runs on another core than the caller.
    fn is_elsewhere(&self) -> bool {
        self.core.load(Ordering::Relaxed) != core() // a hint
    }

    /// A free slot; waits for one.
    fn claim(&self, deadline: Option<u64>) -> Result<usize, Refusal> {
        let mut first_time = true;
        loop {
            if self.posted.load(Ordering::Relaxed) & CLOSED != 0 {
                return Err(Refusal::Stopped);
            }
            let first = hint();
            for step in 0..SLOTS {
                let number = (first + step) % SLOTS;
                let state = &self.slots[number].state.0;
                // Acquire pairs with Release in `carry`: the one before us is done with the slot.
                if state.load(Ordering::Relaxed) == FREE
                    && state
                        .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    return Ok(number);
                }
            }
            if is_over(deadline) {
                return Err(Refusal::Late);
            }
            if first_time {
                self.full.fetch_add(1, Ordering::Relaxed);
                first_time = false;
            }
            pause();
        }
    }

    /// Runs the job of a slot, if it is (still) posted.
    fn begin(&self, number: usize, target: &mut T) -> bool {
        let slot = &self.slots[number];
        let Some(job) = slot.take(RUNNING) else {
            return false;
        };
        /// Says that the job is done, whatever happens.
        struct End<'a, T>(&'a Slot<T>);
        impl<T> Drop for End<'_, T> {
            fn drop(&mut self) {
                self.0.answer(DONE);
            }
        }
        let _end = End(slot);
        // SAFETY: made by `run_until` for this very type; its caller waits until the state says that we are done.
        unsafe { (job.run)(job.record, target) };
        true
    }
}

/// Where a thread begins to look for a slot: threads that find each their own do not get in each other's way.
#[cfg(not(loom))]
fn hint() -> usize {
    // Widening: u32 to usize.
    crate::lock::thread::number() as usize % SLOTS
}

#[cfg(loom)]
fn hint() -> usize {
    0
}

#[cfg(not(loom))]
fn pause() {
    thread::sleep(PAUSE);
}

#[cfg(loom)]
fn pause() {
    crate::sync::yield_now();
}

impl<T> Slot<T> {
    /// Makes a posted job the caller's by moving the slot on to `state`; the job that it is.
    fn take(&self, state: u32) -> Option<Job<T>> {
        let on = |now: u32| (now & !SLEEPS == POSTED).then_some(state | now & SLEEPS);
        // Acquire pairs with Release in `carry`.
        let moved = (self.state.0).fetch_update(Ordering::Acquire, Ordering::Relaxed, on);
        moved.ok()?;
        self.job.with(|job| {
            // SAFETY: written before it was posted; its caller touches it again only after our answer.
            unsafe { *job }
        })
    }

    /// The end of a call: its caller may go on. The last access to it.
    fn answer(&self, state: u32) {
        // Release pairs with Acquire in `wait`: a caller that sees the answer's state sees the answer.
        if self.state.0.swap(state, Ordering::Release) & SLEEPS != 0 {
            self.state.wake();
        }
    }

    /// Waits for the answer. Where the server has `ended`, and after `deadline`, takes a job back that was not begun.
    fn wait(&self, ended: bool, deadline: Option<u64>) -> Result<(), Refusal> {
        if ended {
            // Its end may be looking through what was posted: then it answers.
            if self.take(CLAIMED).is_some() {
                return Err(Refusal::Stopped);
            }
        }
        loop {
            let state = self.state.0.load(Ordering::Acquire); // pairs with Release in `answer`
            if let Some(outcome) = outcome(state) {
                return outcome;
            }
            let late = is_over(deadline);
            if late && self.take(CLAIMED).is_some() {
                return Err(Refusal::Late);
            }
            let asleep = state | SLEEPS;
            // Relaxed: says only that we sleep; of the answer's swap and this, one comes first.
            let said = (self.state.0).compare_exchange(
                state,
                asleep,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if said.is_ok() {
                let left = deadline
                    .filter(|_| !late)
                    .map(|deadline| Duration::from_nanos(deadline.saturating_sub(clock::now_ns())));
                self.state.wait(asleep, left);
            }
        }
    }

    fn spin(&self) -> Option<Result<(), Refusal>> {
        let start = clock::cycles();
        while clock::cycles().wrapping_sub(start) < SPIN_CYCLES {
            // Acquire pairs with Release in `answer`.
            let outcome = outcome(self.state.0.load(Ordering::Acquire));
            if outcome.is_some() {
                return outcome;
            }
            spin_loop();
        }
        None
    }
}

/// What a slot's state says to its caller.
fn outcome(state: u32) -> Option<Result<(), Refusal>> {
    match state & !SLEEPS {
        DONE => Some(Ok(())),
        REFUSED => Some(Err(Refusal::Stopped)),
        _ => None,
    }
}

impl<T> CallServer<T> {
    /// Runs everything posted up to now on `target`. How many calls that were.
    #[inline]
    pub fn serve(&mut self, target: &mut T) -> usize {
        if self.has_calls() {
            self.serve_posted(target)
        } else {
            0
        }
    }

    fn serve_posted(&mut self, target: &mut T) -> usize {
        let core = core();
        if self.0.core.load(Ordering::Relaxed) != core {
            self.0.core.store(core, Ordering::Relaxed); // a hint
        }
        // Acquire pairs with AcqRel in `carry`. Only `close` sets `CLOSED`, and it is ours to call.
        let mut taken = self.0.posted.swap(0, Ordering::Acquire);
        let mut served = 0;
        while taken != 0 {
            // Widening: u32 to usize.
            let number = taken.trailing_zeros() as usize;
            taken &= taken - 1;
            served += usize::from(self.0.begin(number, target));
        }
        served
    }

    /// Whether there is something to serve, at this moment.
    #[inline]
    pub fn has_calls(&self) -> bool {
        // Relaxed: a hint; before a sleep, the fence in `Doorbell::arm` orders it.
        self.0.posted.load(Ordering::Relaxed) != 0
    }

    /// The server ends: from now on every call is refused, those that wait at once.
    fn close(&self) {
        // AcqRel pairs with `carry`: a caller that posted before is refused here, one that posts after sees it.
        let mut posted = self.0.posted.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        while posted != 0 {
            // Widening: u32 to usize.
            let slot = &self.0.slots[posted.trailing_zeros() as usize];
            posted &= posted - 1;
            if slot.take(RUNNING).is_some() {
                slot.answer(REFUSED);
            }
        }
    }
}

impl<T> Drop for CallServer<T> {
    fn drop(&mut self) {
        self.close();
    }
}
