//! The register of experiments.

use crate::{
    aggregation, applications, contention, dispatch,
    experiment::{Experiment, LabError, Options},
    giant_cost, path, pipeline,
    primitives::{channels, counters, crossbar, epoch, interrupts, locks, sched, slab, trace},
    regimes,
    report::Report,
    server_counter, services, steer, taps, tcp,
};

const EXPERIMENTS: &[Experiment] = &[
    path::EXPERIMENT,
    steer::EXPERIMENT,
    channels::EXPERIMENT,
    crossbar::EXPERIMENT,
    slab::EXPERIMENT,
    counters::EXPERIMENT,
    trace::EXPERIMENT,
    locks::EXPERIMENT,
    sched::EXPERIMENT,
    interrupts::EXPERIMENT,
    epoch::EXPERIMENT,
    regimes::EXPERIMENT,
    contention::EXPERIMENT,
    tcp::EXPERIMENT,
    services::EXPERIMENT,
    dispatch::EXPERIMENT,
    giant_cost::EXPERIMENT,
    pipeline::EXPERIMENT,
    aggregation::EXPERIMENT,
    server_counter::EXPERIMENT,
    taps::EXPERIMENT,
    applications::EXPERIMENT,
];

/// All experiments.
#[must_use]
pub const fn list() -> &'static [Experiment] {
    EXPERIMENTS
}

/// The experiment called `name`.
///
/// # Errors
/// [`LabError::Unknown`] for a name that [`list`] does not have.
pub fn find(name: &str) -> Result<&'static Experiment, LabError> {
    let found = list().iter().find(|e| e.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = list().iter().map(|e| e.name).collect();
        let (name, names) = (name.to_owned(), names.join(", "));
        LabError::Unknown { name, names }
    })
}

/// Runs the experiment called `name`.
///
/// # Errors
/// As [`find`], and [`LabError::Failed`] when it could not run to its end.
pub fn run(name: &str, options: &Options) -> Result<Report, LabError> {
    let experiment = find(name)?;
    (experiment.run)(experiment, options)
}
