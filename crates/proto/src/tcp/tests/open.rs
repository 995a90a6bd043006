//! Opens: active, passive, simultaneous, refused, given up; and what a SYN negotiates.

use super::*;
use crate::wire::tcp::{Options, Timestamps};

fn plain() -> Config {
    Config {
        timestamps: false,
        sack: false,
        window_scale: false,
        ..Config::default()
    }
}

#[test]
fn three_way_handshake() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    assert_eq!(pair.ends[0].state(), State::SynSent);
    pair.run_for(Duration::from_millis(6));
    assert_eq!(pair.ends[1].state(), State::SynReceived);
    pair.run_for(Duration::from_millis(100));
    for end in &pair.ends {
        assert_eq!(end.state(), State::Established);
        assert!(end.events.contains(Events::ESTABLISHED));
    }
    let syn = pair.ends[0].sent[0].1.header;
    assert_eq!(syn.flags, Flags::SYN);
    let syn_ack = pair.ends[1].sent[0].1.header;
    assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
    assert_eq!(syn_ack.ack, ISS[0] + 1);
    assert_eq!(pair.ends[0].sent[1].1.header.flags, Flags::ACK);
    assert_eq!(pair.ends[0].sent.len(), 2, "SYN and ACK, no more");
}

/// RFC 9293 MUST-14, MUST-65: MSS in SYNs only; RFC 7323 §3.2: timestamps in everything.
#[test]
fn options_are_negotiated() {
    let config = Config {
        receive_buffer: 1 << 20,
        ..Config::default()
    };
    let mut pair = Pair::listening(1, &config, &config);
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(b"hello");
    pair.run_for(Duration::from_millis(100));
    for end in &pair.ends {
        for (_, transmit) in &end.sent {
            let options = transmit.header.options;
            let syn = transmit.header.flags.contains(Flags::SYN);
            assert_eq!(options.mss, syn.then_some(1460));
            assert_eq!(options.window_scale, syn.then_some(5));
            assert_eq!(options.sack_permitted, syn);
            assert!(options.timestamps.is_some());
        }
    }
    let info = pair.ends[0].conn().info();
    assert_eq!((info.send_scale, info.receive_scale), (5, 5));
    // RFC 9293 MUST-16: the timestamps take twelve bytes of each segment.
    assert_eq!(info.send_mss, 1448);
    assert_eq!(pair.ends[1].received, b"hello");
}

/// Each option is used only if both want it.
#[test]
fn options_need_both_sides() {
    for (client, server) in [(Config::default(), plain()), (plain(), Config::default())] {
        let mut pair = Pair::established(&client, &server);
        for end in &mut pair.ends {
            let info = end.conn().info();
            assert!(!info.timestamps && !info.sack);
            assert_eq!((info.send_scale, info.receive_scale), (0, 0));
            assert_eq!(info.send_mss, 1460);
        }
    }
}

/// RFC 9293 MUST-15: without an MSS option, 536 (or what the caller says for IPv6).
#[test]
fn default_segment_size() {
    let syn = Header {
        flags: Flags::SYN,
        window: 1000,
        ..Header::default()
    };
    for (default_mss, expected) in [(536, 536), (1220, 1220)] {
        let config = Config {
            default_mss,
            ..plain()
        };
        let conn = Connection::open_passive(&config, &syn, ISS[1], 0, Instant(0));
        assert_eq!(conn.send_mss(), expected);
    }
}

/// `negative 58`: nonsense in options does no harm.
#[test]
fn extreme_options() {
    for (mss, shift, expected) in [(0, 15, 64), (1, 255, 64), (8, 14, 64), (65535, 0, 1460)] {
        let options = Options {
            mss: Some(mss),
            window_scale: Some(shift),
            ..Options::default()
        };
        let syn = Header {
            flags: Flags::SYN,
            window: 1000,
            options,
            ..Header::default()
        };
        let config = Config {
            timestamps: false,
            ..Config::default()
        };
        let conn = Connection::open_passive(&config, &syn, ISS[1], 0, Instant(0));
        conn.check();
        assert_eq!(conn.send_mss(), expected);
        assert!(conn.info().send_scale <= 14, "RFC 7323 §2.3");
        assert_eq!(
            conn.info().send_window_bytes,
            1000,
            "a SYN's window is not scaled"
        );
    }
}

/// RFC 9293 MUST-10, figure 7.
#[test]
fn simultaneous_open() {
    for seed in 0..20 {
        let mut pair = Pair::simultaneous(seed, &Config::default());
        if seed > 0 {
            pair.faults = Faults {
                loss: 200,
                duplicate: 200,
                reorder: 200,
                ..Faults::NONE
            };
        }
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.ends[0].state(), State::Established, "seed {seed}");
        assert_eq!(pair.ends[1].state(), State::Established, "seed {seed}");
        pair.ends[0].write(b"ping");
        pair.ends[1].write(b"pong");
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.ends[1].received, b"ping");
        assert_eq!(pair.ends[0].received, b"pong");
    }
}

