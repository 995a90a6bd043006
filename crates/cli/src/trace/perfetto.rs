//! The trace as ui.perfetto.dev and chrome://tracing take it: the JSON of the Trace Event Format.
//!
//! Each thread is a track. What it does for a time is a slice on it: it holds a shard, waits for a lock, sleeps, leads a shard, has a packet in the
//! protocol. A packet is a flow, from its link's thread to the application's; channels are counters, everything else is an instant.
//!
//! What the rings hold begins and ends anywhere: an end whose begin was overwritten is left out, and what had not ended ends with the export. A
//! thread has one event at a time, so on its track time never stands still for two slices, and slices nest.

use std::{cmp::Reverse, collections::BTreeMap};

use serde_json::{Map, Value, json};

#[cfg(test)]
mod decode;
#[cfg(test)]
mod tests;

/// The length of what has none: a slice that flows can be bound to has to have one.
const POINT_NS: u64 = 1;

/// What an event is on its thread's track.
enum Kind {
    /// A slice begins: its name, and what events end it.
    Begin(String, &'static str),
    /// The slice that was begun under this name ends.
    End(&'static str),
    /// A slice that ends here, and lasted so long.
    Waited(String, u64),
    /// A packet was here.
    Packet,
    /// How many packets a channel holds.
    Depth(String),
    /// Something happened.
    Instant,
}

fn kind(name: &str, event: &Value) -> Kind {
    let args = &event["args"];
    let shard = || args["shard"].as_u64().unwrap_or(0);
    match name {
        "turn-begin" => Kind::Begin(format!("holds shard {}", shard()), "turn"),
        "turn-end" => Kind::End("turn"),
        "sleep" => Kind::Begin("sleeps".to_owned(), "sleep"),
        "wake" => Kind::End("sleep"),
        "shard-led" => Kind::Begin(format!("leads shard {}", shard()), "lead"),
        "shard-left" => Kind::End("lead"),
        "packet-take" => Kind::Begin("packet".to_owned(), "packet"),
        "packet-done" => Kind::End("packet"),
        "packet-in" | "packet-hand" | "packet-wake" | "packet-read" => Kind::Packet,
        "lock-waited" => Kind::Waited(
            format!("waits for shard {}", shard()),
            args["time_ns"].as_u64().unwrap_or(0),
        ),
        "giant-waited" => Kind::Waited(
            "waits for Giant".to_owned(),
            args["time_ns"].as_u64().unwrap_or(0),
        ),
        "depth-in" => Kind::Depth(format!("queue {} to shard {}", args["queue"], shard())),
        "depth-out" => Kind::Depth(format!("shard {} to queue {}", shard(), args["queue"])),
        _ => Kind::Instant,
    }
}

/// A slice that has begun.
struct Open {
    name: String,
    ends_by: &'static str,
    at: u64,
    args: Value,
}

/// A thread.
struct Track {
    number: Value,
    /// Slices inside of each other.
    open: Vec<Open>,
    /// Until when it was occupied by what came before.
    busy: u64,
}

/// What is written, to be put in order by time; at one time a slice stands before what is inside it, and that before what is bound to it.
struct Written {
    at: u64,
    rank: u8,
    duration: Reverse<u64>,
    event: Value,
}

struct Export {
    pid: u32,
    tracks: Vec<Track>,
    written: Vec<Written>,
    /// Where each packet was, and when.
    packets: BTreeMap<u64, Vec<(u64, Value)>>,
}

/// All that was found, of the process with this number.
pub fn export(found: &Value, pid: u32) -> Value {
    let threads = found["threads"].as_array().into_iter().flatten();
    let track = |thread: &Value| Track {
        number: thread["thread"].clone(),
        open: Vec::new(),
        busy: 0,
    };
    let mut export = Export {
        pid,
        tracks: threads.clone().map(track).collect(),
        written: Vec::new(),
        packets: BTreeMap::new(),
    };
    let mut last = found["now_ns"].as_u64().unwrap_or(0);
    for event in found["events"].as_array().into_iter().flatten() {
        last = last.max(export.take(event));
    }
    export.end(last);
    export.flows();
    export.written.sort_by_key(|w| (w.at, w.rank, w.duration));
    let process =
        json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": "netchan" } });
    let mut events = vec![process];
    events.extend(threads.map(|thread| {
        let (tid, args) = (&thread["thread"], json!({ "name": super::label(thread) }));
        json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args })
    }));
    events.extend(export.written.into_iter().map(|written| written.event));
    json!({
        "traceEvents": events, "displayTimeUnit": "ns",
        "otherData": { "recorded": found["level"], "trigger": found["trigger"] },
    })
}

