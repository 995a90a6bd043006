//! An application that does what it likes with what it shares with its lender: no frame leaves that it may not send, no other application notices, and
//! nothing is left of it.

mod lease_service;

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr},
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use lease_service::{LENDER, PEER, application, lender_and_peer, pattern};
use netchan::{
    Lent, Net,
    link::wire,
    own::Own,
    tap::{Options, Tap, Way},
};
use netchan_base::descriptor::{Descriptor, Return};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    slab::{BorrowedSlab, BufferName, SharedLayout},
};
use proto::wire::{
    ipv4::{self, Protocol},
    ipv6,
};

#[cfg(debug_assertions)]
const SCRIBBLES: u32 = 200_000;
#[cfg(not(debug_assertions))]
const SCRIBBLES: u32 = 10_000_000;

/// It has all that a lease gives, and maps it as it likes.
struct Hostile {
    side: Side<[u8; 32], [u8; 16]>,
    outward: BorrowedSlab,
    files: Vec<File>,
    random: u64,
    sent: u64,
    /// One that it has.
    port: u16,
}

impl Hostile {
    fn new(lent: &Lent, seed: u64) -> Self {
        let terms = lent.terms();
        let files: Vec<OwnedFd> = (lent.files().iter())
            .map(|file| file.try_clone_to_owned().unwrap())
            .collect();
        let outward = SharedLayout::decode(&terms.outward).unwrap();
        let layout = EdgeLayout::new(terms.slots).unwrap();
        let socket = Own::keep(files[3].try_clone().unwrap());
        Self {
            side: edge::map(&files[2], layout, socket, Which::Mapper).unwrap(),
            outward: BorrowedSlab::map(&files[1], outward).unwrap(),
            files: files.into_iter().take(3).map(File::from).collect(),
            random: seed | 1,
            sent: 0,
            port: terms.ports[0].0,
        }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 8) % n
    }

    /// One thing that no application should do, or that it may.
    fn step(&mut self) {
        match self.below(8) {
            file @ 0..3 => self.scribble(usize::try_from(file).unwrap()),
            3 | 4 => self.send_forged(),
            5 => {
                let bytes = self.words();
                let _ = self.side.sending.stage(bytes);
                self.side.sending.publish();
            }
            6 => {
                let index = u32::try_from(self.below(2048)).unwrap();
                let generation = u32::try_from(self.below(3)).unwrap();
                let name = BufferName { index, generation };
                let _ = self.side.receiving.give_back(Return { name }.encode());
                self.side.receiving.publish_returns();
                self.side.receiving.take(4, |_| ());
            }
            _ => {
                self.side.far_bell.ring();
                let _ = rustix::net::send(
                    self.side.far_bell.fd(),
                    &[1],
                    rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
                );
                self.side.sending.take_returns(99, |_| ());
            }
        }
    }

    fn words<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for word in bytes.chunks_mut(8) {
            let random = self.next().to_ne_bytes();
            word.copy_from_slice(&random[..word.len()]);
        }
        bytes
    }

    /// Writes anywhere into a shared file; more often where the indexes and the first packets lie.
    fn scribble(&mut self, file: usize) {
        let len = self.files[file].metadata().unwrap().len();
        let range = if self.below(2) == 0 {
            4096.min(len)
        } else {
            len
        };
        let at = self.below(range - 8);
        let bytes: [u8; 8] = self.words();
        let few = usize::try_from(1 + self.below(8)).unwrap();
        self.files[file].write_at(&bytes[..few], at).unwrap();
    }

    /// Sends a packet that is almost one of its own, or one of another's.
    fn send_forged(&mut self) {
        let v6 = self.below(3) == 0;
        let protocol = [Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol(89)]
            [usize::try_from(self.below(4)).unwrap()];
        let mut bytes = vec![
            0;
            if v6 {
                ipv6::HEADER_LEN
            } else {
                ipv4::HEADER_LEN
            }
        ];
        let source = self.below(4);
        let payload = usize::try_from(self.below(200)).unwrap() + 20;
        if v6 {
            let source =
                ["fd00::1", "fd00::3", "::1", "2001:db8::9"][usize::try_from(source).unwrap()];
            let (source, to) = (source.parse().unwrap(), "fd00::2".parse().unwrap());
            ipv6::Header::new(protocol, source, to).emit(payload, &mut bytes);
        } else {
            let source =
                [LENDER, "10.0.0.3", "127.0.0.1", "8.8.8.8"][usize::try_from(source).unwrap()];
            let (source, to) = (source.parse().unwrap(), PEER.parse().unwrap());
            ipv4::Header::new(protocol, source, to).emit(payload, &mut bytes);
        }
        let begin = bytes.len();
        bytes.resize(begin + payload, 0);
        let port = [80, 443, 33_000, self.port][usize::try_from(self.below(4)).unwrap()];
        bytes[begin..begin + 2].copy_from_slice(&u16::to_be_bytes(port));
        bytes[begin + 12] = 5 << 4;
        let index = u32::try_from(self.below(1024)).unwrap();
        let name = BufferName {
            index,
            generation: 1,
        };
        if self.outward.copy_in(name, 0, &bytes).is_err() {
            return;
        }
        let flip = self.below(4);
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(bytes.len()).unwrap() + u32::try_from(flip).unwrap(),
            link: 0,
            flags: 0,
            segment: if self.below(8) == 0 { 1000 } else { 0 },
        };
        self.sent += u64::from(self.side.sending.stage(descriptor.encode()).is_ok());
        self.side.sending.publish();
    }
}

