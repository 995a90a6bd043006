//! Pages of live stacks, the documents that are made from them, and the server.

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use netchan::{Dispatch, Net, Regime, link::wire};
use serde_json::{Value, json};

use super::{
    Format,
    families::{self, Facts, Family, Kind, Labels, Number},
    write,
};
use crate::failure::Failure;

/// What a stack says that has seen nothing: the second one has backlogs, any other channels.
fn facts(stack: &str) -> Facts {
    let (regime, dispatch) = match stack {
        "2" => (Regime::Locked, Dispatch::Hybrid),
        _ => (Regime::AppChannel, Dispatch::Direct),
    };
    let (end, _other) = wire::pair(&wire::Options::default());
    let net = Net::builder()
        .regime(regime)
        .dispatch(dispatch)
        .link_with(Box::new(end))
        .address("10.0.0.1/24")
        .and_then(netchan::Builder::start)
        .expect("a stack");
    let topics = families::topics().into_iter();
    let mut topics: Vec<_> = topics.map(|topic| (topic, net.show(topic))).collect();
    for (topic, rows) in &mut topics {
        for row in rows
            .as_mut()
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            match *topic {
                "threads" => row["cpu_s"] = json!(0.25), // not known while it starts
                "links" => row["wakeups"] = json!(0),    // nor of a link without a descriptor
                _ => {}
            }
        }
    }
    Facts {
        stack: stack.to_owned(),
        topics,
        hello: Some(json!({ "command": "a \"quoted\"\n\\ one", "version": "1.2.3" })),
    }
}

fn all() -> Vec<Family> {
    // Between them they have every row: channels, and backlogs.
    families::families(&[facts("1"), facts("2")])
}

impl Family {
    /// As it is written, the name in full.
    fn full_name(&self) -> String {
        let unit = self.unit.map(prometheus_client::registry::Unit::from);
        let unit = unit.map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        let total = if self.kind == Kind::Counter {
            "_total"
        } else {
            ""
        };
        format!("netchan_{}{unit}{total}", self.name)
    }

    /// Names of labels, but for the stack's.
    fn labels(&self) -> Vec<&str> {
        let (labels, _) = &self.samples[0];
        let names = labels.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| *name != "stack").collect()
    }
}

/// A row that no stack has is one whose field changed its name.
#[test]
fn every_row_has_a_number() {
    let families = all();
    for row in families::ROWS {
        let family = families.iter().find(|family| family.name == row.name);
        let has = |(labels, _): &(Labels, Number)| {
            row.also
                .is_none_or(|(name, value)| labels.0.contains(&(name.into(), value.into())))
        };
        assert!(
            family.is_some_and(|family| family.samples.iter().any(has)),
            "{} {}",
            row.topic,
            row.field
        );
    }
}

/// The rules of both formats that a careless table would break: a family is one block, and no sample comes twice.
#[test]
fn pages_are_well_formed() {
    let facts = [facts("1"), facts("2")];
    for format in [Format::Prometheus, Format::Openmetrics] {
        let page = write(&facts, format).expect("a page");
        let (mut types, mut samples) = (HashSet::new(), HashSet::new());
        let mut family = String::new();
        for line in page.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap_or_default().to_owned();
                assert!(types.insert(family.clone()), "{line} again");
            } else if !line.starts_with('#') {
                let (key, value) = line.rsplit_once(' ').expect("a sample");
                assert!(key.starts_with(&family), "{line} is not of {family}");
                assert!(samples.insert(key.to_owned()), "{line} again");
                value.parse::<f64>().expect("a number");
            }
        }
        assert!(types.len() > 40 && samples.len() > 300, "{page}");
        assert_eq!(page.ends_with("# EOF\n"), format == Format::Openmetrics);
        assert!(page.contains(r#"command="a \"quoted\"\n\\ one""#), "{page}");
        assert!(page.contains("\nnetchan_drops_total{stack=\"2\",reason=\"tcp_checksum\"} 0\n"));
        assert!(
            page.contains("\nnetchan_link_mtu_bytes{stack=\"1\",link=\"wire\"} 1500\n"),
            "{page}"
        );
    }
}

#[test]
fn large_counters_stay_exact() {
    let counter = json!([{ "name": "frames_in", "value": u64::MAX - 1, "meaning": "Frames." },
        { "name": "giant_wait_ns", "value": 1_500_000_000, "meaning": "Waited, nanoseconds." }]);
    let facts = Facts {
        stack: "1".into(),
        topics: vec![("counters", Some(counter))],
        hello: None,
    };
    let page = write(&[facts], Format::Prometheus).expect("a page");
    assert!(
        page.contains("netchan_frames_in_total{stack=\"1\"} 18446744073709551614\n"),
        "{page}"
    );
    assert!(
        page.contains("netchan_giant_wait_seconds_total{stack=\"1\"} 1.5\n"),
        "{page}"
    );
}

