//! Where connections live, and what calls a link's thread.

use std::time::Duration;

use percore::doorbell::Sleep;

use crate::{Dispatch, Net, Regime, Threads, link::wire};

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
        let bell = &net.stack().ports[0].doorbell;
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
