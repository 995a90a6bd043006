//! The witness (F7): in a build with the feature `witness`, every lock acquisition is checked against the declared order.
//!
//! Guarantees:
//! * Without the feature ([`ON`] is false) every function here is empty, and [`RawMutex`] has no instruction more.
//! * With it, a thread that takes a lock while it holds one of the same or a higher rank is reported *whether or not* any other thread
//!   is in the way: a reversal is found on the first run that passes by, not on the one that hangs.
//! * A report names both locks, says where each was taken (backtraces), and where the declared order was first followed.
//!   Also reported: a thread that waits for a lock it holds, and one that goes to sleep while it holds one ([`sleeping`]).
//! * What each thread holds can be asked from any thread ([`holders`], `show locks`).
//!
//! With it, the cost is microseconds and allocations for every acquisition: say [`ON`] beside any measurement. Locks taken by `try_lock`
//! cannot wait, so their own order is not checked; what is taken while they are held is.

#![cfg_attr(loom, allow(dead_code))] // in a model nothing is checked

mod check;
#[cfg(all(test, not(loom)))]
mod tests;

pub use check::{Action, Fault, Holder, Report};

use crate::lock::{Class, RawMutex};
use std::fmt::Write as _;

/// Whether locks are checked in this build.
pub const ON: bool = cfg!(feature = "witness") && !cfg!(loom);

/// The calling thread is about to wait for `lock`.
#[inline(always)]
pub(crate) fn before(class: &'static Class, lock: &RawMutex) {
    if ON {
        check::before(class, address(lock));
    }
}

/// The calling thread has taken `lock`.
#[inline(always)]
pub(crate) fn acquired(class: &'static Class, lock: &RawMutex) {
    if ON {
        check::acquired(class, address(lock));
    }
}

/// The calling thread is about to unlock `lock`.
#[inline(always)]
pub(crate) fn released(lock: &RawMutex) {
    if ON {
        check::released(address(lock));
    }
}

fn address(lock: &RawMutex) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// What a mutex says, with the feature and without, when its owner waits for it.
pub(crate) fn self_deadlock(class: &Class) -> String {
    let name = class.name();
    format!("a thread waits for a lock of class '{name}' that it holds itself")
}

/// The calling thread is about to sleep in `place` (a few words) for something else than a mutex. A fault if it holds a lock that
/// is not [`across_sleep`](Class::across_sleep): a thread that waits for that lock waits for the sleeper's event, too.
#[inline(always)]
pub fn sleeping(place: &str) {
    if ON {
        check::sleeping(place);
    }
}

/// What to do with a fault from now on; at first [`Action::Panic`], or [`Action::Abort`] where the environment says
/// `PERCORE_WITNESS=abort`. (A self-deadlock panics in any case.)
pub fn set_action(action: Action) {
    check::set_action(action);
}

/// The reports so far, oldest first; the first 100 of them. They are kept until [`forget`].
pub fn reports() -> Vec<Report> {
    check::reports()
}

/// Panics with the first report, if there was one: for the end of a test.
pub fn assert_no_reports() {
    let reports = reports();
    if let Some(first) = reports.first() {
        panic!(
            "the witness has {} reports, the first:\n{first}",
            reports.len()
        );
    }
}

/// Drops the reports.
pub fn forget() {
    check::forget();
}

/// All locks that are held now, by any thread. Without the feature: none.
pub fn holders() -> Vec<Holder> {
    check::holders()
}

/// [`holders`], as a table for a person.
pub fn show_locks() -> String {
    if !ON {
        return "lock holders are known in a build with the feature `witness` only\n".to_owned();
    }
    let mut text = format!(
        "{:<20} {:<20} {:>18} {:>14}  {}\n",
        "thread", "class", "lock", "held for", "taken by"
    );
    for holder in holders() {
        let Holder {
            thread,
            class,
            lock,
            held_ns,
            ..
        } = &holder;
        let us = held_ns / 1000;
        // A String takes whatever is written to it.
        let _ = writeln!(
            text,
            "{thread:<20} {class:<20} {lock:>#18x} {us:>11} µs  {}",
            holder.place()
        );
    }
    text
}
