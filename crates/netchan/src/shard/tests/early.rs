//! TCP Fast Open (RFC 7413) at both ends: whose SYN has text, how much, and what a path that swallows such SYNs teaches.

use std::{io::IoSlice, time::Duration};

use proto::tcp::FastOpenMode;

use super::{
    uncut::{Sent, take, world as recorded},
    *,
};
use crate::{link::Segmentation, socket::SocketOption};

fn listening(world: &World, most: u32) -> Socket {
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.set_option(SocketOption::FastOpen(most)).unwrap();
    listener.listen(8).unwrap();
    listener
}

/// Sends in the SYN, if that may be: the socket, and how much was taken.
fn first(world: &World, text: &[u8], options: &[SocketOption]) -> (Socket, Result<usize, i32>) {
    let socket = world.socket(0, Kind::Stream);
    for option in options {
        socket.set_option(*option).unwrap();
    }
    let taken = code(socket.send_fast(&[IoSlice::new(text)], Some(to("10.0.0.2:80"))));
    (socket, taken)
}

fn active(world: &World) -> [u64; 3] {
    ["active", "active_fail", "blackhole"].map(|name| {
        let name = format!("tcp_fast_open_{name}");
        world.counter(0, &name)
    })
}

/// RFC 7413 §3: the first connection asks for a cookie, the next ones send text with it, as much as a segment of the peer takes.
#[test]
fn a_known_peer_gets_text_with_the_syn() {
    let world = World::new();
    let listener = listening(&world, 8);
    let (one, taken) = first(&world, b"hello", &[]);
    assert_eq!(taken, Err(libc::EINPROGRESS));
    world.pass(5);
    assert!(listener.accept().is_ok());
    assert_eq!(send(&one, b"hello", None), Ok(5));
    for (len, fits) in [(5, 5), (3000, 1460 - 40)] {
        let (_two, taken) = first(&world, &vec![7; len], &[]);
        let taken = taken.unwrap();
        assert!(taken == len.min(taken) && taken >= fits, "{taken} of {len}");
        world.nets.iter().for_each(|net| _ = net.poll());
        world.nets.iter().for_each(|net| _ = net.poll());
        let (accepted, _) = listener.accept().expect("with the SYN alone");
        assert_eq!(receive(&accepted).map(|text| text.len()), Ok(taken));
        world.pass(5);
    }
    assert_eq!(active(&world), [2, 0, 0]);
}

/// Linux's TCP_FASTOPEN_NO_COOKIE, and the setting of the whole stack: each alone is enough; nothing is known of the peer, so little fits.
#[test]
fn text_goes_without_a_cookie_where_either_says_so() {
    for (by_setting, by_option) in [(false, false), (true, false), (false, true)] {
        let mode = FastOpenMode {
            client_without_cookie: by_setting,
            server_without_cookie: true,
            ..FastOpenMode::default()
        };
        let config = proto::tcp::Config {
            fast_open: mode,
            ..proto::tcp::Config::default()
        };
        let world = World::with(|builder| builder.tcp(config));
        let listener = listening(&world, 8);
        let option = SocketOption::FastOpenNoCookie(by_option);
        let (_one, taken) = first(&world, &[7; 2000], &[option]);
        if !by_setting && !by_option {
            assert_eq!(taken, Err(libc::EINPROGRESS));
            continue;
        }
        let little = taken.unwrap();
        assert!(little > 0 && little <= 536, "RFC 9293 MUST-15: {little}");
        world.pass(5);
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(receive(&accepted).map(|text| text.len()), Ok(little));
        // Its segment size is known from now on.
        let (_two, taken) = first(&world, &[7; 2000], &[option]);
        assert!(taken.unwrap() > 1300);
    }
}

/// The option of the last SYN: 34, or 254 (RFC 6994) with its magic number.
fn asked_by(sent: &Sent) -> Option<u8> {
    const OPTIONS: usize = 40;
    let all = take(sent);
    let syn = (all.iter()).rfind(|(p, _)| p.len() >= OPTIONS && p[9] == 6 && p[33] & 2 != 0)?;
    let mut options = syn.0.get(OPTIONS..)?;
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return None,
            1 => options = rest,
            34 | 254 => return Some(*kind),
            _ => options = options.get(usize::from(*rest.first()?)..)?,
        }
    }
    None
}

