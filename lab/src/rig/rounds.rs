//! Many jobs that take turns, round by round: what drifts on the machine, drifts for all.

use std::collections::BTreeMap;

use super::{
    Rig,
    job::{Job, Outcome},
};
use crate::{
    kit::{Sample, Stopwatch},
    report::Row,
};

/// A job with the name that its rows are made of.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub job: Job,
}

impl Entry {
    pub fn new(name: impl Into<String>, job: Job) -> Self {
        let name = name.into();
        Self { name, job }
    }
}

/// What the rounds found, by name. A job that failed once is not asked again.
#[derive(Default)]
pub(crate) struct Found {
    outcomes: BTreeMap<String, Vec<Outcome>>,
    failed: BTreeMap<String, String>,
}

/// A figure of an outcome.
pub(crate) type Figure<'a> = &'a dyn Fn(&Outcome) -> f64;

impl Rig {
    /// `rounds` rounds of all `entries`. No round but the first two goes on after `limit` seconds.
    pub fn rounds(&self, entries: &[Entry], rounds: usize, limit: f64) -> Found {
        let (mut found, begin) = (Found::default(), Stopwatch::start());
        for round in 0..rounds {
            // Whole rounds only, so that ratios have partners.
            if round >= 2 && begin.seconds() > limit {
                break;
            }
            for entry in entries {
                self.turn(entry, &mut found);
            }
        }
        found
    }

    fn turn(&self, entry: &Entry, found: &mut Found) {
        if found.failed.contains_key(&entry.name) {
            return;
        }
        match self.run(&entry.job) {
            Ok(outcome) => {
                let outcomes = found.outcomes.entry(entry.name.clone());
                outcomes.or_default().push(outcome);
            }
            Err(why) => {
                eprintln!("{} is left out: {why}", entry.name);
                found.outcomes.remove(&entry.name);
                found.failed.insert(entry.name.clone(), why);
            }
        }
    }

    /// The one of `entries` with the least of a figure, the middle of `rounds` rounds. `None`: none could be measured.
    pub fn best<'e>(
        &self,
        entries: &'e [Entry],
        rounds: usize,
        figure: Figure<'_>,
    ) -> Option<&'e Entry> {
        let found = self.rounds(entries, rounds, f64::INFINITY);
        let scored = entries.iter().filter_map(|entry| {
            let sample = found.sample(&entry.name, figure)?;
            Some((entry, sample.median()))
        });
        let best = scored.min_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(entry, _)| entry)
    }
}

impl Found {
    /// What a job's turns came to.
    pub fn outcomes(&self, name: &str) -> &[Outcome] {
        self.outcomes.get(name).map_or(&[], Vec::as_slice)
    }

    /// A figure over the rounds.
    pub fn sample(&self, name: &str, figure: Figure<'_>) -> Option<Sample> {
        let values: Vec<f64> = self.outcomes(name).iter().map(figure).collect();
        (!values.is_empty()).then(|| Sample::of(values))
    }

    /// One's figure by another's, round by round.
    pub fn ratio(&self, one: &str, other: &str, figure: Figure<'_>) -> Option<Sample> {
        let pairs = self.outcomes(one).iter().zip(self.outcomes(other));
        let ratios = pairs.map(|(one, other)| figure(one) / figure(other));
        // A figure of zero has no ratio.
        let ratios: Vec<f64> = ratios.filter(|r| r.is_finite()).collect();
        (!ratios.is_empty()).then(|| Sample::of(ratios))
    }

    /// A row of [`Self::sample`].
    pub fn row(&self, id: &str, name: &str, figure: Figure<'_>) -> Option<Row> {
        Some(Row::new(id, &self.sample(name, figure)?))
    }

    /// A row of [`Self::ratio`].
    pub fn ratio_row(&self, id: &str, one: &str, other: &str, figure: Figure<'_>) -> Option<Row> {
        Some(Row::new(id, &self.ratio(one, other, figure)?))
    }

    /// The jobs that could not be measured, and why.
    pub fn failures(&self) -> impl Iterator<Item = Row> {
        self.failed.iter().map(|(name, why)| {
            Row::new(&format!("left_out_{name}"), &Sample::of(vec![1.0])).reference(why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_of_the_same_round() {
        let seconds = |of: &[f64]| {
            of.iter()
                .map(|&seconds| Outcome {
                    seconds,
                    ..Outcome::default()
                })
                .collect()
        };
        let mut found = Found::default();
        found.outcomes.insert("a".into(), seconds(&[2.0, 9.0, 4.0]));
        found.outcomes.insert("b".into(), seconds(&[1.0, 3.0, 4.0]));
        let ratio = found.ratio("a", "b", &|o| o.seconds).unwrap();
        assert_eq!((ratio.min(), ratio.median(), ratio.max()), (1.0, 2.0, 3.0));
        assert_eq!(found.ratio("a", "c", &|o| o.seconds), None);
    }
}
