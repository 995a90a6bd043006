//! Options of neighbour discovery (RFC 4861 §4.6, RFC 8106 for DNS).

use core::net::Ipv6Addr;

use super::super::Error;
use super::super::ethernet::MacAddr;

/// Option types.
mod kind {
    pub const SOURCE_LINK: u8 = 1;
    pub const TARGET_LINK: u8 = 2;
    pub const PREFIX: u8 = 3;
    pub const REDIRECTED: u8 = 4;
    pub const MTU: u8 = 5;
    pub const RECURSIVE_DNS: u8 = 25;
    pub const DNS_SEARCH: u8 = 31;
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opt<'a> {
    /// Type 1: the sender's hardware address.
    SourceLink(MacAddr),
    /// Type 2: the target's hardware address.
    TargetLink(MacAddr),
    /// Type 3: addresses of this link.
    Prefix(Prefix),
    /// Type 4: the start of the packet that caused a redirect, padded to a multiple of 8.
    Redirected(&'a [u8]),
    /// Type 5: MTU of the link in bytes; anything, even below 1280.
    Mtu(u32),
    /// Type 25: name servers (RFC 8106 §5.1).
    RecursiveDns {
        /// How long they may be used, in seconds; all ones: for ever.
        lifetime_s: u32,
        /// Their addresses, at least one.
        servers: &'a [[u8; 16]],
    },
    /// Type 31: domain search list (RFC 8106 §5.2).
    DnsSearch {
        /// How long it may be used, in seconds; all ones: for ever.
        lifetime_s: u32,
        /// Names as DNS writes them, whole and without compression, zero padded.
        names: &'a [u8],
    },
    /// A known type with a length or contents that are not its own: to be ignored.
    Malformed {
        /// Type.
        kind: u8,
    },
    /// An unknown type: to be ignored (RFC 4861 §6.1).
    Other {
        /// Type.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// Addresses of a link (RFC 4861 §4.6.2). What to make of it is RFC 4862 §5.5.3's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The prefix; bits behind its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Its length in bits, 0..=128.
    pub len: u8,
    /// L: neighbours have such addresses.
    pub on_link: bool,
    /// A: make yourself such an address.
    pub autonomous: bool,
    /// How long it is on link, in seconds; all ones: for ever.
    pub valid_s: u32,
    /// How long an address made from it is preferred, in seconds; all ones: for ever.
    pub preferred_s: u32,
}

/// Options one after another, each of a proper length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// Checks that `bytes` are options from end to end.
    ///
    /// # Errors
    /// `Option` for one of length 0 or over the end (RFC 4861 §6.1.1 and its siblings).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, behind) = split(rest).ok_or(Error::Option)?;
            rest = behind;
        }
        Ok(Self(bytes))
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The options in order.
    pub fn iter(&self) -> impl Iterator<Item = Opt<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (option, behind) = split(rest)?;
            rest = behind;
            Some(Opt::parse(option))
        })
    }

    /// The first source link-layer address.
    ///
    /// # Errors
    /// `Option` if one is there that is not Ethernet's.
    pub fn source_link(&self) -> Result<Option<MacAddr>, Error> {
        self.link(kind::SOURCE_LINK)
    }

    /// The first target link-layer address.
    ///
    /// # Errors
    /// `Option` if one is there that is not Ethernet's.
    pub fn target_link(&self) -> Result<Option<MacAddr>, Error> {
        self.link(kind::TARGET_LINK)
    }

    fn link(&self, wanted: u8) -> Result<Option<MacAddr>, Error> {
        self.iter()
            .find_map(|option| match option {
                Opt::SourceLink(mac) if wanted == kind::SOURCE_LINK => Some(Ok(mac)),
                Opt::TargetLink(mac) if wanted == kind::TARGET_LINK => Some(Ok(mac)),
                Opt::Malformed { kind } if kind == wanted => Some(Err(Error::Option)),
                _ => None,
            })
            .transpose()
    }
}

/// The first option and what follows it; `None` at length 0 or over the end.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(*bytes.get(1)?) * 8;
    if len == 0 {
        None
    } else {
        bytes.split_at_checked(len)
    }
}

impl<'a> Opt<'a> {
    /// One option, exactly; its length field has been obeyed.
    fn parse(option: &'a [u8]) -> Self {
        let [kind, _, data @ ..] = option else {
            return Self::Malformed { kind: 0 };
        };
        let known = match (*kind, data) {
            (kind::SOURCE_LINK, &[a, b, c, d, e, f]) => {
                Some(Self::SourceLink(MacAddr([a, b, c, d, e, f])))
            }
            (kind::TARGET_LINK, &[a, b, c, d, e, f]) => {
                Some(Self::TargetLink(MacAddr([a, b, c, d, e, f])))
            }
            (kind::PREFIX, _) => parse_prefix(data).map(Self::Prefix),
            (kind::REDIRECTED, [_, _, _, _, _, _, quote @ ..]) => Some(Self::Redirected(quote)),
            (kind::MTU, &[_, _, a, b, c, d]) => Some(Self::Mtu(u32::from_be_bytes([a, b, c, d]))),
            (kind::RECURSIVE_DNS, [_, _, a, b, c, d, servers @ ..]) => {
                match servers.as_chunks::<16>() {
                    // CVE-2020-16898: an even length field leaves half an address over.
                    (servers, []) if !servers.is_empty() => Some(Self::RecursiveDns {
                        lifetime_s: u32::from_be_bytes([*a, *b, *c, *d]),
                        servers,
                    }),
                    _ => None,
                }
            }
            (kind::DNS_SEARCH, [_, _, a, b, c, d, names @ ..]) if names_are_whole(names) => {
                Some(Self::DnsSearch {
                    lifetime_s: u32::from_be_bytes([*a, *b, *c, *d]),
                    names,
                })
            }
            (
                kind::SOURCE_LINK
                | kind::TARGET_LINK
                | kind::REDIRECTED
                | kind::MTU
                | kind::RECURSIVE_DNS
                | kind::DNS_SEARCH,
                _,
            ) => None,
            (kind, data) => Some(Self::Other { kind, data }),
        };
        known.unwrap_or(Self::Malformed { kind: *kind })
    }

