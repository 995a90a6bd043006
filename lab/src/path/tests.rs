//! Both sides do what the rows say they do; how fast is not a test's business.

use super::{netchan_side::NetchanPair, *};

fn exercise(pair: &mut dyn Pair) {
    pair.round_trips(50, 1);
    pair.round_trips(50, MESSAGE_MAX);
    pair.bulk(300_000);
    pair.connections(20);
    pair.crowds(3);
    pair.round_trips(5, 1);
    pair.bulk(10);
}

/// The setups of the rows, with fewer idle connections.
fn setups() -> Vec<Setup> {
    let basic = Setup::default();
    let large = Setup {
        mtu: 65_535,
        chunk: 1 << 16,
        ..basic
    };
    vec![
        basic,
        large,
        Setup {
            checksums: false,
            ..basic
        },
        Setup { idle: 40, ..basic },
    ]
}

#[test]
fn the_peer_does_the_work() {
    for setup in setups() {
        for medium in [Medium::Ip, Medium::Ethernet] {
            for burst in [1, 8] {
                let tuning = Tuning {
                    medium,
                    burst,
                    ..Tuning::default()
                };
                exercise(&mut SmoltcpPair::new(setup, tuning));
            }
        }
    }
}

#[test]
fn the_rows_of_the_issue_are_there() {
    let contests = contests(&Effort::QUICK);
    let ids: Vec<_> = contests.iter().map(|c| c.id).collect();
    for id in [
        "rr_ns",
        "bulk_1500_gbit_per_s",
        "bulk_65535_gbit_per_s",
        "connections_per_s",
        "connections_64_at_once_per_s",
        "rr_idle_0_ns",
        "rr_idle_100_ns",
        "rr_idle_1000_ns",
        "rr_idle_10000_ns",
    ] {
        assert!(ids.contains(&id), "{id}");
    }
}

#[test]
fn netchan_does_the_work() {
    for setup in setups() {
        exercise(&mut NetchanPair::new(setup).expect("a pair"));
    }
}

/// The end that closes first keeps a record in TIME-WAIT, not the connection: the table does not fill up.
#[test]
fn connections_that_are_over_leave_room() {
    let mut pair = NetchanPair::new(Setup::default()).expect("a pair");
    pair.connections(netchan::limits::CONNECTIONS_PER_SHARD + 1000);
}
