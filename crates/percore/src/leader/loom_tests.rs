//! Leader and background poller under loom: a poller that is not told is a deadlock, which loom reports.

use super::{Leader, Led, Rest};
use crate::{
    doorbell::{Doorbell, Sleep},
    sync::Arc,
};
use loom::thread;

/// Both, and the poller's bell.
#[derive(Default)]
struct Shared {
    leader: Leader,
    bell: Option<Doorbell>,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            leader: Leader::default(),
            bell: Some(Doorbell::new().unwrap()),
        })
    }

    fn bell(&self) -> &Doorbell {
        self.bell.as_ref().unwrap()
    }

    /// Rests until the sources are the poller's own; an interval is over whenever the scheduler says.
    fn rest(&self, seen: &mut u32) {
        loop {
            self.bell().arm(Sleep::Fd);
            let rest = self.leader.rest(seen);
            if rest == Rest::Sleep {
                self.bell().poll();
            }
            self.bell().disarm();
            match rest {
                Rest::Poll | Rest::TakeOver => return,
                Rest::Interval => thread::yield_now(),
                Rest::Sleep => {}
            }
        }
    }
}

fn lead_and_leave(shared: &Shared) {
    match shared.leader.lead() {
        Some(Led::Anew) => _ = shared.bell().ring(),
        Some(Led::Again) => {}
        None => return,
    }
    if shared.leader.leave() {
        shared.bell().ring();
    }
}

fn checked(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn a_poller_takes_over(terms: usize) {
    checked(move || {
        let shared = Shared::new();
        let leader = {
            let shared = shared.clone();
            thread::spawn(move || (0..terms).for_each(|_| lead_and_leave(&shared)))
        };
        let mut seen = 0;
        shared.rest(&mut seen);
        leader.join().unwrap();
        // Whatever came before: now there is no leader that could tell.
        shared.rest(&mut seen);
    });
}

#[test]
fn a_poller_takes_over_from_a_leader_that_is_away() {
    a_poller_takes_over(1);
}

#[test]
fn a_poller_takes_over_from_one_that_comes_twice() {
    a_poller_takes_over(2);
}

/// Two threads that wait in turns: at most one leads, and a poller takes over from either.
#[test]
fn a_poller_takes_over_from_the_last_of_two_leaders() {
    checked(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || lead_and_leave(&shared))
        };
        lead_and_leave(&shared);
        other.join().unwrap();
        shared.rest(&mut 0);
    });
}

/// A poller that sleeps on its source is called off it.
#[test]
fn a_poller_is_told_of_a_new_leader() {
    checked(|| {
        let shared = Shared::new();
        let leader = {
            let shared = shared.clone();
            thread::spawn(move || {
                assert_eq!(shared.leader.lead(), Some(Led::Anew));
                shared.bell().ring();
            })
        };
        shared.bell().arm(Sleep::Fd);
        if shared.leader.rest(&mut 0) == Rest::Poll {
            shared.bell().poll(); // its source says nothing
        }
        shared.bell().disarm();
        assert!(shared.leader.is_led());
        leader.join().unwrap();
    });
}

#[test]
fn at_most_one_leads() {
    checked(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.leader.lead().is_some())
        };
        let here = shared.leader.lead().is_some();
        assert!(here ^ other.join().unwrap());
    });
}

/// Whatever a thread that polls beside the leader writes over, a poller takes over in the end.
#[test]
fn a_poller_takes_over_after_polls_in_the_leaders_place() {
    checked(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.leader.polled())
        };
        lead_and_leave(&shared);
        shared.rest(&mut 0);
        other.join().unwrap();
        shared.rest(&mut 0);
    });
}
