//! ARP packets in and out (RFC 826, RFC 5227): what the table learns from one, what it is answered,
//! what we ask.

use core::net::{IpAddr, Ipv4Addr};

use super::{Evidence, Learned, Table};
use crate::ip::address::Addresses;
use crate::time::Instant;
use crate::wire::arp::{Operation, Packet};
use crate::wire::ethernet::MacAddr;

/// What an ARP packet led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What the table made of its sender.
    pub learned: Learned,
    /// To be sent to `reply.target_mac`.
    pub reply: Option<Packet>,
}

/// Why an ARP packet was not listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The sender's addresses are no host's: group or zero MAC, broadcast, multicast or loopback IP
    /// (negative 5, 6).
    Implausible,
    /// Our own packet, come back.
    Echo,
    /// Another host claims our address (negative 5): see [`super::claim::Claim::on_conflict`].
    Conflict(Ipv4Addr),
}

impl<P> Table<P> {
    /// Takes in an ARP packet. `ours` are the addresses in use; probes for an address that is still
    /// being claimed must have been shown to its [`super::claim::Claim`] before.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn on_arp(
        &mut self,
        packet: &Packet,
        ours: &Addresses,
        our_mac: MacAddr,
        now: Instant,
    ) -> Result<Observation, Refused> {
        let sender = IpAddr::V4(packet.sender_ip);
        if packet.sender_mac == our_mac {
            return Err(Refused::Echo);
        }
        if !packet.sender_is_plausible() || ours.is_broadcast(sender) {
            return Err(Refused::Implausible);
        }
        if ours.is_local(sender) {
            return Err(Refused::Conflict(packet.sender_ip));
        }
        let for_us = ours.is_local_v4(packet.target_ip);
        let learned = match packet.operation {
            // RFC 5227 §2.1.1: a probe's sender has no address yet to be learned.
            _ if packet.sender_ip.is_unspecified() => Learned::NotAsked,
            Operation::Request if for_us && ours.is_on_link(sender) => {
                self.observe(sender, Some(packet.sender_mac), Evidence::Asked, now)
            }
            Operation::Reply if for_us && self.awaits(sender, packet.sender_mac) => {
                let answer = Evidence::Answered {
                    solicited: true,
                    over: true,
                    router: None,
                };
                self.observe(sender, Some(packet.sender_mac), answer, now)
            }
            _ => self.observe(sender, Some(packet.sender_mac), Evidence::Overheard, now),
        };
        let reply = (for_us && packet.operation == Operation::Request).then_some(Packet {
            operation: Operation::Reply,
            sender_mac: our_mac,
            sender_ip: packet.target_ip,
            target_mac: packet.sender_mac,
            target_ip: packet.sender_ip,
        });
        Ok(Observation { learned, reply })
    }
}

/// Asks which host has `target`. To be sent to all, or to the address known so far (a unicast probe, RFC 1122
/// §2.3.2.1 (2)).
#[must_use]
pub const fn request(our_mac: MacAddr, our_ip: Ipv4Addr, target: Ipv4Addr) -> Packet {
    Packet {
        operation: Operation::Request,
        sender_mac: our_mac,
        sender_ip: our_ip,
        target_mac: MacAddr::UNSPECIFIED,
        target_ip: target,
    }
}

/// Asks whether a host has `ip`, which we would like (RFC 5227 §2.1.1). To be sent to all.
#[must_use]
pub const fn probe(our_mac: MacAddr, ip: Ipv4Addr) -> Packet {
    request(our_mac, Ipv4Addr::UNSPECIFIED, ip)
}

/// We have `ip` (RFC 5227 §2.3: a request, which no host answers and all merge). To be sent to all.
#[must_use]
pub const fn announcement(our_mac: MacAddr, ip: Ipv4Addr) -> Packet {
    request(our_mac, ip, ip)
}

#[cfg(test)]
#[path = "arp_tests.rs"]
mod tests;
