//! SYN cookies (RFC 4987): a flood costs no memory and keeps no peer out, and nothing that was agreed upon is lost.

use std::{
    io::{Read, Write},
    net::Ipv4Addr,
    time::Duration,
};

use netchan::TcpListener;
use proto::{
    tcp::{Config, SynCookies},
    wire::tcp::{Flags, Header, Options, SeqNum, Timestamps},
};

use crate::raw::{PEER, PORT, Raw, Segment, header};

fn raw(syn_cookies: SynCookies) -> (Raw, TcpListener) {
    let raw = Raw::new(|builder| {
        builder.tcp(Config {
            syn_cookies,
            ..Config::default()
        })
    });
    let listener = raw.net.tcp().listen(format!("0.0.0.0:{PORT}")).unwrap();
    listener.set_nonblocking(true).unwrap();
    (raw, listener)
}

/// A SYN as every host sends it.
fn syn(port: u16, seq: u32) -> Header {
    Header {
        options: Options {
            mss: Some(1400),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                value: 5000,
                echo: 0,
            }),
            ..Options::default()
        },
        ..header(port, Flags::SYN, seq, 0)
    }
}

/// The ACK of a SYN-ACK.
fn ack_of(answer: &Segment) -> Header {
    let echo = answer.header.options.timestamps.map(|ts| ts.value);
    Header {
        options: Options {
            timestamps: echo.map(|echo| Timestamps { value: 5001, echo }),
            ..Options::default()
        },
        ..header(
            answer.header.destination_port,
            Flags::ACK,
            answer.header.ack.0,
            answer.header.seq.0.wrapping_add(1),
        )
    }
}

/// Bytes of memory in use by this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn flood(raw: &mut Raw, from: u32, count: u32) {
    for n in from..from + count {
        let host = Ipv4Addr::from_bits(u32::from(PEER) + 256 + n / 1000);
        let port = u16::try_from(1024 + n % 1000).unwrap();
        raw.put(host, &syn(port, n.wrapping_mul(0x9e37_79b9)), b"");
        if n % 32 == 31 {
            raw.turn();
        }
    }
    raw.turn();
}

fn listener_row(raw: &Raw) -> (u64, u64) {
    let rows = raw.net.show("sockets").unwrap();
    let rows = rows.as_array().unwrap();
    let row = rows.iter().find(|row| row["state"] == "LISTEN");
    let embryos = row.expect("the listener")["syn_queue"].as_u64().unwrap();
    (embryos, rows.len() as u64)
}

#[test]
fn a_flood_of_syns_costs_no_memory_and_keeps_no_peer_out() {
    let (mut raw, listener) = raw(SynCookies::WhenFull);
    flood(&mut raw, 0, 20_000);
    let (queued, sockets) = listener_row(&raw);
    assert_eq!(queued, 1024, "as many as the backlog");
    // The least of three: other tests of this process take memory meanwhile.
    let each = 1_000_000;
    let grown = (0..3).map(|round| {
        let before = resident();
        flood(&mut raw, 20_000 + round * each, each);
        assert_eq!(listener_row(&raw), (queued, sockets));
        resident().saturating_sub(before)
    });
    let grown = grown.min().unwrap();
    assert!(grown < 1 << 20, "{grown} bytes for {each} SYNs");
    assert_eq!(raw.counter("drop_tcp_syn_queue_full"), 0);
    assert_eq!(
        raw.counter("tcp_syn_cookies_sent"),
        u64::from(3 * each) + 20_000 - queued
    );

    // An honest peer, with everything it asked for.
    let answers = raw.ask(PEER, &syn(4000, 77), b"");
    let [answer] = &answers[..] else {
        panic!("{answers:?}")
    };
    let options = answer.header.options;
    assert_eq!(answer.header.flags, Flags::SYN | Flags::ACK);
    assert!(options.sack_permitted && options.timestamps.is_some());
    assert!(options.window_scale.is_some() && options.mss.is_some());
    let mut ack = ack_of(answer);
    ack.flags = ack.flags | Flags::PSH;
    raw.ask(PEER, &ack, b"hello");
    assert_eq!(raw.counter("tcp_syn_cookies_taken"), 1);
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!((peer.ip(), peer.port()), (PEER.into(), 4000));
    let mut text = [0; 8];
    assert_eq!(stream.read(&mut text).unwrap(), 5);
    assert_eq!(&text[..5], b"hello");
    // Window 1000 scaled by 2⁷ lets all of it go, in segments of MSS less timestamps.
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.write(&[7; 13_880]).unwrap(), 13_880);
    let sent = raw.turn();
    let lens: Vec<_> = sent.iter().map(|s| s.text.len()).collect();
    assert_eq!(lens, [1388; 10], "ten segments, the initial window");
    assert!(sent.iter().all(|s| s.header.options.timestamps.is_some()));
    // Timestamps never go back, whatever the cookie's low bits were.
    let ts = |s: &Segment| s.header.options.timestamps.unwrap().value;
    assert!(
        sent.iter()
            .all(|s| ts(s).wrapping_sub(ts(answer)) < 1 << 31)
    );
}

