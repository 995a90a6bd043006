//! Ethernet II frames with up to two VLAN tags (IEEE 802.3, 802.1Q); 802.3 length frames are
//! recognised, their LLC contents are not.

use core::fmt;

use super::Error;

/// Bytes of an untagged header.
pub const HEADER_LEN: usize = 14;
/// Bytes a VLAN tag adds.
pub const TAG_LEN: usize = 4;
/// Largest value of the type field that is a length (IEEE 802.3 §3.2.6, RFC 1122 §2.3.3).
pub const LENGTH_MAX: u16 = 1500;

/// An EUI-48 hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zero: no address.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Whether this is the address of all stations.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }
    /// Whether the group bit is set; true for broadcast as well.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
    /// Whether this can be one station's address: neither a group nor all zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::UNSPECIFIED
    }
    /// Where an IPv4 multicast group is sent (RFC 1112 §6.4).
    pub const fn from_multicast_v4(group: core::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }
    /// Where an IPv6 multicast group is sent (RFC 2464 §7).
    pub const fn from_multicast_v6(group: core::net::Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl core::str::FromStr for MacAddr {
    type Err = Error;
    /// Six two-digit hexadecimal numbers with colons between them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(Error::Truncated)?;
            if part.len() != 2 || part.starts_with('+') {
                return Err(Error::Value);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| Error::Value)?;
        }
        if parts.next().is_some() {
            Err(Error::Length)
        } else {
            Ok(Self(octets))
        }
    }
}

/// What a frame carries; up to [`LENGTH_MAX`] it is the length of an 802.3 frame instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// Whether this is a length: an 802.3 frame, which no protocol here speaks.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 <= LENGTH_MAX
    }
}

/// A VLAN tag's control information (IEEE 802.1Q §9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag(pub u16);

impl Tag {
    /// A tag for VLAN `id` (low 12 bits count), priority 0.
    pub const fn new(id: u16) -> Self {
        Self(id & 0x0fff)
    }
    /// VLAN identifier, 0..=4095; 0 is a priority tag, 4095 reserved.
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }
    /// Priority code point, 0..=7.
    pub const fn priority(self) -> u8 {
        self.0.to_be_bytes()[0] >> 5
    }
    /// Drop eligible indicator.
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Where the frame goes.
    pub destination: MacAddr,
    /// The sender's address.
    pub source: MacAddr,
    /// What it carries, behind any tags.
    pub ethertype: EtherType,
    /// The customer tag: the only one, or the inner of two.
    pub vlan: Option<Tag>,
    /// The service tag: the outer of two, or a lone 802.1ad one. Sent with type 0x88a8.
    pub service: Option<Tag>,
}

impl Header {
    /// An untagged header.
    pub const fn new(destination: MacAddr, source: MacAddr, ethertype: EtherType) -> Self {
        Self {
            destination,
            source,
            ethertype,
            vlan: None,
            service: None,
        }
    }

    /// The header at the front of `frame` and its length in bytes.
    ///
    /// # Errors
    /// `Truncated` if the frame ends inside the header or a tag; `Value` for a third tag, a
    /// second service tag behind a customer tag, or a type between 1501 and 1535 (undefined by
    /// IEEE 802.3); `Length` for an 802.3 frame that is longer than what is there.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, usize), Error> {
        let (first, rest) = frame
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *first;
        let header = Self::new(
            MacAddr([d0, d1, d2, d3, d4, d5]),
            MacAddr([s0, s1, s2, s3, s4, s5]),
            EtherType(u16::from_be_bytes([t0, t1])),
        );
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => Ok((header, HEADER_LEN)),
            _ => header.parse_tags(rest),
        }
    }

    /// The rest of [`Header::parse`]: tags and lengths; `rest` follows the first type field.
    fn parse_tags(mut self, mut rest: &[u8]) -> Result<(Self, usize), Error> {
        let mut len = HEADER_LEN;
        while matches!(self.ethertype, EtherType::VLAN | EtherType::SERVICE_VLAN) {
            let (tag, behind) = rest
                .split_first_chunk::<TAG_LEN>()
                .ok_or(Error::Truncated)?;
            let [c0, c1, t0, t1] = *tag;
            let tag = Tag(u16::from_be_bytes([c0, c1]));
            match (self.ethertype, self.service, self.vlan) {
                (EtherType::SERVICE_VLAN, None, None) => self.service = Some(tag),
                (EtherType::VLAN, _, None) => self.vlan = Some(tag),
                // Two tags of the customer type: the outer one serves as the service tag.
                (EtherType::VLAN, None, outer) => {
                    self.service = outer;
                    self.vlan = Some(tag);
                }
                _ => return Err(Error::Value),
            }
            self.ethertype = EtherType(u16::from_be_bytes([t0, t1]));
            rest = behind;
            len += TAG_LEN;
        }
        match self.ethertype.0 {
            0..=LENGTH_MAX if usize::from(self.ethertype.0) > rest.len() => Err(Error::Length),
            1501..=1535 => Err(Error::Value),
            _ => Ok((self, len)),
        }
    }

    /// Bytes that [`Header::emit`] writes: 14, 18 or 22.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        let tags = self.vlan.is_some() as usize + self.service.is_some() as usize;
        HEADER_LEN + tags * TAG_LEN
    }

    /// Writes the header to the front of `buf`; returns its length, 0 if it does not fit.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let Some((first, mut rest)) = buf.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        first[..6].copy_from_slice(&self.destination.0);
        first[6..12].copy_from_slice(&self.source.0);
        let mut type_field = &mut first[12..];
        let tags = [
            (EtherType::SERVICE_VLAN, self.service),
            (EtherType::VLAN, self.vlan),
        ];
        for (kind, tag) in tags {
            let Some(tag) = tag else { continue };
            let Some((bytes, behind)) = rest.split_first_chunk_mut::<TAG_LEN>() else {
                return 0;
            };
            type_field.copy_from_slice(&kind.0.to_be_bytes());
            bytes[..2].copy_from_slice(&tag.0.to_be_bytes());
            type_field = &mut bytes[2..];
            rest = behind;
        }
        type_field.copy_from_slice(&self.ethertype.0.to_be_bytes());
        self.len()
    }
}
