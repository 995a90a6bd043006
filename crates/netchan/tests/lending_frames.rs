//! Frames of an EtherType on a lease (C6): what an application sends and receives by its packet channel, and what a lender refuses of one that writes into
//! its lease by hand.

mod lease_service;

use std::{
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use lease_service::{PEER, application, lender_and_peer, pattern};
use netchan::{
    Instant, LentPacket, MacAddr, Net, PacketChannel, PacketDestination, PacketProtocol,
    link::wire,
    module::{Boxed, Module, Point, Verdict, View},
    own::Own,
    tap,
};
use netchan_base::descriptor::{Descriptor, FRAME};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    slab::{BorrowedSlab, BufferName, SharedLayout},
};

const KIND: u16 = 0x88b5;
const FRAMES: PacketProtocol = PacketProtocol::EtherType(KIND);
const OTHERS: PacketProtocol = PacketProtocol::EtherType(0x88b6);
const PATIENCE: Duration = Duration::from_secs(10);

fn mac(net: &Net) -> MacAddr {
    MacAddr(net.links()[0].mac)
}

fn to(mac: MacAddr) -> PacketDestination {
    PacketDestination::Station { link: 0, mac }
}

fn channel(net: &Net, protocol: PacketProtocol) -> PacketChannel {
    let channel = net.packet_channel(protocol).unwrap();
    channel.set_read_timeout(Some(PATIENCE)).unwrap();
    channel
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err()?.raw_os_error()
}

/// Until it is there, 10 s at most.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..10_000).find_map(|_| {
        let found = look();
        if found.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        found
    })
}

fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect(name);
    row["value"].as_u64().unwrap()
}

/// A figure of the lease of `holder`.
fn of_lease(lender: &Net, holder: &str, what: &str) -> serde_json::Value {
    let leases = lender.show("leases").unwrap();
    let mut all = leases.as_array().unwrap().iter();
    all.find(|lease| lease["holder"] == holder).unwrap()[what].clone()
}

/// What is known of a frame: from where, to where, and whether to a group.
fn ends(frame: &LentPacket) -> (Option<MacAddr>, Option<MacAddr>, bool) {
    (
        frame.source_mac(),
        frame.destination_mac(),
        frame.to_group(),
    )
}

#[test]
fn an_application_has_the_frames_of_an_ethertype() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "frames", Net::builder());
    let (ours, theirs) = (channel(&application, FRAMES), channel(&peer, FRAMES));
    let [here, there] = [&lender, &peer].map(mac);
    assert_eq!(mac(&application), here, "the lender's address is its own");
    // What looks like IP packets of each version, too.
    for payload in [
        &b""[..],
        b"text",
        &[0x45; 60],
        &[0x60; 60],
        &pattern(1500, 9),
    ] {
        ours.send_to(payload, to(there)).unwrap();
        let got = theirs.recv().unwrap();
        assert_eq!(got.payload(), payload);
        assert_eq!(ends(&got), (Some(here), Some(there), false));
        theirs.send_to(payload, to(here)).unwrap();
        let got = ours.recv().unwrap();
        assert_eq!((got.payload(), got.link()), (payload, 0));
        assert_eq!(got.bytes().len(), 14 + payload.len());
        assert_eq!(ends(&got), (Some(there), Some(here), false));
        assert_eq!(got.source_ip(), None);
    }
    for group in [MacAddr::BROADCAST, MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e])] {
        ours.send_to(b"to all", to(group)).unwrap();
        assert_eq!(
            ends(&theirs.recv().unwrap()),
            (Some(here), Some(group), true)
        );
        theirs.send_to(b"to all", to(group)).unwrap();
        assert_eq!(
            ends(&ours.recv().unwrap()),
            (Some(there), Some(group), true)
        );
    }
    let too_long = ours.send_to(&[0; 1501], to(there));
    assert_eq!(errno(too_long), Some(libc::EMSGSIZE));
    assert_eq!((ours.drops(), theirs.drops()), (0, 0));
    assert_eq!(counter(&application, "packet_channel_in"), 7);
    assert_eq!(counter(&lender, "drop_transmit_check"), 0);
    let ports = of_lease(&lender, "frames", "ports");
    let ports = ports.as_str().unwrap();
    assert!(ports.starts_with("ethertype 0x88b5, "), "{ports}");
}

