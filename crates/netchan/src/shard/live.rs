//! A shard whose host has changed while it runs: addresses, routes, or what TCP connections start with.

use std::sync::Arc;

use proto::time::Instant;

use crate::{
    driver::{
        host::Live,
        network::{InterfaceFacts, Network},
    },
    link::Segmentation,
};

use super::{
    Shard,
    tcp::{TcpSocket, burst},
};

impl Shard {
    #[cold]
    #[inline(never)]
    pub(super) fn live_changed(&mut self, before: &Live) {
        if !Arc::ptr_eq(&before.tcp, &self.host.tcp) {
            self.tcp_changed();
        }
        if !Arc::ptr_eq(&before.net, &self.host.net) {
            self.networks_changed(&before.net);
        }
    }

    /// Connections that left where their route led go on where it leads now; those that leave elsewhere (by SO_BINDTODEVICE, or because their SYN
    /// came in there) stay. One whose address is gone stays, too, as in Linux: what it sends is dropped, and it ends by its timers unless the address comes
    /// back.
    ///
    /// Costs two route lookups for each connection, once a change.
    fn networks_changed(&mut self, before: &Network) {
        self.peers.forget();
        self.udp_route.forget();
        let Self {
            tcp, host, latest, ..
        } = self;
        for socket in tcp.iter_mut() {
            let (remote, mark) = (socket.key().remote, socket.packet_mark());
            let led = |net: &Network| net.route(remote, mark).map(|(number, _)| number);
            if let (Some(old), Some(new)) = (led(before), led(&host.net))
                && old != new
                && socket.interface() == old
                && let Some(facts) = host.net.interfaces.get(usize::from(new))
            {
                socket.move_to(new, facts, *latest);
            }
            socket.segment_as(host.net.segmentation(socket.interface(), remote));
        }
    }
}

impl TcpSocket {
    /// It leaves by another link from now on, with segments that this takes.
    fn move_to(&mut self, number: u8, facts: &InterfaceFacts, now: Instant) {
        self.interface = number;
        let headers = if self.key().remote.is_ipv4() { 40 } else { 60 };
        let size = u16::try_from(facts.mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        if size < self.connection.send_mss() {
            self.connection.set_path_limit(size, now);
        }
    }

    /// Its link, or the short cut to ourselves, takes text so from now on. What is signed is cut here.
    fn segment_as(&mut self, segmentation: Segmentation) {
        if segmentation != self.segmentation && self.auth.is_none() {
            self.segmentation = segmentation;
            self.connection.set_burst(burst::text_of(segmentation));
        }
    }
}

#[cfg(test)]
mod tests;
