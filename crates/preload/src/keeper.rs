//! The keeper: a process that goes on with the stack where the program that started it ends, or becomes another one, while other processes hold its streams.
//!
//! It is a copy of the program's process, as fork(2) makes it, of which nothing but the stack goes on: connections, listeners and datagram sockets as they are in
//! memory, with the links and leases that they use. So a server's children, and the program that a server becomes, keep what the kernel would have kept for them. It
//! runs no code of the program's, belongs to no session of it, has none of its files open, takes no signal, and ends when no process holds a stream any more.
//!
//! At any moment one of the two has the stack. The keeper waits until it is told to go on, or until the line on which it would be told is closed: by the
//! end of the program's process, and by exec(2).

use std::{io, os::fd::AsRawFd, sync::MutexGuard, time::Duration};

use libc::c_int;
use netchan::{Paused, own::Own};

use crate::{ending, fork, line, numbers, process, region, relay, shared, state::SOCKETS, sys};

/// A fork in which another thread was in a call of ours is of no use; as often it is tried.
const TRIES: u32 = 100;
/// Between two of these.
const STEP: Duration = Duration::from_millis(5);
/// How long is waited for the word of a process that was forked, milliseconds: handlers of the program's run in it before (pthread_atfork(3)).
const PATIENCE: Duration = Duration::from_secs(5);

/// What it is told.
const GO_ON: u8 = b'g';
const GO_AWAY: u8 = b'x';

/// What becomes of streams that others hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A keeper goes on with them.
    All,
    /// There are none.
    None,
    /// There can be no keeper.
    Lost,
}

/// Where the process that has the stack ends: what others hold goes on in a keeper.
pub fn takes_over() -> Kept {
    let kept = match relay::stand_still().then(Waiting::make) {
        None => Kept::None,
        Some(Ok(keeper)) => {
            keeper.goes_on();
            return Kept::All;
        }
        Some(Err(_)) => Kept::Lost,
    };
    relay::go_on();
    kept
}

/// Before the process that has the stack becomes another program: a keeper that goes on when it has. `None`: there is nothing to keep, or there can be none.
pub fn before_exec() -> Option<Waiting> {
    shared::carry_all();
    let is_owed = || process::running().is_some_and(|net| !net.drain(Duration::ZERO));
    let made = match relay::stand_still() || is_owed() {
        true => Waiting::make(),
        false => Err(io::ErrorKind::NotFound.into()),
    };
    if made.is_err() {
        relay::go_on();
    }
    made.ok()
}

/// A keeper that waits. This process stands still, too, as far as it is netchan's.
pub struct Waiting {
    process: u32,
    line: Own,
    paused: Paused,
    _hears_no_child: MutexGuard<'static, ()>,
}

impl Waiting {
    fn make() -> io::Result<Self> {
        let net = process::running().ok_or(io::ErrorKind::NotFound)?;
        let (line, its) = sys::socket_pair()?;
        region::stand_still();
        let hears_no_child = line::acting();
        let paused = net.pause();
        match fork_until_clean(&paused, &line, &its) {
            Some(process) => Ok(Self {
                process,
                line,
                paused,
                _hears_no_child: hears_no_child,
            }),
            None => {
                let resumed = paused.resume();
                region::go_on();
                resumed?;
                Err(io::ErrorKind::ResourceBusy.into())
            }
        }
    }

    /// This process ends, and has no stack any more.
    fn goes_on(self) {
        process::give_away(self.process);
        let _ = sys::send_now(self.line.as_raw_fd(), &[GO_ON]); // else it hears the end of the line
        region::go_on();
        std::mem::forget(self.paused); // nothing of the stack is dropped here
    }

    /// It was made for nothing: the stack stays.
    pub fn goes_away(self) {
        let _ = sys::send_now(self.line.as_raw_fd(), &[GO_AWAY]);
        // Without threads calls turn the stack, and nothing else does.
        let _ = self.paused.resume();
        region::go_on();
        relay::go_on();
    }
}

/// The keeper's process, once one was forked while no other thread was in here.
fn fork_until_clean(paused: &Paused, line: &Own, its: &Own) -> Option<u32> {
    let _held = sys::SignalsHeld::new(); // what is forked takes none
    for _ in 0..TRIES {
        let child = fork::with_stack();
        if child == 0 {
            become_keeper(paused, line, its);
        }
        if child < 0 {
            return None;
        }
        let said = hear_of(line);
        sys::reap(child, said.is_none());
        match said? {
            0 => sys::nap(STEP),
            process => return Some(process),
        }
    }
    None
}

/// The keeper's number; 0: it was no use.
fn hear_of(line: &Own) -> Option<u32> {
    let mut fds = [libc::pollfd {
        fd: line.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let mut word = [0; 4];
    let came = sys::poll(&mut fds, Some(PATIENCE)).is_ok_and(|ready| ready > 0);
    let is_whole = came && sys::read(line.as_raw_fd(), &mut word).is_ok_and(|n| n == word.len());
    is_whole.then(|| u32::from_ne_bytes(word))
}

/// In the process that was forked. The keeper is a child of its own, so that it is none of the program's.
fn become_keeper(paused: &Paused, line: &Own, its: &Own) -> ! {
    let say = |word: u32| {
        let _ = sys::send_now(its.as_raw_fd(), &word.to_ne_bytes()); // else it is waited for in vain
    };
    if region::has_others() {
        say(0);
        sys::exit_group(0);
    }
    if fork::again() != 0 {
        sys::exit_group(0);
    }
    say(process::own_id());
    numbers::close_all_but_own();
    let _ = sys::close(line.as_raw_fd());
    sys::leave_session(c"netchan-keeper");
    let mut word = [0];
    // The end of the line says the same as the word.
    if sys::read(its.as_raw_fd(), &mut word).is_ok_and(|n| n == 1) && word[0] != GO_ON {
        sys::exit_group(0);
    }
    let _ = go_on(paused); // ends as the program would have
    sys::exit_group(0);
}

/// The stack goes on here, as long as another process holds a stream.
fn go_on(paused: &Paused) -> io::Result<()> {
    process::take_over();
    ending::is_anothers();
    region::go_on();
    for fd in SOCKETS.occupied(0, c_int::MAX) {
        std::mem::forget(SOCKETS.remove(fd)); // a number of the program's
    }
    paused.resume()?;
    let _ = line::hear_on(); // without it options are not set
    relay::keep()?;
    if let Some(net) = process::running() {
        net.drain(ending::DRAIN);
        let _ended = net.pause(); // its control socket goes
    }
    Ok(())
}
