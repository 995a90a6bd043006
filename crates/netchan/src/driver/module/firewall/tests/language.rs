//! The language: what is accepted, what is refused and where, and that nutty files are only refused.

use std::fmt::Write as _;

use proto::{
    ip::keyed::{Random, Seed},
    time::Instant,
};

use super::super::{parse::parse, words::Fault};
use super::*;

/// Files that are accepted; `nft` accepts them, too (`tests/link_kernel/firewall.rs`).
const GOOD: &[&str] = &[
    "",
    "# nothing\n",
    "flush ruleset\ntable inet filter {\n}\n",
    include_str!("good.nft"),
];

#[test]
fn good_files_are_accepted() {
    for text in GOOD {
        let rules = parse(text).unwrap_or_else(|fault| panic!("{fault}"));
        let hooked = rules.chains.iter().filter(|chain| chain.base.is_some());
        assert_eq!(rules.order.len(), hooked.count());
    }
    let rules = parse(GOOD[3]).unwrap();
    assert_eq!((rules.chains.len(), rules.len()), (7, 31));
    assert_eq!(
        rules.chains[0].rules[3].text,
        "ip saddr 10.0.0.0/8 tcp dport { 22, 80-90 } ct state new accept"
    );
}

fn input(rule: &str) -> String {
    format!(
        "table inet t {{\n  chain c {{\n    type filter hook input priority 0\n    {rule}\n  }}\n}}\n"
    )
}

fn nat(hook: &str, rule: &str) -> String {
    format!(
        "table inet t {{\n  chain c {{\n    type nat hook {hook} priority 0\n    {rule}\n  }}\n}}\n"
    )
}

fn place(fault: &Fault) -> (usize, usize, &str) {
    (fault.line, fault.column, &fault.word)
}

/// Each with the line, the column and the word.
#[test]
fn what_is_wrong_with_a_table_is_named_with_its_place() {
    for (text, (line, column, word)) in [
        ("tabel inet t { }", (1, 1, "tabel")),
        ("table", (1, 6, "")),
        ("table arp t {\n}", (1, 7, "arp")),
        ("table inet 7t {\n}", (1, 12, "7t")),
        ("table inet t {\n  set s {\n}", (2, 3, "set")),
        ("table inet t {\n", (2, 1, "")),
        ("table inet t { chain c { accept } }", (1, 33, "}")),
        ("table inet t { chain c {\n}; chain c {\n}\n}", (2, 10, "c")),
        ("table inet t {\n}\ntable inet t {\n}", (3, 12, "t")),
        (
            "table inet t {\n chain c {\n  type route hook output priority 0;\n }\n}",
            (3, 8, "route"),
        ),
        (
            "table inet t {\n chain c {\n  type nat hook input priority 0;\n }\n}",
            (3, 17, "input"),
        ),
        (
            "table inet t {\n chain c {\n  type filter hook input priority high;\n }\n}",
            (3, 35, "high"),
        ),
        (
            "table inet t {\n chain c {\n  type filter hook input priority 0; policy maybe;\n }\n}",
            (3, 45, "maybe"),
        ),
        ("table inet t {\n chain c {\n  jump d\n }\n}", (3, 8, "d")),
        ("table inet t {\n chain c {\n  jump c\n }\n}", (2, 8, "c")),
        (
            "table inet t {\n chain c {\n  accept € \n }\n}",
            (3, 10, "€"),
        ),
        (
            "table inet t {\n chain c {\n  log prefix \"x\n }\n}",
            (3, 14, "\"x"),
        ),
    ] {
        let fault = parse(text).expect_err(text);
        assert_eq!(place(&fault), (line, column, word), "{fault}\n{text}");
    }
}

