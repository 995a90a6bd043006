//! The netchan program: one file for each command, and what they share.

mod arguments;
mod capture;
mod change;
mod completions;
mod config;
mod daemon;
mod demo;
mod doctor;
mod elf;
mod extcap;
mod failure;
mod http;
mod inject;
mod lab;
mod log;
mod look;
mod metrics;
mod namespace;
mod netlink;
mod output;
mod plot;
mod run;
mod shared;
mod show;
#[cfg(test)]
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;
mod table;
#[cfg(test)]
#[path = "../tests/terminal/mod.rs"]
#[allow(dead_code, reason = "its other half is for tests/top.rs")]
mod terminal;
mod top;
mod trace;
mod units;
mod user;
mod web;
mod work;

use std::process::ExitCode;

use arguments::Command;
use failure::Outcome;
use netchan::config::LogConfig;

fn main() -> ExitCode {
    let (command, log) = arguments::parse();
    let name = command.name();
    failure::exit_code(name, dispatch(command, &log))
}

fn dispatch(command: Command, log: &log::Flags) -> Outcome {
    // The program that `netchan run` becomes opens its file itself, as the user that it is then; the daemon's configuration names one.
    if !matches!(command, Command::Run(_) | Command::Daemon(_)) {
        log::begin(&log.over(LogConfig::default()))?;
    }
    match command {
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Run(arguments) if arguments.shared => shared::run(&arguments, log),
        Command::Run(arguments) => run::run(&arguments, log),
        Command::Daemon(arguments) => daemon::daemon(&arguments, log),
        Command::Show(arguments) => show::show(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Metrics(arguments) => metrics::metrics(&arguments),
        Command::Web(arguments) => web::web(&arguments),
        Command::Capture(arguments) => capture::capture(&arguments),
        Command::Inject(arguments) => inject::inject(&arguments),
        Command::Extcap(arguments) => extcap::extcap(&arguments),
        Command::Plot(arguments) => plot::plot(&arguments),
        Command::Address(arguments) => change::address(&arguments),
        Command::Route(arguments) => change::route(&arguments),
        Command::Set(arguments) => change::set(&arguments),
        Command::Module(arguments) => change::module(&arguments),
        Command::Config(arguments) => config::config(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Completions(of) => completions::completions(&of, arguments::visible()),
        Command::Man(of) => completions::man(&of, arguments::visible()),
        Command::Inner(inner) => work::inner(inner),
    }
}
