//! The path: a packet's whole way, each direction on one screen.
//!
//! ```text
//! link ──► tap ──► steer ──► modules ──► channel ──► shard ──► socket      receive
//! link ◄── tap ◄── check ◄── modules ◄── channel ◄── shard ◄── socket      transmit
//! link ──► tap ──► steer ──► check ──► modules ──► channel ──► tap ──► link     forward
//! ```

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use percore::lock::Mutex;
use proto::time::Instant;

use crate::{
    channel::ShardEnd,
    counters::Counter,
    driver::{
        forward::{self, Way},
        interface::{Interface, Receive, ends_of, host_work::FollowUp},
        steer::{Verdict, short},
    },
    flow::FlowKey,
    limits::{self, BURSTS_PER_TURN, SHARDS_MAX},
    link::{BURST, LinkError},
    packet::{Flag, Meta, Packet},
    regime::Handoff,
    shard::Shard,
    stack::{
        Stack,
        cell::{Held, OwnLink, Ways},
    },
    trace::{
        self,
        stages::{self, Stage},
    },
};

// ================================================= receive =================================================

/// link ──► tap ──► steer ──► channel, or the shard itself where the regime calls. The transmitting half's lock is taken for the host's own
/// work only. True if there was work.
pub(crate) fn receive(
    stack: &Stack,
    side: &mut Receive,
    interface: &Mutex<Interface>,
    now: Instant,
) -> bool {
    let mut work = false;
    for _ in 0..BURSTS_PER_TURN {
        let received = receive_burst(stack, side, now, into_inbox);
        if received.is_err() || side.has_host_work() {
            do_host_work(stack, side, &mut interface.lock(), &received, now);
        }
        if std::mem::take(&mut side.has_sorted) {
            match stack.layout.handoff {
                Handoff::Channel => hand_in(stack, side), //                               channel
                Handoff::Call => call_in(stack, side, now), //                             shard
            }
        }
        let n = received.unwrap_or(0);
        work |= n > 0;
        if n < BURST {
            break;
        }
    }
    work
}

/// link ──► tap ──► steer ──► shard, where the links are the shard's own: nothing is handed over. True if there was work.
#[inline(never)]
pub(crate) fn receive_own(
    stack: &Stack,
    shard: &mut Shard,
    links: &mut [OwnLink],
    now: Instant,
) -> bool {
    stages::enter(Stage::Link);
    let mut work = false;
    for (number, OwnLink { receive, interface }) in links.iter_mut().enumerate() {
        take_returns(stack, receive, interface, now);
        for _ in 0..BURSTS_PER_TURN {
            let mut intake = shard.intake(now);
            let into_shard = |_: &mut Receive, _, packet| intake.input(packet);
            let received = receive_burst(stack, receive, now, into_shard);
            drop(intake);
            if received.is_err() || receive.has_host_work() {
                do_host_work(stack, receive, interface, &received, now);
            }
            if std::mem::take(&mut receive.has_sorted) {
                // What was not on the link, or was put together from fragments.
                for inbox in &mut receive.inboxes {
                    take_in(shard, inbox, now);
                }
            }
            let n = received.unwrap_or(0);
            work |= n > 0;
            if n < BURST {
                break;
            }
        }
        stack.look_after(interface, now);
        if let Some(last) = stack.newly_gone(number) {
            shard.link_gone(number, last, now);
        }
    }
    if stack.host.forwarding {
        for OwnLink { interface, .. } in links.iter_mut() {
            work |= transmit_from_channels(interface, now) > 0; //                         forward
        }
    }
    work
}

