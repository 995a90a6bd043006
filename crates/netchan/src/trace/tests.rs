//! What happens to a connection, as the trace tells it; and how it is asked for.

mod latencies;
mod triggers;

use std::{
    io::{IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::{EVENTS, Level, answer, here, level, note, set_level};
use crate::{
    Clock, Net, Regime, Threads,
    api::{Domain, Kind, ReceiveFlags},
    counters::Counter,
    link::wire,
    socket::{Socket, SocketOption},
    trace::stages::{self, Stage},
};

/// Level and stages are the process's: one test at a time, which leaves them as it found them.
struct Alone(#[allow(dead_code)] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    Alone(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Alone {
    fn drop(&mut self) {
        set_level(Level::Rare);
        stages::switch(false);
    }
}

struct Pair {
    nets: [Net; 2],
    clock: Clock,
    /// The calling thread's first event is not before this.
    begin: u64,
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

impl Pair {
    fn new() -> Self {
        Self::over(&wire::Options::default())
    }

    fn over(options: &wire::Options) -> Self {
        let (a, b) = wire::pair(options);
        let clock = Clock::new_virtual();
        let begin = percore::clock::cycles();
        let start = |link, address: &str| {
            let builder = Net::builder().link_with(Box::new(link)).address(address);
            let builder = builder.unwrap().regime(Regime::AppChannel).seed(1);
            let builder = builder.threads(Threads::Caller).clock(clock.clone());
            builder.start().unwrap()
        };
        let nets = [start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")];
        Self { nets, clock, begin }
    }

    fn turn(&self, times: usize, step: Duration) {
        for _ in 0..times {
            self.nets.iter().for_each(|net| _ = net.poll());
            self.clock.advance(step);
        }
    }

    fn connect(&self) -> (Socket, Socket) {
        let target = SocketAddr::from(SERVER);
        let listener = Socket::new(&self.nets[1], Domain::V4, Kind::Stream).unwrap();
        listener.bind(target).unwrap();
        listener.listen(8).unwrap();
        let client = Socket::new(&self.nets[0], Domain::V4, Kind::Stream).unwrap();
        let _ = client.connect(target);
        client.set_option(SocketOption::NoDelay(true)).unwrap();
        // A lost SYN is repeated after a second.
        for _ in 0..5000 {
            self.turn(1, Duration::from_millis(1));
            if let Ok((server, _)) = listener.accept() {
                return (client, server);
            }
        }
        panic!("no connection");
    }

    /// The names of the events that the calling thread recorded since the begin, in order.
    fn names(&self) -> Vec<String> {
        self.lines().into_iter().map(|(name, _)| name).collect()
    }

    fn lines(&self) -> Vec<(String, String)> {
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let mine = self.events().into_iter();
        mine.map(|event| (text(&event["event"]), text(&event["text"])))
            .collect()
    }

    /// Those that the calling thread recorded: other tests' stacks record beside it.
    fn events(&self) -> Vec<Value> {
        let all = answer(&format!("read 1000000 {}", self.begin)).unwrap();
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let is_mine = |event: &&Value| {
            let thread = usize::try_from(event["thread"].as_u64().unwrap()).unwrap();
            all["threads"][thread]["thread"] == me
        };
        let events = all["events"].as_array().unwrap().iter();
        events.filter(is_mine).cloned().collect()
    }
}

fn position(names: &[String], name: &str) -> usize {
    let found = names.iter().position(|n| n == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", &names[..names.len().min(30)]))
}

#[test]
fn a_connections_life_can_be_read() {
    let _alone = alone();
    let pair = Pair::new();
    let (client, server) = pair.connect();
    drop(client);
    pair.turn(20, Duration::from_micros(10));
    drop(server);
    pair.turn(50, Duration::from_millis(5));
    let lines = pair.lines();
    let names = pair.names();
    let order = [
        "tcp-connect",
        "tcp-established",
        "tcp-peer-closed",
        "tcp-time-wait",
    ];
    let places: Vec<_> = order.iter().map(|name| position(&names, name)).collect();
    assert!(places.is_sorted(), "{names:?}");
    position(&names, "tcp-closed");
    let connect = &lines[places[0]].1;
    assert!(
        connect.starts_with("shard=0 connection=") && connect.ends_with("to remote_port=80"),
        "{connect}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name == "turn-begin" || name == "link-in"),
        "details without being asked for: {names:?}"
    );
}

#[test]
fn lost_segments_and_closed_windows_can_be_read() {
    let _alone = alone();
    let pair = Pair::new();
    let (client, server) = pair.connect();
    // The server does not read: its window closes, and the client asks for it.
    let text = [7; 16384];
    for _ in 0..4000 {
        let _ = client.send(&[IoSlice::new(&text)], None);
        pair.turn(1, Duration::from_micros(100));
    }
    pair.turn(200, Duration::from_millis(20));
    let mut buffer = [0; 65536];
    for _ in 0..400 {
        let _ = server.receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default());
        pair.turn(1, Duration::from_millis(20));
    }
    let names = pair.names();
    let order = ["tcp-zero-window", "tcp-persist", "tcp-window-open"];
    let places: Vec<_> = order.iter().map(|name| position(&names, name)).collect();
    assert!(places.is_sorted(), "{names:?}");
    // The server is not turned any more: the client's timer expires.
    let _ = client.send(&[IoSlice::new(&text[..100])], None);
    for _ in 0..100 {
        pair.nets[0].poll();
        pair.clock.advance(Duration::from_millis(50));
    }
    let lines = pair.lines();
    let timeouts: Vec<_> = lines
        .iter()
        .filter(|line| line.0 == "tcp-timeout")
        .collect();
    assert!(
        timeouts.len() >= 2 && timeouts[1].1.contains("attempt=2 in a row"),
        "{timeouts:?}"
    );
}

#[test]
fn a_fast_retransmit_can_be_read() {
    let _alone = alone();
    let lossy = wire::Options {
        loss: wire::Probability::new(0.02),
        delay: Duration::from_micros(100),
        seed: 3,
        ..wire::Options::default()
    };
    let pair = Pair::over(&lossy);
    let (client, server) = pair.connect();
    let mut buffer = vec![7; 1 << 16];
    for _ in 0..2000 {
        let _ = client.send(&[IoSlice::new(&buffer.clone())], None);
        let _ = server.receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default());
        pair.turn(1, Duration::from_micros(100));
    }
    position(&pair.names(), "tcp-fast-retransmit");
}

#[test]
fn details_and_stages_are_recorded_while_watched() {
    let _alone = alone();
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let exchange = || {
        client.send(&[IoSlice::new(b"x")], None).unwrap();
        pair.turn(3, Duration::from_micros(10));
        let mut buffer = [0; 8];
        server
            .receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default())
            .unwrap();
    };
    assert_eq!(answer("start").unwrap()["level"], "all");
    exchange();
    let names = pair.names();
    for name in ["turn-begin", "turn-end", "link-in", "shard-out"] {
        position(&names, name);
    }
    for _ in 0..1000 {
        exchange();
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    let me = format!(" {number}");
    let mine = |spent: &stages::Spent| spent.thread.ends_with(&me);
    let spent = stages::read().into_iter().find(mine).unwrap();
    for stage in [
        Stage::Link,
        Stage::Protocol,
        Stage::Socket,
        Stage::Application,
    ] {
        assert!(spent.ns[stage as usize] > 0, "{stage:?}: {spent:?}");
    }
    assert_eq!(answer("stop").unwrap()["level"], "rare");
    let written = || {
        let all = answer("read 0 0").unwrap();
        let threads = all["threads"].as_array().unwrap();
        let own = threads.iter().find(|t| t["thread"] == number);
        own.unwrap()["events"].as_u64().unwrap()
    };
    let (count, spent) = (written(), stages::read().into_iter().find(mine));
    exchange();
    assert_eq!(written(), count);
    assert!(
        count > 4000,
        "each exchange has more than four events: {count}"
    );
    assert_eq!(stages::read().into_iter().find(mine), spent);
}

#[test]
fn switched_off_it_is_silent() {
    let _alone = alone();
    let pair = Pair::new();
    set_level(Level::Off);
    let _sockets = pair.connect();
    assert_eq!(level(), Level::Off);
    set_level(Level::Rare);
    let names = pair.names();
    assert!(
        !names.iter().any(|name| name.starts_with("tcp")),
        "{names:?}"
    );
}

#[test]
fn threads_that_come_and_go_share_the_rings() {
    let _alone = alone();
    super::prepare(crate::limits::TRACE_RECORDS).unwrap();
    for _ in 0..3 * crate::limits::TRACE_THREADS {
        let thread = std::thread::spawn(|| {
            note(super::TIMER, [4711, 1]);
            here().is_some()
        });
        assert!(
            thread.join().unwrap(),
            "a ring came back too late, or never"
        );
    }
    let all = answer("read 1000000 0 timer").unwrap();
    let events = all["events"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|e| e["text"].as_str().unwrap().contains("shard=4711"))
    );
}

#[test]
fn what_should_not_be_asked_is_refused() {
    for request in [
        "",
        "read",
        "read 1",
        "read x 0",
        "read 1 -1",
        "read 1 0 nonsense",
        "read 1 0 drop,",
        "read 1 0 drop x",
        "read 99999999999999999999999 0",
        "start now",
        "start 16",
        "start drop x",
        "start drop -1",
        "start drop 1048576",
        "start drop 99999999999999999999999",
        "start drop ",
        "start drop 16 ",
        "start drop 16 x",
        "start  16",
        "start ,",
        "start drop,drop",
        "start drop=",
        "start drop=nonsense",
        "start drop=frames_in",
        "start latency",
        "start latency=",
        "start latency=us",
        "start latency=200",
        "start latency=-1us",
        "start latency=0us",
        "start latency=999ns",
        "start latency=11s",
        "start latency=18446744073709551616ns",
        "start latency=18446744073709551s",
        "start latency=2\u{b5}s",
        "start watchdog=1",
        "start watchdog,watchdog",
        "start \u{0}",
        "stop  ",
        "read 1 0 \u{0}",
        "read  1 0",
    ] {
        assert!(answer(request).is_err(), "{request:?}");
    }
    let one = answer("read 1 0").unwrap();
    assert!(one["events"].as_array().unwrap().len() <= 1);
    assert!(answer(&format!("read {} {}", u64::MAX, u64::MAX)).is_ok());
}

#[test]
fn every_event_has_a_name_of_its_own_and_english() {
    for (i, line) in EVENTS.lines().iter().enumerate() {
        let others = EVENTS
            .lines()
            .iter()
            .filter(|other| other.name == line.name);
        assert_eq!(others.count(), 1, "{}", line.name);
        assert!(
            line.text.contains(' ') && !line.name.contains([' ', ',']),
            "{i}"
        );
    }
}

#[test]
fn drops_are_known_by_their_numbers() {
    for counter in Counter::ALL {
        let is_drop = counter.name().starts_with("drop_");
        assert_eq!(counter.is_drop(), is_drop, "{}", counter.name());
    }
}

/// Rings are the process's: this is looked at in a process of its own.
#[test]
fn first_stack_says_how_many_events_a_ring_keeps() {
    run_apart("trace::tests::rings_of_128_events");
}

/// Runs an ignored test in a process of its own, since what it looks at is the process's.
fn run_apart(child: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let done = command.args([child, "--exact", "--ignored"]).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
#[ignore = "run by first_stack_says_how_many_events_a_ring_keeps"]
fn rings_of_128_events() {
    const EVENTS: usize = 128;
    let start = |builder: crate::Builder| {
        let (near, _far) = wire::pair(&wire::Options::default());
        let builder = builder.threads(Threads::Caller).link_with(Box::new(near));
        builder.address("10.0.0.1/24").unwrap().start()
    };
    let shown = |net: &Net| {
        let settings = net.show("settings").unwrap();
        let mut rows = settings.as_array().unwrap().iter();
        rows.find(|row| row["name"] == "trace_events").unwrap()["value"].clone()
    };
    for bad in [0, 32, 63, 65, 1000, (1 << 20) + 1, 1 << 21, usize::MAX] {
        let refused = start(Net::builder().trace_events(bad)).expect_err("refused");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{bad}");
        assert!(refused.to_string().contains("64 to 1048576"), "{refused}");
    }
    let config = crate::config::Config::parse(&format!("trace_events = {EVENTS}"), "x").unwrap();
    let first = start(crate::Builder::from_config(&config).unwrap()).unwrap();
    let second = start(Net::builder().trace_events(4096)).unwrap(); // too late
    assert_eq!((shown(&first), shown(&second)), (128.into(), 128.into()));
    for number in 0..10 * EVENTS as u64 {
        note(super::TIMER, [number, 1]);
    }
    let kept = answer("read 1000000 0 timer").unwrap();
    assert_eq!(kept["events"].as_array().unwrap().len(), EVENTS);
}
