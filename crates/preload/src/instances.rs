//! epoll instances by their numbers.

use std::{
    os::fd::RawFd,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use crate::{
    line::Answers,
    state::{SocketState, watch::Shared},
    sys,
    table::{Handle, Table},
};

/// Every epoll instance's number.
pub static EPOLLS: Table<Instance> = Table::new();

/// One epoll instance.
pub struct Instance {
    pub shared: Arc<Shared>,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let interests = std::mem::take(&mut *self.shared.interests.lock());
        for interest in interests.into_values() {
            interest.detach();
        }
    }
}

/// The instance behind `epfd`, if it is watched here and by this process.
pub fn instance(epfd: RawFd) -> Option<Handle<Instance>> {
    if EPOLLS.is_vacant(epfd) {
        return None;
    }
    EPOLLS.get(epfd).filter(|instance| !instance.is_inherited())
}

/// The instance behind `epfd`, if it is of the process that this one was forked from.
pub fn inherited(epfd: RawFd) -> Option<Handle<Instance>> {
    if EPOLLS.is_vacant(epfd) {
        return None;
    }
    EPOLLS.get(epfd).filter(Handle::is_inherited)
}

/// The number `fd` was closed or means something else now: no instance watches it any more.
pub fn forget_number(fd: RawFd, handle: &Handle<SocketState>) {
    let interests = std::mem::take(&mut *handle.watch.interests.lock());
    for interest in interests.iter().filter_map(Weak::upgrade) {
        if interest.fd == fd {
            if let Some(instance) = interest.instance.upgrade() {
                instance.interests.lock().remove(&fd);
            }
            interest.detach();
        } else {
            handle
                .watch
                .interests
                .lock()
                .push(Arc::downgrade(&interest));
        }
    }
}

/// An instance's number was closed; it may go on under another.
pub fn closed(fd: RawFd) {
    let Some(removed) = EPOLLS.remove(fd) else {
        return;
    };
    if removed.handle.is_inherited() {
        return;
    }
    if !removed.last
        && let Some(other) = EPOLLS.find(&removed.handle)
    {
        removed.handle.shared.epfd.store(other, Relaxed);
    }
}

/// The socket becomes the kernel's for good: the instances forget it, the kernel's own watch it.
pub fn handed_back(state: &SocketState) {
    let interests = std::mem::take(&mut *state.watch.interests.lock());
    for interest in interests.iter().filter_map(Weak::upgrade) {
        let Some(instance) = interest.instance.upgrade() else {
            continue;
        };
        instance.interests.lock().remove(&interest.fd);
        let (by_kernel, event) = {
            let settings = interest.settings.lock();
            (settings.by_kernel, settings.for_kernel())
        };
        interest.detach();
        if !by_kernel {
            let epfd = instance.epfd.load(Relaxed);
            let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, interest.fd, Some(event));
            instance.kernel_members.fetch_add(1, Relaxed);
            instance.settle(); // nothing of it is queued any more
        }
    }
}

/// In a forked child: what its calls about an instance of its parent were answered.
pub fn with_answers<T>(epfd: RawFd, ask: impl FnOnce(&Answers) -> T) -> Option<T> {
    EPOLLS
        .get(epfd)
        .map(|instance| ask(&instance.shared.answers))
}
