//! Small debts of a stack that mutation testing found unwatched (docs/mutants.md): what is refused is counted.

use std::time::Duration;

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, Socket},
};

struct Two {
    clock: Clock,
    nets: [Net; 2],
}

impl Two {
    fn new() -> Self {
        let clock = Clock::new_virtual();
        let (a, b) = wire::pair(&wire::Options::default());
        let start = |link, number: u64| {
            let builder = Net::builder().link_with(Box::new(link));
            let builder = builder.address(&format!("10.0.0.{number}/24")).unwrap();
            let builder = builder.regime(Regime::Giant).threads(Threads::Caller);
            builder.clock(clock.clone()).seed(number).start().unwrap()
        };
        let nets = [start(a, 1), start(b, 2)];
        Self { clock, nets }
    }

    fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() {
            while self.nets.iter().any(Net::poll) {}
            let now = self.clock.now();
            self.clock.advance_to(now + Duration::from_millis(1));
        }
    }

    fn counter(&self, net: usize, name: &str) -> u64 {
        let rows = self.nets[net].show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).unwrap();
        row["value"].as_u64().unwrap()
    }

    fn socket(&self, net: usize, kind: Kind) -> Socket {
        Socket::new(&self.nets[net], Domain::V4, kind).unwrap()
    }
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

/// As Linux counts them (ListenOverflows): SYNs that find the accept queue full.
#[test]
fn a_syn_at_a_full_accept_queue_is_counted() {
    let two = Two::new();
    let listener = two.socket(1, Kind::Stream);
    listener.bind(SERVER.into()).unwrap();
    listener.listen(1).unwrap();
    let clients: Vec<_> = (0..2).map(|_| two.socket(0, Kind::Stream)).collect();
    for client in &clients {
        let _ = client.connect(SERVER.into());
        two.pass(Duration::from_millis(20));
    }
    assert_eq!(
        two.counter(1, "drop_tcp_accept_queue_full"),
        0,
        "there is room for one more than the backlog"
    );
    let late = two.socket(0, Kind::Stream);
    let _ = late.connect(SERVER.into());
    two.pass(Duration::from_millis(20));
    assert_eq!(two.counter(1, "drop_tcp_accept_queue_full"), 1);
    assert!(listener.accept().is_ok());
    two.pass(Duration::from_secs(4));
    assert!(
        listener.accept().is_ok() && listener.accept().is_ok(),
        "the late one's SYN came again"
    );
}
