//! TCP Fast Open (RFC 7413): text in SYNs, both ways, and what becomes of it when something is lost.

use super::*;
use crate::wire::tcp::FastOpen;

fn cookie() -> FastOpen {
    FastOpen::new(&[1, 2, 3, 4, 5, 6, 7, 8], false).unwrap()
}

/// A client that knows its peer, with `text` in its SYN as far as that fits, and a listener that takes it if `fast`.
fn pair(text: &[u8], mss: Option<u16>, fast: bool) -> Pair {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.fast = fast;
    pair.ends[0].conn().open_fast(&FastOpenPeer {
        option: Some(cookie()),
        carries_text: true,
        mss,
    });
    assert!(pair.ends[0].conn().is_held());
    assert_eq!(pair.ends[0].conn().output(pair.now), None, "it waits");
    if !text.is_empty() {
        pair.ends[0].write(text);
    }
    pair.ends[0].conn().release();
    pair
}

fn soon() -> Duration {
    Duration::from_millis(100)
}

/// RFC 7413 §4.2: text in the SYN is delivered before the handshake is over, and answered.
#[test]
fn text_in_the_syn_is_answered_with_the_syn_ack() {
    let mut pair = pair(b"GET /", Some(1460), true);
    pair.run_for(Duration::from_millis(6));
    let server = &mut pair.ends[1];
    assert_eq!(server.state(), State::SynReceived);
    assert_eq!(server.received, b"GET /");
    assert!(
        server.conn().can_send(),
        "§4.2.2: before the handshake is over"
    );
    server.write(b"200 OK");
    pair.run_for(Duration::from_millis(5));
    assert_eq!(pair.ends[0].received, b"200 OK", "after one round trip");
    pair.run_for(soon());
    for end in &mut pair.ends {
        assert_eq!(end.state(), State::Established);
        assert!(end.conn().has_syn_data() && end.conn().info().syn_data);
        assert_eq!(end.conn().info().retransmits, 0);
        assert!(end.send.is_empty());
    }
    let syn = &pair.ends[0].sent[0].1;
    assert_eq!((syn.header.flags, syn.len), (Flags::SYN, 5));
    assert_eq!(syn.header.options.fast_open, Some(cookie()));
    let syn_ack = &pair.ends[1].sent[0].1.header;
    assert_eq!(syn_ack.ack, ISS[0] + 6, "SYN and text");
    let result = pair.ends[0].conn().fast_open_result().unwrap();
    assert!(result.carried_text && result.text_taken && !result.repeated);
}

/// RFC 7413 §4.2.1: what the SYN-ACK does not acknowledge is sent again at once.
#[test]
fn text_that_was_not_taken_is_sent_again_at_once() {
    let text = Rng(3).bytes(3000);
    let mut pair = pair(&text, Some(1460), false);
    pair.run_for(Duration::from_millis(16));
    assert_eq!(
        pair.ends[1].received, text,
        "after the handshake's round trip"
    );
    pair.run_for(soon());
    let result = pair.ends[0].conn().fast_open_result().unwrap();
    assert!(result.carried_text && !result.text_taken);
    assert!(!pair.ends[0].conn().has_syn_data());
    assert_eq!(pair.ends[0].sent[0].1.len, 1420);
    assert!(pair.ends[0].send.is_empty());
}

