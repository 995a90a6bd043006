//! House rule 14: what the compiler cannot reject about the shape of the tree, this test does.

mod tidy_scan;

use std::{collections::BTreeSet, fs, path::Path};

use tidy_scan::{
    Source, allowed_prefix, files,
    imports::{circles, imports},
    nouns, root, sources, split, words,
};

/// A file of code longer than this wants to be two (house rule 2).
const LINES_MAX: usize = 800;

/// Files that were longer when the rule came, with their length: it may only shrink, and the entry with it.
const LONG: &[(&str, usize)] = &[];

/// Where `unsafe` may stand (house rule 8).
const UNSAFE_ROOMS: &[&str] = &[
    "crates/percore/",
    "crates/sum/src/lib.rs", // a call of what the processor was seen to have
    "crates/link/src/sys",
    "crates/netchan/src/sys", // system calls of the waiters
    "crates/netchan/src/channel",
    "crates/netchan/src/c/",                 // what a C program passes
    "crates/netchan/src/tap/filter/machine", // running machine code, and the pages that it lies in
    "crates/cli/src/capture/libpcap",        // a library that is looked up at run time
    "crates/netchan/tests/alloc",            // a counting allocator is an `unsafe impl`
    "crates/preload/",
    "crates/c/src/export",          // pointers of C programs
    "crates/c/src/sys",             // poll, and what fork means
    "crates/supervise/src/sys",     // seccomp's user notification
    "crates/packetdrill/src/table", // the C edge of packetdrill's interface
];

/// The workspace's own edges: a crate may depend on these of its siblings and on no others.
const EDGES: &[(&str, &[&str])] = &[
    ("crates/percore", &[]),
    ("crates/sum", &[]),
    ("crates/proto", &["wide-sum"]),
    ("crates/base", &["percore", "proto"]),
    ("crates/link", &["netchan-base", "percore", "proto"]),
    (
        "crates/netchan",
        &["netchan-base", "netchan-link", "percore", "proto"],
    ),
    ("crates/tokio", &["netchan"]),
    ("crates/c", &["netchan"]),
    ("crates/lend", &["netchan"]),
    ("crates/preload", &["netchan", "netchan-lend"]),
    (
        "crates/packetdrill",
        &["netchan", "netchan-preload", "percore", "proto"],
    ),
    ("crates/supervise", &["netchan"]),
    (
        "crates/cli",
        &[
            "netchan",
            "netchan-lab",
            "netchan-lend",
            "netchan-supervise",
        ],
    ),
    ("lab", &["netchan", "percore", "proto"]),
];

/// Layers of one crate, each with its modules.
type Layers = &'static [(&'static str, &'static [&'static str])];

/// The crates with layers, and how many imports the scan must see at least: what stands in a layer may name what stands in it and above it, nothing
/// below.
const LAYERS: &[(&str, usize, Layers)] = &[
    (
        "crates/netchan/src/",
        300,
        &[
            (
                "nouns",
                &[
                    "counters",
                    "emit",
                    "ephemeral",
                    "errno",
                    "flow",
                    "forked",
                    "giant",
                    "log",
                    "memory",
                    "assignment",
                    "moved",
                    "sys",
                    "trace",
                ],
            ),
            ("channel", &["channel"]),
            ("tap", &["tap"]),
            ("driver", &["driver"]),
            ("api", &["api"]),
            ("shard", &["shard"]),
            ("regime", &["regime"]),
            ("stack", &["stack"]),
            (
                "outside",
                &[
                    "c",
                    "config",
                    "control",
                    "environment",
                    "net",
                    "relay",
                    "show",
                    "socket",
                    "steps",
                ],
            ),
        ],
    ),
    (
        "crates/preload/src/",
        200,
        &[
            (
                "ground",
                &["driver", "errno", "limits", "locks", "real", "share", "sys"],
            ),
            (
                "process",
                &[
                    "edge", "ending", "handlers", "line", "process", "region", "signals", "stdio",
                    "table",
                ],
            ),
            (
                "numbers",
                &[
                    "asked",
                    "crossing",
                    "instances",
                    "numbers",
                    "orphan",
                    "placeholder",
                    "queue",
                    "relay",
                    "serve",
                    "shared",
                    "state",
                    "wait",
                ],
            ),
            (
                "life",
                &[
                    "children", "exit", "fork", "hearing", "keeper", "lending", "notices", "start",
                ],
            ),
            (
                "calls",
                &[
                    "across",
                    "ancillary",
                    "anew",
                    "decide",
                    "descriptor",
                    "endpoint",
                    "epoll",
                    "fast_open",
                    "interfaces",
                    "letters",
                    "messages",
                    "netlink",
                    "options",
                    "passing",
                    "poll",
                    "reach",
                    "splice",
                    "stamping",
                    "streams",
                    "transfer",
                ],
            ),
            ("outside", &["export", "program"]),
        ],
    ),
];

