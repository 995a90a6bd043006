//! Where nothing happens, no thread of a stack wakes up for it, and still none is missed when something does.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime,
    socket::{Domain, Kind, Socket},
};

use super::{PATIENCE, REGIMES, alone, ask, await_packet, connect, echo, stacks};

/// Whether the stack's threads that poll something have slept for longer than any tick or interval.
fn is_quiet(net: &Net) -> bool {
    let threads = net.show("threads").unwrap();
    let polls = |name: &str| name == "netchan-poll" || name.starts_with("netchan-link");
    let rows = threads.as_array().unwrap().iter();
    let mut pollers = rows.filter(|row| polls(row["name"].as_str().unwrap()));
    pollers.all(|row| row["state"] == "asleep" && row["since_ms"].as_u64().unwrap() > 200)
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let step = Duration::from_millis(5);
    let steps = PATIENCE.as_nanos() / step.as_nanos();
    let came = (0..steps).any(|_| {
        thread::sleep(step);
        is_so()
    });
    assert!(came, "not within {PATIENCE:?}: {what}");
}

fn await_quiet(net: &Net) {
    await_that("no thread of the stack wakes up", || is_quiet(net));
}

#[test]
fn no_thread_wakes_up_while_one_waits_and_nothing_comes() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let serving = thread::spawn(move || echo(listener.accept().unwrap().0));
        let mut stream = connect(&client);
        for n in 0..3 {
            ask(&mut stream, n);
            await_quiet(&server);
        }
        drop(stream);
        serving.join().unwrap();
    }
}

/// The only thread that waited computes: what comes is acknowledged although the background poller rested when it went.
#[test]
fn a_shard_that_is_left_in_the_quiet_is_turned() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel();
        let serving = thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            first.read_exact(&mut [0]).unwrap();
            computed.recv_timeout(PATIENCE).unwrap();
        });
        let mut first = connect(&client);
        await_quiet(&server);
        first.write_all(&[1]).unwrap();
        // More than an initial window: it needs acknowledgments.
        first.write_all(&[2; 100_000]).unwrap();
        await_that("all is acknowledged", || {
            first.socket().unacknowledged() == 0
        });
        done.send(()).unwrap();
        serving.join().unwrap();
    }
}

/// A program that waited once, and polls since then so often that no thread of the stack takes over: a SYN that is not answered is sent again.
fn polls_and_connects(regime: Regime) {
    let (net, far) = alone(regime, Duration::from_millis(100));
    let waits = net.udp().bind("0.0.0.0:9").unwrap();
    let sender = net.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    await_packet(&far, 17); // the neighbour is known
    let (polling, is_over) = (net.clone(), Arc::new(AtomicBool::new(false)));
    let ends = is_over.clone();
    let waiting = thread::spawn(move || {
        waits.recv_from(&mut [0; 8]).unwrap();
        let calling = Socket::new(&polling, Domain::V4, Kind::Stream).unwrap();
        calling.connect("10.0.0.2:7".parse().unwrap()).unwrap_err();
        while !ends.load(Relaxed) {
            polling.poll();
            thread::sleep(Duration::from_micros(200));
        }
    });
    // The address was announced for the last time, as a rule (RFC 5227 §2.3): nothing else is to be done.
    thread::sleep(Duration::from_millis(2_500));
    await_quiet(&net);
    sender.send_to(b"done", "10.0.0.1:9").unwrap();
    (0..2).for_each(|_| await_packet(&far, 6));
    is_over.store(true, Relaxed);
    waiting.join().unwrap();
}

#[test]
fn a_program_that_polls_has_its_timers_served() {
    let polling = REGIMES.map(|regime| thread::spawn(move || polls_and_connects(regime)));
    polling.into_iter().for_each(|one| one.join().unwrap());
}
