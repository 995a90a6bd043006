//! Loss: fast retransmission, NewReno and SACK recovery, timeouts, Karn, R1 and R2.

use super::*;
use crate::wire::tcp::SackBlocks;

fn config(sack: bool, timestamps: bool) -> Config {
    Config {
        sack,
        timestamps,
        nagle: false,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    }
}

fn pair(sack: bool) -> Pair {
    Pair::established(&config(sack, false), &config(sack, false))
}

/// Sends `segments` full segments of which `lost` (by index) do not arrive, and lets the answers
/// back; what is sent again within one round trip.
pub(super) fn lose(
    pair: &mut Pair,
    segments: usize,
    lost: &[usize],
) -> (Vec<u8>, Vec<(SeqNum, u32)>) {
    let data = pair.rng.bytes(segments * 1460);
    let first = pair.ends[0].conn().snd.nxt;
    pair.ends[0].conn().congestion.window.cwnd = 1460 * segments as u32;
    pair.ends[0].write(&data);
    for (index, (to, header, text)) in pair.intercept().into_iter().enumerate() {
        if !lost.contains(&index) {
            pair.launch(to, header, text);
        }
    }
    pair.ends[0].sent.clear();
    pair.run_for(Duration::from_millis(300));
    let again = pair.ends[0]
        .sent
        .iter()
        .map(|(_, t)| (SeqNum(0) + (t.header.seq - first).unsigned_abs(), t.len))
        .collect();
    (data, again)
}

/// RFC 5681 §3.2: the third duplicate acknowledgment, no timeout.
#[test]
fn fast_retransmit() {
    for sack in [true, false] {
        let mut pair = pair(sack);
        let (data, again) = lose(&mut pair, 10, &[2]);
        assert_eq!(again, [(SeqNum(2 * 1460), 1460)], "sack {sack}");
        assert!(pair.ends[1].received == data);
        let info = pair.ends[0].conn().info();
        assert_eq!((info.timeouts, info.recoveries), (0, 1));
        assert!(!info.in_recovery);
        assert!(
            info.ssthresh_bytes <= 5 * 1460 && info.cwnd_bytes <= 5 * 1460,
            "{info:?}"
        );
    }
}

/// Two duplicates are reordering, not loss (RFC 5681 §3.2).
#[test]
fn two_duplicates_are_not_loss() {
    let mut pair = pair(false);
    pair.ends[0].conn().congestion.window.cwnd = 14_600;
    pair.ends[0].write(&[7; 4 * 1460]);
    let mut segments = pair.intercept();
    segments.swap(0, 2);
    for (to, header, text) in segments {
        pair.launch(to, header, text);
    }
    pair.run_for(Duration::from_millis(150));
    assert_eq!(pair.ends[0].conn().info().retransmits, 0);
    assert_eq!(pair.ends[1].received.len(), 4 * 1460);
}

/// RFC 6582: several losses in a window, one recovery, one halving; with SACK within one round
/// trip, without in one round trip each.
#[test]
fn several_losses() {
    for sack in [true, false] {
        let mut pair = pair(sack);
        let (data, again) = lose(&mut pair, 20, &[2, 5, 9, 10]);
        let expected: Vec<(SeqNum, u32)> = [2, 5, 9, 10]
            .iter()
            .map(|n| (SeqNum(n * 1460), 1460))
            .collect();
        assert_eq!(again, expected, "sack {sack}: exactly what was lost");
        assert!(pair.ends[1].received == data);
        let info = pair.ends[0].conn().info();
        assert_eq!((info.timeouts, info.recoveries), (0, 1));
    }
}

