//! Each packet of a burst to where its verdict says.

use proto::{time::Instant, wire::ipv4::Protocol};

use crate::{
    channel::Form,
    counters::Counter,
    driver::{interface::Receive, module::Side, steer::Verdict},
    flow::{FlowKey, Tuple},
    limits::SHARDS_MAX,
    link::LinkError,
    packet::Packet,
    stack::driver_side::DriverSide,
    tap::{self, Begins, Reason},
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
    if side.goes_one_by_one() {
        steer_one_by_one(driver, side, now); //                                             steer, modules
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
        let number = shard_for(driver, side, hash, &packet, now);
        deliver(side, number, packet);
    }
    flush_leases(side);
}

/// steer ──► modules: the same for a burst that modules look at, or of which a tap asks what becomes of it. What passes waits in the inboxes.
#[cold]
fn steer_one_by_one(driver: &DriverSide, side: &mut Receive, now: Instant) {
    let is_asked = side.taps.asks();
    while let Some(mut packet) = side.burst.pop_front() {
        let verdict = side.steer.classify(&side.host, &mut packet);
        if !packet.meta.course.was_sent() {
            sort(driver, side, verdict, packet, now); // no tap has seen it
            continue;
        }
        let from = Side::Link(side.steer.interface());
        let verdict = match side.admit(verdict, &mut packet, (from, true, false), now) {
            Ok(Verdict::Flow(hash)) => {
                Ok(Verdict::Shard(shard_for(driver, side, hash, &packet, now)))
            }
            other => other,
        };
        if is_asked {
            side.taps.judge(fate_of(&verdict));
        }
        if let Ok(verdict) = verdict {
            sort(driver, side, verdict, packet, now);
        }
    }
    if is_asked {
        side.taps.settle();
    }
}

/// tap: what becomes of a packet.
pub(super) fn fate_of(verdict: &Result<Verdict, Reason>) -> tap::Note {
    let (verdict, shard, reason) = match *verdict {
        Ok(Verdict::Shard(number)) => (tap::Verdict::Shard, Some(number), Reason::NONE),
        Ok(Verdict::Flow(_)) => (tap::Verdict::Shard, None, Reason::NONE),
        Ok(Verdict::Host(_)) => (tap::Verdict::Host, None, Reason::NONE),
        Ok(Verdict::Forward) => (tap::Verdict::Forward, None, Reason::NONE),
        Ok(Verdict::Lease(_) | Verdict::Many | Verdict::LeasedFrame(_)) => {
            (tap::Verdict::Lease, None, Reason::NONE)
        }
        Ok(Verdict::Packet(_) | Verdict::Frame(_)) => {
            (tap::Verdict::PacketChannel, None, Reason::NONE)
        }
        Ok(Verdict::Drop(counter)) => (tap::Verdict::Drop, None, Reason::counted(counter)),
        Err(module) => (tap::Verdict::Drop, None, module),
    };
    tap::Note {
        verdict,
        shard: shard.and_then(|number| u8::try_from(number).ok()),
        reason,
        core: None,
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
            let number = shard_for(driver, side, hash, &packet, now);
            into_inbox(side, number, packet);
        }
        Verdict::Host(work) => {
            let link = side.steer.interface().into();
            trace::note(trace::HOST_WORK, [link, work.number()]);
            side.host_work.push_back((work, packet));
        }
        Verdict::Lease(end) => give_leased(driver, side, end, packet, now),
        Verdict::Many => give_many(driver, side, packet, now),
        Verdict::LeasedFrame(end) => {
            put_leased(driver, side, (end, Form::Frame), &packet, now);
        }
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
    put_leased(driver, side, (end, Form::Ip), &packet, now);
}

/// lease: gives each application that is in a group a copy of a datagram to it, and the datagram to this process's own sockets, where it has some at that
/// port, or no application is in the group. One that has left no buffer for its copy does not hold up the others.
#[cold]
fn give_many(driver: &DriverSide, side: &mut Receive, packet: Packet, now: Instant) {
    let upper = usize::from(packet.meta.upper);
    let Some(flow) = Tuple::of_received(packet.bytes(), upper) else {
        return; // steer has seen its ports
    };
    let key = FlowKey {
        protocol: Protocol::UDP,
        ..flow.tcp_key()
    };
    let facts = &side.host.net.interfaces[usize::from(side.steer.interface())];
    let is_everyones = !key.local.is_multicast() || facts.addresses.is_member(key.local);
    let mut hearers = std::mem::take(&mut side.hearers);
    if let Some(leases) = &side.steer.leases {
        leases.hearers(&key, is_everyones, &mut hearers);
    }
    let is_own = hearers.is_empty() || driver.udp_ports.contains(key.local_port);
    for end in hearers.drain(..) {
        put_leased(driver, side, (end, Form::Ip), &packet, now);
    }
    side.hearers = hearers;
    if is_own {
        let hash = driver.host.flow_hash.hash(&key);
        let number = side.steer.shard_of_key(&side.host, &key, hash);
        into_inbox(side, number, packet);
    }
}

/// The same of a packet in either form.
fn put_leased(
    driver: &DriverSide,
    side: &mut Receive,
    (end, form): (usize, Form),
    packet: &Packet,
    now: Instant,
) {
    let Some(leases) = &mut side.steer.leases else {
        return;
    };
    let counter = match leases.put(end, packet, form) {
        Ok(()) => Counter::LeaseIn,
        Err(reason) => {
            let link = side.steer.interface().into();
            trace::note(trace::DROP, [link, reason as u64]);
            if side.taps.watches_drops() {
                let begins = match form {
                    Form::Ip => Begins::Network,
                    Form::Frame => Begins::Frame,
                };
                (side.taps).lost(Reason::counted(reason), packet, begins, now);
            }
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

/// The shard for a packet of a flow that the flow table names.
#[inline(always)]
fn shard_for(
    driver: &DriverSide,
    side: &mut Receive,
    hash: u64,
    packet: &Packet,
    now: Instant,
) -> usize {
    match side.steer.leased(hash) {
        Some(number) => number,
        None => place(driver, side, hash, packet, now),
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
