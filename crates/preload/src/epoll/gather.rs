//! One wait at an instance: what netchan's queue and the kernel's side have to tell, and the sleep in between.

use std::{
    cell::Cell,
    cmp::Reverse,
    io,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use libc::{epoll_event, pollfd};
use netchan::Net;

use crate::{
    errno::fail,
    process,
    state::watch::{Interest, Shared},
    wait::{self, Deadline, with_waiter},
};

/// A socket that has something to report.
struct Found {
    since: u32,
    event: (u32, u64),
}

/// What a wait reports, in the order in which it became readable.
struct Order {
    all: Vec<Found>,
    /// The wait's.
    number: u32,
    /// Those of them that lie in the queue again.
    queued_again: usize,
    /// One has text of which nothing was told yet: others may have had some before.
    is_untold: bool,
    is_sorted: bool,
}

/// Where more have something, a look for others that had some before costs more than it tells: they are not of one client that waits for an answer.
const FEW: usize = 2;

const IN: u32 = libc::EPOLLIN.cast_unsigned();

thread_local! {
    /// It keeps its capacity from wait to wait.
    static FOUND: Cell<Vec<Found>> = const { Cell::new(Vec::new()) };
}

/// Whether one that became readable at `one` is behind one of `other`; one of which that is not known is behind all.
const fn is_behind(one: u32, other: u32) -> bool {
    other != 0 && (one == 0 || one.wrapping_sub(other).cast_signed() > 0)
}

impl Order {
    fn of(number: u32) -> Self {
        let mut order = Self {
            all: FOUND.try_with(Cell::take).unwrap_or_default(),
            number,
            queued_again: 0,
            is_untold: false,
            is_sorted: true,
        };
        order.restart(number);
        order
    }

    /// Forgets what was found.
    fn restart(&mut self, number: u32) {
        self.all.clear();
        (self.number, self.queued_again) = (number, 0);
        (self.is_untold, self.is_sorted) = (false, true);
    }

    fn add(&mut self, interest: &Arc<Interest>, event: (u32, u64), since: Option<u32>) {
        self.is_untold |= since == Some(0) && event.0 & IN != 0;
        let since = since.unwrap_or(0);
        let last = self.all.last();
        self.is_sorted &= !last.is_some_and(|last| is_behind(last.since, since));
        self.queued_again += usize::from(interest.queued.load(Relaxed)); // a hint
        interest.told_by.store(self.number, Relaxed); // another wait that meets it meanwhile may report it once more, as always
        self.all.push(Found { since, event });
    }

    fn sorted(&mut self) -> &[Found] {
        if !self.is_sorted {
            // Two that are minutes apart may be taken for each other: the one or the other order will do.
            let known = self.all.iter().map(|found| found.since);
            let known = known.filter(|&since| since != 0);
            let newest = known.reduce(|one, other| if is_behind(one, other) { one } else { other });
            let age = |since: u32| match since {
                0 => 0,
                since => newest.unwrap_or(0).wrapping_sub(since),
            };
            self.all.sort_by_key(|found| Reverse(age(found.since)));
        }
        &self.all
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let all = std::mem::take(&mut self.all);
        let _ = FOUND.try_with(|found| found.set(all));
    }
}

impl Shared {
    /// Leaves in the queue what has something to say: for a look from outside, which sees only whether it is empty.
    pub fn settle(&self) {
        let rounds = self.len();
        for _ in 0..rounds {
            let Some(interest) = self.pop() else { return };
            interest.queued.store(false, SeqCst); // before the look: a wake after it queues again
            if interest.is_ready() {
                Interest::enqueue(&interest);
            }
        }
    }

    /// Moves at most `max` events of netchan's sockets to `out`, in the order in which they became readable: what is queued from the last time, and has new text
    /// meanwhile, would be ahead of others that had some before it.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain(&self, out: *mut epoll_event, max: usize) -> usize {
        let (rounds, number) = self.begin();
        let mut order = Order::of(number);
        self.look(rounds, max, &mut order); // each once: a level-triggered one queues itself again
        if order.is_untold && order.all.len() <= FEW {
            process::running().map(Net::look);
            if order.queued_again == order.all.len() {
                // All of them are still there, and it is known now which was first.
                let (rounds, number) = self.begin();
                order.restart(number);
                self.look(rounds, max, &mut order);
            }
        }
        if self.len() > order.queued_again {
            // What came with the first look was there before what that found, perhaps.
            self.look(self.len(), max, &mut order);
        }
        let found = order.sorted();
        for (n, found) in found.iter().enumerate() {
            let (events, data) = found.event;
            // SAFETY: there are at most `max`.
            unsafe { (out.wrapping_add(n)).write_unaligned(epoll_event { events, u64: data }) };
        }
        found.len()
    }

    /// Looks at the first `rounds` that are queued, until `max` are found, and at none that is found already.
    fn look(&self, rounds: usize, max: usize, order: &mut Order) {
        for _ in 0..rounds {
            if order.all.len() >= max {
                break;
            }
            let Some(interest) = self.pop() else { break };
            if interest.told_by.load(Relaxed) == order.number {
                self.push(interest);
            } else if let Some((event, since)) = Interest::collect(&interest) {
                order.add(&interest, event, since);
            }
        }
    }

    /// Everything there is at this moment. Where `sleep_follows` and there is nothing of netchan's, the kernel's side is left to the sleep, which
    /// looks at it anyway.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    pub unsafe fn gather(
        &self,
        out: *mut epoll_event,
        max: usize,
        sleep_follows: bool,
    ) -> io::Result<usize> {
        if self.kernel_first.swap(false, Relaxed) {
            // SAFETY: the caller's.
            let kernel = unsafe { self.drain_kernel(out, max) }?;
            // SAFETY: kernel <= max.
            return Ok(kernel + unsafe { self.drain(out.wrapping_add(kernel), max - kernel) });
        }
        // SAFETY: the caller's.
        let ours = unsafe { self.drain(out, max) };
        if ours == 0 && sleep_follows {
            return Ok(0);
        }
        // Those of the kernel that found no room are first the next time.
        self.kernel_first.store(ours == max, Relaxed);
        // SAFETY: ours <= max.
        Ok(ours + unsafe { self.drain_kernel(out.wrapping_add(ours), max - ours) }?)
    }

    /// In a forked child, which waits here: the sockets that are watched become the kernel's, and the parent hands them over to the kernel's instance. False:
    /// one of them cannot be shared, or the lock is held for ever.
    pub fn adopt(&self) -> bool {
        let interests = self.interests.try_lock();
        interests.is_some_and(|interests| {
            let mut all = interests.values();
            all.all(|interest| interest.adopt())
        })
    }

    /// In a forked child: tells the parent which of its sockets are watched here. Where the lock is held for ever, of none.
    pub fn tell_parent(&self) {
        let Some(interests) = self.interests.try_lock() else {
            return;
        };
        for interest in interests.values() {
            interest.tell_parent();
        }
    }

    /// Waits for something to tell, until `deadline`.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    pub unsafe fn sleep(
        &self,
        out: *mut epoll_event,
        max: usize,
        deadline: Deadline,
    ) -> io::Result<usize> {
        with_waiter(|waiter| {
            let waker = waiter.waker().clone();
            let result = loop {
                self.enter(&waker);
                // SAFETY: the caller's.
                match unsafe { self.gather(out, max, true) } {
                    Ok(0) => {}
                    result => break result,
                }
                let mut kernel = [pollfd {
                    fd: self.epfd.load(Relaxed),
                    events: libc::POLLIN,
                    revents: 0,
                }];
                // Stands for itself: a wait that has begun keeps the time that it began with.
                waiter.spin(Duration::from_micros(self.busy_poll_us.load(Relaxed)));
                waiter.expect_all(&self.shards);
                let waited = wait::for_either(waiter, &mut kernel, deadline.left());
                self.leave(&waker);
                let found = match waited {
                    // SAFETY: the caller's.
                    Ok(Some(0)) => Ok(unsafe { self.drain(out, max) }),
                    // SAFETY: the caller's.
                    _ => unsafe { self.gather(out, max, false) },
                };
                match found {
                    Ok(0) => {}
                    result => break result,
                }
                if let Err(error) = waited {
                    break Err(error);
                }
                if kernel[0].revents & libc::POLLNVAL != 0 {
                    break fail(libc::EBADF);
                }
                if deadline.passed() {
                    break Ok(0);
                }
            };
            self.leave(&waker);
            result
        })
    }
}
