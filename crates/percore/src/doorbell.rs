//! The doorbell: one wake-up for many items; the side that is awake costs no system call.
//!
//! Guarantees:
//! * [`Doorbell::ring`] is wait-free and makes a system call only when it ends a sleep. Of all that ring during one sleep exactly
//!   one pays: the one that changes the word from asleep to awake.
//! * No wake-up is lost if both sides keep their order (see [`Doorbell`]).
//! * Wake-ups may be spurious: [`Doorbell::wait`] ends early for a signal, and [`Doorbell::fd`] may be readable once more if
//!   the sleeper gave up at the very moment it was rung. Look at the queues, then sleep again.
//! * Over foreign memory ([`Doorbell::from_raw`]) a hostile other side can wake this one for nothing or not at all; nothing else.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
pub mod several;
#[cfg(not(loom))]
mod sys;
#[cfg(loom)]
#[path = "doorbell/sys_loom.rs"]
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
use crate::own::Own;
use crate::{
    operations::{Operation, count},
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};
use crossbeam_utils::CachePadded;
#[cfg(not(loom))]
use std::os::fd::BorrowedFd;
use std::{fmt, io, ptr::NonNull, time::Duration};
use sys::{Deadline, Event, Futex};
#[cfg(not(loom))]
pub use sys::{ForFork, begin_anew, held_for_fork, reserve, socket_pair};

/// Why a sleep on a futex ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The bell was rung, now or before.
    Rung,
    /// The time was over.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// How a sleeper sleeps, so that the ringer knows how to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// In [`Doorbell::wait`] (a futex).
    Futex,
    /// In poll(2) or the like on [`Doorbell::fd`].
    Fd,
}

/// Where the other side may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// In this process.
    Private,
    /// In any process that has mapped the word.
    Shared,
}

const AWAKE: u32 = 0;
const FUTEX: u32 = 1;
const FD: u32 = 2;

/// The state that both sides see: whether and how the sleeper sleeps. All zero is awake.
///
/// May be placed in shared memory; see [`Doorbell::from_raw`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Word(Futex);

/// One sleeper, any number of ringers. (Another thread may become the sleeper between a `disarm` and an `arm`, if it was told so by
/// something that synchronises: a lock, a join.)
///
/// The sleeper's order: [`arm`](Self::arm), look at its queues *again*, sleep only if they are empty, [`disarm`](Self::disarm).
/// The ringer's order: publish the item, [`ring`](Self::ring). Then no wake-up is lost: of the two fences, in `arm` and in `ring`,
/// one comes first. If the ringer's, the sleeper's second look finds the item; if the sleeper's, the ringer finds it asleep.
pub struct Doorbell {
    word: NonNull<Word>,
    scope: Scope,
    event: Event,
    sleeper: CachePadded<Sleeper>,
    /// The word, where it is ours; named by `word` only.
    _own: Option<OwnWord>,
}

/// What only the sleeper reads and writes. Atomics because the doorbell is shared, Relaxed because this is not.
#[derive(Debug)]
struct Sleeper {
    armed: AtomicU32,
    /// Wake-ups through the eventfd that were begun and not yet drained.
    owed: AtomicU64,
}

struct OwnWord(NonNull<CachePadded<Word>>);

