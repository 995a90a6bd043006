//! Tests of the doorbell: contract, two threads, over shared memory.

use super::{AWAKE, Doorbell, Sleep, Word, socket_pair};
use crate::{clock, own::Own, sync::Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{ptr::NonNull, sync::atomic::AtomicU64, time::Duration};

fn readable(bell: &Doorbell, timeout_ms: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: timeout_ms * 1_000_000,
    };
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[test]
fn awake_costs_nothing_and_one_of_many_pays() {
    let bell = Doorbell::new().unwrap();
    assert!(!bell.ring());
    for how in [Sleep::Futex, Sleep::Fd] {
        bell.arm(how);
        assert!(bell.ring());
        assert!(!bell.ring());
        bell.disarm();
        assert!(!bell.ring());
    }
}

#[test]
fn a_ring_before_the_wait_is_not_lost_and_none_times_out() {
    let bell = Doorbell::new().unwrap();
    bell.arm(Sleep::Futex);
    bell.ring();
    assert!(bell.wait(None));
    bell.disarm();
    bell.arm(Sleep::Futex);
    let start = clock::now_ns();
    assert!(!bell.wait(Some(Duration::from_millis(5))));
    assert!(clock::now_ns() - start >= 4_900_000);
    bell.disarm();
    assert!(bell.wait(Some(Duration::MAX)), "not armed: no sleep");
}

#[test]
fn the_descriptor_is_readable_from_ring_to_disarm() {
    let bell = Doorbell::new().unwrap();
    for _ in 0..3 {
        bell.arm(Sleep::Fd);
        assert!(!readable(&bell, 0));
        bell.ring();
        assert!(readable(&bell, 0));
        bell.disarm();
        assert!(!readable(&bell, 0));
    }
    bell.arm(Sleep::Fd);
    bell.disarm();
    bell.ring();
    assert!(!readable(&bell, 0), "awake when rung");
}

#[test]
fn a_late_write_is_drained_by_the_next_disarm() {
    let bell = Doorbell::new().unwrap();
    bell.arm(Sleep::Fd);
    // A ringer, stopped half-way.
    assert_ne!(bell.word().0.swap(AWAKE, Ordering::Release), AWAKE);
    bell.disarm();
    bell.event.signal();
    bell.arm(Sleep::Fd);
    assert!(readable(&bell, 0), "spurious, once");
    bell.disarm();
    assert!(!readable(&bell, 0));
}

/// Items one by one to a sleeper that sleeps whenever it can; a lost wake-up shows as a wait that runs to its end.
fn no_lost_wake_up(bell: &Doorbell, other: &Doorbell, how: Sleep) {
    const ITEMS: u64 = 5_000;
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=ITEMS {
                sent.store(i, Ordering::Release);
                other.ring();
                if i % 7 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        while seen < ITEMS {
            bell.arm(how);
            if sent.load(Ordering::Acquire) == seen {
                let rung = match how {
                    Sleep::Futex => bell.wait(Some(Duration::from_secs(5))),
                    Sleep::Fd => readable(bell, 900),
                };
                assert!(rung, "lost at {seen}");
            }
            bell.disarm();
            seen = sent.load(Ordering::Acquire);
        }
    });
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    let bell = Doorbell::new().unwrap();
    no_lost_wake_up(&bell, &bell, Sleep::Futex);
    no_lost_wake_up(&bell, &bell, Sleep::Fd);
}

/// The two processes' views of one doorbell.
fn two_views(word: &Word) -> (Doorbell, Doorbell) {
    let (here, there) = socket_pair().unwrap();
    // SAFETY: the word outlives the views (the callers') and is only used through them and atomically.
    let sleeper = unsafe { Doorbell::from_raw(NonNull::from(word), Own::keep(here)) };
    // SAFETY: as above.
    let ringer = unsafe { Doorbell::from_raw(NonNull::from(word), Own::keep(there)) };
    (sleeper, ringer)
}

#[test]
fn no_wake_up_is_lost_between_two_views_of_a_shared_word() {
    let word = Word::default();
    let (sleeper, ringer) = two_views(&word);
    no_lost_wake_up(&sleeper, &ringer, Sleep::Futex);
    no_lost_wake_up(&sleeper, &ringer, Sleep::Fd);
}

