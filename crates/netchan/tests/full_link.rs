//! A link that takes nothing for a while: what is sent waits in the shards' channels, and nothing is lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use netchan::{
    Net, Regime,
    link::{Link, LinkError, Properties, Segmentation, Statistics},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{time::Instant, wire::ethernet::MacAddr};

/// Takes frames only while it is `open`.
struct Gate {
    properties: Properties,
    open: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
    offered: Arc<AtomicUsize>,
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
        self.offered.fetch_max(frames.len(), Relaxed);
        if !self.open.load(SeqCst) {
            return Ok(0);
        }
        let datagrams = frames.iter().filter(|f| f.bytes().get(23) == Some(&17));
        self.taken.fetch_add(datagrams.count(), SeqCst);
        let n = frames.len();
        frames.clear();
        Ok(n)
    }
    fn next_event(&self) -> Instant {
        self.now + Duration::from_millis(1)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

const SOCKETS: usize = 40;
const EACH: usize = 100;

#[test]
fn a_full_link_pushes_back_and_loses_nothing() {
    let (open, taken, offered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let gate = Gate {
        properties: Properties {
            name: "gate".to_owned(),
            kind: "gate",
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            frame_max: 1522,
            segmentation: Segmentation::None,
        },
        open: open.clone(),
        taken: taken.clone(),
        offered: offered.clone(),
        now: Instant::ZERO,
    };
    let net = Net::builder().link_with(Box::new(gate));
    let net = net.regime(Regime::SocketChannel).address("10.0.0.2/24");
    let net = net.unwrap().start().unwrap();
    // To a group: no neighbour has to be found first.
    let sockets: Vec<_> = (0..SOCKETS)
        .map(|_| net.udp().bind("0.0.0.0:0").unwrap())
        .collect();
    for _ in 0..EACH {
        for socket in &sockets {
            let sent = socket.send_to(b"here", ([239, 1, 1, 1], 9).into());
            assert_eq!(sent.unwrap(), 4);
        }
    }
    let end = net.clock().now() + Duration::from_secs(20);
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(net.clock().now() < end, "not within 20 s: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until("the queue is as long as it gets", &|| {
        offered.load(Relaxed) >= 1900
    });
    open.store(true, SeqCst);
    let dropped = || {
        let counters = net.show("counters").unwrap();
        let rows = counters.as_array().unwrap().iter();
        let drops = rows.filter(|row| row["name"].as_str().is_some_and(|n| n.starts_with("drop_")));
        drops.map(|row| row["value"].as_u64().unwrap()).sum::<u64>()
    };
    wait_until("all was sent or dropped", &|| {
        taken.load(SeqCst) as u64 + dropped() >= (SOCKETS * EACH) as u64
    });
    assert_eq!((taken.load(SeqCst), dropped()), (SOCKETS * EACH, 0));
}