#[test]
fn what_is_wrong_with_a_rule_is_named() {
    for (rule, word) in [
        ("tcp dport 65536 accept", "65536"),
        ("tcp dport 9-8 accept", "9-8"),
        ("tcp dport { } accept", "}"),
        ("tcp dport { 1 2 } accept", "2"),
        ("tcp dport ssh accept", "ssh"),
        ("tcp dport 1 udp dport 2 accept", "udp"),
        ("ip saddr 10.0.0.1/8 accept", "10.0.0.1/8"),
        ("ip saddr 10.0.0.0/33 accept", "10.0.0.0/33"),
        ("ip saddr fd00::1 accept", "fd00::1"),
        ("ip saddr example.net accept", "example.net"),
        ("ip saddr 1.2.3.4 ip6 saddr fd00::1 accept", "ip6"),
        ("ct state maybe accept", "maybe"),
        ("ct mark 1 accept", "mark"),
        ("th dport 1 accept", "th"),
        ("icmp type nonsense accept", "nonsense"),
        ("limit rate 10 accept", "10"),
        ("limit rate 0/second accept", "0/second"),
        ("limit rate 10/fortnight accept", "10/fortnight"),
        ("iif \"a/b\" accept", "\"a/b\""),
        ("iif \"eth*\" accept", "\"eth*\""),
        ("accept drop", "drop"),
        ("goto c", "goto"),
        ("masquerade", "masquerade"),
        ("reject with icmp nonsense", "nonsense"),
        ("udp dport 1 reject with tcp reset", "tcp"),
        ("tcp flags sin accept", "sin"),
        ("counter counter", "counter"),
        ("quota 10", "quota"),
        ("\"accept\"", "\"accept\""),
    ] {
        let text = input(rule);
        let fault = parse(&text).expect_err(&text);
        assert_eq!((fault.line, &*fault.word), (4, word), "{fault}\n{text}");
    }
}

#[test]
fn what_is_wrong_with_a_translation_is_named() {
    for (hook, rule, word) in [
        ("postrouting", "snat to 10.0.0.1:80", "10.0.0.1:80"),
        ("postrouting", "dnat to 10.0.0.1", "dnat"),
        ("prerouting", "tcp dport 1 dnat to 10.0.0.1:0", "10.0.0.1:0"),
        (
            "prerouting",
            "dnat to 10.0.0.9-10.0.0.1",
            "10.0.0.9-10.0.0.1",
        ),
        ("prerouting", "dnat to 0.0.0.0", "0.0.0.0"),
        ("prerouting", "ip saddr 1.2.3.4 dnat ip6 to fd00::1", "ip6"),
        ("prerouting", "drop", "drop"),
        ("prerouting", "reject", "reject"),
        (
            "prerouting",
            "tcp dport 1 redirect to 10.0.0.1:1",
            "10.0.0.1:1",
        ),
    ] {
        let text = nat(hook, rule);
        let fault = parse(&text).expect_err(&text);
        assert_eq!((fault.line, &*fault.word), (4, word), "{fault}\n{text}");
    }
    let fault = parse(&input("tcp dport zzz accept")).unwrap_err();
    assert_eq!(fault.to_string(), "4:15: `zzz`: no number that fits here");
}

/// Jumps multiply: what a packet can cost is bounded when a file is read.
#[test]
fn work_for_a_packet_is_bounded() {
    let mut text = "table inet t {\n chain a0 {\n  accept\n }\n".to_owned();
    for n in 1..14 {
        let before = n - 1;
        let jump = format!("  jump a{before}\n");
        let _ = write!(text, " chain a{n} {{\n{}", jump.repeat(4));
        text += " }\n";
    }
    text += "}\n";
    let fault = parse(&text).unwrap_err();
    assert!(fault.what.contains("8192 at most"), "{fault}");
    let deep = (1..40).fold(
        "table inet t {\n chain a0 {\n  accept\n }\n".to_owned(),
        |text, n| format!("{text} chain a{n} {{\n  jump a{}\n }}\n", n - 1),
    );
    let fault = parse(&(deep + "}\n")).unwrap_err();
    assert!(fault.what.contains("within each other"), "{fault}");
}

