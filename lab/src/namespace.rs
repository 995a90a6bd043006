//! Network namespaces without names: each is a process's, which ends with the pipe that this process holds. However this process ends, nothing stays.

use std::{
    fs::File,
    io::Read as _,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Stays in a namespace of its own until its input ends.
const HOLDER: &str = "echo; exec cat > /dev/null";

/// One of them, with a loopback device that is up. Dropped, it is gone, if no process is left in it.
pub(crate) struct Namespace(Child);

/// Runs a program to its end; status other than 0 is an error.
fn run(mut command: Command) -> Result<(), String> {
    let out = command.output();
    let out = out.map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{command:?}: {}", said.trim()))
}

/// # Errors
/// Without root there are no namespaces.
pub(crate) fn need_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("it takes root to make network namespaces".to_owned())
    }
}

impl Namespace {
    /// A new one.
    ///
    /// # Errors
    /// What is missing for it: root, or util-linux and iproute2.
    pub fn new() -> Result<Self, String> {
        need_root()?;
        let mut holder = Command::new("unshare")
            .args(["-n", "sh", "-c", HOLDER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        let said = holder.stdout.as_mut().map(|out| out.read_exact(&mut [0]));
        let new = Self(holder);
        match said {
            Some(Ok(())) => new.run("ip", &["link", "set", "lo", "up"]).map(|()| new),
            _ => Err("no network namespace".to_owned()),
        }
    }

    /// A program that will run in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/proc/{}/ns/net", self.0.id()), program]);
        command
    }

    /// Runs a program in it to its end.
    ///
    /// # Errors
    /// What it said, where its status is not 0.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.command(program);
        command.args(arguments);
        run(command)
    }

    /// Moves a device of this process's namespace into it.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn take_in(&self, device: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        command.args(["link", "set", device, "netns", &self.0.id().to_string()]);
        run(command)
    }

    /// A veth between two of them, up at both ends: `names` in `sides`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn connect(sides: [&Self; 2], names: [&str; 2]) -> Result<(), String> {
        let far = sides[1].0.id().to_string();
        let link = ["link", "add", names[0], "type", "veth", "peer", "name"];
        let peer = [names[1], "netns", &far];
        sides[0].run("ip", &[&link[..], &peer].concat())?;
        for (side, name) in sides.iter().zip(names) {
            side.run("ip", &["link", "set", name, "up"])?;
        }
        Ok(())
    }

    /// The calling thread goes there, for good.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enter(&self) -> Result<(), String> {
        let file = File::open(format!("/proc/{}/ns/net", self.0.id()));
        let file = file.map_err(|e| e.to_string())?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| e.to_string())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Gone is what it shall be, by itself or by us.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
