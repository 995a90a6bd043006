//! One wait at an instance: what netchan's queue and the kernel's side have to tell, and the sleep in between.

use std::{
    io,
    sync::atomic::Ordering::{Relaxed, SeqCst},
    time::Duration,
};

use libc::{epoll_event, pollfd};

use crate::{
    errno::fail,
    state::watch::{Interest, Shared},
    wait::{self, Deadline, with_waiter},
};

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

    /// Moves at most `max` events of netchan's sockets to `out`.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain(&self, out: *mut epoll_event, max: usize) -> usize {
        let mut found = 0;
        let rounds = self.len(); // each once: a level-triggered one queues itself again
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
