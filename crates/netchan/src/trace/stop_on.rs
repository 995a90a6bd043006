//! What a recording is to stop on, as people write it: `drop`, `drop=REASON`, `latency=TIME`, `watchdog`; and what came, in English.

use serde_json::{Value, json};

use super::{
    rings,
    trigger::{self, Cause, MODULES, Wanted},
};
use crate::counters::Counter;

/// The shortest and the longest latency that can be waited for: beyond it the packets' clocks go round.
const LATENCY_NS: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;

/// Whatever module drops it.
const MODULE: &str = "module";

/// Units of time, in nanoseconds.
const UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// Reads a list with commas, each kind once.
///
/// # Errors
/// What is wrong with it, in English.
pub(super) fn parse(text: &str) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    for word in text.split(',') {
        let (kind, value) = match word.split_once('=') {
            Some((kind, value)) => (kind, Some(value)),
            None => (word, None),
        };
        let is_new = match (kind, value) {
            ("drop", reason) => {
                let reason = reason.map(reason_of).transpose()?;
                wanted.drop.replace(reason).is_none()
            }
            ("latency", Some(time)) => wanted.latency_ns.replace(time_of(time)?).is_none(),
            ("latency", None) => return Err("latency of what? As in latency=200us".to_owned()),
            ("watchdog", None) => !std::mem::replace(&mut wanted.watchdog, true),
            _ => {
                return Err(format!(
                    "a recording stops on drop, drop=REASON, latency=TIME or watchdog, not on `{}`",
                    word.escape_debug()
                ));
            }
        };
        if !is_new {
            return Err(format!("{kind} is said twice"));
        }
    }
    Ok(wanted)
}

/// A reason, as `netchan show drops` or `netchan show counters` names it.
fn reason_of(name: &str) -> Result<usize, String> {
    if name == MODULE {
        return Ok(MODULES);
    }
    let short = |counter: &Counter| counter.name().trim_start_matches("drop_");
    let drops = || Counter::ALL.iter().filter(|counter| counter.is_drop());
    let found = drops().find(|counter| counter.name() == name || short(counter) == name);
    let found = found.map(|&counter| counter as usize);
    found.ok_or_else(|| {
        let all: Vec<_> = drops().map(short).chain([MODULE]).collect();
        let name = name.escape_debug();
        format!(
            "nothing is dropped for `{name}`; reasons are {}",
            all.join(", ")
        )
    })
}

fn time_of(text: &str) -> Result<u64, String> {
    let begins_unit = |c: char| !c.is_ascii_digit();
    let (number, unit) = text.split_at(text.find(begins_unit).unwrap_or(text.len()));
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let ns = unit.and_then(|(_, ns)| number.parse::<u64>().ok()?.checked_mul(*ns));
    ns.filter(|ns| LATENCY_NS.contains(ns)).ok_or_else(|| {
        let text = text.escape_debug();
        format!("latency={text}: give 1us to 10s, as a whole number of ns, us, ms or s")
    })
}

/// How many events are to be recorded after what is waited for: a quarter of what a thread keeps, if that is not said.
///
/// # Errors
/// What is wrong with it, in English.
pub(super) fn after(text: Option<&str>) -> Result<u64, String> {
    let most = u64::try_from(rings::events()).unwrap_or(u64::MAX);
    let Some(text) = text else {
        return Ok(most / 4);
    };
    let after = text.parse().ok().filter(|&after: &u64| after < most);
    after.ok_or_else(|| {
        let text = text.escape_debug();
        format!("{text} events after it: give fewer than the {most} that a thread keeps, or nothing from before would be left")
    })
}

/// A reason's name.
fn name(reason: usize) -> &'static str {
    Counter::ALL
        .get(reason)
        .map_or(MODULE, |counter| counter.name())
}

/// What is waited for and what has come, at `at_ns` of [`clock::cycles`](percore::clock::cycles); null: neither.
pub(crate) fn state(at_ns: impl Fn(u64) -> u64) -> Value {
    if let Some((cause, stamp, left)) = trigger::fired() {
        let why = match cause {
            Cause::Drop(reason) => format!("a packet was dropped: {}", name(reason)),
            Cause::Latency(us) => format!("a packet took {us} us from the link to the application"),
            Cause::Thread(number) => format!("thread {number} has not come out of its turn"),
            Cause::Shard(number) => format!("no thread takes the packets of shard {number}"),
            Cause::Module(number) => format!("module {number} dropped a packet"),
        };
        let state = if left == 0 { "stopped" } else { "stopping" };
        return json!({ "state": state, "why": why, "at_ns": stamp.map(at_ns), "events_to_come": left });
    }
    let wanted = trigger::wanted();
    let mut words = Vec::new();
    words.extend(wanted.drop.map(|reason| match reason {
        Some(reason) => format!("drop={}", name(reason)),
        None => "drop".to_owned(),
    }));
    words.extend(wanted.latency_ns.map(|ns| format!("latency={ns}ns")));
    words.extend(wanted.watchdog.then(|| "watchdog".to_owned()));
    if words.is_empty() {
        return Value::Null;
    }
    json!({ "state": "armed", "why": format!("waits for {}", words.join(", ")) })
}
