//! Instructions of the packet path's steps, counted by callgrind and held against recorded figures: what a clock on a busy machine cannot see.
//!
//! `NETCHAN_INSTRUCTIONS=write` writes `instructions.txt` anew, from the build that `make test-system` makes (thin LTO: others inline
//! otherwise); a commit that changes a figure on purpose says why. Another compiler than the recorded one has more latitude.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::Command};

use netchan_lab::instructions::{PREFIX, STEPS, work};

use crate::{
    Case, Outcome, not_done,
    place::{Knobs, SOON, find},
};

pub const CASES: &[Case] = &[("instructions_are_as_recorded", compare)];

/// How many more a step may take than recorded, in percent. What inlines elsewhere moved them by up to 5, as does the C library's choice of
/// memcpy.
const LATITUDE: u64 = 10;
/// Latitude where another compiler made the program, in percent.
const LATITUDE_ABROAD: u64 = 30;

/// The work that is counted, in a process of its own.
pub fn inner() -> Result<String, String> {
    work().map_err(|e| e.to_string())?;
    Ok("done".to_owned())
}

fn compare(_: &Knobs) -> Outcome {
    if find("valgrind").is_none() {
        return not_done("instructions_are_as_recorded", "valgrind is not installed");
    }
    let counts = count()?;
    let compiler = compiler();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/instructions.txt");
    if std::env::var("NETCHAN_INSTRUCTIONS").is_ok_and(|what| what == "write") {
        return std::fs::write(file, table(&counts, &compiler)).map_err(|e| e.to_string());
    }
    let recorded = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let latitude = if recorded.lines().any(|line| line == compiler) {
        LATITUDE
    } else {
        LATITUDE_ABROAD
    };
    let mut off = Vec::new();
    for (step, _) in STEPS {
        let count = counts.get(step).copied().unwrap_or(0);
        let known = known(&recorded, step);
        println!("  {step}: {count} instructions, {known} recorded");
        if count * 100 > known * (100 + latitude) {
            off.push(format!(
                "{step} takes {count} instructions, {known} are recorded"
            ));
        }
    }
    if off.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} (latitude {latitude} %). If that is wanted: NETCHAN_INSTRUCTIONS=write NETCHAN_SYSTEM=1 cargo test --release --workspace --test system -- \
         instructions, and say why in the commit",
        off.join("; ")
    ))
}

/// The recorded figure; without one 0, which every count is beyond.
fn known(recorded: &str, step: &str) -> u64 {
    let figure = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let figure = rest.split_whitespace().next()?;
        (name == step).then(|| figure.parse().ok())?
    };
    recorded.lines().find_map(figure).unwrap_or(0)
}

fn compiler() -> String {
    let said = Command::new("rustc").arg("--version").output();
    let said = said.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    format!("# {}", said.unwrap_or_default())
}

fn table(counts: &BTreeMap<String, u64>, compiler: &str) -> String {
    let mut text = String::from(
        "# Instructions of one step (lab/src/instructions.rs), the mean of many, by callgrind. How to write this anew: instructions.rs.\n",
    );
    let _ = writeln!(text, "{compiler}");
    for (step, what) in STEPS {
        let count = counts.get(step).copied().unwrap_or(0);
        let _ = writeln!(text, "{step} {count} {what}");
    }
    text
}

/// Runs [`inner`] under callgrind: instructions of each step.
fn count() -> Result<BTreeMap<String, u64>, String> {
    let folder = std::env::temp_dir().join(format!("netchan-instructions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let counted = count_in(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    counted
}

fn count_in(folder: &Path) -> Result<BTreeMap<String, u64>, String> {
    let file = folder.join("counts");
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--dump-line=no",
            "--compress-strings=no",
        ])
        .arg("--compress-pos=no")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["--inner", "instructions"]);
    let process = crate::process::Process::start(command, folder, "callgrind")?;
    process.finish(SOON * 6)?.success()?;
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let counts = read(&text);
    match STEPS.iter().find(|(step, _)| !counts.contains_key(*step)) {
        Some((step, _)) => Err(format!("callgrind counted no {step}")),
        None => Ok(counts),
    }
}

/// The mean of each step's calls, from callgrind's own format: after `cfn=` of the function called comes a line with `calls=`, and after that
/// one the instructions of all these calls as its last word.
fn read(text: &str) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let (mut step, mut calls) = (None, None);
    for line in text.lines() {
        if let Some(called) = line.strip_prefix("cfn=") {
            step = step_of(called);
        } else if let Some(count) = line.strip_prefix("calls=") {
            calls = count.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        } else if let Some(calls) = calls.take()
            && let Some(step) = step.take()
            && let Some(cost) = line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok())
        {
            let sum = sums.entry(step).or_default();
            *sum = (sum.0 + calls, sum.1 + cost);
        }
    }
    let mean = |(step, (calls, cost))| (step, cost / std::cmp::max(calls, 1));
    sums.into_iter().map(mean).collect()
}

/// Of `crate::counted_tcp_in::h0123` the `tcp_in`.
fn step_of(function: &str) -> Option<String> {
    let (_, rest) = function.split_once(PREFIX)?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}
