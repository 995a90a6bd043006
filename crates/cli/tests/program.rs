//! The program from outside: what it prints, where, and how it ends.

#[path = "program/daemon.rs"]
mod daemon;
#[path = "../src/trace/perfetto/decode.rs"]
mod decode;
#[path = "program/plots.rs"]
mod plots;
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;
#[path = "program/traces.rs"]
mod traces;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use netchan::control;
use serde_json::{Value, json};

fn netchan() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netchan"));
    command
        .env_remove("LD_PRELOAD")
        .env_remove("NETCHAN_PRELOAD")
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    netchan().args(arguments).output().unwrap()
}

/// (status, standard output, standard error)
fn run(arguments: &[&str]) -> (i32, String, String) {
    parts(&output(arguments))
}

fn parts(done: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        done.status.code().unwrap_or(-1),
        text(&done.stdout),
        text(&done.stderr),
    )
}

/// A runtime directory of its own, so that tests see their own stacks only.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("netchan-program-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn sockets(&self) -> PathBuf {
        self.0.join("netchan")
    }
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        parts(
            &netchan()
                .env("XDG_RUNTIME_DIR", &self.0)
                .args(arguments)
                .output()
                .unwrap(),
        )
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_names_what_works_and_nothing_else() {
    let (status, out, _) = run(&["--help"]);
    assert_eq!(status, 0);
    for command in [
        "demo", "run", "daemon", "show", "top", "web", "metrics", "capture", "inject", "extcap",
        "plot", "config", "trace", "doctor", "lab",
    ] {
        assert!(
            out.contains(&format!("  {command} ")),
            "{command} is missing:\n{out}"
        );
        let (status, help, _) = run(&[command, "--help"]);
        assert_eq!(status, 0, "{command}");
        assert!(help.contains("Example"), "{command}:\n{help}");
    }
    for other in ["__inner", "suspend", "upgrade"] {
        assert!(
            !out.contains(&format!("  {other} ")),
            "{other} is listed:\n{out}"
        );
    }
    let (status, out, _) = run(&["--version"]);
    assert!(status == 0 && out.starts_with("netchan 0."), "{out}");
}

