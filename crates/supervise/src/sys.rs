//! seccomp(2)'s user notification: a filter that asks a listener, what it asks, and the answers. The one place with `unsafe`.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use libc::{
    c_int, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp, sock_filter, sock_fprog,
};
use netchan::own::Own;

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What the kernel calls it.
    pub id: u64,
    /// The thread that makes it.
    pub thread: u32,
    /// Which one, as this machine numbers them.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// An argument that is an int: the rest of the register means nothing.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // as said
    pub fn int(&self, index: usize) -> c_int {
        self.arguments.get(index).copied().unwrap_or(0) as c_int
    }

    /// An argument that is a pointer.
    pub fn pointer(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }
}

/// Lets `program` judge the system calls of this thread, and of all that it starts from now on. What it asks about comes to the listener.
///
/// # Errors
/// seccomp(2)'s: EACCES without no_new_privs and CAP_SYS_ADMIN, EBUSY below another such filter.
pub fn listen(program: &mut [sock_filter]) -> io::Result<Own> {
    let program = sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until the call returns; the kernel copies it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made it.
    Ok(Own::keep(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn ioctl<T>(listener: BorrowedFd<'_>, request: libc::Ioctl, value: &mut T) -> io::Result<c_int> {
    // SAFETY: each request that is given here reads and writes a `T`.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), request, value) };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next call; waits for one.
///
/// # Errors
/// `NotFound`: its thread was killed, or interrupted.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Call> {
    // SAFETY: all zeros is a value of it, and what the kernel wants.
    let mut found: seccomp_notif = unsafe { std::mem::zeroed() };
    ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut found)?;
    Ok(Call {
        id: found.id,
        thread: found.pid,
        number: found.data.nr.into(),
        arguments: found.data.args,
    })
}

/// Whether a call still waits: what was read of its process is of that process.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    let mut id = id;
    ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
}

/// What a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel carries it out.
    Kernel,
    /// It returns this.
    Value(i64),
    /// It fails with this errno.
    Error(c_int),
}

/// Answers a call.
///
/// # Errors
/// `NotFound`: it does not wait any more.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let mut sent = seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: 0,
    };
    match answer {
        #[allow(clippy::cast_possible_truncation)] // 1
        Answer::Kernel => sent.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        Answer::Value(value) => sent.val = value,
        Answer::Error(code) => sent.error = -code,
    }
    ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut sent).map(|_| ())
}

/// Where a descriptor goes in the process that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In place of what this number is. The call still waits.
    At {
        /// The number.
        fd: RawFd,
        /// O_CLOEXEC.
        closes: bool,
    },
    /// At the first free number, which the call returns.
    Returned {
        /// O_CLOEXEC.
        closes: bool,
    },
}

/// Puts a descriptor into the process that calls.
///
/// # Errors
/// `NotFound`: the call does not wait any more. EMFILE: the process has no number left.
pub fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    place: Place,
) -> io::Result<()> {
    let number = |fd: RawFd| u32::try_from(fd).map_err(io::Error::other);
    let (flags, newfd, closes) = match place {
        Place::At { fd, closes } => (libc::SECCOMP_ADDFD_FLAG_SETFD, number(fd)?, closes),
        Place::Returned { closes } => (libc::SECCOMP_ADDFD_FLAG_SEND, 0, closes),
    };
    let newfd_flags = if closes { libc::O_CLOEXEC } else { 0 };
    let mut given = seccomp_notif_addfd {
        id,
        flags: u32::try_from(flags).map_err(io::Error::other)?,
        srcfd: number(file.as_raw_fd())?,
        newfd,
        newfd_flags: newfd_flags.cast_unsigned(),
    };
    ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut given).map(|_| ())
}
