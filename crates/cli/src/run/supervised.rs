//! Programs that make their system calls themselves: the stack stays in this process, which answers them (`netchan-supervise`).

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
    thread,
};

use netchan::{
    config::{LogConfig, RunConfig},
    environment::{self, Kernels},
    log::Verbosity,
};
use netchan_supervise::Program;
use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use super::{Setting, builder, sandbox, value};
use crate::{
    failure::{Failure, at, failed},
    log,
    user::User,
};

/// Signals for the program that come to this process.
const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What is to be run, and how.
pub struct Plan {
    pub command: Command,
    pub settings: Vec<Setting>,
    pub run: RunConfig,
    pub log: LogConfig,
    pub user: Option<User>,
    /// What is said once the stack runs.
    pub announcement: Option<String>,
}

/// Runs the program, and ends as it did.
pub fn run(plan: Plan) -> Result<(), Failure> {
    let Plan {
        mut command,
        settings,
        run,
        log,
        user,
        announcement,
    } = plan;
    log::begin(&log)?;
    let kernels = Kernels::read(&|name| value(&settings, name)).map_err(failed)?;
    let net = builder(&settings)?
        .start()
        .map_err(|e| failed(format!("the stack does not start: {e}")))?;
    if let Some(said) = announcement.filter(|_| log.level != Some(Verbosity::Quiet)) {
        eprintln!("netchan: {said}");
    }
    command.env(
        environment::INTERFACES,
        environment::links_said(&net.links()),
    );
    if let Some(user) = &user {
        command.env_remove("XDG_RUNTIME_DIR"); // another user's
        command
            .env("HOME", &user.home)
            .env("USER", &user.name)
            .env("LOGNAME", &user.name);
    }
    let prepare = move || {
        if let Some(user) = user {
            user.become_it().map_err(io::Error::other)?;
        }
        if run.sandbox == Some(true) {
            let refused = |why| io::Error::other(format!("--sandbox: {why}"));
            sandbox::enter(&run.writable).map_err(refused)?;
        }
        Ok(())
    };
    let signals = Signals::new(SIGNALS).map_err(at("signals"))?;
    let name = command.get_program().to_string_lossy().into_owned();
    let started = |program| pass_on(signals, program);
    let ended = netchan_supervise::run(&net, kernels, command, prepare, started);
    drop(net);
    end_as(ended.map_err(at(name))?)
}

/// Passes signals on to the program. What the terminal sends both have got.
fn pass_on(mut signals: Signals, program: Program) {
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
fn end_as(status: ExitStatus) -> Result<(), Failure> {
    if let Some(signal) = status.signal() {
        let _ = emulate_default_handler(signal); // one that ends no process is left to what follows
    }
    match status.code() {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}
