//! Neighbour discovery exchanges, honest and not; negative 44, 47.

use super::*;
use crate::ip::Seed;
use crate::neighbor::{Config, Resolution, State};
use crate::wire::icmpv6;
use proptest::prelude::*;
use std::vec::Vec;

const T0: Instant = Instant(1_000_000_000_000);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}
fn ours() -> Addresses {
    let mut all = Addresses::new();
    all.add("fd77::2/64".parse().unwrap()).unwrap();
    all.add("fe80::2/64".parse().unwrap()).unwrap();
    all
}
fn table() -> Table<u32> {
    Table::new(
        Config {
            entries: 16,
            ..Config::default()
        },
        Seed([1, 2]),
    )
}
/// Writes a packet, reads it back as a receiver does.
fn over_the_wire(out: &Outgoing) -> Outgoing {
    let mut buf = [0; OUTGOING_LEN_MAX];
    let len = out.emit(&mut buf);
    let header = ipv6::Header::parse(&buf[..len]).unwrap();
    let bytes = header.payload(&buf[..len]);
    assert_eq!(
        (header.hop_limit, header.next_header),
        (255, Protocol::ICMPV6)
    );
    let kind = icmpv6::Message::parse(header.source, header.destination, bytes)
        .unwrap()
        .0;
    assert_eq!(kind, icmpv6::Message::NeighborDiscovery);
    let parsed = Message::parse(header.source, header.destination, 255, bytes).unwrap();
    assert_eq!(parsed, out.message);
    assert_eq!(
        (header.source, header.destination),
        (out.source, out.destination)
    );
    *out
}
fn advert(target: &str, solicited: bool, replace: bool, mac: Option<MacAddr>) -> Message<'static> {
    Message::NeighborAdvertisement {
        target: ip(target),
        router: false,
        solicited,
        replace,
        target_link: mac,
    }
}

#[test]
fn two_tables_find_each_other() {
    let (mut here, mut there) = (table(), table());
    let peer = ip("fd77::9");
    let mut theirs = Addresses::new();
    theirs.add("fd77::9/64".parse().unwrap()).unwrap();
    assert!(matches!(
        here.resolve(IpAddr::V6(peer), 7, T0),
        Resolution::Queued { solicit: true, .. }
    ));
    let ask = over_the_wire(&solicitation(US, ip("fd77::2"), peer, None));
    assert_eq!(ask.destination, ip("ff02::1:ff00:9"));
    assert_eq!(ask.to, Some(MacAddr([0x33, 0x33, 0xff, 0, 0, 9])));
    let heard = there
        .on_ndp(&ask.message, ask.source, &theirs, A, T0)
        .unwrap();
    assert_eq!(there.lookup(IpAddr::V6(ask.source)), Some(US));
    let reply = over_the_wire(&heard.reply.unwrap());
    assert_eq!((reply.destination, reply.to), (ip("fd77::2"), Some(US)));
    let heard = here
        .on_ndp(&reply.message, reply.source, &ours(), US, T0)
        .unwrap();
    assert!(matches!(heard.learned, Learned::Known { queued: true, .. }));
    assert_eq!(here.take_queued(IpAddr::V6(peer)).collect::<Vec<_>>(), [7]);
    assert_eq!(
        here.iter(T0).next().map(|n| n.state),
        Some(State::Reachable)
    );
}

#[test]
fn detection_by_others_is_answered_to_all_and_not_learned() {
    let mut t = table();
    let ask = over_the_wire(&probe(ip("fd77::2")));
    assert_eq!(ask.destination, ip("ff02::1:ff00:2"));
    let heard = t.on_ndp(&ask.message, ask.source, &ours(), US, T0).unwrap();
    let reply = over_the_wire(&heard.reply.unwrap());
    assert_eq!(reply.destination, ip("ff02::1"));
    assert!(matches!(
        reply.message,
        Message::NeighborAdvertisement {
            solicited: false,
            ..
        }
    ));
    assert!(t.is_empty());
}

#[test]
fn a_solicitation_without_hardware_address_is_answered() {
    let mut t = table();
    let ask = Message::NeighborSolicitation {
        target: ip("fd77::2"),
        source_link: None,
    };
    let heard = t.on_ndp(&ask, ip("fd77::9"), &ours(), US, T0).unwrap();
    assert_eq!(
        (heard.reply.unwrap().to, heard.learned),
        (None, Learned::NotAsked)
    );
    t.set_permanent(IpAddr::V6(ip("fd77::9")), A, T0);
    let heard = t.on_ndp(&ask, ip("fd77::9"), &ours(), US, T0).unwrap();
    assert_eq!(heard.reply.unwrap().to, Some(A));
}

#[test]
fn negative_47_conflicts_strangers_redirects() {
    let mut t = table();
    let mut say = |message: Message<'_>, from: &str| t.on_ndp(&message, ip(from), &ours(), US, T0);
    let conflict = Err(Refused::Conflict(ip("fd77::2")));
    assert_eq!(
        say(advert("fd77::2", false, true, Some(A)), "fd77::2"),
        conflict
    );
    let ask = |target: &str| Message::NeighborSolicitation {
        target: ip(target),
        source_link: Some(A),
    };
    assert_eq!(say(ask("fd77::2"), "fd77::2"), conflict);
    assert_eq!(say(ask("fd77::3"), "fd77::9"), Err(Refused::NotOurs));
    assert_eq!(say(ask("fd77::2"), "2001:db8::1"), Err(Refused::NotOnLink));
    let redirect = Message::Redirect {
        target: ip("fe80::66"),
        destination: ip("2001:db8::1"),
        target_link: Some(A),
        redirected: &[],
    };
    assert_eq!(say(redirect, "fe80::1"), Err(Refused::RedirectIgnored));
    let unasked = say(advert("fd77::9", true, true, Some(A)), "fd77::9").unwrap();
    assert_eq!(unasked.learned, Learned::NotAsked);
    assert!(t.is_empty());
}

#[test]
fn routers_are_marked_and_unmarked() {
    let mut t = table();
    let router = router_solicitation(B, ip("fe80::1"));
    assert_eq!(over_the_wire(&router).destination, ip("ff02::2"));
    over_the_wire(&router_solicitation(B, Ipv6Addr::UNSPECIFIED));
    t.observe(IpAddr::V6(ip("fe80::1")), Some(A), Evidence::Asked, T0);
    let says = Message::RouterAdvertisement(crate::wire::ndp::RouterAdvertisement::default());
    t.on_ndp(&says, ip("fe80::1"), &ours(), US, T0).unwrap();
    assert!(t.iter(T0).all(|n| n.router));
    let heard = t.on_ndp(
        &advert("fe80::1", false, true, Some(A)),
        ip("fe80::1"),
        &ours(),
        US,
        T0,
    );
    assert!(matches!(
        heard.unwrap().learned,
        Learned::Known {
            left_routing: true,
            ..
        }
    ));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        packets in prop::collection::vec((133u8..138, prop::collection::vec(any::<u8>(), 0..72), any::<bool>()), 1..50)
    ) {
        let mut t = table();
        for (kind, mut bytes, known) in packets {
            for (at, byte) in [kind, 0].into_iter().enumerate() {
                if let Some(b) = bytes.get_mut(at) { *b = byte }
            }
            if known && bytes.len() >= 24 { bytes[8..24].copy_from_slice(&ip("fd77::2").octets()) }
            let from = if known { ip("fd77::9") } else { ip("fe80::1") };
            if let Ok(message) = Message::parse(from, ip("ff02::1"), 255, &bytes) {
                let _ = t.on_ndp(&message, from, &ours(), US, T0);
            }
        }
    }
}
