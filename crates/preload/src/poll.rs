//! poll, ppoll, select and pselect over netchan's sockets and the kernel's descriptors together.

use std::{cell::Cell, io, mem, sync::atomic::Ordering::SeqCst, time::Duration};

use libc::{c_int, c_short, pollfd};
use netchan::{
    Net,
    socket::{Readiness, Waiter},
};

use crate::{
    epoll,
    errno::fail,
    orphan, process,
    readiness::{READ_BITS, WRITE_BITS, answer, interest},
    serve,
    state::SocketState,
    sys,
    table::Handle,
    wait::{self, Deadline, with_waiter},
};

/// Room for one call, kept by the thread so that no call allocates in the steady state.
#[derive(Default)]
struct Scratch {
    /// The kernel's descriptors among those asked for ...
    kernel: Vec<pollfd>,
    /// ... and where each stands in the caller's array.
    kernel_at: Vec<usize>,
    /// netchan's sockets, and where each stands.
    ours: Vec<(usize, Handle<SocketState>)>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Whether any of `fds` needs more than the kernel's poll.
pub fn concerns_us(fds: &[pollfd]) -> bool {
    fds.iter().any(|entry| is_ours(entry.fd)) || {
        for entry in fds {
            epoll::expose(entry.fd);
        }
        false
    }
}

/// Whether it is netchan's, or of the parent of this process.
fn is_ours(fd: c_int) -> bool {
    serve::is_ours(fd) || epoll::is_orphan(fd)
}

/// poll(2) with at least one of netchan's sockets among `fds`: the number of entries with `revents`.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let mut scratch = SCRATCH
        .try_with(Cell::take)
        .unwrap_or(None)
        .unwrap_or_default();
    let deadline = Deadline::after(timeout);
    let result = loop {
        scratch.split(fds);
        let result = scratch.wait(fds, deadline.left());
        // One that other processes came to share meanwhile is the kernel's.
        if !scratch.has_carried() {
            break result;
        }
    };
    scratch.clear();
    if let (Some(net), Ok(ready)) = (process::running(), &result) {
        net.more_follows(*ready);
    }
    let _ = SCRATCH.try_with(|place| place.set(Some(scratch)));
    result
}

impl Scratch {
    fn split(&mut self, fds: &mut [pollfd]) {
        self.clear();
        for (at, entry) in fds.iter_mut().enumerate() {
            entry.revents = 0;
            if entry.fd < 0 {
                continue;
            }
            if let Some(handle) = serve::netchan(entry.fd) {
                self.ours.push((at, handle));
            } else if is_ours(entry.fd) {
                if orphan::is_reported(entry.fd) {
                    entry.revents = libc::POLLNVAL; // the parent's
                }
            } else {
                epoll::expose(entry.fd);
                self.kernel.push(*entry);
                self.kernel_at.push(at);
            }
        }
    }

    fn has_carried(&self) -> bool {
        let mut ours = self.ours.iter();
        ours.any(|(_, handle)| handle.is_carried.load(SeqCst))
    }

    fn clear(&mut self) {
        self.kernel.clear();
        self.kernel_at.clear();
        self.ours.clear();
    }

    fn wait(&mut self, fds: &mut [pollfd], timeout: Option<Duration>) -> io::Result<usize> {
        let orphans = fds.iter().any(|entry| entry.revents != 0);
        let never_waits = timeout.is_some_and(|time| time.is_zero());
        if never_waits && !self.ours.is_empty() {
            process::running().map(Net::poll); // no thread may be polling the links
        }
        if orphans || self.look(fds) || never_waits {
            sys::poll_now(&mut self.kernel)?;
            return Ok(self.collect(fds));
        }
        if process::is_forked() {
            sys::poll(&mut self.kernel, timeout)?; // what this thread waited with is the parent's
            return Ok(self.collect(fds));
        }
        let deadline = Deadline::after(timeout);
        self.ours
            .sort_unstable_by_key(|(_, handle)| handle.address()); // for register
        with_waiter(|waiter| {
            let waker = waiter.waker().clone();
            for (_, handle) in &self.ours {
                handle.enter(&waker);
            }
            let result = self.sleep(fds, deadline, waiter);
            for (_, handle) in &self.ours {
                if let Some(socket) = handle.socket.get() {
                    socket.deregister(&waker);
                }
                handle.leave(&waker);
            }
            result
        })
    }

