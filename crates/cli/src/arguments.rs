//! The command line: what exists, what does not yet, and what is only for netchan itself.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    capture, change, completions, config, daemon, demo, doctor, extcap, inject, lab, log, metrics,
    plot, run, show, top, trace, web, work,
};

/// Commands of the contract that this version does not have, and what stands in until it does.
const PLANNED: [(&str, &str); 3] = [
    ("suspend", "connections end with their program"),
    ("resume", "connections end with their program"),
    ("upgrade", "connections end with their program"),
];

#[derive(Parser)]
#[command(
    name = "netchan",
    version,
    about = "A multicore TCP/IP stack that lives in user space",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110,
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage.\n\n\
        Examples:\n  \
        netchan demo                                 the main job, narrated; needs no root\n  \
        netchan run -- python3 -m http.server 8000   a web server on a stack of its own\n  \
        netchan show sockets                         what it is doing"
)]
struct Cli {
    #[command(flatten)]
    log: log::Flags,
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    Demo(demo::Arguments),
    Run(run::Arguments),
    Daemon(daemon::Arguments),
    Show(show::Arguments),
    Top(top::Arguments),
    Web(web::Arguments),
    Metrics(metrics::Arguments),
    Capture(capture::Arguments),
    Inject(inject::Arguments),
    Extcap(extcap::Arguments),
    Plot(plot::Arguments),
    Address(change::Address),
    Route(change::Route),
    Set(change::Set),
    Module(change::Module),
    Config(config::Arguments),
    Trace(trace::Arguments),
    Doctor(doctor::Arguments),
    Lab(lab::Arguments),
    Completions(completions::Arguments),
    /// Man pages.
    #[command(name = "__man", hide = true)]
    Man(completions::Man),
    /// Parts of netchan's own that are separate processes.
    #[command(name = "__inner", hide = true)]
    Inner(work::Arguments),
}

impl Command {
    /// As the user typed it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Demo(_) => "demo",
            Self::Run(_) => "run",
            Self::Daemon(_) => "daemon",
            Self::Show(_) => "show",
            Self::Top(_) => "top",
            Self::Web(_) => "web",
            Self::Metrics(_) => "metrics",
            Self::Capture(_) => "capture",
            Self::Inject(_) => "inject",
            Self::Extcap(_) => "extcap",
            Self::Plot(_) => "plot",
            Self::Address(_) => "address",
            Self::Route(_) => "route",
            Self::Set(_) => "set",
            Self::Module(_) => "module",
            Self::Config(_) => "config",
            Self::Trace(_) => "trace",
            Self::Doctor(_) => "doctor",
            Self::Lab(_) => "lab",
            Self::Completions(_) => "completions",
            Self::Man(_) => "__man",
            Self::Inner(_) => "__inner",
        }
    }
}

/// What a person may type, without what is only for netchan itself.
pub fn visible() -> clap::Command {
    let whole = Cli::command();
    let visible = whole.get_subcommands().filter(|c| !c.is_hide_set());
    let visible = visible.cloned();
    let everywhere = whole.get_arguments().filter(|a| a.is_global_set()).cloned();
    let mut only = clap::Command::new("netchan")
        .version(env!("CARGO_PKG_VERSION"))
        .args(everywhere)
        .subcommands(visible);
    if let Some(about) = whole.get_about() {
        only = only.about(about.clone());
    }
    if let Some(help) = whole.get_after_help() {
        only = only.after_help(help.clone());
    }
    only
}

/// The command line, or the end of the program: help (0), wrong usage (2), a command that is still to come (1).
pub fn parse() -> (Command, log::Flags) {
    let mut whole = Cli::command();
    for (name, _) in PLANNED {
        let rest = clap::Arg::new("rest")
            .num_args(..)
            .allow_hyphen_values(true)
            .trailing_var_arg(true);
        let planned = clap::Command::new(name)
            .hide(true)
            .disable_help_flag(true)
            .arg(rest);
        whole = whole.subcommand(planned);
    }
    let line = extcap::command_line(std::env::args_os().collect());
    let matches = whole.get_matches_from(line);
    for (name, instead) in PLANNED {
        if matches.subcommand_name() == Some(name) {
            eprintln!(
                "netchan {name}: not supported yet in version {}: {instead}",
                env!("CARGO_PKG_VERSION")
            );
            std::process::exit(1);
        }
    }
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => (cli.command, cli.log),
        Err(e) => e.exit(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound_and_have_examples() {
        Cli::command().debug_assert();
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Example"),
                "{} has no example",
                command.get_name()
            );
        }
    }
}
