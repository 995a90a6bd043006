//! What can be asked of a connection and set on it, each by itself: tables of states and numbers on both sides of what they are compared with.

use super::*;
use crate::tcp::cold::{Cold, Periods};
use crate::tcp::connection::RECORDS_MAX;
use crate::tcp::variables::{Pending, QUICK_ACKS, Settings, TIMESTAMPS_LEN, millis};

/// In SYN-SENT, with sequence number 1,000.
fn opening(config: &Config) -> Connection {
    Connection::open_active(config, 1, 2, SeqNum(1_000), 0, Instant(1_000_000_000))
}

/// In `state`, with nothing sent and nothing received.
fn open(state: State) -> Connection {
    let mut conn = opening(&Config::default());
    conn.state = state;
    conn.pending = Pending::default();
    conn.irs = SeqNum(5_000);
    conn.rcv.nxt = SeqNum(5_001);
    conn.last_ack_sent = SeqNum(5_001);
    (conn.snd.una, conn.snd.nxt, conn.snd.end) = (SeqNum(1_001), SeqNum(1_001), SeqNum(1_001));
    conn
}

/// RFC 9293 §3.10.2: where a write is taken, now or once the handshake is over.
#[test]
fn states_in_which_may_be_written() {
    use State::*;
    for (state, now, later) in [
        (SynSent, false, true),
        (SynReceived, false, true),
        (Established, true, true),
        (CloseWait, true, true),
        (FinWait1, false, false),
        (FinWait2, false, false),
        (Closing, false, false),
        (LastAck, false, false),
        (TimeWait, false, false),
        (Closed, false, false),
    ] {
        let mut conn = open(state);
        assert_eq!(conn.can_send(), now, "{state:?}");
        assert_eq!(conn.is_open_for_writing(), later, "{state:?}");
        conn.fin_queued = true;
        assert!(!conn.can_send() && !conn.is_open_for_writing());
        conn.fin_queued = false;
        conn.no_writer = true;
        assert!(conn.has_no_writer());
        let handshake = matches!(state, SynSent | SynReceived);
        assert_eq!(conn.is_open_for_writing(), handshake, "{state:?}");
    }
    assert!(!open(Established).has_no_writer());
}

/// Writes count while there is a send side; those of nothing are none.
#[test]
fn writes_are_counted() {
    for (state, fin, n, counts) in [
        (State::Established, false, 10, true),
        (State::SynSent, false, 10, true),
        (State::Established, false, 0, false),
        (State::Established, true, 10, false),
        (State::Closed, false, 10, false),
    ] {
        let mut conn = open(state);
        conn.fin_queued = fin;
        conn.written(n);
        let found = (conn.snd.end - SeqNum(1_001), conn.wants_output());
        assert_eq!(found, if counts { (10, true) } else { (0, false) });
    }
}

/// RFC 9293 §3.4: the SYN has a number and is no text; once numbers have come round, that number is text.
#[test]
fn what_was_written_and_not_sent() {
    let mut conn = opening(&Config::default());
    conn.written(10);
    assert_eq!((conn.unacknowledged(), conn.unsent()), (10, 10));
    conn.snd.nxt = SeqNum(1_001); // the SYN left
    assert_eq!((conn.unacknowledged(), conn.unsent()), (10, 10));
    conn.snd.nxt = SeqNum(1_004); // with text
    assert_eq!((conn.unacknowledged(), conn.unsent()), (10, 7));
    conn.state = State::Established;
    assert_eq!((conn.unacknowledged(), conn.unsent()), (11, 7));
    (conn.snd.una, conn.snd.nxt) = (SeqNum(1_006), SeqNum(1_012)); // a FIN
    assert_eq!((conn.unacknowledged(), conn.unsent()), (5, 0));
}

#[test]
fn what_comes_next_or_came_before() {
    let mut conn = open(State::Established);
    conn.attempts = 3;
    assert_eq!(conn.attempts(), 3);
    let next = [5_000, 5_001, 5_002].map(|seq| conn.is_next(SeqNum(seq)));
    assert_eq!(next, [true, true, false]);
    assert_eq!(
        (conn.iss(), conn.local_port(), conn.remote_port()),
        (SeqNum(1_000), 1, 2)
    );
}

