//! Programs that a case starts: output into files, a deadline for each, and none left behind.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A started program, in a process group of its own; dropped, the group is killed.
pub struct Process {
    /// What was started.
    pub what: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    ended: Option<ExitStatus>,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Finished {
    pub what: String,
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
}

impl Finished {
    /// Itself, if the status is 0.
    pub fn success(self) -> Result<Self, String> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(self.describe())
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        format!(
            "`{}` ended with {}: {}{}",
            self.what,
            self.status,
            tail(&self.output),
            tail(&self.errors)
        )
    }
}

/// The last lines, as far as they are text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(12)..].join("\n    ");
    let odd = |c: char| c == char::REPLACEMENT_CHARACTER || c.is_control() && c != '\n';
    if last.contains(odd) {
        format!("({} bytes that are no text)", text.len())
    } else {
        last
    }
}

/// Whether `condition` became true within `patience`.
#[allow(clippy::disallowed_methods)] // waiting for other processes takes real time
pub fn eventually(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

impl Process {
    /// Starts `command`, with its output in `folder` under `name`.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> Result<Self, String> {
        let (output, errors) = (
            folder.join(format!("{name}.out")),
            folder.join(format!("{name}.err")),
        );
        let create =
            |path: &Path| fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()));
        command
            .stdout(create(&output)?)
            .stderr(create(&errors)?)
            .process_group(0);
        Self::spawn(command, output, errors)
    }

    /// Starts a command with `stdout` going to the caller: see [`Process::stdout`].
    pub fn start_piped(mut command: Command, folder: &Path, name: &str) -> Result<Self, String> {
        let (output, errors) = (
            folder.join(format!("{name}.out")),
            folder.join(format!("{name}.err")),
        );
        let file = fs::File::create(&errors).map_err(|e| format!("{}: {e}", errors.display()))?;
        command.stdout(Stdio::piped()).stderr(file).process_group(0);
        Self::spawn(command, output, errors)
    }

    fn spawn(mut command: Command, output: PathBuf, errors: PathBuf) -> Result<Self, String> {
        let arguments: Vec<_> = command
            .get_args()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        let what = format!(
            "{} {}",
            command.get_program().to_string_lossy(),
            arguments.join(" ")
        );
        let child = command.spawn().map_err(|e| format!("{what}: {e}"))?;
        Ok(Self {
            what,
            child,
            output,
            errors,
            ended: None,
        })
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as kill -9 does. It is not waited for.
    pub fn kill(&self) -> Result<(), String> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no pid")?, Signal::KILL).map_err(|e| e.to_string())
    }

    /// Its output, once.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// What it has said so far: output and errors.
    pub fn said(&self) -> String {
        let read =
            |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", tail(&read(&self.output)), tail(&read(&self.errors)))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// Waits for its end, at most `patience`.
    pub fn finish(mut self, patience: Duration) -> Result<Finished, String> {
        if !eventually(patience, || !self.is_running()) {
            return Err(format!(
                "`{}` did not end within {patience:?}: {}\n    {}",
                self.what,
                self.said(),
                self.threads().join("\n    ")
            ));
        }
        let status = self.ended.ok_or("no status")?;
        let read =
            |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let (output, errors) = (read(&self.output), read(&self.errors));
        Ok(Finished {
            what: self.what.clone(),
            status,
            output,
            errors,
        })
    }

    /// What the kernel says of each of its threads: state, where it sleeps, and which signals wait for it, are blocked, and are caught.
    fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid()));
        let describe = |task: fs::DirEntry| {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let status = read("status");
            let wanted = ["Name", "State", "SigPnd", "ShdPnd", "SigBlk", "SigCgt"];
            let lines = status
                .lines()
                .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
            let lines: Vec<_> = lines.map(|line| line.replace('\t', " ")).collect();
            format!("{}, in {}", lines.join(", "), read("wchan"))
        };
        let tasks = tasks.into_iter().flatten().flatten();
        tasks.map(describe).collect()
    }

    /// Asks it to end as a person at the keyboard does (SIGINT) and waits.
    pub fn interrupt(self) -> Result<Finished, String> {
        self.interrupt_within(Duration::from_secs(10))
    }

    /// The same, where its end takes longer.
    pub fn interrupt_within(self, patience: Duration) -> Result<Finished, String> {
        self.signal(Signal::INT);
        self.finish(patience)
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // Gone already is as good.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