/// A frame as it came, with a priority tag (IEEE 802.1Q §9.6); one of a VLAN is dropped.
#[test]
fn priority_tags_cross_and_vlans_do_not() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "tags", Net::builder());
    let ours = channel(&application, FRAMES);
    let mut writer = peer.writer(0).unwrap();
    let before = counter(&lender, "drop_ethertype");
    for tag in [5, 0xe000] {
        let mut tagged = frame(mac(&lender), mac(&peer), 0x8100, 64);
        tagged[14..18].copy_from_slice(&[u16::to_be_bytes(tag), KIND.to_be_bytes()].concat());
        writer.write(tap::Way::Out, &tagged).unwrap();
        if tag == 0xe000 {
            let got = ours.recv().unwrap();
            assert_eq!(got.bytes(), tagged);
            assert_eq!(got.payload(), &tagged[18..]);
        }
    }
    assert_eq!(counter(&lender, "drop_ethertype"), before + 1);
    assert_eq!(counter(&application, "drop_ethertype"), 0);
}

/// Frames come many at a time, in order.
#[test]
fn bursts_cross_in_order() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "bursts", Net::builder());
    let (ours, theirs) = (channel(&application, FRAMES), channel(&peer, FRAMES));
    for (from, at, mac) in [(&ours, &theirs, mac(&peer)), (&theirs, &ours, mac(&lender))] {
        for round in 0..20_u8 {
            for number in 0..50_u8 {
                let sent = pattern(60 + usize::from(number) * 20, round ^ number);
                from.send_to(&sent, to(mac)).unwrap();
            }
            for number in 0..50_u8 {
                let got = at.recv().unwrap();
                let sent = pattern(60 + usize::from(number) * 20, round ^ number);
                assert!(got.payload() == sent, "{round} {number}");
            }
        }
    }
}

#[test]
fn one_application_has_an_ethertype_at_a_time() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (first, first_lent) = application(&lender, "first", Net::builder());
    let (second, second_lent) = application(&lender, "second", Net::builder());
    let own = channel(&first, FRAMES);
    let taken = Some(libc::EADDRINUSE);
    assert_eq!(errno(second.packet_channel(FRAMES)), taken);
    assert_eq!(errno(lender.packet_channel(FRAMES)), taken);
    assert_eq!(errno(first.packet_channel(FRAMES)), taken, "it has one");
    let lenders = lender.packet_channel(OTHERS).unwrap();
    assert_eq!(errno(second.packet_channel(OTHERS)), taken);
    drop(lenders);
    let _others = second.packet_channel(OTHERS).unwrap();
    assert_eq!(errno(lender.packet_channel(OTHERS)), taken);
    // A number is of an IP protocol or of an EtherType.
    let _ip = lender.packet_channel(PacketProtocol::Ip(253)).unwrap();
    assert_eq!(second_lent.packets(253), Err(libc::EADDRINUSE));
    for kind in [0, 253, 0x05ff, 0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8] {
        assert_eq!(first_lent.frames(kind), Err(libc::EINVAL), "{kind:#x}");
        let refused = first.packet_channel(PacketProtocol::EtherType(kind));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    // It stays the lease's while that lasts, and is free with it.
    drop(own);
    assert_eq!(errno(second.packet_channel(FRAMES)), taken);
    drop(channel(&first, FRAMES));
    drop((first, first_lent));
    let again = eventually(|| second.packet_channel(FRAMES).ok());
    assert!(again.is_some());
    let refused = (0x9000..0xa000).find_map(|kind| second_lent.frames(kind).err());
    assert_eq!(refused, Some(libc::ENOBUFS), "there is an end");
    assert_eq!(second_lent.frames(KIND), Ok(()), "it has that already");
}

/// As with an embedded stack: what is for the link's own address goes out by the link, and no channel of this host has it.
#[test]
fn frames_to_the_own_address_go_out_by_the_link() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    let [one, other] = [channel(&first, FRAMES), channel(&second, OTHERS)];
    let theirs = [FRAMES, OTHERS].map(|protocol| channel(&peer, protocol));
    for (channel, at) in [&one, &other].into_iter().zip(&theirs) {
        channel.send_to(b"to ourselves", to(mac(&lender))).unwrap();
        channel.send_to(b"to all", to(MacAddr::BROADCAST)).unwrap();
        assert_eq!(at.recv().unwrap().payload(), b"to all");
    }
    assert_eq!(counter(&peer, "drop_other_mac"), 2);
    for channel in [&one, &other] {
        channel.set_nonblocking(true).unwrap();
        assert_eq!(errno(channel.recv()), Some(libc::EAGAIN));
    }
}

/// Drops all that it sees, and counts it.
struct Wall(Arc<AtomicU64>);

impl Module for Wall {
    fn name(&self) -> &'static str {
        "wall"
    }
    fn points(&self) -> &[Point] {
        &[Point::Arrival, Point::In, Point::Out]
    }
    fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
        self.0.fetch_add(1, Relaxed);
        Verdict::Drop
    }
}

