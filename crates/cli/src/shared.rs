//! `netchan run --shared`: the links stay in this process, which lends them to the program and to all that it starts, as a daemon does.

use std::{ffi::OsString, fs::File, io, path::Path};

use netchan::{
    config::Config,
    environment::{CONFIG, DISPATCH, GIANT, KERNEL, LINK, LOOPBACK, REGIME, SPIN},
    log::Verbosity,
};

use crate::{
    daemon::{self, Lending},
    elf::Means,
    failure::{Outcome, at, failed},
    log,
    run::{self, Arguments, Plan, Setting, attended, value},
};

/// What the program's stacks have of what the links' stack is told.
const OF_BOTH: [&str; 6] = [REGIME, GIANT, DISPATCH, SPIN, LOOPBACK, KERNEL];

/// Runs the command until the program, and all that it has started, has ended.
pub fn run(arguments: &Arguments, flags: &log::Flags) -> Outcome {
    let plan = run::plan(arguments, flags)?;
    if plan.means == Means::Supervision {
        return Err(failed(format!(
            "{} makes its system calls itself, and cannot have a stack of its own: run it without --shared",
            plan.program
        )));
    }
    let Plan {
        mut command,
        program,
        settings,
        mut run,
        log,
        user,
        announcement,
        ..
    } = plan;
    log::begin(&log)?;
    let config = value(&settings, CONFIG).map(|file| Config::load(Path::new(&file)));
    let config = config.transpose().map_err(failed)?.unwrap_or_default();
    let net = run::builder(&settings)?
        .lends_loopback(true)
        .start()
        .map_err(|e| failed(format!("the stack does not start: {e}")))?;
    let lending = Lending::start(&net, &config)?;
    if let Some(said) = announcement.filter(|_| log.level != Some(Verbosity::Quiet)) {
        eprintln!("netchan: {said}");
    }
    let library = run::library()?;
    command
        .envs(of_programs(&settings, lending.path()))
        .env("LD_PRELOAD", run::preload(&library)?);
    run::tell(&log, &mut run, &mut command)?;
    let becomes = attended::prepare(&mut command, user, run);
    let prepare = move || {
        becomes()?;
        // The loader would only warn, and start the program without netchan.
        let why = |e| io::Error::other(format!("{} cannot be read: {e}", library.display()));
        File::open(&library).map(drop).map_err(why)
    };
    let signals = attended::signals()?;
    let ended = netchan_supervise::attend(command, prepare, |started| {
        daemon::raise_limit(); // not the program's
        attended::pass_on(signals, started);
    });
    lending.stop();
    drop(net);
    attended::end_as(ended.map_err(at(program))?)
}

/// What the program is told: where the links are lent, and how its stacks work.
fn of_programs(settings: &[Setting], lent_at: &Path) -> Vec<Setting> {
    let mut link = OsString::from("daemon:");
    link.push(lent_at);
    let both = settings.iter().filter(|(name, _)| OF_BOTH.contains(name));
    both.cloned().chain([(LINK, link)]).collect()
}
