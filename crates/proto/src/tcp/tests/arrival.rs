//! The checks of RFC 9293 §3.10.7.4 one by one, and the attacks they are there for.

use super::*;
use crate::wire::tcp::Timestamps;

fn pair() -> Pair {
    Pair::established(&Config::default(), &Config::default())
}

fn plain() -> Pair {
    let config = Config {
        timestamps: false,
        sack: false,
        window_scale: false,
        ..Config::default()
    };
    Pair::established(&config, &config)
}

fn edge(pair: &mut Pair) -> u32 {
    let conn = pair.ends[1].conn();
    (conn.rcv.edge - conn.rcv.nxt).unsigned_abs()
}

/// First: what lies outside of the window is dropped and answered with an ACK.
#[test]
fn sequence_outside_of_the_window() {
    let mut pair = pair();
    let window = edge(&mut pair);
    for (offset, drop) in [
        (window + 1, Drop::Sequence),
        (0_u32.wrapping_sub(100), Drop::Duplicate),
        (1 << 31, Drop::Duplicate),
    ] {
        let mut header = pair.forge(1, Flags::ACK);
        header.seq = header.seq + offset;
        assert_eq!(
            pair.deliver(1, &header, b"x".to_vec()).unwrap().drop,
            Some(drop)
        );
        let (_, answer, _) = pair.intercept().pop().expect("an ACK");
        assert_eq!(answer.flags, Flags::ACK);
        assert_eq!(answer.ack, pair.ends[1].conn().rcv.nxt);
    }
    assert!(pair.ends[1].received.is_empty());
}

/// Text that is partly old, partly new, or partly beyond the window.
#[test]
fn text_is_cut_to_what_is_new() {
    let mut pair = plain();
    let mut header = pair.forge(1, Flags::ACK);
    pair.deliver(1, &header, b"abcd".to_vec());
    header.seq = header.seq + 2;
    assert_eq!(
        pair.deliver(1, &header, b"cdef".to_vec()).unwrap().drop,
        None
    );
    assert_eq!(pair.ends[1].received, b"abcdef");
    pair.drain();
    let window = edge(&mut pair);
    let mut header = pair.forge(1, Flags::ACK | Flags::FIN);
    header.seq = header.seq + window - 2;
    pair.deliver(1, &header, vec_of(b'z', 10));
    let conn = pair.ends[1].conn();
    assert!(
        !conn.peer_fin_known,
        "`negative 69`: a FIN beyond the window does not count"
    );
    assert_eq!(pair.ends[1].queue.gaps(), 1);
}

fn vec_of(byte: u8, n: usize) -> Vec<u8> {
    core::iter::repeat_n(byte, n).collect()
}

