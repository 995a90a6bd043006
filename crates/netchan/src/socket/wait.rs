//! Waiting: threads that sleep until a socket, a kernel descriptor or the clock has something for them, and the question who turns a
//! channel-fed shard meanwhile.
//!
//! A shard at the end of a channel has no thread of its own. Whoever sleeps in a socket call takes the shard's *seat* and, instead of
//! sleeping on its own behalf, sleeps on the shard's doorbell and turns it for everyone. Those who come second sleep on a doorbell of
//! their own, and get the seat when the first leaves. When nobody has sat there for two ticks (the application computes, or waits in an
//! event loop of its own), the attendant sits down until somebody asks for the seat, so that acknowledgments and timers are never late by
//! more than two ticks. Of several shards a thread sits at the one whose socket it waits for; who waits for several sockets leaves
//! theirs to the attendant, which has a line to each (see `attendant`).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use percore::{
    doorbell::{Doorbell, Sleep},
    lock::{Mutex, mutex},
    operations::{Operation, count},
};
use proto::time::Instant;

use super::{Readiness, Socket};
use crate::{
    clock::Clock,
    interface::Interface,
    locks,
    net::Net,
    regime::{Holder, SHARDS_MAX, cell::Cell},
    stack::Stack,
    stages, trace, watch,
};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ATTENDED: u32 = 2;
const ASKED_FOR: u32 = 3;

/// Who turns a channel-fed shard.
#[derive(Debug)]
pub struct Seat {
    state: AtomicU32,
    /// Those who came second.
    standing: Mutex<Vec<Arc<Parker>>>,
    /// Somebody waits for this shard elsewhere: who gets up leaves it to the attendant (where there are several shards).
    wanted: AtomicBool,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            standing: mutex(&locks::STANDING, Vec::new()),
            wanted: AtomicBool::new(false),
        }
    }
}

impl Seat {
    /// Takes a shard's free seat; asks the attendant for it if it sits there. With a line to the attendant nobody need be asked.
    fn take(cell: &Cell) -> bool {
        count(Operation::Rmw, 1);
        let (seat, doorbell) = (&cell.seat, &cell.doorbell);
        let Some(line) = &cell.line else {
            return seat.take_or_ask(doorbell);
        };
        // SeqCst throughout, as below.
        let taken = seat.state.swap(TAKEN, Ordering::SeqCst) != TAKEN;
        if taken {
            line.close();
        }
        taken
    }

    fn take_or_ask(&self, doorbell: &Doorbell) -> bool {
        // SeqCst throughout: changes hands a few thousand times a second at most, and is read with `standing`.
        match self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::SeqCst, Ordering::SeqCst)
        {
            Ok(_) => true,
            Err(ATTENDED) => {
                let asked = self.state.compare_exchange(
                    ATTENDED,
                    ASKED_FOR,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                if asked.is_ok() {
                    doorbell.ring();
                }
                false
            }
            Err(_) => false,
        }
    }

    /// Gets up, and wakes one of those who stand.
    fn leave(&self) {
        self.state.store(FREE, Ordering::SeqCst);
        let next = self.standing.lock().pop();
        if let Some(next) = next {
            next.poke();
        }
    }

    /// For who waits elsewhere: whether the attendant has the shard now. If not, it will when the one who sits there gets up.
    pub fn hand_over(&self) -> bool {
        // SeqCst: before the look at `state`; pairs with `leave_in`, which looks the other way round.
        self.wanted.store(true, Ordering::SeqCst);
        self.attend()
    }

    /// For the attendant: whether it has the shard now.
    pub fn attend(&self) -> bool {
        let order = Ordering::SeqCst;
        let was = self.state.compare_exchange(FREE, ATTENDED, order, order);
        matches!(was, Ok(_) | Err(ATTENDED))
    }

    /// Gets up from one of several shards' seats. True: somebody waits for it elsewhere, so that it is to be handed over.
    fn leave_in(&self) -> bool {
        self.leave();
        // SeqCst: after `state`; pairs with `hand_over`.
        self.wanted.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst)
    }

    /// Nobody sits here.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE // a hint, as the next two
    }

    /// A thread of the application sits here.
    pub fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    /// The attendant looks after it.
    pub fn is_attended(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ATTENDED
    }

    fn stand(&self, parker: &Arc<Parker>) {
        let mut standing = self.standing.lock();
        if !standing.iter().any(|p| Arc::ptr_eq(p, parker)) {
            standing.push(parker.clone());
        }
    }

    fn walk_away(&self, parker: &Arc<Parker>) {
        self.standing.lock().retain(|p| !Arc::ptr_eq(p, parker));
    }

    /// Whether anybody turns the shard, for `netchan show`.
    pub fn holder(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            FREE => "nobody",
            TAKEN => "application",
            _ => "attendant",
        }
    }
}

