//! What a burst brought for the host itself, and what comes back without having been on the link.

use proto::{icmp::error::Kind, time::Instant};

use super::classify::{fate_of, flush_leases, give_leased, into_inbox, sort};
use crate::{
    channel::PacketEnd,
    driver::{
        interface::{Interface, Receive, ends_of, host_work::FollowUp},
        module::Side,
        steer::short,
    },
    flow::FlowKey,
    link::{BURST, LinkError},
    packet::{Course, Flag, Meta},
    stack::{driver_side::DriverSide, forward, tx},
    tap::Reason,
};

/// What of a burst concerns the transmitting half: the link's failure, the host's own work, packets for other hosts.
#[cold]
#[inline(never)]
pub(super) fn do_host_work(
    driver: &DriverSide,
    side: &mut Receive,
    interface: &mut Interface,
    received: &Result<usize, LinkError>,
    now: Instant,
) {
    interface.refresh(now);
    if let Err(error) = received {
        interface.link_failed(error);
        side.steer.packet_ends.iter().for_each(PacketEnd::wake);
    }
    while let Some((work, packet)) = side.host_work.pop_front() {
        let more = interface.host_input(work, packet, now);
        follow_up(driver, side, more, now);
    }
    flush_leases(side);
    if !side.onward.is_empty() {
        forward::pass_on(driver, side, interface, now); //                                  check, modules, channel to another link
    }
    if interface.has_frames() {
        tx::flush(interface, now);
    }
}

/// What the host's own work leads to: a whole datagram to be classified, an ICMP error for the shard of the flow it quotes, an echo reply for that of its
/// identifier.
#[cold]
fn follow_up(driver: &DriverSide, side: &mut Receive, more: FollowUp, now: Instant) {
    match more {
        FollowUp::Done => {}
        FollowUp::Classify(mut packet) => {
            let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
            // Fragments in the name of an address of ours have passed as our own only.
            let own =
                ends_of(packet.bytes()).is_some_and(|ends| driver.host.network().is_local(ends.0));
            let from = Side::Link(side.steer.interface());
            match side.steer.classify_ip(&side.host, &mut packet, v6, own) {
                Ok(verdict) => {
                    let whence = (from, true, own);
                    if let Ok(verdict) = side.admit(verdict, &mut packet, whence, now) {
                        sort(driver, side, verdict, packet, now);
                    }
                }
                Err(reason) => {
                    Receive::show_lost(&mut side.taps, Reason::counted(reason), [&packet], now);
                    driver.counters.add(side.writer, reason, 1);
                }
            }
        }
        FollowUp::Flow(key, packet) => {
            let hash = driver.host.flow_hash.hash(&key);
            if let Some(end) = side.steer.lease_of(&key, hash) {
                return give_leased(driver, side, end, packet, now);
            }
            let number = side.steer.shard_of_key(&side.host, &key, hash);
            into_inbox(side, number, packet);
        }
    }
}

/// Before a receive: the transmitting half goes by the networks as they are now, and what comes back from it, without having been on the link, waits
/// in the inboxes. Whether there was any.
#[inline]
pub(in crate::stack) fn take_returns(
    driver: &DriverSide,
    side: &mut Receive,
    interface: &mut Interface,
    now: Instant,
) -> bool {
    interface.refresh(now);
    let has_returns = interface.has_returns();
    if has_returns {
        side.refresh();
        classify_returns(driver, side, interface, now);
    }
    has_returns
}

/// Packets to our own addresses, packets whose next hop did not answer, and what another link has to send.
#[cold]
fn classify_returns(
    driver: &DriverSide,
    side: &mut Receive,
    interface: &mut Interface,
    now: Instant,
) {
    for _ in 0..BURST {
        let Some(mut packet) = interface.local.pop_front() else {
            break;
        };
        if packet.meta.course != Course::THROUGH {
            packet.meta.checksum_verified = Flag::YES; // our own
        }
        let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
        let came_by = packet.meta.interface;
        match side.steer.classify_ip(&side.host, &mut packet, v6, true) {
            Ok(verdict) => {
                let from = match packet.meta.course == Course::THROUGH {
                    true => Side::Link(came_by),
                    false => Side::Host,
                };
                // What came by another link has been seen there on arrival.
                let whence = (from, false, true);
                let verdict = side.admit(verdict, &mut packet, whence, now);
                if side.steer.leases.is_some() && from == Side::Host && side.taps.is_watched() {
                    side.taps.see_returned(&packet, fate_of(&verdict), now);
                }
                if let Ok(verdict) = verdict {
                    sort(driver, side, verdict, packet, now);
                }
            }
            Err(reason) => {
                Receive::show_lost(&mut side.taps, Reason::counted(reason), [&packet], now);
                interface.count(reason);
            }
        }
    }
    while let Some((why, mut packet)) = interface.unreachable.pop() {
        let Some(key) = FlowKey::of_sent(packet.bytes()) else {
            continue;
        };
        let hash = driver.host.flow_hash.hash(&key);
        if let Some(end) = side.steer.lease_of(&key, hash) {
            if let Some(error) = interface.error_about(why, packet.bytes(), now) {
                give_leased(driver, side, end, error, now);
            }
            continue;
        }
        if why != Kind::HostUnreachable {
            continue; // its socket had a route when it sent
        }
        packet.meta = Meta {
            course: Course::RETURNED,
            flow: short(hash),
            protocol: key.protocol,
            ..packet.meta
        };
        let number = side.steer.shard_of_key(&side.host, &key, hash);
        into_inbox(side, number, packet);
    }
    flush_leases(side);
    while let Some((link, packet)) = interface.elsewhere.pop_front() {
        forward::stage(driver, side, link.into(), packet, now);
    }
    forward::publish(driver, side);
}
