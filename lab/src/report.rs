//! What an experiment found: one JSON object for programs, one aligned table for people.

use std::fmt;

use serde::Serialize;

use crate::{kit::Sample, machine::Machine};

/// Expensive checks that were compiled in or switched on while the figures were taken.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub struct ChecksOn {
    /// Lock order is verified at run time (F7).
    pub witness: bool,
    /// Internal invariants are verified at run time (F7).
    pub invariants: bool,
    /// Built without optimisation, or with debug assertions.
    pub debug_build: bool,
}

impl ChecksOn {
    /// Those of this build.
    #[must_use]
    pub const fn here() -> Self {
        Self {
            witness: percore::witness::ON,
            invariants: percore::checks::INVARIANTS,
            debug_build: cfg!(debug_assertions),
        }
    }

    /// Whether a figure taken now is comparable.
    #[must_use]
    pub const fn any(self) -> bool {
        self.witness || self.invariants || self.debug_build
    }
}

/// One figure, and what it is to be compared with.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Row {
    /// Stable name that ends in its unit (`rr_ns`).
    pub id: String,
    /// Median over the rounds.
    pub value: f64,
    /// For people (`ns`, `Gbit/s`, `/s`).
    pub unit: &'static str,
    /// Least over the rounds.
    pub min: f64,
    /// Greatest over the rounds.
    pub max: f64,
    /// The 95 % interval of [`Sample::interval`]: of the median, or, of fewer than six rounds, of the mean. None of a single round.
    pub low: Option<f64>,
    /// Its other end.
    pub high: Option<f64>,
    /// How many rounds.
    pub rounds: usize,
    /// The contender measured beside it, in the same run.
    pub peer: Option<String>,
    /// The peer's median.
    pub peer_value: Option<f64>,
    /// The source's own figure.
    pub reference: Option<String>,
    /// What netchan aims for.
    pub target: Option<String>,
}

impl Row {
    /// A row; the unit follows from the end of `id`.
    #[must_use]
    pub fn new(id: &str, sample: &Sample) -> Self {
        let (low, high) = sample.interval().unzip();
        Self {
            id: id.to_owned(),
            value: sample.median(),
            unit: unit_of(id),
            min: sample.min(),
            max: sample.max(),
            low,
            high,
            rounds: sample.count(),
            peer: None,
            peer_value: None,
            reference: None,
            target: None,
        }
    }

    /// With a peer from the same run.
    #[must_use]
    pub fn against(mut self, peer: &str, sample: &Sample) -> Self {
        self.peer = Some(peer.to_owned());
        self.peer_value = Some(sample.median());
        self
    }

    /// With the figure the source reports.
    #[must_use]
    pub fn reference(mut self, reference: &str) -> Self {
        self.reference = Some(reference.to_owned());
        self
    }

    /// With what netchan aims for.
    #[must_use]
    pub fn target(mut self, target: &str) -> Self {
        self.target = Some(target.to_owned());
        self
    }
}

/// The unit that an id ends in, but for whose figure it is; ids end in `_ns`, `_gbit_per_s`, `_per_s`, `_percent` or `_bytes`, else the figure is a
/// number.
fn unit_of(id: &str) -> &'static str {
    let whose = ["_cubic", "_bbr", "_smoltcp"];
    let id = whose
        .iter()
        .find_map(|end| id.strip_suffix(end))
        .unwrap_or(id);
    let units = [
        ("_ns", "ns"),
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_cycles", "cycles"),
        ("_gbit_per_s", "Gbit/s"),
        ("_mbit_per_s", "Mbit/s"),
        ("_per_s", "/s"),
        ("_percent", "%"),
        ("_bytes", "B"),
    ];
    units
        .iter()
        .find(|(end, _)| id.ends_with(end))
        .map_or("", |(_, unit)| unit)
}

/// What an experiment found.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Report {
    /// The experiment.
    pub name: &'static str,
    /// What was asked.
    pub question: &'static str,
    /// Where, and what else ran there.
    pub machine: Machine,
    /// Expensive checks that were on.
    pub checks_on: ChecksOn,
    /// What was expected before the first run.
    pub prediction: &'static str,
    /// The figures.
    pub rows: Vec<Row>,
}

impl Report {
    /// As the JSON object that `netchan lab run --json` writes.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data has a JSON form")
    }
}

