//! What is wrong with a configuration file, and where.

use std::ops::Range;

use toml::{Spanned, Value};

use super::ConfigError;
use crate::units;

/// What is wrong, and which bytes of the text it is about.
pub struct Problem {
    pub(super) span: Option<Range<usize>>,
    pub(super) what: String,
}

pub(super) fn problem<T>(at: &Spanned<T>, what: impl Into<String>) -> Problem {
    Problem {
        span: Some(at.span()),
        what: what.into(),
    }
}

impl Problem {
    /// As an error of `file`, whose text is `text`.
    pub fn located(self, text: &str, file: &str) -> ConfigError {
        // A span at the end of the text (a file that stops too early) is about its last line.
        let at = self
            .span
            .map(|span| span.start.min(text.len().saturating_sub(1)));
        ConfigError {
            file: file.to_owned(),
            line: at.map(|at| text.bytes().take(at).filter(|&b| b == b'\n').count() + 1),
            key: at.and_then(|at| key_at(text, at)),
            what: self.what,
        }
    }
}

/// The key that byte `at` of `text` belongs to, with its tables. A guess from the text, good enough to find the place:
/// the last `key =` up to that line, under the last `[table]`.
fn key_at(text: &str, at: usize) -> Option<String> {
    let end = text
        .bytes()
        .skip(at)
        .position(|b| b == b'\n')
        .map_or(text.len(), |n| at + n);
    let mut key = None;
    for line in text.get(..end)?.lines().rev() {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[').filter(|_| !line.contains('=')) {
            let table = table
                .trim_start_matches('[')
                .split(']')
                .next()
                .unwrap_or_default()
                .trim();
            return Some(key.map_or_else(|| table.to_owned(), |key| format!("{table}.{key}")));
        }
        if key.is_none() && !line.starts_with('#') {
            key = line.split_once('=').map(|(key, _)| key.trim().to_owned());
        }
    }
    key
}

/// Bytes, as a number or as text with a unit.
pub(super) fn size(
    value: Option<&Spanned<Value>>,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<Option<usize>, Problem> {
    let Some(value) = value else { return Ok(None) };
    let bytes = match value.get_ref() {
        Value::String(text) => units::size(text).map_err(|what| problem(value, what))?,
        Value::Integer(n) => {
            u64::try_from(*n).map_err(|_| problem(value, format!("{n} is less than nothing")))?
        }
        other => {
            return Err(problem(
                value,
                format!("{other} is not a size; write bytes or \"16 MiB\""),
            ));
        }
    };
    let fits = usize::try_from(bytes)
        .ok()
        .filter(|_| range.contains(&bytes));
    let out = || {
        problem(
            value,
            format!(
                "{bytes} bytes is out of range: {} to {}",
                range.start(),
                range.end()
            ),
        )
    };
    fits.map(Some).ok_or_else(out)
}
