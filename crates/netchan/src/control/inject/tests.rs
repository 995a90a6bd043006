//! The thread that writes a client's frames, without a control socket around it.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use percore::own::Own;
use serde_json::Value;

use super::{Injecting, Injection, RATE_MAX, Request, carry};
use crate::{Net, link::wire, tap, tap::Way};

/// A stack, 10.0.0.1, whose wire's other end is kept.
fn net() -> (Net, wire::Wire) {
    let (near, far) = wire::pair(&wire::Options::default());
    let builder = Net::builder().link_with(Box::new(near));
    let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
    (net, far)
}

/// A client of it, and what is answered first.
fn client(net: &Net, rate: u32) -> (UnixStream, Value) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let stack = std::sync::Arc::downgrade(net.stack());
    let injecting = Injecting {
        writer: net.writer(0).unwrap(),
        link: "wire".to_owned(),
        way: Way::Out,
        rate,
        is_over: Box::new(move || stack.upgrade().is_none_or(|stack| stack.is_stopping())),
    };
    thread::spawn(move || carry(injecting, Own::keep(near)));
    far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != [b'\n'] {
        far.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    (far, serde_json::from_slice(&line).unwrap())
}

/// What was answered last.
fn answer(mut client: UnixStream) -> Value {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn entry(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_le_bytes(), frame].concat()
}

#[test]
fn frames_go_out_in_order_and_at_their_rate() {
    let (net, _far) = net();
    let mut seen = net.tap(tap::Options::default()).unwrap();
    let begun = percore::clock::now_ns();
    let (stream, first) = client(&net, 200);
    assert_eq!(first["ok"]["frame_max"], 1518);
    let mut injection = Injection::new(stream, &first["ok"]).unwrap();
    for number in 0..40_u8 {
        assert!(injection.write(&[number; 60]).unwrap());
    }
    assert_eq!(injection.finish().unwrap(), 40);
    let passed = percore::clock::now_ns() - begun;
    assert!(passed >= 190_000_000, "{passed} ns");
    let all: Vec<_> = std::iter::from_fn(|| seen.read())
        .filter(|record| record.bytes().len() == 60)
        .map(|record| (record.way, record.bytes()[0]))
        .collect();
    let wanted: Vec<_> = (0..40).map(|number| (Way::Out, number)).collect();
    assert_eq!(all, wanted);
    // The writer is gone, so that there is room for others.
    let again: Vec<_> = (0..crate::limits::WRITERS).map(|_| net.writer(0)).collect();
    assert!(again.iter().all(Result::is_ok));
}

#[test]
fn clients_that_send_no_frames_are_told() {
    let (net, _far) = net();
    let wrong = |bytes: &[u8]| {
        let (mut stream, _) = client(&net, RATE_MAX);
        // It may have hung up in the middle.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        answer(stream)["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let whole = entry(&[1; 60]);
    let long = wrong(&[&whole[..], &entry(&[2; 1519])].concat());
    assert!(
        long.contains("frame 2: 1519 bytes") && long.contains("1518"),
        "{long}"
    );
    let short = wrong(&entry(&[1; 13]));
    assert!(short.contains("frame 1: it is shorter"), "{short}");
    let cut = wrong(&[&whole[..], &whole[..50]].concat());
    assert!(cut.contains("frame 2 is not whole"), "{cut}");
    assert!(wrong(&[0xff; 4]).contains("frame 1: 4294967295 bytes"));
    assert!(wrong(b"x").contains("frame 1 is not whole"));
    let (stream, _) = client(&net, 1);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answer(stream)["ok"]["frames"], 0);
}

#[test]
fn end_of_the_stack_is_said() {
    let (net, _far) = net();
    let (stream, _) = client(&net, 1_000);
    drop(net);
    let said = answer(stream);
    assert_eq!(said["error"], "the stack has ended");
}

#[test]
fn rates_have_bounds() {
    let request = |rate| Request {
        link: String::new(),
        way: Way::In,
        rate,
    };
    assert_eq!(request(None).rate(), Ok(super::RATE));
    assert_eq!(request(Some(RATE_MAX)).rate(), Ok(RATE_MAX));
    for rate in [0, RATE_MAX + 1] {
        assert!(request(Some(rate)).rate().is_err(), "{rate}");
    }
    let text = serde_json::to_string(&request(Some(5))).unwrap();
    assert_eq!(
        serde_json::from_str::<Request>(&text).unwrap(),
        request(Some(5))
    );
}
