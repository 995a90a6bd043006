//! A peer of a short cut that does what it likes.

use std::{fs::File, os::unix::fs::FileExt};

use netchan_base::descriptor::{CHECKSUM_VERIFIED, Descriptor, FRAME, Return};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    own::Own,
    slab::{BorrowedSlab, BufferName, SharedLayout},
};
use proto::{time::Duration, wire::tcp};

use super::{
    lender::{Back, Item, MAC},
    peers::{BUFFERS, CLIENT, HERE, Scene, THERE, bytes_of, of_server, packet, pair, segment},
};
use crate::lease::{News, PeerPorts, PortRange, Transport};

/// Sends by hand what a peer that is an honest program would not.
fn put(side: &mut Side<Item, Back>, slab: &mut BorrowedSlab, packet: &[u8], flags: u32) {
    let name = BufferName {
        index: 0,
        generation: 1,
    };
    slab.copy_in(name, 0, packet).unwrap();
    let descriptor = Descriptor {
        name,
        offset: 0,
        length: u32::try_from(packet.len()).unwrap(),
        link: 0,
        flags,
        segment: 0,
    };
    side.sending.stage(descriptor.encode()).unwrap();
    side.sending.publish();
    side.far_bell.ring();
}

#[test]
fn a_peer_sends_from_its_ports_and_nothing_else() {
    let (mut scene, mut side, mut slab) = Scene::with_hostile();
    let mut options = segment(THERE, HERE);
    options[0] = 0x46;
    let mut fragment = segment(THERE, HERE);
    fragment[7] = 1;
    let refused = [
        segment("10.77.0.2:22", HERE),
        segment("10.77.0.9:80", HERE),
        segment(THERE, "10.77.0.9:40000"),
        packet(Transport::Udp, THERE, HERE, tcp::Flags(0)),
        options,
        fragment,
        vec![0x45; 3],
        vec![0; 40],
    ];
    for (n, packet) in refused.iter().enumerate() {
        put(&mut side, &mut slab, packet, 0);
        assert!(scene.receive(CLIENT).is_empty(), "{n}");
        let counts = scene.queue(CLIENT).rx.statistics();
        let counted = counts.missed + counts.length; // the last one is not of IP
        assert_eq!(counted, n as u64 + 1, "{n}");
    }
    put(
        &mut side,
        &mut slab,
        &segment(THERE, HERE),
        CHECKSUM_VERIFIED,
    );
    assert!(scene.receive(CLIENT).is_empty(), "it may not say so");
    let before = scene.queue(CLIENT).rx.statistics().length;
    // Neither a frame, nor a packet that it says is one.
    let frame = [&MAC[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[7; 46]].concat();
    for bytes in [frame, segment(THERE, HERE)] {
        put(&mut side, &mut slab, &bytes, FRAME);
        assert!(scene.receive(CLIENT).is_empty(), "frames are the lender's");
    }
    assert_eq!(scene.queue(CLIENT).rx.statistics().length, before + 2);
    put(&mut side, &mut slab, &segment(THERE, HERE), 0);
    assert_eq!(scene.receive(CLIENT).len(), 1);
    // A port that others have, too, is one that it sends from.
    put(&mut side, &mut slab, &segment("10.77.0.2:81", HERE), 0);
    assert_eq!(scene.receive(CLIENT).len(), 1);
    let mut back = 0;
    for _ in 0..2 {
        side.sending.take_returns(usize::MAX, |_| back += 1);
        assert!(scene.receive(CLIENT).is_empty()); // those that the ring had no room for
    }
    assert_eq!(
        back,
        refused.len() + 2,
        "buffers come back whatever was in them"
    );
}

/// From a loopback address comes only a peer that shares these, and to one only what is for a lease that does.
#[test]
fn a_peer_is_at_loopback_where_both_share_it() {
    let at = |ip: &str, port: u16| format!("{ip}:{port}");
    for (ours, theirs) in [(true, true), (true, false), (false, true), (false, false)] {
        let ports = PeerPorts {
            ranges: vec![PortRange(80, 80)],
            loopback: theirs,
            ..of_server()
        };
        let (mut scene, mut side, mut slab) = Scene::at_loopback(ours, ports);
        for (from, to, passes) in [
            ("127.0.0.1", "127.0.0.1", ours && theirs),
            ("127.4.4.4", "127.0.0.9", ours && theirs),
            ("[::1]", "[::1]", ours && theirs),
            ("127.0.0.1", "10.77.0.2", theirs),
            ("10.77.0.2", "127.0.0.1", ours),
            ("127.0.0.1", "10.77.0.9", false),
            ("10.77.0.9", "127.0.0.1", false),
        ] {
            put(
                &mut side,
                &mut slab,
                &segment(&at(from, 80), &at(to, 40_000)),
                0,
            );
            let came = scene.receive(CLIENT).len();
            assert_eq!(came == 1, passes, "{from} to {to}: {ours} {theirs}");
            put(
                &mut side,
                &mut slab,
                &segment(&at(from, 82), &at(to, 40_000)),
                0,
            );
            assert!(scene.receive(CLIENT).is_empty(), "{from}: another's port");
            side.sending.take_returns(usize::MAX, |_| ());
        }
        // The other way: what is for a peer that is not there goes by the lender, which answers.
        for (to, is_there) in [("127.0.0.1", theirs), ("10.77.0.2", true)] {
            let forth = segment(&at("10.77.0.2", 40_000), &at(to, 80));
            assert_eq!(scene.send(CLIENT, &[forth]), 1);
            let by_lender = scene.return_all();
            assert_eq!(by_lender == 0, is_there, "to {to}: {ours} {theirs}");
        }
    }
}

#[test]
fn names_that_a_peer_makes_up_give_it_nothing() {
    let (mut scene, mut side, _slab) = Scene::with_hostile();
    for name in [(0, 1), (0, 1), (9, 1), (u32::MAX, 0)] {
        let (index, generation) = name;
        let name = BufferName { index, generation };
        side.receiving.give_back(Return { name }.encode()).unwrap();
        side.receiving.publish_returns();
    }
    let forth = [segment(HERE, THERE)];
    let most = BUFFERS as usize;
    for n in 0..most {
        assert_eq!(scene.send(CLIENT, &forth), 1, "{n}");
    }
    assert_eq!(scene.send(CLIENT, &forth), 0, "as many as there were");
    for item in [[0xff; 32], [1; 32]] {
        side.sending.stage(item).unwrap();
        side.sending.publish();
        assert!(scene.receive(CLIENT).is_empty());
    }
}

#[test]
fn a_peer_that_takes_nothing_holds_the_others_up_for_a_moment_only() {
    let (mut scene, _side, _slab) = Scene::with_hostile();
    let to_peer = segment(HERE, THERE);
    let to_other = segment(HERE, "10.77.0.9:80");
    for _ in 0..BUFFERS {
        assert_eq!(scene.send(CLIENT, std::slice::from_ref(&to_peer)), 1);
    }
    let both = [to_peer, to_other];
    assert_eq!(scene.send(CLIENT, &both), 0);
    let until = scene.now + Duration::from_millis(10);
    assert_eq!(
        scene.queue(CLIENT).rx.next_event(),
        until,
        "it is turned again then"
    );
    assert!(scene.lenders[CLIENT].take().is_empty());
    scene.now = until;
    assert_eq!(scene.send(CLIENT, &both), 2);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
    assert_eq!(scene.queue(CLIENT).tx.statistics().errors, 1);
    assert_eq!(scene.send(CLIENT, &both), 2, "and not again");
}

/// A peer that writes nonsense over all that it shares with the client, while it also sends what it may.
struct Scribbler {
    scene: Scene,
    side: Side<Item, Back>,
    outward: BorrowedSlab,
    files: Vec<File>,
    random: u64,
}

impl Scribbler {
    fn new(seed: u64) -> Self {
        let mut scene = Scene::new();
        let [(mut client, files), (server, server_files)] = pair(5);
        client.ports = of_server();
        scene.lenders[CLIENT].tell(&News::Peer(Box::new(client)), files);
        assert!(scene.receive(CLIENT).is_empty());
        let layout = SharedLayout::decode(&server.outward).unwrap();
        let outward = BorrowedSlab::map(&server_files[1], layout).unwrap();
        let files: Vec<File> = server_files.into_iter().map(File::from).collect();
        let socket = Own::keep(files[3].try_clone().unwrap().into());
        let edge = EdgeLayout::new(BUFFERS).unwrap();
        let side = edge::map(&files[2], edge, socket, Which::Mapper).unwrap();
        Self {
            scene,
            side,
            outward,
            files,
            random: seed | 1,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) % n
    }

    /// One random word at a random place.
    fn scribble(&mut self) {
        let which = usize::try_from(self.below(3)).unwrap();
        let length = self.files[which].metadata().unwrap().len();
        let at = self.below(length) & !7;
        // Where indices and bells lie, more often.
        let at = if self.below(2) == 0 { at % 4096 } else { at };
        let most = if self.below(2) == 0 { 16 } else { u64::MAX };
        let word = self.below(most);
        self.files[which].write_at(&word.to_le_bytes(), at).unwrap();
    }

    /// A packet that it may send.
    fn send(&mut self) {
        let index = u32::try_from(self.below(BUFFERS.into())).unwrap();
        let name = BufferName {
            index,
            generation: 1,
        };
        let honest = segment(THERE, HERE);
        let _ = self.outward.copy_in(name, 0, &honest);
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(honest.len()).unwrap(),
            link: 0,
            flags: 0,
            segment: 0,
        };
        let _ = self.side.sending.stage(descriptor.encode());
        self.side.sending.publish();
    }

    /// What the client takes: all of it is what the peer may send. How many.
    fn check(&mut self) -> usize {
        let came = self.scene.receive(CLIENT);
        for frame in &came {
            let packet = bytes_of(frame);
            assert_eq!(packet[12..16], [10, 77, 0, 2], "from another address");
            let port = u16::from_be_bytes([packet[20], packet[21]]);
            assert!([80, 81, 53].contains(&port), "from port {port}");
        }
        came.len()
    }
}

