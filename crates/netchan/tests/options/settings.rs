//! TCP's settings of a stack that runs: what a change holds for, and what cannot be changed.

use std::io::{ErrorKind, IoSlice};

use netchan::{
    CongestionControl, EcnMode, Regime,
    socket::{Kind, Socket, SocketOption},
};

use super::{World, code, server};

fn offers(socket: &Socket) -> (bool, bool) {
    let info = socket.tcp_info().unwrap();
    (info.timestamps, info.sack)
}

/// Connections that are opened later begin with them, on either side, also those of a listener that was there before, in each shard; those
/// that are open stay as they are.
#[test]
fn a_change_holds_for_connections_opened_later() {
    let world = World::with(|builder| builder.regime(Regime::Locked).shards(4));
    let listener = world.listener();
    // Options of its own: what its connections begin with is made ready for it alone.
    listener
        .set_option(SocketOption::ReceiveBuffer(20_000))
        .unwrap();
    let client = || world.socket(0, Kind::Stream);
    let first = client();
    let first_there = world.connect(&first, &listener);
    assert_eq!(offers(&first_there), (true, true));
    world.nets[1]
        .tcp()
        .configure(|tcp| tcp.timestamps = false)
        .unwrap();
    assert!(!world.nets[1].tcp().settings().timestamps);
    assert!(world.nets[0].tcp().settings().timestamps, "another stack");
    for _ in 0..8 {
        let there = world.connect(&client(), &listener);
        assert_eq!(offers(&there), (false, true));
        let room = there.tcp_info().unwrap().receive_buffer_bytes;
        assert_eq!(room, 20_000, "its own wishes still count");
    }
    world.nets[0]
        .tcp()
        .configure(|tcp| tcp.sack = false)
        .unwrap();
    for special in [false, true] {
        let client = client();
        client.set_option(SocketOption::KeepAlive(special)).unwrap();
        assert_eq!(offers(&world.connect(&client, &listener)), (false, false));
    }
    assert_eq!(offers(&first), (true, true), "it was open before");
    assert_eq!(offers(&first_there), (true, true));
}

/// TCP_CONGESTION of a connection is what it runs, whatever later ones begin with.
#[test]
fn an_open_connection_tells_of_its_own() {
    let world = World::plain();
    let asked = |socket: &Socket| {
        let like = SocketOption::Congestion(CongestionControl::default());
        socket.option(like).unwrap()
    };
    let (client, _server) = world.pair(&[]);
    let before = asked(&client);
    let tcp = world.nets[0].tcp();
    tcp.configure(|tcp| tcp.congestion = CongestionControl::Bbr)
        .unwrap();
    assert_eq!(asked(&client), before);
    let (later, _server) = world.pair(&[]);
    assert_eq!(
        asked(&later),
        SocketOption::Congestion(CongestionControl::Bbr)
    );
}

/// A socket's options say what the defaults are now.
#[test]
fn options_tell_of_the_change() {
    let world = World::plain();
    let socket = world.socket(0, Kind::Stream);
    let asked = SocketOption::FastOpenConnect(true);
    socket.set_option(asked).unwrap();
    world.nets[0]
        .tcp()
        .configure(|tcp| tcp.fast_open.client = false)
        .unwrap();
    assert_eq!(code(socket.set_option(asked)), Err(libc::EOPNOTSUPP));
    let sent = socket.send_fast(&[IoSlice::new(b"text")], Some(server()));
    assert_eq!(code(sent), Err(libc::EOPNOTSUPP));
}

/// What belongs to memory of the start, or to an interface, is refused, and nothing else of that change happens.
#[test]
fn what_belongs_to_the_start_stays() {
    let world = World::plain();
    let tcp = world.nets[0].tcp();
    let before = tcp.settings();
    let changes: [fn(&mut proto::tcp::Config); 5] = [
        |tcp| tcp.mss += 1,
        |tcp| tcp.default_mss += 1,
        |tcp| tcp.receive_buffer += 1,
        |tcp| tcp.receive_buffer_max += 1,
        |tcp| tcp.max_segments += 1,
    ];
    for change in changes {
        let refused = tcp.configure(|tcp| {
            tcp.ecn = EcnMode::Classic;
            change(tcp);
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(tcp.settings(), before);
    }
}

/// RFC 7413 §4.1.3: a cookie of an earlier connection lets the next SYN carry text; once peers are forgotten it asks for one again.
#[test]
fn forgotten_peers_are_asked_again() {
    let world = World::plain();
    let listener = world.listener();
    listener.set_option(SocketOption::FastOpen(8)).unwrap();
    let begin = || {
        let client = world.socket(0, Kind::Stream);
        let sent = code(client.send_fast(&[IoSlice::new(b"text")], Some(server())));
        world.settle();
        listener.accept().unwrap();
        sent
    };
    assert_eq!(begin(), Err(libc::EINPROGRESS), "asks");
    assert_eq!(begin(), Ok(4), "knows");
    world.nets[0].tcp().forget_peers();
    assert_eq!(begin(), Err(libc::EINPROGRESS), "asks again");
    assert_eq!(begin(), Ok(4));
}
