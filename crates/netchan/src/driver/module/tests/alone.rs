//! Each module by itself.

use std::net::IpAddr;

use proptest::prelude::*;
use proto::{ip::keyed::Seed, time::Instant, wire::ipv4::Protocol};

use super::packet;
use crate::{
    driver::module::{
        Boxed, Module, Point, Verdict, View,
        filter::{Filter, Rule, Rules},
        ledger::Ledger,
        limiter::{Limit, Limiter, Unit},
    },
    giant::Concurrency,
};

const SECOND: u64 = 1_000_000_000;

fn filter(rules: &[&str], default: Verdict) -> Filter {
    let rules = rules.iter().map(|text| text.parse().unwrap()).collect();
    Filter::new("filter", Rules { rules, default })
}

fn ask(module: &dyn Module, point: Point, bytes: &[u8]) -> Verdict {
    module.packet(point, &View::parse(bytes).unwrap(), Instant::ZERO)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let filter = filter(
        &[
            "pass in proto tcp from 10.0.0.0/8 to any port 80",
            "drop in proto tcp to any port 1-1023",
            "drop out proto udp to 192.0.2.7 port 53",
            "drop from fd00:1::/32",
        ],
        Verdict::Pass,
    );
    let tcp = |from, to, port| packet(from, to, Protocol::TCP, (40_000, port));
    let udp = |from, to, port| packet(from, to, Protocol::UDP, (40_000, port));
    let (pass, drop) = (Verdict::Pass, Verdict::Drop);
    for (point, bytes, expected) in [
        (Point::In, tcp("10.1.2.3", "10.0.0.1", 80), pass),
        (Point::In, tcp("11.1.2.3", "10.0.0.1", 80), drop),
        (Point::Out, tcp("11.1.2.3", "10.0.0.1", 80), pass),
        (Point::In, tcp("10.1.2.3", "10.0.0.1", 443), drop),
        (Point::In, tcp("10.1.2.3", "10.0.0.1", 1024), pass),
        (Point::In, udp("10.1.2.3", "10.0.0.1", 443), pass),
        (Point::Out, udp("10.0.0.1", "192.0.2.7", 53), drop),
        (Point::Out, udp("10.0.0.1", "192.0.2.8", 53), pass),
        (Point::In, udp("10.0.0.1", "192.0.2.7", 53), pass),
        (Point::In, udp("fd00:1::9", "fd00::1", 9), drop),
        (Point::Out, udp("fd00:1::9", "fd00::1", 9), drop),
        (Point::In, udp("fd00:2::9", "fd00::1", 9), pass),
        (Point::In, tcp("fd00:2::9", "fd00::1", 22), drop),
    ] {
        assert_eq!(ask(&filter, point, &bytes), expected, "{point:?} {bytes:?}");
    }
}

#[test]
fn what_no_rule_matches_gets_the_default() {
    let filter = filter(&["pass proto icmp"], Verdict::Drop);
    let icmp = packet("10.0.0.1", "10.0.0.2", Protocol::ICMP, (0, 0));
    let icmp6 = packet("fd00::1", "fd00::2", Protocol::ICMPV6, (0, 0));
    assert_eq!(ask(&filter, Point::In, &icmp), Verdict::Pass);
    assert_eq!(ask(&filter, Point::In, &icmp6), Verdict::Drop);
}

