//! A worker that hangs: the watchdog says so, and every question is answered meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use percore::clock::now_ns;
use proto::time::Instant;
use serde_json::Value;

use crate::{
    Net, Regime,
    control::TOPICS,
    driver::module::{Boxed, Module, Point, Verdict, View},
    link::wire,
};

/// Does not come back from the first packet until it is let go.
struct Hang(Arc<AtomicBool>);

impl Module for Hang {
    fn name(&self) -> &str {
        "hang"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
        while !self.0.load(SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        Verdict::Pass
    }
}

/// Lets go when the test ends, however it does: the stack waits for its threads.
struct LetGo(Arc<AtomicBool>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Sees nothing worth seeing.
struct Late;

impl Module for Late {
    fn name(&self) -> &str {
        "late"
    }
    fn points(&self) -> &[Point] {
        &[Point::In, Point::Out]
    }
    fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
        Verdict::Pass
    }
}

fn thread_of(net: &Net, name: &str) -> Value {
    let rows = net.show("threads").unwrap();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no thread {name} in {rows}"))
        .clone()
}

/// Since `begin` on percore's clock.
fn passed(begin: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(begin))
}

/// Waits, at most ten seconds, until `is`.
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let there = (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is()
    });
    assert!(there, "{what}");
}

#[test]
fn a_worker_that_hangs_is_noticed_and_everything_is_answered() {
    for (regime, giant) in [
        (Regime::AppChannel, false),
        (Regime::Locked, false),
        (Regime::Locked, true),
        (Regime::Giant, false),
    ] {
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let net = Net::builder().link_with(link).address(address).unwrap();
            net.regime(regime).start().unwrap()
        };
        let (client, server) = (
            start(Box::new(ours), "10.0.0.1/24"),
            start(Box::new(theirs), "10.0.0.2/24"),
        );
        let socket = server.udp().bind("0.0.0.0:9").unwrap();
        soon("it has started", || {
            let state = thread_of(&server, "netchan-link0")["state"].clone();
            state == "asleep" || state == "turning"
        });
        let go = Arc::new(AtomicBool::new(false));
        let _end = LetGo(go.clone());
        let hang = Boxed::any(Hang(go.clone()));
        server
            .load_module(if giant { hang.under_giant() } else { hang })
            .unwrap();
        let sender = client.udp().bind("0.0.0.0:0").unwrap();
        sender.send_to(b"x", "10.0.0.2:9").unwrap();
        let begin = now_ns();
        soon("noticed", || {
            thread_of(&server, "netchan-link0")["state"] == "stuck"
        });
        assert!(
            passed(begin) >= Duration::from_millis(950),
            "after a second, not before"
        );
        let does = thread_of(&server, "netchan-link0")["does"].to_string();
        assert!(
            does.contains("turning link 0") && does.contains("in module 'hang' (in)"),
            "{does}"
        );
        for topic in TOPICS {
            let begin = now_ns();
            let answer = server.show(topic).unwrap();
            assert!(
                passed(begin) < Duration::from_secs(2),
                "{topic}: {:?}",
                passed(begin)
            );
            let text = answer.to_string();
            if matches!(topic, "links" | "locks") {
                assert!(
                    text.contains("netchan-link0") && text.contains("'hang'"),
                    "{regime} {topic}: {text}"
                );
            }
        }
        loading_gives_up(&server, giant);
        let free = thread_of(&client, "netchan-link0");
        assert_ne!(free["state"], "stuck", "{free}");
        go.store(true, SeqCst);
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket.recv_from(&mut [0; 8]).unwrap();
        soon("it turns again", || {
            thread_of(&server, "netchan-link0")["state"] != "stuck"
        });
        server.load_module(late(giant)).unwrap();
    }
}

fn late(giant: bool) -> Boxed {
    let late = Boxed::any(Late);
    if giant { late.under_giant() } else { late }
}

/// Beside a worker that hangs, a module is not loaded at all, and its loader is told why.
fn loading_gives_up(server: &Net, giant: bool) {
    let begin = now_ns();
    let error = server.load_module(late(giant)).unwrap_err();
    assert!(
        passed(begin) < Duration::from_secs(10),
        "{:?}",
        passed(begin)
    );
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let text = error.to_string();
    assert!(
        text.contains("'late' is not loaded") && text.contains("netchan-link0"),
        "{text}"
    );
    let modules = server.show("modules").unwrap().to_string();
    assert!(!modules.contains("\"late\""), "{modules}");
}

/// What a shard's channel has no room for is said of the channel, and counted once.
fn a_full_channel_counts_what_it_refuses(server: &Net, send: impl Fn()) {
    let value = |topic: &str, name: &str, field: &str| {
        let rows = server.show(topic).unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name || row["shard"] == 0);
        row.and_then(|row| row[field].as_u64()).unwrap_or(0)
    };
    soon("its channel is full", || {
        (0..1000).for_each(|_| send());
        value("channels", "", "received_drops") > 0
    });
    soon("all has come", || {
        let counted = value("counters", "drop_channel_full", "value");
        value("channels", "", "received_drops") == counted
    });
    let thread = thread_of(server, "netchan-link0");
    assert!(
        thread["core"].is_u64() && thread["cpu_s"].is_f64(),
        "{thread}"
    );
}

#[test]
fn a_shard_that_no_thread_turns_is_noticed() {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let net = Net::builder().link_with(link).address(address).unwrap();
        net.regime(Regime::AppChannel).start().unwrap()
    };
    let (client, server) = (
        start(Box::new(ours), "10.0.0.1/24"),
        start(Box::new(theirs), "10.0.0.2/24"),
    );
    let socket = server.udp().bind("0.0.0.0:9").unwrap();
    let sender = client.udp().bind("0.0.0.0:0").unwrap();
    let (held, let_go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let stuck = {
        let (stack, held, let_go) = (server.stack().clone(), held.clone(), let_go.clone());
        // A thread of the application that does not come out of a call.
        thread::spawn(move || {
            let _shard = stack.sockets.cells[0].held.lock();
            held.store(true, SeqCst);
            while !let_go.load(SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let _end = LetGo(let_go.clone());
    soon("it is held", || held.load(SeqCst));
    assert!(!server.stack().sockets.cells[0].forsaken.load(SeqCst));
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    let begin = now_ns();
    soon("noticed", || {
        server.stack().sockets.cells[0].forsaken.load(SeqCst)
    });
    assert!(
        passed(begin) >= Duration::from_millis(950),
        "not before a second has passed"
    );
    let shards = server.show("shards").unwrap().to_string();
    assert!(shards.contains("nobody takes them"), "{shards}");
    a_full_channel_counts_what_it_refuses(&server, || {
        let _ = sender.send_to(b"x", "10.0.0.2:9");
    });
    let_go.store(true, SeqCst);
    stuck.join().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket.recv_from(&mut [0; 8]).unwrap();
    soon("it is turned again", || {
        !server.stack().sockets.cells[0].forsaken.load(SeqCst)
    });
}
