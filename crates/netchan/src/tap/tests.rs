//! Taps on live stacks over a wire: what they see, what they count, and that nothing waits for them.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use super::{Filter, Instruction, Options, Record, Statistics, Tap, Way};
use crate::{Net, Regime, limits, link::wire};

mod inside;

/// Two stacks, 10.0.0.1 and 10.0.0.2.
fn pair(regime: Regime) -> [Net; 2] {
    let (a, b) = wire::pair(&wire::Options::default());
    let net = |end, address: &str| {
        Net::builder()
            .regime(regime)
            .link_with(Box::new(end))
            .address(address)
            .and_then(crate::Builder::start)
            .expect("a stack")
    };
    [net(a, "10.0.0.1/24"), net(b, "10.0.0.2/24")]
}

/// Everything, after what is under way has come.
fn drain(tap: &mut Tap) -> Vec<Record> {
    let mut all = Vec::new();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(1));
        all.extend(std::iter::from_fn(|| tap.read()));
    }
    all
}

/// Datagrams from the first stack to the second, which takes them.
fn datagrams([from, to]: &[Net; 2], count: usize, len: usize) {
    let receiver = to.udp().bind("10.0.0.2:7").expect("a socket");
    let sender = from.udp().bind("10.0.0.1:8").expect("a socket");
    let mut room = vec![0; 2048];
    for _ in 0..count {
        sender.send_to(&vec![7; len], "10.0.0.2:7").expect("sent");
        receiver.recv_from(&mut room).expect("received");
    }
}

/// Whether a frame is UDP over IPv4, and how much text it has.
fn udp_text(bytes: &[u8]) -> Option<usize> {
    (bytes.get(12..14)? == [8, 0] && bytes.get(23)? == &17)
        .then(|| usize::from(u16::from_be_bytes([bytes[38], bytes[39]])) - 8)
}

const REGIMES: [Regime; 6] = [
    Regime::Giant,
    Regime::Locked,
    Regime::PerCpu,
    Regime::DriverChannel,
    Regime::SocketChannel,
    Regime::AppChannel,
];

/// In every regime each frame is seen once at each end, the same bytes, and everything is counted.
#[test]
fn tap_sees_each_frame_once() {
    for regime in REGIMES {
        let pair = pair(regime);
        let mut taps = pair
            .each_ref()
            .map(|net| net.tap(Options::default()).expect("a tap"));
        datagrams(&pair, 20, 100);
        let [sent, received] = taps.each_mut().map(|tap| {
            let all = drain(tap);
            let counted = tap.statistics();
            assert_eq!(counted.taken, all.len() as u64, "{regime:?}");
            assert_eq!((counted.seen, counted.dropped_full), (counted.taken, 0));
            all.into_iter()
                .filter(|record| udp_text(record.bytes()).is_some())
                .collect::<Vec<_>>()
        });
        assert_eq!((sent.len(), received.len()), (20, 20), "{regime:?}");
        for (out, into) in sent.iter().zip(&received) {
            assert_eq!((out.way, into.way), (Way::Out, Way::In));
            assert_eq!((out.bytes(), out.length), (into.bytes(), into.length));
        }
        assert!(received.is_sorted_by_key(|record| record.time));
    }
}

/// A filter by length, another in its place, a snap length, one way only.
#[test]
fn tap_keeps_what_it_was_told_to() {
    let longer_than = |n| {
        let i = |code, jt, jf, k| Instruction { code, jt, jf, k };
        Filter::new(&[
            i(0x80, 0, 0, 0),
            i(0x25, 0, 1, n),
            i(6, 0, 0, u32::MAX),
            i(6, 0, 0, 0),
        ])
        .expect("a program")
    };
    let pair = pair(Regime::AppChannel);
    let options = Options {
        way: Some(Way::Out),
        snap: 50,
        filter: longer_than(200),
        ..Options::default()
    };
    let mut tap = pair[0].tap(options).expect("a tap");
    datagrams(&pair, 5, 100);
    datagrams(&pair, 3, 500);
    let all = drain(&mut tap);
    let seen = tap.statistics();
    assert_eq!(all.len(), 3);
    assert!(
        all.iter()
            .all(|record| (record.bytes().len(), record.length) == (50, 542))
    );
    assert!(
        seen.seen >= 8 && (seen.matched, seen.taken) == (3, 3),
        "{seen:?}"
    );
    tap.set_filter(longer_than(10_000));
    tap.clear();
    datagrams(&pair, 5, 500);
    assert_eq!(drain(&mut tap).len(), 0);
    assert_eq!(
        tap.statistics(),
        Statistics {
            seen: 5,
            ..Statistics::default()
        }
    );
    let rows = pair[0].show("taps").expect("taps");
    assert_eq!(
        (&rows[0]["way"], &rows[0]["snap_bytes"]),
        (&"out".into(), &50.into())
    );
}

