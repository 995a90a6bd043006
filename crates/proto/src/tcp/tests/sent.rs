//! The records of what was sent, against a model that has a fate for every byte.

use super::super::sent::{Fate, Record, Sent, Traits};
use super::*;

fn record(end: SeqNum, sent_us: u32) -> Record {
    Record {
        end,
        sent_us,
        first_sent_us: 0,
        delivered: 0,
        delivered_us: 0,
        tx_in_flight: 0,
        lost: 0,
        segment: 1,
        fate: Fate::InFlight,
        traits: Traits::NONE,
    }
}

/// Every byte's fate, in the same order.
struct Model {
    una: u32,
    bytes: Vec<Fate>,
}

impl Model {
    fn range(&mut self, from: u32, to: u32) -> &mut [Fate] {
        let at = |n: u32| (n.saturating_sub(self.una) as usize).min(self.bytes.len());
        let (from, to) = (at(from), at(to));
        &mut self.bytes[from..to.max(from)]
    }

    fn count(&self, fate: Fate) -> u32 {
        self.bytes.iter().filter(|&&b| b == fate).count() as u32
    }
}

/// One random operation on both.
fn step(rng: &mut Rng, base: SeqNum, sent: &mut Sent, model: &mut Model) {
    let nxt = model.una + model.bytes.len() as u32;
    match rng.below(6) {
        0 | 1 => {
            let len = 1 + rng.below(20) as u32;
            sent.push(base + nxt, record(base + nxt + len, nxt));
            model.bytes.extend((0..len).map(|_| Fate::InFlight));
        }
        2 if !model.bytes.is_empty() => {
            let left = model.una + 1 + rng.below(60) as u32;
            let right = (left + 1 + rng.below(30) as u32).min(nxt);
            let mut told = 0;
            if left < right {
                sent.sack(base + left, base + right, |_, bytes| told += bytes);
                let range = model.range(left, right);
                let news = range.iter().filter(|&&f| f != Fate::Sacked).count();
                assert_eq!(told as usize, news, "each byte is reported once");
                range.fill(Fate::Sacked);
            }
        }
        3 => {
            let bytes = rng.below(40).min(model.bytes.len() as u64) as u32;
            let una = model.una + bytes;
            let mut gone = 0;
            sent.acknowledge(base + una, |_, bytes| gone += bytes);
            assert_eq!(gone, bytes, "every byte is accounted for");
            model.bytes.drain(..bytes as usize);
            model.una = una;
        }
        4 => {
            let before = rng.below(u64::from(nxt) + 1) as u32;
            sent.condemn(base + nxt, |_, r| r.sent_us < before, |_, _| {});
            // A record is a transmission: it is lost as a whole, and was stamped with where it began.
            let mut start = base + model.una;
            let lost: Vec<(SeqNum, SeqNum)> = sent
                .iter()
                .filter(|(_, r)| r.fate == Fate::Lost)
                .map(|(at, r)| (at, r.end))
                .collect();
            for (from, to) in lost {
                assert!(from >= start, "in order");
                start = to;
                let (from, to) = (from - base, to - base);
                model.range(from as u32, to as u32).fill(Fate::Lost);
            }
        }
        _ => resend(rng, base, sent, model),
    }
}

/// The first loss, or a part of it, leaves again.
fn resend(rng: &mut Rng, base: SeqNum, sent: &mut Sent, model: &mut Model) {
    let first = model.bytes.iter().position(|&f| f == Fate::Lost);
    let next = sent.next_lost(1);
    assert_eq!(
        next.map(|(start, _)| start),
        first.map(|n| base + model.una + n as u32),
        "the first loss"
    );
    let Some((start, end)) = next else { return };
    let len = 1 + rng.below((end - start) as u64) as u32;
    sent.resent(start, start + len, record(start + len, u32::MAX));
    let at = (start - base) as u32;
    model.range(at, at + len).fill(Fate::InFlight);
}

/// RFC 6675 §3: the scoreboard. Whatever happens, in whatever order, every byte has the fate that it should have.
#[test]
fn records_equal_their_model() {
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let base = SeqNum(rng.next() as u32);
        let mut sent = Sent::new(base);
        let mut model = Model {
            una: 0,
            bytes: Vec::new(),
        };
        for _ in 0..150 {
            step(&mut rng, base, &mut sent, &mut model);
            let nxt = model.una + model.bytes.len() as u32;
            sent.check(base + model.una, base + nxt);
            let sums = [sent.in_flight(), sent.sacked(), sent.lost()];
            let expected = [Fate::InFlight, Fate::Sacked, Fate::Lost].map(|f| model.count(f));
            assert_eq!(sums, expected, "seed {seed}");
        }
    }
}