/// Files with letters changed, taken out, doubled; words and lines exchanged: each is read or refused, none panics. What is read can judge.
#[test]
fn mutilated_files_are_read_or_refused() {
    let mut random = Random::new(Seed([7, 19]));
    let (mut good, mut bad) = (0, 0);
    for round in 0..4000_u64 {
        let mut text: Vec<char> = GOOD[3].chars().collect();
        for _ in 0..=round % 4 {
            let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
            let at = below(text.len());
            match below(5) {
                0 => text[at] = char::from(u8::try_from(below(128)).unwrap()),
                1 => drop(text.remove(at)),
                2 => text.insert(at, text[at]),
                3 => text.truncate(at.max(1)),
                _ => {
                    let other = below(text.len());
                    text.swap(at, other);
                }
            }
        }
        let text: String = text.into_iter().collect();
        match parse(&text) {
            Ok(_) => {
                good += 1;
                let mut bench = Bench::new(&text);
                bench.input(&tcp("10.1.0.9", "10.1.0.1", (4000, 80), (SYN, 1, 0, 0)));
                bench.through(&udp("10.1.0.9", "192.0.2.9", (4000, 53), b"x"), 0);
            }
            Err(fault) => {
                bad += 1;
                assert!(
                    fault.line >= 1 && fault.column >= 1 && !fault.what.is_empty(),
                    "{fault:?}"
                );
            }
        }
    }
    assert!(good > 100 && bad > 1000, "{good} {bad}");
}

#[test]
fn rules_are_tried_in_order_and_counted() {
    let mut bench = Bench::new(
        "table inet t {
  chain c {
    type filter hook input priority 0; policy drop;
    tcp dport 22 accept
    ip saddr 10.0.0.0/8 jump inside
    udp dport 53 counter limit rate 1/second burst 2 packets accept
    tcp dport 23 reject with tcp reset
  }
  chain inside {
    udp dport { 1-10, 20 } accept
    udp dport 11 return
  }
}",
    );
    assert!(bench.input(&tcp("192.0.2.9", "192.0.2.1", (4000, 22), (SYN, 1, 0, 0))));
    assert!(!bench.input(&tcp("192.0.2.9", "192.0.2.1", (4000, 24), (SYN, 1, 0, 0))));
    for (port, passes) in [(5, true), (20, true), (11, false), (15, false)] {
        assert_eq!(
            bench.input(&udp("10.1.0.9", "10.1.0.1", (4000, port), b"x")),
            passes,
            "{port}"
        );
        assert!(!bench.input(&udp("192.0.2.9", "192.0.2.1", (4000, port), b"x")));
    }
    let dns: Vec<bool> = (0..4)
        .map(|n| bench.input(&udp("192.0.2.9", "192.0.2.1", (4000 + n, 53), b"x")))
        .collect();
    assert_eq!(dns, [true, true, false, false]);
    bench.wait(1);
    assert!(bench.input(&udp("192.0.2.9", "192.0.2.1", (5000, 53), b"x")));
    let (verdict, _) = bench.show(
        Point::In,
        &tcp("192.0.2.9", "192.0.2.1", (4000, 23), (SYN, 1, 0, 0)),
        (Some(1), None),
    );
    assert_eq!(
        verdict,
        Verdict::Reject(crate::driver::module::Rejection::Reset)
    );
    assert_eq!(bench.counted(4), (1, 40));
    assert_eq!(bench.counted(5).0, 4);
    assert_eq!(
        bench.counted(6),
        (5, 5 * 29),
        "`counter` stands ahead of the limit"
    );
    assert_eq!((bench.counted(10).0, bench.counted(11).0), (2, 1));
    let rows = bench.wall.rows(Rows::Rules, Instant::ZERO);
    let policy = rows
        .iter()
        .find(|row| row["rule"] == "policy drop")
        .unwrap();
    assert_eq!(policy["packets"], 1 + 2 + 4 + 2);
}
