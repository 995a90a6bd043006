//! From facts to metrics: which field of which topic is which metric, by the naming rules of Prometheus (base units, `_total` for counters).

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabel as _, EncodeLabelSet, LabelSetEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};
use serde_json::Value;

/// Whether a number only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Since the stack started.
    Counter,
    /// As it is now.
    Gauge,
}

/// A base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Bytes,
    Seconds,
}

impl From<Base> for Unit {
    fn from(base: Base) -> Self {
        match base {
            Base::Bytes => Self::Bytes,
            Base::Seconds => Self::Seconds,
        }
    }
}

/// A metric that is read from a field of a topic's rows.
pub struct Row {
    /// As in `netchan show TOPIC`.
    pub topic: &'static str,
    /// Of a row.
    pub field: &'static str,
    /// Without `netchan_` and `_total`.
    pub name: &'static str,
    /// Its unit, at the end of its name.
    pub unit: Option<Base>,
    pub kind: Kind,
    /// A row's fields that say which one it is, with the labels' names.
    pub labels: &'static [(&'static str, &'static str)],
    /// One more label, where several fields are one metric.
    pub also: Option<(&'static str, &'static str)>,
    pub help: &'static str,
}

const LINK: &[(&str, &str)] = &[("link", "name")];
const CHANNEL: &[(&str, &str)] = &[("link", "link"), ("shard", "shard")];
const SHARD: &[(&str, &str)] = &[("shard", "shard")];
const THREAD: &[(&str, &str)] = &[("thread", "name")];
const MEMORY: &[(&str, &str)] = &[
    ("what", "what"),
    ("of", "of"),
    ("entry_bytes", "each_bytes"),
];
const SOCKETS: &[(&str, &str)] = &[("of", "of")];
const IN: Option<(&str, &str)> = Some(("direction", "in"));
const OUT: Option<(&str, &str)> = Some(("direction", "out"));

const fn row(
    topic: &'static str,
    field: &'static str,
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Row {
    Row {
        topic,
        field,
        name,
        unit: None,
        kind,
        labels,
        also: None,
        help,
    }
}

impl Row {
    const fn with(mut self, also: Option<(&'static str, &'static str)>) -> Self {
        self.also = also;
        self
    }
    const fn bytes(mut self) -> Self {
        self.unit = Some(Base::Bytes);
        self
    }
    const fn seconds(mut self) -> Self {
        self.unit = Some(Base::Seconds);
        self
    }
}

use Kind::{Counter, Gauge};

/// All of them but the stack's counters, whose names come with them.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row("links", "rx_packets", "link_receive_packets", Counter, LINK, "Packets taken from the link."),
    row("links", "rx_bytes", "link_receive", Counter, LINK, "Bytes of packets taken from the link.").bytes(),
    row("links", "tx_packets", "link_transmit_packets", Counter, LINK, "Packets given to the link."),
    row("links", "tx_bytes", "link_transmit", Counter, LINK, "Bytes of packets given to the link.").bytes(),
    row("links", "rx_no_buffer", "link_receive_drops", Counter, LINK, "Packets that the link lost before the stack saw them.").with(Some(("reason", "no_buffer"))),
    row("links", "rx_missed", "link_receive_drops", Counter, LINK, "Packets that the link lost before the stack saw them.").with(Some(("reason", "missed"))),
    row("links", "rx_length", "link_receive_drops", Counter, LINK, "Packets that the link lost before the stack saw them.").with(Some(("reason", "length"))),
    row("links", "tx_errors", "link_transmit_errors", Counter, LINK, "Packets that the link refused."),
    row("links", "wakeups", "link_wakeups", Counter, LINK, "Times that packets woke the link's thread."),
    row("links", "queued_frames", "link_queued_frames", Gauge, LINK, "Frames that wait for the link."),
    row("links", "queues", "link_queues", Gauge, LINK, "Queues of the link."),
    row("links", "mtu_bytes", "link_mtu", Gauge, LINK, "The longest IP packet that the link takes.").bytes(),
    row("channels", "received_packets", "channel_packets", Gauge, CHANNEL, "Packets that wait in a channel between a link and a shard.").with(IN),
    row("channels", "outgoing_packets", "channel_packets", Gauge, CHANNEL, "Packets that wait in a channel between a link and a shard.").with(OUT),
    row("channels", "received_slots", "channel_slots", Gauge, CHANNEL, "Packets that a channel has room for.").with(IN),
    row("channels", "outgoing_slots", "channel_slots", Gauge, CHANNEL, "Packets that a channel has room for.").with(OUT),
    row("channels", "backlog_packets", "backlog_packets", Gauge, CHANNEL, "Packets that wait for the thread that holds the shard."),
    row("channels", "backlog_slots", "backlog_slots", Gauge, CHANNEL, "Packets that a backlog has room for."),
    row("shards", "connections", "shard_connections", Gauge, SHARD, "TCP connections, without those in TIME-WAIT."),
    row("shards", "time_waits", "shard_time_waits", Gauge, SHARD, "TCP connections in TIME-WAIT."),
    row("shards", "listeners", "shard_listeners", Gauge, SHARD, "Listening TCP sockets."),
    row("shards", "udp_sockets", "shard_udp_sockets", Gauge, SHARD, "UDP and ping sockets."),
    row("threads", "cpu_s", "thread_cpu", Counter, THREAD, "Processor time of a thread of the stack's own.").seconds(),
    row("memory", "free", "pool_free", Gauge, MEMORY, "Entries of a pool that are free: buffers, nodes, table rows."),
    row("memory", "all", "pool_size", Gauge, MEMORY, "Entries of a pool."),
    row("memory", "used_bytes", "socket_memory", Gauge, SOCKETS, "Memory that sockets hold.").bytes(),
    row("memory", "limit_bytes", "socket_memory_limit", Gauge, SOCKETS, "Memory that sockets may hold together.").bytes(),
    row("memory", "pressed", "socket_memory_pressed", Counter, SOCKETS, "Times that memory was full, so that sockets had to give some back."),
];

