//! Remote calls under loom: each is run once or given back, no caller waits for ever (that is a deadlock, which loom reports), and what one side
//! wrote the other sees.

use super::{CallSender, CallServer, remote_calls};
use crate::{
    doorbell::{Doorbell, Sleep},
    sync::{Arc, Cell},
};
use loom::thread;

/// A number on its way there and back: loom panics if two touch it at once.
struct Number(Cell<u32>);

// SAFETY: the sender orders access to the cell, which is what the model checks.
unsafe impl Sync for Number {}

impl Number {
    /// Takes it, and leaves 0.
    fn take(&self) -> u32 {
        self.0.with_mut(|number| {
            // SAFETY: the server while its caller waits, or the caller when the server is done.
            unsafe { std::mem::take(&mut *number) }
        })
    }
}

fn remote() -> (CallSender<u32>, CallServer<u32>, Arc<Doorbell>) {
    let bell = Arc::new(Doorbell::new().unwrap());
    let (sender, server) = remote_calls(bell.clone());
    (sender, server, bell)
}

/// Adds to the server's sum; the new sum, if it was run.
fn add(sender: &CallSender<u32>, n: u32) -> Option<u32> {
    let number = Number(Cell::new(n));
    let call = |sum: &mut u32| {
        *sum += number.take();
        *sum
    };
    let answer = sender.run(call).ok();
    assert_eq!(number.take(), if answer.is_some() { 0 } else { n });
    answer
}

/// Serves until `n` calls were run, asleep whenever there is none.
fn serve(server: &mut CallServer<u32>, bell: &Doorbell, n: usize) -> u32 {
    let (mut sum, mut served) = (0, 0);
    while served < n {
        served += server.serve(&mut sum);
        if served < n {
            bell.arm(Sleep::Futex);
            if !server.has_calls() {
                bell.wait(None);
            }
            bell.disarm();
        }
    }
    sum
}

fn model(callers: usize, calls: usize, bound: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        let (sender, mut server, bell) = remote();
        let sender = Arc::new(sender);
        let threads: Vec<_> = (0..callers)
            .map(|_| {
                let sender = sender.clone();
                thread::spawn(move || (0..calls).all(|_| add(&sender, 1).is_some()))
            })
            .collect();
        let sum = serve(&mut server, &bell, callers * calls);
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
        assert_eq!(sum as usize, callers * calls);
    });
}

#[test]
fn one_caller_two_calls() {
    model(1, 2, Some(2));
}

#[test]
fn two_callers() {
    model(2, 1, Some(2));
}

/// The server ends at any moment: a call is run or given back.
#[test]
fn the_end_of_the_server_ends_every_wait() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (sender, mut server, _bell) = remote();
        let sender = Arc::new(sender);
        let threads = [1, 1].map(|n| {
            let sender = sender.clone();
            thread::spawn(move || add(&sender, n))
        });
        let mut sum = 0;
        server.serve(&mut sum);
        drop(server);
        let run = threads.map(|t| t.join().unwrap().is_some());
        assert_eq!(run.iter().filter(|&&run| run).count(), sum as usize);
        assert_eq!(add(&sender, 1), None);
    });
}
