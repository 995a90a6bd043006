//! The moving parts of a stack, put together as its layout says: interfaces, channels, shards, and which thread waits where.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
};

use crate::{
    channel::{BackgroundCall, BackgroundPoller, LinkEnd, ShardEnd, TransmitEnd, backlog, channel},
    counters::Counters,
    driver::{
        giant_shim,
        host::Host,
        interface::{Interface, Receive},
        module::registry::Registry,
        steer::{Placement, Steer, pending_opens::PendingOpens, table::FlowTable},
    },
    errno::invalid,
    limits,
    link::{Link, Queue},
    memory::{self, Account},
    packet::Packet,
    regime::{Handoff, Holder, Layout},
    shard::{Shard, ShardSettings},
    stack::{
        cell::{Cell, LinkAccess},
        driver_side::{Halves, OwnLink, SharedInterface},
    },
};

/// The moving parts of a stack.
pub struct Parts {
    pub counters: Arc<Counters>,
    pub interfaces: Vec<SharedInterface>,
    pub cells: Vec<Cell>,
    pub background: Arc<BackgroundPoller>,
    /// What sockets of TCP and of UDP hold, and may.
    pub memory: [Arc<Account>; 2],
}

impl Parts {
    pub fn make(
        host: &Arc<Host>,
        links: Vec<Box<dyn Link>>,
        layout: Layout,
        owns_links: bool,
        modules: &Registry,
        memory: memory::Limits,
        now: proto::time::Instant,
    ) -> io::Result<Self> {
        // Each shard and each half of an interface writes counters of its own.
        let counters = Arc::new(Counters::new(layout.shards + 2 * links.len()));
        let doorbells = doorbells(layout)?;
        let background = Arc::new(BackgroundPoller::new()?);
        let calls = background_calls(layout, &background);
        let mut ends = Ends::new(layout);
        let (mut interfaces, mut own_links) = (Vec::new(), Vec::new());
        let (mut buffers, mut slabs) = (usize::MAX, 0);
        let mut rings = forward_rings(if host.forwarding { links.len() } else { 0 });
        for (number, link) in links.into_iter().enumerate() {
            let (kind, concurrency) = (link.properties().kind, link.concurrency());
            let doorbell = Arc::new(Doorbell::new()?);
            let (frame_max, Queue { rx, tx }) = begin(link, host, &doorbell, layout, modules)?;
            let (link_ends, transmit_ends, left) =
                ends.join(layout, &doorbell, doorbells.iter().zip(&calls));
            let id = u8::try_from(number).map_err(|_| invalid("too many links"))?;
            let writer = layout.shards + 2 * number;
            let mut receive = Receive::new(
                host.view(),
                (rx, frame_max),
                (layout.shards, layout.own_shards),
                Steer::new(id, placement(layout)?),
                link_ends,
                left,
                writer,
            )?;
            let mut interface = Interface::new(
                id,
                writer + 1,
                tx,
                host,
                counters.clone(),
                transmit_ends,
                now,
            )?;
            (receive.forward_rings, interface.forward_rings) = rings.next().unwrap_or_default();
            // The scarcest link decides: all of a shard's connections may hang on it.
            buffers = buffers.min(receive.slab.capacity());
            slabs += receive.slab.capacity() as u64 * receive.slab.buffer_size() as u64;
            let gone = interface.gone_flag.clone();
            let own = OwnLink::new(receive, interface, modules.lists(number));
            interfaces.push(SharedInterface {
                kind,
                concurrency,
                halves: Halves::unless(owns_links, own, &mut own_links),
                doorbell,
                gone,
                told: AtomicBool::default(),
                wakeups: AtomicU64::new(0),
            });
        }
        let sharing = buffers * limits::QUEUED_EIGHTHS / 8 / layout.shards;
        let (memory, mut cells) = (memory.accounts(slabs, layout.shards), Vec::new());
        let memory = memory.map(Arc::new);
        for (number, (doorbell, call)) in doorbells.into_iter().zip(calls).enumerate() {
            let settings = shard_settings(layout, number, host, &counters, sharing, &memory);
            let access = if owns_links {
                LinkAccess::Own(std::mem::take(&mut own_links))
            } else {
                ends.access(layout, number)
            };
            let shard = Shard::new(settings, now)?;
            cells.push(Cell::new(shard, access, doorbell, call).held_by(layout.holder));
        }
        Ok(Self {
            counters,
            interfaces,
            cells,
            background,
            memory,
        })
    }
}

/// Starts a link: the longest frame that it gives, and its queue.
fn begin(
    mut link: Box<dyn Link>,
    host: &Host,
    doorbell: &Arc<Doorbell>,
    layout: Layout,
    modules: &Registry,
) -> io::Result<(usize, Queue)> {
    if host.forwarding {
        link.for_forwarding()?;
    }
    let frame_max = link.properties().frame_max;
    let bells = std::slice::from_ref(doorbell);
    let queues = giant_shim::start(link, bells, layout.giant, &modules.giant)?;
    let none = || invalid("a link has no queue");
    Ok((frame_max, queues.into_iter().next().ok_or_else(none)?))
}

