//! Waiting: threads that sleep until a socket, a kernel descriptor or the clock has something for them, and which of them turns a
//! channel-fed shard meanwhile.
//!
//! A shard at the end of a channel has no thread of its own. A thread that sleeps in a socket call *leads* the shard: it sleeps on the shard's
//! doorbell, and turns the shard for all its sockets. Threads that come while it leads *follow*: they sleep on doorbells of their own. A leader that
//! returns while others follow leaves the shard to the background poller, until the next thread that waits leads: of threads that serve requests
//! that is soon, and no thread is woken only to lead. When no thread has led a shard for two ticks (the application computes, or waits in an event
//! loop of its own), the background poller turns it, too, so that acknowledgments and timers are never late by more than two ticks. Of several shards
//! a thread leads the one whose socket it waits for; one that waits for several sockets leaves their shards to the background poller
//! (`stack::background`).
//!
//! A shard's leader becomes the link leader as well, where there is none (`stack::link_leader`). Where there is one shard, such a leader leaves it to
//! the next one, not to the background poller.

mod shards;
mod sleep;
mod spin;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use percore::{
    doorbell::{Doorbell, Sleep, several::Several},
    operations::{Operation, count},
};
use proto::time::Instant;

pub(in crate::socket) use self::shards::Home;
pub use self::shards::Shards;
use self::{sleep::look, spin::Spins};
use super::Socket;
use crate::api::Readiness;
use crate::{
    clock::Clock,
    limits::SHARDS_MAX,
    net::Net,
    regime::Handoff,
    stack::{
        Stack,
        shard_leader::Left,
        visitors::{Doing, Visitor},
    },
    sys::SignalsHeld,
    trace,
};

/// The thread leads no shard.
const LEADS_NONE: usize = usize::MAX;

/// Wakes one thread wherever it sleeps.
#[derive(Debug)]
pub struct Parker {
    woken: AtomicBool,
    doorbell: Doorbell,
    /// The shard that it leads, and on whose doorbell it sleeps.
    leading: AtomicUsize,
    /// The shards' doorbells.
    shards: Vec<Arc<Doorbell>>,
    /// How often threads of the stack were woken.
    wakes: Arc<AtomicU32>,
}

impl Parker {
    fn signal(&self) {
        count(Operation::Rmw, 2);
        // Relaxed: read by the thread that counts; where another one has, a leader retires for nothing.
        self.wakes.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the sleeper's order of arm (a fence in the doorbell), then look at `woken`.
        self.woken.store(true, Ordering::SeqCst);
        self.doorbell.ring();
        if let Some(shard) = self.shards.get(self.leading.load(Ordering::SeqCst)) {
            shard.ring();
        }
    }

    /// Takes the wake-up, if there was one.
    fn take_wake(&self) -> bool {
        count(Operation::Rmw, 1);
        self.woken.swap(false, Ordering::SeqCst)
    }

    fn has_wake(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.signal();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.signal();
    }
}

/// One thread's way to wait: for wakers, for kernel descriptors, for a deadline, all at once.
/// While it waits it turns the shards that no other thread turns.
pub struct Waiter {
    stack: Arc<Stack>,
    parker: Arc<Parker>,
    waker: Waker,
    /// What it does, for `netchan show threads`.
    visitor: Arc<Visitor>,
    /// Scratch for ppoll(2).
    fds: Vec<libc::pollfd>,
    /// The shards of the sockets that the next wait is for (a bit each).
    shards: u64,
    /// It is for sockets that live in no one shard, too.
    elsewhere: bool,
    /// How long it looks before it sleeps, at most.
    spin: Duration,
    /// What that brought so far.
    spins: Spins,
    /// The next wait has looked already ([`Self::try_first`]).
    has_spun: bool,
    /// It holds no signals back ([`Self::lets_signals_in`]).
    lets_signals_in: bool,
    /// A wait that was woken does not look at descriptors ([`Self::wait_for_either`]).
    is_lazy: bool,
    /// This wait has looked at its descriptors, and none was ready.
    has_looked: bool,
    /// Scratch for a sleep on doorbells alone.
    bells: Several,
    /// This wait has slept so for a while, and nothing rang: it goes on with descriptors.
    has_slept_long: bool,
    /// [`ShardLeader::arrivals`](crate::stack::shard_leader::ShardLeader::arrivals) before its last turn as the leader.
    arrivals: u32,
}