/// RFC 9293 §3.8.6.1: a closed window is asked for again and again, and that can be seen.
#[test]
fn a_closed_window_is_asked_for() {
    let small = Config {
        receive_buffer: 5_000,
        ..Config::default()
    };
    let mut pair = Pair::established(&Config::default(), &small);
    pair.ends[1].paused = true;
    assert!(!pair.ends[0].conn().is_probing());
    pair.ends[0].write(&[1; 20_000]);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.ends[0].conn().is_probing());
    pair.ends[1].paused = false;
    pair.ends[1].read(usize::MAX);
    pair.run_for(Duration::from_secs(2));
    assert!(!pair.ends[0].conn().is_probing());
}

/// RFC 9293 MUST-33: how much has to be read until the urgent data ends.
#[test]
fn urgent_data_that_is_left() {
    for (end, unread, fin, left) in [
        (5_011, 10, false, Some(20)),
        (5_001, 10, false, Some(10)),
        (4_992, 10, false, Some(1)),
        (4_991, 10, false, None),
        (4_991, 10, true, Some(1)),
    ] {
        let mut conn = open(State::Established);
        conn.urgent = true;
        conn.cold.urgent_end = SeqNum(end);
        conn.unread = unread;
        conn.peer_fin_reached = fin;
        assert_eq!(conn.urgent_remaining(), left, "{end}");
        conn.urgent = false;
        assert_eq!(conn.urgent_remaining(), None);
    }
    let mut conn = open(State::Established);
    (conn.urgent, conn.unread, conn.cold.urgent_end) = (true, 10, SeqNum(4_996));
    conn.consumed(4);
    assert!(conn.urgent, "one is left");
    conn.consumed(1);
    assert!(!conn.urgent);
    conn.consumed(100);
    assert_eq!(conn.unread, 0);
}

#[test]
fn settings_while_open() {
    let mut conn = open(State::Established);
    conn.set_nagle(true);
    assert!(conn.nagle && !conn.snd.pushes && conn.pending.has(Pending::SEND));
    conn.set_nagle(false);
    assert!(
        !conn.nagle && conn.snd.pushes,
        "what waits goes, as in Linux"
    );
    let mut conn = open(State::Established);
    conn.set_cork(true);
    assert!(conn.corked && conn.pending.has(Pending::SEND));
    conn.set_cork(false);
    assert!(!conn.corked);
    conn.set_burst(12_345);
    assert_eq!(conn.settings.burst, 12_345);
    conn.limit_window(77);
    assert_eq!(conn.window_limit, 77);
    for (asked, kept) in [(0, 1), (5, 5)] {
        conn.set_user_timeout(Duration::from_millis(asked));
        conn.set_syn_timeout(Duration::from_millis(asked));
        assert_eq!(
            (conn.settings.retry_ms, conn.settings.syn_retry_ms),
            (kept, kept)
        );
    }
}

/// An acknowledgment that waits goes with the wish for quick ones; none is made up.
#[test]
fn quick_acknowledgments() {
    for (on, waits, acks, goes) in [
        (true, true, QUICK_ACKS, true),
        (true, false, QUICK_ACKS, false),
        (false, true, 0, false),
    ] {
        let mut conn = open(State::Established);
        conn.quick_acks = 3;
        if waits {
            conn.timers.delayed_ack = Instant(5);
        }
        conn.set_quick_ack(on);
        assert_eq!((conn.quick_ack, conn.quick_acks), (on, acks));
        assert_eq!(conn.pending.has(Pending::ACK), goes);
    }
}