/// link ──► tap ──► steer: one burst, each packet given to `deliver` with its shard's number; what is the host's own work waits for
/// [`do_host_work`]. How many packets were taken.
#[inline(always)]
fn receive_burst(
    stack: &Stack,
    side: &mut Receive,
    now: Instant,
    mut deliver: impl FnMut(&mut Receive, usize, Packet),
) -> Result<usize, LinkError> {
    side.refresh();
    take_requests(stack, side);
    let received = side
        .link
        .receive(now, &mut side.slab, &mut side.burst, BURST); //                          link
    if side.modules.are_open() {
        steer_past_modules(stack, side, now); //                                           steer, modules
    }
    while let Some(mut packet) = side.burst.pop_front() {
        //                                                                                 tap: later, one relaxed load
        match side.steer.classify(&side.host, &mut packet) {
            //                                                                             steer
            Verdict::Shard(number) => deliver(side, number, packet),
            Verdict::Flow(hash) => side.by_flow.push_back((hash, packet)),
            other => sort(stack, side, other, packet, now),
        }
    }
    while let Some((hash, packet)) = side.by_flow.pop_front() {
        let number = match side.steer.leased(hash) {
            Some(number) => number,
            None => place(stack, side, hash, &packet, now),
        };
        deliver(side, number, packet);
    }
    if let Ok(n @ 1..) = received {
        stack.counters.add(side.writer, Counter::FramesIn, n as u64);
        trace::detail(trace::LINK_IN, [side.steer.interface().into(), n as u64]);
    }
    received
}

/// What of a burst concerns the transmitting half: the link's failure, the host's own work, packets for other hosts.
#[cold]
#[inline(never)]
fn do_host_work(
    stack: &Stack,
    side: &mut Receive,
    interface: &mut Interface,
    received: &Result<usize, LinkError>,
    now: Instant,
) {
    interface.refresh(now);
    if let Err(error) = received {
        interface.link_failed(error);
    }
    while let Some((work, packet)) = side.host_work.pop_front() {
        let more = interface.host_input(work, packet, now);
        follow_up(stack, side, more, now);
    }
    if !side.onward.is_empty() {
        forward(stack, side, interface, now); //                                           check, modules, channel to another link
    }
    if interface.has_frames() {
        flush(interface, now);
    }
}

/// steer ──► modules: the same for a burst that modules look at. What they let pass waits in the inboxes.
#[cold]
fn steer_past_modules(stack: &Stack, side: &mut Receive, now: Instant) {
    while let Some(mut packet) = side.burst.pop_front() {
        let verdict = side.steer.classify(&side.host, &mut packet);
        if side.modules.admit(verdict, &packet, now) {
            sort(stack, side, verdict, packet, now);
        }
    }
}

/// What shards want the classifier to know, before the next packet is received: so no answer overtakes it.
#[inline]
fn take_requests(stack: &Stack, side: &mut Receive) {
    for (number, channel) in side.channels.iter_mut().enumerate() {
        channel.requests.pop_batch(usize::MAX, |request| {
            if !side.steer.heed(request, number) {
                stack.counters.add(side.writer, Counter::FlowTableFull, 1);
            }
        });
    }
}

/// Before a receive: the transmitting half goes by the networks as they are now, and what comes back from it, without having been on the link, waits
/// in the inboxes. Whether there was any.
#[inline]
pub(crate) fn take_returns(
    stack: &Stack,
    side: &mut Receive,
    interface: &mut Interface,
    now: Instant,
) -> bool {
    interface.refresh(now);
    let has_returns = interface.has_returns();
    if has_returns {
        side.refresh();
        classify_returns(stack, side, interface, now);
    }
    has_returns
}

/// Packets to our own addresses, packets whose next hop did not answer, and what another link has to send.
#[cold]
fn classify_returns(stack: &Stack, side: &mut Receive, interface: &mut Interface, now: Instant) {
    for _ in 0..BURST {
        let Some(mut packet) = interface.local.pop_front() else {
            break;
        };
        if !packet.meta.through.get() {
            packet.meta.checksum_verified = Flag::YES; // our own
        }
        let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
        match side.steer.classify_ip(&side.host, &mut packet, v6, true) {
            Ok(verdict) if !side.modules.admit(verdict, &packet, now) => {}
            Ok(verdict) => sort(stack, side, verdict, packet, now),
            Err(reason) => interface.count(reason),
        }
    }
    while let Some(mut packet) = interface.unreachable.pop() {
        let Some(key) = FlowKey::of_sent(packet.bytes()) else {
            continue;
        };
        let hash = stack.host.flow_hash.hash(&key);
        packet.meta = Meta {
            undeliverable: Flag::YES,
            flow: short(hash),
            protocol: key.protocol,
            ..packet.meta
        };
        let number = side.steer.shard_of_key(&side.host, &key, hash);
        into_inbox(side, number, packet);
    }
    while let Some((link, packet)) = interface.elsewhere.pop_front() {
        stage(stack, side, link.into(), packet);
    }
    publish(stack, side);
}

