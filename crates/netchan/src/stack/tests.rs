//! Where connections live, and what calls a link's thread.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use percore::doorbell::Sleep;

use crate::{
    Dispatch, Net, Regime, Threads,
    counters::Counter,
    limits::BURSTS_PER_TURN,
    link::{BURST, wire},
    socket::{Domain, Kind, Socket},
    stack::cell::Held,
};

fn net(threads: Threads) -> Net {
    let (a, _b) = wire::pair(&wire::Options::default());
    let builder = Net::builder().link_with(Box::new(a)).threads(threads);
    let builder = builder.regime(Regime::Locked).shards(4).seed(1);
    builder.address("10.0.0.1/24").unwrap().start().unwrap()
}

/// The shards of `count` connections.
fn shards_of(net: &Net, count: usize) -> Vec<usize> {
    let remote = ([10, 0, 0, 2], 80).into();
    let shard = |_| net.stack().shard_for_connect(None, 0, remote, 0).unwrap();
    (0..count).map(shard).collect()
}

#[test]
fn a_stack_turned_from_outside_does_not_depend_on_its_callers_threads() {
    for threads in [Threads::Caller, Threads::Stepped] {
        // Whatever number this thread, and each of those, has: every run is the same.
        for _ in 0..3 {
            let net = net(threads);
            let other = net.clone();
            let first = std::thread::spawn(move || shards_of(&other, 3));
            assert_eq!(first.join().unwrap(), [0, 1, 2]);
            assert_eq!(shards_of(&net, 6), [3, 0, 1, 2, 3, 0]);
        }
    }
}

#[test]
fn with_threads_a_callers_connections_live_together() {
    let net = net(Threads::Own);
    let mine = shards_of(&net, 8);
    assert!(mine.iter().all(|shard| *shard == mine[0]), "{mine:?}");
    let other = net.clone();
    let its = std::thread::spawn(move || shards_of(&other, 8));
    let its = its.join().unwrap();
    assert!(its.iter().all(|shard| *shard == its[0]), "{its:?}");
}

/// A socket call that leaves packets to ourselves, or timers, in a link's transmitting half calls that link's thread.
#[test]
fn what_only_a_link_can_do_calls_its_thread() {
    let modes = [
        (Regime::Giant, Dispatch::Direct),
        (Regime::Locked, Dispatch::Direct),
        (Regime::Locked, Dispatch::Hybrid),
    ];
    for (regime, dispatch) in modes {
        let (a, _b) = wire::pair(&wire::Options::default());
        let builder = Net::builder().link_with(Box::new(a));
        let builder = builder
            .threads(Threads::Stepped)
            .regime(regime)
            .dispatch(dispatch);
        let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
        let bell = &net.stack().driver.queues[0].doorbell;
        let calls = |what: &dyn Fn()| {
            bell.arm(Sleep::Futex);
            what();
            let called = bell.wait(Some(Duration::ZERO));
            bell.disarm();
            called
        };
        let socket = net.udp().bind("10.0.0.1:7").unwrap();
        assert!(!calls(&|| ()), "{regime} {dispatch:?}");
        let send = |to: [u8; 4]| {
            _ = socket
                .send_to(b"?", std::net::SocketAddr::from((to, 7)))
                .unwrap()
        };
        assert!(
            calls(&|| send([10, 0, 0, 1])),
            "{regime} {dispatch:?}: to itself"
        );
        // ARP asks again in a second.
        assert!(
            calls(&|| send([10, 0, 0, 2])),
            "{regime} {dispatch:?}: a timer"
        );
        assert!(
            !calls(&|| send([10, 0, 0, 2])),
            "{regime} {dispatch:?}: the same timer"
        );
    }
}

/// A caller looks at the clock, and another one has the shard before it: a connection that sent by the earlier time again would send old timestamps, which
/// its peer drops (RFC 7323 §5.3), as if they were lost on a link that loses nothing.
#[test]
fn a_shards_time_does_not_go_back() {
    for regime in Regime::here() {
        let (a, _b) = wire::pair(&wire::Options::default());
        let builder = Net::builder().link_with(Box::new(a)).regime(regime);
        let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
        let now = net.clock().now();
        let (later, hour) = (now + Duration::from_hours(1), Duration::from_hours(1));
        let stack = net.stack();
        stack.with_shard_at(0, later, |_, time| assert_eq!(time, later, "{regime}"));
        stack.with_shard_at(0, now, |_, time| assert_eq!(time, later, "{regime}"));
        stack.with_shard(0, |_, time| assert!(time >= later, "{regime}"));
        stack.with_shard_fresh(0, |_, time| assert!(time >= later, "{regime}"));
        stack.try_shard_at(0, now, |_, time| assert!(time >= later, "{regime}"));
        let next = later + hour;
        stack.with_shard_at(0, next, |_, time| assert_eq!(time, next, "{regime}"));
    }
}

