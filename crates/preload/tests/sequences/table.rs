//! Where netchan's sockets differ from Linux's, and why. A row is the call with Linux's answer, `###`, and netchan's answer, or, where the answers
//! are the same, what is seen of the sockets that differ (poll's events, bytes to read, TCP's state): Linux's `->` netchan's. `*` is anything.

pub const DIFFERENT: &[(&str, &str)] = &[
    (
        "connect(*, *6 P*) = EINPROGRESS ### *0*/0/2->20*/0/7",
        IN_VAIN,
    ),
    ("connect(*, *6 P*) = EINPROGRESS ### ECONNREFUSED", IN_VAIN),
    (
        "send(*, * OOB*) = * ### *201f/*/7->201d/*/7*",
        "netchan's urgent byte lies in the stream: refused with the text around it, it is not kept",
    ),
];

const IN_VAIN: &str = "Linux: after a failed connect to a mapped address, one to an IPv6 address waits in vain for any answer";

/// Where several shards receive, a UDP socket and a listener have a queue in each: what came of one peer is read in order, of several in any, and
/// connections are accepted in any.
pub fn is_other_order(kind: &str) -> bool {
    let Some((linux, ours)) = kind.split_once(" ### ") else {
        return false;
    };
    if kind.starts_with("S = accept(") && linux.contains(") from ") {
        // Another connection: by its name, or by what is seen of it.
        return ours.contains(") from ") || ours.contains("->");
    }
    let answers =
        |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(", sum ");
    let read =
        kind.starts_with("recv(") && linux.split_once(" = ").is_some_and(|(_, one)| answers(one));
    (read && answers(ours)) || super::compare::matches("5/*/0->5/*/0", ours)
}

/// What is not mended yet: calls with both answers, without what they were given; `*` is anything. Lines only ever go from here. (`NETCHAN_OPEN=FILE` has the test
/// write down what it finds beyond it.)
const OPEN: &str = include_str!("open.txt");

pub fn is_open(general: &str) -> bool {
    OPEN.lines()
        .any(|line| super::compare::matches(line, general))
}
