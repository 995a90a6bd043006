//! Programs that make their system calls themselves, Go's and statically linked ones: no library can be put in front of those, but the kernel can be told
//! to ask (seccomp_unotify(2)).
//!
//! The calls that say which stack a socket means (bind, connect, listen), and those that ask for its connections, names and options, are answered here;
//! all others are the kernel's, and cost nothing. A TCP socket whose address is netchan's becomes one end of a pair of UNIX sockets, at the number that it
//! had: bytes, readiness, fork(2), exec(2) and descriptor passing are as the kernel has them. [`netchan::relay`] carries the bytes.
//!
//! The stack is in the process that calls [`run`], which goes on as long as one of the processes that the program has started.
//!
//! A UDP socket becomes such a pair where the program has netchan's library, which puts a head before each datagram ([`netchan::relay::letter`]).
//!
//! Not there: other datagram sockets and what is no TCP are the kernel's; MSG_OOB; a reset reads as an end; numbers that were duplicated, or put into an epoll
//! set, before bind, connect or listen.

mod address;
mod caller;
mod calls;
mod filter;
mod pair;
mod stream;
mod sys;

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    process::{Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};

use libc::pollfd;
use netchan::{Net, environment::Kernels};
use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal,
        set_child_subreaper, wait,
    },
    thread::set_no_new_privs,
};

use self::calls::Desk;

/// Calls that are answered before the streams are looked at again.
const CALLS: usize = 64;
/// Steps after which calls are looked for, though no wait said that there is one.
const UNSEEN: u32 = 4;
/// How long peers have for what was sent, once the program has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// Runs a program, and all that it starts, on `net`; but for the addresses that stay with the kernel. `prepare` runs in the thread that starts it, ahead of
/// it: rights that this thread gives up are not the program's. `started` gets the program, once it is served.
///
/// # Errors
/// What `prepare` says; the kernel's, where it cannot be asked (seccomp, pidfd_getfd) or the program cannot be started.
pub fn run(
    net: &Net,
    kernels: Kernels,
    command: Command,
    prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    started: impl FnOnce(Program),
) -> io::Result<ExitStatus> {
    // The filter is for the thread that starts it, and so for what it starts.
    let listens = || {
        prepare()?;
        set_no_new_privs(true)?;
        sys::listen(&mut filter::program())
    };
    let (listener, program, starter) = start(command, listens)?;
    let mut desk = Desk::new(net.clone(), kernels, listener)?;
    started(program);
    serve(&mut desk)?;
    drop(desk);
    net.drain(DRAIN);
    end_of(starter)
}

/// Runs a program, and waits for the end of it and of all that it has started. Their calls are the kernel's. `prepare` and `started` as of [`run`].
///
/// # Errors
/// What `prepare` says; the kernel's, where the program cannot be started.
pub fn attend(
    command: Command,
    prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    started: impl FnOnce(Program),
) -> io::Result<ExitStatus> {
    let ((), program, starter) = start(command, prepare)?;
    started(program);
    end_of(starter)
}

/// The thread that starts a program, and waits for it. `None`: it was not started.
type Starter = thread::JoinHandle<Option<io::Result<ExitStatus>>>;

/// Starts a program by a thread of its own, which `prepare` changes.
fn start<T: Send + 'static>(
    mut command: Command,
    prepare: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<(T, Program, Starter)> {
    set_child_subreaper(Some(getpid()))?;
    let (told, hears) = mpsc::channel::<io::Result<(T, OwnedFd)>>();
    let starter = thread::Builder::new().name("netchan-program".into());
    let starter = starter.spawn(move || {
        let begun = prepare().and_then(|prepared| {
            let child = command.spawn()?;
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            Ok((prepared, process, child))
        });
        let (prepared, process, mut child) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = told.send(Err(error)); // it waits for that
                return None;
            }
        };
        let _ = told.send(Ok((prepared, process))); // it waits for that
        let ended = child.wait();
        // What it left in the background is this process's child by now.
        while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
        Some(ended)
    })?;
    let (prepared, process) = hears.recv().map_err(io::Error::other)??;
    Ok((prepared, Program { process }, starter))
}

fn end_of(starter: Starter) -> io::Result<ExitStatus> {
    let ended = starter.join().ok().flatten();
    ended.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

/// A program that runs.
#[derive(Debug)]
pub struct Program {
    process: OwnedFd,
}

impl Program {
    /// Sends it a signal; once it has ended, to what it has left in the background.
    pub fn signal(&self, signal: Signal) {
        if pidfd_send_signal(&self.process, signal).is_err() {
            for process in children() {
                let _ = pidfd_send_signal(process, signal); // it has ended
            }
        }
    }
}

/// The children of this process: with [`set_child_subreaper`] those are also what the program left.
fn children() -> Vec<OwnedFd> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.flatten().map(|thread| {
        let list = fs::read_to_string(thread.path().join("children"));
        list.unwrap_or_default()
    });
    let numbers: Vec<i32> = lists
        .flat_map(|list| {
            let words = list.split_whitespace().map(str::parse);
            words.flatten().collect::<Vec<_>>()
        })
        .collect();
    let own = format!("PPid:\t{}", std::process::id());
    let open = |number: i32| {
        let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        // Numbers of processes are used again.
        let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        status.lines().any(|line| line == own).then_some(process)
    };
    numbers.into_iter().filter_map(open).collect()
}

/// Serves until no process has the filter any more.
fn serve(desk: &mut Desk) -> io::Result<()> {
    let mut unseen = 0;
    loop {
        let mut fds = [asks(desk)];
        desk.relay.step(&mut fds, None)?;
        let mut seen = fds[0].revents;
        // A wait that is woken does not look.
        unseen = if seen == 0 { unseen + 1 } else { 0 };
        if unseen >= UNSEEN {
            unseen = 0;
            seen = poll_now(desk);
        }
        for _ in 0..CALLS {
            if seen & libc::POLLIN == 0 {
                break;
            }
            desk.serve();
            seen = poll_now(desk);
        }
        if seen & (libc::POLLHUP | libc::POLLERR) != 0 && seen & libc::POLLIN == 0 {
            return desk.relay.finish(DRAIN);
        }
    }
}

fn asks(desk: &Desk) -> pollfd {
    pollfd {
        fd: desk.listener().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

fn poll_now(desk: &Desk) -> i16 {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(desk.listener(), PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => i16::try_from(fds[0].revents().bits()).unwrap_or(0),
        Err(_) => 0,
    }
}
