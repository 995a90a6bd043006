//! Addresses and routes that come and go.

use super::*;
use crate::link::Segmentation;

fn network() -> Network {
    let interface = |number: u8| InterfaceFacts {
        name: format!("tap:nc{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        mtu_max: 1500,
        segmentation: Segmentation::None,
        addresses: Addresses::new(),
        lender: None,
        pipes: None,
    };
    Network {
        interfaces: vec![interface(0), interface(1)],
        loopback: None,
        routes: route::Table::new(),
    }
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn routes(net: &Network) -> Vec<String> {
    let text = |r: Route| format!("{}/{} #{}", r.network, r.prefix_len, r.next.interface);
    net.routes.iter().map(text).collect()
}

#[test]
fn a_network_stays_while_an_address_is_in_it() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    net.add_address(0, address("10.0.0.2/24")).unwrap();
    net.add_address(1, address("10.0.0.3/24")).unwrap();
    assert_eq!(routes(&net), ["10.0.0.0/24 #0", "10.0.0.0/24 #1"]);
    net.remove_address(0, "10.0.0.1".parse().unwrap()).unwrap();
    assert_eq!(routes(&net), ["10.0.0.0/24 #0", "10.0.0.0/24 #1"]);
    net.remove_address(0, "10.0.0.2".parse().unwrap()).unwrap();
    assert_eq!(routes(&net), ["10.0.0.0/24 #1"]);
    assert_eq!(net.interface_of("10.0.0.3".parse().unwrap()), Some(1));
}

#[test]
fn routes_go_with_the_network_of_their_gateway() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    net.add_address(0, address("10.0.1.1/24")).unwrap();
    net.add_address(1, address("10.0.2.1/24")).unwrap();
    let to = |text: &str| (text.parse().unwrap(), 16, 0);
    for (number, network, gateway) in [
        (0, "10.1.0.0", Some("10.0.0.9")),
        (0, "10.2.0.0", Some("10.0.1.9")),
        (0, "10.3.0.0", None),
        (1, "10.4.0.0", Some("10.0.2.9")),
    ] {
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        net.add_route(number, to(network), gateway).unwrap();
    }
    net.remove_address(0, "10.0.1.1".parse().unwrap()).unwrap();
    let left = [
        "10.0.0.0/24 #0",
        "10.0.2.0/24 #1",
        "10.1.0.0/16 #0",
        "10.3.0.0/16 #0",
        "10.4.0.0/16 #1",
    ];
    assert_eq!(routes(&net), left);
}

#[test]
fn the_first_address_of_ipv6_brings_the_link_local_one() {
    let mut net = network();
    net.add_address(0, address("fd00::1/64")).unwrap();
    net.add_address(0, address("fd01::1/64")).unwrap();
    let own: Vec<String> = (net.interfaces[0].addresses.iter())
        .map(|a| a.to_string())
        .collect();
    assert_eq!(own, ["fd00::1/64", "fe80::ff:fe00:0/64", "fd01::1/64"]);
    // One that says its own has no other.
    net.add_address(1, address("fe80::7/64")).unwrap();
    assert_eq!(net.interfaces[1].addresses.iter().count(), 1);
    // Another link may have the same; one link not twice.
    net.add_address(0, address("fe80::7/64")).unwrap();
    let why = net.add_address(0, address("fe80::7/64")).unwrap_err();
    assert_eq!(why, "tap:nc0 has fe80::7 already");
}

#[test]
fn a_full_table_says_so() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    let route = |n: u8| (IpAddr::from([10, 1, n, 0]), 24, 0);
    for n in 1..64 {
        net.add_route(0, route(n), None).unwrap();
    }
    let why = net.add_route(0, route(64), None).unwrap_err();
    assert_eq!(why, "route to 10.1.64.0/24: there are 64 routes already");
    // Another gateway of the same route takes no place.
    let gateway = Some("10.0.0.9".parse().unwrap());
    net.add_route(0, route(63), gateway).unwrap();
    let family = net.add_route(0, ("fd00::".parse().unwrap(), 8, 0), gateway);
    assert!(family.unwrap_err().contains("of another family"));
}

#[test]
fn loopback_keeps_its_addresses_and_takes_no_others() {
    let mut net = network();
    net.loopback = Some(1);
    net.add_address(1, address("127.0.0.1/8")).unwrap();
    let why = net.add_address(1, address("10.0.0.1/8")).unwrap_err();
    assert!(why.contains("loopback addresses only"), "{why}");
    let why = net.remove_address(1, "127.0.0.1".parse().unwrap());
    assert_eq!(why, Err("a loopback address stays".to_owned()));
}

