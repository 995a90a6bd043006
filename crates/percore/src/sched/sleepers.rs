//! The tasks that sleep, on which key and until when: a hash table of lists in the order of falling asleep, and a heap of deadlines.

#[cfg(all(test, not(loom)))]
mod tests;

use super::tasks::Tasks;
use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::BinaryHeap,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

const NONE: u32 = u32::MAX;
/// 2^64 over the golden ratio: spreads addresses, which are multiples of something.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a task sleeps on: by custom the address of what it waits for, but any number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(usize);

impl Key {
    /// The key with this number.
    pub const fn new(number: usize) -> Self {
        Self(number)
    }

    /// The key that is the address of `thing`.
    pub fn of<T: ?Sized>(thing: &T) -> Self {
        Self(std::ptr::from_ref(thing).addr())
    }
}

/// Why a task runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its key was woken.
    ByKey,
    /// Its time has come.
    ByTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Awake(Woken),
}

/// One sleep of one task.
#[derive(Debug)]
struct Waiter {
    /// `None`: it waits for its time only, and is in no list.
    key: Option<Key>,
    task: u32,
    previous: u32,
    next: u32,
    state: State,
    /// Whether it sleeps with a deadline.
    timed: bool,
    /// Distinguishes it from those that used this place before: their deadlines may still be in the heap.
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

/// All sleeps of one core.
#[derive(Debug)]
pub(super) struct Sleepers {
    buckets: Box<[Bucket]>,
    waiters: Vec<Waiter>,
    free: Vec<u32>,
    /// Deadline, waiter, its generation. A waiter that was woken before its deadline stays in here until that comes up, or too many have.
    deadlines: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Waiters that are asleep with a deadline.
    timed: usize,
}

impl Sleepers {
    /// With places for so many; more are made when needed.
    pub fn new(expected: usize) -> Self {
        let (first, last) = (NONE, NONE);
        let buckets = vec![Bucket { first, last }; expected.max(2).next_power_of_two()];
        Self {
            buckets: buckets.into(),
            waiters: Vec::with_capacity(expected),
            free: Vec::with_capacity(expected),
            deadlines: BinaryHeap::with_capacity(expected),
            timed: 0,
        }
    }

    #[inline(always)]
    fn bucket(&self, key: Key) -> usize {
        // Widening; and then truncation to as many of the upper bits as there are buckets.
        let spread = (key.0 as u64).wrapping_mul(SPREAD);
        #[allow(clippy::cast_possible_truncation)]
        let index = (spread >> (64 - self.buckets.len().ilog2())) as usize;
        index
    }

    fn sleep(&mut self, task: u32, key: Option<Key>, until: Option<u64>) -> u32 {
        let free = self.free.pop();
        let at = free.unwrap_or_else(|| {
            let at = u32::try_from(self.waiters.len()).expect("fewer than 2^32 sleeps");
            self.waiters.push(Waiter {
                key: None,
                task: 0,
                previous: NONE,
                next: NONE,
                state: State::Asleep,
                timed: false,
                generation: 0,
            });
            at
        });
        if let Some(key) = key {
            self.append(at, key);
        }
        let waiter = &mut self.waiters[at as usize]; // widening, as below
        (waiter.key, waiter.task, waiter.state) = (key, task, State::Asleep);
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.timed = until.is_some();
        if let Some(until) = until {
            let deadline = (until, at, waiter.generation);
            self.timed += 1;
            self.add_deadline(deadline);
        }
        at
    }

    fn append(&mut self, at: u32, key: Key) {
        let bucket = self.bucket(key);
        let bucket = &mut self.buckets[bucket];
        let last = std::mem::replace(&mut bucket.last, at);
        match self.waiters.get_mut(last as usize) {
            Some(last) => last.next = at,
            None => bucket.first = at,
        }
        let waiter = &mut self.waiters[at as usize];
        (waiter.previous, waiter.next) = (last, NONE);
    }

