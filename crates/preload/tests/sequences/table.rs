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

/// What is not mended yet: calls with both answers, without what they were given; `*` is anything. Lines only ever go from here. (`NETCHAN_OPEN=FILE` has the test
/// write down what it finds beyond it.)
const OPEN: &str = include_str!("open.txt");

pub fn is_open(general: &str) -> bool {
    OPEN.lines()
        .any(|line| super::compare::matches(line, general))
}
