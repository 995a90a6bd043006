//! Text between two applications of one lender, past TCP: what programs see of it is what TCP would have done.

#[allow(dead_code)] // the other tests need all of it
mod joined_leases;
mod lease_service;

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use joined_leases::{counter, join, piped, tell_ports};
use lease_service::{LENDER, application, lender_and_peer, pattern};
use netchan::{
    Builder, Lent, Net, Regime, TcpListener, TcpStream,
    link::wire,
    module::{Boxed, Module, Point, Verdict, View},
    socket::Readiness,
    tap,
};
use proto::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that a pipe holds.
const PIPE: usize = 512 << 10;

/// A lender, and two applications that are joined. The server has port 90.
struct Scene {
    lender: Net,
    _peer: Net,
    client: Net,
    server: Net,
    listener: TcpListener,
    lent: [Arc<Lent>; 2],
    /// The memory of their pipes.
    pipes: File,
}

impl Scene {
    fn new() -> Self {
        Self::of(Net::builder(), Net::builder())
    }

    fn of(of_client: Builder, of_server: Builder) -> Self {
        let (lender, peer) = lender_and_peer(&wire::Options::default());
        let (client, one) = application(&lender, "client", of_client);
        let (server, other) = application(&lender, "server", of_server);
        let listener = server.tcp().listen(format!("{LENDER}:90")).unwrap();
        let pipes = join(&one, &other);
        let scene = Self {
            lender,
            _peer: peer,
            client,
            server,
            listener,
            lent: [one, other],
            pipes,
        };
        // Both have heard of each other once text goes by a pipe.
        let (mut ours, mut theirs) = scene.connect();
        while piped(&scene.server) == 0 {
            ping(&mut ours, &mut theirs);
        }
        scene
    }

    /// A connection of which nothing was sent.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let ours = self.client.tcp().connect(format!("{LENDER}:90")).unwrap();
        let (theirs, _) = self.listener.accept().unwrap();
        for stream in [&ours, &theirs] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (ours, theirs)
    }

    /// One whose text goes by pipes in both directions.
    fn piped(&self) -> (TcpStream, TcpStream) {
        let (mut ours, mut theirs) = self.connect();
        let before = (piped(&self.client), piped(&self.server));
        for _ in 0..1000 {
            ping(&mut ours, &mut theirs);
            if piped(&self.client) > before.0 && piped(&self.server) > before.1 {
                return (ours, theirs);
            }
        }
        panic!("no pipes");
    }
}

/// What a program writes to several connections is heard of in that order, whichever of them is older.
#[test]
fn what_was_written_first_is_readable_first() {
    let scene = Scene::new();
    let mut all: Vec<_> = (0..4).map(|_| scene.piped()).collect();
    for order in [[3, 1, 2, 0], [0, 2, 1, 3], [1, 0, 3, 2]] {
        let standing = scene.server.pause();
        for &n in &order {
            all[n].0.write_all(b"!").unwrap();
        }
        drop(standing);
        let since = |n: usize| {
            let mut looks = (0..10_000).map(|_| {
                scene.server.look();
                let (ready, since) = all[n].1.socket().ready_since();
                since.filter(|&since| ready.contains(Readiness::READABLE) && since != 0)
            });
            looks.find_map(|since| since).expect("it is readable")
        };
        let since = order.map(since);
        let is_after = |pair: &[u32]| pair[1].wrapping_sub(pair[0]).cast_signed() > 0;
        assert!(since.windows(2).all(is_after), "{order:?}: {since:?}");
        for (_, theirs) in &mut all {
            theirs.read_exact(&mut [0]).unwrap();
        }
    }
}

/// A byte there and back.
fn ping(ours: &mut TcpStream, theirs: &mut TcpStream) {
    let mut byte = [0];
    ours.write_all(b"?").unwrap();
    theirs.read_exact(&mut byte).unwrap();
    theirs.write_all(b"!").unwrap();
    ours.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"!");
}

/// Sends so much, while the other end receives it.
fn transfer(from: &mut TcpStream, to: &mut TcpStream, len: usize, seed: u8) {
    let text = pattern(len, seed);
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&text).unwrap());
        let mut got = vec![0; len];
        to.read_exact(&mut got).unwrap();
        assert!(got == text);
    });
}

