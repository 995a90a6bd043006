//! epoll_ctl: what enters and leaves an instance.

use std::{
    io,
    os::fd::RawFd,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use libc::{c_int, epoll_event};

use super::expose;
use crate::{
    errno::fail,
    instances::Instance,
    state::{
        SOCKETS, SocketState,
        watch::{Interest, Shared},
    },
    sys,
    table::Handle,
};

/// What epoll_ctl does about `fd`.
enum Side {
    Ours(Handle<SocketState>),
    Undecided(Handle<SocketState>),
    Kernel,
}

fn side(fd: RawFd) -> Side {
    match SOCKETS.get(fd) {
        None => Side::Kernel,
        Some(handle) if handle.is_inherited() => Side::Kernel,
        Some(handle) if handle.socket.get().is_some() => Side::Ours(handle),
        Some(handle) => Side::Undecided(handle),
    }
}

/// epoll_ctl(2) on a watched instance.
pub fn control(
    instance: &Handle<Instance>,
    epfd: RawFd,
    operation: c_int,
    fd: RawFd,
    event: Option<epoll_event>,
) -> io::Result<()> {
    let shared = &instance.shared;
    if event.is_none() && operation != libc::EPOLL_CTL_DEL {
        return fail(libc::EFAULT);
    }
    match side(fd) {
        Side::Ours(target) => control_ours(shared, operation, fd, event, target),
        Side::Undecided(target) => {
            sys::epoll_ctl(epfd, operation, fd, event)?;
            note_undecided(shared, operation, fd, event, &target);
            Ok(())
        }
        Side::Kernel => {
            expose(fd);
            sys::epoll_ctl(epfd, operation, fd, event)?;
            count_kernel(shared, operation);
            Ok(())
        }
    }
}

fn count_kernel(shared: &Shared, operation: c_int) {
    if operation == libc::EPOLL_CTL_ADD {
        shared.kernel_members.fetch_add(1, Relaxed);
    } else if operation == libc::EPOLL_CTL_DEL {
        // Never below zero: the kernel refuses to remove what was not added.
        shared.kernel_members.fetch_sub(1, Relaxed);
    }
}

fn control_ours(
    shared: &Arc<Shared>,
    operation: c_int,
    fd: RawFd,
    event: Option<epoll_event>,
    target: Handle<SocketState>,
) -> io::Result<()> {
    let known = shared.interests.lock().get(&fd).cloned();
    let event = event.unwrap_or(epoll_event { events: 0, u64: 0 });
    match (operation, known) {
        (libc::EPOLL_CTL_ADD, Some(_)) => fail(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None) => {
            let interest = Interest::new(shared, fd, &target, event, false);
            shared.interests.lock().insert(fd, Arc::clone(&interest));
            target.watch.add(&interest);
            interest.arm(event);
            shared.call_out();
            note_busy_poll(shared, &target);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD, Some(interest)) => {
            interest.arm(event);
            Ok(())
        }
        (libc::EPOLL_CTL_DEL, Some(interest)) => {
            shared.interests.lock().remove(&fd);
            interest.detach();
            note_busy_poll(shared, &target);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => fail(libc::ENOENT),
        _ => fail(libc::EINVAL),
    }
}

/// A socket came or went: nearly none asks for anything.
fn note_busy_poll(shared: &Shared, target: &SocketState) {
    if !target.busy_poll().is_zero() {
        shared.busy_poll_changed();
    }
}

/// Remembers what the kernel's instance was told about a socket that may become netchan's.
fn note_undecided(
    shared: &Arc<Shared>,
    operation: c_int,
    fd: RawFd,
    event: Option<epoll_event>,
    target: &Handle<SocketState>,
) {
    count_kernel(shared, operation);
    if operation == libc::EPOLL_CTL_DEL {
        shared.interests.lock().remove(&fd);
        return;
    }
    let Some(event) = event else { return };
    if operation == libc::EPOLL_CTL_ADD {
        let interest = Interest::new(shared, fd, target, event, true);
        shared.interests.lock().insert(fd, Arc::clone(&interest));
        target.watch.add(&interest);
        note_busy_poll(shared, target);
    } else if let Some(interest) = shared.interests.lock().get(&fd) {
        let mut settings = interest.settings.lock();
        settings.events = event.events;
        settings.data = event.u64;
    }
}
