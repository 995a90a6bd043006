//! The stack of a program lends its links to the program's forked children that make sockets of their own, as a daemon does.
//!
//! A child asks on the line ([`crate::line`]), with one end of a pair of sockets. Its thread starts with the first that asks.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use netchan::own::Own;
use netchan_lend::{Paused, Rules, Service};

use crate::{locks::hold, process, relay, sys};

enum Lending {
    No,
    Running(Service),
    Standing(Paused),
}

static LENDING: Mutex<Lending> = Mutex::new(Lending::No);

/// A thread answers.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// The same, for the time of a fork.
pub struct ForFork {
    _lending: MutexGuard<'static, Lending>,
}

/// For the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _lending: hold(&LENDING),
    }
}

/// In a child that begins anew: it lends nothing.
pub fn begin_anew() {
    mem::forget(mem::replace(&mut *hold(&LENDING), Lending::No)); // its parent's
    IS_RUNNING.store(false, Release);
}

/// A child asks for leases at the other end of `client`.
pub fn admit(client: Own) {
    let mut lending = hold(&LENDING);
    if matches!(*lending, Lending::Running(_)) && !is_running() {
        *lending = Lending::No; // the last client has gone
    }
    if matches!(*lending, Lending::No) {
        let Some(net) = process::running() else {
            return; // it hears the end of its connection
        };
        match Service::start(None, net, Rules::free(), Running::begin()) {
            Ok(service) => *lending = Lending::Running(service),
            Err(error) => sys::complain(&format!(
                "netchan: forked children have no leases: netchan-lease: {error}\n"
            )),
        }
    }
    if let Lending::Running(service) = &*lending {
        service.admit(client);
    }
}

/// Whether a thread answers.
pub fn is_running() -> bool {
    IS_RUNNING.load(Acquire) // pairs with Release below
}

/// Says so while the thread is there.
struct Running;

impl Running {
    fn begin() -> Self {
        IS_RUNNING.store(true, Release); // pairs with Acquire in is_running
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Release); // as above
        relay::wake(); // a keeper that waits for it
    }
}

/// The thread leaves all as it is, and ends. Whether there is a lease: then [`go_on`] is to follow, here or, after a fork, in the child ([`keep`]).
pub fn stand_still() -> bool {
    let mut lending = hold(&LENDING);
    let Lending::Running(service) = mem::replace(&mut *lending, Lending::No) else {
        return false;
    };
    let paused = service.pause();
    let is_used = paused.as_ref().is_some_and(Paused::has_clients);
    if let Some(paused) = paused {
        *lending = Lending::Standing(paused);
    }
    is_used
}

/// Answers again.
pub fn go_on() {
    resume(false);
}

/// In a keeper: answers again until no child has a lease.
pub fn keep() {
    resume(true);
}

fn resume(ends_with_clients: bool) {
    let mut lending = hold(&LENDING);
    match mem::replace(&mut *lending, Lending::No) {
        Lending::Standing(mut paused) => {
            if ends_with_clients {
                paused.end_with_clients();
            }
            if let Ok(service) = paused.resume(Running::begin()) {
                *lending = Lending::Running(service);
            }
        }
        other => *lending = other,
    }
}
