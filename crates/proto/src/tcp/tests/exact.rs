//! Conditions that decide seldom, and would not be missed for long: each test fails if its condition goes.

use super::*;
use crate::wire::tcp::Timestamps;

fn plain(sack: bool) -> Config {
    Config {
        sack,
        timestamps: false,
        nagle: false,
        window_scale: false,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    }
}

fn pair(sack: bool) -> Pair {
    Pair::established(&plain(sack), &plain(sack))
}

/// RFC 9293 §3.10.7.4: the window is that of the newest segment, by SEG.SEQ and then SEG.ACK; one that acknowledges more is newer in any case.
#[test]
fn the_window_is_the_newest_segments() {
    let mut pair = pair(true);
    pair.ends[0].write(&[1; 3000]);
    pair.intercept();
    let una = pair.ends[0].conn().snd.una;
    let mut tell = |ahead: u32, ack: u32, window: u16| {
        let mut header = pair.forge(0, Flags::ACK);
        header.seq = header.seq + ahead;
        (header.ack, header.window) = (una + ack, window);
        pair.deliver(0, &header, Vec::new());
        let snd = pair.ends[0].conn().snd;
        (snd.wnd, snd.wl1 - header.seq, snd.wl2 - una)
    };
    assert_eq!(tell(100, 0, 5000), (5000, 0, 0));
    assert_eq!(tell(0, 0, 9000), (5000, 100, 0), "older by its number");
    assert_eq!(tell(99, 0, 7), (5000, 1, 0), "older by one");
    assert_eq!(tell(100, 0, 6000), (6000, 0, 0), "of the same age");
    assert_eq!(tell(101, 0, 4000), (4000, 0, 0), "newer");
    assert_eq!(tell(0, 1460, 2000), (2000, 0, 1460), "it acknowledges more");
    assert_eq!(tell(1, 1460, 3000), (3000, 0, 1460));
}

/// RFC 5681 §2 (d): with another window it is a window update, no duplicate.
#[test]
fn a_window_update_is_no_duplicate() {
    for changes in [false, true] {
        let mut pair = pair(false);
        pair.ends[0].conn().congestion.window.cwnd = 20 * 1460;
        pair.ends[0].write(&[1; 10 * 1460]);
        pair.intercept();
        let una = pair.ends[0].conn().snd.una;
        // As RFC 6582 wants it: something was acknowledged in this flight.
        for n in 0..5_u16 {
            let mut header = pair.forge(0, Flags::ACK);
            header.ack = una + 1460;
            header.window = 30_000 + if changes { n * 1000 } else { 0 };
            pair.deliver(0, &header, Vec::new());
        }
        let conn = pair.ends[0].conn();
        let (duplicates, recoveries) = (conn.recovery.duplicates, conn.info().recoveries);
        assert_eq!((duplicates > 0, recoveries > 0), (!changes, !changes));
    }
}

/// RFC 9293 §3.8.6.2.2: the window does not open by less than a segment, or half the buffer.
#[test]
fn the_window_opens_by_a_segment_at_least() {
    let config = Config {
        receive_buffer: 8000,
        ..plain(true)
    };
    let mut pair = Pair::established(&config, &config);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[1; 20_000]);
    pair.run_for(Duration::from_secs(3));
    let window = |pair: &mut Pair, read: usize| {
        pair.ends[1].read(read);
        let now = pair.now;
        let conn = pair.ends[1].conn();
        conn.pending.set(super::super::variables::Pending::ACK);
        conn.output(now).unwrap().header.window
    };
    assert_eq!(window(&mut pair, 0), 0);
    assert_eq!(window(&mut pair, 700), 0);
    assert_eq!(window(&mut pair, 759), 0, "a byte less than a segment");
    assert_eq!(window(&mut pair, 1), 1460);
    assert_eq!(window(&mut pair, 1459), 1460, "and again");
    assert_eq!(window(&mut pair, 1), 2920);
}

/// RFC 6191 §2: of a SYN with the timestamp heard last, the sequence number decides.
#[test]
fn a_syn_of_the_same_moment_is_judged_by_its_number() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let value = fin.options.timestamps.unwrap().value;
    let now = pair.now;
    let record = pair.ends[0].time_wait.unwrap();
    let reuses = |age: u32, beyond: u32| {
        let mut syn = Header {
            flags: Flags::SYN,
            seq: fin.seq + 1 + beyond,
            ..fin
        };
        syn.options.timestamps = Some(Timestamps {
            value: value.wrapping_add(age),
            echo: 0,
        });
        let verdict = record.clone().input(&syn, 0, now);
        matches!(verdict, TimeWaitVerdict::Reuse { .. })
    };
    assert!(!reuses(0, 0), "same moment, not beyond");
    assert!(!reuses(0, 0_u32.wrapping_sub(5)));
    assert!(reuses(0, 1), "same moment, beyond");
    assert!(reuses(1, 0), "later");
    assert!(!reuses(0_u32.wrapping_sub(1), 1), "earlier");
}

