//! epoll over netchan's sockets and the kernel's descriptors together.
//!
//! Each instance is a real one of the kernel's, which watches the kernel's descriptors; beside it stands a list of interests in
//! netchan's sockets. An interest that may have something to say is queued by its waker, so that a wait costs what is
//! ready, not what is registered. A level-triggered interest stays queued after it was reported and is looked at
//! again by the next wait; an edge-triggered one is armed again by the receive or send that uses the event up.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::RawFd,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicI32, AtomicU16, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    task::{Wake, Waker},
    time::Duration,
};

use libc::{c_int, c_short, epoll_event, pollfd};
use netchan::socket::{Readiness, Socket};
use parking_lot::Mutex;

use crate::{
    errno::fail,
    lifecycle, poll,
    state::{SOCKETS, SocketState},
    sys,
    table::{Handle, Table},
    wait::{Deadline, with_waiter},
};

/// Every epoll instance's number.
pub static EPOLLS: Table<Instance> = Table::new();

const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONE_SHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
const ALWAYS: Readiness = Readiness(Readiness::ERROR.0 | Readiness::HANGUP.0);

/// One epoll instance.
pub struct Instance {
    shared: Arc<Shared>,
}

/// What interests and waiting threads of one instance share.
struct Shared {
    /// A number of the kernel's instance; follows when the first one is closed while a duplicate stays.
    epfd: AtomicI32,
    interests: Mutex<BTreeMap<RawFd, Arc<Interest>>>,
    queue: Mutex<Queue>,
    /// Interests that the kernel may hold: an upper bound, the kernel drops closed ones by itself.
    kernel_members: AtomicUsize,
    /// Threads inside the kernel's epoll_wait, which does not see our queue.
    kernel_waiters: AtomicUsize,
    /// An eventfd inside the kernel's instance, readable while the queue is not empty: made when somebody looks at
    /// the instance from outside (poll on it, another epoll around it) or must be called out of the kernel. -1: none.
    bell: AtomicI32,
    /// Which side goes first when both have more than the caller has room for.
    kernel_first: AtomicBool,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Interest>>,
    /// Threads that wait for it to fill.
    sleepers: Vec<Waker>,
}

/// One socket in one instance.
pub struct Interest {
    instance: Weak<Shared>,
    fd: RawFd,
    settings: Mutex<Settings>,
    queued: AtomicBool,
    /// Edge-triggered: readiness that was reported and is not armed again yet.
    spent: AtomicU16,
}

struct Settings {
    events: u32,
    data: u64,
    /// False: one-shot and reported.
    armed: bool,
    /// The kernel's instance holds it: its socket is undecided.
    by_kernel: bool,
    /// `None` once removed: an interest that is still queued keeps no socket open.
    target: Option<Handle<SocketState>>,
}

impl Settings {
    /// What epoll_ctl set, as poll's bits.
    fn asked(&self) -> c_short {
        let bits = u16::try_from(self.events & 0xffff).unwrap_or(0);
        bits.cast_signed()
    }

    /// What to wait for: errors and hang-ups always.
    fn wanted(&self) -> Readiness {
        poll::interest(self.asked()) | ALWAYS
    }

    fn is_edge(&self) -> bool {
        self.events & EDGE != 0
    }

    /// The event that says `ready`.
    fn event(&self, ready: Readiness) -> (u32, u64) {
        let bits = poll::answer(ready, self.asked()).cast_unsigned();
        (u32::from(bits), self.data)
    }
}

/// The instances that watch one socket.
#[derive(Default)]
pub struct Watch {
    interests: Mutex<Vec<Weak<Interest>>>,
    /// The union of the edge-triggered interests' spent bits: a transfer looks no further while it is zero.
    spent: AtomicU16,
}

impl Wake for Interest {
    fn wake(self: Arc<Self>) {
        Self::enqueue(&self);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        Self::enqueue(self);
    }
}

