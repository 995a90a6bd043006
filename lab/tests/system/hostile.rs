//! Crowds and enemies: ten thousand connections, a port scan, a SYN flood, frames that make no sense. Afterwards the server serves, holds
//! the memory it held before, and has counted what it dropped.

use std::{fs, time::Duration};

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{Knobs, OURS, Place, SOON, socket_address},
    process::{Process, eventually},
    programs::ECHO,
    transfer::place_for,
};

pub const CASES: &[Case] = &[
    ("ten_thousand_connections", crowd),
    ("port_scan", scan),
    ("syn_flood", flood),
    ("fuzzed_frames", fuzz),
];

/// Resident memory may grow by this much (caches, tables that were never touched before), KiB.
const GROWTH_MAX_KIB: u64 = 24 << 10;

/// How long what an attack left may stay: fragments that wait for the rest (RFC 8200 §4.5).
const SETTLED: Duration = Duration::from_secs(75);

/// netchan's MAC address, as the kernel learned it.
pub fn mac_of(place: &Place) -> Result<String, String> {
    let shown = place
        .run("ip", &["neigh", "show", OURS[0]], SOON)?
        .success()?;
    let mut words = shown
        .output
        .split_whitespace()
        .skip_while(|w| *w != "lladdr");
    words
        .nth(1)
        .map(str::to_owned)
        .ok_or_else(|| format!("no neighbour: {}", shown.output))
}

/// A server under test, and how it was before.
pub struct Target {
    pub place: Place,
    server: Process,
    resident_kib: u64,
    /// What was free, by name and owner.
    free: Vec<(String, u64)>,
    counters: Value,
}

/// Memory of a process, as proc(5) calls it: `VmRSS:`.
pub fn resident_kib(pid: u32, kind: &str) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|l| l.strip_prefix(kind));
    let number = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse().ok());
    number.ok_or_else(|| format!("no {kind}"))
}

/// Buffers and nodes that are free, as the stack's own counts have it.
pub fn free(place: &Place, pid: u32) -> Result<Vec<(String, u64)>, String> {
    let shown = place.show(pid, "memory")?;
    let rows = shown.as_array().ok_or("no list of memory")?;
    let row = |row: &Value| {
        let name = format!("{} of {}", row.get("what")?, row.get("of")?);
        Some((name, row.get("free")?.as_u64()?))
    };
    let found: Vec<_> = rows.iter().filter_map(row).collect();
    if found.is_empty() {
        return Err(format!("nothing about memory: {shown}"));
    }
    Ok(found)
}

impl Target {
    pub fn new() -> Result<Self, String> {
        let place = place_for("tap:nc0")?;
        let mut server = place.start_netchan("tap:nc0", "python3", &["-c", ECHO])?;
        for address in OURS {
            place.wait_for(&mut server, address, 8000)?;
            place.run("ping", &["-c", "1", address], SOON)?.success()?;
        }
        // Warm: Python has allocated what one connection needs, the stack what it makes on first use.
        let target = socket_address(OURS[0], 8000);
        place
            .inner(&["connections", &target, "500", "2"])?
            .finish(SOON)?
            .success()?;
        let resident_kib = resident_kib(server.pid(), "VmRSS:")?;
        let counters = place.show(server.pid(), "counters")?;
        let free = free(&place, server.pid())?;
        Ok(Self {
            place,
            server,
            resident_kib,
            free,
            counters,
        })
    }

    /// So many connections at once, over each family.
    fn meets(&self, connections: &str) -> Outcome {
        for address in OURS {
            let at = socket_address(address, 8000);
            self.place
                .inner(&["connections", &at, connections, "4"])?
                .finish(Duration::from_secs(120))?
                .success()
                .map_err(|e| format!("{e}; server: {}", self.server.said()))?;
        }
        Ok(())
    }

    /// Asserts that it still serves both families; else what its stack looks like.
    pub fn serves(&mut self) -> Outcome {
        self.answers().map_err(|why| {
            let pid = self.server.pid();
            let shown = |topic| match self.place.show(pid, topic) {
                Ok(value) => value.to_string(),
                Err(e) => e,
            };
            let kernel = self.place.run("ip", &["neigh", "show"], SOON);
            let kernel = kernel.map_or_else(|e| e, |done| done.output);
            format!(
                "{why}\n    netchan's neighbours: {}\n    the kernel's: {kernel}\n    sockets: {:.2000}\n    counters since: {:?}",
                shown("neighbors"),
                shown("sockets"),
                self.growth()
            )
        })
    }

    fn answers(&mut self) -> Outcome {
        for address in OURS {
            self.place.wait_for(&mut self.server, address, 8000)?;
            let target = socket_address(address, 8000);
            self.place
                .inner(&["connections", &target, "20", "2"])?
                .finish(SOON)?
                .success()?;
        }
        Ok(())
    }

    /// Its memory is back where it was: the process's about, the stack's by the buffer.
    pub fn is_as_before(&mut self, slack_kib: u64) -> Outcome {
        let pid = self.server.pid();
        let missing = || -> Result<Vec<_>, String> {
            let now = free(&self.place, pid)?;
            let pairs = self.free.iter().zip(now);
            Ok(pairs.filter(|(before, now)| now.1 < before.1).collect())
        };
        if !eventually(SETTLED, || missing().is_ok_and(|m| m.is_empty())) {
            return Err(format!("free before and after: {:?}", missing()?));
        }
        let most = self.resident_kib + GROWTH_MAX_KIB + slack_kib;
        let back = eventually(SOON, || {
            resident_kib(pid, "VmRSS:").is_ok_and(|now| now <= most)
        });
        let now = resident_kib(pid, "VmRSS:")?;
        if back {
            Ok(())
        } else {
            Err(format!("{} KiB before, {now} KiB after", self.resident_kib))
        }
    }

