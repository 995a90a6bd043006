//! What is told of refusals: of each kind at most one line a second, however often a client tries.

use std::collections::BTreeMap;

/// Between two lines of one kind.
const PAUSE_NS: u64 = 1_000_000_000;

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A port that it may not have.
    Port,
    /// No lease.
    Lease,
    /// What it said is no request.
    Nonsense,
    /// It said nothing, or does not read its answers.
    Silent,
    /// There are too many connections.
    TooMany,
}

/// The last lines.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<Kind, Told>);

#[derive(Debug)]
struct Told {
    /// When the next line may be told.
    next_ns: u64,
    /// The last one that was not, and how many.
    kept: Option<(String, u64)>,
}

impl Refusals {
    /// The line to tell now, if one may be told.
    pub fn note(&mut self, kind: Kind, now_ns: u64, line: String) -> Option<String> {
        let next_ns = now_ns.saturating_add(PAUSE_NS);
        match self.0.get_mut(&kind) {
            Some(told) if told.kept.is_some() || told.next_ns > now_ns => {
                let before = told.kept.take().map_or(0, |(_, before)| before);
                told.kept = Some((line, before.saturating_add(1)));
                None
            }
            _ => {
                let told = Told {
                    next_ns,
                    kept: None,
                };
                self.0.insert(kind, told);
                Some(line)
            }
        }
    }

    /// The lines that were kept and may be told by now.
    pub fn due(&mut self, now_ns: u64) -> Vec<String> {
        let due = self.0.values_mut().filter(|told| told.next_ns <= now_ns);
        let mut lines = Vec::new();
        for told in due {
            let Some((line, count)) = told.kept.take() else {
                continue;
            };
            told.next_ns = now_ns.saturating_add(PAUSE_NS);
            lines.push(match count {
                1 => line,
                more => format!("{line} (the last of {more} like it)"),
            });
        }
        lines
    }

    /// When [`due`](Self::due) has something next.
    pub fn next_ns(&self) -> Option<u64> {
        let kept = self.0.values().filter(|told| told.kept.is_some());
        kept.map(|told| told.next_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn one_line_a_second_of_each_kind_with_a_count() {
        let mut refusals = Refusals::default();
        let mut note = |kind, at, line: &str| refusals.note(kind, at, line.to_owned());
        assert_eq!(note(Kind::Port, 5, "a").as_deref(), Some("a"));
        assert_eq!(note(Kind::Port, 6, "b"), None);
        assert_eq!(note(Kind::Nonsense, 7, "c").as_deref(), Some("c"));
        assert_eq!(note(Kind::Port, SECOND, "d"), None);
        assert_eq!(refusals.next_ns(), Some(5 + SECOND));
        assert!(refusals.due(4 + SECOND).is_empty());
        assert_eq!(refusals.due(5 + SECOND), ["d (the last of 2 like it)"]);
        assert_eq!(refusals.next_ns(), None);
        // That was a line, too.
        assert_eq!(refusals.note(Kind::Port, 6 + SECOND, "e".into()), None);
        assert_eq!(refusals.due(5 + 2 * SECOND), ["e"]);
        let later = refusals.note(Kind::Port, 9 * SECOND, "f".into());
        assert_eq!(later.as_deref(), Some("f"));
    }

    #[test]
    fn a_million_tries_are_a_handful_of_lines() {
        let mut refusals = Refusals::default();
        let mut lines = 0;
        for n in 0..1_000_000_u64 {
            let now = n * 2_000; // two seconds in all
            lines += refusals.due(now).len();
            lines += usize::from(refusals.note(Kind::Port, now, n.to_string()).is_some());
        }
        assert!((2..=3).contains(&lines), "{lines}");
    }
}
