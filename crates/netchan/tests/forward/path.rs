//! Paths narrower than both ends know: how a connection through the router comes to fit.

use netchan::{Clock, Regime, Threads};

use crate::streams::{SERVER, World, counter, stream};

/// RFC 2923 §2.1: with its MSS clamped, no host sends what the router would have to refuse.
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

/// RFC 1191 §6.2, RFC 8201 §5.2: what one connection was told of a path, the next one to the same host knows.
#[test]
fn what_a_router_said_is_known_to_later_connections() {
    let world = World::new(Threads::Caller, &Clock::new_virtual(), 1280, |b| b);
    for server in SERVER {
        stream(&world, server, 100_000);
        let told = counter(&world.router, "drop_forward_too_big");
        assert!(told > 0, "{server}");
        stream(&world, server, 100_000);
        assert_eq!(counter(&world.router, "drop_forward_too_big"), told);
    }
}

/// Drops what the router would say about packets that are too long.
const SILENT: &str = r#"
[[module]]
name = "silence"
kind = "filter"
rules = ["drop out proto icmp"]
"#;

/// RFC 4821: the router drops long segments and no host hears why; shorter ones get through after some timeouts, or never if none probes.
#[test]
fn a_black_hole_is_passed_by_probing() {
    let config = netchan::config::Config::parse(SILENT, "x").unwrap();
    let silent = |builder: netchan::Builder| {
        let modules = config.modules.iter().map(|m| m.make().unwrap());
        modules.fold(builder, netchan::Builder::module)
    };
    let world = World::new(Threads::Caller, &Clock::new_virtual(), 1280, silent);
    stream(&world, SERVER[0], 500_000);
    let dropped = counter(&world.router, "drop_forward_too_big");
    assert!(dropped > 5, "{dropped}");
    let segments = counter(&world.client, "tcp_segments_out");
    assert!(
        segments < 500_000 / 900,
        "{segments} segments are shorter than they need be"
    );
}
