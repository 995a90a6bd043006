//! What goes on for a while and leaves something to fetch: captures and plots. Bounded in number, in time and in size; kept in memory, so that no name in a
//! request is a file's.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use hyper::{StatusCode, body::Bytes};
use serde::Serialize;

use super::refused::Refused;
use crate::{
    failure::{Failure, failed},
    output::printable,
};

/// At once.
const RUNNING_MAX: usize = 4;
/// Of them plots, each of which may take 200 MB while it is made.
const PLOTS_MAX: usize = 1;
/// Kept, those that run among them; for a further one the oldest that has ended goes.
const KEPT_MAX: usize = 8;
/// Of what a job leaves, bytes.
pub const RESULT_MAX: usize = 32 << 20;

/// What a job leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A pcapng file.
    Capture,
    /// A plot's data.
    Plot,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
struct Progress {
    is_running: bool,
    frames: u64,
    bytes: u64,
    note: Option<String>,
    error: Option<String>,
    result: Option<Bytes>,
}

/// One of them.
#[derive(Debug)]
pub struct Job {
    pub id: u64,
    pub kind: Kind,
    pub stack: String,
    /// In words.
    about: String,
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

/// A row of the list.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub id: u64,
    kind: Kind,
    stack: String,
    about: String,
    pub is_running: bool,
    frames: u64,
    bytes: u64,
    note: Option<String>,
    pub error: Option<String>,
    pub has_result: bool,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        // Relaxed: nothing else goes by it.
        self.stop.load(Relaxed)
    }

    /// How far it is.
    pub fn tell(&self, frames: u64, bytes: u64) {
        let mut progress = locked(&self.progress);
        (progress.frames, progress.bytes) = (frames, bytes);
    }

    /// What is to be said of it.
    pub fn note(&self, note: String) {
        locked(&self.progress).note = Some(note);
    }

    fn end(&self, result: Result<Bytes, Failure>) {
        let mut progress = locked(&self.progress);
        progress.is_running = false;
        match result {
            Ok(bytes) if bytes.len() <= RESULT_MAX => progress.result = Some(bytes),
            Ok(bytes) => {
                let (mib, most) = (bytes.len() >> 20, RESULT_MAX >> 20);
                let why = format!(
                    "it came to {mib} MiB, more than the {most} that are kept: take less time"
                );
                progress.error = Some(why);
            }
            Err(Failure::Failed(why) | Failure::Usage(why)) => {
                progress.error = Some(printable(&why));
            }
            Err(Failure::Unread) => progress.error = Some("it has ended".to_owned()),
        }
    }

    fn row(&self) -> Row {
        let progress = locked(&self.progress);
        Row {
            id: self.id,
            kind: self.kind,
            stack: self.stack.clone(),
            about: self.about.clone(),
            is_running: progress.is_running,
            frames: progress.frames,
            bytes: progress.bytes,
            note: progress.note.clone(),
            error: progress.error.clone(),
            has_result: progress.result.is_some(),
        }
    }

    fn is_running(&self) -> bool {
        locked(&self.progress).is_running
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Jobs(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    last: u64,
    all: Vec<Arc<Job>>,
}

impl Jobs {
    /// Starts `work` in a thread of its own; the job's number.
    ///
    /// # Errors
    /// Too many run.
    pub fn start(
        &self,
        kind: Kind,
        stack: &str,
        about: String,
        work: impl FnOnce(&Job) -> Result<Bytes, Failure> + Send + 'static,
    ) -> Result<u64, Refused> {
        let mut registry = locked(&self.0);
        let running = registry.all.iter().filter(|job| job.is_running());
        let plots = running.clone().filter(|job| job.kind == Kind::Plot).count();
        if running.count() >= RUNNING_MAX || (kind == Kind::Plot && plots >= PLOTS_MAX) {
            let why = format!(
                "{RUNNING_MAX} captures and plots run at most, {PLOTS_MAX} of them a plot: wait, or stop one"
            );
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, why));
        }
        if registry.all.len() >= KEPT_MAX
            && let Some(oldest) = registry.all.iter().position(|job| !job.is_running())
        {
            registry.all.remove(oldest);
        }
        registry.last += 1;
        let job = Arc::new(Job {
            id: registry.last,
            kind,
            stack: stack.to_owned(),
            about,
            stop: AtomicBool::new(false),
            progress: Mutex::new(Progress {
                is_running: true,
                ..Progress::default()
            }),
        });
        let own = Arc::clone(&job);
        let begun = thread::Builder::new().name(format!("web-job-{}", job.id));
        begun
            .spawn(move || {
                let ends = Ends(own);
                let result = work(&ends.0);
                ends.0.end(result);
            })
            .map_err(|e| Refused::conflict(format!("no thread for it: {e}")))?;
        registry.all.push(job);
        Ok(registry.last)
    }

    /// A list, the newest last.
    pub fn rows(&self) -> Vec<Row> {
        locked(&self.0).all.iter().map(|job| job.row()).collect()
    }

    fn find(&self, id: u64) -> Result<Arc<Job>, Refused> {
        let registry = locked(&self.0);
        let job = registry.all.iter().find(|job| job.id == id);
        job.cloned()
            .ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, "there is no such capture or plot"))
    }

    /// Has one end; what it has done so far stays.
    ///
    /// # Errors
    /// There is none.
    pub fn stop(&self, id: u64) -> Result<(), Refused> {
        self.find(id)?.stop.store(true, Relaxed);
        Ok(())
    }

    /// Lets go of one that has ended; one that runs is stopped first.
    ///
    /// # Errors
    /// There is none.
    pub fn forget(&self, id: u64) -> Result<(), Refused> {
        let job = self.find(id)?;
        job.stop.store(true, Relaxed);
        if job.is_running() {
            return Err(Refused::conflict("it still runs; it was told to stop"));
        }
        locked(&self.0).all.retain(|job| job.id != id);
        Ok(())
    }

    /// What one has left.
    ///
    /// # Errors
    /// There is none; it still runs; it has failed.
    pub fn result(&self, id: u64) -> Result<(Arc<Job>, Bytes), Refused> {
        let job = self.find(id)?;
        let progress = locked(&job.progress).clone();
        match (progress.result, progress.error) {
            (Some(bytes), _) => Ok((job, bytes)),
            (None, Some(why)) => Err(Refused::conflict(why)),
            (None, None) => Err(Refused::conflict("it still runs")),
        }
    }
}

/// Ends its job however the thread ends.
struct Ends(Arc<Job>);

impl Drop for Ends {
    fn drop(&mut self) {
        if self.0.is_running() {
            self.0.end(Err(failed("its thread has panicked")));
        }
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