/// RFC 6675 §5.1, RFC 8985 §6.3: a timeout keeps what was sacked, and what is missing goes out again in order.
#[test]
fn timeout_keeps_sack() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 14_600;
    pair.ends[0].write(&[7; 10 * 1460]);
    pair.intercept();
    let una = pair.ends[0].conn().snd.una;
    let mut header = pair.forge(0, Flags::ACK);
    header.window = 60_000;
    header.options.sack.push(una + 1460, una + 2 * 1460);
    pair.deliver(0, &header, Vec::new());
    while pair.ends[0].conn().info().timeouts == 0 {
        pair.intercept();
        pair.now = pair.ends[0].conn().deadline();
        let now = pair.now;
        pair.ends[0].conn().on_timer(now);
    }
    assert_eq!(pair.ends[0].conn().sent.sacked(), 1460);
    let again = pair.intercept();
    assert_eq!(again.len(), 1, "one segment");
    assert_eq!(again[0].1.seq, una);
    header.ack = una + 2 * 1460;
    header.options.sack = SackBlocks::NONE;
    pair.deliver(0, &header, Vec::new());
    let again: Vec<u32> = pair
        .intercept()
        .iter()
        .map(|(_, h, _)| (h.seq - una).unsigned_abs() / 1460)
        .collect();
    assert_eq!(again, [2, 3], "past what was sacked, in slow start");
}

/// What TCP_INFO says of timeouts, as Linux: each counts, the first of a row begins a recovery, and the time ends with the acknowledgment that
/// ends the recovery, or goes on until now.
#[test]
fn timeouts_are_counted_and_timed() {
    let mut pair = pair(true);
    let told = |pair: &mut Pair| {
        let now = pair.now;
        let info = pair.ends[0].conn().info_at(now).sending;
        (
            info.timeouts,
            info.timeout_recoveries,
            info.timeout_time.as_millis(),
        )
    };
    let expire = |pair: &mut Pair| {
        let before = told(pair).0;
        while told(pair).0 == before {
            pair.now = pair.ends[0].conn().deadline();
            let now = pair.now;
            pair.ends[0].conn().on_timer(now);
            pair.intercept();
        }
    };
    assert_eq!(told(&mut pair), (0, 0, 0));
    for round in 1..=2 {
        pair.ends[0].write(&[7; 1000]);
        pair.intercept();
        let una = pair.ends[0].conn().snd.una;
        expire(&mut pair);
        let begun = pair.now;
        assert_eq!(told(&mut pair).1, round);
        expire(&mut pair);
        expire(&mut pair);
        pair.now = pair.now + Duration::from_millis(15);
        let lasts = pair.now.since(begun).as_millis();
        let before = told(&mut pair);
        assert_eq!((before.0, before.1), (3 * round, round));
        assert!(lasts > 600, "twice as long each time: {lasts}");
        let mut header = pair.forge(0, Flags::ACK);
        header.ack = una + 1000;
        pair.deliver(0, &header, Vec::new());
        let after = told(&mut pair);
        assert_eq!(after, before, "the time is over, and was counted before");
        pair.now = pair.now + Duration::from_secs(3);
        assert_eq!(told(&mut pair), after);
        if round == 1 {
            assert_eq!(after.2, lasts);
        } else {
            assert!(after.2 > lasts, "both");
        }
    }
}

/// RFC 2018 §8: a peer that drops what it sacked is found out as soon as SND.UNA stands before it; everything goes out again.
#[test]
fn reneging() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 14_600;
    let data = pair.rng.bytes(10 * 1460);
    pair.ends[0].write(&data);
    let segments = pair.intercept();
    let una = pair.ends[0].conn().snd.una;
    let mut header = pair.forge(0, Flags::ACK);
    header.window = 60_000;
    header.options.sack.push(una + 2 * 1460, una + 10 * 1460);
    pair.deliver(0, &header, Vec::new());
    assert_eq!(pair.ends[0].conn().sent.sacked(), 8 * 1460);
    // The first two arrive; the others are forgotten.
    for (to, header, text) in segments.into_iter().take(2) {
        pair.launch(to, header, text);
    }
    pair.run_for(Duration::from_millis(600));
    assert!(pair.ends[1].received == data);
    assert_eq!(pair.ends[0].conn().sent.sacked(), 0);
}

/// `negative 59`: nonsense in SACK blocks is ignored.
#[test]
fn sack_nonsense() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 14_600;
    pair.ends[0].write(&[7; 10 * 1460]);
    pair.intercept();
    let conn = pair.ends[0].conn();
    let (una, max) = (conn.snd.una, conn.snd.nxt);
    let blocks = [
        (una + 3000, una + 1460),
        (una + 1460, una + 1460),
        (una, una + 1460),
        (una - 1460, una + 1460),
        (una - 2920, una - 1460),
        (una + 1460, max + 1),
        (max, max + 1460),
        (una + (1 << 31), una + 1460),
        (una + ((1 << 31) - 1), una - 2),
    ];
    for block in blocks {
        let mut header = pair.forge(0, Flags::ACK);
        header.options.sack.push(block.0, block.1);
        for _ in 0..5 {
            pair.deliver(0, &header, Vec::new());
        }
        let conn = pair.ends[0].conn();
        assert_eq!(conn.sent.sacked(), 0, "{block:?}");
        assert!(!conn.info().in_recovery);
    }
}

