//! Neighbours: which hardware address a next hop has. One table for ARP (RFC 826, RFC 5227, RFC
//! 1122 §2.3.2) and NDP (RFC 4861 §7), with the states of RFC 4861 §7.3.2 for both. What the table
//! hears is in [`learn`], the messages of the two protocols in [`arp`] and [`ndp`], the duty to own
//! an address alone in [`claim`].
//!
//! The packets that wait for an answer are the caller's handles `P`. Every handle that goes in
//! comes out: as [`Resolution`], from [`Table::take_queued`], or as an [`Action`]. The table
//! allocates at construction only.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::ip::keyed::{Map, Random, Seed};
use crate::time::{Duration, Instant};
use crate::wire::ethernet::MacAddr;

mod age;
pub mod arp;
pub mod claim;
pub mod learn;
pub mod ndp;
mod queue;

pub use learn::{Evidence, Learned};
pub use queue::Queued;

/// The table's sizes and times; [`Config::default`] has those of RFC 4861 §10.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Entries; 1024 is a /22 full of talkers.
    pub entries: usize,
    /// Packets that wait per unresolved entry (RFC 4861 §7.2.2 wants at least 1); at most 255.
    pub queue: usize,
    /// Between two solicitations (RETRANS_TIMER; RFC 1122 §2.3.2.1: not more than one a second).
    pub retransmit: Duration,
    /// Solicitations to all before giving up (MAX_MULTICAST_SOLICIT).
    pub multicast_solicit: u8,
    /// Solicitations to the known address before giving up (MAX_UNICAST_SOLICIT).
    pub unicast_solicit: u8,
    /// Mean time for which a confirmed address is believed (REACHABLE_TIME); drawn from 0.5 to 1.5
    /// of it.
    pub reachable: Duration,
    /// How long the layers above get to confirm before a probe goes out (DELAY_FIRST_PROBE_TIME).
    pub delay: Duration,
    /// An entry unused for this long is dropped (RFC 1122 §2.3.2.1 wants out-of-date entries
    /// flushed).
    pub idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            entries: 1024,
            queue: 16,
            retransmit: Duration::from_secs(1),
            multicast_solicit: 3,
            unicast_solicit: 3,
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            idle: Duration::from_secs(1200),
        }
    }
}

/// What is known of a neighbour (RFC 4861 §7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Asked, no answer yet; packets wait.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Known, but unconfirmed for a while; used as it is.
    Stale,
    /// Used while stale; the layers above get a moment to confirm.
    Delay,
    /// Not confirmed: being asked directly.
    Probe,
    /// Configured; never asked, never forgotten.
    Permanent,
}

/// What became of a packet that needs a neighbour's address.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolution<P> {
    /// Send it there.
    Ready(MacAddr, P),
    /// Waits for an answer.
    Queued {
        /// A solicitation to all must go out now (broadcast, or the solicited-node group).
        solicit: bool,
        /// The queue was full: its oldest packet made room and is to be dropped and counted.
        displaced: Option<P>,
    },
    /// Cannot wait here.
    Dropped(P, DropReason),
}

/// Why a packet could not wait for its neighbour's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Half of the table waits for answers already: a sender makes us talk to hosts that are not
    /// there.
    TooManyUnresolved,
    /// No entry could make room.
    TableFull,
    /// The address cannot be a neighbour's: unspecified, multicast, broadcast, loopback.
    NotUnicast,
}

/// What the passing of time asks the caller to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Send a solicitation: to all (`None`), or to this address alone.
    Solicit {
        /// Whose address is asked for.
        ip: IpAddr,
        /// Where to ask.
        to: Option<MacAddr>,
    },
    /// The neighbour does not answer: this packet is undeliverable (ICMP host or address
    /// unreachable, EHOSTUNREACH).
    Undeliverable {
        /// The neighbour.
        ip: IpAddr,
        /// One packet that waited; each comes in an action of its own.
        packet: P,
    },
    /// The neighbour does not answer any more, and its entry is gone.
    Lost {
        /// The neighbour.
        ip: IpAddr,
    },
}

/// What [`Table::settled`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The neighbour's address.
    pub mac: MacAddr,
    /// Until then [`Table::resolve`] would say this address, were nothing else heard or done.
    pub until: Instant,
    /// From then on [`Table::confirm`] wants to be called again.
    pub confirm_from: Instant,
}

