//! The control socket: how `netchan show` and `netchan trace` ask a running stack for facts from outside, and `netchan address`, `route`, `set` and `module`
//! for changes.
//!
//! A stack that was told to [`serve`] answers on a UNIX socket `PID.sock`, to which only its user can connect, in a directory that no other can write to:
//! `$XDG_RUNTIME_DIR/netchan`, else (root) `/run/netchan`, else `/tmp/netchan-UID`. A request is one line, `hello`,
//! `show TOPIC`, `trace REQUEST` or `change JSON` (a [`Change`]); the answer is one line of JSON, `{"ok": …}` or `{"error": "…"}`, and the end of the stream.
//! To `capture JSON` there is no end: see [`capture`]. `inject JSON` is the other way: see [`inject`].
//!
//! A client asks only sockets of root and of its own user, and one that is named by its process. Neither side trusts the other: lengths are
//! bounded, each exchange has a deadline, a client that says nothing is dropped, and the thread that answers is not one that carries packets
//! (F8: it answers when the application hangs).

use std::{
    fmt, fs, io,
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub mod capture;
pub mod inject;
mod server;
#[cfg(test)]
mod tests;
mod trust;

pub use server::{Control, serve, serve_in};
use trust::Trusted;
pub use trust::strangers;
pub(crate) use trust::user_of;

/// What can be asked for.
pub const TOPICS: [&str; 21] = [
    "links",
    "addresses",
    "groups",
    "routes",
    "neighbors",
    "sockets",
    "channels",
    "shards",
    "threads",
    "stages",
    "trace",
    "locks",
    "counters",
    "drops",
    "memory",
    "settings",
    "modules",
    "rules",
    "flows",
    "taps",
    "leases",
];

/// Longest request, bytes, its line feed included: the rules of a module.
const REQUEST_MAX: usize = 64 << 10;
/// Longest answer, bytes: some 80,000 sockets; of more, as many as fit.
const ANSWER_MAX: usize = 16 << 20;
/// Stacks looked for in one directory.
const STACKS_MAX: usize = 1024;
/// Sockets in one directory that may say nothing before the rest of it is passed over.
const SILENT_MAX: usize = 4;
/// How long a client waits for a whole answer. A stack answers in milliseconds; its process may be stopped.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// A stack that seems to run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// What `--pid` takes: the process's number; `PID-N` for further stacks of one process.
    pub id: String,
    /// The process it lives in.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
    /// Another user that may own it, beside root and this one: naming a process is trusting it.
    pub user: Option<u32>,
}

/// Why a stack gave no facts.
#[derive(Debug)]
pub enum AskError {
    /// No process listens on its socket any more.
    Gone,
    /// No whole answer in time; what is known about the process.
    Silent(String),
    /// The stack answered that it cannot.
    Refused(String),
    /// It is another user's.
    Foreign(String),
    /// What came back is not an answer.
    Garbled(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the stack has ended"),
            Self::Silent(why) => {
                write!(f, "no answer within {} s: {why}", ANSWER_TIME.as_secs())
            }
            Self::Refused(why) | Self::Foreign(why) => f.write_str(why),
            Self::Garbled(why) => write!(f, "not a netchan's answer: {why}"),
        }
    }
}

impl std::error::Error for AskError {}

/// A change that a running stack is asked for. The library's calls of the same names say what each takes ([`Net`](crate::Net)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// [`Net::add_address`](crate::Net::add_address).
    AddAddress {
        /// Its name; empty: the only one.
        link: String,
        /// `10.0.0.2/24`.
        address: String,
    },
    /// [`Net::remove_address`](crate::Net::remove_address).
    RemoveAddress {
        /// As above.
        link: String,
        /// With its prefix length or without.
        address: String,
    },
    /// [`Net::add_route`](crate::Net::add_route).
    AddRoute {
        /// As above.
        link: String,
        /// `10.0.0.0/8`; empty: all of the gateway's family.
        to: String,
        /// The router's address; `None`: all of it is on the link.
        gateway: Option<String>,
        /// For what is marked so only; 0: for all.
        mark: u32,
    },
    /// [`Net::remove_route`](crate::Net::remove_route).
    RemoveRoute {
        /// Its name; empty: whichever link.
        link: String,
        /// As above, but never empty.
        to: String,
        /// As above.
        mark: u32,
    },
    /// [`Net::set`](crate::Net::set).
    Set {
        /// As `netchan show settings` has it.
        name: String,
        /// As in a configuration file.
        value: String,
    },
    /// [`Net::load_module`](crate::Net::load_module).
    LoadModule {
        /// `[[module]]` tables of a configuration file.
        toml: String,
    },
    /// [`Net::configure_module`](crate::Net::configure_module).
    ReplaceModule {
        /// `[[module]]` tables of a configuration file.
        toml: String,
    },
    /// [`Net::unload_module`](crate::Net::unload_module).
    UnloadModule {
        /// The module's name.
        name: String,
    },
}

