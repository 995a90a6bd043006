//! Where a run took place, and what disturbed it: cores, clock, kernel, stolen time, involuntary switches.

use std::{collections::BTreeMap, fmt, fs};

use serde::Serialize;

/// The machine and what else ran on it meanwhile.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// The kernel's clock source, and the processor's frequency now where it is known.
    pub clock: String,
    /// Its release.
    pub kernel: String,
    /// The measuring thread stayed on one core.
    pub pinned: bool,
    /// What disturbed the run.
    pub what_else_ran: Noise,
}

/// What disturbed a run, counted from its begin to its end.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct Noise {
    /// Time the hypervisor gave to others, percent of one core.
    pub steal_percent: f64,
    /// Processor time of processes other than this one and its descendants, percent of one core. Interrupts' time, which belongs to no process, is not in it.
    pub others_percent: f64,
    /// How often the measuring thread was pushed off its core, by others or by threads of the experiment.
    pub involuntary_switches: u64,
    /// Load average of the last minute at the end.
    pub load: f64,
    /// Whether the figures can be compared with a quiet run's: steal below 1 %, others below 10 %. What the experiment does to itself is not
    /// counted against it.
    pub quiet: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = &self.what_else_ran;
        write!(
            f,
            "{} cores, {}, clock {}, Linux {}; steal {:.1} %, others {:.0} %, {} involuntary switches, load {:.2}: {}",
            self.cores,
            self.processor,
            self.clock,
            self.kernel,
            n.steal_percent,
            n.others_percent,
            n.involuntary_switches,
            n.load,
            if n.quiet {
                "quiet"
            } else {
                "NOT QUIET, take the minima"
            },
        )
    }
}

/// Readings at one moment; times in the kernel's ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    steal: u64,
    busy: u64,
    own: u64,
    total: u64,
    switches: u64,
}

/// Takes a reading at the begin and at the end of a run.
pub struct Watch {
    begin: Reading,
    /// Before the thread was pinned to one of them.
    cores: usize,
}

impl Watch {
    /// Begins.
    #[must_use]
    pub fn start() -> Self {
        Self {
            begin: Reading::now(),
            cores: cores(),
        }
    }

    /// Ends: the machine, with what disturbed it since [`start`](Self::start).
    #[must_use]
    pub fn machine(&self, pinned: bool) -> Machine {
        Machine {
            cores: self.cores,
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            clock: clock(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            pinned,
            what_else_ran: self.begin.noise(Reading::now(), self.cores),
        }
    }
}

impl Reading {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        // proc(5): user nice system idle iowait irq softirq steal; guest times are within user
        let ticks: Vec<u64> = numbers(
            stat.lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("cpu"),
        );
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0);
        Self {
            steal: at(7),
            busy: at(0) + at(1) + at(2),
            own: own_ticks(),
            total: ticks.iter().take(8).sum(),
            switches: involuntary_switches(),
        }
    }

    #[allow(clippy::cast_precision_loss)] // counts of a run are far below 2^52
    fn noise(self, end: Self, cores: usize) -> Noise {
        let wall = (end.total.saturating_sub(self.total) as f64 / cores as f64).max(1.0);
        let percent = |ticks: u64| 100.0 * ticks as f64 / wall;
        let own = end.own.saturating_sub(self.own);
        let steal_percent = percent(end.steal.saturating_sub(self.steal));
        let others_percent = percent(end.busy.saturating_sub(self.busy).saturating_sub(own));
        let involuntary_switches = end.switches.saturating_sub(self.switches);
        let load = line("/proc/loadavg").unwrap_or_default();
        let load = load
            .split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        let quiet = steal_percent < 1.0 && others_percent < 10.0;
        Noise {
            steal_percent,
            others_percent,
            involuntary_switches,
            load,
            quiet,
        }
    }
}