/// RFC 2018 §4: the block of the last segment first, then the ones before.
#[test]
fn sack_generation() {
    let mut pair = pair(true);
    let first = pair.ends[1].conn().rcv.nxt;
    let mut answer = |n: u32| {
        let header = Header {
            seq: first + n * 100,
            ..pair.forge(1, Flags::ACK)
        };
        pair.deliver(1, &header, [7; 100].to_vec());
        let (_, header, _) = pair.intercept().pop().expect("an ACK");
        let mut blocks = Vec::new();
        for &(left, right) in header.options.sack.as_slice() {
            blocks.push((
                (left - first).unsigned_abs() / 100,
                (right - first).unsigned_abs() / 100,
            ));
        }
        blocks
    };
    assert_eq!(answer(2), [(2, 3)]);
    assert_eq!(answer(6), [(6, 7), (2, 3)]);
    assert_eq!(answer(4), [(4, 5), (6, 7), (2, 3)]);
    assert_eq!(answer(3), [(2, 5), (6, 7)], "three became one");
    assert_eq!(answer(8), [(8, 9), (2, 5), (6, 7)]);
    assert_eq!(answer(10), [(10, 11), (8, 9), (2, 5), (6, 7)]);
    assert_eq!(answer(12), [(12, 13), (10, 11), (8, 9), (2, 5)], "four fit");
    assert_eq!(answer(0), [(12, 13), (10, 11), (8, 9), (2, 5)]);
    assert_eq!(
        answer(1),
        [(12, 13), (10, 11), (8, 9), (6, 7)],
        "the one that was left out"
    );
    assert_eq!(answer(5), [(12, 13), (10, 11), (8, 9)]);
}

/// RFC 2883: what comes twice is told once, in front of the gaps; the sender makes nothing of it.
#[test]
fn duplicates_are_told_once() {
    let mut pair = pair(true);
    let first = pair.ends[1].conn().rcv.nxt;
    let answer = |pair: &mut Pair, at: u32, len: usize| {
        let header = Header {
            seq: first + at,
            ..pair.forge(1, Flags::ACK)
        };
        pair.deliver(1, &header, [7; 1000][..len].to_vec());
        let (_, header, _) = pair.intercept().pop().expect("an ACK");
        let blocks = header.options.sack.as_slice().to_vec();
        blocks
            .iter()
            .map(|&(left, right)| {
                (
                    (left - first).unsigned_abs(),
                    (right - first).unsigned_abs(),
                )
            })
            .collect::<Vec<_>>()
    };
    answer(&mut pair, 100, 100);
    let filling = Header {
        seq: first,
        ..pair.forge(1, Flags::ACK)
    };
    pair.deliver(1, &filling, [7; 100].to_vec());
    pair.intercept();
    assert_eq!(answer(&mut pair, 0, 100), [(0, 100)], "all of it old");
    assert_eq!(answer(&mut pair, 300, 100), [(300, 400)], "told once");
    assert_eq!(
        answer(&mut pair, 300, 100),
        [(300, 400), (300, 400)],
        "within a run"
    );
    assert_eq!(answer(&mut pair, 50, 100), [(50, 150), (300, 400)]);
    assert_eq!(answer(&mut pair, 500, 100), [(500, 600), (300, 400)]);
    assert_eq!(
        answer(&mut pair, 150, 100),
        [(150, 200), (500, 600), (300, 400)],
        "what is partly old is reported"
    );
}

