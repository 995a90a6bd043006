//! What the person who started a program is told of its stack: that it runs, why it could not, that it was never used.

use std::{
    ffi::CString,
    fs,
    io::{self, Write as _},
    os::fd::AsRawFd,
    sync::OnceLock,
};

use libc::c_int;
use netchan::environment;

use crate::{driver, lifecycle, real, sys};

/// Run by the loader before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    real::prepare_for_children();
    if let Some(handed) = lifecycle::variable(environment::DESCRIPTORS) {
        environment::guard(&handed);
    }
    become_next();
    say_whose_stdio();
    say_it_is_go();
    remember_what_was_started();
}

/// What is said where the program ends and no stack was started, in the process that `netchan run` became.
struct Unused {
    process: c_int,
    handed: String,
    text: String,
}

static UNUSED: OnceLock<Unused> = OnceLock::new();

fn remember_what_was_started() {
    let started = lifecycle::variable(environment::PROGRAM);
    let Some((number, name)) = started.as_deref().and_then(|text| text.split_once(' ')) else {
        return;
    };
    let handed = lifecycle::variable(environment::DESCRIPTORS);
    let process = sys::pid();
    if let Some(handed) = handed
        && number.parse() == Ok(process)
    {
        let text = format!(
            "netchan: {name} has ended, and no stack was started: no internet socket of it came to netchan\n"
        );
        let _ = UNUSED.set(Unused {
            process,
            handed,
            text,
        });
        // SAFETY: `end` lives as long as the process.
        unsafe { libc::atexit(end) };
    }
}

/// Where this process had a stack as another program, and served with it, or left sockets of it open for this one: they are not to be had any more. A
/// new stack, at once, refuses their clients, who would find nobody otherwise.
fn become_next() {
    if !lifecycle::has_started_before() || !(lifecycle::has_served_before() || has_relics()) {
        return;
    }
    let own = sys::pid();
    sys::complain(&format!(
        "netchan: process {own} has become another program, which cannot use the sockets that it made before exec(), and their clients are refused\n"
    ));
    lifecycle::start_again();
}

/// Whether any number is what the kernel has of a socket of netchan's.
fn has_relics() -> bool {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let open: Vec<_> = open.flatten().filter_map(number).collect();
    open.into_iter().any(sys::is_blank_socket)
}

/// A child that finds a socket of another process's stack where its input or output should be, as servers started for a connection do: it is not served.
fn say_whose_stdio() {
    let Some(owner) = lifecycle::stack_elsewhere() else {
        return;
    };
    // Not each program that a shell starts there.
    if owner == sys::parent().to_string() && (0..=2).any(sys::is_blank_socket) {
        let own = sys::pid();
        sys::complain(&format!(
            "netchan: sockets stay with process {owner}; process {own}, which has one as its standard input or output, cannot use it\n"
        ));
    }
}

/// A program of Go that another one started (`netchan run` itself starts none): with cgo it is linked dynamically and has this library, but goes past it.
fn say_it_is_go() {
    let path = fs::read_link("/proc/self/exe").unwrap_or_default();
    if lifecycle::is_configured()
        && fs::File::open("/proc/self/exe").is_ok_and(|mut file| environment::is_go(&mut file))
    {
        sys::complain(&format!(
            "netchan: {} is a Go program: it makes its system calls itself and not through the C library, and its sockets are the kernel's\n",
            path.display()
        ));
    }
}

/// The stack is up: its address can be used from now on.
pub fn announce() {
    if lifecycle::has_started_before() {
        return;
    }
    if let Some(text) = lifecycle::variable(environment::ANNOUNCE) {
        let _ = writeln!(io::stderr(), "netchan: {text}");
    }
}

/// What the stack tells by itself goes to the file that the user named, else to where complaints go: by one write, without the locks of the
/// standard library's streams.
pub fn tell_events() -> io::Result<()> {
    let verbosity = environment::verbosity(&lifecycle::variable)?;
    let file = match lifecycle::variable(environment::LOG_FILE) {
        None => None,
        Some(path) => {
            let said = |e: io::Error| io::Error::new(e.kind(), format!("{path}: {e}"));
            let name = CString::new(path.as_str())?;
            Some(sys::append_to(&name).map_err(said)?)
        }
    };
    netchan::log::install(verbosity, move |line| match &file {
        Some(file) => {
            let _ = sys::write(file.as_raw_fd(), line.as_bytes());
        }
        None => sys::complain(line),
    });
    Ok(())
}

extern "C" fn end() {
    say_unused();
}

/// The program ends. Where neither it nor another one that it started has come to netchan, it may have gone past it. A daemon that it put into the
/// background may still come. Takes no lock and no memory: see [`crate::ending`].
pub fn say_unused() {
    let Some(unused) = UNUSED.get().filter(|_| driver::driver().is_none()) else {
        return;
    };
    if sys::pid() == unused.process
        && environment::is_unused(&unused.handed)
        && !sys::has_children()
    {
        sys::complain(&unused.text);
    }
}

/// Why no stack could be started, in words for somebody who knows nothing of this library.
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
    lifecycle::variable(environment::DESCRIPTORS)
        .is_none_or(|handed| !environment::is_incomplete(&handed))
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
