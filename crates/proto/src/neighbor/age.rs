//! What time does to entries: solicitations again, failures, expiry (RFC 4861 §7.3.3, and appendix
//! C for the table).

use super::{Action, State, Table};
use crate::time::{Duration, Instant};

/// Shortest time between two sweeps over all deadlines: one over 64 K entries takes 0.15 ms, so 2 %
/// of a core at worst, and a solicitation 10 ms late does no harm.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);

impl<P> Table<P> {
    /// When [`Self::on_timer`] wants to be called; `None`: not before something else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.next_deadline != Instant::FAR).then(|| self.next_deadline.max(self.next_sweep))
    }

    /// Lets time pass: solicitations again, failures, entries that age. Cheap when nothing is due.
    pub fn on_timer(&mut self, now: Instant, mut emit: impl FnMut(Action<P>)) {
        if now < self.next_deadline || now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP_INTERVAL;
        let mut next = Instant::FAR;
        for place in 0..u32::try_from(self.map.capacity()).unwrap_or(u32::MAX) {
            let Some((_, entry)) = self.map.at(place) else {
                continue;
            };
            if entry.deadline <= now {
                self.age(place, now, &mut emit);
            }
            if let Some((_, entry)) = self.map.at(place) {
                next = next.min(entry.deadline);
            }
        }
        self.next_deadline = next;
    }

    /// One entry's deadline has come (RFC 4861 §7.3.3, and appendix C for the table).
    fn age(&mut self, place: u32, now: Instant, emit: &mut impl FnMut(Action<P>)) {
        let config = self.config;
        let Some((ip, entry)) = self.map.at_mut(place) else {
            return;
        };
        let ip = *ip;
        match entry.state {
            State::Incomplete if entry.asked < config.multicast_solicit => {
                entry.asked += 1;
                entry.deadline = now + config.retransmit;
                emit(Action::Solicit { ip, to: None });
            }
            State::Probe if entry.asked < config.unicast_solicit => {
                entry.asked += 1;
                entry.deadline = now + config.retransmit;
                emit(Action::Solicit {
                    ip,
                    to: Some(entry.mac),
                });
            }
            State::Delay if config.unicast_solicit > 0 => {
                entry.state = State::Probe;
                entry.asked = 1;
                entry.deadline = now + config.retransmit;
                emit(Action::Solicit {
                    ip,
                    to: Some(entry.mac),
                });
            }
            State::Reachable => {
                entry.state = State::Stale;
                entry.deadline = entry.used.max(entry.updated) + config.idle;
            }
            State::Stale if entry.used + config.idle > now => {
                entry.deadline = entry.used + config.idle;
            }
            State::Stale => drop(self.map.remove(place)), // no packet waits: nothing to tell
            State::Incomplete | State::Probe | State::Delay => self.give_up(place, emit),
            State::Permanent => entry.deadline = Instant::FAR,
        }
    }

    pub(super) fn give_up(&mut self, place: u32, mut emit: impl FnMut(Action<P>)) {
        let Some((ip, entry)) = self.map.at(place) else {
            return;
        };
        let ip = *ip;
        if entry.state == State::Incomplete {
            self.unresolved -= 1;
        }
        while let Some(packet) = self.dequeue(place) {
            emit(Action::Undeliverable { ip, packet });
        }
        self.map.remove(place);
        emit(Action::Lost { ip });
    }
}