impl Interest {
    fn enqueue(this: &Arc<Self>) {
        if this.queued.swap(true, SeqCst) {
            return;
        }
        if let Some(instance) = this.instance.upgrade() {
            instance.push(Arc::clone(this));
        }
    }

    /// Looks at the socket: the event to report, if there is one. Arms what is not ready.
    fn collect(this: &Arc<Self>) -> Option<(u32, u64)> {
        this.queued.store(false, SeqCst); // before the look: whoever wakes after it queues again
        let mut settings = this.settings.lock();
        if !settings.armed || settings.by_kernel {
            return None;
        }
        let target = settings.target.clone()?;
        let socket = target.socket.get()?;
        let ready = Readiness(socket.readiness().0 & settings.wanted().0);
        let event = if settings.is_edge() {
            this.collect_edge(&settings, &target, ready)
        } else if ready == Readiness::NONE {
            socket.register(settings.wanted(), &this.waker());
            None
        } else {
            if settings.events & ONE_SHOT == 0 {
                Self::enqueue(this);
            }
            Some(settings.event(ready))
        };
        if event.is_some() && settings.events & ONE_SHOT != 0 {
            settings.armed = false;
        }
        event
    }

    /// As `collect`, for EPOLLET: something to report if any of `ready` is not spent; arms the rest.
    fn collect_edge(
        self: &Arc<Self>,
        settings: &Settings,
        target: &SocketState,
        ready: Readiness,
    ) -> Option<(u32, u64)> {
        let socket = target.socket.get()?;
        // Spent before the second look: a transfer that ends in between either sees the bit and arms it, or has
        // made the socket unready before the look, which arms it here.
        let before = self.spent.fetch_or(ready.0, SeqCst);
        target.watch.spent.fetch_or(ready.0, SeqCst);
        let still = Readiness(socket.readiness().0 & settings.wanted().0);
        self.spent.fetch_and(!(ready.0 & !still.0), SeqCst);
        let fresh = ready.0 & !before != 0;
        if !fresh || settings.events & ONE_SHOT == 0 {
            self.arm_edge(settings, socket, still);
        }
        fresh.then(|| settings.event(ready))
    }

    /// Registers for those bits that are not spent. A hang-up that was reported would wake at once and for ever: then
    /// the next transfer arms.
    fn arm_edge(self: &Arc<Self>, settings: &Settings, socket: &Socket, now: Readiness) {
        let spent = Readiness(self.spent.load(SeqCst));
        if now.0 & spent.0 & ALWAYS.0 == 0 {
            let unspent = Readiness(settings.wanted().0 & !spent.0);
            socket.register(unspent, &self.waker());
        }
    }

    /// A transfer used up `used`: tell of it again when it comes again.
    fn rearm(self: &Arc<Self>, used: Readiness) {
        if self.spent.fetch_and(!used.0, SeqCst) & used.0 == 0 {
            return;
        }
        let settings = self.settings.lock();
        if !settings.armed || settings.by_kernel || !settings.is_edge() {
            return;
        }
        if let Some(socket) = settings
            .target
            .as_ref()
            .and_then(|target| target.socket.get())
        {
            let unspent = Readiness(settings.wanted().0 & !self.spent.load(SeqCst));
            socket.register(unspent, &self.waker());
        }
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Takes effect from now on: looks at once.
    fn arm(self: &Arc<Self>, event: epoll_event) {
        let mut settings = self.settings.lock();
        settings.events = event.events;
        settings.data = event.u64;
        settings.armed = true;
        settings.by_kernel = false;
        self.spent.store(0, SeqCst);
        drop(settings);
        Self::enqueue(self);
    }

    /// Never reports again, and lets go of the socket.
    fn detach(self: &Arc<Self>) {
        let target = self.settings.lock().target.take();
        if let Some(socket) = target.as_ref().and_then(|target| target.socket.get()) {
            socket.deregister(&self.waker());
        }
    }
}

impl Watch {
    /// After a receive (`READABLE`) or a send that met a full buffer (`WRITABLE`).
    #[inline]
    pub fn used(&self, what: Readiness) {
        if self.spent.load(Relaxed) & what.0 != 0 {
            self.rearm(what);
        }
    }

