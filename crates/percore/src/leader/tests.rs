//! Which thread polls, one step after the other.

use super::{Leader, Led, Rest};

#[test]
fn a_leader_that_comes_back_tells_no_thread() {
    let leader = Leader::default();
    assert!(!leader.is_led());
    assert_eq!(leader.lead(), Some(Led::Anew));
    assert_eq!(leader.lead(), None, "one at a time");
    assert!(!leader.leave());
    assert!(leader.is_led() && leader.is_away());
    assert_eq!(leader.lead(), Some(Led::Again));
    assert!(leader.is_led() && !leader.is_away());
}

#[test]
fn a_background_poller_rests_an_interval_and_takes_over() {
    let (leader, mut seen) = (Leader::default(), 0);
    assert_eq!(leader.rest(&mut seen), Rest::Poll);
    leader.lead();
    leader.leave();
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    leader.lead();
    leader.leave();
    assert_eq!(
        leader.rest(&mut seen),
        Rest::Interval,
        "it was there meanwhile"
    );
    assert_eq!(leader.rest(&mut seen), Rest::TakeOver);
    assert_eq!(leader.rest(&mut seen), Rest::Poll);
}

#[test]
fn a_background_poller_sleeps_while_a_leader_waits_and_is_told_once() {
    let (leader, mut seen) = (Leader::default(), 0);
    leader.lead();
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    assert_eq!(leader.rest(&mut seen), Rest::Sleep);
    assert!(leader.leave(), "it sleeps");
    leader.lead();
    assert!(!leader.leave(), "it was told");
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    assert_eq!(leader.rest(&mut seen), Rest::TakeOver);
}

/// A leader that waits for long and leaves for a moment keeps the sources.
#[test]
fn a_background_poller_that_is_told_gives_the_leader_an_interval() {
    let (leader, mut seen) = (Leader::default(), 0);
    leader.lead();
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    assert_eq!(leader.rest(&mut seen), Rest::Sleep);
    assert!(leader.leave());
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    assert_eq!(leader.rest(&mut seen), Rest::TakeOver);
}

/// Threads that poll in its place keep the sources, too.
#[test]
fn a_poll_while_the_leader_is_away_counts_as_a_term() {
    let (leader, mut seen) = (Leader::default(), 0);
    leader.lead();
    leader.leave();
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    leader.polled();
    assert_eq!(leader.rest(&mut seen), Rest::Interval);
    assert_eq!(leader.rest(&mut seen), Rest::TakeOver);
}
