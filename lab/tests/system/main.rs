//! The system tests: unmodified programs on netchan, against the real Linux stack, in network namespaces made for each case.
//!
//! They need root, and say so where it is missing. `make test` runs them in the build of all other tests, without those of `OPTIMISED`;
//! `make test-full` runs all in the release build; `NETCHAN_SOAK=1` gives the long forms. One case, after `make build`:
//! `NETCHAN_SYSTEM=1 cargo test --release --workspace --test system -- curl`.
//! This binary, started with `--inner WORK ...` inside a namespace, is the other end of a case.

mod captured;
mod crowd;
mod daemon;
mod differential;
mod download;
mod ecn;
mod errors;
mod fast_open;
mod forward;
mod frames;
mod hostile;
mod inner;
mod instructions;
mod interactive;
mod leftovers;
mod loss;
mod orphans;
mod parallel;
mod place;
mod probes;
mod process;
mod programs;
mod regimes;
mod rsync;
mod servers;
mod short_cuts;
#[path = "../skips/mod.rs"]
mod skips;
mod storm;
mod threads;
mod transfer;
mod urgent;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use place::Knobs;

/// What a case returns: why it failed, in words.
type Outcome = Result<(), String>;

/// A case: its name and what it does.
type Case = (&'static str, fn(&Knobs) -> Outcome);

/// Cases that count instructions, move much or take long: only an optimised build runs them unasked.
const OPTIMISED: &[&str] = &[
    "instructions_are_as_recorded",
    "every_regime_takes_and_gives",
    "every_regime_with_1_percent_loss",
    "every_regime_restarts_under_load",
    "every_regime_outlives_mutated_frames",
    "every_regime_soaks",
    "linux_to_linux_through_every_regime",
    "nc_both_ways_tap",
    "nc_both_ways_veth",
    "curl_with_1_percent_loss",
    "curl_with_1_percent_loss_veth",
    "sixteen_streams",
    "differential_veth",
    "connections_open_at_once",
    "ten_thousand_connections",
    "syn_flood",
    "fuzzed_frames",
];

/// Whether `make test`, whose build is not optimised, leaves a case to `make test-full`.
fn is_left(name: &str) -> bool {
    cfg!(debug_assertions) && OPTIMISED.contains(&name)
}

/// What a case returns that cannot do its work here.
fn not_done(name: &str, why: &str) -> Outcome {
    skips::skipped(name, why);
    Ok(())
}

/// All cases, the quick ones first.
fn cases() -> Vec<Case> {
    [
        errors::CASES,
        leftovers::CASES,
        instructions::CASES,
        programs::CASES,
        daemon::CASES,
        short_cuts::CASES,
        storm::CASES,
        orphans::CASES,
        interactive::CASES,
        rsync::CASES,
        fast_open::CASES,
        ecn::CASES,
        urgent::CASES,
        probes::CASES,
        servers::CASES,
        regimes::CASES,
        forward::CASES,
        transfer::CASES,
        captured::CASES,
        loss::CASES,
        download::CASES,
        parallel::CASES,
        threads::CASES,
        differential::CASES,
        crowd::CASES,
        hostile::CASES,
    ]
    .concat()
}

/// Why the cases cannot run here, if so.
fn obstacle() -> Option<String> {
    if std::env::var_os("NETCHAN_SYSTEM").is_none() {
        return Some("NETCHAN_SYSTEM is not set (make test sets it)".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("they make network namespaces and TAP devices, which takes root".to_owned());
    }
    let missing: Vec<_> = place::PROGRAMS
        .iter()
        .filter(|p| place::find(p).is_none())
        .copied()
        .collect();
    if !missing.is_empty() {
        return Some(format!("programs are missing: {}", missing.join(", ")));
    }
    if let Err(e) = place::netchan() {
        return Some(e);
    }
    place::Place::new().and_then(|p| p.tap("nc0")).err()
}

#[allow(clippy::disallowed_methods)] // a test's stopwatch
fn run(name: &str, case: fn(&Knobs) -> Outcome, knobs: &Knobs) -> bool {
    let begin = Instant::now();
    println!("system {name} ...");
    let outcome = std::panic::catch_unwind(|| case(knobs));
    let took = begin.elapsed().as_secs_f64();
    match &outcome {
        Ok(Ok(())) => println!("system {name} ok, {took:.1} s"),
        Ok(Err(why)) => println!("system {name} FAILED after {took:.1} s: {why}"),
        Err(_) => println!("system {name} FAILED after {took:.1} s: it panicked"),
    }
    matches!(outcome, Ok(Ok(())))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "--inner") {
        return inner::main(&arguments[1..]);
    }
    if let Some(why) = obstacle() {
        skips::skipped("all", &why);
        return ExitCode::SUCCESS;
    }
    place::remove_leftovers();
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let knobs = Knobs::from_environment();
    let chosen = cases().into_iter().filter(|(name, _)| match wanted[..] {
        [] => !is_left(name),
        _ => wanted.iter().any(|w| name.contains(w.as_str())),
    });
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, case) in chosen {
        count += 1;
        if !run(name, case, &knobs) {
            failed.push(name);
        }
        // What a case left to the kernel (sockets of a namespace that goes) is cleared in the background.
        std::thread::sleep(Duration::from_millis(20));
    }
    if count == 0 {
        println!("system tests FAILED: no case is called {wanted:?}");
        return ExitCode::FAILURE;
    }
    if failed.is_empty() {
        println!("system tests: all {count} ok");
        if wanted.is_empty() && cfg!(debug_assertions) {
            println!("  left to make test-full: {}", OPTIMISED.join(", "));
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "system tests: {} of {count} FAILED: {}",
        failed.len(),
        failed.join(", ")
    );
    ExitCode::FAILURE
}
