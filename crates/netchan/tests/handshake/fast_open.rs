//! TCP Fast Open (RFC 7413) at a listener: whose cookie is good, and how much of it is granted.

use std::{
    io::{ErrorKind, Read, Write},
    net::Ipv4Addr,
    time::Duration,
};

use netchan::{
    TcpListener,
    socket::{FastOpenKeys, SocketOption},
};
use proto::wire::tcp::{FastOpen, Flags, Header, Options};

use crate::raw::{PEER, PORT, Raw, Segment, header};

fn listening(options: &[SocketOption]) -> (Raw, TcpListener) {
    let raw = Raw::new(|builder| builder);
    let listener = raw.net.tcp().listen(format!("0.0.0.0:{PORT}")).unwrap();
    listener.set_nonblocking(true).unwrap();
    for option in options {
        listener.socket().set_option(*option).unwrap();
    }
    (raw, listener)
}

fn syn(port: u16, option: Option<FastOpen>) -> Header {
    Header {
        options: Options {
            mss: Some(1400),
            fast_open: option,
            ..Options::default()
        },
        ..header(port, Flags::SYN, 1000, 0)
    }
}

fn ack_of(answer: &Segment, flags: Flags) -> Header {
    let (port, ours) = (answer.header.destination_port, answer.header.seq + 1);
    header(port, flags, answer.header.ack.0, ours.0)
}

fn only(answers: Vec<Segment>) -> Segment {
    let [answer] = <[Segment; 1]>::try_from(answers).unwrap();
    assert_eq!(answer.header.flags, Flags::SYN | Flags::ACK);
    answer
}

/// The cookie for `host`, asked for as RFC 7413 §4.1.2 has it; that handshake is given up.
fn cookie(raw: &mut Raw, host: Ipv4Addr) -> Option<FastOpen> {
    let answer = only(raw.ask(host, &syn(999, Some(FastOpen::request(false))), b""));
    raw.ask(host, &ack_of(&answer, Flags::RST), b"");
    answer.header.options.fast_open
}

/// RFC 7413 §4.1.2, §4.2.2: a cookie is granted, shown, and the SYN's text read before the handshake is over.
#[test]
fn a_good_cookie_opens_at_once() {
    let (mut raw, listener) = listening(&[SocketOption::FastOpen(4)]);
    let good = cookie(&mut raw, PEER).expect("a cookie");
    assert_eq!(
        listener.accept().err().unwrap().kind(),
        ErrorKind::WouldBlock
    );
    let answer = only(raw.ask(PEER, &syn(1000, Some(good)), b"GET /"));
    assert_eq!(answer.header.ack.0, 1006, "SYN and text");
    assert_eq!(answer.header.options.fast_open, None);
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from, (PEER, 1000).into());
    let mut text = [0; 16];
    assert_eq!(stream.read(&mut text).unwrap(), 5);
    stream.write_all(b"200 OK").unwrap();
    let [early] = <[Segment; 1]>::try_from(raw.turn()).unwrap();
    assert_eq!(early.text, b"200 OK");
    // The handshake's end changes nothing for the program that has accepted it.
    raw.ask(PEER, &ack_of(&answer, Flags::ACK), b"");
    assert!(listener.accept().is_err(), "once");
    assert_eq!(raw.counter("tcp_fast_open_passive"), 1);
    assert_eq!(raw.counter("tcp_fast_open_cookie_reqd"), 1);
    assert_eq!(raw.counter("tcp_passive_opens"), 1);
}

/// RFC 7413 §4.2.2: with a cookie of another host the SYN alone is taken, and the right one sent.
#[test]
fn a_wrong_cookie_gets_the_right_one() {
    let (mut raw, listener) = listening(&[SocketOption::FastOpen(4)]);
    let other = Ipv4Addr::from_bits(u32::from(PEER) + 1);
    let theirs = cookie(&mut raw, other).unwrap();
    let good = cookie(&mut raw, PEER).unwrap();
    assert_ne!(theirs, good);
    let answer = only(raw.ask(PEER, &syn(1000, Some(theirs)), b"hello"));
    assert_eq!(answer.header.ack.0, 1001);
    assert_eq!(answer.header.options.fast_open, Some(good));
    assert!(listener.accept().is_err());
    assert_eq!(raw.counter("tcp_fast_open_passive_fail"), 1);
    raw.ask(PEER, &ack_of(&answer, Flags::ACK), b"hello");
    assert!(listener.accept().is_ok());
}

