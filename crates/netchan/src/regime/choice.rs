//! Which regime a stack gets: what was asked for, where that came from, and whether it goes together (F1, F2, F5).

use super::{Dispatch, Layout, Regime};

/// Where a setting comes from that nothing names.
pub const DEFAULT: &str = match option_env!("NETCHAN_DEFAULT_REGIME") {
    Some(_) => "build (NETCHAN_DEFAULT_REGIME)",
    None => "default",
};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// The regime, if one was named.
    pub regime: Option<Regime>,
    /// Everything under the one lock (F1).
    pub giant: bool,
    /// Where protocol work runs.
    pub dispatch: Dispatch,
    /// Number of shards, where the regime leaves it open.
    pub shards: Option<usize>,
    /// Where it came from.
    pub origins: Origins,
}

/// Where settings came from: the default, the build, the program, a file, a variable, a module.
#[derive(Clone, Copy, Debug)]
pub struct Origins {
    /// Of the regime.
    pub regime: &'static str,
    /// Of Giant.
    pub giant: &'static str,
    /// Of the dispatch.
    pub dispatch: &'static str,
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            regime: DEFAULT,
            giant: "default",
            dispatch: "default",
        }
    }
}

impl Choice {
    /// The regime that this comes to: where none was named, Giant alone means the regime of that name.
    pub fn regime(&self) -> Regime {
        match self.regime {
            Some(regime) => regime,
            None if self.giant => Regime::Giant,
            None => Regime::default(),
        }
    }

    /// A module needs Giant (F3): the regime is `giant`, and what does not go with it is forgotten.
    pub fn degrade(&mut self) {
        self.regime = Some(Regime::Giant);
        self.origins.regime = "module";
        if self.layout().is_err() {
            self.dispatch = Dispatch::Direct;
            self.origins.dispatch = "module";
        }
    }

    /// What it comes to.
    ///
    /// # Errors
    /// What does not go together, in words.
    pub fn layout(&self) -> Result<Layout, String> {
        let regime = self.regime();
        let refused = |why| format!("regime '{regime}': {why}");
        let layout = regime.layout(self.shards).ok_or_else(|| {
            let here = Regime::names();
            format!("regime '{regime}' is not in this version: it is one of {here}")
        })?;
        let layout = if self.giant {
            layout.under_giant().map_err(refused)?
        } else {
            layout
        };
        layout.dispatched(self.dispatch).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regime::Handoff;

    fn choice(regime: Option<Regime>, giant: bool, dispatch: Dispatch) -> Result<Layout, String> {
        let choice = Choice {
            regime,
            giant,
            dispatch,
            ..Choice::default()
        };
        choice.layout()
    }

    #[test]
    fn giant_goes_around_what_is_called() {
        let alone = choice(None, true, Dispatch::Direct).unwrap();
        assert_eq!(Some(alone), Regime::Giant.layout(None));
        let around = choice(Some(Regime::Locked), true, Dispatch::Deferred).unwrap();
        assert!(around.giant && around.shards == 8 && around.workers > 0);
        for regime in [Regime::PerCpu, Regime::DriverChannel, Regime::AppChannel] {
            let why = choice(Some(regime), true, Dispatch::Direct).unwrap_err();
            assert!(
                why.contains(regime.name()) && why.contains("giant and locked"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_dispatch_without_sense_is_refused() {
        for regime in [Regime::PerCpu, Regime::DriverChannel, Regime::AppChannel] {
            let why = choice(Some(regime), false, Dispatch::Deferred).unwrap_err();
            assert!(
                why.contains(regime.name()) && why.contains("deferred"),
                "{why}"
            );
        }
        let degraded = |dispatch| {
            let mut choice = Choice {
                dispatch,
                regime: Some(Regime::Locked),
                ..Choice::default()
            };
            choice.degrade();
            choice
        };
        let layout = degraded(Dispatch::Deferred).layout().unwrap();
        assert!(layout.giant && layout.workers == 1, "{layout:?}");
        // Under Giant nothing is left of it.
        let direct = degraded(Dispatch::Hybrid);
        assert_eq!(direct.dispatch, Dispatch::Direct);
        assert!(direct.layout().unwrap().giant);
    }

    #[test]
    fn hybrid_is_for_locks_that_can_be_tried() {
        let locked = choice(Some(Regime::Locked), false, Dispatch::Hybrid).unwrap();
        assert!(locked.backlogs && locked.handoff == Handoff::Call && locked.workers == 0);
        assert!(!locked.without_threads().backlogs);
        for (regime, giant) in [(Regime::Giant, false), (Regime::Locked, true)] {
            let why = choice(Some(regime), giant, Dispatch::Hybrid).unwrap_err();
            assert!(why.contains("'hybrid'") && why.contains("Giant"), "{why}");
        }
        for regime in [Regime::PerCpu, Regime::DriverChannel, Regime::AppChannel] {
            let why = choice(Some(regime), false, Dispatch::Hybrid).unwrap_err();
            assert!(
                why.contains(regime.name()) && why.contains("'hybrid'"),
                "{why}"
            );
        }
    }
}
