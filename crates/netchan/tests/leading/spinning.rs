//! Threads that look for a while before they sleep.

use super::*;

/// The longest look that there is.
const LOOK: Duration = Duration::from_millis(10);

/// A server whose threads look, and a client.
fn stacks_that_look(regime: Regime) -> (Net, Net) {
    let [ours, theirs] = pair();
    let server = Net::builder().regime(regime).link_with(ours).spin(LOOK);
    let client = Net::builder().link_with(theirs).background(Duration::ZERO);
    (
        server.address("10.0.0.1/24").unwrap().start().unwrap(),
        client.address("10.0.0.2/24").unwrap().start().unwrap(),
    )
}

#[test]
fn text_comes_by_the_look_and_by_the_sleep_behind_it() {
    for regime in REGIMES {
        let (server, client) = stacks_that_look(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let serving = thread::spawn(move || echo(listener.accept().unwrap().0));
        let mut stream = connect(&client);
        (0..200).for_each(|n| ask(&mut stream, n));
        for n in 0..5 {
            thread::sleep(3 * LOOK);
            ask(&mut stream, n);
        }
        drop(stream);
        serving.join().unwrap();
    }
}

#[test]
fn a_thread_that_looks_serves_its_followers() {
    for regime in REGIMES {
        let (server, client) = stacks_that_look(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let mut served = Vec::new();
        let mut streams: Vec<_> = (0..4)
            .map(|_| {
                let stream = connect(&client);
                let accepted = listener.accept().unwrap().0;
                served.push(thread::spawn(move || echo(accepted)));
                stream
            })
            .collect();
        for n in 0..100_u8 {
            let asked = usize::from(n) % streams.len();
            ask(&mut streams[asked], n);
        }
        drop(streams);
        served.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// A limit that is shorter than the look.
#[test]
fn a_look_ends_with_the_limit_of_its_call() {
    for regime in REGIMES {
        let (server, client) = stacks_that_look(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let mut stream = connect(&client);
        let mut accepted = listener.accept().unwrap().0;
        let limit = LOOK / 10;
        accepted.set_read_timeout(Some(limit)).unwrap();
        for n in 0..20 {
            let begun = Clock::Real.now();
            let ended = accepted.read(&mut [0]).unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::WouldBlock);
            assert!(Clock::Real.now().since(begun) >= limit);
            stream.write_all(&[n]).unwrap();
            accepted.set_read_timeout(Some(PATIENCE)).unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            accepted.set_read_timeout(Some(limit)).unwrap();
        }
    }
}
