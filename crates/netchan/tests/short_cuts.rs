//! Two applications of one lender, joined by a short cut as a daemon joins them. All in one process; what crosses, crosses as between two.

#[allow(dead_code)] // the other tests need all of it
mod joined_leases;
mod lease_service;

use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};

use joined_leases::{join, piped};
use lease_service::{LENDER, LENDER_V6, application, lender_and_peer, pattern};
use netchan::{Clock, Lent, Net, link::wire, socket::Socket, tap};

const PATIENCE: Duration = Duration::from_secs(20);

/// The least that a retransmission timer runs.
const RTO_MIN: Duration = Duration::from_millis(200);

/// One of so many is had in time.
const ATTEMPTS: usize = 20;

/// Packets that the lender has carried between leases.
fn carried(lender: &Net) -> u64 {
    let leases = lender.show("leases").unwrap();
    let all = leases.as_array().unwrap().iter();
    all.map(|lease| lease["packets_in"].as_u64().unwrap()).sum()
}

/// Bytes both ways over one connection.
fn echo(client: &Net, server: &Net, address: &str, len: usize) {
    let listener = server.tcp().listen(address).unwrap();
    let sent = pattern(len, 7);
    let patience = Some(Duration::from_secs(20));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(patience).unwrap();
            let mut got = vec![0; len];
            stream.read_exact(&mut got).unwrap();
            assert!(got == sent, "what came is what was sent");
            stream.write_all(&got).unwrap();
        });
        let mut stream = client.tcp().connect(address).unwrap();
        stream.set_read_timeout(patience).unwrap();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; len];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "what came back is what was sent");
    });
}

type Joined = (Net, std::sync::Arc<Lent>);

/// Two applications that are joined, of which the second one keeps a port: it is told of once.
fn joined() -> (Net, [Joined; 2], [Socket; 2]) {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (client, one) = application(&lender, "client", Net::builder());
    let (server, other) = application(&lender, "server", Net::builder());
    let kept = [format!("{LENDER}:90"), format!("[{LENDER_V6}]:90")];
    let kept = kept.map(|address| joined_leases::kept(&server, &address));
    join(&one, &other);
    (lender, [(client, one), (server, other)], kept)
}

#[test]
fn connections_go_past_the_lender() {
    let (lender, [(client, _one), (server, _other)], _kept) = joined();
    for address in [format!("{LENDER}:90"), format!("[{LENDER_V6}]:90")] {
        echo(&client, &server, &address, 200_000);
        let before = (carried(&lender), piped(&client), piped(&server));
        echo(&client, &server, &address, 3_000_000);
        assert!(carried(&lender) - before.0 < 20, "{address}");
        assert!(piped(&client) > before.1 && piped(&server) > before.2);
    }
}

#[test]
fn a_tap_sees_each_packet_between_applications() {
    let (lender, [(client, _one), (server, _other)], _kept) = joined();
    let address = format!("{LENDER}:90");
    echo(&client, &server, &address, 100_000);
    thread::sleep(Duration::from_millis(500)); // the ends of its connection
    let before = carried(&lender);
    let mut tap = lender.tap(tap::Options::default()).unwrap();
    echo(&client, &server, &address, 100_000);
    let mut seen = 0;
    let sees_all = (0..100).any(|_| {
        while let Some(record) = tap.read() {
            let ports = record.bytes().get(34..38).unwrap();
            seen += u64::from(ports[..2] == [0, 90] || ports[2..] == [0, 90]);
        }
        thread::sleep(Duration::from_millis(20));
        seen > 5 && seen == carried(&lender) - before
    });
    assert!(sees_all, "{seen} of {} packets", carried(&lender) - before);
    drop(tap);
    thread::sleep(Duration::from_millis(500));
    let before = carried(&lender);
    echo(&client, &server, &address, 100_000);
    assert!(carried(&lender) - before < 20, "past it again");
}

/// A program has ended in order, and has not taken what was sent to it last. That is sent again, to the lender, before its timer says so. Whether that was so, which
/// a machine that stands still for long may prevent.
fn is_sent_again_before_its_timer() -> bool {
    let (lender, [(client, one), (server, other)], kept) = joined();
    let address = format!("{LENDER}:90");
    echo(&client, &server, &address, 10_000);
    let listener = server.tcp().listen(&address).unwrap();
    let mut stream = client.tcp().connect(&address).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.write_all(b"the last").unwrap();
    drop(accepted);
    let mut last = String::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_to_string(&mut last).unwrap();
    assert!(last == "the last" && server.drain(PATIENCE) && client.drain(PATIENCE));
    let before = carried(&lender);
    let standing = server.pause();
    let sent = Clock::Real.now();
    drop(stream);
    assert!(!client.drain(Duration::from_millis(20)) && carried(&lender) == before);
    drop((standing, kept, listener, server));
    other.silence(); // as a lender does ahead of the news
    joined_leases::part(1, &one);
    assert!(client.drain(PATIENCE));
    Clock::Real.now().since(sent) < RTO_MIN
}

#[test]
fn what_a_program_did_not_take_at_its_end_is_sent_again() {
    assert!((0..ATTEMPTS).any(|_| is_sent_again_before_its_timer()));
}
