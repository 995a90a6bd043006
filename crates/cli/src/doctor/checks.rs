//! The single checks; each reads a file or asks the kernel, and knows what would mend it.

use std::{fs, path::PathBuf, thread, time::Duration};

use rustix::{
    process::{Resource, getrlimit},
    thread::CapabilitySet,
};

use super::Check;
use crate::{namespace, run, units};

/// Where the kernel's files are; another root in tests.
pub struct Machine {
    pub root: PathBuf,
}

impl Machine {
    /// A file's text without white space at its ends; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path))
            .ok()
            .map(|text| text.trim().to_owned())
    }
    fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.parse().ok()
    }
}

/// Everything, what prevents a run first.
pub fn all(machine: &Machine) -> Vec<Check> {
    let mut checks = vec![preload(), build()];
    checks.extend(links(machine));
    checks.extend([nofile(), memory(machine), memlock(), huge_pages(machine)]);
    checks.push(cores());
    checks.extend([
        governor(machine),
        smt(machine),
        clock(machine),
        steal(machine),
        load(machine),
    ]);
    checks.extend([other_stacks(), congestion(machine), perf(machine)]);
    checks
}

fn preload() -> Check {
    match run::library() {
        Ok(path) => Check::ok("preload library", path.display().to_string()),
        Err(why) => Check::bad(
            "preload library",
            match why {
                crate::failure::Failure::Failed(why) => why,
                other => format!("{other:?}"),
            },
            "cargo build --release",
        ),
    }
}

fn build() -> Check {
    let on = netchan::checks::in_words();
    if on != "none" {
        return Check::warn(
            "build",
            format!("slow, with expensive checks: {on}"),
            "make build, then target/release/netchan",
        );
    }
    Check::ok("build", "release, no expensive checks")
}

/// Which links this user can have.
fn links(machine: &Machine) -> Vec<Check> {
    let abilities = namespace::abilities();
    let admin = has(CapabilitySet::NET_ADMIN);
    let raw = has(CapabilitySet::NET_RAW);
    let rights = match (admin, raw) {
        (true, true) => Check::ok("privileges", "CAP_NET_ADMIN and CAP_NET_RAW"),
        _ => Check::warn(
            "privileges",
            "no CAP_NET_ADMIN or CAP_NET_RAW: TAP and AF_PACKET links outside a namespace of one's own are refused",
            "run as root, or: sudo setcap cap_net_admin,cap_net_raw+ep on a copy of the program; netchan demo needs neither",
        ),
    };
    let tun = match fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(machine.root.join("dev/net/tun"))
    {
        Ok(_) => Check::ok("/dev/net/tun", "may be opened"),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Check::warn(
            "/dev/net/tun",
            "may not be opened by this user: no TAP links",
            "sudo chmod 0666 /dev/net/tun (the usual mode), or run as root",
        ),
        Err(e) => Check::warn(
            "/dev/net/tun",
            format!("{e}: no TAP links"),
            "sudo modprobe tun; in a container: pass the device in",
        ),
    };
    let namespaces = match (abilities.namespace, abilities.namespace_error) {
        (Some(kind), _) => Check::ok("namespaces", format!("a {kind} can be made")),
        (None, why) => Check::warn(
            "namespaces",
            format!(
                "none can be made ({}): the demo stays in memory",
                why.unwrap_or_default()
            ),
            namespace_mend(machine),
        ),
    };
    vec![rights, tun, namespaces]
}

