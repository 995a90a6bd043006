//! What the interests and the waiting threads of one epoll instance share: the queue of what may be ready.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::Duration,
};

use libc::{c_int, epoll_event, pollfd};
use netchan::own::Own;
use parking_lot::Mutex;

use super::interest::Interest;
use crate::{
    driver,
    errno::fail,
    forked::Answers,
    sys,
    wait::{Deadline, with_waiter},
};

/// What interests and waiting threads of one instance share.
pub struct Shared {
    /// A number of the kernel's instance; follows when the first one is closed while a duplicate stays.
    pub epfd: AtomicI32,
    pub interests: Mutex<BTreeMap<RawFd, Arc<Interest>>>,
    queue: Mutex<Queue>,
    /// Interests that the kernel may hold: an upper bound, the kernel drops closed ones by itself.
    pub kernel_members: AtomicUsize,
    /// A thread of this process has waited here.
    pub is_used: AtomicBool,
    /// Threads inside the kernel's epoll_wait, which does not see our queue.
    pub kernel_waiters: AtomicUsize,
    /// An eventfd inside the kernel's instance, readable while the queue is not empty: made when somebody looks at
    /// the instance from outside (poll on it, another epoll around it) or must be called out of the kernel.
    bell: OnceLock<Own>,
    /// In a forked child.
    pub answers: Answers,
    /// How long a wait looks before it sleeps, in microseconds: the longest SO_BUSY_POLL among its sockets.
    busy_poll_us: AtomicU64,
    /// The kernel's side goes first: the last time netchan's left it no room.
    kernel_first: AtomicBool,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Interest>>,
    /// Threads that wait for it to fill.
    sleepers: Vec<Waker>,
}

impl Shared {
    /// What stands beside the kernel's instance `epfd`.
    pub fn new(epfd: RawFd) -> Self {
        Self {
            epfd: AtomicI32::new(epfd),
            interests: Mutex::default(),
            queue: Mutex::default(),
            kernel_members: AtomicUsize::new(0),
            is_used: AtomicBool::new(false),
            kernel_waiters: AtomicUsize::new(0),
            bell: OnceLock::new(),
            answers: Answers::default(),
            busy_poll_us: AtomicU64::new(0),
            kernel_first: AtomicBool::new(false),
        }
    }

    /// One more that may have something to say: wakes one of those who wait.
    pub fn push(&self, interest: Arc<Interest>) {
        let sleeper = {
            let mut queue = self.queue.lock();
            queue.ready.push_back(interest);
            if queue.ready.len() == 1 {
                self.ring(); // under the lock: silence follows the queue
            }
            queue.sleepers.pop()
        };
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            sys::eventfd_signal(bell);
        }
    }

    fn pop(&self) -> Option<Arc<Interest>> {
        let mut queue = self.queue.lock();
        let next = queue.ready.pop_front();
        if queue.ready.is_empty()
            && let Some(bell) = self.bell.get().filter(|_| next.is_some())
        {
            sys::eventfd_clear(bell);
        }
        next
    }

    /// What a bell's event carries: no address that a program could use for its own data.
    fn bell_data(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    /// Makes the queue visible to the kernel's instance.
    pub fn hang_bell(&self) -> io::Result<()> {
        let queue = self.queue.lock();
        if self.bell.get().is_some() {
            return Ok(());
        }
        let bell = sys::eventfd()?;
        let event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: self.bell_data(),
        };
        let epfd = self.epfd.load(Relaxed);
        sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), Some(event))?;
        let bell = self.bell.get_or_init(|| bell); // the lock makes us the only one
        if !queue.ready.is_empty() {
            sys::eventfd_signal(bell);
        }
        Ok(())
    }

    /// Leaves in the queue what has something to say: for those who look from outside, and see only whether it is empty.
    pub fn settle(&self) {
        let rounds = self.queue.lock().ready.len();
        for _ in 0..rounds {
            let Some(interest) = self.pop() else { return };
            interest.queued.store(false, SeqCst); // before the look: whoever wakes after it queues again
            if interest.is_ready() {
                Interest::enqueue(&interest);
            }
        }
    }

    /// Moves at most `max` events of netchan's sockets to `out`.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain(&self, out: *mut epoll_event, max: usize) -> usize {
        let mut found = 0;
        let rounds = self.queue.lock().ready.len(); // each once: a level-triggered one queues itself again
        for _ in 0..rounds {
            if found == max {
                break;
            }
            let Some(interest) = self.pop() else { break };
            if let Some((events, data)) = Interest::collect(&interest) {
                let place = out.wrapping_add(found);
                // SAFETY: found < max.
                unsafe { place.write_unaligned(epoll_event { events, u64: data }) };
                found += 1;
            }
        }
        found
    }

    /// Moves at most `max` of the kernel's events to `out`, the bell's left out.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain_kernel(&self, out: *mut epoll_event, max: usize) -> io::Result<usize> {
        let room = c_int::try_from(max).unwrap_or(c_int::MAX);
        if room == 0 || (self.kernel_members.load(Relaxed) == 0 && self.bell.get().is_none()) {
            return Ok(0);
        }
        // SAFETY: the caller's.
        let count = unsafe { sys::epoll_poll(self.epfd.load(Relaxed), out, room) }?;
        // SAFETY: `count` entries were written.
        Ok(unsafe { self.without_bell(out, count) })
    }

    /// Removes the bell's event from `count` events.
    ///
    /// # Safety
    /// `out` must hold `count` entries.
    pub unsafe fn without_bell(&self, out: *mut epoll_event, count: usize) -> usize {
        if self.bell.get().is_none() {
            return count;
        }
        let mut kept = 0;
        for at in 0..count {
            // SAFETY: at < count.
            let event = unsafe { out.wrapping_add(at).read_unaligned() };
            if event.u64 == self.bell_data() {
                continue;
            }
            // SAFETY: kept <= at.
            unsafe { out.wrapping_add(kept).write_unaligned(event) };
            kept += 1;
        }
        kept
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

    /// A socket came or went that asks for a look before the sleep, or asks for another one.
    pub fn busy_poll_changed(&self) {
        let interests = self.interests.lock();
        let asked = interests
            .values()
            .filter_map(|interest| interest.busy_poll());
        let longest = asked.max().unwrap_or(Duration::ZERO);
        let us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        self.busy_poll_us.store(us, Relaxed);
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

    /// In a forked child, where the lock may be held for ever: whether there was anything of netchan's.
    pub fn is_rung_or_full(&self) -> bool {
        let interests = self.interests.try_lock();
        self.bell.get().is_some() || interests.is_none_or(|interests| !interests.is_empty())
    }

    /// Whether a wait has to look here: at interests, or at what a bell still rings for.
    pub fn has_ours(&self) -> bool {
        self.bell.get().is_some() || !self.interests.lock().is_empty()
    }
}

impl Shared {
    /// Threads that sleep in the kernel's epoll_wait come out and wait here from now on.
    pub fn call_out(&self) {
        if self.kernel_waiters.load(SeqCst) > 0 && self.hang_bell().is_ok() {
            self.ring();
        }
    }
}

impl Shared {
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
                self.queue.lock().sleepers.push(waker.clone());
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
                let waited = driver::wait_for_either(waiter, &mut kernel, deadline.left());
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

    fn leave(&self, waker: &Waker) {
        self.queue
            .lock()
            .sleepers
            .retain(|other| !other.will_wake(waker));
    }
}
