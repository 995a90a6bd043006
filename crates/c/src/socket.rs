//! A socket as C has it: netchan's, and what its caller keeps beside it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
    time::Duration,
};

use libc::c_int;
use netchan::socket::{Domain, Kind, SendLease, Socket};
use parking_lot::Mutex;

use crate::{edge::fail, stack::Stack, table::Table};

/// A socket whose handle C has.
pub struct Handle {
    /// netchan's.
    pub socket: Socket,
    /// Where it lives.
    pub stack: Arc<Stack>,
    /// Calls do not wait.
    pub nonblocking: AtomicBool,
    /// The last send was one with MSG_MORE.
    pub more: AtomicBool,
    /// Options that are its caller's.
    pub kept: Mutex<Kept>,
    /// Room that was lent, to be sent; how much of it C was shown.
    pub reserved: Mutex<Option<(SendLease, usize)>>,
    is_closed: AtomicBool,
    /// Of the threads that wait in its calls.
    waiters: Mutex<Vec<Waker>>,
}

/// Options that change only what calls do here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// SO_RCVTIMEO; `None`: for ever.
    pub receive_timeout: Option<Duration>,
    /// SO_SNDTIMEO.
    pub send_timeout: Option<Duration>,
    /// SO_BUSY_POLL, microseconds.
    pub busy_poll_us: u32,
    /// SO_PRIORITY.
    pub priority: c_int,
    /// SO_INCOMING_CPU, if it was set.
    pub incoming_cpu: Option<c_int>,
    /// Those that are on, a bit for each `CallerFlag`.
    pub flags: u32,
}

/// Those whose handles C has.
static SOCKETS: Table<Handle> = Table::new(1);

/// What a handle names.
pub fn named(handle: usize) -> io::Result<Arc<Handle>> {
    SOCKETS.get(handle)
}

/// socket(2) with its flags; a handle.
pub fn open(stack: &Arc<Stack>, domain: c_int, kind: c_int, protocol: c_int) -> io::Result<usize> {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let (domain, kind) = kind_of(domain, kind & !flags, protocol)?;
    let socket = Socket::new(&stack.net, domain, kind)?;
    let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    add(stack, socket, is_nonblocking, Kept::default())
}

/// A handle for a socket.
pub fn add(
    stack: &Arc<Stack>,
    socket: Socket,
    is_nonblocking: bool,
    kept: Kept,
) -> io::Result<usize> {
    SOCKETS.insert(Handle {
        socket,
        stack: stack.clone(),
        nonblocking: AtomicBool::new(is_nonblocking),
        more: AtomicBool::new(false),
        kept: Mutex::new(kept),
        reserved: Mutex::new(None),
        is_closed: AtomicBool::new(false),
        waiters: Mutex::new(Vec::new()),
    })
}

/// What socket(2)'s arguments mean, with Linux's errors.
fn kind_of(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<(Domain, Kind)> {
    let (domain, ping) = match domain {
        libc::AF_INET => (Domain::V4, libc::IPPROTO_ICMP),
        libc::AF_INET6 => (Domain::V6, libc::IPPROTO_ICMPV6),
        _ => return fail(libc::EAFNOSUPPORT),
    };
    let kind = match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Kind::Datagram,
        (libc::SOCK_DGRAM, protocol) if protocol == ping => Kind::Ping,
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return fail(libc::EPROTONOSUPPORT),
        (libc::SOCK_RAW | libc::SOCK_RDM | libc::SOCK_SEQPACKET, _) => {
            return fail(libc::ESOCKTNOSUPPORT);
        }
        _ => return fail(libc::EINVAL),
    };
    Ok((domain, kind))
}

/// close(2): the handle names nothing any more, and threads that wait in its calls come back with EBADF. The socket goes with the last of these calls.
pub fn close(handle: usize) -> io::Result<()> {
    let closed = SOCKETS.remove(handle)?;
    // SeqCst: before the waiters are looked at; pairs with `enter`.
    closed.is_closed.store(true, SeqCst);
    closed.waiters.lock().iter().for_each(Waker::wake_by_ref);
    Ok(())
}

impl Handle {
    /// The handle was closed while this call went on.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Has closing the handle wake a thread. False: it is closed.
    pub fn enter(&self, waker: &Waker) -> bool {
        self.waiters.lock().push(waker.clone());
        !self.is_closed()
    }

    /// The thread waits no more.
    pub fn leave(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        if let Some(at) = waiters.iter().position(|other| other.will_wake(waker)) {
            waiters.swap_remove(at);
        }
    }

    /// Whether a call with these flags does not wait.
    pub fn never_waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.nonblocking.load(Relaxed)
    }

    /// SO_RCVTIMEO.
    pub fn receive_timeout(&self) -> Option<Duration> {
        self.kept.lock().receive_timeout
    }

    /// SO_SNDTIMEO.
    pub fn send_timeout(&self) -> Option<Duration> {
        self.kept.lock().send_timeout
    }

    /// SO_BUSY_POLL.
    pub fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.kept.lock().busy_poll_us.into())
    }
}
