//! Conditions at their edges: only an unusual peer, or an unusual moment, shows on which side of them something lies.

use super::*;
use crate::tcp::delivery::Delivery;
use crate::tcp::undo::Frto;
use crate::wire::tcp::{SackBlocks, Timestamps};

fn plain() -> Config {
    Config {
        timestamps: false,
        nagle: false,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    }
}

fn pair() -> Pair {
    Pair::established(&plain(), &plain())
}

/// RFC 2883 §4: below the acknowledgment, not backwards, and nothing from before the largest window that there was.
#[test]
fn a_duplicate_is_reported_of_what_was_sent() {
    let mut pair = pair();
    let conn = pair.ends[0].conn();
    let (una, memory) = (conn.snd.una, conn.snd.wnd_max);
    let mut is_believed = |left: SeqNum, right: SeqNum| {
        let before = pair.ends[0].conn().cold.dsacks;
        let mut header = pair.forge(0, Flags::ACK);
        header.options.sack.push(left, right);
        pair.deliver(0, &header, Vec::new());
        pair.ends[0].conn().cold.dsacks > before
    };
    let oldest = una - memory;
    assert!(is_believed(oldest, oldest + 10));
    assert!(!is_believed(oldest - 1, oldest + 10), "too old");
    assert!(!is_believed(una - 3, una - 3), "empty");
    assert!(!is_believed(una - 3, una - 4), "backwards");
    assert!(is_believed(una - 1, una), "up to the acknowledgment");
    assert!(!is_believed(una - 1, una + 1), "beyond it");
}

/// RFC 2018 §4: a block that the acknowledgment reaches into contradicts it. An empty one says nothing, one that ends with all that was sent is whole.
#[test]
fn blocks_lie_above_the_acknowledgment() {
    let sacked = |ack: u32, left: u32, right: u32| {
        let mut pair = pair();
        pair.ends[0].write(&[1; 4 * 1460]);
        pair.intercept();
        pair.now = pair.now + Duration::from_millis(10);
        let mut header = pair.forge(0, Flags::ACK);
        let una = header.ack;
        header.ack = una + ack * 1460;
        header.options.sack = SackBlocks::NONE;
        header
            .options
            .sack
            .push(una + left * 1460, una + right * 1460);
        pair.deliver(0, &header, Vec::new());
        let sent = &pair.ends[0].conn().sent;
        (sent.sacked() / 1460, sent.lost() / 1460)
    };
    assert_eq!(sacked(2, 1, 4), (0, 0), "the acknowledgment ends within it");
    assert_eq!(sacked(2, 2, 4), (0, 0), "it begins where that ends");
    assert_eq!(sacked(2, 3, 4), (1, 0));
    assert_eq!(sacked(0, 2, 2), (0, 0));
    assert_eq!(sacked(0, 1, 4), (3, 1), "to the end");
    assert_eq!(sacked(0, 1, 5), (0, 0), "never sent");
}

/// RFC 8985 §6.2, step 4: more than two segments' worth above a hole make it urgent, also in segments that are larger than they may be now.
#[test]
fn two_large_segments_above_a_hole_are_urgent() {
    for (mss, is_lost) in [(1400, true), (1460, false)] {
        let mut pair = pair();
        pair.ends[0].write(&[1; 3 * 1460]);
        pair.intercept();
        pair.now = pair.now + Duration::from_millis(10);
        pair.ends[0].conn().snd.mss = mss;
        let mut header = pair.forge(0, Flags::ACK);
        let una = header.ack;
        header.options.sack.push(una + 1460, una + 3 * 1460);
        pair.deliver(0, &header, Vec::new());
        let conn = pair.ends[0].conn();
        assert_eq!(conn.sent.lost() > 0, is_lost, "segments of {mss}");
    }
}

/// RFC 5681 §3.1, equation 4: it is the first timeout of a flight that halves, whatever was tried before it left.
#[test]
fn a_timeout_after_window_probes_halves_the_flight() {
    let mut pair = pair();
    let tell = |pair: &mut Pair, window: u16| {
        let mut header = pair.forge(0, Flags::ACK);
        header.window = window;
        pair.deliver(0, &header, Vec::new());
    };
    tell(&mut pair, 0);
    pair.ends[0].write(&[1; 20 * 1460]);
    for _ in 0..3 {
        pair.intercept();
        pair.now = pair.ends[0].conn().deadline();
        let now = pair.now;
        pair.ends[0].conn().on_timer(now);
    }
    tell(&mut pair, 60_000);
    let flight = pair.intercept().len() as u32;
    assert!(flight >= 4, "{flight}");
    while pair.ends[0].conn().info().timeouts == 0 {
        pair.now = pair.ends[0].conn().deadline();
        let now = pair.now;
        pair.ends[0].conn().on_timer(now);
        pair.intercept();
    }
    let info = pair.ends[0].conn().info();
    assert_eq!(info.sending.repair, Repair::Loss);
    assert!(info.cwnd_bytes <= 1460, "{info:?}");
    assert!(info.ssthresh_bytes <= flight * 1460 / 2, "{info:?}");
}

