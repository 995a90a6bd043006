//! The transmit path.
//!
//! ```text
//! link ◄── tap ◄── check ◄── modules ◄── channel ◄── shard ◄── socket
//! ```
//!
//! The shard's holder goes as far as the channel ([`hand_out`]), the link's thread from there ([`transmit_from_channels`]). Where the regime
//! calls, or the links are the shard's own, its holder goes all the way.

use std::collections::VecDeque;

use proto::time::Instant;

use super::{
    Stack,
    cell::{Held, LinkAccess},
    driver_side::DriverSide,
    forward,
};
use crate::{
    channel::ShardEnd,
    driver::interface::Interface,
    limits::BURSTS_PER_TURN,
    link::BURST,
    packet::Packet,
    shard::Shard,
    trace::{
        self,
        stages::{self, Stage},
    },
};

/// shard ──► channel, or the link itself where the regime calls or the link is the shard's own. The queues (a bit each) into whose channels something
/// was put that the caller sends, once it has let go of the shard ([`Stack::send_or_hold`]).
#[inline(always)]
pub(super) fn hand_out(stack: &Stack, held: &mut Held, now: Instant) -> u64 {
    let Held { shard, access } = held;
    let (own, mut queues) = (shard.number(), 0);
    if let LinkAccess::Channels(channels) = access {
        hand_requests(shard, channels);
    }
    if shard.shows_outgoing() {
        shard.show_outgoing(now);
    }
    for (link, outbox) in shard.outboxes.iter_mut().enumerate() {
        if outbox.is_empty() {
            continue;
        }
        let number = stack.driver.queue_of(link, own);
        match access {
            LinkAccess::Own(links) => transmit(&mut links[link].interface, outbox, now),
            LinkAccess::Calls | LinkAccess::Backlogs(_) => {
                stack.with_interface(number, |interface| {
                    transmit(interface, outbox, now);
                    pass_to_first(&stack.driver, number, interface, now);
                });
            }
            LinkAccess::Channels(channels) => {
                let channel = &mut channels[number];
                channel.outgoing.push_batch(outbox);
                if trace::is_watched() {
                    let waiting = channel.outgoing.capacity() - channel.outgoing.room();
                    let depth = [own as u64, number as u64, waiting as u64];
                    trace::detail(trace::DEPTH_OUT, depth);
                }
                if stack.driver.is_sent_in_calls(number) {
                    queues |= 1 << number;
                    continue;
                }
                let before = stages::enter(Stage::Scheduler);
                channel.link.ring();
                stages::back(before);
            }
        }
    }
    queues
}

/// channel ──► modules ──► check ──► tap ──► link, for all shards of an interface. Returns how many packets were taken.
#[inline]
pub(super) fn transmit_from_channels(interface: &mut Interface, now: Instant) -> usize {
    interface.refresh(now);
    let mut taken = 0;
    let mut channels = std::mem::take(&mut interface.channels);
    let first = interface.first_channel.min(channels.len());
    let (later, sooner) = channels.split_at_mut(first);
    for (number, channel) in (first + 1..).zip(sooner).chain((1..).zip(later)) {
        // What a full link has no room for stays in the channels, which are as long as their shards have buffers: so they are pushed back.
        let most = interface.room().min(BURST * BURSTS_PER_TURN);
        taken += channel.outgoing.pop_batch(most, |mut packet| {
            if interface.screen(&mut packet, now) {
                interface.send(packet, now); // channel, modules, check, next hop, frame header
            }
        });
        if interface.room() == 0 {
            if taken > 0 {
                interface.first_channel = number; // those behind it got nothing: it is their turn next
            }
            break;
        }
    }
    interface.channels = channels;
    if !interface.forward_rings.is_empty() {
        taken += forward::transmit_from_links(interface, now);
    }
    if !interface.leases.is_empty() {
        taken += interface.transmit_leased(now);
    }
    if taken > 0 && trace::is_watched() {
        trace::detail(trace::LINK_OUT, [interface.number().into(), taken as u64]);
        tell_depths(interface);
    }
    if taken > 0 || interface.has_frames() {
        flush(interface, now);
    }
    taken
}

/// What is left in the channels.
#[cold]
fn tell_depths(interface: &mut Interface) {
    let queue = interface.queue_number();
    for (shard, channel) in interface.channels.iter_mut().enumerate() {
        let waiting = channel.outgoing.len() as u64;
        trace::detail(trace::DEPTH_OUT, [shard as u64, queue, waiting]);
    }
}

/// modules ──► check ──► tap ──► link, for packets that were handed over by a call.
#[inline(always)]
fn transmit(interface: &mut Interface, packets: &mut VecDeque<Packet>, now: Instant) {
    interface.refresh(now);
    if interface.modules.has_hooks() {
        packets.retain_mut(|packet| interface.screen(packet, now)); //                                         modules
    }
    if let Err(error) = interface.send_all(packets, now) {
        interface.link_failed(&error); //                                                  check, next hop, frame header; tap, link
    }
}

/// Requests go to the classifiers of all queues, ahead of the packets that they are about; where there is no room, they wait.
#[inline]
fn hand_requests(shard: &mut Shard, channels: &mut [ShardEnd]) {
    while let Some(&request) = shard.requests.front()
        && channels.iter_mut().all(|c| c.requests.room() > 0)
    {
        for channel in channels.iter_mut() {
            // There is room.
            let _ = channel.requests.push(request);
        }
        shard.requests.pop_front();
    }
}

/// Sends by the first queue of the link what this further one does not know the next hop of; it knows that from then on.
#[inline]
pub(super) fn pass_to_first(
    driver: &DriverSide,
    queue: usize,
    interface: &mut Interface,
    now: Instant,
) {
    if !interface.for_first.is_empty() {
        send_by_first(driver, queue, interface, now);
    }
}

#[cold]
#[inline(never)]
fn send_by_first(driver: &DriverSide, queue: usize, interface: &mut Interface, now: Instant) {
    let first = &driver.queues[usize::from(driver.queues[queue].link)];
    let Some(halves) = &first.halves else { return };
    let mut sender = halves.interface.lock();
    sender.refresh(now);
    interface.send_by(&mut sender, now);
    flush(&mut sender, now);
    let calls = sender.take_call() || sender.has_returns() || sender.has_frames();
    drop(sender);
    if calls {
        first.doorbell.ring();
    }
}

/// tap ──► link: gives the link the frames that wait for it.
pub(crate) fn flush(interface: &mut Interface, now: Instant) {
    if let Err(error) = interface.flush(now) {
        interface.link_failed(&error); //                                                  tap, link
    }
}

/// Timers of an interface, and frames that found its link full.
#[inline]
pub(super) fn look_after(interface: &mut Interface, now: Instant) {
    if interface.is_time_to_look(now) {
        interface.run_timers(now);
    }
    if interface.has_frames() {
        flush(interface, now);
    }
}
