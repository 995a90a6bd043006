//! Whose stacks are asked: root's and this user's own. Another user may lay anything where a control socket is looked for, an answer without end or one
//! that is not what it says, so its stacks are only named, unless the request names them.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use rustix::net::sockopt::socket_peercred;

/// Processes looked at for stacks of other users.
const PROCESSES_MAX: usize = 65_536;

/// The users that are asked: root, this one, and `named`.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    named: Option<u32>,
}

impl Trusted {
    /// Beside root and this user `named`.
    pub const fn with(named: Option<u32>) -> Self {
        Self { named }
    }

    fn holds(self, user: u32) -> bool {
        user == 0 || user == rustix::process::geteuid().as_raw() || Some(user) == self.named
    }

    fn check(self, user: u32) -> io::Result<()> {
        if self.holds(user) {
            return Ok(());
        }
        let what = format!("it belongs to user {user}, and was not asked");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    }

    /// Whether the socket at `path` and its directory may be asked.
    pub fn check_path(self, path: &Path) -> io::Result<()> {
        let socket = fs::symlink_metadata(path)?;
        let directory = fs::symlink_metadata(path.parent().unwrap_or(Path::new("/")))?;
        if !socket.file_type().is_socket() || !directory.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.check(socket.uid())?;
        self.check(directory.uid())
    }

    /// Whether the process that listens at the other end may be asked.
    pub fn check_peer(self, socket: &impl std::os::fd::AsFd) -> io::Result<()> {
        self.check(socket_peercred(socket)?.uid.as_raw())
    }
}

/// The user that a process runs as. Not the owner of its directory in /proc: where it has given up root's rights that is still root.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok() // real, effective, saved
}

/// Processes of other users in which a stack runs, with their users: they have a thread that says so. (Root's sockets lie where others cannot go.)
pub fn strangers() -> Vec<(u32, u32)> {
    let own = rustix::process::geteuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = numbers.take(PROCESSES_MAX).filter_map(|pid: u32| {
        let user = user_of(pid)?;
        (user != own && has_stack(pid)).then_some((pid, user))
    });
    found.collect()
}

fn has_stack(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    tasks.any(|task| {
        fs::read(task.path().join("comm")).is_ok_and(|name| name == b"netchan-control\n")
    })
}
