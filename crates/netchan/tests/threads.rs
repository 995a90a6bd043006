//! The threads that each regime has: those that it names, and none once the stack has ended. Alone in its process, whose threads it lists.

use std::{fs, thread, time::Duration};

use netchan::{Dispatch, Net, Regime, link::wire};

/// The names of netchan's threads in this process, sorted.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<fs::DirEntry>| {
        // A thread may end while we look.
        let name = fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        Some(name.trim_end().to_owned()).filter(|name| name.starts_with("netchan-"))
    };
    let mut names: Vec<_> = tasks.filter_map(name).collect();
    names.sort();
    names
}

/// Threads name themselves when they begin: waits for it.
fn soon(expected: &[String]) {
    let there = (0..500).any(|_| {
        let found = threads() == expected;
        if !found {
            thread::sleep(Duration::from_millis(10));
        }
        found
    });
    assert!(there, "{:?}, not {expected:?}", threads());
}

#[test]
fn every_regime_has_the_threads_it_names_and_ends_them() {
    let proto = |n: usize| (0..n).map(|i| format!("netchan-proto{i}")).collect();
    let core = |n: usize| (0..n).map(|i| format!("netchan-core{i}")).collect();
    let none: Vec<String> = Vec::new();
    let cores = netchan::regime::cores();
    for (regime, dispatch, workers) in [
        (Regime::Giant, Dispatch::Direct, none.clone()),
        (Regime::Locked, Dispatch::Direct, none.clone()),
        (Regime::Locked, Dispatch::Hybrid, none.clone()),
        (Regime::Giant, Dispatch::Deferred, proto(1)),
        (Regime::Locked, Dispatch::Deferred, proto(cores.min(8))),
        (Regime::PerCpu, Dispatch::Direct, core(cores)),
        (Regime::DriverChannel, Dispatch::Direct, proto(1)),
        (
            Regime::SocketChannel,
            Dispatch::Direct,
            vec!["netchan-poll".into()],
        ),
        (
            Regime::AppChannel,
            Dispatch::Direct,
            vec!["netchan-poll".into()],
        ),
    ] {
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let net = Net::builder()
            .link_with(Box::new(ours))
            .address("10.0.0.1/24");
        let net = net
            .unwrap()
            .link_with(Box::new(theirs))
            .address("10.0.1.1/24");
        let net = net
            .unwrap()
            .regime(regime)
            .dispatch(dispatch)
            .start()
            .unwrap();
        let listener = net.tcp().listen("0.0.0.0:80").unwrap();
        let mut expected = workers;
        expected.extend(["netchan-link0", "netchan-link1", "netchan-watch"].map(Into::into));
        expected.sort();
        soon(&expected);
        // As `netchan show threads` has it.
        let rows = net.show("threads").unwrap();
        let rows = rows.as_array().unwrap().iter();
        let own = rows.filter(|row| row["of"] == "stack");
        let mut shown: Vec<_> = own.filter_map(|row| row["name"].as_str()).collect();
        shown.sort_unstable();
        assert_eq!(shown, expected, "{regime}");
        drop(net);
        soon(&expected); // the listener holds it
        drop(listener);
        assert_eq!(threads(), none, "{regime} {dispatch:?}");
    }
}
