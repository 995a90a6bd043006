//! What connections began with that a listener has not accepted yet: as on Linux, its options when they connected.

use std::sync::Arc;

use super::options::SocketOptions;

/// The options of some connections at the head of one shard's accept queue, behind those of the entries before it.
#[derive(Clone, Debug)]
struct Begun {
    shard: usize,
    /// At least 1.
    connections: usize,
    with: Arc<SocketOptions>,
}

/// Of a listener whose options changed while connections waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier(Vec<Begun>);

impl Earlier {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// Options change: of the connections that wait in each shard, those that are not noted yet began with `with`.
    fn note(&mut self, waiting: &[usize], with: &Arc<SocketOptions>) {
        let begun = &mut self.0;
        for (shard, &count) in waiting.iter().enumerate() {
            let here = begun.iter().filter(|b| b.shard == shard);
            let noted: usize = here.map(|b| b.connections).sum();
            if count > noted {
                let with = with.clone();
                let connections = count - noted;
                begun.push(Begun {
                    shard,
                    connections,
                    with,
                });
            }
        }
    }

    /// A connection of that shard is accepted: what it began with, if that is not what the listener says now.
    fn take(&mut self, shard: usize) -> Option<Arc<SocketOptions>> {
        let begun = &mut self.0;
        let at = begun.iter().position(|b| b.shard == shard)?;
        begun[at].connections -= 1;
        let with = begun[at].with.clone();
        if begun[at].connections == 0 {
            begun.remove(at);
        }
        Some(with)
    }
}

impl SocketOptions {
    /// An option is about to change, of a listener with so many connections waiting in each shard.
    pub(super) fn keep_for(&mut self, waiting: &[usize]) {
        if waiting.iter().any(|&count| count > 0) {
            let mut earlier = std::mem::take(&mut self.earlier);
            earlier.note(waiting, &Arc::new(self.inherited()));
            self.earlier = earlier;
        }
    }

    /// What a connection takes over that is accepted from that shard's queue.
    pub(super) fn inherited_in(&mut self, shard: usize) -> Self {
        // Looked at before it is changed: nearly no listener has any.
        let with = match self.earlier.0.is_empty() {
            true => None,
            false => self.earlier.take(shard),
        };
        with.map_or_else(|| self.inherited(), |with| Self::clone(&with))
    }

    /// The same for what an accepted socket takes over: it is no listener.
    pub(super) fn without_waiting(mut self) -> Self {
        self.forget_waiting();
        self
    }

    /// The connections that waited are gone.
    pub(super) fn forget_waiting(&mut self) {
        if !self.earlier.0.is_empty() {
            self.earlier = Earlier::NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Domain, Kind},
        socket::SocketOption,
    };

    /// Each gets what counted when it came, whatever was set since, in whatever order the shards are asked.
    #[test]
    fn a_connection_has_the_options_of_its_time() {
        let mut options = SocketOptions::new(Kind::Stream, Domain::V4);
        let marked = |options: &SocketOptions| options.udp.mark;
        let set = |options: &mut SocketOptions, waiting: &[usize], mark| {
            options.keep_for(waiting);
            options.apply(SocketOption::Mark(mark));
        };
        set(&mut options, &[0, 0], 1);
        assert!(options.earlier.0.is_empty(), "no connection waits");
        set(&mut options, &[1, 2], 2);
        set(&mut options, &[1, 2], 3); // none came with 2
        set(&mut options, &[3, 2], 4);
        let marks = [0, 0, 1, 0, 1, 1, 0].map(|shard| marked(&options.inherited_in(shard)));
        assert_eq!(marks, [1, 3, 1, 3, 1, 4, 4]);
        assert!(options.earlier.0.is_empty(), "all are accepted");
        set(&mut options, &[1, 0], 5);
        assert!(options.inherited().earlier.0.is_empty());
        options.forget_waiting();
        assert_eq!(marked(&options.inherited_in(0)), 5);
    }
}
