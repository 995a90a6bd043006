//! Path MTU: lowered, aged, never raised; negative 33.

use super::*;

const T0: Instant = Instant(1_000_000_000);
fn cache() -> Cache {
    Cache::new(4, Seed([3, 4]))
}
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn lowered_then_aged() {
    let (mut c, to) = (cache(), ip("192.0.2.1"));
    assert_eq!(c.lookup(to, 1500, T0), 1500);
    assert_eq!(c.report(to, 1400, 1500, 1500, T0), Learned::Lowered(1400));
    assert_eq!(c.lookup(to, 1500, T0), 1400);
    assert_eq!(
        c.lookup(to, 1000, T0),
        1000,
        "the link's own is the ceiling"
    );
    assert_eq!(c.lookup(to, 1500, T0 + LIFETIME), 1500);
    assert_eq!(
        c.report(to, 1450, 1500, 1500, T0 + LIFETIME),
        Learned::Lowered(1450)
    );
    c.forget(to);
    assert_eq!(c.lookup(to, 1500, T0), 1500);
}

#[test]
fn negative_33_limits() {
    let (mut c, v4, v6) = (cache(), ip("192.0.2.1"), ip("fd77::1"));
    for mtu in [1, 67] {
        assert_eq!(c.report(v4, mtu, 1500, 1500, T0), Learned::Impossible);
    }
    for mtu in [0, 68, 1279] {
        assert_eq!(c.report(v6, mtu, 1500, 1500, T0), Learned::Impossible);
    }
    for mtu in [1500, 1501, 65536, u32::MAX] {
        assert_eq!(c.report(v4, mtu, 1500, 1500, T0), Learned::NotLower);
    }
    assert_eq!(c.report(v6, 1280, 1500, 1500, T0), Learned::Lowered(1280));
    assert_eq!(
        c.report(v6, 1400, 1500, 1500, T0),
        Learned::NotLower,
        "RFC 8201 §4: never raised"
    );
    assert_eq!(c.report(v4, 68, 1500, 1500, T0), Learned::Lowered(68));
}

#[test]
fn old_routers_step_down_the_plateaus() {
    let (mut c, to) = (cache(), ip("192.0.2.1"));
    for want in [1492, 1006, 508, 296, 68] {
        let sent = c.lookup(to, 1500, T0);
        assert_eq!(c.report(to, 0, sent, 1500, T0), Learned::Lowered(want));
    }
    assert_eq!(c.report(to, 0, 68, 1500, T0), Learned::NotLower);
}

#[test]
fn a_flood_of_destinations_stays_within_the_capacity() {
    let mut c = cache();
    for n in 0..100u8 {
        let to = IpAddr::from([192, 0, 2, n]);
        assert_eq!(c.report(to, 1300, 1500, 1500, T0), Learned::Lowered(1300));
    }
    assert_eq!(c.iter().count(), 4);
}
