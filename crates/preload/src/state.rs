//! What stands behind a socket's number: undecided at first (the kernel's socket of that number serves), then netchan's socket.

use std::{
    io,
    net::Shutdown,
    os::fd::RawFd,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicI32, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::Duration,
};

use libc::c_int;
use netchan::{
    own::Own,
    socket::{
        Domain, Kind, Socket,
        options::{CallerOption, Setting},
    },
};
use parking_lot::Mutex;

use crate::{
    asked::{Arrival, Asked, OPT_CMSG, OPT_ID, RX_SOFTWARE, SOFTWARE},
    limits, line,
    table::Table,
};

pub mod watch;

use watch::Watch;

/// Every socket number that netchan serves or may come to serve.
pub static SOCKETS: Table<SocketState> = Table::new();

/// What a program did with a socket that is undecided.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // few, and short-lived
pub enum Undecided {
    /// It set an option.
    Setting(Setting),
    /// shutdown(2), which has an effect although it fails.
    Shutdown(Shutdown),
}

impl Undecided {
    /// Does it to netchan's socket.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Setting(setting) => setting.apply(socket),
            Self::Shutdown(how) => socket.shutdown(*how),
        }
    }
}

/// One open socket description; `dup`ed numbers share it.
pub struct SocketState {
    /// AF_INET or AF_INET6.
    pub domain: Domain,
    /// SOCK_STREAM or SOCK_DGRAM.
    pub kind: Kind,
    /// What a forked child calls it.
    pub name: line::Name,
    /// accept(2) made it.
    pub accepted: bool,
    /// netchan's socket, once decided.
    pub socket: OnceLock<Socket>,
    /// Options set while undecided, in order; locked while the decision is made.
    pub undecided: Mutex<Vec<Undecided>>,
    /// Bound to a wildcard address and nothing more: a connect to a kernel address may still hand it back.
    pub returnable: AtomicBool,
    /// O_NONBLOCK, once decided.
    pub nonblocking: AtomicBool,
    /// The last number was closed: a call that still waits gives up with EBADF.
    pub closed: AtomicBool,
    /// The last send said MSG_MORE.
    pub more: AtomicBool,
    /// TCP_FASTOPEN_CONNECT was set, and nothing was written yet.
    pub fast_connect: AtomicBool,
    /// What recvmsg(2) shall tell of datagrams.
    pub asked: Asked,
    /// SO_TIMESTAMPING.
    pub stamping: AtomicU32,
    /// SO_BUSY_POLL, in microseconds.
    pub busy_poll_us: AtomicU32,
    /// SO_INCOMING_CPU, once it was set: its number, and a bit above it.
    incoming_cpu: AtomicU64,
    /// SO_PRIORITY, which is only kept.
    priority: AtomicI32,
    /// When the datagram came that was read last, for SIOCGSTAMP.
    pub arrival: Arrival,
    receive_timeout_ns: AtomicU64,
    send_timeout_ns: AtomicU64,
    /// Threads that wait in a call.
    sleepers: Mutex<Vec<Waker>>,
    /// The epoll instances that watch it.
    pub watch: Watch,
    /// The end that stays here of the pair whose other end stands at its numbers, since a fork (`share`).
    pub share: OnceLock<Own>,
    /// Its numbers are the kernel's by now: the relay carries it.
    pub is_carried: AtomicBool,
}

impl SocketState {
    /// A socket that the kernel serves until it is decided.
    pub fn new(domain: Domain, kind: Kind) -> Self {
        Self {
            domain,
            kind,
            name: line::Name::new(),
            accepted: false,
            socket: OnceLock::new(),
            undecided: Mutex::new(Vec::new()),
            returnable: AtomicBool::new(false),
            nonblocking: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            more: AtomicBool::new(false),
            fast_connect: AtomicBool::new(false),
            asked: Asked::default(),
            stamping: AtomicU32::new(0),
            busy_poll_us: AtomicU32::new(0),
            incoming_cpu: AtomicU64::new(0),
            priority: AtomicI32::new(0),
            arrival: Arrival::default(),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            sleepers: Mutex::new(Vec::new()),
            watch: Watch::default(),
            share: OnceLock::new(),
            is_carried: AtomicBool::new(false),
        }
    }

