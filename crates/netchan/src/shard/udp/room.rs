//! Buffers to send datagrams from: a socket whose send found too few is not writable until there are so many.

use super::{Shard, UdpSocket};
use crate::api::Readiness;

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
        if let Some(socket) = self.udp.get_mut(number).filter(|socket| !socket.waits) {
            socket.waits = true;
            self.udp_waiting.push(number);
        }
    }

    /// Tells those whose buffers have come home. The holder looks again in a while, as for streams.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn udp_wake_senders(&mut self) {
        let free = self.slab.available();
        let (udp, woken) = (&mut self.udp, &mut self.woken);
        self.udp_waiting.retain(|&number| {
            // One that is gone, or whose number another has that does not wait.
            let Some(socket) = udp.get_mut(number).filter(|socket| socket.waits) else {
                return false;
            };
            if free < socket.wanted() {
                return true;
            }
            (socket.lacks, socket.waits) = (0, false);
            socket.wakers.wake(Readiness::WRITABLE, woken);
            false
        });
    }
}
