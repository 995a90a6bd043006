//! An application that does what it likes with what it shares with its lender: no frame leaves that it may not send, no other application notices, and
//! nothing is left of it.

#[allow(dead_code)] // the other tests need all of it
mod joined_leases;
mod lease_service;

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use joined_leases::{join_as, part, piped, tell_ports_as};
use lease_service::{
    LENDER, PEER, application, application_telling, lender_and_peer, lender_of, pattern,
};
use netchan::{
    Lent, Net, TcpListener, TcpStream,
    link::{lease::PortRange, wire},
    own::Own,
    tap::{Options, Tap, Way},
};
use netchan_base::descriptor::{Descriptor, FRAME, Return};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    slab::{BorrowedSlab, BufferName, SharedLayout},
};
use proto::wire::{
    ethernet::{self, EtherType, MacAddr},
    ipv4::{self, Protocol},
    ipv6,
};

/// How many, in each test: `make soak` sets it.
fn scribbles() -> u32 {
    let wanted = std::env::var("NETCHAN_SCRIBBLES");
    wanted.map_or(200_000, |number| number.parse().unwrap())
}

/// As many of them by one application: its memory makes no sense at all by then.
const EACH: u32 = 10_000;

/// The EtherType of which the lease has the frames.
const KIND: u16 = 0x88b5;

/// The tests count descriptors: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Numbers by chance (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 8) % n
    }

    /// Writes anywhere into a file; more often where the indexes and the first packets lie.
    fn scribble(&mut self, file: &File) {
        let len = file.metadata().unwrap().len();
        let range = if self.below(2) == 0 {
            4096.min(len)
        } else {
            len
        };
        let at = self.below(range - 8);
        let few = usize::try_from(1 + self.below(8)).unwrap();
        let bytes = self.next().to_ne_bytes();
        file.write_at(&bytes[..few], at).unwrap();
    }
}

/// It has all that a lease gives, and maps it as it likes.
struct Hostile {
    side: Side<[u8; 32], [u8; 16]>,
    outward: BorrowedSlab,
    files: Vec<File>,
    random: Random,
    sent: u64,
    /// One that it has.
    port: u16,
    /// The link's address.
    mac: [u8; 6],
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
            random: Random(seed | 1),
            sent: 0,
            port: terms.ports[0].0,
            mac: terms.mac,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// One thing that no application should do, or that it may.
    fn step(&mut self) {
        match self.below(9) {
            file @ 0..3 => (self.random).scribble(&self.files[usize::try_from(file).unwrap()]),
            3 | 4 => self.send_forged(),
            8 => self.send_forged_frame(),
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
            let random = self.random.next().to_ne_bytes();
            word.copy_from_slice(&random[..word.len()]);
        }
        bytes
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
            let to = ["fd00::2", "::1"][usize::from(self.below(8) == 0)];
            let (source, to) = (source.parse().unwrap(), to.parse().unwrap());
            ipv6::Header::new(protocol, source, to).emit(payload, &mut bytes);
        } else {
            let source =
                [LENDER, "10.0.0.3", "127.0.0.1", "8.8.8.8"][usize::try_from(source).unwrap()];
            let to = [PEER, "127.0.0.1"][usize::from(self.below(8) == 0)];
            let (source, to) = (source.parse().unwrap(), to.parse().unwrap());
            ipv4::Header::new(protocol, source, to).emit(payload, &mut bytes);
        }
        let begin = bytes.len();
        bytes.resize(begin + payload, 0);
        let port = [80, 443, 33_000, self.port][usize::try_from(self.below(4)).unwrap()];
        bytes[begin..begin + 2].copy_from_slice(&u16::to_be_bytes(port));
        bytes[begin + 12] = 5 << 4;
        self.send(&bytes);
    }

    /// Sends a frame that is almost one of its own.
    fn send_forged_frame(&mut self) {
        let kinds = [KIND, KIND, 0x88b6, 0x0800, 0x0806, 0x86dd, 46, 0x8100];
        let kind = kinds[usize::try_from(self.below(8)).unwrap()];
        let mut source = self.mac;
        source[5] ^= u8::from(self.below(4) == 0);
        let to = [[0xff; 6], self.mac, [2, 9, 9, 9, 9, 9]][usize::try_from(self.below(3)).unwrap()];
        let header = ethernet::Header::new(MacAddr(to), MacAddr(source), EtherType(kind));
        let mut bytes = vec![0; ethernet::HEADER_LEN + usize::try_from(self.below(1600)).unwrap()];
        header.emit(&mut bytes);
        self.send(&bytes);
    }

    /// Sends these bytes as a packet or as a frame, with a length that may be wrong.
    fn send(&mut self, bytes: &[u8]) {
        let index = u32::try_from(self.below(1024)).unwrap();
        let name = BufferName {
            index,
            generation: 1,
        };
        if self.outward.copy_in(name, 0, bytes).is_err() {
            return;
        }
        let flip = self.below(4);
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(bytes.len()).unwrap() + u32::try_from(flip).unwrap(),
            link: 0,
            flags: if self.below(2) == 0 { FRAME } else { 0 },
            segment: if self.below(8) == 0 { 1000 } else { 0 },
        };
        self.sent += u64::from(self.side.sending.stage(descriptor.encode()).is_ok());
        self.side.sending.publish();
    }
}

