//! The control socket's serving end: one thread, a handful of clients at a time, each with a deadline.

use std::{
    fs, io,
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Duration,
};

use percore::{
    lock::{Mutex, mutex},
    own::Own,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
};
use serde_json::{Value, json};

use super::{
    ANSWER_MAX, Answers, REQUEST_MAX, STACKS_MAX, TOPICS, capture, inject, make_private,
    own_directories, sweep,
};
use crate::{locks, sys};

/// Clients served at a time; more wait in the listen queue.
const CLIENTS_MAX: usize = 16;
/// Clients that wait in the listen queue.
const BACKLOG: i32 = 128;
/// Room for the note that an answer is not whole.
const OMITTED_MAX: usize = 64;
/// A client that has neither asked nor taken its answer by then is dropped.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Choosing a name, removing a dead socket and binding must not interleave in one process.
static NAMING: Mutex<()> = mutex(&locks::NAMING, ());

/// A served control socket. Dropping it ends the thread and removes the socket, except in a forked child.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    pid: u32,
    stop: Own<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return; // a forked child: socket and thread are the parent's
        }
        let _ = fs::remove_file(&self.path);
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Answers `netchan show` and others from a thread of its own, `netchan-control`, with what `provider` says.
///
/// # Errors
/// When no directory can be had for the socket: every place tried and why not.
pub fn serve(provider: impl Answers) -> io::Result<Control> {
    let mut refused = Vec::new();
    for directory in own_directories() {
        match bind_in(&directory) {
            Ok((listener, path)) => {
                sweep(&directory);
                return start(listener, path, provider);
            }
            Err(e) => refused.push(format!("{}: {e}", directory.display())),
        }
    }
    Err(io::Error::other(format!(
        "no place for a control socket ({})",
        refused.join("; ")
    )))
}

/// The same in `directory`, which is made if it is missing.
///
/// # Errors
/// When it is open to others, or the socket cannot be made.
pub fn serve_in(directory: &Path, provider: impl Answers) -> io::Result<Control> {
    let (listener, path) = bind_in(directory)?;
    start(listener, path, provider)
}

fn bind_in(directory: &Path) -> io::Result<(Own<UnixListener>, PathBuf)> {
    make_private(directory)?;
    let _naming = NAMING.lock();
    let pid = std::process::id();
    for n in 0..STACKS_MAX {
        let name = if n == 0 {
            format!("{pid}.sock")
        } else {
            format!("{pid}-{n}.sock")
        };
        let path = directory.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            if UnixStream::connect(&path).is_ok() {
                continue; // another stack of this process
            }
            fs::remove_file(&path)?; // an earlier process had our number
        }
        return Ok((Own::keep(listen(&path)?), path));
    }
    Err(io::Error::other(format!(
        "{STACKS_MAX} stacks of this process have one already"
    )))
}

/// A socket at `path` to which its owner alone can connect, from its first moment: bind(2) gives the file the mode that the socket has.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn start(
    listener: Own<UnixListener>,
    path: PathBuf,
    provider: impl Answers,
) -> io::Result<Control> {
    let (stop, stopped) = UnixStream::pair()?;
    let (stop, stopped) = (Own::keep(stop), Own::keep(stopped));
    let since = percore::clock::now_ns();
    let server = Server {
        listener,
        stopped,
        provider,
        since,
        clients: Vec::new(),
    };
    let thread = sys::spawn("netchan-control", || server.run())?;
    Ok(Control {
        path,
        pid: std::process::id(),
        stop,
        thread: Some(thread),
    })
}

struct Server<P> {
    listener: Own<UnixListener>,
    stopped: Own<UnixStream>,
    provider: P,
    since: u64,
    clients: Vec<Client>,
}

struct Client {
    stream: Own<UnixStream>,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    deadline: u64,
}

