//! Sockets whose descriptors are the kernel's: bytes are carried between a socket here and one end of a pair of UNIX sockets, whose other end programs
//! hold. For processes that cannot have the stack in their own memory: forked children, and programs that make their system calls themselves.
//!
//! One thread waits for both sides of all streams at once, moves what there is, a bounded amount of each in turn, and keeps at most one block of each
//! direction. The end of either side becomes the end of the other; when no process holds a stream any more it is closed, as the kernel closes one.

mod connection;
mod datagrams;
pub mod letter;
pub mod name;

use std::{
    collections::{HashMap, HashSet},
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::{Wake, Waker},
    time::Duration,
};

use percore::{clock::now_ns, lock::Mutex, lock::mutex, own::Own};
use rustix::event::epoll;

pub use self::{connection::Connection, datagrams::Datagrams};
use crate::{
    Net, locks,
    socket::{Readiness, Shards, Socket, Waiter},
};

/// Bytes that are moved at a time.
const BLOCK: usize = 64 << 10;
/// A stream that found no descriptor looks again after as long, nanoseconds.
const LATER: u64 = 100_000_000;

/// What a stream goes between.
pub trait Sides {
    /// The socket here.
    fn socket(&self) -> Option<&Socket>;
    /// Our end of the pair.
    fn end(&self) -> Option<BorrowedFd<'_>>;
}

/// Something that is carried.
pub trait Carried: Sides + Sized {
    /// What is known of that end.
    fn end_mut(&mut self) -> &mut End;
    /// Moves what there is; `room` is for what is on its way.
    ///
    /// # Errors
    /// It is broken.
    fn turn(&mut self, room: &mut [u8]) -> io::Result<Turn<(u64, Self)>>;
    /// What it waits for at the socket.
    fn wants(&self) -> Readiness;
}

/// What a look at a stream came to.
#[derive(Debug)]
pub enum Turn<N> {
    /// It waits for what it has asked for.
    Waits,
    /// There may be more at once.
    Again,
    /// There is more, but nothing to carry it with for now.
    Later,
    /// It is over, and closed.
    Over,
    /// New streams by their numbers, and there may be more.
    Accepted(Vec<N>),
}

/// What is known of a pair's end; it may be less by now.
#[derive(Debug)]
pub struct End {
    /// There may be something to read, or its end.
    pub is_readable: bool,
    /// There may be room.
    pub is_writable: bool,
    /// No process holds the other end any more, or both ways are shut.
    pub has_hung_up: bool,
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

impl End {
    /// It has changed.
    pub fn note(&mut self, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let any = |of: Flags| flags.intersects(of);
        self.is_readable |= any(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR);
        self.is_writable |= any(Flags::OUT | Flags::HUP | Flags::ERR);
        self.has_hung_up |= any(Flags::HUP);
    }
}

/// Streams whose sockets may be ready.
#[derive(Debug)]
struct Ready {
    numbers: Mutex<Vec<u64>>,
    waker: Waker,
}

/// Says that netchan's side of a stream may be ready.
struct Bell {
    number: u64,
    is_rung: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Pairs with Release before the look.
        if !self.is_rung.swap(true, Acquire) {
            self.ready.numbers.lock().push(self.number);
            self.ready.waker.wake_by_ref();
        }
    }
}

struct Entry<S> {
    stream: S,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Streams, and the thread's means to wait for them.
pub struct Relay<S> {
    streams: HashMap<u64, Entry<S>>,
    /// Tells of our ends, by the streams' numbers.
    ends: Own,
    /// Those to be looked at.
    due: HashSet<u64>,
    /// Those that found no descriptor, and when they look again.
    later: HashSet<u64>,
    later_at: u64,
    shards: Shards,
    room: Vec<u8>,
    /// What the last wait looked at.
    fds: Vec<libc::pollfd>,
    waiter: Waiter,
    ready: Arc<Ready>,
}

impl<S> std::fmt::Debug for Relay<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relay of {} streams", self.streams.len())
    }
}

