//! The far side's end of the socket: what it asks, what was granted, and what it makes of a lender that is silent or says nonsense.

use std::{
    collections::{HashMap, HashSet},
    env,
    ffi::OsString,
    io::{self, ErrorKind, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use netchan_base::locks;
use percore::{
    clock,
    lock::{Mutex, mutex},
    own::Own,
    witness,
};
use proto::{ip::address::Address, membership::Filter};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with,
        sockopt,
    },
};

use super::{
    Lease, PipeTable,
    groups::Groups,
    terms::{
        Answer, Binding, FILES, FLOWS_MAX, LIST_MAX, MESSAGE_MAX, Membership, PortRange, Request,
        Reuse, Terms, VERSION, check_links,
    },
};

/// How long an exchange may take. A daemon answers in 5 ms, and where many programs start at once on a busy machine in more than a second (16 programs beside two
/// compilers, on two cores).
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_NS: u64 = 5_000_000_000;

/// Descriptors that there is room for in one message: more than are right, so that too many are noticed.
const FILES_MOST: usize = 2 * FILES;

/// The largest errno that Linux has (EHWPOISON).
const ERRNO_MAX: i32 = 133;

/// Most ranges of ports of a lease.
const RANGES_MAX: usize = 4096;

/// Characters of a lender's sentence that are passed on.
const SENTENCE_MAX: usize = 300;

/// Where a daemon of this user listens, unless it was told otherwise: in `/run` for root, else in the user's own directory for such things.
#[must_use]
pub fn default_path() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    path_of(user, env::var_os("XDG_RUNTIME_DIR"))
}

/// The same for this `user`, with `$XDG_RUNTIME_DIR`, which counts where it is an absolute path (XDG Base Directory Specification).
pub(super) fn path_of(user: u32, runtime: Option<OsString>) -> PathBuf {
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = match (user, runtime) {
        (0, _) => "/run/netchan".into(),
        (_, Some(runtime)) => runtime.join("netchan"),
        (_, None) => PathBuf::from(format!("/tmp/netchan-{user}")),
    };
    directory.join("daemon.sock")
}

/// A connection to a lender.
#[derive(Debug)]
pub struct Client {
    socket: Own,
    /// Held for an exchange: answers that are owed. One that did not come in time comes before that of the next request.
    owed: Mutex<u32>,
}

/// A message as it came.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub text: Vec<u8>,
    pub files: Vec<OwnedFd>,
    /// Whether all of it came.
    pub is_whole: bool,
}

impl Message {
    /// The next one at a socket, if it is there; `None` at the socket's end.
    ///
    /// # Errors
    /// recvmsg(2)'s; `AGAIN` where none waits.
    pub fn of(socket: impl AsFd) -> Result<Option<Self>, Errno> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut text = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut text)];
        let came = recvmsg(socket, &mut into, &mut control, flags)?;
        let mut message = Self::default();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = part {
                message.files.extend(files);
            }
        }
        if came.bytes == 0 {
            return Ok(None);
        }
        message.is_whole = !(came.flags).intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        text.truncate(came.bytes);
        message.text = text;
        Ok(Some(message))
    }
}

