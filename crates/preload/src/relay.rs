//! The relay: the thread that carries streams which several processes hold, between netchan's socket and the pair that they share (`share`).
//!
//! It waits for both sides at once, moves what there is, a bounded amount of each stream in turn, and keeps at most one block of each direction. The end
//! of either side becomes the end of the other; when no process holds a stream any more it is closed, as the kernel closes one.

mod connection;
mod listener;

use std::{
    collections::{HashMap, HashSet},
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::{Wake, Waker},
    time::Duration,
};

use netchan::{
    own::Own,
    socket::{
        Readiness, Shards, Socket, Waiter,
        options::{Setting, parse},
    },
};
use rustix::event::epoll;

use self::{connection::Connection, listener::Listener};
use crate::{line::Wish, locks::hold, process, state::SocketState, sys, table::Handle};

/// Bytes that are moved at a time.
const BLOCK: usize = 64 << 10;
/// A stream that found no descriptor looks again after as long.
const LATER: Duration = Duration::from_millis(100);
/// At the end of the process: how long is waited for what other processes have written already.
const TO_END: Duration = Duration::from_millis(500);

enum Message {
    Carry(Handle<SocketState>),
    Ready(u64),
    Set(Wish),
    End,
}

struct Inbox {
    messages: Vec<Message>,
    waker: Option<Waker>,
    is_running: bool,
}

static INBOX: Mutex<Inbox> = Mutex::new(Inbox {
    messages: Vec::new(),
    waker: None,
    is_running: false,
});

/// All streams are closed, and none is carried any more.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

