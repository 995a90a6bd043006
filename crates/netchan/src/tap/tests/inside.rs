//! Taps behind the link's edge: what is dropped and why, a shard, a socket; and frames that are written into a link.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use proto::wire::{checksum, ethernet::MacAddr};

use super::{REGIMES, datagrams, drain, pair, udp_text};
use crate::{
    Net, Regime,
    driver::module::{
        Boxed, Verdict,
        filter::{Filter, Rules},
    },
    limits,
    tap::{self, Flow, Note, Options, Record, Subject, Tap, Way, WriteError},
};

fn tap(net: &Net, subject: Subject) -> Tap {
    let options = Options {
        subject,
        ..Options::default()
    };
    net.tap(options).expect("a tap")
}

/// Why a record was dropped, as people read it.
fn why(record: &Record) -> String {
    match record.note.reason.name() {
        None => "not".to_owned(),
        Some(Ok(name)) => name.to_owned(),
        Some(Err(module)) => format!("module {module}"),
    }
}

fn mac(net: &Net) -> MacAddr {
    let links = net.show("links").expect("links");
    let text = links[0]["mac"].as_str().expect("an address").to_owned();
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect();
    MacAddr(bytes.try_into().expect("six"))
}

/// Sends a datagram to a port that no socket has.
fn lose(from: &Net, len: usize) {
    let sender = from.udp().bind("10.0.0.1:8").expect("a socket");
    sender
        .send_to(&vec![7; len], "10.0.0.2:9")
        .expect("it is sent");
}

/// In every regime a drop is seen once, with its frame, its reason and the shard; what is not dropped is not.
#[test]
fn drops_are_seen_with_their_reasons() {
    for regime in REGIMES {
        let pair = pair(regime);
        let mut tap = tap(&pair[1], Subject::Drops);
        datagrams(&pair, 20, 100);
        lose(&pair[0], 30);
        let all = drain(&mut tap);
        let [record] = all.as_slice() else {
            panic!("{regime:?}: {all:?}");
        };
        assert_eq!(why(record), "udp_no_socket", "{regime:?}");
        assert_eq!((record.way, record.link, record.length), (Way::In, 0, 72));
        assert_eq!(udp_text(record.bytes()), Some(30), "{regime:?}");
        assert_eq!(record.bytes()[..6], mac(&pair[1]).0, "{regime:?}");
        assert_eq!(record.bytes()[6..12], mac(&pair[0]).0, "{regime:?}");
        let Note { shard, core, .. } = record.note;
        assert!(shard.is_some() && core.is_some(), "{regime:?}");
        let counted = tap.statistics();
        assert_eq!((counted.seen, counted.taken), (1, 1));
    }
}

/// What a link drops, what modules drop, and a connection's duplicate are seen, too.
#[test]
fn drops_of_links_and_modules_are_seen() {
    let pair = pair(Regime::AppChannel);
    datagrams(&pair, 1, 1);
    let mut drops = tap(&pair[1], Subject::Drops);
    // For another station; of no protocol; an IP header that is broken.
    let mut writer = pair[0].writer(0).expect("a writer");
    let other = frame(MacAddr([2, 9, 9, 9, 9, 9]), [10, 0, 0, 1], 7, b"other");
    let mut unknown = frame(mac(&pair[1]), [10, 0, 0, 1], 7, b"unknown");
    unknown[12..14].copy_from_slice(&[0x88, 0x99]);
    let mut broken = frame(mac(&pair[1]), [10, 0, 0, 1], 7, b"broken");
    broken[24] ^= 1;
    for bytes in [&other, &unknown, &broken] {
        writer.write(Way::Out, bytes).expect("written");
    }
    assert!(writer.wait_empty(Duration::from_secs(10)));
    let all = drain(&mut drops);
    let reasons: Vec<String> = all.iter().map(why).collect();
    assert_eq!(reasons, ["other_mac", "ethertype", "ip_checksum"]);
    let frames: Vec<&[u8]> = all.iter().map(Record::bytes).collect();
    assert_eq!(frames, [&other[..], &unknown, &broken]);
    assert!(all.iter().all(|record| record.note.shard.is_none()));

    let rules = Rules {
        rules: vec!["drop in proto udp".parse().expect("a rule")],
        default: Verdict::Pass,
    };
    let module = Boxed::any(Filter::new("wall", rules));
    pair[1].load_module(module).expect("it is loaded");
    lose(&pair[0], 5);
    let all = drain(&mut drops);
    let reasons: Vec<String> = all.iter().map(why).collect();
    assert_eq!(reasons, ["module 1"]);
    assert_eq!(udp_text(all[0].bytes()), Some(5));
}