/// A listener without the option takes no text in SYNs, and grants nothing.
#[test]
fn without_the_option_nothing_is_granted() {
    let (mut raw, listener) = listening(&[]);
    assert_eq!(cookie(&mut raw, PEER), None);
    let forged = FastOpen::new(&[7; 8], false);
    let answer = only(raw.ask(PEER, &syn(1000, forged), b"hello"));
    assert_eq!(answer.header.ack.0, 1001);
    assert!(listener.accept().is_err());
}

/// Linux's TCP_FASTOPEN_NO_COOKIE.
#[test]
fn cookies_need_not_be_asked_for() {
    let options = [
        SocketOption::FastOpen(4),
        SocketOption::FastOpenNoCookie(true),
    ];
    let (mut raw, listener) = listening(&options);
    let answer = only(raw.ask(PEER, &syn(1000, None), b"hello"));
    assert_eq!(answer.header.ack.0, 1006);
    assert!(listener.accept().is_ok());
}

/// RFC 7413 §4.1.2: cookies of the key before stay good, and are replaced.
#[test]
fn keys_are_changed_without_harm() {
    let keys = |current: u8, previous: Option<u8>| {
        SocketOption::FastOpenKeys(Some(FastOpenKeys {
            current: [current; 16],
            previous: previous.map(|key| [key; 16]),
        }))
    };
    let (mut raw, listener) = listening(&[SocketOption::FastOpen(9), keys(1, None)]);
    let old = cookie(&mut raw, PEER).unwrap();
    listener.socket().set_option(keys(2, Some(1))).unwrap();
    let answer = only(raw.ask(PEER, &syn(1000, Some(old)), b"hello"));
    assert_eq!(answer.header.ack.0, 1006, "still good");
    let new = answer.header.options.fast_open.expect("the new cookie");
    assert_ne!(new, old);
    assert_eq!(raw.counter("tcp_fast_open_passive_alt_key"), 1);
    listener.socket().set_option(keys(3, Some(2))).unwrap();
    let answer = only(raw.ask(PEER, &syn(1001, Some(old)), b"hello"));
    assert_eq!(answer.header.ack.0, 1001, "not any more");
}

/// RFC 7413 §5.1: so many at a time, and a reset frees a place only after a while; beyond that handshakes are plain ones.
#[test]
fn the_limit_holds_against_resets() {
    let (mut raw, listener) = listening(&[SocketOption::FastOpen(2)]);
    let good = cookie(&mut raw, PEER);
    let taken = |raw: &mut Raw, port: u16| {
        let answer = only(raw.ask(PEER, &syn(port, good), b"hello"));
        (answer.header.ack.0 == 1006, answer)
    };
    let (first, one) = taken(&mut raw, 1000);
    let (second, two) = taken(&mut raw, 1001);
    assert!(first && second);
    assert!(!taken(&mut raw, 1002).0, "no third");
    assert_eq!(raw.counter("tcp_fast_open_listen_overflow"), 1);
    // The end of a handshake frees its place at once, a reset after a minute.
    raw.ask(PEER, &ack_of(&one, Flags::ACK), b"");
    assert!(taken(&mut raw, 1003).0);
    raw.ask(PEER, &ack_of(&two, Flags::RST), b"");
    assert!(!taken(&mut raw, 1004).0);
    raw.wait(Duration::from_secs(61));
    assert!(taken(&mut raw, 1005).0);
    // What was reset waits to be accepted, and says so.
    let mut streams = Vec::new();
    while let Ok((stream, from)) = listener.accept() {
        streams.push((from.port(), stream));
    }
    let (_, reset) = streams.iter_mut().find(|(port, _)| *port == 1001).unwrap();
    let mut text = [0; 16];
    assert_eq!(reset.read(&mut text).unwrap(), 5, "what came before it");
    assert_eq!(
        reset.read(&mut text).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

/// A closed listener resets what was not accepted.
#[test]
fn a_closed_listener_resets_what_waits() {
    let (mut raw, listener) = listening(&[SocketOption::FastOpen(2)]);
    let good = cookie(&mut raw, PEER);
    only(raw.ask(PEER, &syn(1000, good), b"hello"));
    drop(listener);
    let heard = raw.turn();
    assert!(heard.iter().any(|s| s.header.flags.contains(Flags::RST)));
    assert_eq!(
        raw.net.show("sockets").unwrap().as_array().unwrap().len(),
        0
    );
}
