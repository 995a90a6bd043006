//! Paths narrower than both ends know: how a connection through the router comes to fit.

use netchan::{Clock, Regime, Threads};

use crate::streams::{SERVER, World, counter, stream};

/// RFC 2923 §2.1: with its MSS clamped, nobody sends what the router would have to refuse.
#[test]
fn clamped_syns_need_no_icmp() {
    for regime in [Regime::Giant, Regime::Locked] {
        let settings = |b: netchan::Builder| b.regime(regime).mss_clamp(true);
        let world = World::new(Threads::Caller, &Clock::new_virtual(), 1280, settings);
        for server in SERVER {
            stream(&world, server, 100_000);
        }
        assert_eq!(counter(&world.router, "drop_forward_too_big"), 0);
        for net in [&world.client, &world.server] {
            assert_eq!(counter(net, "drop_tcp_checksum"), 0);
        }
        assert!(counter(&world.router, "forwarded") > 2 * 100_000 / 1240);
    }
}
