//! A packet as a module sees it that may change it: its view, its bytes to write, and the links that it is between.

use std::net::IpAddr;

use super::view::{Head, View};
use crate::{driver::network::Network, packet::Packet};

/// Where a packet comes from or goes to, as rules name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    /// Not known at this point of the path.
    #[default]
    Unknown,
    /// This host itself.
    Host,
    /// The link of this number.
    Link(u8),
}

/// Between which links a packet is, and what the stack knows of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The networks as they are.
    pub net: &'a Network,
    /// By where it came in.
    pub from: Side,
    /// By where it leaves.
    pub to: Side,
}

/// A packet that a module may change.
#[derive(Debug)]
pub struct Draft<'a> {
    packet: &'a mut Packet,
    head: Head,
    place: Place<'a>,
    changed: bool,
}

impl<'a> Draft<'a> {
    /// `None`: it is no IP packet.
    pub(crate) fn new(packet: &'a mut Packet, place: Place<'a>) -> Option<Self> {
        let head = View::parse(packet.bytes())?.head();
        Some(Self {
            packet,
            head,
            place,
            changed: false,
        })
    }

    /// Notes what its socket was marked with.
    pub(crate) fn mark(&mut self, mark: u32) {
        self.head = self.view().marked(mark).head();
    }

    /// The packet as it is now.
    pub fn view(&self) -> View<'_> {
        View::of(self.packet.bytes(), self.head)
    }

    /// Its bytes from the IP header's first on, to change: its length stays. Its checksums are the module's to keep right; see
    /// [`Self::is_partial`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.changed = true;
        self.packet.bytes_mut()
    }

    /// Whether the link finishes it: then its transport checksum field holds the sum of the pseudo header alone, not complemented.
    pub const fn is_partial(&self) -> bool {
        self.packet.meta.segment != 0
    }

    /// The link that it came in by, as programs know interfaces; `lo`: it is this host's own. `None`: it has not come in.
    pub fn incoming(&self) -> Option<&'a str> {
        self.device(self.place.from)
    }

    /// The link that it leaves by; `lo`: it is for this host, and sent by it. `None`: not at this point.
    pub fn outgoing(&self) -> Option<&'a str> {
        self.device(self.place.to)
    }

    fn device(&self, side: Side) -> Option<&'a str> {
        match side {
            Side::Unknown => None,
            Side::Host => Some("lo"),
            Side::Link(number) => {
                let facts = self.place.net.interfaces.get(usize::from(number))?;
                Some(facts.device())
            }
        }
    }

    /// The address of ours on the link that it leaves by, from which `destination` is best reached.
    pub fn address_out(&self, destination: IpAddr) -> Option<IpAddr> {
        self.address_on(self.place.to, destination)
    }

    /// The address of ours on the link that it came in by, likewise.
    pub fn address_in(&self, source: IpAddr) -> Option<IpAddr> {
        self.address_on(self.place.from, source)
    }

    fn address_on(&self, side: Side, like: IpAddr) -> Option<IpAddr> {
        let Side::Link(number) = side else {
            return None;
        };
        let facts = self.place.net.interfaces.get(usize::from(number))?;
        facts.addresses.source_for(like)
    }

    /// Whether it was changed since it was read.
    pub(crate) const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Reads it again after a change; false: it is no IP packet any more.
    pub(crate) fn reread(&mut self) -> bool {
        let mark = self.view().mark();
        self.changed = false;
        match View::parse(self.packet.bytes()) {
            Some(view) => {
                self.head = view.marked(mark).head();
                true
            }
            None => false,
        }
    }
}
