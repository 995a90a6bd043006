//! A listener that another process was to serve: what is not accepted is reset, until this process looks at it again.

use std::{
    io::{ErrorKind, Read},
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime,
    link::wire,
    socket::{Domain, Kind, Readiness, Socket},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn count(net: &Net) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "drop_tcp_listener_unserved");
    row.map_or(0, |row| row["value"].as_u64().unwrap())
}

#[test]
fn a_listener_that_is_refused_resets_until_it_is_accepted_on() {
    for regime in [Regime::Locked, Regime::PerCpu, Regime::AppChannel] {
        let (ours, _end) = wire::pair(&wire::Options::default());
        let net = Net::builder().regime(regime).link_with(Box::new(ours));
        let net = net.address("10.0.0.1/24").unwrap().start().unwrap();
        let listener = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
        listener.bind("10.0.0.1:80".parse().unwrap()).unwrap();
        listener.listen(8).unwrap();
        let to = listener.local_address();
        let connect = || net.tcp().connect_timeout(to, PATIENCE);

        let mut waits = connect().unwrap();
        waits.set_read_timeout(Some(PATIENCE)).unwrap();
        while !listener.readiness().contains(Readiness::READABLE) {
            thread::yield_now(); // the end of the handshake is under way
        }
        listener.refuse();
        let learned = waits.read(&mut [0; 8]).unwrap_err();
        assert_eq!(learned.kind(), ErrorKind::ConnectionReset, "{regime:?}");
        assert_eq!(count(&net), 1, "{regime:?}: the one that waited");
        let refused = connect().expect_err("no stack serves it");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{regime:?}");
        assert_eq!(count(&net), 2, "{regime:?}: its SYN");

        let none = listener.accept().map(|_| ()).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock, "{regime:?}");
        let served = connect().unwrap();
        let (_, from) = loop {
            match listener.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                accepted => break accepted.unwrap(),
            }
        };
        assert_eq!(from, served.local_addr().unwrap(), "{regime:?}");
    }
}
