//! The table against RFC 4861's own (appendix C), its bounds, and random events against its
//! invariants.

use super::*;
use proptest::prelude::*;
use std::vec;

const SEED: Seed = Seed([7, 8]);
const T0: Instant = Instant(1_000_000_000_000);
const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn ip(n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    IpAddr::from([10, 77, a, b])
}
fn v6(n: u16) -> IpAddr {
    IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 1, n])
}
fn small(entries: usize) -> Table<u32> {
    Table::new(
        Config {
            entries,
            queue: 3,
            ..Config::default()
        },
        SEED,
    )
}
fn state(t: &Table<u32>, of: IpAddr) -> Option<State> {
    t.map.get(&of).map(|e| e.state)
}
fn timer(t: &mut Table<u32>, now: Instant) -> vec::Vec<Action<u32>> {
    let mut actions = vec![];
    t.on_timer(now, |a| actions.push(a));
    actions
}
fn answered(solicited: bool, over: bool) -> Evidence {
    Evidence::Answered {
        solicited,
        over,
        router: Some(false),
    }
}

/// A table whose entry for `ip(1)` with address A is in this state at T0.
fn in_state(wanted: State) -> Table<u32> {
    let mut t = small(8);
    let one = ip(1);
    if wanted == State::Permanent {
        assert!(t.set_permanent(one, A, T0));
        return t;
    }
    if wanted == State::Incomplete {
        let _ = t.resolve(one, 0, T0);
        assert_eq!(t.take_queued(one).count(), 1);
        return t;
    }
    t.observe(one, Some(A), Evidence::Asked, T0);
    if wanted == State::Reachable {
        t.confirm(one, T0);
    }
    if matches!(wanted, State::Delay | State::Probe) {
        let start = if wanted == State::Probe {
            T0 - secs(5)
        } else {
            T0
        };
        assert_eq!(t.resolve(one, 0, start), Resolution::Ready(A, 0));
    }
    if wanted == State::Probe {
        assert_eq!(
            timer(&mut t, T0),
            vec![Action::Solicit {
                ip: one,
                to: Some(A)
            }]
        );
    }
    assert_eq!(state(&t, one), Some(wanted));
    t
}

#[test]
fn rfc_4861_appendix_c_received_messages() {
    use State::*;
    // (state before, evidence, address named, state after, address after)
    let table = [
        (Incomplete, answered(true, true), Some(B), Reachable, B),
        (Incomplete, answered(true, false), Some(B), Reachable, B),
        (Incomplete, answered(false, true), Some(B), Stale, B),
        (Incomplete, answered(false, false), Some(B), Stale, B),
        (
            Incomplete,
            answered(true, true),
            None,
            Incomplete,
            MacAddr::UNSPECIFIED,
        ),
        (Incomplete, Evidence::Asked, Some(B), Stale, B),
        (Reachable, answered(true, false), Some(A), Reachable, A),
        (Stale, answered(true, false), Some(A), Reachable, A),
        (Delay, answered(true, false), Some(A), Reachable, A),
        (Probe, answered(true, false), Some(A), Reachable, A),
        (Probe, answered(true, false), None, Reachable, A),
        (Reachable, answered(true, false), Some(B), Stale, A),
        (Reachable, answered(false, false), Some(B), Stale, A),
        (Stale, answered(true, false), Some(B), Stale, A),
        (Delay, answered(true, false), Some(B), Delay, A),
        (Probe, answered(true, false), Some(B), Probe, A),
        (Reachable, answered(true, true), Some(B), Reachable, B),
        (Stale, answered(true, true), Some(B), Reachable, B),
        (Delay, answered(true, true), Some(B), Reachable, B),
        (Probe, answered(true, true), Some(B), Reachable, B),
        (Reachable, answered(false, true), Some(B), Stale, B),
        (Stale, answered(false, true), Some(B), Stale, B),
        (Delay, answered(false, true), Some(B), Stale, B),
        (Probe, answered(false, true), Some(B), Stale, B),
        (Reachable, answered(false, true), Some(A), Reachable, A),
        (Stale, answered(false, false), Some(A), Stale, A),
        (Delay, answered(false, false), Some(A), Delay, A),
        (Probe, answered(false, true), Some(A), Probe, A),
        (Reachable, Evidence::Asked, Some(A), Reachable, A),
        (Delay, Evidence::Asked, Some(A), Delay, A),
        (Reachable, Evidence::Asked, Some(B), Stale, B),
        (Stale, Evidence::Asked, Some(B), Stale, B),
        (Probe, Evidence::Overheard, Some(B), Stale, B),
        (Permanent, answered(true, true), Some(B), Permanent, A),
        (Permanent, Evidence::Asked, Some(B), Permanent, A),
    ];
    for (before, evidence, names, after, mac) in table {
        let mut t = in_state(before);
        let learned = t.observe(ip(1), names, evidence, T0);
        let entry = t.map.get(&ip(1)).map(|e| (e.state, e.mac));
        assert_eq!(
            entry,
            Some((after, mac)),
            "{before:?} {evidence:?} {names:?}: {learned:?}"
        );
        let unresolved = usize::from(after == Incomplete);
        assert_eq!(t.unresolved, unresolved, "{before:?} {evidence:?}");
    }
}

