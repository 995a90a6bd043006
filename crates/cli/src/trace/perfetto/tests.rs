//! The export, read again.

use serde_json::{Value, json};

use super::{
    decode::{Decoded, decode},
    export,
};

fn event(at: u64, thread: u64, name: &str, args: Value) -> Value {
    json!({ "at_ns": at, "thread": thread, "event": name, "text": name, "args": args })
}

fn found(events: Vec<Value>) -> Value {
    let threads =
        json!([{ "thread": 10, "name": "netchan-link0" }, { "thread": 20, "name": "app" }]);
    json!({ "level": "all", "trigger": null, "now_ns": 10_000, "threads": threads, "events": events })
}

#[test]
fn packets_are_flows_locks_slices_and_channels_counters() {
    let on = |shard: u64| json!({ "shard": shard });
    let packet = |id: u64| json!({ "shard": 0, "packet": id });
    let events = vec![
        event(100, 0, "packet-in", packet(7)),
        event(100, 0, "packet-in", packet(8)),
        event(120, 0, "packet-hand", packet(7)),
        event(
            121,
            0,
            "depth-in",
            json!({ "queue": 0, "shard": 0, "packets": 1 }),
        ),
        event(190, 1, "lock-waited", json!({ "shard": 0, "time_ns": 60 })),
        event(200, 1, "turn-begin", on(0)),
        event(210, 1, "packet-take", packet(7)),
        event(220, 1, "packet-done", packet(7)),
        event(
            221,
            1,
            "depth-in",
            json!({ "queue": 0, "shard": 0, "packets": 0 }),
        ),
        event(222, 1, "shard-drop", json!({ "shard": 0, "reason": 3 })),
        event(230, 1, "turn-end", on(0)),
        event(300, 1, "packet-read", packet(7)),
        event(310, 1, "sleep", json!({})),
        event(400, 1, "wake", json!({})),
    ];
    let all: Decoded = decode(&export(&found(events), 4711).to_string());
    assert_eq!(all.threads[&10], "netchan-link0 10");
    let slices = &all.slices[&20];
    let of = |name: &str| {
        slices
            .iter()
            .find(|(n, ..)| n == name)
            .map(|(_, from, to)| (*from, *to))
    };
    assert_eq!(of("holds shard 0"), Some((200, 230)));
    assert_eq!(of("packet"), Some((210, 220)));
    assert_eq!(of("waits for shard 0"), Some((130, 190)));
    assert_eq!(of("sleeps"), Some((310, 400)));
    let places = [
        ('s', 10, 100),
        ('t', 10, 120),
        ('t', 20, 210),
        ('f', 20, 300),
    ];
    assert_eq!(all.flows["0x7"], places);
    assert!(!all.flows.contains_key("0x8"), "it was in one place only");
    assert_eq!(all.counters["queue 0 to shard 0"], [(121, 1), (221, 0)]);
    assert_eq!(all.instants, [("shard-drop".to_owned(), 222)]);
}

#[test]
fn ends_without_begins_and_begins_without_ends() {
    let events = vec![
        event(100, 0, "turn-end", json!({ "shard": 0 })),
        event(110, 0, "wake", json!({})),
        event(120, 0, "shard-led", json!({ "shard": 1 })),
        event(130, 0, "turn-begin", json!({ "shard": 1 })),
        event(140, 0, "sleep", json!({})), // the turn's end was overwritten, as it may be by another version
        event(150, 0, "shard-left", json!({ "shard": 1 })),
        event(160, 0, "turn-begin", json!({ "shard": 2 })),
        event(170, 0, "packet-take", json!({ "packet": 1 })),
        event(170, 0, "packet-read", json!({ "packet": 1 })),
        event(170, 0, "packet-read", json!({ "packet": 2 })),
        event(
            170,
            0,
            "lock-waited",
            json!({ "shard": 9, "time_ns": u64::MAX }),
        ),
    ];
    let all = decode(&export(&found(events), 1).to_string());
    let slices = &all.slices[&10];
    assert!(
        slices.contains(&("leads shard 1".to_owned(), 120, 150)),
        "{slices:?}"
    );
    assert!(
        slices.contains(&("holds shard 1".to_owned(), 130, 150)),
        "{slices:?}"
    );
    assert!(
        slices.contains(&("holds shard 2".to_owned(), 160, 10_000)),
        "a thread that hangs"
    );
    assert_eq!(all.flows["0x1"].len(), 2);
    assert!(slices.iter().any(|(name, ..)| name == "waits for shard 9"));
}

#[test]
fn an_answer_that_makes_no_sense_is_exported_without_a_panic() {
    let odd = [
        json!(null),
        json!([1, 2]),
        json!({ "events": [], "threads": [] }),
        json!({ "events": [{}, null, 5, "x", { "thread": -1 }, { "thread": u64::MAX }], "threads": [{ "thread": 1 }] }),
        json!({ "events": [{ "thread": 0, "event": "packet-in", "at_ns": "soon", "args": [1] }], "threads": [{ "thread": 1 }] }),
        json!({ "events": [{ "thread": 0, "event": "\u{1b}[2J", "at_ns": -5, "args": { "packet": 1.5 } }], "threads": [{ "thread": 1 }] }),
        json!({ "events": [
            { "thread": 0, "event": "packet-in", "at_ns": u64::MAX, "args": { "packet": 1 } },
            { "thread": 0, "event": "turn-begin", "at_ns": u64::MAX, "args": {} },
            { "thread": 0, "event": "packet-read", "at_ns": u64::MAX, "args": { "packet": 1 } },
        ], "threads": [{ "thread": 1 }] }),
    ];
    for found in odd {
        let text = export(&found, 1).to_string();
        let whole: Value = serde_json::from_str(&text).unwrap();
        assert!(whole["traceEvents"].is_array(), "{text}");
    }
}
