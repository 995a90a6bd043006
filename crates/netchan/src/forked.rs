//! fork(2) in a process that has a stack: what the child may find locked for ever, and what is the parent's in a child that has a stack of its own.
//!
//! For a library that stands before a program's calls, and forks with it. Only the thread that forks is there in the child: a lock of the process's that
//! another one held at that moment is let go of by no thread.

use std::sync::MutexGuard;

use percore::{doorbell, own, slab};

use crate::trace;

/// The process's locks, of which stacks have no copies of their own. Dropping it lets go of them.
#[derive(Debug)]
pub struct ForFork {
    _reserve: doorbell::ForFork,
    _slabs: slab::ForFork,
    _rings: Option<trace::ForFork>,
    _numbers: MutexGuard<'static, ()>,
}

/// Takes them, for the time of a fork.
#[must_use]
pub fn held_for_fork() -> ForFork {
    ForFork {
        _reserve: doorbell::held_for_fork(),
        _slabs: slab::held_for_fork(),
        _rings: trace::held_for_fork(),
        _numbers: own::held_for_fork(), // last: with another one in hand numbers are made
    }
}

/// In a forked child, before its first stack: what refers to descriptors of the parent's ([`own::abandon`]) is forgotten, and its threads are not shown.
pub fn begin_anew() {
    doorbell::begin_anew();
    trace::begin_anew();
}
