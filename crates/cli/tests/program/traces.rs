//! `netchan trace` from outside.

use std::path::Path;

use netchan::{Net, Regime, control, link::wire};
use serde_json::Value;

use super::{
    Runtime,
    decode::{Decoded, decode},
};

#[test]
fn trace_reads_what_a_stack_has_recorded() {
    let runtime = Runtime::new("trace");
    // The trace is the process's: a stack on a wire of its own, and a control socket where only this test looks.
    let net = Net::builder()
        .link("wire:trace-test")
        .and_then(|builder| builder.address("10.0.0.1/24"))
        .and_then(netchan::Builder::start)
        .unwrap();
    let _control = control::serve_in(&runtime.sockets(), |_: &str| None).unwrap();
    let patience = std::time::Duration::from_millis(50);
    let refused = net
        .tcp()
        .connect_timeout("10.0.0.9:7".parse().unwrap(), patience);
    assert!(refused.is_err());
    let pid = std::process::id().to_string();
    let trace = |more: &[&str]| runtime.run(&[&["trace", "--pid", &pid], more].concat());
    let (status, out, err) = trace(&[]);
    assert_eq!((status, err.as_str()), (0, ""));
    for part in [
        "# a trace event takes",
        "# netchan-link0 ",
        "tcp-connect: shard=0",
        "remote_port=7",
    ] {
        assert!(out.contains(part), "{part} is missing:\n{out}");
    }
    let (_, out, _) = trace(&["--event", "tcp-connect", "--last", "1", "--json"]);
    let facts: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(facts["events"].as_array().unwrap().len(), 1);
    assert_eq!(facts["events"][0]["event"], "tcp-connect");
    let (status, _, err) = trace(&["--event", "nonsense"]);
    assert!(status == 2 && err.contains("tcp-connect"), "{err}");
    let (_, out, _) = trace(&["start"]);
    assert_eq!(out, format!("process {pid}: records all\n"));
    let (_, out, _) = trace(&["stop"]);
    assert_eq!(out, format!("process {pid}: records rare\n"));
    let file = runtime.0.join("trace.json");
    let (status, ..) = trace(&["export", "--perfetto", file.to_str().unwrap()]);
    let all = decode(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(status, 0);
    assert!(all.instants.iter().any(|(name, _)| name == "tcp-connect"));
    options_that_make_no_sense(&trace);
    packets_are_followed(&trace, &file);
}

type Run<'a> = &'a dyn Fn(&[&str]) -> (i32, String, String);

fn options_that_make_no_sense(trace: Run<'_>) {
    for (options, says) in [
        (&["stop", "--stop-on", "drop"][..], "--stop-on is for"),
        (&["--stop-on", "drop"], "--stop-on is for"),
        (&["start", "--after", "5"], "--stop-on"),
        (&["start", "--stop-on", "drop", "--after=-1"], "--after"),
        (
            &["start", "--stop-on", "drop", "--after", "1048576"],
            "fewer than the 1024",
        ),
        (&["start", "--stop-on", ""], "takes no ``"),
        (&["start", "--stop-on", "drop 5"], "takes no `drop 5`"),
        (&["start", "--stop-on", "drop,\n"], "takes no `\\n`"),
        (&["start", "--stop-on", "dorp"], "not on `dorp`"),
        (&["start", "--stop-on", "drop=heat"], "reasons are ethernet"),
        (&["start", "--stop-on", "latency"], "As in latency=200us"),
        (&["start", "--stop-on", "latency=5"], "give 1us to 10s"),
        (
            &["start", "--stop-on", "watchdog", "--stop-on", "watchdog"],
            "said twice",
        ),
    ] {
        let (status, out, err) = trace(options);
        assert_eq!((status, out.as_str()), (2, ""), "{options:?}: {err}");
        assert!(err.contains(says), "{options:?}: {err}");
    }
}

/// Two stacks with threads of their own, a wire between them: packets go from a link's thread to another one, and a drop stops the recording.
fn packets_are_followed(trace: Run<'_>, file: &Path) {
    let (a, b) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let builder = Net::builder().regime(Regime::DriverChannel);
        let builder = builder.link_with(Box::new(link)).address(address);
        builder.unwrap().start().unwrap()
    };
    let nets = [start(a, "10.0.1.1/24"), start(b, "10.0.1.2/24")];
    let socket = |net: &Net| net.udp().bind("0.0.0.0:7").unwrap();
    let (from, to) = (socket(&nets[0]), socket(&nets[1]));
    let mut buffer = [0; 8];
    let mut exchange = || {
        from.send_to(b"x", "10.0.1.2:7").unwrap();
        to.recv_from(&mut buffer).unwrap();
    };
    exchange();
    let on = [
        "--stop-on",
        "drop=udp_no_socket,latency=10s",
        "--stop-on",
        "watchdog",
        "--after",
        "100",
    ];
    let (_, out, err) = trace(&[&["start"], &on[..]].concat());
    let waits = "waits for drop=drop_udp_no_socket, latency=10000000000ns, watchdog\n";
    assert!(
        out.ends_with(&format!("records all, {waits}")),
        "{out}{err}"
    );
    (0..20).for_each(|_| exchange());
    let (_, out, _) = trace(&["--last", "0"]);
    assert!(out.contains(&format!("# armed: {waits}")), "{out}");
    from.send_to(b"x", "10.0.1.2:9").unwrap();
    let mut more = 0;
    loop {
        exchange();
        more += 1;
        let (_, out, _) = trace(&["--last", "0"]);
        if out.contains("# stopped: a packet was dropped: drop_udp_no_socket, at ") {
            break;
        }
        assert!(more < 1000, "{out}");
    }
    let (status, out, err) = trace(&["export", "--perfetto", file.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("# stopped: "), "{out}");
    they_are_told(&decode(&std::fs::read_to_string(file).unwrap()));
    let (_, out, _) = trace(&["stop"]);
    assert!(out.ends_with("records rare\n"), "{out}");
}

/// Packets that went from thread to thread, what was held and slept, and the moment before the drop.
fn they_are_told(all: &Decoded) {
    let links = all
        .threads
        .iter()
        .filter(|(_, name)| name.starts_with("netchan-link0"));
    let links: Vec<u32> = links.map(|(&thread, _)| thread).collect();
    let across = all.flows.values().filter(|places| {
        let (first, last) = (places[0].1, places[places.len() - 1].1);
        links.contains(&first) && first != last && places.len() >= 4
    });
    assert!(across.count() >= 20, "{:?}", all.flows);
    assert!(
        all.counters.keys().any(|name| name == "queue 0 to shard 0"),
        "{:?}",
        all.counters
    );
    let slices: Vec<_> = all.slices.values().flatten().collect();
    for name in ["holds shard 0", "packet", "sleeps", "packet-read"] {
        assert!(slices.iter().any(|(n, ..)| n == name), "{name}");
    }
    let at = |name: &str| all.instants.iter().find(|(n, _)| n == name).unwrap().1;
    assert!(at("shard-drop") <= at("trigger"));
    let before = slices
        .iter()
        .filter(|(_, from, _)| *from < at("trigger"))
        .count();
    assert!(before >= 100, "the moment before is kept: {before}");
}
