//! The modules of one stack, and the list that each half of an interface keeps of those that look there.
//!
//! The list is read for every packet and changes when a module is loaded or unloaded. Each half owns its copy and reads it under the lock
//! that it holds anyway: no atomic, no shared line. Loading a module passes through all halves; once that is done, the module sees every packet.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{
            AtomicU8, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use percore::{
    counter::PerCore,
    lock::{Mutex, mutex},
};
use proto::{time::Instant, wire::ipv4::Protocol};

use super::{Boxed, Draft, Module, Place, Point, Rejection, Rows, Verdict, is_name};
use crate::giant::Concurrency;
use crate::{
    channel::{Watched, Watcher},
    driver::{
        module::{Giant, Guarded},
        steer,
    },
    errno::invalid,
    giant::Held,
    locks,
    packet::{Flag, Packet},
    trace::{self, trigger},
};

/// Modules of one stack: more than a list of rules that can be audited.
pub const MODULES_MAX: usize = 64;

const SEEN: usize = 0;
const DROPPED: usize = 1;

/// A loaded module.
pub struct Entry {
    /// From 1; never given twice.
    pub id: u64,
    pub name: String,
    pub points: Vec<Point>,
    /// It was there when the stack began.
    pub at_boot: bool,
    wants_whole: bool,
    counts: PerCore<2>,
    /// `GOOD`, `FAILED` or `WITHDRAWN`.
    state: AtomicU8,
    body: Body,
    /// No packet goes past it.
    _watcher: Watcher,
}

const GOOD: u8 = 0;
/// It panicked: whatever it should have seen is dropped.
const FAILED: u8 = 1;
/// It is not to be asked any more; a half that could not be reached still has it on its list.
const WITHDRAWN: u8 = 2;

enum Body {
    Any(Box<dyn Module + Send + Sync>),
    /// Its place inside Giant.
    Giant(usize, Arc<Giant>),
}

impl Entry {
    pub const fn concurrency(&self) -> Concurrency {
        match self.body {
            Body::Any(_) => Concurrency::Any,
            Body::Giant(..) => Concurrency::Giant,
        }
    }

    pub fn seen(&self) -> u64 {
        self.counts.read(SEEN)
    }

    pub fn dropped(&self) -> u64 {
        self.counts.read(DROPPED)
    }

    pub fn has_failed(&self) -> bool {
        self.state.load(Relaxed) == FAILED
    }

    /// Shows it nothing from now on, even where it is still on a list.
    pub fn withdraw(&self) {
        self.state.store(WITHDRAWN, Relaxed);
    }

    /// Its line about itself; `None`: it is under Giant, and that is held.
    pub fn describe(&self) -> Option<String> {
        self.with(|module| module.describe())
    }

    /// What it lists, likewise.
    pub fn rows(&self, what: Rows, now: Instant) -> Option<Vec<serde_json::Value>> {
        self.with(|module| module.rows(what, now))
    }

    /// Gives it new settings, likewise.
    pub fn configure(&self, settings: &str) -> Option<Result<String, String>> {
        self.with(|module| module.configure(settings))
    }

    /// `None`: it is under Giant, and that is held.
    fn with<R>(&self, ask: impl FnOnce(&dyn Module) -> R) -> Option<R> {
        match &self.body {
            Body::Any(module) => Some(ask(&**module)),
            Body::Giant(place, giant) => {
                let held = giant.try_enter()?;
                let modules = held.modules.try_borrow().ok()?;
                Some(ask(modules.get(*place)?.as_deref()?))
            }
        }
    }

    fn ask(&self, point: Point, packet: &mut Draft<'_>, now: Instant) -> Verdict {
        // Relaxed: the flag alone. Late by a packet, it is late by a panic.
        match self.state.load(Relaxed) {
            GOOD => {}
            WITHDRAWN => return Verdict::Pass,
            _ => return Verdict::Drop,
        }
        let call = || match &self.body {
            Body::Any(module) => module.rewrite(point, packet, now),
            Body::Giant(place, giant) => {
                let held = giant.enter();
                let modules = held.modules.borrow();
                // Unloaded while the packet was on its way to it: then it has nothing to say.
                let module = modules.get(*place).and_then(Option::as_deref);
                module.map_or(Verdict::Pass, |module| module.rewrite(point, packet, now))
            }
        };
        // Its state may be halfway between two others now: it is not asked again.
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            // Relaxed: withdrawn meanwhile, it stays so.
            let _ = (self.state).compare_exchange(GOOD, FAILED, Relaxed, Relaxed);
            let name = &self.name;
            tracing::error!(
                target: "netchan::module",
                module = %name,
                "module '{name}' panicked: what it should see is dropped from now on"
            );
            Verdict::Drop
        })
    }
}

/// Which module a half is in just now, to be read from outside when it does not come out again.
#[derive(Debug, Default)]
pub struct Inside {
    /// Its id; 0: in none.
    id: AtomicU64,
    /// On the stack's clock.
    since: AtomicU64,
}

impl Inside {
    fn enter(&self, id: u64, now: Instant) {
        // Release, pairs with `read`: a thread that sees the id sees its time.
        self.since.store(now.0, Relaxed);
        self.id.store(id, Release);
    }

