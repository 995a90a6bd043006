//! The way of packets for other hosts.
//!
//! ```text
//! link ──► tap ──► steer ──► check ──► modules ──► channel ──► tap ──► link
//! ```
//!
//! The receiving link's thread goes as far as the channel ([`pass_on`]), the other link's from there ([`transmit_from_links`]).

use proto::time::Instant;

use super::driver_side::DriverSide;
use crate::{
    counters::Counter,
    driver::{
        forward::{self, Way},
        interface::{Interface, Receive},
        module::{Place, Side, registry::Answer},
    },
    limits::{self, BURSTS_PER_TURN},
    link::BURST,
    packet::{Course, Packet},
    tap::Reason,
    trace::{
        self,
        stages::{self, Stage},
    },
};

/// steer ──► check ──► modules ──► channel: what is for other hosts goes to the link of its route, which passes it on like what shards send
/// ([`transmit_from_channels`](super::tx::transmit_from_channels)). The same in every regime: a ring for each pair of links, whose ends two
/// halves of interfaces have.
/// No lock but the receiving link's own is held, so that two links that forward to each other never wait for each other.
#[cold]
#[inline(never)]
pub(super) fn pass_on(
    driver: &DriverSide,
    side: &mut Receive,
    interface: &mut Interface,
    now: Instant,
) {
    let from = usize::from(side.steer.interface());
    while let Some(mut packet) = side.onward.pop_front() {
        match forward::check(&side.host, &mut packet, from) {
            //                                                                             check
            Ok(Way::On(link)) if driver.is_gone(link) => {
                interface.refuse(forward::NO_ROUTE, &packet, now);
            }
            Ok(Way::On(link)) => {
                if !side.forward_modules.has_hooks()
                    || screen(side, interface, &mut packet, link, now)
                {
                    stage(driver, side, link, packet, now); //                             modules
                }
            }
            // Modules see it there, at `in`.
            Ok(Way::Ours(link)) => {
                packet.meta.interface = side.steer.interface(); // to them it came by this one
                stage(driver, side, link, packet, now);
            }
            Err(refusal) => interface.refuse(refusal, &packet, now),
        }
    }
    publish(driver, side); //                                                              channel
}

/// Shows the modules a packet that goes on by `link`; false: it does not.
fn screen(
    side: &mut Receive,
    interface: &mut Interface,
    packet: &mut Packet,
    link: usize,
    now: Instant,
) -> bool {
    let place = Place {
        net: &side.host.net,
        from: Side::Link(side.steer.interface()),
        to: u8::try_from(link).map_or(Side::Unknown, Side::Link),
    };
    match side.forward_modules.pass(packet, place, now) {
        Answer::Pass { .. } => true,
        Answer::Drop(id) => {
            Receive::show_lost(&mut side.taps, Reason::module(id), [&*packet], now);
            false
        }
        Answer::Reject(id, what) => {
            Receive::show_lost(&mut side.taps, Reason::module(id), [&*packet], now);
            interface.tell_rejected(what, packet, now);
            false
        }
    }
}

/// channel ──► tap ──► link, for what other links have received or say. Returns how many packets were taken.
#[cold]
#[inline(never)]
pub(super) fn transmit_from_links(interface: &mut Interface, now: Instant) -> usize {
    let mut taken = 0;
    let mut rings = std::mem::take(&mut interface.forward_rings);
    for ring in &mut rings {
        taken += ring.pop_batch(BURST * BURSTS_PER_TURN, |mut packet| {
            if packet.meta.course == Course::THROUGH {
                interface.forward(packet, now); //          channel, next hop, frame header
            } else if interface.screen(&mut packet, now) {
                interface.send(packet, now); //             the host's own: modules, check
            }
        });
    }
    interface.forward_rings = rings;
    taken
}

/// Puts a packet into the channel to another link, where it is seen after [`publish`].
pub(super) fn stage(
    driver: &DriverSide,
    side: &mut Receive,
    link: usize,
    packet: Packet,
    now: Instant,
) {
    let has_room = side.slab.available() * limits::FORWARD_SPARE >= side.slab.capacity();
    let staged = match has_room {
        true => side.forward_rings[link].stage(packet),
        false => Err(packet),
    };
    match staged {
        Ok(()) => side.staged |= 1 << link,
        Err(packet) => {
            let reason = Counter::DropForwardQueue;
            Receive::show_lost(&mut side.taps, Reason::counted(reason), [&packet], now);
            (driver.counters).add(side.writer, reason, 1);
        }
    }
}

/// Shows the links what was put into their channels, and wakes each once.
pub(super) fn publish(driver: &DriverSide, side: &mut Receive) {
    let own = usize::from(side.steer.interface());
    let mut staged = std::mem::take(&mut side.staged);
    while staged != 0 {
        let link = staged.trailing_zeros() as usize;
        staged &= staged - 1;
        side.forward_rings[link].publish();
        trace::detail(trace::HANDED_ON, [own as u64, link as u64]);
        let before = stages::enter(Stage::Scheduler);
        if link != own {
            driver.queues[link].doorbell.ring(); // its own turn comes anyway: there was work
        }
        stages::back(before);
    }
}
