//! Waiting in calls: try, register, try again, sleep.

use std::{cell::Cell, io, time::Duration};

use netchan::{
    Instant, Net,
    socket::{Readiness, Waiter},
};

use crate::{
    edge::{fail, would_block},
    socket::Handle,
    stack::Stack,
    sys,
};

/// This thread's waiter, of the stack that it last waited on. A forked child has none: what it refers to is the parent's.
struct Local {
    stack: u64,
    waiter: Option<Waiter>,
}

impl Drop for Local {
    fn drop(&mut self) {
        if sys::is_child() {
            std::mem::forget(self.waiter.take());
        }
    }
}

thread_local! {
    static WAITER: Cell<Option<Local>> = const { Cell::new(None) };
}

/// Lends this thread's waiter on a stack.
pub fn with_waiter<T>(
    stack: &Stack,
    call: impl FnOnce(&mut Waiter) -> io::Result<T>,
) -> io::Result<T> {
    let kept = WAITER.try_with(Cell::take).unwrap_or(None);
    let mut local = match kept.filter(|local| local.stack == stack.number) {
        Some(local) => local,
        None => Local {
            stack: stack.number,
            waiter: None,
        },
    };
    let waiter = match &mut local.waiter {
        Some(waiter) => waiter,
        none => none.insert(Waiter::new(&stack.net)?),
    };
    let result = call(waiter);
    // While the thread ends there is no place to keep it: it is dropped here instead.
    let _ = WAITER.try_with(|place| place.set(Some(local)));
    result
}

/// A point in time to wait for; `None` is never.
#[derive(Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// After `timeout` from now.
    pub fn after(net: &Net, timeout: Option<Duration>) -> Self {
        Self(timeout.map(|timeout| net.clock().now() + timeout))
    }

    /// What is left; zero once it has passed.
    pub fn left(self, net: &Net) -> Option<Duration> {
        self.0.map(|at| at.since(net.clock().now()))
    }

    /// Whether it has passed.
    pub fn has_passed(self, net: &Net) -> bool {
        self.left(net).is_some_and(|left| left.is_zero())
    }
}

/// Calls `attempt` until it answers something else than `WouldBlock`, waiting for `interest` in between unless the call does not wait.
///
/// EAGAIN when `timeout` has passed, EINTR when a signal handler ran, EBADF when the handle was closed.
pub fn until<T>(
    handle: &Handle,
    interest: Readiness,
    never_waits: bool,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match attempt() {
        Err(error) if would_block(&error) && !never_waits => {
            sleep_until(handle, interest, timeout, attempt)
        }
        result => result,
    }
}

#[cold]
fn sleep_until<T>(
    handle: &Handle,
    interest: Readiness,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let net = &handle.stack.net;
    let deadline = Deadline::after(net, timeout);
    with_waiter(&handle.stack, |waiter| {
        let waker = waiter.waker().clone();
        let mut is_open = handle.enter(&waker);
        let result = loop {
            // Once more if it became ready since.
            if waiter.register(&handle.socket, interest) {
                match attempt() {
                    Err(error) if would_block(&error) => {}
                    result => break result,
                }
            }
            if !is_open {
                break fail(libc::EBADF);
            }
            if deadline.has_passed(net) {
                break fail(libc::EAGAIN);
            }
            waiter.spin(handle.busy_poll());
            if let Err(error) = waiter.wait(&mut [], deadline.left(net)) {
                break Err(error);
            }
            match attempt() {
                Err(error) if would_block(&error) => {}
                result => break result,
            }
            is_open = !handle.is_closed();
        };
        handle.socket.deregister(&waker);
        handle.leave(&waker);
        result
    })
}
