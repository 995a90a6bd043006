//! When the stack starts in a process, and what it leaves to the program that the process becomes.

use std::io;

use netchan::{Net, environment};

use crate::{
    children, driver, errno, exit, fork, hearing, keeper, lending, limits, notices,
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
        start().map_err(|error| notices::why(&error, complete))
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
    let net = if let Some(driver) = driver::driver() {
        (driver.start)()?
    } else if let Some(net) = beside()? {
        net
    } else {
        environment::builder(&variable)?.start()?
    };
    fork::claim_held()?;
    if !process::is_beside() {
        process::set_own_id(environment::OWNER); // the links are taken
        match net.lendable() {
            _ if net.is_lent() => process::set_lent(),
            none if none.is_empty() || driver::driver().is_some() => {}
            links => _ = lending::begin(links), // without descriptors to spare they are not lent
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

/// A stack on the links of the program of which this is another process; `None`: there is none, or it has just ended.
fn beside() -> io::Result<Option<Net>> {
    let Some((asked, lends)) = lending::ask()? else {
        return Ok(None);
    };
    let on = |asked| environment::builder_on(asked, &lends.secret, &variable)?.start();
    let net = match on(asked) {
        Ok(net) => net,
        Err(why) => match lending::ask()? {
            Some(_) => return Err(why),
            None => return Ok(None),
        },
    };
    process::set_beside(lends);
    Ok(Some(net))
}

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
