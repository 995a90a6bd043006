//! N3: two halves and a flip; the exact value of one instant, while writers never wait.
//!
//! All writers add to the half that `side` names. A reader flips `side`, and then no writer begins to add to the old half; once those
//! that were in the midst of it are through, it stands still, and it held what had been counted at the instant of the flip. The other half had
//! stood still since the flip before: its sum is known from then.
//!
//! That an addition is counted is decided where it reads `side`. If one addition happens before another and the second still
//! found the old side, then the first did too: no read shows an effect without its cause, whichever slots they are in.

use crate::{
    barrier,
    sync::{AtomicU64, AtomicUsize, Mutex, Ordering, spin_loop, yield_now},
};
use crossbeam_utils::CachePadded;

/// Looks at a writer that is in the midst of an addition (a few ns) before we give it the core: it was interrupted there.
const SPINS: u32 = 100;

/// `N` counters for each of a fixed number of slots, to be read exactly.
#[derive(Debug)]
pub struct Flip<const N: usize> {
    /// The half that is written, 0 or 1. Written by readers only, so that it stays in every writer's cache.
    side: CachePadded<AtomicUsize>,
    slots: Box<[CachePadded<Slot<N>>]>,
    /// The sums of the half that stands still. Readers take turns.
    still: Mutex<[u64; N]>,
}

#[derive(Debug)]
struct Slot<const N: usize> {
    /// Additions begun and additions ended, together: odd in the midst of one.
    turn: AtomicU64,
    halves: [[AtomicU64; N]; 2],
}

impl<const N: usize> Flip<N> {
    /// Counters for `slots` writers, all zero.
    pub fn new(slots: usize) -> Self {
        barrier::prepare();
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let slot = |_| {
            CachePadded::new(Slot {
                turn: AtomicU64::new(0),
                halves: [zeros(), zeros()],
            })
        };
        Self {
            side: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..slots).map(slot).collect(),
            still: Mutex::new([0; N]),
        }
    }

    /// Adds `n` to counter `index` of `slot`. Wait-free: plain loads and stores of lines that no other writer writes. A slot must
    /// have one writer at a time (two lose counts and may hold up a reader until the next addition).
    ///
    /// # Panics
    /// If `slot` or `index` is out of range.
    #[inline]
    pub fn add(&self, slot: usize, index: usize, n: u64) {
        let slot = &self.slots[slot];
        assert!(index < N, "counter {index} of {N}"); // before the turn: a reader waits for its end
        let turn = slot.turn.load(Ordering::Relaxed); // ours
        slot.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        // Partner: the heavy one in `read`. Either it comes first, and we see the flip, or it sees that we are at it.
        barrier::light();
        let side = self.side.load(Ordering::Relaxed);
        let count = &slot.halves[side & 1][index];
        let sum = count.load(Ordering::Relaxed).wrapping_add(n);
        count.store(sum, Ordering::Relaxed);
        // pairs with Acquire in `Slot::let_finish`
        slot.turn.store(turn.wrapping_add(2), Ordering::Release);
    }

    /// All counters (wrapping at 2^64) at one instant during the call. Not wait-free: it waits for other readers and for each writer that is
    /// in the midst of an addition. Some microseconds; see [`barrier::heavy`]
    /// for what it disturbs.
    ///
    /// # Panics
    /// If the kernel refuses that barrier, which it granted when the counter was made (a system call filter that came later).
    pub fn read(&self) -> [u64; N] {
        #[cfg(not(loom))]
        let lock = self.still.lock();
        #[cfg(not(loom))]
        let mut still = lock.unwrap_or_else(std::sync::PoisonError::into_inner); // replaced as a whole, below
        #[cfg(loom)]
        let mut still = self.still.lock().expect("a model that panicked is over");
        let old = self.side.load(Ordering::Relaxed); // ours, under the lock
        self.side.store(old ^ 1, Ordering::Relaxed); // the instant; ordered by the barrier
        // Partner: the light one in `add`.
        assert!(
            barrier::heavy(),
            "the kernel refuses a membarrier that it granted"
        );
        let mut sums = [0_u64; N];
        for slot in &self.slots {
            slot.let_finish();
            for (sum, count) in sums.iter_mut().zip(&slot.halves[old & 1]) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed)); // the Acquire in `let_finish`
            }
        }
        let before = std::mem::replace(&mut *still, sums);
        std::array::from_fn(|i| before[i].wrapping_add(sums[i]))
    }
}

impl<const N: usize> Slot<N> {
    /// Waits until an addition that may have begun before the flip has ended. The next one sees the flip.
    fn let_finish(&self) {
        let turn = self.turn.load(Ordering::Acquire); // pairs with Release in `add`
        if turn.is_multiple_of(2) {
            return;
        }
        let mut spins = 0;
        // pairs with Release in `add`
        while self.turn.load(Ordering::Acquire) == turn {
            spins += 1;
            if spins < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
    }
}
