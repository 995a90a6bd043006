//! `netchan doctor`: what on this machine would spoil a run or a measurement, and how to mend it (F10).

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    failure::{Outcome, failed},
    output::{print, print_json},
};

mod checks;

/// Says what on this machine would spoil a run or a measurement, and how to mend it
#[derive(clap::Args)]
#[command(
    after_help = "Exit status 0 if a run is possible, 1 if something is bad.\n\nExamples:\n  netchan doctor\n  netchan doctor --json"
)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// A run is possible; a measurement, or some link, suffers.
    Warn,
    /// No run is possible.
    Bad,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, where there is something to do.
    mend: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            mend: None,
        }
    }
    fn warn(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Warn,
            found: found.into(),
            mend: Some(mend.into()),
        }
    }
    fn bad(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Bad,
            found: found.into(),
            mend: Some(mend.into()),
        }
    }
}

/// Runs the command.
pub fn doctor(arguments: &Arguments) -> Outcome {
    let checks = checks::all(&checks::Machine {
        root: PathBuf::from("/"),
    });
    let bad = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Bad)
        .count();
    let warn = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Warn)
        .count();
    if arguments.json {
        print_json(&checks)?;
    } else {
        print(&render(&checks))?;
        let run = if bad == 0 {
            "a run is possible"
        } else {
            "no run is possible yet"
        };
        print(&format!(
            "\n{run}; bad: {bad}, would spoil a measurement or limit a link: {warn}\n"
        ))?;
    }
    if bad > 0 {
        return Err(failed("something is bad (see above)"));
    }
    Ok(())
}

fn render(checks: &[Check]) -> String {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Bad => "BAD ",
        };
        text.push_str(&format!(
            "{verdict}  {:width$}  {}\n",
            check.name, check.found
        ));
        if let Some(mend) = &check.mend {
            text.push_str(&format!("      {:width$}  → {mend}\n", ""));
        }
    }
    text
}
