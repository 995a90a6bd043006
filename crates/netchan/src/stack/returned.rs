//! What a host sends to itself has arrived when the call that sent it returns, as with a kernel's loopback: the calling thread turns the shards that got
//! it. Programs that talk to themselves count on that: they write to one end of a connection, or close it, and ask the other end without a wait in between.
//!
//! It goes for the regimes whose shards are turned by the application's threads, and as a rule: where another thread is at a packet at that moment, it comes
//! when that one is through. connect(2) waits for that, too: once it says that a connection is made, its listener has it.

use std::cell::Cell;

use super::Stack;
use crate::regime::Holder;

/// Packets bring about others: acknowledgments, and text for which a window opened. After so many rounds the rest is left to the threads that look after the shards.
const ROUNDS: u32 = 64;

/// What the calling thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    /// Something else.
    Not,
    /// It turns shards, which have sent nothing to this host since the round began.
    Quiet,
    /// It turns shards, and another round follows.
    Again,
}

thread_local! {
    static LOOKING: Cell<Looking> = const { Cell::new(Looking::Not) };
}

impl Stack {
    /// Whether it goes so here.
    pub(super) fn returns_at_once(&self) -> bool {
        self.layout.holder == Holder::Application && self.threaded && !self.stepped
    }

    /// The calling thread was told what another thread's turn has done: what that turn sends by `link` has arrived when this returns, if that leads to
    /// this host.
    #[cold]
    pub fn await_returned(&self, link: u8) {
        if let Some(own) = self.driver.own
            && self.driver.queues[own].link == link
            && self.returns_at_once()
        {
            self.send_led(1 << own, self.clock.now());
        }
    }

    /// The calling thread, which holds no shard, has handed packets of this host's to the shards' channels.
    #[cold]
    pub(super) fn take_returned(&self) {
        if !self.returns_at_once() {
            return;
        }
        // A thread in its last moments has no such value any more; and what is sent within a round is taken by the next one, not by a call in the call.
        let before = LOOKING.try_with(|looking| match looking.get() {
            Looking::Not => looking.replace(Looking::Quiet),
            _ => looking.replace(Looking::Again),
        });
        if before != Ok(Looking::Not) {
            return;
        }
        for _ in 0..ROUNDS {
            LOOKING.set(Looking::Quiet);
            for shard in 0..self.sockets.cells.len() {
                self.hold(shard, self.clock.now(), |_, _| ()); // takes what is in its channels
            }
            if LOOKING.get() == Looking::Quiet {
                break;
            }
        }
        LOOKING.set(Looking::Not);
    }
}
