//! Settings and modules of a running stack, changed by name.

use serde_json::Value;

use super::change;
use crate::{Net, Regime, Threads, control::Change, link::wire};

fn net() -> Net {
    let (near, _far) = wire::pair(&wire::Options::default());
    let builder = Net::builder().regime(Regime::Locked);
    let builder = builder.threads(Threads::Caller).link_with(Box::new(near));
    builder.address("10.0.0.1/24").unwrap().start().unwrap()
}

fn settings(net: &Net) -> Vec<(String, Value, String)> {
    let shown = net.show("settings").unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = shown.as_array().unwrap().iter();
    rows.map(|row| {
        (
            text(&row["name"]),
            row["value"].clone(),
            text(&row["changes"]),
        )
    })
    .collect()
}

#[test]
fn settings_are_changed_by_their_names() {
    let net = net();
    let level = crate::trace::level();
    for (name, value, shown) in [
        ("tcp.congestion", "bbr", Value::from("bbr")),
        ("tcp.slow_start_limit", "8", Value::from(8)),
        ("tcp.ecn", "accurate", Value::from("accurate")),
        ("tcp.pacing", "true", Value::from(true)),
        ("tcp.nagle", "false", Value::from(false)),
        ("tcp.mtu_probing", "always", Value::from("always")),
        ("tcp.icmp_while_connecting", "note", Value::from("note")),
        ("tcp.timestamps_required", "true", Value::from(true)),
        ("tcp.user_timeout_option", "true", Value::from(true)),
        ("tcp.user_timeout_option", "false", Value::from(false)),
        ("tcp.syn_cookies", "always", Value::from("always")),
        ("tcp.fast_open", "off", Value::from("off")),
        ("icmp.rate_limit", "false", Value::from(false)),
        ("trace", level.name(), Value::from(level.name())),
    ] {
        net.set(name, value).unwrap();
        let now = settings(&net)
            .into_iter()
            .find(|row| row.0 == name)
            .unwrap();
        assert_eq!(now.1, shown, "{name}");
    }
}

/// Each row of `show settings` is changed, or says why not and where it is said instead.
#[test]
fn every_setting_has_its_answer() {
    let net = net();
    for (name, _, changes) in settings(&net) {
        let refused = net.set(&name, "no such value").unwrap_err().to_string();
        let meant = match changes.as_str() {
            "boot" => "boot-time: it is said before the start, by",
            "run" if name.starts_with("link.") => "is no MTU",
            "run" if name == "icmp.rate_limit" => "neither true nor false",
            "run" if name.starts_with("tcp.") || name == "trace" => "",
            _ => "no setting",
        };
        assert!(refused.contains(meant), "{name}: {refused}");
        assert_eq!(
            changes == "boot",
            refused.contains("boot-time"),
            "{name}: {refused}"
        );
    }
    let why = net.set("giant", "true").unwrap_err().to_string();
    assert!(why.contains("--giant or NETCHAN_GIANT"), "{why}");
    let why = net.set("tcp.congestion", "vegas").unwrap_err().to_string();
    assert!(
        why.contains("unknown congestion control `vegas`; it is one of"),
        "{why}"
    );
    let why = net.set("tcp.nagle", "maybe").unwrap_err().to_string();
    assert!(why.contains("invalid type"), "{why}");
    let why = net
        .set("tcp.nagle = true\n[run]\nuser", "root")
        .unwrap_err();
    assert!(why.to_string().contains("no setting"), "{why}");
    let why = net
        .set("tcp.congestion", "bbr\"\nnagle = false #")
        .unwrap_err();
    assert!(
        why.to_string().contains("unknown congestion control"),
        "{why}"
    );
}

/// Of 576 bytes, 1280 with IPv6, to what the link began with; `show links` and `show settings` have it.
#[test]
fn the_mtu_of_a_link_is_changed_by_its_name() {
    let net = net();
    let link = net.links()[0].name.clone();
    let mtu = || {
        let name = format!("link.{link}.mtu");
        let row = settings(&net).into_iter().find(|row| row.0 == name);
        let (_, value, changes) = row.unwrap();
        assert_eq!(changes, "run");
        assert_eq!(net.show("links").unwrap()[0]["mtu_bytes"], value);
        assert_eq!(net.links()[0].mtu, value);
        value.as_u64().unwrap()
    };
    let set = |name: &str, value: &str| net.set(&format!("link.{name}.mtu"), value);
    let why = |name: &str, value: &str| set(name, value).unwrap_err().to_string();
    assert_eq!(mtu(), 1500);
    for (name, value, now) in [
        (link.as_str(), "1499", 1499),
        ("#0", "576", 576),
        ("", "1 KiB", 1024),
        (link.as_str(), "1500", 1500),
    ] {
        set(name, value).unwrap();
        assert_eq!(mtu(), now, "{name} {value}");
    }
    assert!(why(&link, "1501").contains("more than the 1500 bytes that the buffers"));
    assert!(why(&link, "575").contains("less than the 576 bytes"));
    assert!(why(&link, "-1").contains("is no MTU"));
    assert!(why(&link, "99999999999999999999").contains("is no MTU"));
    assert!(why("nowhere", "1000").contains("there is no link `nowhere`"));
    assert_eq!(mtu(), 1500);
    set("", "1000").unwrap();
    let refused = net.add_address("", "fd00::1/64").unwrap_err().to_string();
    assert!(refused.contains("IPv6 needs an MTU of 1280"), "{refused}");
    set("", "1280").unwrap();
    net.add_address("", "fd00::1/64").unwrap();
    assert!(why(&link, "1279").contains("has IPv6 addresses, which need an MTU of 1280"));
    assert_eq!(mtu(), 1280);
}

#[test]
fn modules_come_and_go_from_outside() {
    let net = net();
    let ask = |toml: &str| {
        let toml = toml.to_owned();
        change(net.stack(), &Change::LoadModule { toml })
    };
    let one =
        "[[module]]\nname = \"firewall\"\nrules = [\"drop in proto tcp to 0.0.0.0/0 port 23\"]\n";
    assert_eq!(ask(one).unwrap(), "module firewall is loaded");
    assert!(
        ask(one)
            .unwrap_err()
            .contains("there is a module 'firewall' already")
    );
    assert!(ask("").unwrap_err().contains("no [[module]]"));
    assert!(
        ask("regime = \"locked\"")
            .unwrap_err()
            .contains("more than [[module]]")
    );
    assert!(
        ask("[[module]]\nname = \"x\"")
            .unwrap_err()
            .contains("unknown kind")
    );
    let shown = net.show("modules").unwrap();
    assert_eq!(shown[0]["name"], "firewall");
    let gone = |name: &str| {
        let name = name.to_owned();
        change(net.stack(), &Change::UnloadModule { name })
    };
    assert_eq!(gone("firewall").unwrap(), "module firewall is unloaded");
    assert!(
        gone("firewall")
            .unwrap_err()
            .contains("no module 'firewall'")
    );
}
