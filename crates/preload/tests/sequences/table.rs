//! Where netchan's sockets differ from Linux's, and why. A row is the call with Linux's answer, `###`, and netchan's answer, or, where the answers
//! are the same, what is seen of the sockets that differ (poll's events, bytes to read, TCP's state): Linux's `->` netchan's. `*` is anything.

pub struct Row {
    pub pattern: &'static str,
    /// What must stand in lines of the sequence before it, each in one.
    pub after: &'static [&'static str],
    pub reason: &'static str,
}

const fn row(pattern: &'static str, after: &'static [&'static str], reason: &'static str) -> Row {
    Row {
        pattern,
        after,
        reason,
    }
}

const IN_VAIN: &str = "Linux: after a failed connect to a mapped address, one to an IPv6 address waits in vain for any answer";
const TO_MAPPED: &[&str] = &["connect(*, ::ffff:"];

/// Tried: the same listener without that connect resets it.
const NO_RESET: &str = "Linux: a listener that failed to connect to a mapped address before resets no IPv6 connection that is not accepted yet";
const LISTENS_AFTER_MAPPED: &[&str] = &["connect(*, ::ffff:*) = ECONNREFUSED", "listen(*) = 0"];

/// Tried with a program of its own: the peer sees that address.
const LOOPBACK: &str = "Linux: a stream that was bound to an IPv6 address, and for which IPV6_V6ONLY was taken back, connects to IPv4 from 127.0.0.6";

/// Tried: of a peer that is there only the first datagram arrives, what follows is counted as "no port"; nothing of it is meant.
const MISLED: &str = "Linux: after a connect that found no route, all datagrams to the peer that it had but the first one bear the address of that connect";
const ROUTELESS: &[&str] = &["connect(*) = EINVAL"];
const ROUTELESS_QUEUE: &[&str] = &[
    "connect(*) = EINVAL",
    "= socket(*, datagrams)",
    "IP_RECVERR, 1) = 0",
];

const FORMER_PEER: &str = "Linux: an IPv6 datagram socket that was disconnected hears only the host that was its peer (POSIX: its peer is reset)";
const DISCONNECTED: &[&str] = &["= socket(v6, datagrams)", "connect(*, family 0, *) = 0"];

pub const DIFFERENT: &[Row] = &[
    row(
        "connect(*, *6 *) = EINPROGRESS ### */0/2->*",
        TO_MAPPED,
        IN_VAIN,
    ),
    row(
        "connect(*, *6 *) = EINPROGRESS ### ECONNREFUSED",
        TO_MAPPED,
        IN_VAIN,
    ),
    row("connect(*, *6 *) = EINPROGRESS ### 0", TO_MAPPED, IN_VAIN),
    row(
        "connect(*, :: *) = EINPROGRESS ### */0/2->*",
        TO_MAPPED,
        IN_VAIN,
    ),
    row(
        "connect(*, :: *) = EINPROGRESS ### ECONNREFUSED",
        TO_MAPPED,
        IN_VAIN,
    ),
    row("connect(*, :: *) = EINPROGRESS ### 0", TO_MAPPED, IN_VAIN),
    row("* ### *4/*/1->20*", LISTENS_AFTER_MAPPED, NO_RESET),
    row(
        "connect(*, ::ffff:*) = EINVAL ### EINPROGRESS",
        &["setsockopt(*, IPV6_V6ONLY, 0) = 0"],
        LOOPBACK,
    ),
    row("send(*) = * ### *4/0/0->c/0/0*", ROUTELESS, MISLED),
    row("send(*) = * ### *2005/0/0->200d/0/0*", ROUTELESS, MISLED),
    row("send(*) = * ### *5/*/0->d/*/0*", ROUTELESS, MISLED),
    // Where the error queue has an earlier refusal nothing is seen of the next one until the program asks.
    row("send(*) = * ### ECONNREFUSED", ROUTELESS_QUEUE, MISLED),
    row(
        "recv(*) = EAGAIN* ### ECONNREFUSED*",
        ROUTELESS_QUEUE,
        MISLED,
    ),
    row(
        "getsockopt(*, SO_ERROR) = 0 ### ECONNREFUSED",
        ROUTELESS_QUEUE,
        MISLED,
    ),
    row("send(*) = * ### *4/0/0->5/*/0*", DISCONNECTED, FORMER_PEER),
    // The datagram that Linux refuses waits at a socket that is shut.
    row("send(*) = * ### *c/0/0->4/0/0*", DISCONNECTED, FORMER_PEER),
    row(
        "send(*) = * ### *200d/0/0->2005/0/0*",
        DISCONNECTED,
        FORMER_PEER,
    ),
    row(
        "send(*, * OOB*) = * ### *201f/*/7->201d/*/7*",
        &["OOB"],
        "netchan's urgent byte lies in the stream: refused with the text around it, it is not kept",
    ),
    row(
        "connect(*) = ECONNABORTED ### 0",
        &["= ENOTCONN"],
        "of one that was shut before and is connected to itself: on Linux it is over before its connect looks, here that sees it open",
    ),
];

/// The row that explains a difference of this kind, behind this beginning of its sequence.
pub fn explains(kind: &str, story: &str) -> Option<usize> {
    let stands = |part: &&str| {
        let pattern = format!("*{part}*");
        (story.lines()).any(|line| super::compare::matches(&pattern, line))
    };
    let is_it =
        |row: &Row| super::compare::matches(row.pattern, kind) && row.after.iter().all(&stands);
    DIFFERENT.iter().position(is_it)
}

/// What is not mended yet: calls with both answers, without what they were given; `*` is anything. Lines only ever go from here. (`NETCHAN_OPEN=FILE` has the test
/// write down what it finds beyond it.)
const OPEN: &str = include_str!("open.txt");

pub fn is_open(general: &str) -> bool {
    OPEN.lines()
        .any(|line| super::compare::matches(line, general))
}
