//! Frames of given answers, of every size, with everything that can be wrong in them.

use std::time::Duration;

use ratatui::{Terminal, backend::TestBackend};
use serde_json::{Value, json};

use super::*;
use crate::{
    look::{
        order::Order,
        sample::{Sample, of_answers},
    },
    show::Filter,
    top::view::Draft,
};

const S: u64 = 1_000_000_000;

fn connection(remote: &str, received: u64, sent: u64) -> Value {
    json!({ "protocol": "tcp", "shard": 0, "state": "ESTAB", "local": "10.77.0.2:80", "remote": remote,
        "receive_bytes": 0, "send_bytes": 4096, "rtt_us": 120, "cwnd_bytes": 14600, "retransmits": sent / 1000,
        "received_bytes": received, "sent_bytes": sent })
}

/// What a stack says after so many seconds.
fn answer(topic: &str, seconds: u64) -> Value {
    match topic {
        "hello" => json!({ "process": "python3/4711" }),
        "links" => json!([
            { "name": "tap:nc0", "rx_packets": 1000 * seconds, "rx_bytes": 125_000 * seconds,
              "tx_packets": 2000 * seconds, "tx_bytes": 250_000 * seconds },
        ]),
        "threads" => json!([
            { "name": "netchan-link0", "state": "asleep", "does": "asleep for 3 ms", "cpu_s": seconds as f64 / 2.0, "core": 1 },
            { "name": "netchan-poll", "state": "turning", "does": "turning shards for 0 ms", "cpu_s": 0.0 },
            { "name": "netchan-watch", "state": "stuck", "does": "in a module", "cpu_s": null },
        ]),
        "channels" => json!([
            { "link": "tap:nc0", "shard": 0, "received_packets": 256, "received_slots": 512, "received_drops": 7 * seconds,
              "outgoing_packets": 0, "outgoing_slots": 512 },
            { "link": "tap:nc0", "held_by": "a thread" },
        ]),
        "drops" => json!([
            { "reason": "ip_checksum", "value": 30 * seconds, "meaning": "The IP header's checksum is wrong." },
            { "reason": "arp", "value": 0, "meaning": "Never seen." },
            { "reason": "link_queue", "value": 5, "meaning": "Seen before." },
        ]),
        "sockets" => json!([
            { "protocol": "tcp", "state": "LISTEN", "local": "0.0.0.0:80", "remote": null, "accept_queue": 1 },
            connection("10.77.0.1:40000", 100 * seconds, 1_000_000 * seconds),
            connection("10.77.0.1:40001", 0, 5000 * seconds),
            { "protocol": "tcp", "state": "TIME-WAIT", "local": "10.77.0.2:80", "remote": "10.77.0.1:39999" },
        ]),
        "stat" => json!(format!(
            "cpu  1 2 3 4\ncpu0 {} 0 0 {} 0 0 0 0 0 0\ncpu1 5 0 0 {} 0 0 0 0 0 0\nintr 5\n",
            50 * seconds,
            50 * seconds,
            100 * seconds
        )),
        _ => Value::Null,
    }
}

fn sample(seconds: u64) -> Sample {
    of_answers(seconds * S, |topic| answer(topic, seconds))
}

fn model() -> Model {
    Model::between(Some(&sample(10)), &sample(12))
}

fn view() -> View {
    View::new(
        Duration::from_secs(1),
        Order::Rate,
        Filter::default(),
        String::new(),
    )
}

/// As a terminal has it.
fn drawn(
    (width, height): (u16, u16),
    model: Option<&Model>,
    view: &View,
    notes: &Notes,
) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let paint = |frame: &mut ratatui::Frame<'_>| {
        let area = frame.area();
        super::frame(frame.buffer_mut(), area, model, view, notes);
    };
    terminal.draw(paint).unwrap();
    lines(terminal.backend().buffer())
}

fn page(size: (u16, u16), model: &Model, view: &View) -> String {
    drawn(size, Some(model), view, &Notes::default()).join("\n")
}

#[test]
fn a_usual_screen_has_everything() {
    let lines = drawn((80, 24), Some(&model()), &view(), &Notes::default());
    let expected = [
        "netchan top: python3/4711  app-channel  up 61.0 s  CPU 25 %  every 1.00 s",
        "in 1.00 Mbit/s 1.00 k packets/s  out 2.00 Mbit/s 2.00 k packets/s  drops 30/s",
        "Cores 2",
        "  0 [||||||      ]  50 %    1 [            ]   0 %",
        "Threads 3        CPU core state   role       does",
        "netchan-watch      -    - stuck   watchdog   in a module",
        "netchan-link0 50.0 %    1 asleep  link 0     asleep for 3 ms",
        "netchan-poll   0.0 %    - turning background turning shards for 0 ms",
        "Channels 2            depth full           drops/s   drops",
        "tap:nc0 → shard 0   256/512 [||||||      ]     7/s      84",
        "shard 0 → tap:nc0     0/512 [            ]       -       -",
        "Drops 2      drops/s  packets meaning",
        "ip_checksum     30/s      360 The IP header's checksum is wrong.",
        "link_queue       0/s        5 Seen before.",
        "Connections 2, by rate, 1 listening, 1 in TIME-WAIT",
    ];
    assert_eq!(lines[..expected.len()], expected, "{}", lines.join("\n"));
    let busiest = &lines[16];
    for part in ["10.77.0.1:40000", "800 bit/s", "8.00 Mbit/s", "120 µs"] {
        assert!(busiest.contains(part), "{part}: {busiest}");
    }
    assert!(lines[17].contains("10.77.0.1:40001"), "{}", lines[17]);
    assert!(lines[23].starts_with("q quit  h help"), "{}", lines[23]);
}

