//! Steps: a stack with all the hand-offs of its regime and none of its threads. The holder of the [`Steps`] does what each thread would do,
//! one turn at a time and in any order, so that a simulation can try orders by a seed, in virtual time.

use std::sync::Arc;

use proto::time::Instant;

use crate::{
    net::Net,
    regime::{Handoff, Holder},
    stack::{Core, Stack, background::BackgroundLoop, worker},
};

/// The roles of a stack that was started with [`crate::Threads::Stepped`]: its links, then the protocol threads or the background poller.
/// It does not keep the stack running: after its end a step does nothing.
pub struct Steps {
    stack: Arc<Stack>,
    background: BackgroundLoop,
    cores: Vec<Core>,
}

impl Steps {
    /// `None`: threads or callers turn this stack.
    pub fn new(net: &Net) -> Option<Self> {
        let stack = net.stack().clone();
        let background = BackgroundLoop::new(stack.clock.now());
        let cores = (0..stack.layout.workers).map(|_| Core::of(&stack, None));
        let cores = cores.collect();
        stack.stepped.then_some(Self {
            stack,
            background,
            cores,
        })
    }

    /// How many roles there are.
    pub fn roles(&self) -> usize {
        let background_pollers = usize::from(self.stack.layout.holder == Holder::Application);
        self.stack.driver.queues.len() + self.stack.layout.workers + background_pollers
    }

    /// One turn of a role, as its thread would take it. True if there was work.
    pub fn step(&mut self, role: usize) -> bool {
        let (stack, now) = (&*self.stack, self.stack.clock.now());
        if stack.is_stopping() {
            return false;
        }
        let links = stack.driver.queues.len();
        if role < links {
            let work = stack.turn_link(role, now);
            if role == 0 && stack.layout.handoff == Handoff::Call {
                stack.run_called_timers(now, work);
            }
            return work;
        }
        if let Some(core) = self.cores.get_mut(role - links) {
            return match stack.layout.holder {
                Holder::Core => stack.turn_owned(role - links, core, now),
                _ => worker::turn_own_shards(stack, role - links),
            };
        }
        self.background.turn(stack, now).0
    }

    /// How many shards have a backlog.
    pub fn backlogs(&self) -> usize {
        let shards = self.stack.sockets.cells.iter();
        shards.filter(|cell| cell.backlog.is_some()).count()
    }

    /// The turn of a link while a shard with a backlog is held, as a socket call in another thread may hold it. True if there was work.
    pub fn step_while_held(&mut self, link: usize, shard: usize) -> bool {
        let (stack, now) = (&*self.stack, self.stack.clock.now());
        !stack.is_stopping() && stack.turn_link_while_held(link, shard, now)
    }

    /// When a role has something to do by time alone.
    pub fn next_event(&self) -> Instant {
        let next = self.stack.next_event();
        if self.stack.layout.holder == Holder::Application {
            next.min(self.background.next_tick())
        } else {
            next
        }
    }
}