/// A write that waits for the handshake carries the acknowledgment of the SYN-ACK, and the peer's answer waits for company then; without
/// one both are acknowledged at once.
#[test]
fn a_waiting_write_carries_the_acknowledgment() {
    for waits in [false, true] {
        let mut pair = pair(&[1; 1420], Some(1460), true);
        if waits {
            pair.ends[0].conn().text_follows();
        }
        pair.drain();
        pair.intercept();
        pair.now = pair.now + Duration::from_millis(10);
        let mut header = Header {
            source_port: 80,
            destination_port: 1000,
            seq: SeqNum(5000),
            ack: ISS[0] + 1421,
            flags: Flags::SYN | Flags::ACK,
            window: 10_000,
            ..Header::default()
        };
        pair.deliver(0, &header, Vec::new()).unwrap();
        assert_eq!(pair.intercept().len(), usize::from(!waits));
        pair.ends[0].write(b"the rest");
        let sent = pair.intercept();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            (sent[0].1.ack, &sent[0].2[..]),
            (SeqNum(5001), &b"the rest"[..])
        );
        pair.now = pair.now + Duration::from_millis(10);
        header.flags = Flags::ACK | Flags::PSH;
        (header.seq, header.ack) = (header.seq + 1, header.ack + 8);
        pair.deliver(0, &header, b"answer".to_vec()).unwrap();
        assert_eq!(pair.intercept().len(), usize::from(!waits));
    }
}

/// Text that is announced and does not come: the SYN-ACK is acknowledged late, but it is.
#[test]
fn a_waiting_write_may_fail() {
    let mut pair = pair(&[1; 1420], Some(1460), true);
    pair.ends[0].conn().text_follows();
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.ends[1].state(), State::Established);
}

/// A part of the text is acknowledged: the rest follows from there.
#[test]
fn a_part_may_be_taken() {
    let text = Rng(4).bytes(1000);
    let mut pair = pair(&text, Some(1460), false);
    pair.drain();
    pair.intercept();
    let syn_ack = Header {
        source_port: 80,
        destination_port: 1000,
        seq: SeqNum(5000),
        ack: ISS[0] + 401,
        flags: Flags::SYN | Flags::ACK,
        window: 10_000,
        ..Header::default()
    };
    let input = pair.deliver(0, &syn_ack, Vec::new()).unwrap();
    assert_eq!((input.acked, input.drop), (400, None));
    pair.drain();
    let sent: Vec<_> = pair.ends[0].sent.iter().skip(1).collect();
    let text: u32 = sent.iter().map(|(_, transmit)| transmit.len).sum();
    assert_eq!(sent[0].1.header.seq, ISS[0] + 401);
    assert_eq!((sent[0].1.offset, text), (0, 600));
    assert!(!pair.ends[0].conn().has_syn_data());
}

/// RFC 9293 §3.10.7.3: an acknowledgment of more than the SYN and its text is refused.
#[test]
fn more_than_was_sent_cannot_be_acknowledged() {
    let mut pair = pair(b"hello", Some(1460), false);
    pair.drain();
    pair.intercept();
    let syn_ack = Header {
        source_port: 80,
        destination_port: 1000,
        seq: SeqNum(5000),
        ack: ISS[0] + 7,
        flags: Flags::SYN | Flags::ACK,
        window: 10_000,
        ..Header::default()
    };
    let input = pair.deliver(0, &syn_ack, Vec::new()).unwrap();
    assert_eq!(input.drop, Some(Drop::Ack));
    assert_eq!(pair.ends[0].state(), State::SynSent);
    pair.drain();
    let refused = &pair.ends[0].sent[1].1.header;
    assert_eq!((refused.flags, refused.seq), (Flags::RST, ISS[0] + 7));
}

/// RFC 7413 §4.2.1: a SYN that is sent again carries neither text nor cookie; §4.4: so a path that swallows those is got around.
#[test]
fn a_repeated_syn_is_a_plain_one() {
    let mut pair = pair(b"hello", Some(1460), true);
    pair.drain();
    pair.intercept(); // lost
    pair.run_for(Duration::from_millis(1200));
    let again = &pair.ends[0].sent[1].1;
    assert_eq!((again.header.flags, again.len), (Flags::SYN, 0));
    assert_eq!(again.header.options.fast_open, None);
    assert_eq!(again.header.seq, ISS[0]);
    assert_eq!(pair.ends[1].received, b"hello");
    let result = pair.ends[0].conn().fast_open_result().unwrap();
    assert!(result.repeated && !result.text_taken);
}

