//! Modules in a stack: each point, boot and late, Giant and its cost.

use std::{
    cell::Cell,
    collections::VecDeque,
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::{tcp::SynCookies, time::Instant};

use crate::{
    Clock, Net, Regime, Threads,
    driver::module::{
        Boxed, Module, Point, Verdict, View,
        filter::{Filter, Rules},
        ledger::Ledger,
        limiter::{Limit, Limiter},
    },
    giant::Concurrency,
    link::{Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, TxStatistics, wire},
    packet::Packet,
};

/// Two stacks on a wire; the second with modules and, perhaps, another link in front of its end.
fn pair_with(
    regime: Regime,
    threads: Threads,
    modules: Vec<Boxed>,
    around: impl FnOnce(Box<dyn Link>) -> Box<dyn Link>,
) -> (Net, Net) {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let clock = match threads {
        Threads::Own => Clock::Real,
        Threads::Caller | Threads::Stepped => Clock::new_virtual(),
    };
    let builder = |link, addresses: [&str; 2]| {
        let builder = Net::builder().clock(clock.clone()).link_with(link);
        let builder = builder.address(addresses[0]).unwrap();
        let builder = builder.address(addresses[1]).unwrap();
        builder.regime(regime).threads(threads).seed(7)
    };
    let plain = builder(Box::new(ours), ["10.0.0.1/24", "fd00::1/64"]);
    let server = builder(around(Box::new(theirs)), ["10.0.0.2/24", "fd00::2/64"]);
    let server = modules.into_iter().fold(server, crate::Builder::module);
    (plain.start().unwrap(), server.start().unwrap())
}

fn pair(regime: Regime, threads: Threads, modules: Vec<Boxed>) -> (Net, Net) {
    pair_with(regime, threads, modules, |link| link)
}

fn filter(name: &str, rules: &[&str]) -> Boxed {
    let rules = rules.iter().map(|text| text.parse().unwrap()).collect();
    let default = Verdict::Pass;
    Boxed::any(Filter::new(name, Rules { rules, default }))
}

fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no counter {name}"))["value"]
        .as_u64()
        .unwrap()
}

fn setting(net: &Net, name: &str) -> serde_json::Value {
    let rows = net.show("settings").unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == name);
    row.unwrap()["value"].clone()
}

fn module(net: &Net, name: &str) -> serde_json::Value {
    let rows = net.show("modules").unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == name);
    row.unwrap().clone()
}

