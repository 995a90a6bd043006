//! What `[tcp]` and `[udp]` of a configuration file say, as peers and sockets see it: each key without and with a value of its own.

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use netchan::{
    Builder,
    config::Config,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};
use proto::wire::{
    ipv4::Protocol,
    tcp::{FastOpen, Flags, Header, Options, Timestamps},
};

use crate::{
    icmp::{connecting, icmp},
    raw::{PEER, PORT, Raw, header},
};

/// A line, what it changes, and that without the line and with it.
type Case = (
    &'static str,
    fn(&mut Raw) -> String,
    &'static str,
    &'static str,
);

const TCP: [Case; 20] = [
    ("congestion = \"bbr\"", congestion, "cubic", "bbr"),
    ("slow_start_limit = 2", grown, "20", "12"),
    ("ecn = \"off\"", agrees_to_ecn, "true", "false"),
    ("ecn = \"classic\"", asks_for_ecn, "false", "true"),
    ("ecn = \"accurate\"", asks_for_ecn, "false", "true"),
    ("pacing = true", paced, "10 at once", "fewer"),
    (
        "icmp_while_connecting = \"note\"",
        given_up,
        "true",
        "false",
    ),
    ("timestamps_required = true", takes_bare, "true", "false"),
    ("mtu_probing = \"always\"", segment, "1460", "1024"),
    ("receive_buffer_max = \"8 KiB\"", window_scale, "7", "0"),
    ("send_buffer_max = \"8 KiB\"", taken, "262144", "8192"),
    ("memory_max = \"64 KiB\"", unread, "120 segments", "fewer"),
    (
        "socket_memory_max = \"64 KiB\"",
        unread,
        "120 segments",
        "fewer",
    ),
    (
        "peer_memory_max = \"64 KiB\"",
        unread,
        "120 segments",
        "fewer",
    ),
    ("user_timeout_option = true", user_timeout, "0", "924"),
    ("syn_cookies = \"always\"", cookies, "0", "1"),
    ("fast_open = \"client\"", grants, "true", "false"),
    ("fast_open = \"server\"", opens_fast, "Ok(())", "Err(95)"),
    ("nagle = false", small_segments, "1", "2"),
    ("nagle = false", no_delay, "NoDelay(false)", "NoDelay(true)"),
];

const UDP: [Case; 3] = [
    (
        "memory_max = \"64 KiB\"",
        datagrams,
        "100 datagrams",
        "fewer",
    ),
    (
        "socket_memory_max = \"64 KiB\"",
        datagrams,
        "100 datagrams",
        "fewer",
    ),
    (
        "peer_memory_max = \"64 KiB\"",
        datagrams,
        "100 datagrams",
        "fewer",
    ),
];

