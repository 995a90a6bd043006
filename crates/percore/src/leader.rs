//! Leader and followers: of several threads that wait for the same sources (descriptors of links), one polls them for all, the *leader*; it is
//! a thread that waits anyway. *Background pollers*, one for each source, poll while no thread waits.
//!
//! A leader that leaves (it has something to do now) is *away*: the sources stay its own for a while, as it will mostly be back at once, and telling a
//! background poller and taking the sources back would cost two wake-ups. A background poller that finds the leader away for a whole *interval*
//! takes the sources over.
//!
//! Guarantees:
//! * At most one thread leads.
//! * No source is left without a poll for longer than two intervals after the leader has left, whatever the order of events, if all keep theirs (see
//!   [`Leader`]). Threads that poll while the leader is away say so ([`Leader::polled`]).
//! * While a leader waits and nothing happens, the background pollers sleep without a limit; while no thread has led for an interval, they poll as
//!   if there were no leader.
//! * [`Leader::is_led`] is one load.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicU32, Ordering, fence};

/// No thread leads, nor has for a while.
const BACKGROUND: u32 = 0;
/// A leader polls.
const PRESENT: u32 = 1;
/// The leader has left, and may be back.
const AWAY: u32 = 2;

/// Which thread polls.
///
/// A leader's order: [`lead`](Self::lead); if that says so, ring the background pollers' bells; poll; [`leave`](Self::leave); if that says so, ring them.
/// A background poller's order: arm its bell, [`rest`](Self::rest), sleep as that says, disarm.
#[derive(Debug)]
pub struct Leader {
    state: AtomicU32,
    /// How often a thread has led, or polled in the place of a leader that was away.
    terms: AtomicU32,
    /// Not 0: a background poller sleeps without a limit, and is to be told when the leader leaves.
    has_sleeper: AtomicU32,
}

impl Default for Leader {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(BACKGROUND),
            terms: AtomicU32::new(0),
            has_sleeper: AtomicU32::new(0),
        }
    }
}

/// How a thread came to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Led {
    /// The last leader was away. No other thread has to know.
    Again,
    /// The background pollers poll: they have to be told.
    Anew,
}

/// What a background poller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Poll its source.
    Poll,
    /// Poll its source, and ring the others' bells: it has just taken the sources over.
    TakeOver,
    /// Sleep for an interval, or until its bell is rung.
    Interval,
    /// Sleep until its bell is rung.
    Sleep,
}

impl Leader {
    /// Makes the calling thread the leader; `None` if there is one.
    pub fn lead(&self) -> Option<Led> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let led = match self.state.compare_exchange(AWAY, PRESENT, success, failure) {
            Ok(_) => Led::Again,
            Err(PRESENT) => return None,
            Err(_) => {
                (self.state)
                    .compare_exchange(BACKGROUND, PRESENT, success, failure)
                    .ok()?;
                Led::Anew
            }
        };
        self.polled();
        Some(led)
    }

    /// The calling thread polls the sources, as the leader or while that is away: the background pollers give it an interval from now on.
    #[inline]
    pub fn polled(&self) {
        // Relaxed, and no atomic addition: of polls at the same time one may be missed, and one that is seen late counts later. Then the background
        // pollers take over an interval too early or too late, which costs wake-ups and loses nothing.
        let terms = self.terms.load(Ordering::Relaxed);
        self.terms.store(terms.wrapping_add(1), Ordering::Relaxed);
    }

    /// The leader leaves. Whether the background pollers' bells have to be rung.
    pub fn leave(&self) -> bool {
        // Release: pairs with Acquire in `is_led`.
        self.state.store(AWAY, Ordering::Release);
        // Partner: the fence in `rest`. Either this sees the sleeper, or the sleeper sees the state.
        fence(Ordering::SeqCst);
        self.has_sleeper.load(Ordering::Relaxed) != 0
            && self.has_sleeper.swap(0, Ordering::Relaxed) != 0
    }

    /// Whether the background pollers leave the sources alone.
    #[inline]
    pub fn is_led(&self) -> bool {
        // Acquire: what the thread did that led before is seen.
        self.state.load(Ordering::Acquire) != BACKGROUND
    }

    /// Whether a leader has left and may be back: no thread polls at the moment.
    #[inline]
    pub fn is_away(&self) -> bool {
        // Relaxed: a hint.
        self.state.load(Ordering::Relaxed) == AWAY
    }

    /// For a background poller, after it has armed its bell; `seen` is its own, and kept from call to call.
    pub fn rest(&self, seen: &mut u32) -> Rest {
        // The fence in the bell's `arm` came before: a thread that has become the leader since then rings.
        let state = self.state.load(Ordering::Acquire);
        if state == BACKGROUND {
            return Rest::Poll;
        }
        let terms = self.terms.load(Ordering::Relaxed);
        if *seen != terms {
            *seen = terms;
            return Rest::Interval;
        }
        // Nothing has happened for an interval.
        if state == AWAY {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            let taken = (self.state).compare_exchange(AWAY, BACKGROUND, success, failure);
            return match taken {
                Ok(_) => Rest::TakeOver,
                Err(BACKGROUND) => Rest::Poll,
                Err(_) => Rest::Interval,
            };
        }
        self.has_sleeper.store(1, Ordering::Relaxed);
        // Partner: the fence in `leave`. Between that and the second look at the state.
        fence(Ordering::SeqCst);
        match self.state.load(Ordering::Acquire) {
            PRESENT => {
                // One that is told gives the leader an interval from then on.
                *seen = terms.wrapping_sub(1);
                Rest::Sleep
            }
            BACKGROUND => Rest::Poll,
            _ => Rest::Interval,
        }
    }
}
