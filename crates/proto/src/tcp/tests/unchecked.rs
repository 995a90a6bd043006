//! A segment that any of the checks of RFC 9293 §3.10.7.4 refuses changes nothing: no timestamp, mark, option, time, window, urgent pointer, text
//! or FIN of it is taken. Each field is tried by itself and with all others, in each state, against the whole connection.

use super::super::variables::Pending;
use super::*;
use crate::ip::Ecn;
use crate::wire::tcp::{AccEcn, Timestamps};

/// How an acknowledgment is not acceptable.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Future,
    Old,
    None,
    /// Not the acknowledgment, but what comes before it.
    Sequence,
    Before,
    Paws,
    Rst,
    Syn,
}

const REFUSED: [Refused; 8] = [
    Refused::Future,
    Refused::Old,
    Refused::None,
    Refused::Sequence,
    Refused::Before,
    Refused::Paws,
    Refused::Rst,
    Refused::Syn,
];

/// What else a segment says, each with a number.
const FIELDS: usize = 9;

/// `header` and its text say `field` as well; what the IP header says.
fn say(conn: &Connection, field: usize, header: &mut Header, text: &mut Vec<u8>) -> Ecn {
    match field {
        0 => {
            if let Some(ts) = &mut header.options.timestamps {
                ts.value = ts.value.wrapping_add(200_000);
            }
        }
        1 => return Ecn::Ce,
        2 => header.flags = header.flags | Flags::CWR,
        3 => header.options.user_timeout = 0x8000 | 50,
        4 => *text = Vec::from([7; 100]),
        5 => header.flags = header.flags | Flags::FIN,
        6 => {
            header.flags = header.flags | Flags::URG;
            header.urgent = 50;
        }
        7 => header.window = 7,
        _ => {
            let una = conn.snd.una;
            header.options.sack.push(una + 100, una + 200);
            header.options.accecn = Some(AccEcn {
                ect1_first: false,
                len: 3,
                fields: [9, 9, 9],
            });
        }
    }
    Ecn::NotEct
}

fn refuse(conn: &Connection, how: Refused, header: &mut Header) {
    match how {
        Refused::Future => header.ack = conn.snd.nxt + 1,
        Refused::Old => header.ack = conn.snd.una - conn.snd.wnd_max - 1,
        Refused::None => header.flags = Flags(header.flags.0 & !Flags::ACK.0),
        Refused::Sequence => header.seq = conn.rcv.edge + 1,
        Refused::Before => {
            header.seq = conn.rcv.nxt - 1000;
            header.ack = conn.snd.nxt + 1;
        }
        Refused::Paws => {
            if let Some(ts) = &mut header.options.timestamps {
                ts.value = ts.value.wrapping_sub(1);
            }
            header.ack = conn.snd.nxt + 1;
        }
        Refused::Rst => {
            header.flags = header.flags | Flags::RST;
            header.seq = conn.rcv.nxt + 1;
        }
        Refused::Syn => header.flags = header.flags | Flags::SYN,
    }
}

/// The two states are the same but for what an answer takes, and for what is counted.
fn assert_unchanged(before: &Connection, after: &Connection, told: &str) {
    let mut expected = before.clone();
    expected.counters.segments_in = after.counters.segments_in;
    expected.pending.set(Pending::ACK | Pending::REFUSE);
    let mut after = after.clone();
    after.pending.set(Pending::ACK | Pending::REFUSE);
    expected.cold.refuse_seq = after.cold.refuse_seq;
    expected.cold.challenges_sent = after.cold.challenges_sent;
    expected.cold.challenges_since = after.cold.challenges_since;
    expected.cold.duplicate_segments = after.cold.duplicate_segments;
    assert!(expected == after, "{told}\n{expected:?}\n{after:?}");
}

fn config(ecn: EcnMode) -> Config {
    Config {
        ecn,
        user_timeout_option: UserTimeoutOption::Negotiable,
        retry_timeout: Duration::from_secs(200),
        nagle: false,
        ..Config::default()
    }
}

