//! `netchan config`: an example of the configuration file, and whether one is right.

use std::path::PathBuf;

use netchan::config::Config;

use crate::{
    failure::{Outcome, failed, usage},
    output::print,
};

/// Prints an example configuration, or checks one
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  netchan config --example > netchan.toml\n  netchan config check netchan.toml"
)]
pub struct Arguments {
    /// Print a file with every key, its default and what it does
    #[arg(long)]
    example: bool,
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(clap::Subcommand)]
enum Sub {
    /// Says whether a file is right, and if not, what is wrong where
    Check {
        /// The configuration file
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Runs the command.
pub fn config(arguments: &Arguments) -> Outcome {
    match (&arguments.command, arguments.example) {
        (None, true) => print(&Config::example()),
        (Some(Sub::Check { file }), false) => {
            let config = Config::load(file).map_err(failed)?;
            let (links, modules) = (config.links.len(), config.modules.len());
            let file = crate::output::printable(&file.display().to_string());
            print(&format!(
                "{file}: valid (links: {links}, modules: {modules})\n"
            ))
        }
        _ => Err(usage("either --example, or check FILE")),
    }
}