impl<P: Answers> Server<P> {
    fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(e) if e == rustix::io::Errno::INTR => continue,
                Err(_) => return,
            };
            if ready.stop {
                return;
            }
            if ready.accept {
                self.accept();
            }
            let now = percore::clock::now_ns();
            let mut clients = std::mem::take(&mut self.clients);
            clients.retain_mut(|client| client.deadline > now && self.turn(client));
            self.clients = clients;
        }
    }

    fn wait(&self) -> rustix::io::Result<Ready> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.stopped.as_fd(),
            PollFlags::IN,
        )];
        for client in &self.clients {
            let interest = if client.answer.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::OUT
            };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), interest));
        }
        let full = self.clients.len() >= CLIENTS_MAX;
        if !full {
            fds.push(PollFd::from_borrowed_fd(
                self.listener.as_fd(),
                PollFlags::IN,
            ));
        }
        let now = percore::clock::now_ns();
        let timeout = self
            .clients
            .iter()
            .map(|c| c.deadline.saturating_sub(now))
            .min();
        // One nanosecond more, so that the deadline has passed when poll returns for it.
        let timeout = timeout.and_then(|ns| Timespec::try_from(Duration::from_nanos(ns + 1)).ok());
        poll(&mut fds, timeout.as_ref())?;
        let is = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready {
            stop: is(fds.first()),
            accept: !full && is(fds.last()),
        })
    }

    fn accept(&mut self) {
        // Access is the socket's business: it lets in its owner and root.
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        if stream.set_nonblocking(true).is_ok() {
            let deadline = percore::clock::now_ns()
                .saturating_add(u64::try_from(CLIENT_TIME.as_nanos()).unwrap_or(u64::MAX));
            self.clients.push(Client {
                stream: Own::keep(stream),
                request: Vec::new(),
                answer: Vec::new(),
                sent: 0,
                deadline,
            });
        }
    }

    /// Goes on with one client; false when it is done with.
    fn turn(&self, client: &mut Client) -> bool {
        if client.answer.is_empty() {
            match client.read_request() {
                Ok(None) => return true,
                Ok(Some(line)) => {
                    let carried = match line.split_once(' ') {
                        Some(("capture", request)) => Some(self.capture(request, &client.stream)),
                        Some(("inject", request)) => Some(self.inject(request, &client.stream)),
                        _ => None,
                    };
                    if let Some(begun) = carried {
                        match begun {
                            Ok(()) => return false, // the thread that carries it has the stream, too
                            Err(why) => client.answer = json!({ "error": why }).to_string().into(),
                        }
                        client.answer.push(b'\n');
                        return client.write_answer().is_ok_and(|done| !done);
                    }
                    client.answer = shortened(&self.answer(&line));
                    client.answer.push(b'\n');
                }
                Err(_) => return false,
            }
        }
        client.write_answer().is_ok_and(|done| !done)
    }

    fn answer(&self, line: &str) -> Value {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("hello", "") => json!({ "ok": self.hello() }),
            ("trace", request) => {
                match catch_unwind(AssertUnwindSafe(|| crate::trace::answer(request))) {
                    Ok(Ok(facts)) => json!({ "ok": facts }),
                    Ok(Err(why)) => json!({ "error": why }),
                    Err(_) => json!({ "error": "the stack failed while it read its trace" }),
                }
            }
            ("show", topic) => match catch_unwind(AssertUnwindSafe(|| self.provider.show(topic))) {
                Ok(Some(facts)) => json!({ "ok": facts }),
                Ok(None) if TOPICS.contains(&topic) => {
                    json!({ "error": format!("this stack has nothing to say about {topic}") })
                }
                Ok(None) => {
                    json!({ "error": format!("unknown topic; there are {}", TOPICS.join(", ")) })
                }
                Err(_) => json!({ "error": "the stack failed while it gathered the facts" }),
            },
            ("change", text) => self.change(text),
            _ => {
                json!({ "error": "the request is none of `hello`, `show TOPIC`, `trace …`, `change …`, `capture …` and `inject …`" })
            }
        }
    }

    fn change(&self, text: &str) -> Value {
        let change = match serde_json::from_str(text) {
            Ok(change) => change,
            Err(e) => return json!({ "error": format!("no change that this stack knows: {e}") }),
        };
        match catch_unwind(AssertUnwindSafe(|| self.provider.change(&change))) {
            Ok(Ok(done)) => json!({ "ok": done }),
            Ok(Err(why)) => json!({ "error": why }),
            Err(_) => json!({ "error": "the stack failed while it made the change" }),
        }
    }

    /// Gives a capture to a thread of its own. It ends with its client, or with the stack.
    fn capture(&self, request: &str, client: &UnixStream) -> Result<(), String> {
        let request = serde_json::from_str(request);
        let request: capture::Request = request.map_err(|e| format!("no such capture: {e}"))?;
        let attach = AssertUnwindSafe(|| self.provider.capture(&request));
        let failed = "the stack failed while it attached the tap";
        let captured = catch_unwind(attach).map_err(|_| failed)??;
        let client = kept(client)?;
        let carry = move || capture::carry(captured, client);
        let thread = sys::spawn("netchan-capture", carry);
        thread.map(drop).map_err(|e| e.to_string())
    }

    /// Gives the writing of frames to a thread of its own. It ends with its client, or with the stack.
    fn inject(&self, request: &str, client: &UnixStream) -> Result<(), String> {
        let request = serde_json::from_str(request);
        let request: inject::Request = request.map_err(|e| format!("no frames go so: {e}"))?;
        let make = AssertUnwindSafe(|| self.provider.inject(&request));
        let failed = "the stack failed while it made the writer";
        let injecting = catch_unwind(make).map_err(|_| failed)??;
        let client = kept(client)?;
        let carry = move || inject::carry(injecting, client);
        let thread = sys::spawn("netchan-inject", carry);
        thread.map(drop).map_err(|e| e.to_string())
    }

    fn hello(&self) -> Value {
        let command = fs::read("/proc/self/cmdline").unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let command: String = command.trim_end().chars().take(200).collect();
        json!({
            "pid": std::process::id(),
            "command": command,
            "version": env!("CARGO_PKG_VERSION"),
            "cpu_s": cpu_time().as_secs_f64(),
            "up_s": Duration::from_nanos(percore::clock::now_ns().saturating_sub(self.since)).as_secs_f64(),
        })
    }
}

