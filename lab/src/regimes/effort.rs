//! How much work a run of `regimes` is, and at which rates.

use netchan::link::BURST;

use crate::{
    experiment::Options,
    rig::{Pace, Work},
};

/// A rate, and on how many cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// In row ids; nothing for as fast as the receiver lets it.
    pub suffix: &'static str,
    pub pace: Pace,
    /// All roles on one core.
    pub one_cpu: bool,
    /// Whether system calls are counted.
    pub counts_calls: bool,
}

const fn scenario(suffix: &'static str, per_second: usize, burst: usize) -> Scenario {
    Scenario {
        suffix,
        pace: Pace { per_second, burst },
        one_cpu: false,
        counts_calls: false,
    }
}

/// As fast as the receiver lets it.
pub(super) const PLAIN: Scenario = Scenario {
    counts_calls: true,
    ..scenario("", 0, 0)
};

/// The rate at which regimes are compared: 50,000 packets a second, one at a time.
pub(super) const STEADY: Scenario = Scenario {
    counts_calls: true,
    ..scenario("_50k", 50_000, 1)
};

/// The document's one-CPU row.
pub(super) const ONE_CPU: Scenario = Scenario {
    one_cpu: true,
    ..scenario("_50k_one_cpu", 50_000, 1)
};

/// How much work, and when to stop.
pub(super) struct Effort {
    pub scenarios: Vec<Scenario>,
    pub rounds: usize,
    pub rounds_of_looks: usize,
    pub rounds_of_search: usize,
    /// Seconds of a paced stream.
    seconds: f64,
    /// Packets of one as fast as may be.
    packets: usize,
    /// Clients, and the transactions of each: the document's 11, then more.
    pub services: Vec<(usize, usize)>,
    /// Whether each regime's settings are searched for one CPU and for services too; else those of the steady rate, and for services none.
    pub searches_all: bool,
    /// Whether the place of protocol threads is searched, too.
    pub searches_places: bool,
    /// The players whose system calls are counted.
    pub calls: Vec<&'static str>,
    /// No round but the first two goes on after so many seconds.
    pub limit: f64,
}

impl Effort {
    pub fn new(options: &Options) -> Self {
        if options.quick {
            return Self {
                scenarios: vec![PLAIN, STEADY, ONE_CPU],
                rounds: 2,
                rounds_of_looks: 2,
                rounds_of_search: 1,
                seconds: 0.06,
                packets: 12_000,
                services: vec![(11, 60)],
                searches_all: false,
                searches_places: false,
                calls: vec!["app_channel"],
                limit: 4.0,
            };
        }
        Self {
            scenarios: vec![
                PLAIN,
                STEADY,
                scenario("_50k_burst_8", 50_000, 8),
                scenario("_50k_burst_32", 50_000, BURST),
                scenario("_100k", 100_000, 1),
                scenario("_100k_burst_8", 100_000, 8),
                scenario("_100k_burst_32", 100_000, BURST),
                ONE_CPU,
            ],
            // Six is the least of which a median has an interval.
            rounds: 7,
            rounds_of_looks: 3,
            rounds_of_search: 2,
            seconds: 0.25,
            packets: 180_000,
            services: vec![(11, 1000), (64, 250)],
            searches_all: true,
            searches_places: true,
            calls: vec![
                "giant",
                "locked",
                "percpu",
                "driver_channel",
                "socket_channel",
                "app_channel",
                "per_packet",
                "batched",
                "linux",
            ],
            limit: 240.0,
        }
    }

    /// The smallest that has every kind of row.
    #[cfg(test)]
    pub fn tiny() -> Self {
        Self {
            seconds: 0.01,
            packets: 800,
            services: vec![(3, 10)],
            calls: Vec::new(),
            ..Self::new(&Options { quick: true })
        }
    }

    /// A run in a scenario.
    pub fn work(&self, scenario: &Scenario) -> Work {
        match scenario.pace {
            Pace { per_second: 0, .. } => Work::fast(self.packets),
            Pace { per_second, burst } => Work::paced(per_second, burst, self.seconds),
        }
    }
}
