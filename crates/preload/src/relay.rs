//! The thread that carries streams which several processes hold ([`netchan::relay`]), between netchan's socket and the pair that they share (`share`).

mod listener;

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::Waker,
    thread::JoinHandle,
    time::Duration,
};

use netchan::{
    own::Own,
    relay::{Carried, Connection, Datagrams, End, Relay, Sides, Turn},
    socket::{
        Kind, Readiness, Socket,
        options::{Setting, parse},
    },
};

use self::listener::Listener;
use crate::{line::Wish, locks::hold, process, share, state::SocketState, sys, table::Handle};

/// At the end of the process: how long is waited for what other processes have written already.
const TO_END: Duration = Duration::from_millis(500);
/// How long is waited for the thread to leave all as it is: on a busy machine it may have to begin first.
const TO_STAND: Duration = Duration::from_secs(2);

enum Message {
    Carry(Handle<SocketState>),
    Set(Wish),
    Stand,
    End,
}

/// What the thread goes on to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    /// It leaves all as it is, and ends.
    Standing,
    ToEnd,
}

/// How the thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    /// Not there: the first message starts it.
    Absent,
    Running,
    /// Not there, and no message starts it.
    Standing,
}

struct Inbox {
    messages: Vec<Message>,
    waker: Option<Waker>,
    is: Is,
    thread: Option<JoinHandle<()>>,
}

static INBOX: Mutex<Inbox> = Mutex::new(Inbox {
    messages: Vec::new(),
    waker: None,
    is: Is::Absent,
    thread: None,
});

/// What stands still, until another thread carries it.
static STANDING: Mutex<Option<Relay<Stream>>> = Mutex::new(None);

/// All streams are closed, and none is carried any more.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// What messages take, held.
pub struct ForFork {
    _inbox: MutexGuard<'static, Inbox>,
    _standing: MutexGuard<'static, Option<Relay<Stream>>>,
}

/// The same, for the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _inbox: hold(&INBOX),
        _standing: hold(&STANDING),
    }
}

/// In a child that begins anew: nothing is carried, and no thread is there.
pub fn begin_anew() {
    let none = Inbox {
        messages: Vec::new(),
        waker: None,
        is: Is::Absent,
        thread: None,
    };
    mem::forget(mem::replace(&mut *hold(&INBOX), none)); // it is the parent's
    mem::forget(hold(&STANDING).take()); // as well
    HAS_ENDED.store(false, Release);
}