    #[cold]
    fn rearm(&self, what: Readiness) {
        self.spent.fetch_and(!what.0, SeqCst);
        for interest in self.interests.lock().iter().filter_map(Weak::upgrade) {
            interest.rearm(what);
        }
    }

    fn add(&self, interest: &Arc<Interest>) {
        let mut interests = self.interests.lock();
        interests.retain(|other| other.strong_count() > 0);
        interests.push(Arc::downgrade(interest));
    }
}

impl Shared {
    fn push(&self, interest: Arc<Interest>) {
        let sleeper = {
            let mut queue = self.queue.lock();
            queue.ready.push_back(interest);
            if queue.ready.len() == 1 {
                self.ring(); // under the lock: silence follows the queue
            }
            queue.sleepers.pop()
        };
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    fn ring(&self) {
        let bell = self.bell.load(Acquire); // pairs with Release in hang_bell
        if bell >= 0 {
            sys::eventfd_signal(bell);
        }
    }

    fn pop(&self) -> Option<Arc<Interest>> {
        let mut queue = self.queue.lock();
        let next = queue.ready.pop_front();
        if queue.ready.is_empty() {
            let bell = self.bell.load(Acquire); // pairs with Release in hang_bell
            if bell >= 0 && next.is_some() {
                sys::eventfd_clear(bell);
            }
        }
        next
    }

    /// What a bell's event carries: no address that a program could use for its own data.
    fn bell_data(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    /// Makes the queue visible to the kernel's instance.
    fn hang_bell(&self) -> io::Result<()> {
        let queue = self.queue.lock();
        if self.bell.load(Relaxed) >= 0 {
            return Ok(());
        }
        let bell = sys::eventfd()?;
        let event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: self.bell_data(),
        };
        let epfd = self.epfd.load(Relaxed);
        if let Err(error) = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, bell, Some(event)) {
            let _ = sys::close(bell);
            return Err(error);
        }
        self.bell.store(bell, Release); // pairs with Acquire in ring and pop
        if !queue.ready.is_empty() {
            sys::eventfd_signal(bell);
        }
        Ok(())
    }

    /// Moves at most `max` events of netchan's sockets to `out`.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain(&self, out: *mut epoll_event, max: usize) -> usize {
        let mut found = 0;
        let rounds = self.queue.lock().ready.len(); // each once: a level-triggered one queues itself again
        for _ in 0..rounds {
            if found == max {
                break;
            }
            let Some(interest) = self.pop() else { break };
            if let Some((events, data)) = Interest::collect(&interest) {
                let place = out.wrapping_add(found);
                // SAFETY: found < max.
                unsafe { place.write_unaligned(epoll_event { events, u64: data }) };
                found += 1;
            }
        }
        found
    }

