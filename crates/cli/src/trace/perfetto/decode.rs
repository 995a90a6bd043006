//! An exported file decoded, and what every one must have: slices nest, times do not go back, a packet begins and ends once and is bound to slices.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// An event of the format, with what its phase must have.
#[derive(Debug, Deserialize)]
#[serde(tag = "ph")]
enum Event {
    #[serde(rename = "M")]
    Name {
        name: String,
        tid: Option<u32>,
        args: Named,
    },
    #[serde(rename = "X")]
    Slice {
        name: String,
        ts: f64,
        dur: f64,
        tid: u32,
        args: Value,
    },
    #[serde(rename = "i")]
    Instant {
        name: String,
        ts: f64,
        tid: u32,
        s: String,
    },
    #[serde(rename = "C")]
    Counter {
        name: String,
        ts: f64,
        args: BTreeMap<String, u64>,
    },
    #[serde(rename = "s")]
    Begin(Flow),
    #[serde(rename = "t")]
    Step(Flow),
    #[serde(rename = "f")]
    Finish(Flow),
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Flow {
    name: String,
    cat: String,
    id: String,
    ts: f64,
    tid: u32,
    bp: Option<String>,
}

/// What was decoded.
#[derive(Debug, Default)]
pub struct Decoded {
    pub threads: BTreeMap<u32, String>,
    /// Name, begin and end, by thread, in the file's order.
    pub slices: BTreeMap<u32, Vec<(String, i64, i64)>>,
    pub instants: Vec<(String, i64)>,
    pub counters: BTreeMap<String, Vec<(i64, u64)>>,
    /// Phase, thread and time, by the packet.
    pub flows: BTreeMap<String, Vec<(char, u32, i64)>>,
}

/// Nanoseconds, whole again.
#[allow(clippy::cast_possible_truncation)]
fn ns(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

/// Decodes an export, and checks what any must have.
pub fn decode(text: &str) -> Decoded {
    let whole: Value = serde_json::from_str(text).unwrap();
    assert_eq!(whole["displayTimeUnit"], "ns");
    let mut all = Decoded::default();
    let pid = &whole["traceEvents"][0]["pid"];
    let mut last = i64::MIN;
    let mut in_order = |ts: f64| {
        assert!(ns(ts) >= last, "time goes back");
        last = ns(ts);
        last
    };
    for event in whole["traceEvents"].as_array().unwrap() {
        assert_eq!(&event["pid"], pid, "{event}");
        match Event::deserialize(event).unwrap_or_else(|e| panic!("{e}: {event}")) {
            Event::Name { name, tid, args } => {
                if name == "thread_name" {
                    all.threads.insert(tid.unwrap(), args.name);
                }
            }
            Event::Slice {
                name,
                ts,
                dur,
                tid,
                args,
            } => {
                assert!(args["text"].is_string(), "{event}");
                let at = in_order(ts);
                all.slices
                    .entry(tid)
                    .or_default()
                    .push((name, at, at + ns(dur)));
            }
            Event::Instant { name, ts, tid, s } => {
                assert!(s == "t" && all.threads.contains_key(&tid), "{event}");
                all.instants.push((name, in_order(ts)));
            }
            Event::Counter { name, ts, args } => {
                let at = in_order(ts);
                all.counters
                    .entry(name)
                    .or_default()
                    .push((at, args["packets"]));
            }
            Event::Begin(flow) => all.flow('s', &flow, in_order(flow.ts)),
            Event::Step(flow) => all.flow('t', &flow, in_order(flow.ts)),
            Event::Finish(flow) => {
                assert_eq!(flow.bp.as_deref(), Some("e"));
                all.flow('f', &flow, in_order(flow.ts));
            }
        }
    }
    all.check();
    all
}

impl Decoded {
    fn flow(&mut self, phase: char, flow: &Flow, at: i64) {
        assert_eq!(
            (flow.name.as_str(), flow.cat.as_str()),
            ("packet", "packet")
        );
        // It is bound to the innermost slice that is open on its thread: the last one in the file that has not ended.
        let slices = self.slices.get(&flow.tid).map_or(&[][..], Vec::as_slice);
        let around = slices
            .iter()
            .rev()
            .find(|(_, from, to)| *from <= at && at < *to);
        let (name, from, _) =
            around.unwrap_or_else(|| panic!("no slice for {phase} of {}", flow.id));
        assert!(name.starts_with("packet") && *from == at, "{name}");
        self.flows
            .entry(flow.id.clone())
            .or_default()
            .push((phase, flow.tid, at));
    }

    fn check(&self) {
        for (thread, slices) in &self.slices {
            assert!(
                self.threads.contains_key(thread),
                "thread {thread} has a name"
            );
            let mut open: Vec<(&str, i64)> = Vec::new();
            for (name, from, to) in slices {
                while open.last().is_some_and(|(_, end)| end <= from) {
                    open.pop();
                }
                if let Some((outer, end)) = open.last() {
                    assert!(
                        to <= end,
                        "{name} to {to} ends behind {outer} to {end}, around it"
                    );
                }
                open.push((name, *to));
            }
        }
        for (packet, places) in &self.flows {
            let phases: String = places.iter().map(|(phase, ..)| phase).collect();
            let steps = phases.trim_start_matches('s').trim_end_matches('f');
            let ends = (phases.matches('s').count(), phases.matches('f').count());
            assert!(
                ends == (1, 1) && steps.chars().all(|c| c == 't'),
                "{packet}: {phases}"
            );
        }
    }
}