#[test]
fn taps_see_frames_and_modules_do_not() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "seen", Net::builder());
    let seen = Arc::new(AtomicU64::new(0));
    let (ours, theirs) = (channel(&application, FRAMES), channel(&peer, FRAMES));
    let raw = channel(&application, PacketProtocol::Ip(253));
    for net in [&lender, &application] {
        net.load_module(Boxed::any(Wall(seen.clone()))).unwrap();
    }
    let options = tap::Options {
        verdicts: true,
        ..tap::Options::default()
    };
    let mut taps = [&lender, &application].map(|net| net.tap(options.clone()).unwrap());
    ours.send_to(b"out", to(mac(&peer))).unwrap();
    assert_eq!(theirs.recv().unwrap().payload(), b"out");
    theirs.send_to(b"in", to(mac(&lender))).unwrap();
    assert_eq!(ours.recv().unwrap().payload(), b"in");
    let verdicts = [tap::Verdict::Lease, tap::Verdict::PacketChannel];
    for (tap, expected) in taps.iter_mut().zip(verdicts) {
        let mut frames = Vec::new();
        let came = eventually(|| {
            while let Some(record) = tap.read() {
                if record.bytes()[12..14] == KIND.to_be_bytes() {
                    let text = record.bytes()[14..].to_vec();
                    frames.push((record.way, text, record.note.verdict));
                }
            }
            (frames.len() >= 2).then_some(())
        });
        assert!(came.is_some(), "{frames:?}");
        let out = (tap::Way::Out, b"out".to_vec(), tap::Verdict::Unknown);
        let inwards = (tap::Way::In, b"in".to_vec(), expected);
        // Of two points, whose order the reader does not know.
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert!(
            frames.contains(&out) && frames.contains(&inwards),
            "{frames:?}"
        );
    }
    // They are there: they see a packet.
    let before = seen.load(Relaxed);
    let to_peer: IpAddr = PEER.parse().unwrap();
    raw.send_to(b"a packet", to_peer).unwrap();
    assert!(eventually(|| (seen.load(Relaxed) > before).then_some(())).is_some());
}

/// A lease that is written into by hand.
struct Hand {
    side: Side<[u8; 32], [u8; 16]>,
    outward: BorrowedSlab,
    sent: u32,
}

impl Hand {
    fn new(lent: &netchan::Lent) -> Self {
        let terms = lent.terms();
        let files: Vec<OwnedFd> = (lent.files().iter())
            .map(|file| file.try_clone_to_owned().unwrap())
            .collect();
        let layout = EdgeLayout::new(terms.slots).unwrap();
        let socket = Own::keep(files[3].try_clone().unwrap());
        let outward = SharedLayout::decode(&terms.outward).unwrap();
        Self {
            side: edge::map(&files[2], layout, socket, Which::Mapper).unwrap(),
            outward: BorrowedSlab::map(&files[1], outward).unwrap(),
            sent: 0,
        }
    }

    fn send(&mut self, bytes: &[u8], flags: u32, segment: u16) {
        let name = BufferName {
            index: self.sent,
            generation: 1,
        };
        self.sent += 1;
        self.outward.copy_in(name, 0, bytes).unwrap();
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(bytes.len()).unwrap(),
            link: 0,
            flags,
            segment,
        };
        self.side.sending.stage(descriptor.encode()).unwrap();
        self.side.sending.publish();
        self.side.far_bell.ring();
    }
}

fn frame(to: MacAddr, from: MacAddr, kind: u16, payload: usize) -> Vec<u8> {
    let kind = kind.to_be_bytes();
    [&to.0[..], &from.0, &kind, &vec![0x45; payload]].concat()
}

/// A station that there is not.
const NO_STATION: MacAddr = MacAddr([2, 9, 9, 9, 9, 9]);

/// Frames that are not from the lender's address and of the EtherType, or are no such frames, or too long.
fn refused_frames(ours: MacAddr, there: MacAddr) -> Vec<Vec<u8>> {
    let mut tagged = frame(there, ours, 0x8100, 60);
    tagged[14..18].copy_from_slice(&[0, 0, 0x88, 0xb5]);
    vec![
        frame(there, NO_STATION, KIND, 60),
        frame(there, there, KIND, 60),
        frame(there, MacAddr::BROADCAST, KIND, 60),
        frame(there, ours, 0x88b6, 60),
        frame(there, ours, 0x0800, 60),
        frame(there, ours, 0x86dd, 60),
        frame(there, ours, 0x0806, 60),
        frame(there, ours, 46, 60),
        frame(there, ours, KIND, 1501),
        frame(there, ours, KIND, 60_000),
        frame(there, ours, KIND, 0)[..13].to_vec(),
        vec![0x45],
        tagged,
    ]
}

