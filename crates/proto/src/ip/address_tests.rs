//! Parsing, classification, membership and source selection.

use super::*;
use proptest::prelude::*;
use std::string::ToString;

fn a(text: &str) -> Address {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
fn ours(list: &[&str]) -> Addresses {
    let mut all = Addresses::new();
    for text in list {
        all.add(a(text)).unwrap();
    }
    all
}

#[test]
fn parses_and_prints_what_people_write() {
    for text in [
        "10.77.0.2/24",
        "fd77::2/64",
        "192.0.2.1/32",
        "10.0.0.0/31",
        "fe80::1/128",
    ] {
        assert_eq!(a(text).to_string(), text);
    }
}

#[test]
fn bad_texts_name_what_is_wrong() {
    use AddressError::*;
    for (text, error) in [
        ("10.77.0.2", NoPrefix),
        ("", NoPrefix),
        ("10.77.0/24", BadIp),
        ("host/24", BadIp),
        ("10.77.0.2/33", BadPrefix),
        ("10.77.0.2/-1", BadPrefix),
        ("10.77.0.2/+4", BadPrefix),
        ("10.77.0.2/", BadPrefix),
        ("10.77.0.2/999", BadPrefix),
        ("fd77::2/129", BadPrefix),
        ("10.77.0.0/24", NotUnicast),
        ("10.77.0.255/24", NotUnicast),
        ("0.0.0.0/0", NotUnicast),
        ("224.0.0.1/24", NotUnicast),
        ("255.255.255.255/32", NotUnicast),
        ("::/64", NotUnicast),
        ("ff02::1/64", NotUnicast),
        ("::ffff:10.0.0.1/96", NotUnicast),
    ] {
        assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn destinations() {
    let all = ours(&[
        "10.77.0.2/24",
        "10.88.0.1/31",
        "fd77::2:3456/64",
        "fe80::1/64",
    ]);
    use Destination::*;
    for (text, want) in [
        ("10.77.0.2", Ours),
        ("10.88.0.1", Ours),
        ("fd77::2:3456", Ours),
        ("fe80::1", Ours),
        ("10.77.0.255", Broadcast),
        ("255.255.255.255", Broadcast),
        ("10.88.0.0", Other), // RFC 3021: a /31 has no broadcast address
        ("10.77.0.3", Other),
        ("0.0.0.0", Other),
        ("::", Other),
        ("224.0.0.1", Group),
        ("224.0.0.251", Other),
        ("ff02::1", Group),
        ("ff01::1", Group),
        ("ff02::1:ff02:3456", Group),
        ("ff02::1:ff00:1", Group),
        ("ff02::1:ff02:3457", Other),
        ("ff05::2", Other),
    ] {
        assert_eq!(all.classify(ip(text)), want, "{text}");
    }
}

#[test]
fn groups_are_joined_and_left() {
    let mut all = ours(&["10.77.0.2/24"]);
    let mdns = ip("224.0.0.251");
    assert_eq!(all.join(mdns), Ok(()));
    assert_eq!(all.join(mdns), Ok(()));
    assert_eq!(all.classify(mdns), Destination::Group);
    assert!(all.leave(mdns) && !all.leave(mdns));
    assert_eq!(all.classify(mdns), Destination::Other);
    assert_eq!(all.join(ip("10.0.0.1")), Err(TooMany));
}

#[test]
fn addresses_come_and_go_within_the_limit() {
    let mut all = Addresses::new();
    for n in 0..ADDRESSES_MAX {
        all.add(a(&std::format!("10.0.{n}.1/24"))).unwrap();
    }
    assert_eq!(all.add(a("10.1.0.1/24")), Err(TooMany));
    assert_eq!(
        all.add(a("10.0.3.1/16")),
        Ok(()),
        "a known one only changes its prefix"
    );
    assert!(all.is_on_link(ip("10.0.200.200")));
    assert!(all.remove(ip("10.0.3.1")));
    assert!(!all.remove(ip("10.0.3.1")));
    assert!(!all.is_local(ip("10.0.3.1")));
    assert!(all.is_local(ip("10.0.15.1")));
    assert!(!all.is_on_link(ip("10.0.200.200")));
}

#[test]
fn source_selection_rfc_6724() {
    let all = ours(&[
        "fe80::1/64",
        "2001:db8:1::1/64",
        "fd77::1/64",
        "10.0.0.1/8",
        "192.0.2.1/24",
    ]);
    for (to, from) in [
        ("fe80::9", Some("fe80::1")),             // rule 2
        ("ff02::1", Some("fe80::1")),             // rule 2, multicast scope
        ("2001:db8:2::9", Some("2001:db8:1::1")), // rules 2, 6
        ("fd88::9", Some("fd77::1")),             // rule 6
        ("fd77::1", Some("fd77::1")),             // rule 1
        ("2600::1", Some("2001:db8:1::1")),
        ("192.0.2.7", Some("192.0.2.1")), // rule 8
        ("10.9.9.9", Some("10.0.0.1")),
    ] {
        assert_eq!(all.source_for(ip(to)), from.map(ip), "{to}");
    }
    assert_eq!(ours(&["10.0.0.1/8"]).source_for(ip("fd77::1")), None);
    // Only a link-local address: better than none (rule 2 prefers, it does not forbid).
    assert_eq!(
        ours(&["fe80::1/64"]).source_for(ip("2600::1")),
        Some(ip("fe80::1"))
    );
}

#[test]
fn solicited_node_of_rfc_4291() {
    let want: Ipv6Addr = "ff02::1:ff0e:8c6c".parse().unwrap();
    assert_eq!(
        solicited_node("4037::1:800:200e:8c6c".parse().unwrap()),
        want
    );
}

proptest! {
    #[test]
    fn any_text_parses_or_errs_and_prints_back(text in "[0-9a-f.:/]{0,24}") {
        if let Ok(address) = text.parse::<Address>() {
            prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
            prop_assert!(address.contains(address.ip()));
            prop_assert!(address.contains(address.network()));
        }
    }
}