const WOKEN: u8 = 1;
const POKED: u8 = 2;
const NOT_SITTING: usize = usize::MAX;

/// Wakes one thread wherever it sleeps.
#[derive(Debug)]
pub struct Parker {
    state: AtomicU8,
    doorbell: Doorbell,
    /// The shard on whose doorbell it sleeps.
    sitting: AtomicUsize,
    seats: Vec<Arc<Doorbell>>,
}

impl Parker {
    fn signal(&self, bit: u8) {
        count(Operation::Rmw, 1);
        // SeqCst: pairs with the sleeper's order of arm (a fence in the doorbell), then look at `state`.
        self.state.fetch_or(bit, Ordering::SeqCst);
        self.doorbell.ring();
        if let Some(seat) = self.seats.get(self.sitting.load(Ordering::SeqCst)) {
            seat.ring();
        }
    }

    /// Makes it look whether a seat is free.
    fn poke(&self) {
        self.signal(POKED);
    }

    fn is_signalled(&self) -> bool {
        self.state.load(Ordering::SeqCst) != 0
    }

    /// Takes the wake-up, if there was one.
    fn take_wake(&self) -> bool {
        count(Operation::Rmw, 1);
        self.state.swap(0, Ordering::SeqCst) & WOKEN != 0
    }

    fn has_wake(&self) -> bool {
        self.state.load(Ordering::SeqCst) & WOKEN != 0
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.signal(WOKEN);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.signal(WOKEN);
    }
}

