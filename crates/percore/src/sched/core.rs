//! A core as its tasks see it: spawn, sleep, wake, send, critical sections.

use super::{
    Message, Settings,
    shared::Shared,
    sleepers::{Key, Sleepers, TSleep},
    tasks::{Tasks, YieldNow},
};
use crate::{
    clock,
    crossbar::{Inbox, Outbox, Port},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// What gets messages of other cores: this core, the sender's number, the message.
type Handler<M> = Box<dyn FnMut(&Core<M>, usize, M)>;
/// Somewhere work comes from: this core, how much at most; how much it was.
type Source<M> = Box<dyn FnMut(&Core<M>, usize) -> usize>;

/// A core of the [`machine`](super::machine): a handle that its tasks clone and keep. It cannot leave its thread.
pub struct Core<M>(pub(super) Rc<Inner<M>>);

impl<M> Clone for Core<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> fmt::Debug for Core<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.0.tasks.live();
        write!(
            f,
            "Core {{ {} of {}, {tasks} tasks }}",
            self.0.me, self.0.cores
        )
    }
}

/// What a core consists of.
pub(super) struct Inner<M> {
    me: usize,
    cores: usize,
    pub(super) settings: Settings,
    pub(super) shared: Arc<Shared>,
    pub(super) outbox: RefCell<Outbox<Message<M>>>,
    pub(super) inbox: RefCell<Inbox<Message<M>>>,
    /// Wake-ups for which there was no room, each key once.
    pub(super) owed: RefCell<VecDeque<(usize, Key)>>,
    pub(super) tasks: Tasks,
    pub(super) sleepers: RefCell<Sleepers>,
    pub(super) handler: RefCell<Handler<M>>,
    pub(super) sources: RefCell<Vec<Source<M>>>,
    critical: Cell<u32>,
    /// A preemption point was passed inside a critical section.
    postponed: Cell<bool>,
}

impl<M: 'static> Core<M> {
    pub(super) fn new(
        port: Port<Message<M>>,
        shared: Arc<Shared>,
        settings: Settings,
        handler: Handler<M>,
    ) -> Self {
        let Port { to, from } = port;
        Self(Rc::new(Inner {
            me: from.core(),
            cores: from.cores(),
            tasks: Tasks::new(settings.tasks_max, from.core(), shared.clone()),
            sleepers: RefCell::new(Sleepers::new(settings.tasks_max)),
            settings,
            shared,
            outbox: RefCell::new(to),
            inbox: RefCell::new(from),
            owed: RefCell::default(),
            handler: RefCell::new(handler),
            sources: RefCell::default(),
            critical: Cell::new(0),
            postponed: Cell::new(false),
        }))
    }

    /// Adds a source of work that every turn asks: it takes in up to so much and says how much it was; 0 only if it did nothing. If
    /// the core may sleep, the thread that fills the source must ring the core's doorbell ([`Watch::ring`](super::Watch::ring)).
    pub fn add_source(&self, source: impl FnMut(&Self, usize) -> usize + 'static) {
        self.0.sources.borrow_mut().push(Box::new(source));
    }

    /// A preemption point: a long task may call it now and then. Takes in messages and timers, whose tasks become ready; runs none of
    /// them. Inside a critical section that is postponed until its end.
    pub fn check(&self) {
        if self.0.critical.get() > 0 {
            self.0.postponed.set(true);
        } else {
            self.interrupts();
        }
    }

    /// Until the answer is dropped nothing interrupts the calling task, not even where it passes a preemption point. Nests. A
    /// task must not `await` inside of one (that panics).
    #[inline]
    pub fn critical(&self) -> Critical<'_, M> {
        self.0.critical.set(self.0.critical.get() + 1);
        Critical(self)
    }
}

/// A critical section (D2): two additions to a number that only this thread knows.
pub struct Critical<'a, M: 'static>(&'a Core<M>);

impl<M> fmt::Debug for Critical<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Critical {{ {} deep }}", self.0.0.critical.get())
    }
}

impl<M> Drop for Critical<'_, M> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.0.critical.get() - 1;
        self.0.0.critical.set(depth);
        if depth == 0 && self.0.0.postponed.get() {
            self.0.what_was_postponed();
        }
    }
}

