//! The keeper: a process that goes on with the stack where the program that started it ends, or becomes another one, while other processes hold its streams.
//!
//! It is a copy of the program's process, as fork(2) makes it, of which nothing but the stack goes on: connections, listeners and datagram sockets as they are in
//! memory, with the links and leases that they use. So a server's children, and the program that a server becomes, keep what the kernel would have kept for them. It
//! runs no code of the program's, belongs to no session of it, has none of its files open, takes no signal, and ends when no process holds a stream any more.
//!
//! At any moment one of the two has the stack. The keeper waits until it is told to go on, or until the line on which it would be told is closed: by the
//! end of the program's process, and by exec(2).

use std::{
    io,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::MutexGuard,
    time::Duration,
};

use libc::c_int;
use netchan::{Net, Paused, own::Own};

use crate::{
    ending, fork, lending, line, numbers, process, region, relay, share, shared, state::SOCKETS,
    sys,
};

/// A fork in which another thread was in a call of ours is of no use; as often it is tried.
const TRIES: u32 = 100;
/// Between two of these.
const STEP: Duration = Duration::from_millis(5);
/// How long is waited for the word of a process that was forked: handlers of the program's run in it before (pthread_atfork(3)).
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
    let has_lent = lending::stand_still();
    let kept = match relay::stand_still() {
        Ok(false) if !has_lent => Kept::None,
        Ok(_) => match Waiting::make() {
            Ok(keeper) => {
                keeper.goes_on();
                return Kept::All;
            }
            Err(_) => Kept::Lost,
        },
        Err(_) => Kept::Lost,
    };
    relay::go_on();
    lending::go_on();
    kept
}

/// Before the process that has the stack becomes another program: a keeper that goes on when it has. `None`: there is nothing to keep, or there can be none.
pub fn before_exec() -> Option<Waiting> {
    shared::carry_all();
    let has_lent = lending::stand_still();
    // Links of its own go to the new program, unless a child may have something of them.
    let is_owed = || {
        let owes = |net: &Net| (net.is_lent() || sys::has_children()) && !net.drain(Duration::ZERO);
        process::running().is_some_and(owes)
    };
    let made = match relay::stand_still() {
        Ok(is_held) if is_held || has_lent || is_owed() => Waiting::make(),
        Ok(_) => Err(io::ErrorKind::NotFound.into()),
        Err(error) => Err(error),
    };
    if made.is_err() {
        relay::go_on();
        lending::go_on();
    }
    made.ok()
}

/// A keeper that waits. This process stands still, too, as far as it is netchan's.
pub struct Waiting {
    process: u32,
    line: Own,
    paused: Paused,
    /// What children say waits for the keeper, or for an exec that fails.
    acting: Option<MutexGuard<'static, ()>>,
}

impl Waiting {
    fn make() -> io::Result<Self> {
        let net = process::running().ok_or(io::ErrorKind::NotFound)?;
        let (line, its) = sys::socket_pair()?;
        region::stand_still();
        let acting = line::acting();
        lending::stand_still(); // the first that asks may have come meanwhile
        let paused = net.pause();
        match fork_until_clean(&line, &its) {
            Forked::Keeper(process) => Ok(Self {
                process,
                line,
                paused,
                acting,
            }),
            Forked::Not => {
                let resumed = paused.resume();
                region::go_on();
                resumed?;
                Err(io::ErrorKind::ResourceBusy.into())
            }
            Forked::Here => {
                drop((acting, line)); // the program's process has its own
                become_keeper(&paused, &its)
            }
        }
    }

    /// This process ends, and has no stack any more.
    fn goes_on(self) {
        process::give_away(self.process);
        self.paused.give_away();
        std::mem::forget(self.acting); // no child is heard here any more
        let _ = sys::send_now(self.line.as_raw_fd(), &[GO_ON]); // else it hears the end of the line
        region::go_on();
    }

    /// It was made for nothing: the stack stays.
    pub fn goes_away(self) {
        let _ = sys::send_now(self.line.as_raw_fd(), &[GO_AWAY]);
        // Without threads calls turn the stack, and nothing else does.
        let _ = self.paused.resume();
        region::go_on();
        relay::go_on();
        lending::go_on();
    }
}

/// What a fork came to.
enum Forked {
    /// The keeper's process.
    Keeper(u32),
    /// There is none.
    Not,
    /// This is it.
    Here,
}

/// A keeper that was forked while no other thread was in here. It is a child of a child, so that it is none of the program's.
fn fork_until_clean(line: &Own, its: &Own) -> Forked {
    let held = sys::SignalsHeld::new(); // what is forked takes none
    for _ in 0..TRIES {
        if region::has_others() {
            sys::nap(STEP);
            continue;
        }
        let child = fork::with_stack();
        if child == 0 {
            // One may have come in meanwhile. In the copy it is seen for certain.
            let keeper = if region::has_others() {
                -1
            } else {
                fork::again()
            };
            if keeper == 0 {
                std::mem::forget(held);
                return Forked::Here;
            }
            let word = u32::try_from(keeper).unwrap_or(0).to_ne_bytes();
            let _ = sys::send_now(its.as_raw_fd(), &word); // else it is waited for in vain
            sys::exit_group(0);
        }
        if child < 0 {
            return Forked::Not;
        }
        let said = hear_of(line);
        sys::reap(child, said.is_none());
        match said {
            None => return Forked::Not,
            Some(0) => {}
            Some(keeper) => return Forked::Keeper(keeper),
        }
    }
    Forked::Not
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

/// In the process that was forked.
fn become_keeper(paused: &Paused, its: &Own) -> ! {
    numbers::close_all_but_own();
    sys::leave_session(c"netchan-keeper");
    let _ = sys::dup3(sys::complaints(), 2, 0); // where there is one: what fails is said there
    let mut word = [0];
    // The end of the line says the same as the word.
    if sys::read(its.as_raw_fd(), &mut word).is_ok_and(|n| n == 1) && word[0] != GO_ON {
        sys::exit_group(0);
    }
    let of = process::owner();
    // A panic would go on in the program's code.
    let ended = catch_unwind(AssertUnwindSafe(|| go_on(paused)));
    if let Err(error) = ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
        sys::complain(&format!(
            "netchan: what process {of} left to other processes ends: {error}\n"
        ));
    }
    sys::exit_group(0);
}

/// The stack goes on here, as long as another process holds a stream.
fn go_on(paused: &Paused) -> io::Result<()> {
    let door = share::keep_for(process::owner()).ok(); // without it programs that children become find the links busy
    process::take_over();
    ending::is_anothers();
    region::go_on();
    for fd in SOCKETS.occupied(0, c_int::MAX) {
        std::mem::forget(SOCKETS.remove(fd)); // a number of the program's
    }
    paused.resume()?;
    let _ = line::hear_on(); // without it options are not set
    lending::keep();
    loop {
        relay::keep(door.as_ref(), lending::is_running)?;
        let Some(net) = process::running() else {
            return Ok(());
        };
        net.drain(ending::DRAIN);
        // One may have asked meanwhile.
        if !lending::is_running() {
            let _ended = net.pause(); // its control socket goes
            return Ok(());
        }
    }
}