    fn leave(&self) {
        self.id.store(0, Relaxed);
    }

    fn read(&self) -> Option<(u64, Instant)> {
        let id = self.id.load(Acquire); // pairs with Release in `enter`
        (id != 0).then(|| (id, Instant(self.since.load(Relaxed))))
    }
}

/// What the modules of a chain say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on; `changed`: as another than it came.
    Pass {
        /// Whether a module has changed it.
        changed: bool,
    },
    /// It goes nowhere, as the module with this number says.
    Drop(u64),
    /// Likewise, and its sender is told.
    Reject(u64, Rejection),
}

/// The hook chain of one half of an interface at one point of the path: its modules, in order, and what it needs to call them.
pub struct HookChain {
    entries: Vec<Arc<Entry>>,
    point: Point,
    /// Its own slot among each module's counts.
    slot: usize,
    inside: Arc<Inside>,
}

impl HookChain {
    /// No modules.
    pub fn empty(point: Point) -> Self {
        Self {
            entries: Vec::new(),
            point,
            slot: 0,
            inside: Arc::default(),
        }
    }

    /// Whether any module looks here: the one branch that modules cost where there are none.
    #[inline(always)]
    pub fn has_hooks(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Shows a received packet; false: it shall be dropped. What `steer` refused, ARP, neighbor discovery, IGMP, MLD and fragments pass.
    #[inline(never)]
    pub fn admit(
        &self,
        verdict: steer::Verdict,
        packet: &mut Packet,
        place: Place<'_>,
        now: Instant,
    ) -> Answer {
        use steer::{HostWork, Verdict};
        match verdict {
            // Those that are on their way to another host are seen on arrival, and where they are passed on.
            Verdict::Forward if self.point == Point::Arrival => self.pass(packet, place, now),
            Verdict::Drop(_)
            | Verdict::Forward
            | Verdict::Frame(_)
            | Verdict::LeasedFrame(_)
            | Verdict::Host(HostWork::Arp | HostWork::Fragment | HostWork::Rejected(_)) => {
                Answer::Pass { changed: false }
            }
            Verdict::Shard(_)
            | Verdict::Flow(_)
            | Verdict::Packet(_)
            | Verdict::Lease(_)
            | Verdict::Many
            | Verdict::Host(_) => self.pass(packet, place, now),
        }
    }

    /// Whether a module wants IPv4 datagrams whole.
    pub fn wants_whole(&self) -> bool {
        self.entries.iter().any(|entry| entry.wants_whole)
    }

    /// Shows a packet.
    #[inline(never)]
    pub fn pass(&self, packet: &mut Packet, place: Place<'_>, now: Instant) -> Answer {
        let (mut changed, mark) = (false, packet.meta.flow);
        let Some(mut draft) = Draft::new(packet, place) else {
            // No IP packet: *check* lets none pass, and steer has let none.
            return Answer::Pass { changed };
        };
        let view = draft.view();
        let is_of_socket = matches!(view.protocol(), Protocol::TCP | Protocol::UDP);
        // What leaves its link is none, whatever it says (RFC 4861 §6.1: such have come over a router).
        let links_own = view.is_neighbor_discovery() || view.is_membership();
        if self.point != Point::Forward && links_own {
            return Answer::Pass { changed };
        }
        if self.point == Point::Out && is_of_socket {
            draft.mark(mark);
        }
        for entry in &self.entries {
            self.inside.enter(entry.id, now);
            let verdict = entry.ask(self.point, &mut draft, now);
            self.inside.leave();
            entry.counts.add(self.slot, SEEN, 1);
            let is_whole = !draft.is_changed() || {
                changed = true;
                draft.reread()
            };
            if verdict != Verdict::Pass || !is_whole {
                entry.counts.add(self.slot, DROPPED, 1);
                trace::note(trace::MODULE_DROP, [entry.id, self.slot as u64]);
                if trigger::waits_for_drops() {
                    trigger::dropped_by_module(entry.id);
                }
                return match verdict {
                    Verdict::Reject(what) if is_whole => Answer::Reject(entry.id, what),
                    _ => Answer::Drop(entry.id),
                };
            }
        }
        if changed && self.point == Point::Out {
            packet.meta.translated = Flag::YES;
        }
        Answer::Pass { changed }
    }

    /// Adds a module that wants to look here.
    pub fn add(&mut self, entry: &Arc<Entry>) {
        if entry.points.contains(&self.point) {
            self.entries.push(entry.clone());
        }
    }

    /// Takes a module away.
    pub fn remove(&mut self, entry: &Arc<Entry>) {
        self.entries.retain(|other| !Arc::ptr_eq(other, entry));
    }
}

/// All modules of a stack.
pub struct Registry {
    pub giant: Arc<Giant>,
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Where each half is, for each interface: receiving, transmitting, and receiving with what is passed on.
    insides: Vec<[Arc<Inside>; 4]>,
    next_id: AtomicU64,
    watched: Arc<Watched>,
    /// One at a time loads or unloads.
    pub changing: Mutex<()>,
}

impl Registry {
    /// No modules, for a stack with so many interfaces.
    pub fn new(interfaces: usize, giant: Arc<Giant>, watched: Arc<Watched>) -> Self {
        Self {
            giant,
            watched,
            entries: mutex(&locks::MODULES, Vec::new()),
            insides: (0..interfaces).map(|_| Default::default()).collect(),
            next_id: AtomicU64::new(1),
            changing: mutex(&locks::CHANGING, ()),
        }
    }

