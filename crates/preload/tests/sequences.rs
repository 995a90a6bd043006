//! Random sequences of socket calls, on the kernel's sockets and on netchan's: each call answers the same, and leaves the sockets the same.
//! `NETCHAN_SEED`, `NETCHAN_FIRST` and `NETCHAN_SEEDS` choose the seed, the first sequence and how many; 100,000 are a soak.

mod common;

#[path = "sequences/compare.rs"]
mod compare;
#[path = "sequences/table.rs"]
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

use compare::{Difference, Lines};

/// In one network namespace: ports are used once, as connections leave TIME-WAITs behind.
const BATCH: usize = 7_000;

/// What a call waits for what the kernel's sockets show: at first, and when what differed is tried again by itself.
const PATIENCE_MS: [u32; 2] = [100, 4_000];

/// Kinds of differences that are said, at most.
const SAID: usize = 12;

fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.parse().ok()
}

/// netchan as the others of these tests have it, but without a limit for ICMP, as Linux here.
const OURS: &str = "printf 'loopback = \"netchan\"\\n[icmp]\\nrate_limit = false\\n[[link]]\\nkind = \"tap\"\\nname = \"nc0\"\\n\
     address = [\"10.77.0.2/24\", \"fd77::2/64\"]\\ngateway = \"10.77.0.1\"\\n' > netchan.toml\n\
     unset NETCHAN_LINK NETCHAN_ADDRESS NETCHAN_GATEWAY\nexport NETCHAN_CONFIG=$PWD/netchan.toml\n";

/// The far end in a namespace of its own, behind a veth. Acknowledgments at once, no limit for ICMP: an answer must not depend on the time.
const ON_LINUX: &str = "CALM='calm() { sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=100000 net.ipv6.icmp.ratelimit=0; \
     ip route replace 10.77.0.0/24 dev $1 proto kernel scope link src 10.77.0.$2 quickack 1; ip -6 route replace fd77::/64 dev $1 proto kernel metric 256 quickack 1; }'\n\
     eval \"$CALM\"\nlinux() {\nip link del nc0\nunshare -n sleep 3600 > slept & far=$!\nhere=$(readlink /proc/self/ns/net)\n\
     until [ \"$(readlink /proc/$far/ns/net)\" != \"$here\" ]; do sleep 0.01; done\n\
     ip link add nc0 type veth peer name far\nip link set far netns $far\n\
     ip addr add 10.77.0.2/24 dev nc0; ip addr add fd77::2/64 dev nc0 nodad; ip link set nc0 up\n\
     on_far() { nsenter -t $far -n \"$@\"; }\n\
     on_far ip link set lo up; on_far ip addr add 10.77.0.1/24 dev far; on_far ip addr add fd77::1/64 dev far nodad; on_far ip link set far up\n\
     calm nc0 2; on_far sh -ec \"$CALM; calm far 1\" || return 1\n\
     ip route replace local 10.77.0.2 dev nc0 table local proto kernel scope host src 10.77.0.2 quickack 1\n\
     ip -6 route replace local fd77::2 dev nc0 table local proto kernel metric 0 quickack 1\n\
     $SEQUENCES $SEED $FIRST $COUNT kernel /proc/$far/ns/net > linux.txt; R=$?\nkill $far; return $R; }\n";