/// A connection with text under way in the state `n`, and its peer's next header.
fn in_state(n: usize, ecn: EcnMode) -> Pair {
    let config = config(ecn);
    let mut pair = Pair::listening(1, &config, &config);
    if n == 0 {
        // SYN-RECEIVED: end 1 of the pair, whose SYN-ACK is under way.
        let (to, syn, text) = pair.intercept().remove(0);
        pair.deliver(to, &syn, text);
        pair.intercept();
        pair.ends.swap(0, 1);
        assert_eq!(pair.ends[0].state(), State::SynReceived);
        return pair;
    }
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(&[1; 500]);
    pair.ends[1].write(&[1; 500]);
    pair.run_for(Duration::from_millis(100));
    pair.ends[0].write(&[1; 500]);
    pair.intercept();
    match n {
        1 => {}
        2 => drop(pair.ends[0].conn().shutdown()),
        3 | 4 => {
            if n == 4 {
                pair.ends[0].conn().shutdown();
                pair.intercept();
            }
            let mut fin = pair.forge(0, Flags::ACK | Flags::FIN);
            if n == 3 {
                fin.ack = pair.ends[0].conn().snd.una;
            }
            pair.deliver(0, &fin, Vec::new());
        }
        _ => {
            pair.ends[0].conn().shutdown();
            pair.intercept();
            let mut all = pair.forge(0, Flags::ACK);
            all.ack = pair.ends[0].conn().snd.nxt;
            pair.deliver(0, &all, Vec::new());
        }
    }
    pair.intercept();
    pair.now = pair.now + Duration::from_millis(3);
    pair
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut seen = Vec::new();
    for ecn in [EcnMode::Off, EcnMode::Classic, EcnMode::Accurate] {
        for state in 0..6 {
            for how in REFUSED {
                for field in 0..FIELDS + 2 {
                    one(&mut in_state(state, ecn), how, field, &mut seen);
                }
            }
        }
    }
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, SynReceived};
    for state in [
        SynReceived,
        Established,
        FinWait1,
        FinWait2,
        CloseWait,
        Closing,
    ] {
        assert!(seen.contains(&state), "{state:?}");
    }
}

/// One refused segment; fields beyond the last: nothing, or everything.
fn one(pair: &mut Pair, how: Refused, field: usize, seen: &mut Vec<State>) {
    let conn = pair.ends[0].conn().clone();
    seen.push(conn.state());
    if conn.state() == State::SynReceived && matches!(how, Refused::Syn) {
        return; // back to LISTEN (RFC 9293 §3.10.7.4, fourth)
    }
    let mut header = pair.forge(0, Flags::ACK);
    header.ack = conn.snd.nxt;
    let (mut text, mut mark) = (Vec::new(), Ecn::NotEct);
    for n in 0..FIELDS {
        if n == field || field > FIELDS {
            let ecn = say(&conn, n, &mut header, &mut text);
            if ecn == Ecn::Ce {
                mark = ecn;
            }
        }
    }
    refuse(&conn, how, &mut header);
    let input = pair.deliver_with(0, &header, mark, text);
    let told = std::format!("{:?}, {how:?}, field {field}", conn.state());
    let reason = input.and_then(|input| input.drop);
    assert!(reason.is_some(), "{told}: taken");
    assert_unchanged(&conn, pair.ends[0].conn(), &told);
    assert!(pair.ends[0].queue.readable_bytes() == 0 && pair.ends[0].queue.gaps() == 0);
}

/// The finding: one blind segment with a wrong acknowledgment and a timestamp far ahead, and PAWS drops the real peer for ever.
#[test]
fn forged_timestamp_does_not_shut_peer_out() {
    for how in [Refused::Future, Refused::Old, Refused::None] {
        let mut pair = in_state(1, EcnMode::Off);
        let conn = pair.ends[0].conn().clone();
        let mut forged = pair.forge(0, Flags::ACK);
        let echo = 0;
        let value = conn.ts_recent.wrapping_add(200_000);
        forged.options.timestamps = Some(Timestamps { value, echo });
        refuse(&conn, how, &mut forged);
        pair.deliver(0, &forged, Vec::from([9; 10]));
        let mut honest = pair.forge(0, Flags::ACK);
        honest.options.timestamps = Some(Timestamps {
            value: conn.ts_recent.wrapping_add(3),
            echo,
        });
        let input = pair.deliver(0, &honest, Vec::from([1; 10])).unwrap();
        assert_eq!(input.drop, None, "{how:?}");
        assert_eq!(pair.ends[0].received.last(), Some(&1));
    }
}

