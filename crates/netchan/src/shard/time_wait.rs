//! Connections in TIME-WAIT: small records in a table of their own, in order of expiry.

use std::collections::{HashMap, VecDeque};

use proto::{
    tcp::{AoIsns, State, TimeWait},
    time::Instant,
};

use super::{Auth, Reuse, Shard, table::Table, widen};
use crate::{
    driver::steer::short,
    flow::{Closed, FlowKey},
    limits,
};

/// Marks the number of a TIME-WAIT record among flows.
const MARK: u32 = 1 << 31;

/// `Ok`: a connection's number; `Err`: a TIME-WAIT record's.
#[inline]
pub const fn split(number: u32) -> Result<u32, u32> {
    if number & MARK == 0 {
        Ok(number)
    } else {
        Err(number & !MARK)
    }
}

/// The number of a TIME-WAIT record among flows.
pub const fn marked(number: u32) -> u32 {
    number | MARK
}

/// One connection in TIME-WAIT.
#[derive(Debug)]
pub struct Waiting {
    /// Its flow.
    pub key: FlowKey,
    /// The flow's short hash.
    pub hash: u32,
    /// The protocol's record.
    pub record: TimeWait,
    /// Where its answers leave.
    pub interface: u8,
    /// What its socket said.
    pub reuse: Reuse,
    /// Tells it from an earlier record with the same number.
    serial: u32,
}

impl Waiting {
    /// A record to insert.
    pub const fn new(
        key: FlowKey,
        hash: u32,
        record: TimeWait,
        interface: u8,
        reuse: Reuse,
    ) -> Self {
        Self {
            key,
            hash,
            record,
            interface,
            reuse,
            serial: 0,
        }
    }

    /// What it is, for `netchan show`.
    pub const fn state(&self) -> State {
        match self.record.awaits_end() {
            true => State::FinWait2,
            false => State::TimeWait,
        }
    }
}

/// All of a shard. They expire in the order in which they came, but for those that a repeated FIN made young again.
#[derive(Debug)]
pub struct TimeWaits {
    table: Table<Waiting>,
    /// Numbers and serials.
    order: VecDeque<(u32, u32)>,
    /// When the first of them may expire.
    next: Instant,
    serial: u32,
    /// What the answers of some are signed with.
    auths: HashMap<u32, (Box<Auth>, AoIsns)>,
}

impl TimeWaits {
    /// For at most `capacity` records.
    pub fn new(capacity: usize) -> Self {
        Self {
            table: Table::with_capacity(capacity),
            order: VecDeque::with_capacity(2 * capacity),
            next: Instant::FAR,
            serial: 0,
            auths: HashMap::new(),
        }
    }
    /// What a record's answers are signed with.
    pub fn auth(&self, number: u32) -> Option<(Box<Auth>, AoIsns)> {
        self.auths.get(&number).cloned()
    }
    /// The same, to verify with.
    pub fn auth_mut(&mut self, number: u32) -> Option<(&mut Auth, AoIsns)> {
        let (auth, isns) = self.auths.get_mut(&number)?;
        Some((auth, *isns))
    }
    /// The record with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Waiting> {
        self.table.get(number)
    }
    /// The record with this number, to change.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Waiting> {
        self.table.get_mut(number)
    }
    /// When the first may expire.
    #[inline]
    pub const fn next(&self) -> Instant {
        self.next
    }
    fn is_full(&self) -> bool {
        let most = self.table.capacity();
        self.table.len() == most || self.order.len() == 2 * most
    }
    /// Adds a record, as the youngest; `None` without a place.
    fn insert(&mut self, mut waiting: Waiting) -> Option<u32> {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        waiting.serial = serial;
        let number = self.table.insert(waiting).ok()?;
        self.order.push_back((number, serial));
        if self.order.len() == 1 {
            self.look_at_first();
        }
        Some(number)
    }
    /// The first of the order is another one: one that is gone already is due at once.
    fn look_at_first(&mut self) {
        self.next = match self.order.front() {
            Some(&(number, serial)) => self.expiry(number, serial).unwrap_or(Instant::ZERO),
            None => Instant::FAR,
        };
    }
    /// When a record expires, if it is still there.
    fn expiry(&self, number: u32, serial: u32) -> Option<Instant> {
        let waiting = self.table.get(number).filter(|w| w.serial == serial)?;
        Some(waiting.record.expires())
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.table.iter().map(|(_, w)| w)
    }
}

