//! Experiment `sched` (D2, D4): critical sections, and a task that sleeps, is woken and runs, on one core and across two, beside a bare futex.

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

use percore::sched::{Core, CoreLoop, Idle, Key, Settings, machine};
use rustix::thread::futex;

use super::{Bench, Player, per_operation, report};
use crate::{
    experiment::{Experiment, LabError},
    kit::{Stopwatch, seconds},
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sched",
    question: "What do a critical section and a wake-up cost, on the same core and on another one that is awake or asleep?",
    prediction: "Critical section 0.5 to 1 ns: two additions that only this thread sees. Same core: 20 to 40 ns from wakeup until the task runs. Another core that is awake: 120 to 200 ns, of which \
        60 are the way of the message. Asleep: within 10 % of a bare futex, 4 to 8 us under a hypervisor, since the doorbell is one and everything else is small beside it.",
    run: |experiment, options| report(experiment, options, rows),
};

const KEY: Key = Key::new(0x1000);
const OTHER: Key = Key::new(0x2000);
const FUTEX: &str = "bare futex";

/// A machine for the bench.
fn loops<const N: usize>(idle: Idle) -> [CoreLoop<()>; N] {
    let settings = Settings {
        idle,
        ..Settings::default()
    };
    // The bench cannot do without; a machine has descriptors for two eventfds.
    let (loops, _watch) = machine(N, &settings).expect("eventfds");
    loops
        .try_into()
        .unwrap_or_else(|_| unreachable!("as many as asked for"))
}

/// What `task` measured, as a task of a machine of one core.
fn on_one_core<F: Future<Output = f64> + 'static>(
    bench: &Bench,
    task: impl FnOnce(Core<()>) -> F + 'static,
) -> f64 {
    let [core_loop] = loops(Idle::Spin);
    let (answer, result) = mpsc::channel();
    let start = move |core: &Core<()>| {
        let (task, core_too) = (task(core.clone()), core.clone());
        let all = async move {
            answer.send(task.await).expect("a receiver");
            core_too.stop();
        };
        assert!(core.spawn(&"bench", all).is_ok(), "room for a task");
    };
    bench.watched(|| core_loop.run(start, |_, _, ()| ()));
    result.recv().expect("an answer")
}

async fn critical(core: Core<()>, n: usize) -> f64 {
    let enter_and_exit = || (0..n).for_each(|_| drop(black_box(black_box(&core).critical())));
    per_operation(seconds(enter_and_exit), n)
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
    assert!(core.spawn(&"partner", partner).is_ok(), "room for a task");
    core.yield_now().await;
    let watch = Stopwatch::start();
    for _ in 0..n / 2 {
        core.wakeup(OTHER);
        core.tsleep(KEY).await;
    }
    per_operation(watch.seconds(), n / 2 * 2)
}

async fn give_way(core: Core<()>, n: usize) -> f64 {
    let watch = Stopwatch::start();
    for _ in 0..n {
        core.yield_now().await;
    }
    per_operation(watch.seconds(), n)
}

async fn spawn_and_run(core: Core<()>, n: usize) -> f64 {
    let watch = Stopwatch::start();
    for _ in 0..n {
        assert!(core.spawn(&"short", async {}).is_ok(), "room for a task");
        core.yield_now().await;
    }
    per_operation(watch.seconds(), n)
}

/// Two tasks on two cores wake each other in turn; nanoseconds one way.
fn between_cores(bench: &Bench, cores: [usize; 2], idle: Idle, n: usize) -> f64 {
    let [first, second] = loops(idle);
    let (answer, result) = mpsc::channel();
    let ready = Arc::new(AtomicU32::new(0));
    let theirs = ready.clone();
    let there = move || {
        let start = move |core: &Core<()>| {
            let task = partner(core.clone(), theirs);
            assert!(core.spawn(&"partner", task).is_ok(), "room for a task");
        };
        second.run(start, |_, _, ()| ());
    };
    let here = || {
        let start = |core: &Core<()>| {
            let task = timed(core.clone(), n, ready, answer);
            assert!(core.spawn(&"bench", task).is_ok(), "room for a task");
        };
        first.run(start, |_, _, ()| ());
    };
    bench.together(cores, here, there);
    result.recv().expect("an answer")
}

async fn partner(core: Core<()>, ready: Arc<AtomicU32>) {
    // From here to its sleep it does not give way: it sleeps before its core looks at a message.
    ready.store(1, Ordering::Release); // pairs with Acquire in `timed`
    loop {
        core.tsleep(KEY).await;
        core.wakeup_on(0, KEY);
    }
}

