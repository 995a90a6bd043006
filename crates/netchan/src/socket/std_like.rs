//! Blocking sockets as in `std::net`: same names, same semantics, same error kinds. How a thread waits stands here.

mod datagram;
mod listener;
mod stream;

use std::{cell::RefCell, io, net::SocketAddr, sync::Arc, task::Waker, time::Duration};

use percore::lock::{Mutex, mutex};
use proto::time::Instant;

pub use self::{
    datagram::UdpSocket,
    listener::{Incoming, TcpListener},
    stream::TcpStream,
};
use super::{Socket, SocketOption, Waiter};
use crate::api::{Domain, Readiness};
use crate::stack::Stack;

thread_local! {
    /// This thread's waiter, for the stack it last waited on.
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Whether this thread has waited on `stack` before, and on no other since.
fn has_waiter(stack: &Arc<Stack>) -> bool {
    let is_kept = |kept: &RefCell<Option<Waiter>>| {
        (kept.borrow().as_ref()).is_some_and(|w| Arc::ptr_eq(w.stack(), stack))
    };
    // None in a thread whose values are gone.
    WAITER.try_with(is_kept).unwrap_or(false)
}

/// Runs `f` with this thread's waiter on `stack`.
fn with_waiter<R>(
    stack: &Arc<Stack>,
    f: impl FnOnce(&mut Waiter) -> io::Result<R>,
) -> io::Result<R> {
    let kept = WAITER.try_with(RefCell::take).unwrap_or_default();
    let kept = kept.filter(|waiter| Arc::ptr_eq(waiter.stack(), stack));
    let mut waiter = match kept {
        Some(waiter) => waiter,
        None => {
            let mut waiter = Waiter::on(stack.clone())?;
            waiter.lets_signals_in(); // these calls go on after one
            waiter
        }
    };
    let result = f(&mut waiter);
    let _ = WAITER.try_with(|place| place.replace(Some(waiter)));
    result
}

/// Tries `call` until it does not say `WouldBlock`, and waits for `interest` in between.
fn block<R>(
    socket: &Socket,
    interest: Readiness,
    timeout: Option<Duration>,
    call: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    block_on(
        socket.stack(),
        timeout,
        |waiter| waiter.register(socket, interest),
        |waker| socket.deregister(waker),
        call,
    )
}

/// The same for whatever `register` has wake the waiter, and `deregister` does not any more.
pub(super) fn block_on<R>(
    stack: &Arc<Stack>,
    timeout: Option<Duration>,
    register: impl Fn(&mut Waiter) -> bool,
    deregister: impl FnOnce(&Waker),
    mut call: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    match call() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        done => return done,
    }
    let deadline = timeout.map(|t| stack.clock.now() + t);
    with_waiter(stack, |waiter| {
        let result = loop {
            // Once more if it became ready since.
            if register(waiter) {
                match call() {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => break done,
                }
            }
            if let Err(e) = sleep(waiter, deadline) {
                break Err(e);
            }
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => break done,
            }
        };
        deregister(waiter.waker());
        result
    })
}

/// The same for calls of a stream that register a waker themselves where they would block, and forget it where they do not: one turn of the
/// shard before the wait and one after it.
fn block_in_call<R>(
    socket: &Socket,
    timeout: Option<Duration>,
    mut call: impl FnMut(Option<&Waker>) -> io::Result<R>,
) -> io::Result<R> {
    let stack = socket.stack();
    // A thread that never waits needs no waiter.
    if !has_waiter(stack) {
        match call(None) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
    let mut deadline = None;
    with_waiter(stack, |waiter| {
        if let Some(done) = waiter.try_first(socket, timeout, || call(None)) {
            return done;
        }
        let error = loop {
            match call(Some(waiter.waker())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let end = |t| stack.clock.now() + t;
            deadline = deadline.or_else(|| timeout.map(end));
            waiter.expect(socket);
            if let Err(e) = sleep(waiter, deadline) {
                break e;
            }
        };
        socket.deregister(waiter.waker());
        Err(error)
    })
}

/// Sleeps until the waker is woken. `WouldBlock` after `deadline`: as in std::net on Unix, the kind of EAGAIN.
fn sleep(waiter: &mut Waiter, deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|d| d.since(waiter.stack().clock.now()));
    if left == Some(Duration::ZERO) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    match waiter.wait(&mut [], left) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// What a blocking socket keeps beside the socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) nonblocking: bool,
    pub(super) read_timeout: Option<Duration>,
    pub(super) write_timeout: Option<Duration>,
}

struct Shared {
    socket: Socket,
    settings: Mutex<Settings>,
}

impl Shared {
    fn new(socket: Socket) -> Arc<Self> {
        Arc::new(Self {
            socket,
            settings: mutex(&crate::locks::SETTINGS, Settings::default()),
        })
    }

    /// IP_TTL, IPV6_UNICAST_HOPS.
    fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).ok().filter(|&ttl| ttl > 0);
        let ttl = ttl.ok_or_else(|| crate::errno::invalid("a TTL is 1 to 255"))?;
        if self.socket.domain() == Domain::V6 {
            self.socket.set_option(SocketOption::HopLimit(ttl))?;
        }
        self.socket.set_option(SocketOption::Ttl(ttl))
    }

    fn ttl(&self) -> io::Result<u32> {
        match self.socket.option(SocketOption::Ttl(0))? {
            SocketOption::Ttl(ttl) => Ok(ttl.into()),
            _ => Ok(0),
        }
    }

    fn read<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let settings = *self.settings.lock();
        self.call(
            Readiness::READABLE,
            settings.nonblocking,
            settings.read_timeout,
            call,
        )
    }

    fn write<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let settings = *self.settings.lock();
        self.call(
            Readiness::WRITABLE,
            settings.nonblocking,
            settings.write_timeout,
            call,
        )
    }

    fn call<R>(
        &self,
        interest: Readiness,
        nonblocking: bool,
        timeout: Option<Duration>,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        if nonblocking {
            call()
        } else {
            block(&self.socket, interest, timeout, call)
        }
    }
}

pub(super) fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    if timeout == Some(Duration::ZERO) {
        return Err(crate::errno::invalid(
            "a timeout of zero would never wait: use None or set_nonblocking",
        ));
    }
    Ok(timeout)
}

/// The family of sockets for an address.
const fn domain_of(address: SocketAddr) -> Domain {
    if address.is_ipv4() {
        Domain::V4
    } else {
        Domain::V6
    }
}