/// What one stack says.
#[derive(Debug)]
pub struct Facts {
    /// As `netchan show` lists it.
    pub stack: String,
    /// Each topic that was asked for; `None`: it gave no answer.
    pub topics: Vec<(&'static str, Option<Value>)>,
    /// Its process, command and version, where it said so.
    pub hello: Option<Value>,
}

/// The topics that metrics are read from.
pub fn topics() -> Vec<&'static str> {
    let mut topics: Vec<_> = ROWS.iter().map(|row| row.topic).collect();
    topics.push("counters");
    topics.sort_unstable();
    topics.dedup();
    topics
}

/// A family's numbers, each with its labels.
#[derive(Debug, PartialEq)]
pub struct Family {
    /// Without `netchan_`, the unit and `_total`.
    pub name: String,
    pub unit: Option<Base>,
    pub kind: Kind,
    pub help: String,
    pub samples: Vec<(Labels, Number)>,
}

/// Names and values; the stack's comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(pub Vec<(String, String)>);

/// As the stack gave it: large counters stay exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Whole(u64),
    Real(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        let whole = value.as_u64().map(Self::Whole);
        whole.or_else(|| value.as_f64().map(Self::Real))
    }
}

/// All families, with the numbers of all stacks. Each family comes once, as the format asks for.
pub fn families(stacks: &[Facts]) -> Vec<Family> {
    let mut families = vec![info(stacks), answered(stacks)];
    for row in ROWS {
        let at = place(&mut families, row.name, row.kind, row.help, || row.unit);
        for facts in stacks {
            for object in rows_of(facts, row.topic) {
                if object["of"] == "application" {
                    continue; // its threads may come and go by the thousand
                }
                let Some(number) = object.get(row.field).and_then(Number::of) else {
                    continue; // another kind of row, or not known
                };
                let labels = labels_of(&facts.stack, row, object);
                families[at].samples.push((labels, number));
            }
        }
    }
    for facts in stacks {
        for object in rows_of(facts, "counters") {
            counter(&mut families, &facts.stack, object);
        }
    }
    families.retain(|family| !family.samples.is_empty());
    families
}

fn rows_of<'a>(facts: &'a Facts, topic: &str) -> &'a [Value] {
    let found = facts.topics.iter().find(|(name, _)| *name == topic);
    let rows = found.and_then(|(_, rows)| rows.as_ref()?.as_array());
    rows.map_or(&[], Vec::as_slice)
}