impl<S: Carried> Relay<S> {
    /// One without streams.
    ///
    /// # Errors
    /// The system's: it has no descriptor left.
    pub fn new(net: &Net) -> io::Result<Self> {
        let waiter = Waiter::new(net)?;
        let ready = Arc::new(Ready {
            numbers: mutex(&locks::RELAY, Vec::new()),
            waker: waiter.waker().clone(),
        });
        Ok(Self {
            streams: HashMap::new(),
            ends: Own::open(|| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?))?,
            due: HashSet::new(),
            later: HashSet::new(),
            later_at: 0,
            shards: Shards::default(),
            room: vec![0; BLOCK],
            fds: Vec::new(),
            waiter,
            ready,
        })
    }

    /// Ends a wait of [`Self::step`], or the next one.
    pub fn waker(&self) -> Waker {
        self.ready.waker.clone()
    }

    /// Carries one more, by a number of its own.
    ///
    /// # Errors
    /// epoll_ctl(2)'s. It is dropped.
    pub fn add(&mut self, number: u64, stream: S) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        if let Some(end) = stream.end() {
            let all = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
            epoll::add(&self.ends, end, epoll::EventData::new_u64(number), all)?;
        }
        let bell = Arc::new(Bell {
            number,
            is_rung: AtomicBool::new(false),
            ready: self.ready.clone(),
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

    /// Whether it carries none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// One of them.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut S> {
        Some(&mut self.streams.get_mut(&number)?.stream)
    }

    /// All of them.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.streams.values_mut().map(|entry| &mut entry.stream)
    }

    /// All of them, with room for what is on its way.
    pub fn all_with_room(&mut self) -> (impl Iterator<Item = &mut S>, &mut [u8]) {
        let all = self.streams.values_mut().map(|entry| &mut entry.stream);
        (all, &mut self.room)
    }

    /// Carries none any more.
    pub fn clear(&mut self) {
        self.streams.clear();
    }

    /// It is looked at with the next step.
    pub fn look_at(&mut self, number: u64) {
        self.due.insert(number);
    }

    /// Carries one no more.
    pub fn remove(&mut self, number: u64) -> Option<S> {
        let entry = self.streams.remove(&number)?;
        if let Some(socket) = entry.stream.socket() {
            socket.deregister(&entry.waker);
        }
        // Another process could hold our end for a while, and its events would come.
        if let Some(end) = entry.stream.end() {
            let _ = epoll::delete(&self.ends, end);
        }
        Some(entry.stream)
    }

    /// What was written so far goes out, as far as peers take it within `limit`; then all are closed.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(&mut self, limit: Duration) -> io::Result<()> {
        let end = now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        for (&number, entry) in &mut self.streams {
            entry.stream.end_mut().is_readable = true;
            self.due.insert(number);
        }
        while !self.streams.is_empty() && now_ns() < end {
            self.step(&mut [], Some(Duration::from_nanos(end - now_ns().min(end))))?;
        }
        self.streams.clear();
        Ok(())
    }

    /// Moves what there is, and waits for more, or for one of `others`, at most `limit`.
    ///
    /// # Errors
    /// The system's.
    pub fn step(&mut self, others: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
        self.turn_all()?;
        self.wait(others, limit)
    }

    /// Moves what there is.
    ///
    /// # Errors
    /// The system's.
    pub fn turn_all(&mut self) -> io::Result<()> {
        self.look_at_ends()?;
        let ready = mem::take(&mut *self.ready.numbers.lock());
        self.due.extend(ready);
        if now_ns() >= self.later_at {
            self.due.extend(self.later.drain());
        }
        for number in mem::take(&mut self.due) {
            self.turn(number);
        }
        Ok(())
    }

    /// Waits until there is something to move, or one of `others` is ready, at most `limit`.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self, others: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
        let later = Duration::from_nanos(self.later_at.saturating_sub(now_ns()));
        let limit = match (self.due.is_empty(), self.later.is_empty()) {
            (false, _) => Some(Duration::ZERO),
            (true, false) => Some(limit.map_or(later, |limit| limit.min(later))),
            (true, true) => limit,
        };
        self.fds.clear();
        self.fds.push(libc::pollfd {
            fd: self.ends.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        self.fds.extend_from_slice(others);
        self.waiter.expect_all(&self.shards);
        match self.waiter.wait(&mut self.fds, limit) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for (other, seen) in others.iter_mut().zip(self.fds.iter().skip(1)) {
            other.revents = seen.revents;
        }
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
                entry.stream.end_mut().note(flags);
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
                if let Some(socket) = entry.stream.socket()
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
                    self.later_at = now_ns() + LATER;
                }
                self.later.insert(number);
            }
            Ok(Turn::Accepted(streams)) => {
                self.due.insert(number);
                for (number, stream) in streams {
                    let _ = self.add(number, stream); // without memory it is reset
                }
            }
            Ok(Turn::Over) | Err(_) => drop(self.remove(number)),
        }
    }
}
