//! epoll over netchan's sockets and the kernel's descriptors together.
//!
//! Each instance is a real one of the kernel's, which watches the kernel's descriptors; beside it stands a list of interests in
//! netchan's sockets. An interest that may have something to say is queued by its waker, so that a wait costs what is
//! ready, not what is registered. A level-triggered interest stays queued after it was reported and is looked at
//! again by the next wait; an edge-triggered one waits for the next arrival, and is armed again by the receive that takes the last of what
//! there is, or by the send that meets a full buffer.

use std::{
    io,
    os::fd::RawFd,
    sync::{
        Arc, Weak,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use libc::{c_int, epoll_event};
use netchan::Net;

use crate::{
    errno::fail,
    fork,
    instances::{self, EPOLLS, Instance, instance},
    numbers, process,
    state::{SocketState, watch::Shared},
    sys,
    table::Handle,
    wait::Deadline,
};

mod control;
mod gather;

pub use control::control;

/// Follows epoll_create: `epfd` is the kernel's new instance.
pub fn created(epfd: RawFd) -> io::Result<()> {
    fork::claim()?;
    numbers::renewed(epfd);
    let shared = Arc::new(Shared::new(epfd));
    // Out of the table's range: the kernel's instance alone serves it.
    let _ = EPOLLS.insert(epfd, &EPOLLS.create(Instance { shared }));
    Ok(())
}

/// A call is about to look at `fd` with poll, or to put it into another epoll: if it is an instance, the kernel has
/// to know about its queue.
pub fn expose(fd: RawFd) {
    if let Some(instance) = instance(fd) {
        instance.shared.is_used.store(true, Relaxed);
        instance.shared.settle();
        let _ = instance.shared.hang_bell(); // without descriptors to spare it shows the kernel's side only
    }
}

/// The socket becomes netchan's: what the kernel's instances watched, ours watch now.
pub fn taken_over(state: &SocketState) {
    for interest in state
        .watch
        .interests
        .lock()
        .iter()
        .filter_map(Weak::upgrade)
    {
        let Some(instance) = interest.instance.upgrade() else {
            continue;
        };
        let event = {
            let settings = interest.settings.lock();
            epoll_event {
                events: settings.events,
                u64: settings.data,
            }
        };
        let epfd = instance.epfd.load(Relaxed);
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, interest.fd, None);
        instance.kernel_members.fetch_sub(1, Relaxed);
        interest.arm(event);
        instance.call_out();
    }
}

/// How a wait goes on.
pub enum Wait {
    /// Nothing of netchan's in this instance and no stack: the kernel's epoll_wait does it all.
    Kernel,
    /// As many events.
    Done(usize),
}

/// Whether there is anything of netchan's in an instance.
pub fn is_watching(instance: &Handle<Instance>) -> bool {
    process::running().is_some() && instance.shared.has_ours()
}

/// Whether an instance of the parent process is about sockets of the parent's that cannot be shared. The parent is told of what it watches.
pub fn is_orphan(epfd: RawFd) -> bool {
    let Some(instance) = instances::inherited(epfd) else {
        return false;
    };
    let orphan = instance.shared.is_rung_or_full() && !instance.shared.adopt();
    if orphan {
        instance.shared.tell_parent();
    }
    orphan
}

/// epoll_wait(2) on a watched instance.
///
/// # Safety
/// `out` must be writable for `max` entries.
pub unsafe fn wait(
    instance: &Handle<Instance>,
    out: *mut epoll_event,
    max: c_int,
    timeout: Option<Duration>,
) -> io::Result<Wait> {
    let shared = &instance.shared;
    shared.is_used.store(true, Relaxed);
    let max = usize::try_from(max).ok().filter(|max| *max > 0);
    let Some(max) = max else {
        return fail(libc::EINVAL);
    };
    let never_waits = timeout.is_some_and(|time| time.is_zero());
    if never_waits {
        process::running().map(Net::poll); // no thread may be polling the links
    }
    // SAFETY: the caller's.
    let mut found = unsafe { shared.gather(out, max, !never_waits) }?;
    if found == 0 && !never_waits {
        // SAFETY: the caller's.
        found = unsafe { shared.sleep(out, max, Deadline::after(timeout)) }?;
    }
    if let Some(net) = process::running() {
        net.more_follows(found);
    }
    Ok(Wait::Done(found))
}

/// Brackets a wait in the kernel: while it lasts, a first interest of netchan's calls the thread out. False if one is there
/// already.
pub fn enter_kernel(epfd: RawFd) -> bool {
    let Some(instance) = instance(epfd) else {
        return true;
    };
    instance.shared.is_used.store(true, Relaxed);
    instance.shared.kernel_waiters.fetch_add(1, SeqCst);
    process::running().is_none() || !instance.shared.has_ours()
}

/// Ends what [`enter_kernel`] began: how many of `count` events are the program's.
///
/// # Safety
/// `out` must hold `count` entries.
pub unsafe fn leave_kernel(epfd: RawFd, out: *mut epoll_event, count: c_int) -> c_int {
    let found = usize::try_from(count).unwrap_or(0);
    let Some(instance) = EPOLLS.get(epfd) else {
        return count;
    };
    if !instance.is_inherited() {
        instance.shared.kernel_waiters.fetch_sub(1, SeqCst);
    }
    // The parent's has the parent's bell.
    // SAFETY: the caller's.
    let kept = unsafe { instance.shared.without_bell(out, found) };
    c_int::try_from(kept).unwrap_or(c_int::MAX)
}
