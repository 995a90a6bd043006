//! Captures: what is in the file, that it plays back, that a broken file is told and harms nothing.

use std::{collections::VecDeque, fs, path::PathBuf, time::Duration};

use netchan_base::{clock::Clock, packet::Packet};
use pcap_file::{
    DataLink,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
    pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption},
};
use percore::slab::Slab;
use proto::time::Instant;

use super::*;
use crate::{LinkError, LinkRx, LinkTx, Queue, specification, wire};

/// A file of this test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("netchan-{}-{name}", std::process::id())))
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn frame(slab: &mut Slab, fill: u8, len: usize) -> Packet {
    let mut packet = Packet::new(slab.alloc().unwrap(), 40);
    packet.set_len(len);
    packet.bytes_mut().fill(fill);
    packet
}

fn slab() -> Slab {
    Slab::new(256, 70_000).unwrap()
}

/// Stamp, flags and bytes of each packet in a file.
fn contents(file: &Scratch) -> Vec<(Duration, u32, Vec<u8>)> {
    let mut reader = PcapNgReader::new(fs::File::open(&file.0).unwrap()).unwrap();
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        if let (Block::EnhancedPacket(p), state) = block.unwrap() {
            assert_eq!(state.interfaces()[0].linktype, DataLink::ETHERNET);
            let [EnhancedPacketOption::Flags(flags)] = p.options[..] else {
                panic!("{:?}", p.options)
            };
            found.push((p.timestamp, flags, p.data.to_vec()));
        }
    }
    found
}

#[test]
fn both_directions_with_stamps_of_the_stacks_clock() {
    let (file, clock, mut slab) = (Scratch::new("both"), Clock::new_virtual(), slab());
    let (a, mut b) = wire::pair(&wire::Options {
        ring: 4,
        ..wire::Options::default()
    });
    let mut a = Queue::of(Box::new(
        Capture::new(Box::new(a), &file.0, &clock).unwrap(),
    ))
    .unwrap();
    // More than the ring takes: what stays is not recorded before it goes.
    let mut out: VecDeque<_> = (0..6)
        .map(|n| frame(&mut slab, n, 60 + usize::from(n)))
        .collect();
    assert_eq!(a.tx.transmit(clock.now(), &mut out).unwrap(), 4);
    assert_eq!(out.iter().map(Packet::len).collect::<Vec<_>>(), [64, 65]);
    clock.advance(Duration::from_nanos(1234));
    let mut burst = VecDeque::new();
    assert_eq!(
        b.receive(clock.now(), &mut slab, &mut burst, 32).unwrap(),
        4
    );
    assert_eq!(a.tx.transmit(clock.now(), &mut out).unwrap(), 2);
    burst.truncate(1);
    b.transmit(clock.now(), &mut burst).unwrap();
    assert_eq!(
        a.rx.receive(clock.now(), &mut slab, &mut burst, 32)
            .unwrap(),
        1
    );
    assert_eq!(
        a.rx.next_event(),
        Instant::FAR,
        "a capture woke a virtual clock"
    );
    assert_eq!(a.tx.statistics().packets, 6);
    drop(a);
    let (t0, t1) = (
        Duration::from_nanos(1_000_000_000),
        Duration::from_nanos(1_000_001_234),
    );
    let expected: Vec<_> = [
        (t0, 2, 0),
        (t0, 2, 1),
        (t0, 2, 2),
        (t0, 2, 3),
        (t1, 2, 4),
        (t1, 2, 5),
        (t1, 1, 0),
    ]
    .map(|(at, way, n): (_, _, u8)| (at, way, vec![n; 60 + usize::from(n)]))
    .into();
    assert_eq!(contents(&file), expected);
}

#[test]
fn real_clock_stamps_wall_time_and_flushes_by_itself() {
    let (file, mut slab) = (Scratch::new("wall"), slab());
    let specification = specification::parse(&format!("loop,capture={}", file.text())).unwrap();
    let mut link = Queue::of(specification::open(&specification, &Clock::Real).unwrap()).unwrap();
    let now = Clock::Real.now();
    link.tx
        .transmit(now, &mut VecDeque::from([frame(&mut slab, 1, 60)]))
        .unwrap();
    let mut burst = VecDeque::new();
    link.rx.receive(now, &mut slab, &mut burst, 32).unwrap();
    assert!(contents(&file).is_empty(), "written at once: slow");
    let flush = link.rx.next_event();
    assert!(flush > now && flush <= now + Duration::from_millis(100));
    link.rx.receive(flush, &mut slab, &mut burst, 32).unwrap();
    let found = contents(&file);
    assert_eq!(
        found.iter().map(|(_, way, _)| *way).collect::<Vec<_>>(),
        [2, 1]
    );
    let modified = fs::metadata(&file.0).unwrap().modified().unwrap();
    let modified = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(
        found[0].0.abs_diff(modified) < Duration::from_secs(5),
        "{:?} and {modified:?}",
        found[0].0
    );
}

