//! Connections that hold text behind gaps, and which of them gives it up first when some has to give way.
//!
//! The worst of all connections is not looked for: those that held most when they last received such text stand in a short list. One that is not on
//! it, since it was full then, and has been silent since, is found by a hand that goes round the table, a few places a time.

use super::Shard;

/// Connections on the list.
const LISTED: usize = 16;
/// Places of the table that one look passes.
const STEP: u32 = 32;
/// Connections that give way to one packet at most.
const TRIES: usize = 4;

/// Connections and how much they hold, at most.
#[derive(Debug, Default)]
pub struct Holders {
    list: [(u32, u32); LISTED],
    hand: u32,
}

impl Holders {
    /// A connection that holds text behind gaps holds so much.
    #[inline(never)]
    pub fn note(&mut self, number: u32, bytes: u32) {
        // Its own entry, else the one that holds least.
        let rank = |(n, held): &(u32, u32)| (*n != number || *held == 0, *held);
        if let Some(place) = self.list.iter_mut().min_by_key(|entry| rank(entry))
            && (place.0 == number || place.1 < bytes)
        {
            *place = (number, bytes);
        }
    }

    /// The one that seems to hold most.
    fn worst(&self) -> Option<(u32, u32)> {
        let worst = self.list.iter().max_by_key(|(_, held)| *held).copied();
        worst.filter(|(_, held)| *held > 0)
    }
}

impl Shard {
    /// Makes room for text of `bytes` memory of connection `number`: the text behind gaps of others gives way, where they hold more of it than
    /// this one, if its own `is_behind` one, too.
    #[cold]
    pub(super) fn prune_worst(&mut self, number: u32, is_behind: bool, bytes: usize) {
        self.look_round();
        let own = (self.tcp.get(number)).map_or(0, |own| own.receive.memory_behind(&self.pool));
        for _ in 0..TRIES {
            let Some((worst, noted)) = self.memory.behind.worst() else {
                return;
            };
            let Some(socket) = self.tcp.get_mut(worst) else {
                self.memory.behind.note(worst, 0);
                continue;
            };
            let held = socket.receive.memory_behind(&self.pool);
            let now = u32::try_from(held).unwrap_or(u32::MAX);
            self.memory.behind.note(worst, now);
            if now < noted / 2 {
                continue; // another one may hold more
            }
            if worst == number || (is_behind && held <= own) {
                return; // its own rules say what becomes of it
            }
            let (queue, pool) = (&mut socket.receive, &mut self.pool);
            socket.connection.give_up_behind(queue, pool, bytes);
            socket.note_held(&mut self.memory.tcp_shares);
            self.count_pruned();
            let is_short = self.pool.is_short_behind(bytes);
            if (!is_behind && self.pool.has_room(bytes)) || !is_short {
                return;
            }
        }
    }

    /// Looks at the next places of the table.
    fn look_round(&mut self) {
        let places = u32::try_from(self.tcp.places()).unwrap_or(u32::MAX).max(1);
        for _ in 0..STEP.min(places) {
            let number = self.memory.behind.hand % places;
            self.memory.behind.hand = number + 1;
            if let Some(socket) = self.tcp.get(number).filter(|s| s.receive.gaps() > 0) {
                self.memory.behind.note(number, socket.receive.memory());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_holds_most_is_known_by_what_it_said_last() {
        let mut holders = Holders::default();
        assert_eq!(holders.worst(), None);
        holders.note(1, 100);
        holders.note(2, 200);
        assert_eq!(holders.worst(), Some((2, 200)));
        holders.note(2, 50);
        assert_eq!(holders.worst(), Some((1, 100)), "it holds less by now");
        holders.note(1, 0);
        assert_eq!(holders.worst(), Some((2, 50)));
        holders.note(2, 0);
        assert_eq!(holders.worst(), None);
    }

    /// Where the list is full, those that hold most stay on it, each once.
    #[test]
    fn a_holder_of_little_gives_its_place_up() {
        let mut holders = Holders::default();
        (0..40).for_each(|number| holders.note(number, 1000 + number % 7 * 100 + number));
        holders.note(39, 1000); // the last, which has less now
        let mut held = Vec::new();
        while let Some((number, bytes)) = holders.worst() {
            held.push((number, bytes));
            holders.note(number, 0);
        }
        let mut most: Vec<_> = (0..39).map(|n| (n, 1000 + n % 7 * 100 + n)).collect();
        most.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let listed = held.len().min(LISTED - 1);
        assert_eq!(held[..listed], most[..listed]);
    }
}
