//! The process at the other end of a connection, as the kernel says it.

use std::{
    fs, io,
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::Path,
};

use netchan::own::Own;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::socket_peercred,
    process::{PidfdFlags, pidfd_open},
};

/// The process that connected. Others may have the socket from it.
#[derive(Debug)]
pub struct Peer {
    pub pid: i32,
    pub user: u32,
    pub group: u32,
    /// By which it is known whether the number is still its own; `None`: the kernel gave none.
    process: Option<Own>,
}

impl Peer {
    /// The process that connected `socket`.
    ///
    /// # Errors
    /// The system's.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let found = socket_peercred(socket)?;
        Ok(Self {
            pid: found.pid.as_raw_nonzero().get(),
            user: found.uid.as_raw(),
            group: found.gid.as_raw(),
            process: Own::open(|| Ok(pidfd_open(found.pid, PidfdFlags::empty())?)).ok(),
        })
    }

    /// One for tests.
    #[cfg(test)]
    pub const fn made_up(pid: i32, user: u32, group: u32) -> Self {
        Self {
            pid,
            user,
            group,
            process: None,
        }
    }

    /// Whether this is the same process and user, by what the kernel said. A process in another namespace has no number here.
    pub const fn is_same_process(&self, other: &Self) -> bool {
        self.pid > 0 && self.pid == other.pid && self.user == other.user
    }

    /// `redis-server (pid 71)`. The process says itself what it is called.
    pub fn name(&self) -> String {
        let said = fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        let mut name: String = String::from_utf8_lossy(&said)
            .trim_end()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .take(32)
            .collect();
        if name.is_empty() {
            "process".clone_into(&mut name);
        }
        format!("{name} (pid {})", self.pid)
    }

    /// Whether it runs the file at `program`. The files are compared, not their names: in a namespace of its own a process gives any file any name.
    ///
    /// # Errors
    /// The system's, where this process may not look, or there is no such file.
    pub fn runs(&self, program: &Path) -> io::Result<bool> {
        let wanted = fs::metadata(program)?;
        let found = fs::metadata(format!("/proc/{}/exe", self.pid))?;
        let is_same = (wanted.dev(), wanted.ino()) == (found.dev(), found.ino());
        // Asked last: while it lives, no other process has its number.
        Ok(is_same && self.is_alive())
    }

    fn is_alive(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ended| ended == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::{fd::AsFd, unix::net::UnixStream},
        process::Command,
    };

    use super::*;

    #[test]
    fn this_process_is_known_by_number_user_and_file() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(ours.as_fd()).unwrap();
        assert_eq!(peer.pid.cast_unsigned(), std::process::id());
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert_eq!(peer.group, rustix::process::getegid().as_raw());
        assert!(peer.name().ends_with(&format!(" (pid {})", peer.pid)));
        assert!(peer.runs(&env::current_exe().unwrap()).unwrap());
        assert!(!peer.runs(Path::new("/proc/version")).unwrap());
        assert!(peer.runs(Path::new("/no/such/program")).is_err());
    }

    #[test]
    fn a_number_that_means_no_process_runs_nothing() {
        let gone = Peer::made_up(i32::MAX, 1000, 1000);
        assert_eq!(gone.name(), format!("process (pid {})", i32::MAX));
        assert!(gone.runs(Path::new("/proc/version")).is_err());
        // Nor does one that cannot be known again, or has ended.
        let own = std::process::id().cast_signed();
        let unknown = Peer::made_up(own, 0, 0);
        assert!(!unknown.runs(&env::current_exe().unwrap()).unwrap());
        let mut child = Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let ended = Peer {
            process: Some(Own::keep(pidfd_open(pid, PidfdFlags::empty()).unwrap())),
            ..Peer::made_up(own, 0, 0)
        };
        child.wait().unwrap();
        assert!(!ended.runs(&env::current_exe().unwrap()).unwrap());
    }
}
