//! A program that this process starts, instead of becoming it: what it becomes before, its signals, and its end.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
    thread,
};

use netchan::config::RunConfig;
use netchan_supervise::Program;
use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use super::sandbox;
use crate::{
    failure::{Failure, at},
    user::User,
};

/// Signals for the program that come to this process.
const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What the thread that starts the program does before: it becomes the user, and is confined. The program's environment is that user's.
pub fn prepare(
    command: &mut Command,
    user: Option<User>,
    run: RunConfig,
) -> impl FnOnce() -> io::Result<()> + Send + use<> {
    if let Some(user) = &user {
        command.env_remove("XDG_RUNTIME_DIR"); // another user's
        command
            .env("HOME", &user.home)
            .env("USER", &user.name)
            .env("LOGNAME", &user.name);
    }
    move || {
        if let Some(user) = user {
            user.become_it().map_err(io::Error::other)?;
        }
        if run.sandbox == Some(true) {
            let refused = |why| io::Error::other(format!("--sandbox: {why}"));
            sandbox::enter(&run.writable).map_err(refused)?;
        }
        Ok(())
    }
}

/// From now on they wait for [`pass_on`].
pub fn signals() -> Result<Signals, Failure> {
    Signals::new(SIGNALS).map_err(at("signals"))
}

/// Passes signals on to the program. What the terminal sends both have got.
pub fn pass_on(mut signals: Signals, program: Program) {
    let _ = thread::Builder::new()
        .name("netchan-signals".into())
        .spawn(move || {
            for number in signals.forever() {
                if let Some(signal) = Signal::from_named_raw(number) {
                    program.signal(signal);
                }
            }
        });
}

/// Ends this process as the program has ended.
pub fn end_as(status: ExitStatus) -> Result<(), Failure> {
    if let Some(signal) = status.signal() {
        let _ = emulate_default_handler(signal); // one that ends no process is left to what follows
    }
    match status.code() {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}
