//! The program against the real system: namespaces, devices, signals. Runs where `NETCHAN_SYSTEM=1` is set (`make test`),
//! with the preload library built beside the program (`make test-all` lays it there).

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use netchan::Regime;
use serde_json::Value;

#[path = "system/captures.rs"]
mod captures;
#[path = "system/changes.rs"]
mod changes;
#[path = "system/children.rs"]
mod children;
#[path = "system/datagrams.rs"]
mod datagrams;
#[path = "system/forking.rs"]
mod forking;
#[path = "system/frames.rs"]
mod frames;
#[path = "system/groups.rs"]
mod groups;
#[path = "system/handed.rs"]
mod handed;
#[path = "system/keeping.rs"]
mod keeping;
#[path = "system/loopback.rs"]
mod loopback;
#[path = "system/pings.rs"]
mod pings;
#[path = "system/ports.rs"]
mod ports;
#[path = "system/sandbox.rs"]
mod sandbox;
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;
#[path = "system/supervised.rs"]
mod supervised;
#[path = "system/top.rs"]
mod top;
#[path = "system/users.rs"]
mod users;

use skips::skipped_here;

fn now_ns() -> u64 {
    netchan::Clock::Real.now().0
}

/// Whether to run at all.
fn wanted() -> bool {
    let wanted = std::env::var_os("NETCHAN_SYSTEM").is_some_and(|v| v == "1");
    if !wanted {
        skipped_here("NETCHAN_SYSTEM=1 is not set");
    }
    wanted
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory of its own, for what the program under test leaves behind (nothing).
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("netchan-system-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    /// What lies in it, beside an empty directory for control sockets.
    fn entries(&self) -> Vec<PathBuf> {
        let inside = |path: &Path| {
            fs::read_dir(path)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
        };
        let sockets = self.0.join("netchan");
        inside(&self.0)
            .filter(|path| *path != sockets)
            .chain(inside(&sockets))
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_netchan");

fn netchan(scratch: &Scratch) -> Command {
    let mut command = Command::new(PROGRAM);
    prepare(&mut command, scratch);
    command
}

/// The program with SIGINT as a shell in the foreground gives it. Where these tests run in a script's background or under nohup it is
/// ignored, and a program that is started so must leave it so (POSIX, XCU 2.12): then nothing would end it.
fn netchan_interruptible(scratch: &Scratch) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(PROGRAM);
    prepare(&mut command, scratch);
    command
}

/// The program in a network namespace of its own.
fn netchan_apart(scratch: &Scratch) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(if is_root() {
            &["-n"][..]
        } else {
            &["-r", "-n"]
        })
        .arg(PROGRAM);
    prepare(&mut command, scratch);
    command
}

fn prepare(command: &mut Command, scratch: &Scratch) {
    command
        .env("TMPDIR", &scratch.0)
        .env("XDG_RUNTIME_DIR", &scratch.0)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has_tun() -> bool {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .is_ok()
}

const QUICK: [&str; 6] = ["demo", "--size", "8", "--seconds", "0.1", "--json"];

/// What a demo that went well says.
fn check_demo(done: &Output, link: &str, scratch: &Scratch) -> Value {
    assert!(
        done.status.success(),
        "{}: {}",
        done.status,
        text(&done.stderr)
    );
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(facts["link"], link, "{}", text(&done.stderr));
    let transfers = facts["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 2);
    assert!(
        transfers
            .iter()
            .all(|t| t["verified"] == true && t["bytes"] == 8 << 20)
    );
    let rows = facts["rows"].as_array().unwrap();
    let stacks: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["stack"].as_str())
        .collect();
    let mut expected: Vec<_> = Regime::here().map(|r| format!("netchan, {r}")).collect();
    expected.push("Linux, loopback".into());
    assert_eq!(stacks, expected);
    for row in rows {
        for key in [
            "bulk_in_gbit_per_s",
            "bulk_out_gbit_per_s",
            "rr_p50_ns",
            "rr_p99_ns",
            "rr_per_s",
        ] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert!(
        scratch.entries().is_empty(),
        "left behind: {:?}",
        scratch.entries()
    );
    facts
}

#[test]
fn the_demo_runs_on_every_link() {
    if !wanted() {
        return;
    }
    for link in ["tap", "packet", "wire"] {
        if link == "tap" && !has_tun() {
            skipped_here("no /dev/net/tun for the link tap");
            continue;
        }
        let scratch = Scratch::new(link);
        let started = now_ns();
        let done = netchan(&scratch)
            .args(QUICK)
            .args(["--link", link])
            .output()
            .unwrap();
        check_demo(&done, link, &scratch);
        assert!(now_ns() - started < 60_000_000_000);
    }
}

#[test]
fn the_demo_needs_neither_root_nor_python_nor_curl() {
    if !wanted() {
        return;
    }
    let scratch = Scratch::new("nobody");
    let mut command = netchan(&scratch);
    command.args(QUICK).env("PATH", "/nowhere");
    if is_root() {
        std::os::unix::fs::chown(&scratch.0, Some(65_534), Some(65_534)).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let done = match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return skipped_here("the program lies where another user cannot reach it");
        }
        done => done.unwrap(),
    };
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let link = facts["link"].as_str().unwrap_or_default().to_owned();
    assert!(
        ["tap", "packet", "wire"].contains(&link.as_str()),
        "{}",
        text(&done.stderr)
    );
    let facts = check_demo(&done, &link, &scratch);
    if link != "wire" {
        assert_eq!(facts["namespace"], "user");
        assert_eq!(
            facts["transfers"][0]["client"],
            "a small client on std::net"
        );
    }
}

/// Processes whose environment names `scratch`.
fn processes_of(scratch: &Scratch) -> Vec<String> {
    let needle = scratch.0.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            text(&environ).contains(needle)
        })
        .map(|entry| {
            text(&fs::read(entry.path().join("cmdline")).unwrap_or_default()).replace('\0', " ")
        })
        .filter(|line| !line.is_empty())
        .collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = now_ns() + 15_000_000_000;
    while !holds() {
        assert!(now_ns() < end, "not within 15 s: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_demo_that_is_ended_leaves_nothing() {
    if !wanted() {
        return;
    }
    for signal in [
        rustix::process::Signal::INT,
        rustix::process::Signal::TERM,
        rustix::process::Signal::KILL,
    ] {
        let scratch = Scratch::new(&format!("ended-{}", signal.as_raw()));
        let mut child = netchan_interruptible(&scratch)
            .args(["demo", "--size", "64", "--seconds", "20"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Until a server runs: then there is most to clean up.
        wait_until("a server runs", || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the demo ended too early"
            );
            processes_of(&scratch)
                .iter()
                .any(|line| line.contains("serve") || line.contains("http.server"))
        });
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        wait_until("all processes have ended", || {
            processes_of(&scratch).is_empty()
        });
        wait_until("the directory is gone", || {
            scratch
                .entries()
                .iter()
                .all(|path| !text_of(path).contains("netchan-demo"))
        });
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_program_keeps_its_number_its_status_and_its_signals() {
    if !wanted() {
        return;
    }
    let scratch = Scratch::new("status");
    let run = |command: &[&str]| {
        let given = ["run", "--link", "loop", "--address", "10.9.9.9/32", "--"];
        netchan(&scratch)
            .args(given)
            .args(command)
            .output()
            .unwrap()
    };
    assert_eq!(run(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(
        run(&["sh", "-c", "kill -TERM $$"]).status.signal(),
        Some(15)
    );
    assert_eq!(text(&run(&["echo", "--help", "-x"]).stdout), "--help -x\n");
    let child = netchan(&scratch)
        .args([
            "run",
            "--link",
            "loop",
            "--address",
            "10.9.9.9/32",
            "--",
            "sh",
            "-c",
            "echo $$",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert_eq!(
        text(&child.wait_with_output().unwrap().stdout).trim(),
        pid.to_string()
    );
}

#[test]
fn programs_out_of_the_loaders_reach_are_refused() {
    const PROGRAM: &str = "/usr/bin/su";
    if !wanted() {
        return;
    }
    if !is_root() || !Path::new(PROGRAM).exists() {
        return skipped_here("needs root, and su");
    }
    let scratch = Scratch::new("reach");
    std::os::unix::fs::chown(&scratch.0, Some(65_534), Some(65_534)).unwrap();
    let mut command = netchan(&scratch);
    command.args(["run", "--link", "loop", "--address", "10.9.9.9/32"]);
    command.args(["--", PROGRAM]).uid(65_534).gid(65_534);
    let Ok(done) = command.output() else {
        return skipped_here("the program lies where another user cannot reach it");
    };
    assert_eq!(done.status.code(), Some(1));
    let said = text(&done.stderr);
    assert!(said.contains("set-user-ID"), "{said}");
}

/// A child that is killed in the end.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_can_be_looked_into_and_its_device_is_its_own() {
    if !wanted() {
        return;
    }
    if !is_root() || !has_tun() {
        return skipped_here("needs root and /dev/net/tun");
    }
    let scratch = Scratch::new("look");
    // A shell in a namespace starts two runs on one device; the first serves, the second must be refused.
    let script = format!(
        "\"{PROGRAM}\" run --link tap:nc7,peer=10.7.7.1/24 --address 10.7.7.2/24 -- \
           \"{PROGRAM}\" __inner serve --listen 0.0.0.0:7000 & first=$!
         sleep 2
         \"{PROGRAM}\" show links --json --pid $first; echo \"show $?\"
         \"{PROGRAM}\" show sockets --pid $first >/dev/null; echo \"sockets $?\"
         \"{PROGRAM}\" run --link tap:nc7 --address 10.7.7.3/24 -- true; echo \"second $?\"
         kill $first; wait $first
         \"{PROGRAM}\" show links --pid $first; echo \"after $?\""
    );
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &script]);
    prepare(&mut command, &scratch);
    let done = command.output().unwrap();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    let facts = out.split("show 0").next().unwrap();
    let facts: Value = serde_json::from_str(facts).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    assert!(
        facts[0]["name"].as_str().unwrap().contains("nc7"),
        "{facts}"
    );
    assert!(
        out.contains("sockets 0") && out.contains("second 1"),
        "{out}{err}"
    );
    assert!(err.contains("nc7"), "the refusal names the device: {err}");
    assert!(out.contains("after 1"), "{out}{err}");
}

#[test]
fn a_run_without_a_link_makes_one() {
    if !wanted() {
        return;
    }
    if !is_root() || !has_tun() {
        return skipped_here("needs root and /dev/net/tun");
    }
    let scratch = Scratch::new("default");
    let child = netchan_apart(&scratch)
        .args([
            "run",
            "--",
            PROGRAM,
            "__inner",
            "serve",
            "--listen",
            "0.0.0.0:7000",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Guard(child);
    let mut said = String::new();
    BufReader::new(child.0.stderr.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(
        said.contains("10.77.0.2") && said.contains("10.77.0.1"),
        "{said}"
    );
    // The kernel's end, as seen from inside the namespace.
    let net = format!("/proc/{}/net/dev", child.0.id());
    wait_until("nc0 is there", || {
        fs::read_to_string(&net).is_ok_and(|text| text.contains("nc0:"))
    });
}

#[test]
fn a_user_without_rights_is_told_what_to_do() {
    if !wanted() {
        return;
    }
    let scratch = Scratch::new("rights");
    let mut command = netchan(&scratch);
    command.args(["run", "--", "true"]);
    if is_root() {
        std::os::unix::fs::chown(&scratch.0, Some(65_534), Some(65_534)).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let Ok(done) = command.output() else {
        return skipped_here("the program lies where another user cannot reach it");
    };
    let err = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(
        err.contains("netchan demo") && err.contains("ip tuntap add"),
        "{err}"
    );
}
