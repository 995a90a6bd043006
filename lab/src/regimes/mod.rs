//! Experiment `regimes` (C5, F9): the same stream and the same service under every discipline, each measurement in a process of its own.

mod effort;
mod players;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::{
    effort::{Effort, PLAIN, Scenario},
    players::{Player, search},
};
use crate::{
    experiment::{Experiment, LabError, Options},
    kit::cores,
    machine::Watch,
    report::{Report, Row},
    rig::{Entry, Job, Look, Place, Rig, Work},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "regimes",
    question: "What does a packet of the same stream cost under each regime at the same rate, where does the time go, and how much more does the same service do on two cores than on one, beside the kernel's own stack and the discipline of 2006?",
    prediction: "Not the document's 14 against 77: there, protocol work moved from interrupts that shared nothing with the application; here everything runs in one process, and the protocol's own 300 ns a packet are the same in all regimes. \
        app-channel 0.5 to 0.7 of locked, because its link thread only classifies and it takes no lock twice; giant 1.1 to 1.3 of locked. One to two cores: giant 1.1, locked 1.4, app-channel 1.6 (two links' threads and two shards). Linux 1.7. \
        At 50,000 packets a second, one at a time, all regimes within 1.5 of each other: each packet is a wake-up or two, whatever the regime.",
    run,
};

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let watch = Watch::start();
    let effort = Effort::new(options);
    let rig = Rig::apart(Duration::from_secs(options.choose(10, 30)));
    let rows = rows(&rig, &effort);
    Ok(experiment.report(watch.machine(false), rows))
}

/// All rows.
fn rows(rig: &Rig, effort: &Effort) -> Vec<Row> {
    let players = search(rig, effort);
    let mut entries = Vec::new();
    for scenario in &effort.scenarios {
        for player in &players {
            entries.extend(streams(effort, scenario, player));
        }
    }
    for player in players.iter().filter(|player| player.serves) {
        entries.extend(services(effort, player));
    }
    let found = rig.rounds(&entries, effort.rounds, effort.limit);
    // What only explains, in fewer rounds.
    let mut looks = Vec::new();
    for scenario in &effort.scenarios {
        for player in &players {
            looks.extend(explaining(effort, scenario, player));
        }
    }
    let looked = rig.rounds(&looks, effort.rounds_of_looks, effort.limit / 2.0);
    table::rows(effort, &players, &found, &looked)
}

/// Where a scenario takes place.
fn place(scenario: &Scenario) -> Place {
    if scenario.one_cpu {
        Place::on(1)
    } else {
        Place::of_roles()
    }
}

/// A player's job in a scenario.
fn stream(effort: &Effort, scenario: &Scenario, player: &Player) -> Job {
    let work = effort.work(scenario);
    let carrier = player.carrier(scenario);
    Job {
        batch: player.batch,
        ..Job::new(carrier, work, place(scenario))
    }
}

fn streams(effort: &Effort, scenario: &Scenario, player: &Player) -> Option<Entry> {
    let name = player.run(scenario);
    Some(Entry::new(name, stream(effort, scenario, player)))
}

/// The runs with stages and, where the effort allows, those in which system calls are counted.
fn explaining(effort: &Effort, scenario: &Scenario, player: &Player) -> Vec<Entry> {
    let mut all = Vec::new();
    let job = stream(effort, scenario, player);
    let mut add = |what: &str, look| {
        let name = format!("{}@{what}", player.run(scenario));
        all.push(Entry::new(
            name,
            Job {
                look,
                ..job.clone()
            },
        ));
    };
    if !player.is_kernel() {
        add("stages", Look::Stages);
    }
    if effort.calls.contains(&player.id.as_str()) && scenario.counts_calls {
        add("calls", Look::Calls);
    }
    all
}

/// On one core and on two, with each number of clients.
fn services(effort: &Effort, player: &Player) -> Vec<Entry> {
    let mut all = Vec::new();
    for &(clients, transactions) in &effort.services {
        let work = Work::Service {
            clients,
            transactions,
        };
        for number in 1..=cores().len().min(2) {
            let name = service_name(player, clients, number);
            let job = Job::new(player.service, work, Place::on(number));
            all.push(Entry::new(name, job));
        }
    }
    all
}

fn service_name(player: &Player, clients: usize, cores: usize) -> String {
    format!("rr_{}_{clients}_on_{cores}", player.id)
}

/// The name under which a scenario without a suffix is found.
fn plain(player: &Player) -> String {
    player.run(&PLAIN)
}
