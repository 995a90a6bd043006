//! Random sequences of forks, signals, cancellations, threads and closed descriptors in a program with sockets: each answers on netchan as on the
//! kernel. `NETCHAN_SEED`, `NETCHAN_FIRST` and `NETCHAN_SEEDS` choose the seed, the first sequence and how many.

#![allow(dead_code)] // of what is shared with sequences.rs, a part

mod common;

#[path = "sequences/compare.rs"]
mod compare;

use std::{env, fs};

use compare::{Difference, Lines};

/// What differs, and why: Linux's answer, `###`, netchan's. `*` is anything.
const DIFFERENT: &[(&str, &str)] = &[];

/// The service is the kernel's for both. A program that dies goes on with the next sequence; its last words are kept.
const BOTH: &str = "$PEER 10.77.0.1 > up & P=$!\nawait grep -q ready up\n\
     $PROGRAM $SEED $FIRST $COUNT 10.77.0.1 > linux.txt; R=$?\n\
     export NETCHAN_OWN=10.77.0.2\n: > netchan.txt; : > words.txt; n=$FIRST; end=$((FIRST + COUNT))\n\
     while [ $n -lt $end ]; do\n\
     LD_PRELOAD=$LIBRARY $PROGRAM $SEED $n $((end - n)) 10.77.0.1 > one.txt 2> one-words.txt\n\
     cat one.txt >> netchan.txt; head -c 2000 one-words.txt >> words.txt\n\
     last=$(tail -n 1 one.txt | cut -d. -f1); n=$((${last:-$n} + 1)); done\nkill $P; exit $R";

fn is_known(kind: &str) -> bool {
    DIFFERENT
        .iter()
        .any(|(pattern, _)| compare::matches(pattern, kind))
}

fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.parse().ok()
}

/// What differs without a reason in the table, and what the program's process said.
fn differences(
    seed: usize,
    first: usize,
    count: usize,
    regime: &str,
) -> Option<(Vec<Difference>, String)> {
    let folder = common::scratch().join(format!("processes-{regime}-{seed}-{first}-{count}"));
    fs::create_dir_all(&folder).expect("the scratch folder is writable");
    let script = format!(
        "cd '{}'\nexport NETCHAN_REGIME={regime}\nSEED={seed} FIRST={first} COUNT={count} PROGRAM='{}'\n{BOTH}",
        folder.display(),
        common::processes().display()
    );
    let output = common::in_namespace_for(120 + 40 * count as u64, &script)?;
    assert!(output.status.success(), "on the kernel: {output:?}");
    let read = |name: &str| {
        fs::read(folder.join(name))
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .expect("just written")
    };
    let [linux, ours] = ["linux.txt", "netchan.txt"].map(|name| Lines::of(&read(name)));
    assert_eq!(linux.sequences.len(), count);
    let none = Vec::new();
    let found = linux.sequences.iter().filter_map(|(number, lines)| {
        let netchan = ours.sequences.get(number).unwrap_or(&none);
        compare::sequence(*number, lines, netchan, |kind, _| is_known(kind))
    });
    Some((found.collect(), read("words.txt")))
}

fn as_on_linux(regime: &str, default: usize) {
    let seed = number("NETCHAN_SEED").unwrap_or(1);
    let first = number("NETCHAN_FIRST").unwrap_or(0);
    let count = common::skips::seeds_or(default);
    if count == 0 {
        return;
    }
    let Some((found, words)) = differences(seed, first, count, regime) else {
        return;
    };
    // Once more by itself: which of two threads comes first is not always decided.
    let again = |difference: &Difference| {
        differences(seed, difference.sequence, 1, regime)
            .expect("it could before")
            .0
    };
    let left: Vec<_> = found.iter().take(20).flat_map(again).collect();
    assert!(
        left.is_empty(),
        "NETCHAN_SEED={seed}, {regime}: {} of {count} sequences differ; of the first 20, when alone, {}:\n{}\n{words}",
        found.len(),
        left.len(),
        compare::report(&left)
    );
}

#[test]
fn processes_threads_and_signals_are_as_on_linux() {
    as_on_linux("app-channel", 30);
}

#[test]
fn processes_threads_and_signals_are_as_on_linux_when_locked() {
    as_on_linux("locked", 10);
}