fn post(message: Message) {
    let (waker, starts) = {
        let mut inbox = hold(&INBOX);
        inbox.messages.push(message);
        let starts = inbox.is == Is::Absent;
        if starts {
            inbox.is = Is::Running;
        }
        (inbox.waker.clone(), starts)
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    if starts {
        start();
    }
}

fn start() {
    let thread = netchan::spawn("netchan-relay", run);
    let mut inbox = hold(&INBOX);
    if thread.is_err() {
        inbox.is = Is::Absent; // what is carried stands still; the next message tries again
    }
    inbox.thread = thread.ok();
}

/// Carries a stream of this process, whose pair was made.
pub fn carry(state: Handle<SocketState>) {
    post(Message::Carry(state));
}

/// Sets an option of a carried stream, or of none.
pub fn set(wish: Wish) {
    post(Message::Set(wish));
}

/// At the end of this process: what was written so far goes out, and all streams are closed.
pub fn end() {
    if hold(&INBOX).is != Is::Running {
        return;
    }
    post(Message::End);
    let _ = comes_true(TO_END, || HAS_ENDED.load(Acquire)); // pairs with Release in relay
}

fn comes_true(within: Duration, is_true: impl Fn() -> bool) -> bool {
    let step = Duration::from_millis(1);
    (0..within.as_millis()).any(|_| {
        let is_true = is_true();
        if !is_true {
            sys::nap(step);
        }
        is_true
    })
}

/// The thread leaves all as it is, and ends. Whether there is a stream that another process has: then [`go_on`] is to follow, here or, after a
/// fork, in the child ([`keep`]).
///
/// # Errors
/// It does not come to it.
pub fn stand_still() -> io::Result<bool> {
    if hold(&INBOX).is != Is::Running {
        return Ok(false);
    }
    post(Message::Stand);
    if !comes_true(TO_STAND, || hold(&STANDING).is_some()) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    // What it gives back in its last moments takes locks of the stack's, which a fork may not find held.
    let thread = hold(&INBOX).thread.take();
    let _ = thread.map(JoinHandle::join); // one that panicked has said so
    let mut standing = hold(&STANDING);
    let mut streams = standing.iter_mut().flat_map(Relay::all_mut);
    Ok(streams.any(|stream| is_held(stream)))
}

/// Whether another process has it.
fn is_held(stream: &Stream) -> bool {
    let Some(end) = stream.end() else {
        return false;
    };
    let mut fds = [libc::pollfd {
        fd: end.as_raw_fd(),
        events: 0,
        revents: 0,
    }];
    sys::poll_now(&mut fds).is_ok() && fds[0].revents & libc::POLLHUP == 0
}

/// Carries again what stands still.
pub fn go_on() {
    let mut inbox = hold(&INBOX);
    if inbox.is == Is::Standing {
        inbox.is = Is::Running;
        drop(inbox);
        start();
    }
}

/// Carries what stands still until no process has a stream any more, and `goes_on` says no; `door` is how others know that it is.
///
/// # Errors
/// The system's.
pub fn keep(door: Option<&Own>, goes_on: impl Fn() -> bool) -> io::Result<()> {
    let Some(mut relay) = standing()? else {
        return Ok(());
    };
    loop {
        hear(&mut relay);
        relay.turn_all()?;
        if relay.is_empty() && !goes_on() {
            return Ok(());
        }
        let mut callers = door.map(|door| libc::pollfd {
            fd: door.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        relay.wait(callers.as_mut_slice(), None)?;
        if let (Some(door), Some(libc::pollfd { revents: 1.., .. })) = (door, callers) {
            share::answer_callers(door);
        }
    }
}

/// What stands still, or nothing as yet: to be carried by the calling thread.
fn standing() -> io::Result<Option<Relay<Stream>>> {
    let Some(net) = process::running() else {
        return Ok(None);
    };
    let standing = hold(&STANDING).take();
    let relay = standing.map_or_else(|| Relay::new(net), Ok)?;
    let mut inbox = hold(&INBOX);
    inbox.is = Is::Running;
    inbox.waker = Some(relay.waker());
    Ok(Some(relay))
}

/// The thread that carries, or a keeper, looks around.
pub fn wake() {
    let waker = hold(&INBOX).waker.clone();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// netchan's side of a stream, and our end of its pair.
enum Ends {
    /// Of a socket that this process had numbers for: both are in its record.
    Of(Handle<SocketState>),
    /// Of a connection that was accepted here.
    Own(Socket, Own),
}

impl Sides for Ends {
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Of(state) => state.socket.get(),
            Self::Own(socket, _) => Some(socket),
        }
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Of(state) => state.share.get().map(AsFd::as_fd),
            Self::Own(_, end) => Some(end.as_fd()),
        }
    }
}

enum Stream {
    Connection(Connection<Ends>),
    Listener(Listener),
    Datagrams(Datagrams<Ends>),
}

impl Stream {
    fn sides(&self) -> &Ends {
        match self {
            Self::Connection(connection) => connection.sides(),
            Self::Listener(listener) => listener.sides(),
            Self::Datagrams(datagrams) => datagrams.sides(),
        }
    }
}

impl Sides for Stream {
    fn socket(&self) -> Option<&Socket> {
        self.sides().socket()
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        self.sides().end()
    }
}

impl Carried for Stream {
    fn end_mut(&mut self) -> &mut End {
        match self {
            Self::Connection(connection) => connection.end_mut(),
            Self::Listener(listener) => listener.end_mut(),
            Self::Datagrams(datagrams) => datagrams.end_mut(),
        }
    }

    fn turn(&mut self, room: &mut [u8]) -> io::Result<Turn<(u64, Self)>> {
        match self {
            Self::Connection(connection) => connection.turn(room),
            Self::Listener(listener) => listener.turn(),
            Self::Datagrams(datagrams) => datagrams.turn(room),
        }
    }

    fn wants(&self) -> Readiness {
        match self {
            Self::Connection(connection) => connection.wants(),
            Self::Listener(listener) => listener.wants(),
            Self::Datagrams(datagrams) => datagrams.wants(),
        }
    }
}

fn run() {
    if let Err(error) = relay() {
        sys::complain(&format!(
            "netchan: streams that were made before fork() are not served any more: {error}\n"
        ));
        hold(&INBOX).is = Is::Absent;
    }
}

fn relay() -> io::Result<()> {
    let Some(mut relay) = standing()? else {
        return Ok(());
    };
    loop {
        // First: what came before there was a waker has woken nothing.
        match hear(&mut relay) {
            Goes::On => relay.step(&mut [], None)?,
            Goes::Standing => {
                relay.turn_all()?; // what no process has any more ends
                let mut inbox = hold(&INBOX);
                inbox.is = Is::Standing;
                *hold(&STANDING) = Some(relay);
                return Ok(());
            }
            Goes::ToEnd => {
                finish(&mut relay);
                HAS_ENDED.store(true, Release); // pairs with Acquire in end
                return Ok(());
            }
        }
    }
}

fn hear(relay: &mut Relay<Stream>) -> Goes {
    let messages = mem::take(&mut hold(&INBOX).messages);
    let mut goes = Goes::On;
    for message in messages {
        match message {
            Message::Carry(state) => {
                let number = state.name.number;
                let listens = state.socket.get().is_some_and(Socket::is_listening);
                let (kind, domain) = (state.kind, state.domain);
                let sides = Ends::Of(state);
                let stream = match kind {
                    Kind::Stream if listens => Stream::Listener(Listener::new(sides)),
                    Kind::Stream => Stream::Connection(Connection::new(sides)),
                    Kind::Datagram | Kind::Ping => Stream::Datagrams(Datagrams::new(sides, domain)),
                };
                let _ = relay.add(number, stream); // without memory it is closed
            }
            Message::Set(wish) => apply(relay, &wish),
            Message::Stand => goes = Goes::Standing,
            Message::End => return Goes::ToEnd,
        }
    }
    goes
}

/// What the table of options leaves to a socket's caller has no effect here.
fn apply(relay: &mut Relay<Stream>, wish: &Wish) {
    let stream = relay.get_mut(wish.number);
    if let Some(socket) = stream.as_ref().and_then(|stream| stream.socket())
        && let Ok(setting) = parse(wish.level, wish.name, &wish.value)
        && !matches!(setting, Setting::Caller(_))
    {
        let _ = setting.apply(socket); // the process that asked goes on
    }
}

/// What was written so far goes out. What no process has accepted is reset, as it is where a listener ends.
fn finish(relay: &mut Relay<Stream>) {
    let mut untaken = Vec::new();
    for stream in relay.all_mut() {
        if let Stream::Listener(listener) = stream {
            untaken.extend(listener.untaken());
        }
    }
    for number in untaken {
        let stream = relay.remove(number);
        if let Some(socket) = stream.as_ref().and_then(Stream::socket) {
            let _ = socket.disconnect(); // of a stream it says nothing
        }
    }
    // One that goes on waiting for its peer is closed as it is.
    let (all, room) = relay.all_with_room();
    for stream in all {
        stream.end_mut().is_readable = true;
        // It is closed next.
        let _ = match stream {
            Stream::Connection(connection) => connection.turn::<()>(room).err(),
            Stream::Datagrams(datagrams) => datagrams.turn::<()>(room).err(),
            Stream::Listener(_) => None,
        };
    }
    relay.clear();
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
