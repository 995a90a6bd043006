//! The edge to C: results become return values and errno, panics become EIO.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use libc::c_int;

use crate::{
    errno::{code, fail, get, set},
    region::{self, Interrupted},
};

/// What a call comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done(isize),
    Failed(c_int),
}

fn outcome(call: impl FnOnce() -> io::Result<usize>) -> Outcome {
    match catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| fail(libc::EIO)) {
        Ok(value) => Outcome::Done(isize::try_from(value).unwrap_or(isize::MAX)),
        Err(error) => Outcome::Failed(code(&error)),
    }
}

/// Runs `call` inside netchan. EAGAIN where the thread is there already: a handler that netchan does not know of (installed by a
/// bare system call) interrupted a call, which may hold what this one needs.
fn inside(call: impl FnOnce() -> io::Result<usize>) -> (Outcome, Interrupted) {
    let nested = (Outcome::Failed(libc::EAGAIN), Interrupted::default());
    region::run(|| outcome(call)).unwrap_or(nested)
}

/// The value, or -1 with errno; a success leaves errno as it was before.
fn answer(outcome: Outcome, before: c_int) -> isize {
    match outcome {
        Outcome::Done(value) => {
            set(before);
            value
        }
        Outcome::Failed(code) => {
            set(code);
            -1
        }
    }
}

/// Runs `call` at the C edge: its value, or -1 with errno. A success leaves errno as it was; a panic is EIO.
pub fn long(call: impl FnOnce() -> io::Result<usize>) -> isize {
    let before = get();
    let (outcome, _) = inside(call);
    if outcome == Outcome::Failed(libc::EINTR) {
        region::cancellation_point();
    }
    answer(outcome, before)
}

/// As [`long`], for calls that may wait: a cancellation point. What only handlers with SA_RESTART interrupted begins anew, unless
/// it waits with a limit of time.
pub fn waiting(mut call: impl FnMut() -> io::Result<usize>) -> isize {
    let before = get();
    region::cancellation_point();
    loop {
        let (outcome, interrupted) = inside(&mut call);
        if outcome == Outcome::Failed(libc::EINTR) {
            region::cancellation_point();
            if interrupted.any && !interrupted.ends {
                continue;
            }
        }
        return answer(outcome, before);
    }
}

/// As [`long`], for calls that return an int.
pub fn int(call: impl FnOnce() -> io::Result<c_int>) -> c_int {
    let result = long(|| call().map(|value| usize::try_from(value).unwrap_or(0)));
    c_int::try_from(result).unwrap_or(c_int::MAX)
}

/// As [`int`], for calls that return nothing but success.
pub fn unit(call: impl FnOnce() -> io::Result<()>) -> c_int {
    int(|| call().map(|()| 0))
}