/// Sends `count` datagrams from `a` to `b` and counts what arrives; both stacks are turned by their callers.
fn datagrams(a: &Net, b: &Net, count: usize, target: &str) -> usize {
    let target: SocketAddr = target.parse().unwrap();
    let bound = |net: &Net, port| {
        let any = if target.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let socket = net.udp().bind(format!("{any}:{port}")).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (from, to) = (bound(a, 0), bound(b, target.port()));
    let mut got = 0;
    for _ in 0..count {
        from.send_to(b"x", target).unwrap();
        for _ in 0..4 {
            a.poll();
            b.poll();
        }
        got += usize::from(to.recv_from(&mut [0; 8]).is_ok());
    }
    got
}

/// SO_MARK: a rule sees it on the way out, of datagrams, their fragments, and of a connection from its SYN on; not of other sockets.
#[test]
fn a_mark_is_matched() {
    use crate::{
        api::{Domain, Kind},
        socket::{Socket, SocketOption},
    };
    let rules = ["drop out mark 7"];
    let (peer, marked) = pair(
        Regime::Locked,
        Threads::Caller,
        vec![filter("marks", &rules)],
    );
    let to: SocketAddr = "10.0.0.1:9000".parse().unwrap();
    let inbox = peer.udp().bind("10.0.0.1:9000").unwrap();
    inbox.set_nonblocking(true).unwrap();
    let arrives = |mark: u32, len: usize| {
        let socket = Socket::new(&marked, Domain::V4, Kind::Datagram).unwrap();
        socket.set_option(SocketOption::Mark(mark)).unwrap();
        assert_eq!(
            socket.option(SocketOption::Mark(0)).unwrap(),
            SocketOption::Mark(mark)
        );
        let text = vec![0; len];
        socket
            .send(&[std::io::IoSlice::new(&text)], Some(to))
            .unwrap();
        for _ in 0..10 {
            marked.poll();
            peer.poll();
        }
        inbox.recv_from(&mut vec![0; len + 1]).is_ok()
    };
    for len in [1, 4000] {
        assert!(arrives(0, len) && arrives(8, len));
        assert!(!arrives(7, len), "{len}");
    }
    let listener = peer.tcp().listen("10.0.0.1:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    for (mark, opens) in [(7, false), (6, true)] {
        let socket = Socket::new(&marked, Domain::V4, Kind::Stream).unwrap();
        socket.set_option(SocketOption::Mark(mark)).unwrap();
        let _ = socket.connect("10.0.0.1:80".parse().unwrap());
        for _ in 0..10 {
            marked.poll();
            peer.poll();
        }
        assert_eq!(listener.accept().is_ok(), opens, "{mark}");
    }
    for cookies in [SynCookies::Off, SynCookies::Always] {
        marked
            .tcp()
            .configure(|config| config.syn_cookies = cookies)
            .unwrap();
        a_listeners_mark_is_its_connections(&peer, &marked);
    }
    assert!(
        "drop out mark x"
            .parse::<crate::driver::module::filter::Rule>()
            .is_err()
    );
    assert!(
        "drop mark 0x2a to any"
            .parse::<crate::driver::module::filter::Rule>()
            .is_ok()
    );
}

/// SO_MARK of a listener: its SYN-ACKs carry it, and what it accepts has it.
fn a_listeners_mark_is_its_connections(peer: &Net, marked: &Net) {
    use crate::{
        api::{Domain, Kind},
        socket::{Socket, SocketOption},
    };
    let turn = || {
        for _ in 0..20 {
            marked.poll();
            peer.poll();
        }
    };
    for (mark, opens) in [(7, false), (6, true)] {
        let listener = Socket::new(marked, Domain::V4, Kind::Stream).unwrap();
        listener.set_option(SocketOption::Mark(mark)).unwrap();
        listener.bind("10.0.0.2:0".parse().unwrap()).unwrap();
        listener.listen(4).unwrap();
        let client = Socket::new(peer, Domain::V4, Kind::Stream).unwrap();
        let _ = client.connect(listener.local_address());
        turn();
        assert_eq!(client.connect_again().unwrap().is_ok(), opens, "{mark}");
        let Ok((accepted, _)) = listener.accept() else {
            assert!(!opens);
            continue;
        };
        let own = accepted.option(SocketOption::Mark(0)).unwrap();
        assert_eq!(own, SocketOption::Mark(mark));
        // What it sends goes by the mark that it has at that moment.
        let gets = |mark: u32| {
            accepted.set_option(SocketOption::Mark(mark)).unwrap();
            accepted.send(&[std::io::IoSlice::new(b"x")], None).unwrap();
            turn();
            client.available()
        };
        assert_eq!((gets(6), gets(7), gets(7)), (1, 1, 1));
    }
}

#[test]
fn a_filter_stands_at_both_points() {
    for regime in Regime::here() {
        let rules = [
            "drop in proto udp to any port 9",
            "drop out proto udp to any port 7",
        ];
        let (a, b) = pair(regime, Threads::Caller, vec![filter("wall", &rules)]);
        for (own, port_in, port_out) in [("10.0.0.", 9, 7), ("[fd00::", 9, 7)] {
            let end = if own.starts_with('[') { "]" } else { "" };
            let there = |port| format!("{own}2{end}:{port}");
            let back = |port| format!("{own}1{end}:{port}");
            assert_eq!(datagrams(&a, &b, 5, &there(port_in)), 0, "{regime} in");
            assert_eq!(
                datagrams(&a, &b, 5, &there(8)),
                5,
                "{regime} in, another port"
            );
            assert_eq!(datagrams(&b, &a, 5, &back(port_out)), 0, "{regime} out");
            assert_eq!(
                datagrams(&b, &a, 5, &back(8)),
                5,
                "{regime} out, another port"
            );
        }
        assert_eq!(counter(&b, "drop_module_wall"), 20, "{regime}");
        assert_eq!(module(&b, "wall")["dropped_packets"], 20);
        assert_eq!(b.regime(), regime, "a filter needs no Giant");
    }
}

/// The host's own answers pass the modules like everything else: here, port unreachable about a closed port. ARP and NDP do not.
#[test]
fn the_hosts_own_packets_are_seen() {
    for (target, rule) in [
        ("10.0.0.2:99", "drop out proto icmp"),
        ("[fd00::2]:99", "drop out proto icmp6"),
    ] {
        let (a, b) = pair(
            Regime::Locked,
            Threads::Caller,
            vec![filter("wall", &[rule])],
        );
        let any = if target.starts_with('[') {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let socket = a.udp().bind(any).unwrap();
        socket.connect(target).unwrap();
        socket.set_nonblocking(true).unwrap();
        for _ in 0..10 {
            // An ICMP error that came through would be its error.
            socket.send(b"x").unwrap();
            a.poll();
            b.poll();
        }
        let lost = counter(&b, "drop_udp_no_socket");
        assert!(lost >= 9, "{lost} reached it: neighbor discovery works");
        assert!(counter(&b, "drop_module_wall") > 0, "{target}");
    }
}

#[test]
fn datagrams_in_fragments_are_seen_whole() {
    let rules = ["drop in proto udp to any port 9"];
    for (target, fragments) in [("10.0.0.2:9", 3), ("[fd00::2]:9", 3)] {
        let (a, b) = pair(
            Regime::AppChannel,
            Threads::Caller,
            vec![filter("wall", &rules)],
        );
        let any = if target.starts_with('[') {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let socket = a.udp().bind(any).unwrap();
        socket.send_to(&[7; 4000], target).unwrap();
        for _ in 0..10 {
            a.poll();
            b.poll();
        }
        assert_eq!(counter(&b, "fragments_in"), fragments);
        assert_eq!(counter(&b, "drop_module_wall"), 1, "{target}");
        assert_eq!(module(&b, "wall")["seen_packets"], 1, "{target}");
    }
}

#[test]
fn modules_come_and_go_while_the_stack_runs() {
    let (a, b) = pair(Regime::AppChannel, Threads::Caller, vec![]);
    assert_eq!(datagrams(&a, &b, 3, "10.0.0.2:9"), 3);
    b.load_module(filter("wall", &["drop in to any port 9"]))
        .unwrap();
    assert_eq!(datagrams(&a, &b, 3, "10.0.0.2:9"), 0);
    assert_eq!(module(&b, "wall")["loaded"], "later");
    let again = b.load_module(filter("wall", &[])).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    let nameless = b.load_module(filter("A wall", &[])).unwrap_err();
    assert!(nameless.to_string().contains("a-z"), "{nameless}");
    b.unload_module("wall").unwrap();
    assert_eq!(datagrams(&a, &b, 3, "10.0.0.2:9"), 3);
    assert!(b.unload_module("wall").is_err());
    b.load_module(Boxed::any(
        Limiter::new(
            "slow",
            Limit {
                burst: 2,
                ..Limit::packets(1)
            },
        )
        .unwrap(),
    ))
    .unwrap();
    assert_eq!(datagrams(&a, &b, 10, "10.0.0.2:9"), 2);
}

#[test]
fn one_that_panics_fails_closed() {
    struct Bad;
    impl Module for Bad {
        fn name(&self) -> &str {
            "bad"
        }
        fn points(&self) -> &[Point] {
            &[Point::In]
        }
        fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
            panic!("planted: the module panics");
        }
    }
    let (a, b) = pair(Regime::Locked, Threads::Caller, vec![Boxed::any(Bad)]);
    assert_eq!(datagrams(&a, &b, 3, "10.0.0.2:9"), 0);
    assert_eq!(counter(&b, "drop_module_bad"), 3);
    assert_eq!(module(&b, "bad")["state"], "failed: it panicked");
    b.unload_module("bad").unwrap();
    assert_eq!(datagrams(&a, &b, 3, "10.0.0.2:9"), 3);
}

#[test]
fn one_that_needs_giant_at_boot_puts_the_whole_stack_under_it() {
    for threads in [Threads::Caller, Threads::Own] {
        let (a, b) = pair(
            Regime::AppChannel,
            threads,
            vec![Boxed::giant(Ledger::new("ledger", 16))],
        );
        assert_eq!(
            (a.regime(), b.regime()),
            (Regime::AppChannel, Regime::Giant)
        );
        assert_eq!(setting(&b, "regime"), "giant");
        let why = setting(&b, "degraded").to_string();
        assert!(
            why.contains("'ledger' needs Giant") && why.contains("app-channel"),
            "{why}"
        );
        assert!(setting(&a, "degraded").is_null());
        assert_eq!(module(&b, "ledger")["runs"], "the whole stack under Giant");
        if threads == Threads::Caller {
            assert_eq!(datagrams(&a, &b, 4, "10.0.0.2:9"), 4);
            let says = module(&b, "ledger")["says"].to_string();
            assert!(says.contains("10.0.0.1: 4 packets 116 B in"), "{says}");
        } else {
            transfer(&a, &b, 1_000_000);
        }
        assert!(counter(&b, "giant_taken") > 0);
    }
}

#[test]
fn one_that_needs_giant_later_runs_under_it_alone() {
    for threads in [Threads::Caller, Threads::Own] {
        let (a, b) = pair(Regime::AppChannel, threads, vec![]);
        assert_eq!(counter(&b, "giant_taken"), 0);
        b.load_module(Boxed::giant(Ledger::new("ledger", 16)))
            .unwrap();
        assert_eq!(
            (b.regime(), setting(&b, "giant")),
            (Regime::AppChannel, false.into())
        );
        assert_eq!(module(&b, "ledger")["runs"], "under Giant alone");
        if threads == Threads::Caller {
            let taken = counter(&b, "giant_taken");
            assert_eq!(datagrams(&a, &b, 4, "10.0.0.2:9"), 4);
            assert_eq!(
                counter(&b, "giant_taken") - taken,
                4,
                "once a packet, and for nothing else"
            );
        } else {
            transfer(&a, &b, 1_000_000);
        }
        b.unload_module("ledger").unwrap();
        assert!(b.show("modules").unwrap().as_array().unwrap().is_empty());
    }
}

/// Moves `bytes` from `a` to `b` by TCP; both have threads.
fn transfer(a: &Net, b: &Net, bytes: usize) {
    let listener = b.tcp().listen("0.0.0.0:80").unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.len()
    });
    let mut stream = a.tcp().connect("10.0.0.2:80").unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), bytes);
}

