//! Probe, announce, defend, yield.

use super::*;
use crate::ip::keyed::Seed;
use std::vec;

const T0: Instant = Instant(5_000_000_000);

fn random() -> Random {
    Random::new(Seed([1, 1]))
}
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
/// Runs to the end; what was sent and when, in milliseconds from the start.
fn run(claim: &mut Claim) -> vec::Vec<(Say, u64)> {
    let (mut sent, mut random) = (vec![], random());
    while let Some(at) = claim.deadline() {
        while let Some(send) = claim.on_timer(at, &mut random) {
            sent.push((send, at.since(T0).as_millis().try_into().unwrap()));
        }
    }
    sent
}

#[test]
fn rfc_5227_three_probes_two_announcements() {
    let mut claim = Claim::new(ip("10.0.0.1"), Policy::ARP, T0, &mut random());
    assert!(!claim.is_usable());
    let sent = run(&mut claim);
    let kinds: vec::Vec<_> = sent.iter().map(|(s, _)| *s).collect();
    use Say::{Announce, Probe};
    assert_eq!(kinds, [Probe, Probe, Probe, Announce, Announce]);
    assert!(sent[0].1 <= 1000);
    for pair in sent[..3].windows(2) {
        let gap = pair[1].1 - pair[0].1;
        assert!((999..=2001).contains(&gap), "{gap}");
    }
    assert_eq!(sent[3].1 - sent[2].1, 2000);
    assert_eq!(sent[4].1 - sent[3].1, 2000);
    assert!(claim.is_usable());
}

#[test]
fn rfc_4862_one_solicitation_then_a_second() {
    let mut claim = Claim::new(ip("fd77::1"), Policy::NDP, T0, &mut random());
    let sent = run(&mut claim);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].1 - sent[0].1, 1000);
    assert!(claim.is_usable());
}

#[test]
fn without_probes_it_is_used_at_once() {
    for text in ["10.0.0.1", "fd77::1"] {
        let policy = Policy::of(ip(text)).without_probes();
        let mut claim = Claim::new(ip(text), policy, T0, &mut random());
        assert!(claim.is_usable());
        assert_eq!(run(&mut claim)[0], (Say::Announce, 0));
        let silent = Policy {
            announcements: 0,
            ..policy
        };
        let mut claim = Claim::new(ip(text), silent, T0, &mut random());
        assert_eq!(run(&mut claim), []);
        assert!(claim.is_usable());
    }
}

#[test]
fn negative_47_any_conflict_while_probing_loses() {
    for uses in [true, false] {
        let mut claim = Claim::new(ip("fd77::1"), Policy::NDP, T0, &mut random());
        assert_eq!(claim.on_conflict(uses, T0), Some(Verdict::Lost));
        assert!(claim.is_lost() && !claim.is_usable() && claim.deadline().is_none());
        assert_eq!(claim.on_conflict(uses, T0), None, "told once");
    }
}

#[test]
fn negative_5_defended_once_then_yielded() {
    let start = || {
        Claim::new(
            ip("10.0.0.1"),
            Policy::ARP.without_probes(),
            T0,
            &mut random(),
        )
    };
    let mut claim = start();
    assert_eq!(
        claim.on_conflict(false, T0),
        None,
        "a probe is answered, not fought"
    );
    assert_eq!(claim.on_conflict(true, T0), Some(Verdict::Defend));
    assert_eq!(
        claim.on_conflict(true, T0 + Duration::from_secs(9)),
        Some(Verdict::Lost)
    );
    let mut claim = start();
    assert_eq!(claim.on_conflict(true, T0), Some(Verdict::Defend));
    assert_eq!(
        claim.on_conflict(true, T0 + Duration::from_secs(11)),
        Some(Verdict::Defend)
    );
    let mut claim = Claim::new(
        ip("fd77::1"),
        Policy::NDP.without_probes(),
        T0,
        &mut random(),
    );
    assert_eq!(claim.on_conflict(true, T0), Some(Verdict::Defend));
    assert_eq!(
        claim.on_conflict(true, T0),
        None,
        "IPv6 keeps what passed detection"
    );
    assert!(claim.is_usable());
}
