//! `netchan lab`: the experiments, run where you are.

use std::{fs, path::PathBuf, time::Duration};

use indicatif::ProgressBar;
use netchan_lab::Options;
use serde_json::{Value, json};

use crate::{
    failure::{Outcome, at, failed, usage},
    output::{print, print_json},
    table,
};

/// Lists or runs the experiments behind the figures
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  netchan lab list\n  netchan lab run path --quick --json path.json"
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Lists the experiments
    #[command(after_help = "Example:\n  netchan lab list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Runs experiments and prints what they found
    #[command(
        after_help = "The exit status says whether they ran, not whether a target was met.\n\nExamples:\n  \
            netchan lab run path\n  netchan lab run channels sched --quick --json percore.json"
    )]
    Run {
        /// Which ones (netchan lab list)
        #[arg(required = true)]
        name: Vec<String>,
        /// Fewer rounds: within half a minute each on two cores
        #[arg(long)]
        quick: bool,
        /// Write what was found to FILE, `-` for standard output: an object, with several experiments an array of them
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// Runs the command.
pub fn lab(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::List { json } => list(*json),
        Action::Run { name, quick, json } => run(name, Options { quick: *quick }, json.as_ref()),
    }
}

fn list(as_json: bool) -> Outcome {
    let row = |e: &netchan_lab::Experiment| {
        if as_json {
            json!({ "name": e.name, "question": e.question, "prediction": e.prediction })
        } else {
            json!({ "name": e.name, "question": e.question })
        }
    };
    let facts = Value::Array(netchan_lab::list().iter().map(row).collect());
    if as_json {
        print_json(&facts)
    } else {
        print(&table::render(&facts))
    }
}

fn run(names: &[String], options: Options, file: Option<&PathBuf>) -> Outcome {
    for name in names {
        netchan_lab::find(name).map_err(usage)?;
    }
    let to_stdout = file.is_some_and(|file| file.as_os_str() == "-");
    if let Some(file) = file.filter(|_| !to_stdout) {
        fs::write(file, "").map_err(at(file.display()))?; // better now than after a minute's work
    }
    let mut reports = Vec::new();
    for name in names {
        let spinner = ProgressBar::new_spinner().with_message(format!("running {name}"));
        spinner.enable_steady_tick(Duration::from_millis(200));
        let report = netchan_lab::run(name, &options);
        spinner.finish_and_clear();
        let report = report.map_err(|e| failed(format!("{name}: {e}")))?;
        if !to_stdout {
            print(&format!("{report}\n"))?;
        }
        reports.push(report.to_json());
    }
    let text = match reports.as_slice() {
        [one] => format!("{one}\n"),
        several => format!("[\n{}\n]\n", several.join(",\n")),
    };
    match file {
        _ if to_stdout => print(&text),
        Some(file) => fs::write(file, text).map_err(at(file.display())),
        None => Ok(()),
    }
}
