//! Closes: from either side, both at once, with data, with a reset, half-open ends, TIME-WAIT.

use super::*;

fn pair() -> Pair {
    Pair::established(&Config::default(), &Config::default())
}

/// RFC 9293 figure 12: active close, TIME-WAIT for twice the MSL (MUST-13), passive close.
#[test]
fn one_side_then_the_other() {
    let mut pair = pair();
    pair.ends[0].conn().shutdown();
    pair.drain();
    assert_eq!(pair.ends[0].state(), State::FinWait1);
    pair.run_for(Duration::from_millis(11));
    assert_eq!(pair.ends[0].state(), State::FinWait2);
    assert!(pair.ends[0].events.contains(Events::FIN_ACKED));
    assert_eq!(pair.ends[1].state(), State::CloseWait);
    assert!(pair.ends[1].events.contains(Events::PEER_CLOSED));
    assert!(pair.ends[1].conn().peer_closed());

    pair.ends[1].write(b"more");
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].received, b"more", "the other way stays open");

    pair.ends[1].conn().shutdown();
    pair.drain();
    assert_eq!(pair.ends[1].state(), State::LastAck);
    pair.run_for(Duration::from_millis(11));
    assert_eq!(pair.ends[0].state(), State::TimeWait);
    assert!(pair.ends[0].events.contains(Events::TIME_WAIT));
    assert_eq!(pair.ends[1].state(), State::Closed);
    assert_eq!(pair.ends[1].error, None);
    pair.run_for(Duration::from_secs(59));
    assert_eq!(pair.ends[0].state(), State::TimeWait);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.ends[0].state(), State::Closed);
}

/// RFC 9293 figure 13: FINs cross; both go through CLOSING to TIME-WAIT.
#[test]
fn simultaneous_close() {
    let mut pair = pair();
    pair.ends[0].write(b"a");
    pair.ends[1].write(b"bc");
    pair.ends[0].conn().shutdown();
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(6));
    assert_eq!(pair.ends[0].state(), State::Closing);
    assert_eq!(pair.ends[1].state(), State::Closing);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].state(), State::TimeWait);
    assert_eq!(pair.ends[1].state(), State::TimeWait);
    assert_eq!(
        (&pair.ends[0].received[..], &pair.ends[1].received[..]),
        (&b"bc"[..], &b"a"[..])
    );
}

/// All closes, over a channel that loses and repeats.
#[test]
fn closes_over_a_bad_channel() {
    for seed in 0..200 {
        let mut pair = pair();
        pair.rng = Rng(seed);
        pair.faults = Faults {
            loss: 200,
            duplicate: 200,
            reorder: 300,
            ..Faults::NONE
        };
        let data = pair.rng.bytes(5000);
        pair.ends[0].write(&data);
        pair.ends[0].conn().shutdown();
        if seed % 2 == 0 {
            pair.ends[1].conn().shutdown();
        } else {
            pair.run_for(Duration::from_millis(300));
            pair.ends[1].conn().shutdown();
        }
        pair.run_for(Duration::from_secs(2000));
        assert_eq!(pair.ends[0].state(), State::Closed, "seed {seed}");
        assert_eq!(pair.ends[1].state(), State::Closed, "seed {seed}");
        assert_eq!(pair.ends[1].received, data, "seed {seed}");
    }
}

/// The FIN rides on the last text, which is pushed (RFC 9293 MUST-61).
#[test]
fn fin_rides_along() {
    let mut pair = pair();
    pair.ends[0].write(&[7; 2000]);
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(100));
    let sent: Vec<(u32, Flags)> = pair.ends[0]
        .sent
        .iter()
        .map(|(_, t)| (t.len, t.header.flags))
        .collect();
    assert_eq!(
        sent,
        [
            (1448, Flags::ACK),
            (552, Flags::ACK | Flags::PSH | Flags::FIN)
        ]
    );
}

