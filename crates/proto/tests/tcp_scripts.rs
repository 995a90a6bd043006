//! Arbitrary scripts for a connection, random ones and those that the fuzzer kept: see `tcp_script/mod.rs`. `negative 57` to `69`.

mod tcp_script;

use std::{fs, path::Path};

/// A closed window opens when all that is outstanding is lost or sacked, and the pace lets none of it leave yet: the retransmission timer, which had
/// been the persist timer, did not run (RFC 6298 §5.1).
#[rustfmt::skip]
const PACED_BEHIND_A_PROBE: &[u8] = &[
    93, 93, 29, 0, 49, 252, 41, 0, 167, 167, 10, 167, 255, 204, 104, 104,
    197, 104, 14, 58, 57, 108, 108, 104, 104, 104, 91, 104, 255, 104, 104, 197,
    197, 197, 197, 197, 197, 197, 104, 14, 58, 57, 104, 91, 104, 104, 91, 104,
    104,
];

#[test]
fn outstanding_data_has_a_timer_when_the_window_opens() {
    tcp_script::run(PACED_BEHIND_A_PROBE);
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn random_scripts() {
    let seeds = std::env::var("TCP_SEEDS").map_or(2_000, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        let mut state = seed;
        let len = next(&mut state) % 1_500;
        let script: Vec<u8> = (0..len)
            .map(|_| next(&mut state).to_le_bytes()[0])
            .collect();
        if let Err(panic) = std::panic::catch_unwind(|| tcp_script::run(&script)) {
            eprintln!("script {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn scripts_that_the_fuzzer_kept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/connection");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the corpus") {
        let script = fs::read(entry.expect("an entry").path()).expect("a script");
        tcp_script::run(&script);
        count += 1;
    }
    assert!(count >= 10, "{count} scripts");
}