/// What the ACK brings back is what an ordinary handshake would have agreed upon.
#[test]
fn options_that_a_peer_does_not_have_are_not_invented() {
    let (mut raw, listener) = raw(SynCookies::Always);
    type Change = fn(&mut Options);
    let cases: [Change; 4] = [
        |_| (),
        |o| o.timestamps = None,
        |o| o.sack_permitted = false,
        |o| o.window_scale = None,
    ];
    for (port, change) in (5000..).zip(cases) {
        let mut syn = syn(port, 1);
        change(&mut syn.options);
        let answers = raw.ask(PEER, &syn, b"");
        let agreed = answers[0].header.options;
        let with = |there: bool| there && syn.options.timestamps.is_some();
        assert_eq!(
            agreed.timestamps.is_some(),
            syn.options.timestamps.is_some()
        );
        assert_eq!(agreed.sack_permitted, with(syn.options.sack_permitted));
        assert_eq!(
            agreed.window_scale.is_some(),
            with(syn.options.window_scale.is_some())
        );
        raw.ask(PEER, &ack_of(&answers[0]), b"");
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        // Out of order: a SACK block tells whether SACK was kept.
        let mut late = ack_of(&answers[0]);
        late.seq = late.seq + 100;
        let heard = raw.ask(PEER, &late, b"later");
        assert_eq!(
            heard[0].header.options.sack.is_empty(),
            !agreed.sack_permitted
        );
        // A window of 1000, scaled or not.
        (&stream).write_all(&[1; 4000]).unwrap();
        let most: usize = raw.turn().iter().map(|s| s.text.len()).sum();
        assert_eq!(most > 1000, agreed.window_scale.is_some(), "{agreed:?}");
        drop(stream);
        raw.turn();
    }
}

/// RFC 4987 §3.6: an ACK is taken only with a cookie of ours, for just that connection, and not for long.
#[test]
fn forged_and_old_cookies_are_refused() {
    let (mut raw, listener) = raw(SynCookies::Always);
    let cookie = |raw: &mut Raw| raw.ask(PEER, &syn(6000, 9), b"").remove(0);
    let answer = cookie(&mut raw);
    let good = ack_of(&answer);
    let mut forged = vec![good; 6];
    forged[0].ack = good.ack + 1;
    forged[1].ack = SeqNum(good.ack.0 ^ 1 << 31);
    forged[2].seq = good.seq + 1;
    forged[3].source_port += 1;
    // Another window scale than the one agreed upon.
    let ts = good.options.timestamps.unwrap();
    forged[4].options.timestamps = Some(Timestamps {
        echo: ts.echo ^ 1,
        ..ts
    });
    forged[5].options.timestamps = None;
    for (n, bad) in forged.iter().enumerate() {
        let heard = raw.ask(PEER, bad, b"");
        assert_eq!(heard[0].header.flags, Flags::RST, "{n}: {heard:?}");
        assert_eq!(heard[0].header.seq, bad.ack);
    }
    let other = Ipv4Addr::from_bits(PEER.to_bits() + 1);
    assert_eq!(raw.ask(other, &good, b"")[0].header.flags, Flags::RST);
    assert_eq!(raw.counter("drop_tcp_syn_cookie"), 7);
    assert!(listener.accept().is_err());
    // One minute is allowed, two are not.
    raw.wait(Duration::from_secs(121));
    assert_eq!(raw.ask(PEER, &good, b"")[0].header.flags, Flags::RST);
    let fresh = cookie(&mut raw);
    raw.wait(Duration::from_secs(59));
    raw.ask(PEER, &ack_of(&fresh), b"");
    assert!(listener.accept().is_ok());
}

/// Guessing: the chance is 2⁻²⁸ each.
#[test]
fn guesses_open_nothing() {
    let (mut raw, listener) = raw(SynCookies::Always);
    raw.ask(PEER, &syn(6000, 9), b"");
    for n in 0..20_000_u32 {
        let guess = header(7000, Flags::ACK, 10, n.wrapping_mul(0x9e37_79b9));
        raw.put(PEER, &guess, b"");
        if n % 64 == 63 {
            raw.turn();
        }
    }
    raw.turn();
    assert!(listener.accept().is_err());
    assert_eq!(raw.counter("drop_tcp_syn_cookie"), 20_000);
}

/// Without cookies: the oldest handshakes give way; an ACK out of the blue is refused without a look.
#[test]
fn without_cookies_the_oldest_handshake_gives_way() {
    let (mut raw, _listener) = raw(SynCookies::Off);
    flood(&mut raw, 0, 3_000);
    assert_eq!(listener_row(&raw).0, 1024);
    assert_eq!(raw.counter("drop_tcp_syn_queue_full"), 3_000 - 1024);
    assert_eq!(raw.counter("tcp_syn_cookies_sent"), 0);
    let heard = raw.ask(PEER, &header(1, Flags::ACK, 1, 1), b"");
    assert_eq!(heard[0].header.flags, Flags::RST);
    assert_eq!(raw.counter("drop_tcp_syn_cookie"), 0);
}

/// A peer may be slow with its ACK, or its ACK may find the accept queue full: its handshake is in progress however many others have begun and
/// ended since.
#[test]
fn a_slow_handshake_outlives_quick_ones() {
    let (mut raw, listener) = raw(SynCookies::WhenFull);
    let slow = raw.ask(PEER, &syn(1000, 7), b"");
    for port in 2000..5000 {
        let answers = raw.ask(PEER, &syn(port, 9), b"");
        let own = |answer: &&Segment| answer.header.destination_port == port;
        raw.ask(PEER, &ack_of(answers.iter().find(own).unwrap()), b"");
        drop(listener.accept().unwrap());
        raw.put(PEER, &header(port, Flags::RST, 10, 0), b"");
    }
    raw.ask(PEER, &ack_of(&slow[0]), b"");
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.port(), 1000);
    assert_eq!(raw.counter("drop_tcp_syn_queue_full"), 0);
}
