//! The thread that asks the stack, so that the screen never waits for an answer.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use netchan::control::{AskError, Stack};

use crate::{
    look::{
        pause,
        sample::{self, Sample},
    },
    show::choose,
    units::now_ns,
};

/// What it is told.
#[derive(Debug)]
pub enum Order {
    Pace(Duration),
    Pause(bool),
    /// Ask the next of several stacks.
    Next,
}

/// One look.
#[derive(Debug)]
pub struct Look {
    pub result: Result<Sample, AskError>,
    /// Which stack it was, from 1, of how many.
    pub number: usize,
    pub of: usize,
    /// Until the next one.
    pub pause: Duration,
}

/// Asks `stack` at `pace` until nothing takes the looks. `pid`: the stacks that may be chosen.
pub fn run(
    mut stack: Stack,
    pid: Option<&str>,
    mut pace: Duration,
    orders: &Receiver<Order>,
    say: impl Fn(Look) -> bool,
) {
    let (mut regime, mut is_paused) = (None, false);
    let (mut number, mut of) = place(&stack, &choose(pid).unwrap_or_default());
    loop {
        let began = now_ns();
        let result = sample::take(&stack, &mut regime);
        // One that gave no answer is asked at the usual pace: it may go on at any time.
        let took = match result {
            Ok(_) => since(began),
            Err(_) => Duration::ZERO,
        };
        let look = Look {
            result,
            number,
            of,
            pause: pause(pace, took),
        };
        if !say(look) {
            return;
        }
        let done = now_ns();
        loop {
            let left = match is_paused {
                true => Duration::MAX,
                false => pause(pace, took).saturating_sub(since(done)),
            };
            match orders.recv_timeout(left) {
                Ok(Order::Pace(new)) => pace = new,
                Ok(Order::Pause(new)) => is_paused = new,
                Ok(Order::Next) => {
                    // A look at what runs now; it takes long where one of them is silent.
                    let stacks = choose(pid).unwrap_or_default();
                    let (at, all) = place(&stack, &stacks);
                    if let Some(next) = stacks.get(at % stacks.len().max(1)) {
                        (stack, regime) = (next.clone(), None);
                        (number, of) = place(&stack, &stacks);
                    } else {
                        of = all;
                    }
                    break;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn since(began: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(began))
}

/// Which of `stacks` it is, from 1; 0: none of them.
fn place(stack: &Stack, stacks: &[Stack]) -> (usize, usize) {
    let at = stacks.iter().position(|other| other.id == stack.id);
    (at.map_or(0, |at| at + 1), stacks.len())
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::mpsc::channel};

    use super::*;

    /// A socket on which no stack listens: the look says so, and the next one comes all the same.
    #[test]
    fn a_stack_that_has_ended_is_asked_on() {
        let stack = Stack {
            id: "1".to_owned(),
            pid: 1,
            path: PathBuf::from("/nonexistent/1.sock"),
            user: None,
        };
        let (_orders, asked) = channel();
        let left = std::cell::Cell::new(3);
        run(
            stack,
            Some("none"),
            Duration::from_millis(1),
            &asked,
            |look| {
                assert!(matches!(look.result, Err(AskError::Gone)), "{look:?}");
                left.set(left.get() - 1);
                left.get() > 0
            },
        );
        assert_eq!(left.get(), 0);
    }
}
