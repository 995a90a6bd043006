//! What a process has used: processor time and thread switches, of all its threads.

use std::{fs, io, ops};

/// Totals, or their difference, or what each of many requests took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub processor_ns: f64,
    /// Voluntary and involuntary.
    pub switches: f64,
}

impl Usage {
    /// Of a process until now. Threads that have ended are not in it.
    ///
    /// # Errors
    /// When the process is no more.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut sum = Self::default();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            // proc(5): time on a processor, ns, is the first of schedstat's.
            let (Ok(times), Ok(status)) = (
                fs::read_to_string(task.join("schedstat")),
                fs::read_to_string(task.join("status")),
            ) else {
                continue; // it has just ended
            };
            let number = |word: Option<&str>| word.and_then(|w| w.parse::<f64>().ok());
            sum.processor_ns += number(times.split_whitespace().next()).unwrap_or(0.0);
            let lines = status.lines().filter(|l| l.contains("ctxt_switches"));
            let counts = lines.filter_map(|l| number(l.split_whitespace().last()));
            sum.switches += counts.sum::<f64>();
        }
        Ok(sum)
    }
}

impl ops::Sub for Usage {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            processor_ns: self.processor_ns - before.processor_ns,
            switches: self.switches - before.switches,
        }
    }
}

impl ops::Div<f64> for Usage {
    type Output = Self;
    fn div(self, n: f64) -> Self {
        Self {
            processor_ns: self.processor_ns / n,
            switches: self.switches / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    use super::*;

    /// Of a process with one thread: where threads end, what they used is no longer in the sum.
    #[test]
    fn work_and_sleeps_are_counted() {
        let work = "read x; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo; read x";
        let mut child = Command::new("sh")
            .args(["-c", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let before = Usage::of(child.id()).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let used = Usage::of(child.id()).unwrap() - before;
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(used.processor_ns > 1e6 && used.switches >= 1.0, "{used:?}");
        assert!(Usage::of(child.id()).is_err(), "it is no more");
    }
}
