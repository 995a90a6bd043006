//! Experiment `services`: real servers, unmodified, under `netchan run` and on the kernel's TCP in turns, with the same clients.

mod files;
mod load;
mod others;
mod programs;
mod stage;
mod usage;

use std::{collections::BTreeMap, io, thread, time::Duration};

use self::{
    files::find,
    load::{Load, Outcome, one_answer},
    programs::{SERVICES, Service},
    stage::{Stage, Way},
    usage::Usage,
};
use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Pinned, Sample},
    machine::Watch,
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "services",
    question: "What do unmodified servers get out of netchan, beside the kernel's TCP in the same run: requests a second, latency, processor time, thread switches and system calls a request?",
    prediction: "redis with one client as fast as on the kernel, with 50 clients 1.2 to 1.3 times; servers of several threads 0.7 of it; nginx with 1 KiB 0.9, with 1 MiB 0.5.",
    run: |experiment, options| {
        let watch = Watch::start();
        let (quick, name) = (options.quick, "services".to_owned());
        // In a thread: it stays in the clients' namespace.
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || rows(Options { quick }))?;
        let rows = thread
            .join()
            .map_err(|_| LabError::Failed("the clients' thread panicked".to_owned()))?;
        Ok(experiment.report(watch.machine(true), rows.map_err(LabError::Failed)?))
    },
};

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    warm: Duration,
    time: Duration,
}

/// The figures of one side in all rounds.
#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    latency_us: [Vec<f64>; 3],
    processor_us: Vec<f64>,
    switches: Vec<f64>,
}

/// Percentiles of the latency, and what their rows are called.
const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p999")];

fn rows(options: Options) -> Result<Vec<Row>, String> {
    let effort = Effort {
        rounds: options.choose(1, 5),
        warm: Duration::from_millis(options.choose(100, 500)),
        time: Duration::from_millis(options.choose(400, 3000)),
    };
    let stage = Stage::new()?;
    stage.clients.enter()?;
    let _pinned = Pinned::to_last_core();
    let mut services: Vec<_> = SERVICES
        .iter()
        .filter(|s| s.quick || !options.quick)
        .collect();
    services.retain(|service| {
        let name = service.program.name();
        let is_there = find(name).is_some();
        if !is_there {
            eprintln!("{name} is not installed: no rows {}_*", service.id);
        }
        is_there
    });
    let mut figures: BTreeMap<_, [Figures; 2]> = BTreeMap::new();
    for _ in 0..effort.rounds {
        for service in &services {
            for (side, way) in [Way::Packet, Way::Kernel].into_iter().enumerate() {
                let outcome = measure(&stage, service, way, &effort)
                    .map_err(|e| format!("{} over {way:?}: {e}", service.id))?;
                figures.entry(service.id).or_default()[side].note(&outcome);
            }
        }
    }
    let mut rows = Vec::new();
    for service in services {
        if let Some([ours, kernels]) = figures.remove(service.id) {
            rows.extend(rows_of(service, ours, kernels));
        }
    }
    rows.extend(others::rows(&stage, &effort, options.quick)?);
    Ok(rows)
}

/// One service, one side, once.
fn measure(stage: &Stage, service: &Service, way: Way, effort: &Effort) -> Result<Outcome, String> {
    let server = stage.serve(way, &service.program, service.settings)?;
    let (program, pid) = (service.program, server.pid());
    let said = |e: io::Error| e.to_string();
    if let Some((request, end)) = program.preparation() {
        one_answer(server.address(), &request, |answer| answer.ends_with(end)).map_err(said)?;
    }
    let is_whole = |answer: &[u8]| program.is_whole(answer);
    let load = Load {
        server: server.address(),
        clients: service.clients,
        depth: service.depth,
        fresh: service.fresh,
        request: service.request,
        answer: one_answer(server.address(), service.request, is_whole).map_err(said)?,
    };
    load.run(effort.warm, effort.time, || Usage::of(pid))
        .map_err(said)
}

impl Figures {
    fn note(&mut self, outcome: &Outcome) {
        self.per_second.push(outcome.per_second);
        for (values, (percent, _)) in self.latency_us.iter_mut().zip(PERCENTILES) {
            #[allow(clippy::cast_precision_loss)] // below 2^52
            values.push(outcome.latency.value_at_percentile(percent) as f64 / 1e3);
        }
        self.processor_us.push(outcome.each.processor_ns / 1e3);
        self.switches.push(outcome.each.switches);
    }
}

fn rows_of(service: &Service, ours: Figures, kernels: Figures) -> Vec<Row> {
    let id = service.id;
    let both = |name: &str, ours: Vec<f64>, kernels: Vec<f64>| {
        Row::new(&format!("{id}_{name}"), &Sample::of(ours)).against("kernel", &Sample::of(kernels))
    };
    let ratio = ratio(
        &format!("{id}_over_kernel"),
        &ours.per_second,
        &kernels.per_second,
    );
    let mut rows = vec![match service.target {
        "" => ratio,
        target => ratio.target(&format!(">= {target}")),
    }];
    rows.push(both("per_s", ours.per_second, kernels.per_second));
    let latencies = ours.latency_us.into_iter().zip(kernels.latency_us);
    for ((ours, kernels), (_, name)) in latencies.zip(PERCENTILES) {
        rows.push(both(&format!("{name}_us"), ours, kernels));
    }
    rows.push(both(
        "processor_us",
        ours.processor_us,
        kernels.processor_us,
    ));
    rows.push(both("switches", ours.switches, kernels.switches));
    rows
}

/// One side's figures by the other's, round by round.
fn ratio(name: &str, ours: &[f64], theirs: &[f64]) -> Row {
    let pairs = ours.iter().zip(theirs);
    let ratios = pairs.map(|(ours, theirs)| ours / theirs).collect();
    Row::new(&format!("{name}_ratio"), &Sample::of(ratios))
}
