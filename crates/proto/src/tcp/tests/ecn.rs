//! ECN (RFC 3168), DCTCP's use of it (RFC 8257) and accurate ECN (RFC 9768).

use super::*;
use crate::tcp::accecn::ECN_FLAGS;
use crate::tcp::ecn::Feedback;
use crate::wire::tcp::{AccEcn, Options};

const SETUP: Flags = Flags(Flags::CWR.0 | Flags::ECE.0);

fn with(ecn: EcnMode) -> Config {
    Config {
        ecn,
        // Acknowledgments of every segment, so that each tells what it is about.
        delayed_ack: Duration::from_millis(1),
        ..Config::default()
    }
}

/// The three flags as a number.
fn ace(flags: Flags) -> u16 {
    (flags.0 & ECN_FLAGS.0) >> 6
}

/// Flags of SYN and SYN-ACK, and what was agreed upon, if `client` opens to `server`.
fn handshake(client: EcnMode, server: EcnMode) -> (u16, u16, Feedback, Ecn) {
    let mut pair = Pair::listening(1, &with(client), &with(server));
    pair.run_for(Duration::from_millis(100));
    let [syn, syn_ack] = [0, 1].map(|end| pair.ends[end].sent[0].1);
    assert_eq!((syn.ecn, syn_ack.ecn), (Ecn::NotEct, Ecn::NotEct));
    let [a, b] = &mut pair.ends;
    let agreed = a.conn().ecn.feedback;
    assert_eq!(agreed, b.conn().ecn.feedback);
    assert_eq!(a.conn().ecn.codepoint, b.conn().ecn.codepoint);
    let codepoint = a.conn().ecn.codepoint;
    (
        ace(syn.header.flags),
        ace(syn_ack.header.flags),
        agreed,
        codepoint,
    )
}

/// RFC 3168 §6.1.1, RFC 9768 §3.1.2, table 2: what each end asks for, and what comes of it.
#[test]
fn both_agree_or_neither() {
    use EcnMode::{Accurate, Classic, Off, Passive};
    let off = |syn| (syn, 0, Feedback::Off, Ecn::NotEct);
    let classic = |syn| (syn, 0b001, Feedback::Classic, Ecn::Ect0);
    let accurate = (0b111, 0b010, Feedback::Accurate, Ecn::Ect0);
    for server in [Off, Passive, Classic, Accurate] {
        assert_eq!(handshake(Off, server), off(0));
        assert_eq!(handshake(Passive, server), off(0));
    }
    assert_eq!(handshake(Classic, Off), off(0b011));
    assert_eq!(handshake(Accurate, Off), off(0b111));
    for server in [Passive, Classic, Accurate] {
        assert_eq!(handshake(Classic, server), classic(0b011));
    }
    for server in [Passive, Classic] {
        assert_eq!(handshake(Accurate, server), classic(0b111));
    }
    assert_eq!(handshake(Accurate, Accurate), accurate);
}

/// A SYN-ACK with `flags` for a client in `mode`.
fn answered(mode: EcnMode, flags: Flags) -> Connection {
    let mut pair = Pair::listening(1, &with(mode), &Config::default());
    pair.intercept();
    let mut header = pair.forge(0, Flags::SYN | Flags::ACK | flags);
    header.ack = ISS[0] + 1;
    header.options.timestamps = None;
    pair.deliver(0, &header, Vec::new());
    assert_eq!(pair.ends[0].state(), State::Established);
    pair.ends[0].conn().clone()
}

/// RFC 9768 table 2 and §3.1.3: a mirror of our SYN comes from no stack that knows ECN; 101 is reserved. §3.2.2.3: a SYN that
/// arrived other than it left was changed on the way, so nothing ECN-capable is sent, but the mode stays.
#[test]
fn other_answers_of_a_server() {
    let told = |number: u16| Flags(number << 6);
    for (mode, number, feedback, codepoint) in [
        (EcnMode::Accurate, 0b111, Feedback::Off, Ecn::NotEct),
        (EcnMode::Accurate, 0b000, Feedback::Off, Ecn::NotEct),
        (EcnMode::Accurate, 0b101, Feedback::Accurate, Ecn::Ect0),
        (EcnMode::Accurate, 0b010, Feedback::Accurate, Ecn::Ect0),
        (EcnMode::Accurate, 0b011, Feedback::Accurate, Ecn::NotEct),
        (EcnMode::Accurate, 0b100, Feedback::Accurate, Ecn::NotEct),
        (EcnMode::Accurate, 0b110, Feedback::Accurate, Ecn::NotEct),
        (EcnMode::Classic, 0b011, Feedback::Off, Ecn::NotEct),
        (EcnMode::Classic, 0b001, Feedback::Classic, Ecn::Ect0),
        (EcnMode::Passive, 0b001, Feedback::Off, Ecn::NotEct),
    ] {
        let conn = answered(mode, told(number));
        let found = (conn.ecn.feedback, conn.ecn.codepoint);
        assert_eq!(found, (feedback, codepoint), "{mode:?} {number:03b}");
    }
}

