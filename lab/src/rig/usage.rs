//! What the threads of this process have used so far, by role: processor time and switches by the kernel, stages by netchan, operations by percore.

use std::{fs, io};

use netchan::{
    Net,
    trace::stages::{self, COUNT},
};
use percore::operations;
use rustix::thread::Pid;

use super::{
    job::{Outcome, Used},
    role::Role,
};
use crate::kit::process_seconds;

/// A thread of this process.
pub(super) struct Thread {
    pub id: Pid,
    pub name: String,
    processor_ns: f64,
    switches: f64,
}

/// Those that live.
pub(super) fn threads() -> io::Result<Vec<Thread>> {
    let mut all = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        let id = task.file_name().to_str().and_then(|n| n.parse().ok());
        let read = |file| fs::read_to_string(task.path().join(file));
        let (Some(id), Ok(name), Ok(times), Ok(status)) = (
            id.and_then(Pid::from_raw),
            read("comm"),
            read("schedstat"),
            read("status"),
        ) else {
            continue; // it has just ended
        };
        let number = |word: Option<&str>| word.and_then(|w| w.parse::<f64>().ok()).unwrap_or(0.0);
        let lines = status.lines().filter(|l| l.contains("ctxt_switches"));
        all.push(Thread {
            id,
            name: name.trim_end().to_owned(),
            // proc(5): time on a processor, ns, is the first of schedstat's.
            processor_ns: number(times.split_whitespace().next()),
            switches: lines.map(|l| number(l.split_whitespace().last())).sum(),
        });
    }
    Ok(all)
}

/// Of the roles whose system calls are counted.
pub(super) fn receiving_threads() -> io::Result<Vec<Pid>> {
    let threads = threads()?.into_iter();
    let receiving = threads.filter(|t| Role::RECEIVING.contains(&Role::of(&t.name)));
    Ok(receiving.map(|t| t.id).collect())
}

/// Readings of one moment.
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    processor_seconds: f64,
    roles: [Used; Role::ALL.len()],
    operations: [u64; operations::COUNT],
    segments: f64,
    giant: [f64; 3],
}

impl Reading {
    /// Now, of this process and, where there is one, of the receiver's stack.
    pub fn now(net: Option<&Net>) -> io::Result<Self> {
        let mut reading = Self {
            segments: net.map_or(0.0, |net| {
                figure(net, "counters", "name", "tcp_segments_in", "value")
            }),
            giant: ["taken", "waits", "wait_ns"]
                .map(|of| net.map_or(0.0, |net| figure(net, "locks", "lock", "giant", of))),
            ..Self::default()
        };
        for thread in threads()? {
            let used = &mut reading.roles[Role::of(&thread.name) as usize];
            used.processor_ns += thread.processor_ns;
            used.switches += thread.switches;
        }
        for spent in stages::read() {
            let used = &mut reading.roles[Role::of(&spent.thread) as usize];
            #[allow(clippy::cast_precision_loss)] // below 2^52
            for (sum, ns) in used.stages_ns.iter_mut().zip(spent.ns) {
                *sum += ns as f64;
            }
        }
        reading.operations = operations::read();
        reading.processor_seconds = process_seconds();
        Ok(reading)
    }

    /// What came between `before` and this. Generators and what disturbs are still in its processor time.
    pub fn since(&self, before: &Self) -> Outcome {
        let used = |i: usize| {
            let (now, then): (Used, Used) = (self.roles[i], before.roles[i]);
            Used {
                processor_ns: now.processor_ns - then.processor_ns,
                switches: now.switches - then.switches,
                stages_ns: std::array::from_fn::<_, COUNT, _>(|s| {
                    (now.stages_ns[s] - then.stages_ns[s]).max(0.0)
                }),
            }
        };
        Outcome {
            processor_seconds: self.processor_seconds - before.processor_seconds,
            packets: self.segments - before.segments,
            roles: std::array::from_fn(used),
            operations: std::array::from_fn(|i| self.operations[i] - before.operations[i]),
            giant: std::array::from_fn(|i| self.giant[i] - before.giant[i]),
            ..Outcome::default()
        }
    }
}

/// A number out of what `netchan show` tells.
fn figure(net: &Net, topic: &str, key: &str, row: &str, of: &str) -> f64 {
    let rows = net.show(topic).unwrap_or_default();
    let mut rows = rows.as_array().into_iter().flatten();
    let found = rows.find(|found| found[key] == row);
    found.and_then(|row| row[of].as_f64()).unwrap_or(0.0)
}