#[test]
fn the_example_configuration_passes_its_check() {
    let (status, example, err) = run(&["config", "--example"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(example.contains("\ncongestion = \"cubic\"\n"), "{example}");
    let folder = Runtime::new("config");
    let file = folder.0.join("netchan.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, &example).unwrap();
    let (status, out, err) = run(&["config", "check", path]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("valid"), "{out}");
    std::fs::write(&file, example.replace("cubic", "vegas")).unwrap();
    let (status, out, err) = run(&["config", "check", path]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert!(err.contains("tcp.congestion: unknown"), "{err}");
    let (status, ..) = run(&["config", "check"]);
    assert_eq!(status, 2);
}

#[test]
fn a_log_file_that_cannot_be_opened_is_named() {
    for command in [
        &["config", "--example"][..],
        &["run", "--link", "loop", "--", "true"],
    ] {
        let done = netchan()
            .env("NETCHAN_PRELOAD", "/bin/true")
            .args([&["--log-file", "/no/such/file"], command].concat())
            .output()
            .unwrap();
        let (status, out, err) = parts(&done);
        assert_eq!((status, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("--log-file: /no/such/file: "), "{err}");
    }
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["show", "nonsense"],
        &["show", "links", "--watch=0"],
        &["show", "links", "--watch", "sockets"],
        &["show", "--watch", "x"],
        &["completions", "tcsh"],
        &["show", "-q", "-v"],
        &["run"],
        &["run", "--link", "tap:nc9", "--", "true"],
        &["run", "--address", "10.0.0.1/32", "--", "true"],
        &[
            "run",
            "--link",
            "tap:nc9",
            "--address",
            "10.0.0.1/24",
            "--regime",
            "fast",
            "--",
            "true",
        ],
        &["lab", "run"],
        &["lab", "run", "no-such-experiment"],
        &["demo", "--link", "string"],
        &["demo", "--seconds", "0"],
        &["doctor", "--frob"],
    ] {
        let (status, out, err) = run(arguments);
        assert_eq!(status, 2, "{arguments:?}: {out}{err}");
        assert!(out.is_empty() && !err.is_empty(), "{arguments:?}");
        assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    }
}

#[test]
fn what_is_wrong_with_a_link_is_said_before_what_is_missing() {
    for (link, reason) in [
        ("tapp:nc0", "unknown kind `tapp` (did you mean `tap`?)"),
        (
            "tap:nc0,peeer=10.0.0.1/24",
            "unknown option `peeer` (did you mean `peer`?)",
        ),
        ("tap:nc0,peer=10.0.0.1", "option `peer`"),
        ("tap:nc0", "--address"),
        ("wire:x", "leads nowhere"),
        ("wire:x,delay=1ms", "leads nowhere"),
    ] {
        let (status, _, err) = run(&["run", "--link", link, "--", "true"]);
        assert_eq!(status, 2, "{link}: {err}");
        let line = err.lines().next().unwrap_or_default();
        assert!(line.contains(reason), "{link}: {err}");
        assert!(!err.contains("NETCHAN_"), "{link}: {err}");
        let needs = err.contains("needs an address");
        assert_eq!(needs, link == "tap:nc0", "{link}: {err}");
    }
    let file = std::env::temp_dir().join(format!("netchan-wire-{}.toml", std::process::id()));
    std::fs::write(
        &file,
        "[[link]]\nkind = \"wire\"\nname = \"x\"\naddress = [\"10.0.0.1/24\"]\n",
    )
    .unwrap();
    let (status, _, err) = run(&["run", "--config", file.to_str().unwrap(), "--", "true"]);
    std::fs::remove_file(&file).unwrap();
    assert!(status == 1 && err.contains("leads nowhere"), "{err}");
}

#[test]
fn what_is_to_come_says_so() {
    for command in ["suspend", "resume", "upgrade"] {
        let (status, out, err) = run(&[command, "--help", "x", "-y"]);
        assert_eq!(status, 1, "{command}");
        assert!(
            out.is_empty() && err.contains("not supported yet"),
            "{command}: {err}"
        );
    }
}

#[test]
fn programs_that_cannot_run_are_refused_with_the_reason() {
    let given = ["run", "--link", "wire:x", "--address", "10.0.0.1/24", "--"];
    for (program, reason) in [
        ("no-such-program-anywhere", "no such program in PATH"),
        ("/no/such/file", "No such file"),
        ("/etc", "is a directory"),
        ("/proc/version", "chmod +x"),
    ] {
        let mut arguments = given.to_vec();
        arguments.push(program);
        let (status, out, err) = run(&arguments);
        assert_eq!(status, 1, "{err}");
        assert!(out.is_empty() && err.contains(reason), "{program}: {err}");
    }
    let done = netchan()
        .env("NETCHAN_PRELOAD", "/no/such/library.so")
        .args(["run", "--link", "loop", "--", "true"])
        .output()
        .unwrap();
    let (status, _, err) = parts(&done);
    assert!(status == 1 && err.contains("/no/such/library.so"), "{err}");
}

#[test]
fn show_without_a_stack_is_1() {
    let runtime = Runtime::new("none");
    // As root it looks in other users' places too; a stack that runs there is not ours to end.
    if !control::stacks().is_empty() {
        return skips::skipped_here("a stack runs on this machine");
    }
    let (status, out, err) = runtime.run(&["show", "links"]);
    assert!(
        status == 1 && out.is_empty() && err.contains("no netchan stack"),
        "{status} {out} {err}"
    );
}

#[test]
fn show_prints_what_a_stack_says() {
    let runtime = Runtime::new("one");
    let facts = |topic: &str| match topic {
        "links" => Some(json!([{ "name": "tap:nc0", "mtu_bytes": 1500, "drops": 0 }])),
        "memory" => Some(json!({ "used_bytes": 1_048_576 })),
        _ => None,
    };
    let _control = control::serve_in(&runtime.sockets(), facts).unwrap();
    let pid = std::process::id().to_string();
    let (status, out, err) = runtime.run(&["show", "links", "--pid", &pid]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(out, "name        mtu  drops\ntap:nc0  1500 B      0\n");
    let (status, out, _) = runtime.run(&["show", "links", "--json", "--pid", &pid]);
    assert_eq!(status, 0);
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        facts("links").unwrap()
    );
    let (_, out, _) = runtime.run(&["show", "memory", "--pid", &pid]);
    assert_eq!(out, "used  1.00 MiB\n");
    let (status, _, err) = runtime.run(&["show", "taps", "--pid", &pid]);
    assert!(status == 1 && err.contains("nothing to say"), "{err}");
    let (status, _, err) = runtime.run(&["show", "links", "--pid", "1"]);
    assert!(status == 1 && err.contains(&pid), "{err}");
    let (status, out, _) = runtime.run(&["show"]);
    assert!(status == 0 && out.contains(&pid), "{out}");
}

/// The words of ss(8) choose sockets; counters without zeros, and how fast they grow.
#[test]
fn show_chooses_and_counts() {
    let runtime = Runtime::new("choose");
    let begin = std::sync::atomic::AtomicU64::new(10);
    let facts = move |topic: &str| match topic {
        "sockets" => Some(json!([
            { "protocol": "tcp", "state": "LISTEN", "local": "0.0.0.0:80", "remote": null, "accept_queue": 1, "accept_queue_max": 5 },
            { "protocol": "tcp", "state": "ESTAB", "local": "10.0.0.1:80", "remote": "10.0.0.2:9" },
        ])),
        "counters" => {
            let value = begin.fetch_add(1000, std::sync::atomic::Ordering::Relaxed);
            Some(
                json!([{ "name": "zero", "value": 0, "meaning": "a" }, { "name": "many", "value": value, "meaning": "b" }]),
            )
        }
        _ => None,
    };
    let _control = control::serve_in(&runtime.sockets(), facts).unwrap();
    let pid = std::process::id().to_string();
    let show = |arguments: &[&str]| {
        let (status, out, err) = runtime.run(&[&["show", "--pid", &pid], arguments].concat());
        assert_eq!((status, err.as_str()), (0, ""), "{arguments:?}");
        out
    };
    let out = show(&["sockets", "state", "established", "and", "dport", "=", ":9"]);
    assert!(
        out.contains("10.0.0.2:9") && !out.contains("LISTEN"),
        "{out}"
    );
    let out = show(&["sockets", "--json", "exclude", "established"]);
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{out}");
    assert!(show(&["sockets"]).contains("1 of 5"));
    assert!(show(&["sockets", "--summary"]).contains("tcp       ESTAB         1\n"));
    let out = show(&["counters", "--nonzero", "--rate", "--json"]);
    let rows: Value = serde_json::from_str(&out).unwrap();
    let rate = rows[0]["rate_per_s"].as_f64().unwrap();
    assert!(
        rows.as_array().map(Vec::len) == Some(1) && (100.0..=1001.0).contains(&rate),
        "{out}"
    );
    for wrong in [
        &["sockets", "dport"][..],
        &["links", "--summary"],
        &["sockets", "--rate"],
    ] {
        let (status, _, err) = runtime.run(&[&["show", "--pid", &pid], wrong].concat());
        assert!(status == 2 && !err.is_empty(), "{wrong:?}: {err}");
    }
}

/// For Prometheus' text collector, and in OpenMetrics; a stack that cannot say all is not up.
#[test]
fn metrics_are_what_stacks_say() {
    let runtime = Runtime::new("metrics");
    let facts = |topic: &str| match topic {
        "memory" => None,
        "links" => Some(json!([{ "name": "tap:nc0", "rx_packets": 7 }])),
        _ => Some(json!([])),
    };
    let _control = control::serve_in(&runtime.sockets(), facts).unwrap();
    let pid = std::process::id().to_string();
    let (status, out, err) = runtime.run(&["metrics", "--pid", &pid]);
    assert_eq!((status, err.as_str()), (0, ""));
    let packets = "\nnetchan_link_receive_packets_total{stack=\"PID\",link=\"tap:nc0\"} 7\n";
    assert!(out.contains(&packets.replace("PID", &pid)), "{out}");
    let up = format!("\nnetchan_stack_up{{stack=\"{pid}\"}} 0\n");
    assert!(out.contains(&up), "{out}");
    let (status, out, _) = runtime.run(&["metrics", "--pid", &pid, "--format", "openmetrics"]);
    assert!(status == 0 && out.ends_with("# EOF\n"), "{out}");
    let (status, _, err) = runtime.run(&["metrics", "--listen", "0.0.0.0:0"]);
    assert!(status == 2 && err.contains("--token-file"), "{err}");
}

/// A stack whose process is stopped takes connections and says nothing. Only a program that asks for it waits for it.
#[test]
fn a_stack_that_says_nothing_does_not_delay_the_one_that_was_named() {
    let runtime = Runtime::new("silent");
    let facts = |_: &str| Some(json!([]));
    let _control = control::serve_in(&runtime.sockets(), facts).unwrap();
    let silent = runtime.sockets().join("1.sock");
    let _silent = std::os::unix::net::UnixListener::bind(silent).unwrap();
    let pid = std::process::id().to_string();
    #[allow(clippy::disallowed_methods)] // no stack here whose clock it could be
    let begin = std::time::Instant::now();
    let (status, _, err) = runtime.run(&["show", "links", "--pid", &pid]);
    let took = begin.elapsed();
    assert!(status == 0 && took.as_secs() < 3, "{took:?} {err}");
    let (status, _, err) = runtime.run(&["show", "links", "--pid", "1"]);
    assert!(status == 1 && err.contains("no answer within"), "{err}");
}

#[test]
fn show_tells_several_stacks_apart() {
    let runtime = Runtime::new("two");
    let _one = control::serve_in(&runtime.sockets(), |_: &str| Some(json!([{ "n": 1 }]))).unwrap();
    let _two = control::serve_in(&runtime.sockets(), |_: &str| Some(json!([{ "n": 2 }]))).unwrap();
    let pid = std::process::id().to_string();
    let (status, out, _) = runtime.run(&["show", "links", "--pid", &pid]);
    assert_eq!(status, 0);
    assert!(
        out.contains(&format!("stack {pid}: ")) && out.contains(&format!("stack {pid}-1: ")),
        "{out}"
    );
    let (_, out, _) = runtime.run(&["show", "links", "--pid", &format!("{pid}-1"), "--json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!([{ "n": 2 }])
    );
    let (_, out, _) = runtime.run(&["show", "links", "--pid", &pid, "--json"]);
    let both: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(both[&pid][0]["n"], 1);
    assert_eq!(both[format!("{pid}-1")][0]["n"], 2);
}

#[test]
fn watch_goes_on_until_the_stack_ends() {
    let runtime = Runtime::new("watch");
    let control =
        control::serve_in(&runtime.sockets(), |_: &str| Some(json!([{ "n": 1 }]))).unwrap();
    let child = netchan()
        .env("XDG_RUNTIME_DIR", &runtime.0)
        .args([
            "show",
            "links",
            "--watch=0.1",
            "--json",
            "--pid",
            &std::process::id().to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(control);
    let (status, out, _) = parts(&child.wait_with_output().unwrap());
    assert_eq!(status, 0);
    assert!(out.matches("[{\"n\":1}]\n").count() >= 2, "{out}");
}

/// Of a page that never ends, each form of the option, and how Ctrl-C ends it.
#[test]
fn watch_ends_with_an_interruption() {
    use std::io::{BufRead, BufReader};
    let runtime = Runtime::new("interrupted");
    let _control =
        control::serve_in(&runtime.sockets(), |_: &str| Some(json!([{ "n": 1 }]))).unwrap();
    let pid = std::process::id().to_string();
    for (arguments, heading) in [
        (&["links", "--watch", "0.05"][..], "n"),
        (&["--watch=0.05", "sockets"], "n"),
        (&["--watch", "--json", "counters"], "[{\"n\":1}]"),
        (&["--watch", "counters"], "n"),
        (&["--watch"], "stack"),
    ] {
        let mut child = netchan()
            .env("XDG_RUNTIME_DIR", &runtime.0)
            .args(["show", "--pid", &pid])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut pages = 0;
        while pages < 2 {
            let mut line = String::new();
            assert_ne!(
                out.read_line(&mut line).unwrap(),
                0,
                "{arguments:?}: it ended"
            );
            pages += usize::from(line.trim_end().split("  ").next() == Some(heading));
        }
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {done:?}");
        assert!(done.stderr.is_empty(), "{arguments:?}: {done:?}");
    }
}

#[test]
fn output_without_a_reader_is_no_error() {
    let mut child = netchan()
        .arg("doctor")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (_, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn doctor_says_what_it_found() {
    let (status, out, _) = run(&["doctor", "--json"]);
    assert!(status <= 1);
    let checks: Value = serde_json::from_str(&out).unwrap();
    let names: Vec<&str> = checks
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    for name in [
        "cores",
        "/dev/net/tun",
        "namespaces",
        "stolen time",
        "clock",
        "kernel's TCP",
        "build",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for check in checks.as_array().unwrap() {
        assert_eq!(check["mend"].is_null(), check["verdict"] == "ok", "{check}");
    }
    let bad = checks
        .as_array()
        .unwrap()
        .iter()
        .any(|check| check["verdict"] == "bad");
    assert_eq!(status == 1, bad);
}

#[test]
fn lab_lists_its_experiments() {
    let (status, out, _) = run(&["lab", "list"]);
    assert!(
        status == 0 && out.starts_with("name") && out.contains("path"),
        "{out}"
    );
    let (_, out, _) = run(&["lab", "list", "--json"]);
    assert!(serde_json::from_str::<Value>(&out).unwrap()[0]["question"].is_string());
}

#[test]
fn the_janitor_cleans_up_after_the_dead() {
    let directory = std::env::temp_dir().join(format!("netchan-janitor-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("deep")).unwrap();
    std::fs::write(directory.join("deep/file"), "x").unwrap();
    let mut janitor = netchan()
        .args(["__inner", "janitor"])
        .arg(&directory)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(directory.exists());
    drop(janitor.stdin.take());
    assert!(janitor.wait().unwrap().success());
    assert!(!Path::new(&directory).exists());
}

#[test]
fn a_child_ends_with_its_parent() {
    // A shell starts a sleeper as a child of its own and ends at once; the sleeper must not stay.
    let script = "\"$0\" __inner child $$ -- sleep 77 & echo $!; sleep 0.3";
    let done = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_netchan")])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let pid: i32 = String::from_utf8(done.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let alive = || {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("sleep"))
    };
    for _ in 0..100 {
        if !alive() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("process {pid} still runs");
}
