//! The scheduler: critical sections, sleep and wake-up on one core and between two, beside a bare futex and std's unpark.

use crate::harness::{Plan, per_operation, pin, print_head, repeat};
use percore::{
    clock::now_ns,
    sched::{Core, Idle, Key, Settings, machine},
};
use rustix::thread::futex;
use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const KEY: Key = Key::new(0x1000);
const OTHER: Key = Key::new(0x2000);

pub fn run(plan: &Plan) {
    pin(plan.cores[0]);
    print_head(
        "one core",
        &["enter+exit", "wake+run", "yield", "spawn+run"],
    );
    let n = 20_000 * plan.scale;
    plan.row(
        "",
        &mut [
            &mut || on_one_core(move |core| critical(core, n)),
            &mut || on_one_core(move |core| wake_and_run(core, n)),
            &mut || on_one_core(move |core| give_way(core, n)),
            &mut || on_one_core(move |core| spawn_and_run(core, n / 4)),
        ],
    );
    if plan.two_cores() {
        print_head(
            "there and back, between cores",
            &["tsleep, awake", "tsleep, asleep", "bare futex", "unpark"],
        );
        let n = 100 * plan.scale;
        plan.row(
            "",
            &mut [
                &mut || between_cores(plan, Idle::Spin, 5 * n),
                &mut || between_cores(plan, Idle::Sleep, n),
                &mut || bare_futex(plan, n),
                &mut || unpark(plan, n),
            ],
        );
    }
}

/// What `task` measured, as a task of a machine of one core.
fn on_one_core<F: Future<Output = f64> + 'static>(
    task: impl FnOnce(Core<()>) -> F + 'static,
) -> f64 {
    let (mut seats, _watch) = machine(1, &Settings::default()).expect("an eventfd");
    let (answer, result) = mpsc::channel();
    let start = move |core: &Core<()>| {
        let (task, core_too) = (task(core.clone()), core.clone());
        let all = async move {
            answer.send(task.await).expect("somebody waits");
            core_too.stop();
        };
        assert!(core.spawn(&"bench", all).is_ok());
    };
    seats.remove(0).run(start, |_, _, ()| ());
    result.recv().expect("an answer")
}

async fn critical(core: Core<()>, n: usize) -> f64 {
    repeat(n, || drop(black_box(&core).critical()))
}

/// Two tasks that wake each other: each round is two sleeps, two wake-ups, two runs.
async fn wake_and_run(core: Core<()>, n: usize) -> f64 {
    let other = core.clone();
    let partner = async move {
        loop {
            other.tsleep(OTHER).await;
            other.wakeup(KEY);
        }
    };
    assert!(core.spawn(&"partner", partner).is_ok());
    core.yield_now().await;
    let start = now_ns();
    for _ in 0..n / 2 {
        core.wakeup(OTHER);
        core.tsleep(KEY).await;
    }
    per_operation(now_ns() - start, n)
}

async fn give_way(core: Core<()>, n: usize) -> f64 {
    let start = now_ns();
    for _ in 0..n {
        core.yield_now().await;
    }
    per_operation(now_ns() - start, n)
}

async fn spawn_and_run(core: Core<()>, n: usize) -> f64 {
    let start = now_ns();
    for _ in 0..n {
        assert!(core.spawn(&"short", async {}).is_ok());
        core.yield_now().await;
    }
    per_operation(now_ns() - start, n)
}

/// Two tasks on two cores wake each other in turn; nanoseconds one way.
fn between_cores(plan: &Plan, idle: Idle, n: usize) -> f64 {
    let settings = Settings {
        idle,
        ..Settings::default()
    };
    let (mut seats, _watch) = machine::<()>(2, &settings).expect("eventfds");
    let (second, first) = (seats.pop().expect("two"), seats.pop().expect("two"));
    let (answer, result) = mpsc::channel();
    let there = plan.cores[1];
    let ready = Arc::new(AtomicU32::new(0));
    let partner_ready = ready.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(there);
            let start = move |core: &Core<()>| {
                let core_too = core.clone();
                let partner = async move {
                    // It sleeps before its core looks at a message.
                    partner_ready.store(1, Ordering::Release);
                    loop {
                        core_too.tsleep(KEY).await;
                        core_too.wakeup_on(0, KEY);
                    }
                };
                assert!(core.spawn(&"partner", partner).is_ok());
            };
            second.run(start, |_, _, ()| ());
        });
        let start = |core: &Core<()>| {
            let core_too = core.clone();
            let timed = async move {
                while ready.load(Ordering::Acquire) == 0 {
                    core_too.sleep(Duration::from_micros(50)).await;
                }
                let start = now_ns();
                for _ in 0..n {
                    core_too.wakeup_on(1, KEY);
                    core_too.tsleep(KEY).await;
                }
                let each = per_operation(now_ns() - start, 2 * n);
                answer.send(each).expect("somebody waits");
                core_too.stop();
            };
            assert!(core.spawn(&"bench", timed).is_ok());
        };
        first.run(start, |_, _, ()| ());
    });
    result.recv().expect("an answer")
}

/// The same with nothing but a word for each side.
fn bare_futex(plan: &Plan, n: usize) -> f64 {
    let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let wait = |word: &AtomicU32| {
        while word.swap(0, Ordering::Acquire) == 0 {
            let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
        }
    };
    let wake = |word: &AtomicU32| {
        word.store(1, Ordering::Release);
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    };
    let theirs = words.clone();
    let partner = move || {
        for _ in 0..n {
            wait(&theirs[1]);
            wake(&theirs[0]);
        }
    };
    in_turn(plan, n, partner, |_| {
        wake(&words[1]);
        wait(&words[0]);
    })
}

/// The same with std's parking.
fn unpark(plan: &Plan, n: usize) -> f64 {
    let (turn, here) = (Arc::new(AtomicU32::new(0)), thread::current());
    let theirs = turn.clone();
    let partner = move || {
        for _ in 0..n {
            while theirs.load(Ordering::Acquire) == 0 {
                thread::park();
            }
            theirs.store(0, Ordering::Release);
            here.unpark();
        }
    };
    in_turn(plan, n, partner, |other| {
        turn.store(1, Ordering::Release);
        other.unpark();
        while turn.load(Ordering::Acquire) == 1 {
            thread::park();
        }
    })
}

/// Nanoseconds one way, if `once` goes there and back.
fn in_turn(
    plan: &Plan,
    n: usize,
    partner: impl FnOnce() + Send,
    once: impl Fn(&thread::Thread),
) -> f64 {
    let there = plan.cores[1];
    thread::scope(|scope| {
        let handle = scope.spawn(move || {
            pin(there);
            partner();
        });
        let start = now_ns();
        (0..n).for_each(|_| once(handle.thread()));
        per_operation(now_ns() - start, 2 * n)
    })
}