/// A connection frees the segment that it refuses; it is seen all the same.
#[test]
fn drops_of_connections_are_seen() {
    use std::io::{Read as _, Write as _};
    for regime in REGIMES {
        let [client, server] = pair(regime);
        let listener = server.tcp().listen("10.0.0.2:80").expect("a listener");
        let mut links = tap(&server, Subject::Links);
        let mut stream = client.tcp().connect("10.0.0.2:80").expect("a connection");
        let (mut accepted, _) = listener.accept().expect("a connection");
        for _ in 0..2 {
            stream.write_all(b"text of a segment").expect("sent");
            accepted.read_exact(&mut [0; 17]).expect("received");
        }
        let seen = drain(&mut links);
        let first = seen
            .iter()
            .find(|record| record.way == Way::In && record.bytes().ends_with(b"segment"))
            .expect("its first text");
        let mut drops = tap(&server, Subject::Drops);
        let mut writer = server.writer(0).expect("a writer");
        writer.write(Way::In, first.bytes()).expect("written");
        assert!(writer.wait_empty(Duration::from_secs(10)));
        let all = drain(&mut drops);
        let reasons: Vec<String> = all.iter().map(why).collect();
        assert_eq!(reasons, ["tcp_unacceptable"], "{regime:?}");
        assert_eq!(all[0].bytes(), first.bytes(), "{regime:?}");
    }
}

/// Only what the options ask for: the way, the snap length, the filter.
#[test]
fn drops_are_chosen_as_frames_are() {
    let pair = pair(Regime::AppChannel);
    let with = |way, snap| {
        let options = Options {
            subject: Subject::Drops,
            way,
            snap,
            ..Options::default()
        };
        pair[1].tap(options).expect("a tap")
    };
    let (mut out, mut short) = (with(Some(Way::Out), 65_535), with(Some(Way::In), 20));
    lose(&pair[0], 600);
    let [record] = &drain(&mut short)[..] else {
        panic!("one");
    };
    assert_eq!((record.bytes().len(), record.length), (20, 642));
    assert_eq!(drain(&mut out).len(), 0);
    // A shard keeps no more of what it drops.
    let mut whole = with(None, 65_535);
    lose(&pair[0], 600);
    let all = drain(&mut whole);
    assert_eq!(all[0].bytes().len(), limits::TAP_DROPPED);
    assert_eq!(all[0].length, 642);
}

/// A ring that is full loses copies, which are counted, and nothing else.
#[test]
fn drops_beyond_the_ring_are_counted() {
    let pair = pair(Regime::AppChannel);
    datagrams(&pair, 1, 1);
    let tap = tap(&pair[1], Subject::Drops);
    let soon = |seen: u64| {
        let is_seen = |_| {
            std::thread::sleep(Duration::from_millis(1));
            tap.statistics().seen >= seen
        };
        assert!((0..10_000).any(is_seen), "{:?}", tap.statistics());
    };
    let sender = pair[0].udp().bind("10.0.0.1:8").expect("a socket");
    let more = limits::TAP_RECORDS as u64 + 500;
    for sent in 1..=more {
        sender.send_to(b"x", "10.0.0.2:9").expect("it is sent");
        if sent % 50 == 0 {
            soon(sent);
        }
    }
    soon(more);
    let counted = tap.statistics();
    assert_eq!((counted.seen, counted.matched), (more, more));
    assert_eq!(
        counted.taken + counted.dropped_full + counted.dropped_buffers,
        more
    );
    assert!(counted.dropped_full + counted.dropped_buffers > 0);
}

/// All shards together see each packet once, on its way in and out, with a frame header in front.
#[test]
fn shards_see_what_they_take_and_send() {
    // Of the other there are more shards than taps.
    for regime in REGIMES.into_iter().filter(|r| *r != Regime::SocketChannel) {
        let pair = pair(regime);
        let mut taps = pair.each_ref().map(|net| {
            let shards = net.show("shards").expect("shards");
            let count = shards.as_array().expect("rows").len();
            let refused = net.tap(Options {
                subject: Subject::Shard(count),
                ..Options::default()
            });
            assert_eq!(
                refused.map(drop).expect_err("none").kind(),
                ErrorKind::InvalidInput
            );
            assert!(count <= limits::TAPS);
            (0..count)
                .map(|number| tap(net, Subject::Shard(number)))
                .collect::<Vec<_>>()
        });
        datagrams(&pair, 20, 100);
        let [sent, taken] = taps.each_mut().map(|taps| {
            let mut all = Vec::new();
            for (number, tap) in taps.iter_mut().enumerate() {
                for record in drain(tap) {
                    assert_eq!(record.note.shard.map(usize::from), Some(number));
                    if udp_text(record.bytes()) == Some(100) {
                        all.push(record.way);
                    }
                }
            }
            all
        });
        assert_eq!(sent, [Way::Out; 20], "{regime:?}");
        assert_eq!(taken, [Way::In; 20], "{regime:?}");
    }
}