/// Whatever an application writes, what leaves is a frame of an EtherType that it has, from the lender's address.
#[test]
fn frames_that_an_application_may_not_send_are_counted() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let lent = lender.lend("", "by hand", 0).unwrap();
    let without = lender.lend("", "without", 0).unwrap();
    lent.frames(KIND).unwrap();
    let theirs = [FRAMES, OTHERS].map(|protocol| channel(&peer, protocol));
    let (ours, there) = (mac(&lender), mac(&peer));
    let options = tap::Options {
        way: Some(tap::Way::Out),
        ..tap::Options::default()
    };
    let mut out = lender.tap(options).unwrap();
    let mut hand = Hand::new(&lent);
    let refused = refused_frames(ours, there);
    for (n, frame) in refused.iter().enumerate() {
        hand.send(frame, FRAME, 0);
        let is_counted = || (of_lease(&lender, "by hand", "refused") == n as u64 + 1).then_some(());
        assert!(eventually(is_counted).is_some(), "{n}");
    }
    // The same bytes as an IP packet, of a lease that has none; what is to be cut is nonsense.
    hand.send(&frame(there, ours, KIND, 60), 0, 0);
    hand.send(&[0x45; 74], 0, 0);
    hand.send(&frame(there, ours, KIND, 1000), FRAME, 500);
    let mut other = Hand::new(&without);
    other.send(&frame(there, ours, KIND, 60), FRAME, 0);
    let count = refused.len() as u64;
    let figures = || {
        let own =
            ["refused", "nonsense", "packets_out"].map(|what| of_lease(&lender, "by hand", what));
        let without = of_lease(&lender, "without", "refused");
        (own.map(|n| n.as_u64().unwrap()) == [count + 2, 1, 0] && without == 1).then_some(())
    };
    assert!(eventually(figures).is_some(), "{:?}", lender.show("leases"));
    assert_eq!(counter(&lender, "drop_transmit_check"), count + 3);
    assert_eq!(counter(&lender, "lease_nonsense"), 1);
    // And then one that it may send, to a station that there is not, and to the peer.
    hand.send(&frame(NO_STATION, ours, KIND, 60), FRAME, 0);
    hand.send(&frame(there, ours, KIND, 1500), FRAME, 0);
    let got = theirs[0].recv().unwrap();
    assert_eq!(ends(&got), (Some(ours), Some(there), false));
    assert_eq!(got.payload(), [0x45; 1500]);
    theirs[1].set_nonblocking(true).unwrap();
    assert_eq!(errno(theirs[1].recv()), Some(libc::EAGAIN));
    let mut left = Vec::new();
    let came = eventually(|| {
        while let Some(record) = out.read() {
            // The lender's own NDP is there, too.
            if record.bytes()[12..14] != [0x86, 0xdd] {
                left.push(record.bytes().to_vec());
            }
        }
        (left.len() >= 2).then_some(())
    });
    assert!(came.is_some(), "{} frames", left.len());
    assert_eq!(
        left,
        [
            frame(NO_STATION, ours, KIND, 60),
            frame(there, ours, KIND, 1500)
        ]
    );
}

/// An application that takes nothing loses its frames, and those of others go on.
#[test]
fn frames_that_find_no_buffer_are_counted() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let deaf = lender.lend("", "deaf", 0).unwrap();
    deaf.frames(KIND).unwrap();
    let (application, _lent) = application(&lender, "other", Net::builder());
    let ours = channel(&application, OTHERS);
    let theirs = [FRAMES, OTHERS].map(|protocol| channel(&peer, protocol));
    let here = to(mac(&lender));
    for _ in 0..1100 {
        theirs[0].send_to(b"not heard", here).unwrap();
        theirs[1].send_to(b"heard", here).unwrap();
        assert_eq!(ours.recv().unwrap().payload(), b"heard");
    }
    assert_eq!(of_lease(&lender, "deaf", "packets_in"), 1024);
    assert_eq!(of_lease(&lender, "deaf", "drops"), 1100 - 1024);
    assert_eq!(counter(&lender, "drop_lease_full"), 1100 - 1024);
    // An EtherType without a channel or a lease.
    drop(deaf);
    let before = counter(&lender, "drop_ethertype");
    theirs[0].send_to(b"unserved", here).unwrap();
    let counted = eventually(|| (counter(&lender, "drop_ethertype") > before).then_some(()));
    assert!(counted.is_some());
}