#[test]
fn a_small_screen_keeps_what_matters_most() {
    let lines = drawn((40, 10), Some(&model()), &view(), &Notes::default());
    let page = lines.join("\n");
    for part in [
        "python3/4711",
        "in 1.00 Mbit/s",
        "out 2.00 Mbit/s",
        "Connections 2",
        "10.77.0.1:40000",
        "8.00 Mbit/s",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    // Each line ends within the screen; none is the end of another.
    assert!(lines.iter().all(|line| line.chars().count() <= 40));
}

#[test]
fn a_wide_screen_has_two_columns_and_more_of_each_connection() {
    let page = page((200, 60), &model(), &view());
    let line = |part: &str| page.lines().position(|line| line.contains(part));
    assert_eq!(line("Cores 2"), line("Channels 2"), "{page}");
    for part in [
        "recv-Q", "process", "cwnd", "retr/s", "14.3 KiB", "1.00 k/s",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
}

#[test]
fn every_size_is_drawn_whatever_is_chosen() {
    let mut view = view();
    for size in [(1, 1), (2, 2), (10, 3), (39, 9), (120, 16), (500, 200)] {
        for help in [false, true] {
            view.has_help = help;
            for enlarged in [None].into_iter().chain(Section::ALL.map(Some)) {
                view.enlarged = enlarged;
                for passed in [0, 1, 1000, usize::MAX] {
                    view.passed = passed;
                    let lines = drawn(size, Some(&model()), &view, &Notes::default());
                    assert_eq!(lines.len(), usize::from(size.1));
                }
            }
        }
    }
}

#[test]
fn one_section_can_have_the_screen() {
    let mut view = view();
    view.enlarged = Some(Section::Drops);
    let page = page((80, 24), &model(), &view);
    assert!(
        page.contains("Drops 2") && !page.contains("Threads"),
        "{page}"
    );
    view.has_help = true;
    let page = self::page((80, 24), &model(), &view);
    assert!(
        page.contains("/                      filter connections"),
        "{page}"
    );
}

#[test]
fn a_stack_without_anything_is_shown() {
    let empty = of_answers(S, |_| Value::Null);
    let model = Model::between(None, &empty);
    let page = page((80, 24), &model, &view());
    assert!(
        page.contains("Connections 0") && page.contains("(none)"),
        "{page}"
    );
    assert!(
        page.contains("0 links") && page.contains("drops -"),
        "{page}"
    );
    for absent in ["Threads", "Drops", "Channels", "Cores"] {
        assert!(!page.contains(absent), "{absent}:\n{page}");
    }
}

#[test]
fn rates_need_two_looks_at_the_same_stack() {
    let model = Model::between(None, &sample(10));
    assert_eq!(model.received, Flow::default());
    assert!(model.sockets.iter().all(|s| s.out_bits_per_s.is_none()));
    assert!(model.cpu_percent.is_none() && model.drops_per_s.is_none());
    let mut other = sample(10);
    other.about.stack = "4712".to_owned();
    let model = Model::between(Some(&other), &sample(12));
    assert_eq!(model.received, Flow::default());
}

#[test]
fn counters_that_begin_anew_have_no_rate() {
    // The stack's process is another one, with the same number and the same ends.
    let mut restarted = sample(3);
    restarted.links.at_ns = 12 * S;
    restarted.threads.at_ns = 12 * S;
    restarted.drops.at_ns = 12 * S;
    restarted.channels.at_ns = 12 * S;
    restarted.sockets.at_ns = 12 * S;
    restarted.about.at_ns = 12 * S;
    let model = Model::between(Some(&sample(10)), &restarted);
    assert_eq!(model.received, Flow::default());
    assert_eq!(model.cpu_percent, None);
    assert_eq!(model.cores[0].busy_percent, None);
    assert_eq!(model.channels[0].drops_per_s, None);
    assert!(
        model
            .threads
            .iter()
            .all(|t| t.cpu_percent.unwrap_or(0.0) == 0.0)
    );
    // A connection that has counted less began since: all that it counted is of this time.
    let busiest = view().chosen(&model)[0].clone();
    assert_eq!(busiest.out_bits_per_s, Some(3_000_000.0 * 8.0 / 2.0));
    let mut huge = sample(12);
    huge.links.rows[0].rx_bytes = u64::MAX;
    assert!(Model::between(Some(&sample(10)), &huge).received.bits_per_s > Some(1e18));
}

#[test]
fn connections_that_come_and_go_are_told_apart() {
    let mut before = sample(10);
    let mut now = sample(12);
    // The first one has ended; another has begun.
    now.sockets.rows.remove(1);
    now.sockets.rows[1].remote = Some("10.77.0.1:5".to_owned());
    let model = Model::between(Some(&before), &now);
    let chosen = view().chosen(&model).len();
    assert_eq!(chosen, 1);
    assert_eq!(model.sockets[1].out_bits_per_s, Some(60_000.0 * 8.0 / 2.0));
    // Where the look before did not see all of them, it may be an old one.
    before.omitted = 1;
    let model = Model::between(Some(&before), &now);
    assert_eq!(model.sockets[1].out_bits_per_s, None);
}

#[test]
fn many_connections_are_bounded_and_what_is_left_out_is_said() {
    let many = |seconds: u64| {
        let mut sample = sample(seconds);
        let one = sample.sockets.rows[1].clone();
        sample.sockets.rows = (0..20_000_u64)
            .map(|n| {
                let mut row = one.clone();
                row.remote = Some(format!("10.1.{}.{}:7", n / 250, n % 250));
                row.sent_bytes = Some(n * seconds);
                row
            })
            .collect();
        sample.omitted = 123;
        sample
    };
    let model = Model::between(Some(&many(10)), &many(12));
    let mut view = view();
    let page = page((100, 24), &model, &view);
    assert!(page.contains(" of 20000, by rate"), "{page}");
    assert!(
        page.contains("123 more that the answer had no room for"),
        "{page}"
    );
    let drawn = page.matches("10.1.").count();
    assert!(
        (2..24).contains(&drawn) && page.contains("10.1.79.249:7"),
        "{page}"
    );
    view.passed = 19_999;
    assert!(self::page((100, 24), &model, &view).contains("10.1.0.0:7"));
    let height = super::height(&model, &view, 120, 100);
    assert!((100..250).contains(&height), "{height}");
}

#[test]
fn nothing_takes_the_terminal_over() {
    let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\r\n\u{9b}31m";
    let answers = |topic: &str| {
        let named = json!([{ "name": hostile, "reason": hostile, "value": 5, "meaning": hostile, "state": hostile, "does": hostile,
            "link": hostile, "shard": 1, "received_packets": 1, "received_slots": 2,
            "rx_packets": 1, "rx_bytes": 1, "tx_packets": 1, "tx_bytes": 1,
            "protocol": hostile, "local": hostile, "remote": hostile, "process": hostile }]);
        match topic {
            "hello" => json!({ "process": hostile }),
            _ => named,
        }
    };
    let mut model = Model::between(None, &of_answers(S, answers));
    model.missing.push(crate::output::printable(hostile));
    let mut view = view();
    view.words = hostile.to_owned();
    view.filter = Filter::parse(&["not dport = 1".to_owned()]).unwrap();
    view.draft = Some(Draft {
        text: hostile.to_owned(),
        wrong: Some(hostile.to_owned()),
    });
    for size in [(40, 10), (200, 60)] {
        let lines = drawn(size, Some(&model), &view, &Notes::default());
        let page = lines.join("");
        assert!(page.contains("title"), "{page}");
        assert!(!page.contains(char::is_control), "{page:?}");
    }
}

#[test]
fn long_names_are_cut() {
    let long = "n".repeat(1_000_000);
    let answers = |topic: &str| match topic {
        "threads" => json!([{ "name": long, "state": "asleep", "does": long }]),
        "hello" => json!({ "process": long }),
        _ => Value::Null,
    };
    let model = Model::between(None, &of_answers(S, answers));
    assert!(model.process.len() <= 200 && model.threads[0].name.len() <= 200);
    let page = page((80, 24), &model, &view());
    assert!(page.contains("Threads 1") && page.contains('…'), "{page}");
}

#[test]
fn trouble_is_said() {
    let notes = Notes {
        trouble: Some("no answer since 3 s".to_owned()),
        stack: Some((2, 3)),
        stretched: Some(4.0),
    };
    let lines = drawn((80, 24), Some(&model()), &view(), &notes);
    let page = lines.join("\n");
    assert!(
        page.contains("\nno answer since 3 s\n") && page.contains("stack 2 of 3"),
        "{page}"
    );
    assert!(page.contains("every 4.00 s"), "{page}");
    let waiting = drawn((40, 10), None, &view(), &Notes::default()).join("\n");
    assert!(
        waiting.contains("waiting for the first answer"),
        "{waiting}"
    );
    let mut paused = view();
    paused.is_paused = true;
    assert!(self::page((80, 24), &model(), &paused).contains("paused"));
}
