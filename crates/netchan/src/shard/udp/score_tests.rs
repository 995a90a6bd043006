//! Which of several sockets a datagram is for: the one that says most about it.

use crate::{
    Net, Threads,
    link::wire,
    socket::{Domain, Kind, Socket},
};

/// A socket as it might be bound and connected.
#[derive(Clone, Copy)]
struct As {
    local: &'static str,
    peer: Option<&'static str>,
    device: Option<u8>,
    v6_only: bool,
}

const BOUND: As = As {
    local: "10.0.0.1:700",
    peer: None,
    device: None,
    v6_only: false,
};

/// How well such sockets fit a datagram from 10.0.0.9:900 to 10.0.0.1:700 that came by interface 0.
fn scores(sockets: &[As]) -> Vec<Option<u8>> {
    let (a, _b) = wire::pair(&wire::Options::default());
    let builder = Net::builder()
        .threads(Threads::Caller)
        .link_with(Box::new(a));
    let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
    let bound = Socket::new(&net, Domain::V4, Kind::Datagram).unwrap();
    bound.bind(BOUND.local.parse().unwrap()).unwrap();
    net.stack().with_shard(0, |shard, _| {
        let (number, _) = shard.udp_sockets().next().unwrap();
        let socket = shard.udp.get_mut(number).unwrap();
        let mut score = |as_if: &As| {
            socket.local = as_if.local.parse().unwrap();
            socket.peer = as_if.peer.map(|peer| peer.parse().unwrap());
            socket.options.device = as_if.device;
            socket.v6_only = as_if.v6_only;
            let remote = "10.0.0.9:900".parse().unwrap();
            socket.score(BOUND.local.parse().unwrap(), remote, 0)
        };
        let scores = sockets.iter().map(&mut score).collect();
        score(&BOUND); // as it was
        scores
    })
}

/// As Linux's compute_score: connected before bound, an address before any, of one family before both.
#[test]
fn the_socket_that_says_most_of_a_datagram_has_it() {
    let any = |local| As { local, ..BOUND };
    let connected = |socket| As {
        peer: Some("10.0.0.9:900"),
        ..socket
    };
    let by_rank = [
        any("[::]:700"),
        any("0.0.0.0:700"),
        BOUND,
        connected(any("[::]:700")),
        connected(any("0.0.0.0:700")),
        connected(BOUND),
    ];
    let scores = scores(&by_rank);
    assert!(
        scores[0].is_some() && scores.is_sorted_by(|a, b| a < b),
        "{scores:?}"
    );
}

#[test]
fn a_datagram_for_other_ends_has_no_score() {
    let none = [
        As {
            local: "10.0.0.1:701",
            ..BOUND
        },
        As {
            local: "10.0.0.1:0",
            ..BOUND
        },
        As {
            local: "10.0.0.2:700",
            ..BOUND
        },
        As {
            local: "[fd00::1]:700",
            ..BOUND
        },
        As {
            local: "[::]:700",
            v6_only: true,
            ..BOUND
        },
        As {
            device: Some(1),
            ..BOUND
        },
        As {
            peer: Some("10.0.0.9:901"),
            ..BOUND
        },
        As {
            peer: Some("10.0.0.8:900"),
            ..BOUND
        },
        As {
            peer: Some("10.0.0.8:0"),
            ..BOUND
        },
    ];
    assert_eq!(scores(&none), [None; 9]);
}

/// A peer without a port is all of its host, and its link may be named.
#[test]
fn a_host_as_peer_and_its_own_link() {
    let same = [
        As {
            peer: Some("10.0.0.9:900"),
            ..BOUND
        },
        As {
            peer: Some("10.0.0.9:0"),
            ..BOUND
        },
        As {
            peer: Some("10.0.0.9:0"),
            device: Some(0),
            ..BOUND
        },
    ];
    let scores = scores(&same);
    assert!(scores[0].is_some() && scores[1..].iter().all(|score| *score == scores[0]));
}

/// An address of IPv6 that is not its own is no wildcard.
#[test]
fn another_address_of_its_family_is_not_its_own() {
    let (a, _b) = wire::pair(&wire::Options::default());
    let builder = Net::builder()
        .threads(Threads::Caller)
        .link_with(Box::new(a));
    let net = builder.address("fd77::1/64").unwrap().start().unwrap();
    let bound = Socket::new(&net, Domain::V6, Kind::Datagram).unwrap();
    bound.bind("[fd77::1]:700".parse().unwrap()).unwrap();
    net.stack().with_shard(0, |shard, _| {
        let (_, socket) = shard.udp_sockets().next().unwrap();
        let remote = "[fd77::9]:900".parse().unwrap();
        let score = |local: &str| socket.score(local.parse().unwrap(), remote, 0);
        assert_eq!(
            (score("[fd77::1]:700"), score("[fd77::2]:700")),
            (Some(3), None)
        );
    });
}