/// A reader that does not read loses what its ring has no room for, and knows how much; traffic goes on.
#[test]
fn slow_reader_loses_counted_frames_only() {
    let pair = pair(Regime::AppChannel);
    let options = Options {
        way: Some(Way::Out),
        snap: 64,
        ..Options::default()
    };
    let mut tap = pair[0].tap(options).expect("a tap");
    let more = limits::TAP_RECORDS + 500;
    datagrams(&pair, more, 10);
    let counted = tap.statistics();
    assert!(
        counted.seen >= more as u64 && counted.matched == counted.seen,
        "{counted:?}"
    );
    assert_eq!(counted.taken, limits::TAP_RECORDS as u64);
    assert_eq!(
        counted.taken + counted.dropped_full + counted.dropped_buffers,
        counted.matched
    );
    assert_eq!(drain(&mut tap).len(), limits::TAP_RECORDS);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let pair = pair(Regime::AppChannel);
    let refused = |options: Options| {
        pair[0]
            .tap(options)
            .map(|_| ())
            .expect_err("refused")
            .kind()
    };
    let with = |snap, link| Options {
        snap,
        link,
        ..Options::default()
    };
    assert_eq!(refused(with(0, None)), std::io::ErrorKind::InvalidInput);
    assert_eq!(
        refused(with(65_536, None)),
        std::io::ErrorKind::InvalidInput
    );
    assert_eq!(refused(with(64, Some(1))), std::io::ErrorKind::InvalidInput);
    let taps: Vec<Tap> = (0..limits::TAPS)
        .map(|_| pair[0].tap(with(64, None)).expect("a tap"))
        .collect();
    assert_eq!(refused(with(64, None)), std::io::ErrorKind::QuotaExceeded);
    drop(taps);
    pair[0].tap(with(64, Some(0))).expect("there is room again");
}

/// Taps come, change and go a thousand times while a stream runs: all bytes arrive, and of what a tap saw everything is taken or counted.
#[test]
fn taps_come_and_go_under_traffic() {
    use std::io::{Read as _, Write as _};
    for regime in [Regime::AppChannel, Regime::Locked, Regime::PerCpu] {
        let [server, client] = pair(regime);
        let listener = server.tcp().listen("10.0.0.1:80").expect("a listener");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut block = vec![0; 1 << 16];
                let mut all = 0_u64;
                loop {
                    match stream.read(&mut block).expect("text") {
                        0 => return all,
                        n => all += n as u64,
                    }
                }
            });
            let storm = scope.spawn(|| {
                let mut totals: HashMap<&str, u64> = HashMap::new();
                let mut rounds = 0;
                while !done.load(Relaxed) || rounds < 300 {
                    rounds += 1;
                    let mut tap = server
                        .tap(Options {
                            snap: 96,
                            ..Options::default()
                        })
                        .expect("a tap");
                    std::thread::yield_now();
                    tap.set_filter(
                        Filter::new(&[Instruction {
                            code: 6,
                            k: 40,
                            ..Instruction::default()
                        }])
                        .expect("a program"),
                    );
                    let mut read = 0;
                    while let Some(record) = tap.read() {
                        assert!(record.bytes().len() <= 96);
                        read += 1;
                        if read > 10_000 {
                            break;
                        }
                    }
                    let counted = tap.statistics();
                    assert!(counted.taken >= read);
                    *totals.entry("seen").or_default() += counted.seen;
                }
                totals
            });
            let mut stream = client.tcp().connect("10.0.0.1:80").expect("a connection");
            let block = vec![7; 1 << 16];
            for _ in 0..400 {
                stream.write_all(&block).expect("sent");
            }
            drop(stream);
            assert_eq!(echo.join().expect("no panic"), 400 << 16, "{regime:?}");
            done.store(true, Relaxed);
            let totals = storm.join().expect("no panic");
            assert!(totals["seen"] > 0, "{regime:?}");
        });
    }
}
