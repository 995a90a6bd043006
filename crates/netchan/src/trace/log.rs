//! What the trace holds, merged and in English: the answers that `netchan trace` gets over the control socket.
//!
//! A request is `start`, `start WHAT[,WHAT…] [AFTER]` (until AFTER events behind the first of these, see `stop_on`), `stop`, or `read LAST SINCE [NAME,NAME…]`: the newest LAST events whose stamps are not before SINCE (0: any).
//! Whatever it says, the answer is bounded by the size of the rings, and no thread that carries packets notices.

use percore::{
    clock,
    trace::{Line, Missed, Record},
};
use serde_json::{Map, Value, json};

use super::{
    DROP, EVENTS, Level, SHARD_DROP, latency, level, rings, set_level, stages, stop_on,
    trigger::{self, Wanted},
};
use crate::counters::Counter;

/// Answers one request.
///
/// # Errors
/// What is wrong with it, in English.
pub(crate) fn answer(request: &str) -> Result<Value, String> {
    let mut words = request.split(' ');
    match (
        words.next(),
        words.next(),
        words.next(),
        words.next(),
        words.next(),
    ) {
        (Some("start"), None, ..) => Ok(start(Wanted::default(), 0)),
        (Some("start"), Some(wanted), after, None, _) => {
            Ok(start(stop_on::parse(wanted)?, stop_on::after(after)?))
        }
        (Some("stop"), None, ..) => {
            set_level(Level::Rare);
            stages::switch(false);
            latency::begin_anew();
            Ok(switched())
        }
        (Some("read"), Some(last), Some(since), names, None) => {
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| format!("`{}` is no number", text.escape_debug()))
            };
            let last = usize::try_from(number(last)?).unwrap_or(usize::MAX);
            Ok(read(last, number(since)?, &wanted(names)?))
        }
        _ => Err(
            "trace takes start [WHAT[,WHAT…] [AFTER]], stop, or read LAST SINCE [NAME,NAME…]"
                .to_owned(),
        ),
    }
}

/// Records details from now on, until what is wanted has come.
fn start(wanted: Wanted, after: u64) -> Value {
    set_level(Level::All);
    stages::switch(true);
    latency::begin_anew();
    trigger::arm(wanted, after);
    switched()
}

fn switched() -> Value {
    json!({ "level": level().name(), "trigger": Clock::now().trigger() })
}

/// One moment by both clocks.
struct Clock {
    cycles: u64,
    ns: u64,
}

impl Clock {
    fn now() -> Self {
        Self {
            cycles: clock::cycles(),
            ns: clock::now_ns(),
        }
    }

    /// When a counter showed `stamp`.
    fn at_ns(&self, stamp: u64) -> u64 {
        let ago = clock::cycles_to_ns(self.cycles.saturating_sub(stamp));
        self.ns.saturating_sub(ago)
    }

    fn trigger(&self) -> Value {
        stop_on::state(|stamp| self.at_ns(stamp))
    }
}

/// What is recorded, where, and what stops it: for `netchan show trace`.
pub(crate) fn summary() -> Value {
    let (threads, without, _) = rings::each();
    let written = threads.iter().map(|thread| thread.reader.written());
    let clock = Clock::now();
    let trigger = clock.trigger();
    let ago = trigger["at_ns"]
        .as_u64()
        .map(|at| clock.ns.saturating_sub(at));
    json!({
        "recorded": level().name(), "threads": threads.len(), "threads_without": without,
        "events_each": rings::events(), "written": written.sum::<u64>(),
        "stop": trigger["state"], "why": trigger["why"], "ago_ns": ago, "events_to_come": trigger["events_to_come"],
    })
}

/// The numbers of the events with these names; empty: all.
fn wanted(names: Option<&str>) -> Result<Vec<u16>, String> {
    let number = |name: &str| {
        let found = EVENTS.lines().iter().position(|line| line.name == name);
        let all = || {
            EVENTS
                .lines()
                .iter()
                .map(|line| line.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = found.ok_or_else(|| {
            format!(
                "no event is called `{}`; there are {}",
                name.escape_debug(),
                all()
            )
        })?;
        Ok(u16::try_from(found).unwrap_or(u16::MAX))
    };
    names.map_or(Ok(Vec::new()), |names| {
        names.split(',').map(number).collect()
    })
}

fn read(last: usize, since: u64, wanted: &[u16]) -> Value {
    // Before the first look, so that the next reader misses nothing that is written meanwhile.
    let clock = Clock::now();
    let (mut threads, without, _) = rings::each();
    let mut found: Vec<(Record, usize)> = Vec::new();
    let mut rows = Vec::new();
    for (number, thread) in threads.iter_mut().enumerate() {
        let written = thread.reader.written();
        let Missed { overwritten, torn } = thread.reader.read(|record| {
            let is_wanted = wanted.is_empty() || wanted.contains(&record.event);
            if record.stamp >= since && is_wanted {
                found.push((record, number));
            }
        });
        rows.push(json!({
            "thread": thread.thread, "name": thread.name.as_deref().unwrap_or("(ended)"), "core": thread.core,
            "events": written, "overwritten": overwritten, "torn": torn,
        }));
    }
    found.sort_by_key(|(record, _)| record.stamp);
    let left_out = found.len().saturating_sub(last);
    let event = |(record, number): &(Record, usize)| {
        json!({
            "at_ns": clock.at_ns(record.stamp), "thread": number,
            "event": EVENTS.get(record.event).map_or("unknown", |line| line.name), "text": describe(record),
            "args": arguments(record),
        })
    };
    let events: Vec<_> = found.iter().skip(left_out).map(event).collect();
    json!({
        "level": level().name(), "trigger": clock.trigger(), "now_ns": clock.ns, "next": clock.cycles, "left_out": left_out,
        "threads_without": without, "threads": rows, "events": events,
    })
}

/// A record's figures by name.
fn arguments(record: &Record) -> Map<String, Value> {
    let names = EVENTS
        .get(record.event)
        .into_iter()
        .flat_map(Line::arguments);
    let named = names.zip(record.args).map(|((name, unit), value)| {
        let name = match unit {
            "" | "hex" => name.to_owned(),
            unit => format!("{name}_{unit}"),
        };
        (name, json!(value))
    });
    named.collect()
}

/// A record in English, without its name.
fn describe(record: &Record) -> String {
    let text = EVENTS.describe(record).to_string();
    let text = text
        .split_once(": ")
        .map_or(text.as_str(), |(_, rest)| rest);
    let reason = [DROP.id(), SHARD_DROP.id()]
        .contains(&record.event)
        .then(|| usize::try_from(record.args[1]).ok())
        .flatten();
    match reason.and_then(|reason| Counter::ALL.get(reason)) {
        Some(reason) => format!("{text} ({})", reason.name()),
        None => text.to_owned(),
    }
}