/// Looks at what leaves the lender: each frame is from its link and address, and from a port that it may be from, or of the one EtherType. How
/// many were of that.
fn watch(lender: &Net, tap: &mut Tap, may: &dyn Fn(u16) -> bool, frames: &mut u64) -> u64 {
    let mac = lender.links()[0].mac;
    let mut of_kind = 0;
    while let Some(record) = tap.read() {
        *frames += 1;
        let bytes = record.bytes();
        assert_eq!(bytes[6..12], mac, "from another station");
        let (kind, packet) = (u16::from_be_bytes([bytes[12], bytes[13]]), &bytes[14..]);
        type Found = ([IpAddr; 2], u8, usize);
        let (ends, protocol, upper): Found = match kind {
            0x0806 => continue,
            KIND => {
                assert!(record.length <= 14 + 1500, "longer than the MTU");
                of_kind += 1;
                continue;
            }
            0x0800 => {
                let ends = [12, 16].map(|at| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
                (ends.map(IpAddr::from), packet[9], 20)
            }
            0x86dd => {
                let ends = [8, 24].map(|at| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
                (ends.map(IpAddr::from), packet[6], 40)
            }
            other => panic!("a frame of type {other:#x}"),
        };
        let source = ends[0];
        assert!(ends.iter().all(|ip| !ip.is_loopback()), "{ends:?}");
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
    of_kind
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

/// Takes a lease, does so many things with it, and gives it back. What was refused of it, and how many packets were sent.
fn misuse(lender: &Net, random: &mut Random, steps: u32, mut look: impl FnMut(&Lent)) -> [u64; 2] {
    let lent = lender.lend("", "hostile", 0).unwrap();
    lent.frames(KIND).unwrap();
    // Half of them share what the lender has to lend of that kind.
    let shares = random.below(2) == 0 && lent.terms().loopback;
    assert!(!shares || lent.share_loopback().is_ok());
    let mut hostile = Hostile::new(&lent, random.next());
    for step in 0..steps {
        hostile.step();
        if step % 256 == 0 {
            look(&lent);
        }
    }
    let leases = lender.show("leases").unwrap();
    let mut all = leases.as_array().unwrap().iter();
    let own = all.find(|lease| lease["holder"] == "hostile").unwrap();
    let refused = own["refused"].as_u64().unwrap() + own["nonsense"].as_u64().unwrap();
    [refused, hostile.sent]
}

/// One after the other, applications do with their leases what they like. The peer gets what was sent to it, and what leaves by the link is the lender's.
#[test]
fn scribbles_harm_only_the_application_that_makes_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut random, scribbles) = (Random(seed() | 1), scribbles());
    let settings = Net::builder().loopback(true).lends_loopback(true);
    let (lender, peer) = lender_of(settings, &wire::Options::default());
    let (honest, honest_lent) = application(&lender, "honest", Net::builder());
    let listener = honest.tcp().listen("0.0.0.0:443").unwrap();
    let honest_ports = honest_lent.terms().ports;
    let options = Options {
        way: Some(Way::Out),
        snap: 128,
        ..Options::default()
    };
    let mut tap = lender.tap(options).unwrap();
    let (is_over, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut frames, mut of_kind, mut refused, mut sent) = (0, 0, 0, 0);
    let (rounds, before) = thread::scope(|scope| {
        let (is_over, is_closed) = (&is_over, &is_closed);
        let _ends = [SetOnDrop(is_over), SetOnDrop(is_closed)];
        scope.spawn(|| echoes(&listener, is_closed));
        // What is made once stays.
        misuse(&lender, &mut random, 0, |_| ());
        let before = free(&lender, &honest);
        let client = scope.spawn(|| ask(&peer, 443, 9, is_over));
        let (mut left, mut last) = (scribbles, Vec::new());
        while left > 0 {
            let (now, mut ports) = (left.min(EACH), Vec::new());
            let [more, packets] = misuse(&lender, &mut random, now, |lent| {
                ports = lent.terms().ports;
                // Of the lender's own there is none; what it answers for ports without a socket comes from those.
                let all = ports.iter().chain(&last).chain(&honest_ports);
                let may = |port| {
                    port == 443 || all.clone().any(|r: &PortRange| (r.0..=r.1).contains(&port))
                };
                of_kind += watch(&lender, &mut tap, &may, &mut frames);
            });
            (refused, sent) = (refused + more, sent + packets);
            (left, last) = (left - now, ports);
        }
        is_over.store(true, Relaxed);
        (client.join().unwrap(), before)
    });
    println!(
        "{rounds} round trips beside {scribbles} steps: {sent} packets sent, {refused} refused, {frames} frames left, {of_kind} of its EtherType"
    );
    assert!(frames > 100 && of_kind > 0 && sent > 0 && refused > 0);
    wait_until_free(&before, || free(&lender, &honest));
    round_trip_after(&lender, &honest);
}

/// Serves connections until it is over.
fn echoes(listener: &TcpListener, is_over: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !is_over.load(Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_micros(100));
            continue;
        };
        let patience = Some(Duration::from_secs(60));
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(patience).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(&got).unwrap();
    }
}