/// RFC 9293 §3.8.6.1 (SHLD-30): the time between probes grows, however often the peer answers that its window is closed; once it opens, the
/// timeout is again what the path asks for.
#[test]
fn probes_become_rarer_whatever_is_answered() {
    let mut pair = pair(true);
    let usual = pair.ends[0].conn().rtt.rto_us();
    let close = |pair: &mut Pair| {
        let mut header = pair.forge(0, Flags::ACK);
        header.window = 0;
        pair.deliver(0, &header, Vec::new());
    };
    close(&mut pair);
    pair.ends[0].write(&[1; 5000]);
    pair.intercept();
    let mut last = pair.now;
    let mut waits = Vec::new();
    for _ in 0..6 {
        pair.now = pair.ends[0].conn().deadline();
        waits.push(pair.now.since(last).as_millis());
        last = pair.now;
        let now = pair.now;
        pair.ends[0].conn().on_timer(now);
        assert_eq!(pair.intercept().len(), 1, "a probe");
        close(&mut pair);
    }
    for two in waits.windows(2) {
        assert!(two[1] >= two[0] * 2 - 1, "{waits:?}");
    }
    assert!(waits[5] >= 32 * waits[0] - 32, "{waits:?}");
    let mut open = pair.forge(0, Flags::ACK);
    open.window = 30_000;
    pair.deliver(0, &open, Vec::new());
    assert!(!pair.intercept().is_empty());
    let timeout = pair.ends[0].conn().timers.retransmit.since(pair.now);
    assert!(timeout.as_micros() <= u128::from(usual), "{timeout:?}");
}

/// RFC 9293 §3.10.7.4, second: in CLOSING and LAST-ACK a RST ends the connection without an error; in TIME-WAIT it does nothing (RFC 1337 §3).
#[test]
fn a_reset_at_the_end_is_no_error() {
    let mut pair = pair(true);
    let fin = pair.forge(1, Flags::ACK | Flags::FIN);
    pair.deliver(1, &fin, Vec::new());
    pair.ends[1].conn().shutdown();
    pair.intercept();
    assert_eq!(pair.ends[1].state(), State::LastAck);
    let mut conn = pair.ends[1].conn().clone();
    let reset = pair.forge(1, Flags::RST);
    let input = pair.deliver(1, &reset, Vec::new()).unwrap();
    assert!(input.events.contains(Events::CLOSED) && !input.events.contains(Events::RESET));
    assert_eq!(pair.ends[1].conn().error(), None);
    // All is acknowledged: TIME-WAIT, as long as the connection has not become its record.
    conn.state = State::Closing;
    let now = pair.now;
    let ack = Header {
        flags: Flags::ACK,
        ack: conn.snd.nxt,
        ..reset
    };
    let (mut queue, mut pool) = (ReceiveQueue::new(), SegmentPool::with_capacity(8));
    let mut take = |header: &Header| {
        conn.input(header, Ecn::NotEct, Vec::new(), &mut queue, &mut pool, now);
        (conn.state(), conn.error())
    };
    assert_eq!(take(&ack), (State::TimeWait, None));
    assert_eq!(take(&reset), (State::TimeWait, None));
}

/// An acknowledgment of something new: what ICMP said before was passing, and the urgent data has arrived if it reaches its end.
#[test]
fn progress_ends_what_was_said_before() {
    let mut pair = pair(true);
    pair.ends[0].write(&[1; 100]);
    pair.ends[0].conn().mark_urgent();
    pair.ends[0].write(&[1; 100]);
    pair.intercept();
    let una = pair.ends[0].conn().snd.una;
    pair.ends[0]
        .conn()
        .on_icmp(IcmpError::v4(3, 1).unwrap(), una, true);
    assert!(pair.ends[0].conn().soft_error().is_some());
    for (ack, is_urgent) in [(99, true), (100, false)] {
        let mut header = pair.forge(0, Flags::ACK);
        header.ack = una + ack;
        pair.deliver(0, &header, Vec::new());
        let conn = pair.ends[0].conn();
        assert_eq!((conn.soft_error(), conn.sends_marks), (None, is_urgent));
    }
}
