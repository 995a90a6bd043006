//! A firewall that knows flows, and translates addresses: rules in nftables' words, from a file.
//!
//! ```text
//! arrival: a flow that is known: its destination back, or where it goes instead · a new one: chains of `nat hook prerouting`
//! in, out, forward: the flow's state ──► chains of `filter hook input|output|forward` ──► tracked
//! out, forward: a new flow: chains of `nat hook postrouting` · the source as the flow says
//! ```
//!
//! All of it, rules with their counters and flows, lies behind one lock, which is held for one packet at one point: a thread sees the rules of one
//! file from the first to the last, and a new file takes the place of the old between two packets ([`Module::configure`]). Memory is what the
//! module is loaded with.
//!
//! What is sent to a mapped port from elsewhere than the flow's other end is no answer (address- and port-dependent filtering, RFC 4787 §5). The
//! source port is kept where it is free; else it is found from a place that the inside end decides, so that an end keeps its port to all
//! destinations as long as none is taken (close to endpoint-independent mapping, RFC 4787 §4.1; no promise).
//!
//! Fragments: IPv4 datagrams that pass through are put together first ([`Module::wants_whole`]) and cut again for the next link. Of IPv6, where a
//! router must not, fragments are `invalid`, and not translated. UDP-Lite and DCCP, and ICMP that is neither echo nor error, are `invalid`, too.

mod change;
mod cursor;
mod engine;
mod parse;
mod rule;
mod rules;
mod seen;
mod state;
mod table;
mod target;
mod tcp;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::io;

use percore::lock::{Mutex, mutex};
use proto::{ip::keyed::Seed, time::Instant};
use serde_json::{Value, json};

use self::{engine::Engine, rules::Ruleset, state::State, table::Flow};
use crate::{
    driver::module::{Draft, Module, Point, Rows, Verdict, View},
    locks,
};

pub use self::words::{Fault, TEXT_MAX};

/// Flows that are tracked unless the configuration says otherwise: some 200 bytes each.
pub const FLOWS: usize = 1 << 16;
/// Most of them: some 3 GiB.
pub const FLOWS_MAX: usize = 1 << 24;
/// Flows of one source unless the configuration says otherwise.
pub const FLOWS_EACH: usize = 1 << 12;
/// Flows that are listed at most.
const LISTED: usize = 1024;

/// What a firewall is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The rules, as their file has them.
    rules: Ruleset,
    /// Flows that are tracked at most.
    pub flows: usize,
    /// Flows of one source, of IPv6 of its /64, at most.
    pub flows_each: usize,
}

impl Settings {
    /// Reads rules.
    ///
    /// # Errors
    /// What is wrong with them, and where.
    pub fn new(rules: &str) -> Result<Self, Fault> {
        Ok(Self {
            rules: parse::parse(rules)?,
            flows: FLOWS,
            flows_each: FLOWS_EACH,
        })
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }
}

/// The firewall.
pub struct Firewall {
    name: String,
    engine: Mutex<Engine>,
}

impl Firewall {
    /// A firewall called `name`, with a key from the system.
    ///
    /// # Errors
    /// The system's when it has no randomness.
    pub fn new(name: impl Into<String>, settings: Settings) -> io::Result<Self> {
        let key = Seed([crate::sys::random_u64()?, crate::sys::random_u64()?]);
        Ok(Self::with_key(name, settings, key))
    }

    /// The same with a key of one's own, for tests that replay.
    pub fn with_key(name: impl Into<String>, settings: Settings, key: Seed) -> Self {
        let Settings {
            rules,
            flows,
            flows_each,
        } = settings;
        let engine = Engine::new(rules, flows.clamp(1, FLOWS_MAX), flows_each, key);
        Self {
            name: name.into(),
            engine: mutex(&locks::FLOWS, engine),
        }
    }
}

impl Module for Firewall {
    fn name(&self) -> &str {
        &self.name
    }

    fn points(&self) -> &[Point] {
        &[Point::Arrival, Point::In, Point::Out, Point::Forward]
    }

    /// Filters and tracks a packet that cannot be changed, and that came from no known link.
    fn packet(&self, point: Point, packet: &View<'_>, now: Instant) -> Verdict {
        self.engine.lock().look(point, packet, now)
    }

    fn rewrite(&self, point: Point, packet: &mut Draft<'_>, now: Instant) -> Verdict {
        self.engine.lock().take(point, packet, now)
    }

    fn wants_whole(&self) -> bool {
        true
    }

    /// Takes the text of a new file of rules. Flows stay as they are; counting begins anew.
    fn configure(&self, rules: &str) -> Result<String, String> {
        let rules = parse::parse(rules).map_err(|fault| fault.to_string())?;
        let count = rules.len();
        let (flows, old) = {
            let mut engine = self.engine.lock();
            let old = std::mem::replace(&mut engine.rules, rules);
            (engine.table.len(), old)
        };
        drop(old); // packets do not wait for that
        Ok(format!("{count} rules are in force, {flows} flows stay"))
    }

    fn rows(&self, what: Rows, now: Instant) -> Vec<Value> {
        // Packets wait while it is copied, not for the text that is made of it.
        match what {
            Rows::Rules => {
                let copy = self.engine.lock().rules.clone();
                rules(&copy)
            }
            Rows::Flows => {
                let flows: Vec<Flow> = self.engine.lock().table.flows(LISTED).copied().collect();
                flows.iter().map(|flow| row_of(flow, now)).collect()
            }
        }
    }

    fn describe(&self) -> String {
        let engine = self.engine.lock();
        let (table, counts) = (&engine.table, engine.table.counts());
        let half_open = State::HALF_OPEN.iter().map(|&state| table.len_of(state));
        format!(
            "{} rules; {} of {} flows, {} half-open; {} made, {} expired, {} evicted; refused: {} for room, {} for their source, {} taken, \
             {} without a port; {} invalid",
            engine.rules.len(),
            table.len(),
            table.capacity(),
            half_open.sum::<u32>(),
            counts.made,
            counts.expired,
            counts.evicted,
            counts.refused_full,
            counts.refused_source,
            counts.refused_taken,
            engine.without_port,
            engine.invalid,
        )
    }
}

/// A row for each rule, and for each policy.
fn rules(rules: &Ruleset) -> Vec<Value> {
    let mut rows = Vec::new();
    for chain in &rules.chains {
        let name = format!("{} {}", chain.table, chain.name);
        rows.extend(chain.rules.iter().map(|rule| {
            json!({
                "chain": name, "line": rule.line, "packets": rule.packets, "bytes": rule.bytes, "rule": rule.text,
            })
        }));
        if let Some(base) = chain.base {
            let policy = if base.drops {
                "policy drop"
            } else {
                "policy accept"
            };
            rows.push(json!({
                "chain": name, "line": null, "packets": base.packets, "bytes": base.bytes, "rule": policy,
            }));
        }
    }
    rows
}

fn row_of(flow: &Flow, now: Instant) -> Value {
    let changed = |is, was| {
        if is == was {
            Value::Null
        } else {
            json!(format!("{is}"))
        }
    };
    json!({
        "protocol": flow.protocol.0,
        "state": flow.state.name(),
        "source": flow.source.to_string(),
        "destination": flow.destination.to_string(),
        "source_becomes": changed(flow.outside, flow.source),
        "destination_becomes": changed(flow.inside, flow.destination),
        "packets_out": flow.packets[0], "bytes_out": flow.bytes[0],
        "packets_back": flow.packets[1], "bytes_back": flow.bytes[1],
        "left_s": flow.due.since(now).as_secs(),
    })
}
