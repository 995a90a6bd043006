//! Links are started: each gives one queue, or several where the stack has use for them.

use std::{io, sync::Arc};

use percore::doorbell::Doorbell;

use crate::{
    driver::{giant_shim, module::Giant},
    errno::invalid,
    limits,
    link::{Link, Queue},
    regime::Layout,
    stack::driver_side::QueueFacts,
};

/// A started queue.
pub struct Started {
    /// What does not change.
    pub facts: QueueFacts,
    /// The longest frame that it gives, bytes.
    pub frame_max: usize,
    /// The halves.
    pub queue: Queue,
}

/// How many queues a link may have: one for each shard; one where they are a shard's own (`owns_links`), and where packets are forwarded, whose channels
/// lie between links.
pub fn wanted(layout: Layout, forwarding: bool, owns_links: bool) -> usize {
    if forwarding || owns_links {
        1
    } else {
        layout.shards.min(limits::QUEUES_MAX)
    }
}

/// The numbers of each link's queues.
pub fn of_links(started: &[Started]) -> Vec<Vec<usize>> {
    let mut links: Vec<Vec<usize>> = Vec::new();
    for (number, queue) in started.iter().enumerate() {
        match links.get_mut(usize::from(queue.facts.link)) {
            Some(link) => link.push(number),
            None => links.push(vec![number]),
        }
    }
    links
}

/// Starts the links, with as many queues as each has, and at most `most`: the first queue of each link, by the links' numbers, then the others.
///
/// # Errors
/// The links'; `InvalidInput` for one without a queue.
pub fn start(
    links: Vec<Box<dyn Link>>,
    most: usize,
    forwarding: bool,
    layout: Layout,
    giant: &Arc<Giant>,
) -> io::Result<Vec<Started>> {
    let (mut first, mut further) = (Vec::new(), Vec::new());
    for (number, mut link) in links.into_iter().enumerate() {
        let number = u8::try_from(number).map_err(|_| invalid("too many links"))?;
        if forwarding {
            link.for_forwarding()?;
        }
        let (kind, concurrency) = (link.properties().kind, link.concurrency());
        let frame_max = link.properties().frame_max;
        let most = link.queues().clamp(1, most);
        let bells = (0..most).map(|_| Doorbell::new().map(Arc::new));
        let bells = bells.collect::<io::Result<Vec<_>>>()?;
        let queues = giant_shim::start(link, &bells, layout.giant, giant)?;
        let mut started = queues.into_iter().zip(bells).enumerate();
        let of_lane = |(lane, (queue, doorbell))| Started {
            facts: QueueFacts {
                link: number,
                lane,
                kind,
                concurrency,
                doorbell,
            },
            frame_max,
            queue,
        };
        let one = started
            .next()
            .ok_or_else(|| invalid("a link has no queue"))?;
        first.push(of_lane(one));
        further.extend(started.map(of_lane));
    }
    first.append(&mut further);
    Ok(first)
}
