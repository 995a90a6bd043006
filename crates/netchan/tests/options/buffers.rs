//! Options about how much there may be: low waters, buffers, the window clamp.

use std::time::Duration;

use netchan::socket::{Kind, ReceiveFlags, SocketOption};

use super::{World, code, is_readable, is_writable, receive, receive_with, send};

/// SO_RCVLOWAT: readiness and calls that wait want so much; others take what there is.
#[test]
fn readable_from_the_low_water_on() {
    let world = World::plain();
    let (client, server) = world.pair(&[SocketOption::NoDelay(true)]);
    server
        .set_option(SocketOption::ReceiveLowWater(10))
        .unwrap();
    assert_eq!(send(&client, b"123456789"), Ok(9));
    world.settle();
    assert!(!is_readable(&server));
    let waits = ReceiveFlags {
        enough: true,
        ..ReceiveFlags::default()
    };
    assert_eq!(receive_with(&server, 100, waits), Err(libc::EAGAIN));
    let few = ReceiveFlags {
        peek: true,
        ..waits
    };
    assert_eq!(
        receive_with(&server, 9, few).unwrap().len(),
        9,
        "all it asks"
    );
    assert_eq!(send(&client, b"0"), Ok(1));
    world.settle();
    assert!(is_readable(&server));
    assert_eq!(receive_with(&server, 100, waits).unwrap().len(), 10);
    assert_eq!(send(&client, b"rest"), Ok(4));
    world.settle();
    assert!(!is_readable(&server));
    assert_eq!(
        receive(&server, 2),
        Ok(b"re".to_vec()),
        "a call that does not wait"
    );
    client.shutdown(std::net::Shutdown::Write).unwrap();
    world.settle();
    assert!(is_readable(&server), "the end of the stream");
    assert_eq!(receive_with(&server, 100, waits), Ok(b"st".to_vec()));
}

/// Two threads set an option each: both count, whichever was first.
#[test]
fn options_set_at_the_same_time_both_count() {
    let world = World::plain();
    let (client, server) = world.pair(&[]);
    assert_eq!(send(&client, b"12345"), Ok(5));
    world.settle();
    let both = std::sync::Barrier::new(2);
    let rounds = || (0..3000).map(|round| round % 2 == 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for on in rounds() {
                both.wait();
                server.set_option(SocketOption::UrgentInline(on)).unwrap();
                both.wait();
            }
        });
        for few in rounds() {
            let bytes = if few { 1 } else { 10 };
            both.wait();
            let option = SocketOption::ReceiveLowWater(bytes);
            server.set_option(option).unwrap();
            both.wait();
            assert_eq!(server.option(option).unwrap(), option);
            assert_eq!(is_readable(&server), few, "the connection knows, too");
        }
    });
}

/// A low water above what the window lets come does not wait for ever.
#[test]
fn a_low_water_beyond_the_window_gives_way() {
    let world = World::plain();
    let listener = world.listener();
    listener
        .set_option(SocketOption::ReceiveBuffer(4096))
        .unwrap();
    listener
        .set_option(SocketOption::ReceiveLowWater(1 << 20))
        .unwrap();
    let client = world.socket(0, Kind::Stream);
    let server = world.connect(&client, &listener);
    assert_eq!(
        server.option(SocketOption::ReceiveLowWater(0)).unwrap(),
        SocketOption::ReceiveLowWater(1 << 20),
        "inherited"
    );
    assert_eq!(send(&client, &[1; 20_000]), Ok(20_000));
    world.pass(Duration::from_millis(500));
    assert!(is_readable(&server));
}

/// TCP_NOTSENT_LOWAT: no more than that waits unsent, however large the buffer.
#[test]
fn writable_below_the_unsent_low_water() {
    let world = World::plain();
    let listener = world.listener();
    listener
        .set_option(SocketOption::ReceiveBuffer(20_000))
        .unwrap();
    let client = world.socket(0, Kind::Stream);
    client
        .set_option(SocketOption::UnsentLowWater(5000))
        .unwrap();
    let server = world.connect(&client, &listener);
    let mut sent = 0;
    loop {
        match send(&client, &[1; 100_000]) {
            Ok(n) => sent += n,
            Err(code) => break assert_eq!(code, libc::EAGAIN),
        }
        world.pass(Duration::from_millis(50));
    }
    assert!((20_000..=26_500).contains(&sent), "{sent}");
    let unsent = client.tcp_info().unwrap().unsent_bytes;
    assert!(
        (5000..6500).contains(&unsent) && !is_writable(&client),
        "{unsent}"
    );
    assert_eq!(receive(&server, 20_000).unwrap().len(), 20_000);
    world.pass(Duration::from_millis(300));
    assert!(is_writable(&client));
}

/// TCP_WINDOW_CLAMP: the peer is never offered more.
#[test]
fn windows_are_clamped() {
    let world = World::plain();
    let listener = world.listener();
    listener
        .set_option(SocketOption::WindowClamp(8000))
        .unwrap();
    let client = world.socket(0, Kind::Stream);
    let server = world.connect(&client, &listener);
    assert_eq!(send(&client, &[1; 100_000]), Ok(100_000));
    world.pass(Duration::from_millis(100));
    // Full segments; what is left is not worth one (RFC 9293 §3.8.6.2.1).
    assert_eq!(server.available(), 8000 / 1448 * 1448);
    let clamp = |bytes| server.set_option(SocketOption::WindowClamp(bytes));
    assert_eq!(code(clamp(0)), Err(libc::EINVAL), "connected");
    clamp(1).unwrap();
    assert_eq!(
        server.option(SocketOption::WindowClamp(0)).unwrap(),
        SocketOption::WindowClamp(1152)
    );
}

/// SO_SNDBUF: no more is taken than it says.
#[test]
fn the_send_buffer_is_what_was_asked_for() {
    let world = World::plain();
    let (client, _server) = world.pair(&[SocketOption::SendBuffer(10_000)]);
    assert_eq!(send(&client, &[1; 100_000]), Ok(10_000));
    assert_eq!(send(&client, &[1; 100_000]), Err(libc::EAGAIN));
    assert!(!is_writable(&client));
    world.pass(Duration::from_millis(50));
    assert!(is_writable(&client));
    client.set_option(SocketOption::SendBuffer(1)).unwrap();
    assert_eq!(
        client.option(SocketOption::SendBuffer(0)).unwrap(),
        SocketOption::SendBuffer(2304),
        "Linux's least"
    );
}

/// SO_REUSEPORT: connections are spread over all sockets that listen at one port.
#[test]
fn a_shared_port_is_shared() {
    let world = World::plain();
    let listen = || {
        let listener = world.socket(1, Kind::Stream);
        listener.set_option(SocketOption::ReusePort(true)).unwrap();
        listener.bind(super::server()).unwrap();
        listener.listen(100).unwrap();
        listener
    };
    let listeners = [listen(), listen(), listen()];
    let refused = world.socket(1, Kind::Stream);
    assert_eq!(code(refused.bind(super::server())), Err(libc::EADDRINUSE));
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let client = world.socket(0, Kind::Stream);
            let _ = client.connect(super::server());
            world.settle();
            client
        })
        .collect();
    let counts = listeners.each_ref().map(|listener| {
        let accepted = std::iter::from_fn(|| listener.accept().ok());
        accepted.collect::<Vec<_>>().len()
    });
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    assert!(counts.iter().all(|&n| n > 5), "{counts:?}");
}
