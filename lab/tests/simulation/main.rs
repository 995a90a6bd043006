//! The deterministic world: two stacks in virtual time, a wire that mistreats them, and what must come out of it.
//!
//! A failing seed is replayed with `NETCHAN_SEED=<seed> NETCHAN_SEEDS=1 cargo test -p netchan-lab --test simulation`;
//! `NETCHAN_SEEDS` says how many seeds are tried: without it 6, of small worlds 200 (`make soak` tries thousands).

mod accounting;
#[path = "../../../crates/proto/tests/tcp_script/bytes.rs"]
mod bytes;
mod calls;
mod fan;
mod flow;
#[path = "../system/frames.rs"]
mod frames;
mod plan;
mod script;
#[path = "../skips/mod.rs"]
mod skips;
mod steps;
mod world;

use std::{fs, path::Path};

use netchan::Regime;

use plan::{Plan, Random};
use world::{Mode, Outcome, World};

/// The regimes that run today.
fn regimes() -> Vec<Regime> {
    Regime::here().collect()
}

/// The seeds of this run.
fn seeds() -> impl Iterator<Item = u64> {
    seeds_or(6)
}

/// The seeds of this run; `usual` many, if it was not said how many.
fn seeds_or(usual: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let first = number("NETCHAN_SEED").unwrap_or(1);
    (0..skips::seeds_or(usual)).map(move |i| first.wrapping_add(i))
}

/// Runs `plan` under `regime`; a panic inside says which seed it was.
fn run(plan: &Plan, regime: Regime) -> Outcome {
    println!("seed {} {regime:?}: {plan}", plan.seed);
    match World::new(plan, Mode::called(regime)).and_then(|mut world| world.run()) {
        Ok(outcome) => outcome,
        Err(e) => panic!("seed {} {regime:?}: {e}\n  {plan}", plan.seed),
    }
}

#[test]
fn every_byte_arrives_whatever_the_wire_does() {
    for seed in seeds() {
        let plan = Plan::rough(seed);
        let regimes = regimes();
        let regime = regimes[Random::new(seed).below(regimes.len())];
        // `run` compares what arrived with what was sent, flow by flow.
        run(&plan, regime);
    }
}

/// Every regime, turned by its callers and through its own hand-off, wherever it puts protocol work: what arrives is what was sent, and the
/// same in all of them. Worlds share nothing, so that each processor has some of the seeds.
#[test]
fn every_regime_delivers_the_same_bytes() {
    let called = regimes().into_iter().map(Mode::called);
    let modes: Vec<Mode> = called.chain(steps::modes()).map(Mode::small).collect();
    assert!(modes.iter().any(|mode| mode.stepped) && modes.iter().any(|mode| !mode.stepped));
    let seeds: Vec<u64> = seeds_or(200).collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let modes = &modes;
    std::thread::scope(|scope| {
        for some in seeds.chunks(seeds.len().div_ceil(threads).max(1)) {
            scope.spawn(move || some.iter().for_each(|&seed| in_all_modes(seed, modes)));
        }
    });
}

fn in_all_modes(seed: u64, modes: &[Mode]) {
    let plan = Plan::small(seed);
    // Links with several queues in every fourth world: there are more than enough.
    let modes = modes
        .iter()
        .filter(|mode| mode.queues == 1 || seed.is_multiple_of(4));
    let outcomes: Vec<_> = modes.clone().map(|&mode| steps::run(&plan, mode)).collect();
    for (mode, outcome) in modes.zip(&outcomes) {
        assert_eq!(outcome.streams, outcomes[0].streams, "seed {seed} {mode:?}");
        // Without losses, datagrams arrive all and once, so that they too must be the same.
        let same = outcome.datagrams == outcomes[0].datagrams;
        assert!(!plan.lossless || same, "seed {seed} {mode:?}: datagrams");
    }
}

#[test]
fn every_regime_turned_by_its_callers_delivers_the_same_bytes() {
    for seed in seeds() {
        let rough = Plan::rough(seed);
        let digests = regimes()
            .into_iter()
            .map(|regime| run(&rough, regime).streams);
        let digests: Vec<_> = digests.collect();
        assert!(
            digests.windows(2).all(|w| w[0] == w[1]),
            "seed {seed}: streams differ"
        );
        // Without losses, datagrams arrive all and once, so that they too must be the same.
        let smooth = Plan::smooth(seed);
        let outcomes = regimes().into_iter().map(|regime| run(&smooth, regime));
        let outcomes: Vec<_> = outcomes.collect();
        for outcome in &outcomes {
            assert_eq!(outcome.streams, outcomes[0].streams, "seed {seed}");
            assert_eq!(outcome.datagrams, outcomes[0].datagrams, "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in seeds() {
        let plan = Plan::rough(seed);
        for regime in regimes() {
            let (first, second) = (run(&plan, regime), run(&plan, regime));
            assert_eq!(first, second, "seed {seed} {regime:?}: two runs differ");
        }
    }
}

/// Random scripts, and those that the fuzzer kept.
#[test]
fn a_stack_survives_any_script() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/stack");
    let kept = fs::read_dir(kept).expect("the corpus");
    let mut scripts: Vec<_> = kept
        .map(|entry| fs::read(entry.expect("an entry").path()).expect("a script"))
        .collect();
    assert!(scripts.len() >= 10, "{} scripts", scripts.len());
    scripts.extend(seeds().map(|seed| {
        let mut random = frames::Random::new(seed);
        let len = random.below(400);
        random.bytes(len)
    }));
    let mut host = script::Host::new();
    for script in scripts {
        println!("{script:?}");
        host.run(&script);
    }
}

/// Random sequences of calls: as the fuzz target `calls` has them, some for each seed.
#[test]
fn two_stacks_survive_any_sequence_of_calls() {
    let mut hosts = calls::Hosts::new();
    for seed in seeds() {
        let mut random = frames::Random::new(seed);
        for _ in 0..40 {
            let len = random.below(200);
            let sequence = random.bytes(len);
            println!("{sequence:?}");
            hosts.run(&sequence);
        }
    }
}