/// `negative 62`, RFC 5961 §3: only a RST exactly at RCV.NXT kills.
#[test]
fn reset_attack() {
    let config = Config {
        receive_buffer: 60_000,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    let window = edge(&mut pair);
    for (offset, answered) in [
        (0_u32.wrapping_sub(1), false),
        (1, true),
        (window, true),
        (window + 1, false),
    ] {
        let mut header = pair.forge(1, Flags::RST);
        header.seq = header.seq + offset;
        assert!(pair.deliver(1, &header, Vec::new()).unwrap().drop.is_some());
        assert_eq!(
            pair.intercept().len(),
            usize::from(answered),
            "offset {offset}"
        );
        assert_eq!(pair.ends[1].state(), State::Established);
    }
    // RFC 9293 SHLD-2: a RST with text is a RST.
    let header = pair.forge(1, Flags::RST);
    pair.deliver(1, &header, b"why".to_vec());
    pair.drain();
    assert_eq!(pair.ends[1].error, Some(Error::Reset));
}

/// RFC 5961 §7: challenge ACKs are limited; ten in five seconds.
#[test]
fn challenges_are_limited() {
    let mut pair = pair();
    let mut answers = 0;
    for _ in 0..1000 {
        let mut header = pair.forge(1, Flags::RST);
        header.seq = header.seq + 1;
        pair.deliver(1, &header, Vec::new());
        answers += pair.intercept().len();
    }
    assert_eq!(answers, 10);
    pair.run_for(Duration::from_secs(7));
    let mut header = pair.forge(1, Flags::SYN);
    header.seq = header.seq + 1;
    pair.deliver(1, &header, Vec::new());
    assert_eq!(pair.intercept().len(), 1, "and again later");
}

/// `negative 63`, RFC 5961 §4: a SYN in an open connection is challenged, wherever it is.
#[test]
fn syn_attack() {
    let mut pair = pair();
    for offset in [0, 1, 1000, 1 << 30, 1 << 31] {
        let mut header = pair.forge(1, Flags::SYN);
        header.seq = header.seq + offset;
        assert!(pair.deliver(1, &header, Vec::new()).unwrap().drop.is_some());
        let (_, answer, _) = pair.intercept().pop().expect("a challenge");
        assert_eq!(answer.flags, Flags::ACK);
        assert_eq!(pair.ends[1].state(), State::Established);
    }
}

/// RFC 5961 §3.2, §4.2, §5.2: all three kinds of challenge share one limit (§7), and the connection lives through any number of them.
#[test]
fn challenges_of_all_kinds_share_a_limit() {
    let mut pair = pair();
    let mut answers = 0;
    for round in 0..300_u32 {
        let mut header = match round % 3 {
            0 => pair.forge(1, Flags::RST),
            1 => pair.forge(1, Flags::SYN),
            _ => pair.forge(1, Flags::ACK),
        };
        if round % 3 == 2 {
            header.ack = header.ack + 1 + round;
        } else {
            header.seq = header.seq + 1 + round;
        }
        pair.deliver(1, &header, Vec::new());
        let heard = pair.intercept();
        assert!(
            heard
                .iter()
                .all(|(_, answer, _)| answer.flags == Flags::ACK)
        );
        answers += heard.len();
    }
    assert_eq!(answers, 10);
    assert_eq!(pair.ends[1].state(), State::Established);
    // RFC 5961 §5.2: exactly SND.UNA - MAX.SND.WND is still good, one less is not.
    pair.run_for(Duration::from_secs(7));
    let oldest = pair.forge(1, Flags::ACK).ack - pair.ends[1].conn().snd.wnd_max;
    for (ack, drop) in [(oldest, None), (oldest - 1, Some(Drop::Ack))] {
        let mut header = pair.forge(1, Flags::ACK);
        header.ack = ack;
        let input = pair.deliver(1, &header, Vec::new()).unwrap();
        assert_eq!(input.drop, drop, "{ack:?}");
    }
}

/// RFC 5961 §3.2: in SYN-SENT a RST counts if it acknowledges our SYN, and only then; in SYN-RECEIVED if it is at RCV.NXT.
#[test]
fn resets_before_the_connection_is_open() {
    let reset = |flags, ack: SeqNum| Header {
        source_port: 80,
        destination_port: 1000,
        flags,
        ack,
        ..Header::default()
    };
    let begin = || Pair::listening(1, &Config::default(), &Config::default());
    let both = Flags::RST | Flags::ACK;
    let cases = [(Flags::RST, 1), (both, 0), (both, 2), (both, 1)];
    for (flags, offset) in cases {
        let mut pair = begin();
        pair.intercept();
        pair.deliver(0, &reset(flags, ISS[0] + offset), Vec::new());
        let dies = flags == both && offset == 1;
        assert_eq!(
            pair.ends[0].state() == State::Closed,
            dies,
            "{flags:?} {offset}"
        );
    }
}

/// Fifth: no ACK, no service.
#[test]
fn ack_flag_is_needed() {
    let mut pair = pair();
    for flags in [
        Flags::NONE,
        Flags::PSH,
        Flags::FIN,
        Flags::URG | Flags::PSH | Flags::FIN,
    ] {
        let header = pair.forge(1, flags);
        let input = pair.deliver(1, &header, b"text".to_vec()).unwrap();
        assert_eq!(input.drop, Some(Drop::NoAck));
    }
    assert!(pair.ends[1].received.is_empty());
    assert_eq!(pair.ends[1].state(), State::Established);
}

/// `negative 64`, RFC 5961 §5: an ACK of the future, or of the distant past, takes its text along.
#[test]
fn ack_attack() {
    let mut pair = pair();
    for offset in [1, 1000, 1 << 30, 1 << 31, 0_u32.wrapping_sub(2 << 20)] {
        let mut header = pair.forge(1, Flags::ACK);
        header.ack = header.ack + offset;
        let input = pair.deliver(1, &header, b"text".to_vec()).unwrap();
        assert_eq!(input.drop, Some(Drop::Ack), "offset {offset}");
        assert_eq!(pair.intercept().len(), 1, "a challenge");
    }
    assert!(pair.ends[1].received.is_empty());
}

/// `negative 64`: splitting an ACK, repeating it or acknowledging early does not swell cwnd.
#[test]
fn ack_division() {
    let mut pair = plain();
    pair.ends[0].write(&vec_of(1, 14_600));
    pair.intercept();
    let before = pair.ends[0].conn().info().cwnd_bytes;
    let first = pair.ends[0].conn().snd.una;
    for n in 1..=1460 {
        let header = Header {
            ack: first + n,
            ..pair.forge(0, Flags::ACK)
        };
        pair.deliver(0, &header, Vec::new());
    }
    let after = pair.ends[0].conn().info().cwnd_bytes;
    assert_eq!(
        after,
        before + 1460,
        "one segment's bytes, one segment's growth"
    );
    // A thousand duplicates: no more than what is in flight leaves the network.
    let header = Header {
        ack: first + 1460,
        ..pair.forge(0, Flags::ACK)
    };
    pair.ends[0].write(&vec_of(2, 100_000));
    pair.intercept();
    let in_flight = pair.ends[0].conn().info().in_flight_bytes;
    for _ in 0..1000 {
        pair.deliver(
            0,
            &Header {
                window: 1000,
                ..header
            },
            Vec::new(),
        );
        pair.intercept();
    }
    let info = pair.ends[0].conn().info();
    assert!(info.cwnd_bytes <= after);
    assert!(info.in_flight_bytes <= 2 * in_flight + 2 * 1460, "{info:?}");
}

/// Seventh and eighth: what follows the peer's FIN is not taken; the first FIN counts
/// (`negative 69`).
#[test]
fn fin_twice_and_text_after_it() {
    let mut pair = plain();
    let mut header = pair.forge(1, Flags::ACK | Flags::FIN);
    header.seq = header.seq + 4;
    pair.deliver(1, &header, b"efgh".to_vec());
    let fin_at = header.seq + 4;
    assert_eq!(pair.ends[1].conn().peer_fin, fin_at);
    let mut other = pair.forge(1, Flags::ACK | Flags::FIN);
    other.seq = other.seq + 20;
    pair.deliver(1, &other, b"more".to_vec());
    assert_eq!(pair.ends[1].conn().peer_fin, fin_at, "the first FIN stays");
    let header = pair.forge(1, Flags::ACK);
    pair.deliver(1, &header, b"abcdefghijkl".to_vec());
    assert_eq!(pair.ends[1].received, b"abcdefgh");
    assert_eq!(pair.ends[1].state(), State::CloseWait);
}

/// A FIN before text that has already arrived is a lie.
#[test]
fn fin_below_received_text() {
    let mut pair = plain();
    let mut header = pair.forge(1, Flags::ACK);
    header.seq = header.seq + 100;
    pair.deliver(1, &header, b"far".to_vec());
    let mut fin = pair.forge(1, Flags::ACK | Flags::FIN);
    fin.seq = fin.seq + 50;
    assert_eq!(
        pair.deliver(1, &fin, Vec::new()).unwrap().drop,
        Some(Drop::Sequence)
    );
    assert!(!pair.ends[1].conn().peer_fin_known);
}

/// `negative 68`, RFC 7323 §5: PAWS drops old segments, but not RSTs; after 24 days idle it does
/// not count.
#[test]
fn paws() {
    let mut pair = pair();
    pair.now = pair.now + Duration::from_millis(100);
    let recent = pair.ends[1].conn().ts_recent;
    let with = |pair: &mut Pair, value: u32| {
        let mut header = pair.forge(1, Flags::ACK);
        header.options.timestamps = Some(Timestamps { value, echo: 0 });
        pair.deliver(1, &header, b"x".to_vec()).unwrap().drop
    };
    assert_eq!(with(&mut pair, recent.wrapping_sub(1)), Some(Drop::Paws));
    assert_eq!(
        with(&mut pair, recent.wrapping_add(1 << 31)),
        Some(Drop::Paws)
    );
    assert_eq!(with(&mut pair, recent), None);
    pair.now = pair.now + Duration::from_secs(25 * 24 * 3600);
    assert_eq!(with(&mut pair, recent.wrapping_sub(1)), None, "outdated");
    let mut reset = pair.forge(1, Flags::RST);
    reset.options.timestamps = Some(Timestamps { value: 0, echo: 0 });
    pair.deliver(1, &reset, Vec::new());
    pair.drain();
    assert_eq!(pair.ends[1].error, Some(Error::Reset));
}

/// A segment without a timestamp where they were agreed upon passes, as in Linux, and says nothing of the peer's clock: the next old one
/// is still dropped. RFC 7323 §3.2 (SHOULD) has it dropped: so it is with `timestamps_required`.
#[test]
fn a_segment_without_its_timestamp() {
    for required in [false, true] {
        let config = Config {
            timestamps_required: required,
            ..Config::default()
        };
        let mut pair = Pair::established(&config, &config);
        let (next, recent) = {
            let conn = pair.ends[1].conn();
            (conn.rcv.nxt, conn.ts_recent)
        };
        for _ in 0..3 {
            let mut header = pair.forge(1, Flags::ACK);
            header.options.timestamps = None;
            header.seq = pair.ends[1].conn().rcv.nxt;
            let input = pair.deliver(1, &header, b"bare".to_vec()).unwrap();
            assert_eq!(input.drop, required.then_some(Drop::TimestampMissing));
        }
        let conn = pair.ends[1].conn();
        assert_eq!(conn.rcv.nxt, next + if required { 0 } else { 12 });
        assert_eq!(conn.ts_recent, recent);
        let mut old = pair.forge(1, Flags::ACK);
        old.seq = pair.ends[1].conn().rcv.nxt;
        let value = recent.wrapping_sub(1);
        old.options.timestamps = Some(Timestamps { value, echo: 0 });
        let input = pair.deliver(1, &old, b"old".to_vec()).unwrap();
        assert_eq!(input.drop, Some(Drop::Paws));
    }
}

/// RFC 7323 §4.3: a segment beyond what was acknowledged does not set TS.Recent.
#[test]
fn timestamp_to_echo() {
    let mut pair = pair();
    let recent = pair.ends[1].conn().ts_recent;
    let mut header = pair.forge(1, Flags::ACK);
    header.seq = header.seq + 10;
    header.options.timestamps = Some(Timestamps {
        value: recent + 50,
        echo: 0,
    });
    pair.deliver(1, &header, b"gap".to_vec());
    assert_eq!(pair.ends[1].conn().ts_recent, recent);
    let mut header = pair.forge(1, Flags::ACK);
    header.options.timestamps = Some(Timestamps {
        value: recent + 20,
        echo: 0,
    });
    pair.deliver(1, &header, b"0123456789".to_vec());
    assert_eq!(pair.ends[1].conn().ts_recent, recent + 20);
}

/// Sixth, RFC 9293 MUST-30 to MUST-33, `negative 60`: data in line, the pointer moves forward
/// only, nothing underflows.
#[test]
fn urgent_pointer() {
    let mut pair = plain();
    pair.ends[1].paused = true;
    let urgent = |pair: &mut Pair, pointer, text: &[u8]| {
        let mut header = pair.forge(1, Flags::ACK | Flags::URG);
        header.urgent = pointer;
        pair.deliver(1, &header, text.to_vec())
            .unwrap()
            .events
            .contains(Events::URGENT)
    };
    assert!(!urgent(&mut pair, 0, b""), "points nowhere");
    assert!(urgent(&mut pair, 100, b"0123456789"));
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(100));
    assert!(!urgent(&mut pair, 5, b""), "backwards");
    assert!(urgent(&mut pair, 65535, b""));
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(65545));
    pair.ends[1].read(4);
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(65541));
    assert_eq!(pair.ends[1].received, b"0123");
}

