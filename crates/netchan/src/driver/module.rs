//! Modules (F3): code of others that sees packets at named points of the path and says pass, drop or reject. It may change them.
//!
//! ```text
//! link ──► steer ──► arrival ──► steer ──► in ──► shard ──► out ──► check ──► link
//! link ──► steer ──► arrival ──► steer ──► check ──► forward ──► link
//! ```
//!
//! * [`Point::Arrival`]: received on a link, after the checks of `steer`, before it is found whether it is for this host or another. One
//!   that was changed is steered again.
//! * [`Point::In`]: after the checks of `steer`, before the shard or the host's own ICMP. Datagrams that came in fragments are seen once, whole.
//! * [`Point::Out`]: before *check* and the frame header. What leaves in fragments is seen fragment by fragment.
//! * [`Point::Forward`]: what is for other hosts, once it is found that it may go on (a hop shorter already), where the stack forwards.
//!   It passes neither `in` nor `out`. Fragments are seen one by one.
//!
//! ARP, neighbor discovery, IGMP and MLD belong to the link and pass unseen: a rule that drops everything does not take the link down.
//! A packet to one of our own addresses passes `out`, then `in`.
//!
//! A module that wants to change a packet takes it as a [`Draft`] ([`Module::rewrite`]); the modules behind it see what it made of it.
//! It may change addresses, ports and payload, not the length. On the way out, what was changed may leave from an address that is not
//! this host's: *check* trusts a module as it trusts the stack (docs/decisions/0019-modules-that-change.md).
//!
//! A module says whether several threads may call it at once, and the compiler checks it: [`Boxed::any`] wants it `Sync`,
//! [`Boxed::giant`] does not. One that needs Giant and is there at boot puts the whole stack under Giant (degraded mode); one that is
//! loaded later runs under Giant alone. Both say so (`crate::log`).
//!
//! Cost where none is loaded: one compare and one branch for each packet received and each batch sent.

mod draft;
pub mod filter;
pub mod firewall;
pub mod ledger;
pub mod limiter;
pub(crate) mod registry;
#[cfg(test)]
mod tests;
mod view;

use std::{cell::RefCell, fmt};

use proto::time::Instant;

pub use draft::Draft;
pub(crate) use draft::{Place, Side};
pub use view::View;

pub use crate::giant::Concurrency;

/// What only Giant's holder reaches: the modules that need it, by their place. Theirs may be plain cells, so may this.
#[derive(Default)]
pub struct Guarded {
    pub(crate) modules: RefCell<Vec<Option<Box<dyn Module + Send>>>>,
}

/// Giant, with what needs it inside.
pub(crate) type Giant = crate::giant::Giant<Guarded>;

/// A point of the path at which modules see packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Received, checked, and not yet known whether it is for this host.
    Arrival,
    /// Received, checked, on its way to a shard or to the host's own work.
    In,
    /// Sent by a shard or by the host, on its way to the link.
    Out,
    /// On its way through, to another host.
    Forward,
}

impl Point {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::In => "in",
            Self::Out => "out",
            Self::Forward => "forward",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::In, Self::Out, Self::Forward]
            .into_iter()
            .find(|point| point.name() == name)
    }
}

/// What shall become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, to the next module.
    Pass,
    /// It goes nowhere; counted under the module's name. Its sender is told nothing.
    Drop,
    /// The same, and its sender is told. On the way out the sender is one of our sockets, which is told nothing.
    Reject(Rejection),
}

/// What the sender of a rejected packet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A TCP reset; nothing about what is no TCP segment.
    Reset,
    /// Destination unreachable: the network.
    Net,
    /// Destination unreachable: the host.
    Host,
    /// Destination unreachable: the port.
    Port,
    /// Destination unreachable: a filter forbids it.
    Prohibited,
}

/// What a module can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Its rules, with what they have counted.
    Rules,
    /// The flows that it tracks.
    Flows,
}

/// Code that looks at packets.
///
/// It runs on the packet path, under the locks of an interface's half: it should neither block nor allocate, and it must not call the
/// stack that it is loaded in. What it gets has passed the checks of `steer` (`in`), but everything in it is chosen by an untrusted peer.
/// One that panics is not called again: from then on everything that it should have seen is dropped.
pub trait Module {
    /// What it is called: 1 to 32 of `a`–`z`, `0`–`9`, `-` and `_`. No two modules of a stack share a name.
    fn name(&self) -> &str;

    /// Where it wants to look.
    fn points(&self) -> &[Point];

    /// Looks at a packet; `now` is the stack's clock.
    fn packet(&self, point: Point, packet: &View<'_>, now: Instant) -> Verdict;

    /// Looks at a packet that it may change: what the path calls. One that changes none has [`Self::packet`].
    fn rewrite(&self, point: Point, packet: &mut Draft<'_>, now: Instant) -> Verdict {
        self.packet(point, &packet.view(), now)
    }

    /// Whether IPv4 datagrams in fragments that pass through are to be put together before it sees them.
    fn wants_whole(&self) -> bool {
        false
    }

    /// Takes new settings while packets flow: from one packet to the next, or, with an error, not at all. What was done, in a sentence.
    ///
    /// # Errors
    /// Why not, in a sentence; the old ones stay in force.
    fn configure(&self, settings: &str) -> Result<String, String> {
        let _ = settings;
        Err(format!(
            "module '{}' takes no new settings while it is loaded: unload it, and load it again",
            self.name()
        ))
    }

    /// What it lists, for `netchan show rules` and `netchan show flows`: flat objects, a bounded number.
    fn rows(&self, what: Rows, now: Instant) -> Vec<serde_json::Value> {
        let _ = (what, now);
        Vec::new()
    }

    /// A line about what it is set to and has found, for `netchan show modules`.
    fn describe(&self) -> String {
        String::new()
    }
}

/// A module with its concurrency.
pub enum Boxed {
    /// Any number of threads may call it at once.
    Any(Box<dyn Module + Send + Sync>),
    /// Only a thread that holds Giant may.
    Giant(Box<dyn Module + Send>),
}

impl Boxed {
    /// `concurrency = any`.
    pub fn any(module: impl Module + Send + Sync + 'static) -> Self {
        Self::Any(Box::new(module))
    }

    /// `concurrency = giant`: the module may keep plain cells, since it is reached through Giant alone.
    pub fn giant(module: impl Module + Send + 'static) -> Self {
        Self::Giant(Box::new(module))
    }

    /// The same module, to be called under Giant only: to compare, or while in doubt.
    #[must_use]
    pub fn under_giant(self) -> Self {
        match self {
            Self::Any(module) => Self::Giant(module),
            giant @ Self::Giant(_) => giant,
        }
    }

    /// What it declares.
    pub const fn concurrency(&self) -> Concurrency {
        match self {
            Self::Any(_) => Concurrency::Any,
            Self::Giant(_) => Concurrency::Giant,
        }
    }

    /// The module, to be asked for its name and points.
    pub fn module(&self) -> &dyn Module {
        match self {
            Self::Any(module) => &**module,
            Self::Giant(module) => &**module,
        }
    }
}

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.module().name(), self.concurrency())
    }
}

/// Whether a module may be called so: names stand in counters' names and in messages.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    (1..=32).contains(&name.len()) && name.bytes().all(allowed)
}