/// RFC 3168 §6.1.1.1, RFC 9768 §3.1.4.1: a SYN that is not answered is sent without ECN, after one try or two; RFC 3168 §6.1.1: then
/// nothing is ECN-capable.
#[test]
fn asks_no_longer_when_unanswered() {
    for (mode, expected) in [
        (EcnMode::Classic, [0b011, 0, 0]),
        (EcnMode::Accurate, [0b111, 0b111, 0]),
    ] {
        let mut pair = Pair::listening(1, &with(mode), &with(mode));
        let mut seen = Vec::new();
        for _ in 0..3 {
            let flown = pair.intercept();
            seen.extend(flown.iter().map(|(_, header, _)| ace(header.flags)));
            pair.now = pair.ends[0].conn().deadline();
            let now = pair.now;
            pair.ends[0].conn().on_timer(now);
        }
        assert_eq!(seen, expected);
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.ends[0].state(), State::Established);
        assert_eq!(pair.ends[0].conn().ecn.feedback, Feedback::Off);
    }
    // The answer to the first comes after all.
    let mut pair = Pair::listening(1, &with(EcnMode::Classic), &Config::default());
    pair.intercept();
    pair.now = pair.ends[0].conn().deadline();
    let now = pair.now;
    pair.ends[0].conn().on_timer(now);
    pair.intercept();
    let mut header = pair.forge(0, Flags::SYN | Flags::ACK | Flags::ECE);
    header.ack = ISS[0] + 1;
    header.options.timestamps = None;
    pair.deliver(0, &header, Vec::new());
    assert_eq!(pair.ends[0].conn().ecn.codepoint, Ecn::NotEct);
}

fn established(mode: EcnMode) -> Pair {
    let mut pair = Pair::established(&with(mode), &with(mode));
    // Past the first exchange each way, which accurate ECN looks at more closely.
    for end in 0..2 {
        pair.ends[end].write(&[1; 100]);
        pair.run_for(Duration::from_millis(100));
    }
    for end in &mut pair.ends {
        end.sent.clear();
    }
    pair
}

/// RFC 3168 §6.1.2, §6.1.4, §6.1.5: new text is ECN-capable; acknowledgments and retransmissions are not. §6.1.6: nor are window
/// probes, here after the window closed.
#[test]
fn only_new_text_is_capable() {
    for mode in [EcnMode::Classic, EcnMode::Accurate] {
        let mut pair = established(mode);
        let first = pair.ends[0].conn().snd.nxt;
        pair.unlucky = (first, 1);
        pair.ends[0].write(&[7; 20_000]);
        pair.run_for(Duration::from_secs(2));
        let mut again = 0;
        let mut nxt = first;
        for (_, transmit) in &pair.ends[0].sent {
            let is_new = transmit.len > 0 && transmit.header.seq >= nxt;
            let capable = if is_new { Ecn::Ect0 } else { Ecn::NotEct };
            assert_eq!(transmit.ecn, capable, "{transmit:?}");
            let end = transmit.header.seq + transmit.len;
            nxt = if end > nxt { end } else { nxt };
            again += u32::from(!is_new && transmit.len > 0);
        }
        assert!(again > 0);
        assert!(pair.ends[1].sent.iter().all(|(_, t)| t.ecn == Ecn::NotEct));
        assert_eq!(pair.ends[1].received.len(), 20_100);
        pair.ends[0].sent.clear();
        pair.ends[1].paused = true;
        pair.ends[0].write(&[7; 2_000_000]);
        pair.run_for(Duration::from_secs(20));
        assert!(pair.ends[0].conn().is_probing());
        let probe = pair.ends[0].sent.last().unwrap().1;
        assert_eq!(probe.ecn, Ecn::NotEct, "{probe:?}");
    }
}