#[derive(Debug)]
pub(crate) struct Entry {
    state: State,
    mac: MacAddr,
    router: bool,
    /// Solicitations sent in this state.
    asked: u8,
    /// When the state ends.
    deadline: Instant,
    /// Last time a packet went there; creation before that.
    used: Instant,
    /// When `mac` was last confirmed or changed.
    updated: Instant,
    /// Whether a packet ever went there: else only the neighbour's own word made this entry.
    wanted: bool,
    queue_head: u8,
    queue_len: u8,
}

/// One line of `show neighbors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address; `None` while incomplete.
    pub mac: Option<MacAddr>,
    /// What is known of it.
    pub state: State,
    /// Whether it says that it is a router (IPv6).
    pub router: bool,
    /// Time since the hardware address was confirmed or changed.
    pub age: Duration,
    /// Time since it was last used.
    pub idle: Duration,
    /// Packets that wait for it.
    pub queued: u8,
}

/// The table: see the head of this module.
pub struct Table<P> {
    config: Config,
    map: Map<IpAddr, Entry>,
    /// `config.queue` places per entry, in order of the entries' places.
    queues: Vec<Option<P>>,
    random: Random,
    unresolved: usize,
    /// Places found lately, by the low bits of the address: a hint that saves the hash, checked
    /// against the entry before it is believed.
    recent: Vec<u32>,
    /// No entry's deadline is earlier.
    next_deadline: Instant,
    next_sweep: Instant,
}

/// What was confirmed this lately need not be confirmed again.
const CONFIRMED_ENOUGH: Duration = Duration::from_secs(1);

/// Hints at most: 16 KiB, half of a first-level cache.
const RECENT_MAX: usize = 4096;

