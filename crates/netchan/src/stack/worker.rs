//! The threads that a configuration names: one for each queue of a link, those that turn channel-fed shards, and the watchdog.

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    thread,
};

use percore::doorbell::{Doorbell, Sleep};
use proto::time::{Duration, Instant};

use crate::{
    driver::interface::Interface,
    regime::{Handoff, Holder},
    stack::{Core, Stack, background, sleep::asleep, watch},
    sys,
};

/// Starts a stack's threads.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn start(stack: &Arc<Stack>) -> io::Result<()> {
    for (number, queue) in stack.driver.queues.iter().enumerate() {
        let of = match queue.lane {
            0 => queue.link.to_string(),
            lane => format!("{}.{lane}", queue.link),
        };
        let (name, work) = (format!("netchan-link{of}"), format!("link {of}"));
        spawn(stack, &name, work, Some(number), move |stack| {
            turn_link(stack, number)
        })?;
    }
    for number in 0..stack.layout.workers {
        if stack.layout.holder == Holder::Core {
            let (name, work) = (format!("netchan-core{number}"), format!("shard {number}"));
            spawn(stack, &name, work, None, move |stack| {
                turn_core(stack, number)
            })?;
            continue;
        }
        let name = format!("netchan-proto{number}");
        let shards: Vec<_> = own_shards(stack, number).map(|n| n.to_string()).collect();
        let work = format!("shard {}", shards.join(", "));
        spawn(stack, &name, work, None, move |stack| {
            turn_shards(stack, number)
        })?;
    }
    if stack.layout.holder == Holder::Application {
        let work = "shards that no other thread turns".to_owned();
        spawn(stack, "netchan-poll", work, None, background::poll)?;
    }
    // Made here, so that its thread allocates nothing.
    let seen = watch::Seen::new(stack);
    let work = "the watch".to_owned();
    spawn(stack, "netchan-watch", work, None, move |stack| {
        watch::guard(stack, seen)
    })?;
    Ok(())
}

fn spawn(
    stack: &Arc<Stack>,
    name: &str,
    work: String,
    link: Option<usize>,
    run: impl FnOnce(&Stack) + Send + 'static,
) -> io::Result<()> {
    let pulse = stack
        .control
        .watch
        .pulse(name, work, link, stack.clock.now());
    let own = stack.clone();
    let body = move || watch::run(&own, pulse, run);
    let thread = sys::spawn(name, body)?;
    stack.control.threads.lock().push(thread);
    Ok(())
}

/// The thread of a link's queue: turns it while there is work, then sleeps on the queue and its doorbell.
fn turn_link(stack: &Stack, number: usize) {
    // The first link's thread also serves the timers of shards that are called.
    let timers = number == 0 && stack.layout.handoff == Handoff::Call;
    let (mut idle_since, mut sleeps, mut terms) = (None, Sleeps::default(), 0);
    while !stack.is_stopping() {
        let now = stack.clock.now();
        watch::turning(now);
        if stack.is_polled_by_calls(number, now) {
            stack.rest(number, &mut terms);
            sleeps.longest = LONGEST_SLEEP; // another thread sees the traffic
            continue;
        }
        let work = stack.turn_link(number, now);
        if timers {
            stack.run_called_timers(now, work);
        }
        if work {
            (idle_since, sleeps.longest) = (None, LONGEST_SLEEP);
            continue;
        }
        let since = *idle_since.get_or_insert(now);
        if now.since(since) < Duration::from_nanos(stack.spin_ns) {
            std::hint::spin_loop();
            continue;
        }
        idle_since = None;
        if stack.driver.lane_of(number).leader.is_led() {
            stack.rest(number, &mut terms);
            sleeps.longest = LONGEST_SLEEP;
        } else {
            sleep(stack, number, timers, &mut sleeps);
        }
    }
}

/// How a link's thread sleeps next.
struct Sleeps {
    /// Until then packets do not end it (D6): what they wake after that serves all that came meanwhile.
    moderated: Instant,
    /// It lasts no longer than this: twice as long each time, until something comes.
    longest: Duration,
}

impl Default for Sleeps {
    fn default() -> Self {
        Self {
            moderated: Instant::ZERO,
            longest: LONGEST_SLEEP,
        }
    }
}

/// One sleep of it, if nothing comes while it arms.
fn sleep(stack: &Stack, number: usize, timers: bool, sleeps: &mut Sleeps) {
    let shared = &stack.driver.queues[number];
    // A link without a descriptor rings the doorbell, and a futex is the shorter way to sleep on that.
    let how = match stack.pollfd_of(number) {
        None => Sleep::Futex,
        Some(_) => Sleep::Fd,
    };
    let how = stack.arm(number, how);
    let now = stack.clock.now();
    // Once more after arming: what came before it may not have rung.
    if stack.turn_link(number, now) {
        sleeps.longest = LONGEST_SLEEP;
    } else if !stack.is_stopping() {
        if timers {
            stack.take_backlogs(now);
        }
        let mut until = stack.next_event_of(number);
        if timers {
            until = until.min(stack.next_called_timer());
        }
        let until = until.min(now + sleeps.longest);
        if until > now && stack.may_sleep(number, how) {
            sleeps.longest = (sleeps.longest * 2).min(LONGEST_QUIET);
            watch::asleep(now);
            asleep(stack, until, now, || {
                sleep_on(stack, number, how, until, now, &mut sleeps.moderated)
            });
        }
    }
    shared.doorbell.disarm();
}