impl Waiter {
    /// A waiter on `net`. Keep one for each thread.
    ///
    /// # Errors
    /// When the process has no descriptor left for its doorbell.
    pub fn new(net: &Net) -> io::Result<Self> {
        Self::on(net.stack().clone())
    }

    pub(crate) fn on(stack: Arc<Stack>) -> io::Result<Self> {
        let parker = Arc::new(Parker {
            woken: AtomicBool::new(false),
            doorbell: Doorbell::new()?,
            leading: AtomicUsize::new(LEADS_NONE),
            shards: stack
                .sockets
                .cells
                .iter()
                .map(|cell| cell.doorbell.clone())
                .collect(),
            wakes: stack.sockets.wakes.clone(),
        });
        let waker = Waker::from(parker.clone());
        let visitor = stack.control.visitors.join();
        Ok(Self {
            stack,
            visitor,
            parker,
            waker,
            fds: Vec::with_capacity(16),
            shards: 0,
            elsewhere: false,
            spin: Duration::ZERO,
            spins: Spins::default(),
            has_spun: false,
            lets_signals_in: false,
            is_lazy: false,
            has_looked: false,
            bells: Several::default(),
            has_slept_long: false,
            arrivals: 0,
        })
    }

    /// Has the next wait end when any of `interest` (errors and hang-ups always) may hold for `socket`: [`Socket::register`] with this
    /// waiter's waker, which is to be deregistered after the wait. Where each socket has a shard of its own, and it is for this one
    /// alone, the waiting thread turns it. True as there: it may hold already.
    pub fn register(&mut self, socket: &Socket, interest: Readiness) -> bool {
        self.expect(socket);
        socket.register_in_place(interest, &self.waker)
    }

    /// The next wait is for `socket`, with which the waker is registered by other means.
    pub(super) fn expect(&mut self, socket: &Socket) {
        match socket.shard() {
            Some(number) => self.expect_shard(number),
            None => self.elsewhere = true,
        }
    }

    /// The next wait is for something that lives in this shard.
    pub(super) const fn expect_shard(&mut self, number: usize) {
        self.shards |= 1 << (number % SHARDS_MAX);
    }

    /// The next wait is for a set of sockets that were registered by [`Socket::register_among`].
    pub fn expect_all(&mut self, shards: &Shards) {
        let stack = &self.stack;
        if stack.has_homes() && stack.sockets.cells.len() > 1 {
            let me = Arc::as_ptr(&self.parker).addr();
            let home = shards.waits(me, || stack.home_of_caller());
            home.into_iter()
                .for_each(|home| stack.caller_lives_in(home));
        }
        match shards.only() {
            Ok(shard) => self.shards |= shard,
            Err(several) => self.elsewhere |= several,
        }
    }

    /// SO_BUSY_POLL: the next wait looks for so long before it sleeps, if that is longer than the stack's `spin`.
    pub fn spin(&mut self, time: Duration) {
        self.spin = time;
    }

    /// Waits hold no signals back from now on: a handler that runs between two sleeps of a wait does not end it. For a caller whose handlers wake the waker, or
    /// whose calls go on after a signal.
    pub const fn lets_signals_in(&mut self) {
        self.lets_signals_in = true;
    }

    /// Ends the wait when woken; see [`Self::register`].
    pub const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The stack it waits on.
    pub(crate) const fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Waits until the waker was woken since the last wait, or one of `fds` is ready (`revents` filled in as by poll(2)), or `timeout` has passed.
    /// Returns the number of ready `fds`.
    ///
    /// # Errors
    /// `Interrupted` when a signal handler ran; `WouldBlock` where time is virtual and nothing is due: nothing could end the wait.
    pub fn wait(
        &mut self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        if self.stack.stepped {
            return Err(io::ErrorKind::WouldBlock.into()); // nothing would end it
        }
        self.stack.end_batch();
        self.visitor.does(Doing::Waits);
        let waited = self.wait_by_regime(fds, timeout);
        self.visitor.does(Doing::Program);
        waited
    }

