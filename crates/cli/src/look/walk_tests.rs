//! Walks of given answers, and of what a live stack answers.

use netchan::{Net, link::wire};
use serde_json::json;

use super::{super::sample::of_answers, *};

const S: u64 = 1_000_000_000;

/// What a stack answers after so many seconds.
fn answer(topic: &str, seconds: u64) -> Value {
    match topic {
        "links" => json!([
            { "name": "a", "rx_packets": 100 * seconds, "rx_bytes": 1000 * seconds, "tx_packets": 50 * seconds, "tx_bytes": 10 * seconds },
            { "name": "b", "rx_packets": 11 * seconds, "rx_bytes": 0, "tx_packets": 1, "tx_bytes": 0 },
        ]),
        "channels" => json!([
            { "link": "a", "shard": 0, "received_packets": 3, "received_slots": 512, "outgoing_packets": 1, "outgoing_slots": 256 },
            { "link": "b", "shard": 0, "received_packets": 4, "received_slots": 512, "outgoing_packets": 0, "outgoing_slots": 256 },
            { "link": "a", "next_link": "b", "forwarded_packets": 9, "forwarded_slots": 64 },
        ]),
        "drops" => json!([
            { "reason": "ip_checksum", "value": 5 * seconds }, { "reason": "module_wall", "value": 2 * seconds },
            { "reason": "channel_full", "value": 7 * seconds }, { "reason": "tcp_checksum", "value": 3 * seconds },
            { "reason": "udp_queue_full", "value": 4 * seconds }, { "reason": "a missed", "value": 8 * seconds },
            { "reason": "no_route", "value": 6 }, { "reason": "arp", "value": 0 },
        ]),
        "counters" => json!([
            { "name": "tcp_segments_in", "value": 60 * seconds }, { "name": "udp_datagrams_in", "value": 20 * seconds },
            { "name": "packet_channel_in", "value": 0 }, { "name": "arp_in", "value": seconds }, { "name": "icmp_in", "value": seconds },
            { "name": "membership_in", "value": 0 }, { "name": "forwarded", "value": 0 },
            { "name": "tcp_segments_out", "value": 40 * seconds }, { "name": "udp_datagrams_out", "value": 2 * seconds },
            { "name": "packet_channel_out", "value": 0 }, { "name": "tcp_retransmits", "value": seconds }, { "name": 5 },
        ]),
        _ => Value::Null,
    }
}

fn look(seconds: u64) -> (Sample, Counts) {
    let sample = of_answers(seconds * S, |topic| answer(topic, seconds));
    (
        sample,
        Counts::of(seconds * S, &answer("counters", seconds)),
    )
}

fn arrow(walk: &Walk, from: Station, to: Station) -> &Arrow {
    let found = (walk.arrows.iter()).find(|arrow| (arrow.from, arrow.to) == (from, to));
    found.expect("an arrow")
}

#[test]
fn arrows_have_what_passes_and_what_is_lost() {
    let (before, now) = (look(10), look(12));
    let walk = Walk::between(Some((&before.0, &before.1)), (&now.0, &now.1));
    let figures = |from, to| {
        let arrow = arrow(&walk, from, to);
        (arrow.packets_per_s, arrow.drops_per_s, arrow.drops)
    };
    use Station::{Channel, Check, Host, Link, Shard, Socket, Steer};
    assert_eq!(figures(Link, Steer), (Some(111.0), Some(8.0), 96));
    assert_eq!(figures(Steer, Channel), (Some(87.0), Some(7.0), 84));
    assert_eq!(figures(Channel, Shard), (Some(80.0), Some(7.0), 84));
    assert_eq!(figures(Shard, Socket), (Some(73.0), Some(7.0), 84));
    assert_eq!(figures(Steer, Host), (Some(2.0), Some(0.0), 0));
    assert_eq!(figures(Shard, Channel), (Some(42.0), Some(0.0), 0));
    assert_eq!(figures(Check, Link), (Some(50.0), Some(0.0), 6));
    assert_eq!(arrow(&walk, Link, Steer).bits_per_s, Some(8000.0));
    let reasons = &arrow(&walk, Steer, Channel).reasons;
    assert_eq!(reasons, &["ip_checksum", "module_wall"]);
    assert_eq!(walk.retransmits_per_s, Some(1.0));
    let expected = Depth {
        channels: 2,
        packets: 7,
        slots: 1024,
        are_backlogs: false,
    };
    assert_eq!(walk.received, expected);
    assert_eq!((walk.outgoing.packets, walk.outgoing.slots), (1, 512));
}

#[test]
fn the_first_look_has_no_rates() {
    let now = look(10);
    let walk = Walk::between(None, (&now.0, &now.1));
    for arrow in &walk.arrows {
        assert_eq!((arrow.packets_per_s, arrow.drops_per_s), (None, None));
    }
    assert_eq!(arrow(&walk, Station::Link, Station::Steer).drops, 80);
}

/// Each reason of a live stack is on exactly one arrow, and each counter that is wanted is one that a stack has.
#[test]
fn every_reason_has_its_arrow() {
    let (end, _other) = wire::pair(&wire::Options::default());
    let net = Net::builder().link_with(Box::new(end));
    let net = net.address("10.0.0.1/24").and_then(netchan::Builder::start);
    let net = net.expect("a stack");
    let mut facts = net.show("drops").expect("drops");
    for row in facts.as_array_mut().expect("rows") {
        row["value"] = json!(1);
    }
    let count = facts.as_array().map_or(0, Vec::len);
    let sample = of_answers(S, |topic| match topic {
        "drops" => facts.clone(),
        _ => Value::Null,
    });
    let counters = Counts::of(S, &net.show("counters").expect("counters"));
    assert_eq!(counters.values.len(), WANTED.len());
    let walk = Walk::between(None, (&sample, &counters));
    let reasons = walk.arrows.iter().map(|arrow| arrow.reasons.len());
    assert_eq!(reasons.sum::<usize>(), count);
    // A name in the table that no stack has is one that was renamed.
    for reason in OF_SOCKETS {
        let rows = facts.as_array().expect("rows");
        assert!(rows.iter().any(|row| row["reason"] == reason), "{reason}");
    }
}
