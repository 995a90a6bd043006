//! One direction of a socket: the task that waits for it, and the dance that loses no wake-up.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use netchan::socket::{Readiness, Socket};

/// The task that waits, if any. It has a waker of its own towards the stack, so that one task which reads and writes (one waker)
/// has two registrations, and being woken for one direction does not forget the other.
#[derive(Default)]
struct Slot {
    task: Mutex<Option<Waker>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        // A waker cannot be left half written.
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Taken first: the lock is not held while foreign code runs.
        let task = self.lock().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// One direction of one socket.
pub struct Direction {
    interest: Readiness,
    slot: Arc<Slot>,
    waker: Waker,
}

impl Direction {
    /// That waits for `interest`.
    pub fn new(interest: Readiness) -> Self {
        let slot = Arc::new(Slot::default());
        let waker = Waker::from(slot.clone());
        Self {
            interest,
            slot,
            waker,
        }
    }

    /// Tries `operation`; where it would block, registers, and tries again if it became ready in between; what becomes ready later wakes.
    pub fn poll<T>(
        &self,
        socket: &Socket,
        cx: &Context<'_>,
        mut operation: impl FnMut(&Socket) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match operation(socket) {
            Err(e) if would_block(&e) => {}
            done => return Poll::Ready(done),
        }
        match &mut *self.slot.lock() {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
        if !socket.register(self.interest, &self.waker) {
            return Poll::Pending;
        }
        match operation(socket) {
            Err(e) if would_block(&e) => Poll::Pending,
            done => Poll::Ready(done),
        }
    }
}

/// Whether the answer means "not yet"; a connection under way says EINPROGRESS first and EALREADY then.
fn would_block(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
        || matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY))
}
