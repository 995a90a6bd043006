//! The epoll instances that watch a socket, and the socket in each: what was asked, what was told, and when it is looked at again.

use std::{
    os::fd::RawFd,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU16, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Wake, Waker},
    time::Duration,
};

use libc::{c_short, epoll_event};
use netchan::socket::{Readiness, Socket};
use parking_lot::Mutex;

use super::SocketState;
use crate::{queue, readiness, table::Handle};

/// An instance's own, with such interests.
pub type Shared = queue::Shared<Interest>;

const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONE_SHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
const ALWAYS: Readiness = Readiness(Readiness::ERROR.0 | Readiness::HANGUP.0);

/// One socket in one instance.
pub struct Interest {
    pub instance: Weak<Shared>,
    pub fd: RawFd,
    pub settings: Mutex<Settings>,
    pub queued: AtomicBool,
    /// Edge-triggered: readiness that was reported and is not armed again yet.
    spent: AtomicU16,
    /// Something has happened since the last look.
    woken: AtomicBool,
    /// The wait that reported it last.
    pub told_by: AtomicU32,
}

pub struct Settings {
    pub events: u32,
    pub data: u64,
    /// False: one-shot and reported.
    armed: bool,
    /// The kernel's instance holds it: its socket is undecided.
    pub by_kernel: bool,
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
        readiness::interest(self.asked()) | ALWAYS
    }

    /// What to wait for where `spent` was reported: of what is readable the next arrival.
    fn unspent(&self, spent: u16) -> Readiness {
        let wanted = self.wanted();
        let arrival = if wanted.intersects(Readiness::READABLE) {
            Readiness::ARRIVAL
        } else {
            Readiness::NONE
        };
        Readiness(wanted.0 & !spent) | arrival
    }

    /// What the kernel's epoll is to watch for in its place.
    pub fn for_kernel(&self) -> epoll_event {
        /// What stays of an interest that was reported and is to be armed again.
        const HOW: u32 = 0xffff_0000;
        epoll_event {
            events: if self.armed {
                self.events
            } else {
                self.events & HOW
            },
            u64: self.data,
        }
    }

    fn is_edge(&self) -> bool {
        self.events & EDGE != 0
    }

    /// The event that says `ready`.
    fn event(&self, ready: Readiness) -> (u32, u64) {
        let bits = readiness::answer(ready, self.asked()).cast_unsigned();
        (u32::from(bits), self.data)
    }
}

/// The instances that watch one socket.
#[derive(Default)]
pub struct Watch {
    pub interests: Mutex<Vec<Weak<Interest>>>,
    /// The union of the edge-triggered interests' spent bits: a transfer looks no further while it is zero.
    spent: AtomicU16,
}

impl Wake for Interest {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst); // before it is queued: a look because of it sees it
        Self::enqueue(self);
    }
}

impl Interest {
    /// It may have something to say.
    pub fn enqueue(this: &Arc<Self>) {
        if this.queued.swap(true, SeqCst) {
            return;
        }
        if let Some(instance) = this.instance.upgrade() {
            instance.push(Arc::clone(this));
        }
    }

    /// Looks at the socket: the event to report, if there is one, and since when it is readable ([`Socket::ready_since`]). Arms what is not ready.
    pub fn collect(this: &Arc<Self>) -> Option<((u32, u64), Option<u32>)> {
        this.queued.store(false, SeqCst); // before the look: a wake after it queues again
        let mut settings = this.settings.lock();
        if !settings.armed || settings.by_kernel {
            return None;
        }
        let target = settings.target.clone()?;
        let socket = target.socket.get()?;
        let (ready, since) = socket.ready_since();
        let ready = Readiness(ready.0 & settings.wanted().0);
        let event = if settings.is_edge() {
            this.collect_edge(&settings, &target, ready)
        } else if ready == Readiness::NONE {
            this.wait_for(socket, settings.wanted());
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
        event.map(|event| (event, since))
    }

    /// As `collect`, for EPOLLET: something to report if any of `ready` is not spent, or, as Linux has it, if anything has happened
    /// that it waits for, such as an arrival behind what is not read yet; arms the rest.
    fn collect_edge(
        self: &Arc<Self>,
        settings: &Settings,
        target: &SocketState,
        ready: Readiness,
    ) -> Option<(u32, u64)> {
        let socket = target.socket.get()?;
        // Spent before the second look: a transfer that ends in between either sees the bit and arms it, or has
        // made the socket unready before the look, which arms it here.
        let woken = self.woken.swap(false, SeqCst);
        let before = self.spent.fetch_or(ready.0, SeqCst);
        target.watch.spent.fetch_or(ready.0, SeqCst);
        let still = Readiness(socket.readiness().0 & settings.wanted().0);
        self.spent.fetch_and(!(ready.0 & !still.0), SeqCst);
        let fresh = ready.0 & !before != 0 || (woken && ready != Readiness::NONE);
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
            self.wait_for(socket, settings.unspent(spent.0));
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
            self.wait_for(socket, settings.unspent(self.spent.load(SeqCst)));
        }
    }

    /// How long its socket asks poll and epoll to look before they sleep, if there is one still.
    pub fn busy_poll(&self) -> Option<Duration> {
        let settings = self.settings.lock();
        Some(settings.target.as_ref()?.busy_poll_among_others())
    }

