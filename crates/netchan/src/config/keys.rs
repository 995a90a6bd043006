//! The keys of the configuration file: one row for each, from which its reading, `netchan config --example`, the tables of
//! docs/configuration.md and what `netchan set` says of it are made.

mod lists;
mod rows;

use std::ops::RangeInclusive;

use serde::Deserialize;
use toml::{
    Spanned, Value,
    de::{DeValue, ValueDeserializer},
};

use super::{
    Config,
    problem::{Problem, size},
};

/// One key.
pub struct Key {
    /// The table it stands in; empty for the top level.
    pub table: &'static str,
    /// As it is written.
    pub name: &'static str,
    /// What it is where it is not written.
    pub value: Given,
    /// What else it may be: goes on behind the default, in Markdown.
    pub values: &'static str,
    /// What it does, in Markdown.
    pub meaning: &'static str,
    /// When it changes.
    pub changes: Changes,
    /// Puts its value into the configuration; `None`: read with its table, a struct of `file.rs`, `module.rs` or `lease.rs`.
    read: Option<Read>,
}

/// What stands in the file beside the keys of the top level: `keys` has theirs.
pub const TABLES: [&str; 8] = [
    "link", "tcp", "udp", "icmp", "run", "log", "module", "lease",
];

type Read = fn(&mut Config, Spanned<DeValue<'_>>) -> Result<(), Problem>;

/// A value in a row, as TOML.
#[derive(Clone, Copy)]
pub enum Given {
    /// What holds where the key is not written.
    Default(&'static str),
    /// No one value holds then; this is one that it may be.
    Example(&'static str),
    /// The same, for a key that goes in place of the one before it.
    Instead(&'static str),
}

/// When a setting changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// At the start, and whenever `netchan set` says so.
    Run,
    /// At the start only.
    Boot {
        /// Its name in `netchan show settings`; empty: it is none of them.
        shown: &'static str,
        /// Options and variables that say the same; empty: none.
        also: &'static str,
    },
}

impl Key {
    /// With its table, as errors and commands name it.
    pub fn path(&self) -> String {
        match self.table {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

/// All of them, in the order in which they are written.
pub fn all() -> impl Iterator<Item = &'static Key> {
    let tables = [
        rows::TOP,
        rows::TCP,
        rows::UDP,
        rows::ICMP,
        rows::RUN,
        rows::LOG,
    ];
    let lists = [lists::LINK, lists::ROUTE, lists::MODULE, lists::LEASE];
    tables.into_iter().chain(lists).flatten()
}

/// Those of one table.
pub fn of(table: &str) -> impl Iterator<Item = &'static Key> {
    all().filter(move |key| key.table == table)
}

/// Puts one key of `table` into `config`.
pub(super) fn read(
    config: &mut Config,
    table: &str,
    name: &Spanned<impl AsRef<str>>,
    value: Spanned<DeValue<'_>>,
) -> Result<(), Problem> {
    let wanted = name.as_ref().as_ref();
    let row = of(table).find(|key| key.name == wanted);
    if let Some(read) = row.and_then(|key| key.read) {
        return read(config, value);
    }
    let own: &[&str] = match table {
        "" => &TABLES,
        _ => &[],
    };
    let names = of(table).map(|key| key.name).chain(own.iter().copied());
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    Err(Problem {
        span: Some(name.span()),
        what: format!(
            "unknown field `{wanted}`, expected one of {}",
            names.join(", ")
        ),
    })
}

/// A value as `T`.
pub(super) fn typed<'de, T: Deserialize<'de>>(value: Spanned<DeValue<'de>>) -> Result<T, Problem> {
    T::deserialize(ValueDeserializer::from(value)).map_err(|e| Problem {
        span: e.span(),
        what: e.message().to_owned(),
    })
}

/// A value that needs no check beside its type.
fn plain<T: for<'de> Deserialize<'de>>(
    place: &mut T,
    value: Spanned<DeValue<'_>>,
) -> Result<(), Problem> {
    *place = typed(value)?;
    Ok(())
}

/// A text that `how` reads.
fn text<T>(
    place: &mut Option<T>,
    value: Spanned<DeValue<'_>>,
    how: fn(&Spanned<String>) -> Result<T, Problem>,
) -> Result<(), Problem> {
    *place = Some(how(&typed(value)?)?);
    Ok(())
}

/// Bytes within `range`.
fn bytes(
    place: &mut Option<usize>,
    value: Spanned<DeValue<'_>>,
    range: &RangeInclusive<u64>,
) -> Result<(), Problem> {
    *place = size(Some(&typed::<Spanned<Value>>(value)?), range)?;
    Ok(())
}
