//! Each packet of a burst to where its verdict says.

use proto::time::Instant;

use crate::{
    counters::Counter,
    driver::{interface::Receive, module::Side, steer::Verdict},
    limits::SHARDS_MAX,
    link::LinkError,
    packet::Packet,
    stack::driver_side::DriverSide,
    tap::{Begins, Reason},
    trace,
};

/// What shards want the classifier to know, before the next packet is received: so no answer overtakes it.
#[inline]
pub(super) fn take_requests(driver: &DriverSide, side: &mut Receive) {
    for (number, channel) in side.channels.iter_mut().enumerate() {
        channel.requests.pop_batch(usize::MAX, |request| {
            if !side.steer.heed(request, number) {
                driver.counters.add(side.writer, Counter::FlowTableFull, 1);
            }
        });
    }
}

/// steer ──► modules: the burst that the link gave, each packet handed to `deliver` with its shard's number; what is the host's own
/// work waits for [`do_host_work`](super::do_host_work).
#[inline(always)]
pub(super) fn classify(
    driver: &DriverSide,
    side: &mut Receive,
    now: Instant,
    mut deliver: impl FnMut(&mut Receive, usize, Packet),
) {
    if side.has_hooks() {
        steer_past_modules(driver, side, now); //                                           steer, modules
    }
    while let Some(mut packet) = side.burst.pop_front() {
        match side.steer.classify(&side.host, &mut packet) {
            //                                                                             steer
            Verdict::Shard(number) => deliver(side, number, packet),
            Verdict::Flow(hash) => side.by_flow.push_back((hash, packet)),
            other => sort(driver, side, other, packet, now),
        }
    }
    while let Some((hash, packet)) = side.by_flow.pop_front() {
        let number = match side.steer.leased(hash) {
            Some(number) => number,
            None => place(driver, side, hash, &packet, now),
        };
        deliver(side, number, packet);
    }
    flush_leases(side);
}

/// steer ──► modules: the same for a burst that modules look at. What they let pass waits in the inboxes.
#[cold]
fn steer_past_modules(driver: &DriverSide, side: &mut Receive, now: Instant) {
    while let Some(mut packet) = side.burst.pop_front() {
        let verdict = side.steer.classify(&side.host, &mut packet);
        let from = Side::Link(side.steer.interface());
        if let Some(verdict) = side.admit(verdict, &mut packet, (from, true, false), now) {
            sort(driver, side, verdict, packet, now);
        }
    }
}

/// Puts a classified packet where its verdict says.
#[cold]
pub(super) fn sort(
    driver: &DriverSide,
    side: &mut Receive,
    verdict: Verdict,
    packet: Packet,
    now: Instant,
) {
    match verdict {
        Verdict::Shard(number) => into_inbox(side, number, packet),
        Verdict::Flow(hash) => {
            let number = match side.steer.leased(hash) {
                Some(number) => number,
                None => place(driver, side, hash, &packet, now),
            };
            into_inbox(side, number, packet);
        }
        Verdict::Host(work) => {
            let link = side.steer.interface().into();
            trace::note(trace::HOST_WORK, [link, work.number()]);
            side.host_work.push_back((work, packet));
        }
        Verdict::Lease(end) => give_leased(driver, side, end, packet, now),
        Verdict::Packet(end) => give(driver, side, (end, Begins::Network), packet, now),
        Verdict::Frame(end) => give(driver, side, (end, Begins::Frame), packet, now),
        Verdict::Forward => side.onward.push_back(packet),
        Verdict::Drop(reason) => {
            let link = side.steer.interface().into();
            trace::note(trace::DROP, [link, reason as u64]);
            driver.counters.add(side.writer, reason, 1);
            if side.taps.watches_drops() {
                let begins = match reason.is_of_frames() {
                    true => Begins::Frame,
                    false => Begins::Network,
                };
                (side.taps).lost(Reason::counted(reason), &packet, begins, now);
            }
        }
    }
}

/// packet channel: gives a packet to the application that speaks its protocol.
#[cold]
fn give(
    driver: &DriverSide,
    side: &mut Receive,
    (end, begins): (usize, Begins),
    packet: Packet,
    now: Instant,
) {
    let link = side.steer.interface().into();
    let Some(end) = side.steer.packet_ends.get_mut(end) else {
        return;
    };
    let counter = match end.put(packet) {
        Ok(()) => Counter::PacketChannelIn,
        Err((reason, packet)) => {
            trace::note(trace::DROP, [link, reason as u64]);
            if side.taps.watches_drops() {
                (side.taps).lost(Reason::counted(reason), &packet, begins, now);
            }
            reason
        }
    };
    driver.counters.add(side.writer, counter, 1);
}

/// lease: gives an application a copy of a packet of its own.
#[inline(never)]
pub(super) fn give_leased(
    driver: &DriverSide,
    side: &mut Receive,
    end: usize,
    packet: Packet,
    now: Instant,
) {
    let Some(leases) = &mut side.steer.leases else {
        return;
    };
    let counter = match leases.put(end, &packet) {
        Ok(()) => Counter::LeaseIn,
        Err(reason) => {
            let link = side.steer.interface().into();
            trace::note(trace::DROP, [link, reason as u64]);
            Receive::show_lost(&mut side.taps, Reason::counted(reason), [&packet], now);
            reason
        }
    };
    driver.counters.add(side.writer, counter, 1);
}

/// Shows applications what they were given, and wakes those that sleep: once a burst.
#[inline]
pub(super) fn flush_leases(side: &mut Receive) {
    if let Some(leases) = &mut side.steer.leases {
        leases.flush();
    }
}

/// The shard for a packet of a flow that no shard has leased. No thread waits for it there, either: the background poller is called.
#[cold]
fn place(
    driver: &DriverSide,
    side: &mut Receive,
    hash: u64,
    packet: &Packet,
    now: Instant,
) -> usize {
    // Its shard may have said so, and answered by this queue, since the requests were taken: the answer's answer is here already.
    if side.steer.is_one_of_several() {
        take_requests(driver, side);
        if let Some(number) = side.steer.leased(hash) {
            return number;
        }
    }
    let is_bound = |port| driver.bound_ports.contains(port);
    let number = side.steer.place(&side.host, hash, packet, is_bound, now);
    side.unowned |= 1 << (number % SHARDS_MAX);
    number
}

/// Keeps a packet until its shard is held, or its channel's end is at hand.
#[inline]
pub(super) fn into_inbox(side: &mut Receive, number: usize, packet: Packet) {
    side.inboxes[number].push_back(packet);
    side.has_sorted = true;
}

/// Counts and traces what the link gave, once it is classified.
#[inline(always)]
pub(super) fn note_received(
    driver: &DriverSide,
    side: &Receive,
    received: &Result<usize, LinkError>,
) {
    if let Ok(n @ 1..) = *received {
        driver
            .counters
            .add(side.writer, Counter::FramesIn, n as u64);
        trace::detail(trace::LINK_IN, [side.steer.interface().into(), n as u64]);
    }
}