/// With timestamps three blocks fit, and text makes room for them (RFC 2018 §3).
#[test]
fn sack_and_timestamps() {
    let mut pair = Pair::established(&config(true, true), &config(true, true));
    for n in [2, 4, 6, 8] {
        let mut header = pair.forge(1, Flags::ACK);
        header.seq = header.seq + n * 100;
        pair.deliver(1, &header, [7; 100].to_vec());
    }
    pair.ends[1].write(&[1; 5000]);
    let (_, header, text) = pair.intercept().remove(0);
    assert_eq!(header.options.sack.as_slice().len(), 3);
    assert_eq!(text.len() + 12 + 28, 1460);
}

/// RFC 6298 §5: one segment, back-off, and the timer's new start; RFC 9293 MUST-18 to MUST-20,
/// SHLD-9 to SHLD-11.
#[test]
fn timeout_and_give_up() {
    let mut pair = pair(false);
    pair.faults.loss = 1000;
    let start = pair.now;
    pair.ends[0].write(&[7; 20_000]);
    pair.run_for(Duration::from_secs(10));
    let times: Vec<u64> = pair.ends[0].sent[10..]
        .iter()
        .map(|(at, _)| at.since(start).as_millis() as u64)
        .collect();
    assert_eq!(
        times,
        [210, 630, 1470, 3150, 6510],
        "one segment each, twice as long each time"
    );
    assert!(pair.ends[0].events.contains(Events::STALLED), "R1");
    let info = pair.ends[0].conn().info();
    // Shorter ones by then: the path may be a black hole for long ones (RFC 4821 §7.7).
    assert_eq!(info.cwnd_bytes, 536, "one segment");
    assert_eq!(info.ssthresh_bytes, 7300, "halved once (RFC 5681 §3.1)");
    pair.run_for(Duration::from_secs(905));
    assert_eq!(pair.ends[0].state(), State::Established);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.ends[0].error, Some(Error::TimedOut), "R2");
    assert_eq!(pair.now.since(start), Duration::from_secs(935));
}

/// RFC 9293 MUST-21: the application sets R2, exactly; what ICMP said is the reason given.
#[test]
fn user_timeout() {
    for icmp in [false, true] {
        let mut pair = pair(true);
        pair.ends[0]
            .conn()
            .set_user_timeout(Duration::from_millis(12_345));
        pair.faults.loss = 1000;
        let start = pair.now;
        pair.ends[0].write(b"?");
        pair.drain();
        if icmp {
            let una = pair.ends[0].conn().snd.una;
            pair.ends[0]
                .conn()
                .on_icmp(IcmpError::v4(3, 0).unwrap(), una, true);
        }
        while pair.ends[0].conn.is_some() {
            assert!(pair.step(Instant::FAR));
            pair.drain();
        }
        assert_eq!(pair.now.since(start), Duration::from_millis(12_345));
        let reason = if icmp {
            Error::NetworkUnreachable
        } else {
            Error::TimedOut
        };
        assert_eq!(pair.ends[0].error, Some(reason));
    }
}

/// Karn: what was sent twice is not measured; the back-off stays until something is.
#[test]
fn karn() {
    let mut pair = pair(false);
    let rto = pair.ends[0].conn().info().rto;
    pair.faults.loss = 1000;
    pair.ends[0].write(&[7; 100]);
    pair.run_for(Duration::from_millis(700));
    pair.faults.loss = 0;
    pair.run_for(Duration::from_millis(900));
    let info = pair.ends[0].conn().info();
    assert_eq!(info.in_flight_bytes, 0);
    assert!(
        info.rtt < Duration::from_millis(60),
        "not measured: {info:?}"
    );
    assert!(info.rto > rto, "still backed off");
    pair.ends[0].write(&[7; 100]);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].conn().info().backoff, 0);
}

/// Threads read the clock before they come to the connection: an acknowledgment may seem older than what it acknowledges. That is no
/// round trip of seventy minutes.
#[test]
fn a_clock_read_too_early() {
    let mut pair = pair(true);
    pair.ends[0].write(&[7; 5 * 1460]);
    let segments = pair.intercept();
    for (to, header, text) in segments {
        pair.deliver(to, &header, text);
    }
    let answers = pair.intercept();
    pair.now = pair.now - Duration::from_micros(50);
    for (to, header, text) in answers {
        pair.deliver(to, &header, text);
    }
    let info = pair.ends[0].conn().info();
    assert_eq!(info.in_flight_bytes, 0);
    assert!(info.rtt < Duration::from_millis(20), "{info:?}");
}

