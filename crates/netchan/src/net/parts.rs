//! The moving parts of a stack, put together as its layout says: interfaces, channels, shards, and which thread waits where.

use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
};

use crate::{
    channel::{BackgroundCall, BackgroundPoller, LinkEnd, ShardEnd, TransmitEnd, backlog, channel},
    counters::Counters,
    driver::{
        host::Host,
        interface::{Interface, QueueId, Receive},
        module::registry::Registry,
        steer::{NthQueue, Placement, Steer, pending_opens::PendingOpens, table::FlowTable},
    },
    limits,
    link::Queue,
    memory::{self, Account},
    net::queues::{self, Started},
    packet::Packet,
    regime::{Handoff, Holder, Layout},
    shard::{Shard, ShardSettings},
    stack::{
        cell::{Cell, LinkAccess},
        driver_side::{Halves, OwnLink, SharedQueue},
    },
};

/// The moving parts of a stack.
pub struct Parts {
    pub counters: Arc<Counters>,
    pub queues: Vec<SharedQueue>,
    /// The queues of each link.
    pub links: Vec<Vec<usize>>,
    pub cells: Vec<Cell>,
    pub background: Arc<BackgroundPoller>,
    /// What sockets of TCP and of UDP hold, and may.
    pub memory: [Arc<Account>; 2],
}

impl Parts {
    pub fn make(
        host: &Arc<Host>,
        started: Vec<Started>,
        layout: Layout,
        owns_links: bool,
        modules: &Registry,
        memory: memory::Limits,
        now: proto::time::Instant,
    ) -> io::Result<Self> {
        // Each shard and each half of a queue writes counters of its own.
        let counters = Arc::new(Counters::new(layout.shards + 2 * started.len()));
        let doorbells = doorbells(layout)?;
        let background = Arc::new(BackgroundPoller::new()?);
        let calls = background_calls(layout, &background);
        let mut ends = Ends::new(layout);
        let (mut queues, mut own_links) = (Vec::<SharedQueue>::new(), Vec::new());
        let (mut buffers, mut slabs) = (usize::MAX, 0);
        let mut rings = forward_rings(if host.forwarding { started.len() } else { 0 });
        let links = queues::of_links(&started);
        let made = Made {
            host,
            counters: &counters,
            layout,
            now,
        };
        for (number, started) in started.into_iter().enumerate() {
            let Started {
                facts,
                frame_max,
                queue,
            } = started;
            let link = usize::from(facts.link);
            let nth = NthQueue {
                number: facts.lane,
                of: links[link].len(),
            };
            let id = QueueId::new(facts.link, number, nth, layout.shards)?;
            let ends = ends.join(layout, &facts.doorbell, doorbells.iter().zip(&calls));
            let first = (facts.lane > 0).then(|| &queues[link]);
            let mut own = made.halves(id, (queue, frame_max), ends, first)?;
            own.set_modules(modules.lists(number));
            (own.receive.forward_rings, own.interface.forward_rings) =
                rings.next().unwrap_or_default();
            // The scarcest link decides: all of a shard's connections may hang on it.
            let slab = &own.receive.slab;
            buffers = buffers.min(slab.capacity());
            slabs += slab.capacity() as u64 * slab.buffer_size() as u64;
            let gone = own.interface.gone_flag.clone();
            let told = first.map(|first| first.told.clone()).unwrap_or_default();
            queues.push(SharedQueue {
                facts,
                halves: Halves::unless(owns_links, own, &mut own_links),
                gone,
                told,
                wakeups: AtomicU64::new(0),
                lease_bells: OnceLock::new(),
            });
        }
        let sharing = buffers * limits::QUEUED_EIGHTHS / 8 / layout.shards;
        let memory = memory.accounts(slabs, layout.shards).map(Arc::new);
        let mut cells = Vec::new();
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
            queues,
            links,
            cells,
            background,
            memory,
        })
    }
}

/// What the halves of queues are made with.
struct Made<'a> {
    host: &'a Arc<Host>,
    counters: &'a Arc<Counters>,
    layout: Layout,
    now: proto::time::Instant,
}

impl Made<'_> {
    /// The halves of a queue; `first`: its link's first one, if it is another.
    fn halves(
        &self,
        id: QueueId,
        (queue, frame_max): (Queue, usize),
        (link_ends, transmit_ends, left): QueueEnds,
        first: Option<&SharedQueue>,
    ) -> io::Result<OwnLink> {
        let (host, layout) = (self.host, self.layout);
        let receive = Receive::new(
            id,
            host.view(),
            (queue.rx, frame_max),
            (layout.shards, layout.own_shards),
            Steer::new(id.link, placement(layout)?).of_queue(id.nth),
            link_ends,
            left,
        )?;
        let counters = self.counters.clone();
        let interface = Interface::new(id, queue.tx, host, counters, transmit_ends, self.now)?;
        let first = first.and_then(|first| first.halves.as_ref());
        let interface = match first {
            Some(first) => interface.behind(&first.interface.lock()),
            None => interface,
        };
        Ok(OwnLink { receive, interface })
    }
}

/// The ends of channels that a queue's halves take, and of backlogs.
type QueueEnds = (Vec<LinkEnd>, Vec<TransmitEnd>, Vec<Producer<Packet>>);

/// What joins the shards to the queues, by shard and queue: channels, or backlogs where links call.
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

    /// One more queue: its ends, as its two halves take them.
    fn join<'a>(
        &mut self,
        layout: Layout,
        link: &Arc<Doorbell>,
        shards: impl Iterator<Item = (&'a Arc<Doorbell>, &'a Option<Arc<BackgroundCall>>)>,
    ) -> QueueEnds {
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
