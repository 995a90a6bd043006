//! Delivery rate samples (draft-ietf-ccwg-bbr §4.1): which segment a sample is about, over which time, and when it is none.

use super::*;

fn sent(rate: &mut Rate, end: u32, in_flight: u32, now_us: u32) -> Record {
    let segment = (1_000, Traits::NONE);
    rate.record(SeqNum(end), 1_000, segment, in_flight, now_us)
}

/// §4.1.2.2: with nothing under way the send and delivery times begin anew; else they are those of what was delivered last.
#[test]
fn what_a_record_keeps() {
    let mut rate = Rate {
        delivered: 7_000,
        delivered_us: 50,
        first_sent_us: 40,
        lost: 3_000,
        ..Rate::default()
    };
    let record = sent(&mut rate, 1, 2_000, 90);
    assert_eq!((record.first_sent_us, record.delivered_us), (40, 50));
    assert_eq!((record.sent_us, record.tx_in_flight), (90, 3_000));
    assert_eq!((record.delivered, record.lost), (7_000, 3_000));
    let record = sent(&mut rate, 1, 0, 95);
    assert_eq!((record.first_sent_us, record.delivered_us), (95, 95));
    assert_eq!(record.tx_in_flight, 1_000);
    assert!(!record.traits.has(Traits::APP_LIMITED));
    rate.limited_by_application(0);
    assert!(sent(&mut rate, 1, 0, 96).traits.has(Traits::APP_LIMITED));
}

/// §4.1.2.3: the rate is over the longer of the time in which it was sent and that in which it was acknowledged; over less than the
/// least round trip it is no sample.
#[test]
fn a_sample_is_over_the_longer_time() {
    for (sent_us, first_us, prior_us, now_us, least, interval) in [
        (1_000, 0, 500, 10_500, 100, 10_000),
        (20_000, 0, 500, 10_500, 100, 20_000),
        (1_000, 0, 500, 10_500, 10_000, 10_000),
        (1_000, 0, 500, 10_500, 10_001, 0),
        (5, u32::MAX - 4, 0, 0, 0, 10),
    ] {
        let mut rate = Rate::default();
        let record = Record {
            sent_us,
            first_sent_us: first_us,
            delivered: u32::MAX - 99,
            delivered_us: prior_us,
            lost: u32::MAX,
            tx_in_flight: 77,
            ..sent(&mut Rate::default(), 1_000, 0, 0)
        };
        (rate.delivered, rate.lost) = (u32::MAX - 99, 4_000);
        let mut newest = Newest::default();
        rate.delivers(&mut newest, &record, 1_000, now_us);
        let sample = rate.sample(&newest, least);
        assert_eq!((sample.delivered, sample.interval_us), (1_000, interval));
        assert_eq!(
            (sample.prior_delivered, sample.lost),
            (u32::MAX - 99, 4_001)
        );
        assert_eq!((sample.tx_in_flight, sample.is_app_limited), (77, false));
        let last = if interval > 0 {
            (1_000, interval)
        } else {
            (0, 0)
        };
        assert_eq!(rate.last, last);
        assert_eq!(rate.first_sent_us, sent_us);
    }
    let none = Rate::default().sample(&Newest::default(), 0);
    assert_eq!(none, RateSample::default(), "nothing was delivered");
}

/// §4.1.2.3, IsNewestPacket: of what one acknowledgment delivers, what left with the most delivered, then what left last.
#[test]
fn a_sample_is_about_the_newest() {
    for (prior, left, is_newer) in [
        (5_000, 101, true),
        (5_000, 100, false),
        (5_000, 99, false),
        (5_001, 1, true),
        (4_999, 200, false),
    ] {
        let mut rate = Rate::default();
        let base = Record {
            delivered: 5_000,
            ..sent(&mut Rate::default(), 1_000, 0, 100)
        };
        let other = Record {
            delivered: prior,
            ..sent(&mut Rate::default(), 2_000, 0, left)
        };
        let mut newest = Newest::default();
        rate.delivers(&mut newest, &base, 1_000, 500);
        rate.delivers(&mut newest, &other, 1_000, 500);
        let expected = if is_newer {
            (prior, left)
        } else {
            (5_000, 100)
        };
        assert_eq!((newest.prior_delivered, newest.sent_us), expected);
        assert_eq!(rate.first_sent_us, expected.1);
        assert_eq!((rate.delivered, rate.delivered_us), (2_000, 500));
    }
}

/// §4.1.2.4: limited by the application until what was in flight then has been delivered, and more.
#[test]
fn limited_until_what_was_in_flight_has_arrived() {
    let mut rate = Rate {
        delivered: u32::MAX - 999,
        ..Rate::default()
    };
    assert!(!rate.is_app_limited());
    rate.limited_by_application(3_000);
    for (bytes, limited) in [(1_000, true), (2_000, true), (1, false)] {
        let record = sent(&mut rate, 1, 0, 0);
        let mut newest = Newest::default();
        rate.delivers(&mut newest, &record, bytes, 9);
        let sample = rate.sample(&newest, 0);
        assert_eq!(rate.is_app_limited(), limited);
        assert!(sample.is_app_limited, "it left in that time");
        assert!(rate.last_limited);
    }
}
