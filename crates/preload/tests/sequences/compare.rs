//! Two runs of the same sequences, line by line: the first difference of each that has no reason.

use std::{collections::BTreeMap, fmt::Write as _};

/// What was called and answered, and what was seen of the sockets afterwards.
pub struct Line {
    pub call: String,
    pub seen: String,
}

/// A run, by sequence.
pub struct Lines {
    pub sequences: BTreeMap<usize, Vec<Line>>,
}

impl Lines {
    pub fn of(text: &str) -> Self {
        let mut sequences: BTreeMap<usize, Vec<Line>> = BTreeMap::new();
        for line in text.lines() {
            let Some((number, rest)) = line.split_once('.') else {
                continue;
            };
            let (Ok(number), Some((_, rest))) = (number.parse(), rest.split_once(' ')) else {
                continue;
            };
            let (call, seen) = rest.split_once(" | ").unwrap_or((rest, ""));
            let [call, seen] = [call, seen].map(|text| text.trim().to_owned());
            sequences
                .entry(number)
                .or_default()
                .push(Line { call, seen });
        }
        Self { sequences }
    }
}

pub struct Difference {
    pub sequence: usize,
    /// In words that other sequences would use, too.
    pub kind: String,
    /// The sequence up to there.
    pub story: String,
}

/// Sockets' names out of a text: all are S.
fn nameless(text: &str) -> String {
    let letter = |c: char| "abcxyz".contains(c);
    let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_');
    let chars: Vec<char> = text.chars().collect();
    let renamed = chars.iter().enumerate().map(|(at, c)| {
        let alone =
            !is_word(at.checked_sub(1).and_then(|at| chars.get(at))) && !is_word(chars.get(at + 1));
        if letter(*c) && alone { 'S' } else { *c }
    });
    renamed.collect()
}

/// What differs, if anything: the call and both answers, or the call and what is seen of the sockets that differ.
fn kind(linux: &Line, ours: Option<&Line>) -> Option<String> {
    let Some(ours) = ours else {
        return Some(format!("{} ### no answer", nameless(&linux.call)));
    };
    if linux.call != ours.call {
        let answer = ours
            .call
            .split_once(" = ")
            .map_or(&*ours.call, |(_, answer)| answer);
        return Some(format!(
            "{} ### {}",
            nameless(&linux.call),
            nameless(answer)
        ));
    }
    let mut differ = Vec::new();
    for (one, other) in linux.seen.split(' ').zip(ours.seen.split(' ')) {
        if one != other {
            let change = format!(
                "{}->{}",
                &one[2.min(one.len())..],
                &other[2.min(other.len())..]
            );
            differ.extend((!differ.contains(&change)).then_some(change));
        }
    }
    if linux.seen == ours.seen {
        return None;
    }
    Some(format!(
        "{} ### {}",
        nameless(&linux.call),
        differ.join(" ")
    ))
}

/// The first difference that is not `explained`. Where an explained one leaves the sockets different, nothing after it can be compared.
pub fn sequence(
    sequence: usize,
    linux: &[Line],
    ours: &[Line],
    mut explained: impl FnMut(&str, &str) -> bool,
) -> Option<Difference> {
    let mut story = String::new();
    for (at, line) in linux.iter().enumerate() {
        let other = ours.get(at);
        let _ = writeln!(story, "    {:2} {} | {}", at, line.call, line.seen);
        let Some(kind) = kind(line, other) else {
            continue;
        };
        if !explained(&kind, &story) {
            let said = other.map_or("nothing".to_owned(), |o| format!("{} | {}", o.call, o.seen));
            let _ = writeln!(story, "    -- {said}");
            return Some(Difference {
                sequence,
                kind,
                story,
            });
        }
        if other.is_none_or(|other| other.seen != line.seen) {
            return None;
        }
    }
    None
}

/// A kind without what the call was given: the call's name, Linux's answer, netchan's.
pub fn general(kind: &str) -> String {
    let (Some(open), Some(close)) = (kind.find('('), kind.find(')')) else {
        return kind.to_owned();
    };
    let (name, rest) = (&kind[..open], &kind[close + 1..]);
    let mut text = format!("{name}{rest}");
    while let Some(at) = text.find(", sum ") {
        let after = &text[at + 6..];
        let end = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        text.replace_range(at..at + 6 + end, "");
    }
    text
}

/// Whether `text` is as `pattern` says, where `*` stands for anything.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(begin) else {
        return false;
    };
    loop {
        if matches(rest, left) {
            return true;
        }
        let mut chars = left.chars();
        if chars.next().is_none() {
            return false;
        }
        left = chars.as_str();
    }
}

/// Each kind with how often and in which sequence; the shortest story of the first.
pub fn report(found: &[Difference]) -> String {
    let mut kinds: BTreeMap<&str, (usize, &Difference)> = BTreeMap::new();
    for difference in found {
        let entry = kinds.entry(&difference.kind).or_insert((0, difference));
        entry.0 += 1;
        if difference.story.len() < entry.1.story.len() {
            entry.1 = difference;
        }
    }
    let mut text = String::from("Linux ### netchan, and the sequences' shortest up to there\n");
    for (kind, (times, difference)) in kinds {
        let _ = writeln!(
            text,
            "{times} x {kind} (NETCHAN_FIRST={} NETCHAN_SEEDS=1)\n{}",
            difference.sequence, difference.story
        );
    }
    text
}