/// RFC 3168 §6.1.2, §6.1.3: a mark is told in every acknowledgment until CWR comes, which is said once, in the next new text; the
/// window is reduced once for a window of marks, and nothing is sent again.
#[test]
fn a_mark_is_told_until_it_is_heard() {
    let mut pair = established(EcnMode::Classic);
    pair.marks = 3;
    let before = pair.ends[0].conn().congestion.window.cwnd;
    pair.ends[0].write(&[7; 100_000]);
    pair.run_for(Duration::from_secs(1));
    let conn = pair.ends[0].conn();
    assert!(conn.congestion.window.ssthresh < u32::MAX);
    assert!(conn.congestion.window.cwnd < before * 3);
    assert_eq!(conn.cold.retransmits, 0);
    // And TCP_INFO knows of it.
    let [sender, receiver] = [0, 1].map(|end| pair.ends[end].conn().info().sending);
    assert!(sender.ecn && sender.delivered_marked >= 3);
    assert!(receiver.ecn && receiver.ecn_seen && receiver.delivered_marked == 0);
    let says = |end: &End, flag: Flags| {
        let sent = end.sent.iter().map(|(_, t)| t.header.flags.contains(flag));
        sent.collect::<Vec<_>>()
    };
    let cwr = says(&pair.ends[0], Flags::CWR);
    assert_eq!(cwr.iter().filter(|said| **said).count(), 1);
    let ece = says(&pair.ends[1], Flags::ECE);
    let first = ece.iter().position(|said| *said).unwrap();
    let last = ece.iter().rposition(|said| *said).unwrap();
    assert!(ece[first..=last].iter().all(|said| *said));
    assert!(last > first + 2 && last + 1 < ece.len(), "{ece:?}");
    assert_eq!(pair.ends[1].conn().ecn.out, Flags::NONE);
    // Once more, a window later: once more reduced.
    pair.ends[0].conn().congestion.window.ssthresh = u32::MAX;
    pair.marks = 1;
    pair.ends[0].write(&[7; 100_000]);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.ends[0].conn().congestion.window.ssthresh < 100_000);
    assert_eq!(pair.ends[1].received.len(), 200_100);
}

/// RFC 3168 §6.1.3: marks outside the window, and of a peer that never agreed, do not count.
#[test]
fn marks_of_nothing_acceptable_do_not_count() {
    for mode in [EcnMode::Off, EcnMode::Classic, EcnMode::Accurate] {
        let mut pair = established(mode);
        let mut header = pair.forge(1, Flags::ACK);
        header.seq = header.seq + (1 << 24);
        pair.deliver_with(1, &header, Ecn::Ce, alloc::vec![1; 10]);
        let ecn = &pair.ends[1].conn().ecn;
        assert!(!ecn.out.contains(Flags::ECE) || mode == EcnMode::Accurate);
        assert_eq!(ecn.accurate.packets, 5);
    }
    let mut pair = established(EcnMode::Off);
    pair.ends[0].write(&[1; 100]);
    let flown = pair.intercept();
    assert_eq!(pair.ends[0].sent[0].1.ecn, Ecn::NotEct);
    pair.deliver_with(1, &flown[0].1, Ecn::Ce, flown[0].2.clone());
    pair.run_for(Duration::from_millis(100));
    assert_eq!(ace(pair.ends[1].sent[0].1.header.flags), 0);
}

/// RFC 8257 §3.2: with DCTCP, ECE says whether the last segment was marked; a change is told at once. §3.3: and the window comes down by
/// as much as was marked.
#[test]
fn dctcp_tells_each_mark() {
    let config = Config {
        congestion: CongestionControl::Dctcp,
        ..with(EcnMode::Classic)
    };
    let mut pair = Pair::established(&config, &config);
    pair.ends[1].conn().settings.delayed_ack_us = 400_000;
    pair.ends[1].conn().quick_acks = 0;
    pair.ends[0].write(&[7; 6 * 1000]);
    let mut told = Vec::new();
    for (i, (_, header, text)) in pair.intercept().into_iter().enumerate() {
        let ecn = if (1..3).contains(&i) {
            Ecn::Ce
        } else {
            Ecn::Ect0
        };
        pair.ends[1].sent.clear();
        pair.deliver_with(1, &header, ecn, text);
        pair.drain();
        told.extend(
            pair.ends[1]
                .sent
                .iter()
                .map(|(_, t)| (i, t.header.flags.contains(Flags::ECE))),
        );
    }
    assert!(
        told.contains(&(1, true)) && told.contains(&(3, false)),
        "{told:?}"
    );
}