#[test]
fn each_setting_has_its_effect() {
    let mut wrong = Vec::new();
    for (table, cases) in [("tcp", &TCP[..]), ("udp", &UDP)] {
        for (key, observe, without, with) in cases {
            for (line, wanted) in [("", without), (key, with)] {
                let text = format!("[{table}]\n{line}\n");
                let config = Config::parse(&text, "test").unwrap();
                let mut raw = Raw::from(Builder::from_config(&config).unwrap());
                let seen = observe(&mut raw);
                if seen != *wanted {
                    wrong.push(format!("{key}: with `{line}` {seen}, not {wanted}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The keys of a table: a file's error names them all.
fn keys(table: &str) -> Vec<String> {
    let text = format!("[{table}]\nnonesuch = 1");
    let error = Config::parse(&text, "test").unwrap_err().what;
    let (_, known) = error.split_once("expected").expect("serde's words");
    // Names stand between back quotes.
    let keys: Vec<_> = known.split('`').skip(1).step_by(2).collect();
    assert!(!keys.is_empty(), "{error}");
    keys.into_iter().map(str::to_owned).collect()
}

/// No key is without a case, nor without a row in `netchan show settings`.
#[test]
fn each_key_has_a_case_and_is_shown() {
    let raw = Raw::new(|builder| builder);
    let shown = raw.net.show("settings").unwrap();
    let rows = shown.as_array().unwrap().iter();
    let names: Vec<_> = rows.map(|row| row["name"].as_str().unwrap()).collect();
    for (table, cases) in [("tcp", &TCP[..]), ("udp", &UDP)] {
        for key in keys(table) {
            let is_tried = cases.iter().any(|case| case.0.starts_with(&key));
            assert!(is_tried, "[{table}] {key}");
            let name = format!("{table}.{}", key.trim_end_matches("_max"));
            let is_shown = names.iter().any(|shown| shown.starts_with(&name));
            assert!(is_shown, "{name} is not among {names:?}");
        }
    }
}

fn listener(raw: &Raw) -> Socket {
    let listener = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
    listener.bind(([0; 4], PORT).into()).unwrap();
    listener.listen(8).unwrap();
    listener
}

fn syn(flags: Flags) -> Header {
    Header {
        options: Options {
            mss: Some(1460),
            window_scale: Some(7),
            ..Options::default()
        },
        window: 60_000,
        ..header(1000, Flags::SYN | flags, 100, 0)
    }
}

/// What a listener answers to a SYN.
fn answer(raw: &mut Raw, syn: &Header) -> Header {
    let heard = raw.ask(PEER, syn, b"");
    assert_eq!(heard.len(), 1);
    heard[0].header
}

/// A connection from a peer with a window of 7,680,000 bytes and a round trip of 100 ms; the header of what the peer says next.
fn open(raw: &mut Raw) -> (Socket, Header) {
    let listener = listener(raw);
    let answer = answer(raw, &syn(Flags::NONE));
    raw.clock.advance(Duration::from_millis(100));
    let ack = Header {
        window: 60_000,
        ..header(1000, Flags::ACK, 101, (answer.seq + 1).0)
    };
    assert!(raw.ask(PEER, &ack, b"").is_empty());
    (listener.accept().unwrap().0, ack)
}

fn send(socket: &Socket, bytes: &[u8]) -> usize {
    socket.send(&[IoSlice::new(bytes)], None).unwrap_or(0)
}

/// The SYN of a connection that is opened.
fn first_segment(raw: &mut Raw) -> Header {
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
    assert!(socket.connect((PEER, PORT).into()).is_err());
    let heard = raw.turn();
    assert_eq!(heard.len(), 1);
    heard[0].header
}

/// Everything, or less.
fn of(count: usize, most: usize, what: &str) -> String {
    assert!(count > 0);
    if count == most {
        format!("{count} {what}")
    } else {
        "fewer".into()
    }
}

fn congestion(raw: &mut Raw) -> String {
    let info = open(raw).0.tcp_info().unwrap();
    info.sending.congestion.name().into()
}

/// Segments of the window, once all of the first ten are acknowledged at once.
fn grown(raw: &mut Raw) -> String {
    let (socket, mut ack) = open(raw);
    assert_eq!(send(&socket, &[1; 29_200]), 29_200);
    let heard = raw.turn();
    let last = &heard.last().unwrap().header;
    assert_eq!(heard.len(), 10);
    ack.ack = last.seq + 1460;
    raw.ask(PEER, &ack, b"");
    let info = socket.tcp_info().unwrap();
    (info.cwnd_bytes / 1460).to_string()
}

fn agrees_to_ecn(raw: &mut Raw) -> String {
    let _listener = listener(raw);
    let flags = answer(raw, &syn(Flags::ECE | Flags::CWR)).flags;
    flags.contains(Flags::ECE).to_string()
}

fn asks_for_ecn(raw: &mut Raw) -> String {
    let flags = first_segment(raw).flags;
    flags.contains(Flags::ECE | Flags::CWR).to_string()
}

fn paced(raw: &mut Raw) -> String {
    let (socket, _) = open(raw);
    assert_eq!(send(&socket, &[1; 14_600]), 14_600);
    of(raw.turn().len(), 10, "at once")
}

fn segment(raw: &mut Raw) -> String {
    let info = open(raw).0.tcp_info().unwrap();
    info.send_mss.to_string()
}

fn window_scale(raw: &mut Raw) -> String {
    let _listener = listener(raw);
    let options = answer(raw, &syn(Flags::NONE)).options;
    options.window_scale.unwrap().to_string()
}

fn taken(raw: &mut Raw) -> String {
    let (socket, _) = open(raw);
    let mut taken = 0;
    loop {
        match send(&socket, &[1; 1000]) {
            0 => return taken.to_string(),
            some => taken += some,
        }
    }
}

/// Segments that are acknowledged although they are not read.
fn unread(raw: &mut Raw) -> String {
    let (socket, mut next) = open(raw);
    for _ in 0..120 {
        raw.ask(PEER, &next, &[1; 500]);
        next.seq = next.seq + 500;
    }
    of(socket.available() / 500, 120, "segments")
}

/// Seconds that a SYN-ACK tells.
fn user_timeout(raw: &mut Raw) -> String {
    let _listener = listener(raw);
    let options = answer(raw, &syn(Flags::NONE)).options;
    options.user_timeout.to_string()
}

fn cookies(raw: &mut Raw) -> String {
    let _listener = listener(raw);
    answer(raw, &syn(Flags::NONE));
    raw.counter("tcp_syn_cookies_sent").to_string()
}

/// Whether a listener grants a cookie of Fast Open's.
fn grants(raw: &mut Raw) -> String {
    let listener = listener(raw);
    listener.set_option(SocketOption::FastOpen(4)).unwrap();
    let mut syn = syn(Flags::NONE);
    syn.options.fast_open = Some(FastOpen::request(false));
    let options = answer(raw, &syn).options;
    options.fast_open.is_some().to_string()
}

fn opens_fast(raw: &mut Raw) -> String {
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
    let set = socket.set_option(SocketOption::FastOpenConnect(true));
    format!("{:?}", set.map_err(|error| error.raw_os_error().unwrap()))
}

fn given_up(raw: &mut Raw) -> String {
    let (socket, syn) = connecting(raw);
    icmp(raw, (3, 1), &syn);
    socket.take_error().is_some().to_string()
}

/// Whether text comes in whose segment lacks the timestamp that was agreed upon.
fn takes_bare(raw: &mut Raw) -> String {
    let listener = listener(raw);
    let mut with = syn(Flags::NONE);
    with.options.timestamps = Some(Timestamps { value: 1, echo: 0 });
    let echoed = answer(raw, &with);
    let theirs = echoed.options.timestamps.expect("agreed upon").value;
    let mut ack = header(1000, Flags::ACK, 101, (echoed.seq + 1).0);
    ack.window = 60_000;
    ack.options.timestamps = Some(Timestamps {
        value: 2,
        echo: theirs,
    });
    assert!(raw.ask(PEER, &ack, b"").is_empty());
    let socket = listener.accept().unwrap().0;
    ack.options.timestamps = None;
    raw.ask(PEER, &ack, b"bare");
    (socket.available() == 4).to_string()
}

fn small_segments(raw: &mut Raw) -> String {
    let (socket, _) = open(raw);
    assert_eq!(send(&socket, b"a") + send(&socket, b"b"), 2);
    raw.turn().len().to_string()
}

fn no_delay(raw: &mut Raw) -> String {
    let (socket, _) = open(raw);
    let read = socket.option(SocketOption::NoDelay(false));
    format!("{:?}", read.unwrap())
}

/// Datagrams that wait although the memory of all is little.
fn datagrams(raw: &mut Raw) -> String {
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Datagram).unwrap();
    socket.bind(([0; 4], PORT).into()).unwrap();
    let (source, len) = (1000_u16.to_be_bytes(), 508_u16.to_be_bytes());
    let port = PORT.to_be_bytes();
    // No checksum.
    let mut datagram = [source, port, len, [0; 2]].concat();
    datagram.resize(508, 1);
    for _ in 0..100 {
        raw.put_payload(PEER, Protocol::UDP, &datagram);
        raw.turn();
    }
    let mut buffer = [0; 1000];
    let mut one = || {
        let mut buffers = [IoSliceMut::new(&mut buffer)];
        socket.receive(&mut buffers, ReceiveFlags::default()).ok()
    };
    let count = std::iter::from_fn(&mut one).count();
    of(count, 100, "datagrams")
}