/// Ticks of this process, of its descendants that live, and of those that have ended and were waited for.
fn own_ticks() -> u64 {
    let mut all = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = process.file_name().to_str().and_then(|n| n.parse().ok());
        let stat = fs::read_to_string(process.path().join("stat"));
        let (Some(pid), Ok(stat)) = (pid, stat) else {
            continue; // no process, or it has just ended
        };
        all.insert(pid, ParentAndTicks::read(&stat));
    }
    let own = std::process::id();
    let is_ours = |mut pid: u32| {
        // Parents are older: the walk ends.
        while pid > 1 && pid != own {
            pid = all.get(&pid).map_or(0, |process| process.parent);
        }
        pid == own
    };
    let ours = all.iter().filter(|(pid, _)| is_ours(**pid));
    ours.map(|(_, process)| process.ticks).sum()
}

/// Of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ParentAndTicks {
    parent: u32,
    /// With those of its children that have ended.
    ticks: u64,
}

impl ParentAndTicks {
    /// proc(5): after the name in parentheses, field 4 is the parent, 14 and 15 are user and system time, 16 and 17 those of children that have ended.
    fn read(stat: &str) -> Self {
        let after = stat.rsplit(')').next().unwrap_or_default();
        let after: Vec<&str> = after.split_whitespace().collect();
        let at = |i: usize| after.get(i).and_then(|n| n.parse().ok()).unwrap_or(0u64);
        Self {
            parent: u32::try_from(at(1)).unwrap_or(0),
            ticks: (11..=14).map(at).sum(),
        }
    }
}

/// How many this thread may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// A file's first line.
fn line(path: &str) -> Option<String> {
    Some(
        fs::read_to_string(path)
            .ok()?
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}

/// How often the calling thread was pushed off its core so far (or gave it away by sched_yield: the kernel counts that here, too).
pub(crate) fn involuntary_switches() -> u64 {
    let switches = field("/proc/thread-self/status", "nonvoluntary_ctxt_switches");
    switches.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// What follows `name:` in a file of such lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let found = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix(':'));
    found.map(|v| v.trim().to_owned())
}

fn clock() -> String {
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let mhz = field("/proc/cpuinfo", "cpu MHz")
        .map(|m| format!(", {m} MHz"))
        .unwrap_or_default();
    format!("{}{mhz}", source.unwrap_or_else(|| "unknown".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_run_knows_its_machine() {
        let watch = Watch::start();
        let machine = watch.machine(true);
        assert!(machine.cores >= 1);
        assert!(!machine.kernel.is_empty());
        assert!(machine.to_string().contains("Linux"));
    }

    #[test]
    fn noise_is_counted_in_percent_of_a_core() {
        let begin = Reading::default();
        let end = Reading {
            steal: 5,
            busy: 110,
            own: 90,
            total: 200,
            switches: 7,
        };
        let noise = begin.noise(end, 2);
        assert_eq!(noise.steal_percent, 5.0);
        assert_eq!(noise.others_percent, 20.0);
        assert_eq!(noise.involuntary_switches, 7);
        assert!(!noise.quiet);
    }

    /// A run is disturbed by others, never by itself.
    #[test]
    fn noise_of_own_work_is_quiet() {
        let end = Reading {
            busy: 195,
            own: 190,
            total: 200,
            switches: 100_000,
            ..Reading::default()
        };
        assert!(Reading::default().noise(end, 2).quiet);
    }

    /// A shell that lives, and one that it started.
    #[test]
    fn time_of_living_descendants_is_own() {
        let work = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read x'; true";
        let before = own_ticks();
        let mut child = Command::new("sh")
            .args(["-c", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.as_mut().unwrap();
        out.read_exact(&mut [0]).unwrap();
        let during = own_ticks();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(during >= before + 3, "{before} {during}");
        assert!(own_ticks() >= during, "and stays so when they have ended");
    }

    #[test]
    fn process_with_a_strange_name_is_read() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5";
        let (parent, ticks) = (3, 100);
        let expected = ParentAndTicks { parent, ticks };
        assert_eq!(ParentAndTicks::read(stat), expected);
    }
}