    /// An accepted connection: decided from birth.
    pub fn decided(domain: Domain, kind: Kind, socket: Socket, nonblocking: bool) -> Self {
        let mut state = Self::new(domain, kind);
        state.accepted = true;
        state.nonblocking.store(nonblocking, Relaxed);
        // A fresh OnceLock takes its first value.
        let _ = state.socket.set(socket);
        state
    }

    /// What an accepted connection takes over from its listener.
    pub fn inherit(&self, listener: &Self) {
        let copy = |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(&self.receive_timeout_ns, &listener.receive_timeout_ns);
        copy(&self.send_timeout_ns, &listener.send_timeout_ns);
        self.asked.copy(&listener.asked);
        let busy_poll_us = listener.busy_poll_us.load(Relaxed);
        self.busy_poll_us.store(busy_poll_us, Relaxed);
        // Plain loads and stores: no other thread has the new one yet.
        self.stamping
            .store(listener.stamping.load(Relaxed), Relaxed);
    }

    /// One that is nothing yet, with the options that this one has, in a forked child.
    pub fn again(&self) -> Self {
        let new = Self::new(self.domain, self.kind);
        new.inherit(self);
        // Plain loads and stores: no other thread has the new one yet.
        new.incoming_cpu
            .store(self.incoming_cpu.load(Relaxed), Relaxed);
        new.priority.store(self.priority.load(Relaxed), Relaxed);
        // A thread that is not there any more may have been at it.
        if let Some(undecided) = self.undecided.try_lock() {
            new.undecided.lock().clone_from(&undecided);
        }
        new
    }

    /// Keeps what the table of options leaves to the caller.
    pub fn keep(&self, option: CallerOption) {
        match option {
            // Each of these stands for itself.
            CallerOption::ReceiveTimeout(timeout) => {
                self.receive_timeout_ns.store(nanoseconds(timeout), Relaxed);
            }
            CallerOption::SendTimeout(timeout) => {
                self.send_timeout_ns.store(nanoseconds(timeout), Relaxed);
            }
            CallerOption::Flag(flag, on) => self.asked.set(flag, on),
            CallerOption::Timestamping(flags) => self.stamping.store(flags, Relaxed),
            CallerOption::BusyPoll(us) => self.set_busy_poll(us),
            CallerOption::IncomingCpu(cpu) => {
                let cpu = u64::from(cpu.cast_unsigned());
                self.incoming_cpu.store(cpu | 1 << 32, Relaxed);
            }
            CallerOption::Priority(priority) => self.priority.store(priority, Relaxed),
        }
    }

    /// What is kept of the option that `like` names (its value is ignored); of SO_INCOMING_CPU, where nothing is, `shard`.
    pub fn kept(&self, like: CallerOption, shard: Option<usize>) -> CallerOption {
        match like {
            CallerOption::ReceiveTimeout(_) => CallerOption::ReceiveTimeout(self.receive_timeout()),
            CallerOption::SendTimeout(_) => CallerOption::SendTimeout(self.send_timeout()),
            CallerOption::Flag(flag, _) => CallerOption::Flag(flag, self.asked.get(flag)),
            CallerOption::Timestamping(_) => {
                CallerOption::Timestamping(self.stamping.load(Relaxed))
            }
            CallerOption::BusyPoll(_) => CallerOption::BusyPoll(self.busy_poll_us.load(Relaxed)),
            CallerOption::IncomingCpu(_) => {
                let shard = || c_int::try_from(shard?).ok();
                CallerOption::IncomingCpu(self.incoming_cpu().or_else(shard).unwrap_or(-1))
            }
            CallerOption::Priority(_) => CallerOption::Priority(self.priority.load(Relaxed)),
        }
    }

