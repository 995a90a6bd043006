//! Options of sockets, one by one: each is read back, and a peer or the program sees it work, whether it was set before the connection
//! was opened (on the listener, which hands it on) or while it is open.

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use netchan::{
    CongestionControl::NewReno,
    socket::{
        Domain, Kind, ReceiveFlags, Socket,
        SocketOption::{self, self as O},
    },
};
use proto::wire::tcp::{Flags, Header, Options};

use crate::raw::{PEER, PORT, Raw, Segment, header};

/// When options are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    /// On the listener, or before a connection is opened.
    Before,
    /// On the connection.
    After,
}

/// Options, what shows them, what that is without them, with them, and whether they may come late.
type Case = (
    &'static [SocketOption],
    fn(&mut Open) -> String,
    &'static str,
    &'static str,
    bool,
);

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

const ALIVE: &[SocketOption] = &[
    O::KeepAlive(true),
    O::KeepIdle(seconds(10)),
    O::KeepInterval(seconds(2)),
    O::KeepCount(3),
];

const CASES: [Case; 16] = [
    (&[O::NoDelay(true)], small, "1 segments", "2 segments", true),
    (&[O::Cork(true)], small, "1 segments", "0 segments", true),
    (&[O::QuickAck(false)], acknowledged, "true", "false", true),
    (&[O::MaxSegment(500)], longest, "1460", "500", false),
    (ALIVE, kept_alive, "0 probes", "3 probes, 110", true),
    (&[O::UserTimeout(seconds(5))], patience, "none", "110", true),
    (&[O::Ttl(9)], hops, "64", "9", true),
    (&[O::TypeOfService(0x28)], service, "0", "40", true),
    (&[O::WindowClamp(2000)], window, "many", "2000", true),
    (&[O::ReceiveBuffer(3000)], window, "many", "3000", true),
    (&[O::SendBuffer(5000)], taken, "many", "5000", true),
    (&[O::PacingRateMax(20_000)], at_once, "10", "few", true),
    (&[O::Congestion(NewReno)], control, "cubic", "reno", true),
    (&[O::UnsentLowWater(100)], taken, "many", "1460", true),
    (&[O::Linger(Some(seconds(0)))], closed, "FIN", "RST", true),
    (&[O::UrgentInline(true)], urgent, "ac", "abc", true),
];

