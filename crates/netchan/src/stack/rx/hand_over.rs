//! From the link's side to the shard's: through channels, by calls, or by what is left to a holder.

use std::collections::VecDeque;

use proto::time::Instant;

use crate::{
    counters::Counter,
    driver::interface::Receive,
    limits::SHARDS_MAX,
    packet::Packet,
    shard::Shard,
    stack::{
        Stack,
        cell::{Held, LinkAccess},
        driver_side::DriverSide,
    },
    tap::Reason,
    trace::{
        self,
        stages::{self, Stage},
    },
};

/// channel: gives each shard what `steer` found for it.
#[inline]
pub(in crate::stack) fn hand_in(driver: &DriverSide, side: &mut Receive, now: Instant) {
    if side.has_timed {
        side.time_handed();
    }
    let link = side.steer.interface().into();
    let (queue, unowned) = (side.queue_number(), std::mem::take(&mut side.unowned));
    for (number, (inbox, channel)) in side.inboxes.iter_mut().zip(&mut side.channels).enumerate() {
        if inbox.is_empty() {
            continue;
        }
        let shard = number as u64;
        trace::detail(trace::HANDED_CHANNEL, [link, inbox.len() as u64, shard]);
        channel.received.push_batch(inbox);
        if trace::is_watched() {
            let waiting = channel.received.capacity() - channel.received.room();
            trace::detail(trace::DEPTH_IN, [queue, shard, waiting as u64]);
        }
        if !inbox.is_empty() {
            let lost = inbox.len() as u64;
            trace::note(trace::CHANNEL_FULL, [link, lost, shard]);
            // The last place where a packet may be lost, and it is counted (R1).
            driver
                .counters
                .add(side.writer, Counter::DropChannelFull, lost);
            side.refused[number] += lost;
            let reason = Reason::counted(Counter::DropChannelFull);
            Receive::show_lost(&mut side.taps, reason, &*inbox, now);
            inbox.clear();
        }
        let before = stages::enter(Stage::Scheduler);
        channel.shard.ring();
        if let Some(call) = &channel.background_call {
            call.ring(unowned >> (number % SHARDS_MAX) & 1 != 0);
        }
        stages::back(before);
    }
}

/// shard: calls each shard for which `steer` found something.
#[inline]
pub(in crate::stack) fn call_in(stack: &Stack, side: &mut Receive, now: Instant) {
    if side.has_timed {
        side.time_handed();
    }
    if stack.layout.backlogs {
        return call_or_leave(stack, side, now);
    }
    for (number, inbox) in side.inboxes.iter_mut().enumerate() {
        if !inbox.is_empty() {
            trace::detail(trace::HANDED_CALL, [number as u64, inbox.len() as u64]);
            stack.with_shard_at(number, now, |shard, now| take_in(shard, inbox, now));
        }
    }
}

/// shard, or its backlog: calls each shard that is free; to the holder of one its packets are left. Behind those that wait there already,
/// since a new holder takes these first.
#[inline(never)]
fn call_or_leave(stack: &Stack, side: &mut Receive, now: Instant) {
    let link = side.steer.interface().into();
    let inboxes = side.inboxes.iter_mut().zip(&mut side.backlogs).enumerate();
    for (number, (inbox, backlog)) in inboxes.filter(|(_, (inbox, _))| !inbox.is_empty()) {
        let (shard, packets) = (number as u64, inbox.len() as u64);
        let call = |held: &mut Shard, now| {
            trace::detail(trace::HANDED_CALL, [shard, packets]);
            take_in(held, inbox, now);
        };
        if stack.try_shard_at(number, now, call) {
            continue;
        }
        let left = backlog.push_batch(inbox) as u64;
        trace::detail(trace::HANDED_BACKLOG, [link, left, shard]);
        stack
            .driver
            .counters
            .add(side.writer, Counter::Backlogged, left);
        if !inbox.is_empty() {
            let lost = inbox.len() as u64;
            trace::note(trace::BACKLOG_FULL, [link, lost, shard]);
            stack
                .driver
                .counters
                .add(side.writer, Counter::DropBacklogFull, lost);
            side.refused[number] += lost;
            let reason = Reason::counted(Counter::DropBacklogFull);
            Receive::show_lost(&mut side.taps, reason, &*inbox, now);
            inbox.clear();
        }
        stack.leave_with_holder(number, now);
    }
}

/// shard: runs the protocol on packets that were handed over by a call.
#[inline]
pub(super) fn take_in(shard: &mut Shard, inbox: &mut VecDeque<Packet>, now: Instant) {
    let mut batch = shard.receive_batch(now);
    while let Some(packet) = inbox.pop_front() {
        batch.input(packet);
    }
}

/// shard: runs the protocol on packets that were left to its holder, all of it: what comes by a call stays behind it.
#[inline]
pub(in crate::stack) fn take_backlog(held: &mut Held, now: Instant) {
    let Held {
        shard,
        access: LinkAccess::Backlogs(backlogs),
    } = held
    else {
        return;
    };
    let mut batch = shard.receive_batch(now);
    for backlog in backlogs {
        backlog.pop_batch(usize::MAX, |packet| batch.input(packet));
    }
}
