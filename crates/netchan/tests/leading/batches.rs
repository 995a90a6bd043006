//! Sends of a thread that has several sockets to serve ([`netchan::Net::more_follows`]).

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use netchan::Regime;

use super::{PATIENCE, REGIMES, ask, between, connect, pair::counted_pair, stacks};

#[test]
fn answers_to_requests_that_came_together_leave_together() {
    const ROUNDS: u8 = 200;
    // Where shards are called, each sends at once.
    for regime in [Regime::AppChannel, Regime::SocketChannel] {
        let batches = Arc::new(AtomicU64::new(0));
        let (server, client) = between(counted_pair(batches.clone()), regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let serving = thread::spawn(move || {
            let mut streams = [(); 2].map(|()| listener.accept().unwrap().0);
            for _ in 0..ROUNDS {
                let mut bytes = [[0]; 2];
                for (stream, byte) in streams.iter_mut().zip(&mut bytes) {
                    stream.read_exact(byte).unwrap();
                }
                server.more_follows(2);
                for (stream, byte) in streams.iter_mut().zip(&bytes) {
                    stream.write_all(byte).unwrap();
                }
            }
        });
        let mut streams = [connect(&client), connect(&client)];
        let before = batches.load(Relaxed);
        for n in 0..ROUNDS {
            streams.iter_mut().for_each(|s| s.write_all(&[n]).unwrap());
            for stream in &mut streams {
                let mut answer = [0];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [n]);
            }
        }
        serving.join().unwrap();
        // Where the machine stops the server for a while, they are sent one by one.
        let together = batches.load(Relaxed) - before;
        assert!(together > 20, "{regime}: {together} of {ROUNDS}");
    }
}

/// Sends that are promised do not come: a link's thread sends what is held.
#[test]
fn what_is_held_goes_out_while_the_thread_computes() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel::<()>();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            for _ in 0..10 {
                stream.read_exact(&mut byte).unwrap();
                server.more_follows(2);
                stream.write_all(&byte).unwrap();
                computed.recv_timeout(PATIENCE).unwrap();
            }
        });
        let mut stream = connect(&client);
        for n in 0..10 {
            ask(&mut stream, n);
            done.send(()).unwrap();
        }
        serving.join().unwrap();
    }
}

#[test]
fn what_is_held_goes_out_with_the_end_of_the_stack() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let receiver = client.udp().bind("0.0.0.0:9").unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let waits = server.udp().bind("0.0.0.0:9").unwrap();
        let serving = thread::spawn(move || {
            let (_, from) = waits.recv_from(&mut [0; 8]).unwrap(); // it led, and is away now
            server.more_follows(2);
            waits.send_to(b"last", from).unwrap();
        });
        receiver.send_to(b"x", "10.0.0.1:9").unwrap();
        let mut text = [0; 8];
        // The end of the link may be told first.
        let got = (0..2).find_map(|_| receiver.recv_from(&mut text).ok());
        assert_eq!(
            got.map(|(len, _)| &text[..len]),
            Some(&b"last"[..]),
            "{regime}"
        );
        serving.join().unwrap();
    }
}