/// RFC 2018 §8: a peer may drop what it sacked, and what was lost may turn out not to be.
#[test]
fn reneging_and_reviving() {
    let base = SeqNum(u32::MAX - 50);
    let mut sent = Sent::new(base);
    for n in 0..10 {
        sent.push(base + n * 10, record(base + n * 10 + 10, n));
    }
    sent.sack(base + 30, base + 50, |_, _| {});
    assert_eq!((sent.sacked(), sent.sacked_segments()), (20, 20));
    sent.renege();
    assert_eq!(
        (sent.sacked(), sent.sacked_segments(), sent.lost()),
        (0, 0, 20)
    );
    assert_eq!(sent.next_lost(20), Some((base + 30, base + 50)));
    sent.revive();
    assert_eq!((sent.in_flight(), sent.lost()), (100, 0));
    sent.check(base, base + 100);
}

/// How far was looked for losses is forgotten with what was under way then: the numbers come round.
#[test]
fn what_was_judged_is_judged_anew() {
    let base = SeqNum(1000);
    let mut sent = Sent::new(base);
    for _ in 0..2 {
        for n in 0..10 {
            sent.push(base + n * 10, record(base + n * 10 + 10, n));
        }
        sent.sack(base + 80, base + 90, |_, _| {});
        let late = |r: &Record| (r.sent_us < 8).then_some(0);
        assert_eq!(sent.condemn_late(late, |_, _| {}), (0, false));
        assert_eq!((sent.lost(), sent.in_flight()), (80, 10));
        sent.acknowledge(base + 100, |_, _| {});
    }
}

/// What was sent again is found lost again, each when its time is over, and once.
#[test]
fn what_was_sent_again_is_judged_in_the_order_of_time() {
    let base = SeqNum(u32::MAX - 20);
    let mut sent = Sent::new(base);
    for n in 0..10 {
        sent.push(base + n * 10, record(base + n * 10 + 10, n));
    }
    sent.condemn(base + 100, |_, _| true, |_, _| {});
    for n in [5_u32, 2, 7] {
        let (start, end) = (base + n * 10, base + n * 10 + 10);
        sent.resent(start, end, record(end, 100 + n));
    }
    assert_eq!((sent.sent_again(), sent.in_flight()), (3, 30));
    let late = |until: u32| move |r: &Record| (r.sent_us < until).then_some(0);
    let mut found = Vec::new();
    sent.condemn_late(late(106), |r, bytes| found.push((r.end - base, bytes)));
    assert_eq!(found, [(30, 10), (60, 10)]);
    sent.condemn_late(late(106), |_, _| panic!("once"));
    let waits = |r: &Record| Some(200 - r.sent_us);
    assert_eq!(sent.condemn_late(waits, |_, _| {}), (93, false));
    assert_eq!(sent.next_lost(10), Some((base, base + 10)));
    sent.check(base, base + 100);
}

/// Nothing under way: after a silence no memory stays.
#[test]
fn an_idle_connection_keeps_little() {
    let mut sent = Sent::new(SeqNum(0));
    for n in 0..1000 {
        sent.push(SeqNum(n), record(SeqNum(n + 1), n));
    }
    assert!(sent.heap_bytes() >= 32_000);
    sent.trim();
    assert!(sent.heap_bytes() >= 32_000, "in use");
    sent.acknowledge(SeqNum(1000), |_, _| {});
    assert!(sent.holds_spare());
    sent.trim();
    assert_eq!(sent.heap_bytes(), 0);
    assert!(!sent.holds_spare());
}

/// What was lost after all: it is judged again, what was sent once and what was sent again, each in its order.
#[test]
fn what_is_revived_is_judged_again() {
    let base = SeqNum(5000);
    let mut sent = Sent::new(base);
    for n in 0..6 {
        sent.push(base + n * 10, record(base + n * 10 + 10, n));
    }
    sent.condemn(base + 10, |_, _| true, |_, _| {});
    sent.resent(base, base + 10, record(base + 10, 20));
    sent.sack(base + 50, base + 60, |_, _| {});
    for _ in 0..3 {
        let mut lost = 0;
        let late = |r: &Record| (r.sent_us < 30).then_some(0);
        sent.condemn_late(late, |_, bytes| lost += bytes);
        assert_eq!((lost, sent.lost()), (50, 50));
        sent.revive();
        assert_eq!((sent.lost(), sent.in_flight()), (0, 50));
        sent.check(base, base + 60);
    }
}