/// Without quick acknowledgments and with a cork, request and response carry the handshake's last
/// acknowledgment and both FINs: six segments, as few as there can be.
#[test]
fn a_short_connection_is_six_segments() {
    let config = Config {
        quick_ack: false,
        cork: true,
        ..Config::default()
    };
    let mut pair = Pair::listening(1, &config, &config);
    while pair.ends[0].state() != State::Established {
        assert!(pair.step(Instant::FAR));
    }
    pair.ends[0].conn().set_cork(false);
    pair.ends[0].write(b"request");
    while pair.ends[1].received != b"request" {
        assert!(pair.step(Instant::FAR));
    }
    pair.ends[1].write(b"response");
    pair.drain();
    pair.ends[1].conn().shutdown();
    while !pair.ends[0].events.contains(Events::PEER_CLOSED) {
        assert!(pair.step(Instant::FAR));
    }
    assert_eq!(pair.ends[0].received, b"response");
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].state(), State::Closed);
    assert_eq!(pair.ends[1].state(), State::TimeWait);
    assert_eq!((pair.ends[0].sent.len(), pair.ends[1].sent.len()), (3, 3));
}

/// The application does not answer: the acknowledgments that waited for data go out alone, in time
/// (RFC 9293 MUST-40).
#[test]
fn waiting_acknowledgments_do_not_wait_for_ever() {
    let config = Config {
        quick_ack: false,
        ..Config::default()
    };
    let mut pair = Pair::listening(1, &config, &config);
    pair.run_for(Duration::from_millis(45));
    assert_eq!(pair.ends[1].state(), State::SynReceived);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.ends[1].state(), State::Established);
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(45));
    assert_eq!(pair.ends[0].state(), State::CloseWait);
    assert_eq!(pair.ends[1].state(), State::FinWait1);
    pair.ends[0].conn().set_quick_ack(true);
    pair.run_for(Duration::from_millis(6));
    assert_eq!(pair.ends[1].state(), State::FinWait2);
}

/// A close before the handshake is over: the FIN follows it.
#[test]
fn close_in_syn_received() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.run_for(Duration::from_millis(6));
    assert_eq!(pair.ends[1].state(), State::SynReceived);
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].state(), State::CloseWait);
    assert_eq!(pair.ends[1].state(), State::FinWait2);
}

#[test]
fn close_in_syn_sent() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    let now = pair.now;
    assert_eq!(pair.ends[0].conn().close(0, now), Events::CLOSED);
    pair.drain();
    assert!(pair.ends[0].sent.is_empty());
    assert_eq!(pair.ends[0].state(), State::Closed);
}

/// RFC 9293 §3.10.5, MUST-12: abort sends a reset to the peer, whose application gets an error.
#[test]
fn abort() {
    let mut pair = pair();
    pair.ends[0].write(b"lost");
    pair.ends[0].conn().abort();
    pair.run_for(Duration::from_millis(100));
    let reset = pair.ends[0].sent[0].1.header;
    assert!(reset.flags.contains(Flags::RST));
    assert_eq!(pair.ends[0].error, Some(Error::Aborted));
    assert_eq!(pair.ends[1].error, Some(Error::Reset));
    assert!(pair.ends[1].events.contains(Events::RESET));
}

/// RFC 9293 SHLD-3: closing with unread data resets.
#[test]
fn close_with_unread_data() {
    let mut pair = pair();
    pair.ends[1].paused = true;
    pair.ends[0].write(b"unread");
    pair.run_for(Duration::from_millis(100));
    let (unread, now) = (pair.ends[1].queue.readable_bytes(), pair.now);
    assert_eq!(unread, 6);
    pair.ends[1].conn().close(unread, now);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].error, Some(Error::Reset));
}

/// RFC 9293 §3.6.1: text that arrives after a full close resets, a FIN does not.
#[test]
fn text_after_close() {
    let mut pair = pair();
    let now = pair.now;
    pair.ends[1].conn().close(0, now);
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(b"not read");
    pair.run_for(Duration::from_millis(100));
    assert!(pair.ends[1].drops.contains(&Drop::NoReader));
    assert_eq!(pair.ends[0].error, Some(Error::Reset));
}

