//! ICMP as connections and sockets see it: errors that come back about what they sent, and the error that a closed port is.

use std::net::{IpAddr, SocketAddr};

use proto::{
    icmp::{self, IncomingError, Kind, error},
    ip::address::Destination,
    tcp::IcmpError,
    time::Instant,
    wire::{icmpv4, icmpv6, ipv4::Protocol, tcp::SeqNum},
};

use super::{Addresses, Shard, time_wait, udp::Report};
use crate::{
    counters::Counter,
    driver::steer::short,
    flow::FlowKey,
    packet::{HEADROOM, Packet},
};

impl Shard {
    /// An ICMP error that quotes a flow of this shard, as the interface has found (it steered by the quotation).
    pub(super) fn icmp_input(&mut self, packet: Packet, addresses: Addresses, now: Instant) {
        let message = packet
            .bytes()
            .get(usize::from(packet.meta.upper)..)
            .unwrap_or_default();
        let host = self.host.clone();
        let ours = host
            .net
            .addresses_with(addresses.destination, packet.meta.interface);
        let incoming = match (addresses.source, addresses.destination) {
            (IpAddr::V6(from), IpAddr::V6(to)) => icmp::receive_v6(
                from,
                to,
                message,
                Destination::Ours,
                packet.meta.reassembled.get(),
                &ours,
            ),
            _ => icmp::receive_v4(message, Destination::Ours, &ours),
        };
        match incoming {
            Ok(icmp::Incoming::Error(error)) if error.protocol != Protocol::TCP => {
                match Report::new(message, &error, addresses.source) {
                    Some(report) => self.udp_icmp(&report, now),
                    None => self.count(Counter::DropIcmp),
                }
            }
            Ok(icmp::Incoming::Error(error)) => {
                let code = message.first_chunk().copied().unwrap_or_default();
                self.icmp_error(&error, code, packet, now);
            }
            _ => self.count(Counter::DropIcmp),
        }
    }

    /// A packet of ours found no next hop: as if a router had said so.
    pub(super) fn undeliverable(&mut self, packet: Packet, now: Instant) {
        let bytes = packet.bytes();
        let Some(key) = FlowKey::of_sent(bytes) else {
            return;
        };
        let header_len = if key.local.is_ipv4() { 20 } else { 40 };
        let seq = bytes
            .get(header_len + 4..)
            .and_then(<[u8]>::first_chunk::<4>);
        let error = IncomingError {
            protocol: key.protocol,
            local: (key.local, key.local_port),
            remote: (key.remote, key.remote_port),
            kind: Kind::HostUnreachable,
            quoted_seq: seq.map(|&bytes| SeqNum(u32::from_be_bytes(bytes))),
            quoted_len: u16::try_from(bytes.len()).unwrap_or(u16::MAX),
        };
        if error.protocol != Protocol::TCP {
            return self.udp_icmp(&Report::undeliverable(bytes, &error), now);
        }
        let unreachable = if key.local.is_ipv4() {
            [3, icmpv4::unreachable::HOST]
        } else {
            [1, icmpv6::unreachable::ADDRESS]
        };
        self.icmp_error(&error, unreachable, packet, now);
    }

    /// `code`: its type and code; `packet`: what it was found in, which goes after a connection that has moved.
    fn icmp_error(&mut self, error: &IncomingError, code: [u8; 2], packet: Packet, now: Instant) {
        let (local, remote) = (
            SocketAddr::from(error.local),
            SocketAddr::from(error.remote),
        );
        let key = FlowKey {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
            protocol: Protocol::TCP,
        };
        let hash = short(self.host.flow_hash.hash(&key));
        let found = self.find(hash, &key).map(time_wait::split);
        if found.is_none()
            && let Some(shard) = self.moved_to(hash, &key)
        {
            return self.pass_on(shard, packet);
        }
        let (Some(Ok(number)), Some(seq)) = (found, error.quoted_seq) else {
            return self.count(Counter::DropIcmp);
        };
        let Some(what) = tcp_error_of(error, code) else {
            return self.count(Counter::DropIcmp);
        };
        self.tcp_icmp(number, error, (what, seq), now);
    }

    fn tcp_icmp(
        &mut self,
        number: u32,
        error: &IncomingError,
        (what, seq): (IcmpError, SeqNum),
        now: Instant,
    ) {
        if self.ignores_icmp(number, error) {
            return;
        }
        let Some(socket) = self.tcp_mut(number) else {
            return;
        };
        let before = socket.connection.path_limit();
        let held = socket.attached;
        let events = socket.connection.on_icmp(what, seq, held);
        let (size, remote) = (socket.connection.path_limit(), socket.key().remote);
        if size != before {
            self.remember_path(remote, size, now);
        }
        self.events(number, events, now);
        self.mark_dirty(number);
    }

    /// A datagram came for a port without a socket.
    pub(super) fn port_unreachable(
        &mut self,
        packet: &Packet,
        Addresses {
            source,
            destination,
        }: Addresses,
        now: Instant,
    ) {
        let Some(buffer) = self.slab.alloc() else {
            return self.count(Counter::NoTransmitBuffer);
        };
        let interface = packet.meta.interface;
        let host = self.host.clone();
        let mut answer = Packet::new(buffer, HEADROOM);
        let group = packet.meta.to_group.get();
        let ours = host.net.addresses_at(destination, interface);
        let (bytes, room) = (packet.bytes(), answer.room_mut());
        self.errors.set_limits(host.limits_icmp);
        match error::respond(
            error::Kind::PortUnreachable,
            bytes,
            group,
            &ours,
            (!host.net.is_local(source)).then_some(&mut self.errors),
            now,
            room,
        ) {
            Ok(response) => {
                answer.set_len(response.len);
                self.send(Some(answer), interface, Counter::IcmpOut);
            }
            Err(_) => self.slab.free(answer.into_buffer()),
        }
    }
}

fn tcp_error_of(error: &IncomingError, [kind, code]: [u8; 2]) -> Option<IcmpError> {
    let is_v4 = error.remote.0.is_ipv4();
    let Kind::PacketTooBig(mtu) = error.kind else {
        return if is_v4 {
            IcmpError::v4(kind, code)
        } else {
            IcmpError::v6(kind, code)
        };
    };
    // 0: an old router did not say; RFC 1191 §5's table begins below the packet that was too long.
    let mtu = if mtu == 0 {
        u32::from(error.quoted_len).saturating_sub(1)
    } else {
        mtu
    };
    let (least, headers) = if is_v4 { (68, 40) } else { (1280, 60) };
    Some(IcmpError::TooBig {
        mss: u16::try_from(mtu.max(least) - headers).unwrap_or(u16::MAX),
    })
}
