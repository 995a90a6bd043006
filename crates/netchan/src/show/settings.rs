//! `netchan show settings`: what is set, where that came from, and when it may change.

use std::sync::atomic::Ordering::Relaxed;

use proto::{tcp::UserTimeoutOption, time::Instant};
use serde_json::{Value, json};

use crate::{
    config::keys::{self, Changes, Key},
    driver::network::InterfaceFacts,
    stack::Stack,
    trace::{self, stages},
};

/// A row for each.
pub fn rows(stack: &Stack, now: Instant) -> Vec<Value> {
    let row = |name: &str, value: Value, when: &str| json!({"name": name, "value": value, "changes": when, "from": null});
    let by = |name: &str, value: Value, from: &str| json!({"name": name, "value": value, "changes": "boot", "from": from});
    let (control, host, driver) = (&stack.control, &stack.control.host, &stack.driver);
    let origins = &control.choice.origins;
    let giant = if stack.layout.giant && !control.choice.giant {
        "regime"
    } else {
        origins.giant
    };
    let mut rows = tcp_settings(stack);
    rows.extend(memory_settings(stack));
    rows.extend(link_settings(stack));
    rows.extend(look_settings(stack));
    rows.extend([
        by("regime", json!(control.regime.name()), origins.regime),
        by("giant", json!(stack.layout.giant), giant),
        row("degraded", json!(control.degraded), "boot"),
        by(
            "dispatch",
            json!(control.choice.dispatch.name()),
            origins.dispatch,
        ),
        by("forwarding", json!(host.forwarding), control.forwarding_by),
        by(
            "loopback",
            json!(if host.network().loopback.is_some() {
                "netchan"
            } else {
                "kernel"
            }),
            control.loopback_by,
        ),
        row("mss_clamp", json!(host.mss_clamp), "boot"),
        row("shards", json!(stack.layout.shards), "boot"),
        row(
            "threads",
            json!(match (stack.threaded, stack.stepped) {
                (_, true) => "stepped",
                (true, _) => "own",
                _ => "caller",
            }),
            "boot",
        ),
        row("spin_ns", json!(stack.spin_ns), "boot"),
        row(
            "moderation_us",
            json!(driver.moderation.as_micros()),
            "boot",
        ),
        row(
            "background_us",
            json!(driver.background.as_micros()),
            "boot",
        ),
        row("icmp.rate_limit", json!(host.limits_icmp()), "run"),
        row(
            "background_at_once",
            json!(stack.sockets.background_at_once.load(Relaxed)),
            "run",
        ),
        row("checks", json!(percore::checks::in_words()), "build"),
        row(
            "up_s",
            json!(now.since(control.started).as_secs_f64()),
            "never",
        ),
    ]);
    rows
}

/// How it is looked at.
fn look_settings(stack: &Stack) -> [Value; 4] {
    let row = |name: &str, value: Value, when: &str| json!({"name": name, "value": value, "changes": when, "from": null});
    let compiles = stack.control.host.taps.compiles;
    [
        row("trace", json!(trace::level().name()), "run"),
        row("trace_events", json!(trace::events()), "boot"),
        row("compile_filters", json!(compiles), "boot"),
        row("stages", json!(stages::are_on()), "run"),
    ]
}

/// The MTUs.
fn link_settings(stack: &Stack) -> Vec<Value> {
    let net = stack.control.host.network();
    let row = |link: &InterfaceFacts| {
        let name = format!("link.{}.mtu", link.device());
        json!({"name": name, "value": link.mtu, "changes": "run", "from": null})
    };
    net.interfaces.iter().map(row).collect()
}

/// What sockets may hold, bytes.
fn memory_settings(stack: &Stack) -> [Value; 6] {
    let row = |name: &str, bytes: Value| json!({"name": name, "value": bytes, "changes": "boot", "from": null});
    let [tcp, udp] = &stack.sockets.memory;
    [
        row("tcp.memory_bytes", json!(tcp.limit())),
        row("tcp.socket_memory_bytes", json!(tcp.socket_max())),
        row("tcp.peer_memory_bytes", json!(tcp.peer_max())),
        row("udp.memory_bytes", json!(udp.limit())),
        row("udp.socket_memory_bytes", json!(udp.socket_max())),
        row("udp.peer_memory_bytes", json!(udp.peer_max())),
    ]
}

/// Those of the start that no configuration says, and what does.
const BOOT: [(&str, &str); 5] = [
    ("degraded", "the modules that are loaded at the start"),
    (
        "shards",
        "the regime, the links' queues, or Builder::shards",
    ),
    ("threads", "Builder::threads"),
    ("tcp.receive_buffer_bytes", "Builder::tcp"),
    ("tcp.send_buffer_bytes", "Builder::send_buffer"),
];

/// Whether `netchan set` changes this one.
///
/// # Errors
/// Why not, and where it is said instead.
pub fn may_change(name: &str) -> Result<(), String> {
    let run = || keys::all().filter(|key| key.changes == Changes::Run);
    if run().any(|key| key.path() == name) {
        return Ok(());
    }
    if let Some(place) = place(name) {
        return Err(format!(
            "{name} is boot-time: it is said before the start, by {place}"
        ));
    }
    let names = run().map(Key::path).chain(["link.NAME.mtu".to_owned()]);
    let names: Vec<String> = names.collect();
    Err(format!(
        "there is no setting `{name}` that can be changed; there are {}",
        names.join(", ")
    ))
}

/// Where a setting of the start is said.
fn place(name: &str) -> Option<String> {
    if let Some((_, place)) = BOOT.iter().find(|(boot, _)| *boot == name) {
        return Some((*place).to_owned());
    }
    keys::all().find_map(|key| match key.changes {
        Changes::Boot { shown, also } if !shown.is_empty() && shown == name => {
            let or = if also.is_empty() { "" } else { ", " };
            let path = key.path();
            Some(format!("`{path}` in the configuration file{or}{also}"))
        }
        _ => None,
    })
}

fn tcp_settings(stack: &Stack) -> Vec<Value> {
    let (tcp, host) = (stack.control.host.tcp(), &stack.control.host);
    let tells_timeout = tcp.user_timeout_option != UserTimeoutOption::Off;
    let row = |(name, value): (&str, Value)| {
        let changes = if name.ends_with("_bytes") {
            "boot"
        } else {
            "run"
        };
        json!({"name": name, "value": value, "changes": changes, "from": null})
    };
    let rows = [
        ("tcp.receive_buffer_bytes", json!(tcp.receive_buffer)),
        (
            "tcp.receive_buffer_max_bytes",
            json!(tcp.receive_buffer_max),
        ),
        ("tcp.send_buffer_bytes", json!(host.send_buffer)),
        ("tcp.send_buffer_max_bytes", json!(host.send_buffer_max)),
        ("tcp.congestion", json!(tcp.congestion.name())),
        ("tcp.slow_start_limit", json!(tcp.slow_start_limit)),
        ("tcp.ecn", json!(tcp.ecn.name())),
        ("tcp.pacing", json!(tcp.pacing)),
        ("tcp.nagle", json!(tcp.nagle)),
        ("tcp.mtu_probing", json!(tcp.mtu_probing.name())),
        (
            "tcp.icmp_while_connecting",
            json!(tcp.icmp_while_connecting.name()),
        ),
        ("tcp.timestamps_required", json!(tcp.timestamps_required)),
        ("tcp.user_timeout_option", json!(tells_timeout)),
        ("tcp.syn_cookies", json!(tcp.syn_cookies.name())),
        ("tcp.fast_open", json!(tcp.fast_open.name())),
    ];
    rows.map(row).into()
}