/// Plain cells are enough under Giant: with two links' threads at once, nothing is lost, and the wait is counted.
#[test]
fn giant_keeps_plain_cells_whole_and_counts_the_wait() {
    struct Slow {
        seen: Cell<u64>,
        sum: Arc<AtomicU64>,
    }
    impl Module for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn points(&self) -> &[Point] {
            &[Point::In]
        }
        fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
            let before = self.seen.get();
            thread::sleep(Duration::from_millis(1));
            self.seen.set(before + 1);
            self.sum.store(before + 1, SeqCst);
            Verdict::Pass
        }
    }
    let wires = [
        wire::pair(&wire::Options::default()),
        wire::pair(&wire::Options::default()),
    ];
    let mut server = Net::builder().regime(Regime::Locked);
    let mut clients = Vec::new();
    for (n, (ours, theirs)) in wires.into_iter().enumerate() {
        server = server
            .link_with(Box::new(theirs))
            .address(&format!("10.0.{n}.2/24"))
            .unwrap();
        let client = Net::builder()
            .link_with(Box::new(ours))
            .address(&format!("10.0.{n}.1/24"))
            .unwrap();
        clients.push(client.start().unwrap());
    }
    let server = server.start().unwrap();
    let sum = Arc::new(AtomicU64::new(0));
    let slow = Slow {
        seen: Cell::new(0),
        sum: sum.clone(),
    };
    let socket = server.udp().bind("0.0.0.0:9").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let senders: Vec<_> = clients
        .iter()
        .map(|net| net.udp().bind("0.0.0.0:0").unwrap())
        .collect();
    let send = |n: usize| {
        let target = format!("10.0.{n}.2:9");
        senders[n].send_to(b"x", target).unwrap();
    };
    let receive = |n| {
        let got = socket.recv_from(&mut [0; 8]);
        got.unwrap_or_else(|e| panic!("datagram {n}: {e}"));
    };
    // Each finds its neighbor first: what waits for that is few.
    (0..2).for_each(send);
    (0..2).for_each(receive);
    server.load_module(Boxed::giant(slow)).unwrap();
    (0..200).for_each(|n| send(n % 2));
    (0..200).for_each(receive);
    assert_eq!(sum.load(SeqCst), 200);
    assert!(counter(&server, "giant_waits") > 0 && counter(&server, "giant_wait_ns") > 1_000_000);
    let locks = server.show("locks").unwrap();
    assert!(locks[0]["wait_ns"].as_u64().unwrap() > 1_000_000, "{locks}");
}

