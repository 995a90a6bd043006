//! Neighbour discovery messages (RFC 4861 §4), with all the checks that need no state of ours
//! (§6.1, §7.1, §8.1); options in [`options`].

use core::net::Ipv6Addr;

use super::checksum;
use super::ethernet::MacAddr;
use super::{Error, Protocol};

pub mod options;

use options::{Opt, Options};

/// The hop limit of every message: no router let it pass.
pub const HOP_LIMIT: u8 = 255;

/// Message types.
mod kind {
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    pub const REDIRECT: u8 = 137;
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Type 133: routers, speak up.
    RouterSolicitation {
        /// The asking host's address.
        source_link: Option<MacAddr>,
    },
    /// Type 134: a router and what it says of the link.
    RouterAdvertisement(RouterAdvertisement<'a>),
    /// Type 135: asks which host has the target.
    NeighborSolicitation {
        /// The address asked for; never multicast.
        target: Ipv6Addr,
        /// The asking host's address; none in duplicate address detection.
        source_link: Option<MacAddr>,
    },
    /// Type 136: this one has it.
    NeighborAdvertisement {
        /// The address spoken of; never multicast.
        target: Ipv6Addr,
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation; never to a multicast destination.
        solicited: bool,
        /// O: replaces what is known.
        replace: bool,
        /// The target's hardware address.
        target_link: Option<MacAddr>,
    },
    /// Type 137: there is a better first hop. Whether it came from the current one is the
    /// caller's check.
    Redirect {
        /// The better first hop: link-local, or the destination itself.
        target: Ipv6Addr,
        /// The destination it is for; never multicast.
        destination: Ipv6Addr,
        /// The target's hardware address.
        target_link: Option<MacAddr>,
        /// As much of the packet that caused it as is there; may be empty.
        redirected: &'a [u8],
    },
}

/// What a router says of the link (RFC 4861 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvertisement<'a> {
    /// Hop limit to send with; 0 says nothing.
    pub hop_limit: u8,
    /// M: addresses by DHCPv6.
    pub managed: bool,
    /// O: other things by DHCPv6.
    pub other: bool,
    /// How long the sender is a default router, in seconds; 0: it is none.
    pub router_lifetime_s: u16,
    /// How long a neighbour counts as reachable, in ms; 0 says nothing.
    pub reachable_time_ms: u32,
    /// Time between solicitations, in ms; 0 says nothing.
    pub retransmit_time_ms: u32,
    /// Prefixes, MTU, name servers, the router's hardware address.
    pub options: Options<'a>,
}

impl<'a> Message<'a> {
    /// The message in `bytes`, a whole ICMPv6 message whose checksum
    /// [`super::icmpv6::Message::parse`] has found right, from an IPv6 packet of these addresses
    /// and hop limit.
    ///
    /// # Errors
    /// `Version` for another type or a code; `Truncated` below the type's least length; `Option`
    /// for options of length 0, over the end, or a hardware address that is not Ethernet's;
    /// `Value` for a hop limit other than 255 or addresses that the RFC forbids.
    pub fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        bytes: &'a [u8],
    ) -> Result<Self, Error> {
        if hop_limit != HOP_LIMIT {
            return Err(Error::Value);
        }
        let (&[kind, code, _, _, a, b, c, d], rest) =
            bytes.split_first_chunk::<8>().ok_or(Error::Truncated)?;
        if code != 0 {
            return Err(Error::Version);
        }
        match kind {
            kind::ROUTER_SOLICITATION => {
                let source_link = Options::parse(rest)?.source_link()?;
                // §6.1.1
                if source.is_unspecified() && source_link.is_some() {
                    return Err(Error::Value);
                }
                Ok(Self::RouterSolicitation { source_link })
            }
            kind::ROUTER_ADVERTISEMENT => parse_advertisement(source, [a, b, c, d], rest),
            kind::NEIGHBOR_SOLICITATION => parse_solicitation(source, destination, rest),
            kind::NEIGHBOR_ADVERTISEMENT => {
                let (target, rest) = address(rest)?;
                let target_link = Options::parse(rest)?.target_link()?;
                let (router, solicited, replace) = (a & 0x80 != 0, a & 0x40 != 0, a & 0x20 != 0);
                // §7.1.2
                if target.is_multicast() || (solicited && destination.is_multicast()) {
                    return Err(Error::Value);
                }
                Ok(Self::NeighborAdvertisement {
                    target,
                    router,
                    solicited,
                    replace,
                    target_link,
                })
            }
            kind::REDIRECT => parse_redirect(source, rest),
            _ => Err(Error::Version),
        }
    }

    /// Writes the message, checksum included, to the front of `buf`; returns its length, 0 if it
    /// does not fit. The packet goes out with [`HOP_LIMIT`].
    pub fn emit(&self, source: Ipv6Addr, destination: Ipv6Addr, buf: &mut [u8]) -> usize {
        let Some(len) = self.write(buf) else { return 0 };
        let Some(message) = buf.get_mut(..len) else {
            return 0;
        };
        let Ok(wire_len) = u32::try_from(len) else {
            return 0;
        };
        let sum = checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, wire_len)
            + checksum::sum(message);
        let Some(field) = message.get_mut(2..4) else {
            return 0;
        };
        field.copy_from_slice(&checksum::finish(sum).to_be_bytes());
        len
    }

    /// All but the checksum.
    fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let (head, body) = buf.split_first_chunk_mut::<8>()?;
        let mut body = Writer { rest: body, len: 8 };
        match *self {
            Self::RouterSolicitation { source_link } => {
                *head = [kind::ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
                body.option(source_link.map(Opt::SourceLink))?;
            }
            Self::RouterAdvertisement(advertisement) => {
                let [l0, l1] = advertisement.router_lifetime_s.to_be_bytes();
                let flags =
                    (u8::from(advertisement.managed) << 7) | (u8::from(advertisement.other) << 6);
                let hop_limit = advertisement.hop_limit;
                *head = [
                    kind::ROUTER_ADVERTISEMENT,
                    0,
                    0,
                    0,
                    hop_limit,
                    flags,
                    l0,
                    l1,
                ];
                body.put(&advertisement.reachable_time_ms.to_be_bytes())?;
                body.put(&advertisement.retransmit_time_ms.to_be_bytes())?;
                body.put(advertisement.options.as_bytes())?;
            }
            Self::NeighborSolicitation {
                target,
                source_link,
            } => {
                *head = [kind::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
                body.put(&target.octets())?;
                body.option(source_link.map(Opt::SourceLink))?;
            }
            Self::NeighborAdvertisement {
                target,
                router,
                solicited,
                replace,
                target_link,
            } => {
                let flags =
                    (u8::from(router) << 7) | (u8::from(solicited) << 6) | (u8::from(replace) << 5);
                *head = [kind::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
                body.put(&target.octets())?;
                body.option(target_link.map(Opt::TargetLink))?;
            }
            Self::Redirect {
                target,
                destination,
                target_link,
                redirected,
            } => {
                *head = [kind::REDIRECT, 0, 0, 0, 0, 0, 0, 0];
                body.put(&target.octets())?;
                body.put(&destination.octets())?;
                body.option(target_link.map(Opt::TargetLink))?;
                let quote = (!redirected.is_empty()).then_some(Opt::Redirected(redirected));
                body.option(quote)?;
            }
        }
        Some(body.len)
    }
}

/// Appends to what is left of a buffer.
struct Writer<'b> {
    rest: &'b mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (place, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(bytes.len())?;
        place.copy_from_slice(bytes);
        self.rest = rest;
        self.len += bytes.len();
        Some(())
    }

    fn option(&mut self, option: Option<Opt<'_>>) -> Option<()> {
        let Some(option) = option else {
            return Some(());
        };
        let len = option.emit(self.rest);
        self.rest = core::mem::take(&mut self.rest).get_mut(len..)?;
        self.len += len;
        (len != 0).then_some(())
    }
}