/// A socket's tap sees its own packets alone, both ways, in whatever shard.
#[test]
fn sockets_see_their_own() {
    for regime in REGIMES {
        let pair = pair(regime);
        let of = |local: &str, remote: Option<&str>| {
            let end = |text: &str| text.parse::<SocketAddr>().expect("an address");
            Subject::Socket(Flow {
                protocol: 17,
                local: end(local),
                remote: remote.map(end),
            })
        };
        let mut its = tap(&pair[1], of("10.0.0.2:7", Some("10.0.0.1:8")));
        let mut bound = tap(&pair[1], of("0.0.0.0:7", None));
        let mut other = tap(&pair[1], of("10.0.0.2:6", None));
        datagrams(&pair, 3, 100);
        let back = pair[1].udp().bind("10.0.0.2:7").expect("a socket");
        let there = pair[0].udp().bind("10.0.0.1:8").expect("a socket");
        back.send_to(&[9; 10], "10.0.0.1:8").expect("sent");
        there.recv_from(&mut [0; 64]).expect("received");
        drop(there);
        lose(&pair[0], 50);
        let ways = |tap: &mut Tap| -> Vec<Way> { drain(tap).iter().map(|r| r.way).collect() };
        let all = [Way::In, Way::In, Way::In, Way::Out];
        assert_eq!(ways(&mut its), all, "{regime:?}");
        assert_eq!(ways(&mut bound), all, "{regime:?}");
        assert_eq!(ways(&mut other), [], "{regime:?}");
    }
}

