//! Connections in TIME-WAIT: small records in a table of their own, in order of expiry.

use std::collections::VecDeque;

use proto::{tcp::TimeWait, time::Instant};

use super::{Shard, table::Table, widen};
use crate::{channel::Request, steer::flow::FlowKey};

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
    /// Tells it from an earlier record with the same number.
    serial: u32,
}

impl Waiting {
    /// A record to insert.
    pub const fn new(key: FlowKey, hash: u32, record: TimeWait, interface: u8) -> Self {
        Self {
            key,
            hash,
            record,
            interface,
            serial: 0,
        }
    }
}

/// All of a shard. They expire in the order in which they came, but for those that a repeated FIN made young again.
#[derive(Debug)]
pub struct TimeWaits {
    table: Table<Waiting>,
    order: VecDeque<(Instant, u32, u32)>,
    serial: u32,
}

impl TimeWaits {
    /// For at most `capacity` records.
    pub fn new(capacity: usize) -> Self {
        Self {
            table: Table::with_capacity(capacity),
            order: VecDeque::with_capacity(2 * capacity),
            serial: 0,
        }
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
    pub fn next(&self) -> Instant {
        self.order.front().map_or(Instant::FAR, |(at, ..)| *at)
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.table.iter().map(|(_, w)| w)
    }
}

impl Shard {
    /// Keeps a record, to which the flow of `connection` leads from now on. When there are too many the oldest gives way (its ports
    /// may then come back early).
    pub(super) fn insert_time_wait(&mut self, mut waiting: Waiting, connection: u32) {
        let full = |t: &TimeWaits| {
            t.table.len() == t.table.capacity() || t.order.len() == 2 * t.table.capacity()
        };
        while full(&self.time_waits) {
            let Some((_, number, serial)) = self.time_waits.order.pop_front() else {
                break;
            };
            self.remove_time_wait_of(number, serial);
        }
        let (at, hash) = (waiting.record.expires(), waiting.hash);
        self.time_waits.serial = self.time_waits.serial.wrapping_add(1);
        let serial = self.time_waits.serial;
        waiting.serial = serial;
        let Ok(number) = self.time_waits.table.insert(waiting) else {
            return self.remove_flow(hash, connection);
        };
        self.time_waits.order.push_back((at, number, serial));
        if let Some(entry) = self
            .flows
            .find_mut(widen(hash), |&other| other == connection)
        {
            *entry = marked(number);
        }
    }

    fn remove_time_wait_of(&mut self, number: u32, serial: u32) {
        if self
            .time_waits
            .get(number)
            .is_some_and(|w| w.serial == serial)
        {
            self.remove_time_wait(number);
        }
    }

    /// Forgets a record; its place in the order stays behind until it comes up.
    pub(super) fn remove_time_wait(&mut self, number: u32) {
        let Some(waiting) = self.time_waits.table.get(number) else {
            return;
        };
        let (hash, key) = (waiting.hash, waiting.key);
        self.remove_flow(hash, marked(number));
        self.time_waits.table.discard(number);
        self.request(Request::Remove, &key);
    }

    #[inline]
    pub(super) fn expire_time_waits(&mut self, now: Instant) {
        while let Some(&(at, number, serial)) = self.time_waits.order.front()
            && at <= now
        {
            self.time_waits.order.pop_front();
            match self
                .time_waits
                .get(number)
                .filter(|w| w.serial == serial)
                .map(|w| w.record.expires())
            {
                // A repeated FIN made it young again.
                Some(expires) if expires > now => {
                    self.time_waits.order.push_back((expires, number, serial))
                }
                Some(_) => self.remove_time_wait(number),
                None => {}
            }
        }
    }
}
