//! Windows: silly-window avoidance on both sides, Nagle, probes, delayed acknowledgments.

use super::*;

fn config(receive_buffer: u32) -> Config {
    Config {
        timestamps: false,
        sack: false,
        receive_buffer,
        ..Config::default()
    }
}

fn pair(receive_buffer: u32) -> Pair {
    Pair::established(&config(1 << 20), &config(receive_buffer))
}

fn lengths(end: &End) -> Vec<u32> {
    end.sent
        .iter()
        .map(|(_, t)| t.len)
        .filter(|&len| len > 0)
        .collect()
}

/// RFC 9293 §3.7.4, SHLD-7: small segments wait while one is in flight; MUST-17: or not.
#[test]
fn nagle() {
    for on in [true, false] {
        let mut pair = pair(1 << 20);
        pair.ends[0].conn().set_nagle(on);
        for _ in 0..5 {
            pair.ends[0].write(b"ab");
            pair.drain();
        }
        let expected: &[u32] = if on { &[2] } else { &[2, 2, 2, 2, 2] };
        assert_eq!(lengths(&pair.ends[0]), expected);
        pair.run_for(Duration::from_millis(100));
        let expected: &[u32] = if on { &[2, 8] } else { &[2, 2, 2, 2, 2] };
        assert_eq!(lengths(&pair.ends[0]), expected);
    }
}

/// Corked: only full segments, until uncorked or closed; or for 200 ms with nothing under way (RFC 9293 §3.8.6.2.1, MUST-60).
#[test]
fn cork() {
    let mut pair = pair(1 << 20);
    pair.ends[0].conn().set_cork(true);
    pair.ends[0].write(&[1; 2000]);
    pair.run_for(Duration::from_millis(150));
    assert_eq!(lengths(&pair.ends[0]), [1460]);
    pair.ends[0].conn().set_cork(false);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(lengths(&pair.ends[0]), [1460, 540]);
    pair.ends[0].conn().set_cork(true);
    pair.ends[0].write(&[2; 100]);
    pair.run_for(Duration::from_millis(190));
    assert_eq!(lengths(&pair.ends[0]), [1460, 540]);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(lengths(&pair.ends[0]), [1460, 540, 100]);
    // Nagle's algorithm off pushes, once; the cork stays (as in Linux).
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(&[3; 50]);
    pair.ends[0].conn().set_nagle(false);
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(&[3; 50]);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(lengths(&pair.ends[0]), [1460, 540, 100, 50]);
    pair.ends[0].conn().set_cork(false);
    pair.run_for(Duration::from_secs(1));
    pair.ends[0].conn().set_cork(true);
    pair.ends[0].write(b"last");
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].received.len(), 2204);
    assert_eq!(pair.ends[1].state(), State::CloseWait);
}

/// RFC 9293 MUST-38: small pieces of a small window are not sent, unless nothing else comes.
#[test]
fn sender_avoids_silly_windows() {
    let mut pair = pair(10_000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 50_000]);
    pair.run_for(Duration::from_secs(1));
    let sent = lengths(&pair.ends[0]);
    assert_eq!(sent.iter().sum::<u32>(), 10_000 + sent.len() as u32 - 7);
    // A forged opening of 100 bytes: neither a full segment nor half the largest window.
    pair.ends[0].sent.clear();
    pair.flying.clear();
    let una = pair.ends[0].conn().snd.nxt;
    let mut header = pair.forge(0, Flags::ACK);
    header.ack = una;
    header.window = 100;
    pair.deliver(0, &header, Vec::new());
    pair.drain();
    assert!(lengths(&pair.ends[0]).is_empty(), "refused as silly");
    pair.run_for(Duration::from_secs(5));
    assert_eq!(
        lengths(&pair.ends[0]).first(),
        Some(&100),
        "the override timer"
    );
}

/// RFC 9293 MUST-39: the receiver offers nothing until it has a segment's room or half a buffer.
#[test]
fn receiver_avoids_silly_windows() {
    let mut pair = pair(10_000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 50_000]);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].queue.readable_bytes(), 10_000);
    pair.ends[1].sent.clear();
    for _ in 0..1459 {
        pair.ends[1].read(1);
        pair.drain();
    }
    assert!(pair.ends[1].sent.is_empty(), "no update for single bytes");
    pair.ends[1].read(10_000);
    pair.drain();
    let update = pair.ends[1].sent.last().expect("a window update").1.header;
    assert_eq!(update.window, 10_000);
    for window in pair.ends[1].sent.iter().map(|(_, t)| t.header.window) {
        assert!(window == 0 || window >= 1460);
    }
}

