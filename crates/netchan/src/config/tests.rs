//! The configuration: what the user's guide shows, and what each mistake is told.

use std::net::IpAddr;

use proto::tcp::{CongestionControl, EcnMode, FastOpenMode, IcmpWhileConnecting, MtuProbing};

use super::*;
use crate::{
    driver::module::{
        Point, Verdict,
        filter::Rules,
        limiter::{Limit, Unit},
    },
    giant::Concurrency,
    link::specification::Kind,
};

const WHOLE: &str = r#"
regime = "locked"            # boot-time
giant = false
forwarding = true
loopback = "netchan"
lease_memory_max = "1 GiB"
mss_clamp = true
dispatch = "deferred"
moderation = "50us"
trace_events = 4096
compile_filters = false
cores = [0, 1]

[[link]]
name = "nc0"
kind = "tap"
address = ["10.77.0.2/24", "fd77::2/64"]
gateway = "10.77.0.1"
route = [{ gateway = "10.77.0.254", mark = 7 }, { to = "fd00::/8" }]
options = { mtu = 9000, offload = false, peer = ["10.77.0.1/24", "fd77::1/64"] }

[[link]]
kind = "wire"
gateway = []
[link.options]
delay = "10ms"
loss = "1%"

[tcp]
congestion = "newreno"
slow_start_limit = 8
ecn = "accurate"
pacing = true
mtu_probing = "always"
icmp_while_connecting = "note"
timestamps_required = true
receive_buffer_max = "16 MiB"
send_buffer_max = 4194304
memory_max = "1 GiB"
socket_memory_max = "64 MiB"
peer_memory_max = "128 MiB"
user_timeout_option = true
syn_cookies = "always"
fast_open = "client"
nagle = true

[icmp]
rate_limit = false

[udp]
memory_max = "64 KiB"
socket_memory_max = 65536
peer_memory_max = 65537

[run]
user = "www-data"
sandbox = true
writable = ["/var/lib/program"]

[log]
level = "verbose"
file = "/var/log/netchan.log"
"#;

#[test]
fn whole_file() {
    let config = Config::parse(WHOLE, "netchan.toml").unwrap();
    assert_eq!(config.regime, Some(Regime::Locked));
    assert_eq!(config.run.user.as_deref(), Some("www-data"));
    assert_eq!(config.run.sandbox, Some(true));
    assert_eq!(config.run.writable, [Path::new("/var/lib/program")]);
    assert_eq!(config.log.level, Some(crate::log::Verbosity::Verbose));
    let file = config.log.file.as_deref();
    assert_eq!(file, Some(Path::new("/var/log/netchan.log")));
    assert_eq!(config.dispatch, Some(Dispatch::Deferred));
    assert_eq!(
        (config.forwarding, config.mss_clamp, config.loopback),
        (Some(true), Some(true), Some(true))
    );
    assert_eq!(config.lease_memory_max, Some(1 << 30));
    assert_eq!(config.moderation, Some(Duration::from_micros(50)));
    assert_eq!(config.trace_events, Some(4096));
    assert_eq!(config.compile_filters, Some(false));
    assert_eq!(config.cores, [0, 1]);
    let [tap, wire] = &config.links[..] else {
        panic!("{:?}", config.links)
    };
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(tap.addresses, [(ip("10.77.0.2"), 24), (ip("fd77::2"), 64)]);
    assert_eq!(tap.gateways, [ip("10.77.0.1")]);
    let marked = RouteConfig {
        mark: 7,
        ..RouteConfig::default_via(ip("10.77.0.254"))
    };
    let on_link = RouteConfig {
        network: ip("fd00::"),
        prefix_len: 8,
        gateway: None,
        mark: 0,
    };
    assert_eq!(tap.routes, [marked, on_link]);
    assert_eq!(
        (tap.specification.kind, tap.specification.name.as_str()),
        (Kind::Tap, "nc0")
    );
    assert_eq!(
        tap.specification.to_string(),
        "tap:nc0,mtu=9000,offload=off,peer=10.77.0.1/24,peer=fd77::1/64"
    );
    assert_eq!(wire.specification.get("delay"), Some("10ms"));
    assert_eq!(
        config.tcp,
        TcpConfig {
            congestion: Some(CongestionControl::NewReno),
            slow_start_limit: Some(8),
            ecn: Some(EcnMode::Accurate),
            pacing: Some(true),
            mtu_probing: Some(MtuProbing::Always),
            icmp_while_connecting: Some(IcmpWhileConnecting::Note),
            timestamps_required: Some(true),
            receive_buffer_max: Some(16 << 20),
            send_buffer_max: Some(4 << 20),
            memory_max: Some(1 << 30),
            socket_memory_max: Some(64 << 20),
            peer_memory_max: Some(128 << 20),
            user_timeout_option: Some(true),
            syn_cookies: Some(SynCookies::Always),
            fast_open: FastOpenMode::called("client"),
            nagle: Some(true),
        }
    );
    assert_eq!(config.icmp.rate_limit, Some(false));
    let udp = config.udp;
    assert_eq!(udp.memory_max, Some(64 << 10));
    let shares = (udp.socket_memory_max, udp.peer_memory_max);
    assert_eq!(shares, (Some(65_536), Some(65_537)));
}