/// RFC 5682 §3.1, step 3: any acknowledgment that does not show an original ends the test; step 2b needs text, and room for it.
#[test]
fn a_test_of_a_timeout_goes_on_while_it_can() {
    let step = |frto: Frto, text: u32, room: u32, delivery: Delivery| {
        let mut pair = pair();
        pair.ends[0].write(&[1; 5 * 1460]);
        pair.intercept();
        let conn = pair.ends[0].conn();
        conn.recovery.frto = frto;
        conn.recovery.recover = conn.snd.nxt;
        conn.snd.end = conn.snd.nxt + text;
        conn.snd.wnd = (conn.snd.nxt - conn.snd.una).unsigned_abs() + room;
        conn.step_frto(&delivery);
        conn.recovery.frto
    };
    let nothing = Delivery::default();
    let [mut acked, mut news, mut duplicate] = [nothing; 3];
    acked.acked = 1460;
    news.news = true;
    duplicate.duplicate = true;
    assert_eq!(step(Frto::NewText, 1, 1, nothing), Frto::NewText);
    for delivery in [acked, news, duplicate] {
        assert_eq!(step(Frto::NewText, 1, 1, delivery), Frto::Off);
    }
    assert_eq!(step(Frto::Resent, 1, 1, acked), Frto::NewText);
    assert_eq!(step(Frto::Resent, 0, 1, acked), Frto::Off, "no text");
    assert_eq!(step(Frto::Resent, 1, 0, acked), Frto::Off, "no room");
    assert_eq!(step(Frto::Resent, 1, 1, duplicate), Frto::Off);
}

/// RFC 9293 §3.8.4: a connection that is over, or of which probes are not wanted, sends none, also if the timer still runs.
#[test]
fn keepalive_probes_are_for_open_connections() {
    let probes = |keepalive: bool, state: State| {
        let mut pair = pair();
        let now = pair.now;
        let conn = pair.ends[0].conn();
        conn.set_keepalive(Some(Keepalive::default()), now);
        conn.keepalive = keepalive;
        conn.state = state;
        let due = conn.timers.keepalive;
        conn.on_timer(due);
        assert_eq!(conn.timers.keepalive != Instant::FAR, conn.wants_output());
        conn.wants_output()
    };
    assert!(probes(true, State::Established));
    assert!(!probes(false, State::Established));
    assert!(!probes(true, State::TimeWait));
    assert!(!probes(true, State::SynReceived));
}

/// What was sent again hours ago is not taken for something of the future once the clock of records has come round (71 minutes).
#[test]
fn the_newest_that_arrived_does_not_become_younger() {
    let patient = Config {
        retry_timeout: Duration::from_secs(100_000),
        ..plain()
    };
    let mut pair = Pair::established(&patient, &patient);
    pair.ends[0].write(&[1; 1460]);
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(&[1; 2 * 1460]);
    pair.faults.loss = 1000;
    for minutes in 1..100 {
        pair.run_for(Duration::from_secs(60));
        let now_us = crate::tcp::sent::micros_of(pair.now);
        let conn = pair.ends[0].conn();
        let front = *conn.sent.front().expect("it is outstanding");
        let wait = conn.recovery.rack.remaining_us(&front, 0, now_us);
        assert_eq!(wait, None, "it left after all that arrived, {minutes} min");
        let (_, last) = conn.sent.last().expect("that, too");
        let age = crate::tcp::sent::elapsed_us(now_us, last.sent_us);
        assert!(age > 900_000_000 || minutes < 20, "{age} us, {minutes} min");
    }
}

/// RFC 9293 §3.8.6.1: with nothing to send there is nothing to probe with, and a FIN goes only if it is queued and behind all text.
#[test]
fn a_probe_carries_something() {
    let mut pair = pair();
    let what = |pair: &mut Pair| pair.ends[0].conn().probe().map(|s| (s.len, s.fin));
    assert_eq!(what(&mut pair), None);
    pair.ends[0].conn().snd.wnd = 0;
    pair.ends[0].write(&[1; 100]);
    assert_eq!(what(&mut pair), Some((1, false)));
    pair.ends[0].conn().shutdown();
    assert_eq!(what(&mut pair), Some((1, false)));
    let conn = pair.ends[0].conn();
    conn.snd.end = conn.snd.una;
    assert_eq!(what(&mut pair), Some((0, true)));
}

