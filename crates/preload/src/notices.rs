//! What a program's user is told of its stack's start: that it runs, or why it could not.

use std::{
    ffi::CString,
    io::{self, Write as _},
    os::fd::{AsRawFd, RawFd},
    sync::OnceLock,
};

use netchan::{environment, own::Own};

use crate::{process, sys};

/// The stack is up: its address can be used from now on.
pub fn announce() {
    if process::has_started_before() || process::is_beside() || process::has_begun_anew() {
        return;
    }
    if let Some(text) = process::variable(environment::ANNOUNCE) {
        let _ = writeln!(io::stderr(), "netchan: {text}");
    }
}

/// What the stack tells by itself goes to the file that the user named, else to where complaints go: by one write, without the locks of the
/// standard library's streams.
pub fn tell_events() -> io::Result<()> {
    let verbosity = environment::verbosity(&process::variable)?;
    if LOG.get().is_none()
        && let Some(path) = process::variable(environment::LOG_FILE)
    {
        let said = |e: io::Error| io::Error::new(e.kind(), format!("{path}: {e}"));
        let name = CString::new(path.as_str())?;
        let _ = LOG.set(sys::append_to(&name).map_err(said)?); // stacks start one at a time
    }
    netchan::log::install(verbosity, |line| match LOG.get() {
        Some(file) => {
            let _ = sys::write(file.as_raw_fd(), line.as_bytes());
        }
        None => sys::complain(line),
    });
    Ok(())
}

/// The file that the user named for what the stack tells.
static LOG: OnceLock<Own> = OnceLock::new();

/// Its number; -1 for none.
pub fn log() -> RawFd {
    LOG.get().map_or(-1, |file| file.as_raw_fd())
}

/// Why no stack could be started, in words that take no knowledge of this library.
/// `complete`: nothing that was handed over was closed before the attempt.
pub fn why(error: &io::Error, complete: bool) -> String {
    let closed = if complete {
        ""
    } else {
        "; the program has closed the descriptors by which `netchan run` handed its links over"
    };
    if error.kind() == io::ErrorKind::OutOfMemory {
        let limit = address_space().map_or_else(String::new, |bytes| {
            format!(" of the {} MiB that it may have (ulimit -v)", bytes >> 20)
        });
        return format!(
            "the process has no address space left{limit} for what a stack reserves, some 1 GiB, of which it touches little"
        );
    }
    if error.kind() != io::ErrorKind::PermissionDenied {
        return format!("{error}{closed}");
    }
    match became() {
        Some(user) => format!(
            "the program has become uid {user}, which may not open the link: {error}{closed}"
        ),
        None => format!("{error}{closed}"),
    }
}

/// Whether all that was handed over is still there.
pub fn is_complete() -> bool {
    let handed = process::variable(environment::DESCRIPTORS);
    handed.is_none_or(|handed| !environment::is_incomplete(&handed))
}

/// Most bytes of address space, where there is a limit.
fn address_space() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The user that this process has become since its program was started.
fn became() -> Option<u32> {
    // SAFETY: reads a number that the kernel left.
    let first = unsafe { libc::getauxval(libc::AT_EUID) };
    // SAFETY: takes nothing.
    let now = unsafe { libc::geteuid() };
    (u64::from(now) != first).then_some(now)
}

/// One line on stderr, then status 1.
pub fn give_up(reason: &str) -> ! {
    let _ = writeln!(io::stderr(), "netchan: cannot start: {reason}");
    // SAFETY: ends the process; handlers of a program that must not go on are not run.
    unsafe { libc::_exit(1) }
}
