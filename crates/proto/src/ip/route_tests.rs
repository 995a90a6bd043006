//! Longest prefix match against a naive model, and the table's limits.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn route(network: &str, prefix_len: u8, gateway: Option<&str>, interface: u16) -> Route {
    let via = gateway.map_or(Via::OnLink, |g| Via::Gateway(g.parse().unwrap()));
    Route {
        network: network.parse().unwrap(),
        prefix_len,
        next: NextHop { via, interface },
    }
}
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
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
    assert_eq!(table.remove(ip("10.77.0.0"), 24), 1);
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
            let new = Route { network, prefix_len, next: NextHop { via: Via::OnLink, interface } };
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
            prop_assert_eq!(table.remove(r.network, r.prefix_len), before - model.len());
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
