//! Ping sockets (ICMP datagram sockets): echo requests go out with the socket's identifier, the replies to it come in.

use std::{io::IoSlice, net::SocketAddr};

use proto::{
    time::Instant,
    wire::{
        checksum::{self, Partial},
        ipv4::Protocol,
    },
};

use super::{Addresses, Shard, text::Text};
use crate::{counters::Counter, flow::echo_request, packet::Packet};

/// Bytes of type, code, checksum, identifier and sequence number: as many as UDP's header has.
pub(super) const HEADER_LEN: usize = proto::wire::udp::HEADER_LEN;

/// What the header of an echo request says that a program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    protocol: Protocol,
    sequence: [u8; 2],
}

impl Echo {
    /// Reads the message that a program sends.
    ///
    /// # Errors
    /// As Linux: EMSGSIZE for one that no IP packet takes, EINVAL for one without a whole header, or for another than an echo request.
    pub fn read(protocol: Protocol, buffers: &[IoSlice<'_>]) -> Result<Self, i32> {
        let mut text = Text::new(buffers);
        if text.len() > usize::from(u16::MAX) {
            return Err(libc::EMSGSIZE);
        }
        let mut header = [0; HEADER_LEN];
        if text.len() < HEADER_LEN {
            return Err(libc::EINVAL);
        }
        text.copy_to(&mut header);
        let [kind, code, _, _, _, _, sequence @ ..] = header;
        if kind != echo_request(protocol) || code != 0 {
            return Err(libc::EINVAL);
        }
        Ok(Self { protocol, sequence })
    }

    /// Writes the header, with checksum, to `room`, which is as long as it is, for data of `len` bytes that sum to `sum`.
    pub(super) fn emit(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        sum: Partial,
        len: usize,
        room: &mut [u8],
    ) -> Result<(), i32> {
        let room = room.first_chunk_mut::<HEADER_LEN>().ok_or(libc::EMSGSIZE)?;
        let [i0, i1] = local.port().to_be_bytes();
        let [s0, s1] = self.sequence;
        *room = [echo_request(self.protocol), 0, 0, 0, i0, i1, s0, s1];
        let pseudo = if self.protocol == Protocol::ICMPV6 {
            let len = HEADER_LEN + len;
            checksum::pseudo_header(local.ip(), remote.ip(), self.protocol, len)
        } else {
            Some(Partial::ZERO)
        };
        let pseudo = pseudo.ok_or(libc::EMSGSIZE)?;
        let [c0, c1] = checksum::finish(pseudo + checksum::sum(room) + sum).to_be_bytes();
        (room[2], room[3]) = (c0, c1);
        Ok(())
    }

    pub(super) const fn protocol(&self) -> Protocol {
        self.protocol
    }
}

impl Shard {
    /// An echo reply, which the interface has found right: for the socket with its identifier at the address that it came to, from any
    /// sender, as in Linux.
    pub(in crate::shard) fn ping_input(
        &mut self,
        packet: Packet,
        addresses: Addresses,
        now: Instant,
    ) {
        let upper = usize::from(packet.meta.upper);
        let message = packet.bytes().get(upper..).unwrap_or_default();
        let Some(&[.., i0, i1]) = message.first_chunk::<6>() else {
            return self.count(Counter::DropIcmp);
        };
        let ident = u16::from_be_bytes([i0, i1]);
        let len = message.len();
        let local = SocketAddr::new(addresses.destination, ident);
        let Some(number) = self.ping_socket_for(local, packet.meta.interface) else {
            return self.count(Counter::DropPingNoSocket);
        };
        let from = SocketAddr::new(addresses.source, 0);
        self.datagram_keep(number, packet, (upper, len), from, now);
    }

    /// The socket with this address and identifier that hears an interface.
    pub(super) fn ping_socket_for(&self, local: SocketAddr, interface: u8) -> Option<u32> {
        // 0 is that of sockets which lost theirs.
        let (ip, port) = (local.ip(), local.port());
        (port != 0).then(|| self.lookup.pings.find(ip, port, 0, interface))?
    }
}
