//! The process that makes a call: its descriptors and its memory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{BorrowedFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
};

use libc::c_int;
use rustix::{
    fs::OFlags,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use crate::{
    address,
    sys::{self, Call},
};

/// A process, by one of its threads. What is read of it is its own only as long as the call waits.
#[derive(Debug)]
pub struct Caller {
    thread: u32,
    process: OwnedFd,
    /// Its memory: that of this process, whatever its number is used for later.
    memory: File,
}

impl Caller {
    /// The process of a call that waits.
    ///
    /// # Errors
    /// The system's: it is gone, or not to be looked into.
    pub fn of(listener: BorrowedFd<'_>, call: &Call) -> io::Result<Self> {
        let thread = call.thread;
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let number = number.and_then(|number| number.trim().parse().ok());
        let pid = number.and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or_else(gone)?, PidfdFlags::empty())?;
        let path = format!("/proc/{thread}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path)?;
        // Numbers of processes are used again. Behind both: what was opened is the caller's.
        match sys::still_waits(listener, call.id) {
            true => Ok(Self {
                thread,
                process,
                memory,
            }),
            false => Err(gone()),
        }
    }

    /// What it has at a number.
    ///
    /// # Errors
    /// EBADF.
    pub fn file(&self, fd: RawFd) -> io::Result<OwnedFd> {
        Ok(pidfd_getfd(&self.process, fd, PidfdGetfdFlags::empty())?)
    }

    /// The flags of a number: O_NONBLOCK, and O_CLOEXEC, which is the number's own.
    pub fn flags(&self, fd: RawFd) -> OFlags {
        let text = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.thread));
        let text = text.unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        OFlags::from_bits_retain(flags.unwrap_or(0))
    }

    /// Bytes of its memory.
    ///
    /// # Errors
    /// EFAULT: there is none.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![0; len];
        let read = self.memory.read_exact_at(&mut bytes, at);
        read.map(|()| bytes).map_err(|_| libc::EFAULT)
    }

    /// Writes into its memory, as a debugger does: also where it may only read itself.
    ///
    /// # Errors
    /// EFAULT: there is none.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), c_int> {
        let written = self.memory.write_all_at(bytes, at);
        written.map_err(|_| libc::EFAULT)
    }

    /// An address that it passes; `None`: it is no internet address.
    ///
    /// # Errors
    /// EFAULT.
    pub fn address(&self, call: &Call) -> Result<Option<std::net::SocketAddr>, c_int> {
        let len = usize::try_from(call.int(2)).unwrap_or(0);
        let bytes = self.read(call.pointer(1), len.min(address::LEN_MAX))?;
        Ok(address::read(&bytes))
    }

    /// Writes what a call gives back where `at` says, as much as there is room for, and how long it is where `len_at` says.
    ///
    /// # Errors
    /// EFAULT; EINVAL: the room is less than none.
    pub fn give_back(&self, bytes: &[u8], at: u64, len_at: u64) -> Result<(), c_int> {
        let room = self.room(len_at)?;
        self.write(at, bytes.get(..room).unwrap_or(bytes))?;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.write(len_at, &len.to_ne_bytes())
    }

    /// The room that an int in its memory says.
    ///
    /// # Errors
    /// EFAULT; EINVAL: it is less than none.
    pub fn room(&self, len_at: u64) -> Result<usize, c_int> {
        let len = self.read(len_at, size_of::<c_int>())?;
        let len = len
            .first_chunk()
            .map_or(-1, |len| c_int::from_ne_bytes(*len));
        usize::try_from(len).map_err(|_| libc::EINVAL)
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotFound.into()
}