/// RFC 9293 MUST-33: the FIN behind urgent data, which has a number of its own, does not move the mark (the differential test, seed 1).
#[test]
fn urgent_before_the_fin() {
    let mut pair = plain();
    pair.ends[1].paused = true;
    let mut header = pair.forge(1, Flags::ACK | Flags::URG | Flags::FIN);
    header.urgent = 3;
    pair.deliver(1, &header, b"0123456789".to_vec());
    assert!(pair.ends[1].conn().peer_closed());
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(3));
    pair.ends[1].read(2);
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(1));
    pair.ends[1].read(1);
    assert_eq!(pair.ends[1].conn().urgent_remaining(), None);
}

/// RFC 9293 MUST-62: our pointer names the octet after the urgent data.
#[test]
fn urgent_is_sent() {
    let mut pair = plain();
    pair.ends[0].write(b"now!");
    pair.ends[0].conn().mark_urgent();
    pair.run_for(Duration::from_millis(100));
    let header = pair.ends[0].sent[0].1.header;
    assert!(header.flags.contains(Flags::URG));
    assert_eq!(header.urgent, 4);
    assert!(pair.ends[1].events.contains(Events::URGENT));
    assert_eq!(pair.ends[1].received, b"now!");
}

/// RFC 9293 §3.8.5: beyond the reach of 16 bits the pointer names what is still to be sent, and where it reaches the octet after the urgent data.
#[test]
fn urgent_data_out_of_reach() {
    let mut pair = plain();
    pair.ends[0].write(&vec_of(1, 100_000));
    pair.ends[0].conn().mark_urgent();
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.ends[1].received.len(), 100_000);
    let end = ISS[0] + 100_001;
    let mut far = 0;
    for (_, transmit) in &pair.ends[0].sent {
        let left = (end - transmit.header.seq).unsigned_abs();
        assert!(transmit.len < 65_535);
        assert!(transmit.header.flags.contains(Flags::URG));
        assert_eq!(u32::from(transmit.header.urgent), left.min(65_535));
        far += u32::from(left > 65_535);
    }
    assert!(far > 20);
}

