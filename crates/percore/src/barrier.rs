//! A memory barrier whose frequent side costs nothing: the rare side makes the kernel run it on every core (membarrier(2)).
//!
//! Guarantees:
//! * [`light`] and [`heavy`] order memory against each other as two `fence(SeqCst)` do: of a `light` and a `heavy` one comes first.
//!   Two `light` ones do not order anything against each other.
//! * [`light`] is wait-free: after [`prepare`] a load and a branch, and a fence only where the kernel has no membarrier.
//! * [`heavy`] is a system call of some microseconds that interrupts the cores on which this process runs now.

use crate::sync::{Ordering, fence};

/// Asks the kernel, once in a process, to make [`light`] cheap. Not needed for it to be right.
pub fn prepare() {
    #[cfg(not(loom))]
    kernel::prepare();
}

/// The frequent side.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    if kernel::is_prepared() {
        // The processor may still reorder: `heavy` makes it stop while it matters.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst); // partner: the fence in `heavy`
}

/// The rare side. False if nothing is ordered, because the kernel refuses what it granted in [`prepare`] (a system call filter that
/// came later).
#[must_use]
pub fn heavy() -> bool {
    fence(Ordering::SeqCst); // partner: the fence in `light`
    #[cfg(not(loom))]
    return kernel::heavy();
    #[cfg(loom)]
    true
}

#[cfg(not(loom))]
mod kernel {
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
    use std::sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    };

    static PREPARED: AtomicBool = AtomicBool::new(false);

    pub fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let has = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
            let register = MembarrierCommand::RegisterPrivateExpedited;
            // Relaxed: a thread that does not see it yet fences for itself.
            PREPARED.store(has && membarrier(register).is_ok(), Ordering::Relaxed);
        });
    }

    #[inline(always)]
    pub fn is_prepared() -> bool {
        PREPARED.load(Ordering::Relaxed)
    }

    pub fn heavy() -> bool {
        prepare(); // so that we know as much as a thread that takes the cheap way in `light`
        !is_prepared() || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
