//! Connections whose routes change.

use std::net::IpAddr;

use proto::ip::address::Addresses;

use super::*;
use crate::{
    shard::tests::World,
    socket::{Socket, SocketOption},
};

/// The first host's networks with two links more, and routes to single hosts by one of them for a mark.
fn with_routes(world: &World, routes: &[(usize, u32)]) -> Arc<Network> {
    let mut net = Network::clone(&world.nets[0].stack().control.host.network());
    for number in 1..3_u8 {
        let mut facts = net.interfaces[0].clone();
        facts.addresses = Addresses::default();
        (facts.name, facts.mtu) = (format!("wire:more{number}"), 1000);
        net.interfaces.push(facts);
        let address = format!("10.{number}.0.1/24").parse().unwrap();
        net.add_address(number.into(), address).unwrap();
    }
    for (number, mark) in routes {
        let to: IpAddr = [10, 0, 0, 2].into();
        net.add_route(*number, (to, 32, *mark), None).unwrap();
    }
    Arc::new(net)
}

/// The shard goes by these networks from now on: the link and the segment size of its only connection.
fn change(world: &World, net: &Arc<Network>) -> (u8, u16) {
    world.shard(0, |shard, _| {
        let before = std::mem::replace(&mut shard.host.net, net.clone());
        shard.networks_changed(&before);
        let (_, socket) = shard.connections().next().unwrap();
        (socket.interface(), socket.connection.send_mss())
    })
}

fn connected() -> (World, [Socket; 2], Arc<Network>) {
    let world = World::new();
    let (client, server) = world.connection();
    let usual = with_routes(&world, &[]);
    (world, [client, server], usual)
}

/// RFC 1191 §3: where its route leads elsewhere a connection goes along, with segments that the link takes, whichever it is.
#[test]
fn a_connection_goes_where_its_route_leads() {
    let (world, _ends, usual) = connected();
    let (link, whole) = change(&world, &usual);
    assert_eq!((link, whole > 1400), (0, true));
    let (link, short) = change(&world, &with_routes(&world, &[(1, 0)]));
    assert_eq!(link, 1);
    assert!(short <= 960 && short > 900, "{short} of 1000 bytes");
    assert_eq!(change(&world, &usual), (0, whole));
}

/// One that left by another link than its route's stays there.
#[test]
fn a_connection_that_left_elsewhere_stays() {
    let (world, _ends, usual) = connected();
    change(&world, &usual);
    world.shard(0, |shard, _| {
        let (number, _) = shard.connections().next().unwrap();
        shard.tcp_mut(number).unwrap().interface = 2;
    });
    assert_eq!(change(&world, &with_routes(&world, &[(1, 0)])).0, 2);
}

/// A route for marked packets is for connections with this mark (SO_MARK), and for no others.
#[test]
fn a_marked_route_leads_marked_connections() {
    for mark in [7, 0] {
        let (world, [client, _server], usual) = connected();
        client.set_option(SocketOption::Mark(mark)).unwrap();
        change(&world, &usual);
        let (link, _) = change(&world, &with_routes(&world, &[(1, 7)]));
        assert_eq!(link, u8::from(mark == 7));
    }
}

/// To an address that becomes our own, text takes the short cut: uncut, without checksums. When it is no longer ours, it is cut again.
#[test]
fn an_address_that_becomes_ours_takes_the_short_cut() {
    let (world, _ends, usual) = connected();
    let segmentation = |net: &Arc<Network>| {
        change(&world, net);
        world.shard(0, |shard, _| {
            shard.connections().next().unwrap().1.segmentation
        })
    };
    let mut with_peer = Network::clone(&usual);
    with_peer
        .add_address(1, "10.0.0.2/32".parse().unwrap())
        .unwrap();
    let links = usual.interfaces[0].segmentation;
    assert!(!links.is_offloaded());
    assert_eq!(segmentation(&usual), links);
    assert!(segmentation(&Arc::new(with_peer)).is_offloaded());
    assert_eq!(segmentation(&usual), links);
}

/// A link's MTU falls and rises again: its connections go along at once, those of others do not.
#[test]
fn a_connections_segments_fit_its_link() {
    let (world, _ends, usual) = connected();
    let with = |number: usize, mtu: usize| {
        let mut net = Network::clone(&usual);
        net.interfaces[number].mtu = mtu;
        Arc::new(net)
    };
    let (_, whole) = change(&world, &usual);
    assert_eq!(change(&world, &with(1, 700)), (0, whole), "another's");
    let options = 1460 - whole;
    assert_eq!(change(&world, &with(0, 1000)), (0, 960 - options));
    assert_eq!(change(&world, &with(0, 576)), (0, 536 - options));
    assert_eq!(change(&world, &usual), (0, whole));
}