#[test]
fn file_that_cannot_be_written_is_told_or_ends_the_capture() {
    let bad = specification::parse("loop,capture=/nonexistent/x.pcapng").unwrap();
    let error = specification::open(&bad, &Clock::Real)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("/nonexistent/x.pcapng"), "{error}");
    // A disk that is full from the start is told at once.
    let full = specification::parse("loop,capture=/dev/full").unwrap();
    assert!(specification::open(&full, &Clock::Real).is_err());
}

#[test]
fn capture_follows_no_link_and_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let file = Scratch::new("mode");
    fs::write(&file.0, "old").unwrap();
    fs::set_permissions(&file.0, fs::Permissions::from_mode(0o644)).unwrap();
    let open = |path: &str| {
        let specification = specification::parse(&format!("loop,capture={path}")).unwrap();
        specification::open(&specification, &Clock::Real).map_err(|e| e.to_string())
    };
    let other = format!("{}-other", file.text());
    let _ = fs::remove_file(&other);
    std::os::unix::fs::symlink(&file.0, &other).unwrap();
    assert!(open(&other).is_err_and(|e| e.contains(&other) && e.contains("symbolic link")));
    fs::remove_file(&other).unwrap();
    fs::hard_link(&file.0, &other).unwrap();
    assert!(open(&other).is_err_and(|e| e.contains("several names")));
    assert_eq!(fs::read(&file.0).unwrap(), b"old");
    fs::remove_file(&other).unwrap();
    open(file.text()).unwrap();
    let found = fs::metadata(&file.0).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_ne!(fs::read(&file.0).unwrap()[..3], *b"old");
}

#[test]
fn capture_plays_back_what_was_received() {
    let (file, clock, mut slab) = (Scratch::new("play"), Clock::new_virtual(), slab());
    let (a, mut b) = wire::pair(&wire::Options {
        mtu: 65_535,
        ..wire::Options::default()
    });
    let mut a = Queue::of(Box::new(
        Capture::new(Box::new(a), &file.0, &clock).unwrap(),
    ))
    .unwrap();
    let mut burst = VecDeque::new();
    for (n, len) in [(1u8, 60usize), (2, 1514), (3, 65_549)] {
        b.transmit(clock.now(), &mut VecDeque::from([frame(&mut slab, n, len)]))
            .unwrap();
        a.tx.transmit(clock.now(), &mut VecDeque::from([frame(&mut slab, 9, 60)]))
            .unwrap();
        a.rx.receive(clock.now(), &mut slab, &mut burst, 32)
            .unwrap();
        clock.advance(Duration::from_millis(10));
    }
    drop(a);
    burst.clear();
    for (pace, expected) in [("", [0, 10, 20]), (",pace=fast", [0, 0, 0])] {
        let specification = specification::parse(&format!("pcap:{}{pace}", file.text())).unwrap();
        let mut link = Queue::of(specification::open(&specification, &clock).unwrap()).unwrap();
        let (start, mut seen) = (clock.now(), Vec::new());
        loop {
            while link
                .rx
                .receive(clock.now(), &mut slab, &mut burst, 32)
                .unwrap()
                > 0
            {
                let at = clock.now().since(start).as_millis();
                seen.extend(burst.drain(..).map(|p| (at, p.bytes()[0], p.len())));
            }
            if link.rx.next_event() == Instant::FAR {
                break;
            }
            clock.advance_to(link.rx.next_event());
        }
        let wanted = [(1u8, 60), (2, 1514), (3, 65_549)];
        assert_eq!(
            seen,
            expected
                .into_iter()
                .zip(wanted)
                .map(|(at, (n, len))| (at, n, len))
                .collect::<Vec<_>>()
        );
        assert_eq!(
            link.rx
                .receive(clock.now(), &mut slab, &mut burst, 32)
                .unwrap(),
            0
        );
        assert_eq!(
            link.tx
                .transmit(clock.now(), &mut VecDeque::from([frame(&mut slab, 1, 60)]))
                .unwrap(),
            1
        );
        assert_eq!(
            (link.rx.statistics().packets, link.tx.statistics().packets),
            (3, 1)
        );
    }
}