/// Looks at what leaves the lender: each frame is from its address, and from a port that it may be from.
fn watch(lender: &Net, tap: &mut Tap, may: &dyn Fn(u16) -> bool, frames: &mut u64) {
    while let Some(record) = tap.read() {
        *frames += 1;
        let bytes = record.bytes();
        let (kind, packet) = (u16::from_be_bytes([bytes[12], bytes[13]]), &bytes[14..]);
        let (source, protocol, upper): (IpAddr, u8, usize) = match kind {
            0x0806 => continue,
            0x0800 => {
                let source: [u8; 4] = packet[12..16].try_into().unwrap();
                (source.into(), packet[9], 20)
            }
            0x86dd => {
                let source: [u8; 16] = packet[8..24].try_into().unwrap();
                (source.into(), packet[6], 40)
            }
            other => panic!("a frame of type {other:#x}"),
        };
        // Duplicate address detection and MLD ask from the unspecified address; the link-local one is the lender's, too.
        let is_asking = source == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && [0, 58].contains(&protocol);
        assert!(lender.is_local(source) || is_asking, "from {source}");
        match protocol {
            6 | 17 => {
                let port = u16::from_be_bytes([packet[upper], packet[upper + 1]]);
                assert!(may(port), "protocol {protocol} from port {port}");
            }
            // The lender's own: NDP, errors, IGMP, and MLD behind its hop-by-hop options.
            0 | 1 | 2 | 58 => {}
            other => panic!("a packet of protocol {other}"),
        }
    }
}

/// The other threads end, however this one does.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Of this run, or the one that is asked for.
fn seed() -> u64 {
    let seed = std::env::var("NETCHAN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(percore::clock::now_ns);
    println!("NETCHAN_SEED={seed}");
    seed
}

#[test]
fn scribbles_harm_only_the_application_that_makes_them() {
    let seed = seed();
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (honest, honest_lent) = application(&lender, "honest", Net::builder());
    let lent = lender.lend("", "hostile").unwrap();
    let ports = lent.terms().ports;
    let listener = honest.tcp().listen("0.0.0.0:443").unwrap();
    let honest_ports = honest_lent.terms().ports;
    // Of the lender's own there is none; what it answers for ports without a socket comes from those.
    let may = |port: u16| {
        let in_range = |r: &netchan::link::lease::PortRange| (r.0..=r.1).contains(&port);
        port == 443 || ports.iter().any(in_range) || honest_ports.iter().any(in_range)
    };
    let options = Options {
        way: Some(Way::Out),
        snap: 128,
        ..Options::default()
    };
    let mut tap = lender.tap(options).unwrap();
    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || echoes(&listener));
        let client = scope.spawn(move || {
            let mut rounds = 0;
            while !is_over.load(Relaxed) || rounds < 3 {
                round_trip(&peer, 50_000);
                rounds += 1;
            }
            // The server's loop ends with an empty connection.
            drop(
                peer.tcp()
                    .connect((LENDER.parse::<IpAddr>().unwrap(), 443))
                    .unwrap(),
            );
            rounds
        });
        let _end = SetOnDrop(is_over);
        let mut hostile = Hostile::new(&lent, seed);
        let mut frames = 0;
        for step in 0..SCRIBBLES {
            hostile.step();
            if step % 256 == 0 {
                watch(&lender, &mut tap, &may, &mut frames);
            }
        }
        assert!(hostile.sent > 0);
        is_over.store(true, Relaxed);
        while !client.is_finished() {
            watch(&lender, &mut tap, &may, &mut frames);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(frames > 100, "the tap saw {frames} frames");
        client.join().unwrap()
    });
    println!("{rounds} round trips beside {SCRIBBLES} steps");
    let leases = lender.show("leases").unwrap();
    println!("{leases}");
    let refused = |lease: &serde_json::Value| {
        lease["refused"].as_u64().unwrap() + lease["nonsense"].as_u64().unwrap()
    };
    assert!(
        leases
            .as_array()
            .unwrap()
            .iter()
            .any(|lease| refused(lease) > 0)
    );
    drop(lent);
    round_trip_after(&lender, &honest);
}

/// Serves connections until one brings nothing.
fn echoes(listener: &netchan::TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.read_to_end(&mut got).unwrap();
        if got.is_empty() {
            return;
        }
        stream.write_all(&got).unwrap();
    }
}

fn round_trip(client: &Net, len: usize) {
    let sent = pattern(len, 9);
    let mut stream = client
        .tcp()
        .connect((LENDER.parse::<IpAddr>().unwrap(), 443))
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
}

/// What the hostile one had can be had by others.
fn round_trip_after(lender: &Net, honest: &Net) {
    let next = lender.lend("", "next").unwrap();
    drop(next);
    drop(honest.tcp().listen("0.0.0.0:80").unwrap());
}