/// `453`, `39.4`, `0.12`, `1_234_567` as people read them.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100_000.0 => grouped(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// With a thin gap between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 && c.is_ascii_digit() && !out.ends_with('-') {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

const COLUMNS: usize = 10;

/// The table's columns for one row.
fn cells(row: &Row) -> [String; COLUMNS] {
    let or_dash = |s: Option<String>| s.unwrap_or_else(|| "-".to_owned());
    let interval = row.low.zip(row.high);
    let interval = interval.map(|(low, high)| format!("{} .. {}", figure(low), figure(high)));
    [
        row.id.clone(),
        figure(row.value),
        row.unit.to_owned(),
        or_dash(interval),
        row.rounds.to_string(),
        format!("{} .. {}", figure(row.min), figure(row.max)),
        or_dash(row.peer_value.map(figure)),
        or_dash(row.peer.clone()),
        or_dash(row.reference.clone()),
        or_dash(row.target.clone()),
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.question)?;
        writeln!(f, "expected: {}", self.prediction)?;
        writeln!(f, "machine:  {}", self.machine)?;
        if self.checks_on.any() {
            writeln!(
                f,
                "CHECKS ARE ON ({:?}): these figures say nothing about speed",
                self.checks_on
            )?;
        }
        let heads = [
            "id",
            "median",
            "unit",
            "95 %",
            "rounds",
            "min .. max",
            "peer's",
            "peer",
            "reference",
            "target",
        ];
        let mut table = vec![heads.map(str::to_owned)];
        table.extend(self.rows.iter().map(cells));
        let width = |i: usize| {
            table
                .iter()
                .map(|r| r[i].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for row in &table {
            let mut line = String::new();
            for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
                let gap = " ".repeat(width - cell.chars().count());
                let number = matches!(i, 1 | 3..=6);
                line += &if number {
                    format!("{gap}{cell}  ")
                } else {
                    format!("{cell}{gap}  ")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Each row once, with a figure between its least and its greatest; nothing left out.
    pub(crate) fn are_sane(rows: &[Row]) {
        for row in rows {
            let figures = [row.min, row.value, row.max];
            assert!(figures.iter().all(|v| v.is_finite()), "{row:?}");
            assert!(row.min <= row.value && row.value <= row.max, "{row:?}");
            assert!(!row.id.starts_with("left_out_"), "{row:?}");
            let twins = rows.iter().filter(|other| other.id == row.id).count();
            assert_eq!(twins, 1, "{}", row.id);
        }
    }

    /// Rows with these ids are among them, with a figure above zero.
    pub(crate) fn has(rows: &[Row], ids: &[impl AsRef<str>]) {
        for id in ids {
            let row = rows.iter().find(|row| row.id == id.as_ref());
            let row = row.unwrap_or_else(|| panic!("no row {}", id.as_ref()));
            assert!(row.value > 0.0, "{row:?}");
        }
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(figure(593_123.4), "593 123");
        assert_eq!(figure(453.21), "453");
        assert_eq!(figure(39.44), "39.4");
        assert_eq!(figure(1_000_000.0), "1 000 000");
    }

    #[test]
    fn json_has_the_fields_of_the_contract() {
        let row = Row::new("rr_ns", &Sample::of(vec![3.0, 1.0, 2.0]));
        let row = row
            .against("smoltcp 0.14", &Sample::of(vec![4.0]))
            .target("ahead");
        let report = Report {
            name: "x",
            question: "?",
            machine: Machine::default(),
            checks_on: ChecksOn::here(),
            prediction: "!",
            rows: vec![row],
        };
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("valid");
        for key in ["name", "machine", "checks_on", "prediction", "rows"] {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in ["cores", "clock", "kernel", "what_else_ran"] {
            assert!(json["machine"].get(key).is_some(), "machine.{key}");
        }
        let row = &json["rows"][0];
        assert_eq!(
            (
                row["value"].as_f64(),
                row["min"].as_f64(),
                row["max"].as_f64()
            ),
            (Some(2.0), Some(1.0), Some(3.0))
        );
        assert_eq!(row["peer_value"].as_f64(), Some(4.0));
        assert_eq!(row["rounds"].as_u64(), Some(3));
        assert!(row["low"].as_f64() < Some(1.0) && row["high"].as_f64() > Some(3.0));
        assert_eq!(row["unit"], "ns");
        assert!(row["reference"].is_null());
        assert!(report.to_string().contains("smoltcp 0.14"));
    }
}