/// The end of probing: what a probe carried goes again if there is a window for it, and is waited for in any case.
#[test]
fn probing_ends_with_what_was_outstanding() {
    for (sent, window, lost) in [(1, 1000, 1), (1, 0, 0), (0, 1000, 0)] {
        let mut pair = pair();
        if sent > 0 {
            pair.ends[0].write(&[1]);
            pair.intercept();
        }
        let now = pair.now;
        let conn = pair.ends[0].conn();
        conn.probing = true;
        conn.snd.wnd = window;
        conn.timers.retransmit = Instant::FAR;
        conn.stop_probing(now);
        assert_eq!(conn.sent.lost(), lost, "{sent} sent, a window of {window}");
        assert_eq!(conn.timers.retransmit != Instant::FAR, sent > 0);
    }
}

/// An event for room in the send queue comes with text that was acknowledged, not with a FIN alone.
#[test]
fn acknowledged_text_makes_room() {
    let mut pair = pair();
    pair.ends[0].write(&[1; 10]);
    pair.ends[0].conn().shutdown();
    pair.intercept();
    let una = pair.ends[0].conn().snd.una;
    for (ack, acked) in [(10, 10), (11, 0)] {
        let mut header = pair.forge(0, Flags::ACK);
        header.ack = una + ack;
        let input = pair.deliver(0, &header, Vec::new()).unwrap();
        assert_eq!(input.acked, acked);
        assert_eq!(input.events.contains(Events::WRITABLE), acked > 0);
    }
}

/// One segment may always be in flight, however small the window is (RFC 9293 §3.8.6.2.1 is about the peer's).
#[test]
fn a_small_congestion_window_lets_one_segment_go() {
    let mut pair = pair();
    pair.ends[0].conn().congestion.window.cwnd = 0;
    pair.ends[0].write(&[1; 3000]);
    assert_eq!(pair.intercept().len(), 1);
}

/// RFC 9293 §3.10.7.3: a RST that acknowledges the SYN refuses, whatever its timestamps say; an answer must echo the SYN.
#[test]
fn a_refusal_needs_no_timestamp() {
    for (flags, error) in [
        (Flags::RST | Flags::ACK, Some(Error::Refused)),
        (Flags::SYN | Flags::ACK, None),
    ] {
        let mut pair = Pair::listening(1, &Config::default(), &Config::default());
        pair.intercept();
        let mut header = pair.forge(0, flags);
        header.ack = ISS[0] + 1;
        header.options.timestamps = Some(Timestamps {
            value: 5,
            echo: 0x7777_7777,
        });
        let input = pair.deliver(0, &header, Vec::new()).unwrap();
        let drop = if error.is_some() {
            Drop::Reset
        } else {
            Drop::Paws
        };
        assert_eq!(input.drop, Some(drop));
        assert_eq!(pair.ends[0].conn().error(), error);
    }
}

/// What comes behind the end is dropped as that.
#[test]
fn a_closed_connection_takes_nothing() {
    let mut pair = pair();
    let header = pair.forge(0, Flags::ACK | Flags::PSH);
    pair.ends[0].conn().abort();
    let (mut queue, mut pool) = (ReceiveQueue::new(), SegmentPool::with_capacity(8));
    let now = pair.now;
    let conn = pair.ends[0].conn();
    let input = conn.input(
        &header,
        Ecn::NotEct,
        std::vec![1; 10],
        &mut queue,
        &mut pool,
        now,
    );
    assert_eq!(input.drop, Some(Drop::Closed));
    assert_eq!(queue.readable_bytes(), 0);
}

/// RFC 9293 §3.10.7.1: the answer goes where the segment came from.
#[test]
fn a_reset_goes_back() {
    let mut pair = pair();
    let header = pair.forge(0, Flags::ACK);
    let reset = reset_for(&header, 0).unwrap();
    assert_eq!(reset.source_port, header.destination_port);
    assert_eq!(reset.destination_port, header.source_port);
    assert_eq!((reset.seq, reset.flags), (header.ack, Flags::RST));
}

