//! The stack of a program lends its links, as a daemon does: to the program's forked children that make sockets of their own, and to the programs that it and they
//! start and become.
//!
//! They ask at a socket with an abstract name, which they have from memory or from the environment ([`Door`]), and say a secret that is there, too: other
//! processes see the name alone. So do programs that a shell starts beside each other: the first of them to start a stack has the door and the links, and the next
//! one when no process has them any more. The thread that answers starts with the first that asks.

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

use netchan::{environment::Door, link::lease::Client, own::Own};
use netchan_lend::{Paused, Rules, Service};

use crate::{locks::hold, process, relay, share, sys};

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
static NUMBER: AtomicI32 = AtomicI32::new(-1);

/// Its number.
pub fn door() -> RawFd {
    NUMBER.load(Relaxed) // made before there is a thread that asks
}

/// Where a process that starts a stack has its links from.
pub enum Links {
    /// No other process has them. Where there is a door they can be lent.
    Free(Option<OpenDoor>),
    /// Another one lends them.
    Lent(Connections, Door),
}

/// A door of this process, at which others wait from now on.
pub struct OpenDoor {
    socket: Own,
    door: Door,
}

/// Connections to the lender, each for the link that it is named with.
type Connections = Vec<(String, Client)>;

/// Looks for the process that lends the links of this one. Where there is none this one has the door, so that of several that start at once one alone has the links.
///
/// # Errors
/// There is one, and it cannot be reached or lends nothing.
pub fn find() -> io::Result<Links> {
    let Some(door) = process::lends_elsewhere() else {
        return Ok(Links::Free(
            Door::draw().and_then(|door| stand_at(&door)).ok(),
        ));
    };
    for _ in 0..TRIES {
        match ask(&door) {
            Ok(asked) => return Ok(Links::Lent(asked, door)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if process::has_begun_anew() || process::stack_elsewhere().is_some() {
                    return Err(io::Error::other(
                        "the program that lends it its links has ended, or is out of reach",
                    ));
                }
                match stand_at(&door) {
                    // Another one has it since, and listens in a moment.
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                    stands => return Ok(Links::Free(stands.ok())), // without descriptors to spare nothing is lent
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {} // it is asked by many
            Err(error) => return Err(error),
        }
        sys::nap(STEP);
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "the program that lends it its links does not answer",
    ))
}

/// How often a door is looked at, and for how long between two looks: five seconds in all, as long as a lender may take for an answer.
const TRIES: u32 = 1000;
const STEP: Duration = Duration::from_millis(5);

fn stand_at(door: &Door) -> io::Result<OpenDoor> {
    let socket = share::listen_at(door.name.as_bytes(), WAITING)?;
    let door = door.clone();
    Ok(OpenDoor { socket, door })
}

/// Connections that may wait at the door.
const WAITING: i32 = 512;

/// Asks which links are lent at `door`.
fn ask(door: &Door) -> io::Result<Connections> {
    let first = reach(door)?;
    let links = first.links(&door.secret)?;
    let mut first = Some(first);
    let mut connect = |link| {
        let connection = first.take().map_or_else(|| reach(door), Ok)?;
        Ok((link, connection))
    };
    let asked: Connections = links
        .into_iter()
        .map(&mut connect)
        .collect::<io::Result<_>>()?;
    match asked.is_empty() {
        true => Err(io::Error::other(
            "the program that has the links lends none",
        )),
        false => Ok(asked),
    }
}

fn reach(door: &Door) -> io::Result<Client> {
    let socket = share::connect_to(door.name.as_bytes())?;
    if !share::is_believed(&socket) {
        let what = "its links are lent by another user, not root";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(Client::of(socket))
}

/// Whether another process stands at the door.
pub fn is_open() -> bool {
    process::lends_elsewhere().is_some_and(|door| reach(&door).is_ok())
}

/// The links of this process can be lent from now on.
pub fn begin(open: OpenDoor) {
    NUMBER.store(open.socket.as_raw_fd(), Relaxed);
    mem::forget(open.socket); // it ends with the process
    process::set_lends(open.door);
}

/// In a child that begins anew: it lends nothing.
pub fn begin_anew() {
    NUMBER.store(-1, Relaxed); // closed by the fork
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
        let secret = process::lends().map_or_else(String::new, |door| door.secret.clone());
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
