//! Comments name a thread, task, process or component by its noun: it is not a person.

use super::{Source, split, words};

/// Words for persons.
const PERSONS: [&str; 7] = [
    "who",
    "whom",
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
];

/// What comments say of people.
const PEOPLE: &[&str] = &["a user who may"];

/// A crate's sources, and how many lines of comment in them have such a word: it may only shrink.
const LINES: &[(&str, usize)] = &[
    ("crates/base/src/", 0),
    ("crates/cli/src/", 0),
    ("crates/link/src/", 0),
    ("crates/netchan/src/", 262),
    ("crates/packetdrill/src/", 10),
    ("crates/percore/src/", 0),
    ("crates/preload/src/", 47),
    ("crates/proto/src/", 0),
    ("crates/tokio/src/", 0),
    ("lab/src/", 0),
];

/// Where `source` speaks of a person in what is not a test: its lines of comment, each with its number.
pub fn persons(source: &Source) -> Vec<(usize, String)> {
    let is_one = |word: &str| PERSONS.contains(&word.to_ascii_lowercase().as_str());
    let speaks = |line: &str| {
        let mut line = line.to_owned();
        for people in PEOPLE {
            line = line.replace(people, "");
        }
        words(&line).any(is_one)
    };
    let lines = source.comments.lines().enumerate();
    let shipped = lines.take(source.shipped.lines().count());
    let found = shipped.filter(|(_, line)| !source.is_test && speaks(line));
    found
        .map(|(i, line)| (i + 1, line.trim().to_owned()))
        .collect()
}

/// What is wrong with `sources`: crates that have more such lines than they may.
pub fn findings(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for &(src, limit) in LINES {
        let own = sources.iter().filter(|s| s.path.starts_with(src));
        let lines: Vec<String> = own
            .flat_map(|s| {
                let line = move |(number, line)| format!("{}:{number}: {line}", s.path);
                persons(s).into_iter().map(line)
            })
            .collect();
        if lines.len() > limit {
            let (n, all) = (lines.len(), lines.join("\n    "));
            findings.push(format!("{src}: {n} lines, at most {limit}\n    {all}"));
        }
    }
    findings
}

#[test]
fn the_scanner_sees_persons_in_comments_and_only_there() {
    let text = concat!(
        "//! Who waits.\nlet who = \"nobody\"; // it\n/* by\n whoever */ f(); // whose\n",
        "/// By a user who may.\n/// By a user who may, not nobody's.\n#[cfg(test)]\nmod tests {\n// who"
    );
    let (code, comments) = split(text);
    let shipped = code[..code.find("#[cfg(test)]").unwrap()].to_owned();
    let mut source = Source {
        path: "x/src/lib.rs".into(),
        text: text.into(),
        code,
        comments,
        shipped,
        is_test: false,
    };
    let lines = |s: &Source| {
        let found = persons(s);
        found.iter().map(|(number, _)| *number).collect::<Vec<_>>()
    };
    assert_eq!(lines(&source), [1, 4, 6]);
    source.is_test = true;
    assert_eq!(lines(&source), [0; 0]);
}