fn labels_of(stack: &str, row: &Row, object: &Value) -> Labels {
    let mut labels = vec![("stack".to_owned(), stack.to_owned())];
    for &(label, field) in row.labels {
        let value = match object.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => continue,
            Some(other) => other.to_string(),
        };
        labels.push((label.to_owned(), value));
    }
    labels.extend(
        row.also
            .map(|(label, value)| (label.to_owned(), value.to_owned())),
    );
    Labels(labels)
}

/// Where a family of this name is; it is made if there is none.
fn place(
    families: &mut Vec<Family>,
    name: &str,
    kind: Kind,
    help: &str,
    unit: impl FnOnce() -> Option<Base>,
) -> usize {
    if let Some(at) = families.iter().position(|family| family.name == name) {
        return at;
    }
    families.push(Family {
        name: name.to_owned(),
        unit: unit(),
        kind,
        help: help.to_owned(),
        samples: Vec::new(),
    });
    families.len() - 1
}

/// A row of `netchan show counters`: a reason for drops, or a metric of its own.
fn counter(families: &mut Vec<Family>, stack: &str, object: &Value) {
    let text = |field| object.get(field).and_then(Value::as_str);
    let value = object.get("value").and_then(Number::of);
    let (Some(name), Some(help), Some(value)) = (text("name"), text("meaning"), value) else {
        return;
    };
    let mut labels = vec![("stack".to_owned(), stack.to_owned())];
    let (at, value) = if let Some(reason) = name.strip_prefix("drop_") {
        labels.push(("reason".to_owned(), reason.to_owned()));
        let help =
            "Packets that the stack dropped, by reason (docs/metrics.md says what each means).";
        (place(families, "drops", Counter, help, || None), value)
    } else if let (Some(name), Number::Whole(ns)) = (name.strip_suffix("_ns"), value) {
        let help = help.replace(", nanoseconds.", ".");
        let at = place(families, name, Counter, &help, || Some(Base::Seconds));
        (at, Number::Real(ns as f64 / 1e9)) // precision: seconds for a graph
    } else {
        (place(families, name, Counter, help, || None), value)
    };
    families[at].samples.push((Labels(labels), value));
}

/// Which stacks there are.
fn info(stacks: &[Facts]) -> Family {
    let sample = |facts: &Facts| {
        let hello = facts.hello.as_ref()?;
        let text = |field| hello.get(field).and_then(Value::as_str).unwrap_or_default();
        let labels = [
            ("stack", facts.stack.as_str()),
            ("version", text("version")),
            ("command", text("command")),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some((Labels(labels.into()), Number::Whole(1)))
    };
    Family {
        name: "stack_info".to_owned(),
        unit: None,
        kind: Gauge,
        help: "A stack that runs: always 1.".to_owned(),
        samples: stacks.iter().filter_map(sample).collect(),
    }
}

/// Whether a stack gave all its facts: one that hangs is seen by that.
fn answered(stacks: &[Facts]) -> Family {
    let sample = |facts: &Facts| {
        let all = facts.hello.is_some() && facts.topics.iter().all(|(_, rows)| rows.is_some());
        let labels = Labels(vec![("stack".to_owned(), facts.stack.clone())]);
        (labels, Number::Whole(all.into()))
    };
    Family {
        name: "stack_up".to_owned(),
        unit: None,
        kind: Gauge,
        help: "1 if the stack answered all that was asked, else 0.".to_owned(),
        samples: stacks.iter().map(sample).collect(),
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            (name.as_str(), value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// Families as one more source of a registry, which writes them.
#[derive(Debug)]
pub struct Scrape(pub Vec<Family>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                Counter => MetricType::Counter,
                Gauge => MetricType::Gauge,
            };
            let unit = family.unit.map(Unit::from);
            let mut metric =
                encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
            for (labels, number) in &family.samples {
                let mut sample = metric.encode_family(labels)?;
                match (family.kind, number) {
                    (Counter, Number::Whole(n)) => {
                        sample.encode_counter::<NoLabelSet, u64, f64>(n, None)?
                    }
                    (Counter, Number::Real(n)) => {
                        sample.encode_counter::<NoLabelSet, f64, f64>(n, None)?
                    }
                    (Gauge, Number::Whole(n)) => sample.encode_gauge(n)?,
                    (Gauge, Number::Real(n)) => sample.encode_gauge(n)?,
                }
            }
        }
        Ok(())
    }
}