impl<M: 'static> Core<M> {
    #[cold]
    fn what_was_postponed(&self) {
        self.0.postponed.set(false);
        if !std::thread::panicking() {
            self.interrupts();
        }
    }

    /// Called between tasks.
    pub(super) fn assert_not_critical(&self, task: &str) {
        let depth = self.0.critical.get();
        assert!(
            depth == 0,
            "task '{task}' went to sleep in a critical section"
        );
    }
}

impl<M> Core<M> {
    /// Which core this is.
    pub fn number(&self) -> usize {
        self.0.me
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.0.cores
    }

    /// Starts a task. `name` tells a person what hangs, when it does. Gives the future back if the core has
    /// [`tasks_max`](Settings::tasks_max).
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        name: &'static &'static str,
        task: F,
    ) -> Result<(), F> {
        self.0.tasks.spawn(name, task)
    }

    /// Lets the other tasks that are ready run first.
    pub fn yield_now(&self) -> YieldNow<'_> {
        YieldNow::new(&self.0.tasks)
    }

    /// Sleeps until `key` is woken on this core.
    pub fn tsleep(&self, key: Key) -> TSleep<'_> {
        TSleep::new(&self.0.sleepers, &self.0.tasks, Some(key), None)
    }

    /// Sleeps until `key` is woken on this core, but not longer than `timeout`.
    pub fn tsleep_timeout(&self, key: Key, timeout: Duration) -> TSleep<'_> {
        let until = Some(after(timeout));
        TSleep::new(&self.0.sleepers, &self.0.tasks, Some(key), until)
    }

    /// Sleeps for this long (and until the loop comes round).
    pub fn sleep(&self, time: Duration) -> TSleep<'_> {
        TSleep::new(&self.0.sleepers, &self.0.tasks, None, Some(after(time)))
    }

    /// Makes all tasks ready that sleep on `key` on this core, in the order in which they went to sleep. How many.
    #[inline]
    pub fn wakeup(&self, key: Key) -> usize {
        self.wake(key, usize::MAX)
    }

    /// Makes the task ready that has slept on `key` for the longest. Whether there was one. (If it drops its sleep instead of going on,
    /// the wake-up is gone with it.)
    #[inline]
    pub fn wakeup_one(&self, key: Key) -> bool {
        self.wake(key, 1) > 0
    }

    #[inline]
    fn wake(&self, key: Key, at_most: usize) -> usize {
        let ready = |task| self.0.tasks.make_ready(task);
        self.0.sleepers.borrow_mut().wakeup(key, at_most, ready)
    }

    /// Wakes `key` on another core (or on this one), with the end of this turn. Never lost: what finds no room is sent later.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn wakeup_on(&self, core: usize, key: Key) {
        if core == self.0.me {
            self.wakeup(key);
            return;
        }
        let sent = self.0.outbox.borrow_mut().send(core, Message::Wakeup(key));
        if sent.is_err() {
            let mut owed = self.0.owed.borrow_mut();
            if !owed.contains(&(core, key)) {
                owed.push_back((core, key));
            }
        }
    }

    /// Wakes `key` on all cores.
    pub fn wakeup_everywhere(&self, key: Key) {
        (0..self.0.cores).for_each(|core| self.wakeup_on(core, key));
    }

    /// Sends a message, with the end of this turn; wakes that core if it sleeps. Full gives it back.
    ///
    /// # Panics
    /// If there is no such core.
    #[inline]
    pub fn send(&self, to: usize, message: M) -> Result<(), M> {
        let sent = self.0.outbox.borrow_mut().send(to, Message::User(message));
        sent.map_err(message_of)
    }

    /// Sends a message that waits until the core looks. Full gives it back.
    ///
    /// # Panics
    /// If there is no such core.
    #[inline]
    pub fn send_passive(&self, to: usize, message: M) -> Result<(), M> {
        let mut outbox = self.0.outbox.borrow_mut();
        let sent = outbox.send_passive(to, Message::User(message));
        sent.map_err(message_of)
    }

    /// Makes visible what was sent so far, before the turn ends.
    pub fn flush(&self) {
        self.0.outbox.borrow_mut().flush();
    }

    /// Ends the loops of all cores, each after its turn.
    pub fn stop(&self) {
        self.0.shared.stop();
    }
}

fn message_of<M>(message: Message<M>) -> M {
    match message {
        Message::User(message) => message,
        Message::Wakeup(_) => unreachable!("a message comes back as what it was sent"),
    }
}

fn after(time: Duration) -> u64 {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    clock::now_ns().saturating_add(ns)
}
