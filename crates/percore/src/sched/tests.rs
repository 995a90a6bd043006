//! Tests of the scheduler: one core, then several.

use super::{Core, Doing, Idle, Key, Settings, Watch, Woken, machine};
use crate::clock;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

const A: Key = Key::new(1);
const B: Key = Key::new(2);

fn spawn<M>(core: &Core<M>, task: impl Future<Output = ()> + 'static) {
    assert!(core.spawn(&"test", task).is_ok(), "room for a task");
}

/// Runs `start` and what it spawns on one core, until it is stopped.
fn on_one_core(start: impl FnOnce(&Core<()>)) {
    let (mut loops, _watch) = machine(1, &Settings::default()).unwrap();
    loops.remove(0).run(start, |_, _, ()| ());
}

type Log = Rc<RefCell<Vec<u32>>>;

#[test]
fn ready_tasks_run_in_turn() {
    let log = Log::default();
    on_one_core(|core| {
        for i in 0..3 {
            let (core_too, log) = (core.clone(), log.clone());
            spawn(core, async move {
                log.borrow_mut().push(i);
                core_too.yield_now().await;
                log.borrow_mut().push(10 + i);
                if i == 2 {
                    core_too.stop();
                }
            });
        }
    });
    assert_eq!(*log.borrow(), [0, 1, 2, 10, 11, 12]);
}

#[test]
fn sleepers_wake_in_the_order_in_which_they_fell_asleep() {
    let log = Log::default();
    on_one_core(|core| {
        for (i, key) in [(0, A), (1, B), (2, A), (3, A)] {
            let (core_too, log) = (core.clone(), log.clone());
            spawn(core, async move {
                assert_eq!(core_too.tsleep(key).await, Woken::ByKey);
                log.borrow_mut().push(i);
            });
        }
        let waker = core.clone();
        spawn(core, async move {
            assert!(waker.wakeup_one(A));
            waker.yield_now().await;
            assert_eq!((waker.wakeup(B), waker.wakeup(A)), (1, 2));
            waker.yield_now().await;
            assert_eq!(waker.wakeup(A), 0);
            assert!(!waker.wakeup_one(B));
            waker.stop();
        });
    });
    assert_eq!(*log.borrow(), [0, 1, 2, 3]);
}

#[test]
fn by_key_or_by_time() {
    on_one_core(|core| {
        let sleeper = core.clone();
        spawn(core, async move {
            let start = clock::now_ns();
            let nap = Duration::from_millis(2);
            assert_eq!(sleeper.tsleep_timeout(A, nap).await, Woken::ByTime);
            assert!(clock::now_ns() - start >= 2_000_000);
            assert_eq!(sleeper.sleep(nap).await, Woken::ByTime);
            assert!(clock::now_ns() - start >= 4_000_000);
            let hour = Duration::from_secs(3600);
            assert_eq!(sleeper.tsleep_timeout(B, hour).await, Woken::ByKey);
            sleeper.stop();
        });
        let waker = core.clone();
        spawn(core, async move {
            while waker.wakeup(B) == 0 {
                waker.sleep(Duration::from_micros(100)).await;
            }
        });
    });
}

/// The deadlines of sleeps that ended early do not pile up, and wake no task.
#[test]
fn deadlines_that_are_not_reached() {
    on_one_core(|core| {
        for _ in 0..2 {
            let core_too = core.clone();
            spawn(core, async move {
                for _ in 0..10_000 {
                    let sleep = core_too.tsleep_timeout(A, Duration::from_secs(3600));
                    assert_eq!(sleep.await, Woken::ByKey);
                }
                core_too.stop();
            });
        }
        let waker = core.clone();
        spawn(core, async move {
            loop {
                waker.wakeup(A);
                waker.yield_now().await;
            }
        });
    });
}