/// Where the sources of the crates lie.
const SOURCES: &[&str] = &[
    "crates/base/src/",
    "crates/c/src/",
    "crates/cli/src/",
    "crates/lend/src/",
    "crates/link/src/",
    "crates/netchan/src/",
    "crates/packetdrill/src/",
    "crates/percore/src/",
    "crates/preload/src/",
    "crates/proto/src/",
    "crates/tokio/src/",
    "lab/src/",
];

/// Panics with all findings at once, one a line.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// `check` on every source; what it returns is prefixed with the file's path.
fn each_source(rule: &str, check: impl Fn(&Source) -> Vec<String>) {
    let sources = sources();
    assert!(
        sources.len() > 20,
        "the scan found only {} files",
        sources.len()
    );
    let findings: Vec<String> = sources
        .iter()
        .flat_map(|s| {
            check(s)
                .into_iter()
                .map(|f| format!("{}: {f}", s.path))
                .collect::<Vec<_>>()
        })
        .collect();
    report(rule, &findings);
}

/// Line numbers (from 1) of `code` for which `bad` gives a reason.
fn each_line(code: &str, bad: impl Fn(&str) -> Option<String>) -> Vec<String> {
    code.lines()
        .enumerate()
        .filter_map(|(i, line)| bad(line).map(|why| format!("line {}: {why}", i + 1)))
        .collect()
}

#[test]
fn files_stay_short() {
    each_source("a file is a chapter: split it (house rule 2)", |s| {
        let lines = s.text.lines().count();
        let limit = LONG
            .iter()
            .find(|(path, _)| *path == s.path)
            .map_or(LINES_MAX, |(_, n)| *n);
        match () {
            () if s.is_test => vec![],
            () if lines > limit => vec![format!("{lines} lines, at most {limit}")],
            () if limit > LINES_MAX && lines < limit => {
                vec![format!(
                    "shrank to {lines} lines: lower its entry in LONG from {limit}"
                )]
            }
            () => vec![],
        }
    });
}

#[test]
fn files_open_with_what_they_are() {
    each_source(
        "a file opens with a `//!` line that says what it is (house rule 2)",
        |s| {
            let first = s
                .text
                .lines()
                .find(|l| !l.trim().is_empty())
                .unwrap_or_default();
            let said = first
                .strip_prefix("//!")
                .is_some_and(|rest| rest.trim().len() >= 8);
            if said {
                vec![]
            } else {
                vec![format!("begins with {first:?}")]
            }
        },
    );
}

#[test]
fn unsafe_keeps_to_its_rooms() {
    each_source("unsafe has few rooms (house rule 8)", |s| {
        if allowed_prefix(&s.path, UNSAFE_ROOMS) {
            return vec![];
        }
        each_line(&s.code, |line| {
            words(line)
                .any(|w| w == "unsafe")
                .then(|| "unsafe outside its rooms".to_owned())
        })
    });
}

#[test]
fn percore_has_never_heard_of_a_packet() {
    each_source(
        "percore knows no packets (ARCHITECTURE.md, invariant 1)",
        |s| {
            if !s.path.starts_with("crates/percore/src/") {
                return vec![];
            }
            each_line(&s.code, |line| {
                words(line)
                    .map(str::to_ascii_lowercase)
                    .find(|w| w.contains("packet") || w == "proto" || w.contains("netchan"))
                    .map(|w| format!("names {w}"))
            })
        },
    );
}

