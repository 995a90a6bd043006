//! A link that takes nothing for a while: what is sent waits in the shards' channels, and nothing is lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use netchan::{
    Net, Regime, UdpSocket,
    link::{Link, LinkError, Properties, Segmentation, Statistics},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{time::Instant, wire::ethernet::MacAddr};

/// What a gate lets through, and what became of that.
#[derive(Default)]
struct Seen {
    /// Frames that it takes at a time; at first none.
    most: AtomicUsize,
    offered: AtomicUsize,
    /// Source ports of the datagrams taken.
    taken: Mutex<Vec<u16>>,
}

impl Seen {
    fn taken(&self) -> usize {
        self.taken.lock().unwrap().len()
    }
}

/// Takes so many frames at a time as it is told.
struct Gate {
    properties: Properties,
    seen: Arc<Seen>,
    now: Instant,
}

impl Link for Gate {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn receive(
        &mut self,
        now: Instant,
        _: &mut Slab,
        _: &mut VecDeque<Packet>,
        _: usize,
    ) -> Result<usize, LinkError> {
        self.now = now;
        Ok(0)
    }
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        self.seen.offered.fetch_max(frames.len(), Relaxed);
        let n = frames.len().min(self.seen.most.load(SeqCst));
        let mut taken = self.seen.taken.lock().unwrap();
        for frame in frames.drain(..n) {
            if let (Some(17), Some(&[high, low])) =
                (frame.bytes().get(23), frame.bytes().get(34..36))
            {
                taken.push(u16::from_be_bytes([high, low]));
            }
        }
        Ok(n)
    }
    fn next_event(&self) -> Instant {
        self.now + Duration::from_millis(1)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// A stack of so many shards with a gate, of whose sockets each has sent `each` datagrams; some of these wait in the channels.
fn full(sockets: usize, each: usize) -> (Net, Arc<Seen>, Vec<UdpSocket>) {
    let seen = Arc::new(Seen::default());
    let gate = Gate {
        properties: Properties {
            name: "gate".to_owned(),
            kind: "gate",
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            frame_max: 1522,
            segmentation: Segmentation::None,
        },
        seen: seen.clone(),
        now: Instant::ZERO,
    };
    let net = Net::builder().link_with(Box::new(gate)).shards(sockets);
    let net = net.regime(Regime::SocketChannel).address("10.0.0.2/24");
    let net = net.unwrap().start().unwrap();
    // To a group: no neighbour has to be found first.
    let sockets: Vec<_> = (0..sockets)
        .map(|_| net.udp().bind("0.0.0.0:0").unwrap())
        .collect();
    for _ in 0..each {
        for socket in &sockets {
            let sent = socket.send_to(b"here", ([239, 1, 1, 1], 9).into());
            assert_eq!(sent.unwrap(), 4);
        }
    }
    wait_until(&net, "the queue is as long as it gets", || {
        seen.offered.load(Relaxed) >= 1900
    });
    (net, seen, sockets)
}

fn wait_until(net: &Net, what: &str, holds: impl Fn() -> bool) {
    let end = net.clock().now() + Duration::from_secs(20);
    while !holds() {
        assert!(net.clock().now() < end, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_full_link_pushes_back_and_loses_nothing() {
    const ALL: usize = 4000;
    let (net, seen, _sockets) = full(40, 100);
    seen.most.store(usize::MAX, SeqCst);
    let dropped = || {
        let counters = net.show("counters").unwrap();
        let rows = counters.as_array().unwrap().iter();
        let drops = rows.filter(|row| row["name"].as_str().is_some_and(|n| n.starts_with("drop_")));
        drops.map(|row| row["value"].as_u64().unwrap()).sum::<u64>()
    };
    wait_until(&net, "all was sent or dropped", || {
        seen.taken() as u64 + dropped() >= ALL as u64
    });
    assert_eq!((seen.taken(), dropped()), (ALL, 0));
}

/// A link that takes a few frames at a time: what becomes free is for each shard in turn, not for the first that has something.
#[test]
fn a_full_link_serves_all_shards_in_turn() {
    const SHARDS: usize = 8;
    const EACH: usize = 400;
    let (net, seen, sockets) = full(SHARDS, EACH);
    seen.most.store(8, SeqCst);
    wait_until(&net, "all was sent", || seen.taken() == SHARDS * EACH);
    let taken = seen.taken.lock().unwrap();
    // The last that were in the channels and not in the link's queue.
    let late = &taken[2048..2048 + 3 * SHARDS * 8];
    for socket in &sockets {
        let port = socket.local_addr().unwrap().port();
        let served = late.iter().filter(|&&taken| taken == port).count();
        assert!(
            (8..=40).contains(&served),
            "{port}: {served} of {}",
            late.len()
        );
    }
}
