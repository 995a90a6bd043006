//! Every call in every state that a socket can be in, and every two calls one behind the other: netchan's sockets say what Linux's say.

mod common;

use std::{collections::BTreeSet, fs, path::PathBuf};

/// Where they differ: words of the line's beginning, the last calls tried (none: any), and why.
const DIFFERENT: [(&str, &[&str], &str); 2] = [
    (
        "udp mapped",
        &["sendto-v6"],
        "Linux: one that was connected to a mapped address, and is no more, hears no IPv6",
    ),
    (
        "tcp mapped",
        &[
            "connect-unspec",
            "connect-none",
            "connect-zero",
            "connect-other",
        ],
        "Linux shows a mapped address for one that was given up, and finds no way to IPv6 any more",
    ),
];

/// The number of the reason why a line may differ.
fn allowed(line: &str) -> Option<usize> {
    let (name, calls) = line.split_once(": ")?;
    let (calls, _) = calls.split_once(": ")?;
    DIFFERENT.iter().position(|(of, few, _)| {
        let is_one = |call: &&str| calls == *call || calls.ends_with(&format!(" {call}"));
        let has = |word: &str| name.split(' ').any(|of_name| of_name.starts_with(word));
        of.split(' ').all(has) && (few.is_empty() || few.iter().any(is_one))
    })
}

fn program() -> PathBuf {
    common::compile("states", &["states.c"])
}

/// The kernel's sockets in a namespace behind a pair of virtual Ethernet devices, netchan's behind the TAP: the same services answer both.
const SCRIPT: &str = "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit\n\
     echo 1000000 > /proc/sys/net/ipv4/icmp_msgs_per_sec; echo 1000000 > /proc/sys/net/ipv4/icmp_msgs_burst\n\
     $STATES serve > up & S=$!\nawait grep -q ready up\n\
     unshare -n sh -c 'echo > apart; exec sleep 140' & N=$!\nawait test -s apart\n\
     ip link add v0 type veth peer name v1 netns $N\n\
     ip addr add 10.78.0.1/24 dev v0; ip addr add fd78::1/64 dev v0 nodad; ip link set v0 up\n\
     nsenter -t $N -n sh -c 'ip link set lo up; ip addr add 10.78.0.2/24 dev v1; ip addr add fd78::2/64 dev v1 nodad; ip link set v1 up\n\
       echo \"0 2147483647\" > /proc/sys/net/ipv4/ping_group_range'; echo '0 2147483647' > /proc/sys/net/ipv4/ping_group_range\n\
     linux() { nsenter -t $N -n $STATES 10.78.0.2 10.78.0.1 fd78::2 fd78::1 \"$@\"; }\n\
     netchan() { (on_netchan $STATES 10.77.0.2 10.77.0.1 fd77::2 fd77::1 \"$@\"); }\n\
     compare() { linux \"$@\" > of-linux && netchan \"$@\" > of-netchan && [ $(wc -l < of-linux) = $(wc -l < of-netchan) ]; }\n\
     compare; R=$?\n\
     for ROUND in 1 2 3; do if [ $R = 0 ]; then\n\
     paste -d '\\n' of-linux of-netchan | awk 'NR % 2 { first = $0; next } first != $0 { split(first, part, \":\"); print part[1] \":\" part[2] \":\" }' > again\n\
     wc -l < of-linux; wc -l < again\n\
     compare 400 again && [ $(wc -l < of-linux) = $(wc -l < again) ]; R=$?; fi; done\n\
     kill $S $N; exit $R";

/// What differs is tried again, three times at most, with patience; what differs then is said.
fn compare(regime: &str) {
    let script = format!(
        "mkdir -p states-{regime}; cd states-{regime}; export NETCHAN_REGIME={regime} STATES='{}'\n{SCRIPT}",
        program().display()
    );
    let Some(output) = common::in_namespace(&script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{said}\n{complained}",
        output.status
    );
    let tried: usize = said
        .lines()
        .find(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .expect("a number")
        .parse()
        .expect("one");
    assert!(tried > 6_000, "{tried}");
    let read = |name: &str| {
        let path = common::scratch()
            .join(format!("states-{regime}"))
            .join(name);
        fs::read_to_string(path).expect("written by the script")
    };
    let (linux, netchan) = (read("of-linux"), read("of-netchan"));
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for (linux, ours) in linux.lines().zip(netchan.lines()).filter(|(a, b)| a != b) {
        match allowed(linux) {
            Some(reason) => drop(seen.insert(reason)),
            None => wrong.push(format!("Linux   {linux}\nnetchan {ours}")),
        }
    }
    let all = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {tried} lines:\n{all}", wrong.len());
    let reasons = (0..DIFFERENT.len()).collect();
    assert_eq!(seen, reasons, "each difference that is allowed is there");
}

#[test]
fn every_call_in_every_state_answers_as_linux_does() {
    compare("app-channel");
}

#[test]
fn every_call_in_every_state_answers_as_linux_does_under_locks() {
    compare("locked");
}
