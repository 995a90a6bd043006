//! ARP exchanges, honest and not.

use super::*;
use crate::ip::Seed;
use crate::neighbor::{Config, Resolution, State};
use proptest::prelude::*;
use std::vec::Vec;

const T0: Instant = Instant(1_000_000_000_000);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const OUR_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

fn ours() -> Addresses {
    let mut all = Addresses::new();
    all.add("10.77.0.2/24".parse().unwrap()).unwrap();
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
fn reply(mac: MacAddr, from: Ipv4Addr) -> Packet {
    Packet {
        operation: Operation::Reply,
        sender_mac: mac,
        sender_ip: from,
        target_mac: US,
        target_ip: OUR_IP,
    }
}

#[test]
fn a_request_for_us_is_answered_and_learned() {
    let mut t = table();
    let heard = t
        .on_arp(&request(A, PEER, OUR_IP), &ours(), US, T0)
        .unwrap();
    let want = Packet {
        operation: Operation::Reply,
        sender_mac: US,
        sender_ip: OUR_IP,
        target_mac: A,
        target_ip: PEER,
    };
    assert_eq!(heard.reply, Some(want));
    assert_eq!(t.lookup(IpAddr::V4(PEER)), Some(A));
}

#[test]
fn a_reply_we_wait_for_resolves() {
    let mut t = table();
    let _ = t.resolve(IpAddr::V4(PEER), 7, T0);
    let heard = t.on_arp(&reply(A, PEER), &ours(), US, T0).unwrap();
    assert!(matches!(heard.learned, Learned::Known { queued: true, .. }));
    assert_eq!(heard.reply, None);
    assert_eq!(t.take_queued(IpAddr::V4(PEER)).collect::<Vec<_>>(), [7]);
    assert_eq!(t.resolve(IpAddr::V4(PEER), 8, T0), Resolution::Ready(A, 8));
}

#[test]
fn a_probe_for_us_is_answered_but_not_learned() {
    let mut t = table();
    let heard = t.on_arp(&probe(A, OUR_IP), &ours(), US, T0).unwrap();
    assert_eq!(
        heard.reply.map(|r| (r.target_mac, r.target_ip)),
        Some((A, Ipv4Addr::UNSPECIFIED))
    );
    assert!(t.is_empty());
}

#[test]
fn an_announcement_updates_but_makes_nothing() {
    let mut t = table();
    t.on_arp(&announcement(A, PEER), &ours(), US, T0).unwrap();
    assert!(t.is_empty());
    t.on_arp(&request(A, PEER, OUR_IP), &ours(), US, T0)
        .unwrap();
    t.on_arp(&announcement(B, PEER), &ours(), US, T0).unwrap();
    assert_eq!(t.lookup(IpAddr::V4(PEER)), Some(B));
}

#[test]
fn negative_5_conflicts_unasked_replies_and_group_senders() {
    let mut t = table();
    let refused = |t: &mut Table<u32>, p: Packet| t.on_arp(&p, &ours(), US, T0).unwrap_err();
    assert_eq!(refused(&mut t, reply(A, OUR_IP)), Refused::Conflict(OUR_IP));
    assert_eq!(
        refused(&mut t, announcement(A, OUR_IP)),
        Refused::Conflict(OUR_IP)
    );
    assert_eq!(
        refused(&mut t, reply(MacAddr::BROADCAST, PEER)),
        Refused::Implausible
    );
    assert_eq!(
        refused(&mut t, reply(MacAddr([1, 0, 0, 0, 0, 0]), PEER)),
        Refused::Implausible
    );
    assert_eq!(refused(&mut t, announcement(US, OUR_IP)), Refused::Echo);
    assert_eq!(
        t.on_arp(&reply(A, PEER), &ours(), US, T0).unwrap().learned,
        Learned::NotAsked
    );
    assert!(t.is_empty());
}

#[test]
fn negative_6_addresses_of_no_host() {
    let mut t = table();
    for ip in ["10.77.0.255", "255.255.255.255", "127.0.0.1", "224.0.0.1"] {
        let packet = request(A, ip.parse().unwrap(), OUR_IP);
        assert_eq!(
            t.on_arp(&packet, &ours(), US, T0),
            Err(Refused::Implausible),
            "{ip}"
        );
    }
    // From outside our networks: answered (the target is ours), not learned.
    let far = request(A, Ipv4Addr::new(192, 0, 2, 1), OUR_IP);
    let heard = t.on_arp(&far, &ours(), US, T0).unwrap();
    assert!(heard.reply.is_some() && heard.learned == Learned::NotAsked && t.is_empty());
}

/// A forged answer may change an entry, as any word may (RFC 826), but is not believed for as long as a confirmed one: the host
/// that was asked must say it.
#[test]
fn unasked_answers_do_not_confirm() {
    let peer = IpAddr::V4(PEER);
    let state = |t: &Table<u32>, now| t.iter(now).next().map(|n| (n.mac, n.state));
    let mut t = table();
    t.on_arp(&request(A, PEER, OUR_IP), &ours(), US, T0)
        .unwrap();
    t.confirm(peer, T0);
    assert_eq!(state(&t, T0), Some((Some(A), State::Reachable)));
    t.on_arp(&reply(B, PEER), &ours(), US, T0).unwrap();
    assert_eq!(state(&t, T0), Some((Some(B), State::Stale)));
    let _ = t.resolve(peer, 1, T0);
    t.on_arp(&reply(B, PEER), &ours(), US, T0).unwrap();
    assert_eq!(
        state(&t, T0),
        Some((Some(B), State::Delay)),
        "not asked yet"
    );
    let asked = T0 + Config::default().delay;
    t.on_timer(asked, |_| ());
    t.on_arp(&reply(A, PEER), &ours(), US, asked).unwrap();
    assert_eq!(
        state(&t, asked),
        Some((Some(A), State::Stale)),
        "B was asked, A answered"
    );
    let _ = t.resolve(peer, 2, asked);
    let again = asked + Config::default().delay;
    t.on_timer(again, |_| ());
    t.on_arp(&reply(A, PEER), &ours(), US, again).unwrap();
    assert_eq!(state(&t, again), Some((Some(A), State::Reachable)));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..50)) {
        let mut t = table();
        for mut bytes in packets {
            for (at, byte) in [0, 1, 8, 0, 6, 4, 0].into_iter().enumerate() {
                if let Some(b) = bytes.get_mut(at) { *b = byte }
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let _ = t.on_arp(&packet, &ours(), US, T0);
            }
        }
    }
}
