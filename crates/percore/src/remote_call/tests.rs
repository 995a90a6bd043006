//! Remote calls: which thread runs them, what becomes of panics, of late ones, of those that meet the server's end, and of a full sender.

use super::{CallSender, CallServer, Refusal, SLOTS, remote_calls};
use crate::doorbell::{Doorbell, Sleep};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

type Log = Vec<usize>;

/// Serves until told to end; what was logged.
fn serve(mut server: CallServer<Log>, bell: &Doorbell, end: &AtomicBool) -> Log {
    let mut log = Log::new();
    while !end.load(SeqCst) {
        if server.serve(&mut log) > 0 {
            continue;
        }
        bell.arm(Sleep::Futex);
        if !server.has_calls() && !end.load(SeqCst) {
            bell.wait(None);
        }
        bell.disarm();
    }
    log
}

/// Runs `work` beside a server; what was logged.
fn beside(work: impl FnOnce(&CallSender<Log>)) -> Log {
    let bell = Arc::new(Doorbell::new().unwrap());
    let (sender, server) = remote_calls(bell.clone());
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(server, &bell, &end));
        work(&sender);
        end.store(true, SeqCst);
        bell.ring();
        server.join().unwrap()
    })
}

#[test]
fn the_server_runs_it_and_the_caller_has_the_answer() {
    let here = thread::current().id();
    let log = beside(|sender| {
        assert_eq!((sender.full(), sender.waiting()), (0, 0));
        let text = String::from("seven");
        let there = sender.run(|log| {
            log.push(text.len());
            (thread::current().id(), text.len())
        });
        let (there, len) = there.map_err(|_| ()).unwrap();
        assert_ne!(there, here);
        assert_eq!(len, 5);
    });
    assert_eq!(log, [5]);
}

/// More threads than slots, each with an order of its own: nothing is lost, doubled or turned round.
#[test]
fn calls_of_many_threads_are_each_run_once_in_their_callers_order() {
    let (threads, each) = (SLOTS + 9, 200);
    let log = beside(|sender| {
        thread::scope(|scope| {
            for t in 0..threads {
                scope.spawn(move || {
                    for i in 0..each {
                        sender
                            .run(|log| log.push(t * each + i))
                            .map_err(|_| ())
                            .unwrap();
                    }
                });
            }
        });
    });
    assert_eq!(log.len(), threads * each);
    for t in 0..threads {
        let own = log.iter().filter(|&&n| n / each == t).copied();
        assert!(own.eq(t * each..(t + 1) * each), "thread {t}");
    }
}

#[test]
fn a_panic_is_the_callers() {
    beside(|sender| {
        let panic = || {
            sender
                .run(|_| panic!("planted: a call panics"))
                .map_err(|_| ())
        };
        let caught = catch_unwind(AssertUnwindSafe(panic));
        assert!(caught.is_err());
        assert!(
            sender.run(|_| 7).is_ok_and(|answer| answer == 7),
            "the server goes on"
        );
    });
}

/// No thread serves: what waits is given back when the server ends, and what comes later at once.
#[test]
fn the_servers_end_gives_everything_back() {
    let (sender, server) = remote_calls::<Log>(Arc::new(Doorbell::new().unwrap()));
    let back = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..SLOTS + 5 {
            let (sender, back) = (&sender, &back);
            scope.spawn(move || {
                let call = move |_: &mut Log| n;
                let given_back = sender.run(call).map_err(|call| call(&mut Log::new()));
                assert_eq!(given_back, Err(n), "the very same call");
                back.fetch_add(1, SeqCst);
            });
        }
        // All slots taken, and a caller without one.
        while sender.waiting() < SLOTS || sender.full() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(back.load(SeqCst), 0);
        drop(server);
    });
    assert_eq!(back.load(SeqCst), SLOTS + 5);
    assert!(sender.run(|_| ()).is_err());
    assert_eq!(sender.waiting(), 0);
}

/// The server unwinds: its end is an end like any other.
#[test]
fn a_server_that_panics_leaves_no_caller_waiting() {
    let bell = Arc::new(Doorbell::new().unwrap());
    let (sender, server) = remote_calls::<Log>(bell);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.run(|_| ()).is_err());
        while sender.waiting() == 0 {
            thread::yield_now();
        }
        let end = scope.spawn(move || {
            let _server = server;
            panic!("planted: the server panics");
        });
        assert!(end.join().is_err());
        assert!(waiting.join().unwrap());
    });
}

/// Taken back when it was not begun in time; the slot can be used again, and the server does not stumble over what is left of it.
#[test]
fn a_late_call_is_taken_back() {
    let (sender, mut server) = remote_calls::<Log>(Arc::new(Doorbell::new().unwrap()));
    for _ in 0..3 * SLOTS {
        let late = sender.run_within(|log| log.push(1), Duration::from_micros(100));
        assert!(late.is_err_and(|(why, _)| why == Refusal::Late));
    }
    let mut log = Log::new();
    assert_eq!(server.serve(&mut log), 0);
    assert!(log.is_empty());
    let answer = thread::scope(|scope| {
        let caller = scope.spawn(|| sender.run_within(|_| 5, Duration::from_secs(60)).is_ok());
        while server.serve(&mut log) == 0 {
            thread::yield_now();
        }
        caller.join().unwrap()
    });
    assert!(answer);
}

/// What was begun in time is waited for, also by one that fell asleep before and whose time is over meanwhile.
#[test]
fn a_call_that_was_begun_is_waited_for() {
    let (sender, mut server) = remote_calls::<Log>(Arc::new(Doorbell::new().unwrap()));
    assert!(!server.has_calls());
    let begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let call = |_: &mut Log| {
                begun.store(true, SeqCst);
                thread::sleep(Duration::from_millis(60));
                7
            };
            sender
                .run_within(call, Duration::from_millis(30))
                .map_err(|_| ())
        });
        while !server.has_calls() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5)); // the caller sleeps by now
        server.serve(&mut Log::new());
        // A machine that was busy for all that time may have taken it back before.
        let expected = if begun.load(SeqCst) { Ok(7) } else { Err(()) };
        assert_eq!(caller.join().unwrap(), expected);
    });
    assert!(!server.has_calls());
}

/// Two threads that begin to look for a slot in the same place, at the first: each has its own.
#[test]
fn threads_that_look_in_the_same_place_first() {
    let (sender, server) = remote_calls::<Log>(Arc::new(Doorbell::new().unwrap()));
    let posts = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..100 * SLOTS {
            if posts.load(SeqCst) == 2 {
                break;
            }
            let (mark, marked) = std::sync::mpsc::channel();
            let (sender, posts) = (&sender, &posts);
            scope.spawn(move || {
                let is_first = super::hint() == 0;
                posts.fetch_add(usize::from(is_first), SeqCst);
                mark.send(()).unwrap();
                if is_first {
                    assert!(sender.run(|_| ()).is_err());
                }
            });
            marked.recv().unwrap();
        }
        assert_eq!(posts.load(SeqCst), 2);
        while sender.waiting() < 2 && sender.full() == 0 {
            thread::yield_now();
        }
        assert_eq!((sender.waiting(), sender.full()), (2, 0));
        drop(server);
    });
}