#[test]
fn text_of_all_lengths_arrives_in_all_regimes() {
    for regime in Regime::here() {
        let builder = || Net::builder().regime(regime);
        let scene = Scene::of(builder(), builder());
        let (mut ours, mut theirs) = scene.piped();
        let packets = packets(&scene.client);
        for len in [1, 1448, PIPE, PIPE + 1, 2_000_000] {
            transfer(&mut ours, &mut theirs, len, 1);
            transfer(&mut theirs, &mut ours, len, 2);
        }
        let more = self::packets(&scene.client) - packets;
        assert!(more < 20, "{regime:?}: {more} segments");
    }
}

/// Segments of TCP that a stack has sent.
fn packets(net: &Net) -> u64 {
    counter(net, "tcp_segments_out")
}

#[test]
fn what_was_sent_before_the_end_is_read_before_it() {
    let scene = Scene::new();
    for len in [1, 5000, PIPE] {
        let (ours, mut theirs) = scene.piped();
        let text = pattern(len, 3);
        (&ours).write_all(&text).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        thread::sleep(Duration::from_millis(20)); // the FIN is there first
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert!(got == text, "{len}: {}", got.len());
        // The other direction goes on.
        theirs.write_all(&text).unwrap();
        drop(theirs);
        let mut back = Vec::new();
        (&ours).read_to_end(&mut back).unwrap();
        assert!(back == text, "{len}: {}", back.len());
    }
}

/// The end that has closed looks at its peer's offers again, for other connections.
#[test]
fn what_was_sent_before_the_end_outlives_other_connections() {
    let scene = Scene::new();
    let (mut ours, mut theirs) = scene.piped();
    theirs.write_all(b"all of it").unwrap();
    drop(theirs);
    let _others: Vec<_> = (0..3).map(|_| scene.piped()).collect();
    let mut got = Vec::new();
    ours.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"all of it");
}

#[test]
fn a_peer_that_has_closed_resets_a_writer() {
    let scene = Scene::new();
    let (mut ours, theirs) = scene.piped();
    drop(theirs);
    let text = pattern(10_000, 4);
    let ended = (0..10_000).find_map(|_| ours.write_all(&text).err());
    let kind = ended.map(|e| e.kind());
    assert!(
        matches!(
            kind,
            Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        ),
        "{kind:?}"
    );
}

#[test]
fn a_writer_that_waits_hears_that_its_peer_has_closed() {
    let scene = Scene::new();
    let (mut ours, theirs) = scene.piped();
    thread::scope(|scope| {
        let writes = scope.spawn(|| ours.write_all(&pattern(8_000_000, 5)));
        thread::sleep(Duration::from_millis(100)); // the pipe is full
        drop(theirs);
        let kind = writes.join().unwrap().unwrap_err().kind();
        assert!(
            matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{kind:?}"
        );
    });
}

#[test]
fn unread_text_resets_the_connection_at_its_close() {
    let scene = Scene::new();
    let (ours, mut theirs) = scene.piped();
    theirs.write_all(b"never read").unwrap();
    thread::sleep(Duration::from_millis(20));
    ours.set_nonblocking(true).unwrap();
    drop(ours);
    let mut byte = [0];
    let kind = theirs.read(&mut byte).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::ConnectionReset);
}

#[test]
fn a_peek_leaves_the_text() {
    let scene = Scene::new();
    let (mut ours, mut theirs) = scene.piped();
    ours.write_all(b"abcdef").unwrap();
    let mut three = [0; 3];
    assert_eq!(theirs.peek(&mut three).unwrap(), 3);
    assert_eq!(&three, b"abc");
    let mut all = [0; 10];
    assert_eq!(theirs.peek(&mut all).unwrap(), 6);
    assert_eq!(theirs.read(&mut all[..2]).unwrap(), 2);
    assert_eq!(theirs.peek(&mut all).unwrap(), 4);
    theirs.read_exact(&mut all[..4]).unwrap();
    assert_eq!(&all[..4], b"cdef");
    theirs.set_nonblocking(true).unwrap();
    assert_eq!(
        theirs.peek(&mut all).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}

#[test]
fn a_writer_waits_for_room_and_not_longer() {
    let scene = Scene::new();
    let (mut ours, mut theirs) = scene.piped();
    ours.set_nonblocking(true).unwrap();
    let text = pattern(2 * PIPE, 6);
    let mut sent = 0;
    while let Ok(n) = ours.write(&text[sent..]) {
        sent += n;
    }
    assert_eq!(sent, PIPE, "as much as a pipe holds");
    ours.set_nonblocking(false).unwrap();
    thread::scope(|scope| {
        let writes = scope.spawn(|| ours.write_all(&text[sent..]));
        let mut got = vec![0; text.len()];
        // Slowly at first, so that it sleeps.
        for piece in got[..100_000].chunks_mut(10_000) {
            theirs.read_exact(piece).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        theirs.read_exact(&mut got[100_000..]).unwrap();
        writes.join().unwrap().unwrap();
        assert!(got == text);
    });
}

/// More connections than there are pipes, all at once, and again: places come back.
#[test]
fn connections_beyond_the_pipes_go_by_tcp() {
    let scene = Scene::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // As a daemon: ports that the client is granted are told to the server, which drops a SYN from one that it does not know.
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let [one, other] = &scene.lent;
                tell_ports(one, other);
                thread::sleep(Duration::from_millis(10));
            }
        });
        for round in 0..3 {
            open_more_than_pipes(&scene, round);
        }
        is_over.store(true, Relaxed);
    });
}