/// RFC 9768 table 2 and table 3: how the SYN arrived stands in the SYN-ACK, and how that arrived in a pure ACK; CE on the SYN-ACK is
/// counted (§3.2.2.2). Table 4: what the server makes of it; §3.2.2.3: a codepoint that the sender did not set was set on the way.
#[test]
fn the_handshake_tells_how_it_arrived() {
    for (ecn, number, count) in [
        (Ecn::NotEct, 0b010, 5),
        (Ecn::Ect1, 0b011, 5),
        (Ecn::Ect0, 0b100, 5),
        (Ecn::Ce, 0b110, 6),
    ] {
        let config = with(EcnMode::Accurate);
        let mut pair = Pair::listening(1, &config, &config);
        let (_, syn, _) = pair.intercept().remove(0);
        pair.deliver_with(1, &syn, ecn, Vec::new());
        let (_, syn_ack, _) = pair.intercept().remove(0);
        assert_eq!(ace(syn_ack.flags), number);
        assert_eq!(pair.ends[1].conn().ecn.accurate.packets, 5, "§3.2.2.2");
        pair.deliver_with(0, &syn_ack, ecn, Vec::new());
        pair.ends[0].write(&[1; 10]);
        let flown = pair.intercept();
        assert_eq!((flown[0].2.len(), ace(flown[0].1.flags)), (0, number));
        assert_eq!(ace(flown[1].1.flags), count, "text has the counter");
        for (_, header, text) in flown {
            pair.deliver(1, &header, text);
        }
        for end in &mut pair.ends {
            let is_honest = ecn == Ecn::NotEct;
            assert_eq!(end.conn().ecn.codepoint == Ecn::Ect0, is_honest, "{ecn:?}");
        }
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.ends[1].received, [1; 10]);
    }
}

/// RFC 9768 §3.2.2.1, table 4, note 1: nothing in the handshake's last acknowledgment means that the client is in another mode; MUST NOT
/// send ECN-capable packets, MUST NOT respond, but go on telling.
#[test]
fn a_client_without_counters_is_not_listened_to() {
    let config = with(EcnMode::Accurate);
    let mut pair = Pair::listening(1, &config, &config);
    let (_, syn, _) = pair.intercept().remove(0);
    pair.deliver(1, &syn, Vec::new());
    let (_, syn_ack, _) = pair.intercept().remove(0);
    pair.deliver(0, &syn_ack, Vec::new());
    let (_, mut ack, _) = pair.intercept().remove(0);
    ack.flags = Flags::ACK;
    pair.deliver(1, &ack, Vec::new());
    let conn = pair.ends[1].conn();
    assert_eq!(
        (conn.state(), conn.ecn.codepoint),
        (State::Established, Ecn::NotEct)
    );
    assert_eq!(conn.ecn.feedback, Feedback::Accurate);
    pair.ends[1].write(&[1; 20_000]);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].received.len(), 20_000);
    let conn = pair.ends[1].conn();
    assert_eq!(conn.congestion.window.ssthresh, u32::MAX);
    assert!(pair.ends[1].sent.iter().all(|(_, t)| t.ecn == Ecn::NotEct));
}

/// RFC 9768 §3.1.5: a SYN for classic ECN and one for accurate ECN in one handshake leave no way to know: MUST reset. A SYN without is
/// answered in the same mode, but the server sends nothing ECN-capable.
#[test]
fn syns_of_two_kinds() {
    for (first, second, lives) in [
        (ECN_FLAGS, SETUP, false),
        (SETUP, ECN_FLAGS, false),
        (ECN_FLAGS, ECN_FLAGS, true),
        (ECN_FLAGS, Flags::NONE, true),
        (Flags::NONE, ECN_FLAGS, true),
    ] {
        let config = with(EcnMode::Accurate);
        let mut pair = Pair::listening(1, &config, &config);
        let (_, mut syn, _) = pair.intercept().remove(0);
        syn.flags = Flags::SYN | first;
        pair.deliver(1, &syn, Vec::new());
        let before = pair.ends[1].conn().ecn.feedback;
        pair.intercept();
        syn.flags = Flags::SYN | second;
        pair.deliver(1, &syn, Vec::new());
        let flown = pair.intercept();
        let reset = flown[0].1.flags.contains(Flags::RST);
        assert_eq!(reset, !lives, "{first:?} {second:?}");
        if lives {
            let ecn = &pair.ends[1].conn().ecn;
            assert_eq!(ecn.feedback, before);
            assert_eq!(ecn.codepoint == Ecn::Ect0, first == second);
        }
    }
}