/// RFC 9293 MUST-35 to MUST-37, SHLD-29, SHLD-30, `negative 66`: a window closed for hours is
/// probed at growing intervals, and the connection lives as long as probes are answered.
#[test]
fn zero_window_for_hours() {
    let mut pair = pair(3000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 10_000]);
    pair.run_for(Duration::from_secs(1));
    pair.ends[0].sent.clear();
    let start = pair.now;
    pair.run_for(Duration::from_secs(36_000));
    assert_eq!(pair.ends[0].state(), State::Established);
    let probes: Vec<Instant> = pair.ends[0].sent.iter().map(|(at, _)| *at).collect();
    assert!((300..400).contains(&probes.len()), "{}", probes.len());
    for (_, transmit) in &pair.ends[0].sent {
        assert_eq!((transmit.len, transmit.offset), (1, 0));
    }
    let gaps: Vec<u64> = probes
        .windows(2)
        .map(|w| w[1].since(w[0]).as_millis() as u64)
        .collect();
    assert!(gaps[0] < gaps[1] && gaps[1] < gaps[2], "{gaps:?}");
    assert!(gaps.iter().all(|&gap| gap <= 120_000));
    assert!(probes[0].since(start) < Duration::from_secs(2));
    pair.ends[1].paused = false;
    pair.ends[1].read(usize::MAX);
    pair.run_for(Duration::from_secs(200));
    assert_eq!(pair.ends[1].received.len(), 10_000);
}

/// Unanswered probes end the connection after R2.
#[test]
fn zero_window_and_no_answer() {
    let mut pair = pair(3000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 10_000]);
    pair.run_for(Duration::from_secs(1));
    pair.faults.loss = 1000;
    pair.run_for(Duration::from_secs(923));
    assert_eq!(pair.ends[0].state(), State::Established);
    pair.run_for(Duration::from_secs(100));
    assert_eq!(pair.ends[0].error, Some(Error::TimedOut));
}

/// RFC 6429, `negative 66`: a peer that keeps its window closed does not hold a connection that
/// was closed here for longer than R2.
#[test]
fn zero_window_after_close() {
    let mut pair = pair(3000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 10_000]);
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    pair.ends[0].conn().close(0, now);
    pair.run_for(Duration::from_secs(800));
    assert_eq!(pair.ends[0].state(), State::FinWait1);
    pair.run_for(Duration::from_secs(200));
    assert_eq!(pair.ends[0].error, Some(Error::TimedOut));
}

/// The update that opens the window is lost: the probe finds out.
#[test]
fn lost_window_update() {
    let mut pair = pair(3000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 10_000]);
    pair.run_for(Duration::from_secs(1));
    pair.ends[1].paused = false;
    pair.ends[1].read(usize::MAX);
    assert_eq!(pair.intercept().len(), 1, "the update");
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.ends[1].received.len(), 10_000);
}

/// The last byte and the FIN go out as probes, and then there is nothing left to probe for.
#[test]
fn probes_carry_the_end() {
    let mut pair = pair(1000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 1001]);
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_secs(3));
    // One byte of room, that no update reports.
    pair.ends[1].conn().rcv.edge = pair.ends[1].conn().rcv.nxt + 1;
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.ends[1].queue.readable_bytes(), 1001);
    pair.ends[1].conn().rcv.edge = pair.ends[1].conn().rcv.nxt + 1;
    pair.run_for(Duration::from_secs(2000));
    assert_eq!(pair.ends[0].state(), State::FinWait2);
    assert_eq!(pair.ends[0].conn().deadline(), Instant::FAR);
}

/// RFC 9293 MUST-34, SHLD-15 to SHLD-17, `negative 66`: the window shrinks behind data in flight.
#[test]
fn window_shrinks() {
    for window in [0, 100, 5000] {
        let mut pair = pair(1 << 20);
        let data = pair.rng.bytes(30_000);
        pair.ends[0].write(&data);
        assert_eq!(pair.intercept().len(), 10, "all lost");
        let header = Header {
            window,
            ..pair.forge(0, Flags::ACK)
        };
        let shift = pair.ends[0].conn().info().send_scale;
        let header = Header {
            window: header.window >> shift,
            ..header
        };
        pair.deliver(0, &header, Vec::new());
        let usable = u32::from(header.window) << shift;
        pair.ends[0].sent.clear();
        pair.drain();
        assert!(
            lengths(&pair.ends[0]).is_empty(),
            "nothing new beyond the edge"
        );
        for _ in 0..8 {
            let at = pair.ends[0].conn().deadline();
            pair.now = at;
            pair.ends[0].conn().on_timer(at);
            for (to, header, text) in pair.intercept() {
                let end = header.seq + text.len() as u32;
                let edge = pair.ends[0].conn().snd.una + usable.max(1);
                assert!(to == 1 && end <= edge, "within the window, or a probe");
            }
            // The peer is alive and says so.
            pair.deliver(0, &header, Vec::new());
        }
        assert_eq!(pair.ends[0].state(), State::Established);
        // And opens again.
        let header = Header {
            window: 60_000,
            ..pair.forge(0, Flags::ACK)
        };
        pair.deliver(0, &header, Vec::new());
        pair.run_for(Duration::from_secs(300));
        assert!(pair.ends[1].received == data);
    }
}

