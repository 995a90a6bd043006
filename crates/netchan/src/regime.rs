//! Regimes: how many shards there are, how one comes to hold one, how packets are handed over. Nothing else in the program depends on which.
//!
//! A regime is a row of this table, and the mechanism behind it is the same for all: `stack::cell` holds a shard and says which thread may touch it,
//! `stack::path` hands packets over by a call or by a channel.

pub(crate) mod choice;

use std::{fmt, str::FromStr};

use crate::limits::{self, SHARDS_MAX};

/// How packet processing is placed on cores and shared state is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// One lock around everything.
    Giant,
    /// Many shards by flow hash, each under its lock.
    Locked,
    /// One shard per core, held by its core only.
    PerCpu,
    /// One shard, held by a network thread fed by a channel.
    DriverChannel,
    /// One shard per socket, held by the thread in the socket call.
    SocketChannel,
    /// One shard per application, fed by a channel.
    AppChannel,
}

/// The default, which a build can turn round: `NETCHAN_DEFAULT_REGIME=locked cargo build` (F2). What is no regime does not compile.
const DEFAULT: Regime = match option_env!("NETCHAN_DEFAULT_REGIME") {
    Some(name) => match Regime::named(name) {
        Some(regime) => regime,
        None => panic!("NETCHAN_DEFAULT_REGIME names no regime"),
    },
    None => Regime::AppChannel,
};

impl Default for Regime {
    fn default() -> Self {
        DEFAULT
    }
}

/// Where protocol work for a received packet runs (F5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// In the thread that received it.
    #[default]
    Direct,
    /// In a protocol thread, by a queue.
    Deferred,
    /// In the thread that received it while the shard is free, else in the thread that holds it, by the shard's backlog.
    Hybrid,
}

/// How a packet passes between a link and a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handoff {
    /// By a call: the thread that has the packet takes the other side's lock and does its work.
    Call,
    /// By a channel: the other side's holder finds it there.
    Channel,
}

/// Which threads hold a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Any thread that takes its lock: a link's thread that has packets for it, an application's thread in a socket call.
    Anyone,
    /// The application's threads, in turns; while they are away, the background poller.
    Application,
    /// A protocol thread takes what is in its channels and serves its timers; socket calls take its lock for their own work.
    Network,
    /// Its core's thread alone: socket calls are remote calls, which it runs.
    Core,
}

/// What a regime comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of shards.
    pub shards: usize,
    /// Everything is done under one lock (F1).
    pub giant: bool,
    /// Between links and shards.
    pub(crate) handoff: Handoff,
    /// Which threads hold a shard.
    pub holder: Holder,
    /// Threads that turn shards.
    pub workers: usize,
    /// Each socket gets a shard of its own, while there are free ones.
    pub(crate) own_shards: bool,
    /// A link that finds a shard held leaves its packets in the shard's backlog, to the holder (F5, R3).
    pub(crate) backlogs: bool,
}

impl Layout {
    /// What it comes to where no thread is the stack's own: each caller is the link's side and the shard's side at once, and a channel
    /// between a thread and itself would be nothing but cost.
    pub(crate) fn without_threads(self) -> Self {
        Self {
            handoff: Handoff::Call,
            holder: Holder::Anyone,
            workers: 0,
            // A shard for each socket would only be more shards to look through.
            shards: if self.own_shards {
                self.shards.min(8)
            } else {
                self.shards
            },
            own_shards: false,
            backlogs: false,
            ..self
        }
    }

    /// The same with Giant around everything (F1).
    ///
    /// # Errors
    /// It does not go around threads that wait for each other's packets, in words.
    pub fn under_giant(self) -> Result<Self, String> {
        match self.handoff {
            Handoff::Call => Ok(Self { giant: true, ..self }),
            Handoff::Channel => Err(
                "Giant goes around the regimes that hand packets over by calls, giant and locked: the others have no lock to replace"
                    .into(),
            ),
        }
    }

