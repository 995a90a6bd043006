//! The stack that a job is done on.

use netchan::Regime;
use serde::{Deserialize, Serialize};

use super::settings::{Protocol, Settings};

/// The stack that carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// netchan: a place in [`netchan::Regime::ALL`], and its settings.
    Netchan { regime: usize, settings: Settings },
    /// The kernel's own stack, over loopback.
    Linux,
}

impl Carrier {
    /// netchan in a regime as it comes.
    pub fn of(regime: Regime) -> Self {
        Self::with(regime, Settings::default())
    }

    /// netchan with settings.
    pub fn with(regime: Regime, settings: Settings) -> Self {
        let all = Regime::ALL.into_iter();
        let regime = all.take_while(|&other| other != regime).count();
        Self::Netchan { regime, settings }
    }

    /// Its regime; none of the kernel's.
    pub fn regime(self) -> Option<Regime> {
        match self {
            Self::Netchan { regime, .. } => Regime::ALL.get(regime).copied(),
            Self::Linux => None,
        }
    }

    /// Where its protocol threads are.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Netchan { settings, .. } => settings.protocol,
            Self::Linux => Protocol::WithApplication,
        }
    }

    /// The name of the regime, or `linux`, in row ids.
    pub fn id(self) -> String {
        self.regime()
            .map_or_else(|| "linux".to_owned(), |r| r.name().replace('-', "_"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carrier_of_a_regime_knows_it() {
        for regime in Regime::ALL {
            assert_eq!(Carrier::of(regime).regime(), Some(regime));
        }
        assert_eq!(Carrier::Linux.id(), "linux");
    }
}