/// As Linux: a peer that granted nothing is asked with the experimental option once.
#[test]
fn a_peer_that_grants_nothing_is_asked_another_way_once() {
    let (world, sent) = recorded(Segmentation::None);
    let _listener = listening(&world, 0);
    for wanted in [34, 254, 34, 34] {
        let (_socket, taken) = first(&world, b"hello", &[]);
        assert_eq!(taken, Err(libc::EINPROGRESS));
        world.settle();
        assert_eq!(asked_by(&sent), Some(wanted));
        world.pass(5);
    }
}

/// Time passes for the first host alone: no answer comes.
fn unheard(world: &World, seconds: u64) {
    for _ in 0..seconds * 20 {
        world.clock.advance(Duration::from_millis(50));
        while world.nets[0].poll() {}
    }
}

const LONG: Duration = Duration::from_secs(130);

/// A world whose first host knows the second one's cookie.
fn acquainted(syn_timeout: Duration) -> World {
    let config = proto::tcp::Config {
        syn_timeout,
        ..proto::tcp::Config::default()
    };
    let world = World::with(|builder| builder.tcp(config));
    let _listener = listening(&world, 8);
    let (socket, taken) = first(&world, b"hello", &[]);
    assert_eq!(taken, Err(libc::EINPROGRESS));
    world.pass(5);
    drop(socket);
    world.pass(5);
    world
}

/// As Linux: the second timeout of a SYN with text is a path that swallows them; for an hour SYNs have none, and do not ask.
#[test]
fn a_path_that_swallows_syns_with_text_gets_plain_ones() {
    let world = acquainted(LONG);
    let (lost, taken) = first(&world, b"hello", &[]);
    assert_eq!(taken, Ok(5));
    unheard(&world, 2);
    assert_eq!(active(&world)[2], 0, "after one timeout");
    unheard(&world, 2);
    assert_eq!(active(&world)[2], 1, "after two");
    unheard(&world, 30);
    assert_eq!(active(&world)[2], 1, "once for each");
    drop(lost);
    let plain = |world: &World| first(world, b"hello", &[]).1 == Err(libc::EINPROGRESS);
    assert!(plain(&world));
    unheard(&world, 3500);
    assert!(plain(&world));
    unheard(&world, 100);
    assert!(!plain(&world), "an hour is over");
}

/// One that gives up at its only timeout counts, too; a SYN without text never does.
#[test]
fn the_only_timeout_is_enough_and_plain_syns_do_not_count() {
    let world = acquainted(Duration::from_secs(2));
    let (lost, taken) = first(&world, b"hello", &[]);
    assert_eq!(taken, Ok(5));
    unheard(&world, 10);
    assert_eq!(code(lost.finish_connect()), Err(libc::ETIMEDOUT));
    assert_eq!(active(&world)[2], 1);
    let world = acquainted(LONG);
    let plain = world.socket(0, Kind::Stream);
    let _ = plain.connect(to("10.0.0.2:80"));
    unheard(&world, 60);
    assert_eq!(active(&world)[2], 0);
}

/// What was found out is forgotten when a setting says so, or says for how long it is to be believed; where that is no time, it is not found out.
#[test]
fn a_rest_ends_with_the_setting_that_it_goes_by() {
    let swallowed = || {
        let world = acquainted(LONG);
        let (_lost, taken) = first(&world, b"hello", &[]);
        assert_eq!(taken, Ok(5));
        unheard(&world, 4);
        assert_eq!(active(&world)[2], 1);
        world
    };
    let goes_on = |world: &World| first(world, b"hello", &[]).1 == Ok(5);
    let world = swallowed();
    (world.nets[0].tcp())
        .configure(|tcp| tcp.nagle = !tcp.nagle)
        .unwrap();
    unheard(&world, 1);
    assert!(!goes_on(&world), "another setting");
    let change = |tcp: &mut proto::tcp::Config| tcp.fast_open.black_hole = Duration::ZERO;
    world.nets[0].tcp().configure(change).unwrap();
    unheard(&world, 1);
    assert!(goes_on(&world));
    unheard(&world, 10);
    assert_eq!(active(&world)[2], 1, "not looked for any more");
    // All that is known of peers goes, their cookies, too.
    let world = swallowed();
    world.nets[0].tcp().forget_peers();
    assert!(!goes_on(&world));
    let world = World::new();
    assert!(!goes_on(&world), "as at the beginning");
}

