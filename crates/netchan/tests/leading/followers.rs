//! Several threads that wait: one leads, the others follow.

use std::{io::Read, sync::mpsc, thread, time::Duration};

use netchan::Regime;

use super::{PATIENCE, REGIMES, ask, connect, echo, stacks, wakeups};

#[test]
fn each_of_several_that_wait_gets_its_own() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let accepting = thread::spawn(move || {
            let streams = (0..4).map(|_| listener.accept().unwrap().0);
            let serving: Vec<_> = streams.map(|s| thread::spawn(move || echo(s))).collect();
            serving.into_iter().for_each(|one| one.join().unwrap());
        });
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let mut stream = connect(&client);
                thread::spawn(move || (0..200).for_each(|n| ask(&mut stream, n)))
            })
            .collect();
        asking.into_iter().for_each(|one| one.join().unwrap());
        accepting.join().unwrap();
    }
}

/// A follower leads as soon as it has traffic: the link's thread is not woken for it.
#[test]
fn requests_to_one_of_several_that_wait_do_not_wake_the_links_thread() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let accepting = thread::spawn(move || {
            let streams = (0..3).map(|_| listener.accept().unwrap().0);
            let serving: Vec<_> = streams.map(|s| thread::spawn(move || echo(s))).collect();
            serving.into_iter().for_each(|one| one.join().unwrap());
        });
        let mut streams: Vec<_> = (0..3).map(|_| connect(&client)).collect();
        streams.iter_mut().for_each(|stream| ask(stream, 1));
        for stream in &mut streams {
            let before = wakeups(&server);
            (0..1000_u32).for_each(|n| ask(stream, n.to_le_bytes()[0]));
            let woken = wakeups(&server) - before;
            // Where the machine stops the server for a while, the link's thread takes over.
            assert!(woken < 200, "{regime}: {woken} times for 1,000 requests");
        }
        drop(streams);
        accepting.join().unwrap();
    }
}

/// The thread that led computes, and does not come back: others that wait are served.
#[test]
fn followers_are_served_while_the_leader_computes() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel::<()>();
        let serving = thread::spawn(move || {
            let follower = listener.accept().unwrap().0;
            let following = thread::spawn(move || echo(follower));
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            computed.recv_timeout(PATIENCE).unwrap();
            following.join().unwrap();
        });
        let mut follower = connect(&client);
        let mut busy = connect(&client);
        ask(&mut follower, 1);
        std::io::Write::write_all(&mut busy, &[1]).unwrap();
        (0..100).for_each(|n| ask(&mut follower, n));
        done.send(()).unwrap();
        drop((follower, busy));
        serving.join().unwrap();
    }
}

/// What `netchan show threads` says of the application's threads.
fn shown(net: &netchan::Net) -> Vec<String> {
    let threads = net.show("threads").unwrap();
    let rows = threads.as_array().unwrap().iter();
    let mut application = rows
        .filter(|row| row["of"] == "application")
        .map(|row| row["does"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    application.sort();
    application
}

#[test]
fn threads_of_the_application_are_shown() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel::<()>();
        let first = thread::spawn(move || {
            let accepted = listener.accept().unwrap();
            computed.recv_timeout(PATIENCE).unwrap();
            (listener, accepted)
        });
        let comes = |expected: &[&str]| {
            let came = (0..2000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                let shown = shown(&server);
                shown.len() == expected.len()
                    && shown
                        .iter()
                        .zip(expected)
                        .all(|(it, begin)| it.starts_with(begin))
            });
            assert!(came, "{regime}: {:?}, not {expected:?}", shown(&server));
        };
        comes(&[match regime {
            // A listener is in all shards: the background poller turns them.
            Regime::SocketChannel => "waits",
            _ => "waits, polls the links",
        }]);
        let stream = connect(&client);
        comes(&["in the program"]);
        done.send(()).unwrap();
        drop((first.join().unwrap(), stream));
        comes(&[]);
    }
}