async fn timed(core: Core<()>, n: usize, ready: Arc<AtomicU32>, answer: mpsc::Sender<f64>) {
    // pairs with Release in `partner`
    while ready.load(Ordering::Acquire) == 0 {
        core.sleep(Duration::from_micros(50)).await;
    }
    let watch = Stopwatch::start();
    for _ in 0..n {
        core.wakeup_on(1, KEY);
        core.tsleep(KEY).await;
    }
    let each = per_operation(watch.seconds(), 2 * n);
    answer.send(each).expect("a receiver");
    core.stop();
}

/// Switches between cores with nothing but a futex word for each side.
fn bare_futex(bench: &Bench, cores: [usize; 2], n: usize) -> f64 {
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let wait = |word: &AtomicU32| {
        while word.swap(0, Ordering::Acquire) == 0 {
            let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
        }
    };
    let wake = |word: &AtomicU32| {
        word.store(1, Ordering::Release);
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    };
    let there = || {
        for _ in 0..n {
            wait(&words[1]);
            wake(&words[0]);
        }
    };
    let here = || {
        let all = || {
            for _ in 0..n {
                wake(&words[1]);
                wait(&words[0]);
            }
        };
        per_operation(seconds(all), 2 * n)
    };
    bench.together(cores, here, there)
}

/// Switches between cores with std's parking.
fn unpark(bench: &Bench, cores: [usize; 2], n: usize) -> f64 {
    let (turn, first) = (AtomicU32::new(0), thread::current());
    let (tell, told) = mpsc::channel();
    let there = || {
        tell.send(thread::current()).expect("a receiver");
        for _ in 0..n {
            while turn.load(Ordering::Acquire) == 0 {
                thread::park();
            }
            turn.store(0, Ordering::Release);
            first.unpark();
        }
    };
    let here = || {
        let second = told.recv().expect("a sender");
        let all = || {
            for _ in 0..n {
                turn.store(1, Ordering::Release);
                second.unpark();
                while turn.load(Ordering::Acquire) == 1 {
                    thread::park();
                }
            }
        };
        per_operation(seconds(all), 2 * n)
    };
    bench.together(cores, here, there)
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let n = bench.work;
    let scores = bench.contest(vec![
        Player::own("critical", || {
            on_one_core(bench, move |core| critical(core, n))
        }),
        Player::own("wake", || {
            on_one_core(bench, move |core| wake_and_run(core, n))
        }),
        Player::own("yield", || {
            on_one_core(bench, move |core| give_way(core, n))
        }),
        Player::own("spawn", || {
            on_one_core(bench, move |core| spawn_and_run(core, n / 4))
        }),
    ]);
    let mut rows = vec![
        scores
            .bare_row("critical_section_ns", "critical")
            .reference("9.5 (D2)")
            .target("<= 1"),
        scores
            .bare_row("wakeup_same_core_ns", "wake")
            .reference("1300 (D4: 288 + ~1000)")
            .target("<= 60"),
        scores.bare_row("yield_ns", "yield"),
        scores.bare_row("spawn_and_run_ns", "spawn"),
    ];
    if let Some(cores) = bench.two {
        rows.extend(across(bench, cores));
    }
    Ok(rows)
}

/// The rows of two cores.
fn across(bench: &Bench, cores: [usize; 2]) -> [Row; 5] {
    const AWAKE: &str = "awake";
    const ASLEEP: &str = "asleep";
    const DEFAULT: &str = "spins, then sleeps";
    const UNPARK: &str = "std unpark";
    let n = (bench.work / 100).max(10);
    let default = Settings::default().idle;
    let scores = bench.contest(vec![
        Player::own(AWAKE, || between_cores(bench, cores, Idle::Spin, 5 * n)),
        Player::own(ASLEEP, || between_cores(bench, cores, Idle::Sleep, n)),
        Player::own(DEFAULT, || between_cores(bench, cores, default, n)),
        Player::own(UNPARK, || unpark(bench, cores, n)),
        Player::peer(FUTEX, || bare_futex(bench, cores, n)),
    ]);
    [
        scores
            .row("wakeup_other_core_awake_ns", AWAKE)
            .reference("1700 (D4)")
            .target("<= 250"),
        scores
            .row("wakeup_other_core_asleep_ns", ASLEEP)
            .reference("1700 (D4)")
            .target("<= 1.15 x peer"),
        scores.row("wakeup_other_core_default_ns", DEFAULT),
        scores.bare_row("unpark_other_core_ns", UNPARK),
        scores.bare_row("futex_other_core_ns", FUTEX),
    ]
}