/// RFC 9293 §3.8.6.1: both windows are closed and both ends probe, beyond them. What reports that one has opened, answers a probe, or resets the
/// connection lies where the peer takes it.
#[test]
fn acknowledgments_lie_within_a_closed_window() {
    let stalled = || {
        let mut pair = Pair::established(&config(3000), &config(3000));
        for end in &mut pair.ends {
            end.paused = true;
            end.write(&[7; 10_000]);
        }
        pair.run_for(Duration::from_secs(3));
        for end in &mut pair.ends {
            let conn = end.conn();
            assert_eq!((conn.snd.wnd, conn.snd.nxt - conn.snd.una), (0, 1));
            end.drops.clear(); // the probes' text
        }
        pair
    };
    let mut pair = stalled();
    pair.ends[0].paused = false;
    pair.ends[0].read(usize::MAX);
    pair.run_for(Duration::from_millis(200));
    assert!(pair.ends[1].drops.is_empty(), "{:?}", pair.ends[1].drops);
    assert_eq!(pair.ends[0].received.len(), 10_000);
    // A challenge (RFC 5961 §7).
    let mut pair = stalled();
    let una = pair.ends[0].conn().snd.una;
    let now = pair.now;
    pair.ends[0].conn().challenge(now);
    let seqs: Vec<SeqNum> = pair.intercept().iter().map(|(_, h, _)| h.seq).collect();
    assert_eq!(seqs, [una]);
    // RFC 5961 §3.2: a RST counts at RCV.NXT only.
    let mut pair = stalled();
    pair.ends[0].conn().abort();
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.ends[1].error, Some(Error::Reset));
}

/// As Linux: what carries no text begins at the end of a window that has shrunk, but not where that is only what the scale cannot express; and
/// after the SYN whatever the window.
#[test]
fn acknowledgments_lie_within_a_shrunk_window() {
    let mut pair = pair(1 << 20);
    pair.ends[0].write(&[7; 5000]);
    pair.intercept();
    let conn = pair.ends[0].conn();
    let (una, nxt, scale) = (conn.snd.una, conn.snd.nxt, conn.snd.scale);
    assert!(nxt == una + 5000 && scale > 0);
    let step = 1 << scale;
    for (window, seq) in [
        (9000, nxt),
        (5000, nxt),
        (5000 - (step - 1), nxt),
        (5000 - step, nxt - step),
        (0, una),
    ] {
        conn.snd.wnd = window;
        assert_eq!(conn.acceptable_seq(), seq, "a window of {window}");
    }
    let mut pair = Pair::listening(1, &config(3000), &config(3000));
    let (_, syn, _) = pair.intercept().remove(0);
    let header = Header { window: 0, ..syn };
    pair.deliver(1, &header, Vec::new());
    pair.intercept();
    pair.ends[1].conn().abort();
    let (_, reset, _) = pair.intercept().remove(0);
    assert!(reset.flags.contains(Flags::RST));
    assert_eq!(reset.seq, ISS[1] + 1);
}

/// RFC 9293 SHLD-14: our own window never moves back, but for what the scale cannot express.
#[test]
fn our_window_does_not_shrink() {
    let mut pair = pair(100_000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[7; 60_000]);
    let mut last = 0;
    for _ in 0..2000 {
        let until = pair.now + Duration::from_millis(10);
        pair.step(until);
        if pair.ends[1].queue.readable_bytes() > 20_000 {
            pair.ends[1].conn().set_receive_buffer(1000);
        }
    }
    let start = pair.ends[1].sent[0].1.header.ack;
    for (_, transmit) in &pair.ends[1].sent {
        let header = transmit.header;
        let scale = pair.ends[1].conn.as_ref().unwrap().rcv.scale;
        let edge = header.ack + (u32::from(header.window) << scale);
        let edge = (edge - start) + (1 << scale);
        assert!(edge >= last);
        last = edge - (1 << scale);
    }
}