/// Runs `count` sequences on both; what the kernel and what netchan said.
fn both(
    seed: usize,
    first: usize,
    count: usize,
    regime: &str,
    retry_budget_ms: u32,
) -> Option<[String; 2]> {
    let folder = common::scratch().join(format!("sequences-{regime}-{seed}-{first}-{count}"));
    fs::create_dir_all(&folder).expect("the scratch folder is writable");
    let limit_s = 120 + count as u64 / 2;
    let variables = format!(
        "cd '{}'\nSEED={seed} FIRST={first} COUNT={count} SEQUENCES='{}'\n{ON_LINUX}",
        folder.display(),
        common::sequences().display()
    );
    let linux = common::in_namespace_for(limit_s, &format!("{variables}linux"))?;
    assert!(linux.status.success(), "{linux:?}");
    let ours = format!(
        "{variables}calm nc0 1\n{OURS}export NETCHAN_REGIME={regime} NETCHAN_PATIENCE_MS={retry_budget_ms}\n\
         LD_PRELOAD=$LIBRARY $SEQUENCES $SEED $FIRST $COUNT netchan - linux.txt > netchan.txt"
    );
    let output = common::in_namespace_for(limit_s, &ours)?;
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("just written");
    let said = [read("linux.txt"), read("netchan.txt")];
    if !output.status.success() {
        let last = said[1].lines().last().unwrap_or("nothing");
        panic!(
            "{}, after {last}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::remove_dir_all(&folder).expect("a folder of our own");
    Some(said)
}

/// What differs without a reason in the table; what is in the table, by its row.
fn differences(said: &[String; 2], rows: &mut [usize]) -> Vec<Difference> {
    let [linux, ours] = said.each_ref().map(|text| Lines::of(text));
    let mut found = Vec::new();
    for (number, lines) in &linux.sequences {
        let none = Vec::new();
        let netchan = ours.sequences.get(number).unwrap_or(&none);
        let unexplained = compare::sequence(*number, lines, netchan, |kind, story| {
            let row = table::explains(kind, story);
            if let Some(row) = row {
                rows[row] += 1;
            }
            row.is_some() || table::is_open(&compare::general(kind))
        });
        found.extend(unexplained);
    }
    found
}

/// Of each kind one, if it still differs when the sequence is run by itself and netchan has time.
fn confirmed(seed: usize, regime: &str, found: Vec<Difference>) -> Vec<Difference> {
    let mut kinds: BTreeMap<String, Difference> = BTreeMap::new();
    for difference in found {
        let shortest = kinds.get(&difference.kind);
        if shortest.is_none_or(|known| difference.story.len() < known.story.len()) {
            kinds.insert(difference.kind.clone(), difference);
        }
    }
    let mut rows = vec![0; table::DIFFERENT.len()];
    let again = kinds.into_values().flat_map(|difference| {
        let said = both(seed, difference.sequence, 1, regime, PATIENCE_MS[1]);
        differences(&said.expect("it could before"), &mut rows)
    });
    // Only those that stay count: what was a matter of time must not hide the others.
    again.take(SAID).collect()
}

fn as_on_linux(regime: &str, default: usize) {
    let (seed, first) = (
        number("NETCHAN_SEED").unwrap_or(1),
        number("NETCHAN_FIRST").unwrap_or(0),
    );
    let count = common::skips::seeds_or(default);
    if count == 0 {
        return;
    }
    let mut rows = vec![0; table::DIFFERENT.len()];
    for begin in (first..first + count).step_by(BATCH) {
        let some = BATCH.min(first + count - begin);
        let Some(said) = both(seed, begin, some, regime, PATIENCE_MS[0]) else {
            return;
        };
        let found = differences(&said, &mut rows);
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        found
            .iter()
            .for_each(|difference| *kinds.entry(difference.kind.clone()).or_default() += 1);
        let all = found.len();
        if let Ok(file) = env::var("NETCHAN_OPEN") {
            let open: BTreeSet<_> = kinds.keys().map(|kind| compare::general(kind)).collect();
            let text: String = open.into_iter().map(|kind| kind + "\n").collect();
            fs::write(file, text).expect("NETCHAN_OPEN can be written");
        }
        for difference in &found {
            // One that is not confirmed is a matter of time, or of the sequences before it.
            println!(
                "{regime}, sequence {}: {}\n{}",
                difference.sequence, difference.kind, difference.story
            );
        }
        let left = confirmed(seed, regime, found);
        assert!(
            left.is_empty(),
            "NETCHAN_SEED={seed}, {regime}: {all} of {some} sequences differ: {kinds:#?}\n{}",
            compare::report(&left)
        );
    }
    for (row, times) in table::DIFFERENT.iter().zip(rows) {
        println!("{times:6} {}: {}", row.pattern, row.reason);
    }
}

#[test]
fn sequences_of_calls_answer_as_on_linux() {
    as_on_linux("app-channel", 300);
}

/// The same answers where calls take a lock.
#[test]
fn sequences_of_calls_answer_as_on_linux_when_locked() {
    as_on_linux("locked", 100);
}

#[test]
fn a_pattern_matches_what_it_says() {
    let pattern = "shutdown(S, *) = 0 ### ENOTCONN";
    assert!(compare::matches(pattern, "shutdown(S, 2) = 0 ### ENOTCONN"));
    assert!(!compare::matches(pattern, "shutdown(S, 2) = 0 ### EINVAL"));
    assert!(compare::matches("*", "anything"));
    assert!(!compare::matches("", "anything"));
}
