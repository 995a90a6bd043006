//! A shard whose host has changed while it runs: addresses, routes, MTUs, or what TCP connections start with.

use std::sync::Arc;

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
    /// All that leave by a link whose MTU has changed send segments that fit (RFC 1191 §3, RFC 8201 §4).
    ///
    /// Costs two route lookups for each connection, once a change.
    fn networks_changed(&mut self, before: &Network) {
        self.peers.forget();
        self.udp_route.forget();
        let Self { tcp, host, .. } = self;
        for socket in tcp.iter_mut() {
            socket.mtu_changed(before, &host.net);
            let (remote, mark) = (socket.key().remote, socket.packet_mark());
            let led = |net: &Network| net.route(remote, mark).map(|(number, _)| number);
            if let (Some(old), Some(new)) = (led(before), led(&host.net))
                && old != new
                && socket.interface() == old
                && let Some(facts) = host.net.interfaces.get(usize::from(new))
            {
                socket.move_to(new, facts);
            }
            socket.segment_as(host.net.segmentation(socket.interface(), remote));
        }
    }
}

impl TcpSocket {
    /// Bytes of text and options in a segment that fits a link.
    fn size_for(&self, facts: &InterfaceFacts) -> u16 {
        let headers = if self.key().remote.is_ipv4() { 40 } else { 60 };
        u16::try_from(facts.mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
    }

    /// The network has changed: it goes by its link's MTU, if that is another.
    fn mtu_changed(&mut self, before: &Network, now: &Network) {
        let number = usize::from(self.interface);
        if let (Some(was), Some(is)) = (before.interfaces.get(number), now.interfaces.get(number))
            && was.mtu != is.mtu
        {
            let size = self.size_for(is);
            self.connection.set_link_limit(size);
        }
    }

    /// It leaves by another link from now on, with segments that this takes.
    fn move_to(&mut self, number: u8, facts: &InterfaceFacts) {
        self.interface = number;
        let size = self.size_for(facts);
        self.connection.set_link_limit(size);
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