#[test]
fn proto_has_never_heard_of_a_thread() {
    each_source(
        "proto knows no threads, clocks or sockets (ARCHITECTURE.md, invariant 1)",
        |s| {
            if !s.path.starts_with("crates/proto/src/") || s.is_test {
                return vec![];
            }
            let bad = [
                "std::",
                "thread",
                "atomic::",
                "Instant::now",
                "SystemTime",
                "percore",
                "netchan",
            ];
            each_line(&s.shipped, |line| {
                bad.iter()
                    .find(|b| line.contains(**b))
                    .map(|b| format!("names {b}"))
            })
        },
    );
    let lib =
        fs::read_to_string(root().join("crates/proto/src/lib.rs")).expect("proto has a lib.rs");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(
            lib.lines().any(|l| l.trim() == attribute),
            "crates/proto/src/lib.rs lost {attribute}"
        );
    }
}

#[test]
fn crates_depend_as_the_architecture_says() {
    let mut findings = Vec::new();
    let siblings: BTreeSet<&str> = [
        "percore",
        "wide-sum",
        "proto",
        "netchan-base",
        "netchan-link",
        "netchan",
        "netchan-tokio",
        "netchan-c",
        "netchan-preload",
        "netchan-packetdrill",
        "netchan-cli",
        "netchan-lab",
    ]
    .into();
    for (folder, allowed) in EDGES {
        let path = root().join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&path).expect("every crate has a manifest");
        let manifest: toml::Table = text.parse().expect("cargo reads it too");
        let Some(dependencies) = manifest.get("dependencies").and_then(toml::Value::as_table)
        else {
            continue;
        };
        for name in dependencies.keys().map(String::as_str) {
            if siblings.contains(name) && !allowed.contains(&name) {
                findings.push(format!("{folder} depends on {name}"));
            }
        }
        // Nothing but hashes and sums: what proto needs of the world it is handed. Those of RFC 5926 are HMAC-SHA-1 and AES-CMAC.
        let hashes = ["siphasher", "md-5", "hmac", "sha1", "cmac", "aes"];
        let may = |name: &String| hashes.contains(&name.as_str()) || name == "wide-sum";
        if *folder == "crates/proto" && !dependencies.keys().all(may) {
            findings.push(format!(
                "{folder} depends on more than hashes and sums: {dependencies:?}"
            ));
        }
    }
    report("a crate knows those below it (ARCHITECTURE.md)", &findings);
}

/// What stands in `src` beside a layer, and what each arrow upward names; and how many arrows there are.
fn arrows(src: &str, layers: Layers) -> (usize, Vec<String>) {
    let layer_of = |path: &str| {
        let inside = path.strip_prefix(src)?;
        let top = inside.split(['/', '.']).next()?;
        let is_it = |(_, modules): &(&str, &[&str])| modules.contains(&top);
        layers.iter().position(is_it)
    };
    let mut findings = Vec::new();
    let mut arrows = 0;
    for (file, named) in imports(&sources(), src) {
        if file.ends_with("src/lib.rs") {
            continue; // declares them, and gives their names to users
        }
        let Some(own) = layer_of(&file) else {
            findings.push(format!(
                "{file} stands in no layer: give its module a place in LAYERS"
            ));
            continue;
        };
        for other in named {
            arrows += 1;
            if let Some(below) = layer_of(&other).filter(|below| *below > own) {
                let (own, below) = (layers[own].0, layers[below].0);
                findings.push(format!("{file} ({own}) names {other} ({below})"));
            }
        }
    }
    (arrows, findings)
}

#[test]
fn layers_name_only_what_stands_above_them() {
    let mut all = Vec::new();
    for &(src, least, layers) in LAYERS {
        let (arrows, findings) = arrows(src, layers);
        println!("{src}: {arrows} arrows, {} upward", findings.len());
        assert!(arrows > least, "{src}: the scan sees only {arrows} imports");
        all.extend(findings);
    }
    report("a layer names what stands above it (ARCHITECTURE.md)", &all);
}