impl<P> Table<P> {
    /// A table of `config.entries` entries; all memory is taken here.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let queue = config.queue.clamp(1, 255);
        let map = Map::new(config.entries, seed.derive(0x4e45_4947));
        let recent = map.capacity().next_power_of_two().min(RECENT_MAX);
        let mut queues = Vec::new();
        queues.resize_with(map.capacity() * queue, || None);
        Self {
            config: Config { queue, ..config },
            map,
            queues,
            random: Random::new(seed.derive(0x4e42)),
            unresolved: 0,
            recent: alloc::vec![0; recent],
            next_deadline: Instant::FAR,
            next_sweep: Instant::ZERO,
        }
    }

    /// Where the next hop `ip` is, for `packet`; or the packet waits, and perhaps a solicitation
    /// must be sent.
    #[inline]
    pub fn resolve(&mut self, ip: IpAddr, packet: P, now: Instant) -> Resolution<P> {
        if let Some((known, entry)) = self.map.at_mut(self.hint(ip))
            && *known == ip
            && matches!(entry.state, State::Reachable | State::Permanent)
            && now < entry.deadline
        {
            entry.used = now;
            entry.wanted = true;
            return Resolution::Ready(entry.mac, packet);
        }
        self.resolve_slow(ip, packet, now)
    }

    #[inline(never)]
    fn resolve_slow(&mut self, ip: IpAddr, packet: P, now: Instant) -> Resolution<P> {
        let Some(place) = self.place(ip) else {
            return self.start(ip, packet, now);
        };
        self.remember(ip, place);
        let delay = now + self.config.delay;
        let Some((_, entry)) = self.map.at_mut(place) else {
            return Resolution::Dropped(packet, DropReason::TableFull);
        };
        entry.used = now;
        entry.wanted = true;
        match entry.state {
            State::Incomplete => {
                let displaced = self.enqueue(place, packet);
                return Resolution::Queued {
                    solicit: false,
                    displaced,
                };
            }
            State::Reachable if now < entry.deadline => {}
            // RFC 4861 §7.3.3: the first packet to a stale neighbour goes, and starts the delay.
            State::Reachable | State::Stale => {
                entry.state = State::Delay;
                entry.deadline = delay;
                self.next_deadline = self.next_deadline.min(delay);
            }
            State::Delay | State::Probe | State::Permanent => {}
        }
        Resolution::Ready(entry.mac, packet)
    }

    /// First packet to an unknown neighbour.
    fn start(&mut self, ip: IpAddr, packet: P, now: Instant) -> Resolution<P> {
        if !learn::can_be_neighbor(ip) {
            return Resolution::Dropped(packet, DropReason::NotUnicast);
        }
        if self.unresolved >= (self.map.capacity() / 2).max(1) {
            return Resolution::Dropped(packet, DropReason::TooManyUnresolved);
        }
        let deadline = now + self.config.retransmit;
        let entry = Entry {
            state: State::Incomplete,
            mac: MacAddr::UNSPECIFIED,
            router: false,
            asked: 1,
            deadline,
            used: now,
            updated: now,
            wanted: true,
            queue_head: 0,
            queue_len: 0,
        };
        let Some(place) = self.map.insert(ip, entry, usefulness) else {
            return Resolution::Dropped(packet, DropReason::TableFull);
        };
        self.unresolved += 1;
        self.remember(ip, place);
        self.next_deadline = self.next_deadline.min(deadline);
        let displaced = self.enqueue(place, packet);
        Resolution::Queued {
            solicit: true,
            displaced,
        }
    }

    /// The address of a neighbour, if it is known; changes nothing.
    #[must_use]
    pub fn lookup(&self, ip: IpAddr) -> Option<MacAddr> {
        let entry = self.map.get(&ip)?;
        (entry.state != State::Incomplete).then_some(entry.mac)
    }

    /// What the caller may remember of a reachable neighbour, for at most a second, so that the table still learns which are in use;
    /// `None` for others. It must be forgotten after each observation ([`Self::observe`] and its callers) and after
    /// [`Self::on_timer`], [`Self::set_permanent`] and [`Self::remove`].
    #[must_use]
    pub fn settled(&self, ip: IpAddr, now: Instant) -> Option<Settled> {
        let (known, entry) = self.map.at(self.hint(ip))?;
        let settled = *known == ip && entry.state == State::Reachable && now < entry.deadline;
        settled.then(|| Settled {
            mac: entry.mac,
            until: entry.deadline.min(now + CONFIRMED_ENOUGH),
            confirm_from: entry.updated + CONFIRMED_ENOUGH,
        })
    }

    /// The layers above made progress with this neighbour (RFC 4861 §7.3.1): it is reachable. Cheap
    /// enough for every acknowledgement: what was confirmed within the last second is left alone.
    #[inline]
    pub fn confirm(&mut self, ip: IpAddr, now: Instant) {
        if let Some((known, entry)) = self.map.at(self.hint(ip))
            && *known == ip
            && entry.state == State::Reachable
            && now < entry.updated + CONFIRMED_ENOUGH
        {
            return;
        }
        self.confirm_slow(ip, now);
    }

    #[inline(never)]
    fn confirm_slow(&mut self, ip: IpAddr, now: Instant) {
        let until = self.reachable_until(now);
        let Some(place) = self.place(ip) else { return };
        let Some((_, entry)) = self.map.at_mut(place) else {
            return;
        };
        if !matches!(entry.state, State::Incomplete | State::Permanent) {
            entry.state = State::Reachable;
            entry.deadline = until;
            entry.updated = now;
            self.next_deadline = self.next_deadline.min(until);
        }
    }

    /// The layers above had no answer through this neighbour in the time they expected one (RFC 1122 §2.3.2.1 (4)): unless it was
    /// confirmed within the last second, it is asked at once whether it is still there, in place of being believed for up to a
    /// minute. It keeps its address meanwhile: most often it is something further on that failed.
    pub fn doubt(&mut self, ip: IpAddr, now: Instant) {
        let Some(place) = self.place(ip) else { return };
        let Some((_, entry)) = self.map.at_mut(place) else {
            return;
        };
        if matches!(entry.state, State::Reachable | State::Stale | State::Delay)
            && now >= entry.updated + CONFIRMED_ENOUGH
        {
            entry.state = State::Delay;
            entry.deadline = now;
            self.next_deadline = self.next_deadline.min(now);
        }
    }

    /// Where in `recent` a hint for `ip` is kept.
    #[inline]
    fn hint_slot(&self, ip: IpAddr) -> usize {
        let ([.., c, d], [.., y, z]) = match ip {
            IpAddr::V4(ip) => (ip.octets(), [0; 16]),
            IpAddr::V6(ip) => ([0; 4], ip.octets()),
        };
        let low = u16::from_be_bytes([c | y, d | z]);
        usize::from(low) & (self.recent.len() - 1)
    }

    /// Where `ip` may be; to be checked.
    #[inline]
    fn hint(&self, ip: IpAddr) -> u32 {
        self.recent.get(self.hint_slot(ip)).copied().unwrap_or(0)
    }

    fn remember(&mut self, ip: IpAddr, place: u32) {
        let at = self.hint_slot(ip);
        if let Some(recent) = self.recent.get_mut(at) {
            *recent = place;
        }
    }

    /// Where `ip` is.
    fn place(&self, ip: IpAddr) -> Option<u32> {
        let hint = self.hint(ip);
        match self.map.at(hint) {
            Some((known, _)) if *known == ip => Some(hint),
            _ => self.map.find(&ip),
        }
    }

    /// Sets an address by configuration; it stays until [`Self::remove`]. False when the table has
    /// no room or the address is not unicast. Packets that wait for it are to be taken with
    /// [`Self::take_queued`].
    pub fn set_permanent(&mut self, ip: IpAddr, mac: MacAddr, now: Instant) -> bool {
        if !learn::can_be_neighbor(ip) || !mac.is_unicast() {
            return false;
        }
        let place = self.map.find(&ip).or_else(|| {
            let entry = Entry::observed(State::Permanent, mac, now, Instant::FAR);
            self.map.insert(ip, entry, usefulness)
        });
        let Some((_, entry)) = place.and_then(|place| self.map.at_mut(place)) else {
            return false;
        };
        if entry.state == State::Incomplete {
            self.unresolved -= 1;
        }
        entry.state = State::Permanent;
        entry.mac = mac;
        entry.updated = now;
        entry.deadline = Instant::FAR;
        true
    }

    /// Forgets a neighbour; its waiting packets come out through `emit`.
    pub fn remove(&mut self, ip: IpAddr, emit: impl FnMut(Action<P>)) {
        if let Some(place) = self.map.find(&ip) {
            self.give_up(place, emit);
        }
    }

    /// All neighbours, in no order.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = Neighbor> {
        self.map.iter().map(move |(ip, e)| Neighbor {
            ip: *ip,
            mac: (e.state != State::Incomplete).then_some(e.mac),
            // A sweep may be still to come.
            state: match e.state {
                State::Reachable if e.deadline <= now => State::Stale,
                state => state,
            },
            router: e.router,
            age: now.since(e.updated),
            idle: now.since(e.used),
            queued: e.queue_len,
        })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// RFC 4861 §6.3.2: a time drawn evenly from 0.5 to 1.5 of the base.
    fn reachable_until(&mut self, now: Instant) -> Instant {
        let base = self.config.reachable;
        let spread = u64::try_from(base.as_nanos()).unwrap_or(u64::MAX);
        now + base / 2 + Duration::from_nanos(self.random.below(spread))
    }
}

