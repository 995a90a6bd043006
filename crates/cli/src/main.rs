//! The netchan program: one file for each command, and what they share.

mod arguments;
mod change;
mod demo;
mod doctor;
mod elf;
mod failure;
mod lab;
mod namespace;
mod netlink;
mod output;
mod run;
mod show;
mod table;
mod trace;
mod units;
mod user;
mod work;

use std::process::ExitCode;

use arguments::Command;
use failure::Outcome;

fn main() -> ExitCode {
    let command = arguments::parse();
    let name = command.name();
    failure::exit_code(name, dispatch(command))
}

fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Show(arguments) => show::show(&arguments),
        Command::Address(arguments) => change::address(&arguments),
        Command::Route(arguments) => change::route(&arguments),
        Command::Set(arguments) => change::set(&arguments),
        Command::Module(arguments) => change::module(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Inner(inner) => work::inner(inner),
    }
}