/// Some text that only this client sends, and nothing else back.
fn round_trip(client: &Net, port: u16, canary: u8) {
    let sent = pattern(50_000, canary);
    let mut stream = client
        .tcp()
        .connect((LENDER.parse::<IpAddr>().unwrap(), port))
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
    let next = lender.lend("", "next", 0).unwrap();
    drop(next);
    drop(honest.tcp().listen("0.0.0.0:80").unwrap());
}

/// An application of whose ports another one hears, as it gets them.
fn telling(lender: &Net, name: &str, pair: u64, other: &Arc<Lent>) -> (Net, Arc<Lent>) {
    let other = other.clone();
    let tell = move |lent: &Lent| tell_ports_as(pair, lent, &other);
    application_telling(lender, name, Net::builder(), tell)
}

/// An application that talks to an honest one, while something else of it writes over all that it shares with the lender and with that one.
struct TwoFaced {
    net: Net,
    lent: Arc<Lent>,
    /// Of the lease: its two slabs and its edge. Of the short cut: the same, and the pipes.
    files: Vec<File>,
    sockets: Vec<File>,
    pair: u64,
}

impl TwoFaced {
    fn new(lender: &Net, pair: u64, honest: &Arc<Lent>) -> Self {
        let (net, lent) = telling(lender, "two-faced", pair, honest);
        let own = lent.files();
        let own = own.map(|file| File::from(file.try_clone_to_owned().unwrap()));
        let [inward, outward, edge, bell, _news] = own;
        let [cut_in, cut_out, cut_edge, cut_bell, pipes] = join_as(pair, &lent, honest);
        Self {
            net,
            lent,
            // The pipes twice: they are most of what is read.
            files: vec![
                inward,
                outward,
                edge,
                cut_in,
                cut_out,
                cut_edge,
                pipes.try_clone().unwrap(),
                pipes,
            ],
            sockets: vec![bell, cut_bell],
            pair,
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(LENDER.parse().unwrap(), 444);
        let stream = self.net.tcp().connect_timeout(to, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        stream.set_write_timeout(Some(Duration::from_millis(50)))?;
        Ok(stream)
    }

    /// Speaks over one connection until that fails, at most `times`.
    fn talk(&self, times: usize) {
        let talk = || -> std::io::Result<()> {
            let (mut stream, mut some) = (self.connect()?, [0; 4096]);
            for _ in 0..times {
                stream.write_all(&[7; 2000])?;
                let _n = stream.read(&mut some)?;
            }
            Ok(())
        };
        let _ = talk();
    }

    fn scribble(&self, random: &mut Random) {
        let which = usize::try_from(random.below(8)).unwrap();
        random.scribble(&self.files[which]);
        if random.below(16) == 0 {
            let bell = &self.sockets[which % 2];
            let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
            let _ = rustix::net::send(bell, &[1], flags);
        }
        if random.below(512) == 0 {
            // So that text is under way between two words.
            thread::yield_now();
        }
    }
}

/// Sends back what comes until it is over, and does not mind what becomes of a connection.
fn humour(listener: &TcpListener, is_over: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !is_over.load(Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let patience = Some(Duration::from_millis(50));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        let mut some = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut some) {
            if stream.write_all(&some[..n]).is_err() {
                break;
            }
        }
    }
}

/// What is free of the buffers and nodes of two stacks, and how many descriptors this process has.
fn free(one: &Net, other: &Net) -> (Vec<(String, u64)>, usize) {
    let all = [one, other].map(|net| net.show("memory").unwrap());
    let rows = all.iter().flat_map(|all| all.as_array().unwrap());
    let row = |row: &serde_json::Value| {
        let name = format!("{} of {}", row["what"], row["of"]);
        row["free"].as_u64().map(|free| (name, free))
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    (rows.filter_map(row).collect(), descriptors)
}

/// Waits until as much is free as was before. Connections that have ended stay for a minute (TIME-WAIT).
fn wait_until_free(
    before: &(Vec<(String, u64)>, usize),
    free: impl Fn() -> (Vec<(String, u64)>, usize),
) {
    let mut now = free();
    for _ in 0..9000 {
        let mut pairs = before.0.iter().zip(&now.0);
        if pairs.all(|(was, is)| is.1 >= was.1) && now.1 <= before.1 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
        now = free();
    }
    panic!("before {before:?}, now {now:?}");
}

/// Some programs, of which one after the other writes nonsense.
struct Street {
    lender: Net,
    honest: (Net, Arc<Lent>),
    /// Ports of the last one, and of the one before it, of which packets may be under way.
    ranges: [Vec<PortRange>; 2],
    pairs: u64,
    piped: u64,
}

impl Street {
    /// One that talks, and then writes so often over what it shares while it talks; then it is gone.
    fn visit(&mut self, random: &mut Random, scribbles: u32, mut look: impl FnMut(&Self)) {
        self.pairs += 1;
        let hostile = TwoFaced::new(&self.lender, self.pairs, &self.honest.1);
        let [now, last] = &mut self.ranges;
        *last = std::mem::replace(now, hostile.lent.terms().ports);
        for _ in 0..100 {
            if piped(&hostile.net) > 0 {
                break;
            }
            hostile.talk(10);
        }
        self.piped += piped(&hostile.net);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = SetOnDrop(&is_over);
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    hostile.talk(1000);
                }
            });
            for step in 0..scribbles {
                hostile.scribble(random);
                if step % 256 == 0 {
                    look(self);
                }
            }
        });
        let TwoFaced {
            net, lent, pair, ..
        } = hostile;
        drop((net, lent));
        let are_left = || {
            self.lender
                .show("leases")
                .unwrap()
                .as_array()
                .unwrap()
                .len()
        };
        for _ in 0..2000 {
            if are_left() == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(are_left(), 2, "its lease is left");
        part(pair, &self.honest.1);
    }

    fn may(&self, port: u16) -> bool {
        let honest = self.honest.1.terms().ports;
        let mut all = self.ranges.iter().flatten().chain(&honest);
        port == 443 || all.any(|range| (range.0..=range.1).contains(&port))
    }
}

