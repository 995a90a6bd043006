//! The thread that carries a capture, without a control socket around it.

use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use percore::own::Own;
use serde_json::{Value, json};

use super::{Capture, Captured, Entry, Of, PATIENCE, Request, carry};
use crate::{
    Net, limits,
    link::wire,
    tap::{self, Subject, Way},
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

/// More datagrams than a socket between two processes holds; how many were sent.
fn flood([from, to]: &[Net; 2], sent: &AtomicU64) {
    let receiver = to.udp().bind("10.0.0.2:7").unwrap();
    let sender = from.udp().bind("10.0.0.1:8").unwrap();
    // Few wait for a neighbour that is not known yet.
    sender.send_to(&[7], "10.0.0.2:7").unwrap();
    receiver.recv_from(&mut [0; 8]).unwrap();
    for _ in 0..2_000 {
        sender.send_to(&[7; 1_400], "10.0.0.2:7").unwrap();
        sent.fetch_add(1, Relaxed);
    }
}

/// What comes before the stream.
fn first_line(mut far: &UnixStream) -> Value {
    let (mut first, mut byte) = (Vec::new(), [0]);
    while byte != [b'\n'] {
        far.read_exact(&mut byte).unwrap();
        first.extend(byte);
    }
    serde_json::from_slice(&first).unwrap()
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
            about: json!(null),
            notes: false,
            is_over: Box::new(move || stack.upgrade().is_none_or(|stack| stack.is_stopping())),
        };
        let carrier = thread::spawn(move || carry(captured, Own::keep(near)));
        flood(&nets, &AtomicU64::new(0));
        thread::sleep(3 * PATIENCE);
        assert!(!carrier.is_finished(), "the stack still runs");
        // Beside the reader: the end may take longer than a client is waited for on a busy machine.
        let end = thread::spawn(move || drop(nets));
        let mut read = 0;
        if reads_later {
            // All that was taken comes, and then the end.
            far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut room = [0; 1 << 16];
            while let n @ 1.. = far.read(&mut room).unwrap() {
                read += n;
            }
        }
        end.join().unwrap();
        assert!(soon(|| carrier.is_finished()), "it waits for its client");
        let ended = carrier.join().unwrap().map_err(|e| e.kind());
        match reads_later {
            false => assert_eq!(ended, Err(std::io::ErrorKind::TimedOut)),
            true => assert!(ended.is_ok() && read > 2_000_000, "{ended:?}, {read} bytes"),
        }
    }
}

/// A stream that brings more than the client can take does not put off the end: what the tap held when it was asked for still comes, and the counts are those
/// of the frames.
#[test]
fn capture_of_a_busy_link_ends() {
    let nets = pair();
    let (near, far) = UnixStream::pair().unwrap();
    let captured = Captured {
        tap: nets[0].tap(tap::Options::default()).unwrap(),
        links: json!([]),
        about: json!(null),
        notes: false,
        is_over: Box::new(|| false),
    };
    let carrier = thread::spawn(move || carry(captured, Own::keep(near)));
    let taps = nets[0].stack().control.host.taps.clone();
    let is_enough = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let (until, sending) = (is_enough.clone(), sent.clone());
    let stream = thread::spawn(move || {
        while !until.load(Relaxed) {
            flood(&nets, &sending);
        }
    });
    first_line(&far);
    let mut capture = Capture::new(far, [json!([]), json!(null)], Vec::new());
    let lost = |counted: tap::Statistics| counted.dropped_full + counted.dropped_buffers;
    assert!(soon(|| taps
        .all()
        .iter()
        .any(|tap| lost(tap.statistics()) > 0)));
    capture.finish().unwrap();
    // More than the tap and the socket hold.
    let held = 2 * limits::TAP_RECORDS as u64 + 4_000;
    let (mut frames, mut last) = (0, tap::Statistics::default());
    while let Some(entry) = capture.next(Duration::from_secs(10)).unwrap() {
        match entry {
            Entry::Statistics(counted) => last = counted,
            Entry::Frame(_) => frames += 1,
        }
        // No faster than the stream.
        let ahead = sent.load(Relaxed) + 64;
        assert!(frames % 64 != 0 || soon(|| sent.load(Relaxed) >= ahead));
        assert!(frames <= held, "the end does not come");
    }
    is_enough.store(true, Relaxed);
    stream.join().unwrap();
    carrier.join().unwrap().unwrap();
    assert_eq!((last.taken, last.matched), (frames, frames + lost(last)));
    assert!(lost(last) > 0);
}

