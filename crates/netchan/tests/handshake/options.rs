//! Socket options and limits of the handshake and of the close, as tcp(7) and socket(7) have them.

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use netchan::socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption};
use proto::wire::tcp::{Flags, Header};

use crate::raw::{PEER, PORT, Raw, Segment, header};

const ANY: ([u8; 4], u16) = ([0; 4], PORT);

fn socket(raw: &Raw) -> Socket {
    Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap()
}

fn listener(raw: &Raw, backlog: usize, option: Option<SocketOption>) -> Socket {
    let listener = socket(raw);
    listener.bind(ANY.into()).unwrap();
    if let Some(option) = option {
        listener.set_option(option).unwrap();
    }
    listener.listen(backlog).unwrap();
    listener
}

/// A SYN, and the ACK for the SYN-ACK that came.
fn half_open(raw: &mut Raw, port: u16) -> Option<Header> {
    let heard = raw.ask(PEER, &header(port, Flags::SYN, 100, 0), b"");
    heard.first().map(|s| ack_of(s, port))
}

fn ack_of(answer: &Segment, port: u16) -> Header {
    assert_eq!(answer.header.flags, Flags::SYN | Flags::ACK);
    header(port, Flags::ACK, 101, answer.header.seq.0.wrapping_add(1))
}

fn open(raw: &mut Raw, listener: &Socket, port: u16) -> (Socket, Header) {
    let ack = half_open(raw, port).expect("a SYN-ACK");
    raw.ask(PEER, &ack, b"");
    (listener.accept().unwrap().0, ack)
}

/// listen(2): a backlog of n holds n + 1 connections, as in Linux; handshakes that would end then wait, SYNs get no answer.
#[test]
fn a_full_accept_queue_takes_no_more() {
    let mut raw = Raw::new(|builder| builder);
    let listener = listener(&raw, 2, None);
    let acks: Vec<_> = (1..6)
        .map(|port| half_open(&mut raw, port).unwrap())
        .collect();
    for ack in &acks {
        raw.ask(PEER, ack, b"");
    }
    assert_eq!(raw.counter("drop_tcp_accept_queue_full"), 2);
    assert_eq!(half_open(&mut raw, 6), None);
    assert_eq!(raw.counter("drop_tcp_accept_queue_full"), 3, "a SYN, too");
    let taken: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).collect();
    assert_eq!(taken.len(), 3);
    // The others' SYN-ACKs come again; an ACK then is in time.
    let again = raw.wait(Duration::from_millis(1100));
    assert_eq!(again.len(), 2);
    raw.ask(PEER, &acks[3], b"");
    raw.ask(PEER, &acks[4], b"");
    assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 2);
}

/// tcp(7), TCP_DEFER_ACCEPT: accept wakes with the data; a peer that stays silent is accepted once its time is over.
#[test]
fn a_deferred_accept_waits_for_data() {
    let mut raw = Raw::new(|builder| builder);
    let defer = SocketOption::DeferAccept(Duration::from_secs(2));
    let listener = listener(&raw, 8, Some(defer));
    assert_eq!(
        listener.option(defer).unwrap(),
        SocketOption::DeferAccept(Duration::from_secs(3)),
        "rounded up to retransmissions, as Linux does"
    );
    let ack = half_open(&mut raw, 1).unwrap();
    raw.ask(PEER, &ack, b"");
    assert!(listener.accept().is_err(), "nothing was said");
    raw.ask(PEER, &ack, b"hello");
    let talker = listener.accept().expect("it spoke");

    let ack = half_open(&mut raw, 2).unwrap();
    for _ in 0..2 {
        raw.ask(PEER, &ack, b"");
        assert!(listener.accept().is_err());
        let again = raw.wait(Duration::from_millis(2100));
        let repeated = |s: &Segment| s.header.flags == Flags::SYN | Flags::ACK;
        assert!(again.iter().any(repeated));
    }
    raw.ask(PEER, &ack, b"");
    assert!(listener.accept().is_ok());
    drop(talker);
}

