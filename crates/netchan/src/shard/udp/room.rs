//! Buffers to send datagrams from: a socket whose send found too few is not writable until there are so many.

use super::{Shard, UdpSocket};
use crate::{api::Readiness, limits, shard::packets::PACKET_SENDERS};

impl UdpSocket {
    /// Free buffers that its next send may need, as far as is known.
    fn wanted(&self) -> usize {
        usize::from(self.lacks).max(1)
    }
}

impl Shard {
    /// A send would have needed `count` buffers, and did not find them: EAGAIN, and what waits is woken when there are.
    #[cold]
    pub(super) fn udp_lacks(&mut self, number: u32, count: usize) -> i32 {
        let count = count.min(self.slab.capacity()); // or it would wait for ever
        if let Some(socket) = self.udp.get_mut(number) {
            socket.lacks = u16::try_from(count).unwrap_or(u16::MAX);
        }
        self.udp_waits(number);
        libc::EAGAIN
    }

    /// Whether a send would find its buffers; if not, the socket is told when it would: a program that asks once may never register.
    pub(super) fn udp_has_buffers(&mut self, number: u32) -> bool {
        let Some(socket) = self.udp.get(number) else {
            return true;
        };
        let has = self.slab.available() >= socket.wanted();
        if !has {
            self.udp_waits(number);
        }
        has
    }

    fn udp_waits(&mut self, number: u32) {
        // Sockets that were closed leave an entry behind. Twice as many as there are sockets: the list is made anew, once in as many calls.
        if self.udp_waiting.len() >= 2 * self.udp.len().max(limits::SENDERS_A_TURN) {
            let waits = |(number, socket): (u32, &UdpSocket)| socket.waits.then_some(number);
            self.udp_waiting = self.udp.iter().filter_map(waits).collect();
            if self.packet_senders.wait() {
                self.udp_waiting.push_back(PACKET_SENDERS);
            }
        }
        if let Some(socket) = self.udp.get_mut(number).filter(|socket| !socket.waits) {
            socket.waits = true;
            self.udp_waiting.push_back(number);
        }
    }

    /// Wakes the senders whose buffers have come home, first come, first served, and no more of them than there are buffers for. One that needs
    /// more than there are goes to the end, so that it keeps no other from what is enough for it. The holder looks again in a while, as for
    /// streams. How many were looked at.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn udp_wake_senders(&mut self) -> usize {
        let mut free = self.slab.available();
        let mut looks = 0;
        while looks < self.udp_waiting.len().min(limits::SENDERS_A_TURN)
            && free > 0
            && let Some(number) = self.udp_waiting.pop_front()
        {
            looks += 1;
            if number == PACKET_SENDERS {
                free -= self.wake_packet_senders(free);
                continue;
            }
            // One that is gone, or whose number another has that does not wait.
            let Some(socket) = self.udp.get_mut(number).filter(|socket| socket.waits) else {
                continue;
            };
            let wanted = socket.wanted();
            if free < wanted {
                self.udp_waiting.push_back(number);
                continue;
            }
            free -= wanted;
            (socket.lacks, socket.waits) = (0, false);
            socket.wakers.wake(Readiness::WRITABLE, &mut self.woken);
        }
        looks
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
