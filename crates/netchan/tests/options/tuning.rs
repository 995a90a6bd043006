//! Buffers that follow the path (R4): with defaults a long fat path is filled, a slow reader keeps the buffer it began with.

use std::{num::NonZeroU64, time::Duration};

use netchan::{
    CongestionControl,
    link::wire,
    socket::{Socket, SocketOption},
};

use super::{World, receive, send};

/// 100 Mbit/s there and back, a round trip of 100 ms, and a queue that holds it.
fn long_fat_path() -> World {
    let wire = wire::Options {
        delay: Duration::from_millis(50),
        rate: NonZeroU64::new(100_000_000),
        queue_frames: Some(2000),
        ..wire::Options::default()
    };
    World::over(&wire, |builder| {
        builder.congestion(CongestionControl::NewReno)
    })
}

/// Sends as much as goes, and reads up to `most` bytes each millisecond, for so long; bytes read.
fn run(world: &World, client: &Socket, server: &Socket, most: usize, time: Duration) -> usize {
    let text = vec![1; 1 << 18];
    let mut read = 0;
    for _ in 0..time.as_millis() {
        while send(client, &text).is_ok_and(|n| n == text.len()) {}
        world.pass(Duration::from_millis(1));
        while let Ok(bytes) = receive(server, most.min(1 << 18)) {
            read += bytes.len();
            if bytes.len() < 1 << 18 {
                break;
            }
        }
    }
    read
}

fn receive_buffer(socket: &Socket) -> u32 {
    socket.tcp_info().unwrap().receive_buffer_bytes
}

#[test]
fn a_long_fat_path_is_filled_with_defaults() {
    let world = long_fat_path();
    let (client, server) = world.pair(&[]);
    assert!(receive_buffer(&server) <= 128 << 10);
    run(&world, &client, &server, usize::MAX, Duration::from_secs(2));
    let read = run(&world, &client, &server, usize::MAX, Duration::from_secs(1));
    // 1448 bytes of text in each frame of 1514.
    let most = 12_500_000 / 1514 * 1448;
    assert!(read > most * 95 / 100, "{read} of {most} bytes in a second");
    assert!(receive_buffer(&server) >= 2_500_000, "twice the path");
    let info = server.tcp_info().unwrap();
    // The queue, too, when it is full.
    assert!((100..400).contains(&info.receive_rtt.as_millis()));
    assert!(info.receive_space_bytes > 1_000_000);
}

#[test]
fn a_slow_reader_keeps_its_buffer() {
    let world = long_fat_path();
    let (client, server) = world.pair(&[]);
    let read = run(&world, &client, &server, 100, Duration::from_secs(3));
    assert!(read > 200_000);
    assert!(receive_buffer(&server) <= 128 << 10);
    assert!(server.available() <= 128 << 10);
}

#[test]
fn a_size_that_was_asked_for_stays() {
    let world = long_fat_path();
    let listener = world.listener();
    listener
        .set_option(SocketOption::ReceiveBuffer(200_000))
        .unwrap();
    let client = world.socket(0, netchan::socket::Kind::Stream);
    client
        .set_option(SocketOption::SendBuffer(300_000))
        .unwrap();
    let server = world.connect(&client, &listener);
    let read = run(&world, &client, &server, usize::MAX, Duration::from_secs(1));
    assert!(
        (1_000_000..2_200_000).contains(&read),
        "a window each 100 ms: {read}"
    );
    assert_eq!(receive_buffer(&server), 200_000);
    assert!(client.unacknowledged() <= 300_000);
}

#[test]
fn growth_ends_where_the_setting_says() {
    let wire = wire::Options {
        delay: Duration::from_millis(50),
        ..wire::Options::default()
    };
    let world = World::over(&wire, |builder| {
        builder.receive_buffer_max(300_000).send_buffer_max(1 << 20)
    });
    let (client, server) = world.pair(&[]);
    run(&world, &client, &server, usize::MAX, Duration::from_secs(2));
    assert_eq!(receive_buffer(&server), 300_000);
    assert!(client.unacknowledged() <= 1 << 20);
}

/// SO_MAX_PACING_RATE holds whatever the congestion control.
#[test]
fn a_pace_is_kept() {
    let world = long_fat_path();
    let (client, server) = world.pair(&[SocketOption::PacingRateMax(500_000)]);
    let read = run(&world, &client, &server, usize::MAX, Duration::from_secs(2));
    assert!((600_000..1_100_000).contains(&read), "{read}");
    let facts = client.tcp_info_as_linux().unwrap();
    assert_eq!(facts[112..120], 500_000_u64.to_ne_bytes());
}