/// A driver that is not safe beside others of its kind: it notices when two are called at once.
struct Fragile {
    link: Box<dyn Link>,
    users: Users,
}

/// How many are in a driver, and how often there were two.
#[derive(Clone, Default)]
struct Users {
    now: Arc<AtomicU64>,
    together: Arc<AtomicU64>,
}

impl Users {
    fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.now.fetch_add(1, SeqCst) > 0 {
            self.together.fetch_add(1, SeqCst);
        }
        let result = work();
        thread::yield_now();
        self.now.fetch_sub(1, SeqCst);
        result
    }
}

impl Link for Fragile {
    fn properties(&self) -> &Properties {
        self.link.properties()
    }
    fn concurrency(&self) -> Concurrency {
        Concurrency::Giant
    }
    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> std::io::Result<Vec<Queue>> {
        let Self { link, users } = *self;
        let around = |queue: Queue| Queue {
            rx: Box::new(FragileHalf(queue.rx, users.clone())),
            tx: Box::new(FragileHalf(queue.tx, users.clone())),
        };
        Ok(link.start(bells)?.into_iter().map(around).collect())
    }
}

struct FragileHalf<H>(H, Users);

impl LinkRx for FragileHalf<Box<dyn LinkRx>> {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.1.alone(|| self.0.receive(now, slab, burst, max))
    }
    fn next_event(&mut self) -> Instant {
        self.0.next_event()
    }
    fn statistics(&self) -> RxStatistics {
        self.0.statistics()
    }
}