fn open_more_than_pipes(scene: &Scene, round: u8) {
    let mut all: Vec<_> = (0..80).map(|_| scene.connect()).collect();
    let before = piped(&scene.client);
    for _ in 0..20 {
        for (ours, theirs) in &mut all {
            ping(ours, theirs);
        }
    }
    let more = piped(&scene.client) - before;
    assert!((50..=64).contains(&more), "{round}: {more}");
    for (n, (ours, theirs)) in all.iter_mut().enumerate() {
        transfer(ours, theirs, 10_000 + n, round);
    }
    for (ours, theirs) in all {
        drop(theirs);
        drop(ours);
    }
}

/// Something looks while text flows: each byte arrives, and what is sent from then on goes in packets that it sees, until it ends.
fn goes_in_packets_while_looked_at(scene: &Scene, looked_at: &Net, sender: &Net) {
    let (ours, theirs) = scene.piped();
    let (mut from, mut to) = match std::ptr::eq(sender, &raw const scene.client) {
        true => (ours, theirs),
        false => (theirs, ours),
    };
    let text = pattern(8_000_000, 8);
    let mut got = vec![0; text.len()];
    let (first, second) = got.split_at_mut(4_000_000);
    let mut before = 0;
    let mut tap = None;
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&text).unwrap());
        to.read_exact(first).unwrap();
        before = packets(sender);
        tap = Some(looked_at.tap(tap::Options::default()).unwrap());
        to.read_exact(second).unwrap();
    });
    assert!(got == text);
    let sent = packets(sender) - before;
    // Less than two pipes' worth was on its way.
    assert!(sent > 40, "{sent} segments for 4 MB");
    // Each packet is seen from now on.
    let mut tap = tap.unwrap();
    let mut seen = 0;
    transfer(&mut from, &mut to, 1_000_000, 9);
    let sees = (0..200).any(|_| {
        while let Some(record) = tap.read() {
            seen += record.bytes().len();
        }
        thread::sleep(Duration::from_millis(10));
        seen >= 1_000_000
    });
    assert!(sees, "{seen} bytes");
    drop(tap);
    thread::sleep(Duration::from_millis(200));
    let _past_it_again = scene.piped();
}

#[test]
fn a_tap_of_the_lender_sees_the_text() {
    let scene = Scene::new();
    goes_in_packets_while_looked_at(&scene, &scene.lender, &scene.client);
    goes_in_packets_while_looked_at(&scene, &scene.lender, &scene.server);
}

#[test]
fn a_tap_of_either_application_sees_the_text() {
    let scene = Scene::new();
    for looked_at in [&scene.client, &scene.server] {
        for sender in [&scene.client, &scene.server] {
            goes_in_packets_while_looked_at(&scene, looked_at, sender);
        }
    }
}

/// Where each side says in their memory that text is to go in packets.
const HOLDS: [u64; 2] = [256, 384];

/// A look that is over before the next byte leaves the pipes as they are.
#[test]
fn a_short_look_changes_nothing() {
    let scene = Scene::new();
    let (mut ours, mut theirs) = scene.piped();
    let tap = scene.server.tap(tap::Options::default()).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let kind = theirs.read(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::WouldBlock);
    theirs.set_nonblocking(false).unwrap();
    drop(tap);
    let before = packets(&scene.client);
    transfer(&mut ours, &mut theirs, 6 * PIPE, 15);
    let sent = packets(&scene.client) - before;
    assert!(sent < 20, "{sent} segments");
    assert_eq!(counter(&scene.server, "tcp_pipes_broken"), 0);
}

/// Drops what has none of the flags of TCP, as firewalls do.
struct Strict;

impl Module for Strict {
    fn name(&self) -> &str {
        "strict"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, view: &View<'_>, _: Instant) -> Verdict {
        match view.upper().get(13) {
            Some(0) => Verdict::Drop,
            _ => Verdict::Pass,
        }
    }
}