    fn wait_by_regime(
        &mut self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let deadline = timeout.map_or(Instant::FAR, |t| self.stack.clock.now() + t);
        self.has_slept_long = false;
        let spin = std::mem::take(&mut self.spin);
        if !self.stack.threaded {
            return self.wait_turning(fds, deadline);
        }
        if !self.stack.has_leaders() {
            self.spin_parked(spin, fds, deadline);
            return self.wait_parked(fds, deadline, None);
        }
        let stack = self.stack.clone();
        // SeqCst: before the look at the leader.
        stack.sockets.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.wait_at_shards(spin, fds, deadline);
        stack.sockets.waiting.fetch_sub(1, Ordering::SeqCst);
        waited
    }

    /// The application's threads turn the shards: this one turns that of the socket that it waits for. Where shards are called there is one leader; it
    /// goes by the first shard's name.
    fn wait_at_shards(
        &mut self,
        spin: Duration,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) -> io::Result<usize> {
        let several = !self.stack.has_one_leader();
        let (shards, elsewhere) = (std::mem::take(&mut self.shards), self.elsewhere);
        self.elsewhere = false;
        if several && (elsewhere || shards.count_ones() != 1) {
            self.spin_parked(spin, fds, deadline);
            return self.wait_elsewhere(shards, fds, deadline);
        }
        let number = if several {
            shards.trailing_zeros() as usize
        } else {
            0
        };
        let stack = self.stack.clone();
        let cell = &stack.sockets.cells[number];
        // From the first sleep on: a signal that comes between two sleeps, while the shard is turned, ends the wait as well.
        let mut held = None;
        let mut follows = false;
        let waited = loop {
            let mut has_retired = false;
            if cell.lead() {
                let spin = spin.max(Duration::from_nanos(stack.spin_ns));
                if let Some(waited) = self.wait_leading(number, spin, fds, deadline, &mut held) {
                    break waited;
                }
                // A thread that came to follow before this one stopped leading may be the one that is to lead, and sleeps.
                if cell.leader.arrivals() != self.arrivals {
                    continue;
                }
                has_retired = true;
            } else if !follows {
                self.spin_parked(spin, fds, deadline);
            }
            if !std::mem::replace(&mut follows, true) {
                cell.leader.follow();
                if !has_retired {
                    continue;
                }
            }
            break self.wait_parked(fds, deadline, held.as_ref());
        };
        if follows {
            cell.leader.stop_following();
        }
        waited
    }

    /// The same, but a wait that is woken does not look at `fds` again: `None` where it never has.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    pub fn wait_for_either(
        &mut self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> io::Result<Option<usize>> {
        (self.is_lazy, self.has_looked) = (true, false);
        let waited = self.wait(fds, timeout);
        self.is_lazy = false;
        Ok(Some(waited?).filter(|&ready| ready > 0 || self.has_looked))
    }

    /// What a wait answers that was woken.
    fn woken(&self, fds: &mut [libc::pollfd]) -> io::Result<usize> {
        if self.is_lazy { Ok(0) } else { look(fds) }
    }

    /// Waits for sockets of several shards: the background poller turns them.
    fn wait_elsewhere(
        &mut self,
        mut shards: u64,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) -> io::Result<usize> {
        while shards != 0 {
            let number = shards.trailing_zeros() as usize;
            self.stack.hand_over(number);
            // No call was made for what came before that.
            self.stack.turn_in_background(number);
            shards &= shards - 1;
        }
        self.wait_parked(fds, deadline, None)
    }

    /// Stops leading a shard. One that led the links, too, leaves the only shard to the next leader.
    fn leave(&self, number: usize, led_links: bool) {
        let (stack, cell) = (&self.stack, &self.stack.sockets.cells[number]);
        match cell.leader.leave() {
            _ if stack.layout.handoff == Handoff::Call => return, // the links' threads see to the timers
            Left::Alone if !stack.sockets.polls_in_background() => {
                if !stack.awaits_link_leader() {
                    stack.sockets.background.wake();
                }
                return;
            }
            Left::Followed if led_links && stack.sockets.cells.len() == 1 => return,
            Left::Followed => _ = stack.leave_to_background(number),
            Left::Alone | Left::Wanted => stack.hand_over(number),
        }
        // No call was made for what came before that.
        stack.turn_in_background(number);
    }