impl Shard {
    /// Keeps a record, to which the flow of `connection` leads from now on. When there are too many the oldest gives way (its ports
    /// may then come back early).
    pub(super) fn insert_time_wait(&mut self, waiting: Waiting, connection: u32) {
        while self.time_waits.is_full() {
            let Some((number, serial)) = self.time_waits.order.pop_front() else {
                break;
            };
            if self.time_waits.expiry(number, serial).is_some() {
                self.remove_time_wait(number);
            }
        }
        let (hash, key) = (waiting.hash, waiting.key);
        let Some(number) = self.time_waits.insert(waiting) else {
            self.ports.give_back(key.local_port);
            self.remove_flow(hash, connection);
            return self.flow_ends(hash, &key);
        };
        if let Some(socket) = self.tcp.get(connection)
            && let Some(auth) = &socket.auth
        {
            let auth = (auth.clone(), socket.connection.ao_isns());
            self.time_waits.auths.insert(number, auth);
        }
        if let Some(entry) = self
            .flows
            .find_mut(widen(hash), |&other| other == connection)
        {
            *entry = marked(number);
        }
    }

    /// Keeps a record of another process's connection, unless there are too many: none of this stack's own gives way to it.
    pub fn take_over(&mut self, closed: &Closed, interface: u8, now: Instant) {
        let Closed { key, last, at } = closed;
        let hash = short(self.host.flow_hash.hash(key));
        let time_wait = self.defaults.config.time_wait;
        let is_old = now.since(*at) >= time_wait;
        if is_old || self.time_waits.is_full() || self.find(hash, key).is_some() {
            return;
        }
        let record = TimeWait::taken_over(last, time_wait, now);
        let reuse = Reuse::of_another_process();
        let waiting = Waiting::new(*key, hash, record, interface, reuse);
        if let Some(number) = self.time_waits.insert(waiting) {
            self.ports.take(key.local_port);
            self.insert_flow(hash, marked(number));
        }
    }

    /// Forgets a record; its place in the order stays behind until it comes up.
    pub(super) fn remove_time_wait(&mut self, number: u32) {
        let Some(waiting) = self.time_waits.table.get(number) else {
            return;
        };
        let (hash, key) = (waiting.hash, waiting.key);
        self.remove_flow(hash, marked(number));
        self.ports.give_back(key.local_port);
        self.time_waits.table.discard(number);
        if !self.time_waits.auths.is_empty() {
            self.time_waits.auths.remove(&number);
        }
        self.flow_ends(hash, &key);
    }

    #[inline]
    pub(super) fn expire_time_waits(&mut self, now: Instant) {
        if self.time_waits.next <= now {
            self.expire_some(now);
        }
    }

    #[inline(never)]
    fn expire_some(&mut self, now: Instant) {
        for _ in 0..limits::TIME_WAITS_A_TURN {
            if self.time_waits.next > now {
                break;
            }
            let waits = &mut self.time_waits;
            let Some((number, serial)) = waits.order.pop_front() else {
                break;
            };
            match waits.expiry(number, serial) {
                // A repeated FIN made it young again.
                Some(expires) if expires > now => waits.order.push_back((number, serial)),
                Some(_) => self.remove_time_wait(number),
                None => {}
            }
            self.time_waits.look_at_first();
        }
        self.time_waits.look_at_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection in TIME-WAIT takes at most 128 bytes: its record in the table, two places in the order, and its entry in the table
    /// of flows, which is at least 7/16 full before it grows, with a byte of its own for each place.
    #[test]
    fn a_record_is_small() {
        let record = Table::<Waiting>::SLOT;
        let order = 2 * size_of::<(u32, u32)>();
        let flow = (size_of::<u32>() + 1) * 16_usize.div_ceil(7);
        let whole = record + order + flow;
        println!("TIME-WAIT: {record} + {order} + {flow} = {whole} bytes");
        assert!(whole <= 128, "{record} + {order} + {flow}");
    }
}
