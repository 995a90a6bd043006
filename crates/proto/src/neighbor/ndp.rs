//! Neighbour discovery in and out (RFC 4861 §7.2, RFC 4862 §5.4): what the table learns from a
//! message, what it is answered, what we ask and announce.

use core::net::{IpAddr, Ipv6Addr};

use super::{Evidence, Learned, Table};
use crate::ip::address::Addresses;
use crate::time::Instant;
use crate::wire::ethernet::MacAddr;
use crate::wire::ndp::{HOP_LIMIT, Message, solicited_node};
use crate::wire::{Protocol, ipv6};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A message to be sent, with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Sender.
    pub source: Ipv6Addr,
    /// Receiver; often a group.
    pub destination: Ipv6Addr,
    /// Where the frame goes; `None`: the receiver is to be resolved as for any packet.
    pub to: Option<MacAddr>,
    /// What it says.
    pub message: Message<'static>,
}

/// Octets of the largest packet that [`Outgoing::emit`] writes: IPv6 header, message, one option.
pub const OUTGOING_LEN_MAX: usize = ipv6::HEADER_LEN + 24 + 8;

impl Outgoing {
    /// Writes the IPv6 packet to the front of `buf`; returns its length, 0 if it does not fit.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let Some((head, body)) = buf.split_at_mut_checked(ipv6::HEADER_LEN) else {
            return 0;
        };
        let len = self.message.emit(self.source, self.destination, body);
        if len == 0 {
            return 0;
        }
        let mut header = ipv6::Header::new(Protocol::ICMPV6, self.source, self.destination);
        header.hop_limit = HOP_LIMIT;
        match header.emit(len, head) {
            0 => 0,
            head_len => head_len + len,
        }
    }

    const fn to_group(source: Ipv6Addr, group: Ipv6Addr, message: Message<'static>) -> Self {
        let to = Some(MacAddr::from_multicast_v6(group));
        Self {
            source,
            destination: group,
            to,
            message,
        }
    }
}

/// What a neighbour discovery message led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What the table made of it.
    pub learned: Learned,
    /// The answer.
    pub reply: Option<Outgoing>,
}

/// Why a message was not listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// A solicitation for an address that is not ours.
    NotOurs,
    /// Another host advertises our address (negative 47): see [`super::claim::Claim::on_conflict`].
    Conflict(Ipv6Addr),
    /// The sender is no neighbour: its address is outside our networks.
    NotOnLink,
    /// Redirects are not followed (RFC 4861 §8.3 allows a host to ignore them; negative 35, 47).
    RedirectIgnored,
    /// Only routers listen to router solicitations.
    NotForHosts,
}

