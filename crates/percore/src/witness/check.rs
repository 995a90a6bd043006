//! What each thread holds, and whether it may take one more.

use super::self_deadlock;
use crate::{clock, lock::Class};
use std::{
    backtrace::Backtrace,
    cell::OnceCell,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

/// A program that faults in a loop shall not fill the memory.
const REPORTS_MAX: usize = 100;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A lock was taken out of order.
    Reversal,
    /// A thread waits for a lock that it holds.
    SelfDeadlock,
    /// A thread went to sleep with a lock.
    HeldAsleep,
}

/// What to do when something is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Panic with the report as the message (a thread that panics already goes on).
    Panic,
    /// Print the report and end the process: a thread's panic can go unnoticed, this cannot. For tests.
    Abort,
    /// Keep the report, and go on.
    Note,
}

/// Something that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What kind of thing.
    pub fault: Fault,
    /// The whole story: thread, locks, orders, backtraces.
    pub text: String,
}

/// A lock that is held now.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The thread's name, or its number.
    pub thread: String,
    /// The lock's class.
    pub class: &'static str,
    /// The lock's address.
    pub lock: usize,
    /// For how long it has been held.
    pub held_ns: u64,
    taken: Arc<Backtrace>,
}

impl Holder {
    /// The function that took it, with its place in the source; looking it up takes a while.
    pub fn place(&self) -> String {
        let text = self.taken.to_string();
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            // "12: crate::function", and on a line of its own "at file:line:column".
            let Some((_, function)) = line.split_once(": ") else {
                continue;
            };
            let ours = ["percore::lock", "percore::witness", "lock_api::", "std::"];
            if !ours.iter().any(|part| function.contains(part)) {
                let at = lines.peek().filter(|next| next.starts_with("at "));
                return at.map_or(function.to_owned(), |at| format!("{function} {at}"));
            }
        }
        String::new()
    }
}

/// One lock that a thread holds.
#[derive(Clone)]
struct Held {
    class: &'static Class,
    lock: usize,
    since_ns: u64,
    taken: Arc<Backtrace>,
}

/// One thread's locks, in the order in which it took them.
struct Holding {
    thread: String,
    held: Mutex<Vec<Held>>,
}

/// Where the second lock of a pair was first taken while the first was held, in the declared order.
type Followed = BTreeMap<(u16, u16), (Arc<Backtrace>, Arc<Backtrace>)>;

static THREADS: Mutex<Vec<Weak<Holding>>> = Mutex::new(Vec::new());
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());
static FOLLOWED: Mutex<Followed> = Mutex::new(BTreeMap::new());
/// What to do, as a number; `UNDECIDED` until it is asked for.
static ACTION: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const PANIC: u8 = 1;
const ABORT: u8 = 2;
const NOTE: u8 = 3;

thread_local! {
    static HOLDING: OnceCell<Arc<Holding>> = const { OnceCell::new() };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // nothing in here panics half-way
}

impl Holding {
    fn new() -> Arc<Self> {
        let thread = thread::current();
        let name = thread.name().map(str::to_owned);
        let holding = Arc::new(Self {
            thread: name.unwrap_or_else(|| format!("{:?}", thread.id())),
            held: Mutex::new(Vec::new()),
        });
        let mut threads = lock(&THREADS);
        threads.retain(|other| other.strong_count() > 0);
        threads.push(Arc::downgrade(&holding));
        holding
    }

    /// The calling thread's; `None` once its thread-locals are gone.
    fn mine() -> Option<Arc<Self>> {
        HOLDING
            .try_with(|mine| mine.get_or_init(Self::new).clone())
            .ok()
    }
}

/// Whether a thread that holds `held` may wait for `lock` of `class`.
fn in_order(held: &Held, class: &Class, lock: usize) -> bool {
    if held.class == class && class.may_be_several() {
        return held.lock < lock;
    }
    held.class.rank() < class.rank()
}

pub(super) fn before(class: &'static Class, lock_at: usize) {
    let Some(mine) = Holding::mine() else { return };
    let held = lock(&mine.held).clone();
    if let Some(same) = held.iter().find(|held| held.lock == lock_at) {
        let text = format!(
            "{} on thread '{}'\n{}",
            self_deadlock(class),
            mine.thread,
            taken(same)
        );
        note(Fault::SelfDeadlock, &text);
        panic!("{text}");
    }
    if let Some(other) = held.iter().find(|held| !in_order(held, class, lock_at)) {
        let text = reversal(&mine.thread, other, class, lock_at);
        fault(Fault::Reversal, &text);
    }
}

