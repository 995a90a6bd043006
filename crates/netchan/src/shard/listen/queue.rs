//! Handshakes in progress in the order in which they began, of which many are over long before they come up: each newcomer looks at a few.

use std::collections::VecDeque;

use proto::wire::tcp::SeqNum;

/// A handshake: its connection's number, and the sequence number it began at.
pub(super) type Embryo = (u32, SeqNum);

/// Of those in the queue, each newcomer looks at so many. With four, what is over is never more than a third of all newcomers during one round
/// and what was in progress.
const LOOKS: usize = 4;
/// For the oldest one so many are looked at, at most: half a queue.
pub(super) const LOOKS_MAX: usize = 512;

/// The SYN queue of a listener.
#[derive(Debug)]
pub(super) struct SynQueue {
    /// The older part, looked at since the round began.
    seen: VecDeque<Embryo>,
    /// The younger part.
    rest: VecDeque<Embryo>,
}

impl SynQueue {
    pub fn new() -> Self {
        Self {
            seen: VecDeque::new(),
            rest: VecDeque::with_capacity(64),
        }
    }

    /// Entries, those included that are over.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.seen.len() + self.rest.len()
    }

    /// A handshake begins. Some of those before it go, if `is_over` says so.
    pub fn push(&mut self, embryo: Embryo, mut is_over: impl FnMut(Embryo) -> bool) {
        for _ in 0..LOOKS {
            let Some(next) = self.rest.pop_front() else {
                break;
            };
            if !is_over(next) {
                self.seen.push_back(next);
            }
        }
        if self.rest.is_empty() {
            // The round ends: all that is left of it is the next one's.
            std::mem::swap(&mut self.seen, &mut self.rest);
        }
        self.rest.push_back(embryo);
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<Embryo> {
        self.seen.pop_front().or_else(|| self.rest.pop_front())
    }

    /// Takes a connection out, if it is the oldest: most handshakes are done in order.
    pub fn remove_first(&mut self, connection: u32) {
        let first = self.seen.front().or_else(|| self.rest.front());
        if first.is_some_and(|first| first.0 == connection) {
            self.pop();
        }
    }

    /// Takes out all.
    pub fn drain(&mut self) -> impl Iterator<Item = Embryo> + '_ {
        self.seen.drain(..).chain(self.rest.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1024; // in progress at once

    fn embryo(number: u32) -> Embryo {
        (number, SeqNum(number))
    }

    /// However long handshakes last, a newcomer looks at few, the queue stays short, and the oldest in progress comes first.
    #[test]
    fn each_newcomer_looks_at_a_few() {
        for lifetime in [1, 3, 200, 1000, 1024] {
            // One of a hundred lasts for ever.
            let is_over =
                |now: u32, n: u32| n + lifetime <= now && !(n % 100 == 7 && n + 50_000 > now);
            let mut queue = SynQueue::new();
            let mut most = 0;
            for now in 0..20_000 {
                let mut looks = 0;
                queue.push(embryo(now), |(n, _)| {
                    looks += 1;
                    is_over(now, n)
                });
                assert!(looks <= LOOKS, "{looks} looked at");
                most = most.max(queue.len());
            }
            assert!(most <= 2 * MOST + 64, "lifetime {lifetime}: {most} entries");
            let mut left = Vec::new();
            while let Some((number, _)) = queue.pop() {
                left.push(number);
            }
            assert!(left.is_sorted(), "the oldest first");
            let lives = (0..20_000).filter(|&n| !is_over(19_999, n));
            assert!(lives.into_iter().all(|n| left.binary_search(&n).is_ok()));
        }
    }
}
