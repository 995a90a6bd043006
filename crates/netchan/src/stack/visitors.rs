//! The application's threads that wait for sockets, and what each does, for `netchan show threads`.
//!
//! A thread writes one word, relaxed, when it begins to wait, when it leads, and when it returns to the program. It has no time in it: reading the clock
//! for each wait would cost more than all else here.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use percore::lock::{Mutex, mutex};

use super::{Stack, watch};
use crate::{locks, regime::Handoff};

/// The low bits of the word; the others are a shard's number.
const MASK: u32 = 3;
const PROGRAM: u32 = 0;
const WAITS: u32 = 1;
const LEADS_SHARD: u32 = 2;
const LEADS_LINKS: u32 = 3;

/// What a thread of the application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It is in the program, outside of any wait.
    Program,
    /// Another thread wakes it.
    Waits,
    /// It waits, and turns this shard meanwhile.
    LeadsShard(usize),
    /// The same, and it polls the links of the shard's lane.
    LeadsLinks(usize),
}

/// One thread's word.
#[derive(Debug)]
pub struct Visitor {
    thread: u32,
    word: AtomicU32,
}

impl Visitor {
    /// Says what the thread does now.
    #[inline]
    pub fn does(&self, doing: Doing) {
        let of = |shard: usize, what| u32::try_from(shard).unwrap_or(0) << 2 | what;
        let word = match doing {
            Doing::Program => PROGRAM,
            Doing::Waits => WAITS,
            Doing::LeadsShard(shard) => of(shard, LEADS_SHARD),
            Doing::LeadsLinks(shard) => of(shard, LEADS_LINKS),
        };
        self.word.store(word, Relaxed); // one word, for a look from outside
    }

    fn doing(&self) -> Doing {
        let word = self.word.load(Relaxed);
        let shard = (word >> 2) as usize;
        match word & MASK {
            WAITS => Doing::Waits,
            LEADS_SHARD => Doing::LeadsShard(shard),
            LEADS_LINKS => Doing::LeadsLinks(shard),
            _ => Doing::Program,
        }
    }

    /// Its name and number, as perf(1) writes them; `None`: it has ended.
    pub fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/self/task/{}/comm", self.thread)).ok()?;
        Some(format!("{}/{}", name.trim_end(), self.thread))
    }

    /// Whether it waits.
    pub fn is_waiting(&self) -> bool {
        self.doing() != Doing::Program
    }

    /// What it does, in words.
    pub fn describe(&self, stack: &Stack) -> String {
        // Where shards are called, a leader has none of its own.
        let called = stack.layout.handoff == Handoff::Call;
        match self.doing() {
            Doing::Program => "in the program".into(),
            Doing::Waits => "waits".into(),
            Doing::LeadsShard(_) if called => "waits, runs the timers".into(),
            Doing::LeadsLinks(_) if called => "waits, polls the links".into(),
            Doing::LeadsShard(shard) => format!("waits, turns shard {shard}"),
            Doing::LeadsLinks(shard) => format!("waits, polls the links, turns shard {shard}"),
        }
    }

    /// What the kernel says of it.
    pub fn kernel(&self) -> Option<watch::Kernel> {
        watch::Kernel::of(self.thread)
    }
}

/// The threads of the application that have waited for a socket of the stack.
pub struct Visitors(Mutex<List>);

#[derive(Default)]
struct List {
    /// Threads leave without a word (a lock in their last moments, or after a fork, could be one that nothing unlocks): the dead are removed by the living.
    all: Vec<Weak<Visitor>>,
    /// At this length.
    until: usize,
}

impl Visitors {
    /// None yet.
    pub fn new() -> Self {
        Self(mutex(&locks::PULSES, List::default()))
    }

    /// The calling thread will wait.
    pub fn join(&self) -> Arc<Visitor> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let visitor = Arc::new(Visitor {
            thread: thread.unsigned_abs(),
            word: AtomicU32::new(PROGRAM),
        });
        let mut list = self.0.lock();
        if list.all.len() >= list.until {
            list.all.retain(|one| one.strong_count() > 0);
            list.until = 2 * list.all.len().max(8);
        }
        list.all.push(Arc::downgrade(&visitor));
        visitor
    }

    /// Those that there are, in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Visitor>> {
        let list = self.0.lock();
        list.all.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_says_is_read_again() {
        let visitors = Visitors::new();
        let visitor = visitors.join();
        let all = [
            Doing::Waits,
            Doing::LeadsShard(63),
            Doing::LeadsLinks(5),
            Doing::Program,
        ];
        for doing in all {
            visitor.does(doing);
            assert_eq!(visitors.all()[0].doing(), doing);
            assert_eq!(visitor.is_waiting(), doing != Doing::Program);
        }
    }

    #[test]
    fn threads_that_come_and_go_leave_nothing() {
        let visitors = Visitors::new();
        let stays = visitors.join();
        (0..1000).for_each(|_| drop(visitors.join()));
        assert_eq!(visitors.all().len(), 1);
        assert!(visitors.0.lock().all.capacity() <= 32);
        drop(stays);
        assert!(visitors.all().is_empty());
    }
}