#[test]
fn files_import_each_other_in_no_circle() {
    let sources = sources();
    let mut findings = Vec::new();
    for &src in SOURCES {
        let all = imports(&sources, src);
        assert!(!all.is_empty(), "no file in {src}");
        let found = circles(&all, src);
        let files: usize = found.iter().map(Vec::len).sum();
        println!("{src}: {} circles, {files} files in them", found.len());
        findings.extend(found.iter().map(|circle| circle.join(", ")));
    }
    report(
        "files that name each other in a circle are one file in pieces",
        &findings,
    );
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut findings = Vec::new();
    for path in files().into_iter().filter(|path| path.ends_with(".md")) {
        let text = fs::read_to_string(root().join(&path)).unwrap_or_default();
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for part in text.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://") && !target.contains(' ');
            if is_file && !root().join(folder).join(target).exists() {
                findings.push(format!("{path}: {target}"));
            }
        }
    }
    report(
        "a link in a document leads to a file of the tree",
        &findings,
    );
}

#[test]
fn documents_stay_short() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a document of the tree");
    let (readme, architecture) = (read("README.md"), read("ARCHITECTURE.md"));
    let mut findings = Vec::new();
    for (name, text, lines) in [
        ("README.md", &readme, 120),
        ("ARCHITECTURE.md", &architecture, 150),
    ] {
        let found = text.lines().count();
        if found > lines {
            findings.push(format!("{name}: {found} lines, at most {lines}"));
        }
        for (number, line) in text.lines().enumerate() {
            let wide = line.chars().count() > 120;
            let cells = line.split('|').filter(|_| line.starts_with('|'));
            let long = cells.map(|cell| cell.split_whitespace().count()).max() > Some(20);
            if wide || long {
                findings.push(format!(
                    "{name}:{}: wider than 120, or a cell of more than 20 words",
                    number + 1
                ));
            }
        }
    }
    let words = architecture.split_whitespace().count();
    if words > 1500 {
        findings.push(format!("ARCHITECTURE.md: {words} words, at most 1,500"));
    }
    report("a document is too long or too wide", &findings);
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not name them itself.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let calls = [
        concat!("db", "g!"),
        concat!("to", "do!"),
        concat!("unimple", "mented!"),
    ];
    each_source("finish it or write an issue (house rule 14)", |s| {
        let mut found = each_line(&s.text, |line| {
            words(line).find_map(|w| marks.iter().find(|m| **m == w).map(|m| (*m).to_owned()))
        });
        found.extend(each_line(&s.code, |line| {
            calls
                .iter()
                .find(|c| line.contains(**c))
                .map(|c| (*c).to_owned())
        }));
        found
    });
}

/// Counters that nothing counts are read as zeros that were counted.
#[test]
fn each_counter_is_counted() {
    let (path, sources) = ("crates/netchan/src/counters.rs", sources());
    let table = sources.iter().find(|source| source.path == path).unwrap();
    let names: Vec<&str> = (table.text.lines())
        .filter_map(|line| line.trim().split_once(" = \"").map(|(name, _)| name))
        .collect();
    assert!(names.len() > 100, "the scan found only {}", names.len());
    let rest = sources
        .iter()
        .filter(|source| source.path.starts_with("crates/netchan/src/") && source.path != path);
    let named: BTreeSet<&str> = rest
        .filter(|source| !source.is_test)
        .flat_map(|source| source.code.split("Counter::").skip(1))
        .filter_map(|after| words(after).next())
        .collect();
    let dead = names.iter().filter(|name| !named.contains(**name));
    let dead: Vec<String> = dead.map(|name| format!("{path}: {name}")).collect();
    report("it is counted, or it goes", &dead);
}

