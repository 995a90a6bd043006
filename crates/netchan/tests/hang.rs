//! A stack that hangs, looked at from another process (F8): every question is answered within a bound, thread and module are named, and the
//! watchdog has said so on the stack's own stderr.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use percore::clock::now_ns;

use netchan::{
    Net,
    control::{self, TOPICS},
    link::wire,
    log::Verbosity,
    module::{Boxed, Module, Point, Verdict, View},
};

/// Set for the process that hangs.
const CHILD: &str = "NETCHAN_TEST_HANGS";
/// For how long it does: longer than any look at it.
const SPIN: Duration = Duration::from_secs(15);
/// An answer takes 0.3 s where a lock cannot be had; the rest is for a loaded machine.
const BOUND: Duration = Duration::from_millis(2500);

fn since(begin: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(begin))
}

/// Computes for seconds inside a turn of the link's thread.
struct Spin;

impl Module for Spin {
    fn name(&self) -> &str {
        "spin"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, _: &View<'_>, _: proto::time::Instant) -> Verdict {
        let begin = now_ns();
        while since(begin) < SPIN {
            std::hint::spin_loop();
        }
        Verdict::Pass
    }
}

#[test]
#[ignore = "run by the test below, as a process of its own"]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    netchan::log::install(Verbosity::Usual, |line| eprint!("{line}"));
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let builder = |link, address: &str| Net::builder().link_with(link).address(address).unwrap();
    let client = builder(Box::new(ours), "10.0.0.1/24").start().unwrap();
    let server = builder(Box::new(theirs), "10.0.0.2/24");
    let server = server
        .module(Boxed::any(Spin))
        .control(true)
        .start()
        .unwrap();
    let _socket = server.udp().bind("0.0.0.0:9").unwrap();
    let sender = client.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    eprintln!("it hangs");
    // Until the test has seen enough, and ends us.
    let _ = std::io::stdin().read(&mut [0]);
    thread::sleep(SPIN);
}

/// Ends the process with the test, however that ends.
struct Hanging(Child);

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn show_sees_a_hang_in_another_process() {
    let runtime = std::env::temp_dir().join(format!("netchan-hang-{}", std::process::id()));
    fs::create_dir_all(&runtime).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .env("XDG_RUNTIME_DIR", &runtime)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Hanging(child);
    let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "it hangs"));
    let stacks = control::stacks_in(&[runtime.join("netchan")]);
    let [stack] = &stacks[..] else {
        panic!("{stacks:?}");
    };
    assert_eq!(stack.pid, child.0.id());
    let show = |topic: &str| {
        let begin = now_ns();
        let text = stack.show(topic).unwrap().to_string();
        let took = since(begin);
        assert!(took < BOUND, "{topic} took {took:?}: {text}");
        text
    };
    let begin = now_ns();
    let threads = loop {
        let threads = show("threads");
        if threads.contains("stuck") || since(begin) > SPIN {
            break threads;
        }
        thread::sleep(Duration::from_millis(100));
    };
    for part in ["stuck", "netchan-link0", "in module 'spin' (in)"] {
        assert!(threads.contains(part), "{part}: {threads}");
    }
    TOPICS.into_iter().for_each(|topic| drop(show(topic)));
    let watchdog = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("watchdog")));
    let watchdog = watchdog.unwrap().unwrap();
    assert!(
        watchdog.contains("netchan-link0") && watchdog.contains("'spin'"),
        "{watchdog}"
    );
    drop(child);
    let _ = fs::remove_dir_all(&runtime);
}