/// Puts a classified packet where its verdict says.
#[cold]
fn sort(stack: &Stack, side: &mut Receive, verdict: Verdict, packet: Packet, now: Instant) {
    match verdict {
        Verdict::Shard(number) => into_inbox(side, number, packet),
        Verdict::Flow(hash) => {
            let number = match side.steer.leased(hash) {
                Some(number) => number,
                None => place(stack, side, hash, &packet, now),
            };
            into_inbox(side, number, packet);
        }
        Verdict::Host(work) => {
            let link = side.steer.interface().into();
            trace::note(trace::HOST_WORK, [link, work as u64]);
            side.host_work.push_back((work, packet));
        }
        Verdict::Forward => side.onward.push_back(packet),
        Verdict::Drop(reason) => {
            let link = side.steer.interface().into();
            trace::note(trace::DROP, [link, reason as u64]);
            stack.counters.add(side.writer, reason, 1);
        }
    }
}

/// The shard for a packet of a flow that nobody has leased. Nobody waits for it there, either: the attendant is called.
#[cold]
fn place(stack: &Stack, side: &mut Receive, hash: u64, packet: &Packet, now: Instant) -> usize {
    let is_bound = |port| stack.directory.is_tcp_port_bound(port);
    let number = side.steer.place(&side.host, hash, packet, is_bound, now);
    side.unowned |= 1 << (number % SHARDS_MAX);
    number
}

/// Keeps a packet until its shard is held, or its channel's end is at hand.
#[inline]
fn into_inbox(side: &mut Receive, number: usize, packet: Packet) {
    side.inboxes[number].push_back(packet);
    side.has_sorted = true;
}

/// What the host's own work leads to: a whole datagram to be classified, an ICMP error for the shard of the flow it quotes, an echo reply for that of its
/// identifier.
#[cold]
fn follow_up(stack: &Stack, side: &mut Receive, more: FollowUp, now: Instant) {
    match more {
        FollowUp::Done => {}
        FollowUp::Classify(mut packet) => {
            let v6 = packet.bytes().first().is_some_and(|b| b >> 4 == 6);
            // Fragments in the name of an address of ours have passed as our own only.
            let own =
                ends_of(packet.bytes()).is_some_and(|ends| stack.host.network().is_local(ends.0));
            match side.steer.classify_ip(&side.host, &mut packet, v6, own) {
                Ok(verdict) if !side.modules.admit(verdict, &packet, now) => {}
                Ok(verdict) => sort(stack, side, verdict, packet, now),
                Err(reason) => stack.counters.add(side.writer, reason, 1),
            }
        }
        FollowUp::Flow(key, packet) => {
            let hash = stack.host.flow_hash.hash(&key);
            let number = side.steer.shard_of_key(&side.host, &key, hash);
            into_inbox(side, number, packet);
        }
    }
}

/// channel: gives each shard what `steer` found for it.
#[inline]
fn hand_in(stack: &Stack, side: &mut Receive) {
    let link = side.steer.interface().into();
    let unowned = std::mem::take(&mut side.unowned);
    for (number, (inbox, channel)) in side.inboxes.iter_mut().zip(&mut side.channels).enumerate() {
        if inbox.is_empty() {
            continue;
        }
        let shard = number as u64;
        trace::detail(trace::HANDED_CHANNEL, [link, inbox.len() as u64, shard]);
        channel.received.push_batch(inbox);
        if !inbox.is_empty() {
            trace::note(trace::CHANNEL_FULL, [link, inbox.len() as u64, shard]);
            // The last place where a packet may be lost, and it is counted (R1).
            stack
                .counters
                .add(side.writer, Counter::DropChannelFull, inbox.len() as u64);
            inbox.clear();
        }
        let before = stages::enter(Stage::Scheduler);
        channel.shard.ring();
        if let Some(line) = &channel.line {
            line.ring(unowned >> (number % SHARDS_MAX) & 1 != 0);
        }
        stages::back(before);
    }
}