#[test]
fn a_test_that_is_switched_off_says_why() {
    let bare = concat!("#[ig", "nore]");
    each_source("write #[ignore = \"why\"]", |s| {
        each_line(&s.code, |line| {
            line.contains(bare).then(|| "no reason".to_owned())
        })
    });
}

#[test]
fn a_test_that_is_skipped_counts_as_one() {
    let print = concat!("print", "ln!(");
    each_source(
        "say it with `skipped` of lab/tests/skips, which `.ci/run` hears",
        |s| {
            each_line(&s.text, |line| {
                let said = line.split_once(print)?.1.to_lowercase();
                let words = ["skipped", "not run:", "not done:"];
                (words.iter().any(|word| said.contains(word))).then(|| "only printed".to_owned())
            })
        },
    );
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let bad = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
    ];
    let mut findings = Vec::new();
    for path in files() {
        let Ok(text) = fs::read_to_string(root().join(&path)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            let names = |b: &&&str| {
                line.match_indices(**b).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~".contains(c))
                })
            };
            if let Some(b) = bad.iter().find(names) {
                findings.push(format!("{path}:{}: {b}", number + 1));
            }
        }
    }
    report(
        "paths are relative to the tree or come from the environment",
        &findings,
    );
}

#[test]
fn what_a_fresh_machine_needs_is_there() {
    for name in [
        "Makefile",
        ".ci/run",
        "Cargo.lock",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "CONTRIBUTING.md",
    ] {
        assert!(Path::new(&root()).join(name).is_file(), "{name} is missing");
    }
}

#[test]
fn comments_name_a_thread_by_its_noun() {
    let sources = sources();
    report(
        "a thread or a component is \"it\": \"its holder\", \"no thread waits\"; people who are meant stand in PEOPLE",
        &nouns::findings(&sources),
    );
}

#[test]
fn the_scanner_follows_imports() {
    let source = |path: &str, code: &str| Source {
        path: path.into(),
        text: code.into(),
        code: code.into(),
        comments: String::new(),
        shipped: code.into(),
        is_test: false,
    };
    let sources = [
        source("x/src/lib.rs", "mod a; mod b;"),
        source(
            "x/src/a.rs",
            "use crate::{b::{self, c::Deep as D}, nothing}; use std::io;",
        ),
        source("x/src/b.rs", "mod c; fn f() { super::a::g(); }"),
        source(
            "x/src/b/c.rs",
            "use super::*; fn f() -> crate::a::T { self::g() }",
        ),
    ];
    let found = imports(&sources, "x/src/");
    let of = |path: &str| found[path].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        of("x/src/a.rs"),
        ["x/src/b.rs", "x/src/b/c.rs", "x/src/lib.rs"]
    );
    assert_eq!(of("x/src/b.rs"), ["x/src/a.rs"]);
    assert_eq!(of("x/src/b/c.rs"), ["x/src/a.rs", "x/src/b.rs"]);
    let circle = ["x/src/a.rs", "x/src/b.rs", "x/src/b/c.rs"].map(str::to_owned);
    assert_eq!(circles(&found, "x/src/"), [circle.to_vec()]);
}

#[test]
fn the_scanner_sees_code_and_only_code() {
    let code_of = |text: &str| split(text).0;
    assert_eq!(code_of("a // unsafe\nb").lines().next(), Some("a "));
    assert_eq!(
        code_of("let s = \"unsafe // x\"; // y").trim_end(),
        "let s = \"\";"
    );
    assert_eq!(
        code_of("/* a\n unsafe */ c").lines().collect::<Vec<_>>(),
        ["", " c"]
    );
    assert_eq!(
        code_of("let c = '\"'; unsafe").trim_end(),
        "let c = ' '; unsafe"
    );
    assert_eq!(
        code_of("fn f<'a>(x: &'a str) {}"),
        "fn f<'a>(x: &'a str) {}"
    );
    assert_eq!(code_of("let r = r#\"unsafe \" x\"#; y"), "let r = r\"\"; y");
    assert_eq!(
        words("unsafe_code unsafe{").collect::<Vec<_>>(),
        ["unsafe_code", "unsafe"]
    );
}
