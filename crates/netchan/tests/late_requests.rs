//! A link with several queues: a shard says that a flow is its own while a queue receives, after that queue has looked for such requests. What comes in
//! by it then is found by the shard all the same.

#[path = "../../../lab/tests/simulation/fan.rs"]
mod fan;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use fan::Fan;
use netchan::{
    Clock, Doorbell, Instant, Net, Regime, Slab, Threads,
    link::{Link, LinkError, LinkRx, Properties, Queue, RxStatistics, wire},
    packet::Packet,
    socket::{Domain, Kind, Socket},
    steps::Steps,
};
use proto::wire::{
    checksum::{self, Partial},
    ipv4::{self, Protocol},
    tcp::{self, Flags, SeqNum},
};

/// What comes in by which queue, while the rest of the stack goes on.
type Late = Arc<Mutex<Option<(usize, Net, Vec<u8>)>>>;

/// A link whose queues receive that.
struct LateLink(Fan, Late);

impl Link for LateLink {
    fn properties(&self) -> &Properties {
        self.0.properties()
    }

    fn queues(&self) -> usize {
        self.0.queues()
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let Self(fan, late) = *self;
        let queues = Box::new(fan).start(bells)?.into_iter().enumerate();
        let with_late = |(number, Queue { rx, tx })| Queue {
            rx: Box::new(LateRx(rx, number, late.clone())),
            tx,
        };
        Ok(queues.map(with_late).collect())
    }
}

struct LateRx(Box<dyn LinkRx>, usize, Late);

impl LinkRx for LateRx {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let mut late = self.2.lock().unwrap();
        let is_here = (late.as_ref()).is_some_and(|(queue, ..)| *queue == self.1);
        let Some((_, net, frame)) = late.take_if(|_| is_here) else {
            drop(late);
            return self.0.receive(now, slab, burst, max);
        };
        drop(late);
        net.poll();
        let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
        packet.room_mut()[..frame.len()].copy_from_slice(&frame);
        packet.set_len(frame.len());
        burst.push_back(packet);
        Ok(1)
    }

    fn next_event(&mut self) -> Instant {
        self.0.next_event()
    }

    fn statistics(&self) -> RxStatistics {
        self.0.statistics()
    }
}

/// A SYN from 10.0.0.2 port 5000 to 10.0.0.1 port 7, in a frame for this station.
fn syn(mac: [u8; 6]) -> Vec<u8> {
    let (from, to) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let header = tcp::Header {
        source_port: 5000,
        destination_port: 7,
        seq: SeqNum(1000),
        ack: SeqNum(0),
        flags: Flags::SYN,
        window: 1000,
        urgent: 0,
        options: tcp::Options::default(),
    };
    let mut segment = [0; 20];
    header.emit_with_checksum(&mut segment, Partial::ZERO, 0, from, to);
    let mut ip = [0; 20];
    ipv4::Header::new(Protocol::TCP, [10, 0, 0, 2].into(), [10, 0, 0, 1].into()).emit(20, &mut ip);
    assert!(checksum::is_valid(checksum::sum(&ip)));
    [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip, &segment].concat()
}

#[test]
fn a_shards_request_is_heard_before_a_flow_is_placed() {
    for regime in [Regime::SocketChannel, Regime::AppChannel] {
        let (a, _b) = wire::pair(&wire::Options::default());
        let late = Late::default();
        let link = Fan {
            link: Box::new(a),
            queues: 2,
        };
        let link = Box::new(LateLink(link, late.clone()));
        let builder = Net::builder().link_with(link).regime(regime);
        let builder = builder
            .threads(Threads::Stepped)
            .clock(Clock::new_virtual());
        let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
        let mut steps = Steps::new(&net).unwrap();
        let listener = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
        listener.bind("10.0.0.1:7".parse().unwrap()).unwrap();
        listener.listen(8).unwrap();
        // The SYN, and the same once more by the other queue, to which the answer has moved its flow.
        for queue in 0..2 {
            let frame = syn(net.links()[0].mac);
            *late.lock().unwrap() = Some((queue, net.clone(), frame));
            steps.step(queue);
            assert!(late.lock().unwrap().is_none(), "queue {queue} has received");
        }
        while (0..steps.roles()).fold(false, |moved, role| steps.step(role) | moved) {}
        let sockets = net.show("sockets").unwrap();
        let sockets = sockets.as_array().unwrap().iter();
        let opening: Vec<_> = sockets.filter(|row| row["state"] == "SYN-RECV").collect();
        assert_eq!(opening.len(), 1, "{regime:?}: {opening:?}");
    }
}
