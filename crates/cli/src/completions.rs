//! `netchan completions` and the man pages, both made from the definitions of the commands.

use std::{fs, path::PathBuf};

use clap_complete::Shell;

use crate::{
    failure::{Outcome, at},
    output::print,
};

/// Prints what a shell completes the commands and options of netchan with
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  netchan completions bash > ~/.local/share/bash-completion/completions/netchan\n  \
        netchan completions zsh > ~/.zfunc/_netchan\n  netchan completions fish > ~/.config/fish/completions/netchan.fish"
)]
pub struct Arguments {
    /// For which shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// `make man`.
#[derive(clap::Args)]
pub struct Man {
    /// Where the pages go; made if it is not there
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Runs the command: `whole` is what a person may type.
pub fn completions(arguments: &Arguments, whole: clap::Command) -> Outcome {
    let shell = match arguments.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    print(&script(shell, whole))
}

fn script(shell: Shell, mut whole: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole, "netchan", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        script.push_str(&words_for_fish(&whole));
    }
    script
}

/// The words that may stand behind a command (`show links`), of which clap_complete tells fish nothing.
fn words_for_fish(whole: &clap::Command) -> String {
    let mut lines = String::new();
    for command in whole.get_subcommands() {
        let words = command
            .get_positionals()
            .flat_map(clap::Arg::get_possible_values);
        let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
        if !words.is_empty() {
            lines.push_str(&format!(
                "complete -c netchan -n \"__fish_netchan_using_subcommand {}\" -f -a \"{}\"\n",
                command.get_name(),
                words.join(" ")
            ));
        }
    }
    lines
}

/// Writes a page for each command.
pub fn man(arguments: &Man, whole: clap::Command) -> Outcome {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).map_err(at(directory.display()))?;
    clap_mangen::generate_to(whole, directory).map_err(at(directory.display()))
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
