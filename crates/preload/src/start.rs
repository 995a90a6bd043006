//! When the stack starts in a process, and what it leaves to the program that the process becomes.

use std::io;

use netchan::{Net, environment};

use crate::{
    children, driver, errno, exit, fork, hearing, limits, notices,
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
    let net = process::net_or(|| {
        process::inside(|| {
            let complete = notices::is_complete();
            start().map_err(|error| notices::why(&error, complete))
        })
        .unwrap_or_else(|why| notices::give_up(&why))
    });
    if driver::driver().is_none() {
        signals::stand_for_defaults();
    }
    net
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
    notices::tell_events()?;
    let net = match driver::driver() {
        Some(driver) => (driver.start)()?,
        None => environment::builder(&variable)?.start()?,
    };
    fork::claim_held()?;
    process::set_own_id(environment::OWNER); // the links are taken
    if driver::driver().is_none() {
        sys::keep_complaints();
        let _ = hearing::begin(); // without descriptors to spare children are not heard
    }
    exit::begin();
    limits::busy_poll(); // read now: no later call opens a file for it
    notices::announce();
    Ok(net)
}

/// Links left open for the program that this process becomes, until it is known that it did not.
#[derive(Debug)]
pub struct Kept(Option<String>);

/// Leaves the links of this process's stack to the program that it is about to become. A child of it, which comes here before its own
/// exec, has nothing to leave.
pub fn keep_links() -> Kept {
    shared::before_exec();
    if !process::started() {
        return Kept(None);
    }
    let handed = variable(environment::DESCRIPTORS);
    if let Some(handed) = &handed {
        environment::inherit(handed, true);
    }
    if children::has_served() {
        process::set_own_id(environment::SERVED);
    }
    Kept(handed)
}

impl Kept {
    /// The exec failed. errno stays as it is.
    pub fn take_back(self) {
        let Some(handed) = self.0 else { return };
        let code = io::Error::last_os_error().raw_os_error();
        environment::inherit(&handed, false);
        errno::set(code.unwrap_or(0));
    }
}