    /// How much each counter grew.
    pub fn growth(&self) -> Result<Vec<(String, u64)>, String> {
        let now = self.place.show(self.server.pid(), "counters")?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        flatten("", &self.counters, &mut before);
        flatten("", &now, &mut after);
        let old = |name: &str| {
            before
                .iter()
                .find(|(n, _)| n == name)
                .map_or(0, |(_, v)| *v)
        };
        Ok(after
            .into_iter()
            .map(|(n, v)| (n.clone(), v.saturating_sub(old(&n))))
            .filter(|(_, v)| *v > 0)
            .collect())
    }
}

/// The numbers of a JSON value, by path; what carries a name is called by it.
fn flatten(path: &str, value: &Value, found: &mut Vec<(String, u64)>) {
    match value {
        Value::Number(n) => found.extend(n.as_u64().map(|n| (path.to_owned(), n))),
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| flatten(&format!("{path}/{k}"), v, found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| {
            let name = v
                .get("name")
                .and_then(Value::as_str)
                .map_or_else(|| i.to_string(), str::to_owned);
            flatten(&format!("{path}/{name}"), v, found);
        }),
        _ => {}
    }
}

fn crowd(_: &Knobs) -> Outcome {
    let mut target = Target::new()?;
    // Buffers take their memory when they are used first, and keep it: what a second crowd takes more is what is lost.
    target.meets("10000")?;
    target.resident_kib = resident_kib(target.server.pid(), "VmRSS:")?;
    target.meets("10000")?;
    target.serves()?;
    // Python keeps some of what 10,000 transports took.
    target.is_as_before(64 << 10)?;
    let gone = eventually(Duration::from_secs(90), || {
        let shown = target.place.show(target.server.pid(), "sockets");
        shown.is_ok_and(|s| s.to_string().matches("ESTABLISHED").count() == 0)
    });
    if gone {
        Ok(())
    } else {
        Err("connections are still there".to_owned())
    }
}

fn scan(knobs: &Knobs) -> Outcome {
    let mut target = Target::new()?;
    // Resets are limited to some hundreds a second: all ports take minutes.
    let ports = if knobs.soak { "1:65535" } else { "7000:9000" };
    for address in OURS {
        let inner = target
            .place
            .inner(&["scan", &socket_address(address, 0), ports, "8000"])?;
        inner
            .finish(Duration::from_secs(900))?
            .success()
            .map_err(|e| format!("{address}: {e}"))?;
    }
    target.serves()?;
    target.is_as_before(0)
}

fn flood(knobs: &Knobs) -> Outcome {
    let mut target = Target::new()?;
    let (mac, seconds) = (mac_of(&target.place)?, if knobs.soak { "60" } else { "6" });
    let flood = target
        .place
        .inner(&["flood", "packet:nc0", &mac, seconds])?;
    let is_flooded = || {
        let growth = target.growth().unwrap_or_default();
        growth
            .iter()
            .any(|(name, _)| name.contains("tcp_syn_cookies_sent"))
    };
    if !eventually(SOON, is_flooded) {
        return Err(format!("no flood: {}; {:?}", flood.said(), target.growth()));
    }
    // While it lasts, an honest client still gets through, if it tries again: there is room for so many half-open connections.
    for address in OURS {
        let at = socket_address(address, 8000);
        let through = eventually(Duration::from_secs(60), || {
            let inner = target
                .place
                .inner(&["connections", &at, "1", "1"])
                .and_then(|p| p.finish(SOON));
            inner.is_ok_and(|done| done.status.success())
        });
        if !through {
            return Err(format!("{address}: no client got through during the flood"));
        }
    }
    let sent = flood.finish(Duration::from_secs(120))?.success()?;
    println!("    {}", sent.output.trim());
    target.serves()?;
    target.is_as_before(0)
}

fn fuzz(knobs: &Knobs) -> Outcome {
    let mut target = Target::new()?;
    let (mac, seconds) = (mac_of(&target.place)?, knobs.fuzz.as_secs().to_string());
    let seed = std::env::var("NETCHAN_SEED").unwrap_or_else(|_| "1".to_owned());
    let inner = target
        .place
        .inner(&["fuzz", "packet:nc0", &mac, &seconds, &seed])?;
    let sent = inner
        .finish(knobs.fuzz + Duration::from_secs(60))?
        .success()?;
    println!("    {}", sent.output.trim());
    if !target.server.is_running() {
        return Err(format!(
            "seed {seed}: the server ended: {}",
            target.server.said()
        ));
    }
    target.serves().map_err(|e| format!("seed {seed}: {e}"))?;
    target
        .is_as_before(0)
        .map_err(|e| format!("seed {seed}: {e}"))?;
    let growth = target.growth()?;
    let drops: u64 = growth
        .iter()
        .filter(|(n, _)| n.contains("drop"))
        .map(|(_, v)| v)
        .sum();
    println!(
        "    {drops} drops by reason: {:?}",
        growth
            .iter()
            .filter(|(n, _)| n.contains("drop"))
            .collect::<Vec<_>>()
    );
    if drops == 0 {
        Err(format!("no drop was counted: {growth:?}"))
    } else {
        Ok(())
    }
}
