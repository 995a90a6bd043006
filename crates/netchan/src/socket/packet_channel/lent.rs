//! A packet that an application reads where it lies, and how many it holds.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use proto::wire::ethernet::MacAddr;

use crate::{channel::PacketProtocol, driver::interface::ends_of, packet::Packet};

/// Packets that an application holds, and may. Relaxed throughout: numbers that order nothing.
#[derive(Debug)]
pub(super) struct Held {
    count: AtomicUsize,
    most: AtomicUsize,
}

impl Held {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// Counts up to `wanted` more, as many as there may be. How many.
    pub(super) fn reserve(&self, wanted: usize) -> usize {
        let most = self.most.load(Relaxed);
        let room = |count: usize| wanted.min(most.saturating_sub(count));
        let add = |count| Some(count + room(count));
        match self.count.fetch_update(Relaxed, Relaxed, add) {
            Ok(count) | Err(count) => room(count),
        }
    }

    pub(super) fn give_back(&self, unused: usize) {
        self.count.fetch_sub(unused, Relaxed);
    }
}

/// A received packet, in the buffer into which it was received. Dropped on any thread, the buffer goes home.
pub struct LentPacket {
    packet: Packet,
    protocol: PacketProtocol,
    held: Arc<Held>,
}

impl LentPacket {
    /// One that is counted in `held` already.
    pub(super) const fn new(packet: Packet, protocol: PacketProtocol, held: Arc<Held>) -> Self {
        Self {
            packet,
            protocol,
            held,
        }
    }

    /// All of it: from the IP header on, or that of the frame (which may have a priority tag; IEEE 802.1Q §9.6).
    pub fn bytes(&self) -> &[u8] {
        self.packet.bytes()
    }

    /// What follows the IP header and its options or extension headers, or the header of the frame: of short frames with the padding that Ethernet
    /// asks for.
    pub fn payload(&self) -> &[u8] {
        let upper = usize::from(self.packet.meta.upper);
        self.packet.bytes().get(upper..).unwrap_or_default()
    }

    /// The number of the link that it came by.
    pub const fn link(&self) -> u8 {
        self.packet.meta.interface
    }

    /// Whether its frame was for a group of stations. Not known of what this host sent itself.
    pub const fn to_group(&self) -> bool {
        self.packet.meta.to_group.get()
    }

    /// Where an IP packet says that it comes from. `None`: it is a frame.
    pub fn source_ip(&self) -> Option<IpAddr> {
        self.ips().map(|(source, _)| source)
    }

    /// Where an IP packet went. `None`: it is a frame.
    pub fn destination_ip(&self) -> Option<IpAddr> {
        self.ips().map(|(_, destination)| destination)
    }

    fn ips(&self) -> Option<(IpAddr, IpAddr)> {
        match self.protocol {
            PacketProtocol::Ip(_) => ends_of(self.bytes()),
            PacketProtocol::EtherType(_) => None,
        }
    }

    /// The station that a frame says it comes from. `None`: it is an IP packet.
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.macs().map(|(_, source)| source)
    }

    /// The station or the group of stations that a frame went to. `None`: it is an IP packet.
    pub fn destination_mac(&self) -> Option<MacAddr> {
        self.macs().map(|(destination, _)| destination)
    }

    fn macs(&self) -> Option<(MacAddr, MacAddr)> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l] = match self.protocol {
            PacketProtocol::Ip(_) => None,
            PacketProtocol::EtherType(_) => self.bytes().first_chunk::<12>(),
        }?;
        Some((MacAddr([a, b, c, d, e, f]), MacAddr([g, h, i, j, k, l])))
    }
}

impl Drop for LentPacket {
    fn drop(&mut self) {
        self.held.give_back(1);
    }
}

impl fmt::Debug for LentPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentPacket")
            .field("protocol", &self.protocol)
            .field("link", &self.link())
            .field("len", &self.bytes().len())
            .finish_non_exhaustive()
    }
}