/// Figure 7 step by step: SYNs cross, both go through SYN-RECEIVED.
#[test]
fn simultaneous_open_states() {
    let mut pair = Pair::simultaneous(1, &Config::default());
    pair.run_for(Duration::from_millis(7));
    assert_eq!(pair.ends[0].state(), State::SynReceived);
    assert_eq!(pair.ends[1].state(), State::SynReceived);
    let second = pair.ends[0].sent[1].1.header;
    assert_eq!(second.flags, Flags::SYN | Flags::ACK);
    assert_eq!(second.seq, ISS[0], "the same SYN again");
}

#[test]
fn refused() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.listener = None;
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].error, Some(Error::Refused));
    assert!(pair.ends[0].events.contains(Events::RESET | Events::CLOSED));
}

/// RFC 9293 MUST-22, MUST-23: a SYN is retransmitted with back-off, for three minutes.
#[test]
fn syn_without_answer_times_out() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.faults.loss = 1000;
    let start = pair.now;
    pair.run_for(Duration::from_secs(400));
    assert_eq!(pair.ends[0].error, Some(Error::TimedOut));
    let times: Vec<u64> = pair.ends[0]
        .sent
        .iter()
        .map(|(at, _)| at.since(start).as_secs())
        .collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 127]);
    assert!(pair.ends[0].events.contains(Events::STALLED));
}

/// A passive open that is not completed goes back to LISTEN without an error.
#[test]
fn half_open_is_given_up() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.run_for(Duration::from_millis(6));
    pair.faults.loss = 1000;
    pair.run_for(Duration::from_secs(400));
    assert_eq!(pair.ends[1].state(), State::Closed);
    assert_eq!(pair.ends[1].error, None);
    assert!(pair.ends[1].events.contains(Events::CLOSED));
    assert_eq!(
        pair.ends[1].sent.len(),
        6,
        "SYN-ACK and five retransmissions"
    );
}

/// RFC 9293 §3.10.7.3, first: an ACK of what we never sent is refused, and we go on.
#[test]
fn unacceptable_ack_in_syn_sent() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.intercept();
    for ack in [ISS[0], ISS[0] + 2, ISS[0] - 1] {
        let header = Header {
            flags: Flags::ACK | Flags::SYN,
            ack,
            ..pair.forge(0, Flags::NONE)
        };
        let input = pair.deliver(0, &header, Vec::new()).unwrap();
        assert_eq!(input.drop, Some(Drop::Ack));
        let reset = pair.intercept().pop().unwrap().1;
        assert_eq!((reset.flags, reset.seq), (Flags::RST, ack));
        let header = Header {
            flags: Flags::ACK | Flags::RST,
            ..header
        };
        pair.deliver(0, &header, Vec::new());
        assert!(pair.intercept().is_empty(), "no RST for a RST");
    }
    assert_eq!(pair.ends[0].state(), State::SynSent);
}

/// RFC 7323 §3.2: the echo of a timestamp that no SYN said is refused, and we go on; an echo of any SYN's, also the first of several, is good,
/// and so is zero, which says nothing.
#[test]
fn an_echo_that_no_syn_said_is_refused() {
    for (ago_ms, good) in [(-1, false), (0, true), (1500, true), (1501, false)] {
        let mut pair = Pair::listening(1, &Config::default(), &Config::default());
        pair.intercept();
        let syn = pair.ends[0].sent[0].1.header;
        pair.now = pair.now + Duration::from_millis(1000);
        let now = pair.now;
        pair.ends[0].conn().on_timer(now);
        pair.intercept();
        pair.now = pair.now + Duration::from_millis(500);
        let said = syn.options.timestamps.unwrap().value;
        let mut header = Header {
            flags: Flags::ACK | Flags::SYN,
            ack: ISS[0] + 1,
            ..pair.forge(0, Flags::NONE)
        };
        header.options.timestamps = Some(Timestamps {
            value: 77,
            echo: said.wrapping_add(1500).wrapping_add_signed(-ago_ms),
        });
        let input = pair.deliver(0, &header, Vec::new()).unwrap();
        if good {
            assert_eq!(pair.ends[0].state(), State::Established, "{ago_ms}");
            continue;
        }
        assert_eq!(input.drop, Some(Drop::Paws), "{ago_ms}");
        let reset = pair.intercept().pop().unwrap().1;
        assert_eq!((reset.flags, reset.seq), (Flags::RST, ISS[0] + 1));
        header.options.timestamps = Some(Timestamps { value: 77, echo: 0 });
        pair.deliver(0, &header, Vec::new());
        assert_eq!(pair.ends[0].state(), State::Established, "after all");
    }
}

/// A RST without an acceptable ACK could be forged.
#[test]
fn blind_reset_in_syn_sent() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.intercept();
    let header = pair.forge(0, Flags::RST);
    assert_eq!(
        pair.deliver(0, &header, Vec::new()).unwrap().drop,
        Some(Drop::Reset)
    );
    assert_eq!(pair.ends[0].state(), State::SynSent);
}

