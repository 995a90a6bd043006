//! How a command ends: done (0), failed (1), used wrongly (2). The message says what was wrong, where, and what to do.

use std::{fmt::Display, process::ExitCode};

/// Why a command did not do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command could not: status 1.
    Failed(String),
    /// The command was called in a way that makes no sense: status 2.
    Usage(String),
    /// The output's reader is gone: status 0, as for `netchan show | head`.
    Unread,
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

/// The failure of a command that could not.
pub fn failed(why: impl Display) -> Failure {
    Failure::Failed(why.to_string())
}

/// The failure of a command that was called wrongly.
pub fn usage(why: impl Display) -> Failure {
    Failure::Usage(why.to_string())
}

/// Says where it happened: `fs::read(path).map_err(at(path.display()))`.
pub fn at<E: Display>(place: impl Display) -> impl FnOnce(E) -> Failure {
    move |why| failed(format!("{place}: {why}"))
}

/// Prints the message of `outcome` and gives the exit status for it.
pub fn exit_code(command: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Failed(why)) => {
            eprintln!("netchan {command}: {why}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(why)) => {
            eprintln!("netchan {command}: {why}\nFor help: netchan {command} --help");
            ExitCode::from(2)
        }
    }
}