/// Loopback addresses that leases share are on a link, and not its addresses: nothing that goes by these is for the link.
#[test]
fn lent_loopback_is_on_a_link_and_not_of_it() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    net.add_address(0, address("fd00::1/64")).unwrap();
    net.add_address(1, address("10.0.1.1/24")).unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(!net.lends_loopback(0) && !net.is_local(ip("127.0.0.1")));
    net.loopback = Some(0);
    assert!(net.lends_loopback(0) && !net.lends_loopback(1));
    assert_eq!(net.lo(), None);
    for (to, from) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.9.8.7", "127.0.0.1"),
        ("::1", "::1"),
    ] {
        assert!(net.is_local(ip(to)));
        assert_eq!(net.route(ip(to), 0), Some((0, ip(from))), "{to}");
        assert!(net.addresses_with(ip(to), 1).is_local(ip(to)));
        assert!(!net.interfaces[0].addresses.is_local(ip(to)));
        assert!(net.may_send(0, ip(to), ip(from)));
    }
    assert_eq!(net.this_host(ip("0.0.0.0")), Some(ip("127.0.0.1")));
    assert_eq!(net.this_host(ip("::")), Some(ip("::1")));
    // By neither link does anything leave from there.
    for number in [0, 1] {
        assert!(!net.may_send(number, ip("127.0.0.1"), ip("10.0.0.9")));
        assert!(!net.may_send(number, ip("::1"), ip("fd00::9")));
    }
    assert_eq!(net.source_for_family(ip("10.0.0.9")), Some(ip("10.0.0.1")));
    net.add_address(0, address("10.0.2.1/24")).unwrap(); // others are welcome there
    // Of a lease they are its lender's to lend.
    net.interfaces[0].lender = Some(MacAddr([2; 6]));
    assert!(!net.lends_loopback(0));
    // A `lo` of one's own is lent by itself.
    net.loopback = Some(1);
    net.interfaces[1].addresses = Addresses::new();
    net.add_address(1, address("127.0.0.1/8")).unwrap();
    net.interfaces[0].lender = None;
    assert!(net.lends_loopback(1) && !net.lends_loopback(0));
    assert_eq!(net.lo(), Some(1));
}

/// A route of its own that an application's packets take by their mark is not the network's.
#[test]
fn a_marked_route_to_the_network_stays() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    let marked = ("10.0.0.0".parse().unwrap(), 24, 7);
    net.add_route(0, marked, None).unwrap();
    net.remove_address(0, "10.0.0.1".parse().unwrap()).unwrap();
    let left: Vec<u32> = net.routes.iter().map(|r| r.mark).collect();
    assert_eq!(left, [7]);
}

/// SO_BINDTODEVICE: by that link where any route leads there; a group and a broadcast need none, and what is ours comes back.
#[test]
fn a_socket_of_a_device_leaves_by_it() {
    let mut net = network();
    net.add_address(0, address("10.0.0.1/24")).unwrap();
    net.add_address(1, address("10.0.1.1/24")).unwrap();
    let by = |net: &Network, device, to: &str| {
        let found = net.route_by(device, to.parse().unwrap(), 0);
        found.map(|(number, source)| (number, source.to_string()))
    };
    let by_0 = Some((0, "10.0.0.1".to_owned()));
    let by_1 = Some((1, "10.0.1.1".to_owned()));
    assert_eq!(by(&net, None, "10.0.0.9"), by_0);
    assert_eq!(by(&net, Some(1), "10.0.0.9"), by_1, "a route leads there");
    assert_eq!(by(&net, Some(1), "192.0.2.1"), None);
    for group in ["224.0.0.1", "10.0.1.255", "255.255.255.255"] {
        assert_eq!(by(&net, Some(1), group), by_1, "{group}");
    }
    let own = Some((0, "10.0.0.1".to_owned()));
    assert_eq!(by(&net, Some(1), "10.0.0.1"), own, "this host");
    assert_eq!(by(&net, Some(7), "10.0.0.9"), None, "no such link");
}

/// SO_BINDTODEVICE and SIOCGIFNAME: neither the kind of link nor what it was opened with is part of its name.
#[test]
fn a_device_is_called_by_its_name_alone() {
    let mut facts = network().interfaces.remove(0);
    for (name, device) in [
        ("tap:nc0,peer=10.0.0.1/24", "nc0"),
        ("packet:eth0", "eth0"),
        ("daemon:tap:nc0", "nc0"),
        ("daemon:wire", "wire"),
        ("wire", "wire"),
        ("lo,x", "lo"),
    ] {
        name.clone_into(&mut facts.name);
        assert_eq!(facts.device(), device);
    }
}