impl Client {
    /// Connects to the lender that listens at `path`.
    ///
    /// # Errors
    /// Each says what to do: no lender is there, it has ended, it does not answer, this user may not.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path).map_err(|e| explain(e.into()))?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let make = || Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?);
        let socket = Own::<OwnedFd>::open(make)?;
        // A lender that is stopped, and whose queue of connections is full, does not hold us longer.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        witness::sleeping("a daemon's socket");
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Ok(Self::of(socket)),
                Err(Errno::INTR) => {}
                Err(e) => return Err(explain(e.into())),
            }
        }
    }

    /// Goes on with a connection that another program made and left to this one.
    #[must_use]
    pub fn over(socket: OwnedFd) -> Self {
        Self::of(Own::stay(socket))
    }

    /// Goes on with a connection of ours.
    #[must_use]
    pub fn of(socket: Own) -> Self {
        let owed = mutex(&locks::LEASE_SOCKET, 0);
        Self { socket, owed }
    }

    /// Whether the lender is root or this user: another user may lay a socket where one is looked for.
    ///
    /// # Errors
    /// `PermissionDenied` if it is not; the system's.
    pub(super) fn check_user(&self) -> io::Result<()> {
        let user = sockopt::socket_peercred(&self.socket)?.uid;
        if user.is_root() || user == rustix::process::geteuid() {
            return Ok(());
        }
        let user = user.as_raw();
        let what = format!(
            "user {user} has the daemon there, neither root nor this user; name the path (`daemon:PATH`) to use it all the same"
        );
        Err(io::Error::new(ErrorKind::PermissionDenied, what))
    }

    /// The names of the links that the lender has, of which this process may ask for leases if it knows the `secret`. It may ask for one here next.
    ///
    /// # Errors
    /// As [`attach`](Self::attach)'s.
    pub fn links(&self, secret: &str) -> io::Result<Vec<String>> {
        let request = Request::Links {
            version: VERSION,
            secret: secret.to_owned(),
        };
        match self.ask(&request)? {
            Answer::Links(links) => {
                check_links(&links).map_err(garbage)?;
                Ok(links)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Asks for a lease of `link` (empty: the only one there is) for `program`, which knows the lender's `secret` (empty: it has none), with at most so much
    /// `memory`, bytes.
    ///
    /// # Errors
    /// The lender refuses, is gone or silent, or sends something else than terms and their descriptors.
    pub fn attach(
        &self,
        link: &str,
        program: &str,
        secret: &str,
        memory: Option<u64>,
    ) -> io::Result<(Terms, [OwnedFd; FILES])> {
        let request = Request::Attach {
            version: VERSION,
            link: link.to_owned(),
            program: program.chars().take(LIST_MAX / 4).collect(), // a character has at most 4 bytes
            secret: secret.to_owned(),
            memory,
        };
        let (terms, files) = match self.exchange(&request)? {
            (Answer::Terms(terms), files) => (*terms, files),
            (other, _) => return Err(unexpected(other)),
        };
        let files = <[OwnedFd; FILES]>::try_from(files).map_err(|files| {
            let found = files.len();
            garbage(format!(
                "{found} descriptors came with its terms, not {FILES}"
            ))
        })?;
        Ok((terms, files))
    }

    /// Asks for the terms once more.
    ///
    /// # Errors
    /// As [`attach`](Self::attach)'s.
    pub fn terms(&self) -> io::Result<Terms> {
        match self.ask(&Request::Terms)? {
            Answer::Terms(terms) => Ok(*terms),
            other => Err(unexpected(other)),
        }
    }

    /// One request and its answer. Descriptors that come unasked are closed.
    fn ask(&self, request: &Request) -> io::Result<Answer> {
        self.exchange(request).map(|(answer, _)| answer)
    }

    /// Says what is not answered, at once. False: the lender has too much to read; to one that has ended there is nothing to say.
    fn tell(&self, request: &Request) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let text = serde_json::to_vec(request).unwrap_or_default();
        send(&self.socket, &text, flags) != Err(Errno::AGAIN)
    }

    fn exchange(&self, request: &Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let text = serde_json::to_vec(request)?;
        if text.len() > MESSAGE_MAX {
            let what = "the request is longer than a message may be";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let mut owed = self.owed.lock();
        let until = clock::now_ns().saturating_add(PATIENCE_NS);
        witness::sleeping("a daemon's answer");
        self.put(&text, until)?;
        *owed = owed.saturating_add(1);
        loop {
            let message = self.take(until)?;
            *owed -= 1;
            if *owed == 0 {
                return read(message);
            }
        }
    }

    fn put(&self, text: &[u8], until: u64) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match send(&self.socket, text, flags) {
                Ok(_) => return Ok(()), // packets go whole or not at all
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(ended(Some(e))),
            }
        }
    }

    fn take(&self, until: u64) -> io::Result<Message> {
        loop {
            self.wait(PollFlags::IN, until)?;
            match Message::of(&self.socket) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => return Err(ended(None)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(ended(Some(e))),
            }
        }
    }

    /// Waits until the socket is ready for `what`, or at its end.
    fn wait(&self, what: PollFlags, until: u64) -> io::Result<()> {
        loop {
            let left = Duration::from_nanos(until.saturating_sub(clock::now_ns()));
            if left.is_zero() {
                let what = "the daemon does not answer";
                return Err(io::Error::new(ErrorKind::TimedOut, what));
            }
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            let mut fds = [PollFd::new(&self.socket, what)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What an answer says.
fn read(message: Message) -> io::Result<(Answer, Vec<OwnedFd>)> {
    if !message.is_whole {
        return Err(garbage(
            "its answer, or what came with it, did not come whole: too long, or this process has no descriptors left".into(),
        ));
    }
    let answer = serde_json::from_slice(&message.text)
        .map_err(|e| garbage(format!("its answer is none: {e}")))?;
    Ok((answer, message.files))
}

/// Why there is no connection.
fn explain(error: io::Error) -> io::Error {
    let what = match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound | ErrorKind::NotADirectory, _) => {
            "no daemon is there; start one with `netchan daemon`"
        }
        (ErrorKind::ConnectionRefused, _) => {
            "the daemon that was there has ended; start one with `netchan daemon`"
        }
        (ErrorKind::PermissionDenied, _) => {
            "not permitted: the socket, or a directory before it, keeps this user out"
        }
        (ErrorKind::WouldBlock | ErrorKind::TimedOut, _) => {
            "the daemon does not take the connection: it is stopped, or has too many"
        }
        (_, Some(libc::EPROTOTYPE)) => "that is the socket of something else",
        (_, Some(libc::ENAMETOOLONG)) => "the path is too long for a socket: 107 bytes at most",
        _ => "cannot connect to a daemon",
    };
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn ended(error: Option<Errno>) -> io::Error {
    let error = error.map_or_else(String::new, |e| format!(": {e}"));
    let what = format!("the daemon has ended{error}");
    io::Error::new(ErrorKind::ConnectionAborted, what)
}

fn garbage(what: String) -> io::Error {
    let what = format!("the daemon cannot be understood: {what}");
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The error that an answer is where another was due.
fn unexpected(answer: Answer) -> io::Error {
    match answer {
        Answer::Refused { errno, why } => {
            let kind = io::Error::from_raw_os_error(sound(errno)).kind();
            io::Error::new(kind, format!("the daemon refuses: {}", sentence(&why)))
        }
        Answer::Links(_) | Answer::Terms(_) | Answer::Done | Answer::Ports(_) => {
            garbage("it answers another question".into())
        }
    }
}

/// What another process says to people, so that it is one line of a bounded length.
fn sentence(why: &str) -> String {
    let printable = why.chars().filter(|c| !c.is_control());
    printable.take(SENTENCE_MAX).collect()
}

/// An errno that there can be.
fn sound(errno: i32) -> i32 {
    if (1..=ERRNO_MAX).contains(&errno) {
        errno
    } else {
        libc::EPROTO
    }
}

/// The errno of an answer that grants nothing.
fn refusal(answer: io::Result<Answer>) -> i32 {
    match answer {
        Ok(Answer::Refused { errno, why }) => {
            let why = sentence(&why);
            tracing::debug!(target: "netchan::link", errno, "the daemon refuses: {why}");
            sound(errno)
        }
        Ok(_) => libc::EPROTO,
        Err(e) => {
            tracing::debug!(target: "netchan::link", "{e}");
            match e.kind() {
                ErrorKind::InvalidData => libc::EPROTO,
                _ => libc::ENETDOWN,
            }
        }
    }
}

/// What a lease was granted.
#[derive(Debug, Default)]
struct Granted {
    /// What is its own until it ends.
    for_good: HashSet<Request>,
    ports: HashMap<Binding, Granting>,
    groups: Groups,
}

/// A port that was granted.
#[derive(Debug)]
struct Granting {
    /// With which other applications' sockets it may be shared, as the lender knows it.
    reuse: Reuse,
    /// How many sockets have it.
    sockets: usize,
    /// The lender was told that nothing new is to come.
    is_closed: bool,
}

/// The addresses of a lease.
#[derive(Debug)]
pub(super) struct Ours {
    ips: Vec<IpAddr>,
    /// 127.0.0.0/8 and ::1 are among them.
    loopback: bool,
}

impl Ours {
    /// Whether `ip` is one of them.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.ips.contains(&ip) || self.loopback && ip.is_loopback()
    }

    /// Whether `ip` may be a peer's: one of the lender's, or a loopback address, whether this lease shares these or not.
    pub(super) fn has_peer(&self, ip: IpAddr) -> bool {
        self.ips.contains(&ip) || ip.is_loopback()
    }
}

/// A lease as the stack asks it. It lasts as long as this.
#[derive(Debug)]
pub(super) struct Leased {
    client: Client,
    addresses: Vec<Address>,
    /// The lender lends its loopback addresses, too.
    lends_loopback: bool,
    /// They are this lease's, too.
    has_loopback: AtomicBool,
    ports: Mutex<Vec<PortRange>>,
    /// What was granted; held while more is asked for.
    granted: Mutex<Granted>,
    pub(super) pipes: Arc<PipeTable>,
}

impl Leased {
    /// What may be at an end of a packet that goes past the lender.
    pub(super) fn ends(&self) -> Ours {
        let ips = self.addresses.iter().map(|address| address.ip());
        Ours {
            ips: ips.collect(),
            loopback: self.has_loopback(),
        }
    }

    /// The lease of `terms`, whose addresses were read.
    pub(super) fn new(client: Client, addresses: Vec<Address>, terms: &Terms) -> Self {
        Self {
            client,
            addresses,
            lends_loopback: terms.loopback,
            has_loopback: AtomicBool::new(false),
            ports: mutex(&locks::LEASE_PORTS, terms.ports.clone()),
            granted: mutex(&locks::LEASE, Granted::default()),
            pipes: PipeTable::new(),
        }
    }

    /// Tells the lender what it does not know yet. False: it has too much to read.
    fn tell_groups(
        &self,
        groups: &mut Groups,
        untold: impl IntoIterator<Item = Membership>,
    ) -> bool {
        untold.into_iter().all(|membership| {
            let is_told = self.client.tell(&Request::Drop(membership.clone()));
            if is_told {
                groups.told(membership);
            }
            is_told
        })
    }

    /// Asks for what is the lease's until it ends.
    fn ask_once(&self, request: Request) -> Result<(), i32> {
        let mut granted = self.granted.lock();
        if granted.for_good.contains(&request) {
            return Ok(());
        }
        match self.client.ask(&request) {
            Ok(Answer::Done) => {
                granted.for_good.insert(request);
                Ok(())
            }
            answer => Err(refusal(answer)),
        }
    }
}

impl AsFd for Leased {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl Lease for Leased {
    fn addresses(&self) -> Vec<Address> {
        self.addresses.clone()
    }

    fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32> {
        let mut granted = self.granted.lock();
        if let Some(port) = granted.ports.get_mut(&binding)
            && port.reuse == reuse
            && !port.is_closed
        {
            port.sockets += 1;
            return Ok(());
        }
        match self.client.ask(&Request::Bind(binding, reuse)) {
            Ok(Answer::Done) => {}
            answer => return Err(refusal(answer)),
        }
        let port = granted.ports.entry(binding).or_insert(Granting {
            reuse,
            sockets: 0,
            is_closed: false,
        });
        (port.reuse, port.is_closed) = (reuse, false);
        port.sockets += 1;
        Ok(())
    }

    fn leave(&self, binding: Binding) {
        let mut granted = self.granted.lock();
        let is_it = |port: &&mut Granting| port.sockets == 1 && port.reuse.port && !port.is_closed;
        if let Some(port) = granted.ports.get_mut(&binding).filter(is_it)
            && matches!(self.client.ask(&Request::Leave(binding)), Ok(Answer::Done))
        {
            port.is_closed = true;
        }
    }

    fn unbind(&self, binding: Binding) -> bool {
        let mut granted = self.granted.lock();
        let Some(port) = granted.ports.get_mut(&binding) else {
            return false;
        };
        port.sockets = port.sockets.saturating_sub(1);
        port.sockets == 0
    }

    fn close(&self, binding: Binding, connections: &[(SocketAddr, SocketAddr)]) {
        let mut granted = self.granted.lock();
        let Some(port) = granted.ports.get_mut(&binding) else {
            return;
        };
        if port.sockets > 0 || port.is_closed {
            return;
        }
        let mut parts = connections.chunks(FLOWS_MAX);
        let mut part = parts.next().unwrap_or_default();
        loop {
            if !self.client.tell(&Request::Close(binding, part.to_vec())) {
                return; // it is tried again
            }
            port.is_closed = true;
            let Some(next) = parts.next() else {
                return;
            };
            part = next;
        }
    }

    fn give_back(&self, binding: Binding) -> bool {
        let mut granted = self.granted.lock();
        let has_none = |port: &Granting| port.sockets == 0;
        if !granted.ports.get(&binding).is_some_and(has_none) {
            return true;
        }
        let is_told = self.client.tell(&Request::Return(binding));
        if is_told {
            granted.ports.remove(&binding);
        }
        is_told
    }

    fn over(&self) {
        let _ = self.client.tell(&Request::Over); // else their peers are reset
    }

    fn unbound(&self) -> Vec<(Binding, bool)> {
        let granted = self.granted.lock();
        let ports = granted.ports.iter();
        ports
            .filter(|(_, port)| port.sockets == 0)
            .map(|(binding, port)| (*binding, port.is_closed))
            .collect()
    }

    fn packets(&self, protocol: u8) -> Result<(), i32> {
        self.ask_once(Request::Packets(protocol))
    }

    fn frames(&self, kind: u16) -> Result<(), i32> {
        self.ask_once(Request::Frames(kind))
    }

    fn share_loopback(&self) -> Result<(), i32> {
        if !self.lends_loopback {
            return Err(libc::EADDRNOTAVAIL);
        }
        self.ask_once(Request::Loopback)?;
        self.has_loopback.store(true, Relaxed); // before the link is in use
        Ok(())
    }

    fn has_loopback(&self) -> bool {
        self.has_loopback.load(Relaxed) // as in `share_loopback`
    }

    fn ports(&self) -> Vec<PortRange> {
        self.ports.lock().clone()
    }

    fn more_ports(&self) -> Result<(), i32> {
        let more = match self.client.ask(&Request::MorePorts) {
            Ok(Answer::Ports(more)) => more,
            answer => return Err(refusal(answer)),
        };
        let mut ports = self.ports.lock();
        let before = ports.len();
        for range in more.into_iter().filter(|range| range.is_sound()) {
            let is_new = ports.iter().all(|old| range.1 < old.0 || old.1 < range.0);
            if is_new && ports.len() < RANGES_MAX {
                ports.push(range);
            }
        }
        if ports.len() > before {
            Ok(())
        } else {
            Err(libc::EADDRNOTAVAIL)
        }
    }

    fn join_group(&self, socket: u64, group: IpAddr, filter: &Filter) -> Result<(), i32> {
        let groups = &mut self.granted.lock().groups;
        let before = groups.of(socket, group);
        let Some(membership) = groups.set(socket, group, filter) else {
            return Ok(());
        };
        match self.client.ask(&Request::Join(membership.clone())) {
            Ok(Answer::Done) => {
                groups.told(membership);
                Ok(())
            }
            answer => {
                groups.set(socket, group, &before);
                Err(refusal(answer))
            }
        }
    }

    fn leave_group(&self, socket: u64, group: IpAddr) -> bool {
        let groups = &mut self.granted.lock().groups;
        let left = groups.set(socket, group, &Filter::NO_SOURCE);
        self.tell_groups(groups, left)
    }

    fn settle_groups(&self) -> bool {
        let groups = &mut self.granted.lock().groups;
        let untold = groups.untold();
        self.tell_groups(groups, untold)
    }

    fn pipes(&self) -> Arc<PipeTable> {
        self.pipes.clone()
    }
}