/// RFC 9768 §3.2.3.2.2: a SYN-ACK that is not answered goes out without the option, then without the flags, in the mode agreed upon.
#[test]
fn a_syn_ack_falls_back() {
    let config = with(EcnMode::Accurate);
    let mut pair = Pair::listening(1, &config, &config);
    let (_, syn, _) = pair.intercept().remove(0);
    pair.deliver(1, &syn, Vec::new());
    let mut seen = Vec::new();
    for _ in 0..3 {
        let flown = pair.intercept();
        let (_, header, _) = flown.iter().find(|(to, ..)| *to == 0).unwrap();
        seen.push((header.options.accecn.is_some(), ace(header.flags)));
        pair.now = pair.ends[1].conn().deadline();
        let now = pair.now;
        pair.ends[1].conn().on_timer(now);
    }
    assert_eq!(seen, [(true, 0b010), (false, 0b010), (false, 0)]);
    let ecn = &pair.ends[1].conn().ecn;
    assert_eq!(
        (ecn.feedback, ecn.codepoint),
        (Feedback::Accurate, Ecn::NotEct)
    );
}

/// RFC 9768 §3.2.2.2: every marked segment is counted, and the sender's count follows, however they come; the window comes down. §3.1.5:
/// CWR is never said.
#[test]
fn accurate_counters_follow() {
    let mut pair = established(EcnMode::Accurate);
    let mut total = 5;
    for marks in [1, 2, 5, 9, 20] {
        pair.marks = marks;
        total += marks as u8;
        pair.ends[0].write(&[7; 80_000]);
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.marks, 0);
        assert_eq!(pair.ends[1].conn().ecn.accurate.packets, total);
        let sender = pair.ends[0].conn();
        assert_eq!(sender.ecn.accurate.heard().0, total);
        assert_eq!(sender.ecn.codepoint, Ecn::Ect0);
    }
    let told = pair.ends[1].conn().ecn.accurate.bytes();
    assert_eq!(pair.ends[0].conn().ecn.accurate.heard().1, told[1]);
    assert_eq!(told[0] + told[1], 400_100 + 1, "all text was ECN-capable");
    assert!(pair.ends[0].conn().congestion.window.ssthresh < u32::MAX);
    assert_eq!(pair.ends[0].conn().cold.retransmits, 0);
}

/// RFC 9768 §3.2.2.5.2 and appendix A.2: where acknowledgments of few packets are usual, one of many may hide that the counter came round: the
/// worst that fits counts, also if it is unchanged. Where peers acknowledge many together, it is believed.
#[test]
fn an_unchanged_counter_over_many_packets_came_round() {
    for (usual, last, marked) in [(2, 16, 16), (2, 7, 0), (2, 8, 8), (2, 23, 16), (12, 16, 0)] {
        let mut pair = established(EcnMode::Accurate);
        pair.run_for(Duration::from_secs(1));
        let mut before = 0;
        for n in 0..=200 {
            let segments = if n == 200 { last } else { usual };
            let conn = pair.ends[0].conn();
            before = conn.info().sending.delivered_marked;
            conn.congestion.window.ssthresh = u32::MAX;
            conn.congestion.window.cwnd = 64 * 1460;
            conn.snd.wnd = 64 * 1460;
            let bytes = usize::from(conn.snd.mss) * segments;
            pair.ends[0].write(&std::vec![7; bytes]);
            pair.intercept();
            pair.now = pair.now + Duration::from_millis(5);
            let flags = Flags::ACK | pair.ends[0].conn().ecn.accurate.expected();
            let mut header = pair.forge(0, flags);
            header.ack = pair.ends[0].conn().snd.nxt;
            header.window = 65_535;
            pair.deliver(0, &header, Vec::new());
        }
        let conn = pair.ends[0].conn();
        let told = conn.info().sending.delivered_marked - before;
        assert_eq!(told, marked, "{usual}, then {last}");
        let reduced = conn.congestion.window.ssthresh < u32::MAX;
        assert_eq!(reduced, marked > 0);
    }
}