/// `negative 70`: FIN-WAIT-2 ends after `close`, not after `shutdown` alone.
#[test]
fn fin_wait_2_for_ever() {
    let mut pair = pair();
    let now = pair.now;
    pair.ends[0].conn().close(0, now);
    pair.run_for(Duration::from_secs(59));
    assert_eq!(pair.ends[0].state(), State::FinWait2);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(
        (pair.ends[0].state(), pair.ends[0].error),
        (State::Closed, None)
    );

    let mut pair = self::pair();
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_secs(7200));
    assert_eq!(
        pair.ends[0].state(),
        State::FinWait2,
        "half closed, for as long as it takes"
    );
    let now = pair.now;
    pair.ends[0].conn().close(0, now);
    pair.run_for(Duration::from_secs(61));
    assert_eq!(pair.ends[0].state(), State::Closed);
}

/// `negative 70`: the peer has rebooted; its RST ends what is left.
#[test]
fn peer_rebooted() {
    let mut pair = pair();
    pair.ends[1].conn = None;
    pair.ends[0].write(b"are you there?");
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.ends[0].error, Some(Error::Reset));
}

fn time_wait() -> Pair {
    let mut pair = pair();
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    assert!(pair.ends[0].time_wait.is_some());
    pair
}

/// The last FIN again: acknowledged, and the wait begins anew (RFC 9293 §3.10.7.4, eighth).
#[test]
fn fin_again_in_time_wait() {
    let mut pair = time_wait();
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    assert!(fin.flags.contains(Flags::FIN));
    pair.now = pair.now + Duration::from_secs(10);
    let now = pair.now;
    let record = pair.ends[0].time_wait.as_mut().unwrap();
    let TimeWaitVerdict::Acknowledge(ack) = record.input(&fin, 0, now) else {
        panic!("not acknowledged")
    };
    assert_eq!(ack.ack, fin.seq + 1);
    assert_eq!(record.expires(), now + Duration::from_secs(60));
}

/// A connection that was closed by another stack, which is gone: its peer's FIN is acknowledged, and begins TIME-WAIT; text before that is refused.
#[test]
fn a_closed_connection_is_taken_over() {
    let mut pair = pair();
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.ends[0].state(), State::FinWait2);
    let mut fin = pair.ends[0].sent.iter().map(|sent| sent.1.header);
    let fin = fin.rfind(|header| header.flags.contains(Flags::FIN));
    let last = fin.map(|fin| Header {
        seq: fin.seq + 1,
        flags: Flags::ACK,
        ..fin
    });
    let linger = Duration::from_secs(60);
    let mut record = TimeWait::taken_over(&last.unwrap(), linger, pair.now);
    assert!(record.awaits_end());
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    let now = pair.now;
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let text = Header {
        flags: Flags::ACK,
        ..fin
    };
    let (mut refuses, mut waits) = (record, record);
    assert_eq!(refuses.input(&text, 10, now), TimeWaitVerdict::Refuse);
    assert_eq!(waits.input(&text, 0, now), TimeWaitVerdict::Drop);
    for _ in 0..2 {
        let TimeWaitVerdict::Acknowledge(ack) = record.input(&fin, 0, now) else {
            panic!("not acknowledged")
        };
        assert_eq!((ack.ack, ack.seq), (fin.seq + 1, fin.ack));
        assert_eq!(record.expires(), now + linger);
        assert!(!record.awaits_end());
    }
    assert_ne!(record.input(&text, 10, now), TimeWaitVerdict::Refuse);
}

/// RFC 1337: TIME-WAIT is not assassinated, by RST or by old text (`negative 70`).
#[test]
fn time_wait_assassination() {
    let mut pair = time_wait();
    let now = pair.now;
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let record = pair.ends[0].time_wait.as_mut().unwrap();
    let reset = Header {
        flags: Flags::RST,
        seq: fin.seq + 1,
        ..fin
    };
    assert_eq!(record.input(&reset, 0, now), TimeWaitVerdict::Drop);
    let old = Header {
        flags: Flags::ACK,
        seq: fin.seq - 1000,
        ..fin
    };
    assert!(matches!(
        record.input(&old, 100, now),
        TimeWaitVerdict::Acknowledge(_)
    ));
    assert_eq!(
        record.input(&old, 100, now),
        TimeWaitVerdict::Drop,
        "at a limited rate"
    );
}