impl Entry {
    /// An entry that another host's word makes, not a packet of ours.
    const fn observed(state: State, mac: MacAddr, now: Instant, deadline: Instant) -> Self {
        Self {
            state,
            mac,
            router: false,
            asked: 0,
            deadline,
            used: now,
            updated: now,
            wanted: false,
            queue_head: 0,
            queue_len: 0,
        }
    }
}

/// What an eviction spares: the last used, where an entry that only its owner's word made counts as
/// used ten minutes earlier. Entries with waiting packets and configured ones never go.
fn usefulness(_: &IpAddr, entry: &Entry) -> Option<u64> {
    const WANTED: Duration = Duration::from_secs(600);
    if entry.queue_len > 0 || matches!(entry.state, State::Incomplete | State::Permanent) {
        return None;
    }
    Some(
        if entry.wanted {
            entry.used + WANTED
        } else {
            entry.used
        }
        .0,
    )
}

/// Rank of an entry among those that an unasked word may push out: never one that we sent something in
/// the last minute, so a flood of requests with invented senders fights over the rest.
fn usefulness_to_unasked(now: Instant) -> impl Fn(&IpAddr, &Entry) -> Option<u64> {
    const SPARED: Duration = Duration::from_secs(60);
    move |ip, entry| {
        let spared = entry.wanted && now.since(entry.used) < SPARED;
        if spared { None } else { usefulness(ip, entry) }
    }
}

#[cfg(test)]
mod tests;
