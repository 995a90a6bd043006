//! `netchan show sockets` as ss(8) does it: filters in its words, a process for each socket, a summary.

mod filter;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use self::filter::Filter;
use crate::{
    output::printable,
    table::{self, list},
};

/// What a table has of a socket; `--info` and `--json` have the rest.
const COLUMNS: [&str; 12] = [
    "protocol",
    "state",
    "local",
    "remote",
    "receive_bytes",
    "send_bytes",
    "receive_datagrams",
    "accept_queue",
    "rtt_us",
    "cwnd_bytes",
    "retransmits",
    "process",
];

/// Those of `rows` that `filter` lets through, each with the process that has it. Rows that stand for what could not be looked at stay.
pub fn select(rows: &mut Vec<Value>, filter: &Filter, process: Option<&str>) {
    rows.retain(|row| row.get("protocol").is_none() || filter.admits(row));
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        if let (Some(process), true) = (process, row.contains_key("protocol")) {
            row.insert("process".to_owned(), json!(process));
        }
    }
}

/// `redis-server/4711` of a command line and its process.
pub fn process(hello: &Value) -> Option<String> {
    let command = hello.get("command")?.as_str()?.split(' ').next()?;
    let name = command.rsplit('/').next().unwrap_or(command);
    Some(format!("{name}/{}", hello.get("pid")?))
}

/// As a table of what is asked for most.
pub fn brief(rows: &[Value]) -> String {
    let has = |name: &&str| rows.iter().any(|row| row.get(*name).is_some());
    let columns: Vec<&str> = COLUMNS.into_iter().filter(has).collect();
    let short = rows.iter().map(|row| {
        if row.get("protocol").is_none() {
            return row.clone(); // what could not be looked at
        }
        let cell = |name: &&str| {
            let value = row.get(*name).cloned().unwrap_or_default();
            // As ss has it: what waits, of how many that may.
            match row.get("accept_queue_max") {
                Some(most) if *name == "accept_queue" => json!(format!("{value} of {most}")),
                _ => value,
            }
        };
        let row = columns.iter().map(|name| ((*name).to_owned(), cell(name)));
        Value::Object(row.collect())
    });
    table::render(&Value::Array(short.collect()))
}

/// Each socket with all that is known of it, in lines below its addresses.
pub fn in_full(rows: &[Value]) -> String {
    let mut page = String::new();
    for row in rows.iter().filter_map(Value::as_object) {
        let text = |name| row.get(name).and_then(Value::as_str).map(printable);
        let head = ["protocol", "state", "local", "remote", "process"].map(text);
        let head: Vec<String> = head.into_iter().flatten().collect();
        page.push_str(&head.join("  "));
        page.push('\n');
        let rest = row.iter().filter(|(name, value)| {
            !["protocol", "state", "local", "remote", "process"].contains(&name.as_str())
                && !value.is_null()
        });
        page.push_str(&list(rest, 4));
    }
    if page.is_empty() {
        "(none)\n".to_owned()
    } else {
        page
    }
}

/// How many sockets of each kind and state there are.
pub fn summary(rows: &[Value]) -> Value {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in rows {
        let text = |name| row.get(name).and_then(Value::as_str);
        if let (Some(protocol), Some(state)) = (text("protocol"), text("state")) {
            *counts.entry((protocol, state)).or_default() += 1;
        }
    }
    let row = |((protocol, state), sockets): ((&str, &str), u64)| json!({ "protocol": protocol, "state": state, "sockets": sockets });
    Value::Array(counts.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Value> {
        vec![
            json!({ "protocol": "tcp", "shard": 0, "state": "LISTEN", "local": "0.0.0.0:80", "remote": null,
                "accept_queue": 1, "accept_queue_max": 128, "syn_queue": 0 }),
            json!({ "protocol": "tcp", "shard": 0, "state": "ESTAB", "local": "10.0.0.1:80", "remote": "10.0.0.2:4000",
                "receive_bytes": 0, "send_bytes": 20, "rtt_us": 120, "cwnd_bytes": 14600, "retransmits": 3, "congestion": "cubic" }),
            json!({ "shard": 1, "held_by": "a thread that hangs" }),
        ]
    }

    #[test]
    fn tables_name_the_process_and_what_waits() {
        let mut rows = rows();
        let hello = json!({ "pid": 12, "command": "/usr/bin/nginx -g x" });
        select(&mut rows, &Filter::default(), process(&hello).as_deref());
        let page = brief(&rows);
        assert!(
            page.contains("1 of 128") && page.contains("nginx/12"),
            "{page}"
        );
        assert!(page.contains("120 µs") && !page.contains("cubic"), "{page}");
        let page = in_full(&rows);
        assert!(
            page.contains("tcp  ESTAB  10.0.0.1:80  10.0.0.2:4000  nginx/12\n"),
            "{page}"
        );
        assert!(
            page.contains("congestion cubic") && page.contains("rtt 120 µs"),
            "{page}"
        );
        assert!(page.contains("held by a thread that hangs"), "{page}");
        assert_eq!(in_full(&[]), "(none)\n");
    }

    #[test]
    fn summary_counts_states() {
        let expected = json!([
            { "protocol": "tcp", "state": "ESTAB", "sockets": 1 },
            { "protocol": "tcp", "state": "LISTEN", "sockets": 1 },
        ]);
        assert_eq!(summary(&rows()), expected);
    }
}