impl LinkTx for FragileHalf<Box<dyn LinkTx>> {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        self.1.alone(|| self.0.transmit(now, frames))
    }
    fn statistics(&self) -> TxStatistics {
        self.0.statistics()
    }
}

#[test]
fn giant_is_taken_around_a_driver_that_needs_it_and_around_nothing_else() {
    for regime in Regime::here() {
        let users = Users::default();
        let mut server = Net::builder().regime(regime);
        let mut clients = Vec::new();
        for n in 0..2 {
            let (ours, theirs) = wire::pair(&wire::Options::default());
            let fragile = Fragile {
                link: Box::new(theirs),
                users: users.clone(),
            };
            server = server
                .link_with(Box::new(fragile))
                .address(&format!("10.0.{n}.2/24"))
                .unwrap();
            let client = Net::builder()
                .link_with(Box::new(ours))
                .address(&format!("10.0.{n}.1/24"))
                .unwrap();
            clients.push(client.start().unwrap());
        }
        let server = server.start().unwrap();
        assert_eq!(server.regime(), regime, "the driver, not the stack");
        let listener = server.tcp().listen("0.0.0.0:80").unwrap();
        let echo = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap()
                });
            }
        });
        let work: Vec<_> = clients
            .iter()
            .cloned()
            .enumerate()
            .map(|(n, client)| {
                thread::spawn(move || {
                    let mut stream = client.tcp().connect(format!("10.0.{n}.2:80")).unwrap();
                    let mut buf = [0; 1000];
                    for _ in 0..200 {
                        stream.write_all(&[1; 1000]).unwrap();
                        stream.read_exact(&mut buf).unwrap();
                    }
                })
            })
            .collect();
        work.into_iter().for_each(|t| t.join().unwrap());
        echo.join().unwrap();
        assert_eq!(users.together.load(SeqCst), 0, "{regime}");
        assert!(counter(&server, "giant_taken") > 400, "{regime}");
        // Both can be asked for facts meanwhile, and close.
        assert_eq!(server.show("links").unwrap().as_array().unwrap().len(), 2);
    }
}
