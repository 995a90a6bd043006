//! Regimes: how many shards there are, how one comes to hold one, how packets are handed over. Nothing else in the program depends on which.
//!
//! A regime is a row of this table, and the mechanism behind it is the same for all: [`cell`] holds a shard and says who may touch it,
//! `path` hands packets over by a call or by a channel.

pub mod cell;

use std::{fmt, str::FromStr};

/// How packet processing is placed on cores and shared state is guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    #[default]
    AppChannel,
}

/// Where protocol work for a received packet runs (F5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// In the thread that received it.
    #[default]
    Direct,
    /// In a protocol thread, by a queue.
    Deferred,
    /// Direct while nobody is in the way, else queued.
    Hybrid,
}

/// How a packet passes between a link and a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// By a call: whoever has the packet takes the other side's lock and does its work.
    Call,
    /// By a channel: whoever holds the other side finds it there.
    Channel,
}

/// What a regime comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of shards.
    pub shards: usize,
    /// Everything is done under one lock (F1).
    pub giant: bool,
    /// Between links and shards.
    pub handoff: Handoff,
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

    /// What it comes to, with `shards` as the setting for regimes that leave it open. `None`: not in this version.
    pub fn layout(self, shards: Option<usize>) -> Option<Layout> {
        match self {
            Self::Giant => Some(Layout {
                shards: 1,
                giant: true,
                handoff: Handoff::Call,
            }),
            Self::Locked => Some(Layout {
                shards: shards.unwrap_or(8).max(1),
                giant: false,
                handoff: Handoff::Call,
            }),
            Self::AppChannel => Some(Layout {
                shards: shards.unwrap_or(1).max(1),
                giant: false,
                handoff: Handoff::Channel,
            }),
            Self::PerCpu | Self::DriverChannel | Self::SocketChannel => None,
        }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Regime {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|r| r.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|r| r.name()).collect();
                format!("no regime '{text}': it is one of {}", names.join(", "))
            })
    }
}
