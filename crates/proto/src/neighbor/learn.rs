//! What neighbours say and what the table makes of it: RFC 826, RFC 4861 §7.2.3-§7.2.5, in the
//! terms of its appendix C.

use core::net::{IpAddr, Ipv4Addr};

use super::{Entry, State, Table, usefulness_to_unasked};
use crate::time::Instant;
use crate::wire::ethernet::MacAddr;

/// What a message said about a neighbour's hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Asked us: ARP request for our address, neighbour or router solicitation, router
    /// advertisement or redirect with a link-layer address. May make an entry.
    Asked,
    /// ARP for another host, or a gratuitous one: updates what is there (RFC 826's merge), makes
    /// nothing.
    Overheard,
    /// Answered us: ARP reply to us (solicited), or a neighbour advertisement with these flags.
    Answered {
        /// The answer to a solicitation: proof that packets reach it.
        solicited: bool,
        /// The address given replaces the one known.
        over: bool,
        /// Whether it is a router (`None`: ARP does not say).
        router: Option<bool>,
    },
}

/// What became of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Learned {
    /// Not asked for, and there is no entry: none is made (RFC 4861 §7.2.5; negative 5).
    NotAsked,
    /// The address cannot be a neighbour's.
    Refused,
    /// The entry is configured and not to be changed.
    Permanent,
    /// The table has no room for it.
    Full,
    /// The neighbour's address is this.
    Known {
        /// Its hardware address.
        mac: MacAddr,
        /// Packets wait for it: take them with [`Table::take_queued`].
        queued: bool,
        /// The hardware address is new or another one than before.
        changed: bool,
        /// Whether it was a router and says it is one no longer: drop it from the default routes (RFC 4861
        /// §7.2.5).
        left_routing: bool,
    },
    /// The entry is there, but the evidence names no address (or not one to be believed), and it
    /// stays unresolved or as it was.
    Unchanged,
}

impl<P> Table<P> {
    /// Takes in evidence: `mac` is the hardware address it names (`None`: it names none).
    pub fn observe(
        &mut self,
        ip: IpAddr,
        mac: Option<MacAddr>,
        evidence: Evidence,
        now: Instant,
    ) -> Learned {
        // RFC 1122 §2.3.2: a group address is no host's; negative 5.
        if !can_be_neighbor(ip) || mac.is_some_and(|mac| !mac.is_unicast()) {
            return Learned::Refused;
        }
        let Some(place) = self.map.find(&ip) else {
            return self.observe_new(ip, mac, evidence, now);
        };
        let until = self.reachable_until(now);
        let stale_until = now + self.config.idle;
        let Some((_, entry)) = self.map.at_mut(place) else {
            return Learned::NotAsked;
        };
        let was = entry.state;
        let before = entry.mac;
        let was_router = entry.router;
        let settled = match (was, evidence) {
            (State::Permanent, _) => return Learned::Permanent,
            (_, Evidence::Asked | Evidence::Overheard) => told(entry, mac),
            (
                State::Incomplete,
                Evidence::Answered {
                    solicited, router, ..
                },
            ) => first_answer(entry, mac, solicited, router),
            (
                _,
                Evidence::Answered {
                    solicited,
                    over,
                    router,
                },
            ) => answer(entry, mac, solicited, over, router),
        };
        let left_routing = was_router && !entry.router;
        let changed = was == State::Incomplete || entry.mac != before;
        match settled {
            None if left_routing => {}
            None => return Learned::Unchanged,
            Some(State::Reachable) => {
                entry.state = State::Reachable;
                entry.deadline = until;
                entry.updated = now;
            }
            // Appendix C: the waiting packets are the first that use the stale entry, and start the
            // delay.
            Some(_) if entry.queue_len > 0 => {
                entry.state = State::Delay;
                entry.deadline = now + self.config.delay;
            }
            Some(_) => {
                entry.state = State::Stale;
                entry.deadline = stale_until;
            }
        }
        if changed {
            entry.updated = now;
        }
        let deadline = entry.deadline;
        let queued = entry.queue_len > 0;
        let known = Learned::Known {
            mac: entry.mac,
            queued,
            changed,
            left_routing,
        };
        if was == State::Incomplete {
            self.unresolved -= 1;
        }
        self.next_deadline = self.next_deadline.min(deadline);
        known
    }

