//! Datagram sockets that several processes hold, by this process's numbers: what the kernel does not know of the pair's end that stands there (`share`).
//!
//! The kernel carries bytes; where each datagram comes from and goes to is in the head before it, which the library puts on and takes off (`letters`). So a
//! number has to be known before the call, and not, as a stream's, only where the kernel has refused one.

use std::{
    net::SocketAddr,
    os::fd::RawFd,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::{
    asked::{Arrival, Asked, RX_SOFTWARE, SOFTWARE},
    line::Answers,
    process,
    share::{self, Name, Role},
    state::SocketState,
    sys,
    table::{Handle, Table},
};

/// Every number at which such an end stands.
pub static CROSSINGS: Table<Crossing> = Table::new();

/// One of them, as this process has it; `dup`ed numbers share it.
pub struct Crossing {
    pub name: Name,
    /// What recvmsg(2) shall tell this process.
    pub asked: Asked,
    /// SO_TIMESTAMPING.
    pub stamping: AtomicU32,
    pub arrival: Arrival,
    /// How often it was answered that the stack is gone.
    pub answers: Answers,
}

impl Crossing {
    fn new(name: Name) -> Self {
        Self {
            name,
            asked: Asked::of_bits(name.asked),
            stamping: AtomicU32::new(0),
            arrival: Arrival::default(),
            answers: Answers::default(),
        }
    }

    /// As a record of this process, or of the one that it was forked from, has it.
    fn of(name: Name, state: &SocketState) -> Self {
        let new = Self::new(name);
        new.asked.copy(&state.asked);
        let stamping = state.stamping.load(Relaxed);
        new.stamping.store(stamping, Relaxed); // no other thread has it yet
        new
    }

    /// Where it is connected to.
    pub fn peer(&self) -> Option<SocketAddr> {
        Some(self.name.peer).filter(|peer| peer.port() != 0)
    }

    /// SO_TIMESTAMPING.
    pub fn set_stamping(&self, flags: u32) {
        self.stamping.store(flags, Relaxed); // stands for itself
    }

    /// Whether what comes shall be told with its time.
    pub fn tells_arrivals(&self) -> bool {
        self.stamping.load(Relaxed) & (RX_SOFTWARE | SOFTWARE) == RX_SOFTWARE | SOFTWARE
    }
}

/// `fd`'s, if it is one.
#[inline]
pub fn get(fd: RawFd) -> Option<Handle<Crossing>> {
    if CROSSINGS.is_vacant(fd) {
        return None;
    }
    CROSSINGS.get(fd)
}

/// `fd`, which is `state`'s, is one from now on, if what stands there is such an end.
pub fn enter(fd: RawFd, state: &SocketState) {
    if let Some(name) = datagrams(fd) {
        put(fd, name, || Crossing::of(name, state));
    }
}

fn put(fd: RawFd, name: Name, make: impl FnOnce() -> Crossing) {
    let known = CROSSINGS.occupied(0, RawFd::MAX).into_iter();
    let mut known = known.filter_map(|fd| CROSSINGS.get(fd));
    let known = known.find(|other| other.name.number == name.number);
    let handle = known.unwrap_or_else(|| CROSSINGS.create(make()));
    let _ = CROSSINGS.insert(fd, &handle); // out of the table's range it is the kernel's
}

fn datagrams(fd: RawFd) -> Option<Name> {
    share::name_of(fd).filter(|name| name.role == Role::Datagrams)
}

/// This process has connected it, or disconnected it. In others it stays as it was.
pub fn connected(fd: RawFd, peer: Option<SocketAddr>) {
    let Some(old) = CROSSINGS.get(fd) else { return };
    let mut name = old.name;
    name.peer = peer.unwrap_or(NONE);
    let new = Crossing::new(name);
    new.asked.copy(&old.asked);
    let stamping = old.stamping.load(Relaxed);
    new.stamping.store(stamping, Relaxed); // no other thread has it yet
    let new = CROSSINGS.create(new);
    for fd in CROSSINGS.occupied(0, RawFd::MAX) {
        let is_same = |other: Handle<Crossing>| other.address() == old.address();
        if CROSSINGS.get(fd).is_some_and(is_same) {
            let _ = CROSSINGS.insert(fd, &new); // it has a place there
        }
    }
}

/// The peer of a socket that is not connected.
pub const NONE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// A number of a supervised program's, after a call that may have made it one.
pub fn look_at(fd: RawFd) -> bool {
    match datagrams(fd) {
        Some(name) => {
            put(fd, name, || Crossing::new(name));
            true
        }
        None => false,
    }
}

/// Numbers below it are looked at where a program begins.
const INHERITED: usize = 256;

/// Where a program begins that the stack's process, or a child of it, has become: whether it came by any through exec.
pub fn inherit() -> bool {
    if !process::may_inherit() && !process::is_supervised() {
        return false;
    }
    let mut numbers = [libc::pollfd {
        fd: 0,
        events: 0,
        revents: 0,
    }; INHERITED];
    for (fd, entry) in (0..).zip(&mut numbers) {
        entry.fd = fd;
    }
    if sys::poll_now(&mut numbers).is_err() {
        return false;
    }
    let mut any = false;
    let open = numbers
        .iter()
        .filter(|entry| entry.revents & libc::POLLNVAL == 0);
    for fd in open.map(|entry| entry.fd) {
        if let Some(name) = datagrams(fd) {
            put(fd, name, || Crossing::new(name));
            any = true;
        }
    }
    any
}
