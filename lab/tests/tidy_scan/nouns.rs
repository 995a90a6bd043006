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

/// Where `comments`, the comments of a source, speak of a person: these lines, each with its number.
pub fn persons(comments: &str) -> Vec<(usize, String)> {
    let is_one = |word: &str| PERSONS.contains(&word.to_ascii_lowercase().as_str());
    let speaks = |line: &str| {
        let mut line = line.to_owned();
        for people in PEOPLE {
            line = line.replace(people, "");
        }
        words(&line).any(is_one)
    };
    let found = comments
        .lines()
        .enumerate()
        .filter(|(_, line)| speaks(line));
    found
        .map(|(i, line)| (i + 1, line.trim().to_owned()))
        .collect()
}

/// The lines of `sources`, tests among them, that speak of a person.
pub fn findings(sources: &[Source]) -> Vec<String> {
    let of = |s: &Source| {
        let path = s.path.clone();
        let line = move |(number, line)| format!("{path}:{number}: {line}");
        persons(&s.comments).into_iter().map(line)
    };
    sources.iter().flat_map(of).collect()
}

#[test]
fn the_scanner_sees_persons_in_comments_and_only_there() {
    let text = concat!(
        "//! Who waits.\nlet who = \"nobody\"; // it\n/* by\n whoever */ f(); // whose\n",
        "/// By a user who may.\n/// By a user who may, not nobody's.\n#[cfg(test)]\nmod tests {\n// who"
    );
    let found = persons(&split(text).1);
    let lines: Vec<_> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(lines, [1, 4, 6, 9]);
}