/// An address and what follows it.
fn address(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), Error> {
    let (octets, rest) = bytes.split_first_chunk::<16>().ok_or(Error::Truncated)?;
    Ok((Ipv6Addr::from_octets(*octets), rest))
}

/// RFC 4861 §6.1.2.
fn parse_advertisement(source: Ipv6Addr, head: [u8; 4], rest: &[u8]) -> Result<Message<'_>, Error> {
    let [hop_limit, flags, l0, l1] = head;
    let (times, rest) = rest.split_first_chunk::<8>().ok_or(Error::Truncated)?;
    let [r0, r1, r2, r3, t0, t1, t2, t3] = *times;
    let options = Options::parse(rest)?;
    if !source.is_unicast_link_local() {
        return Err(Error::Value);
    }
    options.source_link()?;
    Ok(Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit,
        managed: flags & 0x80 != 0,
        other: flags & 0x40 != 0,
        router_lifetime_s: u16::from_be_bytes([l0, l1]),
        reachable_time_ms: u32::from_be_bytes([r0, r1, r2, r3]),
        retransmit_time_ms: u32::from_be_bytes([t0, t1, t2, t3]),
        options,
    }))
}

/// RFC 4861 §7.1.1.
fn parse_solicitation(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    rest: &[u8],
) -> Result<Message<'_>, Error> {
    let (target, rest) = address(rest)?;
    let source_link = Options::parse(rest)?.source_link()?;
    if target.is_multicast() {
        return Err(Error::Value);
    }
    if source.is_unspecified() && (source_link.is_some() || !is_solicited_node(destination)) {
        return Err(Error::Value);
    }
    Ok(Message::NeighborSolicitation {
        target,
        source_link,
    })
}

/// RFC 4861 §8.1.
fn parse_redirect(source: Ipv6Addr, rest: &[u8]) -> Result<Message<'_>, Error> {
    let (target, rest) = address(rest)?;
    let (destination, rest) = address(rest)?;
    let options = Options::parse(rest)?;
    let target_link = options.target_link()?;
    let target_is_fine = target.is_unicast_link_local() || target == destination;
    if !source.is_unicast_link_local() || destination.is_multicast() || !target_is_fine {
        return Err(Error::Value);
    }
    let redirected = options.iter().find_map(|option| match option {
        Opt::Redirected(quote) => Some(quote),
        _ => None,
    });
    Ok(Message::Redirect {
        target,
        destination,
        target_link,
        redirected: redirected.unwrap_or_default(),
    })
}

/// Where solicitations for `target` go (RFC 4291 §2.7.1).
pub const fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Whether `address` is some address's [`solicited_node`] group: in ff02::1:ff00:0/104.
pub fn is_solicited_node(address: Ipv6Addr) -> bool {
    solicited_node(address) == address
}