    /// Moves at most `max` of the kernel's events to `out`, the bell's left out.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn drain_kernel(&self, out: *mut epoll_event, max: usize) -> io::Result<usize> {
        let room = c_int::try_from(max).unwrap_or(c_int::MAX);
        if room == 0 || (self.kernel_members.load(Relaxed) == 0 && self.bell.load(Relaxed) < 0) {
            return Ok(0);
        }
        // SAFETY: the caller's.
        let count = unsafe { sys::epoll_poll(self.epfd.load(Relaxed), out, room) }?;
        // SAFETY: `count` entries were written.
        Ok(unsafe { self.without_bell(out, count) })
    }

    /// Removes the bell's event from `count` events.
    ///
    /// # Safety
    /// `out` must hold `count` entries.
    unsafe fn without_bell(&self, out: *mut epoll_event, count: usize) -> usize {
        if self.bell.load(Relaxed) < 0 {
            return count;
        }
        let mut kept = 0;
        for at in 0..count {
            // SAFETY: at < count.
            let event = unsafe { out.wrapping_add(at).read_unaligned() };
            if event.u64 == self.bell_data() {
                continue;
            }
            // SAFETY: kept <= at.
            unsafe { out.wrapping_add(kept).write_unaligned(event) };
            kept += 1;
        }
        kept
    }

    /// Everything there is at this moment.
    ///
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn gather(&self, out: *mut epoll_event, max: usize) -> io::Result<usize> {
        if self.kernel_first.fetch_xor(true, Relaxed) {
            // SAFETY: the caller's.
            let kernel = unsafe { self.drain_kernel(out, max) }?;
            // SAFETY: kernel <= max.
            Ok(kernel + unsafe { self.drain(out.wrapping_add(kernel), max - kernel) })
        } else {
            // SAFETY: the caller's.
            let ours = unsafe { self.drain(out, max) };
            // SAFETY: ours <= max.
            Ok(ours + unsafe { self.drain_kernel(out.wrapping_add(ours), max - ours) }?)
        }
    }

    fn has_ours(&self) -> bool {
        !self.interests.lock().is_empty()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let bell = *self.bell.get_mut();
        if bell >= 0 && !lifecycle::is_forked() {
            let _ = sys::close(bell);
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let interests = std::mem::take(&mut *self.shared.interests.lock());
        for interest in interests.into_values() {
            interest.detach();
        }
    }
}

/// Follows epoll_create: `epfd` is the kernel's new instance.
pub fn created(epfd: RawFd) {
    let shared = Arc::new(Shared {
        epfd: AtomicI32::new(epfd),
        interests: Mutex::default(),
        queue: Mutex::default(),
        kernel_members: AtomicUsize::new(0),
        kernel_waiters: AtomicUsize::new(0),
        bell: AtomicI32::new(-1),
        kernel_first: AtomicBool::new(false),
    });
    // Out of the table's range: the kernel's instance alone serves it.
    let _ = EPOLLS.insert(epfd, &EPOLLS.create(Instance { shared }));
}

/// The instance behind `epfd`, if it is watched here and by this process.
pub fn instance(epfd: RawFd) -> Option<Handle<Instance>> {
    if EPOLLS.is_vacant(epfd) || lifecycle::is_forked() {
        return None;
    }
    EPOLLS.get(epfd)
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
    if lifecycle::is_forked() {
        std::mem::forget(removed.handle);
        return;
    }
    if !removed.last
        && let Some(other) = EPOLLS.find(&removed.handle)
    {
        removed.handle.shared.epfd.store(other, Relaxed);
    }
}

/// Somebody is about to look at `fd` with poll, or to put it into another epoll: if it is an instance, the kernel has
/// to know about its queue.
pub fn expose(fd: RawFd) {
    if let Some(instance) = instance(fd) {
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
            (
                settings.by_kernel,
                epoll_event {
                    events: settings.events,
                    u64: settings.data,
                },
            )
        };
        interest.detach();
        if !by_kernel {
            let epfd = instance.epfd.load(Relaxed);
            let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, interest.fd, Some(event));
            instance.kernel_members.fetch_add(1, Relaxed);
        }
    }
}

impl Shared {
    /// Threads that sleep in the kernel's epoll_wait come out and wait here from now on.
    fn call_out(&self) {
        if self.kernel_waiters.load(SeqCst) > 0 && self.hang_bell().is_ok() {
            self.ring();
        }
    }
}

/// What epoll_ctl does about `fd`.
enum Side {
    Ours(Handle<SocketState>),
    Undecided(Handle<SocketState>),
    Kernel,
}

fn side(fd: RawFd) -> Side {
    match SOCKETS.get(fd) {
        None => Side::Kernel,
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
            Ok(())
        }
        (libc::EPOLL_CTL_MOD, Some(interest)) => {
            interest.arm(event);
            Ok(())
        }
        (libc::EPOLL_CTL_DEL, Some(interest)) => {
            shared.interests.lock().remove(&fd);
            interest.detach();
            Ok(())
        }
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => fail(libc::ENOENT),
        _ => fail(libc::EINVAL),
    }
}

