//! The runner itself: what it understands, and that it fails where it should.

use super::*;

const HANDSHAKE: &str = "
    listen
    < S 0:0(0) win 65535 <mss 1000>
    > S. 0:0(0) ack 1 <mss 1460>
    +0.1 < . 1:1(0) ack 1 win 65535
    accept
";

fn run(text: &str) -> Result<(), Failure> {
    Script::parse("test", text)?.run()
}

fn fails(text: &str, what: &str) {
    let failure = run(text).expect_err("it must fail");
    assert!(failure.what.contains(what), "{failure}");
}

#[test]
fn a_handshake_passes() {
    run(HANDSHAKE).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn what_is_not_expected_is_a_failure() {
    fails(&format!("{HANDSHAKE} send 100\n +1 quiet"), "left");
    fails(&format!("{HANDSHAKE} send 100\n"), "P. 1:101(100) ack 1");
}

#[test]
fn what_does_not_come_is_a_failure() {
    fails(
        &format!("{HANDSHAKE} > P. 1:101(100) ack 1\n"),
        "nothing left",
    );
}

#[test]
fn every_field_that_is_written_counts() {
    let sent = |line: &str| format!("{HANDSHAKE} send 100\n > {line}\n");
    fails(&sent(". 1:101(100) ack 1"), "flags");
    fails(&sent("P. 2:102(100) ack 1"), "sequence");
    fails(&sent("P. 1:100(99) ack 1"), "length");
    fails(&sent("P. 1:101(100) ack 2"), "acknowledgment");
    fails(&sent("P. 1:101(100) ack 1 win 3"), "window");
    fails(&sent("P. 1:101(100) ack 1 <sack 1:2>"), "options");
    fails(&sent("P. 1:101(100) ack 1 ce"), "codepoint");
    fails(
        &format!("{HANDSHAKE} send 100\n +0.01 > P. 1:101(100) ack 1\n"),
        "after",
    );
}

#[test]
fn what_is_not_understood_is_said_with_its_line() {
    for (text, line) in [
        ("listen\nfrown", 2),
        ("< S 0:1(0)", 1),
        ("< S 0:0(0) ack 1", 1),
        ("< Q 0:0(0)", 1),
        ("+x listen", 1),
        ("set tcp_nothing=1", 1),
        ("< S 0:0(0) <mss>", 1),
        ("\n\noption nonsense=1", 3),
    ] {
        let failure = Script::parse("test", text).expect_err(text);
        assert_eq!(failure.line, line, "{failure}");
    }
}
