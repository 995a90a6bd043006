//! Longest prefix match against a naive model, and the table's limits.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn route(network: &str, prefix_len: u8, gateway: Option<&str>, interface: u16) -> Route {
    let via = gateway.map_or(Via::OnLink, |g| Via::Gateway(g.parse().unwrap()));
    Route {
        network: network.parse().unwrap(),
        prefix_len,
        mark: 0,
        next: NextHop { via, interface },
    }
}
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Removes all routes to a network; how many there were.
fn remove(table: &mut Table, network: IpAddr, prefix_len: u8) -> usize {
    table.retain(|r| (r.network, r.prefix_len) != (network, prefix_len))
}

#[test]
fn longest_prefix_wins_and_default_is_last() {
    let mut table = Table::new();
    table
        .add(route("0.0.0.0", 0, Some("10.77.0.1"), 1))
        .unwrap();
    table.add(route("10.77.0.9", 24, None, 1)).unwrap();
    table
        .add(route("10.0.0.0", 8, Some("10.77.0.2"), 1))
        .unwrap();
    table.add(route("fd77::", 64, None, 1)).unwrap();
    let hop = |to: &str| table.lookup(ip(to)).map(|n| n.neighbor(ip(to)));
    assert_eq!(hop("10.77.0.5"), Some(ip("10.77.0.5")));
    assert_eq!(hop("10.78.0.5"), Some(ip("10.77.0.2")));
    assert_eq!(hop("192.0.2.1"), Some(ip("10.77.0.1")));
    assert_eq!(hop("fd77::5"), Some(ip("fd77::5")));
    assert_eq!(hop("fd78::5"), None, "no default for IPv6");
    assert_eq!(table.iter().count(), 4);
    assert_eq!(remove(&mut table, ip("10.77.0.0"), 24), 1);
    assert_eq!(
        table
            .lookup(ip("10.77.0.5"))
            .map(|n| n.neighbor(ip("10.77.0.5"))),
        Some(ip("10.77.0.2"))
    );
}

#[test]
fn bad_routes_are_refused() {
    let mut table = Table::new();
    assert_eq!(
        table.add(route("10.0.0.0", 33, None, 0)),
        Err(RouteError::Mismatch)
    );
    assert_eq!(
        table.add(route("10.0.0.0", 8, Some("fe80::1"), 0)),
        Err(RouteError::Mismatch)
    );
    for gateway in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        assert_eq!(
            table.add(route("10.0.0.0", 8, Some(gateway), 0)),
            Err(RouteError::Gateway)
        );
    }
    for n in 0..ROUTES_MAX {
        table
            .add(route(&std::format!("10.{n}.0.0"), 16, None, 0))
            .unwrap();
    }
    assert_eq!(
        table.add(route("11.0.0.0", 8, None, 0)),
        Err(RouteError::Full)
    );
    assert_eq!(
        table.add(route("10.3.0.0", 16, None, 0)),
        Ok(()),
        "replacing needs no room"
    );
}

proptest! {
    #[test]
    fn agrees_with_a_naive_search(
        routes in prop::collection::vec((0u32..0x1000, 20u8..=32, 0u16..4), 0..40),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        asked in prop::collection::vec(0u32..0x1000, 1..50),
    ) {
        let mut table = Table::new();
        let mut model: Vec<Route> = Vec::new();
        for (net, prefix_len, interface) in routes {
            let network = IpAddr::V4(Ipv4Addr::from_bits(net & mask4(prefix_len)));
            let new = Route { network, prefix_len, mark: 0, next: NextHop { via: Via::OnLink, interface } };
            prop_assert_eq!(table.add(new), Ok(()));
            if !model.contains(&new) {
                model.push(new);
            }
        }
        for index in gone {
            if model.is_empty() { break }
            let r = model[index.index(model.len())];
            let before = model.len();
            model.retain(|m| (m.network, m.prefix_len) != (r.network, r.prefix_len));
            prop_assert_eq!(remove(&mut table, r.network, r.prefix_len), before - model.len());
        }
        for dst in asked {
            let covers = |r: &&Route| {
                let IpAddr::V4(net) = r.network else { return false };
                dst & mask4(r.prefix_len) == net.to_bits()
            };
            let want = model.iter().filter(covers).map(|r| r.prefix_len).max();
            let got = table.lookup(IpAddr::V4(Ipv4Addr::from_bits(dst)));
            prop_assert_eq!(got.is_some(), want.is_some());
            if let Some(next) = got {
                let chosen = |r: &&Route| Some(r.prefix_len) == want && r.next == next;
                prop_assert!(model.iter().filter(covers).any(|r| chosen(&r)));
            }
        }
    }
}

