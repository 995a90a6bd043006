//! TCP's settings of a running stack: what they are now, and how they are changed (see [`Tcp::configure`](crate::net::Tcp::configure)).
//!
//! Each shard opens connections by a copy of its own, made ready, so that no connection costs a lock; whoever changes them passes through all
//! shards. The copy here is for socket calls that ask what a default is.

use std::io;

use percore::lock::{Mutex, mutex};
use proto::tcp::Config;

use crate::{errno::invalid, locks};

/// What TCP connections start with now.
pub struct TcpNow {
    /// One change at a time: shards would disagree for good after two that overtake each other.
    changing: Mutex<()>,
    config: Mutex<Config>,
}

impl std::fmt::Debug for TcpNow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl TcpNow {
    /// As they are at the start.
    pub fn new(config: Config) -> Self {
        Self {
            changing: mutex(&locks::CHANGING_TCP, ()),
            config: mutex(&locks::TCP_NOW, config),
        }
    }

    /// What they are now.
    pub fn get(&self) -> Config {
        *self.config.lock()
    }

    /// Changes them; `apply` is given the new ones while nobody else changes any.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: one of those that belong to memory reserved at the start, or to an interface.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Config),
        apply: impl FnOnce(&Config),
    ) -> io::Result<()> {
        let _changing = self.changing.lock();
        let before = self.get();
        let mut config = before;
        change(&mut config);
        if let Some(name) = changed_for_good(&before, &config) {
            return Err(invalid(format!(
                "tcp.{name} cannot be changed while the stack runs"
            )));
        }
        *self.config.lock() = config;
        apply(&config);
        Ok(())
    }
}

/// The first setting that differs although it stays as it was at the start.
fn changed_for_good(before: &Config, after: &Config) -> Option<&'static str> {
    let of = |config: &Config| {
        [
            ("mss", u32::from(config.mss)),
            ("default_mss", config.default_mss.into()),
            ("receive_buffer", config.receive_buffer),
            ("receive_buffer_max", config.receive_buffer_max),
            ("max_segments", config.max_segments),
        ]
    };
    let pairs = of(before).into_iter().zip(of(after));
    pairs
        .filter(|(before, after)| before != after)
        .map(|(before, _)| before.0)
        .next()
}