/// Sleeps on a link's doorbell and its descriptor.
fn sleep_on(
    stack: &Stack,
    number: usize,
    how: Sleep,
    until: Instant,
    now: Instant,
    moderated: &mut Instant,
) {
    let shared = &stack.driver.queues[number];
    if how == Sleep::Futex {
        shared.doorbell.wait(Some(until.since(now)));
        return;
    }
    let (link, until) = match stack.pollfd_of(number) {
        Some(_) if *moderated > now => (None, until.min(*moderated)),
        link => (link, until),
    };
    // An error (EINTR) ends the sleep, nothing more.
    if stack
        .sleep_on_bells(number, link, until, now)
        .is_ok_and(|by_link| by_link)
    {
        let wakeups = &shared.wakeups;
        wakeups.store(wakeups.load(Relaxed) + 1, Relaxed); // ours alone
        *moderated = stack.clock.now() + stack.driver.moderation;
    }
}

/// The shards of a protocol thread: every so manieth.
fn own_shards(stack: &Stack, worker: usize) -> impl Iterator<Item = usize> {
    (worker..stack.sockets.cells.len()).step_by(stack.layout.workers)
}

/// One turn of a protocol thread. True if there was work.
pub(crate) fn turn_own_shards(stack: &Stack, worker: usize) -> bool {
    own_shards(stack, worker).fold(false, |work, n| stack.turn_shard(n) | work)
}

/// A protocol thread: turns its shards while there is work, then sleeps on their doorbell.
fn turn_shards(stack: &Stack, worker: usize) {
    let turn = |_| turn_own_shards(stack, worker);
    turn_and_sleep(stack, &stack.sockets.cells[worker].doorbell, turn, || {
        let timers = own_shards(stack, worker).map(|n| stack.sockets.cells[n].next_timer());
        timers.min().unwrap_or(Instant::FAR)
    });
}

/// A core's thread: the owner of its shard.
fn turn_core(stack: &Stack, number: usize) {
    let cell = &stack.sockets.cells[number];
    let Some(server) = cell.own() else { return };
    let mut core = Core::of(stack, Some(server));
    let turn = |now| stack.turn_owned(number, &mut core, now);
    turn_and_sleep(stack, &cell.doorbell, turn, || cell.next_timer());
    if stack.goes_on() {
        cell.disown(core.end());
    }
}

/// Turns while there is work, then sleeps on the doorbell until it is rung or a timer is due, and so on until the stack ends.
fn turn_and_sleep(
    stack: &Stack,
    bell: &Doorbell,
    mut turn: impl FnMut(Instant) -> bool,
    next_timer: impl Fn() -> Instant,
) {
    let mut idle_since = None;
    while !stack.is_stopping() {
        let now = stack.clock.now();
        watch::turning(now);
        if turn(now) {
            idle_since = None;
            continue;
        }
        let since = *idle_since.get_or_insert(now);
        if now.since(since) < Duration::from_nanos(stack.spin_ns) {
            std::hint::spin_loop();
            continue;
        }
        idle_since = None;
        bell.arm(Sleep::Futex);
        // Once more after arming: what came before it may not have rung.
        if !turn(stack.clock.now()) && !stack.is_stopping() {
            // A socket call that moves a timer forward after this look rings.
            let now = stack.clock.now();
            let until = next_timer().min(now + LONGEST_SLEEP);
            if until > now {
                watch::asleep(now);
                asleep(stack, until, now, || bell.wait(Some(until.since(now))));
            }
        }
        bell.disarm();
    }
}

/// Nothing needs it; it bounds the harm of a lost wake-up, which comes with traffic.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The same for a link where nothing has come for long.
const LONGEST_QUIET: Duration = Duration::from_secs(8);

/// Tells all threads to end, and waits for them; whether it answered questions from outside. Connections, links and leases stay as they are.
pub(crate) fn halt(stack: &Stack) -> bool {
    // SeqCst: before the rings that follow.
    stack.stop.store(true, SeqCst);
    // Not under its lock: its thread ends first.
    let companions = std::mem::take(&mut *stack.control.companions.lock());
    let answered = !companions.is_empty();
    drop(companions);
    let ring = |doorbell: &Doorbell| doorbell.ring();
    stack.driver.call_all_links();
    stack.sockets.cells.iter().for_each(|cell| {
        ring(&cell.doorbell);
    });
    ring(&stack.sockets.background.bell);
    ring(&stack.control.watch.bell);
    let threads: Vec<_> = stack.control.threads.lock().drain(..).collect();
    let me = thread::current().id();
    for handle in threads {
        handle.thread().unpark();
        if handle.thread().id() != me {
            // A thread that panicked has said so on stderr.
            let _ = handle.join();
        }
    }
    answered
}

/// Ends a stack: its threads, and then what they turned.
pub(crate) fn stop(stack: &Stack) {
    halt(stack);
    // Whatever handles to the stack are left: a lease ends with it.
    stack.control.leases.clear();
    for number in 0..stack.driver.queues.len() {
        stack.with_interface(number, |interface| interface.ending = true);
        // What connections still had to say (a FIN, a RST) goes out first.
        stack.turn_link(number, stack.clock.now());
        stack.with_receive(number, |receive| receive.close());
        stack.with_interface(number, Interface::close);
    }
}