/// Whichever of two sleeps ends first; the other is dropped and forgotten.
#[test]
fn a_sleep_that_is_dropped() {
    on_one_core(|core| {
        let sleeper = core.clone();
        spawn(core, async move {
            for round in 0..100 {
                let (mut a, mut b) = (pin!(sleeper.tsleep(A)), pin!(sleeper.tsleep(B)));
                poll_fn(|cx| match (a.as_mut().poll(cx), b.as_mut().poll(cx)) {
                    (Poll::Pending, Poll::Pending) => Poll::Pending,
                    (a, b) => {
                        assert_eq!(
                            (a.is_ready(), b.is_ready()),
                            (round % 2 == 0, round % 2 == 1)
                        );
                        Poll::Ready(())
                    }
                })
                .await;
            }
            assert_eq!((sleeper.wakeup(A), sleeper.wakeup(B)), (0, 0));
            sleeper.stop();
        });
        let waker = core.clone();
        spawn(core, async move {
            for round in 0.. {
                waker.wakeup(if round % 2 == 0 { A } else { B });
                waker.yield_now().await;
            }
        });
    });
}

#[test]
fn as_many_tasks_as_allowed() {
    let settings = Settings {
        tasks_max: 2,
        ..Settings::default()
    };
    let (mut loops, _watch) = machine::<()>(1, &settings).unwrap();
    let start = |core: &Core<()>| {
        let spawner = core.clone();
        spawn(core, async move {
            spawn(&spawner, async {});
            let refused = spawner.spawn(&"too many", async {});
            assert!(refused.is_err());
            spawner.yield_now().await;
            spawner.yield_now().await;
            spawn(&spawner, refused.unwrap_err()); // the other has ended
            spawner.stop();
        });
    };
    loops.remove(0).run(start, |_, _, ()| ());
}

#[test]
fn a_critical_section_postpones_what_interrupts() {
    on_one_core(|core| {
        let task = core.clone();
        let came = Rc::new(Cell::new(false));
        let (timer, other) = ((core.clone(), came.clone()), core.clone());
        spawn(core, async move {
            timer.0.tsleep_timeout(A, Duration::from_millis(1)).await;
            timer.1.set(true);
        });
        spawn(core, async move {
            other.tsleep_timeout(B, Duration::from_millis(1)).await;
        });
        spawn(core, async move {
            let outer = task.critical();
            let inner = task.critical();
            let start = clock::now_ns();
            while clock::now_ns() - start < 2_000_000 {
                task.check();
            }
            drop(inner);
            assert_eq!(
                task.wakeup(A),
                1,
                "its time has come, and no turn has looked"
            );
            drop(outer);
            assert_eq!(task.wakeup(B), 0, "awake since the section's end");
            task.yield_now().await;
            assert!(came.get());
            task.stop();
        });
    });
}

#[test]
fn a_preemption_point_takes_in_timers() {
    on_one_core(|core| {
        let (sleeper, task) = (core.clone(), core.clone());
        spawn(core, async move {
            sleeper.tsleep_timeout(A, Duration::from_millis(1)).await;
        });
        spawn(core, async move {
            let start = clock::now_ns();
            while clock::now_ns() - start < 2_000_000 {
                task.check();
            }
            // A busy machine may have passed all that time at once: then nothing was checked since the timer was due.
            task.check();
            assert_eq!(task.wakeup(A), 0, "it is awake already");
            task.stop();
        });
    });
}

#[test]
fn no_task_sleeps_in_a_critical_section() {
    let result = catch_unwind(|| {
        on_one_core(|core| {
            let task = core.clone();
            spawn(core, async move {
                let _critical = task.critical();
                task.yield_now().await;
            });
        });
    });
    let text = *result.unwrap_err().downcast::<String>().unwrap();
    assert!(
        text.contains("'test' went to sleep in a critical section"),
        "{text}"
    );
}

#[test]
fn sources_are_asked_in_every_turn() {
    let asked = Rc::new(Cell::new(0));
    on_one_core(|core| {
        let count = asked.clone();
        core.add_source(move |core, budget| {
            assert!(budget > 0);
            count.set(count.get() + 1);
            if count.get() == 5 {
                core.stop();
            }
            core.wakeup(A)
        });
        let sleeper = core.clone();
        spawn(core, async move {
            loop {
                sleeper.tsleep(A).await;
            }
        });
    });
    assert_eq!(asked.get(), 5);
}

