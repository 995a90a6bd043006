//! The thread that carries a capture, without a control socket around it.

use std::{
    io::Read,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use percore::own::Own;
use serde_json::json;

use super::{Captured, PATIENCE, Request, carry};
use crate::{
    Net,
    link::wire,
    tap::{self, Way},
};

/// Two stacks, 10.0.0.1 and 10.0.0.2.
fn pair() -> [Net; 2] {
    let (a, b) = wire::pair(&wire::Options::default());
    [(a, "10.0.0.1/24"), (b, "10.0.0.2/24")].map(|(end, address)| {
        let builder = Net::builder().link_with(Box::new(end));
        builder.address(address).unwrap().start().unwrap()
    })
}

/// Whether it comes true within ten seconds.
#[allow(clippy::disallowed_methods)] // a deadline of the test itself
fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        if is_true() {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

/// More datagrams than a socket between two processes holds.
fn flood([from, to]: &[Net; 2]) {
    let receiver = to.udp().bind("10.0.0.2:7").unwrap();
    let sender = from.udp().bind("10.0.0.1:8").unwrap();
    // Few wait for a neighbour that is not known yet.
    sender.send_to(&[7], "10.0.0.2:7").unwrap();
    receiver.recv_from(&mut [0; 8]).unwrap();
    for _ in 0..2_000 {
        sender.send_to(&[7; 1_400], "10.0.0.2:7").unwrap();
    }
}

/// While the stack runs, a client that does not read is waited for; when the stack has ended, it is not.
#[test]
fn capture_ends_with_the_stack_though_nothing_is_read() {
    for reads_later in [false, true] {
        let nets = pair();
        let (near, mut far) = UnixStream::pair().unwrap();
        let stack = std::sync::Arc::downgrade(nets[0].stack());
        let captured = Captured {
            tap: nets[0].tap(tap::Options::default()).unwrap(),
            links: json!([]),
            is_over: Box::new(move || stack.upgrade().is_none_or(|stack| stack.is_stopping())),
        };
        let carrier = thread::spawn(move || carry(captured, Own::keep(near)));
        flood(&nets);
        thread::sleep(3 * PATIENCE);
        assert!(!carrier.is_finished(), "the stack still runs");
        drop(nets);
        let mut read = 0;
        if reads_later {
            // All that was taken comes, and then the end.
            far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut room = [0; 1 << 16];
            while let n @ 1.. = far.read(&mut room).unwrap() {
                read += n;
            }
        }
        assert!(soon(|| carrier.is_finished()), "it waits for its client");
        let ended = carrier.join().unwrap().map_err(|e| e.kind());
        match reads_later {
            false => assert_eq!(ended, Err(std::io::ErrorKind::TimedOut)),
            true => assert!(ended.is_ok() && read > 2_000_000, "{ended:?}, {read} bytes"),
        }
    }
}

/// A request from outside says the way by its name.
#[test]
fn ways_have_names() {
    let request = Request {
        way: Some(Way::Out),
        ..Request::default()
    };
    let text = serde_json::to_string(&request).unwrap();
    assert!(text.contains(r#""way":"out""#), "{text}");
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
}