    fn unlink(&mut self, at: u32) {
        let Waiter {
            key,
            previous,
            next,
            ..
        } = self.waiters[at as usize];
        let Some(key) = key else { return };
        let bucket = self.bucket(key);
        match self.waiters.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.buckets[bucket].first = next,
        }
        match self.waiters.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.buckets[bucket].last = previous,
        }
    }

    fn add_deadline(&mut self, deadline: (u64, u32, u32)) {
        if self.deadlines.len() > 2 * self.timed + 64 {
            let waiters = &self.waiters;
            self.deadlines
                .retain(|Reverse(deadline)| is_due(waiters, deadline));
        }
        self.deadlines.push(Reverse(deadline));
    }

    /// Wakes up to `at_most` sleepers on `key`, the longest asleep first, and hands their tasks to `ready`. How many.
    pub fn wakeup(&mut self, key: Key, at_most: usize, mut ready: impl FnMut(u32)) -> usize {
        let mut at = self.buckets[self.bucket(key)].first;
        let mut woken = 0;
        while woken < at_most
            && let Some(waiter) = self.waiters.get(at as usize)
        {
            let (next, task) = (waiter.next, waiter.task);
            if waiter.key == Some(key) {
                self.wake(at, Woken::ByKey);
                ready(task);
                woken += 1;
            }
            at = next;
        }
        woken
    }

    fn wake(&mut self, at: u32, why: Woken) {
        self.unlink(at);
        let waiter = &mut self.waiters[at as usize];
        waiter.state = State::Awake(why);
        self.timed -= usize::from(waiter.timed);
    }

    /// Wakes up to `at_most` whose time has come at `now`. How many.
    pub fn expire(&mut self, now: u64, at_most: usize, mut ready: impl FnMut(u32)) -> usize {
        let mut woken = 0;
        while woken < at_most && self.next_deadline().is_some_and(|next| next <= now) {
            if let Some(Reverse((_, at, _))) = self.deadlines.pop() {
                ready(self.waiters[at as usize].task);
                self.wake(at, Woken::ByTime);
                woken += 1;
            }
        }
        woken
    }

    /// When the next sleep ends by itself.
    pub fn next_deadline(&mut self) -> Option<u64> {
        while let Some(Reverse(deadline)) = self.deadlines.peek() {
            if is_due(&self.waiters, deadline) {
                return Some(deadline.0);
            }
            self.deadlines.pop();
        }
        None
    }

    /// The end of a sleep: why, and its place is free again; `None` while it sleeps, and from now on for `task`.
    fn end(&mut self, at: u32, task: u32) -> Option<Woken> {
        let waiter = &mut self.waiters[at as usize];
        if let State::Awake(why) = waiter.state {
            self.free.push(at);
            Some(why)
        } else {
            waiter.task = task;
            None
        }
    }

    /// Ends a sleep that no task waits for any more.
    fn forget(&mut self, at: u32) {
        if self.waiters[at as usize].state == State::Asleep {
            self.wake(at, Woken::ByKey);
        }
        self.free.push(at);
    }
}

/// Whether this deadline's sleep still goes on.
fn is_due(waiters: &[Waiter], &(_, at, generation): &(u64, u32, u32)) -> bool {
    let waiter = &waiters[at as usize]; // widening: u32 to usize
    waiter.generation == generation && waiter.state == State::Asleep
}

/// A sleep; it begins when it is first polled, and dropping it ends it.
pub struct TSleep<'a> {
    sleepers: &'a RefCell<Sleepers>,
    tasks: &'a Tasks,
    key: Option<Key>,
    until: Option<u64>,
    waiter: Option<u32>,
}

impl fmt::Debug for TSleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TSleep {{ {:?} }}", self.key)
    }
}

impl<'a> TSleep<'a> {
    pub(super) fn new(
        sleepers: &'a RefCell<Sleepers>,
        tasks: &'a Tasks,
        key: Option<Key>,
        until: Option<u64>,
    ) -> Self {
        let waiter = None;
        Self {
            sleepers,
            tasks,
            key,
            until,
            waiter,
        }
    }
}

impl Future for TSleep<'_> {
    type Output = Woken;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Woken> {
        let (task, mut sleepers) = (self.tasks.current(), self.sleepers.borrow_mut());
        let Some(waiter) = self.waiter else {
            let waiter = sleepers.sleep(task, self.key, self.until);
            self.waiter = Some(waiter);
            return Poll::Pending;
        };
        match sleepers.end(waiter, task) {
            Some(why) => {
                self.waiter = None;
                Poll::Ready(why)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for TSleep<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.sleepers.borrow_mut().forget(waiter);
        }
    }
}
