//! What the trace holds, merged and in English: the answers that `netchan trace` gets over the control socket.
//!
//! A request is `start`, `stop`, or `read LAST SINCE [NAME,NAME…]`: the newest LAST events whose stamps are not before SINCE (0: any).
//! Whatever it says, the answer is bounded by the size of the rings, and no thread that carries packets notices.

use percore::{
    clock,
    trace::{Missed, Record},
};
use serde_json::{Value, json};

use super::{DROP, EVENTS, Level, level, rings, set_level};
use crate::{counters::Counter, trace::stages};

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
        (Some("start"), None, ..) => {
            set_level(Level::All);
            stages::switch(true);
            Ok(json!({ "level": level().name() }))
        }
        (Some("stop"), None, ..) => {
            set_level(Level::Rare);
            stages::switch(false);
            Ok(json!({ "level": level().name() }))
        }
        (Some("read"), Some(last), Some(since), names, None) => {
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| format!("`{}` is no number", text.escape_debug()))
            };
            let last = usize::try_from(number(last)?).unwrap_or(usize::MAX);
            Ok(read(last, number(since)?, &wanted(names)?))
        }
        _ => Err("trace takes start, stop, or read LAST SINCE [NAME,NAME…]".to_owned()),
    }
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
    let (begin, now_ns) = (clock::cycles(), clock::now_ns());
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
        let ago = clock::cycles_to_ns(begin.saturating_sub(record.stamp));
        json!({
            "at_ns": now_ns.saturating_sub(ago), "thread": number,
            "event": EVENTS.get(record.event).map_or("unknown", |line| line.name), "text": describe(record),
        })
    };
    let events: Vec<_> = found.iter().skip(left_out).map(event).collect();
    json!({
        "level": level().name(), "now_ns": now_ns, "next": begin, "left_out": left_out, "threads_without": without,
        "threads": rows, "events": events,
    })
}

/// A record in English, without its name.
fn describe(record: &Record) -> String {
    let text = EVENTS.describe(record).to_string();
    let text = text
        .split_once(": ")
        .map_or(text.as_str(), |(_, rest)| rest);
    let reason = (record.event == DROP.id())
        .then(|| usize::try_from(record.args[1]).ok())
        .flatten();
    match reason.and_then(|reason| Counter::ALL.get(reason)) {
        Some(reason) => format!("{text} ({})", reason.name()),
        None => text.to_owned(),
    }
}