#[test]
fn resolution_from_first_packet_to_answer() {
    for to in [ip(1), v6(1)] {
        let mut t = small(8);
        assert_eq!(
            t.resolve(to, 1, T0),
            Resolution::Queued {
                solicit: true,
                displaced: None
            }
        );
        assert_eq!(
            t.resolve(to, 2, T0),
            Resolution::Queued {
                solicit: false,
                displaced: None
            }
        );
        assert_eq!(
            t.resolve(to, 3, T0),
            Resolution::Queued {
                solicit: false,
                displaced: None
            }
        );
        assert_eq!(
            t.resolve(to, 4, T0),
            Resolution::Queued {
                solicit: false,
                displaced: Some(1)
            }
        );
        assert_eq!(t.lookup(to), None);
        let learned = t.observe(to, Some(A), answered(true, true), T0);
        let known = Learned::Known {
            mac: A,
            queued: true,
            changed: true,
            left_routing: false,
        };
        assert_eq!(learned, known);
        assert_eq!(t.take_queued(to).collect::<vec::Vec<_>>(), [2, 3, 4]);
        assert_eq!(t.resolve(to, 5, T0), Resolution::Ready(A, 5));
        assert_eq!(t.lookup(to), Some(A));
    }
}

#[test]
fn no_answer_three_solicitations_then_the_packets_come_back() {
    let mut t = small(8);
    let to = ip(9);
    let _ = t.resolve(to, 1, T0);
    let _ = t.resolve(to, 2, T0);
    assert_eq!(t.deadline(), Some(T0 + secs(1)));
    assert_eq!(timer(&mut t, T0 + Duration::from_millis(999)), vec![]);
    for n in 1..3 {
        assert_eq!(
            timer(&mut t, T0 + secs(n)),
            vec![Action::Solicit { ip: to, to: None }]
        );
    }
    let failed = vec![
        Action::Undeliverable { ip: to, packet: 1 },
        Action::Undeliverable { ip: to, packet: 2 },
        Action::Lost { ip: to },
    ];
    assert_eq!(timer(&mut t, T0 + secs(3)), failed);
    assert!(t.is_empty() && t.deadline().is_none() && t.unresolved == 0);
}

#[test]
fn silence_leads_from_reachable_to_removal() {
    let mut t = in_state(State::Reachable);
    let one = ip(1);
    let until = t.deadline().unwrap();
    let lifetime = until.since(T0);
    assert!(
        lifetime >= secs(15) && lifetime < secs(45),
        "{lifetime:?}: RFC 4861 §6.3.2"
    );
    assert_eq!(
        t.resolve(one, 0, until),
        Resolution::Ready(A, 0),
        "used before the sweep came"
    );
    assert_eq!(state(&t, one), Some(State::Delay));
    assert_eq!(timer(&mut t, until), vec![]);
    let probe = vec![Action::Solicit {
        ip: one,
        to: Some(A),
    }];
    for n in [5, 6, 7] {
        assert_eq!(timer(&mut t, until + secs(n)), probe);
        assert_eq!(t.resolve(one, 0, until + secs(n)), Resolution::Ready(A, 0));
    }
    assert_eq!(
        timer(&mut t, until + secs(8)),
        vec![Action::Lost { ip: one }]
    );
    assert!(matches!(
        t.resolve(one, 0, until + secs(8)),
        Resolution::Queued { solicit: true, .. }
    ));
}

#[test]
fn progress_of_the_layers_above_keeps_it_reachable() {
    let mut t = in_state(State::Delay);
    for n in 0..20 {
        let now = T0 + secs(n * 10);
        t.confirm(ip(1), now);
        assert_eq!(timer(&mut t, now), vec![]);
        assert_eq!(state(&t, ip(1)), Some(State::Reachable));
    }
    let mut t = in_state(State::Incomplete);
    t.confirm(ip(1), T0);
    assert_eq!(
        state(&t, ip(1)),
        Some(State::Incomplete),
        "there is nothing to confirm"
    );
    t.confirm(ip(2), T0);
}

