//! `[[module]]`: which modules a stack begins with, and their settings.

use std::{
    fs::File,
    io::{self, Read},
};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::problem::{Problem, problem, size};
use crate::{
    driver::module::{
        Boxed, Point, Verdict,
        filter::{Filter, RULES_MAX, Rule, Rules},
        firewall::{self, Firewall, Settings},
        ledger::{self, Ledger},
        limiter::{self, Limit, Limiter, Unit},
    },
    giant::Concurrency,
};

/// One `[[module]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleConfig {
    /// `name`: what it is called.
    pub name: String,
    /// `kind` with its settings; where there is no `kind`, the name is one.
    pub kind: ModuleKind,
    /// `concurrency`: `giant` where it shall be called under Giant although it need not.
    pub concurrency: Concurrency,
    /// Of a firewall: its rules, as its file has them.
    pub ruleset: Option<String>,
}

/// What a module does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// `filter` (or `firewall` without a `file`).
    Filter(Rules),
    /// `firewall` with a `file`.
    Firewall(Box<Settings>),
    /// `limiter`.
    Limiter(Limit),
    /// `ledger`.
    Ledger {
        /// Accounts.
        peers: usize,
    },
}

impl ModuleConfig {
    /// The module.
    ///
    /// # Errors
    /// The system's, when it has no randomness.
    pub fn make(&self) -> io::Result<Boxed> {
        let name = self.name.clone();
        let module = match &self.kind {
            ModuleKind::Filter(rules) => Boxed::any(Filter::new(name, rules.clone())),
            ModuleKind::Firewall(settings) => {
                Boxed::any(Firewall::new(name, Settings::clone(settings))?)
            }
            ModuleKind::Limiter(limit) => Boxed::any(Limiter::new(name, limit.clone())?),
            ModuleKind::Ledger { peers } => Boxed::giant(Ledger::new(name, *peers)),
        };
        Ok(match self.concurrency {
            Concurrency::Any => module,
            Concurrency::Giant => module.under_giant(),
        })
    }
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Module {
    name: Spanned<String>,
    kind: Option<Spanned<String>>,
    concurrency: Option<Spanned<String>>,
    // filter
    rules: Option<Vec<Spanned<String>>>,
    default: Option<Spanned<String>>,
    // firewall
    file: Option<Spanned<String>>,
    ruleset: Option<Spanned<String>>,
    flows: Option<Spanned<usize>>,
    flows_each: Option<Spanned<usize>>,
    // limiter
    point: Option<Spanned<String>>,
    packets_per_second: Option<Spanned<u64>>,
    bytes_per_second: Option<Spanned<Value>>,
    burst: Option<Spanned<Value>>,
    each: Option<Spanned<[u8; 2]>>,
    table: Option<Spanned<usize>>,
    // ledger
    peers: Option<Spanned<usize>>,
}

/// Checks one; `others` stand before it.
pub(super) fn read(file: &Module, others: &[ModuleConfig]) -> Result<ModuleConfig, Problem> {
    let name = file.name.get_ref();
    if others.iter().any(|other| other.name == *name) {
        return Err(problem(&file.name, format!("a second module `{name}`")));
    }
    if !crate::driver::module::is_name(name) {
        return Err(problem(
            &file.name,
            format!(
                "`{}`: a name is 1 to 32 of a-z, 0-9, - and _",
                name.escape_debug()
            ),
        ));
    }
    let at = file.kind.as_ref().unwrap_or(&file.name);
    let mut ruleset = None;
    let kind = match at.get_ref().as_str() {
        "firewall" if file.file.is_some() || file.ruleset.is_some() => {
            only(
                file,
                "firewall with a file of rules",
                &["file", "ruleset", "flows", "flows_each"],
            )?;
            let (settings, text) = firewall(file)?;
            ruleset = Some(text);
            ModuleKind::Firewall(Box::new(settings))
        }
        "filter" | "firewall" => {
            only(file, "filter", &["rules", "default"])?;
            ModuleKind::Filter(rules(file)?)
        }
        "limiter" => {
            only(
                file,
                "limiter",
                &[
                    "point",
                    "packets_per_second",
                    "bytes_per_second",
                    "burst",
                    "each",
                    "table",
                ],
            )?;
            ModuleKind::Limiter(limit(file)?)
        }
        "ledger" => {
            only(file, "ledger", &["peers"])?;
            ModuleKind::Ledger {
                peers: in_range(file.peers.as_ref(), 1, ledger::PEERS_MAX)?
                    .unwrap_or(ledger::PEERS),
            }
        }
        other => {
            let what = format!(
                "unknown kind of module `{other}`; this release has filter, firewall, limiter, ledger"
            );
            return Err(problem(at, what));
        }
    };
    let concurrency = concurrency(file, &kind)?;
    Ok(ModuleConfig {
        name: name.clone(),
        kind,
        concurrency,
        ruleset,
    })
}

/// Which threads may call it at once.
fn concurrency(file: &Module, kind: &ModuleKind) -> Result<Concurrency, Problem> {
    Ok(
        match file.concurrency.as_ref().map(|c| (c, c.get_ref().as_str())) {
            Some((_, "giant")) => Concurrency::Giant,
            Some((at, "any")) if matches!(kind, ModuleKind::Ledger { .. }) => {
                return Err(problem(at, "a ledger needs Giant"));
            }
            None | Some((_, "any")) => Concurrency::Any,
            Some((at, other)) => {
                return Err(problem(at, format!("`{other}` is neither any nor giant")));
            }
        },
    )
}

/// Refuses settings of another kind.
fn only(file: &Module, kind: &str, allowed: &[&str]) -> Result<(), Problem> {
    let given = [
        ("rules", file.rules.is_some()),
        ("default", file.default.is_some()),
        ("file", file.file.is_some()),
        ("ruleset", file.ruleset.is_some()),
        ("flows", file.flows.is_some()),
        ("flows_each", file.flows_each.is_some()),
        ("point", file.point.is_some()),
        ("packets_per_second", file.packets_per_second.is_some()),
        ("bytes_per_second", file.bytes_per_second.is_some()),
        ("burst", file.burst.is_some()),
        ("each", file.each.is_some()),
        ("table", file.table.is_some()),
        ("peers", file.peers.is_some()),
    ];
    match given
        .iter()
        .find(|(key, is_given)| *is_given && !allowed.contains(key))
    {
        Some((key, _)) => Err(problem(
            &file.name,
            format!(
                "a {kind} has no setting `{key}`; it has {}",
                allowed.join(", ")
            ),
        )),
        None => Ok(()),
    }
}

/// A firewall's settings, and the text of its rules: that of `ruleset`, where there is one; else that of the file.
fn firewall(file: &Module) -> Result<(Settings, String), Problem> {
    let (at, name, text) = match (&file.file, &file.ruleset) {
        (Some(path), None) => (path, path.get_ref().as_str(), read_rules(path)?),
        (Some(path), Some(text)) => (text, path.get_ref().as_str(), text.get_ref().clone()),
        (None, Some(text)) => (text, "ruleset", text.get_ref().clone()),
        (None, None) => return Err(problem(&file.name, "a firewall has a `file` of rules")),
    };
    let mut settings =
        Settings::new(&text).map_err(|fault| problem(at, format!("{name}:{fault}")))?;
    let flows = in_range(file.flows.as_ref(), 1, firewall::FLOWS_MAX)?;
    settings.flows = flows.unwrap_or(firewall::FLOWS);
    let each = in_range(file.flows_each.as_ref(), 1, firewall::FLOWS_MAX)?;
    settings.flows_each = each.unwrap_or(firewall::FLOWS_EACH.min(settings.flows));
    Ok((settings, text))
}

fn read_rules(path: &Spanned<String>) -> Result<String, Problem> {
    let name = path.get_ref();
    let wrong = |why: String| problem(path, format!("{name}: {why}"));
    let file = File::open(name).map_err(|e| wrong(e.to_string()))?;
    let mut text = String::new();
    // One more than there may be, to see that there is more.
    let most = firewall::TEXT_MAX as u64 + 1;
    let read = file.take(most).read_to_string(&mut text);
    read.map_err(|e| wrong(e.to_string()))?;
    Ok(text)
}

fn rules(file: &Module) -> Result<Rules, Problem> {
    let mut found = Rules::default();
    for text in file.rules.iter().flatten() {
        if found.rules.len() == RULES_MAX {
            return Err(problem(text, format!("more than {RULES_MAX} rules")));
        }
        found.rules.push(
            text.get_ref()
                .parse::<Rule>()
                .map_err(|e| problem(text, e.to_string()))?,
        );
    }
    found.default = match file.default.as_ref().map(|d| (d, d.get_ref().as_str())) {
        None | Some((_, "pass")) => Verdict::Pass,
        Some((_, "drop")) => Verdict::Drop,
        Some((at, other)) => {
            return Err(problem(at, format!("`{other}` is neither pass nor drop")));
        }
    };
    Ok(found)
}

fn limit(file: &Module) -> Result<Limit, Problem> {
    let range = 1..=limiter::RATE_MAX;
    let (unit, per_second) = match (&file.packets_per_second, &file.bytes_per_second) {
        (Some(packets), None) if range.contains(packets.get_ref()) => {
            (Unit::Packets, *packets.get_ref())
        }
        (Some(packets), None) => {
            return Err(problem(
                packets,
                format!(
                    "{}: 1 to {} packets per second",
                    packets.get_ref(),
                    range.end()
                ),
            ));
        }
        (None, Some(_)) => (
            Unit::Bytes,
            size(file.bytes_per_second.as_ref(), &range)?.unwrap_or(1) as u64,
        ),
        _ => {
            return Err(problem(
                &file.name,
                "a limiter has either packets_per_second or bytes_per_second",
            ));
        }
    };
    let burst = size(file.burst.as_ref(), &range)?.map_or(per_second, |n| n as u64);
    let point = match file.point.as_ref().map(|p| (p, p.get_ref().as_str())) {
        None => Point::In,
        Some((at, name)) => Point::named(name)
            .ok_or_else(|| problem(at, format!("`{name}` is none of in, out, forward")))?,
    };
    let each = match file.each.as_ref().map(|e| (e, e.get_ref())) {
        Some((at, &[v4, v6])) if v4 > 32 || v6 > 128 => {
            return Err(problem(at, "prefix lengths go to 32 (IPv4) and 128 (IPv6)"));
        }
        each => each.map(|(_, &[v4, v6])| (v4, v6)),
    };
    let table = in_range(file.table.as_ref(), 1, limiter::TABLE_MAX)?.unwrap_or(limiter::TABLE);
    Ok(Limit {
        point,
        unit,
        per_second,
        burst,
        each,
        table: table.next_power_of_two(),
    })
}

fn in_range(
    value: Option<&Spanned<usize>>,
    least: usize,
    most: usize,
) -> Result<Option<usize>, Problem> {
    match value {
        Some(n) if !(least..=most).contains(n.get_ref()) => Err(problem(
            n,
            format!("{} is out of range: {least} to {most}", n.get_ref()),
        )),
        other => Ok(other.map(|n| *n.get_ref())),
    }
}
