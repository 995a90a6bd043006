//! The scheduler (D2, D4): one loop for each core, which runs plain futures to completion and sleeps when there is nothing to do.
//!
//! Guarantees:
//! * Everything of one core runs on its one thread: tasks need not be `Send`, and between two `await`s nothing of this core comes between,
//!   but at a preemption point that the task itself asks for ([`Core::check`]), and there not inside a [critical section](Core::critical).
//! * A turn of the loop is bounded: so many messages from each core, timers and tasks ([`Settings`]). Nothing starves, if every task gives way;
//!   one that does not is noticed by the [`Watch`], which needs no help of the core.
//! * Tasks that are ready run first come, first served. [`Core::wakeup`] wakes in the order in which they went to sleep.
//! * No wake-up is lost: a task that looks at a condition and then [`tsleep`](Core::tsleep)s is woken by a thread that changes the condition and then
//!   wakes the key, on this core or ([`Core::wakeup_on`]) on another. Wake-ups may be spurious: look at the condition again.
//! * A core that is busy is sent messages without a system call; one that sleeps is woken by one for each burst.
//! * After the start nothing allocates but [`Core::spawn`], and tables that outgrow what [`Settings`] said.
//!
//! ```
//! use percore::sched::{Key, Settings, machine};
//! let (mut loops, _watch) = machine::<()>(1, &Settings::default()).unwrap();
//! let core_loop = loops.remove(0);
//! core_loop.run(
//!     |core| {
//!         let (key, waiter) = (Key::new(1), core.clone());
//!         let sleeper = async move {
//!             waiter.tsleep(key).await;
//!             waiter.stop();
//!         };
//!         assert!(core.spawn(&"sleeper", sleeper).is_ok());
//!         let waker = core.clone();
//!         assert!(core.spawn(&"waker", async move { _ = waker.wakeup(key) }).is_ok());
//!     },
//!     |_core, _from, ()| (),
//! );
//! ```

mod core;
mod idle;
#[cfg(all(test, loom))]
mod loom_tests;
mod shared;
mod sleepers;
mod tasks;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;
mod watch;

pub use self::core::{Core, Critical};
pub use idle::Idle;
pub use sleepers::{Key, TSleep, Woken};
pub use tasks::YieldNow;
pub use watch::{CoreState, Doing, Stuck, Watch};

use crate::crossbar::{Port, crossbar};
use shared::Shared;
use std::{fmt, io, sync::Arc};

/// How the cores' loops behave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a core does that has nothing to do.
    pub idle: Idle,
    /// Tasks that run in one turn, at most. A larger batch delays messages and timers, a smaller one looks at them in vain.
    pub tasks_per_turn: usize,
    /// Messages taken from each core in one turn, at most.
    pub messages_per_turn: usize,
    /// Messages that can be on their way from one core to another (a power of two).
    pub messages_max: usize,
    /// Tasks that a core can have.
    pub tasks_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle: Idle::SpinThenSleep(idle::SPIN),
            tasks_per_turn: 64,
            messages_per_turn: 32,
            messages_max: 256,
            tasks_max: 4096,
        }
    }
}

/// What travels between cores.
#[derive(Debug)]
enum Message<M> {
    Wakeup(Key),
    User(M),
}

/// One core's loop, which one thread is to run.
pub struct CoreLoop<M> {
    port: Port<Message<M>>,
    shared: Arc<Shared>,
    settings: Settings,
}

impl<M: 'static> fmt::Debug for CoreLoop<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreLoop {{ core {} }}", self.core())
    }
}

/// The loops of `cores` cores that send each other messages of type `M`, and the watch over them. Each loop is moved to a thread of
/// the caller's, which is pinned where it belongs, and [`run`](CoreLoop::run) there.
///
/// # Errors
/// As eventfd(2): too many open files, or out of memory.
pub fn machine<M>(cores: usize, settings: &Settings) -> io::Result<(Vec<CoreLoop<M>>, Watch)> {
    let ports = crossbar(cores, settings.messages_max)?;
    let bells = ports.first().map(|port| port.from.doorbells());
    let shared = Arc::new(Shared::new(cores, bells.unwrap_or_default()));
    let core_loop = |port| CoreLoop {
        port,
        shared: shared.clone(),
        settings: settings.clone(),
    };
    let loops = ports.into_iter().map(core_loop).collect();
    Ok((loops, Watch::new(shared)))
}

impl<M: 'static> CoreLoop<M> {
    /// Which core this is.
    pub fn core(&self) -> usize {
        self.port.from.core()
    }

    /// Runs the core on the calling thread: calls `start` once, then turns the loop until [`Core::stop`] or [`Watch::stop`] is called.
    /// `on_message` gets what other cores [send](Core::send), with the sender's number. Tasks that are left are dropped at the end.
    pub fn run(
        self,
        start: impl FnOnce(&Core<M>),
        on_message: impl FnMut(&Core<M>, usize, M) + 'static,
    ) {
        let Self {
            port,
            shared,
            settings,
        } = self;
        let core = Core::new(port, shared, settings, Box::new(on_message));
        let _end = turn::End(&core);
        core.0.shared.beat(core.number()).turn();
        start(&core);
        core.turn_until_stopped();
    }
}