fn post(message: Message) {
    let (waker, starts) = {
        let mut inbox = hold(&INBOX);
        inbox.messages.push(message);
        let starts = !mem::replace(&mut inbox.is_running, true);
        (inbox.waker.clone(), starts)
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    // Without a thread, what is carried stands still; the next one tries again.
    if starts && netchan::spawn("netchan-relay", run).is_err() {
        hold(&INBOX).is_running = false;
    }
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
    if !hold(&INBOX).is_running {
        return;
    }
    post(Message::End);
    let step = Duration::from_millis(1);
    for _ in 0..TO_END.as_millis() {
        if HAS_ENDED.load(Acquire) {
            return; // pairs with Release in run
        }
        sys::nap(step);
    }
}

/// netchan's side of a stream, and our end of its pair.
enum Sides {
    /// Of a socket that this process had numbers for: both are in its record.
    Of(Handle<SocketState>),
    /// Of a connection that was accepted here.
    Own(Socket, Own),
}

impl Sides {
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

/// What a look at a stream came to.
enum Turn {
    /// It waits for what it has asked for.
    Waits,
    /// There may be more at once.
    Again,
    /// There is more, but nothing to carry it with for now.
    Later,
    /// It is over, and closed.
    Over,
    /// Connections that were accepted, and there may be more.
    Accepted(Vec<Carried>),
}

/// A stream on its way into the relay: what it is called, and what it is.
struct Carried {
    number: u64,
    stream: Stream,
}

enum Stream {
    Connection(Connection),
    Listener(Listener),
}

impl Stream {
    fn sides(&self) -> &Sides {
        match self {
            Self::Connection(connection) => connection.sides(),
            Self::Listener(listener) => listener.sides(),
        }
    }

    fn turn(&mut self, room: &mut [u8]) -> io::Result<Turn> {
        match self {
            Self::Connection(connection) => connection.turn(room),
            Self::Listener(listener) => listener.turn(),
        }
    }

    fn wants(&self) -> Readiness {
        match self {
            Self::Connection(connection) => connection.wants(),
            Self::Listener(listener) => listener.wants(),
        }
    }

    /// The pair's end has changed.
    fn note(&mut self, flags: epoll::EventFlags) {
        let seen = match self {
            Self::Connection(connection) => connection.end_mut(),
            Self::Listener(listener) => listener.end_mut(),
        };
        let any = |of: epoll::EventFlags| flags.intersects(of);
        use epoll::EventFlags as Flags;
        seen.is_readable |= any(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR);
        seen.is_writable |= any(Flags::OUT | Flags::HUP | Flags::ERR);
        seen.has_hung_up |= any(Flags::HUP);
    }
}

/// What is known of a pair's end; it may be less by now.
#[derive(Debug)]
struct End {
    is_readable: bool,
    is_writable: bool,
    /// No process holds the other end any more, or both ways are shut.
    has_hung_up: bool,
}

impl Default for End {
    fn default() -> Self {
        Self {
            is_readable: true,
            is_writable: true,
            has_hung_up: false,
        }
    }
}

/// Says that netchan's side of a stream may be ready.
struct Bell {
    number: u64,
    is_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // Pairs with Release before the look.
        if !self.is_rung.swap(true, Acquire) {
            post(Message::Ready(self.number));
        }
    }
}

struct Entry {
    stream: Stream,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Relay {
    streams: HashMap<u64, Entry>,
    /// Tells of our ends, by the streams' numbers.
    ends: Own,
    /// Those to be looked at.
    due: HashSet<u64>,
    /// Those that found no descriptor, and when they look again.
    later: HashSet<u64>,
    later_at: Duration,
    shards: Shards,
    room: Vec<u8>,
}

fn run() {
    if let Err(error) = relay() {
        sys::complain(&format!(
            "netchan: streams that were made before fork() are not served any more: {error}\n"
        ));
        hold(&INBOX).is_running = false;
    }
}

fn relay() -> io::Result<()> {
    let Some(net) = process::running() else {
        return Ok(());
    };
    let mut waiter = Waiter::new(net)?;
    hold(&INBOX).waker = Some(waiter.waker().clone());
    let mut relay = Relay {
        streams: HashMap::new(),
        ends: Own::open(|| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?))?,
        due: HashSet::new(),
        later: HashSet::new(),
        later_at: Duration::ZERO,
        shards: Shards::default(),
        room: vec![0; BLOCK],
    };
    loop {
        // First: what came before there was a waker has woken nothing.
        if relay.hear() {
            relay.finish();
            HAS_ENDED.store(true, Release); // pairs with Acquire in end
            return Ok(());
        }
        relay.look_at_ends()?;
        if sys::monotonic() >= relay.later_at {
            relay.due.extend(relay.later.drain());
        }
        for number in mem::take(&mut relay.due) {
            relay.turn(number);
        }
        let limit = match (relay.due.is_empty(), relay.later.is_empty()) {
            (false, _) => Some(Duration::ZERO),
            (true, false) => Some(relay.later_at.saturating_sub(sys::monotonic())),
            (true, true) => None,
        };
        let mut fds = [libc::pollfd {
            fd: relay.ends.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        waiter.expect_all(&relay.shards);
        match waiter.wait(&mut fds, limit) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

impl Relay {
    /// True: the process ends.
    fn hear(&mut self) -> bool {
        let messages = mem::take(&mut hold(&INBOX).messages);
        for message in messages {
            match message {
                Message::Carry(state) => {
                    let number = state.name.number;
                    let listens = state.socket.get().is_some_and(Socket::is_listening);
                    let sides = Sides::Of(state);
                    let stream = if listens {
                        Stream::Listener(Listener::new(sides))
                    } else {
                        Stream::Connection(Connection::new(sides))
                    };
                    let _ = self.add(Carried { number, stream }); // without memory it is closed
                }
                Message::Ready(number) => {
                    self.due.insert(number);
                }
                Message::Set(wish) => self.set(&wish),
                Message::End => return true,
            }
        }
        false
    }

    fn add(&mut self, Carried { number, stream }: Carried) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        if let Some(end) = stream.sides().end() {
            let all = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
            epoll::add(&self.ends, end, epoll::EventData::new_u64(number), all)?;
        }
        let bell = Arc::new(Bell {
            number,
            is_rung: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&bell));
        let entry = Entry {
            stream,
            bell,
            waker,
        };
        self.streams.insert(number, entry);
        self.due.insert(number);
        Ok(())
    }

    fn look_at_ends(&mut self) -> io::Result<()> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        let now = rustix::event::Timespec::default();
        let count = match epoll::wait(&self.ends, &mut events, Some(&now)) {
            Err(rustix::io::Errno::INTR) => 0,
            count => count?,
        };
        for event in events.iter().take(count) {
            // Copies: an event is packed.
            let (number, flags) = (event.data.u64(), event.flags);
            if let Some(entry) = self.streams.get_mut(&number) {
                entry.stream.note(flags);
                self.due.insert(number);
            }
        }
        Ok(())
    }

    fn turn(&mut self, number: u64) {
        let Some(entry) = self.streams.get_mut(&number) else {
            return;
        };
        entry.bell.is_rung.store(false, Release); // before the look: a wake after it counts
        match entry.stream.turn(&mut self.room) {
            Ok(Turn::Waits) => {
                let wanted = entry.stream.wants();
                if let Some(socket) = entry.stream.sides().socket()
                    && wanted != Readiness::NONE
                {
                    // Where it is ready by now the bell rings.
                    socket.register_among(&self.shards, wanted, &entry.waker);
                }
            }
            Ok(Turn::Again) => {
                self.due.insert(number);
            }
            Ok(Turn::Later) => {
                if self.later.is_empty() {
                    self.later_at = sys::monotonic() + LATER;
                }
                self.later.insert(number);
            }
            Ok(Turn::Accepted(connections)) => {
                self.due.insert(number);
                for connection in connections {
                    let _ = self.add(connection); // without memory it is reset
                }
            }
            Ok(Turn::Over) | Err(_) => self.remove(number),
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.streams.remove(&number)
            && let Some(socket) = entry.stream.sides().socket()
        {
            socket.deregister(&entry.waker);
            // Another process could hold our end for a while, and its events would come.
            if let Some(end) = entry.stream.sides().end() {
                let _ = epoll::delete(&self.ends, end);
            }
        }
    }

    /// What the table of options leaves to a socket's caller has no effect here.
    fn set(&mut self, wish: &Wish) {
        let entry = self.streams.get(&wish.number);
        if let Some(socket) = entry.and_then(|entry| entry.stream.sides().socket())
            && let Ok(setting) = parse(wish.level, wish.name, &wish.value)
            && !matches!(setting, Setting::Caller(_))
        {
            let _ = setting.apply(socket); // the process that asked goes on
        }
    }

    /// What was written so far goes out. What no process has accepted is reset, as it is where a listener ends.
    fn finish(&mut self) {
        let mut untaken = Vec::new();
        for entry in self.streams.values_mut() {
            if let Stream::Listener(listener) = &mut entry.stream {
                untaken.extend(listener.untaken());
            }
        }
        for number in untaken {
            let entry = self.streams.remove(&number);
            if let Some(socket) = entry
                .as_ref()
                .and_then(|entry| entry.stream.sides().socket())
            {
                let _ = socket.disconnect(); // of a stream it says nothing
            }
        }
        for entry in self.streams.values_mut() {
            entry.stream.note(epoll::EventFlags::IN);
            if let Stream::Connection(connection) = &mut entry.stream {
                let _ = connection.turn(&mut self.room); // it is closed next
            }
        }
        self.streams.clear();
    }
}