fn namespace_mend(machine: &Machine) -> String {
    let switches = [
        (
            "proc/sys/user/max_user_namespaces",
            0,
            "user.max_user_namespaces=10000",
        ),
        (
            "proc/sys/kernel/unprivileged_userns_clone",
            0,
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            1,
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let closed = switches
        .iter()
        .find(|(file, closed, _)| machine.number(file) == Some(*closed));
    match closed {
        Some((_, _, setting)) => format!("sudo sysctl -w {setting}"),
        None => "run as root; in a container: allow CAP_SYS_ADMIN or unshare(2)".to_owned(),
    }
}

fn has(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

fn nofile() -> Check {
    let soft = getrlimit(Resource::Nofile).current;
    match soft {
        Some(n) if n < 4096 => Check::warn(
            "open files",
            format!("limit {n}: programs under netchan hold a descriptor for each connection"),
            "ulimit -n 65536",
        ),
        Some(n) => Check::ok("open files", format!("limit {n}")),
        None => Check::ok("open files", "no limit"),
    }
}

fn memlock() -> Check {
    const WANTED: u64 = 64 << 20;
    match getrlimit(Resource::Memlock).current {
        Some(n) if n < WANTED && !has(CapabilitySet::IPC_LOCK) => Check::warn(
            "locked memory",
            format!("limit {}", bytes(n)),
            "ulimit -l unlimited (AF_XDP links and pinned buffers want 64 MiB)",
        ),
        Some(n) if n < WANTED => Check::ok(
            "locked memory",
            format!("limit {}, CAP_IPC_LOCK lifts it", bytes(n)),
        ),
        Some(n) => Check::ok("locked memory", format!("limit {}", bytes(n))),
        None => Check::ok("locked memory", "no limit"),
    }
}

#[allow(clippy::cast_precision_loss)] // three digits are printed
fn bytes(n: u64) -> String {
    units::bytes(n as f64)
}

/// A line such as `MemAvailable:   123 kB` of /proc/meminfo, in bytes (or a number where there is no unit).
fn meminfo(machine: &Machine, name: &str) -> Option<u64> {
    let text = machine.read("proc/meminfo")?;
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = rest.split_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") {
        value.saturating_mul(1024)
    } else {
        value
    })
}

fn memory(machine: &Machine) -> Check {
    match meminfo(machine, "MemAvailable") {
        Some(n) if n < 1 << 30 => Check::warn(
            "memory",
            format!("{} available", bytes(n)),
            "end other programs: the demo and the experiments use about 1 GiB",
        ),
        Some(n) => Check::ok("memory", format!("{} available", bytes(n))),
        None => Check::ok("memory", "unknown"),
    }
}

fn huge_pages(machine: &Machine) -> Check {
    let fixed = meminfo(machine, "HugePages_Total").unwrap_or(0);
    let transparent = machine
        .read("sys/kernel/mm/transparent_hugepage/enabled")
        .unwrap_or_default();
    if fixed == 0 && transparent.contains("[never]") {
        return Check::warn(
            "huge pages",
            "none, and transparent ones are off: large tables cost TLB misses",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
    let mode = transparent
        .split(['[', ']'])
        .nth(1)
        .unwrap_or("unknown")
        .to_owned();
    Check::ok(
        "huge pages",
        format!("{fixed} reserved, transparent: {mode}"),
    )
}

fn cores() -> Check {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Check::warn(
            "cores",
            "1: client and server share it, and nothing can be seen of several cores",
            "use a machine (or taskset) with at least 2",
        );
    }
    Check::ok("cores", format!("{cores} usable"))
}

fn governor(machine: &Machine) -> Check {
    let of = |cpu: usize| {
        machine.read(&format!(
            "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
        ))
    };
    let governors: Vec<String> = (0..4096).map_while(of).collect();
    match governors.iter().find(|governor| *governor != "performance") {
        Some(other) => Check::warn(
            "frequency",
            format!("governor {other}: the clock follows the load, and latencies with it"),
            "sudo cpupower frequency-set -g performance",
        ),
        None if governors.is_empty() => Check::ok(
            "frequency",
            "not controlled from here (fixed, or a virtual machine)",
        ),
        None => Check::ok("frequency", "governor performance"),
    }
}

fn smt(machine: &Machine) -> Check {
    match machine.number("sys/devices/system/cpu/smt/active") {
        Some(1) => Check::warn(
            "hyper-threads",
            "on: two of the processors may be one core",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control, or pin with taskset",
        ),
        _ => Check::ok("hyper-threads", "off or none"),
    }
}

fn clock(machine: &Machine) -> Check {
    let source = machine.read("sys/devices/system/clocksource/clocksource0/current_clocksource");
    let flags = machine.read("proc/cpuinfo").unwrap_or_default();
    let steady = flags.contains("constant_tsc") && flags.contains("nonstop_tsc");
    match source.as_deref() {
        Some("tsc") => Check::ok("clock", "tsc"),
        Some("kvm-clock") if steady => Check::ok("clock", "kvm-clock over a steady tsc"),
        Some("arch_sys_counter") => Check::ok("clock", "arch_sys_counter"),
        Some(other) => Check::warn(
            "clock",
            format!("{other}: reading the time costs a system call or is coarse"),
            "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        None => Check::ok("clock", "unknown"),
    }
}

/// (stolen, all) ticks of all processors since the start. (proc(5), /proc/stat)
fn ticks(machine: &Machine) -> Option<(u64, u64)> {
    let text = machine.read("proc/stat")?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let columns: Vec<u64> = line
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; the guest columns after it are counted in user already
    Some((*columns.get(7)?, columns.iter().take(8).sum()))
}

#[allow(clippy::cast_precision_loss)] // a percentage
fn steal(machine: &Machine) -> Check {
    let before = ticks(machine);
    thread::sleep(Duration::from_millis(300));
    let (Some((stolen0, all0)), Some((stolen1, all1))) = (before, ticks(machine)) else {
        return Check::ok("stolen time", "unknown");
    };
    let percent = |stolen: u64, all: u64| 100.0 * stolen as f64 / all.max(1) as f64;
    let now = percent(stolen1.saturating_sub(stolen0), all1.saturating_sub(all0));
    let ever = percent(stolen1, all1);
    let found = format!("{now:.1} % now, {ever:.1} % since the start");
    if now > 1.0 || ever > 2.0 {
        return Check::warn(
            "stolen time",
            found,
            "the hypervisor runs others on these cores: measure when they rest, and repeat",
        );
    }
    Check::ok("stolen time", found)
}

fn load(machine: &Machine) -> Check {
    let text = machine.read("proc/loadavg").unwrap_or_default();
    let last_minute = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    match last_minute {
        Some(load) if load > 0.5 => Check::warn(
            "load",
            format!("{load:.2} over the last minute: something else runs"),
            "see with top what it is, and end it or wait",
        ),
        Some(load) => Check::ok("load", format!("{load:.2} over the last minute")),
        None => Check::ok("load", "unknown"),
    }
}

fn other_stacks() -> Check {
    let stacks = netchan::control::stacks();
    if stacks.is_empty() {
        return Check::ok("other stacks", "none");
    }
    let ids: Vec<&str> = stacks.iter().map(|stack| stack.id.as_str()).collect();
    Check::warn(
        "other stacks",
        format!(
            "running in process {}: they share cores and TAP names",
            ids.join(", ")
        ),
        "see: netchan show",
    )
}

fn congestion(machine: &Machine) -> Check {
    match machine
        .read("proc/sys/net/ipv4/tcp_congestion_control")
        .as_deref()
    {
        Some("cubic") => Check::ok("kernel's TCP", "congestion control cubic"),
        Some(other) => Check::warn(
            "kernel's TCP",
            format!(
                "congestion control {other}: as the peer in a measurement it paces differently"
            ),
            "sudo sysctl -w net.ipv4.tcp_congestion_control=cubic (per namespace)",
        ),
        None => Check::ok("kernel's TCP", "unknown"),
    }
}

fn perf(machine: &Machine) -> Check {
    match machine.number("proc/sys/kernel/perf_event_paranoid") {
        Some(level) if level > 2 && !has(CapabilitySet::SYS_ADMIN) => Check::warn(
            "perf counters",
            format!("perf_event_paranoid is {level}: no cycles, no cache misses"),
            "sudo sysctl -w kernel.perf_event_paranoid=1",
        ),
        Some(level) => Check::ok("perf counters", format!("perf_event_paranoid is {level}")),
        None => Check::ok("perf counters", "the kernel has none"),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
