//! The rig: one job (a stream or a service, in one regime, at one rate, with its roles on cores) in a process of its own, and rounds of many jobs that take turns.

mod carrier;
pub(crate) mod child;
mod datagrams;
mod job;
mod links;
mod pace;
mod place;
mod preempter;
mod role;
mod rounds;
mod service;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod usage;

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use parking_lot::Mutex;

pub(crate) use self::{
    carrier::Carrier,
    job::{Counter, Disturbance, Job, Look, Outcome, Pace, Place, Work},
    role::Role,
    rounds::{Entry, Found},
    service::BATCH,
    settings::{Protocol, Settings, candidates},
};
use crate::kit::{Stopwatch, netchan};

/// Where jobs run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rig {
    /// In a process of its own, which is ended after this; `None`: in this one, for tests.
    deadline: Option<Duration>,
}

impl Rig {
    /// Each job in a process of its own, which is ended after `deadline`.
    pub const fn apart(deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { deadline }
    }

    /// Jobs run in this process: their figures are no measurements.
    #[cfg(test)]
    pub const fn in_this_process() -> Self {
        Self { deadline: None }
    }

    /// Does a job.
    ///
    /// # Errors
    /// What went wrong, or that the build does not have it.
    pub fn run(&self, job: &Job) -> Result<Outcome, String> {
        let done = match self.deadline {
            Some(deadline) => apart(job, deadline)?,
            None => here(job)?,
        };
        match done.absent {
            Some(why) => Err(why),
            None => Ok(done),
        }
    }
}

/// A job on a thread of its own, whose affinity it may change. One at a time: threads are told apart by their names.
fn here(job: &Job) -> Result<Outcome, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock();
    let perform = || child::perform(job).map_err(|e| e.to_string());
    thread::scope(|scope| scope.spawn(perform).join())
        .unwrap_or_else(|_| Err("the job's thread panicked".to_owned()))
}

/// A job in a child process, which is ended after `deadline`.
fn apart(job: &Job, deadline: Duration) -> Result<Outcome, String> {
    let text = serde_json::to_string(job).map_err(|e| e.to_string())?;
    let mut child = Command::new(netchan()?)
        .args(["__inner", "lab", &text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let watch = Stopwatch::start();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if watch.seconds() > deadline.as_secs_f64() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end within {} s", deadline.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut answer = String::new();
    if let Some(out) = &mut child.stdout {
        out.read_to_string(&mut answer).map_err(|e| e.to_string())?;
    }
    if !status.success() {
        let mut said = String::new();
        if let Some(err) = &mut child.stderr {
            let _ = err.read_to_string(&mut said); // what it said is a help, no more
        }
        let last = said.lines().last().unwrap_or_default();
        return Err(format!("its process ended with {status}: {last}"));
    }
    serde_json::from_str(&answer).map_err(|e| e.to_string())
}