/// tcp(7), TCP_SYNCNT: after so many repetitions, and the last one's timeout, connect says ETIMEDOUT.
#[test]
fn syns_are_counted() {
    let mut raw = Raw::new(|builder| builder);
    let socket = socket(&raw);
    let count = |n| socket.set_option(SocketOption::SynCount(n));
    assert_eq!(count(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(count(128).unwrap_err().kind(), ErrorKind::InvalidInput);
    count(2).unwrap();
    let to = SocketAddr::from((PEER, PORT));
    assert!(socket.connect(to).is_err());
    let mut heard = raw.turn();
    heard.extend(raw.wait(Duration::from_millis(6_900)));
    assert_eq!(heard.len(), 3, "at 0, 1 and 3 s");
    assert!(heard.iter().all(|s| s.header.flags == Flags::SYN));
    assert!(socket.take_error().is_none());
    raw.wait(Duration::from_millis(200));
    let error = socket.take_error().expect("after 7 s");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// tcp(7), TCP_SYNCNT: also where the first SYN has left already.
#[test]
fn syns_under_way_are_counted_anew() {
    let mut raw = Raw::new(|builder| builder);
    let socket = socket(&raw);
    assert!(socket.connect(SocketAddr::from((PEER, PORT))).is_err());
    assert_eq!(raw.turn().len(), 1);
    socket.set_option(SocketOption::SynCount(1)).unwrap();
    assert_eq!(raw.wait(Duration::from_millis(2_900)).len(), 1, "at 1 s");
    assert!(socket.take_error().is_none());
    assert!(raw.wait(Duration::from_millis(200)).is_empty());
    let error = socket.take_error().expect("after 3 s");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// What the peer's FIN meets after `wait`, once our closed socket's FIN was acknowledged.
fn fin_after(
    raw: &mut Raw,
    listener: &Socket,
    port: u16,
    option: SocketOption,
    wait: Duration,
) -> Flags {
    let (socket, ack) = open(raw, listener, port);
    socket.set_option(option).unwrap();
    drop(socket);
    let fin = raw.turn().pop().expect("a FIN");
    assert!(fin.header.flags.contains(Flags::FIN));
    let mut answer = ack;
    answer.ack = fin.header.seq + 1;
    raw.ask(PEER, &answer, b"");
    raw.wait(wait);
    answer.flags = Flags::FIN | Flags::ACK;
    raw.ask(PEER, &answer, b"").pop().unwrap().header.flags
}

/// tcp(7), TCP_LINGER2: how long FIN-WAIT-2 waits.
#[test]
fn fin_wait_2_waits_as_long_as_told() {
    let mut raw = Raw::new(|builder| builder);
    let listener = listener(&raw, 8, None);
    let (s, own) = (Duration::from_secs, SocketOption::Linger2(None));
    let linger2 = |seconds| SocketOption::Linger2(Some(s(seconds)));
    assert_eq!(listener.option(own).unwrap(), linger2(60));
    let cases = [
        (own, 0, Flags::RST),
        (linger2(5), 4, Flags::ACK),
        (linger2(5), 6, Flags::RST),
        (linger2(0), 59, Flags::ACK),
        (linger2(0), 61, Flags::RST),
        (linger2(1000), 119, Flags::ACK),
        (linger2(1000), 121, Flags::RST),
    ];
    for (port, (option, wait, answer)) in (1..).zip(cases) {
        let wait = s(wait) + Duration::from_millis(10);
        let flags = fin_after(&mut raw, &listener, port, option, wait);
        assert_eq!(flags, answer, "{option:?} {wait:?}");
    }
}

/// socket(7), SO_LINGER of zero: no FIN, what waits to be sent is thrown away, the peer gets a RST (RFC 9293 §3.10.5).
#[test]
fn linger_zero_resets() {
    let mut raw = Raw::new(|builder| builder);
    let listener = listener(&raw, 8, None);
    for (port, linger) in [
        (1, Some(Duration::ZERO)),
        (2, None),
        (3, Some(Duration::from_secs(9))),
    ] {
        let (socket, _) = open(&mut raw, &listener, port);
        socket.set_option(SocketOption::Linger(linger)).unwrap();
        socket.send(&[IoSlice::new(&[7; 3000])], None).unwrap();
        let sent = raw.turn();
        assert_eq!(
            sent.iter().map(|s| s.text.len()).sum::<usize>(),
            536,
            "a segment; the rest of its window is silly"
        );
        assert_eq!(socket.unacknowledged(), 3000);
        drop(socket);
        let said = raw.turn();
        if linger == Some(Duration::ZERO) {
            let flags: Vec<_> = said.iter().map(|s| s.header.flags).collect();
            assert_eq!(flags, [Flags::RST | Flags::ACK]);
        } else {
            assert!(said.iter().all(|s| !s.header.flags.contains(Flags::RST)));
        }
    }
}

/// RFC 5961 §7, RFC 9293 §3.10.7.1: a segment of no connection gets a RST, but not any number of them.
#[test]
fn resets_are_limited() {
    let mut raw = Raw::new(|builder| builder);
    let mut resets = 0;
    for port in 1..=3_000 {
        raw.put(PEER, &header(port, Flags::ACK, 5, 9), b"");
        if port % 32 == 0 {
            resets += raw.turn().len();
        }
    }
    resets += raw.turn().len();
    assert_eq!(resets, 2_000, "the burst that one host may have");
    assert_eq!(raw.counter("drop_tcp_no_socket"), 3_000);
    assert_eq!(raw.counter("tcp_resets_out"), 2_000);
    // It fills again: 20,000 a second.
    raw.wait(Duration::from_millis(10));
    let port = header(1, Flags::ACK, 5, 9);
    assert_eq!(raw.ask(PEER, &port, b"").len(), 1);
}

fn read(socket: &Socket) -> std::io::Result<Vec<u8>> {
    let mut bytes = [0; 9];
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = socket.receive(&mut buffers, ReceiveFlags::default())?;
    Ok(bytes[..received.len].to_vec())
}

/// RFC 9293 §3.10.7.1: what comes right behind the segment that closed a connection, in the same burst, finds none and is answered so.
#[test]
fn what_follows_a_reset_in_its_burst_finds_no_connection() {
    let mut raw = Raw::new(|builder| builder);
    let listener = listener(&raw, 8, None);
    let (taken, ack) = open(&mut raw, &listener, 5);
    let reset = Header {
        flags: Flags::RST,
        ..ack
    };
    let text = Header {
        flags: Flags::ACK | Flags::PSH,
        ..ack
    };
    raw.put(PEER, &reset, b"");
    raw.put(PEER, &text, b"abc");
    raw.put(PEER, &header(5, Flags::SYN, 9_000, 0), b"");
    let heard = raw.turn();
    let told: Vec<_> = heard
        .iter()
        .map(|s| (s.header.flags, s.header.seq))
        .collect();
    assert_eq!(told.len(), 2, "{heard:?}");
    assert_eq!(told[0], (Flags::RST, ack.ack));
    assert_eq!(told[1].0, Flags::SYN | Flags::ACK, "the next connection");
    let error = read(&taken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    raw.ask(
        PEER,
        &header(5, Flags::ACK, 9_001, told[1].1.0.wrapping_add(1)),
        b"new",
    );
    let (next, _) = listener.accept().unwrap();
    assert_eq!(read(&next).unwrap(), b"new");
    // Text that is not read any more closes a connection as well, and is answered, each segment of it.
    drop(next);
    raw.turn();
    let text = |seq| header(5, Flags::ACK | Flags::PSH, seq, told[1].1.0.wrapping_add(1));
    raw.put(PEER, &text(9_004), b"abc");
    raw.put(PEER, &text(9_007), b"def");
    let heard = raw.turn();
    let resets = heard.iter().filter(|s| s.header.flags.contains(Flags::RST));
    assert_eq!(resets.count(), 2, "{heard:?}");
}
