//! `netchan daemon` from outside: its socket, its signals, the service manager's ways.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use netchan::link::lease::{Answer, MESSAGE_MAX, Request, VERSION};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
        connect, listen, recv, send, socket_with, sockopt::Timeout, sockopt::set_socket_timeout,
    },
    process::{Pid, Signal, kill_process},
};

use super::{Runtime, netchan, parts};

/// A daemon that runs; killed if it still does at the end.
struct Daemon {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// Reads what it tells up to a line with `text` in it.
    fn says(&mut self, text: &str) {
        let mut all = String::new();
        while self.said.read_line(&mut all).unwrap() > 0 {
            if all.lines().last().is_some_and(|line| line.contains(text)) {
                return;
            }
        }
        panic!("it did not say {text:?}:\n{all}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit status after SIGTERM.
    fn end(mut self) -> i32 {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

fn daemon(runtime: &Runtime, arguments: &[&str]) -> Command {
    let mut command = netchan();
    command
        .env("XDG_RUNTIME_DIR", &runtime.0)
        .arg("daemon")
        .args(arguments);
    command
}

/// What it answers to a request at `path`.
fn ask(path: &Path, request: &Request) -> Answer {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(30))).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let request = serde_json::to_vec(request).unwrap();
    send(&socket, &request, SendFlags::NOSIGNAL).unwrap();
    let mut text = vec![0; MESSAGE_MAX];
    let (got, _) = recv(&socket, &mut text[..], RecvFlags::empty()).unwrap();
    serde_json::from_slice(&text[..got]).unwrap()
}

/// A request that is refused by any daemon.
fn is_there(path: &Path) {
    let request = Request::Attach {
        version: VERSION + 1,
        link: String::new(),
        program: "test".to_owned(),
        secret: String::new(),
        memory: None,
    };
    let Answer::Refused { errno, why } = ask(path, &request) else {
        panic!("a version that it does not speak")
    };
    assert_eq!(errno, rustix::io::Errno::PROTONOSUPPORT.raw_os_error());
    assert!(why.contains("this daemon speaks"), "{why}");
}

#[test]
fn it_has_its_socket_until_a_signal_and_is_alone_there() {
    let runtime = Runtime::new("daemon");
    let path = runtime.0.join("d/daemon.sock");
    let at = path.to_str().unwrap();
    let arguments = ["--link", "loop", "--socket", at];
    for signal in [Signal::TERM, Signal::INT] {
        let mut first = Daemon::start(&mut daemon(&runtime, &arguments));
        first.says(at);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let for_all = rustix::process::geteuid().is_root();
        assert_eq!(mode, if for_all { 0o666 } else { 0o600 });
        is_there(&path);
        let (status, out, err) = parts(&daemon(&runtime, &arguments).output().unwrap());
        let says = format!(
            "a daemon is running there already, pid {}",
            first.child.id()
        );
        assert_eq!((status, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(&says), "{err}");
        is_there(&path);
        // Its facts are within reach.
        let pid = first.child.id().to_string();
        let (status, out, err) = runtime.run(&["show", "links", "--json", "--pid", &pid]);
        assert_eq!(status, 0, "{err}");
        assert!(out.contains("loop"), "{out}");
        first.signal(signal);
        assert_eq!(first.child.wait().unwrap().code(), Some(0));
        assert!(!path.exists());
    }
    // Killed, it leaves its socket behind, for the next one to remove.
    let mut killed = Daemon::start(&mut daemon(&runtime, &arguments));
    killed.says(at);
    drop(killed);
    assert!(path.exists());
    let mut next = Daemon::start(&mut daemon(&runtime, &arguments));
    next.says(at);
    is_there(&path);
    assert_eq!(next.end(), 0);
}

#[test]
fn its_rules_are_read_again_on_sighup() {
    let runtime = Runtime::new("daemon-rules");
    let (file, path) = (
        runtime.0.join("netchan.toml"),
        runtime.0.join("daemon.sock"),
    );
    let write = |rules: &str| {
        fs::write(&file, format!("[[link]]\nkind = \"loop\"\n{rules}")).unwrap();
    };
    let (file, at) = (file.to_str().unwrap(), path.to_str().unwrap());
    let arguments = ["--config", file, "--socket", at];
    write("[[lease]]\nuser = \"no such user\"\nports = [\"80\"]\n");
    let (status, _, err) = parts(&daemon(&runtime, &arguments).output().unwrap());
    assert_eq!(status, 1);
    assert!(
        err.contains("no user no such user") && err.contains(file),
        "{err}"
    );
    write("");
    let mut running = Daemon::start(&mut daemon(&runtime, &arguments));
    running.says(at);
    write("[[lease]]\nuser = \"root\"\nports = [\"80\", \"443\"]\nprotocol = \"tcp\"\n");
    running.signal(Signal::HUP);
    running.says("1 [[lease]] tables hold from now on; links and settings stay");
    write("[[lease]]\nuser = \"root\"\nports = [\"http\"]\n");
    running.signal(Signal::HUP);
    running.says("the rules stay as they were");
    is_there(&path);
    assert_eq!(running.end(), 0);
}

#[test]
fn the_service_manager_hands_its_socket_over_and_is_told() {
    let runtime = Runtime::new("daemon-handed");
    let path = runtime.0.join("handed.sock");
    let manager = UnixDatagram::bind(runtime.0.join("notify")).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let told = || {
        let mut text = [0; 256];
        let got = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..got]).into_owned()
    };
    let start = |kind: SocketType| {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let _ = fs::remove_file(&path);
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 16).unwrap();
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" daemon --link loop 3<&0 </dev/null",
            ])
            .arg(env!("CARGO_BIN_EXE_netchan"))
            .env("XDG_RUNTIME_DIR", &runtime.0)
            .env("NOTIFY_SOCKET", runtime.0.join("notify"))
            .stdin(Stdio::from(socket));
        Daemon::start(&mut command)
    };
    let mut running = start(SocketType::SEQPACKET);
    assert!(told().contains("READY=1"));
    running.says("the service manager's socket");
    is_there(&path);
    running.signal(Signal::TERM);
    assert!(told().contains("STOPPING=1"));
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(path.exists(), "it is the service manager's");
    let mut wrong = start(SocketType::STREAM);
    wrong.says("LISTEN_FDS");
    assert_eq!(wrong.child.wait().unwrap().code(), Some(1));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let runtime = Runtime::new("daemon-wrong");
    let at = runtime.0.join("daemon.sock");
    let at = at.to_str().unwrap();
    for (arguments, status, says) in [
        (&[][..], 2, "which links?"),
        (&["--link", "tap:nc0"], 2, "needs an address"),
        (&["--link", "magic:x"], 2, "magic"),
        (
            &["--link", "wire:x", "--address", "10.0.0.1/24"],
            2,
            "leads nowhere",
        ),
        (&["--config", "/no/such/file"], 1, "no such file"),
        (
            &["--link", "loop", "--config", "x"],
            2,
            "cannot be used with",
        ),
        (&["--link", "loop", "--user", "no such user"], 2, "no user"),
        (&["--link", "loop", "--regime", "fast"], 2, "app-channel"),
    ] {
        let mut command = daemon(&runtime, arguments);
        let (found, out, err) = parts(&command.args(["--socket", at]).output().unwrap());
        assert_eq!((found, out.as_str()), (status, ""), "{arguments:?}: {err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
        assert!(!Path::new(at).exists(), "{arguments:?}");
    }
}