    fn sleep(
        &mut self,
        fds: &mut [pollfd],
        deadline: Deadline,
        waiter: &mut Waiter,
    ) -> io::Result<usize> {
        loop {
            self.register(fds, waiter);
            let ready = self.look(fds);
            let left = if ready {
                Some(Duration::ZERO)
            } else {
                deadline.left()
            };
            waiter.spin(self.busy_poll());
            let kernel = wait::once(waiter, &mut self.kernel, left)?;
            let ready = self.look(fds);
            if ready || kernel > 0 || deadline.passed() {
                return Ok(self.collect(fds));
            }
        }
    }

    /// SO_BUSY_POLL: how long it looks before it sleeps, the longest that any of its sockets asks for.
    fn busy_poll(&self) -> Duration {
        let asked = self
            .ours
            .iter()
            .map(|(_, handle)| handle.busy_poll_among_others());
        asked.max().unwrap_or(Duration::ZERO)
    }

    /// Registers once for each socket, for all that its entries ask: a later registration would replace an earlier one.
    fn register(&self, fds: &[pollfd], waiter: &mut Waiter) {
        for entries in self
            .ours
            .chunk_by(|(_, a), (_, b)| a.address() == b.address())
        {
            let asked = entries.iter().filter_map(|(at, _)| fds.get(*at));
            let events = asked.fold(0, |all, entry| all | entry.events);
            if let Some(socket) = entries.first().and_then(|(_, handle)| handle.socket.get()) {
                // Errors always: those too that only wait in an error queue.
                waiter.register(socket, interest(events) | Readiness::ERROR);
            }
        }
    }

    /// Fills in netchan's entries; whether any has something to say.
    fn look(&self, fds: &mut [pollfd]) -> bool {
        let mut any = false;
        for (at, handle) in &self.ours {
            let (Some(socket), Some(entry)) = (handle.socket.get(), fds.get_mut(*at)) else {
                continue;
            };
            entry.revents = if handle.closed.load(std::sync::atomic::Ordering::Relaxed) {
                libc::POLLNVAL
            } else {
                answer(socket.readiness(), entry.events)
            };
            any |= entry.revents != 0;
        }
        any
    }

    /// Copies the kernel's answers into `fds`; how many entries have one.
    fn collect(&self, fds: &mut [pollfd]) -> usize {
        for (entry, at) in self.kernel.iter().zip(&self.kernel_at) {
            if let Some(target) = fds.get_mut(*at) {
                target.revents = entry.revents;
            }
        }
        fds.iter().filter(|entry| entry.revents != 0).count()
    }
}

/// The three sets of a select call.
#[derive(Clone, Copy)]
pub struct Sets {
    /// Read, write, except; each may be NULL.
    pub sets: [*mut libc::fd_set; 3],
    /// One past the highest number.
    pub nfds: c_int,
}

/// What each set asks poll for, and which answers put a number into it (as Linux's select).
const ASKS: [c_short; 3] = [READ_BITS | libc::POLLRDBAND, WRITE_BITS, libc::POLLPRI];
const TELLS: [c_short; 3] = [
    READ_BITS | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    WRITE_BITS | libc::POLLERR,
    libc::POLLPRI,
];

const WORD_BITS: usize = libc::c_ulong::BITS as usize;

impl Sets {
    /// Whether any number in the sets needs more than the kernel's select.
    ///
    /// # Safety
    /// Each set must be readable for `nfds` bits, or NULL.
    pub unsafe fn concern_us(&self) -> bool {
        let mut ours = false;
        // SAFETY: the caller's.
        unsafe {
            self.each_word(|base, words| {
                let mut bits = words.iter().fold(0, |all, word| all | word);
                while bits != 0 {
                    let fd = base + bits.trailing_zeros().cast_signed();
                    epoll::expose(fd);
                    ours |= is_ours(fd);
                    bits &= bits - 1;
                }
            });
        }
        ours
    }