/// One thread's way to wait: for wakers, for kernel descriptors, for a deadline, all at once.
/// While it waits it turns the shards that nobody else turns.
pub struct Waiter {
    stack: Arc<Stack>,
    parker: Arc<Parker>,
    waker: Waker,
    /// Scratch for ppoll(2).
    fds: Vec<libc::pollfd>,
    /// The shards of the sockets that the next wait is for (a bit each).
    shards: u64,
    /// It is for sockets that live in no one shard, too.
    elsewhere: bool,
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
            state: AtomicU8::new(0),
            doorbell: Doorbell::new()?,
            sitting: AtomicUsize::new(NOT_SITTING),
            seats: stack
                .cells
                .iter()
                .map(|cell| cell.doorbell.clone())
                .collect(),
        });
        let waker = Waker::from(parker.clone());
        Ok(Self {
            stack,
            parker,
            waker,
            fds: Vec::with_capacity(16),
            shards: 0,
            elsewhere: false,
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
            Some(number) => self.shards |= 1 << (number % SHARDS_MAX),
            None => self.elsewhere = true,
        }
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
    /// `Interrupted` when a signal handler ran; `WouldBlock` where time is virtual and nothing is due: nobody could end the wait.
    pub fn wait(
        &mut self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        if self.stack.stepped {
            return Err(io::ErrorKind::WouldBlock.into()); // nobody would come
        }
        let deadline = timeout.map_or(Instant::FAR, |t| self.stack.clock.now() + t);
        if !self.stack.threaded {
            return self.wait_turning(fds, deadline);
        }
        if self.stack.layout.holder != Holder::Application {
            return self.wait_parked(fds, deadline);
        }
        let several = self.stack.cells.len() > 1;
        let (shards, elsewhere) = (std::mem::take(&mut self.shards), self.elsewhere);
        self.elsewhere = false;
        if several && (elsewhere || shards.count_ones() != 1) {
            return self.wait_elsewhere(shards, fds, deadline);
        }
        let number = if several {
            shards.trailing_zeros() as usize
        } else {
            0
        };
        if Seat::take(&self.stack.cells[number]) {
            return self.wait_sitting(number, fds, deadline);
        }
        self.wait_standing(number, fds, deadline)
    }

    /// Waits for sockets of several shards: the attendant turns them.
    fn wait_elsewhere(
        &mut self,
        mut shards: u64,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) -> io::Result<usize> {
        while shards != 0 {
            let number = shards.trailing_zeros() as usize;
            self.stack.hand_over(number);
            // What came before that called nobody.
            self.stack.turn_shard(number);
            shards &= shards - 1;
        }
        self.wait_parked(fds, deadline)
    }

    /// Gets up.
    fn leave(&self, number: usize) {
        let cell = &self.stack.cells[number];
        if cell.line.is_none() {
            return cell.seat.leave();
        }
        if cell.seat.leave_in() || self.stack.is_attended() {
            self.stack.hand_over(number);
            self.stack.turn_shard(number);
        }
    }

    /// Turns one shard, whose seat it has taken, until the wait is over; then gets up.
    fn wait_sitting(
        &mut self,
        number: usize,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let cell = &stack.cells[number];
        trace::detail(trace::SEAT_TAKEN, [number as u64]);
        self.parker.sitting.store(number, Ordering::SeqCst);
        let result = loop {
            self.turn_and_spin(number);
            if self.parker.take_wake() {
                break look(fds);
            }
            let how = if fds.is_empty() {
                Sleep::Futex
            } else {
                Sleep::Fd
            };
            cell.doorbell.arm(how);
            // Once more after arming: what came before it may have rung nobody.
            stack.turn_shard(number);
            let now = stack.clock.now();
            if self.parker.has_wake() || now >= deadline {
                cell.doorbell.disarm();
                self.parker.take_wake();
                break look(fds);
            }
            let until = deadline.min(cell.next_timer());
            let slept = self.sleep(&cell.doorbell, how, fds, until, now);
            cell.doorbell.disarm();
            match slept {
                Ok(0) => {}
                other => break other,
            }
        };
        self.parker.sitting.store(NOT_SITTING, Ordering::SeqCst);
        trace::detail(trace::SEAT_LEFT, [number as u64]);
        self.leave(number);
        result
    }

    fn turn_and_spin(&self, number: usize) {
        self.stack.turn_shard(number);
        if self.stack.spin_ns == 0 || self.parker.has_wake() {
            return;
        }
        let end = self.stack.clock.now() + Duration::from_nanos(self.stack.spin_ns);
        while !self.parker.has_wake() && self.stack.clock.now() < end {
            std::hint::spin_loop();
            self.stack.turn_shard(number);
        }
    }

    /// Somebody else turns the shard: sleeps until woken, or until the seat is free.
    fn wait_standing(
        &mut self,
        number: usize,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let cell = &stack.cells[number];
        loop {
            cell.seat.stand(&self.parker);
            if Seat::take(cell) {
                cell.seat.walk_away(&self.parker);
                return self.wait_sitting(number, fds, deadline);
            }
            let slept = self.sleep_parked(fds, deadline);
            let over =
                self.parker.take_wake() || !matches!(slept, Ok(0)) || stack.clock.now() >= deadline;
            if over {
                cell.seat.walk_away(&self.parker);
                // A poke that came meanwhile was meant for somebody who stays.
                pass_on_poke(cell);
                return match slept {
                    Ok(0) => look(fds),
                    other => other,
                };
            }
        }
    }

    /// Others turn everything: sleeps until woken.
    fn wait_parked(&mut self, fds: &mut [libc::pollfd], deadline: Instant) -> io::Result<usize> {
        loop {
            let slept = self.sleep_parked(fds, deadline);
            if self.parker.take_wake() || self.stack.clock.now() >= deadline {
                return slept.and_then(|n| if n > 0 { Ok(n) } else { look(fds) });
            }
            if !matches!(slept, Ok(0)) {
                return slept;
            }
        }
    }

    fn sleep_parked(&mut self, fds: &mut [libc::pollfd], deadline: Instant) -> io::Result<usize> {
        let how = if fds.is_empty() {
            Sleep::Futex
        } else {
            Sleep::Fd
        };
        let parker = self.parker.clone();
        parker.doorbell.arm(how);
        let now = self.stack.clock.now();
        let slept = if parker.is_signalled() || now >= deadline {
            Ok(0)
        } else {
            self.sleep(&parker.doorbell, how, fds, deadline, now)
        };
        parker.doorbell.disarm();
        slept
    }

    /// Nobody else turns anything: turns links and shards here, and sleeps on the links.
    fn wait_turning(&mut self, fds: &mut [libc::pollfd], deadline: Instant) -> io::Result<usize> {
        let stack = self.stack.clone();
        loop {
            let mut work = stack.turn_links();
            for number in 0..stack.cells.len() {
                stack.turn_shard(number);
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

    fn sleep_on_links(
        &mut self,
        fds: &mut [libc::pollfd],
        until: Instant,
        now: Instant,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let own = fds.len();
        self.fds.clear();
        self.fds.extend_from_slice(fds);
        self.parker.doorbell.arm(Sleep::Fd);
        self.fds.push(readable(self.parker.doorbell.fd()));
        for (number, port) in stack.ports.iter().enumerate() {
            port.doorbell.arm(Sleep::Fd);
            self.fds.push(readable(port.doorbell.fd()));
            let fd = |interface: &mut Interface| interface.link.fd().map(readable);
            self.fds.extend(stack.with_interface(number, fd));
        }
        // After arming once more: what came before it may have rung nobody.
        let work = stack.turn_links();
        let slept = if work || self.parker.is_signalled() {
            Ok(0)
        } else {
            asleep(&stack, until, now, || ppoll(&mut self.fds, until, now))
        };
        self.parker.doorbell.disarm();
        stack.ports.iter().for_each(|port| port.doorbell.disarm());
        slept?;
        fds.copy_from_slice(&self.fds[..own]);
        Ok(fds.iter().filter(|fd| fd.revents != 0).count())
    }

    /// Sleeps on a doorbell and `fds`.
    fn sleep(
        &mut self,
        doorbell: &Doorbell,
        how: Sleep,
        fds: &mut [libc::pollfd],
        until: Instant,
        now: Instant,
    ) -> io::Result<usize> {
        if how == Sleep::Futex {
            let timeout = (until != Instant::FAR).then(|| until.since(now));
            let rung = asleep(&self.stack, until, now, || doorbell.wait(timeout));
            // Neither rung nor at the end of its time (the futex goes by another clock: give or take a 64th): a signal handler ran.
            let slept = self.stack.clock.now().since(now);
            let early = timeout.is_none_or(|t| slept + t / 64 + Duration::from_millis(1) < t);
            return if rung || !early {
                Ok(0)
            } else {
                Err(io::ErrorKind::Interrupted.into())
            };
        }
        self.fds.clear();
        self.fds.extend_from_slice(fds);
        self.fds.push(readable(doorbell.fd()));
        asleep(&self.stack, until, now, || ppoll(&mut self.fds, until, now))?;
        let own = fds.len();
        fds.copy_from_slice(&self.fds[..own]);
        Ok(fds.iter().filter(|fd| fd.revents != 0).count())
    }
}

/// Runs `sleep`, and tells the trace and the stages of it.
pub(crate) fn asleep<R>(
    stack: &Stack,
    until: Instant,
    now: Instant,
    sleep: impl FnOnce() -> R,
) -> R {
    if !trace::is_watched() {
        return sleep();
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    trace::detail(trace::ASLEEP, [micros(until.since(now))]);
    let result = stages::sleeping(sleep);
    let slept = stack.clock.now().since(now);
    trace::detail(trace::AWAKE, [micros(slept)]);
    result
}

/// Whoever got up may have poked us while we were leaving, too.
fn pass_on_poke(cell: &Cell) {
    if cell.seat.state.load(Ordering::SeqCst) == FREE {
        let next = cell.seat.standing.lock().pop();
        if let Some(next) = next {
            next.poke();
        }
    }
}

/// Whether any of `fds` is ready at this moment.
fn look(fds: &mut [libc::pollfd]) -> io::Result<usize> {
    if fds.is_empty() {
        return Ok(0);
    }
    ppoll(fds, Instant::ZERO, Instant::ZERO)
}

/// An entry for poll(2) that waits for input.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// poll(2) until `until`.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], until: Instant, now: Instant) -> io::Result<usize> {
    let timeout = (until != Instant::FAR).then(|| until.since(now));
    crate::sys::ppoll(fds, timeout)
}

/// The attendant of a single shard: turns it when nobody does.
pub(crate) fn attend(stack: &Stack) {
    let (cell, bell) = (&stack.cells[0], &stack.attendant.bell);
    let mut free_ticks = 0;
    while !stack.is_stopping() {
        free_ticks = if cell.seat.is_free() {
            free_ticks + 1
        } else {
            0
        };
        let wanted = free_ticks >= 2 || (free_ticks == 1 && stack.is_attended());
        if wanted
            && cell
                .seat
                .state
                .compare_exchange(FREE, ATTENDED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            sit(stack, cell);
            free_ticks = 0;
        }
        if !stack.is_attended() {
            bell.arm(Sleep::Futex);
            if !stack.is_stopping() && !stack.is_attended() {
                let now = stack.clock.now();
                watch::asleep(now);
                asleep(stack, now + TICK, now, || bell.wait(Some(TICK)));
                watch::turning(stack.clock.now());
            }
            bell.disarm();
        }
    }
}

/// 10 ms: a peer's retransmission timer is 200 ms at least, so that two of these go unnoticed, and a hundred wake-ups a second cost 0.05 % of a core.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// The attendant's turn on a seat: until it is asked for, or the stack ends.
fn sit(stack: &Stack, cell: &Cell) {
    while !stack.is_stopping() && cell.seat.state.load(Ordering::SeqCst) == ATTENDED {
        cell.doorbell.arm(Sleep::Futex);
        stack.turn_shard(0);
        let now = stack.clock.now();
        watch::turning(now);
        let until = cell.next_timer().min(now + TICK * 10);
        if cell.seat.state.load(Ordering::SeqCst) == ATTENDED && until > now {
            watch::asleep(now);
            asleep(stack, until, now, || {
                cell.doorbell.wait(Some(until.since(now)))
            });
            watch::turning(stack.clock.now());
        }
        cell.doorbell.disarm();
    }
    cell.seat.leave();
}
