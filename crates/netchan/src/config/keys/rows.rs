//! The rows of the top level, `[tcp]`, `[udp]`, `[run]` and `[log]`.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::{
    super::{
        Config,
        problem::{Problem, problem},
        words::{
            background, congestion, dispatch, ecn, fast_open, icmp_while_connecting, level,
            loopback, moderation, mtu_probing, regime, spin, syn_cookies, trace_events, verbosity,
        },
    },
    Changes,
    Given::{Default, Example},
    Key, bytes, plain, text, typed,
};
use crate::limits::{LEASE_MEMORY, MEMORY, SHARDS_MAX};

/// A window of 65535 bytes scaled by 2¹⁴ is 1 GiB (RFC 7323 §2.3).
const BUFFER: RangeInclusive<u64> = (4 << 10)..=(1 << 30);

const fn boot(shown: &'static str) -> Changes {
    boot_or(shown, "")
}

const fn boot_or(shown: &'static str, also: &'static str) -> Changes {
    Changes::Boot { shown, also }
}

fn put_cores(config: &mut Config, cores: Vec<Spanned<usize>>) -> Result<(), Problem> {
    for core in cores {
        if config.cores.contains(core.get_ref()) {
            let what = format!("core {} is listed twice", core.get_ref());
            return Err(problem(&core, what));
        }
        config.cores.push(core.into_inner());
    }
    Ok(())
}

fn put_shards(config: &mut Config, shards: Spanned<usize>) -> Result<(), Problem> {
    if !(1..=SHARDS_MAX).contains(shards.get_ref()) {
        let what = format!("{} is out of range: 1 to {SHARDS_MAX}", shards.get_ref());
        return Err(problem(&shards, what));
    }
    config.shards = Some(shards.into_inner());
    Ok(())
}

/// What rows begin with.
const OF_TOP: Key = Key {
    table: "",
    name: "",
    value: Example(""),
    values: "",
    meaning: "",
    changes: boot(""),
    read: None,
};

const OF_TCP: Key = Key {
    table: "tcp",
    name: "",
    value: Example(""),
    values: "",
    meaning: "",
    changes: Changes::Run,
    read: None,
};

const OF_UDP: Key = Key {
    table: "udp",
    ..OF_TOP
};

const OF_ICMP: Key = Key {
    table: "icmp",
    ..OF_TCP
};

const OF_RUN: Key = Key {
    table: "run",
    ..OF_TOP
};

const OF_LOG: Key = Key {
    table: "log",
    ..OF_TOP
};

