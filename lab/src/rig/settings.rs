//! What of a regime can be set, and every setting that there is: each regime is searched alike.

use std::time::Duration;

use netchan::{Builder, Dispatch, Net, Regime, regime::Holder};
use serde::{Deserialize, Serialize};

/// Where the stack's protocol threads are, if it has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Protocol {
    /// On the application's core.
    #[default]
    WithApplication,
    /// On the link's.
    WithLink,
    /// The first on the link's core, the second on the application's.
    Each,
}

/// Settings of a regime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// 0: the regime's own choice.
    pub shards: usize,
    /// A place in [`Dispatch::ALL`].
    pub dispatch: usize,
    /// How long threads look before they sleep, µs.
    pub spin_us: u64,
    pub protocol: Protocol,
}

impl Settings {
    fn dispatch(self) -> Dispatch {
        Dispatch::ALL[self.dispatch.min(Dispatch::ALL.len() - 1)]
    }

    /// A builder told of them.
    pub fn apply(self, regime: Regime, builder: Builder) -> Builder {
        let builder = builder
            .regime(regime)
            .dispatch(self.dispatch())
            .spin(Duration::from_micros(self.spin_us));
        match self.shards {
            0 => builder,
            shards => builder.shards(shards),
        }
    }

    /// For people.
    pub fn text(self) -> String {
        let mut said = self.dispatch().name().to_owned();
        if self.shards > 0 {
            said += &format!(", shards {}", self.shards);
        }
        if self.spin_us > 0 {
            said += &format!(", spin {} us", self.spin_us);
        }
        match self.protocol {
            Protocol::WithLink => said += ", protocol on the link's core",
            Protocol::Each => said += ", a protocol thread on each core",
            Protocol::WithApplication => {}
        }
        said
    }
}

/// Every combination of one shard or the regime's own number, each dispatch, with and without spinning, and each place for protocol threads that comes
/// to something different. What the build refuses is not in it.
pub(crate) fn candidates(regime: Regime) -> Vec<Settings> {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    for shards in [1, 0] {
        for dispatch in 0..Dispatch::ALL.len() {
            let some = Settings {
                shards,
                dispatch,
                ..Settings::default()
            };
            let layout = regime.layout(Some(shards).filter(|&n| n > 0));
            let layout = layout.and_then(|l| l.dispatched(some.dispatch()).ok());
            let Some(layout) = layout else { continue };
            if seen.contains(&layout) || some.apply(regime, Net::builder()).check().is_err() {
                continue;
            }
            seen.push(layout);
            let places: &[Protocol] = match layout.workers {
                0 => &[Protocol::WithApplication],
                2.. if layout.holder == Holder::Core => {
                    &[Protocol::Each, Protocol::WithApplication]
                }
                _ => &[Protocol::WithApplication, Protocol::WithLink],
            };
            for &protocol in places {
                all.extend([0, 50].map(|spin_us| Settings {
                    spin_us,
                    protocol,
                    ..some
                }));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_all_different_and_accepted() {
        for regime in Regime::ALL {
            let all = candidates(regime);
            for (i, one) in all.iter().enumerate() {
                assert!(!all[..i].contains(one), "{regime}: {one:?}");
                one.apply(regime, Net::builder()).check().unwrap();
            }
            assert!(all.len() >= 2, "{regime}");
        }
        let dispatches = |regime| {
            let mut all: Vec<_> = candidates(regime).iter().map(|s| s.dispatch).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(dispatches(Regime::Giant), [0, 1], "hybrid is not for Giant");
        assert_eq!(dispatches(Regime::Locked), [0, 1, 2]);
        assert_eq!(dispatches(Regime::AppChannel), [0]);
    }
}