/// A rule with a port says nothing of what has none: another protocol, a later fragment, a header that is cut short.
#[test]
fn a_port_asks_for_a_port() {
    let filter = filter(&["pass to any port 0-65535"], Verdict::Drop);
    let whole = packet("10.0.0.1", "10.0.0.2", Protocol::UDP, (1, 2));
    assert_eq!(ask(&filter, Point::Out, &whole), Verdict::Pass);
    let mut later = whole.clone();
    later[7] = 1; // its offset: 8 bytes
    assert!(View::parse(&later).unwrap().is_fragment());
    assert_eq!(ask(&filter, Point::Out, &later), Verdict::Drop);
    let mut first = whole.clone();
    first[6] = 0x20; // more fragments follow
    assert!(View::parse(&first).unwrap().is_fragment());
    assert_eq!(ask(&filter, Point::Out, &first), Verdict::Pass);
    assert_eq!(ask(&filter, Point::Out, &whole[..23]), Verdict::Drop);
    let other = packet("10.0.0.1", "10.0.0.2", Protocol(132), (1, 2));
    assert_eq!(ask(&filter, Point::Out, &other), Verdict::Drop);
}

#[test]
fn rules_that_cannot_be_meant_are_refused() {
    for (text, named) in [
        ("", "is empty"),
        ("allow", "allow"),
        ("pass sideways", "sideways"),
        ("pass proto", "proto ``"),
        ("pass proto ip", "proto `ip`"),
        ("pass proto 256", "256"),
        ("drop from", "from where"),
        ("drop from 10.0.0", "10.0.0"),
        ("drop from 10.0.0.0/33", "10.0.0.0/33"),
        ("drop from 10.0.0.1/8", "10.0.0.0/8 is the network"),
        ("drop to fd00::1/64", "fd00::/64 is the network"),
        ("drop to any port", "which port"),
        ("drop to any port 70000", "70000"),
        ("drop to any port 9-8", "9-8"),
        ("drop to any port 80 in", "`in` is out of place"),
        ("drop port 80", "`port` is out of place"),
        ("drop proto icmp to any port 1", "only tcp and udp"),
        ("drop from 10.0.0.0/8 to fd00::/8", "no packet matches"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let limit = Limit {
        burst: 5,
        ..Limit::packets(10)
    };
    let limiter = Limiter::with_key("limiter", limit, Seed([1, 2])).unwrap();
    let peer: IpAddr = "10.0.0.1".parse().unwrap();
    let passed = |at: u64| {
        (0..100)
            .filter(|_| limiter.take(peer, 1, Instant(at)))
            .count()
    };
    assert_eq!(passed(7 * SECOND), 5);
    assert_eq!(passed(7 * SECOND), 0);
    assert_eq!(passed(7 * SECOND + SECOND / 10), 1);
    assert_eq!(passed(8 * SECOND), 5, "9 tokens came, 5 fit");
    // A clock that stands still or goes back gives nothing away, and takes nothing.
    assert_eq!(passed(6 * SECOND), 0);
    assert_eq!(passed(60 * SECOND), 5);
}

#[test]
fn bytes_are_counted_and_a_large_packet_waits_for_a_full_bucket() {
    let limit = Limit {
        unit: Unit::Bytes,
        burst: 1000,
        ..Limit::packets(1000)
    };
    let limiter = Limiter::with_key("limiter", limit, Seed([1, 2])).unwrap();
    let peer: IpAddr = "fd00::1".parse().unwrap();
    let take = |n, at| limiter.take(peer, n, Instant(at));
    assert!(take(600, SECOND) && take(400, SECOND) && !take(1, SECOND));
    assert!(!take(9000, 2 * SECOND - 1), "not quite full");
    assert!(
        take(9000, 2 * SECOND),
        "full: it passes, and is paid for later"
    );
    assert!(!take(1, 10 * SECOND) && take(1, 11 * SECOND));
}

#[test]
fn each_prefix_has_its_own_bucket() {
    let limit = Limit {
        each: Some((24, 64)),
        burst: 1,
        ..Limit::packets(1)
    };
    let limiter = Limiter::with_key("limiter", limit, Seed([1, 2])).unwrap();
    let take = |ip: &str| limiter.take(ip.parse().unwrap(), 1, Instant(SECOND));
    assert!(take("10.0.0.1") && !take("10.0.0.2"), "one /24");
    assert!(take("10.0.1.1"), "another");
    assert!(take("fd00::1") && !take("fd00::2"), "one /64");
    assert!(take("fd00:0:0:1::1"), "another");
}

#[test]
fn limits_out_of_range_are_refused() {
    let wrong = [
        Limit::packets(0),
        Limit::packets(2_000_000_000),
        Limit {
            burst: 0,
            ..Limit::packets(1)
        },
        Limit {
            each: Some((33, 64)),
            ..Limit::packets(1)
        },
        Limit {
            each: Some((24, 129)),
            ..Limit::packets(1)
        },
        Limit {
            table: 3,
            ..Limit::packets(1)
        },
        Limit {
            table: 1 << 25,
            ..Limit::packets(1)
        },
    ];
    for limit in wrong {
        let error = Limiter::new("limiter", limit.clone()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{limit:?}");
    }
    // The longest prefixes there are, and as much as may be asked for.
    let widest = Limit {
        each: Some((32, 128)),
        ..Limit::packets(1_000_000_000)
    };
    assert!(Limiter::new("limiter", widest).is_ok());
    assert!(Limiter::new("limiter", Limit::packets(1)).is_ok());
}

/// Threads that share a bucket take exactly what is in it.
#[test]
fn threads_take_no_more_than_there_is() {
    let limit = Limit {
        burst: 1000,
        ..Limit::packets(1)
    };
    let limiter = Limiter::with_key("limiter", limit, Seed([1, 2])).unwrap();
    let peer: IpAddr = "10.0.0.1".parse().unwrap();
    let passed: usize = std::thread::scope(|scope| {
        let take = || {
            (0..1000)
                .filter(|_| limiter.take(peer, 1, Instant(SECOND)))
                .count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(passed, 1000);
}

#[test]
fn the_ledger_keeps_an_account_for_each_peer() {
    let ledger = Ledger::new("ledger", 16);
    let a = packet("10.0.0.9", "10.0.0.1", Protocol::UDP, (1, 2));
    let back = packet("10.0.0.1", "10.0.0.9", Protocol::UDP, (2, 1));
    for _ in 0..3 {
        assert_eq!(ask(&ledger, Point::In, &a), Verdict::Pass);
    }
    assert_eq!(ask(&ledger, Point::Out, &back), Verdict::Pass);
    let [account] = ledger.accounts()[..] else {
        panic!("{:?}", ledger.accounts());
    };
    assert_eq!(account.peer, "10.0.0.9".parse().ok());
    assert_eq!((account.received, account.sent), ((3, 144), (1, 48)));
    assert!(ledger.describe().contains("10.0.0.9: 3 packets 144 B in"));
}

/// More peers than accounts: the bound holds, and nothing is lost from the sum.
#[test]
fn the_ledger_is_bounded() {
    let ledger = Ledger::new("ledger", 64);
    for n in 0..10_000_u32 {
        let from = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_string();
        let bytes = packet(&from, "10.0.0.1", Protocol::UDP, (1, 2));
        ask(&ledger, Point::In, &bytes);
    }
    let all = ledger.accounts();
    assert!(all.len() <= 65, "{}", all.len());
    assert_eq!(all.iter().map(|a| a.received.0).sum::<u64>(), 10_000);
    assert_eq!(all.last().unwrap().peer, None);
}

#[test]
fn concurrency_is_what_the_module_says() {
    assert_eq!(
        Boxed::giant(Ledger::new("l", 8)).concurrency(),
        Concurrency::Giant
    );
    let any = || Boxed::any(filter(&[], Verdict::Pass));
    assert_eq!(any().concurrency(), Concurrency::Any);
    assert_eq!(any().under_giant().concurrency(), Concurrency::Giant);
    assert_eq!(any().under_giant().module().name(), "filter");
}

proptest! {
    /// Whatever the bytes: a verdict, and no view beyond them.
    #[test]
    fn hostile_bytes_get_a_verdict(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0_u8..3) {
        if let (Some(first), 1..) = (bytes.first_mut(), version) {
            *first = *first & 15 | [0, 0x40, 0x60][usize::from(version)];
        }
        if let Some(view) = View::parse(&bytes) {
            let filter = filter(&["drop in proto tcp from any port 1-2 to 10.0.0.0/8 port 3"], Verdict::Pass);
            let limiter = Limiter::with_key("limiter", Limit { each: Some((24, 64)), ..Limit::packets(7) }, Seed([3, 4])).unwrap();
            let ledger = Ledger::new("ledger", 16);
            for module in [&filter as &dyn Module, &limiter, &ledger] {
                module.packet(Point::In, &view, Instant(u64::MAX));
                module.packet(Point::Out, &view, Instant(0));
            }
            prop_assert!(view.upper().len() <= view.len());
        }
    }
}

/// What a view says of an IPv4 packet: whole, with options, cut into fragments (RFC 791), and broken.
#[test]
fn a_view_of_ipv4() {
    let whole = packet("10.0.0.1", "10.0.0.2", Protocol::UDP, (700, 900));
    let view = View::parse(&whole).unwrap();
    assert!(!view.is_fragment() && !view.is_empty());
    assert_eq!((view.len(), view.bytes().len(), view.mark()), (48, 48, 0));
    assert_eq!((view.ports(), view.upper().len()), (Some((700, 900)), 28));
    // Four bytes of options.
    let mut options = whole.clone();
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 0]);
    let view = View::parse(&options).unwrap();
    assert_eq!((view.ports(), view.upper().len()), (Some((700, 900)), 28));
    for (first, len) in [(0x44, 48), (0x4f, 48), (0x45, 19), (0x55, 48)] {
        let mut broken = whole[..len].to_vec();
        broken[0] = first;
        assert!(View::parse(&broken).is_none(), "{first:x}, {len} bytes");
    }
    // Flags and offset: don't fragment, the first fragment, a later one, the last.
    for (field, is_fragment, is_first) in [
        ([0x40, 0], false, true),
        ([0x20, 0], true, true),
        ([0x20, 1], true, false),
        ([0, 9], true, false),
    ] {
        let mut cut = whole.clone();
        cut[6..8].copy_from_slice(&field);
        let view = View::parse(&cut).unwrap();
        assert_eq!(view.is_fragment(), is_fragment, "{field:?}");
        assert_eq!(view.ports().is_some(), is_first, "{field:?}");
        assert_eq!(view.upper().is_empty(), !is_first, "{field:?}");
    }
}

/// What routers and hosts of a link say to each other, which no module may take from them.
#[test]
fn a_view_knows_what_belongs_to_the_link() {
    let of = |from, to, protocol, kind: u16| {
        let bytes = packet(from, to, protocol, (kind << 8, 0));
        let view = View::parse(&bytes).unwrap();
        (view.is_membership(), view.is_neighbor_discovery())
    };
    let v4 = |protocol, kind| of("10.0.0.1", "224.0.0.1", protocol, kind);
    let v6 = |protocol, kind| of("fe80::1", "ff02::1", protocol, kind);
    assert_eq!(v4(Protocol::IGMP, 0x11), (true, false));
    assert_eq!(v6(Protocol::IGMP, 0x11), (false, false));
    assert_eq!(v4(Protocol::UDP, 130), (false, false));
    // MLD has 130 to 132 and 143 (RFC 3810 §5), neighbor discovery 133 to 137 (RFC 4861 §4).
    for kind in 128..=145 {
        let (is_mld, is_discovery) = v6(Protocol::ICMPV6, kind);
        assert_eq!(is_mld, matches!(kind, 130..=132 | 143), "{kind}");
        assert_eq!(is_discovery, matches!(kind, 133..=137), "{kind}");
    }
    assert_eq!(v4(Protocol::ICMPV6, 128), (false, false));
}