/// [`Connection::set_fin_wait_2`] is how long FIN-WAIT-2 lasts once the application has closed.
#[test]
fn fin_wait_2_lasts_as_long_as_was_said() {
    let mut pair = pair();
    pair.ends[0].conn().set_fin_wait_2(Duration::from_secs(7));
    let now = pair.now;
    pair.ends[0].conn().close(0, now);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.ends[0].state(), State::FinWait2);
    let linger = pair.ends[0].conn().timers.linger;
    assert_eq!(linger.since(now).as_secs(), 7);
}

/// TIME-WAIT answers twice a second at most: what is not its peer's last FIN would else have it talk to another TIME-WAIT for ever.
#[test]
fn time_wait_answers_twice_a_second() {
    let mut pair = pair();
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    let mut stray = pair.ends[1].sent.last().unwrap().1.header;
    stray.flags = Flags::ACK;
    stray.seq = stray.seq - 10;
    let start = pair.now;
    let record = pair.ends[0].time_wait.as_mut().unwrap();
    let mut answers = |header: &Header, ms: u64| {
        let verdict = record.input(header, 5, start + Duration::from_millis(ms));
        matches!(verdict, TimeWaitVerdict::Acknowledge(_))
    };
    let all = [0, 1, 499, 500, 999, 1000].map(|ms| answers(&stray, ms));
    assert_eq!(all, [true, false, false, true, false, true]);
}

/// Header prediction of an acknowledgment that ends within a segment, with accurate ECN: all that follows from it is done.
#[test]
fn a_part_of_a_segment_is_acknowledged() {
    let config = Config {
        ecn: EcnMode::Accurate,
        ..plain()
    };
    let mut pair = Pair::established(&config, &config);
    pair.ends[0].write(&[1; 1460]);
    pair.run_for(Duration::from_millis(100));
    let told = pair.ends[1].sent.last().unwrap().1.header;
    pair.ends[0].write(&[1; 1460]);
    pair.intercept();
    let ack = pair.ends[0].conn().snd.una + 500;
    pair.now = pair.now + Duration::from_millis(30);
    pair.deliver(0, &Header { ack, ..told }, Vec::new());
    let conn = pair.ends[0].conn();
    assert_eq!(conn.recovery.recover, ack - 1);
    assert!(conn.rtt.srtt_us > 10_000, "30 ms were measured");
}

/// An acknowledgment of all, in order, is what ends the handshake of closing: TIME-WAIT has nothing to say to it, but to one of anything else.
#[test]
fn time_wait_does_not_answer_the_last_acknowledgment() {
    for (apart, is_answered) in [(0, false), (1, true)] {
        let mut pair = pair();
        pair.ends[0].conn().shutdown();
        pair.run_for(Duration::from_millis(20));
        pair.ends[1].conn().shutdown();
        pair.run_for(Duration::from_millis(20));
        let mut last = pair.ends[1].sent.last().unwrap().1.header;
        last.flags = Flags::ACK;
        (last.seq, last.ack) = (last.seq + 1, last.ack - apart);
        let now = pair.now;
        let verdict = pair.ends[0]
            .time_wait
            .as_mut()
            .unwrap()
            .input(&last, 0, now);
        let answered = matches!(verdict, TimeWaitVerdict::Acknowledge(_));
        assert_eq!(answered, is_answered);
    }
}

/// Until its record takes over, a connection in TIME-WAIT has the time that this lasts, and no other timer.
#[test]
fn time_wait_begins_with_its_timer() {
    let mut pair = pair();
    let now = pair.now;
    let conn = pair.ends[0].conn();
    conn.set_keepalive(Some(Keepalive::default()), now);
    assert_eq!(conn.enter_time_wait(now), Events::TIME_WAIT);
    assert_eq!(conn.deadline(), now + Duration::from_secs(60));
}

/// RFC 9293 §3.8.5: what is urgent ends before the octet that is named; if all of that was received, nothing is.
#[test]
fn urgent_text_is_yet_to_come() {
    for (urgent, is_news) in [(5, false), (6, true)] {
        let mut pair = pair();
        pair.ends[0].write(&[1; 5]);
        pair.run_for(Duration::from_millis(100));
        let mut header = pair.forge(1, Flags::ACK | Flags::URG);
        (header.seq, header.urgent) = (header.seq - 5, urgent);
        let input = pair.deliver(1, &header, std::vec![1; 10]).unwrap();
        assert_eq!(input.events.contains(Events::URGENT), is_news);
        assert_eq!(pair.ends[1].received.len(), 10);
    }
}

