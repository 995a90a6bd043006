//! The threads that a configuration names: one for each link, and the attendant of channel-fed shards.

use std::{io, sync::Arc, thread};

use percore::doorbell::{Doorbell, Sleep};
use proto::time::{Duration, Instant};

use crate::{
    interface::Interface,
    regime::Handoff,
    socket::wait::{attend, ppoll, readable},
    stack::Stack,
};

/// Starts a stack's threads.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn start(stack: &Arc<Stack>) -> io::Result<()> {
    let mut threads = stack.threads.lock();
    for number in 0..stack.ports.len() {
        let stack = stack.clone();
        let name = format!("netchan-link{number}");
        threads.push(
            thread::Builder::new()
                .name(name)
                .spawn(move || turn_link(&stack, number))?,
        );
    }
    if stack.layout.handoff == Handoff::Channel {
        let stack = stack.clone();
        let name = "netchan-attend".to_owned();
        threads.push(
            thread::Builder::new()
                .name(name)
                .spawn(move || attend(&stack, &stack.attendant))?,
        );
    }
    Ok(())
}

/// A link's thread: turns it while there is work, then sleeps on the link and its doorbell.
fn turn_link(stack: &Stack, number: usize) {
    // The first link's thread also serves the timers of shards that are called.
    let timers = number == 0 && stack.layout.handoff == Handoff::Call;
    let mut idle_since = None;
    while !stack.is_stopping() {
        let now = stack.clock.now();
        let work = stack.turn_link(number, now);
        if timers {
            stack.run_called_timers(now);
        }
        if work {
            idle_since = None;
            continue;
        }
        let since = *idle_since.get_or_insert(now);
        if now.since(since) < Duration::from_nanos(stack.spin_ns) {
            std::hint::spin_loop();
            continue;
        }
        sleep(stack, number, timers);
        idle_since = None;
    }
}

fn sleep(stack: &Stack, number: usize, timers: bool) {
    let port = &stack.ports[number];
    port.doorbell.arm(Sleep::Fd);
    let now = stack.clock.now();
    // Once more after arming: what came before it may have rung nobody.
    if !stack.turn_link(number, now) && !stack.is_stopping() {
        let mut fds = [readable(port.doorbell.fd()); 2];
        let mut count = 1;
        let mut until = stack.with_interface(number, |interface| {
            if let Some(fd) = interface.link.fd().filter(|_| interface.gone.is_none()) {
                fds[1] = readable(fd);
                count = 2;
            }
            interface.next_event()
        });
        if timers {
            until = stack
                .cells
                .iter()
                .map(|cell| cell.next_timer())
                .fold(until, Instant::min);
        }
        let until = until.min(now + LONGEST_SLEEP);
        if until > now {
            // An error (EINTR) ends the sleep, nothing more.
            let _ = ppoll(&mut fds[..count], until, now);
        }
    }
    port.doorbell.disarm();
}

/// Nothing needs it; it bounds the harm of a lost wake-up, which no test has seen.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Tells all threads to end, and waits for them.
pub(crate) fn stop(stack: &Stack) {
    // SeqCst: before the rings that follow.
    stack.stop.store(true, std::sync::atomic::Ordering::SeqCst);
    drop(stack.control.lock().take());
    let ring = |doorbell: &Doorbell| doorbell.ring();
    stack.ports.iter().for_each(|port| {
        ring(&port.doorbell);
    });
    stack.cells.iter().for_each(|cell| {
        ring(&cell.doorbell);
    });
    ring(&stack.attendant);
    let threads: Vec<_> = stack.threads.lock().drain(..).collect();
    let me = thread::current().id();
    for handle in threads {
        if handle.thread().id() != me {
            // A thread that panicked has said so on stderr.
            let _ = handle.join();
        }
    }
    for number in 0..stack.ports.len() {
        stack.with_interface(number, |interface| interface.ending = true);
        // What connections still had to say (a FIN, a RST) goes out first.
        stack.turn_link(number, stack.clock.now());
        stack.with_interface(number, Interface::close);
    }
}
