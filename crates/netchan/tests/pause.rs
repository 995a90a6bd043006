//! A stack without its threads for a while: nothing moves meanwhile, and all goes on after it, in every regime.

mod two_stacks;

use std::{
    io::{ErrorKind, Read, Write},
    thread,
    time::Duration,
};

use netchan::Regime;

use two_stacks::pair;

/// Times that both stacks stand still.
const PAUSES: usize = 5;
const TEXT: &[u8] = b"as before";
/// Longer than it takes on a wire.
const A_WHILE: Duration = Duration::from_millis(50);

#[test]
fn connections_and_listeners_go_on_after_a_pause() {
    for regime in Regime::ALL {
        let (client, server) = pair(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let mut near = client.tcp().connect("10.0.0.2:7").unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for _ in 0..PAUSES {
            near.write_all(TEXT).unwrap();
            let stands = [client.pause(), server.pause()];
            thread::sleep(A_WHILE);
            stands.iter().for_each(|stack| stack.resume().unwrap());
            let mut text = [0; TEXT.len()];
            far.read_exact(&mut text).unwrap();
            assert_eq!(text, TEXT, "{regime}");
            // What is new, too.
            let mut fresh = client.tcp().connect("10.0.0.2:7").unwrap();
            listener.accept().unwrap().0.write_all(TEXT).unwrap();
            fresh.read_exact(&mut text).unwrap();
            assert_eq!(text, TEXT, "{regime}");
        }
        drop(near);
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "{regime}: its end");
    }
}

/// The threads are what turns the links: without them a peer hears nothing.
#[test]
fn a_stack_that_stands_still_answers_nothing() {
    let (client, server) = pair(Regime::Locked);
    let _listener = server.tcp().listen("0.0.0.0:7").unwrap();
    let stands = server.pause();
    let within = client
        .tcp()
        .connect_timeout("10.0.0.2:7".parse().unwrap(), A_WHILE);
    assert_eq!(within.unwrap_err().kind(), ErrorKind::TimedOut);
    stands.resume().unwrap();
    client.tcp().connect("10.0.0.2:7").unwrap();
}