/// `negative 63`: text in a SYN is left to be sent again, text in a SYN-ACK is taken.
#[test]
fn text_in_syn_ack() {
    let mut pair = Pair::listening(1, &plain(), &plain());
    pair.intercept();
    let mut header = pair.forge(0, Flags::SYN | Flags::ACK);
    header.seq = ISS[1];
    header.ack = ISS[0] + 1;
    let input = pair.deliver(0, &header, b"early".to_vec()).unwrap();
    assert!(
        input
            .events
            .contains(Events::ESTABLISHED | Events::READABLE)
    );
    assert_eq!(pair.ends[0].received, b"early");
    assert_eq!(pair.ends[0].conn().rcv.nxt, ISS[1] + 6);
}

/// The peer retransmits its SYN: it gets the SYN-ACK again.
#[test]
fn repeated_syn_in_syn_received() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    let syn = pair.intercept().pop().unwrap().1;
    pair.deliver(1, &syn, Vec::new());
    pair.intercept();
    assert_eq!(
        pair.deliver(1, &syn, Vec::new()).unwrap().drop,
        Some(Drop::Duplicate)
    );
    let again = pair.intercept().pop().unwrap().1;
    assert_eq!(again.flags, Flags::SYN | Flags::ACK);
}

/// RFC 9293 MUST-11: a RST in SYN-RECEIVED goes back to LISTEN if the open was passive.
#[test]
fn reset_in_syn_received() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.run_for(Duration::from_millis(6));
    let header = pair.forge(1, Flags::RST);
    pair.deliver(1, &header, Vec::new());
    pair.drain();
    assert_eq!(
        (pair.ends[1].state(), pair.ends[1].error),
        (State::Closed, None)
    );

    let mut pair = Pair::simultaneous(1, &Config::default());
    pair.run_for(Duration::from_millis(7));
    let header = pair.forge(1, Flags::RST);
    pair.deliver(1, &header, Vec::new());
    pair.drain();
    assert_eq!(pair.ends[1].error, Some(Error::Refused));
}

/// RFC 9293 §3.10.7.4, fifth: a wrong ACK in SYN-RECEIVED is refused.
#[test]
fn wrong_ack_in_syn_received() {
    let mut pair = Pair::listening(1, &plain(), &plain());
    pair.run_for(Duration::from_millis(6));
    pair.intercept();
    let header = Header {
        ack: ISS[1] + 7,
        ..pair.forge(1, Flags::ACK)
    };
    assert_eq!(
        pair.deliver(1, &header, Vec::new()).unwrap().drop,
        Some(Drop::Ack)
    );
    let reset = pair.intercept().pop().unwrap().1;
    assert_eq!((reset.flags, reset.seq), (Flags::RST, ISS[1] + 7));
    assert_eq!(pair.ends[1].state(), State::SynReceived);
}

/// RFC 9293 §3.10.7.1 and §3.10.7.2, `negative 57`.
#[test]
fn what_closed_and_listen_answer() {
    let header = |flags| Header {
        flags,
        seq: SeqNum(100),
        ack: SeqNum(7),
        ..Header::default()
    };
    assert_eq!(reset_for(&header(Flags::RST), 0), None);
    let reset = reset_for(&header(Flags::ACK), 5).unwrap();
    assert_eq!((reset.flags, reset.seq), (Flags::RST, SeqNum(7)));
    let reset = reset_for(&header(Flags::SYN | Flags::FIN), 5).unwrap();
    assert_eq!(
        (reset.flags, reset.seq),
        (Flags::RST | Flags::ACK, SeqNum(0))
    );
    assert_eq!(reset.ack, SeqNum(107), "text, SYN and FIN count");

    assert_eq!(listen(&header(Flags::SYN), 0), Listen::Open);
    assert_eq!(
        listen(&header(Flags::RST | Flags::SYN), 0),
        Listen::Drop(Drop::Reset)
    );
    assert!(matches!(
        listen(&header(Flags::SYN | Flags::ACK), 0),
        Listen::Reset(_)
    ));
    for flags in [
        Flags::NONE,
        Flags::FIN,
        Flags::SYN | Flags::FIN,
        Flags::URG,
        Flags(0x29),
    ] {
        assert_eq!(listen(&header(flags), 0), Listen::Drop(Drop::Flags));
    }
}

/// RFC 6928 §2: one lost SYN leaves the initial window as it is; RFC 5681 §3.1: after two, one segment to begin with; RFC 6298 §5.7: and 3 s.
#[test]
fn lost_syn_slows_down() {
    for (lost_ms, segments) in [(500, 10), (1_500, 1)] {
        let mut pair = Pair::listening(1, &plain(), &plain());
        pair.faults.loss = 1000;
        pair.run_for(Duration::from_millis(lost_ms));
        pair.faults.loss = 0;
        pair.run_for(Duration::from_secs(3));
        let info = pair.ends[0].conn().info();
        assert_eq!(info.state, State::Established);
        assert_eq!(info.cwnd_bytes, segments * 1460);
        assert_eq!(info.rto, Duration::from_secs(3));
    }
}