/// RFC 9768 §3.2.3.3: the option reports counters that ever moved, with acknowledgments that tell something new.
#[test]
fn the_option_has_what_moved() {
    let mut pair = established(EcnMode::Accurate);
    let fields = |pair: &mut Pair, marks| {
        pair.marks = marks;
        pair.ends[1].sent.clear();
        pair.ends[0].write(&[7; 3_000]);
        pair.run_for(Duration::from_millis(100));
        let options = pair.ends[1]
            .sent
            .iter()
            .map(|(_, t)| t.header.options.accecn);
        options.flatten().map(|option| option.len).max()
    };
    assert_eq!(fields(&mut pair, 0), Some(1));
    assert_eq!(fields(&mut pair, 1), Some(2));
    assert_eq!(fields(&mut pair, 0), Some(2));
    // Nothing new: no option.
    let now = pair.now;
    let conn = pair.ends[1].conn();
    conn.challenge(now);
    let ack = conn.output(now).unwrap();
    assert_eq!((ack.len, ack.header.options.accecn), (0, None));
}

/// RFC 9768 §3.2.2.5.1: a change to CE is acknowledged at once, and every second mark after it.
#[test]
fn marks_are_told_at_once() {
    let mut pair = established(EcnMode::Accurate);
    pair.ends[1].conn().settings.delayed_ack_us = 400_000;
    pair.ends[1].conn().quick_acks = 0;
    let mut at_once = Vec::new();
    for ecn in [Ecn::Ect0, Ecn::Ce, Ecn::Ce, Ecn::Ce, Ecn::Ect0, Ecn::Ce] {
        pair.ends[0].conn().set_nagle(false);
        pair.ends[0].write(&[1; 10]);
        let (_, header, text) = pair.intercept().remove(0);
        pair.ends[1].sent.clear();
        pair.deliver_with(1, &header, ecn, text);
        pair.intercept(); // and lose it
        at_once.push(!pair.ends[1].sent.is_empty());
    }
    assert_eq!(at_once, [false, true, false, true, false, true]);
}

/// Without marks, ECN does not leave the fast paths of input and output.
#[test]
fn ecn_without_marks_stays_on_the_fast_path() {
    let count = |mode| {
        let mut pair = established(mode);
        pair.seen = fast_path::Seen::default();
        for _ in 0..20 {
            pair.ends[0].write(&[1; 3_000]);
            pair.run_for(Duration::from_millis(30));
            pair.ends[1].write(&[1; 3_000]);
            pair.run_for(Duration::from_millis(30));
        }
        (pair.seen.inputs, pair.seen.outputs)
    };
    let plain = count(EcnMode::Off);
    assert_eq!(count(EcnMode::Classic), plain);
    let accurate = count(EcnMode::Accurate);
    assert_eq!(accurate.1, plain.1);
    // The option is not predicted, and comes with each acknowledgment without text.
    assert!(accurate.0 * 2 >= plain.0, "{accurate:?} {plain:?}");
}

/// RFC 9768 §3.2.3: any length is read; what is more, or not whole, is padding.
#[test]
fn options_of_any_length() {
    for (len, fields) in [(2, 0), (4, 0), (5, 1), (8, 2), (10, 2), (11, 3), (13, 3)] {
        for (kind, ect1_first) in [(172, false), (174, true)] {
            let mut segment = alloc::vec![0_u8; 40];
            segment[12] = 10 << 4;
            segment[13] = 0x10;
            segment[20] = kind;
            segment[21] = len;
            for i in 2..usize::from(len) {
                segment[20 + i] = i as u8;
            }
            let (header, _) = Header::parse(&segment).unwrap();
            let option = header.options.accecn.unwrap();
            assert_eq!((option.len, option.ect1_first), (fields, ect1_first));
            assert_eq!(option.ce(), (fields > 1).then_some(0x05_0607));
            let first = (fields > 0).then_some(0x02_0304);
            let third = (fields > 2).then_some(0x08_090a);
            let (ect0, ect1) = if ect1_first {
                (third, first)
            } else {
                (first, third)
            };
            assert_eq!((option.ect0(), option.ect1()), (ect0, ect1));
        }
    }
    let option = AccEcn {
        ect1_first: false,
        len: 3,
        fields: [1, 2, 3],
    };
    let options = Options {
        accecn: Some(option),
        ..Options::NONE
    };
    assert_eq!(options.len(false), 12);
}