/// What answers at a control socket. Its calls are made by the socket's own thread: let it hold a `Weak` of the stack, and no lock for long.
pub trait Answers: Send + 'static {
    /// The facts about a topic; `None`: there are none, or the stack has ended.
    fn show(&self, topic: &str) -> Option<Value>;

    /// Makes a change; what was done, in a sentence.
    ///
    /// # Errors
    /// Why not, in a sentence; then nothing has changed.
    fn change(&self, change: &Change) -> Result<String, String>;

    /// Attaches a tap for a client.
    ///
    /// # Errors
    /// Why not, in a sentence.
    fn capture(&self, _: &capture::Request) -> Result<capture::Captured, String> {
        Err("this stack cannot be captured".to_owned())
    }

    /// Makes what writes frames for a client.
    ///
    /// # Errors
    /// Why not, in a sentence.
    fn inject(&self, _: &inject::Request) -> Result<inject::Injecting, String> {
        Err("no frames can be written into this stack".to_owned())
    }
}

/// One that can be asked, but not changed.
impl<F: Fn(&str) -> Option<Value> + Send + 'static> Answers for F {
    fn show(&self, topic: &str) -> Option<Value> {
        self(topic)
    }

    fn change(&self, _: &Change) -> Result<String, String> {
        Err("this stack takes no changes".to_owned())
    }
}

impl Stack {
    /// Asks for a change; what was done, in a sentence.
    ///
    /// # Errors
    /// See [`AskError`]; what cannot be done is [`AskError::Refused`], with the reason.
    pub fn change(&self, change: &Change) -> Result<String, AskError> {
        let done = self.ask(&format!("change {}", json!(change)))?;
        Ok(done.as_str().unwrap_or_default().to_owned())
    }

    /// The facts about `topic`.
    ///
    /// # Errors
    /// See [`AskError`]; an unknown topic is [`AskError::Refused`].
    pub fn show(&self, topic: &str) -> Result<Value, AskError> {
        self.ask(&format!("show {topic}"))
    }

