//! What a mutex knows of threads: a number for each, whether it sleeps in a mutex, and the kernel's part of sleeping.

use crate::sync::AtomicU32;

#[cfg(not(loom))]
pub use here::ThreadNumber;
#[cfg(not(loom))]
pub(crate) use here::{Futex, core, may_spin, number};
#[cfg(not(loom))]
pub(super) use here::{asleep, is_asleep};
#[cfg(loom)]
pub(crate) use model::{Futex, core, may_spin};
#[cfg(loom)]
pub(super) use model::{asleep, is_asleep};

#[cfg(not(loom))]
mod here {
    use super::AtomicU32;
    use rustix::{thread::futex, time::Timespec};
    use std::{cell::Cell, num::NonZeroUsize, sync::atomic::Ordering, time::Duration};

    static NEXT: AtomicU32 = AtomicU32::new(1);

    thread_local! {
        /// 0: none yet. No destructor, so that it is there as long as the thread.
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }

    /// The calling thread's number: not 0, and no other living thread's (of fewer than 2^32 that ever locked).
    #[inline(always)]
    pub fn number() -> u32 {
        let number = NUMBER.get();
        if number == 0 { new_number() } else { number }
    }

    #[cold]
    fn new_number() -> u32 {
        crate::barrier::prepare(); // before the first unlock, which it makes cheap
        let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
        NUMBER.set(number);
        number
    }

    /// Names threads for [`ReentrantMutex`](crate::lock::ReentrantMutex).
    #[derive(Debug)]
    pub struct ThreadNumber;

    // SAFETY: no two living threads have the same number, and it is not 0.
    unsafe impl lock_api::GetThreadId for ThreadNumber {
        const INIT: Self = Self;

        #[inline]
        fn nonzero_thread_id(&self) -> NonZeroUsize {
            // Widening: u32 to usize. The minimum is never needed: numbers start at 1.
            NonZeroUsize::new(number() as usize).unwrap_or(NonZeroUsize::MIN)
        }
    }

    /// Threads asleep in a mutex, each in the place of its number's low bits. A collision spoils a hint, no more.
    static ASLEEP: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

    fn place(number: u32) -> &'static AtomicU32 {
        // Widening: u32 to usize.
        &ASLEEP[number as usize % ASLEEP.len()]
    }

    /// Whether this thread is known to sleep. A hint.
    pub fn is_asleep(number: u32) -> bool {
        number != 0 && place(number).load(Ordering::Relaxed) == number
    }

    /// Runs `sleep`, in which the calling thread, of this number, sleeps.
    pub fn asleep(number: u32, sleep: impl FnOnce()) {
        place(number).store(number, Ordering::Relaxed);
        sleep();
        place(number).store(0, Ordering::Relaxed);
    }

    /// Whether there is more than one core: if not, a thread that waits keeps the owner from running. The machine's cores, not those that
    /// the calling thread may use: it may be pinned, and the owner elsewhere.
    pub fn may_spin() -> bool {
        static CORES: AtomicU32 = AtomicU32::new(0);
        let mut cores = CORES.load(Ordering::Relaxed);
        if cores == 0 {
            // SAFETY: asks for a number.
            let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            cores = u32::try_from(online).unwrap_or(1).max(1);
            CORES.store(cores, Ordering::Relaxed);
        }
        cores > 1
    }

    /// The core that the calling thread is on, at this moment.
    #[inline]
    pub fn core() -> u32 {
        // SAFETY: reads a word that the kernel keeps for this thread.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(u32::MAX)
    }

    /// A word to sleep on.
    #[derive(Debug)]
    pub struct Futex(pub AtomicU32);

    impl Futex {
        pub const fn new() -> Self {
            Self(AtomicU32::new(0))
        }

        /// Sleeps if the word is still `expected`, not longer than `timeout`; also wakes for nothing.
        pub fn wait(&self, expected: u32, timeout: Option<Duration>) {
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            // Woken, changed, too late, or a signal: the caller looks again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, expected, timeout.as_ref());
        }

        /// Wakes one sleeper.
        pub fn wake(&self) {
            // It can only fail on an address that is not mapped.
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(loom)]
mod model {
    use super::AtomicU32;
    use loom::sync::{Condvar, Mutex, atomic::Ordering};
    use std::time::Duration;

    pub fn is_asleep(_: u32) -> bool {
        false
    }

    pub fn asleep(_: u32, sleep: impl FnOnce()) {
        sleep();
    }

    /// A model that spins is endless; what is to be shown is the sleep.
    pub fn may_spin() -> bool {
        false
    }

    /// One core: no thread spins.
    pub fn core() -> u32 {
        0
    }

    #[derive(Debug)]
    pub struct Futex(pub AtomicU32, Mutex<()>, Condvar);

    impl Futex {
        pub fn new() -> Self {
            Self(AtomicU32::new(0), Mutex::new(()), Condvar::new())
        }

        pub fn wait(&self, expected: u32, _: Option<Duration>) {
            let asleep = self.1.lock().expect("a model that panicked is over");
            if self.0.load(Ordering::Relaxed) == expected {
                drop(self.2.wait(asleep));
            }
        }

        pub fn wake(&self) {
            drop(self.1.lock());
            self.2.notify_one();
        }
    }
}
