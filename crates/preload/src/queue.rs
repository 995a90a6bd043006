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
};

use libc::{c_int, epoll_event};
use netchan::{own::Own, socket::Shards};
use parking_lot::Mutex;

use crate::{line::Answers, sys};

/// What interests, each of them an `I`, and waiting threads of one instance share.
pub struct Shared<I> {
    /// A number of the kernel's instance; follows when the first one is closed while a duplicate stays.
    pub epfd: AtomicI32,
    pub interests: Mutex<BTreeMap<RawFd, Arc<I>>>,
    queue: Mutex<Queue<I>>,
    /// Interests that the kernel may hold: an upper bound, the kernel drops closed ones by itself.
    pub kernel_members: AtomicUsize,
    /// A thread of this process has waited here.
    pub is_used: AtomicBool,
    /// Threads inside the kernel's epoll_wait, which does not see our queue.
    pub kernel_waiters: AtomicUsize,
    /// An eventfd inside the kernel's instance, readable while the queue is not empty: made when a call looks at
    /// the instance from outside (poll on it, another epoll around it) or must be called out of the kernel.
    bell: OnceLock<Own>,
    /// In a forked child.
    pub answers: Answers,
    /// How long a wait looks before it sleeps, in microseconds: the longest SO_BUSY_POLL among its sockets.
    pub busy_poll_us: AtomicU64,
    /// The kernel's side goes first: the last time netchan's left it no room.
    pub kernel_first: AtomicBool,
    /// Where its sockets live.
    pub shards: Shards,
}

struct Queue<I> {
    ready: VecDeque<Arc<I>>,
    /// Threads that wait for it to fill.
    sleepers: Vec<Waker>,
    /// Counts the waits that take from it; wraps.
    waits: u32,
}

impl<I> Shared<I> {
    /// What stands beside the kernel's instance `epfd`.
    pub fn new(epfd: RawFd) -> Self {
        Self {
            epfd: AtomicI32::new(epfd),
            interests: Mutex::default(),
            queue: Mutex::new(Queue {
                ready: VecDeque::new(),
                sleepers: Vec::new(),
                waits: 0,
            }),
            kernel_members: AtomicUsize::new(0),
            is_used: AtomicBool::new(false),
            kernel_waiters: AtomicUsize::new(0),
            bell: OnceLock::new(),
            answers: Answers::default(),
            busy_poll_us: AtomicU64::new(0),
            kernel_first: AtomicBool::new(false),
            shards: Shards::default(),
        }
    }

    /// One more that may have something to say: wakes one of the sleepers.
    pub fn push(&self, interest: Arc<I>) {
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

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.queue.lock().ready.len()
    }

    /// The same, for a wait that takes from it, and the wait's number.
    pub fn begin(&self) -> (usize, u32) {
        let mut queue = self.queue.lock();
        queue.waits = queue.waits.wrapping_add(1);
        (queue.ready.len(), queue.waits)
    }

    /// The next that may have something to say.
    pub fn pop(&self) -> Option<Arc<I>> {
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

    /// Moves at most `max` of the kernel's events to `out`, the bell's left out.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    pub unsafe fn drain_kernel(&self, out: *mut epoll_event, max: usize) -> io::Result<usize> {
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

    /// In a forked child, where the lock may be held for ever: whether there was anything of netchan's.
    pub fn is_rung_or_full(&self) -> bool {
        let interests = self.interests.try_lock();
        self.bell.get().is_some() || interests.is_none_or(|interests| !interests.is_empty())
    }

    /// Whether a wait has to look here: at interests, or at what a bell still rings for.
    pub fn has_ours(&self) -> bool {
        self.bell.get().is_some() || !self.interests.lock().is_empty()
    }

    /// Threads that sleep in the kernel's epoll_wait come out and wait here from now on.
    pub fn call_out(&self) {
        if self.kernel_waiters.load(SeqCst) > 0 && self.hang_bell().is_ok() {
            self.ring();
        }
    }

    /// `waker` is woken by the next that comes.
    pub fn enter(&self, waker: &Waker) {
        self.queue.lock().sleepers.push(waker.clone());
    }

    /// Takes it out again.
    pub fn leave(&self, waker: &Waker) {
        self.queue
            .lock()
            .sleepers
            .retain(|other| !other.will_wake(waker));
    }
}