/// Microseconds, as the format wants them. Precision: since the machine started there were fewer than 2^52 ns for 52 days, then it is 2 ns.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Export {
    /// Takes an event, the next one in time; when it was over.
    fn take(&mut self, event: &Value) -> u64 {
        let number = event["thread"].as_u64();
        let number = number.and_then(|number| usize::try_from(number).ok());
        let Some(track) = number.and_then(|number| self.tracks.get_mut(number)) else {
            return 0; // of no thread that there is
        };
        let name = event["event"].as_str().unwrap_or("?");
        let free = track.busy;
        let at = event["at_ns"].as_u64().unwrap_or(0).max(free);
        let (thread, args) = (track.number.clone(), arguments(event));
        let kind = kind(name, event);
        track.busy = match kind {
            Kind::Packet => at.saturating_add(POINT_NS),
            _ => at,
        };
        match kind {
            Kind::Begin(name, ends_by) => {
                track.open.push(Open {
                    name,
                    ends_by,
                    at,
                    args,
                });
                if ends_by == "packet" {
                    self.packet(event, at, thread);
                }
            }
            Kind::End(ends_by) => {
                let begun = track.open.iter().rposition(|open| open.ends_by == ends_by);
                let ended = begun.map_or_else(Vec::new, |begun| track.open.split_off(begun));
                for open in ended {
                    self.slice(&thread, &open.name, (open.at, at), open.args);
                }
            }
            // It began behind what was before it, so that it lies inside what is open.
            Kind::Waited(name, ns) => {
                self.slice(&thread, &name, (at.saturating_sub(ns).max(free), at), args);
            }
            Kind::Packet => {
                self.slice(&thread, name, (at, at.saturating_add(POINT_NS)), args);
                self.packet(event, at, thread);
            }
            Kind::Depth(name) => self.depth(&name, at, &event["args"]),
            Kind::Instant => {
                let instant = json!({
                    "ph": "i", "name": name, "cat": "event", "ts": us(at), "pid": self.pid, "tid": thread, "s": "t", "args": args,
                });
                self.write(at, 1, 0, instant);
            }
        }
        at.saturating_add(POINT_NS)
    }

    fn write(&mut self, at: u64, rank: u8, duration: u64, event: Value) {
        self.written.push(Written {
            at,
            rank,
            duration: Reverse(duration),
            event,
        });
    }

    fn slice(&mut self, thread: &Value, name: &str, (from, to): (u64, u64), args: Value) {
        let duration = to.saturating_sub(from);
        let event = json!({
            "ph": "X", "name": name, "cat": "slice", "ts": us(from), "dur": us(duration), "pid": self.pid, "tid": thread, "args": args,
        });
        self.write(from, 0, duration, event);
    }

    fn depth(&mut self, channel: &str, at: u64, args: &Value) {
        let packets = args["packets"].as_u64().unwrap_or(0);
        let event = json!({
            "ph": "C", "name": channel, "cat": "channel", "ts": us(at), "pid": self.pid, "args": { "packets": packets },
        });
        self.write(at, 1, 0, event);
    }

    /// A packet was on a thread, where a slice begins at this moment.
    fn packet(&mut self, event: &Value, at: u64, thread: Value) {
        if let Some(packet) = event["args"]["packet"].as_u64() {
            self.packets.entry(packet).or_default().push((at, thread));
        }
    }

    /// Ends what has not ended.
    fn end(&mut self, at: u64) {
        for number in 0..self.tracks.len() {
            let track = &mut self.tracks[number];
            let (thread, open) = (track.number.clone(), std::mem::take(&mut track.open));
            for mut open in open {
                open.args["unfinished"] = json!(true);
                self.slice(&thread, &open.name, (open.at, at), open.args);
            }
        }
    }

    /// Joins the places where a packet was. Where the rings hold one only, there is nothing to join.
    fn flows(&mut self) {
        for (packet, mut places) in std::mem::take(&mut self.packets) {
            // The clocks of two cores may differ by some ns: in order of time, since arrows cannot go back.
            places.sort_by_key(|(at, _)| *at);
            let last = places.len() - 1;
            for (number, (at, thread)) in places.into_iter().enumerate().filter(|_| last > 0) {
                let phase = match number {
                    0 => "s",
                    _ if number == last => "f",
                    _ => "t",
                };
                let mut event = json!({
                    "ph": phase, "name": "packet", "cat": "packet", "id": format!("{packet:#x}"), "ts": us(at), "pid": self.pid, "tid": thread,
                });
                if phase == "f" {
                    event["bp"] = json!("e"); // bound to the slice around it, as the others are
                }
                self.write(at, 1, 0, event);
            }
        }
    }
}

/// What is shown of an event: its figures, and its text.
fn arguments(event: &Value) -> Value {
    let mut args = match &event["args"] {
        Value::Object(args) => args.clone(),
        _ => Map::new(), // another version's
    };
    args.insert("text".to_owned(), event["text"].clone());
    Value::Object(args)
}
