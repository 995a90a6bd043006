//! Doorbells on which one thread sleeps at once: futex_waitv(2), Linux 5.16.
//!
//! A sleep on words costs a sleeper one call and a ringer one, where descriptors take three; but a word does not tell that the process is gone which would
//! ring. A sleeper that has to know wakes after a while, and goes on with descriptors.
//!
//! A seccomp filter that does not know the call may end the process for it. So it is made only where [`look`] found no filter, and nothing said since that
//! there will be one ([`forbid`]).

use super::{Deadline, Doorbell, FUTEX, Scope, Woken};
use crate::sync::Ordering;
use rustix::{
    io::Errno,
    thread::{
        ClockId,
        futex::{Wait, WaitFlags, WaitPtr, WaitvFlags, waitv},
    },
};
use std::{fs, ptr, sync::atomic::AtomicU8, time::Duration};

/// Doorbells of one sleep.
const MOST: usize = 16;

const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const NOT_THERE: u8 = 2;

/// Nothing is published by it: every access is relaxed.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Finds out whether the kernel has the call, and lets this process make it.
pub fn look() {
    if STATE.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_free = status.lines().any(|line| line == "Seccomp:\t0");
    // Of no word at all: EINVAL where the call is known.
    let is_known =
        || waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) == Err(Errno::INVAL);
    let found = if is_free && is_known() {
        THERE
    } else {
        NOT_THERE
    };
    // Not over a word of `forbid`'s.
    let _ = STATE.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed);
}

/// The process is about to confine itself.
pub fn forbid() {
    STATE.store(NOT_THERE, Ordering::Relaxed);
}

/// Whether threads may sleep on several doorbells; false before [`look`].
pub fn are_there() -> bool {
    STATE.load(Ordering::Relaxed) == THERE
}

/// The doorbells of a sleep, each of them armed with [`Sleep::Futex`](super::Sleep::Futex).
#[derive(Debug, Default)]
pub struct Several {
    /// Where their words lie, and whether in memory of this process's own.
    words: [(usize, bool); MOST],
    used: usize,
}

impl Several {
    /// None yet.
    pub const fn clear(&mut self) {
        self.used = 0;
    }

    /// One more; false: there are 16.
    pub fn add(&mut self, bell: &Doorbell) -> bool {
        let Some(place) = self.words.get_mut(self.used) else {
            return false;
        };
        let word = bell.word.as_ptr().expose_provenance();
        *place = (word, bell.scope == Scope::Private);
        self.used += 1;
        true
    }

    /// Sleeps until one of them is rung, or until `timeout` has passed; at once if one was rung since it was armed. A doorbell whose memory is gone counts as
    /// rung.
    pub fn sleep(&self, timeout: Option<Duration>) -> Woken {
        crate::witness::sleeping("doorbells");
        let deadline = timeout.and_then(Deadline::after);
        let mut waits = [Wait::new(); MOST];
        for (wait, &(word, is_private)) in waits.iter_mut().zip(&self.words) {
            wait.val = FUTEX.into();
            wait.uaddr = WaitPtr::new(ptr::with_exposed_provenance_mut(word));
            wait.flags = WaitFlags::SIZE_U32;
            wait.flags.set(WaitFlags::PRIVATE, is_private);
        }
        let until = deadline.as_ref().map(Deadline::moment);
        let waits = waits.get(..self.used).unwrap_or_default();
        match waitv(waits, WaitvFlags::empty(), until, ClockId::Monotonic) {
            Ok(_) | Err(Errno::AGAIN | Errno::FAULT) => Woken::Rung,
            Err(Errno::INTR) => Woken::Interrupted,
            Err(Errno::TIMEDOUT) => Woken::TimedOut,
            Err(_) => {
                forbid();
                Woken::TimedOut
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Sleep;

    #[test]
    fn any_of_several_wakes() {
        let bells = [(); MOST + 1].map(|()| Doorbell::new().unwrap());
        let mut several = Several::default();
        for _ in 0..2 {
            several.clear();
            let added = bells.iter().filter(|bell| several.add(bell)).count();
            assert_eq!(added, MOST);
        }
        let arm = || bells.iter().for_each(|bell| bell.arm(Sleep::Futex));
        let disarm = || bells.iter().for_each(Doorbell::disarm);
        arm();
        let short = Some(Duration::from_millis(5));
        assert_eq!(several.sleep(short), Woken::TimedOut);
        bells[MOST].ring();
        assert_eq!(several.sleep(short), Woken::TimedOut, "not one of them");
        disarm();
        for rung in [0, 7, MOST - 1] {
            arm();
            bells[rung].ring();
            assert_eq!(several.sleep(None), Woken::Rung, "before the sleep");
            disarm();
            arm();
            std::thread::scope(|scope| {
                let ringer = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    bells[rung].ring()
                });
                assert_eq!(several.sleep(None), Woken::Rung);
                assert!(ringer.join().unwrap(), "that took a call");
            });
            disarm();
        }
    }

    #[test]
    fn memory_that_is_gone_wakes() {
        let mut several = Several::default();
        let bell = Doorbell::new().unwrap();
        bell.arm(Sleep::Futex);
        several.add(&bell);
        several.words[0].0 = 8;
        assert_eq!(several.sleep(None), Woken::Rung);
    }
}
