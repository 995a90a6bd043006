//! A link that takes nothing for a while: what is sent waits in the shards' channels, and nothing is lost.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Wake, Waker},
    time::Duration,
};

use netchan::{
    Net, Regime, UdpSocket,
    link::{
        Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, Segmentation,
        TxStatistics,
    },
    packet::Packet,
    socket::{Domain, Kind, Readiness, SendInfo, Socket},
};
use percore::{doorbell::Doorbell, slab::Slab};
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
}

impl Link for Gate {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn start(self: Box<Self>, _: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: Box::new(Silent { now: Instant::ZERO }),
            tx: self,
        }])
    }
}

/// Receives nothing, and wants to be asked again in a millisecond.
struct Silent {
    now: Instant,
}

impl LinkRx for Silent {
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
    fn next_event(&mut self) -> Instant {
        self.now + Duration::from_millis(1)
    }
    fn statistics(&self) -> RxStatistics {
        RxStatistics::default()
    }
}

impl LinkTx for Gate {
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
    fn statistics(&self) -> TxStatistics {
        TxStatistics::default()
    }
}

fn gate() -> (Gate, Arc<Seen>) {
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
    };
    (gate, seen)
}

/// A stack of so many shards with a gate, of whose sockets each has sent `each` datagrams; some of these wait in the channels.
fn full(sockets: usize, each: usize) -> (Net, Arc<Seen>, Vec<UdpSocket>) {
    let (gate, seen) = gate();
    let net = Net::builder().link_with(Box::new(gate)).shards(sockets);
    let net = net.regime(Regime::SocketChannel).address("10.0.0.2/24");
    let net = net.unwrap().start().unwrap();
    // To a group: no neighbour has to be found first.
    let sockets: Vec<_> = (0..sockets)
        .map(|_| net.udp().bind("0.0.0.0:0").unwrap())
        .collect();
    for _ in 0..each {
        for socket in &sockets {
            let sent = socket.send_to(b"here", "239.1.1.1:9");
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

/// Wakes a test.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A socket of a stack whose buffers to send from wait for a link that takes nothing; how many datagrams it sent before.
fn exhausted(
    regime: Regime,
    shards: usize,
    kind: SendInfo,
    len: usize,
) -> (Net, Arc<Seen>, Socket, usize) {
    let (gate, seen) = gate();
    let builder = Net::builder().link_with(Box::new(gate)).regime(regime);
    let net = builder
        .shards(shards)
        .address("10.0.0.2/24")
        .unwrap()
        .start()
        .unwrap();
    let socket = Socket::new(&net, Domain::V4, Kind::Datagram).unwrap();
    socket.bind(([0, 0, 0, 0], 0).into()).unwrap();
    let text = vec![0; len];
    let mut sent = 0;
    for port in (9..29).cycle().take(200_000) {
        let ready = socket.readiness().contains(Readiness::WRITABLE);
        match socket.send_message(&[IoSlice::new(&text)], to(port), &kind) {
            Ok(_) => sent += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock, "{regime}");
                // Only one that needs more buffers than a usual one may find this out by trying.
                assert!(
                    !ready || len > 1400 || shards > 1,
                    "{regime}: it was writable after {sent}"
                );
                return (net, seen, socket, sent);
            }
        }
    }
    panic!("{regime}: more than there are buffers");
}

fn to(port: u16) -> Option<SocketAddr> {
    Some(([239, 1, 1, 1], port).into())
}

/// POLLOUT is taken back with EAGAIN, and comes with the buffers.
#[test]
fn a_datagram_socket_without_buffers_is_not_writable() {
    let segmented = SendInfo::segmented(1000);
    let all = Regime::ALL.into_iter().map(|regime| (regime, 1));
    for (regime, shards) in all.chain([(Regime::AppChannel, 2), (Regime::PerCpu, 2)]) {
        for (kind, len) in [
            (SendInfo::default(), 4),
            (SendInfo::default(), 9000),
            (segmented, 20_000),
        ] {
            let (net, seen, socket, sent) = exhausted(regime, shards, kind, len);
            assert!(sent > 50, "{regime}: {sent}");
            assert!(
                !socket.readiness().contains(Readiness::WRITABLE),
                "{regime}, {len}"
            );
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let waker = Waker::from(flag.clone());
            assert!(
                !socket.register(Readiness::WRITABLE, &waker),
                "{regime}, {len}"
            );
            std::thread::sleep(Duration::from_millis(20));
            assert!(!flag.0.load(SeqCst), "{regime}, {len}: woken for nothing");
            seen.most.store(64, SeqCst);
            wait_until(&net, &format!("{regime}, {len}: woken"), || {
                flag.0.load(SeqCst)
            });
            // Of several shards another may be short still.
            wait_until(&net, "writable", || {
                socket.readiness().contains(Readiness::WRITABLE)
            });
            let again = socket.send_message(&[IoSlice::new(&vec![0; len])], to(9), &kind);
            assert_eq!(again.unwrap(), len, "{regime}");
        }
    }
}