/// What joins the shards to the links, by shard and link: channels, or backlogs where links call.
struct Ends {
    channels: Vec<Vec<ShardEnd>>,
    backlogs: Vec<Vec<Consumer<Packet>>>,
}

impl Ends {
    fn new(layout: Layout) -> Self {
        Self {
            channels: (0..layout.shards).map(|_| Vec::new()).collect(),
            backlogs: (0..layout.shards).map(|_| Vec::new()).collect(),
        }
    }

    /// One more link: its ends, as its two halves take them.
    fn join<'a>(
        &mut self,
        layout: Layout,
        link: &Arc<Doorbell>,
        shards: impl Iterator<Item = (&'a Arc<Doorbell>, &'a Option<Arc<BackgroundCall>>)>,
    ) -> (Vec<LinkEnd>, Vec<TransmitEnd>, Vec<Producer<Packet>>) {
        let (mut link_ends, mut transmit_ends, mut left) = (Vec::new(), Vec::new(), Vec::new());
        if layout.handoff == Handoff::Channel {
            for (ends, (shard, call)) in self.channels.iter_mut().zip(shards) {
                let (link_end, transmit_end, shard_end) =
                    channel(link.clone(), shard.clone(), call.clone());
                link_ends.push(link_end);
                transmit_ends.push(transmit_end);
                ends.push(shard_end);
            }
        }
        if layout.backlogs {
            for ends in &mut self.backlogs {
                let (link_end, shard_end) = backlog();
                left.push(link_end);
                ends.push(shard_end);
            }
        }
        (link_ends, transmit_ends, left)
    }

    /// How a shard reaches the links that were joined.
    fn access(&mut self, layout: Layout, shard: usize) -> LinkAccess {
        match layout.handoff {
            Handoff::Channel => LinkAccess::Channels(std::mem::take(&mut self.channels[shard])),
            Handoff::Call if layout.backlogs => {
                LinkAccess::Backlogs(std::mem::take(&mut self.backlogs[shard]))
            }
            Handoff::Call => LinkAccess::Calls,
        }
    }
}

fn shard_settings(
    layout: Layout,
    number: usize,
    host: &Arc<Host>,
    counters: &Arc<Counters>,
    segments: usize,
    memory: &[Arc<Account>; 2],
) -> ShardSettings {
    ShardSettings {
        number,
        shards: layout.shards,
        host: host.clone(),
        counters: counters.clone(),
        leases: layout.leases(),
        segments,
        memory: memory.clone(),
        room: if layout.own_shards {
            limits::SOCKET_SHARD
        } else {
            limits::SHARD
        },
    }
}

/// A doorbell for each shard; those that one thread turns have one together.
fn doorbells(layout: Layout) -> io::Result<Vec<Arc<Doorbell>>> {
    let sleepers = match layout.workers {
        0 => layout.shards,
        workers => workers,
    };
    let bells: Vec<_> = (0..sleepers)
        .map(|_| Doorbell::new().map(Arc::new))
        .collect::<Result<_, _>>()?;
    Ok(bells.into_iter().cycle().take(layout.shards).collect())
}

/// The channels between links that forward to each other: for each link, its ends of those to all links and of those from all links.
fn forward_rings(
    links: usize,
) -> impl Iterator<Item = (Vec<Producer<Packet>>, Vec<Consumer<Packet>>)> {
    let mut from: Vec<Vec<_>> = (0..links).map(|_| Vec::new()).collect();
    let to: Vec<Vec<_>> = (0..links)
        .map(|_| {
            let ring_to = |ends: &mut Vec<_>| {
                let (producer, consumer) = ring(limits::FORWARD_RING);
                ends.push(consumer);
                producer
            };
            from.iter_mut().map(ring_to).collect()
        })
        .collect();
    to.into_iter().zip(from)
}

fn placement(layout: Layout) -> io::Result<Placement> {
    Ok(match layout.shards {
        1 => Placement::Single,
        shards if !layout.leases() => Placement::Hash { shards },
        shards => Placement::Lease {
            shards,
            flows: FlowTable::new(limits::FLOWS)?,
            pending_opens: layout.own_shards.then(|| PendingOpens::new(shards)),
        },
    })
}

/// The background call of each shard that is the application's to turn.
fn background_calls(
    layout: Layout,
    background: &Arc<BackgroundPoller>,
) -> Vec<Option<Arc<BackgroundCall>>> {
    let call = |number| Arc::new(BackgroundCall::new(background.clone(), number));
    let has_calls = layout.holder == Holder::Application;
    (0..layout.shards)
        .map(|number| has_calls.then(|| call(number)))
        .collect()
}