/// With timestamps a retransmission can be measured (RFC 7323 §4.1), unless the echo is older
/// than it.
#[test]
fn timestamps_measure_retransmissions() {
    let mut pair = Pair::established(&config(false, true), &config(false, true));
    pair.faults.loss = 1000;
    pair.ends[0].write(&[7; 100]);
    pair.run_for(Duration::from_millis(700));
    pair.faults.loss = 0;
    pair.run_for(Duration::from_millis(900));
    let info = pair.ends[0].conn().info();
    assert_eq!((info.in_flight_bytes, info.backoff), (0, 0));
    assert!(info.rtt < Duration::from_millis(100), "{info:?}");
}

/// RFC 5681 §4.1: after an idle time the window is the initial one again.
#[test]
fn idle_restart() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 1 << 20;
    pair.ends[0].write(&[7; 100]);
    pair.run_for(Duration::from_secs(1));
    pair.ends[0].write(&[7; 200_000]);
    assert_eq!(pair.intercept().len(), 10);
}

/// RFC 7661: a window that is not used does not grow.
#[test]
fn unused_window_does_not_grow() {
    let mut pair = pair(true);
    for _ in 0..100 {
        pair.ends[0].write(&[7; 100]);
        pair.run_for(Duration::from_millis(60));
    }
    assert_eq!(pair.ends[0].conn().info().cwnd_bytes, 14_600);
}

/// Slow start doubles, congestion avoidance adds one segment a round trip (RFC 5681 §3.1).
#[test]
fn growth() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.ssthresh = 58_400;
    pair.ends[0].write(&[7; 1_000_000]);
    let mut windows = Vec::new();
    for _ in 0..6 {
        windows.push(pair.ends[0].conn().info().cwnd_bytes / 1460);
        pair.drain();
        pair.run_for(Duration::from_micros(10_001));
    }
    assert_eq!(windows[..4], [10, 20, 40, 41]);
    // An odd number of segments leaves one acknowledgment to the next round trip.
    assert!((42..=43).contains(&windows[5]), "{windows:?}");
}

/// Keep-alive, RFC 9293 MUST-24 to MUST-29, SHLD-12.
#[test]
fn keepalive() {
    let mut pair = pair(true);
    pair.run_for(Duration::from_secs(100_000));
    assert!(pair.ends[0].sent.is_empty(), "off by default");
    let now = pair.now;
    pair.ends[0]
        .conn()
        .set_keepalive(Some(Keepalive::default()), now);
    pair.run_for(Duration::from_secs(7199));
    assert!(pair.ends[0].sent.is_empty());
    pair.run_for(Duration::from_secs(10));
    let probe = pair.ends[0].sent[0].1;
    let conn = pair.ends[0].conn();
    assert_eq!((probe.len, probe.header.seq), (0, conn.snd.nxt - 1));
    assert_eq!(conn.keepalives_sent, 0, "answered");
    pair.run_for(Duration::from_secs(3600));
    assert_eq!(pair.ends[0].sent.len(), 1);
    pair.faults.loss = 1000;
    pair.run_for(Duration::from_secs(3600 + 8 * 75));
    assert_eq!(
        pair.ends[0].state(),
        State::Established,
        "not by one probe alone"
    );
    pair.run_for(Duration::from_secs(75));
    assert_eq!(pair.ends[0].error, Some(Error::TimedOut));
    let last = pair.ends[0].sent.last().unwrap().1.header;
    assert!(last.flags.contains(Flags::RST));
}

/// Traffic postpones keep-alive probes.
#[test]
fn keepalive_waits_for_silence() {
    let mut pair = pair(true);
    let now = pair.now;
    let keepalive = Keepalive {
        idle: Duration::from_secs(10),
        ..Keepalive::default()
    };
    pair.ends[0].conn().set_keepalive(Some(keepalive), now);
    for _ in 0..20 {
        pair.ends[1].write(b"x");
        pair.run_for(Duration::from_secs(9));
    }
    assert!(
        pair.ends[0]
            .sent
            .iter()
            .all(|(_, t)| t.header.seq == pair.ends[0].conn.as_ref().unwrap().snd.nxt)
    );
}