/// The same, sent again: there the farthest pointer would name what the receiver has, and takes for the urgent octet.
#[test]
fn urgent_data_out_of_reach_of_what_is_sent_again() {
    const SENT: u32 = 84 * 1460;
    let config = Config {
        timestamps: false,
        rack: false,
        initial_cwnd: 84,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    // The window is not scaled before.
    pair.ends[0].write(b"-");
    pair.run_for(Duration::from_secs(2));
    pair.ends[1].paused = true;
    pair.ends[0].write(&vec_of(1, SENT as usize));
    let flight = pair.intercept();
    assert_eq!(flight.len(), 84);
    // The first is lost, and no acknowledgment comes back.
    for (to, header, text) in flight.into_iter().skip(1) {
        pair.deliver(to, &header, text);
    }
    pair.intercept();
    pair.ends[0].write(&vec_of(2, 100_000));
    pair.ends[0].conn().mark_urgent();
    let (all, until) = (SENT + 100_000, pair.now + Duration::from_secs(10));
    pair.ends[0].sent.clear();
    while pair.step(until) {
        let there = pair.ends[1].queue.readable_bytes();
        let end = pair.ends[1].conn().urgent_remaining();
        assert!(end.is_none_or(|end| end == all || end > there), "{end:?}");
    }
    assert_eq!(pair.ends[1].queue.readable_bytes(), all);
    assert_eq!(pair.ends[1].conn().urgent_remaining(), Some(all));
    let again = pair.ends[0].sent[0].1.header;
    assert_eq!(again.seq, ISS[0] + 2);
    assert_eq!((again.flags.contains(Flags::URG), again.urgent), (false, 0));
}

/// RFC 9293 MUST-66: RST, URG and ACK count even at a closed window.
#[test]
fn closed_window_still_listens() {
    let config = Config {
        receive_buffer: 1000,
        timestamps: false,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    pair.ends[1].paused = true;
    pair.ends[0].write(&vec_of(1, 5000));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(edge(&mut pair), 0);
    pair.ends[1].write(b"to be acknowledged");
    pair.intercept();
    let mut header = pair.forge(1, Flags::ACK | Flags::URG);
    header.ack = pair.ends[1].conn().snd.nxt;
    header.urgent = 10;
    let input = pair.deliver(1, &header, b"no room".to_vec()).unwrap();
    assert_eq!(input.drop, Some(Drop::Window), "the text is not taken");
    assert_eq!(input.acked, 18);
    assert!(input.events.contains(Events::URGENT));
    let header = pair.forge(1, Flags::RST);
    pair.deliver(1, &header, Vec::new());
    pair.drain();
    assert_eq!(pair.ends[1].error, Some(Error::Reset));
}

/// RFC 5927, RFC 9293 MUST-54, MUST-56, `negative 33`, `34`: ICMP.
#[test]
fn icmp() {
    let mut pair = plain();
    pair.ends[0].write(&vec_of(1, 10_000));
    pair.intercept();
    let conn = pair.ends[0].conn();
    let una = conn.snd.una;
    for error in [
        IcmpError::v4(3, 3).unwrap(),
        IcmpError::v4(3, 1).unwrap(),
        IcmpError::v4(3, 13).unwrap(),
    ] {
        assert_eq!(conn.on_icmp(error, una, true), Events::NONE);
        assert_eq!(conn.state(), State::Established);
    }
    assert_eq!(conn.soft_error(), Some(Error::HostUnreachable));
    conn.on_icmp(IcmpError::TooBig { mss: 600 }, una - 1, true);
    conn.on_icmp(IcmpError::TooBig { mss: 600 }, conn.snd.nxt, true);
    assert_eq!(conn.send_mss(), 1460, "not about anything in flight");
    conn.on_icmp(IcmpError::TooBig { mss: 9000 }, una, true);
    assert_eq!(conn.send_mss(), 1460, "never grows");
    conn.on_icmp(IcmpError::TooBig { mss: 600 }, una, true);
    assert_eq!(conn.send_mss(), 600);
    pair.ends[0].sent.clear();
    pair.drain();
    let again = pair.ends[0].sent[0].1;
    assert_eq!((again.offset, again.len), (0, 600), "sent again, smaller");
    pair.ends[0]
        .conn()
        .on_icmp(IcmpError::TooBig { mss: 0 }, una, true);
    assert_eq!(pair.ends[0].conn().send_mss(), 64);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[1].received.len(), 10_000);

    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.intercept();
    let conn = pair.ends[0].conn();
    assert_eq!(
        conn.on_icmp(IcmpError::v4(3, 3).unwrap(), ISS[0] + 1, true),
        Events::NONE
    );
    assert!(
        conn.on_icmp(IcmpError::v4(3, 3).unwrap(), ISS[0], true)
            .contains(Events::CLOSED)
    );
    assert_eq!(conn.error(), Some(Error::Refused));
}

/// `negative 65`: sequence numbers wrap in the middle of everything.
#[test]
fn sequence_wraps() {
    for iss in [0xffff_ffff, 0xffff_fffe, 0xffff_f000, 0x7fff_ffff, 0] {
        let now = Instant(1_000_000_000);
        let mut pair = Pair::listening(3, &Config::default(), &Config::default());
        let conn = Connection::open_active(&Config::default(), 1000, 80, SeqNum(iss), 0, now);
        pair.ends[0].conn = Some(conn);
        pair.faults.loss = 50;
        pair.run_for(Duration::from_secs(10));
        let data = pair.rng.bytes(100_000);
        pair.ends[0].write(&data);
        pair.run_for(Duration::from_secs(100));
        assert!(pair.ends[1].received == data, "ISS {iss:#x}");
    }
}

/// After 2³² bytes the oldest unacknowledged byte has the SYN's number again; it is text.
#[test]
fn the_first_number_comes_round() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    let conn = pair.ends[0].conn();
    conn.iss = conn.snd.una;
    let data = pair.rng.bytes(100_000);
    pair.ends[0].write(&data);
    assert_eq!(pair.ends[0].conn().unacknowledged(), 100_000);
    assert_eq!(pair.ends[0].conn().unsent(), 100_000);
    pair.run_for(Duration::from_secs(10));
    assert!(pair.ends[1].received == data);
    assert_eq!(pair.ends[0].conn().unacknowledged(), 0);
}
