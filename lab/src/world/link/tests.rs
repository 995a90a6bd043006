//! A link does what its shape says, and the same again.

use super::*;

const T: Instant = Instant(1_000_000_000);

fn packet(n: u32) -> Packet<u32> {
    Packet {
        size: 1000,
        ecn: Ecn::NotEct,
        body: n,
    }
}

/// Sends `n` packets, `gap` apart; what arrives, and when.
fn send(link: &mut Link<u32>, n: u32, gap: Duration, ecn: Ecn) -> Vec<(Instant, Packet<u32>)> {
    let mut got = Vec::new();
    let mut now = T;
    for i in 0..n {
        let fits = link.send(Packet { ecn, ..packet(i) }, now);
        assert_eq!(fits, Ok(()));
        now = now + gap;
        while link.next() <= now {
            let at = link.next();
            while let Some(packet) = link.poll(at) {
                got.push((at, packet));
            }
        }
    }
    while link.next() < Instant::FAR {
        let at = link.next();
        while let Some(packet) = link.poll(at) {
            got.push((at, packet));
        }
    }
    assert_eq!(link.held(), 0);
    got
}

#[test]
fn a_packet_takes_its_time() {
    let shape = LinkShape {
        rate: 1_000_000,
        ..LinkShape::default()
    };
    let got = send(&mut Link::new(shape, 1), 3, Duration::ZERO, Ecn::NotEct);
    let times: Vec<_> = got.iter().map(|(at, _)| at.since(T)).collect();
    assert_eq!(times, [6, 7, 8].map(Duration::from_millis));
}

#[test]
fn a_full_queue_drops_the_last() {
    let shape = LinkShape {
        rate: 1_000_000,
        queue_max: 2_000,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape, 1);
    let got = send(&mut link, 10, Duration::ZERO, Ecn::NotEct);
    // One is being transmitted, two wait.
    assert_eq!(
        got.iter().map(|(_, p)| p.body).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(link.counts().overflowed, 7);
}

#[test]
fn losses_come_at_their_rate() {
    let shape = LinkShape {
        loss_ppm: 100_000,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape, 1);
    let got = send(&mut link, 10_000, Duration::from_micros(1), Ecn::NotEct);
    assert!((8_900..9_100).contains(&got.len()), "{}", got.len());
    let again = send(
        &mut Link::new(shape, 1),
        10_000,
        Duration::from_micros(1),
        Ecn::NotEct,
    );
    let bodies =
        |all: &[(Instant, Packet<u32>)]| all.iter().map(|(_, p)| p.body).collect::<Vec<_>>();
    assert_eq!(
        bodies(&got),
        bodies(&again),
        "the same seed, the same losses"
    );
}

#[test]
fn bursts_lose_in_a_row() {
    let shape = LinkShape {
        bursts: Some(Bursts {
            enter_ppm: 10_000,
            leave_ppm: 100_000,
            loss_ppm: 1_000_000,
        }),
        ..LinkShape::default()
    };
    let got = send(
        &mut Link::new(shape, 3),
        20_000,
        Duration::from_micros(1),
        Ecn::NotEct,
    );
    let gaps = got
        .windows(2)
        .map(|w| w[1].1.body - w[0].1.body - 1)
        .filter(|&gap| gap > 0);
    let (count, sum) = gaps.fold((0, 0), |(count, sum), gap| (count + 1, sum + gap));
    assert!(
        (7..14).contains(&(sum / count)),
        "{sum} lost in {count} rows: ten each are expected"
    );
}

#[test]
fn late_packets_are_overtaken_and_jitter_keeps_the_order() {
    let shape = LinkShape {
        late_ppm: 50_000,
        late_by: Duration::from_millis(5),
        ..LinkShape::default()
    };
    let got = send(
        &mut Link::new(shape, 1),
        1_000,
        Duration::from_micros(100),
        Ecn::NotEct,
    );
    let in_order =
        |all: &[(Instant, Packet<u32>)]| all.windows(2).all(|w| w[0].1.body < w[1].1.body);
    assert_eq!(got.len(), 1_000);
    assert!(!in_order(&got));
    let shape = LinkShape {
        jitter: Duration::from_millis(5),
        ..LinkShape::default()
    };
    let got = send(
        &mut Link::new(shape, 1),
        1_000,
        Duration::from_micros(100),
        Ecn::NotEct,
    );
    assert!(in_order(&got));
}

#[test]
fn repeated_and_broken_packets_are_counted() {
    let shape = LinkShape {
        duplicate_ppm: 200_000,
        corrupt_ppm: 100_000,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape, 1);
    let got = send(&mut link, 1_000, Duration::from_micros(1), Ecn::NotEct).len() as u64;
    let counts = link.counts();
    assert!(counts.duplicated > 100 && counts.corrupted > 50);
    assert_eq!(got, 1_000 - counts.corrupted + counts.duplicated);
}

#[test]
fn marks_come_from_the_threshold_on() {
    let shape = LinkShape {
        rate: 1_000_000,
        mark_from: Some(2_000),
        ..LinkShape::default()
    };
    let got = send(&mut Link::new(shape, 1), 5, Duration::ZERO, Ecn::Ect0);
    let marked: Vec<_> = got.iter().map(|(_, p)| p.ecn == Ecn::Ce).collect();
    assert_eq!(marked, [false, false, false, true, true]);
}

/// RFC 8289 §5: a standing queue is drained by drops that come closer together; a short one is left alone.
#[test]
fn controlled_delay_drops_from_a_standing_queue() {
    let shape = LinkShape {
        rate: 1_000_000,
        codel: true,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape, 1);
    send(&mut link, 2_000, Duration::from_micros(900), Ecn::NotEct);
    let dropped = link.counts().condemned;
    assert!((20..400).contains(&dropped), "{dropped} dropped");
    let mut link = Link::new(shape, 1);
    send(&mut link, 2_000, Duration::from_micros(1_001), Ecn::NotEct);
    assert_eq!(link.counts().condemned, 0);
    let mut link = Link::new(shape, 1);
    let got = send(&mut link, 2_000, Duration::from_micros(900), Ecn::Ect0);
    assert_eq!((got.len(), link.counts().condemned), (2_000, 0));
    assert!(link.counts().marked > 20, "marked instead");
}

#[test]
fn what_is_too_big_does_not_pass() {
    let shape = LinkShape {
        mtu: 999,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape, 1);
    assert_eq!(link.send(packet(1), T), Err(TooBig { mtu: 999 }));
    assert_eq!(link.counts().too_big, 1);
}
