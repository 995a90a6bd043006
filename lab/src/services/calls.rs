//! How many system calls a server makes for a request: the kernel's tracepoint counts them, or strace, where perf cannot.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    files::find,
    measure::{Effort, both, load},
    programs::{REDIS_1, service},
    stage::Stage,
    usage::Usage,
    way::Way,
};
use crate::report::Row;

/// Both count every call of every thread of a process. perf costs it next to nothing; strace stops it twice a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Perf,
    Strace,
}

/// Every system call enters by it.
const TRACEPOINT: &str = "raw_syscalls:sys_enter";

impl Counter {
    pub const fn program(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Strace => "strace",
        }
    }

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Perf => &["stat", "-x", ",", "-e", TRACEPOINT, "-o"],
            Self::Strace => &["-f", "-c", "-o"],
        }
    }

    /// The number in what it wrote.
    fn read(self, said: &str) -> Option<f64> {
        let number = match self {
            // 64513,,raw_syscalls:sys_enter,1502112,100.00,,
            Self::Perf => {
                let mut lines = said.lines();
                lines.find(|l| l.contains(TRACEPOINT))?.split(',').next()?
            }
            // The last line: percent, seconds, µs a call, calls, maybe errors, "total".
            Self::Strace => said.lines().last()?.split_whitespace().nth(3)?,
        };
        number.parse().ok()
    }
}

/// System calls of the server for each request of redis' one client.
///
/// # Errors
/// Where neither counter works.
pub(super) fn row(stage: &Stage, effort: &Effort) -> Result<Row, String> {
    let mut why = "neither perf nor strace is installed".to_owned();
    for counter in [Counter::Perf, Counter::Strace] {
        if find(counter.program()).is_none() {
            continue;
        }
        match sides(stage, effort, counter) {
            Ok([ours, kernels]) => {
                let row = both("system_calls_per_request", ours, "kernel", kernels);
                let how = format!("counted by {}", counter.program());
                return Ok(row.reference(&how).target("<= 3"));
            }
            Err(e) => why = e,
        }
    }
    Err(why)
}

fn sides(stage: &Stage, effort: &Effort, counter: Counter) -> Result<[Vec<f64>; 2], String> {
    let mut counts = [Vec::new(), Vec::new()];
    for _ in 0..effort.rounds_of_others {
        for (counts, way) in counts.iter_mut().zip([Way::Packet, Way::Kernel]) {
            counts.push(calls(stage, way, counter)?);
        }
    }
    Ok(counts)
}

/// All calls while requests went, by those requests. The server's own clock (ten a second) is within.
fn calls(stage: &Stage, way: Way, counter: Counter) -> Result<f64, String> {
    let service = service(REDIS_1);
    let server = stage.serve(way, &service.program, service.settings)?;
    let load = load(service, way).map_err(|e| e.to_string())?;
    let summary = stage.folder.join("calls");
    let counting = Counting::start(counter, server.pid(), &summary)?;
    let time = Duration::from_millis(1500);
    let outcome = load.run(Duration::ZERO, time, &|| Ok(Usage::default()));
    let outcome = outcome.map_err(|e| e.to_string())?;
    let said = counting.end(&summary)?;
    let total = counter.read(&said);
    let total = total.ok_or_else(|| format!("{} said {said:?}", counter.program()))?;
    #[allow(clippy::cast_precision_loss)] // below 2^52
    Ok(total / outcome.answers.max(1) as f64)
}

/// A counter that runs.
struct Counting(Child);

impl Counting {
    fn start(counter: Counter, pid: u32, summary: &Path) -> Result<Self, String> {
        let program = find(counter.program()).unwrap_or_default();
        let child = Command::new(program)
            .args(counter.arguments())
            .arg(summary)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let counting = Self(child.map_err(|e| format!("{}: {e}", counter.program()))?);
        thread::sleep(Duration::from_millis(500)); // until it is attached
        Ok(counting)
    }

    /// As Ctrl-C does: it writes what it counted.
    fn end(mut self, summary: &Path) -> Result<String, String> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.0.wait();
        fs::read_to_string(summary).map_err(|e| format!("{}: {e}", summary.display()))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_that_counted_gives_the_number() {
        let perf = "# started on Mon\n\n64513,,raw_syscalls:sys_enter,1502112,100.00,,\n";
        assert_eq!(Counter::Perf.read(perf), Some(64513.0));
        let strace = "% time seconds usecs/call calls errors syscall\n 60.00 0.1 1 9 2 ppoll\n100.00 0.1 1 30 2 total\n";
        assert_eq!(Counter::Strace.read(strace), Some(30.0));
    }

    #[test]
    fn counter_that_could_not_count_gives_none() {
        let perf = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(Counter::Perf.read(perf), None);
        assert_eq!(Counter::Perf.read(""), None);
        assert_eq!(Counter::Strace.read(""), None);
    }
}
