//! Where netchan's sockets differ from Linux's, and why. A row is the call with Linux's answer, `###`, and netchan's answer, or, where the answers
//! are the same, what is seen of the sockets that differ (poll's events, bytes to read, TCP's state): Linux's `->` netchan's. `*` is anything.

pub struct Row {
    pub pattern: &'static str,
    /// What must stand in the sequence before it.
    pub after: &'static str,
    pub reason: &'static str,
}

const fn row(pattern: &'static str, after: &'static str, reason: &'static str) -> Row {
    Row {
        pattern,
        after,
        reason,
    }
}

const IN_VAIN: &str = "Linux: after a failed connect to a mapped address, one to an IPv6 address waits in vain for any answer";
const LOOPBACK: &str =
    "Linux: an IPv6 socket that has an IPv6 address by connect sends to IPv4 from 127.0.0.6";
const MUTE: &str =
    "Linux: after a connect that failed for its address, the second ICMP error is lost";
const FORMER_PEER: &str = "Linux: an IPv6 datagram socket that was disconnected hears nobody but the host that was its peer";
const AT_ACCEPT: &str =
    "a listener's options count for what is accepted later; on Linux for what connects later";

pub const DIFFERENT: &[Row] = &[
    row(
        "connect(*, *6 *) = EINPROGRESS ### *0/0/2->*",
        ", ::ffff:",
        IN_VAIN,
    ),
    row(
        "connect(*, *6 *) = EINPROGRESS ### ECONNREFUSED",
        ", ::ffff:",
        IN_VAIN,
    ),
    row("connect(*, *6 *) = EINPROGRESS ### 0", ", ::ffff:", IN_VAIN),
    row(
        "connect(*, :: *) = EINPROGRESS ### *0/0/2->*",
        ", ::ffff:",
        IN_VAIN,
    ),
    row(
        "connect(*, :: *) = EINPROGRESS ### ECONNREFUSED",
        ", ::ffff:",
        IN_VAIN,
    ),
    row("connect(*, :: *) = EINPROGRESS ### 0", ", ::ffff:", IN_VAIN),
    row("connect(*) = EINVAL ### 0", ", ::ffff:0.0.0.0", LOOPBACK),
    row("send(*) = EINVAL ### *", ", ::ffff:0.0.0.0", LOOPBACK),
    row("send(*) = * ### *4/0/0->c/0/0*", ") = EINVAL", MUTE),
    row("send(*) = * ### *2005/0/0->200d/0/0*", ") = EINVAL", MUTE),
    row("send(*) = * ### *4/0/0->5/*/0*", "family 0", FORMER_PEER),
    row("* ### *5/*/1->4/*/1*", "SO_RCVLOWAT, 20)", AT_ACCEPT),
    row(
        "send(*, * OOB*) = * ### *201f/*/7->201d/*/7*",
        "OOB",
        "netchan's urgent byte lies in the stream: refused with the text around it, it is not kept",
    ),
    row(
        "connect(*) = ECONNABORTED ### 0",
        "= ENOTCONN",
        "of one that was shut before and is connected to itself: on Linux it is over before its connect looks, here that sees it open",
    ),
];

/// The row that explains a difference of this kind, behind this beginning of its sequence.
pub fn explains(kind: &str, story: &str) -> Option<usize> {
    let is_it = |row: &Row| super::compare::matches(row.pattern, kind) && story.contains(row.after);
    DIFFERENT.iter().position(is_it)
}

/// What is not mended yet: calls with both answers, without what they were given; `*` is anything. Lines only ever go from here. (`NETCHAN_OPEN=FILE` has the test
/// write down what it finds beyond it.)
const OPEN: &str = include_str!("open.txt");

pub fn is_open(general: &str) -> bool {
    OPEN.lines()
        .any(|line| super::compare::matches(line, general))
}
