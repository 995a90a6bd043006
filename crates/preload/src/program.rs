//! The beginning of every program with this library, and what is said where it ends and has never come to netchan.

use std::{fs, sync::OnceLock};

use libc::c_int;
use netchan::environment;

use crate::{crossing, driver, fork, process, real, start, sys};

/// Run by the loader before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    real::prepare_for_children();
    process::know_memory();
    if let Some(handed) = process::variable(environment::DESCRIPTORS) {
        environment::guard(&handed);
    }
    become_next();
    if crossing::inherit() {
        let _ = fork::claim(); // without it a vfork child takes the table for its own
    }
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
    let started = process::variable(environment::PROGRAM);
    let Some((number, name)) = started.as_deref().and_then(|text| text.split_once(' ')) else {
        return;
    };
    let handed = process::variable(environment::DESCRIPTORS);
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

/// Where this process had a stack as another program, and served with it, or left sockets of it open for this one: a new stack, at once, refuses the clients of
/// those that are not to be had any more, which would wait in vain otherwise. A keeper has them all.
fn become_next() {
    if !process::has_started_before() || !(process::has_served_before() || has_relics()) {
        return;
    }
    start::start_again();
    if !process::is_beside() {
        let own = sys::pid();
        sys::complain(&format!(
            "netchan: process {own} has become another program, which cannot use the sockets that it made before exec(), and their clients are refused\n"
        ));
    }
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
    let Some(owner) = process::stack_elsewhere() else {
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
    if process::is_configured()
        && fs::File::open("/proc/self/exe").is_ok_and(|mut file| environment::is_go(&mut file))
    {
        sys::complain(&format!(
            "netchan: {} is a Go program: it makes its system calls itself and not through the C library, and its sockets are the kernel's\n",
            path.display()
        ));
    }
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
