//! The calling thread's own trace, so that an event needs no handle.

use super::{
    Event, Writer,
    place::{Header, Place},
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// Where threads without a trace write: switched off for good, so there is one branch and not two.
static OFF: Header = Header::new();

thread_local! {
    /// Has no destructor, so that it can be read at any moment of a thread's life, and in a few instructions.
    static HERE: Cell<Place> = const { Cell::new(Place::nowhere(&OFF)) };
}

/// Records `event` in the calling thread's trace; nothing, if it has none or that is switched off.
///
/// Wait-free; see the [module](super).
#[inline(always)]
pub fn event<const N: usize>(event: Event<N>, args: [u64; N]) {
    HERE.with(|here| {
        let here = here.as_ptr();
        // SAFETY: this thread's; nothing writes to it during the call, which calls nothing of ours but `Place::event`.
        let place = unsafe { &*here };
        place.event(event, args);
    });
}

/// While this lives, [`event`] on the thread that made it writes to its ring.
pub struct Attached {
    writer: Writer,
    /// Of this thread: neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attached {{ {:?} }}", self.writer)
    }
}

/// Makes `writer` the calling thread's trace, in the place of any other, until the answer is dropped; then the thread has none.
pub fn attach(writer: Writer) -> Attached {
    HERE.set(*writer.memory.place());
    let _here = PhantomData;
    Attached { writer, _here }
}

impl Attached {
    /// The ring that is attached.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Ends it, and gives the ring back for another thread, with all that it holds.
    pub fn detach(self) -> Writer {
        let (memory, _one) = (self.writer.memory.clone(), PhantomData);
        drop(self); // from here on nothing is written by the old handle
        Writer { memory, _one }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if HERE.get() == *self.writer.memory.place() {
            HERE.set(Place::nowhere(&OFF));
        }
    }
}
