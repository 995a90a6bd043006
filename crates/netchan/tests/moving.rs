//! Connections that move from shard to shard while threads read, write, wait and close.

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use netchan::{Net, Regime, TcpStream, link::wire};

const SHARDS: usize = 3;
const CONNECTIONS: u8 = 24;
const BYTES: usize = 200_000;

fn start(wire: wire::Wire, address: &str) -> Net {
    let builder = Net::builder().link_with(Box::new(wire));
    let builder = builder.regime(Regime::AppChannel).shards(SHARDS);
    builder.address(address).unwrap().start().unwrap()
}

fn count(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect(name);
    row["value"].as_u64().unwrap()
}

/// What connection `number` sends: its own bytes at each place.
fn text(number: u8) -> Vec<u8> {
    let byte = |n: usize| (n / 251).to_le_bytes()[0] ^ n.to_le_bytes()[0] ^ number;
    (0..BYTES).map(byte).collect()
}

/// Sends and reads at once, until the peer has ended.
fn asks(stream: &TcpStream, number: u8) {
    let sent = text(number);
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for piece in sent.chunks(1 + 97 * usize::from(number)) {
                let mut to = stream;
                to.write_all(piece).unwrap();
            }
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut from = stream;
        from.read_to_end(&mut got).unwrap();
    });
    assert!(got == sent, "{number}: {} bytes came back", got.len());
}

fn echoes(stream: &TcpStream) {
    let (mut buffer, mut stream) = ([0; 5000], stream);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        stream.write_all(&buffer[..n]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Wherever each connection is moved, and whenever, its two ends see the bytes that were sent.
#[test]
fn bytes_go_with_a_connection() {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let ours = start(ours, "10.0.0.1/24");
    let theirs = start(theirs, "10.0.0.2/24");
    let listener = ours.tcp().listen("10.0.0.1:7").unwrap();
    let (moves, running) = (AtomicUsize::new(0), AtomicBool::new(true));
    thread::scope(|scope| {
        let mut asking = Vec::new();
        for number in 1..=CONNECTIONS {
            let near = theirs.tcp().connect("10.0.0.1:7").unwrap();
            let (far, _) = listener.accept().unwrap();
            let far = Arc::new(far);
            let mover = far.clone();
            scope.spawn(move || echoes(&far));
            let (moves, running) = (&moves, &running);
            scope.spawn(move || {
                let mut to = usize::from(number);
                while running.load(Relaxed) && moves.load(Relaxed) < 4 * usize::from(CONNECTIONS) {
                    moves.fetch_add(
                        usize::from(mover.socket().move_to_shard(to % SHARDS)),
                        Relaxed,
                    );
                    to += 1;
                    thread::yield_now();
                }
            });
            asking.push(scope.spawn(move || asks(&near, number)));
        }
        let results: Vec<_> = asking.into_iter().map(|one| one.join()).collect();
        running.store(false, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let moves = moves.into_inner() as u64;
    assert!(moves >= u64::from(CONNECTIONS), "{moves}");
    assert_eq!(count(&ours, "tcp_moved"), moves);
    assert_eq!(count(&ours, "drop_tcp_no_socket"), 0);
}