pub(super) fn acquired(class: &'static Class, lock_at: usize) {
    let Some(mine) = Holding::mine() else { return };
    let new = Held {
        class,
        lock: lock_at,
        since_ns: clock::now_ns(),
        taken: Arc::new(Backtrace::force_capture()),
    };
    let mut held = lock(&mine.held);
    for other in held.iter().filter(|held| in_order(held, class, lock_at)) {
        let pair = (other.class.rank(), class.rank());
        lock(&FOLLOWED)
            .entry(pair)
            .or_insert_with(|| (other.taken.clone(), new.taken.clone()));
    }
    held.push(new);
}

pub(super) fn released(lock_at: usize) {
    if let Some(mine) = Holding::mine() {
        let mut held = lock(&mine.held);
        // Locks need not be given back in the order in which they were taken.
        if let Some(i) = held.iter().rposition(|held| held.lock == lock_at) {
            held.remove(i);
        }
    }
}

pub(super) fn sleeping(place: &str) {
    let Some(mine) = Holding::mine() else { return };
    let held = lock(&mine.held).clone();
    let bad = held.iter().filter(|held| !held.class.may_be_held_asleep());
    let taken: String = bad.map(taken).collect();
    if !taken.is_empty() {
        let text = format!(
            "thread '{}' goes to sleep in {place} with a lock held\n{taken}it goes to sleep at:\n{}",
            mine.thread,
            Backtrace::force_capture()
        );
        fault(Fault::HeldAsleep, &text);
    }
}

fn taken(held: &Held) -> String {
    let Held {
        class, lock, taken, ..
    } = held;
    format!("'{}' at {lock:#x} was taken at:\n{taken}\n", class.name())
}

fn reversal(thread: &str, held: &Held, class: &Class, lock_at: usize) -> String {
    let (first, second) = (held.class, class);
    let declared = if first == second && first.may_be_several() {
        format!(
            "several of class '{}' in the order of their addresses",
            first.name()
        )
    } else if first.rank() == second.rank() {
        format!(
            "neither of '{}' and '{}' (both of rank {}) while the other is held",
            first.name(),
            second.name(),
            first.rank()
        )
    } else {
        format!(
            "'{}' (rank {}) before '{}' (rank {})",
            second.name(),
            second.rank(),
            first.name(),
            first.rank()
        )
    };
    let followed = match lock(&FOLLOWED).get(&(second.rank(), first.rank())) {
        Some((outer, inner)) => format!(
            "the declared order was first followed, '{}' at:\n{outer}\nthen '{}' at:\n{inner}\n",
            second.name(),
            first.name()
        ),
        None => "the declared order has not been followed so far\n".to_owned(),
    };
    format!(
        "lock order reversal on thread '{thread}'\n\
         declared: {declared}\n\
         here: '{}' at {:#x}, then '{}' at {lock_at:#x}\n\
         {}'{}' at {lock_at:#x} is being taken at:\n{}\n{followed}",
        first.name(),
        held.lock,
        second.name(),
        taken(held),
        second.name(),
        Backtrace::force_capture(),
    )
}

fn note(fault: Fault, text: &str) {
    if action() == ABORT {
        eprintln!("{text}");
        std::process::abort();
    }
    let mut reports = lock(&REPORTS);
    if reports.len() < REPORTS_MAX {
        let text = text.to_owned();
        reports.push(Report { fault, text });
    }
}

fn fault(fault: Fault, text: &str) {
    note(fault, text);
    let panics = action() == PANIC && !thread::panicking();
    assert!(!panics, "{text}");
}

fn action() -> u8 {
    // Relaxed: a setting by itself.
    let action = ACTION.load(Ordering::Relaxed);
    if action != UNDECIDED {
        return action;
    }
    let abort = std::env::var_os("PERCORE_WITNESS").is_some_and(|value| value == "abort");
    let action = if abort { ABORT } else { PANIC };
    ACTION.store(action, Ordering::Relaxed);
    action
}

pub(super) fn set_action(action: Action) {
    let action = match action {
        Action::Panic => PANIC,
        Action::Abort => ABORT,
        Action::Note => NOTE,
    };
    ACTION.store(action, Ordering::Relaxed);
}

pub(super) fn reports() -> Vec<Report> {
    lock(&REPORTS).clone()
}

pub(super) fn forget() {
    lock(&REPORTS).clear();
}

pub(super) fn holders() -> Vec<Holder> {
    let now = clock::now_ns();
    let threads: Vec<_> = lock(&THREADS).iter().filter_map(Weak::upgrade).collect();
    let mut holders = Vec::new();
    for holding in threads {
        let held = lock(&holding.held);
        holders.extend(held.iter().map(|held| Holder {
            thread: holding.thread.clone(),
            class: held.class.name(),
            lock: held.lock,
            held_ns: now.saturating_sub(held.since_ns),
            taken: held.taken.clone(),
        }));
    }
    holders
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