pub(super) const TOP: &[Key] = &[
    Key {
        name: "regime",
        value: Default(r#""app-channel""#),
        values: r#", `"socket-channel"`, `"driver-channel"`, `"percpu"`, `"locked"`, `"giant"`"#,
        meaning: "how work is placed on cores (docs/regimes.md)",
        changes: boot_or("regime", "--regime or NETCHAN_REGIME"),
        read: Some(|c, v| text(&mut c.regime, v, regime)),
        ..OF_TOP
    },
    Key {
        name: "giant",
        value: Default("false"),
        values: ", `true`",
        meaning: "one lock around `locked`; alone it means the regime `giant`",
        changes: boot_or("giant", "--giant or NETCHAN_GIANT"),
        read: Some(|c, v| plain(&mut c.giant, v)),
        ..OF_TOP
    },
    Key {
        name: "dispatch",
        value: Default(r#""direct""#),
        values: r#", `"deferred"`, `"hybrid"`"#,
        meaning: "where protocol work runs, in `giant` and `locked`",
        changes: boot_or("dispatch", "--dispatch or NETCHAN_DISPATCH"),
        read: Some(|c, v| text(&mut c.dispatch, v, dispatch)),
        ..OF_TOP
    },
    Key {
        name: "shards",
        value: Example("2"),
        values: "; 1 to 64",
        meaning: "shards where the regime leaves it open; not said: the regime's own number, in `app-channel` one for each queue of the link that has most",
        changes: boot("shards"),
        read: Some(|c, v| put_shards(c, typed(v)?)),
        ..OF_TOP
    },
    Key {
        name: "forwarding",
        value: Default("false"),
        values: ", `true`",
        meaning: "packets for other hosts are passed on between links",
        changes: boot_or("forwarding", "--forwarding or NETCHAN_FORWARDING"),
        read: Some(|c, v| plain(&mut c.forwarding, v)),
        ..OF_TOP
    },
    Key {
        name: "mss_clamp",
        value: Default("false"),
        values: ", `true`",
        meaning: "SYNs passed on offer no longer segments than their links take",
        changes: boot("mss_clamp"),
        read: Some(|c, v| plain(&mut c.mss_clamp, v)),
        ..OF_TOP
    },
    Key {
        name: "loopback",
        value: Default(r#""kernel""#),
        values: r#", `"netchan"`"#,
        meaning: "whose 127.0.0.0/8 and ::1 are; a daemon lends its own",
        changes: boot_or("loopback", "--loopback or NETCHAN_LOOPBACK"),
        read: Some(|c, v| text(&mut c.loopback, v, loopback)),
        ..OF_TOP
    },
    Key {
        name: "lease_memory_max",
        value: Example(r#""2 GiB""#),
        values: "half of the machine's memory; 16 MiB to 4 TiB",
        meaning: "what the leases of one user other than root take together; SIGHUP reads it again",
        read: Some(|c, v| bytes(&mut c.lease_memory_max, v, &LEASE_MEMORY)),
        ..OF_TOP
    },
    Key {
        name: "moderation",
        value: Default(r#""0us""#),
        values: r#" to `"10ms"`"#,
        meaning: "packets wake a link's thread at most once in this time",
        changes: boot("moderation_us"),
        read: Some(|c, v| text(&mut c.moderation, v, moderation)),
        ..OF_TOP
    },
    Key {
        name: "background",
        value: Default(r#""5ms""#),
        values: r#"; `"0us"` to `"100ms"`"#,
        meaning: "where no thread has waited for so long, the links' threads poll; 0: always",
        changes: boot("background_us"),
        read: Some(|c, v| text(&mut c.background, v, background)),
        ..OF_TOP
    },
    Key {
        name: "spin",
        value: Default(r#""0us""#),
        values: r#" to `"10ms"`"#,
        meaning: "a thread that waits looks for so long before it sleeps",
        changes: boot_or("spin_ns", "--spin or NETCHAN_SPIN"),
        read: Some(|c, v| text(&mut c.spin, v, spin)),
        ..OF_TOP
    },
    Key {
        name: "trace",
        value: Default(r#""rare""#),
        values: r#", `"off"`, `"all"`"#,
        meaning: "what the trace log records",
        changes: Changes::Run,
        read: Some(|c, v| text(&mut c.trace, v, level)),
        ..OF_TOP
    },
    Key {
        name: "trace_events",
        value: Default("1024"),
        values: "; a power of two, 64 to 1,048,576",
        meaning: "events that each thread's trace ring keeps, 64 bytes each; the process's first stack says it",
        changes: boot("trace_events"),
        read: Some(|c, v| {
            c.trace_events = Some(trace_events(&typed(v)?)?);
            Ok(())
        }),
        ..OF_TOP
    },
    Key {
        name: "compile_filters",
        value: Default("true"),
        values: ", `false`",
        meaning: "filters of captures become machine code where the process may have executable memory; else they are interpreted",
        changes: boot("compile_filters"),
        read: Some(|c, v| plain(&mut c.compile_filters, v)),
        ..OF_TOP
    },
    Key {
        name: "cores",
        value: Default("[]"),
        values: ", or numbers",
        meaning: "what threads are placed on, in this order",
        read: Some(|c, v| put_cores(c, typed(v)?)),
        ..OF_TOP
    },
];

pub(super) const TCP: &[Key] = &[
    Key {
        name: "congestion",
        value: Default(r#""cubic""#),
        values: r#", `"reno"` or `"newreno"`, `"dctcp"`, `"bbr"`"#,
        meaning: "congestion control of new connections",
        read: Some(|c, v| text(&mut c.tcp.congestion, v, congestion)),
        ..OF_TCP
    },
    Key {
        name: "slow_start_limit",
        value: Default("0"),
        values: " to `255`",
        meaning: "segments that one acknowledgment may add in slow start; 0: all (RFC 9406 §4.2 has 8)",
        read: Some(|c, v| plain(&mut c.tcp.slow_start_limit, v)),
        ..OF_TCP
    },
    Key {
        name: "ecn",
        value: Default(r#""passive""#),
        values: r#", `"off"`, `"classic"`, `"accurate"`"#,
        meaning: "RFC 3168, RFC 9768",
        read: Some(|c, v| text(&mut c.tcp.ecn, v, ecn)),
        ..OF_TCP
    },
    Key {
        name: "pacing",
        value: Default("false"),
        values: ", `true`",
        meaning: "text leaves at the window's rate; BBR always does",
        read: Some(|c, v| plain(&mut c.tcp.pacing, v)),
        ..OF_TCP
    },
    Key {
        name: "mtu_probing",
        value: Default(r#""blackhole""#),
        values: r#", `"off"`, `"always"`"#,
        meaning: "RFC 4821",
        read: Some(|c, v| text(&mut c.tcp.mtu_probing, v, mtu_probing)),
        ..OF_TCP
    },
    Key {
        name: "icmp_while_connecting",
        value: Default(r#""end""#),
        values: r#", `"note"`"#,
        meaning: "an ICMP error ends connect(2) as in Linux, or is only noted (RFC 1122)",
        read: Some(|c, v| text(&mut c.tcp.icmp_while_connecting, v, icmp_while_connecting)),
        ..OF_TCP
    },
    Key {
        name: "timestamps_required",
        value: Default("false"),
        values: ", `true`",
        meaning: "a segment without its timestamp is dropped (RFC 7323 §3.2)",
        read: Some(|c, v| plain(&mut c.tcp.timestamps_required, v)),
        ..OF_TCP
    },
    Key {
        name: "receive_buffer_max",
        value: Default(r#""6 MiB""#),
        values: "; 4 KiB to 1 GiB",
        meaning: "what a receive buffer grows to",
        changes: boot("tcp.receive_buffer_max_bytes"),
        read: Some(|c, v| bytes(&mut c.tcp.receive_buffer_max, v, &BUFFER)),
        ..OF_TCP
    },
    Key {
        name: "send_buffer_max",
        value: Default(r#""8 MiB""#),
        values: "; 4 KiB to 1 GiB",
        meaning: "what a send buffer grows to",
        changes: boot("tcp.send_buffer_max_bytes"),
        read: Some(|c, v| bytes(&mut c.tcp.send_buffer_max, v, &BUFFER)),
        ..OF_TCP
    },
    Key {
        name: "memory_max",
        value: Example(r#""1 GiB""#),
        values: "a share of the slabs; 64 KiB to 4 TiB",
        meaning: "what all TCP sockets hold",
        changes: boot("tcp.memory_bytes"),
        read: Some(|c, v| bytes(&mut c.tcp.memory_max, v, &MEMORY)),
        ..OF_TCP
    },
    Key {
        name: "socket_memory_max",
        value: Example(r#""256 MiB""#),
        values: "a quarter of it; 64 KiB to 4 TiB",
        meaning: "what one socket holds",
        changes: boot("tcp.socket_memory_bytes"),
        read: Some(|c, v| bytes(&mut c.tcp.socket_memory_max, v, &MEMORY)),
        ..OF_TCP
    },
    Key {
        name: "peer_memory_max",
        value: Example(r#""512 MiB""#),
        values: "half of it; 64 KiB to 4 TiB",
        meaning: "what one peer makes this stack hold",
        changes: boot("tcp.peer_memory_bytes"),
        read: Some(|c, v| bytes(&mut c.tcp.peer_memory_max, v, &MEMORY)),
        ..OF_TCP
    },
    Key {
        name: "user_timeout_option",
        value: Default("false"),
        values: ", `true`",
        meaning: "both ends agree on how long they go on without an answer (RFC 5482)",
        read: Some(|c, v| plain(&mut c.tcp.user_timeout_option, v)),
        ..OF_TCP
    },
    Key {
        name: "syn_cookies",
        value: Default(r#""when-full""#),
        values: r#", `"off"`, `"always"`"#,
        meaning: "RFC 4987",
        read: Some(|c, v| text(&mut c.tcp.syn_cookies, v, syn_cookies)),
        ..OF_TCP
    },
    Key {
        name: "fast_open",
        value: Default(r#""both""#),
        values: r#", `"client"`, `"server"`, `"off"`"#,
        meaning: "RFC 7413",
        read: Some(|c, v| text(&mut c.tcp.fast_open, v, fast_open)),
        ..OF_TCP
    },
    Key {
        name: "nagle",
        value: Default("true"),
        values: ", `false`",
        meaning: "small segments wait for company (RFC 896)",
        read: Some(|c, v| plain(&mut c.tcp.nagle, v)),
        ..OF_TCP
    },
];

pub(super) const UDP: &[Key] = &[
    Key {
        name: "memory_max",
        value: Example(r#""64 MiB""#),
        values: "a share of the slabs; 64 KiB to 4 TiB",
        meaning: "what all UDP sockets hold",
        changes: boot("udp.memory_bytes"),
        read: Some(|c, v| bytes(&mut c.udp.memory_max, v, &MEMORY)),
        ..OF_UDP
    },
    Key {
        name: "socket_memory_max",
        value: Example(r#""16 MiB""#),
        values: "a quarter of it; 64 KiB to 4 TiB",
        meaning: "what one socket holds",
        changes: boot("udp.socket_memory_bytes"),
        read: Some(|c, v| bytes(&mut c.udp.socket_memory_max, v, &MEMORY)),
        ..OF_UDP
    },
    Key {
        name: "peer_memory_max",
        value: Example(r#""32 MiB""#),
        values: "half of it; 64 KiB to 4 TiB",
        meaning: "what datagrams of one peer hold",
        changes: boot("udp.peer_memory_bytes"),
        read: Some(|c, v| bytes(&mut c.udp.peer_memory_max, v, &MEMORY)),
        ..OF_UDP
    },
];

pub(super) const ICMP: &[Key] = &[Key {
    name: "rate_limit",
    value: Default("true"),
    values: ", `false`",
    meaning: "ICMP errors to others are rate limited (RFC 1122 §3.2.2, RFC 4443 §2.4); off for tests",
    read: Some(|c, v| plain(&mut c.icmp.rate_limit, v)),
    ..OF_ICMP
}];

pub(super) const RUN: &[Key] = &[
    Key {
        name: "user",
        value: Example(r#""nobody""#),
        values: "name or number",
        meaning: "`netchan run` gives up all other rights once the links are open",
        read: Some(|c, v| plain(&mut c.run.user, v)),
        ..OF_RUN
    },
    Key {
        name: "sandbox",
        value: Default("false"),
        values: ", `true`",
        meaning: "Landlock and seccomp once the links are open",
        read: Some(|c, v| plain(&mut c.run.sandbox, v)),
        ..OF_RUN
    },
    Key {
        name: "writable",
        value: Default("[]"),
        values: ", or paths",
        meaning: "what a confined program may write to",
        read: Some(|c, v| plain(&mut c.run.writable, v)),
        ..OF_RUN
    },
];

pub(super) const LOG: &[Key] = &[
    Key {
        name: "level",
        value: Default(r#""usual""#),
        values: r#", `"quiet"`, `"verbose"`"#,
        meaning: "how much `netchan run` tells by itself: docs/observability.md",
        read: Some(|c, v| text(&mut c.log.level, v, verbosity)),
        ..OF_LOG
    },
    Key {
        name: "file",
        value: Example(r#""/var/log/netchan.log""#),
        values: "path; none: stderr",
        meaning: "what it is appended to",
        read: Some(|c, v| plain(&mut c.log.file, v)),
        ..OF_LOG
    },
];
