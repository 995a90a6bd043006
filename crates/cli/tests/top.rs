//! `netchan top` in a terminal, at a live stack: what it shows, what keys do, and that the terminal is as before when it ends.

#[path = "terminal/mod.rs"]
mod terminal;

use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

use netchan::{Net, control, link::wire};
use rustix::process::Signal;
use serde_json::Value;
use terminal::Terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_netchan");

/// A runtime directory of its own, with a stack that echoes, and a client that never rests.
struct Live {
    directory: PathBuf,
    control: Option<control::Control>,
    stop: Arc<AtomicBool>,
    client: Option<JoinHandle<()>>,
    _server: Arc<Net>,
}

impl Live {
    fn new(name: &str) -> Self {
        let directory = directory(name);
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let net = Net::builder().link_with(link).address(address).unwrap();
            Arc::new(net.start().unwrap())
        };
        let server = start(Box::new(ours), "10.0.0.1/24");
        let client = start(Box::new(theirs), "10.0.0.2/24");
        let listener = server.tcp().listen("10.0.0.1:80").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut block = [0; 1000];
            while let Ok(n @ 1..) = stream.read(&mut block) {
                stream.write_all(&block[..n]).unwrap();
            }
        });
        let stopped = stop.clone();
        let client = thread::spawn(move || {
            let mut stream = client.tcp().connect("10.0.0.1:80").unwrap();
            let mut block = [0; 1000];
            while !stopped.load(SeqCst) {
                stream.write_all(&block).unwrap();
                stream.read_exact(&mut block).unwrap();
                thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(stream);
            echo.join().unwrap();
        });
        let shown = server.clone();
        let answers = move |topic: &str| shown.show(topic);
        let control = control::serve_in(&directory.join("netchan"), answers).unwrap();
        Self {
            directory,
            control: Some(control),
            stop,
            client: Some(client),
            _server: server,
        }
    }

    fn terminal(&self, arguments: &[&str], size: (u16, u16)) -> Terminal {
        top(&self.directory, arguments, size)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.control = None;
        let _ = self.client.take().map(JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("netchan-top-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn prepare(command: &mut Command, directory: &Path, arguments: &[&str]) {
    command
        .env("XDG_RUNTIME_DIR", directory)
        .env_remove("LD_PRELOAD")
        .arg("top")
        .args(arguments);
}

fn top(directory: &Path, arguments: &[&str], size: (u16, u16)) -> Terminal {
    let pid = std::process::id().to_string();
    let prepare = |command: &mut Command| {
        prepare(command, directory, arguments);
        command.args(["--pid", &pid, "--interval", "0.2"]);
    };
    Terminal::start(Path::new(PROGRAM), prepare, size)
}

/// Whether the connection is there with its rates.
fn has_rates(terminal: &Terminal) -> bool {
    let page = terminal.contents();
    let line = page.lines().find(|line| line.contains("10.0.0.2:"));
    page.contains("Connections 1") && line.is_some_and(|line| line.contains("bit/s"))
}

#[test]
fn keys_and_sizes_change_what_is_shown() {
    let live = Live::new("keys");
    let mut terminal = live.terminal(&[], (100, 30));
    terminal.until("a connection with its rates", has_rates);
    assert!(!terminal.is_given_back());
    let page = terminal.contents();
    for part in [
        "app-channel",
        "Cores",
        "netchan-link0",
        "channel",
        "every 200 ms",
    ] {
        assert!(
            page.to_lowercase().contains(&part.to_lowercase()),
            "{part}:\n{page}"
        );
    }
    terminal.press("2");
    terminal.until("threads alone", |terminal| {
        let page = terminal.contents();
        page.contains("Threads") && !page.contains("Connections")
    });
    terminal.press("\t");
    terminal.shows("shard 0");
    terminal.press("\u{1b}");
    terminal.until("all sections", has_rates);
    terminal.press("sr");
    terminal.shows("by in, reversed");
    terminal.press("/dport = :9\r");
    terminal.shows("Connections 0, by in, reversed, filter: dport = :9");
    terminal.press("/x\r");
    terminal.shows("':9x' is no port");
    terminal.press("\u{15}\r");
    terminal.until("no filter", has_rates);
    terminal.press("p");
    terminal.shows("paused");
    terminal.press("p+");
    terminal.shows("every 500 ms");
    terminal.press("h");
    terminal.shows("filter connections, in ss's words");
    terminal.press("x");
    terminal.resize(40, 10);
    terminal.until("a small screen", has_rates);
    terminal.resize(200, 60);
    terminal.shows("send-Q");
    terminal.press("q");
    assert!(terminal.ended().success());
    assert!(terminal.is_given_back());
}

#[test]
fn signals_give_the_terminal_back() {
    let live = Live::new("signals");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut terminal = live.terminal(&[], (80, 24));
        terminal.until("a connection with its rates", has_rates);
        terminal.signal(signal);
        assert!(terminal.ended().success(), "{signal:?}");
        assert!(terminal.is_given_back(), "{signal:?}");
    }
    let mut terminal = live.terminal(&["state", "established"], (80, 24));
    // Ctrl-Z, and what a shell's `kill -TSTP` says; `fg` goes on.
    for by_key in [true, false] {
        terminal.until("a connection with its rates", has_rates);
        match by_key {
            true => terminal.press("\u{1a}"),
            false => terminal.signal(Signal::TSTP),
        }
        terminal.until("it is stopped", |terminal| terminal.state() == Some('T'));
        terminal.until("the shell's screen", Terminal::is_given_back);
        terminal.signal(Signal::CONT);
        terminal.until("its screen again", |terminal| !terminal.is_given_back());
    }
    terminal.until("a connection with its rates", has_rates);
    terminal.press("\u{3}");
    assert!(terminal.ended().success());
    assert!(terminal.is_given_back());
}

#[test]
fn a_stack_that_ends_is_said_to_have_ended() {
    let mut live = Live::new("ends");
    let mut terminal = live.terminal(&[], (80, 24));
    terminal.until("a connection with its rates", has_rates);
    live.control = None;
    // What was last known stays.
    terminal.until("its end", |terminal| {
        let page = terminal.contents();
        page.contains("the stack has ended; last answer ") && page.contains("10.0.0.2:")
    });
    terminal.press("q");
    assert!(terminal.ended().success());
}

/// A process that is stopped takes connections and says nothing: the screen says so, and keys work meanwhile.
#[test]
fn a_stack_that_says_nothing_does_not_hold_the_screen() {
    let directory = directory("silent");
    let sockets = directory.join("netchan");
    std::fs::create_dir_all(&sockets).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&sockets, mode).unwrap();
    let path = sockets.join(format!("{}.sock", std::process::id()));
    let _silent = UnixListener::bind(path).unwrap();
    let mut terminal = top(&directory, &[], (80, 24));
    terminal.shows("waiting for the first answer");
    terminal.press("p");
    terminal.shows("paused");
    terminal.press("p");
    terminal.shows("no answer since ");
    terminal.press("q");
    assert!(terminal.ended().success());
    assert!(terminal.is_given_back());
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn one_frame_is_text_where_there_is_no_terminal() {
    let live = Live::new("once");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        prepare(&mut command, &live.directory, arguments);
        let done = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    for arguments in [&["--once", "-i", "0.3"][..], &["-i", "0.3"]] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, err.as_str()), (Some(0), ""));
        for part in [
            "app-channel",
            "Threads ",
            "Connections 1, by rate, 1 listening",
        ] {
            assert!(out.contains(part), "{part}:\n{out}");
        }
        let line = out.lines().find(|line| line.contains("10.0.0.2:"));
        assert!(line.is_some_and(|line| line.contains("bit/s")), "{out}");
        assert!(!out.contains('\u{1b}'), "{out}");
    }
    let (_, out, _) = run(&["--once", "-i", "0.3", "sport", "=", ":81"]);
    assert!(
        out.contains("Connections 0") && out.contains("(none)"),
        "{out}"
    );
    let (status, out, _) = run(&["--json", "-i", "0.3"]);
    let facts: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status, Some(0));
    assert_eq!(facts["regime"], "app-channel");
    let sockets = facts["sockets"].as_array().unwrap();
    let remote = |row: &&Value| {
        row["remote"]
            .as_str()
            .is_some_and(|r| r.starts_with("10.0.0.2:"))
    };
    let row = sockets.iter().find(remote).unwrap();
    assert!(row["in_bits_per_s"].as_f64() > Some(0.0), "{row}");
    for (arguments, word) in [
        (&["--interval", "0"][..], "--interval"),
        (&["port", "=", "80"], "'port'"),
        (&["--pid", "1", "--once"], "process 1"),
    ] {
        let (status, out, err) = run(arguments);
        assert!(
            matches!(status, Some(1 | 2)) && out.is_empty(),
            "{arguments:?}"
        );
        assert!(err.contains(word), "{err}");
    }
}
