//! The lists themselves: in order, nothing twice, and no longer than what they list.

use super::*;
use alloc::vec::Vec;

fn lost(losses: &mut Losses) -> Vec<u32> {
    let mut all = Vec::new();
    while let Some(first) = losses.first() {
        all.push(first.0);
        losses.forget_first();
    }
    all
}

#[test]
fn what_is_lost_is_listed_once_and_in_order() {
    let mut losses = Losses::new(SeqNum(0));
    for start in [20, 20, 40, 10, 30, 30, 40, 10, 50] {
        losses.lose(SeqNum(start));
    }
    assert_eq!(lost(&mut losses), [10, 20, 30, 40, 50]);
}

#[test]
fn what_was_sent_again_is_in_the_order_of_time() {
    let mut losses = Losses::new(SeqNum(0));
    for (end, sent_us) in [(1, 5), (2, 5), (3, 9), (4, 7), (5, 9), (6, u32::MAX)] {
        losses.resend(SeqNum(end), sent_us);
    }
    let all: Vec<u32> = (0..6).map(|at| losses.resent(at).unwrap().0.0).collect();
    assert_eq!(all, [6, 1, 2, 4, 3, 5], "equal ones as they came");
}

/// Twice the records and 64 more are kept; of more the older half of those goes.
#[test]
fn what_was_sent_again_is_bounded() {
    let mut losses = Losses::new(SeqNum(0));
    for n in 0..74 {
        losses.resend(SeqNum(n), n);
    }
    losses.limit(5);
    assert_eq!(losses.resent(0), Some((SeqNum(0), 0)), "74 may be");
    losses.resend(SeqNum(74), 74);
    losses.limit(5);
    assert_eq!(losses.resent(0), Some((SeqNum(37), 37)));
    assert_eq!(losses.resent(37), Some((SeqNum(74), 74)));
    assert_eq!(losses.resent(38), None);
}

#[test]
fn what_was_sent_again_long_ago_stays_in_the_past() {
    let mut losses = Losses::new(SeqNum(0));
    let now_us = 3 << 29;
    losses.resend(SeqNum(1), 0);
    losses.resend(SeqNum(2), now_us - 5);
    losses.limit_ages(now_us);
    assert_eq!(losses.resent(0), Some((SeqNum(1), 1 << 29)));
    assert_eq!(losses.resent(1), Some((SeqNum(2), now_us - 5)));
}

#[test]
fn heap_is_what_the_lists_take() {
    let mut losses = Losses::new(SeqNum(0));
    assert_eq!(losses.heap_bytes(), size_of::<Losses>());
    losses.lose(SeqNum(1));
    losses.resend(SeqNum(2), 1);
    let (lost, again) = (losses.lost.capacity(), losses.again.capacity());
    let lists = lost * size_of::<SeqNum>() + again * size_of::<(SeqNum, u32)>();
    assert_eq!(losses.heap_bytes(), size_of::<Losses>() + lists);
}
