//! System calls of a process or of some threads, counted from outside: by the kernel's tracepoint (perf), or by strace where perf cannot.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::find_program;

/// Both count every call of every thread of a process. perf costs it next to nothing; strace stops it twice a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
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

    /// Where it is installed.
    pub fn find(self) -> Option<PathBuf> {
        find_program(self.program())
    }

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Perf => &["stat", "-x", ",", "-e", TRACEPOINT, "-o"],
            Self::Strace => &["-c", "-o"],
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

/// A counter that runs.
pub(crate) struct Counting {
    counter: Counter,
    child: Child,
    summary: PathBuf,
}

impl Counting {
    /// Of all threads of a process.
    pub fn of_process(counter: Counter, pid: u32, summary: &Path) -> Result<Self, String> {
        let mut process = vec!["-p".to_owned(), pid.to_string()];
        if counter == Counter::Strace {
            process.push("-f".to_owned());
        }
        Self::start(counter, &process, summary.to_owned())
    }

    /// Of some threads of this process, by the first counter that works.
    ///
    /// # Errors
    /// Where none is installed, or what the last one said.
    pub fn of_threads(threads: &[Pid]) -> Result<Self, String> {
        /// Several may count at once in one process.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let ids: Vec<_> = threads
            .iter()
            .map(|t| t.as_raw_nonzero().to_string())
            .collect();
        let number = NUMBER.fetch_add(1, Relaxed);
        let file = format!("netchan-calls-{}-{number}", std::process::id());
        let mut why = "neither perf nor strace is installed".to_owned();
        for counter in [Counter::Perf, Counter::Strace] {
            if counter.find().is_none() {
                continue;
            }
            let arguments = match counter {
                Counter::Perf => vec!["-t".to_owned(), ids.join(",")],
                Counter::Strace => {
                    let each = |id: &String| ["-p".to_owned(), id.clone()];
                    ids.iter().flat_map(each).collect()
                }
            };
            match Self::start(counter, &arguments, env::temp_dir().join(&file)) {
                Ok(counting) => return Ok(counting),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    fn start(counter: Counter, of: &[String], summary: PathBuf) -> Result<Self, String> {
        let program = counter.find().unwrap_or_default();
        let child = Command::new(program)
            .args(counter.arguments())
            .arg(&summary)
            .args(of)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|e| format!("{}: {e}", counter.program()))?;
        let mut counting = Self {
            counter,
            child,
            summary,
        };
        thread::sleep(Duration::from_millis(500)); // until it is attached
        match counting.child.try_wait() {
            Ok(Some(status)) => Err(format!("{} ended with {status}", counter.program())),
            _ => Ok(counting),
        }
    }

    /// Ends it as Ctrl-C does, so that it writes what it counted; the number.
    ///
    /// # Errors
    /// What it said instead of a number.
    pub fn total(mut self) -> Result<f64, String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.child.wait();
        let said = fs::read_to_string(&self.summary);
        let said = said.map_err(|e| format!("{}: {e}", self.summary.display()))?;
        let total = self.counter.read(&said);
        total.ok_or_else(|| format!("{} said {said:?}", self.counter.program()))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.summary); // it may not have come to be
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
