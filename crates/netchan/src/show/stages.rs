//! `netchan show stages`: how long packets take from the link to the application, and what threads spend their time on.

use serde_json::{Value, json};

use super::look::Look;
use crate::{
    stack::Stack,
    trace::{
        latency::{Latencies, Station},
        stages::{self, Stage},
    },
};

/// The packets' stations first, of all shards together; then the threads.
pub(crate) fn rows(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = latencies(stack, look);
    rows.extend(threads());
    rows
}

/// Always measured, of a sample of packets.
fn latencies(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let (mut all, mut rows) = (Latencies::new(), Vec::new());
    for number in 0..stack.sockets.cells.len() {
        let sum = &mut all;
        let added = look.shard(number, move |held| sum.add(&held.shard.samples.latencies));
        if let Err(busy) = added {
            rows.push(busy.row("shard", json!(number)));
        }
    }
    let row = |station: &Station| {
        let figures = all.summary(*station)?;
        Some(json!({
            "packets_to": station.name(), "timed": figures.packets,
            "p50_ns": figures.p50_ns, "p90_ns": figures.p90_ns, "p99_ns": figures.p99_ns, "max_ns": figures.max_ns,
        }))
    };
    rows.splice(0..0, Station::ALL.iter().filter_map(row));
    rows
}

/// What each thread spends its time on; while that is switched off (`netchan trace start` switches it on), what it spent before.
fn threads() -> impl Iterator<Item = Value> {
    let row = |spent: stages::Spent| {
        let all = spent.ns.iter().sum::<u64>().max(1) as f64; // precision: shares
        let mut row = json!({ "thread": spent.thread });
        for (stage, ns) in Stage::ALL.iter().zip(spent.ns) {
            row[format!("{}_ns", stage.name())] = json!(ns);
        }
        let shares = Stage::ALL.iter().zip(spent.ns);
        let shares =
            shares.map(|(stage, ns)| format!("{} {:.0} %", stage.name(), 100.0 * ns as f64 / all));
        row["shares"] = json!(shares.collect::<Vec<_>>().join(", "));
        row
    };
    stages::read().into_iter().map(row)
}
