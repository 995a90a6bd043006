//! Programs that make their system calls themselves, Go's and statically linked ones: no library can be put in front of those, but the kernel can be told
//! to ask (seccomp_unotify(2)).
//!
//! The calls that say which stack a socket means (bind, connect, listen), and those that ask for its connections, names and options, are answered here;
//! all others are the kernel's, and cost nothing. A TCP socket whose address is netchan's becomes one end of a pair of UNIX sockets, at the number that it
//! had: bytes, readiness, fork(2), exec(2) and descriptor passing are as the kernel has them. [`netchan::relay`] carries the bytes.
//!
//! The stack is in the process that calls [`run`]. It outlives the program as long as a process that the program started has the filter.
//!
//! Not there: datagram sockets and what is no TCP are the kernel's; MSG_OOB; a reset reads as an end; numbers that were duplicated, or put into an epoll
//! set, before bind, connect or listen.

mod address;
mod caller;
mod calls;
mod filter;
mod pair;
mod stream;
mod sys;

use std::{
    io,
    os::fd::AsRawFd,
    process::{Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};

use libc::pollfd;
use netchan::{Net, environment::Kernels, own::Own};
use rustix::thread::set_no_new_privs;

use self::calls::Desk;

/// Calls that are answered before the streams are looked at again.
const CALLS: usize = 64;
/// How long peers have for what was sent, once the program has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// Runs a program, and all that it starts, on `net`; but for the addresses that stay with the kernel. `prepare` runs in the thread that starts it, ahead of
/// it: rights that this thread gives up are not the program's. `started` gets its process id.
///
/// # Errors
/// What `prepare` says; the kernel's, where it cannot be asked (seccomp, pidfd_getfd) or the program cannot be started.
pub fn run(
    net: &Net,
    kernels: Kernels,
    mut command: Command,
    prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    started: impl FnOnce(u32),
) -> io::Result<ExitStatus> {
    let (told, hears) = mpsc::channel::<io::Result<(Own, u32)>>();
    let starter = thread::Builder::new().name("netchan-program".into());
    // A thread of its own: the filter is for it, and what it starts.
    let program = starter.spawn(move || {
        let begun = prepare()
            .and_then(|()| Ok(set_no_new_privs(true)?))
            .and_then(|()| sys::listen(&mut filter::program()))
            .and_then(|listener| Ok((listener, command.spawn()?)));
        let (listener, mut child) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = told.send(Err(error)); // it waits for that
                return None;
            }
        };
        let _ = told.send(Ok((listener, child.id()))); // it waits for that
        Some(child.wait())
    })?;
    let (listener, id) = hears.recv().map_err(io::Error::other)??;
    started(id);
    let mut desk = Desk::new(net.clone(), kernels, listener)?;
    serve(&mut desk)?;
    drop(desk);
    net.drain(DRAIN);
    let ended = program.join().ok().flatten();
    ended.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

/// Serves until no process has the filter any more.
fn serve(desk: &mut Desk) -> io::Result<()> {
    loop {
        let mut fds = [asks(desk)];
        desk.relay.step(&mut fds, None)?;
        let mut seen = fds[0].revents;
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