    /// Writes the option to the front of `buf`, zero padded to a multiple of 8; returns its length,
    /// 0 if it does not fit, is longer than 2040 bytes, or is malformed.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        match *self {
            Self::SourceLink(MacAddr(mac)) => put(buf, kind::SOURCE_LINK, &[], &mac),
            Self::TargetLink(MacAddr(mac)) => put(buf, kind::TARGET_LINK, &[], &mac),
            Self::Prefix(prefix) => put(buf, kind::PREFIX, &[], &prefix_bytes(&prefix)),
            Self::Redirected(quote) => put(buf, kind::REDIRECTED, &[0; 6], quote),
            Self::Mtu(mtu) => put(buf, kind::MTU, &[0; 2], &mtu.to_be_bytes()),
            Self::RecursiveDns {
                lifetime_s,
                servers,
            } => put(
                buf,
                kind::RECURSIVE_DNS,
                &lifetime(lifetime_s),
                servers.as_flattened(),
            ),
            Self::DnsSearch { lifetime_s, names } => {
                put(buf, kind::DNS_SEARCH, &lifetime(lifetime_s), names)
            }
            Self::Malformed { .. } => 0,
            Self::Other { kind, data } => put(buf, kind, &[], data),
        }
    }
}

/// Two reserved bytes and a lifetime.
fn lifetime(seconds: u32) -> [u8; 6] {
    let [a, b, c, d] = seconds.to_be_bytes();
    [0, 0, a, b, c, d]
}

/// Writes an option of two parts; see [`Opt::emit`].
fn put(buf: &mut [u8], kind: u8, lead: &[u8], data: &[u8]) -> usize {
    let units = (2 + lead.len() + data.len()).div_ceil(8);
    let Ok(units_field) = u8::try_from(units) else {
        return 0;
    };
    let Some(option) = buf.get_mut(..units * 8) else {
        return 0;
    };
    option.fill(0);
    let Some((head, rest)) = option.split_first_chunk_mut::<2>() else {
        return 0;
    };
    *head = [kind, units_field];
    let Some((lead_place, rest)) = rest.split_at_mut_checked(lead.len()) else {
        return 0;
    };
    lead_place.copy_from_slice(lead);
    let Some((data_place, _)) = rest.split_at_mut_checked(data.len()) else {
        return 0;
    };
    data_place.copy_from_slice(data);
    units * 8
}

fn parse_prefix(data: &[u8]) -> Option<Prefix> {
    let data: &[u8; 30] = data.try_into().ok()?;
    let [
        len,
        flags,
        v0,
        v1,
        v2,
        v3,
        p0,
        p1,
        p2,
        p3,
        _,
        _,
        _,
        _,
        prefix @ ..,
    ] = *data;
    (len <= 128).then_some(Prefix {
        prefix: Ipv6Addr::from_octets(prefix),
        len,
        on_link: flags & 0x80 != 0,
        autonomous: flags & 0x40 != 0,
        valid_s: u32::from_be_bytes([v0, v1, v2, v3]),
        preferred_s: u32::from_be_bytes([p0, p1, p2, p3]),
    })
}

fn prefix_bytes(prefix: &Prefix) -> [u8; 30] {
    let mut bytes = [0; 30];
    bytes[0] = prefix.len;
    bytes[1] = (u8::from(prefix.on_link) << 7) | (u8::from(prefix.autonomous) << 6);
    bytes[2..6].copy_from_slice(&prefix.valid_s.to_be_bytes());
    bytes[6..10].copy_from_slice(&prefix.preferred_s.to_be_bytes());
    bytes[14..].copy_from_slice(&prefix.prefix.octets());
    bytes
}

/// Whether `bytes` are one or more names, each of labels up to 63 bytes and at most 255 in all,
/// ended by a root label, and then nothing but zeros (RFC 8106 §5.2, RFC 1035 §3.1).
fn names_are_whole(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut names = 0_u32;
    // A root label where a name should start is padding: the rest has to be zero.
    while let [first, ..] = *rest
        && first != 0
    {
        let mut name_len = 1;
        while let [label @ 1..=63, behind @ ..] = rest {
            let Some(behind) = behind.get(usize::from(*label)..) else {
                return false;
            };
            name_len += usize::from(*label) + 1;
            rest = behind;
        }
        // Not a root label: the bytes are over, or it is a compression pointer.
        let [0, behind @ ..] = rest else { return false };
        if name_len > 255 {
            return false;
        }
        rest = behind;
        names += 1;
    }
    names > 0 && rest.iter().all(|byte| *byte == 0)
}