/// RFC 7413 §4.2.1: without a cookie the SYN asks for one, and carries no text; the SYN-ACK brings it.
#[test]
fn a_cookie_is_asked_for_and_granted() {
    let mut pair = Pair::listening(1, &Config::default(), &Config::default());
    pair.ends[0].conn().open_fast(&FastOpenPeer {
        option: Some(FastOpen::request(false)),
        carries_text: false,
        mss: None,
    });
    assert!(!pair.ends[0].conn().is_held());
    pair.drain();
    let syn = pair.ends[0].sent[0].1.header;
    assert!(syn.options.fast_open.unwrap().is_request());
    let config = Config::default();
    let mut server = Connection::open_passive(&config, &syn, ISS[1], 99, pair.now);
    server.grant_cookie(cookie());
    let syn_ack = server.output(pair.now).unwrap().header;
    assert_eq!(syn_ack.options.fast_open, Some(cookie()));
    assert!(!server.is_early() && !server.can_send());
    pair.deliver(0, &syn_ack, Vec::new());
    let result = pair.ends[0].conn().fast_open_result().unwrap();
    assert_eq!(result.received, Some(cookie()));
    assert_eq!((result.mss, result.carried_text), (1460, false));
}

/// RFC 7413 §4.2.1: no more text than fits a segment of the size that the peer announced last time, with room for all options.
#[test]
fn the_syn_is_no_longer_than_the_peer_takes() {
    for (mss, len) in [
        (Some(940), 900),
        (None, 496),
        (Some(9000), 1420),
        (Some(20), 0),
    ] {
        let mut pair = pair(&Rng(5).bytes(4000), mss, true);
        assert_eq!(pair.ends[0].conn().first_text_max(), len);
        pair.drain();
        assert_eq!(pair.ends[0].sent[0].1.len, len);
        pair.run_for(soon());
        assert_eq!(pair.ends[1].received, Rng(5).bytes(4000));
    }
}

/// RFC 7413 §4.2.2: the SYN-ACK is sent again until the handshake is over, with the text acknowledged; the answer follows then.
#[test]
fn the_syn_ack_is_sent_again_while_the_answer_waits() {
    let mut pair = pair(b"hello", Some(1460), true);
    pair.run_for(Duration::from_millis(5));
    let answer = Rng(6).bytes(4000);
    pair.ends[1].write(&answer);
    pair.drain();
    pair.intercept(); // SYN-ACK and answer are lost
    pair.run_for(Duration::from_millis(1500));
    let syn_acks = pair.ends[1].sent.iter();
    let syn_acks = syn_acks.filter(|(_, t)| t.header.flags.contains(Flags::SYN));
    assert!(syn_acks.clone().count() >= 2);
    assert!(syn_acks.clone().all(|(_, t)| t.header.ack == ISS[0] + 6));
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.ends[0].received, answer);
    assert_eq!(pair.ends[1].state(), State::Established);
    assert_eq!(pair.ends[1].received, b"hello", "once");
}

/// RFC 7413 §4.2.2: the SYN comes twice, its text only once.
#[test]
fn a_duplicate_syn_brings_nothing_new() {
    let mut pair = pair(b"hello", Some(1460), true);
    pair.faults.duplicate = 1000;
    pair.run_for(soon());
    assert_eq!(pair.ends[1].received, b"hello");
    assert_eq!(pair.ends[1].state(), State::Established);
}

/// The application knows of the connection: a reset is an error, and text unread at a close is one for the peer.
#[test]
fn resets_of_an_early_connection() {
    let mut reset = pair(b"hello", Some(1460), true);
    reset.run_for(Duration::from_millis(6));
    let header = Header {
        source_port: 1000,
        destination_port: 80,
        seq: ISS[0] + 6,
        flags: Flags::RST,
        ..Header::default()
    };
    let input = reset.deliver(1, &header, Vec::new()).unwrap();
    assert!(input.events.contains(Events::RESET));
    assert_eq!(reset.ends[1].conn().error(), Some(Error::Reset));

    let mut closed = pair(b"hello", Some(1460), true);
    closed.ends[1].paused = true;
    closed.run_for(Duration::from_millis(6));
    let now = closed.now;
    closed.ends[1].conn().close(5, now); // RFC 9293 SHLD-3
    closed.drain();
    let (_, last) = closed.ends[1].sent.last().unwrap();
    assert!(last.header.flags.contains(Flags::RST));
    assert_eq!(last.header.ack, ISS[0] + 6);
}

