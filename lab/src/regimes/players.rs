//! The players of `regimes`: every regime with the best of its settings, all searched alike; two baselines; the kernel.

use netchan::Regime;

use super::{
    effort::{Effort, ONE_CPU, PLAIN, STEADY, Scenario},
    stream,
};
use crate::rig::{Carrier, Entry, Job, Outcome, Place, Protocol, Rig, Settings, Work, candidates};

/// A contender that takes turns.
#[derive(Clone, Debug)]
pub(super) struct Player {
    /// Its name in row ids.
    pub id: String,
    plain: Carrier,
    steady: Carrier,
    one_cpu: Carrier,
    /// With which it serves.
    pub service: Carrier,
    /// Frames that its link hands over at once; 0: as it comes.
    pub batch: usize,
    /// Whether it takes part in the service.
    pub serves: bool,
}

impl Player {
    /// With the same settings for everything.
    fn of(id: &str, carrier: Carrier) -> Self {
        Self {
            id: id.to_owned(),
            plain: carrier,
            steady: carrier,
            one_cpu: carrier,
            service: carrier,
            batch: 0,
            serves: true,
        }
    }

    /// With which it takes part in a scenario.
    pub const fn carrier(&self, scenario: &Scenario) -> Carrier {
        match (scenario.one_cpu, scenario.pace.per_second) {
            (true, _) => self.one_cpu,
            (false, 0) => self.plain,
            (false, _) => self.steady,
        }
    }

    /// The name of its run in a scenario.
    pub fn run(&self, scenario: &Scenario) -> String {
        format!("{}{}", self.id, scenario.suffix)
    }

    pub fn is_kernel(&self) -> bool {
        self.plain == Carrier::Linux
    }

    /// Its settings in a scenario, for people.
    pub fn settings(&self, scenario: &Scenario) -> String {
        said(self.carrier(scenario))
    }

    /// Its settings for the service.
    pub fn service_settings(&self) -> String {
        said(self.service)
    }
}

fn said(carrier: Carrier) -> String {
    match carrier {
        Carrier::Netchan { settings, .. } => settings.text(),
        Carrier::Linux => String::new(),
    }
}

/// Every regime at its best, then the baselines and the kernel.
pub(super) fn search(rig: &Rig, effort: &Effort) -> Vec<Player> {
    let regimes = Regime::ALL.into_iter();
    let mut all: Vec<_> = regimes.map(|regime| best(rig, effort, regime)).collect();
    // What a kernel of 2006 did: fine locks, and for each packet one way through them and one wake-up.
    let locked = Carrier::of(Regime::Locked);
    all.push(Player {
        batch: 1,
        serves: false,
        ..Player::of("per_packet", locked)
    });
    all.push(Player {
        serves: false,
        ..Player::of("batched", locked)
    });
    all.push(Player::of("linux", Carrier::Linux));
    all
}

/// A regime with the settings that cost least, or serve fastest, for each kind of run.
fn best(rig: &Rig, effort: &Effort, regime: Regime) -> Player {
    let as_it_comes = Player::of(&Carrier::of(regime).id(), Carrier::of(regime));
    let settings: Vec<Settings> = candidates(regime)
        .into_iter()
        .filter(|s| effort.searches_places || s.protocol != Protocol::WithLink)
        .collect();
    let find = |scenario: &Scenario| {
        let job = |carrier| stream(effort, scenario, &Player::of("", carrier));
        least(rig, effort, regime, &settings, &job, &Outcome::packet_ns)
    };
    let serve = |carrier| {
        let (clients, transactions) = effort.services.first().copied().unwrap_or((1, 1));
        let transactions = (transactions / 4).max(1);
        let work = Work::Service {
            clients,
            transactions,
        };
        Job::new(carrier, work, Place::on(2))
    };
    let steady = find(&STEADY);
    if !effort.searches_all {
        return Player {
            plain: steady,
            steady,
            one_cpu: steady,
            ..as_it_comes
        };
    }
    Player {
        plain: find(&PLAIN),
        steady,
        one_cpu: find(&ONE_CPU),
        service: least(rig, effort, regime, &settings, &serve, &|o| o.seconds),
        ..as_it_comes
    }
}

/// The settings with the least of a figure.
fn least(
    rig: &Rig,
    effort: &Effort,
    regime: Regime,
    settings: &[Settings],
    job: &dyn Fn(Carrier) -> Job,
    figure: &dyn Fn(&Outcome) -> f64,
) -> Carrier {
    let entry = |settings: &Settings| {
        let name = format!("search {regime} {}", settings.text());
        Entry::new(name, job(Carrier::with(regime, *settings)))
    };
    let entries: Vec<_> = settings.iter().map(entry).collect();
    let best = rig.best(&entries, effort.rounds_of_search, figure);
    best.map_or_else(|| Carrier::of(regime), |entry| entry.job.carrier)
}