    /// An answer of its trace: to `start`, `stop`, or `read LAST SINCE [NAME,NAME…]` (see `crate::trace`).
    ///
    /// # Errors
    /// See [`AskError`]; a request that it does not understand is [`AskError::Refused`].
    pub fn trace(&self, request: &str) -> Result<Value, AskError> {
        self.ask(&format!("trace {request}"))
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// See [`AskError`]; a link that is not there, a filter that is no program and too many taps are [`AskError::Refused`].
    pub fn capture(&self, request: &capture::Request) -> Result<capture::Capture, AskError> {
        let (stream, mut answer, rest) = self.begin(&format!("capture {}\n", json!(request)))?;
        let links = answer.get_mut("ok").map(Value::take).unwrap_or_default();
        let about = answer.get_mut("about").map(Value::take);
        let about = about.unwrap_or_default();
        Ok(capture::Capture::new(stream, [links, about], rest))
    }

    /// Begins to write frames.
    ///
    /// # Errors
    /// See [`AskError`]; a link that is not there, a rate that is none and too many writers are [`AskError::Refused`].
    pub fn inject(&self, request: &inject::Request) -> Result<inject::Injection, AskError> {
        let (stream, answer, _) = self.begin(&format!("inject {}\n", json!(request)))?;
        let begun = inject::Injection::new(stream, &answer["ok"]);
        begun.ok_or_else(|| AskError::Garbled("no link in it".to_owned()))
    }

    /// Asks what is answered with a line and more: the line, with an `ok` in it, and what has come behind it.
    fn begin(&self, request: &str) -> Result<(UnixStream, Value, Vec<u8>), AskError> {
        let garbled = |e: &dyn fmt::Display| AskError::Garbled(e.to_string());
        let begin = || {
            let mut stream = connect(self)?;
            stream.set_write_timeout(Some(ANSWER_TIME))?;
            stream.write_all(request.as_bytes())?;
            stream.set_read_timeout(Some(ANSWER_TIME))?;
            let (mut answer, mut room) = (Vec::new(), [0; 4096]);
            loop {
                if let Some(end) = answer.iter().position(|&b| b == b'\n') {
                    let rest = answer.split_off(end + 1);
                    return Ok((stream, answer, rest));
                }
                match stream.read(&mut room) {
                    Ok(0) => return Err(io::Error::other("it ends in mid-line")),
                    Ok(n) => answer.extend(room.get(..n).unwrap_or_default()),
                    // Stopped and continued: without a handler, too, where a read has a limit of time. See signal(7).
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
                if answer.len() > REQUEST_MAX + room.len() {
                    return Err(io::Error::other("its first line has no end"));
                }
            }
        };
        let (stream, answer, rest) = begin().map_err(|e: io::Error| self.explain(&e))?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|e| garbled(&e))?;
        if let Some(why) = answer.get("error").and_then(Value::as_str) {
            return Err(AskError::Refused(why.to_owned()));
        }
        match answer.get("ok") {
            Some(_) => Ok((stream, answer, rest)),
            None => Err(garbled(&"neither `ok` nor `error` in it")),
        }
    }

    /// Its identity: `{"pid", "command", "version", "cpu_s", "up_s"}`.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn hello(&self) -> Result<Value, AskError> {
        self.ask("hello")
    }

    fn ask(&self, request: &str) -> Result<Value, AskError> {
        let started = percore::clock::now_ns();
        let answer = exchange(self, request, started).map_err(|e| self.explain(&e))?;
        let mut answer: Value =
            serde_json::from_slice(&answer).map_err(|e| AskError::Garbled(e.to_string()))?;
        if let Some(why) = answer.get("error").and_then(Value::as_str) {
            return Err(AskError::Refused(why.to_owned()));
        }
        match answer.get_mut("ok") {
            Some(facts) => Ok(facts.take()),
            None => Err(AskError::Garbled(
                "neither `ok` nor `error` in it".to_owned(),
            )),
        }
    }

    fn explain(&self, e: &io::Error) -> AskError {
        match e.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => AskError::Gone,
            io::ErrorKind::PermissionDenied => AskError::Foreign(e.to_string()),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                AskError::Silent(match process_state(self.pid) {
                    Some('T' | 't') => format!("process {} is stopped", self.pid),
                    Some('D') => format!("process {} waits inside the kernel", self.pid),
                    Some(_) => {
                        format!("process {} runs, but its control thread does not", self.pid)
                    }
                    None => format!("process {} is gone", self.pid),
                })
            }
            _ => AskError::Garbled(e.to_string()),
        }
    }
}

/// The stacks of this user and of root that run now, by id. Sockets of this user that were left behind by
/// processes that are gone are removed.
pub fn stacks() -> Vec<Stack> {
    stacks_in(&search_directories())
}