/// A close before the handshake is over: the FIN follows the answer.
#[test]
fn an_early_close_ends_the_stream() {
    let mut pair = pair(b"hello", Some(1460), true);
    pair.run_for(Duration::from_millis(5));
    pair.ends[1].write(b"bye");
    pair.ends[1].conn().shutdown();
    pair.run_for(soon());
    assert_eq!(pair.ends[0].received, b"bye");
    assert!(pair.ends[0].events.contains(Events::PEER_CLOSED));
    assert_eq!(pair.ends[1].state(), State::FinWait2);
    pair.ends[0].conn().shutdown();
    pair.run_for(soon());
    assert_eq!(pair.ends[1].state(), State::TimeWait);
}

/// RFC 9293 §3.5, figure 8: both open at once, one of them with text: its SYN-ACK does not acknowledge it, it is sent again.
#[test]
fn simultaneous_opens_go_on_without() {
    let mut pair = Pair::simultaneous(1, &Config::default());
    pair.ends[0].conn().open_fast(&FastOpenPeer {
        option: Some(cookie()),
        carries_text: true,
        mss: Some(1460),
    });
    pair.ends[0].write(b"hello");
    pair.ends[0].conn().release();
    pair.run_for(Duration::from_secs(3));
    for end in &mut pair.ends {
        assert_eq!(end.state(), State::Established);
    }
    assert_eq!(pair.ends[1].received, b"hello");
}

/// Whatever the channel does, the bytes arrive once and in order.
#[test]
fn bad_channels_deliver_what_was_sent() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let (ask, answer) = (rng.bytes(rng.0 as usize % 5000 + 1), rng.bytes(7000));
        let mut pair = pair(&ask, Some(1460), seed % 3 != 0);
        pair.rng = Rng(seed);
        pair.faults = Faults {
            loss: 200,
            duplicate: 100,
            reorder: 300,
            delay: Duration::from_millis(5),
        };
        let end = pair.now + Duration::from_secs(120);
        let mut answered = false;
        while pair.step(end) {
            let server = &mut pair.ends[1];
            let may = server.conn.as_ref().is_some_and(Connection::can_send);
            if may && !answered {
                answered = true;
                server.write(&answer);
                server.conn().shutdown();
            }
        }
        assert_eq!(pair.ends[1].received, ask, "seed {seed}");
        assert_eq!(pair.ends[0].received, answer, "seed {seed}");
    }
}

/// As on Linux: ICMP ends a Fast Open connection whose handshake is not over while it waits to be accepted, which says why; then it is one that is open.
#[test]
fn icmp_ends_unaccepted_connection() {
    for held in [false, true] {
        let mut pair = pair(b"GET /", Some(1460), true);
        pair.run_for(Duration::from_millis(6));
        let conn = pair.ends[1].conn();
        assert!(conn.is_early());
        let unreachable = IcmpError::v4(3, 1).unwrap();
        assert_eq!(conn.on_icmp(unreachable, ISS[1] - 1, held), Events::NONE);
        assert_eq!(conn.soft_error(), None);
        let events = conn.on_icmp(unreachable, ISS[1], held);
        if held {
            assert_eq!((events, conn.error()), (Events::NONE, None));
            pair.run_for(soon());
            assert_eq!(pair.ends[1].state(), State::Established);
        } else {
            assert_eq!(events, Events::RESET | Events::CLOSED);
            assert_eq!(conn.error(), Some(Error::HostUnreachable));
        }
    }
}