#[test]
fn each_option_has_its_effect() {
    let mut wrong = Vec::new();
    for (options, observe, without, with, late) in CASES {
        let mut whens = vec![(When::Never, without), (When::Before, with)];
        whens.extend(late.then_some((When::After, with)));
        for (when, wanted) in whens {
            let seen = observe(&mut Open::with(options, when));
            if seen != wanted {
                let name = ["never", "before", "after"][when as usize];
                wrong.push(format!("{options:?}, set {name}: {seen}, not {wanted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A connection that a listener took, and what the peer says next.
struct Open {
    socket: Socket,
    raw: Raw,
    next: Header,
}

fn set(socket: &Socket, options: &[SocketOption]) {
    for option in options {
        socket.set_option(*option).unwrap();
        assert_eq!(socket.option(*option).unwrap(), *option, "read back");
    }
}

impl Open {
    fn with(options: &[SocketOption], when: When) -> Self {
        let mut raw = Raw::new(|builder| builder);
        let listener = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
        listener.bind(([0; 4], PORT).into()).unwrap();
        if when == When::Before {
            set(&listener, options);
        }
        listener.listen(8).unwrap();
        if when == When::Before && options == [O::QuickAck(false)] {
            let forgotten = listener.option(O::QuickAck(false)).unwrap();
            assert_eq!(forgotten, O::QuickAck(true), "as Linux's listen(2) does");
            set(&listener, options);
        }
        let syn = Header {
            options: Options {
                mss: Some(1460),
                ..Options::default()
            },
            window: 60_000,
            ..header(1000, Flags::SYN, 100, 0)
        };
        let answer = raw.ask(PEER, &syn, b"").remove(0).header;
        raw.clock.advance(Duration::from_millis(50));
        let next = Header {
            window: 60_000,
            ..header(1000, Flags::ACK, 101, (answer.seq + 1).0)
        };
        assert!(raw.ask(PEER, &next, b"").is_empty());
        let socket = listener.accept().unwrap().0;
        match when {
            When::Never => {}
            When::Before => {
                for option in options {
                    assert_eq!(socket.option(*option).unwrap(), *option, "handed on");
                }
            }
            When::After => set(&socket, options),
        }
        Self { raw, socket, next }
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<Segment> {
        let sent = self.socket.send(&[IoSlice::new(bytes)], None);
        assert_eq!(sent.unwrap(), bytes.len());
        self.raw.turn()
    }

    /// The peer says something; what comes back.
    fn hear(&mut self, text: &[u8]) -> Vec<Segment> {
        let heard = self.raw.ask(PEER, &self.next, text);
        self.next.seq = self.next.seq + u32::try_from(text.len()).unwrap();
        heard
    }
}

/// Segments that two small writes make.
fn small(open: &mut Open) -> String {
    let count = open.send(b"a").len() + open.send(b"b").len();
    format!("{count} segments")
}

/// Whether a lone segment is acknowledged at once.
fn acknowledged(open: &mut Open) -> String {
    (open.hear(b"text").len() == 1).to_string()
}

fn longest(open: &mut Open) -> String {
    let heard = open.send(&[1; 3000]);
    let longest = heard.iter().map(|segment| segment.text.len()).max();
    longest.unwrap().to_string()
}

/// Probes of a silent peer, and the error that it ends with.
fn kept_alive(open: &mut Open) -> String {
    // The raw host introduces itself again each second.
    let heard: Vec<_> = (0..60).flat_map(|_| open.raw.wait(seconds(1))).collect();
    let probes = heard.iter().filter(|s| s.header.flags == Flags::ACK);
    match open.socket.take_error() {
        None => format!("{} probes", probes.count()),
        Some(error) => format!(
            "{} probes, {}",
            probes.count(),
            error.raw_os_error().unwrap()
        ),
    }
}

/// How a connection ends within half a minute that gets no answers.
fn patience(open: &mut Open) -> String {
    open.send(b"text");
    open.raw.wait(seconds(30));
    let error = open.socket.take_error();
    error.map_or("none".into(), |e| e.raw_os_error().unwrap().to_string())
}

fn hops(open: &mut Open) -> String {
    open.send(b"text")[0].ip.ttl.to_string()
}

fn service(open: &mut Open) -> String {
    open.send(b"text")[0].ip.tos.to_string()
}

/// The widest window that is offered once as much has come as was offered at first, and was read.
fn window(open: &mut Open) -> String {
    let mut offered = Vec::new();
    for _ in 0..120 {
        let mut heard = open.hear(&[1; 700]);
        let mut room = [0; 2000];
        let mut buffers = [IoSliceMut::new(&mut room)];
        // What did not fit is not there.
        let _ = open.socket.receive(&mut buffers, ReceiveFlags::default());
        heard.extend(open.raw.turn());
        offered.extend(heard.iter().map(|segment| segment.header.window));
    }
    match offered.iter().rev().take(20).max() {
        Some(20_000..) => "many".into(),
        few => format!("{}", few.unwrap()),
    }
}

fn taken(open: &mut Open) -> String {
    let sent = open.socket.send(&[IoSlice::new(&[1; 50_000])], None);
    match sent.unwrap() {
        50_000 => "many".into(),
        few => few.to_string(),
    }
}

/// Full segments that leave at once.
fn at_once(open: &mut Open) -> String {
    match open.send(&[1; 14_600]).len() {
        10 => "10".into(),
        0..4 => "few".into(),
        some => some.to_string(),
    }
}

fn control(open: &mut Open) -> String {
    let info = open.socket.tcp_info().unwrap();
    info.sending.congestion.name().into()
}

/// What the peer hears of a close.
fn closed(open: &mut Open) -> String {
    let other = Socket::new(&open.raw.net, Domain::V4, Kind::Stream).unwrap();
    drop(std::mem::replace(&mut open.socket, other));
    let flags = open.raw.turn()[0].header.flags;
    if flags.contains(Flags::RST) {
        "RST".into()
    } else {
        assert!(flags.contains(Flags::FIN));
        "FIN".into()
    }
}

/// What is read of three bytes of which the second is urgent.
fn urgent(open: &mut Open) -> String {
    // "The sequence number of the octet following the urgent data" (RFC 6093 §2.1): BSD's.
    (open.next.flags, open.next.urgent) = (Flags::ACK | Flags::URG, 2);
    open.hear(b"abc");
    let mut read = String::new();
    for _ in 0..2 {
        let mut room = [0; 16];
        let mut buffers = [IoSliceMut::new(&mut room)];
        let some = open.socket.receive(&mut buffers, ReceiveFlags::default());
        let len = some.map_or(0, |some| some.len);
        read += std::str::from_utf8(&room[..len]).unwrap();
    }
    read
}

/// SO_REUSEPORT, SO_REUSEADDR and IPV6_V6ONLY: which sockets may share a port.
#[test]
fn a_port_is_shared_where_the_options_allow() {
    let raw = Raw::new(|builder| builder);
    let bind = |domain, kind, options: &[SocketOption]| {
        let socket = Socket::new(&raw.net, domain, kind).unwrap();
        set(&socket, options);
        let any: std::net::SocketAddr = match domain {
            Domain::V4 => ([0; 4], PORT).into(),
            Domain::V6 => ([0; 8], PORT).into(),
        };
        let bound = socket.bind(any).map_err(|e| e.raw_os_error().unwrap());
        bound.map(|()| socket)
    };
    use Domain::{V4, V6};
    let in_use = Err(libc::EADDRINUSE);
    for (kind, option) in [
        (Kind::Stream, O::ReusePort(true)),
        (Kind::Datagram, O::ReusePort(true)),
        (Kind::Datagram, O::ReuseAddress(true)),
    ] {
        let first = bind(V4, kind, &[option]).unwrap();
        assert_eq!(bind(V4, kind, &[]).map(drop), in_use, "{option:?} of one");
        assert_eq!(bind(V4, kind, &[option]).map(drop), Ok(()), "{option:?}");
        drop(first);
    }
    for kind in [Kind::Stream, Kind::Datagram] {
        let both = bind(V6, kind, &[]).unwrap();
        assert_eq!(bind(V4, kind, &[]).map(drop), in_use);
        drop(both);
        let only = bind(V6, kind, &[O::V6Only(true)]).unwrap();
        assert_eq!(bind(V4, kind, &[]).map(drop), Ok(()));
        let late = only.set_option(O::V6Only(false)).unwrap_err();
        assert_eq!(late.raw_os_error(), Some(libc::EINVAL));
    }
}

/// SO_BROADCAST: without it nothing goes to all.
#[test]
fn only_a_socket_that_may_sends_to_all() {
    let raw = Raw::new(|builder| builder);
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Datagram).unwrap();
    for to in [[255; 4], [10, 0, 0, 255]] {
        let send = || {
            let sent = socket.send(&[IoSlice::new(b"x")], Some((to, PORT).into()));
            sent.map_err(|e| e.raw_os_error().unwrap())
        };
        set(&socket, &[O::Broadcast(false)]);
        assert_eq!(send(), Err(libc::EACCES));
        set(&socket, &[O::Broadcast(true)]);
        assert_eq!(send(), Ok(1));
    }
}