#[test]
fn unused_entries_expire_and_permanent_ones_do_not() {
    let mut t = in_state(State::Reachable);
    assert!(t.set_permanent(v6(1), B, T0));
    let mut now = T0;
    while let Some(at) = t.deadline() {
        now = at;
        assert_eq!(timer(&mut t, at), vec![]);
    }
    let age = now.since(T0);
    assert!(age >= secs(1200) && age < secs(1260), "{age:?}");
    assert_eq!(t.len(), 1);
    assert_eq!(
        t.resolve(v6(1), 3, now + secs(100_000)),
        Resolution::Ready(B, 3)
    );
    let line = t.iter(now).next().unwrap();
    assert_eq!(
        (line.ip, line.mac, line.state),
        (v6(1), Some(B), State::Permanent)
    );
    t.remove(v6(1), |_| {});
    assert!(t.is_empty());
}

#[test]
fn negative_5_nothing_unasked_makes_an_entry() {
    let mut t = small(8);
    for evidence in [
        Evidence::Overheard,
        answered(true, true),
        answered(false, true),
    ] {
        assert_eq!(t.observe(ip(1), Some(A), evidence, T0), Learned::NotAsked);
    }
    assert_eq!(
        t.observe(ip(1), None, Evidence::Asked, T0),
        Learned::NotAsked
    );
    for mac in [
        MacAddr::BROADCAST,
        MacAddr::UNSPECIFIED,
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
    ] {
        assert_eq!(
            t.observe(ip(1), Some(mac), Evidence::Asked, T0),
            Learned::Refused
        );
    }
    for bad in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
    ] {
        let bad = bad.parse().unwrap();
        assert_eq!(
            t.observe(bad, Some(A), Evidence::Asked, T0),
            Learned::Refused
        );
        assert_eq!(
            t.resolve(bad, 1, T0),
            Resolution::Dropped(1, DropReason::NotUnicast)
        );
        assert!(!t.set_permanent(bad, A, T0));
    }
    assert!(t.is_empty());
}

#[test]
fn router_flag_gone_is_reported() {
    let mut t = in_state(State::Reachable);
    assert!(t.set_router(ip(1), true));
    let Learned::Known {
        left_routing,
        changed,
        ..
    } = t.observe(ip(1), Some(A), answered(false, true), T0)
    else {
        panic!("must be told")
    };
    assert!(left_routing && !changed);
    assert!(!t.set_router(ip(2), true));
}

