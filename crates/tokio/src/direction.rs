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

    /// Whether an operation would have something to do; else it registers.
    pub fn ready(&self, socket: &Socket, cx: &Context<'_>) -> Poll<()> {
        match &mut *self.slot.lock() {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
        match socket.register(self.interest, &self.waker) {
            true => Poll::Ready(()),
            false => Poll::Pending,
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
        if self.ready(socket, cx).is_pending() {
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