    /// The same with protocol work where `dispatch` puts it (F5).
    ///
    /// # Errors
    /// What does not go together, in words.
    pub fn dispatched(self, dispatch: Dispatch) -> Result<Self, String> {
        match dispatch {
            Dispatch::Direct => Ok(self),
            Dispatch::Hybrid if self.giant => Err(
                "dispatch 'hybrid' does not go under Giant: a thread that has Giant finds every shard free, there is nothing to try"
                    .into(),
            ),
            Dispatch::Hybrid if self.handoff == Handoff::Call => Ok(Self {
                backlogs: true,
                ..self
            }),
            Dispatch::Deferred if self.handoff == Handoff::Call => Ok(Self {
                handoff: Handoff::Channel,
                holder: Holder::Network,
                workers: self.shards.min(cores()),
                ..self
            }),
            Dispatch::Deferred | Dispatch::Hybrid => Err(format!(
                "dispatch '{}' is for the regimes that hand packets over by calls, giant and locked: the others queue every packet",
                dispatch.name()
            )),
        }
    }

    /// Bytes of text that the receive buffers of one shard hold: no window need be wider.
    pub(crate) fn receive_share(self) -> u32 {
        let slab = if self.own_shards {
            limits::RECEIVE_SLAB_SOCKETS
        } else {
            limits::RECEIVE_SLAB
        };
        let share = slab * limits::QUEUED_EIGHTHS / 8 / self.shards.max(1) * 1448;
        u32::try_from(share)
            .unwrap_or(u32::MAX)
            .max(limits::RECEIVE_BUFFER)
    }

    /// Whether shards tell the classifier of their flows.
    pub(crate) const fn leases(&self) -> bool {
        matches!(self.holder, Holder::Application) && self.shards > 1
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Dispatch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Deferred, Self::Hybrid];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Deferred => "deferred",
            Self::Hybrid => "hybrid",
        }
    }
}

impl FromStr for Dispatch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|d| d.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no dispatch '{text}': it is one of {names}")
        })
    }
}

impl Regime {
    /// All of them, as the field tried them.
    pub const ALL: [Self; 6] = [
        Self::Giant,
        Self::Locked,
        Self::PerCpu,
        Self::DriverChannel,
        Self::SocketChannel,
        Self::AppChannel,
    ];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Giant => "giant",
            Self::Locked => "locked",
            Self::PerCpu => "percpu",
            Self::DriverChannel => "driver-channel",
            Self::SocketChannel => "socket-channel",
            Self::AppChannel => "app-channel",
        }
    }

    /// The one of this name. For constants; else there is `parse`.
    const fn named(name: &str) -> Option<Self> {
        let mut at = 0;
        while at < Self::ALL.len() {
            if is_same(Self::ALL[at].name().as_bytes(), name.as_bytes()) {
                return Some(Self::ALL[at]);
            }
            at += 1;
        }
        None
    }

    /// Those of this version.
    pub fn here() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|regime| regime.layout(None).is_some())
    }

    /// Their names, separated by commas.
    pub fn names() -> String {
        Self::here().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// What it comes to, with `shards` as the setting for regimes that leave it open. `None`: not in this version.
    pub fn layout(self, shards: Option<usize>) -> Option<Layout> {
        let called = |shards, giant| Layout {
            shards,
            giant,
            handoff: Handoff::Call,
            holder: Holder::Anyone,
            workers: 0,
            own_shards: false,
            backlogs: false,
        };
        let fed = |shards, holder, workers| Layout {
            shards,
            giant: false,
            handoff: Handoff::Channel,
            holder,
            workers,
            own_shards: false,
            backlogs: false,
        };
        match self {
            Self::Giant => Some(called(1, true)),
            Self::Locked => Some(called(shards.unwrap_or(8).max(1), false)),
            Self::PerCpu => {
                let shards = shards.unwrap_or_else(|| cores().min(SHARDS_MAX)).max(1);
                Some(fed(shards, Holder::Core, shards))
            }
            Self::DriverChannel => Some(fed(1, Holder::Network, 1)),
            Self::SocketChannel => {
                let shards = shards.unwrap_or(SHARDS_MAX).max(1);
                Some(Layout {
                    own_shards: shards > 1,
                    ..fed(shards, Holder::Application, 0)
                })
            }
            Self::AppChannel => Some(fed(shards.unwrap_or(1).max(1), Holder::Application, 0)),
        }
    }
}

/// Whether two texts are the same; a constant function, which `==` is not.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Regime {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
            .ok_or_else(|| format!("no regime '{text}': it is one of {}", Self::names()))
    }
}
