//! Looking at what is under locks, with a short deadline: a stack whose worker hangs with a lock in its hands still answers (F8), and
//! says which thread has it.

use std::{cell::Cell, fmt, thread, time::Duration};

use percore::{clock::now_ns, remote_call::Refusal};
use serde_json::{Value, json};

use crate::{
    driver::interface::{Interface, Receive},
    giant::Concurrency,
    stack::{Stack, cell::Held, watch},
};

/// For all locks of one answer together, nanoseconds. Longer than any turn of a healthy stack, short for a person.
const PATIENCE: u64 = 300_000_000;
/// Between two tries.
const PAUSE: Duration = Duration::from_micros(200);

/// One answer's look around.
pub struct Look<'a> {
    stack: &'a Stack,
    until: Cell<u64>,
}

/// Another thread has the lock, and does not let go.
#[derive(Debug)]
pub struct Busy(String);

impl Busy {
    /// The row that stands for what could not be looked at.
    pub fn row(&self, key: &str, of: Value) -> Value {
        json!({key: of, "held_by": self.0})
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what it needs is held by {}", self.0)
    }
}

impl<'a> Look<'a> {
    /// A look that begins now.
    pub fn new(stack: &'a Stack) -> Self {
        Self::with_patience(stack, PATIENCE)
    }

    /// The same, for as many nanoseconds.
    pub fn with_patience(stack: &'a Stack, patience_ns: u64) -> Self {
        Self {
            stack,
            until: Cell::new(now_ns().saturating_add(patience_ns)),
        }
    }

    /// Tries for as long as there is patience, at least once.
    pub fn lock<G>(&self, mut try_lock: impl FnMut() -> Option<G>) -> Result<G, Busy> {
        loop {
            if let Some(guard) = try_lock() {
                return Ok(guard);
            }
            if now_ns() >= self.until.get() {
                return Err(self.busy());
            }
            thread::sleep(PAUSE);
        }
    }

    fn busy(&self) -> Busy {
        Busy(watch::suspects(self.stack, self.stack.clock.now()))
    }

    fn giant(
        &self,
    ) -> Result<Option<crate::giant::Held<'_, crate::driver::module::Guarded>>, Busy> {
        let giant = self.stack.giant.as_deref();
        giant
            .map(|giant| self.lock(|| giant.try_enter()))
            .transpose()
    }

    /// A shard.
    pub fn shard<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Held) -> R + Send,
    ) -> Result<R, Busy> {
        let cell = &self.stack.sockets.cells[number];
        // Where the program takes the stack's turns, no thread serves calls.
        let f = match cell.call_sender.as_ref().filter(|_| !self.stack.stepped) {
            Some(sender) => {
                let patience = self.until.get().saturating_sub(now_ns());
                match sender.run_within(f, Duration::from_nanos(patience)) {
                    Ok(answer) => return Ok(answer),
                    Err((Refusal::Late, _)) => return Err(self.busy()),
                    Err((Refusal::Stopped, f)) => f,
                }
            }
            None => f,
        };
        let answer = f(&mut *self.lock(|| cell.held.try_lock())?);
        self.stack.passed_by(cell);
        Ok(answer)
    }

    /// An interface's transmitting half.
    pub fn interface<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Interface) -> R + Send,
    ) -> Result<R, Busy> {
        let _giant = self.giant()?;
        let Some(halves) = &self.stack.driver.queues[number].halves else {
            return self.shard(0, |held| f(&mut held.own_links()[number].interface));
        };
        let mut interface = self.lock(|| halves.interface.try_lock())?;
        let _giant = self.giant_of_driver(number)?;
        Ok(f(&mut interface))
    }

    /// An interface's receiving half.
    pub fn receive<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Receive) -> R + Send,
    ) -> Result<R, Busy> {
        let _giant = self.giant()?;
        let Some(halves) = &self.stack.driver.queues[number].halves else {
            return self.shard(0, |held| f(&mut held.own_links()[number].receive));
        };
        let mut receive = self.lock(|| halves.receive.try_lock())?;
        let _giant = self.giant_of_driver(number)?;
        Ok(f(&mut receive))
    }

    /// Giant, where a link's driver takes it by itself.
    fn giant_of_driver(&self, number: usize) -> Result<Option<impl Drop>, Busy> {
        match self.stack.driver.queues[number].concurrency {
            Concurrency::Any => Ok(None),
            Concurrency::Giant => self
                .lock(|| self.stack.control.modules.giant.try_enter())
                .map(Some),
        }
    }
}