/// One stack that hangs is seen, and hides no other.
#[test]
fn stack_that_does_not_answer_is_down() {
    let silent = Facts {
        stack: "9".into(),
        topics: vec![("links", None)],
        hello: None,
    };
    let garbled = Facts {
        stack: "8".into(),
        topics: vec![
            ("links", Some(json!({ "name": 1 }))),
            ("counters", Some(json!([1, "a", null]))),
        ],
        hello: Some(Value::Null),
    };
    let page = write(&[silent, facts("1"), garbled], Format::Prometheus);
    let page = page.expect("a page");
    for (stack, up) in [("9", 0), ("1", 1), ("8", 1)] {
        assert!(
            page.contains(&format!("netchan_stack_up{{stack=\"{stack}\"}} {up}\n")),
            "{page}"
        );
    }
    assert!(
        page.contains("netchan_frames_in_total{stack=\"1\"} 0\n"),
        "{page}"
    );
}

/// `NETCHAN_RECORD=1 cargo test -p netchan-cli metrics` writes the tables of the document anew.
#[test]
fn the_document_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(path).expect("docs/metrics.md");
    let mut table =
        String::from("| metric | type | labels | what it counts |\n| --- | --- | --- | --- |\n");
    for family in all() {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let (name, labels) = (family.full_name(), family.labels().join(", "));
        table += &format!("| `{name}` | {kind} | {labels} | {} |\n", family.help);
    }
    let mut reasons = String::from("| reason | what was dropped |\n| --- | --- |\n");
    let counters = facts("1").topics;
    let counters = counters.iter().find(|(topic, _)| *topic == "counters");
    for row in counters
        .and_then(|(_, rows)| rows.as_ref()?.as_array())
        .expect("counters")
    {
        let text = |field| row[field].as_str().expect("text");
        if let Some(reason) = text("name").strip_prefix("drop_") {
            let meaning = text("meaning")
                .trim_start_matches("Drop: ")
                .trim_start_matches("Drop ");
            reasons += &format!("| `{reason}` | {meaning} |\n");
        }
    }
    let mut made = document.clone();
    for (mark, table) in [("<!-- metrics -->", table), ("<!-- reasons -->", reasons)] {
        let (before, rest) = made.split_once(mark).expect(mark);
        let rest = rest.trim_start();
        let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        made = format!("{before}{mark}\n\n{table}{}", &rest[end..]);
    }
    if std::env::var_os("NETCHAN_RECORD").is_some() {
        std::fs::write(path, &made).expect("the document can be written");
    } else {
        assert!(
            made == document,
            "docs/metrics.md is not what the table says: NETCHAN_RECORD=1 writes it anew"
        );
    }
}

/// The dashboard asks for metrics that there are, by labels that they have.
#[test]
fn the_dashboard_names_metrics_that_there_are() {
    let dashboard = include_str!("../../../../docs/grafana/netchan.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let document = include_str!("../../../../docs/metrics.md");
    let mut seen = 0;
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    for expression in targets.map(|target| target["expr"].as_str().expect("an expression")) {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("netchan_")) {
            assert!(
                document.contains(&format!("| `{name}` |")),
                "{name} in {expression}"
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} names");
}

/// Serves a fixed page from a thread that lives as long as the process; where.
fn served(token: Option<&str>) -> SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let file = token.map(|token| {
        let name = format!("netchan-metrics-{}-{}", std::process::id(), address.port());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, format!("{token}\n")).expect("a file");
        file
    });
    std::thread::spawn(move || {
        let time = Duration::from_millis(300);
        super::serve::serve(address, file.as_deref(), time, |format| {
            Ok(format!("{format:?}\n"))
        })
    });
    for _ in 0..500 {
        if TcpStream::connect(address).is_ok() {
            return address;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing listens at {address}");
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn requests_are_answered_as_http_says() {
    let address = served(None);
    let get = |path: &str, more: &str| {
        ask(
            address,
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n"),
        )
    };
    let answer = get("/metrics", "");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nPrometheus\n"),
        "{answer}"
    );
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    let answer = get(
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
    );
    assert!(
        answer.ends_with("Openmetrics\n") && answer.contains("version=1.0.0"),
        "{answer}"
    );
    assert!(get("/", "").starts_with("HTTP/1.1 404 "));
    assert!(
        ask(
            address,
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        )
        .starts_with("HTTP/1.1 405 ")
    );
    assert!(ask(address, "\u{16}\u{3}\u{1} no HTTP\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn token_is_asked_for() {
    let address = served(Some("secret"));
    let with = |header: &str| {
        ask(
            address,
            &format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{header}\r\n"),
        )
    };
    assert!(with("Authorization: Bearer secret\r\n").starts_with("HTTP/1.1 200 "));
    for wrong in [
        "",
        "Authorization: Bearer secre\r\n",
        "Authorization: Bearer secret2\r\n",
        "Authorization: Basic secret\r\n",
    ] {
        assert!(with(wrong).starts_with("HTTP/1.1 401 "), "{wrong}");
    }
}

/// More clients that say nothing than there may be connections: they are let go, and the next is served.
#[test]
fn silent_clients_hold_nothing_for_long() {
    let address = served(None);
    let silent: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(address).expect("a connection"))
        .collect();
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(silent);
}

#[test]
fn address_for_everyone_needs_a_token() {
    let serve = |address: &str, token: Option<&Path>| {
        let address = address.parse().expect("an address");
        super::serve::serve(address, token, Duration::ZERO, |_| Ok(String::new()))
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let refused = serve(address, None);
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("--token-file")));
    }
    let refused = serve("127.0.0.1:0", Some(Path::new("/nonexistent/token")));
    assert!(matches!(refused, Err(Failure::Failed(why)) if why.contains("/nonexistent/token")));
}
