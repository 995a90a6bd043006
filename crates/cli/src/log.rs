//! What netchan tells by itself: how much, and where to.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use netchan::{
    config::LogConfig,
    log::{self, Verbosity},
};

use crate::failure::{Failure, Outcome, at, failed};

/// Options of every command.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Flags {
    /// Of what the stack tells by itself, tell errors alone
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Tell more, with targets and fields
    #[arg(short, long, global = true)]
    verbose: bool,
    /// Append it to FILE instead of telling it on standard error
    #[arg(long, value_name = "FILE", global = true, value_hint = clap::ValueHint::FilePath)]
    log_file: Option<PathBuf>,
}

impl Flags {
    /// What the options say, else the configuration.
    pub fn over(&self, config: LogConfig) -> LogConfig {
        let said = match (self.quiet, self.verbose) {
            (true, _) => Some(Verbosity::Quiet),
            (_, true) => Some(Verbosity::Verbose),
            _ => None,
        };
        LogConfig {
            level: said.or(config.level),
            file: self.log_file.clone().or(config.file),
        }
    }
}

/// Has the stacks of this process tell what they have to.
pub fn begin(config: &LogConfig) -> Outcome {
    let file = config.file.as_deref().map(open).transpose()?;
    log::install(config.level.unwrap_or_default(), move |line| {
        // What cannot be told is not told.
        let _ = match &file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    });
    Ok(())
}

/// A file to append to, made if it is not there.
pub fn open(path: &Path) -> Result<File, Failure> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(at(format!("--log-file: {}", path.display())))
}

/// A path that leads to the same file from wherever the program goes.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| failed(format!("--log-file: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_before_the_configuration() {
        let config = LogConfig {
            level: Some(Verbosity::Quiet),
            file: Some("a".into()),
        };
        assert_eq!(Flags::default().over(config.clone()), config);
        let flags = Flags {
            verbose: true,
            log_file: Some("b".into()),
            ..Flags::default()
        };
        let said = flags.over(config);
        assert_eq!(said.level, Some(Verbosity::Verbose));
        assert_eq!(said.file, Some("b".into()));
    }
}
