//! The packets that wait: a ring of fixed size per entry, in one piece of memory.

use core::net::IpAddr;

use super::{Entry, Table};

impl<P> Table<P> {
    /// Takes the packets that waited for `ip`, oldest first; to be used when [`super::Learned`]
    /// says that it is known now.
    pub fn take_queued(&mut self, ip: IpAddr) -> Queued<'_, P> {
        let place = self.map.find(&ip);
        Queued { table: self, place }
    }

    fn slot(&self, place: u32, position: u8) -> usize {
        let queue = self.config.queue;
        place as usize * queue + usize::from(position) % queue
    }

    /// Appends to an entry's queue; the oldest makes room and is returned.
    pub(super) fn enqueue(&mut self, place: u32, packet: P) -> Option<P> {
        let full = |e: &Entry, size: usize| usize::from(e.queue_len) >= size;
        let (_, entry) = self.map.at(place)?;
        let displaced = if full(entry, self.config.queue) {
            self.dequeue(place)
        } else {
            None
        };
        let (_, entry) = self.map.at_mut(place)?;
        let position = usize::from(entry.queue_head) + usize::from(entry.queue_len);
        entry.queue_len += 1;
        let slot = place as usize * self.config.queue + position % self.config.queue;
        if let Some(slot) = self.queues.get_mut(slot) {
            *slot = Some(packet);
        }
        displaced
    }

    pub(super) fn dequeue(&mut self, place: u32) -> Option<P> {
        let (_, entry) = self.map.at(place)?;
        if entry.queue_len == 0 {
            return None;
        }
        let slot = self.slot(place, entry.queue_head);
        let (_, entry) = self.map.at_mut(place)?;
        entry.queue_len -= 1;
        let next = (usize::from(entry.queue_head) + 1) % self.config.queue;
        entry.queue_head = u8::try_from(next).unwrap_or(0);
        self.queues.get_mut(slot)?.take()
    }
}

/// Packets that waited for one neighbour, oldest first. What is not taken stays.
pub struct Queued<'a, P> {
    table: &'a mut Table<P>,
    place: Option<u32>,
}

impl<P> Iterator for Queued<'_, P> {
    type Item = P;
    fn next(&mut self) -> Option<P> {
        self.table.dequeue(self.place?)
    }
}