/// Text there and back until it is over; how often.
fn ask(client: &Net, port: u16, canary: u8, is_over: &AtomicBool) -> u32 {
    let mut rounds = 0;
    while !is_over.load(Relaxed) || rounds < 3 {
        round_trip(client, port, canary);
        rounds += 1;
        // So that there are ports: each is kept for a minute (TIME-WAIT).
        thread::sleep(Duration::from_millis(20));
    }
    rounds
}

/// One after the other, applications write over a lease, a short cut and its pipes, while they talk by them. Others get what was sent to them, from
/// another one of the lender's and from the peer, and what leaves by the link is the lender's.
#[test]
fn scribbles_over_short_cuts_and_pipes_harm_their_connections_alone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random(seed() | 1);
    let scribbles = scribbles();
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let honest = application(&lender, "honest", Net::builder());
    let (other, other_lent) = telling(&lender, "other", 1, &honest.1);
    let [for_peer, for_hostile, for_other] =
        [443, 444, 445].map(|port| honest.0.tcp().listen(format!("0.0.0.0:{port}")).unwrap());
    join_as(1, &other_lent, &honest.1);
    // A tap at the lender would hold the short cuts back: what has left it is looked at where it arrives.
    let options = Options {
        way: Some(Way::In),
        snap: 128,
        ..Options::default()
    };
    let mut tap = peer.tap(options).unwrap();
    let mut street = Street {
        lender,
        honest,
        ranges: [Vec::new(), Vec::new()],
        pairs: 1,
        piped: 0,
    };
    let (is_over, is_closed, mut frames) = (AtomicBool::new(false), AtomicBool::new(false), 0);
    let (rounds, before) = thread::scope(|scope| {
        let (is_over, is_closed) = (&is_over, &is_closed);
        let _ends = [SetOnDrop(is_over), SetOnDrop(is_closed)];
        scope.spawn(|| echoes(&for_peer, is_closed));
        scope.spawn(|| echoes(&for_other, is_closed));
        scope.spawn(|| humour(&for_hostile, is_over));
        // What is made once stays.
        street.visit(&mut random, 0, |_| ());
        let before = free(&street.lender, &street.honest.0);
        let clients = [(&peer, 443, 9), (&other, 445, 77)]
            .map(|(net, port, canary)| scope.spawn(move || ask(net, port, canary, is_over)));
        let mut left = scribbles;
        while left > 0 {
            let now = left.min(EACH);
            street.visit(&mut random, now, |street| {
                let of_kind = watch(
                    &street.lender,
                    &mut tap,
                    &|port| street.may(port),
                    &mut frames,
                );
                assert_eq!(of_kind, 0, "no lease has that EtherType");
            });
            left -= now;
        }
        is_over.store(true, Relaxed);
        (clients.map(|client| client.join().unwrap()), before)
    });
    println!("{rounds:?} round trips beside {scribbles} scribbles, {frames} frames");
    assert!(frames > 100, "the tap saw {frames} frames");
    let (visits, piped) = (street.pairs - 1, street.piped);
    assert!(piped >= visits / 2, "{piped} pipes in {visits} visits");
    wait_until_free(&before, || free(&street.lender, &street.honest.0));
    round_trip_after(&street.lender, &street.honest.0);
}
