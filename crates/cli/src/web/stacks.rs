//! The stacks that are shown, and the looks at them, which all clients share: however many pages are open, a stack is asked as often as by one. No client waits
//! for a stack that another one is asking already: it gets what was seen last.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::Duration,
};

use hyper::StatusCode;
use netchan::control::{AskError, Stack};
use serde::Serialize;
use serde_json::Value;

use super::refused::Refused;
use crate::{
    look::{
        model::{Connection, Model},
        pause,
        sample::{self, Sample},
        walk::{Counts, Walk},
    },
    output::printable,
    show::{choose, process},
    units::now_ns,
};

/// Between two looks at a stack at least; the quickest page asks each half second.
const PACE: Duration = Duration::from_millis(450);
/// A look that is older is not compared with: its rates would be of a time that no page has seen.
const OLD: u64 = 10_000_000_000;
/// Between two looks for stacks.
const SEARCH: u64 = 2_000_000_000;
/// How long the first list is waited for.
const MOMENT: Duration = Duration::from_secs(1);
/// Stacks whose last look is kept.
const WATCHED_MAX: usize = 16;
/// Taps of a stack that are shown: it has no more.
const TAPS_MAX: usize = 64;

/// A stack in the list.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub stack: String,
    process: String,
}

/// What was seen of a stack.
#[derive(Debug)]
pub struct Seen {
    at_ns: u64,
    /// Without its sockets.
    pub model: Model,
    pub sockets: Vec<Connection>,
    pub walk: Walk,
    pub taps: Vec<Value>,
    pub links: Vec<String>,
}

impl Seen {
    /// How long ago, seconds.
    pub fn age_s(&self) -> f64 {
        now_ns().saturating_sub(self.at_ns) as f64 / 1e9 // precision: for a person
    }
}

/// What a look comes to: what was seen last, and what was wrong with the last question.
pub type Looked = (Option<Arc<Seen>>, Option<String>);

/// What is needed for the next look.
#[derive(Default)]
struct Asking {
    before: Option<(Sample, Counts)>,
    regime: Option<String>,
    /// No earlier than this.
    next_ns: u64,
}

/// A stack that is looked at.
#[derive(Default)]
struct Place {
    asking: Mutex<Asking>,
    last: Mutex<Looked>,
    used_ns: Mutex<u64>,
}

/// The stacks that were found.
#[derive(Default)]
struct Known {
    rows: Vec<Row>,
    stacks: Vec<Stack>,
}

/// Whether stacks are looked for.
#[derive(Default)]
struct Search {
    is_running: bool,
    /// No earlier than this they are looked for again; 0: they never were.
    next_ns: u64,
}