    /// Notes whether a neighbour is a router: a router advertisement says yes, a router
    /// solicitation no (RFC 4861 §6.2.6, §6.3.4). False when there is no entry.
    pub fn set_router(&mut self, ip: IpAddr, router: bool) -> bool {
        self.map
            .get_mut(&ip)
            .map(|entry| entry.router = router)
            .is_some()
    }

    /// Whether `mac` may answer for `ip`: all were asked, or this one was. Another's word, or one that was not asked for, is no more
    /// than overheard: else a forged answer would be believed for as long as a confirmed one.
    pub(super) fn awaits(&self, ip: IpAddr, mac: MacAddr) -> bool {
        self.map.get(&ip).is_some_and(|entry| match entry.state {
            State::Incomplete => true,
            State::Probe => entry.mac == mac,
            _ => false,
        })
    }

    /// Evidence about a host there is no entry for.
    fn observe_new(
        &mut self,
        ip: IpAddr,
        mac: Option<MacAddr>,
        evidence: Evidence,
        now: Instant,
    ) -> Learned {
        // Only a host that wants something of us gets an entry unasked: we are about to answer it.
        let (Evidence::Asked, Some(mac)) = (evidence, mac) else {
            return Learned::NotAsked;
        };
        let deadline = now + self.config.idle;
        let entry = Entry::observed(State::Stale, mac, now, deadline);
        if self
            .map
            .insert(ip, entry, usefulness_to_unasked(now))
            .is_none()
        {
            return Learned::Full;
        }
        self.next_deadline = self.next_deadline.min(deadline);
        Learned::Known {
            mac,
            queued: false,
            changed: true,
            left_routing: false,
        }
    }
}

/// RFC 4861 §7.2.3, RFC 826: a host names its own address. The state to enter, if any.
fn told(entry: &mut Entry, mac: Option<MacAddr>) -> Option<State> {
    let mac = mac?;
    if entry.state != State::Incomplete && entry.mac == mac {
        return None;
    }
    entry.mac = mac;
    Some(State::Stale)
}

/// RFC 4861 §7.2.5, the entry is INCOMPLETE.
fn first_answer(
    entry: &mut Entry,
    mac: Option<MacAddr>,
    solicited: bool,
    router: Option<bool>,
) -> Option<State> {
    // "If the link layer has addresses and no Target Link-Layer Address option is included":
    // discarded.
    entry.mac = mac?;
    entry.router = router.unwrap_or(entry.router);
    Some(if solicited {
        State::Reachable
    } else {
        State::Stale
    })
}

/// RFC 4861 §7.2.5, the entry is in any other state.
fn answer(
    entry: &mut Entry,
    mac: Option<MacAddr>,
    solicited: bool,
    over: bool,
    router: Option<bool>,
) -> Option<State> {
    let other = mac.is_some_and(|mac| mac != entry.mac);
    if other && !over {
        // I. "if the state is REACHABLE, set it to STALE, but do not update the entry in any other
        // way"; else ignore.
        return (entry.state == State::Reachable).then_some(State::Stale);
    }
    // II. Override, or the same address, or none named.
    entry.router = router.unwrap_or(entry.router);
    if let Some(mac) = mac {
        entry.mac = mac;
    }
    match (solicited, other) {
        (true, _) => Some(State::Reachable),
        (false, true) => Some(State::Stale),
        (false, false) => None,
    }
}

/// Whether one host can be behind `ip`.
pub(super) fn can_be_neighbor(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !matches!(ip.octets()[0], 0 | 127 | 224..=239) && ip != Ipv4Addr::BROADCAST
        }
        IpAddr::V6(ip) => ip.to_bits() > 1 && !ip.is_multicast() && ip.to_ipv4_mapped().is_none(),
    }
}
