//! Every option, value and length that a program may try: what netchan's sockets answer is what Linux's do.

mod common;

use std::{collections::BTreeSet, process::Output};

/// Where they differ: options (of states that begin so), what was tried, and why. A line begins with a state and an option.
const DIFFERENT: [(&str, &[&str], &str); 7] = [
    (
        "SO_RCVBUF SO_SNDBUF",
        &["at first"],
        "defaults are the stack's own",
    ),
    (
        "SO_RCVLOWAT",
        &["set -2147483648", "set -1", "set 2147483647"],
        "what a buffer takes is the limit when a call waits, not when it is set",
    ),
    ("TCP_MAXSEG", &[""], "of a connection: that of its path"),
    (
        "TCP_WINDOW_CLAMP",
        &["at first"],
        "of a connection: where none was set Linux says how far its buffer would grow",
    ),
    (
        "IP_MULTICAST_ALL",
        &["at first", "set -2147483648", "set -1"],
        "here a socket of IPv6 hears IPv4 groups that others joined until it is told not to, too",
    ),
    (
        "IPV6_ V6_",
        &["set -1 bytes", "set NULL"],
        "Linux reads a negative length as a long one and NULL as 0",
    ),
    (
        "TCP_FASTOPEN_KEY IP_ MCAST_ V6_MCAST_",
        &["set NULL"],
        "Linux says first that the length is wrong",
    ),
];

/// The number of the reason why a line may differ.
fn allowed(line: &str) -> Option<usize> {
    let (state, rest) = line.split_once(' ')?;
    let (option, rest) = rest.split_once(' ')?;
    let (tried, _) = rest.split_once(':')?;
    let is_of = |names: &str| {
        let alike = |name: &str| {
            let (of, name) = name.split_once(':').unwrap_or(("", name));
            let is_name = option == name || (name.ends_with('_') && option.starts_with(name));
            state.starts_with(of) && is_name
        };
        names.split(' ').any(alike)
    };
    let reason = |(names, cases, _): &(&str, &[&str], &str)| {
        is_of(names) && cases.iter().any(|case| case.is_empty() || tried == *case)
    };
    DIFFERENT.iter().position(reason)
}

fn lines(output: &Output) -> (Vec<String>, Vec<String>) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {complained} after {:?}",
        output.status,
        said.lines().last()
    );
    let (kernel, netchan) = said.split_once("--- netchan\n").expect("two halves");
    let own = |half: &str| half.lines().map(str::to_owned).collect();
    (own(kernel), own(netchan))
}

/// On streams, listeners, connections, datagram and ping sockets of both families: 22 values and 14 lengths of each option, NULL, addresses that
/// are not aligned.
#[test]
fn every_value_and_length_is_answered_as_linux_does() {
    let script = "echo '0 2147483647' > /proc/sys/net/ipv4/ping_group_range\nip route add default via 10.77.0.2\n$PEER 10.77.0.1 > up & P=$!\nawait grep -q ready up\n\
                  $SWEEP 10.77.0.1 && echo '--- netchan' && (on_netchan $SWEEP 10.77.0.1); R=$?; kill $P; exit $R";
    let Some(output) = common::in_namespace(script) else {
        return;
    };
    let (kernel, netchan) = lines(&output);
    assert!(kernel.len() > 10_000, "{}", kernel.len());
    assert_eq!(kernel.len(), netchan.len());
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for (linux, ours) in kernel.iter().zip(&netchan).filter(|(a, b)| a != b) {
        match allowed(linux) {
            Some(reason) => drop(seen.insert(reason)),
            None => wrong.push(format!("Linux   {linux}\nnetchan {ours}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} lines:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    let reasons = (0..DIFFERENT.len()).collect();
    assert_eq!(seen, reasons, "each difference that is allowed is there");
}
