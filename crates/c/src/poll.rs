//! poll(2) over netchan's sockets and the kernel's descriptors together.

use std::{cell::Cell, io, sync::Arc, time::Duration};

use libc::{c_int, c_short, pollfd};
use netchan::{
    c::readiness::{answer, interest},
    socket::{Readiness, Waiter},
};

use crate::{
    edge::fail,
    socket::{self, Handle},
    stack::Stack,
    sys,
    wait::{Deadline, with_waiter},
};

/// What a program waits for: `struct netchan_pollfd`.
#[repr(C)]
#[derive(Debug)]
pub struct PollFd {
    /// A socket's handle; 0: the descriptor counts.
    pub socket: usize,
    /// A descriptor of the kernel's; below zero: the entry counts for nothing.
    pub fd: c_int,
    /// What it is waited for, as in poll(2).
    pub events: c_short,
    /// What there is.
    pub revents: c_short,
}

thread_local! {
    /// Kept, so that no call allocates in the steady state.
    static SORTED: Cell<Option<Box<Sorted>>> = const { Cell::new(None) };
}

/// The entries, sorted out.
#[derive(Default)]
struct Sorted {
    /// The kernel's descriptors, and where each stands.
    kernel: Vec<pollfd>,
    kernel_at: Vec<usize>,
    /// netchan's sockets, and where each stands; those of one socket stand together.
    ours: Vec<(usize, Arc<Handle>)>,
}

/// Waits until one of `fds` is ready, or `timeout` has passed; how many have `revents`. EINVAL: sockets of several stacks.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    let kept = SORTED.try_with(Cell::take).unwrap_or(None);
    let mut sorted = kept.unwrap_or_default();
    let result = sorted.poll(fds, timeout);
    sorted.clear();
    let _ = SORTED.try_with(|place| place.set(Some(sorted))); // the thread ends
    result
}

impl Sorted {
    fn poll(&mut self, fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
        let has_strangers = self.sort(fds);
        let at_once = has_strangers || timeout.is_some_and(|time| time.is_zero());
        let Some(stack) = self.stack()? else {
            let timeout = if at_once {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            sys::poll(&mut self.kernel, timeout)?;
            return Ok(self.collect(fds));
        };
        if at_once {
            stack.net.poll(); // no thread may be polling the links
        }
        if self.look(fds) || at_once {
            sys::poll(&mut self.kernel, Some(Duration::ZERO))?;
        } else {
            self.wait(fds, &stack, Deadline::after(&stack.net, timeout))?;
        }
        let ready = self.collect(fds);
        stack.net.more_follows(ready);
        Ok(ready)
    }

    fn clear(&mut self) {
        self.kernel.clear();
        self.kernel_at.clear();
        self.ours.clear();
    }

    /// True if there are handles that name nothing: POLLNVAL.
    fn sort(&mut self, fds: &mut [PollFd]) -> bool {
        let mut has_strangers = false;
        for (at, entry) in fds.iter_mut().enumerate() {
            entry.revents = 0;
            match entry.socket {
                0 if entry.fd < 0 => {}
                0 => {
                    self.kernel_at.push(at);
                    self.kernel.push(pollfd {
                        fd: entry.fd,
                        events: entry.events,
                        revents: 0,
                    });
                }
                number => match socket::named(number) {
                    Ok(handle) => self.ours.push((at, handle)),
                    Err(_) => {
                        entry.revents = libc::POLLNVAL;
                        has_strangers = true;
                    }
                },
            }
        }
        self.ours
            .sort_unstable_by_key(|(_, handle)| Arc::as_ptr(handle));
        has_strangers
    }

    /// The stack of its sockets, if there are any.
    fn stack(&self) -> io::Result<Option<Arc<Stack>>> {
        let mut all = self.ours.iter().map(|(_, handle)| &handle.stack);
        let Some(first) = all.next() else {
            return Ok(None);
        };
        match all.all(|other| other.number == first.number) {
            true => Ok(Some(first.clone())),
            false => fail(libc::EINVAL),
        }
    }

    fn wait(&mut self, fds: &mut [PollFd], stack: &Stack, deadline: Deadline) -> io::Result<()> {
        with_waiter(stack, |waiter| {
            let waker = waiter.waker().clone();
            for (_, handle) in &self.ours {
                handle.enter(&waker); // one that is closed already is seen by `look`
            }
            let waited = self.sleep(fds, stack, deadline, waiter);
            for (_, handle) in &self.ours {
                handle.socket.deregister(&waker);
                handle.leave(&waker);
            }
            waited
        })
    }

    fn sleep(
        &mut self,
        fds: &mut [PollFd],
        stack: &Stack,
        deadline: Deadline,
        waiter: &mut Waiter,
    ) -> io::Result<()> {
        loop {
            self.register(fds, waiter);
            let left = match self.look(fds) {
                true => Some(Duration::ZERO),
                false => deadline.left(&stack.net),
            };
            let busy = self.ours.iter().map(|(_, handle)| handle.busy_poll());
            waiter.spin(busy.max().unwrap_or_default());
            let kernel = waiter.wait(&mut self.kernel, left)?;
            if self.look(fds) || kernel > 0 || deadline.has_passed(&stack.net) {
                return Ok(());
            }
        }
    }

    /// Registers once for each socket, for all that its entries ask: a later registration would replace an earlier one.
    fn register(&self, fds: &[PollFd], waiter: &mut Waiter) {
        for entries in self.ours.chunk_by(|(_, a), (_, b)| Arc::ptr_eq(a, b)) {
            let asked = entries.iter().filter_map(|(at, _)| fds.get(*at));
            let events = asked.fold(0, |all, entry| all | entry.events);
            if let Some((_, handle)) = entries.first() {
                waiter.register(&handle.socket, interest(events) | Readiness::ERROR);
            }
        }
    }

    /// Fills in netchan's entries; whether any has something to say.
    fn look(&self, fds: &mut [PollFd]) -> bool {
        let mut any = false;
        for (at, handle) in &self.ours {
            let Some(entry) = fds.get_mut(*at) else {
                continue;
            };
            entry.revents = match handle.is_closed() {
                true => libc::POLLNVAL,
                false => answer(handle.socket.readiness(), entry.events),
            };
            any |= entry.revents != 0;
        }
        any
    }

    /// Copies the kernel's answers; how many entries have one.
    fn collect(&self, fds: &mut [PollFd]) -> usize {
        for (entry, at) in self.kernel.iter().zip(&self.kernel_at) {
            if let Some(target) = fds.get_mut(*at) {
                target.revents = entry.revents;
            }
        }
        fds.iter().filter(|entry| entry.revents != 0).count()
    }
}
