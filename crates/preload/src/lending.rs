//! The stack of a program lends its links, as a daemon does: to the program's forked children that make sockets of their own, and to the programs that it and they
//! start and become.
//!
//! They ask at a socket with an abstract name, which they have from memory or from the environment ([`Lends`]), and say a secret that is there, too: other
//! processes see the name alone. The thread that answers starts with the first that asks.

use std::{
    io, mem,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicI32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use netchan::own::Own;
use netchan_lend::{Paused, Rules, Service};

use crate::{
    locks::hold,
    process::{self, Lends},
    relay, share, sys,
};

enum Lending {
    No,
    Running(Service),
    Standing(Paused),
}

static LENDING: Mutex<Lending> = Mutex::new(Lending::No);

/// This is a keeper: the thread ends with the last that has a lease.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// A thread answers.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// What lending takes, held.
pub struct ForFork {
    _lending: MutexGuard<'static, Lending>,
}

/// The same, for the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _lending: hold(&LENDING),
    }
}

/// The socket at which is asked; -1: there is none.
static DOOR: AtomicI32 = AtomicI32::new(-1);

/// Its number.
pub fn door() -> RawFd {
    DOOR.load(Relaxed) // made before there is a thread that asks
}

/// These links can be lent from now on.
pub fn begin(links: Vec<String>) -> io::Result<()> {
    let lends = Lends::of(links)?;
    let door = share::listen_at(lends.name.as_bytes(), WAITING)?;
    DOOR.store(door.as_raw_fd(), Relaxed);
    mem::forget(door); // it ends with the process
    process::set_lends(lends);
    Ok(())
}

/// Connections that may wait at the door.
const WAITING: i32 = 512;

/// Our ends of connections to the lender, each for the link that it is named with.
type Connections = Vec<(String, Own)>;

/// Asks for leases of all links of the program of which this process is a child or was started: our ends of connections to it, and what it wants to hear. `None`: there
/// is no such program, or it has ended.
///
/// # Errors
/// It cannot be reached.
pub fn ask() -> io::Result<Option<(Connections, Lends)>> {
    let Some(lends) = process::lends_elsewhere() else {
        return Ok(None);
    };
    let ask = |link: &String| Ok((link.clone(), share::connect_to(lends.name.as_bytes())?));
    match lends.links.iter().map(ask).collect::<io::Result<_>>() {
        Ok(asked) => Ok(Some((asked, lends))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Where no other process has the links by now, they can be had.
            match process::has_begun_anew() || process::stack_elsewhere().is_some() {
                true => Err(io::Error::other(
                    "the program that lends it its links has ended, or is out of reach",
                )),
                false => Ok(None),
            }
        }
        Err(error) => Err(error),
    }
}

/// In a child that begins anew: it lends nothing.
pub fn begin_anew() {
    DOOR.store(-1, Relaxed); // closed by the fork
    mem::forget(mem::replace(&mut *hold(&LENDING), Lending::No)); // its parent's
    IS_RUNNING.store(false, Release);
}

/// Lets in what waits at the door, so many at once.
pub fn open() {
    for _ in 0..AT_ONCE {
        match share::accept_at(door()) {
            Ok(client) => admit(client),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // No descriptors, for a while: what waits goes on waiting.
            Err(_) => return sys::nap(PAUSE),
        }
    }
}

const AT_ONCE: u32 = 64;

/// Between two tries where the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A process asks for a lease at the other end of `client`.
fn admit(client: Own) {
    let mut lending = hold(&LENDING);
    if matches!(*lending, Lending::Running(_)) && !is_running() {
        *lending = Lending::No; // the last client has gone
    }
    if matches!(*lending, Lending::No) {
        let Some(net) = process::running() else {
            return;
        };
        let secret = process::lends().map_or_else(String::new, |lends| lends.secret.clone());
        match Service::start(None, net, Rules::free_to(secret), Running::begin()) {
            Ok(service) => *lending = Lending::Running(service),
            Err(error) => sys::complain(&format!(
                "netchan: other processes of this program have no leases: netchan-lease: {error}\n"
            )),
        }
    }
    match &*lending {
        Lending::Running(service) => {
            service.admit(client);
            if IS_KEPT.load(Relaxed) {
                service.end_with_clients();
            }
        }
        Lending::Standing(paused) => paused.admit(client),
        Lending::No => {} // it hears the end of its connection
    }
}

/// Whether a thread answers.
pub fn is_running() -> bool {
    IS_RUNNING.load(Acquire) // pairs with Release below
}

/// Says so while the thread is there.
struct Running;

impl Running {
    fn begin() -> Self {
        IS_RUNNING.store(true, Release); // pairs with Acquire in is_running
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Release); // as above
        relay::wake(); // a keeper that waits for it
    }
}

/// The thread leaves all as it is, and ends. Whether there is a lease: then [`go_on`] is to follow, here or, after a fork, in the child ([`keep`]).
pub fn stand_still() -> bool {
    let mut lending = hold(&LENDING);
    let paused = match mem::replace(&mut *lending, Lending::No) {
        Lending::Running(service) => service.pause(),
        Lending::Standing(paused) => Some(paused),
        Lending::No => None,
    };
    let is_used = paused.as_ref().is_some_and(Paused::has_clients);
    *lending = paused.map_or(Lending::No, Lending::Standing);
    is_used
}

/// Answers again.
pub fn go_on() {
    let mut lending = hold(&LENDING);
    *lending = match mem::replace(&mut *lending, Lending::No) {
        Lending::Standing(paused) => {
            let resumed = paused.resume(Running::begin());
            resumed.map_or(Lending::No, Lending::Running)
        }
        other => other,
    };
}

/// In a keeper: answers again, until no other process has a lease.
pub fn keep() {
    IS_KEPT.store(true, Relaxed); // no other thread looks
    go_on();
    if let Lending::Running(service) = &*hold(&LENDING) {
        service.end_with_clients();
    }
}