#[test]
fn nonsense_in_a_shared_word_neither_wakes_nor_hangs() {
    let word = Word::default();
    let (sleeper, ringer) = two_views(&word);
    for nonsense in [3, u32::MAX] {
        sleeper.arm(Sleep::Futex);
        word.0.0.store(nonsense, Ordering::Relaxed);
        assert!(!ringer.ring(), "no thread to pay for");
        word.0.0.store(nonsense, Ordering::Relaxed);
        assert!(!sleeper.wait(None), "returns at once");
        sleeper.disarm();
    }
}

#[test]
fn a_peer_that_signals_without_need_or_is_gone_blocks_no_thread() {
    let word = Word::default();
    let (sleeper, ringer) = two_views(&word);
    for _ in 0..3 {
        sleeper.arm(Sleep::Fd);
        ringer.event.signal(); // without touching the word
        sleeper.disarm();
        assert!(!readable(&sleeper, 0), "drained all the same");
    }
    for _ in 0..100_000 {
        ringer.event.signal(); // more than the socket holds
    }
    sleeper.arm(Sleep::Fd);
    assert!(ringer.ring());
    sleeper.disarm();
    drop(sleeper);
    word.0.0.store(super::FD, Ordering::Relaxed);
    assert!(ringer.ring(), "no signal, no error: no thread is there");
    ringer.arm(Sleep::Fd);
    ringer.disarm();
}

/// A counter adds up, a socket has a byte for each.
#[test]
fn as_many_signals_as_there_were_are_taken() {
    let word = Word::default();
    let (sleeper, ringer) = two_views(&word);
    let bell = Doorbell::new().unwrap();
    for (from, to) in [(&bell, &bell), (&ringer, &sleeper)] {
        (0..3).for_each(|_| from.event.signal());
        assert_eq!((to.event.drain(), to.event.drain()), (3, 0));
    }
}

#[test]
fn where_no_number_is_left_there_are_those_put_aside() {
    crate::own::tests::alone("doorbell::tests::put_aside");
}

#[test]
#[ignore = "changes its process: another test runs it in one of its own"]
fn put_aside() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    super::reserve().unwrap();
    let limit = Rlimit {
        current: Some(1), // and 0 is in use; `poll` must be able to look at one
        maximum: Some(1),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut bells: Vec<_> = (0..8).map(|_| Doorbell::new().unwrap()).collect();
    assert!(Doorbell::new().is_err(), "all are in use");
    bells.pop();
    let again = Doorbell::new().unwrap();
    again.arm(Sleep::Fd);
    assert!(!readable(&again, 0) && again.ring() && readable(&again, 0));
    again.disarm();
}

/// A sleeper that stays armed over empty looks: it sees what it has to drain, and the descriptor does not stay readable.
#[test]
fn a_sleeper_that_stays_armed_is_told_of_what_it_has_to_drain() {
    let word = Word::default();
    let (sleeper, ringer) = two_views(&word);
    assert!(!sleeper.is_rung(), "not armed");
    sleeper.arm(Sleep::Fd);
    assert!(!sleeper.is_rung());
    assert!(ringer.ring());
    assert!(sleeper.is_rung() && readable(&sleeper, 0));
    sleeper.disarm();
    assert!(!sleeper.is_rung() && !readable(&sleeper, 0));
    // A ringer that was stopped half-way: what it sends late is owed, and drained.
    sleeper.arm(Sleep::Fd);
    assert_ne!(word.0.0.swap(AWAKE, Ordering::Release), AWAKE);
    assert!(sleeper.is_rung());
    sleeper.disarm();
    sleeper.arm(Sleep::Fd);
    ringer.event.signal();
    assert!(sleeper.is_rung() && readable(&sleeper, 0), "owed");
    sleeper.disarm();
    sleeper.arm(Sleep::Fd);
    assert!(!sleeper.is_rung() && !readable(&sleeper, 0));
    sleeper.disarm();
}
