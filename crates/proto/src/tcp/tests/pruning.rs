//! Memory is full of text behind gaps: it gives way to text in order, and is reported no more (RFC 2018 §8).

use std::vec;

use super::*;

/// Segment `n` of a stream of 1,000 bytes each.
fn deliver(pair: &mut Pair, base: &Header, n: u32) -> Option<Drop> {
    let mut header = *base;
    header.seq = base.seq + 1000 * n;
    let input = pair.deliver(1, &header, vec![7; 1000]);
    input.expect("a connection").drop
}

/// What the last acknowledgment said: segments in order, and the runs behind them.
fn told(pair: &mut Pair, base: &Header) -> (i32, Vec<(i32, i32)>) {
    let (_, answer, _) = pair.intercept().pop().expect("an ACK");
    let segments = |seq: SeqNum| (seq - base.seq) / 1000;
    let blocks = answer.options.sack;
    let blocks = blocks.as_slice().iter();
    let runs = blocks.map(|&(left, right)| (segments(left), segments(right)));
    (segments(answer.ack), runs.collect())
}

#[test]
fn text_behind_gaps_gives_way_and_is_not_reported_any_more() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    pair.ends[1].paused = true;
    let base = pair.forge(1, Flags::ACK);
    for n in [0, 1, 3, 4, 6, 7, 8, 9] {
        assert_eq!(deliver(&mut pair, &base, n), None);
    }
    assert_eq!(told(&mut pair, &base), (2, vec![(6, 10), (3, 5)]));
    // Memory is full. What fills the first gap is taken all the same: the last of what lies farthest gives way.
    pair.ends[1].pool.memory_mut().allow(8000);
    assert_eq!(deliver(&mut pair, &base, 2), None);
    assert_eq!(told(&mut pair, &base), (5, vec![(6, 9)]));
    assert_eq!(pair.ends[1].pool.pruned(), 1);
    // Nothing that is left to give is enough: all is given, and said so.
    pair.ends[1].pool.memory_mut().allow(2000);
    assert_eq!(deliver(&mut pair, &base, 5), Some(Drop::Limit));
    assert_eq!(told(&mut pair, &base), (5, vec![]));
    assert_eq!(pair.ends[1].pool.pruned(), 4);
    // Once the application has read, the rest comes again.
    pair.ends[1].read(usize::MAX);
    for n in 5..10 {
        assert_eq!(deliver(&mut pair, &base, n), None);
        pair.ends[1].read(usize::MAX);
    }
    assert_eq!(pair.ends[1].received.len(), 10_000);
    pair.ends[1].conn().check();
}