    /// Turns one shard, which it leads, until the wait is over; then it stops leading. Where no other thread does, it leads the links, too: then
    /// `None` if another thread is to lead.
    fn wait_leading(
        &mut self,
        number: usize,
        spin: Duration,
        fds: &mut [libc::pollfd],
        deadline: Instant,
        held: &mut Option<SignalsHeld>,
    ) -> Option<io::Result<usize>> {
        let stack = self.stack.clone();
        let cell = &stack.sockets.cells[number];
        trace::detail(trace::SHARD_LED, [number as u64]);
        self.parker.leading.store(number, Ordering::SeqCst);
        let leads_links = stack.lead_links(number);
        self.visitor.does(if leads_links {
            Doing::LeadsLinks(number)
        } else {
            Doing::LeadsShard(number)
        });
        let result = loop {
            let wakes = stack.sockets.wakes.load(Ordering::Relaxed);
            self.arrivals = cell.leader.arrivals();
            self.turn_and_spin(number, leads_links, spin, fds, deadline);
            if self.parker.take_wake() {
                break Some(self.woken(fds));
            }
            let woke = stack.sockets.wakes.load(Ordering::Relaxed) != wakes;
            if woke && leads_links && stack.has_one_leader() && stack.others_wait() {
                break None;
            }
            if !self.lets_signals_in {
                held.get_or_insert_with(SignalsHeld::new);
            }
            let by_bells = self.sleeps_by_bells(leads_links, fds);
            cell.doorbell.arm(match by_bells {
                true => Sleep::Futex,
                false => Sleep::Fd,
            });
            // Once more after arming: what came before it may not have rung.
            let is_left = stack.turn_waiting(number);
            let now = stack.clock.now();
            if self.parker.has_wake() || now >= deadline {
                cell.doorbell.disarm();
                let woken = self.parker.take_wake();
                break Some(if woken { self.woken(fds) } else { look(fds) });
            }
            if is_left {
                cell.doorbell.disarm();
                continue;
            }
            let until = deadline.min(stack.next_timer_of_waiting(number));
            let held = held.as_ref();
            let slept = if by_bells {
                self.sleep_by_bells(number, until, now)
            } else if leads_links {
                self.sleep_leading(number, fds, until, now, held)
            } else {
                self.sleep(&cell.doorbell, Sleep::Fd, fds, until, now, held)
            };
            cell.doorbell.disarm();
            match slept {
                Ok(0) => {}
                other => break Some(other),
            }
        };
        self.visitor.does(Doing::Waits);
        self.parker.leading.store(LEADS_NONE, Ordering::SeqCst);
        trace::detail(trace::SHARD_LEFT, [number as u64]);
        if leads_links {
            stack.stop_leading_links(number);
        }
        self.leave(number, leads_links);
        result
    }

    /// Others turn everything: sleeps until woken.
    fn wait_parked(
        &mut self,
        fds: &mut [libc::pollfd],
        deadline: Instant,
        held: Option<&SignalsHeld>,
    ) -> io::Result<usize> {
        loop {
            let slept = self.sleep_parked(fds, deadline, held);
            if self.parker.take_wake() || self.stack.clock.now() >= deadline {
                return slept.and_then(|n| if n > 0 { Ok(n) } else { self.woken(fds) });
            }
            if !matches!(slept, Ok(0)) {
                return slept;
            }
        }
    }

    /// No other thread turns anything: turns links and shards here, and sleeps on the links.
    fn wait_turning(&mut self, fds: &mut [libc::pollfd], deadline: Instant) -> io::Result<usize> {
        let stack = self.stack.clone();
        loop {
            let mut work = stack.turn_links();
            for number in 0..stack.sockets.cells.len() {
                work |= stack.turn_shard(number);
            }
            work |= stack.turn_links();
            let now = stack.clock.now();
            if self.parker.take_wake() || now >= deadline {
                return look(fds);
            }
            if work {
                continue;
            }
            let until = stack.next_event().min(deadline);
            if matches!(stack.clock, Clock::Virtual(_)) {
                if until == Instant::FAR || until <= now {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                stack.clock.advance_to(until);
                continue;
            }
            let n = self.sleep_on_links(fds, until, now)?;
            if n > 0 {
                return Ok(n);
            }
        }
    }
}
