//! A packet as a module sees it: its bytes from the IP header on, and what these say about its ends. Read here once for all modules,
//! with every length checked: on the way out it has not been looked at yet.

use std::net::IpAddr;

use proto::wire::{
    ipv4::{self, Protocol},
    ipv6::{self, extension},
    mld,
};

/// A packet on its way past a module.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    head: Head,
}

/// What the bytes say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    upper: usize,
    fragment: bool,
    ports: Option<(u16, u16)>,
    mark: u32,
}

impl<'a> View<'a> {
    /// What `bytes` (from the IP header's first on) say. `None`: too short to be an IP packet, or of another version.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let head = Head::parse(bytes)?;
        Some(Self { bytes, head })
    }

    /// The same of bytes whose head was read before.
    pub(super) const fn of(bytes: &'a [u8], head: Head) -> Self {
        Self { bytes, head }
    }

    /// What it was made of.
    pub(super) const fn head(&self) -> Head {
        self.head
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut head = match bytes.first()? >> 4 {
            4 => Self::v4(bytes)?,
            6 => Self::v6(bytes)?,
            _ => return None,
        };
        let first_of_datagram = head.upper != 0;
        if first_of_datagram && matches!(head.protocol, Protocol::TCP | Protocol::UDP) {
            head.ports = bytes
                .get(head.upper..)
                .and_then(<[u8]>::first_chunk::<4>)
                .map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
        }
        Some(head)
    }

    fn v4(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let len = usize::from(header[0] & 15) * 4;
        if len < ipv4::HEADER_LEN || len > bytes.len() {
            return None;
        }
        let cut = u16::from_be_bytes([header[6], header[7]]);
        let offset = cut & 0x1fff;
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *header.last_chunk::<8>()?;
        Some(Self {
            source: [s0, s1, s2, s3].into(),
            destination: [d0, d1, d2, d3].into(),
            protocol: Protocol(header[9]),
            upper: if offset == 0 { len } else { 0 },
            fragment: cut & 0x3fff != 0,
            ports: None,
            mark: 0,
        })
    }

    fn v6(bytes: &[u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let source: [u8; 16] = *header.get(8..)?.first_chunk()?;
        let destination: [u8; 16] = *header.last_chunk()?;
        let next = Protocol(header[6]);
        let mut head = Self {
            source: source.into(),
            destination: destination.into(),
            protocol: next,
            upper: ipv6::HEADER_LEN,
            fragment: false,
            ports: None,
            mark: 0,
        };
        if !matches!(next, Protocol::TCP | Protocol::UDP | Protocol::ICMPV6) {
            match extension::walk(next, payload) {
                Ok(found) => {
                    head.protocol = found.protocol;
                    head.fragment = found.fragment.is_some_and(|f| !f.is_atomic());
                    let first = found.fragment.is_none_or(|f| f.offset == 0);
                    head.upper = if first {
                        ipv6::HEADER_LEN + found.offset
                    } else {
                        0
                    };
                }
                // A chain that cannot be followed: it has no upper layer.
                Err(_) => head.upper = 0,
            }
        }
        Some(head)
    }
}

impl<'a> View<'a> {
    /// All of it, from the IP header's first byte on.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Its length, bytes.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Never: an IP packet has a header.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Where it says that it comes from.
    pub const fn source(&self) -> IpAddr {
        self.head.source
    }
    /// Where it goes.
    pub const fn destination(&self) -> IpAddr {
        self.head.destination
    }
    /// The upper layer's protocol.
    pub const fn protocol(&self) -> Protocol {
        self.head.protocol
    }
    /// Source and destination port, of TCP and UDP; not of a fragment that is not its datagram's first.
    pub const fn ports(&self) -> Option<(u16, u16)> {
        self.head.ports
    }
    /// The same with what its socket was marked with.
    pub(crate) const fn marked(mut self, mark: u32) -> Self {
        self.head.mark = mark;
        self
    }
    /// SO_MARK of the socket that sends it; 0: none, or it is not on its way out.
    pub const fn mark(&self) -> u32 {
        self.head.mark
    }
    /// Whether it is part of a datagram only.
    pub const fn is_fragment(&self) -> bool {
        self.head.fragment
    }
    /// The upper layer's header and what follows; empty where it has none.
    pub fn upper(&self) -> &'a [u8] {
        if self.head.upper == 0 {
            return &[];
        }
        self.bytes.get(self.head.upper..).unwrap_or_default()
    }
    /// Where the upper layer's header begins, from the IP header's first byte on; 0: it has none.
    pub(crate) const fn upper_at(&self) -> usize {
        self.head.upper
    }
    /// Whether it is neighbor discovery (RFC 4861): router and neighbor solicitation and advertisement, redirect.
    pub(crate) fn is_neighbor_discovery(&self) -> bool {
        self.head.protocol == Protocol::ICMPV6 && matches!(self.upper().first(), Some(133..=137))
    }
    /// Whether it is IGMP or MLD, which routers and hosts of one link speak.
    pub(crate) fn is_membership(&self) -> bool {
        match self.head.protocol {
            Protocol::IGMP => self.head.source.is_ipv4(),
            Protocol::ICMPV6 => self.upper().first().is_some_and(|&kind| mld::is_mld(kind)),
            _ => false,
        }
    }
}