/// Another congestion control goes on with the window as it is, and no pace of the one before holds text back.
#[test]
fn another_congestion_control() {
    let mut conn = open(State::Established);
    conn.congestion.open(20_000, 1_000);
    conn.rtt.srtt_us = 10_000;
    for control in CongestionControl::ALL {
        conn.pending = Pending::default();
        conn.timers.pacing = Instant(9);
        conn.set_congestion(control, Instant(0));
        assert_eq!(conn.congestion_control(), control);
        assert_eq!((conn.cwnd(), conn.timers.pacing), (20_000, Instant::FAR));
        assert!(conn.pending.has(Pending::SEND));
        let is_paced = conn.congestion.pacing_rate() > 0;
        assert_eq!(is_paced, control == CongestionControl::Bbr);
    }
    conn.set_congestion(CongestionControl::Cubic, Instant(0));
    conn.pending = Pending::default();
    conn.timers.pacing = Instant(9);
    conn.set_pacing_rate_max(5_000);
    assert_eq!(
        (conn.congestion.pacing_rate(), conn.timers.pacing),
        (5_000, Instant::FAR)
    );
    assert!(conn.pending.has(Pending::SEND));
    conn.set_pacing_rate_max(0);
    assert_eq!(conn.congestion.pacing_rate(), 0);
}

/// RFC 9293 MUST-24: off unless asked for; at least one probe.
#[test]
fn keep_alive_is_set() {
    let now = Instant(7_000_000_000);
    let mut conn = open(State::Established);
    conn.keepalives_sent = 4;
    let keepalive = Keepalive {
        idle: Duration::from_secs(3),
        interval: Duration::from_secs(2),
        probes: 0,
    };
    conn.set_keepalive(Some(keepalive), now);
    let periods = *conn.periods;
    assert_eq!(
        (periods.keepalive_idle_ms, periods.keepalive_interval_ms),
        (3_000, 2_000)
    );
    assert_eq!((periods.keepalive_probes, conn.keepalives_sent), (1, 0));
    assert_eq!(conn.timers.keepalive, now + Duration::from_secs(3));
    conn.set_keepalive(None, now);
    assert_eq!(
        (conn.timers.keepalive, *conn.periods),
        (Instant::FAR, periods)
    );
}

/// Linux's MSG_EOR: where records end that are not acknowledged, once each.
#[test]
fn records_end_where_it_was_said() {
    let mut conn = open(State::Established);
    conn.end_record();
    assert!(
        !conn.sends_marks && conn.cold.records.is_empty(),
        "nothing was written"
    );
    conn.written(10);
    conn.end_record();
    conn.end_record();
    conn.written(5);
    conn.end_record();
    assert_eq!(conn.cold.records, [SeqNum(1_011), SeqNum(1_016)]);
    assert_eq!(conn.cold.urgent_out, conn.snd.una, "nothing is urgent");
    for (start, len, found) in [
        (1_001, 9, (9, false)),
        (1_001, 10, (10, true)),
        (1_001, 11, (10, true)),
        (1_010, 9, (1, true)),
        (1_011, 9, (5, true)),
        (1_011, 4, (4, false)),
        (1_016, 9, (9, false)),
    ] {
        assert_eq!(
            conn.within_record(SeqNum(start), len),
            found,
            "{start} {len}"
        );
    }
    for (una, left) in [(1_010, 2), (1_011, 1), (1_015, 1), (1_016, 0)] {
        conn.snd.una = SeqNum(una);
        conn.forget_marks();
        assert_eq!(
            (conn.cold.records.len(), conn.sends_marks),
            (left, left > 0)
        );
        assert_eq!(conn.cold.urgent_out, SeqNum(una));
    }
    for _ in 0..=RECORDS_MAX {
        conn.written(1);
        conn.end_record();
    }
    assert_eq!(conn.cold.records.len(), RECORDS_MAX);
    let mut conn = open(State::Established);
    conn.written(10);
    conn.mark_urgent();
    conn.end_record();
    assert_eq!(conn.cold.urgent_out, SeqNum(1_011), "it is urgent still");
}

/// The end says why, once, and leaves nothing to do.
#[test]
fn the_end() {
    for (error, events) in [
        (None, Events::CLOSED),
        (Some(Error::TimedOut), Events::RESET | Events::CLOSED),
    ] {
        let mut conn = open(State::Established);
        conn.pending.set(Pending::SEND);
        conn.duplicate_acks_owed = 3;
        conn.timers.keepalive = Instant(9);
        assert!(!conn.is_finished());
        assert_eq!(conn.finish(error), events);
        assert_eq!((conn.state(), conn.error()), (State::Closed, error));
        assert!(conn.is_finished() && conn.deadline() == Instant::FAR);
        assert_eq!(conn.duplicate_acks_owed, 0);
        assert_eq!(conn.finish(Some(Error::Reset)), Events::NONE);
        assert_eq!(conn.error(), error);
        conn.pending.set(Pending::RST);
        assert!(!conn.is_finished(), "a RST is to leave");
    }
}