#[test]
fn every_dispatch_is_read() {
    for dispatch in Dispatch::ALL {
        let text = format!("regime = \"locked\"\ndispatch = \"{}\"", dispatch.name());
        let config = Config::parse(&text, "x").unwrap();
        assert_eq!(config.dispatch, Some(dispatch));
        let layout = config.choice().layout().unwrap();
        assert_eq!(layout.backlogs, dispatch == Dispatch::Hybrid);
    }
}

#[test]
fn empty_file_is_the_default() {
    assert_eq!(Config::parse("", "x").unwrap(), Config::default());
    let choice = |text: &str| Config::parse(text, "x").unwrap().choice();
    assert_eq!(choice("").regime(), Regime::default());
    assert_eq!(choice("giant = true").regime(), Regime::Giant);
    let around = choice("giant = true\nregime = \"locked\"");
    assert_eq!(around.regime(), Regime::Locked);
    assert!(around.layout().unwrap().giant);
}

/// Asserts what the error for `text` says: line, key, and each word of `says`.
fn wrong(text: &str, line: usize, key: &str, says: &[&str]) {
    let error = Config::parse(text, "my.toml").expect_err(text);
    assert_eq!(
        (error.line, error.key.as_deref()),
        (Some(line), Some(key)),
        "{error}\nin\n{text}"
    );
    let shown = error.to_string();
    assert!(
        shown.starts_with(&format!("my.toml:{line}: {key}: ")),
        "{shown}"
    );
    for word in says {
        assert!(shown.contains(word), "`{word}` is not in: {shown}");
    }
}