    /// SO_BUSY_POLL: how long a call looks before it sleeps.
    pub fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.busy_poll_us.load(Relaxed).into())
    }

    /// How long poll and epoll look for it before they sleep: as its calls do, or as Linux's `net.core.busy_poll` says, if that is set.
    pub fn busy_poll_among_others(&self) -> Duration {
        match (self.busy_poll(), limits::busy_poll()) {
            (Duration::ZERO, _) => Duration::ZERO,
            (own, Duration::ZERO) => own,
            (_, all) => all,
        }
    }

    /// Sets SO_BUSY_POLL.
    pub fn set_busy_poll(&self, us: u32) {
        self.busy_poll_us.store(us, Relaxed); // stands for itself
        self.watch.busy_poll_changed();
    }

    /// Whether what comes shall be told with its time.
    pub fn tells_arrivals(&self) -> bool {
        self.stamping.load(Relaxed) & (RX_SOFTWARE | SOFTWARE) == RX_SOFTWARE | SOFTWARE
    }

    /// Whether time stamps of sends have numbers.
    pub fn numbers_stamps(&self) -> bool {
        self.stamping.load(Relaxed) & OPT_ID != 0
    }

    /// Whether the error queue tells of the packets that it shows what recvmsg tells of those that come.
    pub fn tells_of_packets(&self) -> bool {
        self.stamping.load(Relaxed) & OPT_CMSG != 0
    }

    /// SO_INCOMING_CPU, if it was set.
    fn incoming_cpu(&self) -> Option<c_int> {
        let word = self.incoming_cpu.load(Relaxed);
        let [a, b, c, d, is_set, ..] = word.to_le_bytes();
        (is_set != 0).then(|| c_int::from_le_bytes([a, b, c, d]))
    }

    /// SO_RCVTIMEO; `None` waits for ever, no time not at all.
    pub fn receive_timeout(&self) -> Option<Duration> {
        timeout(&self.receive_timeout_ns)
    }

    /// SO_SNDTIMEO; `None` waits for ever.
    pub fn send_timeout(&self) -> Option<Duration> {
        timeout(&self.send_timeout_ns)
    }

    /// Enters `waker` among those that close wakes; false if it is closed already.
    pub fn enter(&self, waker: &Waker) -> bool {
        let mut sleepers = self.sleepers.lock();
        sleepers.push(waker.clone());
        !self.closed.load(SeqCst)
    }

    /// Takes `waker` out again.
    pub fn leave(&self, waker: &Waker) {
        let mut sleepers = self.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|other| other.will_wake(waker)) {
            sleepers.swap_remove(at);
        }
    }

    /// Whether a call waits for it.
    pub fn is_slept_at(&self) -> bool {
        !self.sleepers.lock().is_empty()
    }

    /// It listens or connects now: what waits for it looks again, since a socket that was nothing yet wakes none.
    pub fn changed(&self) {
        for waker in self.sleepers.lock().iter() {
            waker.wake_by_ref();
        }
        self.watch.look_again();
    }

    /// The last number is gone: wakes all waiters.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        for waker in self.sleepers.lock().iter() {
            waker.wake_by_ref();
        }
    }
}

/// Not at all, in nanoseconds that no timeout has.
const NO_WAIT: u64 = u64::MAX;

fn timeout(ns: &AtomicU64) -> Option<Duration> {
    match ns.load(Relaxed) {
        0 => None,
        NO_WAIT => Some(Duration::ZERO),
        ns => Some(Duration::from_nanos(ns)),
    }
}

fn nanoseconds(value: Option<Duration>) -> u64 {
    match value {
        None => 0,
        Some(Duration::ZERO) => NO_WAIT,
        Some(value) => u64::try_from(value.as_nanos()).unwrap_or(NO_WAIT - 1),
    }
}

/// A decided socket, borrowed for one call.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// The number that was asked about.
    pub fd: RawFd,
    /// The record.
    pub state: &'a SocketState,
    /// netchan's socket in it.
    pub socket: &'a Socket,
}