/// What is left at the end is dropped, also what its drop spawns.
#[test]
fn the_end_drops_everything() {
    struct Spawns(Core<()>, Rc<Cell<u32>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            if self.1.get() < 3 {
                let again = Spawns(self.0.clone(), self.1.clone());
                spawn(&self.0, async move { drop(again) });
            }
        }
    }
    let drops = Rc::new(Cell::new(0));
    on_one_core(|core| {
        let (waiter, count) = (core.clone(), drops.clone());
        spawn(core, async move {
            let _spawns = Spawns(waiter.clone(), count);
            waiter.tsleep(A).await;
        });
        let stopper = core.clone();
        spawn(core, async move { stopper.stop() });
    });
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_remote_wake_readies_a_task_and_keeps_nothing_alive() {
    let (send, wakers) = mpsc::channel::<Waker>();
    let go = Arc::new(AtomicBool::new(false));
    let set = go.clone();
    let remote = thread::spawn(move || {
        let mut last = None;
        for waker in wakers {
            thread::sleep(Duration::from_millis(5)); // the core sleeps
            set.store(true, Ordering::Relaxed);
            waker.wake_by_ref();
            last = Some(waker);
        }
        if let Some(waker) = last {
            waker.wake(); // the core has ended
        }
    });
    on_one_core(|core| {
        let core_too = core.clone();
        spawn(core, async move {
            poll_fn(|cx| {
                if go.load(Ordering::Relaxed) {
                    return Poll::Ready(());
                }
                send.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            core_too.stop();
        });
    });
    remote.join().unwrap();
}

/// What a core does first.
type Start<M> = Box<dyn FnOnce(&Core<M>) + Send>;

/// Runs `starts`, one on each core, until the machine is stopped; returns its watch.
fn on_cores<M: Send + 'static>(
    settings: &Settings,
    starts: Vec<Start<M>>,
    on_message: impl Fn(&Core<M>, usize, M) + Clone + Send + 'static,
) -> Watch {
    let (loops, watch) = machine(starts.len(), settings).unwrap();
    thread::scope(|scope| {
        for (core_loop, start) in loops.into_iter().zip(starts) {
            let on_message = on_message.clone();
            scope.spawn(move || core_loop.run(start, on_message));
        }
    });
    watch
}

/// Work that comes between the end of a turn and the sleep: the second look, with the doorbell armed, finds it.
#[test]
fn what_comes_before_the_sleep_is_not_slept_over() {
    let settings = Settings {
        idle: Idle::Sleep,
        ..Settings::default()
    };
    let (mut loops, _watch) = machine::<()>(1, &settings).unwrap();
    let late = Rc::new(Cell::new(false));
    let start = |core: &Core<()>| {
        // Asked in the turn that runs the task, in one with nothing to do, before the sleep, and in the turn after that.
        let mut asked = 0;
        core.add_source(move |core, _| {
            asked += 1;
            if asked == 4 {
                core.stop();
            }
            usize::from(asked == 3)
        });
        let (core_too, late) = (core.clone(), late.clone());
        spawn(core, async move {
            core_too.sleep(Duration::from_secs(20)).await;
            late.set(true);
            core_too.stop();
        });
    };
    loops.remove(0).run(start, |_, _, ()| ());
    assert!(!late.get());
}

#[test]
fn what_a_wake_up_takes_is_measured() {
    let Idle::SpinThenSleep(time) = Idle::measured().unwrap() else {
        panic!("another way to wait");
    };
    assert!(time > Duration::ZERO);
}

fn ping_pong(idle: Idle) {
    const ROUNDS: u64 = 300;
    let settings = Settings {
        idle,
        ..Settings::default()
    };
    let turn = Arc::new(AtomicU64::new(0));
    let player = |me: usize| -> Start<()> {
        let turn = turn.clone();
        Box::new(move |core| {
            let core_too = core.clone();
            spawn(core, async move {
                for round in 0..ROUNDS {
                    let mine = 2 * round + u64::try_from(me).unwrap();
                    while turn.load(Ordering::Relaxed) != mine {
                        core_too.tsleep(A).await;
                    }
                    turn.store(mine + 1, Ordering::Relaxed);
                    core_too.wakeup_on(1 - me, A);
                }
                if me == 1 {
                    core_too.stop();
                }
            });
        })
    };
    let watch = on_cores(&settings, vec![player(0), player(1)], |_, _, ()| ());
    assert_eq!(turn.load(Ordering::Relaxed), 2 * ROUNDS);
    assert!(watch.cores().iter().all(|core| core.doing == Doing::Ended));
}

#[test]
fn ping_pong_asleep() {
    ping_pong(Idle::Sleep);
}

#[test]
fn ping_pong_awake() {
    ping_pong(Idle::Spin);
}

#[test]
fn ping_pong_both() {
    ping_pong(Idle::measured().unwrap());
}

/// Rings of one message: most wake-ups find no room, and none is lost. Messages come back, and are sent again.
#[test]
fn through_full_rings() {
    const MESSAGES: u64 = 200;
    let settings = Settings {
        messages_max: 1,
        idle: Idle::Sleep,
        ..Settings::default()
    };
    let sum = Arc::new(AtomicU64::new(0));
    let send: Start<u64> = Box::new(|core| {
        let core_too = core.clone();
        spawn(core, async move {
            for i in 1..=MESSAGES {
                while core_too.send(1, i).is_err() {
                    core_too.yield_now().await;
                }
            }
            (0..10).for_each(|key| core_too.wakeup_on(1, Key::new(key)));
        });
    });
    let wait: Start<u64> = Box::new(|core| {
        let core_too = core.clone();
        spawn(core, async move {
            core_too.tsleep(Key::new(9)).await;
            core_too.stop();
        });
    });
    let total = sum.clone();
    on_cores(&settings, vec![send, wait], move |_, from, n| {
        assert_eq!(from, 0);
        total.fetch_add(n, Ordering::Relaxed);
    });
    assert_eq!(sum.load(Ordering::Relaxed), MESSAGES * (MESSAGES + 1) / 2);
}

#[test]
fn the_watch_notices_a_core_that_does_not_give_way() {
    let (mut loops, mut watch) = machine::<()>(2, &Settings::default()).unwrap();
    let limit = Duration::from_millis(20);
    let free = Arc::new(AtomicBool::new(false));
    let until = free.clone();
    thread::scope(|scope| {
        let (idle, busy) = (loops.pop().unwrap(), loops.pop().unwrap());
        scope.spawn(move || idle.run(|_| (), |_, _, ()| ()));
        let start = move |core: &Core<()>| {
            let hog = async move {
                while !until.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            };
            assert!(core.spawn(&"the hog", hog).is_ok());
        };
        let since = clock::now_ns();
        scope.spawn(move || busy.run(start, |_, _, ()| ()));
        let stuck = loop {
            let stuck = watch.check(clock::now_ns(), limit);
            if !stuck.is_empty() {
                break stuck;
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((stuck.len(), stuck[0].core), (1, 0), "{stuck:?}");
        assert_eq!(stuck[0].runs, Some("the hog"));
        assert!(stuck[0].since_ns <= clock::now_ns() - since);
        assert!(stuck[0].to_string().contains("it runs 'the hog'"));
        assert_eq!(watch.cores()[1].doing, Doing::Asleep);
        free.store(true, Ordering::Relaxed);
        while watch.cores()[0].doing != Doing::Asleep {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(watch.check(clock::now_ns(), limit), []);
        // The one has run a task, the other none.
        let run = watch
            .cores()
            .iter()
            .map(|core| core.runs)
            .collect::<Vec<_>>();
        assert_eq!(run, [Some("the loop"), None]);
        watch.stop();
    });
}

/// By the watch's clock hours pass, in which it turned and turned.
#[test]
fn a_core_that_turns_is_not_stuck() {
    let settings = Settings {
        idle: Idle::Spin,
        ..Settings::default()
    };
    let (mut loops, mut watch) = machine::<()>(1, &settings).unwrap();
    let core_loop = loops.remove(0);
    let mut found = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || core_loop.run(|_| (), |_, _, ()| ()));
        let mut turns = 0;
        for hour in 1..10 {
            while watch.cores()[0].turns <= turns || watch.cores()[0].doing != Doing::Running {
                thread::yield_now();
            }
            let now_ns = hour * 3_600_000_000_000;
            found.extend(watch.check(now_ns, Duration::from_secs(60)));
            // After the check, which must not find the turn again that it has seen.
            turns = watch.cores()[0].turns;
        }
        watch.stop();
    });
    assert_eq!(found, []);
}

/// What a core says of itself; what comes from another by each way; and what is in a queue is looked at when the core is rung.
#[test]
fn two_cores_and_a_thread_that_rings() {
    let (loops, watch) = machine::<u32>(2, &Settings::default()).unwrap();
    assert_eq!(
        loops.iter().map(super::CoreLoop::core).collect::<Vec<_>>(),
        [0, 1]
    );
    let (came, filled) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    thread::scope(|scope| {
        for core_loop in loops {
            let (came, filled) = (came.clone(), filled.clone());
            let count = came.clone();
            let start = move |core: &Core<u32>| {
                let (me, other) = (core.number(), 1 - core.number());
                let core_too = core.clone();
                spawn(core, async move {
                    core_too.tsleep(A).await;
                    assert_eq!((core_too.cores(), core_too.number()), (2, me));
                    assert_eq!(
                        format!("{core_too:?}"),
                        format!("Core {{ {me} of 2, {} tasks }}", 1 + me)
                    );
                    assert_eq!(core_too.send_passive(other, 10), Ok(()));
                    assert_eq!(core_too.send(other, 100), Ok(()));
                });
                spawn(core, async {});
                if me == 1 {
                    let sleeper = core.clone();
                    spawn(core, async move { _ = sleeper.tsleep(B).await });
                }
                if me == 1 {
                    core.add_source(move |core, _| {
                        let filled = filled.swap(false, Ordering::Relaxed);
                        if filled {
                            core.wakeup_everywhere(A);
                        }
                        usize::from(filled)
                    });
                }
            };
            scope.spawn(move || {
                core_loop.run(start, move |_, _, n| {
                    _ = count.fetch_add(n.into(), Ordering::Relaxed)
                });
            });
        }
        while watch.cores().iter().any(|core| core.doing != Doing::Asleep) {
            thread::yield_now();
        }
        filled.store(true, Ordering::Relaxed);
        watch.ring(1);
        while came.load(Ordering::Relaxed) < 220 {
            thread::yield_now();
        }
        watch.stop();
    });
    assert_eq!(came.load(Ordering::Relaxed), 220);
}

/// The seed of a random test: `NETCHAN_SEED`, or of the clock. Printed, so that a failure can be seen again.
fn seed() -> u64 {
    let given = std::env::var("NETCHAN_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(clock::now_ns) | 1;
    println!("NETCHAN_SEED={seed}");
    seed
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Tasks on two cores that sleep, wake, yield, spawn and send at random: all of them come to their end.
#[test]
fn at_random() {
    let seed = seed();
    let left = Arc::new(AtomicU64::new(40));
    let start = |number: u64| -> Start<u64> {
        let left = left.clone();
        Box::new(move |core| {
            for task in 0..20 {
                let (core_too, left) = (core.clone(), left.clone());
                let random = seed.wrapping_mul(2 * (20 * number + task) + 1);
                spawn(core, wander(core_too, random, left));
            }
        })
    };
    let settings = Settings {
        messages_max: 4,
        tasks_per_turn: 3,
        ..Settings::default()
    };
    on_cores(&settings, vec![start(0), start(1)], |core, _, message| {
        core.wakeup(key(message));
    });
    assert_eq!(left.load(Ordering::Relaxed), 0);
}

fn key(random: u64) -> Key {
    Key::new(usize::try_from(random % 8).unwrap())
}

async fn wander(core: Core<u64>, mut random: u64, left: Arc<AtomicU64>) {
    for _ in 0..200 {
        let (what, which) = (next(&mut random) % 7, next(&mut random));
        let soon = Duration::from_micros(which % 50);
        let other = usize::try_from(which % 2).unwrap();
        match what {
            0 => _ = core.tsleep_timeout(key(which), soon).await,
            1 => _ = core.sleep(soon).await,
            2 => _ = core.wakeup(key(which)),
            3 => core.wakeup_on(other, key(which)),
            4 => _ = core.send(other, which),
            5 => core.yield_now().await,
            _ => {
                let (child, woken) = (core.clone(), key(which));
                let task = async move { child.wakeup_everywhere(woken) };
                assert!(core.spawn(&"child", task).is_ok());
            }
        }
    }
    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
        core.stop();
    }
}

#[test]
fn a_panic_in_a_task_ends_its_core_and_says_so() {
    let (mut loops, watch) = machine::<()>(1, &Settings::default()).unwrap();
    let core_loop = loops.remove(0);
    let run = AssertUnwindSafe(|| {
        core_loop.run(
            |core| spawn(core, async { panic!("on purpose") }),
            |_, _, ()| (),
        );
    });
    assert!(catch_unwind(run).is_err());
    assert_eq!(watch.cores()[0].doing, Doing::Ended);
    assert!(Key::of(&watch) == Key::of(&watch));
}
