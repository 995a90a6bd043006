//! The receive path.
//!
//! ```text
//! link ──► tap ──► steer ──► modules ──► channel ──► shard ──► socket
//! ```
//!
//! A link's thread goes from the link to the channel ([`receive`]), the shard's holder from the channel on ([`take_received`]). Where the
//! regime calls, the link's thread goes all the way; where the links are the shard's own, the shard's holder does ([`receive_own`]).

mod classify;
mod hand_over;
mod host;

use proto::time::Instant;

use self::{
    classify::{classify, into_inbox, note_received, take_requests},
    hand_over::take_in,
    host::do_host_work,
};
pub(super) use self::{
    hand_over::{call_in, hand_in, take_backlog},
    host::take_returns,
};
use super::{
    Stack,
    cell::{Held, LinkAccess},
    driver_side::{DriverSide, OwnLink},
    tx,
};
use crate::{
    channel::ShardEnd,
    driver::interface::Receive,
    limits::BURSTS_PER_TURN,
    link::BURST,
    shard::Shard,
    trace::{
        self,
        stages::{self, Stage},
    },
};

impl Stack {
    /// Has the classifiers heed what shards asked of them, but for those of queues that other threads are at. For a queue whose thread sleeps, since nothing
    /// comes in there.
    #[cold]
    #[inline(never)]
    pub(super) fn heed_requests(&self) {
        for queue in &self.driver.queues {
            let side = queue
                .halves
                .as_ref()
                .map(|halves| halves.receive.try_lock());
            if let Some(mut side) = side.flatten() {
                take_requests(&self.driver, &mut side);
            }
        }
    }
}

/// link ──► tap ──► steer ──► modules ──► `hand_in`: the channel, or the shard itself where the regime calls. The transmitting half's lock is taken
/// for the host's own work only. True if there was work.
#[inline(always)]
pub(super) fn receive(
    driver: &DriverSide,
    queue: usize,
    side: &mut Receive,
    now: Instant,
    mut hand_in: impl FnMut(&mut Receive),
) -> bool {
    let mut work = false;
    for _ in 0..BURSTS_PER_TURN {
        side.refresh();
        take_requests(driver, side);
        let received = side.take_burst(now); //                                           link, tap
        classify(driver, side, now, into_inbox); //                                        steer, modules
        note_received(driver, side, &received);
        if received.is_err() || side.has_host_work() {
            driver.with_host(queue, |host| {
                do_host_work(driver, side, host, &received, now); //                       host, forward
            });
        }
        if std::mem::take(&mut side.has_sorted) {
            hand_in(side); //                                                              channel, or shard
        }
        let n = received.unwrap_or(0);
        work |= n > 0;
        if n < BURST {
            break;
        }
    }
    work
}

/// link ──► tap ──► steer ──► modules ──► shard, where the links are the shard's own: nothing is handed over. True if there was work.
#[inline(never)]
pub(super) fn receive_own(
    driver: &DriverSide,
    shard: &mut Shard,
    links: &mut [OwnLink],
    now: Instant,
) -> bool {
    stages::enter(Stage::Link);
    let mut work = false;
    for (number, OwnLink { receive, interface }) in links.iter_mut().enumerate() {
        take_returns(driver, receive, interface, now);
        for _ in 0..BURSTS_PER_TURN {
            receive.refresh();
            take_requests(driver, receive);
            let received = receive.take_burst(now); //                                     link, tap
            let mut batch = shard.receive_batch(now);
            let into_shard = |_: &mut Receive, _, packet| batch.input(packet);
            classify(driver, receive, now, into_shard); //                                 steer, modules; shard
            note_received(driver, receive, &received);
            drop(batch);
            if received.is_err() || receive.has_host_work() {
                do_host_work(driver, receive, interface, &received, now); //               host, forward
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
        tx::look_after(interface, now);
        if let Some(last) = driver.newly_gone(number) {
            shard.link_gone(number, last, now);
        }
    }
    if driver.host.forwarding {
        for OwnLink { interface, .. } in links.iter_mut() {
            work |= tx::transmit_from_channels(interface, now) > 0; //                     forward
        }
    }
    work
}

/// shard: runs the protocol on packets that came through its channels. True if there were any.
#[inline]
pub(super) fn take_received(held: &mut Held, now: Instant) -> bool {
    let Held {
        shard,
        access: LinkAccess::Channels(channels),
    } = held
    else {
        return false;
    };
    let mut taken = 0;
    let mut batch = shard.receive_batch(now);
    for channel in channels.iter_mut() {
        taken += channel
            .received
            .pop_batch(BURST * BURSTS_PER_TURN, |packet| batch.input(packet));
    }
    drop(batch);
    if taken > 0 && trace::is_watched() {
        tell_depths(shard.number(), channels);
    }
    taken > 0
}

/// What is left in a shard's channels.
#[cold]
fn tell_depths(shard: usize, channels: &mut [ShardEnd]) {
    for (queue, channel) in channels.iter_mut().enumerate() {
        let waiting = channel.received.len() as u64;
        trace::detail(trace::DEPTH_IN, [queue as u64, shard as u64, waiting]);
    }
}