/// A pcap file with these records: captured bytes, length on the wire.
fn classic(file: &Scratch, datalink: DataLink, records: &[(usize, u32)]) {
    let header = PcapHeader {
        datalink,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(fs::File::create(&file.0).unwrap(), header).unwrap();
    for &(len, original) in records {
        let packet = PcapPacket::new(Duration::from_secs(1), original, vec![7; len]).unwrap();
        writer.write_packet(&packet).unwrap();
    }
}

#[test]
fn classic_files_play_and_cut_packets_are_counted() {
    let (file, mut slab) = (Scratch::new("classic"), slab());
    classic(
        &file,
        DataLink::ETHERNET,
        &[(60, 60), (60, 1500), (13, 13), (0, 0), (100, 100)],
    );
    let mut link = Replay::open(file.text(), &Options::default()).unwrap();
    let mut burst = VecDeque::new();
    assert_eq!(
        link.receive(Instant(5), &mut slab, &mut burst, 32).unwrap(),
        2
    );
    assert_eq!(burst.iter().map(Packet::len).collect::<Vec<_>>(), [60, 100]);
    assert_eq!(
        (link.statistics().length, link.statistics().packets),
        (3, 2)
    );
    // Without buffers a packet is dropped and counted (R1).
    let mut link = Replay::open(file.text(), &Options::default()).unwrap();
    let mut none = Slab::new(1, 64).unwrap();
    let _all = none.alloc();
    assert_eq!(
        link.receive(Instant(5), &mut none, &mut burst, 32).unwrap(),
        0
    );
    assert_eq!(link.statistics().no_buffer, 2);
}

#[test]
fn what_is_no_capture_is_told() {
    let file = Scratch::new("bad");
    let told = |says: &str| {
        let error = Replay::open(file.text(), &Options::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(file.text()) && error.contains(says),
            "{error}"
        );
    };
    told("No such file");
    for bytes in [
        &b""[..],
        b"abc",
        b"this is a text, not a capture",
        &[0x0a, 0x0d, 0x0d, 0x0a],
        &[0xff; 100],
    ] {
        fs::write(&file.0, bytes).unwrap();
        told("");
    }
    classic(&file, DataLink::IEEE802_11, &[]);
    told("not of Ethernet");
}

#[test]
fn a_fifo_that_nothing_reads_is_refused_at_once() {
    let file = Scratch::new("fifo");
    let made = std::process::Command::new("mkfifo").arg(&file.0).status();
    assert!(made.unwrap().success());
    let (tell, told) = std::sync::mpsc::channel();
    let path = file.0.clone();
    let opens = std::thread::spawn(move || {
        let (link, _peer) = wire::pair(&wire::Options::default());
        let opened = Capture::new(Box::new(link), &path, &Clock::new_virtual());
        tell.send(opened.map(drop).map_err(|e| e.to_string()))
    });
    // It comes at once, or never.
    let opened = told
        .recv_timeout(Duration::from_secs(10))
        .expect("it waits");
    assert!(
        opened.is_err_and(|e| e.contains(file.text()) && e.contains("a FIFO that nothing reads"))
    );
    opens.join().unwrap().unwrap();

    // With a reader, what is written waits for it: nothing of it is lost where the FIFO is full.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let reader = rustix::fs::open(&file.0, flags, rustix::fs::Mode::empty()).unwrap();
    let (link, _peer) = wire::pair(&wire::Options::default());
    let opened = Capture::new(Box::new(link), &file.0, &Clock::new_virtual());
    let mut start = [0; 4];
    assert_eq!(rustix::io::read(&reader, &mut start).unwrap(), 4);
    assert_eq!(start, [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(opened.is_ok());
}

/// Every byte of a file changed and every length cut off: errors or packets, no panic, no endless loop.
#[test]
fn broken_files_end_in_an_error_or_in_order() {
    let (file, clock, mut slab) = (Scratch::new("broken"), Clock::new_virtual(), slab());
    let (a, mut b) = wire::pair(&wire::Options::default());
    let mut a = Queue::of(Box::new(
        Capture::new(Box::new(a), &file.0, &clock).unwrap(),
    ))
    .unwrap();
    let mut burst = VecDeque::new();
    for n in 0..3 {
        b.transmit(clock.now(), &mut VecDeque::from([frame(&mut slab, n, 60)]))
            .unwrap();
        a.rx.receive(clock.now(), &mut slab, &mut burst, 32)
            .unwrap();
    }
    drop(a);
    burst.clear();
    let good = fs::read(&file.0).unwrap();
    let mut play = |bytes: &[u8]| {
        fs::write(&file.0, bytes).unwrap();
        let Ok(mut link) = Replay::open(
            file.text(),
            &Options {
                pace: Pace::Fast,
                ..Options::default()
            },
        ) else {
            return;
        };
        for _ in 0..10 {
            match link.receive(Instant(1), &mut slab, &mut burst, 32) {
                Ok(0) if link.next_event() == Instant::FAR => return,
                Ok(_) => burst.clear(),
                Err(LinkError::Gone(what)) => {
                    return assert!(what.contains("after packet"), "{what}");
                }
                Err(e) => panic!("{e}"),
            }
        }
        panic!("it never ends");
    };
    for cut in 0..good.len() {
        play(&good[..cut]);
    }
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
        play(&bytes);
    }
}