/// shard: calls each shard for which `steer` found something.
#[inline]
fn call_in(stack: &Stack, side: &mut Receive, now: Instant) {
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

/// shard, or its backlog: calls each shard that is free; to whoever holds one its packets are left. Behind those that wait there already,
/// since who comes to hold the shard takes these first.
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
        stack.counters.add(side.writer, Counter::Backlogged, left);
        if !inbox.is_empty() {
            let lost = inbox.len() as u64;
            trace::note(trace::BACKLOG_FULL, [link, lost, shard]);
            stack
                .counters
                .add(side.writer, Counter::DropBacklogFull, lost);
            inbox.clear();
        }
        stack.leave_with_holder(number, now);
    }
}

/// shard: runs the protocol on packets that were handed over by a call.
#[inline]
fn take_in(shard: &mut Shard, inbox: &mut VecDeque<Packet>, now: Instant) {
    let mut intake = shard.intake(now);
    while let Some(packet) = inbox.pop_front() {
        intake.input(packet);
    }
}

/// shard: runs the protocol on packets that came through its channels. True if there were any.
#[inline]
pub(crate) fn take_received(held: &mut Held, now: Instant) -> bool {
    let Held {
        shard,
        ways: Ways::Channels(channels),
    } = held
    else {
        return false;
    };
    let mut taken = 0;
    let mut intake = shard.intake(now);
    for channel in channels {
        taken += channel
            .received
            .pop_batch(BURST * BURSTS_PER_TURN, |packet| intake.input(packet));
    }
    taken > 0
}

/// shard: the same for what was left to its holder, all of it: what comes by a call stays behind it.
#[inline]
pub(crate) fn take_backlog(held: &mut Held, now: Instant) {
    let Held {
        shard,
        ways: Ways::Backlogs(backlogs),
    } = held
    else {
        return;
    };
    let mut intake = shard.intake(now);
    for backlog in backlogs {
        backlog.pop_batch(usize::MAX, |packet| intake.input(packet));
    }
}

// ================================================= forward =================================================

/// steer ──► check ──► modules ──► channel: what is for other hosts goes to the link of its route, which passes it on like what shards send
/// ([`transmit_from_channels`]). The same in every regime: a ring for each pair of links, whose ends two halves of interfaces have.
/// No lock but the receiving link's own is held, so that two links that forward to each other never wait for each other.
#[cold]
#[inline(never)]
fn forward(stack: &Stack, side: &mut Receive, interface: &mut Interface, now: Instant) {
    let from = usize::from(side.steer.interface());
    while let Some(mut packet) = side.onward.pop_front() {
        match forward::check(&side.host, &mut packet, from) {
            //                                                                             check
            Ok(Way::On(link)) if stack.ports[link].gone.load(Relaxed) => {
                interface.refuse(forward::NO_ROUTE, &packet, now);
            }
            Ok(Way::On(link)) => {
                let eyes = &side.forward_modules;
                if !eyes.are_open() || eyes.pass(&packet, now) {
                    stage(stack, side, link, packet); //                                   modules
                }
            }
            // Modules see it there, at `in`.
            Ok(Way::Ours(link)) => stage(stack, side, link, packet),
            Err(refusal) => interface.refuse(refusal, &packet, now),
        }
    }
    publish(stack, side); //                                                               channel
}

/// Puts a packet into the channel to another link, where it is seen after [`publish`].
fn stage(stack: &Stack, side: &mut Receive, link: usize, packet: Packet) {
    let has_room = side.slab.available() * limits::FORWARD_SPARE >= side.slab.capacity();
    if has_room && side.ways[link].stage(packet).is_ok() {
        side.staged |= 1 << link;
    } else {
        (stack.counters).add(side.writer, Counter::DropForwardQueue, 1);
    }
}

/// Shows the links what was put into their channels, and wakes each once.
fn publish(stack: &Stack, side: &mut Receive) {
    let own = usize::from(side.steer.interface());
    let mut staged = std::mem::take(&mut side.staged);
    while staged != 0 {
        let link = staged.trailing_zeros() as usize;
        staged &= staged - 1;
        side.ways[link].publish();
        trace::detail(trace::HANDED_ON, [own as u64, link as u64]);
        let before = stages::enter(Stage::Scheduler);
        if link != own {
            stack.ports[link].doorbell.ring(); // its own turn comes anyway: there was work
        }
        stages::back(before);
    }
}