/// A stretch that leaves again ends where something is sacked; what was sent again and is sacked is remembered to have been.
#[test]
fn what_is_sacked_stays_so_within_a_stretch() {
    let base = SeqNum(0);
    let mut sent = Sent::new(base);
    for n in 0..4 {
        sent.push(base + n * 10, record(base + n * 10 + 10, n));
    }
    sent.condemn(base + 40, |_, _| true, |_, _| {});
    sent.sack(base + 20, base + 30, |_, _| {});
    sent.resent(base, base + 40, record(base + 40, 50));
    assert_eq!((sent.in_flight(), sent.sacked(), sent.lost()), (20, 10, 10));
    sent.sack(base + 30, base + 40, |_, _| {});
    sent.sack(base, base + 20, |_, _| {});
    assert_eq!((sent.sacked(), sent.iter().count()), (40, 1));
    let mut again = Vec::new();
    sent.acknowledge(base + 40, |r, _| again.push(r.is_retransmission()));
    assert_eq!(again, [true]);
}

/// A probe for a larger path is never one segment with what follows it.
#[test]
fn a_probe_stays_by_itself() {
    let mut sent = Sent::new(SeqNum(0));
    let probe = Record {
        traits: Traits::PROBE,
        ..record(SeqNum(10), 1)
    };
    sent.push(SeqNum(0), probe);
    assert!(!sent.push_together(SeqNum(11), 100));
    sent.push(SeqNum(10), record(SeqNum(20), 2));
    assert!(sent.push_together(SeqNum(21), 100));
    assert!(!sent.push_together(SeqNum(150), 100), "too long for one");
    sent.check(SeqNum(0), SeqNum(21));
}

/// Small pieces are many if they are less than a quarter of a segment each, whatever became of them.
#[test]
fn small_pieces_crowd() {
    let mut sent = Sent::new(SeqNum(0));
    for n in 0..80 {
        let start = SeqNum(n * 100);
        sent.push(start, record(start + 100, 0));
    }
    sent.sack(SeqNum(1000), SeqNum(2700), |_, _| {});
    sent.condemn_front(500, |_, _| {});
    let sizes = (sent.in_flight(), sent.sacked(), sent.lost());
    assert_eq!(sizes, (5800, 1700, 500));
    assert_eq!(sent.iter().count(), 64, "of 125 bytes on average");
    assert!(!sent.is_crowded(500));
    assert!(sent.is_crowded(504));
}

/// Of very many records 128 are looked at, and it is said that there are more: of those sent once, and of those sent again.
#[test]
fn very_many_losses_are_found_in_parts() {
    let mut sent = Sent::new(SeqNum(0));
    for n in 0..300 {
        let start = SeqNum(n * 10);
        sent.push(start, record(start + 10, n));
    }
    sent.sack(SeqNum(2990), SeqNum(3000), |_, _| {});
    let look = |sent: &mut Sent, left: u32| {
        let mut found = 0;
        let (wait, more) = sent.condemn_late(|_| Some(left), |_, _| found += 1);
        (found, wait, more)
    };
    let parts = |sent: &mut Sent| [0; 4].map(|left| look(sent, left));
    let once = parts(&mut sent);
    assert_eq!(once[..2], [(128, 0, true), (128, 0, true)]);
    assert_eq!(once[2..], [(43, 0, false), (0, 0, false)]);
    for n in 0..299 {
        let (start, end) = sent.next_lost(1).expect("it is lost");
        sent.resent(start, end, record(end, 300 + n));
    }
    assert_eq!((sent.lost(), sent.sent_again()), (0, 299));
    assert_eq!(look(&mut sent, 7), (0, 7, false), "all may yet arrive");
    let again = parts(&mut sent);
    let found: u32 = again.iter().map(|part| part.0).sum();
    assert!(again[0].2 && !again[3].2, "{again:?}");
    assert_eq!(found, 299, "{again:?}");
}