    /// Takes a module in; it is shown no packets yet. One that needs Giant is put into what `enter` gives.
    ///
    /// # Errors
    /// `InvalidInput`: no name, a name that there is already, or too many; `WouldBlock`: called from within a module; and `enter`'s.
    pub fn add<'a>(
        &'a self,
        module: Boxed,
        at_boot: bool,
        enter: impl FnOnce() -> io::Result<Held<'a, Guarded>>,
    ) -> io::Result<Arc<Entry>> {
        let name = module.module().name().to_owned();
        if !is_name(&name) {
            return Err(invalid(format!(
                "module '{}': a name is 1 to 32 of a-z, 0-9, - and _",
                name.escape_debug()
            )));
        }
        // One at a time comes here (`changing`), so that the list need not be held while we wait for Giant.
        let entries = self.entries();
        if entries.iter().any(|other| other.name == name) {
            return Err(invalid(format!("there is a module '{name}' already")));
        }
        if entries.len() >= MODULES_MAX {
            return Err(invalid(format!("a stack takes {MODULES_MAX} modules")));
        }
        let points = module.module().points().to_vec();
        let wants_whole = module.module().wants_whole();
        let body = match module {
            Boxed::Any(module) => Body::Any(module),
            Boxed::Giant(module) => {
                Body::Giant(put_under_giant(&enter()?, module)?, self.giant.clone())
            }
        };
        let entry = Arc::new(Entry {
            // Relaxed: only that no two are equal.
            id: self.next_id.fetch_add(1, Relaxed),
            name,
            points,
            at_boot,
            wants_whole,
            counts: PerCore::new(2 * self.insides.len()),
            state: AtomicU8::new(GOOD),
            body,
            _watcher: self.watched.watch(),
        });
        self.entries.lock().push(entry.clone());
        Ok(entry)
    }

    /// Gives a module up; it is shown no packets any more. One that is under Giant, which `enter` cannot give, stays in its memory.
    pub fn remove<'a>(
        &'a self,
        entry: &Arc<Entry>,
        enter: impl FnOnce() -> Option<Held<'a, Guarded>>,
    ) {
        self.entries
            .lock()
            .retain(|other| !Arc::ptr_eq(other, entry));
        if let Body::Giant(place, _) = &entry.body
            && let Some(held) = enter()
        {
            let module = held
                .modules
                .try_borrow_mut()
                .ok()
                .and_then(|mut all| all.get_mut(*place)?.take());
            drop(module);
        }
    }

    /// The modules, in the order in which they are asked.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.lock().clone()
    }

    /// The lists of an interface: of what arrives, of what it receives, of what it passes on, of what it sends.
    pub fn lists(&self, interface: usize) -> [HookChain; 4] {
        [Point::Arrival, Point::In, Point::Forward, Point::Out]
            .map(|point| self.chain(interface, point))
    }

    /// The list of an interface's half, with all modules that there are.
    fn chain(&self, interface: usize, point: Point) -> HookChain {
        // The receiving half has three lists, and one slot among the counts.
        let (inside, half) = match point {
            Point::In => (0, 0),
            Point::Out => (1, 1),
            Point::Forward => (2, 0),
            Point::Arrival => (3, 0),
        };
        let mut chain = HookChain {
            entries: Vec::with_capacity(MODULES_MAX),
            point,
            slot: 2 * interface + half,
            inside: self.insides[interface][inside].clone(),
        };
        for entry in self.entries() {
            chain.add(&entry);
        }
        chain
    }

    /// The module that a half of this interface is in just now, the point and since when; of the two halves, the receiving one.
    pub fn inside(&self, interface: usize) -> Option<(String, Point, Instant)> {
        let halves = self.insides.get(interface)?.iter().zip([
            Point::In,
            Point::Out,
            Point::Forward,
            Point::Arrival,
        ]);
        let (id, point, since) = halves
            .filter_map(|(half, point)| half.read().map(|(id, since)| (id, point, since)))
            .next()?;
        let name = self
            .entries()
            .into_iter()
            .find(|e| e.id == id)?
            .name
            .clone();
        Some((name, point, since))
    }
}

fn put_under_giant(held: &Held<'_, Guarded>, module: Box<dyn Module + Send>) -> io::Result<usize> {
    // Borrowed already: we are inside a module's call.
    let mut modules = held
        .modules
        .try_borrow_mut()
        .map_err(|_| io::ErrorKind::WouldBlock)?;
    let place = modules.iter().position(Option::is_none);
    let place = place.unwrap_or_else(|| {
        modules.push(None);
        modules.len() - 1
    });
    modules[place] = Some(module);
    Ok(place)
}