impl Drop for OwnWord {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` in `Doorbell::new`; the doorbell that used it is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the word is atomic, lives as long as the doorbell and is not tied to a thread.
unsafe impl Send for Doorbell {}
// SAFETY: as above; everything else inside is `Sync`.
unsafe impl Sync for Doorbell {}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.word().0.load(Ordering::Relaxed) {
            AWAKE => "awake",
            FUTEX => "asleep in a futex",
            FD => "asleep on a file descriptor",
            _ => "corrupt",
        };
        write!(f, "Doorbell {{ {state}, {:?} }}", self.scope)
    }
}

impl Doorbell {
    /// A doorbell whose sleeper is awake.
    ///
    /// # Errors
    /// As eventfd(2): too many open files, or out of memory.
    pub fn new() -> io::Result<Self> {
        let event = Event::new()?;
        let own = NonNull::from(Box::leak(Box::default()));
        let own = OwnWord(own);
        let word = own.0.cast(); // the padding comes behind
        Ok(Self::over(word, Scope::Private, event, Some(own)))
    }

    fn over(word: NonNull<Word>, scope: Scope, event: Event, own: Option<OwnWord>) -> Self {
        let sleeper = Sleeper {
            armed: AtomicU32::new(AWAKE),
            owed: AtomicU64::new(0),
        };
        Self {
            word,
            scope,
            event,
            sleeper: CachePadded::new(sleeper),
            _own: own,
        }
    }

    /// One process's view of a doorbell in shared memory. Each process makes its own; in one of them it is slept on, in the
    /// others rung. `socket` is this process's end of a stream socket pair ([`socket_pair`]), whose other end the other process has:
    /// a wake-up is a byte sent over it. It is also [`fd`](Self::fd); at end of file (the other process is gone) that stays readable,
    /// so the sleeper should ask poll(2) for hang-ups. One pair does for two doorbells, one in each direction.
    ///
    /// # Safety
    /// `word` is valid until this doorbell is dropped, was zero when the first view was made, and is written by Rust code in
    /// this process only through such a view.
    #[cfg(not(loom))]
    pub unsafe fn from_raw(word: NonNull<Word>, socket: Own) -> Self {
        Self::over(word, Scope::Shared, Event::Socket(socket), None)
    }

    #[inline(always)]
    fn word(&self) -> &Futex {
        // SAFETY: valid as long as this doorbell: it is our own, or `from_raw`'s promise. Only an atomic inside.
        let word = unsafe { self.word.as_ref() };
        &word.0
    }

    /// Wakes the sleeper if it sleeps; true if that took a system call. At most one ringer pays for one sleep.
    #[inline]
    pub fn ring(&self) -> bool {
        count(Operation::Ring, 1);
        // Partner: the fence in `arm`. Between the caller's item and our look at the word.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it; that the sleeper is awake tells us nothing more.
        self.word().0.load(Ordering::Relaxed) != AWAKE && self.wake()
    }

    #[cold]
    fn wake(&self) -> bool {
        count(Operation::Rmw, 1);
        count(Operation::Line, 1);
        // Release pairs with Acquire in `wait` and `disarm`: a thread that finds itself rung also finds the item.
        match self.word().0.swap(AWAKE, Ordering::Release) {
            FUTEX => self.word().wake(self.scope),
            FD => self.event.signal(),
            _ => return false, // another ringer was first, or the sleeper woke by itself, or the word is nonsense
        }
        true
    }

    /// Announces that the caller is about to sleep. For the one sleeper only.
    #[inline]
    pub fn arm(&self, how: Sleep) {
        let state = match how {
            Sleep::Futex => FUTEX,
            Sleep::Fd => FD,
        };
        self.sleeper.armed.store(state, Ordering::Relaxed);
        self.word().announce(state);
        // Partner: the fence in `ring`. Between the word and the caller's second look at its queues.
        fence(Ordering::SeqCst);
    }

    /// The caller is awake again. Drains [`fd`](Self::fd) where it was rung. For the one sleeper only; without effect if it is not armed.
    pub fn disarm(&self) {
        let armed = self.sleeper.armed.load(Ordering::Relaxed);
        if armed == AWAKE {
            return;
        }
        self.sleeper.armed.store(AWAKE, Ordering::Relaxed);
        count(Operation::Rmw, 1);
        // pairs with Release in `wake`
        let rung = self.word().0.swap(AWAKE, Ordering::Acquire) == AWAKE;
        if armed == FD {
            self.drain(rung);
        }
    }

    /// Whether [`disarm`](Self::disarm) would find a wake-up: one was begun since [`arm`](Self::arm), or one of before is still owed. A sleeper that stays
    /// armed while it looks at its queues asks this, so that [`fd`](Self::fd) does not stay readable. For the one sleeper only; no system call.
    pub fn is_rung(&self) -> bool {
        let armed = self.sleeper.armed.load(Ordering::Relaxed);
        if armed == AWAKE {
            return false;
        }
        // pairs with Release in `wake`
        let state = self.word().0.load(Ordering::Acquire);
        state != armed || self.sleeper.owed.load(Ordering::Relaxed) > 0
    }

    /// Takes the wake-ups out of the eventfd. A ringer may have changed the word and not yet written: that one is owed, and
    /// drained the next time. An untrusted peer may write without owing: there we always look.
    fn drain(&self, rung: bool) {
        let owed = self.sleeper.owed.load(Ordering::Relaxed);
        let owed = owed.saturating_add(u64::from(rung));
        if owed > 0 || self.scope == Scope::Shared {
            let came = self.event.drain();
            let owed = owed.saturating_sub(came);
            self.sleeper.owed.store(owed, Ordering::Relaxed);
        }
    }

    /// Sleeps until rung or until `timeout` has passed (`None`: no limit); call after `arm(Sleep::Futex)`. True if rung, at
    /// once if not armed; false after `timeout`, and when a signal handler ran.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.sleep(timeout) == Woken::Rung
    }

    /// As [`wait`](Self::wait), for callers that have to know of a signal.
    pub fn sleep(&self, timeout: Option<Duration>) -> Woken {
        crate::witness::sleeping("a doorbell");
        let deadline = timeout.and_then(Deadline::after);
        let word = self.word();
        let mut ended = None;
        loop {
            let state = word.0.load(Ordering::Acquire); // pairs with Release in `wake`
            if state == AWAKE {
                return Woken::Rung;
            }
            if state != FUTEX {
                return Woken::TimedOut; // armed for another kind of sleep
            }
            if let Some(ended) = ended {
                return ended;
            }
            // A waker of an earlier sleep may be late: then the word still says asleep, and we sleep on.
            ended = word.wait(FUTEX, deadline.as_ref(), self.scope);
        }
    }

    /// Readable once rung while armed with [`Sleep::Fd`], until [`disarm`](Self::disarm).
    #[cfg(not(loom))]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    /// Waits as poll(2) on [`fd`](Self::fd) does.
    #[cfg(loom)]
    pub fn poll(&self) {
        self.event.poll();
    }
}
