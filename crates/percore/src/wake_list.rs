//! A wake list: threads that wait for something register their wakers, and a thread that brings it wakes them all, without ever waiting for one of them.
//!
//! Guarantees:
//! * No wake-up is lost: either the thread that brings something sees the waker, or the look that follows [`WakeList::register`] finds what was
//!   brought.
//! * [`WakeList::wake`] never waits: where another thread is at the list, that one wakes in its place. Without a waker it costs a fence and a load.
//! * Each wake-up takes the wakers out that it wakes.
//! * Wakers are woken while no lock of the list is held.

#[cfg(all(test, loom))]
mod loom_tests;

use std::task::Waker;

use crate::{
    sync::{AtomicUsize, Mutex, Ordering, fence},
    wake_gate::WakeGate,
};

/// The wakers of those that wait.
///
/// The waiting thread's order: [`register`](Self::register), look whether it has come, sleep, [`deregister`](Self::deregister). The other's: bring it,
/// [`wake`](Self::wake).
#[derive(Debug, Default)]
pub struct WakeList {
    /// Closed: there may be wakers.
    gate: WakeGate,
    /// 1: those in the list are to be woken, by whichever thread lets go of it next.
    due: AtomicUsize,
    list: Mutex<Vec<Waker>>,
}

impl WakeList {
    /// Has the next [`wake`](Self::wake) wake `waker`; of wakers that are equal, one stays. The caller looks once more at what it waits for.
    pub fn register(&self, waker: &Waker) {
        let mut list = lock(&self.list);
        if !list.iter().any(|other| other.will_wake(waker)) {
            list.push(waker.clone());
        }
        drop(list);
        self.gate.close(u64::MAX); // partner: `pass` in `wake`
        self.serve();
    }

    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        lock(&self.list).retain(|other| !other.will_wake(waker));
        self.serve();
    }

    /// What they wait for has come: wakes all of them.
    #[inline]
    pub fn wake(&self) {
        if self.gate.pass(0) {
            // A swap, for the models, as in the gate. AcqRel: for the same reason.
            self.due.swap(1, Ordering::AcqRel);
            self.serve();
        }
    }

    /// Wakes them if that is due. Each thread calls it after it has let go of the list: one that finds it taken leaves the work to the thread that has it.
    fn serve(&self) {
        loop {
            // Partner: this fence in another thread. Either its look at `due` comes after ours was set, or our `try_lock` after its unlock.
            fence(Ordering::SeqCst);
            if self.due.load(Ordering::Relaxed) == 0 {
                return; // ordered by the fence
            }
            let Some(mut list) = try_lock(&self.list) else {
                return;
            };
            if self.due.swap(0, Ordering::AcqRel) == 0 {
                continue; // another thread was first; its look after the unlock is ours now
            }
            let mut woken = std::mem::take(&mut *list);
            drop(list);
            woken.drain(..).for_each(Waker::wake);
            // The list keeps its memory: registering allocates nothing then.
            if let Some(mut list) = try_lock(&self.list)
                && list.capacity() == 0
            {
                *list = woken;
            }
        }
    }
}

#[cfg(not(loom))]
fn lock(list: &Mutex<Vec<Waker>>) -> std::sync::MutexGuard<'_, Vec<Waker>> {
    // A list of wakers has no broken state.
    list.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(not(loom))]
fn try_lock(list: &Mutex<Vec<Waker>>) -> Option<std::sync::MutexGuard<'_, Vec<Waker>>> {
    match list.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

#[cfg(loom)]
fn lock(list: &Mutex<Vec<Waker>>) -> loom::sync::MutexGuard<'_, Vec<Waker>> {
    list.lock().expect("a model that panicked is over")
}

#[cfg(loom)]
fn try_lock(list: &Mutex<Vec<Waker>>) -> Option<loom::sync::MutexGuard<'_, Vec<Waker>>> {
    list.try_lock().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        task::{Wake, Waker},
        thread,
    };

    use super::WakeList;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn each_registration_is_woken_once() {
        let list = WakeList::default();
        let woken: [Arc<Woken>; 2] = [Arc::default(), Arc::default()];
        let wakers = woken.clone().map(Waker::from);
        list.wake();
        list.register(&wakers[0]);
        list.register(&wakers[0]);
        list.register(&wakers[1]);
        list.wake();
        list.wake();
        assert_eq!(woken.each_ref().map(|woken| woken.0.load(SeqCst)), [1, 1]);
        list.register(&wakers[0]);
        list.register(&wakers[1]);
        list.deregister(&wakers[0]);
        list.wake();
        assert_eq!(woken.each_ref().map(|woken| woken.0.load(SeqCst)), [1, 2]);
        assert!(super::lock(&list.list).capacity() > 0, "it kept its memory");
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        const ROUNDS: usize = 20_000;
        let shared = Arc::new((WakeList::default(), AtomicUsize::new(0)));
        let bringing = shared.clone();
        let bringer = thread::spawn(move || {
            for _ in 0..ROUNDS {
                bringing.1.fetch_add(1, SeqCst);
                bringing.0.wake();
            }
        });
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while shared.1.load(SeqCst) < ROUNDS {
            let seen = shared.1.load(SeqCst);
            shared.0.register(&waker);
            // Without an end to the sleep: a wake-up that is lost hangs the test.
            if shared.1.load(SeqCst) == seen && seen < ROUNDS {
                thread::park();
            }
            shared.0.deregister(&waker);
        }
        bringer.join().unwrap();
    }
}
