//! When the stack starts in a process, and what it leaves to the program that the process becomes.

use std::{io, time::Duration};

use netchan::{Net, environment};

use crate::{
    children, driver, errno, exit, fork, hearing, keeper,
    lending::{self, Links, OpenDoor},
    limits, notices,
    process::{self, variable},
    shared, signals, sys,
};

/// The stack, started on the first call. A start that fails ends the process with status 1: `netchan run` promises
/// that no program falls back to the kernel's stack unnoticed.
pub fn net() -> &'static Net {
    if let Some(net) = process::net() {
        return net;
    }
    let _starting = process::starting();
    let net = process::net_or(|| first().unwrap_or_else(|why| notices::give_up(&why)));
    if driver::driver().is_none() {
        signals::stand_for_defaults();
    }
    net
}

/// Whether there is a stack, which is started now. False: this process is a child, and had the kernel's until now: it has been told.
pub fn has_stack() -> bool {
    if process::net().is_some() || !process::may_do_without() {
        return true;
    }
    let _starting = process::starting();
    // Another thread was first; or this one, with another socket.
    if process::net().is_some() || process::has_given_up() {
        return process::net().is_some();
    }
    match first() {
        Ok(net) => {
            process::net_or(|| net);
            signals::stand_for_defaults();
            true
        }
        Err(why) => {
            process::give_up();
            let own = process::own_id();
            sys::complain(&format!(
                "netchan: process {own} has no lease, and uses the kernel's stack: {why}\n"
            ));
            false
        }
    }
}

/// Starts it; else says why it does not start.
fn first() -> Result<Net, String> {
    process::inside(|| {
        let complete = notices::is_complete();
        // Where another process lends its links, these are its own.
        start().map_err(|error| notices::why(&error, complete || lending::is_open()))
    })
}

/// The stack of a process that had one as another program. Where it cannot be had, the first socket says why.
pub fn start_again() {
    let _starting = process::starting();
    process::inside(|| {
        if let Ok(net) = start() {
            process::net_or(|| net);
            signals::stand_for_defaults();
        }
    });
}

fn start() -> io::Result<Net> {
    process::remember();
    notices::tell_events()?;
    let (net, door) = match driver::driver() {
        Some(driver) => ((driver.start)()?, None),
        None => on_links()?,
    };
    fork::claim_held()?;
    if !process::is_beside() {
        process::set_own_id(environment::OWNER); // the links are taken
        match door {
            Some(door) if !net.lendable().is_empty() => lending::begin(door),
            _ => process::lends_nothing(),
        }
        if net.is_lent() {
            process::set_lent();
        }
    }
    if driver::driver().is_none() {
        sys::keep_complaints();
        let _ = hearing::begin(); // without descriptors to spare children are not heard
    }
    exit::begin();
    limits::busy_poll(); // read now: no later call opens a file for it
    notices::announce();
    Ok(net)
}

/// A stack on the links of the environment, which this process may lend at the door; or on leases of another one's.
fn on_links() -> io::Result<(Net, Option<OpenDoor>)> {
    let mut tries = 1..TRIES;
    loop {
        match look_for_links() {
            // The process that has the links ends at this moment.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::ConnectionAborted
                ) && tries.next().is_some() =>
            {
                sys::nap(STEP);
            }
            done => return done,
        }
    }
}

fn look_for_links() -> io::Result<(Net, Option<OpenDoor>)> {
    match lending::find()? {
        Links::Lent(asked, door) => {
            let net = environment::builder_on(asked, &door.secret, &variable)?.start()?;
            process::set_beside(door);
            Ok((net, None))
        }
        Links::Free(door) => Ok((environment::builder(&variable)?.start()?, door)),
    }
}

/// How often links are tried that another process has or lends, and for how long between two tries.
const TRIES: u32 = 20;
const STEP: Duration = Duration::from_millis(10);

/// What is left to the program that this process becomes, until it is known that it did not.
pub enum Left {
    Nothing,
    /// Links left open.
    Links(String),
    /// What serves the sockets that stay open, and has the links. The new program has leases of its own beside it.
    Keeper(keeper::Waiting),
}

/// Leaves what this process has of its stack to the program that it is about to become. A child of it, which comes here before its own
/// exec, has nothing to leave.
pub fn leave_to_next() -> Left {
    shared::before_exec();
    if !process::started() {
        return Left::Nothing;
    }
    let has_served = children::has_served(); // before a keeper has what served
    let has_next_one = process::is_lent() || process::lends().is_some(); // the new program has a lease of its own
    if has_next_one
        && process::has_sockets()
        && let Some(keeper) = keeper::before_exec()
    {
        if !process::is_lent() && has_served {
            process::set_own_id(environment::SERVED); // what is not kept is refused, as long as the program lives
        }
        return Left::Keeper(keeper);
    }
    if process::is_beside() {
        return Left::Nothing; // the links that the environment tells of are another process's
    }
    if has_served {
        process::set_own_id(environment::SERVED);
    }
    let Some(handed) = variable(environment::DESCRIPTORS) else {
        return Left::Nothing;
    };
    environment::inherit(&handed, true);
    Left::Links(handed)
}

impl Left {
    /// The exec failed. errno stays as it is.
    pub fn take_back(self) {
        let code = io::Error::last_os_error().raw_os_error();
        match self {
            Self::Nothing => return,
            Self::Links(handed) => environment::inherit(&handed, false),
            Self::Keeper(keeper) => keeper.goes_away(),
        }
        errno::set(code.unwrap_or(0));
    }
}