/// RFC 9293 §3.4, §3.10.7.4, seventh and eighth: a FIN behind text that fills the window to its end is taken; behind more, it is not; behind text
/// that came before, it is what is new.
#[test]
fn a_fin_at_the_edge_of_the_window() {
    for (before, beyond, takes) in [(0, 0, true), (0, 1, false), (5, 0, true)] {
        let mut pair = Pair::established(
            &plain(),
            &Config {
                receive_buffer: 3000,
                ..plain()
            },
        );
        pair.ends[0].write(&[1; 5]);
        pair.run_for(Duration::from_millis(100));
        let rcv = pair.ends[1].conn().rcv;
        let room = if before > 0 { 0 } else { rcv.edge - rcv.nxt };
        let mut header = pair.forge(1, Flags::ACK | Flags::FIN);
        header.seq = header.seq - before;
        let len = before + room.cast_unsigned() + beyond;
        pair.deliver(1, &header, std::vec![1; len as usize]);
        let closed = pair.ends[1].events.contains(Events::PEER_CLOSED);
        assert_eq!(closed, takes, "{before} before, {beyond} beyond");
    }
}

/// RFC 6298 §5.7 is for a SYN that was sent again: a clock that stood still, or went back, costs no more than the measurement.
#[test]
fn a_handshake_that_cannot_be_measured_keeps_the_first_timeout() {
    for (again, ms) in [(false, 1000), (true, 3000)] {
        let mut pair = Pair::listening(1, &plain(), &plain());
        pair.intercept();
        let now = pair.now;
        let conn = pair.ends[0].conn();
        conn.last_sent = now + Duration::from_millis(1);
        conn.attempts = u8::from(again);
        let mut header = pair.forge(0, Flags::SYN | Flags::ACK);
        header.ack = ISS[0] + 1;
        pair.deliver(0, &header, Vec::new());
        assert_eq!(pair.ends[0].state(), State::Established);
        assert_eq!(pair.ends[0].conn().rto().as_millis(), ms);
    }
}

/// Two segments leave together as soon as they may.
#[test]
fn a_burst_is_of_whole_segments() {
    for (burst, lens) in [(2919, [1460, 1460]), (2920, [2920, 80]), (4000, [2920, 80])] {
        let mut pair = pair();
        pair.ends[0].conn().set_burst(burst);
        pair.ends[0].write(&[1; 3000]);
        pair.intercept();
        let sent: Vec<u32> = pair.ends[0].sent.iter().map(|(_, t)| t.len).collect();
        assert_eq!(sent[..2], lens, "{burst}");
    }
}

/// RFC 5681 §4.1: after more than a timeout of silence the window begins small.
#[test]
fn a_window_is_used_for_a_timeout_after_the_last_segment() {
    for (late, cwnd) in [(0, 40), (1, 10)] {
        let mut pair = pair();
        pair.ends[0].write(&[1]);
        pair.run_for(Duration::from_millis(50));
        let conn = pair.ends[0].conn();
        conn.congestion.window.cwnd = 40 * 1460;
        let silence = conn.rtt.rto_us() + late;
        pair.now = pair.ends[0].conn().last_sent.plus_micros(silence);
        pair.ends[0].write(&[1]);
        pair.intercept();
        let now = pair.ends[0].conn().cwnd() / 1460;
        assert!(if late == 0 { now == cwnd } else { now <= 20 }, "{now}");
    }
}

/// What a queue and its pool say of themselves.
#[test]
fn a_queue_knows_what_it_holds() {
    let mut pair = pair();
    pair.ends[1].paused = true;
    assert!(pair.ends[1].queue.is_idle());
    for n in 0..3 {
        pair.ends[0].write(&std::vec![n; 1460]);
    }
    pair.run_for(Duration::from_millis(50));
    let end = &pair.ends[1];
    assert!(!end.queue.is_idle());
    let held: Vec<u8> = end.queue.iter(&end.pool).map(|text| text[0]).collect();
    assert_eq!(held, [0, 1, 2]);
    assert!(!end.pool.is_short_behind(1460));
    assert!(SegmentPool::<Vec<u8>>::with_capacity(0).is_short_behind(1));
}

/// Times of records wrap: the later half of them is the future.
#[test]
fn ages_wrap() {
    use crate::tcp::sent::elapsed_us;
    assert_eq!(elapsed_us(0x7fff_ffff, 0), 0x7fff_ffff);
    assert_eq!(elapsed_us(0x8000_0000, 0), 0);
    assert_eq!(elapsed_us(4, u32::MAX), 5);
    assert_eq!(elapsed_us(u32::MAX, 4), 0);
}