fn marked(network: &str, prefix_len: u8, gateway: &str, mark: u32) -> Route {
    let gateway = (!gateway.is_empty()).then_some(gateway);
    Route {
        mark,
        ..route(network, prefix_len, gateway, 1)
    }
}

/// A route for a packet's mark goes before those for all, however specific these are; one for another mark is none for it.
#[test]
fn a_mark_goes_first_and_another_mark_is_no_way() {
    let mut table = Table::new();
    table
        .add(route("0.0.0.0", 0, Some("10.77.0.1"), 1))
        .unwrap();
    table
        .add(route("10.0.0.0", 8, Some("10.77.0.2"), 1))
        .unwrap();
    assert!(!table.depends_on_mark(ip("192.0.2.1")));
    for (network, len, gateway, mark) in [
        ("0.0.0.0", 0, "10.77.0.7", 7),
        ("192.0.2.200", 24, "10.77.0.8", 7),
        ("0.0.0.0", 0, "10.77.0.9", 9),
        ("fd00::", 8, "fe80::7", 7),
    ] {
        table.add(marked(network, len, gateway, mark)).unwrap();
    }
    let hop = |to: &str, mark| {
        let next = table.lookup_marked(ip(to), mark);
        next.map(|n| n.neighbor(ip(to)))
    };
    for (mark, near, far, v6) in [
        (0, "10.77.0.2", "10.77.0.1", None),
        (7, "10.77.0.7", "10.77.0.8", Some(ip("fe80::7"))),
        (9, "10.77.0.9", "10.77.0.9", None),
        (8, "10.77.0.2", "10.77.0.1", None),
    ] {
        assert_eq!(hop("10.1.1.1", mark), Some(ip(near)), "{mark}");
        assert_eq!(hop("192.0.2.1", mark), Some(ip(far)), "{mark}");
        assert_eq!(hop("fd00::1", mark), v6, "{mark}");
    }
    assert_eq!(table.lookup(ip("fd00::1")), None, "no route without a mark");
    assert!(table.depends_on_mark(ip("192.0.2.1")) && table.depends_on_mark(ip("fd00::1")));
    assert!(!table.depends_on_mark(ip("2001:db8::1")));
    assert_eq!(table.iter().filter(|r| r.mark != 0).count(), 4);
    // Replaced; one for another interface stands beside it.
    table.add(marked("0.0.0.0", 0, "10.77.0.6", 7)).unwrap();
    let other = Route {
        next: NextHop {
            via: Via::Gateway(ip("10.78.0.6")),
            interface: 2,
        },
        ..marked("0.0.0.0", 0, "", 7)
    };
    table.add(other).unwrap();
    assert_eq!(table.iter().filter(|r| r.mark != 0).count(), 5);
    let by = |mark, interface| {
        let to = ip("198.51.100.1");
        table.lookup_by(to, interface, mark).map(|n| n.neighbor(to))
    };
    assert_eq!(by(7, 2), Some(ip("10.78.0.6")));
    assert_eq!((by(9, 2), by(0, 2)), (None, None), "another mark's");
    assert_eq!(
        (by(7, 1), by(0, 1)),
        (Some(ip("10.77.0.6")), Some(ip("10.77.0.1")))
    );
    // All to a network go together.
    assert_eq!(remove(&mut table, ip("0.0.0.0"), 0), 4);
    assert_eq!(table.lookup_marked(ip("198.51.100.1"), 7), None);
}

#[test]
fn marked_routes_have_the_same_bounds() {
    let mut table = Table::new();
    let refused = table.add(marked("10.0.0.0", 33, "10.77.0.1", 1));
    assert_eq!(refused, Err(RouteError::Mismatch));
    let refused = table.add(marked("10.0.0.0", 8, "224.0.0.1", 1));
    assert_eq!(refused, Err(RouteError::Gateway));
    for mark in 1..=u32::try_from(ROUTES_MAX).unwrap() {
        table.add(marked("0.0.0.0", 0, "10.77.0.1", mark)).unwrap();
    }
    let refused = table.add(marked("0.0.0.0", 0, "10.77.0.1", 1 << 31));
    assert_eq!(refused, Err(RouteError::Full));
    assert!(table.add(route("0.0.0.0", 0, Some("10.77.0.1"), 1)).is_ok());
}