/// More lies in a shard's channel than its thread takes before it sleeps, and no bell rings for the rest.
#[test]
fn what_is_left_after_a_turn_is_taken_by_the_next() {
    const MANY: usize = 3 * BURST * BURSTS_PER_TURN;
    let wire = wire::Options {
        ring: 2 * MANY,
        ..wire::Options::default()
    };
    let (here, there) = wire::pair(&wire);
    let net = |link, address: &str| {
        let builder = Net::builder().link_with(Box::new(link)).shards(1);
        let builder = builder.regime(Regime::AppChannel).address(address);
        builder.unwrap().start().unwrap()
    };
    let (server, client) = (net(here, "10.0.0.1/24"), net(there, "10.0.0.2/24"));
    let listener = server.tcp().listen("0.0.0.0:7").unwrap();
    let reader = server.udp().bind("0.0.0.0:9").unwrap();
    let sender = client.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.1:9").unwrap();
    reader.recv_from(&mut [0; 8]).unwrap(); // the neighbours know each other
    let accepting = std::thread::spawn(move || listener.accept().map(drop));
    let cell = &server.stack().sockets.cells[0];
    assert!(comes(|| cell.leader.is_led()), "it waits in accept");
    let mut held = cell.held.lock();
    let mut waiting = 0;
    // By another thread: this one holds a shard.
    let sending = std::thread::spawn(move || {
        (0..MANY).for_each(|_| assert_eq!(sender.send_to(b"x", "10.0.0.1:9").unwrap(), 1));
    });
    let came = comes(|| {
        waiting = held.channels()[0].received.len();
        waiting > 5 * MANY / 6
    });
    drop(held);
    assert!(came, "{waiting}");
    sending.join().unwrap();
    let is_empty = || {
        let all = |held: &mut Held| held.channels()[0].received.is_empty();
        server.stack().peek(0, all)
    };
    assert!(comes(is_empty), "packets that no thread takes");
    let stream = client.tcp().connect("10.0.0.1:7").unwrap();
    accepting.join().unwrap().unwrap();
    drop(stream);
}

/// Until something holds; a wait that ends without it has failed.
fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    (0..4000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        is_so()
    })
}

/// The timers of a shard run that the background poller has, and rests: one that a socket call starts, or that was started while a thread led the shard.
#[test]
fn timers_of_a_shard_run_while_the_background_poller_rests() {
    for is_in_background_first in [true, false] {
        let (here, _there) = wire::pair(&wire::Options::default());
        let builder = Net::builder().link_with(Box::new(here)).shards(1);
        let builder = builder.regime(Regime::AppChannel).address("10.0.0.1/24");
        let net = builder.unwrap().start().unwrap();
        let leader = &net.stack().sockets.cells[0].leader;
        let wait_at = |port: u16| {
            let socket = net.udp().bind(("0.0.0.0", port)).unwrap();
            std::thread::spawn(move || socket.recv_from(&mut [0; 8]).unwrap())
        };
        let first = wait_at(1);
        assert!(comes(|| leader.is_led()));
        let second = wait_at(2);
        assert!(comes(|| leader.followers.load(Relaxed) == 1));
        let end = |port: u16| {
            let own = net.udp().bind("0.0.0.0:0").unwrap();
            own.send_to(b"end", ("10.0.0.1", port)).unwrap();
        };
        let rests = || comes(|| net.stack().sockets.background.gate().is_closed());
        let connect = || {
            let connecting = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
            let _ = connecting.connect("10.0.0.2:7".parse().unwrap());
            connecting
        };
        // Its SYN is not answered, and sent again. A look at the connection would run the timers, too.
        let retransmits = || {
            let is_resent = || net.stack().control.counters.read(Counter::Retransmits) > 0;
            assert!(
                comes(is_resent),
                "in the background first: {is_in_background_first}"
            );
        };
        // The leader leaves the shard to the background poller, as the other one waits.
        if is_in_background_first {
            end(1);
            first.join().unwrap();
            assert!(comes(|| leader.is_in_background()) && rests());
            let _connecting = connect();
            retransmits();
        } else {
            assert!(rests());
            let _connecting = connect();
            end(1);
            first.join().unwrap();
            assert!(leader.is_in_background());
            retransmits();
        }
        end(2);
        second.join().unwrap();
    }
}