#[test]
fn unknown_keys_are_named() {
    wrong(
        "regime = \"giant\"\ncolour = \"red\"",
        2,
        "colour",
        &["unknown field", "regime"],
    );
    wrong(
        "[tcp]\n\ncongestoin = \"newreno\"",
        3,
        "tcp.congestoin",
        &["unknown field", "congestion"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\nmtu = 9000",
        3,
        "link.mtu",
        &["unknown field", "options"],
    );
    wrong(
        "[icmp]\nx = 1",
        2,
        "icmp.x",
        &["unknown field", "rate_limit"],
    );
    wrong("[udp]\nx = 1", 2, "udp.x", &["unknown field", "memory_max"]);
    wrong(
        "[[link]]\nkind = \"tap\"\n[link.options]\nmut = 9000",
        4,
        "link.options.mut",
        &["unknown option `mut`", "mtu"],
    );
}

#[test]
fn bad_values_are_named() {
    wrong(
        "regime = \"gigant\"",
        1,
        "regime",
        &["gigant", "giant, locked, percpu, driver-channel"],
    );
    wrong(
        "loopback = \"ours\"",
        1,
        "loopback",
        &["ours", "netchan", "kernel"],
    );
    wrong("giant = \"yes\"", 1, "giant", &["boolean"]);
    wrong(
        "dispatch = \"later\"",
        1,
        "dispatch",
        &["later", "deferred"],
    );
    wrong("cores = [0, 1, 0]", 1, "cores", &["core 0", "twice"]);
    wrong("cores = [-1]", 1, "cores", &["-1"]);
    wrong(
        "[tcp]\nreceive_buffer_max = \"16 MB of it\"",
        2,
        "tcp.receive_buffer_max",
        &["16 MB of it", "MiB"],
    );
    wrong(
        "[tcp]\ncongestion = \"vegas\"",
        2,
        "tcp.congestion",
        &["vegas", "reno, cubic, dctcp, bbr"],
    );
    wrong(
        "[tcp]\nmtu_probing = \"on\"",
        2,
        "tcp.mtu_probing",
        &["off, blackhole, always"],
    );
    wrong(
        "[tcp]\nicmp_while_connecting = \"ignore\"",
        2,
        "tcp.icmp_while_connecting",
        &["`ignore`", "end, note"],
    );
    wrong(
        "[tcp]\necn = \"on\"",
        2,
        "tcp.ecn",
        &["`on`", "off, passive, classic, accurate"],
    );
    wrong(
        "[tcp]\nsend_buffer_max = 1",
        2,
        "tcp.send_buffer_max",
        &["1 bytes", "4096"],
    );
    wrong(
        "[tcp]\nsend_buffer_max = -1",
        2,
        "tcp.send_buffer_max",
        &["-1"],
    );
}

#[test]
fn bad_ring_lengths_are_named() {
    for bad in ["0", "-1", "32", "1000", "2097152"] {
        let text = format!("trace_events = {bad}");
        wrong(
            &text,
            1,
            "trace_events",
            &[bad, "power of two", "64 to 1048576"],
        );
    }
    wrong("trace_events = \"64\"", 1, "trace_events", &["i64"]);
    for good in ["64", "1048576"] {
        Config::parse(&format!("trace_events = {good}"), "x").unwrap();
    }
}

#[test]
fn memory_limits_out_of_range_are_named() {
    for table in ["tcp", "udp"] {
        for of in ["", "socket_", "peer_"] {
            let key = format!("{table}.{of}memory_max");
            for bytes in ["0", "65535", "\"8 TiB\""] {
                let text = format!("[{table}]\n{of}memory_max = {bytes}");
                wrong(&text, 2, &key, &["out of range: 65536 to"]);
            }
        }
    }
    wrong("[tcp]\nmemory_max = true", 2, "tcp.memory_max", &["true"]);
}

#[test]
fn bad_names_and_routes_of_links_are_named() {
    wrong(
        "[[link]]\nkind = \"tap\"\nname = \"\"",
        3,
        "link.name",
        &["empty"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\nname = \"nc0;mtu=9000\"",
        3,
        "link.name",
        &["no interface can have the name", "behind commas"],
    );
    let route = "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.2/24\"]\n[[link.route]]\n";
    for (rest, key, says) in [
        ("gateway = \"10.0.1.1\"", "gateway", "not within"),
        ("to = \"10.0.0.1/8\"", "to", "bits beyond"),
        (
            "gateway = \"10.0.0.1\"\nmark = 0",
            "mark",
            "a mark of 0 is none",
        ),
        ("gateway = \"10.0.0.1\"\nmark = 4294967296", "mark", "u32"),
        (
            "to = \"fd00::/8\"\ngateway = \"10.0.0.1\"",
            "to",
            "two families",
        ),
        ("gateway = \"x\"", "gateway", "not an IP address"),
    ] {
        let line = 4 + rest.lines().position(|l| l.starts_with(key)).unwrap_or(0) + 1;
        let key = format!("link.route.{key}");
        wrong(&format!("{route}{rest}"), line, &key, &[says]);
    }
}

#[test]
fn bad_links_are_named() {
    wrong("[[link]]\nname = \"nc0\"", 1, "link", &["kind"]);
    wrong("[[link]]\nkind = \"tun\"", 2, "link.kind", &["tun", "tap"]);
    wrong(
        "[[link]]\nkind = \"packet\"",
        2,
        "link.kind",
        &["interface"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\n  \"10.0.0.1/24\",\n  \"10.0.0.256/24\"]",
        5,
        "link.address",
        &["10.0.0.256/24"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.1\"]",
        3,
        "link.address",
        &["prefix"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.1/33\"]",
        3,
        "link.address",
        &["10.0.0.1/33"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.1/24\", \"10.0.0.1/24\"]",
        3,
        "link.address",
        &["twice"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\ngateway = \"10.0.0.1\"",
        3,
        "link.gateway",
        &["10.0.0.1", "not within"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.2/24\"]\ngateway = \"10.0.1.1\"",
        4,
        "link.gateway",
        &["10.0.1.1", "not within"],
    );
    wrong(
        "[[link]]\nkind = \"tap\"\naddress = [\"10.0.0.2/24\"]\ngateway = [\"10.0.0.1\", \"10.0.0.3\"]",
        4,
        "link.gateway",
        &["second gateway"],
    );
    wrong(
        "[[link]]\nkind = \"wire\"\n[link.options]\nloss = \"101%\"",
        4,
        "link.options.loss",
        &["loss", "101%"],
    );
    let twice = "[[link]]\nkind = \"tap\"\nname = \"a\"\n[[link]]\nname = \"a\"\nkind = \"tap\"";
    wrong(twice, 6, "link.kind", &["tap:a", "twice"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    wrong(
        "regime = \"percpu\"\ngiant = true",
        2,
        "giant",
        &["'percpu'", "giant and locked"],
    );
    wrong(
        "dispatch = \"deferred\"\nregime = \"driver-channel\"",
        1,
        "dispatch",
        &["'driver-channel'", "'deferred'"],
    );
    wrong(
        "regime = \"app-channel\"\ndispatch = \"hybrid\"",
        2,
        "dispatch",
        &["'app-channel'", "'hybrid'", "giant and locked"],
    );
    wrong(
        "regime = \"giant\"\ndispatch = \"hybrid\"",
        2,
        "dispatch",
        &["'giant'", "'hybrid'", "under Giant"],
    );
}

#[test]
fn what_is_not_there_yet_is_refused() {
    for word in ["dhcp", "slaac"] {
        let text = format!("[[link]]\nkind = \"tap\"\naddress = [\"{word}\"]");
        wrong(&text, 3, "link.address", &[word, "not supported yet"]);
    }
    wrong(
        "[[link]]\nkind = \"xdp\"\nname = \"eth0\"",
        2,
        "link.kind",
        &["xdp", "not supported yet"],
    );
}

#[test]
fn broken_toml_is_placed() {
    wrong("regime = \"giant\"\ncores = [0,\n", 2, "cores", &[]);
    wrong(
        "regime = \"giant\"\nregime = \"locked\"",
        2,
        "regime",
        &["duplicate"],
    );
    for text in [
        "\u{0}",
        "=",
        "[",
        "[[",
        "a",
        "\"",
        "regime = \"\u{e4}",
        "\u{fffd}=1",
        "link = 1",
        "[link]\nkind=1",
    ] {
        let error = Config::parse(text, "x").expect_err(text);
        assert!(error.line.is_some(), "{error}");
    }
}

#[test]
fn missing_file_is_named() {
    let error = Config::load("/nonexistent/netchan.toml").unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/netchan.toml: there is no such file"
    );
    let error = Config::load("/").unwrap_err();
    assert!(
        error.to_string().starts_with("/: cannot be read"),
        "{error}"
    );
}

#[test]
fn modules_are_read_in_their_order() {
    let text = r#"
[[module]]
name = "firewall"

[[module]]
name = "wall"
kind = "filter"
concurrency = "giant"
default = "drop"
rules = ["pass in proto tcp to any port 80", "pass out"]

[[module]]
name = "limiter"
bytes_per_second = "10 MB"
burst = "1 MB"
each = [24, 64]
point = "out"

[[module]]
name = "ledger"
peers = 100
"#;
    let modules = Config::parse(text, "x.toml").expect("it is right").modules;
    let names: Vec<_> = modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["firewall", "wall", "limiter", "ledger"]);
    assert_eq!(modules[0].kind, ModuleKind::Filter(Rules::default()));
    let ModuleKind::Filter(rules) = &modules[1].kind else {
        panic!("{modules:?}");
    };
    assert_eq!((rules.rules.len(), rules.default), (2, Verdict::Drop));
    let expected = Limit {
        point: Point::Out,
        unit: Unit::Bytes,
        burst: 1_000_000,
        each: Some((24, 64)),
        ..Limit::packets(10_000_000)
    };
    assert_eq!(modules[2].kind, ModuleKind::Limiter(expected));
    assert_eq!(modules[3].kind, ModuleKind::Ledger { peers: 100 });
    let giant = modules.iter().map(|m| m.make().map(|m| m.concurrency()));
    let giant: Vec<_> = giant
        .map(|c| c.is_ok_and(|c| c == Concurrency::Giant))
        .collect();
    assert_eq!(giant, [false, true, false, true]);
}

/// Each with its line, the key that is named, and what is said.
const WRONG_MODULES: [(&str, usize, &str, &[&str]); 19] = [
    (
        "name = 'magic'",
        2,
        "name",
        &["magic", "filter", "limiter", "ledger"],
    ),
    ("name = 'x'\nkind = 'magic'", 3, "kind", &["magic"]),
    ("name = 'A b'\nkind = 'filter'", 2, "name", &["a-z"]),
    (
        "name = 'filter'\n[[module]]\nname = 'filter'",
        4,
        "name",
        &["second"],
    ),
    (
        "name = 'filter'\nrules = [\n'pass',\n'permit']",
        5,
        "rules",
        &["permit"],
    ),
    (
        "name = 'filter'\ndefault = 'no'",
        3,
        "default",
        &["pass nor drop"],
    ),
    (
        "name = 'filter'\npeers = 4",
        2,
        "name",
        &["no setting `peers`", "rules"],
    ),
    (
        "name = 'limiter'",
        2,
        "name",
        &["packets_per_second", "bytes_per_second"],
    ),
    (
        "name = 'limiter'\npackets_per_second = 0",
        3,
        "packets_per_second",
        &["1 to"],
    ),
    (
        "name = 'limiter'\npackets_per_second = 9\npoint = 'up'",
        4,
        "point",
        &["in, out, forward"],
    ),
    (
        "name = 'limiter'\npackets_per_second = 9\neach = [33, 64]",
        4,
        "each",
        &["32"],
    ),
    (
        "name = 'w'\nkind = 'firewall'\nfile = 'no/such.nft'",
        4,
        "file",
        &["no/such.nft: No such file"],
    ),
    (
        "name = 'firewall'\nruleset = 'table inet t'",
        3,
        "ruleset",
        &["ruleset:1:13: at the end: `{` is missing"],
    ),
    (
        "name = 'firewall'\nfile = 'a.nft'\nruleset = 'nonsense'",
        4,
        "ruleset",
        &["a.nft:1:1: `nonsense`"],
    ),
    (
        "name = 'firewall'\nruleset = ''\nflows = 0",
        4,
        "flows",
        &["out of range"],
    ),
    (
        "name = 'filter'\nfile = 'a.nft'",
        2,
        "name",
        &["no setting `file`"],
    ),
    ("name = 'ledger'\npeers = 0", 3, "peers", &["out of range"]),
    (
        "name = 'ledger'\nconcurrency = 'any'",
        3,
        "concurrency",
        &["needs Giant"],
    ),
    (
        "name = 'filter'\nconcurrency = 'some'",
        3,
        "concurrency",
        &["any nor giant"],
    ),
];

#[test]
fn modules_that_cannot_be_meant_are_refused() {
    for (body, line, key, named) in WRONG_MODULES {
        let text = format!("[[module]]\n{body}");
        wrong(&text, line, &format!("module.{key}"), named);
    }
}

#[test]
fn a_firewall_reads_its_file() {
    let file = std::env::temp_dir().join(format!("netchan-rules-{}.nft", std::process::id()));
    let rules = "table inet t {\n chain c {\n  tcp dport 80 accept\n }\n}\n";
    std::fs::write(&file, rules).unwrap();
    let text = format!(
        "[[module]]\nname = 'firewall'\nconcurrency = 'giant'\nflows = 100\nfile = {:?}",
        file.to_str().unwrap()
    );
    let read = Config::parse(&text, "x.toml");
    std::fs::remove_file(&file).unwrap();
    let modules = read.expect("it is right").modules;
    let ModuleKind::Firewall(settings) = &modules[0].kind else {
        panic!("{modules:?}");
    };
    let sizes = (settings.rules(), settings.flows, settings.flows_each);
    assert_eq!(sizes, (1, 100, 100), "no source has more than there are");
    assert_eq!(modules[0].ruleset.as_deref(), Some(rules));
    let made = modules[0].make().unwrap();
    assert_eq!(made.concurrency(), Concurrency::Giant);
}

/// The keys that the parser knows in the table that `header` opens: it names them when it meets one that it does not know.
fn keys_of(header: &str) -> Vec<String> {
    let error =
        Config::parse(&format!("{header}\nno_such_key = 1\n"), "x").expect_err("an unknown key");
    let said = error.to_string();
    let (_, names) = said.split_once("expected").expect("the keys are named");
    let quoted = names.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[test]
fn the_parser_and_the_table_have_the_same_keys() {
    for (table, header) in [
        ("", ""),
        ("link", "[[link]]"),
        ("link.route", "[[link]]\nkind = \"tap\"\n[[link.route]]"),
        ("tcp", "[tcp]"),
        ("udp", "[udp]"),
        ("icmp", "[icmp]"),
        ("run", "[run]"),
        ("log", "[log]"),
        ("module", "[[module]]"),
        ("lease", "[[lease]]"),
    ] {
        let mut known = keys_of(header);
        known.retain(|key| !(table.is_empty() && keys::TABLES.contains(&&**key)));
        known.sort();
        let mut rows: Vec<&str> = keys::of(table).map(|key| key.name).collect();
        rows.sort_unstable();
        assert_eq!(known, rows, "{table}");
    }
}

/// The words in quotes that a row's column has.
fn words_of(key: &keys::Key) -> Vec<String> {
    let column = example::column(key);
    let quoted = column.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| text.starts_with('"'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_word_of_the_table_is_read_and_every_word_that_is_read_is_in_it() {
    let mut words = 0;
    for table in ["", "tcp", "log"] {
        for key in keys::of(table).filter(|key| !words_of(key).is_empty()) {
            let line = |value: &str| match table {
                "" => format!("{} = {value}", key.name),
                table => format!("[{table}]\n{} = {value}", key.name),
            };
            for word in words_of(key) {
                // A dispatch that the default regime does not have is still a word.
                let text = match key.name {
                    "dispatch" => format!("regime = \"locked\"\n{}", line(&word)),
                    _ => line(&word),
                };
                Config::parse(&text, "x").unwrap_or_else(|e| panic!("{text}: {e}"));
                words += 1;
            }
            let error = Config::parse(&line("\"no such word\""), "x").expect_err(key.name);
            let Some((_, names)) = error.what.split_once("one of ") else {
                continue;
            };
            for name in names.split(", ") {
                let quoted = format!("\"{name}\"");
                assert!(words_of(key).contains(&quoted), "{name} of {}", key.path());
            }
        }
    }
    assert!(words > 25, "{words}");
}

/// What a person makes of the example by taking every `#` away that stands right before a key or table.
fn switched_on(example: &str) -> String {
    let line = |line: &str| {
        let key = line.strip_prefix('#').filter(|l| !l.starts_with(' '));
        format!("{}\n", key.unwrap_or(line))
    };
    example.lines().map(line).collect()
}

#[test]
fn the_example_is_valid_and_has_every_key() {
    let text = Config::example();
    let as_it_is = Config::parse(&text, "example").unwrap();
    assert!(as_it_is.links.is_empty() && as_it_is.modules.is_empty());
    assert!(as_it_is.leases.is_empty());
    let on = switched_on(&text);
    let whole = Config::parse(&on, "example").unwrap_or_else(|e| panic!("{e}\n{on}"));
    assert_eq!((whole.links.len(), whole.modules.len()), (1, 4));
    assert_eq!(whole.leases.len(), 1);
    // The key that goes in place of another does.
    let swapped = on
        .lines()
        .filter(|line| !line.starts_with("packets_per_second"));
    let swapped: String = swapped
        .map(|line| line.trim_start_matches("# in its place: ").to_owned() + "\n")
        .collect();
    let bytes = Config::parse(&swapped, "example").unwrap();
    let ModuleKind::Limiter(limit) = &bytes.modules[2].kind else {
        panic!("{:?}", bytes.modules)
    };
    assert_eq!(limit.unit, Unit::Bytes);
    for key in keys::all().filter(|key| !matches!(key.value, keys::Given::Example(""))) {
        let line = format!("{} = ", key.name);
        let is_there = swapped.lines().chain(on.lines());
        assert!(
            is_there.filter(|l| l.starts_with(&line)).count() > 0,
            "{line}"
        );
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

/// The settings of a stack that starts with this configuration, by name.
fn settings(text: &str) -> std::collections::BTreeMap<String, serde_json::Value> {
    let text = format!("{text}\n[[link]]\nkind = \"loop\"\n");
    let config = Config::parse(&text, "x").unwrap();
    let net = crate::Builder::from_config(&config).unwrap();
    let net = net.start().unwrap();
    let rows = net.show("settings").unwrap();
    let rows = rows.as_array().unwrap().iter();
    let rows = rows.filter(|row| row["name"] != "up_s");
    rows.map(|row| {
        (
            row["name"].as_str().unwrap().to_owned(),
            row["value"].clone(),
        )
    })
    .collect()
}

#[test]
fn the_defaults_of_the_table_are_those_of_a_stack() {
    let empty = settings("");
    assert_eq!(empty, settings(&Config::example()));
    // What they are compared by is there for every key that has a place in `show settings`.
    for key in keys::all() {
        let name = match key.changes {
            keys::Changes::Run => key.path(),
            keys::Changes::Boot { shown: "", .. } => continue,
            keys::Changes::Boot { shown, .. } => shown.to_owned(),
        };
        assert!(empty.contains_key(&name), "{name}");
    }
    // And a key that is not the default is seen there: the comparison is not blind.
    assert_ne!(empty, settings("[tcp]\nnagle = false"));
    let default = Config::default();
    let Config {
        run, log, cores, ..
    } = Config::parse(&Config::example(), "x").unwrap();
    assert_eq!((run.writable, cores), (default.run.writable, default.cores));
    assert_eq!(run.sandbox, Some(false));
    assert_eq!(log.level, Some(crate::log::Verbosity::default()));
}

#[test]
fn the_defaults_of_modules_are_those_of_the_table() {
    let with = |body: &str, key: &str| {
        let row = keys::of("module").find(|row| row.name == key).expect(key);
        let keys::Given::Default(literal) = row.value else {
            panic!("{key} has no default")
        };
        let read = |text: String| Config::parse(&text, "x").unwrap().modules;
        let head = format!("[[module]]\n{body}\n");
        assert_eq!(read(head.clone()), read(format!("{head}{key} = {literal}")));
    };
    let limiter = "name = 'limiter'\npackets_per_second = 9";
    with("name = 'filter'", "concurrency");
    with("name = 'filter'", "default");
    with(limiter, "point");
    with(limiter, "table");
    with("name = 'ledger'", "peers");
    let firewall = "name = 'firewall'\nruleset = ''";
    with(firewall, "flows");
    with(firewall, "flows_each");
    let rows = keys::of("module");
    let defaults = rows.filter(|row| matches!(row.value, keys::Given::Default(_)));
    assert_eq!(defaults.count(), 7, "a default that nothing above looks at");
}

/// `NETCHAN_RECORD=1 cargo test -p netchan --lib config` writes the tables of the document anew.
#[test]
fn the_document_has_the_tables_of_keys() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let document = std::fs::read_to_string(path).expect("docs/configuration.md");
    let mut made = document.clone();
    for (table, mark) in [
        ("", "<!-- keys -->"),
        ("link", "<!-- keys of link -->"),
        ("link.route", "<!-- keys of link.route -->"),
        ("tcp", "<!-- keys of tcp -->"),
        ("udp", "<!-- keys of udp -->"),
        ("icmp", "<!-- keys of icmp -->"),
        ("run", "<!-- keys of run -->"),
        ("log", "<!-- keys of log -->"),
        ("module", "<!-- keys of module -->"),
        ("lease", "<!-- keys of lease -->"),
    ] {
        let (before, rest) = made.split_once(mark).expect(mark);
        let rest = rest.trim_start();
        let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        let first = match table {
            "link.route" => "key of a `route`",
            _ => "key",
        };
        let head = format!("| {first} | values (default first) | meaning |\n| --- | --- | --- |");
        let rows = example::rows(table);
        made = format!("{before}{mark}\n\n{head}\n{rows}{}", &rest[end..]);
    }
    if std::env::var_os("NETCHAN_RECORD").is_some() {
        std::fs::write(path, &made).expect("the document can be written");
    } else {
        assert!(
            made == document,
            "docs/configuration.md is not what the table says: NETCHAN_RECORD=1 writes it anew"
        );
    }
    for (whose, names) in example::options() {
        let row = document
            .lines()
            .find(|line| line.starts_with(&format!("| {whose} |")))
            .or_else(|| {
                let quoted = format!("| `{whose}` |");
                document.lines().find(|line| line.starts_with(&quoted))
            })
            .unwrap_or_else(|| panic!("no options of {whose}"));
        for name in names {
            assert!(
                row.contains(&format!("`{name}`")) || row.contains(&format!("`{name}=")),
                "{name} of {whose}"
            );
        }
    }
    // And its example is one.
    let example = document
        .split("```toml")
        .nth(1)
        .and_then(|text| text.split("```").next());
    Config::parse(example.expect("an example"), "x").expect("the example is valid");
}