    /// Visits the sets a word at a time: the number of the first bit, and the three words.
    ///
    /// # Safety
    /// Each set must be readable for `nfds` bits, or NULL.
    unsafe fn each_word(&self, mut visit: impl FnMut(c_int, [libc::c_ulong; 3])) {
        let count = usize::try_from(self.nfds).unwrap_or(0);
        for at in 0..count.div_ceil(WORD_BITS) {
            let mut words = [0; 3];
            for (word, set) in words.iter_mut().zip(self.sets) {
                if !set.is_null() {
                    let place = set.cast::<libc::c_ulong>().wrapping_add(at);
                    // SAFETY: within the first `nfds` bits of a set that the caller vouches for.
                    *word = unsafe { place.read_unaligned() };
                    let left = count - at * WORD_BITS;
                    if left < WORD_BITS {
                        *word &= (1 << left) - 1;
                    }
                }
            }
            visit(c_int::try_from(at * WORD_BITS).unwrap_or(c_int::MAX), words);
        }
    }

    /// select(2): the number of bits set in the answer.
    ///
    /// # Safety
    /// Each set must be readable and writable for `nfds` bits, or NULL.
    pub unsafe fn select(&self, timeout: Option<Duration>) -> io::Result<usize> {
        let mut fds = Vec::new();
        // SAFETY: the caller's.
        unsafe { self.each_word(|base, words| ask(base, words, &mut fds)) };
        poll(&mut fds, timeout)?;
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return fail(libc::EBADF);
        }
        // SAFETY: the caller's.
        unsafe { self.clear() };
        let mut bits = 0;
        for entry in &fds {
            for (which, set) in self.sets.iter().enumerate() {
                if entry.events & ASKS[which] != 0 && entry.revents & TELLS[which] != 0 {
                    // SAFETY: the number came from a set, within its first `nfds` bits.
                    unsafe { put(*set, entry.fd) };
                    bits += 1;
                }
            }
        }
        Ok(bits)
    }

    /// # Safety
    /// Each set must be writable for `nfds` bits, or NULL.
    unsafe fn clear(&self) {
        let words = usize::try_from(self.nfds).unwrap_or(0).div_ceil(WORD_BITS);
        let bytes = words * mem::size_of::<libc::c_ulong>();
        for set in self.sets {
            if !set.is_null() {
                // SAFETY: the caller's; Linux writes whole words too.
                unsafe { set.cast::<u8>().write_bytes(0, bytes) };
            }
        }
    }
}

/// Appends a pollfd for each bit in `words`.
fn ask(base: c_int, words: [libc::c_ulong; 3], fds: &mut Vec<pollfd>) {
    let mut bits = words.iter().fold(0, |all, word| all | word);
    while bits != 0 {
        let bit = bits.trailing_zeros();
        let mut events = 0;
        for (word, asks) in words.iter().zip(ASKS) {
            if word >> bit & 1 != 0 {
                events |= asks;
            }
        }
        fds.push(pollfd {
            fd: base + bit.cast_signed(),
            events,
            revents: 0,
        });
        bits &= bits - 1;
    }
}

/// # Safety
/// `set` must be readable and writable for `fd + 1` bits.
unsafe fn put(set: *mut libc::fd_set, fd: c_int) {
    let fd = usize::try_from(fd).unwrap_or(0);
    let place = set.cast::<libc::c_ulong>().wrapping_add(fd / WORD_BITS);
    // SAFETY: the caller's.
    let word = unsafe { place.read_unaligned() };
    // SAFETY: the caller's.
    unsafe { place.write_unaligned(word | 1 << (fd % WORD_BITS)) };
}

#[cfg(test)]
#[path = "poll_tests.rs"]
mod tests;
