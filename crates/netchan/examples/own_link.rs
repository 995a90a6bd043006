//! A link of one's own: what is sent comes back, counted. Names nothing but `netchan`.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use netchan::{
    Doorbell, Instant, MacAddr, Net, Slab,
    link::{FRAME_OVERHEAD, Link, LinkError, Properties, Segmentation, Statistics},
    packet::{Meta, Packet},
};

struct Mirror {
    properties: Properties,
    queue: VecDeque<Packet>,
    bell: Option<Arc<Doorbell>>,
    frames: Arc<AtomicU64>,
}

impl Mirror {
    fn new(frames: Arc<AtomicU64>) -> Self {
        let properties = Properties {
            name: "mirror".into(),
            kind: "mirror",
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            frame_max: 1500 + FRAME_OVERHEAD,
            segmentation: Segmentation::None,
        };
        let (queue, bell) = (VecDeque::with_capacity(64), None);
        Self {
            properties,
            queue,
            bell,
            frames,
        }
    }
}

impl Link for Mirror {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        self.bell = Some(doorbell);
    }
    fn receive(
        &mut self,
        _: Instant,
        _: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let n = self.queue.len().min(max);
        burst.extend(self.queue.drain(..n).map(|mut packet| {
            packet.meta = Meta::default(); // nothing is known of what comes in
            packet
        }));
        Ok(n)
    }
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let n = frames.len().min(64 - self.queue.len());
        self.queue.extend(frames.drain(..n));
        self.frames.fetch_add(n as u64, Relaxed);
        if let Some(bell) = self.bell.as_ref().filter(|_| n > 0) {
            bell.ring();
        }
        Ok(n)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn main() -> io::Result<()> {
    let frames = Arc::new(AtomicU64::new(0));
    let net = Net::builder()
        .link_with(Box::new(Mirror::new(frames.clone())))
        .address("10.0.0.1/24")?
        .start()?;
    // No host has this address: the question for it comes back, and is no answer.
    let peer = ([10, 0, 0, 9], 80).into();
    let refused = net.tcp().connect_timeout(peer, Duration::from_millis(200));
    println!(
        "no connection: {}; {} frames were sent",
        refused
            .as_ref()
            .err()
            .map_or_else(String::new, ToString::to_string),
        frames.load(Relaxed)
    );
    assert!(refused.is_err() && frames.load(Relaxed) > 0);
    Ok(())
}
