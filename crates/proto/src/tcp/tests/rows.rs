//! What an acknowledgment takes together must say what its records would have said one by one.

use super::super::delivery::{Delivery, Taker};
use super::super::rack::Rack;
use super::super::rate::Rate;
use super::super::sent::{Fate, Record, Sent, Traits};
use super::*;

/// One side of the comparison.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    sent: Sent,
    rate: Rate,
    rack: Rack,
    /// Of the last acknowledgment.
    delivery: Delivery,
}

impl Side {
    fn begin(&mut self, now_us: u32) {
        self.delivery = Delivery::default();
        self.delivery.now_us = now_us;
        self.delivery.prior_fack = self.rack.fack();
    }

    fn acknowledge(&mut self, ack: SeqNum, recover: SeqNum, now_us: u32, by_rows: bool) {
        self.begin(now_us);
        let mut taker = Taker {
            delivery: &mut self.delivery,
            rate: &mut self.rate,
            rack: &mut self.rack,
            recover,
            min_rtt_us: 2,
            echo_is_older: false,
        };
        if by_rows && let Some(row) = self.sent.acknowledge_row(ack) {
            taker.acknowledged_row(&row);
        }
        if !by_rows || self.sent.una() != ack {
            self.sent
                .acknowledge(ack, |record, bytes| taker.acknowledged(record, bytes));
        }
    }

    /// What happens between acknowledgments.
    fn change(&mut self, rng: &mut Rng, una: SeqNum, nxt: &mut SeqNum, now_us: u32) {
        let flight = (*nxt - una).unsigned_abs();
        let in_flight = self.sent.in_flight();
        match rng.below(8) {
            0..=4 => {
                let len = 1 + rng.below(20) as u32;
                if rng.below(4) == 0 {
                    self.rate.limited_by_application(in_flight);
                }
                let end = *nxt + len;
                let record = (self.rate).record(end, len, (len, Traits::NONE), in_flight, now_us);
                self.sent.push(*nxt, record);
                *nxt = end;
            }
            5 if flight > 40 => {
                let left = una + 1 + rng.below(u64::from(flight - 20)) as u32;
                self.begin(now_us);
                let mut taker = Taker {
                    delivery: &mut self.delivery,
                    rate: &mut self.rate,
                    rack: &mut self.rack,
                    recover: una,
                    min_rtt_us: 2,
                    echo_is_older: false,
                };
                self.sent
                    .sack(left, left + 19, |record, bytes| taker.sacked(record, bytes));
            }
            6 => {
                let before = now_us.saturating_sub(rng.below(10) as u32);
                let is_lost = |_, r: &Record| r.sent_us < before && r.fate == Fate::InFlight;
                self.sent.condemn(una + flight / 3, is_lost, |_, _| {});
            }
            _ => {
                if let Some((start, end)) = self.sent.next_lost(20) {
                    let len = (end - start).unsigned_abs();
                    let fresh =
                        (self.rate).record(end, len, (len, Traits::NONE), in_flight, now_us);
                    self.sent.resent(start, end, fresh);
                }
            }
        }
    }
}

/// Of anything that was sent, sacked, lost and sent again, in any order, at once or one after the other.
#[test]
fn a_row_says_what_its_records_say() {
    let (mut rows, mut longest) = (0, 0);
    for seed in 0..500 {
        let mut rng = Rng(seed);
        let base = SeqNum(rng.next() as u32);
        let (mut una, mut nxt, mut now_us) = (base, base, 1000);
        let mut one = Side {
            sent: Sent::new(base),
            rate: Rate::default(),
            rack: Rack::new(base),
            delivery: Delivery::default(),
        };
        for _ in 0..120 {
            now_us += rng.below(3) as u32;
            if rng.below(4) > 0 || una == nxt {
                one.change(&mut rng, una, &mut nxt, now_us);
                continue;
            }
            now_us += rng.below(20) as u32;
            let ack = una + 1 + rng.below((nxt - una) as u64) as u32;
            let recover = una + rng.below(40) as u32;
            let before = one.sent.iter().count();
            let mut other = one.clone();
            one.acknowledge(ack, recover, now_us, false);
            other.acknowledge(ack, recover, now_us, true);
            assert_eq!(one, other, "seed {seed}");
            let row = before - one.sent.iter().count();
            (rows, longest) = (rows + usize::from(row > 1), longest.max(row));
            una = ack;
        }
    }
    assert!(
        rows > 1000 && longest > 10,
        "{rows} rows, {longest} at most"
    );
}