/// Nothing panics, nothing passes that the peer may not send, and the lender's line goes on.
#[test]
fn scribbles_over_a_short_cut_give_nothing() {
    const EACH: u64 = 10_000;
    let wanted = std::env::var("NETCHAN_SCRIBBLES");
    let times = wanted.map_or(200_000, |number| number.parse().unwrap());
    let mut passed = 0;
    for seed in 1..=(times / EACH).max(1) {
        let mut hostile = Scribbler::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for _ in 0..EACH {
            hostile.scribble();
            match hostile.below(8) {
                0 => hostile.send(),
                1 => {
                    let scene = &mut hostile.scene;
                    scene.now = scene.now + Duration::from_millis(11);
                    let _ = scene.send(CLIENT, &[segment(HERE, THERE)]);
                    scene.return_all();
                }
                2 => _ = hostile.scene.asleep(CLIENT),
                _ => {}
            }
            passed += hostile.check();
        }
        let scene = &mut hostile.scene;
        scene.return_all();
        scene.now = scene.now + Duration::from_secs(1);
        assert_eq!(scene.send(CLIENT, &[segment(HERE, "10.77.0.9:80")]), 1);
        assert_eq!(scene.return_all(), 1, "the lender's line goes on");
    }
    assert!(passed > 100, "something has passed: {passed}");
}