impl Interest {
    fn new(
        shared: &Arc<Shared>,
        fd: RawFd,
        target: &Handle<SocketState>,
        event: epoll_event,
        by_kernel: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            instance: Arc::downgrade(shared),
            fd,
            settings: Mutex::new(Settings {
                events: event.events,
                data: event.u64,
                armed: true,
                by_kernel,
                target: Some(target.clone()),
            }),
            queued: AtomicBool::new(false),
            spent: AtomicU16::new(0),
        })
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
    } else if let Some(interest) = shared.interests.lock().get(&fd) {
        let mut settings = interest.settings.lock();
        settings.events = event.events;
        settings.data = event.u64;
    }
}

/// How a wait goes on.
pub enum Wait {
    /// Nothing of netchan's in this instance and no stack: the kernel's epoll_wait does it all.
    Kernel,
    /// As many events.
    Done(usize),
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
    let max = usize::try_from(max).ok().filter(|max| *max > 0);
    let Some(max) = max else {
        return fail(libc::EINVAL);
    };
    if lifecycle::running().is_none() || !shared.has_ours() {
        return Ok(Wait::Kernel);
    }
    // SAFETY: the caller's.
    let found = unsafe { shared.gather(out, max) }?;
    if found > 0 || timeout.is_some_and(|time| time.is_zero()) {
        return Ok(Wait::Done(found));
    }
    // SAFETY: the caller's.
    unsafe { shared.sleep(out, max, Deadline::after(timeout)) }.map(Wait::Done)
}

impl Shared {
    /// # Safety
    /// `out` must be writable for `max` entries.
    unsafe fn sleep(
        &self,
        out: *mut epoll_event,
        max: usize,
        deadline: Deadline,
    ) -> io::Result<usize> {
        with_waiter(|waiter| {
            let waker = waiter.waker().clone();
            let result = loop {
                self.queue.lock().sleepers.push(waker.clone());
                // SAFETY: the caller's.
                match unsafe { self.gather(out, max) } {
                    Ok(0) => {}
                    result => break result,
                }
                let mut kernel = [pollfd {
                    fd: self.epfd.load(Relaxed),
                    events: libc::POLLIN,
                    revents: 0,
                }];
                let waited = waiter.wait(&mut kernel, deadline.left());
                self.leave(&waker);
                // SAFETY: the caller's.
                match unsafe { self.gather(out, max) } {
                    Ok(0) => {}
                    result => break result,
                }
                if let Err(error) = waited {
                    break Err(error);
                }
                if kernel[0].revents & libc::POLLNVAL != 0 {
                    break fail(libc::EBADF);
                }
                if deadline.passed() {
                    break Ok(0);
                }
            };
            self.leave(&waker);
            result
        })
    }

    fn leave(&self, waker: &Waker) {
        self.queue
            .lock()
            .sleepers
            .retain(|other| !other.will_wake(waker));
    }
}

/// Brackets a wait in the kernel: while it lasts, a first interest of netchan's calls the thread out. False if one is there
/// already.
pub fn enter_kernel(epfd: RawFd) -> bool {
    let Some(instance) = instance(epfd) else {
        return true;
    };
    instance.shared.kernel_waiters.fetch_add(1, SeqCst);
    lifecycle::running().is_none() || !instance.shared.has_ours()
}

/// Ends what [`enter_kernel`] began: how many of `count` events are the program's.
///
/// # Safety
/// `out` must hold `count` entries.
pub unsafe fn leave_kernel(epfd: RawFd, out: *mut epoll_event, count: c_int) -> c_int {
    let Some(instance) = instance(epfd) else {
        return count;
    };
    instance.shared.kernel_waiters.fetch_sub(1, SeqCst);
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's.
    let kept = unsafe { instance.shared.without_bell(out, count) };
    c_int::try_from(kept).unwrap_or(c_int::MAX)
}

#[cfg(test)]
#[path = "epoll_tests.rs"]
mod tests;