/// RFC 9768 §3.2.2.1: only a SYN-ACK that acknowledges our SYN is the first one once more.
#[test]
fn a_strangers_syn_ack_asks_for_nothing() {
    let mut pair = in_state(1, EcnMode::Accurate);
    let conn = pair.ends[0].conn().clone();
    for (ack, is_it) in [(conn.snd.una + 1, false), (conn.iss + 1, true)] {
        let mut header = pair.forge(0, Flags::SYN | Flags::ACK);
        (header.seq, header.ack) = (conn.irs, ack);
        pair.deliver(0, &header, Vec::new());
        let answers = pair.ends[0].conn().ecn.accurate.answers_syn_ack;
        assert_eq!(answers, is_it);
    }
}

/// RFC 9293 §3.10.7.4, TIME-WAIT: a FIN begins the wait anew if it would pass the checks before it.
#[test]
fn a_strangers_fin_does_not_prolong_time_wait() {
    let config = config(EcnMode::Off);
    let mut pair = Pair::established(&config, &config);
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    pair.ends[1].conn().shutdown();
    pair.run_for(Duration::from_millis(20));
    let fin = pair.ends[1].sent.last().unwrap().1.header;
    let now = pair.now + Duration::from_secs(10);
    let record = pair.ends[0].time_wait.as_mut().unwrap();
    let expires = record.expires();
    let ts = fin.options.timestamps.unwrap();
    let with_ts = |value| {
        let mut header = fin;
        header.options.timestamps = value;
        header
    };
    let older = Timestamps {
        value: ts.value.wrapping_sub(100_000),
        ..ts
    };
    for wrong in [
        Header {
            ack: fin.ack + 1,
            ..fin
        },
        Header {
            ack: fin.ack - 100_000,
            ..fin
        },
        Header {
            flags: Flags::FIN,
            ..fin
        },
        with_ts(None),
        with_ts(Some(older)),
    ] {
        record.input(&wrong, 0, now);
        assert_eq!(record.expires(), expires, "{wrong:?}");
    }
    record.input(&fin, 0, now);
    assert!(record.expires() > expires);
}

/// RFC 9293 §3.10.7.3: in SYN-SENT as well.
#[test]
fn what_is_refused_while_connecting_changes_nothing() {
    let config = config(EcnMode::Accurate);
    let mut pair = Pair::listening(1, &config, &config);
    let (_, syn, _) = pair.intercept().remove(0);
    pair.now = pair.now + Duration::from_millis(5);
    let conn = pair.ends[0].conn().clone();
    let answer = |ack: SeqNum, flags: Flags, echo: u32| Header {
        source_port: syn.destination_port,
        destination_port: syn.source_port,
        seq: SeqNum(5000),
        ack,
        flags,
        window: 9,
        options: crate::wire::tcp::Options {
            mss: Some(400),
            sack_permitted: true,
            user_timeout: 500,
            timestamps: Some(Timestamps { value: 77, echo }),
            ..Default::default()
        },
        ..Header::default()
    };
    let echo = syn.options.timestamps.unwrap().value;
    let both = Flags::SYN | Flags::ACK;
    for wrong in [
        answer(conn.iss, both, echo),
        answer(conn.iss + 2, both, echo),
        answer(conn.iss + 1, both, echo.wrapping_sub(10)),
        answer(conn.iss + 1, Flags::ACK, echo),
        answer(conn.iss + 9, Flags::ACK | Flags::RST, echo),
        answer(conn.iss, Flags::RST, echo),
        answer(conn.iss, Flags::SYN | Flags::FIN, echo),
    ] {
        let input = pair.deliver_with(0, &wrong, Ecn::Ce, Vec::from([1; 10]));
        assert!(input.unwrap().drop.is_some());
        assert_unchanged(&conn, pair.ends[0].conn(), &std::format!("{wrong:?}"));
    }
}