/// Those that `id` names, a process or `PID-N`, without a word to any other stack: one that is stopped would hold us.
pub fn stacks_named(id: &str) -> Vec<Stack> {
    let is_meant = |stack: &Stack| stack.id == id || stack.pid.to_string() == id;
    let trusting = |stack: Stack| Stack {
        user: user_of(stack.pid),
        ..stack
    };
    let directories = search_directories();
    let entries = directories
        .iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten();
    let mut found: Vec<Stack> = entries
        .filter_map(|entry| stack_of(&entry.path()))
        .filter(is_meant)
        .map(trusting)
        .filter(|stack| connect(stack).is_ok())
        .take(STACKS_MAX)
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

/// The same as [`stacks`], looking in `directories` only.
pub fn stacks_in(directories: &[PathBuf]) -> Vec<Stack> {
    let mut found = Vec::new();
    for directory in directories {
        if is_own(directory) {
            sweep(directory);
        }
        let mut silent = 0;
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for stack in entries
            .filter_map(|entry| stack_of(&entry.path()))
            .take(STACKS_MAX)
        {
            match stack.hello() {
                Err(AskError::Gone | AskError::Foreign(_)) => continue,
                // Whatever lies there may never answer.
                Err(AskError::Silent(_)) => silent += 1,
                _ => {}
            }
            if silent > SILENT_MAX {
                break;
            }
            found.push(stack);
        }
    }
    found.sort_by(|a, b| (a.pid, &a.id).cmp(&(b.pid, &b.id)));
    found.dedup();
    found
}

fn is_own(directory: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// Removes what stacks that were killed left in `directory`: sockets without a listener whose process is gone.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if let Some(stack) = stack_of(&entry.path())
            && process_state(stack.pid).is_none()
            && UnixStream::connect(&stack.path)
                .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = fs::remove_file(&stack.path);
        }
    }
}

/// `…/PID.sock` or `…/PID-N.sock`.
fn stack_of(path: &Path) -> Option<Stack> {
    let id = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let pid = id.split_once('-').map_or(id, |(pid, _)| pid).parse().ok()?;
    Some(Stack {
        id: id.to_owned(),
        pid,
        path: path.to_owned(),
        user: None,
    })
}

/// The letter of proc(5)'s `stat`; `None` when there is no such process.
fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses too.
    stat.rsplit_once(") ")?
        .1
        .chars()
        .next()
        .filter(|&state| state != 'Z' && state != 'X')
}

fn connect(stack: &Stack) -> io::Result<UnixStream> {
    let trusted = Trusted::with(stack.user);
    trusted.check_path(&stack.path)?;
    let address = SocketAddrUnix::new(&stack.path)?;
    // Non-blocking, so that a stopped process with a full backlog does not hold us.
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::net::connect(&socket, &address)?;
    trusted.check_peer(&socket)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// One request, one answer without its line feed. `started` on the clock of `percore`.
fn exchange(stack: &Stack, request: &str, started: u64) -> io::Result<Vec<u8>> {
    let mut stream = connect(stack)?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut block = [0; 64 << 10];
    loop {
        let passed = Duration::from_nanos(percore::clock::now_ns().saturating_sub(started));
        let left = ANSWER_TIME
            .checked_sub(passed)
            .filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(block.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if answer.len() > ANSWER_MAX {
            return Err(io::Error::other(format!(
                "longer than {} MiB",
                ANSWER_MAX >> 20
            )));
        }
    }
    if answer.pop() != Some(b'\n') {
        return Err(io::Error::other("it ends in mid-line"));
    }
    Ok(answer)
}

/// Where this process may put a socket, best first.
fn own_directories() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let mut candidates = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && runtime.is_absolute()
    {
        candidates.push(runtime.join("netchan"));
    }
    if user.is_root() {
        candidates.push("/run/netchan".into());
    }
    candidates.push(format!("/tmp/netchan-{}", user.as_raw()).into());
    candidates
}

/// Where stacks of this user may be; for root, of any user.
fn search_directories() -> Vec<PathBuf> {
    let mut places = own_directories();
    if rustix::process::geteuid().is_root() {
        let children = |of: &str| fs::read_dir(of).into_iter().flatten().flatten();
        places.extend(children("/run/user").map(|user| user.path().join("netchan")));
        places.extend(
            children("/tmp")
                .filter(|child| child.file_name().as_bytes().starts_with(b"netchan-"))
                .map(|child| child.path()),
        );
    } else {
        places.push(format!("/run/user/{}/netchan", rustix::process::getuid().as_raw()).into());
    }
    places.retain(|place| fs::symlink_metadata(place).is_ok_and(|m| m.is_dir()));
    places.sort();
    places.dedup();
    places
}

/// Makes `directory`, or checks that it is ours and that no other puts a socket there. Others may enter: a daemon's socket may lie beside ours.
fn make_private(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = fs::symlink_metadata(directory)?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} is not a directory of user {user} with mode 0700: remove it, or set XDG_RUNTIME_DIR to one",
                directory.display()
            ),
        ));
    }
    Ok(())
}