/// All of them.
pub struct Stacks {
    /// The only ones that are shown.
    pid: Option<String>,
    search: Mutex<Search>,
    searched: Condvar,
    known: Mutex<Arc<Known>>,
    places: Mutex<HashMap<String, Arc<Place>>>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None`: another thread has it.
fn free<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Stacks {
    /// Those that `pid` names; all of this user's, if it names none.
    pub fn new(pid: Option<String>) -> Self {
        Self {
            pid,
            search: Mutex::default(),
            searched: Condvar::new(),
            known: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// Those that run.
    pub fn rows(self: &Arc<Self>) -> Vec<Row> {
        self.search();
        locked(&self.known).rows.clone()
    }

    /// All of them, for what asks each.
    pub fn all(self: &Arc<Self>) -> Vec<Stack> {
        self.search();
        locked(&self.known).stacks.clone()
    }

    /// The stack of this name.
    ///
    /// # Errors
    /// There is none, or none that may be shown.
    pub fn find(self: &Arc<Self>, id: &str) -> Result<Stack, Refused> {
        let found = self.all().into_iter().find(|stack| stack.id == id);
        let why = || Refused::new(StatusCode::NOT_FOUND, format!("no stack {id} runs"));
        found.ok_or_else(why)
    }

    /// Has a thread look for stacks, if the last time is long ago: one that says nothing may hold it for many seconds. Waited for it is only a moment, and where
    /// what is known is old.
    fn search(self: &Arc<Self>) {
        let mut search = locked(&self.search);
        let now = now_ns();
        if !search.is_running && now >= search.next_ns {
            let own = Arc::clone(self);
            let begun = thread::Builder::new().name("web-search".to_owned());
            search.is_running = begun.spawn(move || Searching(&own).run()).is_ok();
        }
        if now >= search.next_ns.saturating_add(OLD) {
            let running = |search: &mut Search| search.is_running;
            let waited = (self.searched).wait_timeout_while(search, MOMENT, running);
            drop(waited);
        }
    }

    /// What there is to see of `stack`: of a new look, if it is time for one.
    pub fn look(&self, stack: &Stack) -> Looked {
        let place = self.place(&stack.id);
        if let Some(mut asking) = free(&place.asking)
            && now_ns() >= asking.next_ns
        {
            let began = now_ns();
            let result = asking.look(stack);
            let took = match result {
                Ok(_) => Duration::from_nanos(now_ns().saturating_sub(began)),
                // One that gave no answer may go on at any time.
                Err(_) => Duration::ZERO,
            };
            let rest = u64::try_from(pause(PACE, took).as_nanos()).unwrap_or(u64::MAX);
            asking.next_ns = now_ns().saturating_add(rest);
            let mut last = locked(&place.last);
            match result {
                Ok(seen) => *last = (Some(Arc::new(seen)), None),
                Err(why) => last.1 = Some(printable(&why.to_string())),
            }
        }
        locked(&place.last).clone()
    }

    /// The place of the stack `id`; for a new one the place that was used least recently goes.
    fn place(&self, id: &str) -> Arc<Place> {
        let mut places = locked(&self.places);
        if !places.contains_key(id) && places.len() >= WATCHED_MAX {
            let oldest = places
                .iter()
                .min_by_key(|(_, place)| *locked(&place.used_ns));
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                places.remove(&oldest);
            }
        }
        let place = Arc::clone(places.entry(id.to_owned()).or_default());
        *locked(&place.used_ns) = now_ns();
        place
    }
}

/// One search; that it has ended is known, however it does.
struct Searching<'a>(&'a Stacks);

impl Searching<'_> {
    fn run(self) {
        // None at all is no failure: the next may come.
        let stacks = choose(self.0.pid.as_deref()).unwrap_or_default();
        let row = |stack: &Stack| {
            let hello = stack.hello().ok();
            let process = hello.as_ref().and_then(process);
            Row {
                stack: stack.id.clone(),
                process: process.map_or_else(|| stack.pid.to_string(), |name| printable(&name)),
            }
        };
        let rows = stacks.iter().map(row).collect();
        *locked(&self.0.known) = Arc::new(Known { rows, stacks });
    }
}

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        *locked(&self.0.search) = Search {
            is_running: false,
            next_ns: now_ns().saturating_add(SEARCH),
        };
        self.0.searched.notify_all();
    }
}

impl Asking {
    fn look(&mut self, stack: &Stack) -> Result<Seen, AskError> {
        let sample = sample::take(stack, &mut self.regime)?;
        let counts = Counts::take(stack)?;
        let taps = stack.show("taps")?;
        let taps = taps.as_array().map_or(&[][..], Vec::as_slice);
        let taps = taps.iter().take(TAPS_MAX).cloned().collect();
        let at_ns = sample.about.at_ns;
        let before = self.before.take();
        let before = before.filter(|(old, _)| at_ns.saturating_sub(old.about.at_ns) < OLD);
        let mut model = Model::between(before.as_ref().map(|(old, _)| old), &sample);
        let sockets = mem::take(&mut model.sockets);
        let pair = before.as_ref().map(|(sample, counts)| (sample, counts));
        let walk = Walk::between(pair, (&sample, &counts));
        // A part would pass for the whole.
        let is_whole = sample.omitted == 0 && before.is_some();
        let sum = |value: fn(&Connection) -> Option<f64>| {
            is_whole.then(|| sockets.iter().filter_map(value).sum())
        };
        let walk = walk.with_sockets(sum(|s| s.in_bits_per_s), sum(|s| s.out_bits_per_s));
        let links = sample.links.rows.iter().map(|link| link.name.clone());
        let seen = Seen {
            at_ns,
            links: links.collect(),
            model,
            sockets,
            walk,
            taps,
        };
        self.before = Some((sample, counts));
        Ok(seen)
    }
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