/// RFC 9293 SHLD-18, SHLD-19, MUST-40: every second full segment at once, a single one later.
#[test]
fn delayed_acknowledgment() {
    let mut pair = pair(1 << 20);
    pair.ends[1].conn().quick_acks = 0;
    let deliver = |pair: &mut Pair| {
        let header = pair.forge(1, Flags::ACK);
        pair.deliver(1, &header, [7; 1460].to_vec());
        pair.intercept().len()
    };
    assert_eq!(
        deliver(&mut pair),
        0,
        "that the window is scaled now can wait"
    );
    assert_eq!(deliver(&mut pair), 1, "the second");
    assert_eq!(deliver(&mut pair), 0);
    let due = pair.ends[1].conn().deadline();
    assert_eq!(due.since(pair.now), Duration::from_millis(40));
    pair.now = due;
    pair.ends[1].conn().on_timer(due);
    assert_eq!(pair.intercept().len(), 1);
    assert_eq!(pair.ends[1].conn().deadline(), Instant::FAR);
    // RFC 9293 MUST-58: ten segments before output is asked for, one ACK.
    for _ in 0..10 {
        let header = pair.forge(1, Flags::ACK);
        pair.deliver(1, &header, [7; 1460].to_vec());
    }
    assert_eq!(pair.intercept().len(), 1);
}

/// In the beginning segments are acknowledged one by one.
#[test]
fn quick_acknowledgments() {
    let mut pair = pair(1 << 20);
    let mut answers = Vec::new();
    for n in 0..20 {
        let header = pair.forge(1, Flags::ACK);
        pair.deliver(1, &header, [7; 1460].to_vec());
        answers.push(pair.intercept().len());
        if n == 17 {
            break;
        }
    }
    assert_eq!(answers[..16], [1; 16]);
    assert_eq!(answers[16..], [0, 1]);
}

/// So are small ones, until the application answers what it hears: then its text carries the acknowledgment, as long as it
/// comes within the delay (RFC 9293 SHLD-18).
#[test]
fn answers_carry_acknowledgments() {
    let mut pair = pair(1 << 20);
    let ask = |pair: &mut Pair| {
        let mut header = pair.forge(1, Flags::ACK);
        header.ack = pair.ends[1].conn().snd.nxt;
        pair.deliver(1, &header, b"question".to_vec());
        pair.intercept().len()
    };
    assert_eq!([ask(&mut pair), ask(&mut pair)], [1, 1], "no text yet");
    pair.now = pair.now + Duration::from_millis(39);
    pair.ends[1].write(b"answer");
    assert_eq!(pair.intercept().len(), 1);
    assert_eq!(ask(&mut pair), 0, "it waits for the answer");
    let due = pair.ends[1].conn().deadline();
    pair.now = due;
    pair.ends[1].conn().on_timer(due);
    assert_eq!(pair.intercept().len(), 1, "none came");
    assert_eq!(ask(&mut pair), 1);
    pair.now = pair.now + Duration::from_millis(40);
    pair.ends[1].write(b"too late for an answer");
    assert_eq!(pair.intercept().len(), 1);
    assert_eq!(ask(&mut pair), 1);
}

/// Text behind a gap, and the text that fills it, are acknowledged at once (RFC 5681 §4.2);
/// RFC 9293 MAY-13: one ACK each, also when they come in a burst, if SACK is off.
#[test]
fn gaps_are_acknowledged_at_once() {
    let mut pair = pair(1 << 20);
    pair.ends[1].conn().quick_acks = 0;
    for n in 1..=3 {
        let mut header = pair.forge(1, Flags::ACK);
        header.seq = header.seq + 100 * n;
        pair.deliver(1, &header, [7; 100].to_vec());
    }
    let answers = pair.intercept();
    assert_eq!(answers.len(), 3);
    assert!(
        answers
            .iter()
            .all(|(_, header, _)| header.ack == answers[0].1.ack)
    );
    let header = pair.forge(1, Flags::ACK);
    pair.deliver(1, &header, [7; 100].to_vec());
    let answers = pair.intercept();
    assert_eq!(answers.len(), 1);
    assert_eq!(pair.ends[1].received.len(), 400);
}

/// Windows up to 1 GiB, segments up to 64 KiB.
#[test]
fn large_windows_and_segments() {
    let big = Config {
        mss: 65_495,
        receive_buffer: 1 << 30,
        ..Config::default()
    };
    let mut pair = Pair::established(&big, &big);
    let info = pair.ends[0].conn().info();
    assert_eq!((info.send_scale, info.send_mss), (14, 65_483));
    pair.ends[0].conn().congestion.window.cwnd = 1 << 30;
    let data = pair.rng.bytes(3_000_000);
    pair.ends[0].write(&data);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(
        pair.ends[0].sent.iter().map(|(_, t)| t.len).max(),
        Some(65_483)
    );
    assert!(pair.ends[1].received == data);
}