#[test]
fn scan_does_not_evict_answering_neighbors() {
    let mut t = small(64);
    for n in 0..16 {
        t.observe(ip(n), Some(A), Evidence::Asked, T0);
        let _ = t.resolve(ip(n), 0, T0);
        t.confirm(ip(n), T0);
    }
    let mut refused = 0;
    for n in 1000..2000 {
        match t.resolve(ip(n), u32::from(n), T0) {
            Resolution::Dropped(_, DropReason::TooManyUnresolved) => refused += 1,
            Resolution::Queued {
                solicit: true,
                displaced: None,
            } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 1000 - 32);
    assert!((0..16).all(|n| t.lookup(ip(n)) == Some(A)));
}

#[test]
fn request_flood_does_not_evict_used_neighbors() {
    let mut t = small(64);
    for n in 0..16 {
        t.observe(ip(n), Some(A), Evidence::Asked, T0);
        let _ = t.resolve(ip(n), 0, T0);
    }
    for n in 1000..5000 {
        let now = T0 + Duration::from_millis(u64::from(n));
        assert!(matches!(
            t.observe(ip(n), Some(B), Evidence::Asked, now),
            Learned::Known { .. }
        ));
    }
    assert_eq!(t.len(), 64);
    assert!((0..16).all(|n| t.lookup(ip(n)) == Some(A)));
    let later = T0 + secs(700);
    for n in 1000..5000 {
        t.observe(ip(n), Some(B), Evidence::Asked, later);
    }
    assert!(
        (0..16).all(|n| t.lookup(ip(n)).is_none()),
        "unused for ten minutes: as any other"
    );
}

#[derive(Clone, Debug)]
enum Event {
    Packet(u16),
    Observe(u16, bool, Option<u8>, u8),
    Confirm(u16),
    Timer(u64),
    Drain(u16),
    Remove(u16),
    Pin(u16),
}

fn event() -> impl Strategy<Value = Event> {
    let host = 0u16..12;
    prop_oneof![
        5 => host.clone().prop_map(Event::Packet),
        4 => (host.clone(), any::<bool>(), prop::option::of(0u8..3), 0u8..6)
            .prop_map(|(w, v, m, k)| Event::Observe(w, v, m, k)),
        1 => host.clone().prop_map(Event::Confirm),
        4 => (0u64..20_000).prop_map(Event::Timer),
        2 => host.clone().prop_map(Event::Drain),
        1 => host.clone().prop_map(Event::Remove),
        1 => host.prop_map(Event::Pin),
    ]
}

proptest! {
    /// Every handle that goes in comes out once; nothing is asked more than once a second; the
    /// counts hold.
    #[test]
    fn no_packet_is_lost_or_doubled(events in prop::collection::vec(event(), 1..300)) {
        let mut t: Table<u32> = small(6);
        let (mut now, mut next) = (T0, 0u32);
        let mut inside = std::collections::BTreeSet::new();
        for event in events {
            match event {
                Event::Packet(w) => {
                    next += 1;
                    match t.resolve(ip(w), next, now) {
                        Resolution::Ready(_, p) | Resolution::Dropped(p, _) => prop_assert_eq!(p, next),
                        Resolution::Queued { displaced, .. } => {
                            inside.insert(next);
                            if let Some(p) = displaced { prop_assert!(inside.remove(&p)); }
                        }
                    }
                }
                Event::Observe(w, asked, mac, k) => {
                    let mac = mac.map(|m| MacAddr([2, 0, 0, 0, 0, m]));
                    let evidence = if asked { Evidence::Asked } else { answered(k & 1 > 0, k & 2 > 0) };
                    let learned = t.observe(ip(w), mac, evidence, now);
                    if let Learned::Known { queued: true, .. } = learned {
                        for p in t.take_queued(ip(w)) { prop_assert!(inside.remove(&p)); }
                    }
                }
                Event::Confirm(w) => t.confirm(ip(w), now),
                Event::Timer(ms) => {
                    now = now + Duration::from_millis(ms);
                    for action in timer(&mut t, now) {
                        if let Action::Undeliverable { packet, .. } = action {
                            prop_assert!(inside.remove(&packet));
                        }
                    }
                }
                Event::Drain(w) => {
                    for p in t.take_queued(ip(w)) { prop_assert!(inside.remove(&p)); }
                }
                Event::Remove(w) => {
                    let mut out = vec![];
                    t.remove(ip(w), |a| if let Action::Undeliverable { packet, .. } = a { out.push(packet) });
                    for p in out { prop_assert!(inside.remove(&p)); }
                }
                Event::Pin(w) => {
                    if w < 3 && t.set_permanent(ip(w), A, now) {
                        for p in t.take_queued(ip(w)) { prop_assert!(inside.remove(&p)); }
                    }
                }
            }
            let held: usize = t.iter(now).map(|n| usize::from(n.queued)).sum();
            prop_assert_eq!(held, inside.len());
            let incomplete = t.iter(now).filter(|n| n.state == State::Incomplete).count();
            prop_assert_eq!(incomplete, t.unresolved);
            let earliest = t.map.iter().map(|(_, e)| e.deadline).min().unwrap_or(Instant::FAR);
            prop_assert!(t.next_deadline <= earliest);
            prop_assert!(t.len() <= 6);
        }
    }
}

/// RFC 1122 §2.3.2.1 (4): advice from above shortens the belief in an address, but not below a second.
#[test]
fn doubt_asks_at_once_unless_confirmed_just_now() {
    let one = ip(1);
    let ask = |to| Action::Solicit { ip: one, to };
    for begun in [State::Reachable, State::Stale, State::Delay] {
        let mut t = in_state(begun);
        t.doubt(one, T0 + Duration::from_millis(999));
        assert_eq!(state(&t, one), Some(begun));
        let mut now = T0 + secs(1);
        t.doubt(one, now);
        assert_eq!(t.resolve(one, 5, now), Resolution::Ready(A, 5));
        for _ in 0..3 {
            assert_eq!(timer(&mut t, now), vec![ask(Some(A))], "{begun:?}");
            assert_eq!(state(&t, one), Some(State::Probe));
            t.doubt(one, now); // said twice, asked once
            now = now + secs(1);
        }
        assert_eq!(timer(&mut t, now), vec![Action::Lost { ip: one }]);
    }
    for begun in [State::Incomplete, State::Permanent] {
        let mut t = in_state(begun);
        t.doubt(one, T0 + secs(1) / 2);
        assert_eq!(state(&t, one), Some(begun));
    }
    small(8).doubt(one, T0); // no neighbour known: nothing to doubt
}