/// Where notes are asked for, each frame brings why it was dropped, the shard and the core; else none.
#[test]
fn notes_come_with_the_frames() {
    for notes in [true, false] {
        let nets = pair();
        let (near, far) = UnixStream::pair().unwrap();
        let options = tap::Options {
            subject: Subject::Drops,
            ..tap::Options::default()
        };
        let about = json!({ "regime": "locked", "reasons": ["a"], "modules": { "1": "wall" } });
        let captured = Captured {
            tap: nets[1].tap(options).unwrap(),
            links: json!([{ "name": "wire" }]),
            about: about.clone(),
            notes,
            is_over: Box::new(|| false),
        };
        let carrier = thread::spawn(move || carry(captured, Own::keep(near)));
        let sender = nets[0].udp().bind("10.0.0.1:8").unwrap();
        sender.send_to(&[7; 20], "10.0.0.2:9").unwrap();
        let first = first_line(&far);
        assert_eq!(first["about"], about);
        let mut capture = Capture::new(far, [first["ok"].clone(), about], Vec::new());
        let frame = loop {
            match capture.next(Duration::from_secs(10)).unwrap() {
                Some(Entry::Frame(frame)) => break frame,
                Some(Entry::Statistics(_)) => {}
                None => panic!("it has ended"),
            }
        };
        assert_eq!((frame.bytes.len(), frame.length), (62, 62));
        match frame.note {
            Some(note) => {
                assert!(note.shard.is_some() && note.core.is_some());
                let name = note.reason.name();
                assert_eq!(name, Some(Ok("udp_no_socket")));
                // Of a stack that knows fewer reasons.
                let number = note.reason.number() - 1;
                assert_eq!(
                    capture.reason(note.reason),
                    Some(format!("reason {number}"))
                );
            }
            None => assert!(!notes),
        }
        let module = tap::Reason::module(1);
        assert_eq!(capture.reason(module).as_deref(), Some("module_wall"));
        let module = tap::Reason::module(2);
        assert_eq!(capture.reason(module).as_deref(), Some("module_2"));
        assert_eq!(capture.reason(tap::Reason::NONE), None);
        capture.finish().unwrap();
        while capture.next(Duration::from_secs(10)).unwrap().is_some() {}
        carrier.join().unwrap().unwrap();
    }
}

/// Requests of before have neither a subject nor notes; what is no socket is refused.
#[test]
fn subjects_are_read() {
    let old = r#"{"link":null,"way":null,"snap":null,"program":[]}"#;
    let old: Request = serde_json::from_str(old).unwrap();
    assert_eq!((old.subject(), old.notes), (Ok(Subject::Links), false));
    let of = |protocol: &str| Request {
        of: Of::Socket {
            protocol: protocol.to_owned(),
            local: "10.0.0.1:80".parse().unwrap(),
            remote: None,
        },
        ..Request::default()
    };
    let text = serde_json::to_string(&of("tcp")).unwrap();
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), of("tcp"));
    assert!(matches!(of("udp").subject(), Ok(Subject::Socket(flow)) if flow.protocol == 17));
    assert!(of("icmp").subject().unwrap_err().contains("tcp and udp"));
    for wrong in [
        r#"{"of":"nothing"}"#,
        r#"{"of":{"shard":-1}}"#,
        r#"{"of":{"socket":{}}}"#,
    ] {
        let whole = format!(
            r#"{{"link":null,"way":null,"snap":null,"program":[],{}"#,
            &wrong[1..]
        );
        assert!(serde_json::from_str::<Request>(&whole).is_err(), "{wrong}");
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
