//! The scheduler under loom: cores that sleep at every opportunity, and no wake-up that is lost (a lost one is a deadlock, which loom reports).
//! What goes on inside one core is one thread's; what is modelled is how cores wake each other and are woken by other threads, and the end.

use super::{Core, CoreLoop, Idle, Key, Settings, Watch, machine};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use loom::thread;
use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

const KEY: Key = Key::new(7);

fn small(cores: usize) -> (Vec<CoreLoop<u32>>, Watch) {
    let settings = Settings {
        idle: Idle::Sleep,
        tasks_max: 2,
        messages_max: 1,
        ..Settings::default()
    };
    machine(cores, &settings).unwrap()
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2); // a core is long, and there are two
    builder.check(f);
}

fn spawn(core: &Core<u32>, task: impl Future<Output = ()> + 'static) {
    assert!(core.spawn(&"model", task).is_ok());
}

/// The sleeper looks at a condition first; the waker sets it first.
#[test]
fn a_wake_up_from_another_core() {
    model(|| {
        let (mut loops, _watch) = small(2);
        let (second, first) = (loops.pop().unwrap(), loops.pop().unwrap());
        let condition = Arc::new(AtomicUsize::new(0));
        let set = condition.clone();
        let other = thread::spawn(move || {
            let start = move |core: &Core<u32>| {
                let waker = core.clone();
                spawn(core, async move {
                    set.store(1, Ordering::Relaxed); // the ring and the doorbell must do
                    waker.wakeup_on(0, KEY);
                });
            };
            second.run(start, |_, _, _| ());
        });
        let start = |core: &Core<u32>| {
            let sleeper = core.clone();
            spawn(core, async move {
                while condition.load(Ordering::Relaxed) == 0 {
                    sleeper.tsleep(KEY).await;
                }
                sleeper.stop();
            });
        };
        first.run(start, |_, _, _| ());
        other.join().unwrap();
    });
}

/// A message there, a message back, and the end for both.
#[test]
fn question_and_answer() {
    model(|| {
        let (mut loops, _watch) = small(2);
        let (second, first) = (loops.pop().unwrap(), loops.pop().unwrap());
        let other = thread::spawn(move || {
            second.run(
                |_| (),
                |core, from, message| assert!(core.send(from, message + 1).is_ok()),
            );
        });
        first.run(
            |core| assert!(core.send(1, 1).is_ok()),
            |core, from, message| {
                assert_eq!((from, message), (1, 2));
                core.stop();
            },
        );
        other.join().unwrap();
    });
}

/// A waker that went to another thread.
#[test]
fn a_remote_wake_readies_a_task() {
    model(|| {
        let (mut loops, _watch) = small(1);
        let left = Arc::new(Mutex::new(None::<Waker>));
        let condition = Arc::new(AtomicUsize::new(0));
        let (there, set) = (left.clone(), condition.clone());
        let remote = thread::spawn(move || {
            set.store(1, Ordering::Relaxed); // the waker must do
            let waker = there.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let start = |core: &Core<u32>| {
            let core_too = core.clone();
            spawn(core, async move {
                poll_fn(|cx| {
                    let mut left = left.lock().unwrap();
                    if condition.load(Ordering::Relaxed) == 1 {
                        return Poll::Ready(());
                    }
                    *left = Some(cx.waker().clone());
                    Poll::Pending
                })
                .await;
                core_too.stop();
            });
        };
        loops.pop().unwrap().run(start, |_, _, _| ());
        remote.join().unwrap();
    });
}

/// The end comes from outside, to a core that sleeps or is about to.
#[test]
fn the_end() {
    model(|| {
        let (mut loops, watch) = small(1);
        let ender = thread::spawn(move || watch.stop());
        loops.pop().unwrap().run(|_| (), |_, _, _| ());
        ender.join().unwrap();
    });
}
