//! Packet channels come and go: their ends are put into the links' receiving halves, and taken out.

use std::sync::Arc;

use super::Stack;
use crate::{
    channel::{PacketChannelCore, PacketProtocol, packet_channel},
    limits,
};

impl Stack {
    /// Opens a packet channel. A packet that comes after this is its.
    ///
    /// # Errors
    /// EADDRINUSE: there is one for this protocol, or an application with a lease has its packets; EMFILE: there are as many as there may be; what a link's lender says.
    pub fn open_packet_channel(
        &self,
        protocol: PacketProtocol,
    ) -> Result<Arc<PacketChannelCore>, i32> {
        self.lease_packets(protocol)?;
        if self.has_lent_packets(protocol) {
            return Err(libc::EADDRINUSE);
        }
        let mut all = self.control.packet_channels.lock();
        if all.iter().any(|core| core.protocol() == protocol) {
            return Err(libc::EADDRINUSE);
        }
        if all.len() >= limits::PACKET_CHANNELS {
            return Err(libc::EMFILE);
        }
        let (core, ends) = packet_channel(protocol, self.driver.queues.len());
        all.push(core.clone());
        drop(all); // before the halves' locks
        for (number, end) in ends.into_iter().enumerate() {
            self.with_receive(number, |receive| receive.steer.packet_ends.push(end));
        }
        Ok(core)
    }

    /// Closes one: its packets are unserved from now on, and those that wait go home.
    pub fn close_packet_channel(&self, core: &Arc<PacketChannelCore>) {
        for number in 0..self.driver.queues.len() {
            self.with_receive(number, |receive| {
                let ends = &mut receive.steer.packet_ends;
                ends.retain(|end| !end.is_of(core));
            });
        }
        core.close();
        let mut all = self.control.packet_channels.lock();
        all.retain(|other| !Arc::ptr_eq(other, core));
    }

    /// All of them.
    pub fn packet_channels(&self) -> Vec<Arc<PacketChannelCore>> {
        self.control.packet_channels.lock().clone()
    }

    /// For a call that wants what has been received and does not wait: where no thread turns the links, they are turned. `number` is a shard that the
    /// caller's thread turns.
    pub fn look_at_links(&self, number: usize) {
        if self.threaded {
            self.look_if_away(number, self.clock.now());
        } else {
            self.turn_links();
        }
    }
}