/// RFC 8985 §7: the end of a flight is lost. A probe, not a timeout.
#[test]
fn tail_loss_probe() {
    for lost in [&[9][..], &[8, 9], &[5, 6, 7, 8, 9]] {
        let mut pair = pair(true);
        let start = pair.now;
        let (data, again) = lose(&mut pair, 10, lost);
        assert!(pair.ends[1].received == data);
        assert_eq!(pair.ends[0].conn().info().timeouts, 0);
        assert_eq!(again[0], (SeqNum(9 * 1460), 1460), "the last one first");
        assert_eq!(again.len(), lost.len(), "each once");
        let last = pair.ends[0].sent.last().unwrap().0;
        assert!(
            last.since(start) < Duration::from_millis(250),
            "{:?}",
            last.since(start)
        );
    }
}

/// The probe carries new text if there is some, beyond the congestion window.
#[test]
fn tail_loss_probe_with_new_text() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 2 * 1460;
    pair.ends[0].write(&[7; 5 * 1460]);
    assert_eq!(pair.intercept().len(), 2, "lost, both");
    pair.ends[0].sent.clear();
    pair.run_for(Duration::from_millis(150));
    assert_eq!(pair.ends[0].sent[0].1.offset, 2 * 1460);
    assert_eq!(pair.ends[0].conn().info().timeouts, 0);
    assert_eq!(pair.ends[1].received.len(), 5 * 1460);
}

/// Too few segments follow the gap for three duplicates: recovery after a while of waiting for
/// reordering.
#[test]
fn early_recovery() {
    for segments in 2..4 {
        let mut pair = pair(true);
        let (data, again) = lose(&mut pair, segments, &[0]);
        assert!(pair.ends[1].received == data);
        assert_eq!(again, [(SeqNum(0), 1460)]);
        let info = pair.ends[0].conn().info();
        assert_eq!((info.timeouts, info.recoveries), (0, 1));
    }
}

/// The retransmission is lost too, twice: what follows it tells.
#[test]
fn lost_retransmission() {
    let mut pair = pair(true);
    pair.ends[0].conn().congestion.window.cwnd = 20 * 1460;
    let data = pair.rng.bytes(60 * 1460);
    pair.ends[0].write(&data);
    pair.unlucky = (pair.ends[0].conn().snd.una, 3);
    let start = pair.now;
    while pair.ends[1].received.len() < data.len() {
        assert!(pair.step(Instant::FAR));
    }
    assert_eq!(pair.unlucky.1, 0);
    assert_eq!(pair.ends[0].conn().info().timeouts, 0);
    assert!(pair.now.since(start) < Duration::from_millis(200));
    assert!(pair.ends[1].received == data);
}

/// What recovery is worth: 5 MB over 200 µs of round trip with random loss both ways. At 5 % a
/// timeout for every lost retransmission or tail would take seconds.
#[test]
fn throughput_under_loss() {
    for (loss, limit) in [(0, 0.05), (10, 0.3), (50, 0.6), (100, 8.0)] {
        let config = Config {
            receive_buffer: 4 << 20,
            ..Config::default()
        };
        let mut pair = Pair::established(&config, &config);
        pair.faults = Faults {
            loss,
            delay: Duration::from_micros(100),
            ..Faults::NONE
        };
        let (start, total) = (pair.now, 5_000_000);
        let mut left = total;
        while pair.ends[1].received.len() < total {
            if left > 0 && pair.ends[0].send.len() < 1 << 20 {
                pair.ends[0].write(&[7; 50_000]);
                left -= 50_000;
            }
            assert!(pair.step(Instant::FAR));
        }
        let seconds = pair.now.since(start).as_secs_f64();
        let info = pair.ends[0].conn().info();
        eprintln!(
            "loss {loss} per mille: {seconds:.3} s, {:.0} Mbit/s, {} timeouts, {} recoveries, {} of {} sent again",
            total as f64 * 8e-6 / seconds,
            info.timeouts,
            info.recoveries,
            info.retransmits,
            info.segments_out
        );
        assert!(seconds < limit, "{seconds} s at {loss} per mille");
        assert!(u64::from(info.retransmits) < 3500 * loss * 3 / 1000 + 10);
    }
}