/// A datagram from port 8 of `source` to 10.0.0.2 in a frame to `to`.
fn frame(to: MacAddr, source: [u8; 4], port: u16, text: &[u8]) -> Vec<u8> {
    let length = |n: usize| u16::try_from(n).expect("short").to_be_bytes();
    let mut ip = vec![0x45, 0];
    ip.extend(length(28 + text.len()));
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    ip.extend(source);
    ip.extend([10, 0, 0, 2]);
    let sum = checksum::finish(checksum::sum(&ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(8_u16.to_be_bytes());
    ip.extend(port.to_be_bytes());
    ip.extend(length(8 + text.len()));
    ip.extend([0, 0]);
    ip.extend(text);
    [&to.0[..], &[2, 0, 0, 0, 0, 1], &[8, 0], &ip].concat()
}

/// In every regime a frame that is written comes in as if the link had brought it, or goes out to the other end.
#[test]
fn written_frames_come_in_and_go_out() {
    for regime in REGIMES {
        let pair = pair(regime);
        let receiver = pair[1].udp().bind("10.0.0.2:7").expect("a socket");
        let timeout = Some(Duration::from_secs(10));
        receiver.set_read_timeout(timeout).expect("a time");
        let mut room = [0; 64];
        for (net, way) in [(1, Way::In), (0, Way::Out)] {
            let mut seen = tap(&pair[net], Subject::Links);
            let mut writer = pair[net].writer(0).expect("a writer");
            let bytes = frame(mac(&pair[1]), [10, 0, 0, 1], 7, b"written");
            for waits in [false, true, false] {
                // Also to a thread that waits already, and leads the links where the regime has it so.
                let (n, from) = std::thread::scope(|scope| {
                    let (receiver, room) = (&receiver, &mut room);
                    let waiter =
                        waits.then(|| scope.spawn(move || receiver.recv_from(&mut [0; 64])));
                    if waits {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    writer.write(way, &bytes).expect("written");
                    if let Some(waiter) = waiter {
                        let first = waiter.join().expect("no panic");
                        assert_eq!(first.expect("received").0, 7);
                        writer.write(way, &bytes).expect("written");
                    }
                    receiver.recv_from(room).expect("received")
                });
                assert_eq!(&room[..n], b"written", "{regime:?}, {way:?}");
                assert_eq!(from.to_string(), "10.0.0.1:8");
            }
            assert!(writer.wait_empty(Duration::from_secs(10)));
            let all = drain(&mut seen);
            let its = all.iter().filter(|record| record.bytes() == bytes);
            assert_eq!(its.filter(|record| record.way == way).count(), 4);
        }
    }
}

/// More than the ring holds is put off, what makes no sense refused, and what is written after the stack has ended harms nothing.
#[test]
fn frames_that_cannot_be_written_are_refused() {
    let [first, second] = pair(Regime::AppChannel);
    let refused = first.writer(1).map(drop).expect_err("no such link");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let mut writers: Vec<_> = (0..limits::WRITERS)
        .map(|_| first.writer(0).expect("a writer"))
        .collect();
    let refused = first.writer(0).map(drop).expect_err("too many");
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
    let writer = &mut writers[0];
    assert_eq!(writer.write(Way::In, &[0; 13]), Err(WriteError::Short));
    let most = writer.longest();
    let long = vec![0; most + 1];
    assert_eq!(writer.write(Way::Out, &long), Err(WriteError::Long(most)));
    assert_eq!(writer.write(Way::Out, &long[1..]), Ok(()));
    assert!(writer.wait_empty(Duration::from_secs(10)));
    drop(first);
    let bytes = frame(MacAddr([2; 6]), [10, 0, 0, 1], 7, b"late");
    let full = (0..=limits::WRITTEN).any(|_| writers[0].write(Way::In, &bytes).is_err());
    assert!(full && !writers[0].wait_empty(Duration::from_millis(20)));
    drop((writers, second));
}

/// What becomes of a frame at a link is found out where a tap asks, and the shard is that which has or sent it; other taps are told neither.
#[test]
fn verdicts_of_frames_at_links_are_found_out() {
    for regime in REGIMES {
        let pair = pair(regime);
        let its = |net: &Net, local: &str| {
            let local = local.parse().expect("an address");
            let flow = Flow {
                protocol: 17,
                local,
                remote: None,
            };
            tap(net, Subject::Socket(flow))
        };
        let mut sockets = [its(&pair[0], "10.0.0.1:8"), its(&pair[1], "10.0.0.2:7")];
        let mut asking = pair.each_ref().map(|net| {
            let options = Options {
                verdicts: true,
                ..Options::default()
            };
            net.tap(options).expect("a tap")
        });
        let mut silent = tap(&pair[1], Subject::Links);
        datagrams(&pair, 20, 100);
        for (way, (socket, link)) in [Way::Out, Way::In]
            .into_iter()
            .zip(sockets.iter_mut().zip(&mut asking))
        {
            let shown: Vec<_> = drain(socket).iter().map(|r| r.note.shard).collect();
            let all = drain(link);
            let (udp, other): (Vec<_>, Vec<_>) =
                (all.iter()).partition(|record| udp_text(record.bytes()) == Some(100));
            let shards: Vec<_> = udp.iter().map(|record| record.note.shard).collect();
            assert_eq!((shards.len(), &shards), (20, &shown), "{regime:?} {way:?}");
            let verdict = match way {
                Way::In => tap::Verdict::Shard,
                Way::Out => tap::Verdict::Unknown,
            };
            assert!(udp.iter().all(|record| record.note.verdict == verdict));
            // ARP, both ways.
            assert!(other.iter().any(|record| record.way == Way::In));
            for record in other {
                let verdict = match record.way {
                    Way::In => tap::Verdict::Host,
                    Way::Out => tap::Verdict::Unknown,
                };
                let note = record.note;
                assert_eq!((note.verdict, note.shard), (verdict, None), "{regime:?}");
            }
            let counted = link.statistics();
            assert_eq!(counted.taken, all.len() as u64, "{regime:?}");
        }
        let notes: Vec<_> = drain(&mut silent).iter().map(|r| r.note).collect();
        assert!(notes.len() > 20);
        assert!(
            notes
                .iter()
                .all(|note| note.shard.is_none() && note.verdict == tap::Verdict::Unknown)
        );
    }
}

/// A link's drops, and those of modules, are verdicts, too; what is behind them in the burst keeps its own.
#[test]
fn verdicts_say_why_a_frame_was_dropped() {
    let pair = pair(Regime::AppChannel);
    datagrams(&pair, 1, 1);
    let options = Options {
        verdicts: true,
        way: Some(Way::In),
        ..Options::default()
    };
    let mut asking = pair[1].tap(options).expect("a tap");
    let rules = Rules {
        rules: vec!["drop in proto udp to any port 9".parse().expect("a rule")],
        default: Verdict::Pass,
    };
    let module = Boxed::any(Filter::new("wall", rules));
    pair[1].load_module(module).expect("it is loaded");
    let mut writer = pair[0].writer(0).expect("a writer");
    let to = mac(&pair[1]);
    let other = frame(MacAddr([2, 9, 9, 9, 9, 9]), [10, 0, 0, 1], 7, b"other");
    for bytes in [
        &other,
        &frame(to, [10, 0, 0, 1], 9, b"walled"),
        &frame(to, [10, 0, 0, 1], 7, b"taken"),
    ] {
        writer.write(Way::Out, bytes).expect("written");
    }
    assert!(writer.wait_empty(Duration::from_secs(10)));
    let told: Vec<_> = drain(&mut asking)
        .iter()
        .map(|record| {
            (
                record.note.verdict,
                why(record),
                record.note.shard.is_some(),
            )
        })
        .collect();
    let told: Vec<_> = told.iter().map(|(v, w, s)| (*v, w.as_str(), *s)).collect();
    assert_eq!(
        told,
        [
            (tap::Verdict::Drop, "other_mac", false),
            (tap::Verdict::Drop, "module 1", false),
            (tap::Verdict::Shard, "not", true)
        ]
    );
}