/// A client's stream for a thread of its own.
fn kept(client: &UnixStream) -> Result<Own<UnixStream>, String> {
    // Not `try_clone`: within an unmodified program that goes through the calls that it may make, on its own descriptors alone.
    let client = rustix::io::dup(client).map_err(|e| e.to_string())?;
    let client = UnixStream::from(client);
    // Its own: the program that this stack is part of may close what it does not know.
    Ok(Own::keep(client))
}

/// Processor time of the whole process: the application's threads carry packets, too.
fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// An answer in the bytes that a client takes: of a list that is longer its beginning, and how much is missing.
pub(super) fn shortened(answer: &Value) -> Vec<u8> {
    let whole = serde_json::to_vec(answer).unwrap_or_default();
    if whole.len() < ANSWER_MAX {
        return whole;
    }
    let Some(Value::Array(rows)) = answer.get("ok") else {
        let what =
            json!({ "error": format!("the answer is longer than {} MiB", ANSWER_MAX >> 20) });
        return serde_json::to_vec(&what).unwrap_or_default();
    };
    let mut short = br#"{"ok":["#.to_vec();
    for (number, row) in rows.iter().enumerate() {
        let row = serde_json::to_vec(row).unwrap_or_default();
        if short.len() + row.len() + OMITTED_MAX > ANSWER_MAX {
            let note = json!({ "omitted": rows.len() - number });
            short.extend_from_slice(note.to_string().as_bytes());
            break;
        }
        short.extend_from_slice(&row);
        short.push(b',');
    }
    short.extend_from_slice(b"]}");
    short
}

/// What poll found.
struct Ready {
    stop: bool,
    accept: bool,
}

impl Client {
    /// The request's line once it is whole.
    fn read_request(&mut self) -> io::Result<Option<String>> {
        let mut block = [0; 4096];
        loop {
            match self.stream.read(&mut block) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self
                    .request
                    .extend_from_slice(block.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if let Some(end) = self.request.iter().position(|&b| b == b'\n') {
                self.request.truncate(end);
                return Ok(Some(String::from_utf8_lossy(&self.request).into_owned()));
            }
            if self.request.len() >= REQUEST_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Writes on; true when the whole answer has gone.
    fn write_answer(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}