    /// Whether there is something to report, reporting nothing; arms it if not.
    pub fn is_ready(self: &Arc<Self>) -> bool {
        let settings = self.settings.lock();
        if !settings.armed || settings.by_kernel {
            return false;
        }
        let Some(target) = settings.target.clone() else {
            return false;
        };
        let Some(socket) = target.socket.get() else {
            return false;
        };
        let ready = Readiness(socket.readiness().0 & settings.wanted().0);
        if settings.is_edge() {
            let woken = self.woken.load(SeqCst) && ready != Readiness::NONE;
            let fresh = ready.0 & !self.spent.load(SeqCst) != 0 || woken;
            if !fresh {
                self.arm_edge(&settings, socket, ready);
            }
            return fresh;
        }
        if ready == Readiness::NONE {
            self.wait_for(socket, settings.wanted());
        }
        ready != Readiness::NONE
    }

    /// It is queued when the socket may be ready for any of `wanted`.
    fn wait_for(self: &Arc<Self>, socket: &Socket, wanted: Readiness) {
        if let Some(instance) = self.instance.upgrade() {
            socket.register_among(&instance.shards, wanted, &self.waker());
        }
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Takes effect from now on: looks at once.
    pub fn arm(self: &Arc<Self>, event: epoll_event) {
        let mut settings = self.settings.lock();
        settings.events = event.events;
        settings.data = event.u64;
        settings.armed = true;
        settings.by_kernel = false;
        self.spent.store(0, SeqCst);
        self.woken.store(false, SeqCst);
        drop(settings);
        if self.is_ready() {
            Self::enqueue(self);
        }
    }

    /// Never reports again, and lets go of the socket.
    pub fn detach(self: &Arc<Self>) {
        let target = self.settings.lock().target.take();
        if let Some(socket) = target.as_ref().and_then(|target| target.socket.get()) {
            socket.deregister(&self.waker());
        }
    }
}

impl Interest {
    /// An interest of `shared`'s in `target`.
    pub fn new(
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
            woken: AtomicBool::new(false),
            told_by: AtomicU32::new(0),
        })
    }

    /// In a forked child: tells the parent that the socket is used here. False: it cannot be shared.
    pub fn adopt(&self) -> bool {
        let Some(settings) = self.settings.try_lock() else {
            return false;
        };
        let target = settings.target.as_ref();
        let Some(target) = target.filter(|target| target.socket.get().is_some()) else {
            return true;
        };
        let is_shared = target.share.get().is_some();
        if is_shared {
            target.name.tell();
        }
        is_shared
    }

    /// In a forked child: tells the parent that the socket is waited for here.
    pub fn tell_parent(&self) {
        let settings = self.settings.try_lock();
        let target = settings
            .as_ref()
            .and_then(|settings| settings.target.as_ref());
        if let Some(target) = target.filter(|target| target.socket.get().is_some()) {
            target.name.tell_of_instance();
        }
    }
}

impl Shared {
    /// A socket came or went that asks for a look before the sleep, or asks for another one.
    pub fn busy_poll_changed(&self) {
        let interests = self.interests.lock();
        let asked = interests
            .values()
            .filter_map(|interest| interest.busy_poll());
        let longest = asked.max().unwrap_or(Duration::ZERO);
        let us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        self.busy_poll_us.store(us, Relaxed);
    }
}

impl Watch {
    /// Whether an epoll instance that a thread of this process has waited at watches it; `None` if none watches it at all.
    pub fn is_used(&self) -> Option<bool> {
        let interests = self.interests.lock();
        let watching = interests.iter().filter_map(Weak::upgrade);
        let used = watching.map(|interest| {
            let instance = interest.instance.upgrade();
            instance.is_some_and(|instance| instance.is_used.load(Relaxed))
        });
        used.reduce(|one, other| one || other)
    }

    /// SO_BUSY_POLL was set: the instances that watch the socket look for as long from now on.
    pub fn busy_poll_changed(&self) {
        let interests: Vec<_> = self.interests.lock().clone();
        let interests = interests.iter().filter_map(Weak::upgrade);
        for instance in interests.filter_map(|interest| interest.instance.upgrade()) {
            instance.busy_poll_changed();
        }
    }

    /// After a receive or accept. While something is left to take, only what arrives is worth telling.
    #[inline]
    pub fn taken(&self, socket: &Socket) {
        let spent = self.spent.load(Relaxed) & Readiness::READABLE.0 != 0;
        if spent && !socket.readiness().intersects(Readiness::READABLE) {
            self.rearm(Readiness::READABLE);
        }
    }

    /// After a send that met a full buffer (`WRITABLE`), or when an error was taken.
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

    /// The socket became something else (listening, connecting): what was registered before may be lost.
    pub fn look_again(&self) {
        for interest in self.interests.lock().iter().filter_map(Weak::upgrade) {
            Interest::enqueue(&interest);
        }
    }

    /// One more interest in the socket.
    pub fn add(&self, interest: &Arc<Interest>) {
        let mut interests = self.interests.lock();
        interests.retain(|other| other.strong_count() > 0);
        interests.push(Arc::downgrade(interest));
    }
}