/// RFC 9293 MAY-2, SHLD-4, RFC 6191: a newer SYN opens anew, an older one does not.
#[test]
fn syn_in_time_wait() {
    let pair = time_wait();
    let now = pair.now;
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let last = fin.options.timestamps.unwrap().value;
    let syn = |seq, value: Option<u32>| {
        let mut header = Header {
            flags: Flags::SYN,
            seq,
            ..fin
        };
        header.options.timestamps =
            value.map(|value| crate::wire::tcp::Timestamps { value, echo: 0 });
        header
    };
    let ours = pair.ends[0].sent.last().unwrap().1.header.seq;
    let record = pair.ends[0].time_wait.unwrap();
    let reuses = |header: &Header| match record.clone().input(header, 0, now) {
        TimeWaitVerdict::Reuse { iss } => {
            assert!(iss > ours);
            true
        }
        _ => false,
    };
    assert!(
        reuses(&syn(fin.seq - 5000, Some(last + 1))),
        "newer by timestamp"
    );
    assert!(
        !reuses(&syn(fin.seq + 5000, Some(last - 1))),
        "older by timestamp"
    );
    assert!(
        reuses(&syn(fin.seq + 5000, Some(last))),
        "same tick, newer by sequence"
    );
    assert!(reuses(&syn(fin.seq + 5000, None)));
    assert!(!reuses(&syn(fin.seq - 5000, None)));
    let xmas = Header {
        flags: Flags::SYN | Flags::FIN,
        ..syn(fin.seq + 5000, Some(last + 1))
    };
    assert!(!reuses(&xmas));
}

/// RFC 6191 §2, the second half: the old connection had no timestamps. A SYN with them opens anew, whatever its number; one without
/// needs a newer one.
#[test]
fn syn_in_time_wait_without_timestamps() {
    let plain = Config {
        timestamps: false,
        ..Config::default()
    };
    let mut pair = Pair::established(&plain, &plain);
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let (record, now) = (pair.ends[0].time_wait.unwrap(), pair.now);
    let opens = |seq, value: Option<u32>| {
        let mut header = Header {
            flags: Flags::SYN,
            seq,
            ..fin
        };
        header.options.timestamps =
            value.map(|value| crate::wire::tcp::Timestamps { value, echo: 0 });
        let verdict = record.clone().input(&header, 0, now);
        matches!(verdict, TimeWaitVerdict::Reuse { .. })
    };
    assert!(opens(fin.seq - 5000, Some(1)));
    assert!(opens(fin.seq + 5000, Some(u32::MAX)));
    assert!(opens(fin.seq + 2, None));
    assert!(!opens(fin.seq + 1, None), "RCV.NXT itself is not beyond it");
    assert!(!opens(fin.seq - 5000, None));
}

/// RFC 1337 §3, RFC 9293 §3.10.7.4: no RST ends TIME-WAIT, wherever it is, with or without an ACK, and none is answered.
#[test]
fn no_reset_ends_time_wait() {
    let mut pair = time_wait();
    let (now, fin) = (pair.now, pair.ends[1].sent.last().unwrap().1.header);
    let record = pair.ends[0].time_wait.as_mut().unwrap();
    let expires = record.expires();
    for offset in [0, 1, 2, 1000, 1 << 31] {
        for flags in [Flags::RST, Flags::RST | Flags::ACK, Flags::RST | Flags::SYN] {
            let reset = Header {
                flags,
                seq: fin.seq + offset,
                ..fin
            };
            assert_eq!(record.input(&reset, 0, now), TimeWaitVerdict::Drop);
        }
    }
    assert_eq!(record.expires(), expires);
}