impl<P> Table<P> {
    /// Takes in a message, parsed (which checks all that needs no state of ours) from a packet of
    /// these addresses. `ours` are the addresses in use; a solicitation or advertisement whose
    /// target is still being claimed must be shown to its [`super::claim::Claim`] instead:
    /// tentative addresses do not answer (RFC 4862 §5.4.3, §5.4.4). Of a router advertisement only
    /// the router's hardware address is taken in.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn on_ndp(
        &mut self,
        message: &Message<'_>,
        source: Ipv6Addr,
        ours: &Addresses,
        our_mac: MacAddr,
        now: Instant,
    ) -> Result<Observation, Refused> {
        match *message {
            Message::NeighborSolicitation {
                target,
                source_link,
            } => self.on_solicitation(target, source, source_link, ours, our_mac, now),
            Message::NeighborAdvertisement {
                target,
                router,
                solicited,
                replace,
                target_link,
            } => {
                if ours.is_local_v6(target) {
                    return Err(Refused::Conflict(target));
                }
                let evidence = Evidence::Answered {
                    solicited,
                    over: replace,
                    router: Some(router),
                };
                let learned = self.observe(IpAddr::V6(target), target_link, evidence, now);
                Ok(Observation {
                    learned,
                    reply: None,
                })
            }
            Message::RouterAdvertisement(advertisement) => {
                let mac = advertisement.options.source_link().unwrap_or(None);
                let learned = self.observe(IpAddr::V6(source), mac, Evidence::Asked, now);
                self.set_router(IpAddr::V6(source), true); // RFC 4861 §6.3.4
                Ok(Observation {
                    learned,
                    reply: None,
                })
            }
            Message::RouterSolicitation { .. } => Err(Refused::NotForHosts),
            Message::Redirect { .. } => Err(Refused::RedirectIgnored),
        }
    }

    /// RFC 4861 §7.2.3, §7.2.4.
    fn on_solicitation(
        &mut self,
        target: Ipv6Addr,
        source: Ipv6Addr,
        source_link: Option<MacAddr>,
        ours: &Addresses,
        our_mac: MacAddr,
        now: Instant,
    ) -> Result<Observation, Refused> {
        if !ours.is_local_v6(target) {
            return Err(Refused::NotOurs);
        }
        if source.is_unspecified() {
            // Duplicate address detection for what is ours: all are told (RFC 4861 §7.2.4).
            let reply = Some(advertisement(target, our_mac, None));
            return Ok(Observation {
                learned: Learned::NotAsked,
                reply,
            });
        }
        if ours.is_local_v6(source) {
            return Err(Refused::Conflict(source));
        }
        if !ours.is_on_link(IpAddr::V6(source)) {
            return Err(Refused::NotOnLink);
        }
        let learned = self.observe(IpAddr::V6(source), source_link, Evidence::Asked, now);
        let to = source_link.or_else(|| self.lookup(IpAddr::V6(source)));
        let reply = Some(advertisement(target, our_mac, Some((source, to))));
        Ok(Observation { learned, reply })
    }
}

/// "We have `ip`": to the host that asked (with the hardware address, if known), or to all (RFC 4861
/// §7.2.4, §7.2.6).
#[must_use]
pub const fn advertisement(
    ip: Ipv6Addr,
    our_mac: MacAddr,
    asker: Option<(Ipv6Addr, Option<MacAddr>)>,
) -> Outgoing {
    let message = Message::NeighborAdvertisement {
        target: ip,
        router: false,
        solicited: asker.is_some(),
        replace: true,
        target_link: Some(our_mac),
    };
    match asker {
        Some((destination, to)) => Outgoing {
            source: ip,
            destination,
            to,
            message,
        },
        None => Outgoing::to_group(ip, ALL_NODES, message),
    }
}

/// Asks which host has `target`. To its solicited-node group, or to the address known so far (RFC 4861 §7.2.2,
/// §7.3.3).
#[must_use]
pub const fn solicitation(
    our_mac: MacAddr,
    our_ip: Ipv6Addr,
    target: Ipv6Addr,
    known: Option<MacAddr>,
) -> Outgoing {
    let message = Message::NeighborSolicitation {
        target,
        source_link: Some(our_mac),
    };
    match known {
        Some(_) => Outgoing {
            source: our_ip,
            destination: target,
            to: known,
            message,
        },
        None => Outgoing::to_group(our_ip, solicited_node(target), message),
    }
}

/// Asks whether a host has `ip`, which we would like (RFC 4862 §5.4.2).
#[must_use]
pub const fn probe(ip: Ipv6Addr) -> Outgoing {
    let message = Message::NeighborSolicitation {
        target: ip,
        source_link: None,
    };
    Outgoing::to_group(Ipv6Addr::UNSPECIFIED, solicited_node(ip), message)
}

/// Routers, speak up (RFC 4861 §6.3.7).
#[must_use]
pub const fn router_solicitation(our_mac: MacAddr, our_ip: Ipv6Addr) -> Outgoing {
    let source_link = if our_ip.is_unspecified() {
        None
    } else {
        Some(our_mac)
    };
    Outgoing::to_group(
        our_ip,
        ALL_ROUTERS,
        Message::RouterSolicitation { source_link },
    )
}

#[cfg(test)]
#[path = "ndp_tests.rs"]
mod tests;
