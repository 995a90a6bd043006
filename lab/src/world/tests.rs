//! The world's own tests: what it says must be so before what happens in it means anything.

use super::{
    app::{App, Ending},
    shape::Shape,
    *,
};
use proto::tcp::Config;

/// One bulk transfer over a link of that shape.
fn transfer(shape: LinkShape, bytes: u64) -> World {
    let mut world = World::new(7);
    let hosts = [world.host(8192), world.host(8192)];
    let routes = [
        vec![world.link(shape)],
        vec![world.link(LinkShape::default())],
    ];
    let end = |app, opens_at| EndShape {
        config: Config::default(),
        app,
        opens_at,
        iss: SeqNum(5),
        ts_offset: 7,
        patience: Duration::ZERO,
    };
    let ends = [
        end(App::bulk(bytes, 1 << 20), Some(START)),
        end(App::sink(), None),
    ];
    world.flow(hosts, ends, routes);
    world
}

#[test]
fn a_transfer_arrives_and_ends() {
    let mut world = transfer(LinkShape::default(), 1_000_000);
    assert!(
        !world.run(START + Duration::from_secs(100)),
        "nothing goes on"
    );
    assert_eq!(world.end(1).read_bytes(), 1_000_000);
    assert!(world.ends().all(Endpoint::is_over));
    world.check_memory();
    let counts = world.link_counts(0);
    assert_eq!((counts.lost, counts.sent), (0, counts.delivered));
}

#[test]
fn a_rate_is_kept() {
    let shape = LinkShape {
        rate: 1_000_000,
        queue_max: 50_000,
        ..LinkShape::default()
    };
    let mut world = transfer(shape, 1 << 40);
    world.run(START + Duration::from_secs(10));
    let read = world.end(1).read_bytes();
    assert!(
        (8_000_000..10_000_000).contains(&read),
        "{read} bytes in 10 s of 1 MB/s"
    );
    assert!(world.link_counts(0).overflowed > 0, "the queue is found");
}

#[test]
fn a_seed_replays_a_run() {
    for seed in 0..8 {
        let shape = Shape::random(seed);
        assert_eq!(shape.run(), shape.run(), "{shape:?}");
    }
    assert_ne!(Shape::random(1).run(), Shape::random(2).run());
}

/// A referee that never whistles is none: an application that claims less than it wrote is caught.
#[test]
#[should_panic(expected = "only what was written is sent")]
fn referee_sees_text_that_was_not_written() {
    use super::referee::{Claims, Referee};
    let config = Config::default();
    let mut referee = Referee::new(&config, SeqNum(5));
    let conn = proto::tcp::Connection::open_active(&config, 1, 2, SeqNum(5), 7, START);
    let claims = Claims {
        info: &conn.info(),
        probing: false,
        written: 0,
    };
    let header = proto::wire::tcp::Header {
        seq: SeqNum(6),
        ..Default::default()
    };
    let text = Text {
        len: 1,
        ..Text::default()
    };
    referee.sent(&header, &text, &claims);
}

#[test]
fn endings_are_what_they_say() {
    assert!(!App::sink().is_rude());
    let app = App {
        ending: Ending::Abort { after: 10 },
        ..App::bulk(100, 1)
    };
    assert!(app.is_rude());
    assert_eq!(app.writes(), 10);
}

/// smoltcp against itself and against netchan, over losses.
#[test]
fn smoltcp_lives_here_too() {
    let lossy = LinkShape {
        loss_ppm: 10_000,
        ..LinkShape::default()
    };
    let peer = |opens_at, writes| peer::PeerShape {
        opens_at,
        writes,
        buffer: 100_000,
        seed: 3,
    };
    let ours = EndShape {
        config: Config::default(),
        app: App::sink(),
        opens_at: None,
        iss: SeqNum(5),
        ts_offset: 7,
        patience: Duration::ZERO,
    };
    let writer = Party::from(peer(Some(START), 300_000));
    for reader in [Party::from(peer(None, 0)), Party::from(ours)] {
        let mut world = World::new(7);
        let hosts = [world.host(8192), world.host(8192)];
        let routes = [vec![world.link(lossy)], vec![world.link(lossy)]];
        let first = world.flow(hosts, [writer.clone(), reader], routes);
        world.run(START + Duration::from_secs(300));
        assert_eq!(world.read_bytes(first + 1), 300_000);
        assert!(world.read_all_at(first + 1).is_some());
    }
}
