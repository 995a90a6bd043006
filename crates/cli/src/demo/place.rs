//! What the demo leaves behind when it ends, in whatever way: nothing. Temporary files and child processes.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::failure::{Failure, at, failed};

/// Lines of a process's output that an error shows.
const TAIL_LINES: usize = 12;

/// A temporary directory that does not outlive this process: a process of its own removes it when this one has ended, killed or not.
pub struct Place {
    directory: PathBuf,
    janitor: Child,
    /// Its other end is the janitor's standard input.
    lifeline: Option<ChildStdin>,
}

impl Place {
    /// Makes it.
    pub fn new() -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("netchan-demo-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(at(directory.display()))?;
        let janitor = Command::new(own_program()?)
            .args(["__inner", "janitor"])
            .arg(&directory)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // Ctrl-C is not for it
            .spawn();
        let mut janitor = janitor.map_err(|e| {
            let _ = fs::remove_dir(&directory);
            failed(format!("starting a helper process: {e}"))
        })?;
        let lifeline = janitor.stdin.take();
        Ok(Self {
            directory,
            janitor,
            lifeline,
        })
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Starts `command`, which will be killed when this process ends or the [`Worker`] is dropped. What it prints goes to a file.
    pub fn start(&self, name: &str, command: &[OsString]) -> Result<Worker, Failure> {
        let log = self.directory.join(format!("{name}.log"));
        let file = fs::File::create(&log).map_err(at(log.display()))?;
        let errors = file.try_clone().map_err(at(log.display()))?;
        let child = Command::new(own_program()?)
            .args(["__inner", "child", &std::process::id().to_string(), "--"])
            .args(command)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .current_dir(&self.directory)
            .spawn()
            .map_err(at(name))?;
        Ok(Worker {
            name: name.to_owned(),
            child,
            log,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Servers that were killed left their control sockets; looking for stacks removes those.
        let _ = netchan::control::stacks();
        drop(self.lifeline.take());
        let _ = self.janitor.wait();
    }
}

/// This program's file.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| failed(format!("netchan cannot find itself: {e}")))
}

/// A child process, killed and waited for when dropped.
pub struct Worker {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error if it has ended, with what it said last.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(failed(format!(
                "{} ended ({status}){}",
                self.name,
                self.tail()
            ))),
            Err(e) => Err(failed(format!("{}: {e}", self.name))),
        }
    }

    /// `error` with what the process said last; how it ended, if it has.
    pub fn explain(&mut self, what: &str, error: &io::Error) -> Failure {
        match self.check() {
            Err(ended) => ended,
            Ok(()) => failed(format!("{what}: {error}{}", self.tail())),
        }
    }

    fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(TAIL_LINES)..)
            .unwrap_or_default();
        if last.is_empty() {
            return String::new();
        }
        format!("; {} said last:\n  {}", self.name, last.join("\n  "))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
