//! A `netchan daemon` of an experiment's own.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use netchan::link::lease::Client;

use crate::kit::netchan;

/// The daemon's process; dropped, it ends.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts one with this configuration, by a command that says where it runs, and waits until it listens.
    ///
    /// # Errors
    /// What it said, where it does not come up.
    pub fn start(
        mut command: Command,
        config: &Path,
        socket: &Path,
        log: &Path,
    ) -> Result<Self, String> {
        command.arg(netchan()?).args(["daemon", "--config"]);
        command.arg(config).arg("--socket").arg(socket);
        let errors = fs::File::create(log).map_err(|e| e.to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        // The last one was killed.
        let _ = fs::remove_file(socket);
        let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        for _ in 0..500 {
            if Client::connect(socket).is_ok() {
                return Ok(Self(child));
            }
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        Err(format!("the daemon did not come up: {said}"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// What `netchan show TOPIC` says of it.
    pub fn show(&self, topic: &str) -> Result<serde_json::Value, String> {
        let pid = self.pid().to_string();
        let shown = Command::new(netchan()?)
            .args(["show", topic, "--json", "--pid", &pid])
            .output()
            .map_err(|e| e.to_string())?;
        serde_json::from_slice(&shown.stdout).map_err(|e| {
            format!(
                "show {topic}: {e}: {}",
                String::from_utf8_lossy(&shown.stderr)
            )
        })
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> Result<usize, String> {
        let all = fs::read_dir(Path::new("/proc").join(self.pid().to_string()).join("fd"));
        all.map(Iterator::count).map_err(|e| e.to_string())
    }

    /// Memory that it shares with programs, bytes (RssShmem, proc(5)).
    pub fn shared_bytes(&self) -> Result<u64, String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.map_err(|e| e.to_string())?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssShmem:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| "no RssShmem in its status".into())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
