//! Experiment `services`: real servers, unmodified, under `netchan run` and on the kernel's TCP in turns, with the same clients.

mod bulk;
mod calls;
mod files;
mod load;
mod measure;
mod others;
mod programs;
mod stage;
mod way;

use std::{collections::BTreeMap, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::{
    measure::{Effort, Figures, both, left_out, measure, rows_of},
    programs::{REDIS_1, SERVICES, Service},
    stage::Stage,
    way::Way,
};
use crate::{
    experiment::{Experiment, LabError},
    kit::{Pinned, find_program},
    machine::Watch,
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "services",
    question: "What do unmodified servers get out of netchan, beside the kernel's TCP in the same run: requests a second, latency, processor time, thread switches and system calls a request?",
    prediction: "redis with one client as fast as on the kernel, with 50 clients 1.2 to 1.3 times; servers of several threads 0.7 of it; nginx with 1 KiB 0.9, with 1 MiB 0.5.",
    run: |experiment, options| {
        let watch = Watch::start();
        let (effort, name) = (Effort::new(options.quick), "services".to_owned());
        // In a thread: it stays in the clients' namespace.
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || rows(&effort))?;
        let rows = thread
            .join()
            .map_err(|_| LabError::Failed("the clients' thread panicked".to_owned()))?;
        Ok(experiment.report(watch.machine(true), rows.map_err(LabError::Failed)?))
    },
};

/// What was promised first, then what explains it, then what could not be measured.
fn rows(effort: &Effort) -> Result<Vec<Row>, String> {
    raise_open_files()?;
    let stage = Stage::new()?;
    stage.clients.enter()?;
    let _pinned = Pinned::to_last_core();
    let mut rows = services(&stage, effort);
    rows.extend(others::rows(&stage, effort));
    rows.sort_by_key(|row| (row.target.is_none(), row.id.starts_with("left_out_")));
    Ok(rows)
}

/// A thousand connections take more descriptors than many systems give at first; programs that are started from here have them, too.
fn raise_open_files() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|e| format!("open files: {e}"))
}

/// The table's rows: a round of all, then the next, in each ours and the kernel's by turns.
fn services(stage: &Stage, effort: &Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut figures: BTreeMap<_, [Figures; 2]> = BTreeMap::new();
    let mut services: Vec<_> = SERVICES
        .iter()
        .filter(|s| s.quick || !effort.quick)
        .collect();
    services.retain(|service| is_there(service));
    for round in 0..effort.rounds {
        services.retain(|service| {
            if service.target.is_empty() && round >= effort.rounds_of_others {
                return true;
            }
            let figures = figures.entry(service.id).or_default();
            for (side, way) in [service.way, Way::Kernel].into_iter().enumerate() {
                match measure(stage, service, way, effort) {
                    Ok(outcome) => figures[side].note(&outcome),
                    Err(why) => {
                        rows.push(left_out(service.id, &why));
                        return false;
                    }
                }
            }
            true
        });
    }
    for service in services {
        if let Some([ours, kernels]) = figures.remove(service.id) {
            if service.id == REDIS_1 {
                let (ours, kernels) = (ours.switches.clone(), kernels.switches.clone());
                let row = both("switches_per_request", ours, "kernel", kernels);
                rows.push(row.target("<= 1.05"));
            }
            rows.extend(rows_of(service, ours, kernels));
        }
    }
    rows
}

fn is_there(service: &Service) -> bool {
    let name = service.program.name();
    let is_there = find_program(name).is_some();
    if !is_there {
        eprintln!("{name} is not installed: no rows {}_*", service.id);
    }
    is_there
}