// ================================================= transmit =================================================

/// shard ──► channel, or the link itself where the regime calls or the link is the shard's own. The links (a bit each) into whose channels something
/// was put that the caller sends, once it has let go of the shard ([`Stack::send_led`]).
#[inline(always)]
pub(crate) fn hand_out(stack: &Stack, held: &mut Held, now: Instant) -> u64 {
    let Held { shard, ways } = held;
    let (is_led, mut links) = (stack.leader.is_led(), 0);
    if let Ways::Channels(channels) = ways {
        hand_requests(shard, channels);
    }
    for (number, outbox) in shard.outboxes.iter_mut().enumerate() {
        if outbox.is_empty() {
            continue;
        }
        match ways {
            Ways::Own(links) => transmit(&mut links[number].interface, outbox, now),
            Ways::Calls | Ways::Backlogs(_) => {
                stack.with_interface(number, |link| transmit(link, outbox, now))
            }
            Ways::Channels(channels) => {
                let channel = &mut channels[number];
                channel.outgoing.push_batch(outbox);
                if is_led {
                    links |= 1 << number;
                    continue;
                }
                let before = stages::enter(Stage::Scheduler);
                channel.link.ring();
                stages::back(before);
            }
        }
    }
    links
}

/// Requests go to the classifiers of all links, ahead of the packets that they are about; where there is no room, they wait.
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

/// channel ──► modules ──► check ──► tap ──► link, for all shards of an interface. Returns how many packets were taken.
#[inline]
pub(crate) fn transmit_from_channels(interface: &mut Interface, now: Instant) -> usize {
    interface.refresh(now);
    let mut taken = 0;
    let mut channels = std::mem::take(&mut interface.channels);
    let first = interface.first_channel.min(channels.len());
    let (later, sooner) = channels.split_at_mut(first);
    for (number, channel) in (first + 1..).zip(sooner).chain((1..).zip(later)) {
        // What a full link has no room for stays in the channels, which are as long as their shards have buffers: so they are pushed back.
        let most = interface.room().min(BURST * BURSTS_PER_TURN);
        taken += channel.outgoing.pop_batch(most, |packet| {
            if !interface.modules.are_open() || interface.modules.pass(&packet, now) {
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
    if !interface.ways.is_empty() {
        taken += transmit_from_links(interface, now);
    }
    if taken > 0 {
        trace::detail(trace::LINK_OUT, [interface.number().into(), taken as u64]);
    }
    if taken > 0 || interface.has_frames() {
        flush(interface, now);
    }
    taken
}

/// channel ──► tap ──► link, for what other links have received or say. Returns how many packets were taken.
#[cold]
#[inline(never)]
fn transmit_from_links(interface: &mut Interface, now: Instant) -> usize {
    let mut taken = 0;
    let mut ways = std::mem::take(&mut interface.ways);
    for way in &mut ways {
        taken += way.pop_batch(BURST * BURSTS_PER_TURN, |packet| {
            if packet.meta.through.get() {
                interface.forward(packet, now); //          channel, next hop, frame header
            } else if !interface.modules.are_open() || interface.modules.pass(&packet, now) {
                interface.send(packet, now); //             the host's own: modules, check
            }
        });
    }
    interface.ways = ways;
    taken
}

/// modules ──► check ──► tap ──► link, for packets that were handed over by a call.
#[inline(always)]
fn transmit(interface: &mut Interface, packets: &mut VecDeque<Packet>, now: Instant) {
    interface.refresh(now);
    if interface.modules.are_open() {
        interface.modules.screen(packets, now); //                                         modules
    }
    if let Err(error) = interface.send_all(packets, now) {
        interface.link_failed(&error); //                                                  check, next hop, frame header; tap, link
    }
}

pub(crate) fn flush(interface: &mut Interface, now: Instant) {
    if let Err(error) = interface.flush(now) {
        interface.link_failed(&error); //                                                  tap, link
    }
}