/// A module that comes while a writer waits for room sees what is sent from then on, and nothing of what wakes the writer.
#[test]
fn a_module_keeps_no_writer_waiting() {
    let scene = Scene::new();
    let (mut ours, mut theirs) = scene.piped();
    let text = pattern(4 * PIPE, 16);
    thread::scope(|scope| {
        let writes = scope.spawn(|| ours.write_all(&text));
        thread::sleep(Duration::from_millis(100)); // the pipe is full
        scene.client.load_module(Boxed::any(Strict)).unwrap();
        let mut got = vec![0; text.len()];
        theirs.read_exact(&mut got).unwrap();
        writes.join().unwrap().unwrap();
        assert!(got == text);
    });
}

/// The client sends by a pipe on and on, though the server asks for packets. What the server's connection ended with, and what it had read; `None`: the
/// client saw what the server asks for, before it was taken away, and heeded it. `pause`: how long the server waits ahead of each read.
fn defy(scene: &Scene, pause: Duration) -> Option<(ErrorKind, usize)> {
    let (mut ours, mut theirs) = scene.piped();
    // What it tries again tells the server; the server has to find out by itself.
    ours.set_write_timeout(Some(2 * PATIENCE)).unwrap();
    let is_over = AtomicBool::new(false);
    let text = pattern(8 * PIPE, 12);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for at in HOLDS {
                    scene.pipes.write_all_at(&[0; 4], at).unwrap();
                }
            }
        });
        scope.spawn(|| ours.write_all(&text));
        let _tap = scene.server.tap(tap::Options::default()).unwrap();
        let (mut got, mut some) = (0, vec![0; 16 << 10]);
        let ended = loop {
            thread::sleep(pause);
            match theirs.read(&mut some) {
                Ok(n) => {
                    assert!(some[..n] == text[got..got + n]);
                    got += n;
                }
                Err(e) => break Some((e.kind(), got)),
            }
            if got == text.len() {
                break None;
            }
        };
        is_over.store(true, Relaxed);
        ended
    })
}

/// A peer that is asked for packets, and goes on by its pipe: what it wrote before it could know is taken, and then its connection is reset.
#[test]
fn a_peer_that_does_not_leave_its_pipe_is_reset() {
    for pause in [0, 1] {
        is_reset(Duration::from_millis(pause));
    }
}

/// With a pause the pipe is as full as the peer makes it when the last byte is taken that may be.
fn is_reset(pause: Duration) {
    let scene = Scene::new();
    let defied = (0..50).find_map(|_| defy(&scene, pause));
    let (kind, got) = defied.expect("a client that did not see it");
    assert_eq!(kind, ErrorKind::ConnectionReset);
    assert!((2 * PIPE..3 * PIPE).contains(&got), "{got}");
    assert_eq!(counter(&scene.server, "tcp_pipes_broken"), 1);
    // The others go on.
    let (mut ours, mut theirs) = scene.connect();
    transfer(&mut ours, &mut theirs, 100_000, 13);
}

/// A peer that writes whatever it likes into all of the memory: nothing hangs or panics, and connections of others go on.
#[test]
fn nonsense_in_pipes_harms_their_connections_alone() {
    let scene = Scene::new();
    let len = scene.pipes.metadata().unwrap().len();
    let mut seed = 1_u64;
    for round in 0..30 {
        let (ours, theirs) = scene.connect();
        let patience = Some(Duration::from_millis(50));
        for stream in [&ours, &theirs] {
            stream.set_read_timeout(patience).unwrap();
            stream.set_write_timeout(patience).unwrap();
        }
        for _ in 0..200 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round);
            // Mostly where the words are.
            let place = (seed >> 20) % if seed.is_multiple_of(4) { len } else { 40_000 };
            let _ = scene
                .pipes
                .write_at(&seed.to_le_bytes()[..4], place / 4 * 4);
            let _ = (&ours)
                .write(b"some text")
                .and_then(|_| (&theirs).write(b"other text"));
            let mut some = [0; 64];
            theirs.set_nonblocking(true).unwrap();
            let _ = (&theirs).read(&mut some);
        }
    }
    let other = scene.lender.tcp().listen(format!("{LENDER}:91")).unwrap();
    let mut ours = scene.client.tcp().connect(format!("{LENDER}:91")).unwrap();
    let (mut theirs, _) = other.accept().unwrap();
    transfer(&mut ours, &mut theirs, 100_000, 14);
}