/// A listener that takes text from every peer.
fn trusting(ports: &[u16]) -> (World, Vec<Socket>) {
    let mode = FastOpenMode {
        server_without_cookie: true,
        ..FastOpenMode::default()
    };
    let config = proto::tcp::Config {
        fast_open: mode,
        ..proto::tcp::Config::default()
    };
    let world = World::with(|builder| builder.tcp(config));
    let listeners = ports.iter().map(|port| {
        let listener = world.bound(1, Kind::Stream, &format!("10.0.0.2:{port}"));
        listener.set_option(SocketOption::FastOpen(1)).unwrap();
        listener.listen(8).unwrap();
        listener
    });
    let listeners = listeners.collect();
    (world, listeners)
}

/// Begins a connection with text in its SYN: whether that was taken.
fn begins(world: &World, port: u16) -> bool {
    let passive = |world: &World| world.counter(1, "tcp_fast_open_passive");
    let before = passive(world);
    let peer = Paper {
        port,
        next: SeqNum(1000),
        acked: SeqNum(0),
    };
    world.segment(&peer, Flags::SYN, peer.next, b"text");
    world.settle();
    passive(world) > before
}

/// RFC 7413 §5.1: a reset keeps its place in the limit for a while, since forged addresses cause those; what ends otherwise does not.
#[test]
fn only_resets_keep_their_place_in_the_limit() {
    for is_reset in [true, false] {
        let (world, listeners) = trusting(&[80]);
        assert!(
            begins(&world, 5000) && !begins(&world, 5001),
            "one at a time"
        );
        if is_reset {
            let peer = Paper {
                port: 5000,
                next: SeqNum(1005),
                acked: SeqNum(0),
            };
            world.segment(&peer, Flags::RST, peer.next, &[]);
        } else {
            // Its neighbour does not answer: it is given up.
            let over = |world: &World| {
                world.shard(1, |shard, _| shard.connections().all(|(_, s)| s.is_over()))
            };
            let seconds = (0..600).take_while(|_| {
                world.clock.advance(Duration::from_secs(1));
                world.settle();
                !over(&world)
            });
            let seconds = seconds.count();
            assert!((1..50).contains(&seconds), "{seconds}");
        }
        world.settle();
        assert_eq!(begins(&world, 5002), !is_reset);
        drop(listeners);
    }
}

/// A listener that closes takes its own handshakes along, not another one's.
#[test]
fn another_listeners_end_frees_no_place_here() {
    let (world, mut listeners) = trusting(&[80, 81]);
    assert!(begins(&world, 5000));
    drop(listeners.pop());
    world.settle();
    assert!(!begins(&world, 5001), "its handshake is not over");
    let (number, iss) = world.shard(1, |shard, _| {
        let is_its = |s: &super::super::TcpSocket| s.key().remote_port == 5000;
        let (number, socket) = shard.connections().find(|(_, s)| is_its(s)).unwrap();
        (number, socket.connection.iss())
    });
    let peer = Paper {
        port: 5000,
        next: SeqNum(1005),
        acked: iss + 1,
    };
    world.segment(&peer, Flags::ACK, peer.next, &[]);
    world.settle();
    assert!(world.shard(1, |shard, _| shard.tcp(number).is_some()));
    assert!(begins(&world, 5002), "now it is");
    let depths = world.shard(1, |shard, _| shard.listeners().next().unwrap().1.depths());
    assert_eq!(depths, (2, 1), "two to be accepted, one not over");
}

/// Where the stack's setting says that every listener takes text, none has to ask for it.
#[test]
fn a_listener_need_not_ask_where_all_take_text() {
    for every_listener in [false, true] {
        let mode = FastOpenMode {
            server_without_cookie: true,
            every_listener,
            ..FastOpenMode::default()
        };
        let config = proto::tcp::Config {
            fast_open: mode,
            ..proto::tcp::Config::default()
        };
        let world = World::with(|builder| builder.tcp(config));
        let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
        listener.listen(2).unwrap();
        assert_eq!(begins(&world, 5000), every_listener);
        assert_eq!(begins(&world, 5001), every_listener);
        assert!(!begins(&world, 5002), "its backlog is the limit");
        let full = world.counter(1, "tcp_fast_open_listen_overflow");
        assert_eq!(
            full,
            u64::from(every_listener),
            "a listener that takes none is not full"
        );
    }
}
