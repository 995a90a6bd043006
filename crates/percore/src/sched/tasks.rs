//! The tasks of one core: where they are kept, which are ready, and the waker by which any thread wakes one.

use super::shared::{Beat, RemoteWaker, Shared};
use crate::sync::AtomicU32;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// No task runs.
const NO_TASK: u32 = u32::MAX;

/// What a slot holds while its task neither runs nor has ended.
struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    name: &'static &'static str,
}

#[derive(Default)]
struct Slot {
    task: Option<Task>,
    /// Whether the task is in the ready queue, once.
    queued: bool,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
}

/// All tasks of one core.
pub(super) struct Tasks {
    table: RefCell<Table>,
    current: Cell<u32>,
    most: usize,
    core: usize,
    shared: Arc<Shared>,
}

impl Tasks {
    pub fn new(most: usize, core: usize, shared: Arc<Shared>) -> Self {
        let table = Table {
            slots: Vec::with_capacity(most),
            free: Vec::with_capacity(most),
            ready: VecDeque::with_capacity(most),
        };
        Self {
            table: RefCell::new(table),
            current: Cell::new(NO_TASK),
            most,
            core,
            shared,
        }
    }

    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        name: &'static &'static str,
        task: F,
    ) -> Result<(), F> {
        let mut table = self.table.borrow_mut();
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None if table.slots.len() >= self.most => return Err(task),
            None => {
                table.slots.push(Slot::default());
                u32::try_from(table.slots.len() - 1).expect("fewer than 2^32 tasks")
            }
        };
        let waker = Waker::from(Arc::new(RemoteWaker {
            shared: self.shared.clone(),
            core: self.core,
            task: slot,
            queued: AtomicU32::new(0),
        }));
        let future = Box::pin(task);
        table.slots[slot as usize].task = Some(Task {
            future,
            waker,
            name,
        });
        table.make_ready(slot);
        Ok(())
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        let table = self.table.borrow();
        table.slots.len() - table.free.len()
    }

    /// The task that runs.
    #[inline(always)]
    pub fn current(&self) -> u32 {
        self.current.get()
    }

    #[inline]
    pub fn make_ready(&self, task: u32) {
        self.table.borrow_mut().make_ready(task);
    }

    pub fn has_ready(&self) -> bool {
        !self.table.borrow().ready.is_empty()
    }

    /// Runs up to `at_most` of the tasks that are ready now, each once; after each, `check` is told its name. How many.
    pub fn run(&self, at_most: usize, beat: &Beat, check: impl Fn(&str)) -> usize {
        let n = self.table.borrow().ready.len().min(at_most);
        for _ in 0..n {
            self.run_one(beat, &check);
        }
        if n > 0 {
            beat.runs(&"the loop");
        }
        n
    }

    #[inline]
    fn run_one(&self, beat: &Beat, check: &impl Fn(&str)) {
        let mut table = self.table.borrow_mut();
        let Some(at) = table.ready.pop_front() else {
            return;
        };
        let slot = &mut table.slots[at as usize]; // widening: u32 to usize
        slot.queued = false;
        // It may have ended since it was woken.
        let Some(mut task) = slot.task.take() else {
            return;
        };
        drop(table); // the task may spawn, sleep and wake
        beat.runs(task.name);
        self.current.set(at);
        let polled = task
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&task.waker));
        self.current.set(NO_TASK);
        check(task.name);
        match polled {
            Poll::Pending => self.table.borrow_mut().slots[at as usize].task = Some(task),
            Poll::Ready(()) => {
                drop(task); // which may wake others
                self.table.borrow_mut().free.push(at);
            }
        }
    }

    /// Drops all tasks. What they spawn meanwhile goes, too.
    pub fn clear(&self) {
        loop {
            let mut table = self.table.borrow_mut();
            let Some(task) = table.slots.iter_mut().find_map(|slot| slot.task.take()) else {
                return;
            };
            drop(table);
            drop(task);
        }
    }
}

impl Table {
    #[inline(always)]
    fn make_ready(&mut self, task: u32) {
        let slot = &mut self.slots[task as usize]; // widening: u32 to usize
        if !slot.queued {
            slot.queued = true;
            self.ready.push_back(task);
        }
    }
}

/// Gives way once.
pub struct YieldNow<'a> {
    tasks: &'a Tasks,
    gave_way: bool,
}

impl fmt::Debug for YieldNow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "YieldNow")
    }
}

impl<'a> YieldNow<'a> {
    pub(super) fn new(tasks: &'a Tasks) -> Self {
        let gave_way = false;
        Self { tasks, gave_way }
    }
}

impl Future for YieldNow<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.gave_way {
            return Poll::Ready(());
        }
        self.gave_way = true;
        self.tasks.make_ready(self.tasks.current());
        Poll::Pending
    }
}