/// Heap beside the connection: what few need is there once it is written, and unusual periods with the connection.
#[test]
fn memory_is_counted() {
    let usual = open(State::Established);
    assert_eq!((usual.heap_bytes(), usual.records_bytes()), (0, 0));
    let mut conn = opening(&Config {
        time_wait: Duration::from_secs(1),
        ..Config::default()
    });
    assert_eq!(conn.heap_bytes(), size_of::<Periods>());
    conn.state = State::Established;
    conn.written(10);
    conn.end_record();
    assert_eq!(conn.heap_bytes(), size_of::<Periods>() + size_of::<Cold>());
    let mut pair = Pair::established(&Config::default(), &Config::default());
    for _ in 0..300 {
        pair.ends[0].write(&[1; 100]);
        pair.drain();
    }
    let conn = pair.ends[0].conn();
    let records = conn.records_bytes();
    assert!(records > 10, "{records}");
    assert_eq!(conn.heap_bytes(), records + conn.cold.heap_bytes());
}

/// RFC 7323 §2.2: the least shift with which 16 bits hold the buffer, or what it may grow to; 14 at most.
#[test]
fn the_window_shift() {
    for (buffer, most, shift) in [
        (65_535, 0, 0),
        (65_536, 0, 1),
        (1_000, 65_536, 1),
        (65_535 << 13, 0, 13),
        (1 << 30, 0, 14),
        (65_535, 65_535, 0),
    ] {
        let conn = opening(&Config {
            receive_buffer: buffer,
            receive_buffer_max: most,
            ..Config::default()
        });
        assert_eq!(conn.rcv.scale, shift, "{buffer} {most}");
    }
    let without = Config {
        window_scale: false,
        ..Config::default()
    };
    assert_eq!(opening(&without).rcv.scale, 0);
}

/// Settings that make no sense become the nearest that do.
#[test]
fn settings_have_limits() {
    let config = Config {
        mss: 10,
        default_mss: 20,
        max_gaps: 0,
        max_segments: 7,
        receive_buffer: 0,
        delayed_ack: Duration::from_millis(500),
        ..Config::default()
    };
    let conn = opening(&config);
    let Settings {
        mss,
        default_mss,
        max_gaps,
        max_segments,
        receive_buffer,
        delayed_ack_us,
        ..
    } = conn.settings;
    assert_eq!((mss, default_mss, max_gaps, max_segments), (64, 64, 1, 8));
    assert_eq!(receive_buffer, 1);
    assert_eq!(
        delayed_ack_us, 499_000,
        "RFC 9293 MUST-40: less than half a second"
    );
    let large = Config {
        receive_buffer: u32::MAX,
        ..Config::default()
    };
    assert_eq!(opening(&large).settings.receive_buffer, 1 << 30);
    assert_eq!(millis(Duration::from_micros(1_999)), 1);
    assert_eq!(millis(Duration::from_secs(1 << 40)), u32::MAX);
    let mut conn = open(State::Established);
    conn.negotiate(&Header::default(), Instant(0));
    assert_eq!((conn.send_mss(), conn.timestamps), (536, false));
    assert_eq!(TIMESTAMPS_LEN, 12);
}

/// What is to be looked at: bits that come and go alone.
#[test]
fn pending_is_a_set() {
    let mut pending = Pending::default();
    pending.set(Pending::ACK);
    pending.set(Pending::ACK | Pending::SEND);
    assert!(pending.has(Pending::ACK) && pending.has(Pending::SEND));
    assert!(!pending.has(Pending::SYN) && pending.has(Pending::SYN | Pending::ACK));
    pending.clear(Pending::ACK | Pending::RST);
    assert_eq!(pending, Pending(Pending::SEND));
}
