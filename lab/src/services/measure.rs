//! One server and its clients for a moment, the figures of both sides in all rounds, and the rows that come of them.

use std::{io, time::Duration};

use super::{
    load::{Load, Outcome, one_answer, one_datagram},
    programs::Service,
    stage::Stage,
    way::Way,
};
use crate::{kit::Sample, report::Row, usage::Usage};

/// How long and how often.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    pub quick: bool,
    pub rounds: usize,
    /// Of what explains the figures that have a target.
    pub rounds_of_others: usize,
    pub warm: Duration,
    pub time: Duration,
}

impl Effort {
    pub const fn new(quick: bool) -> Self {
        if quick {
            Self {
                quick,
                rounds: 1,
                rounds_of_others: 1,
                warm: Duration::from_millis(100),
                time: Duration::from_millis(400),
            }
        } else {
            Self {
                quick,
                rounds: 5,
                rounds_of_others: 3,
                warm: Duration::from_millis(300),
                time: Duration::from_secs(2),
            }
        }
    }
}

/// Percentiles of the latency, and what their rows are called.
const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p999")];

/// The figures of one side in all rounds.
#[derive(Default)]
pub(super) struct Figures {
    pub per_second: Vec<f64>,
    pub latency_us: [Vec<f64>; 3],
    processor_us: Vec<f64>,
    clients_processor_us: Vec<f64>,
    pub switches: Vec<f64>,
}

impl Figures {
    pub fn note(&mut self, outcome: &Outcome) {
        self.per_second.push(outcome.per_second);
        for (values, (percent, _)) in self.latency_us.iter_mut().zip(PERCENTILES) {
            #[allow(clippy::cast_precision_loss)] // below 2^52
            values.push(outcome.latency.value_at_percentile(percent) as f64 / 1e3);
        }
        self.processor_us.push(outcome.each.processor_ns / 1e3);
        self.clients_processor_us.push(outcome.clients_ns / 1e3);
        self.switches.push(outcome.each.switches);
    }
}

/// One service, one side, once.
///
/// # Errors
/// What does not come up, or does not answer.
pub(super) fn measure(
    stage: &Stage,
    service: &Service,
    way: Way,
    effort: &Effort,
) -> Result<Outcome, String> {
    let server = stage.serve(way, &service.program, (service.settings, service.queues))?;
    let pid = server.pid();
    let load = load(service, way).map_err(|e| format!("{} over {way:?}: {e}", service.id))?;
    load.run(effort.warm, effort.time, &|| Usage::of(pid))
        .map_err(|e| format!("{} over {way:?}: {e}", service.id))
}

/// The clients of a service that is up, after its preparation.
///
/// # Errors
/// When it does not answer.
pub(super) fn load(service: &Service, way: Way) -> io::Result<Load<'static>> {
    let (program, server) = (service.program, way.address());
    if let Some((request, end)) = program.preparation() {
        one_answer(server, &request, |answer| answer.ends_with(end))?;
    }
    let answer = if program.is_of_datagrams() {
        one_datagram(server, service.request, Duration::from_secs(1))?
    } else {
        one_answer(server, service.request, |answer| program.is_whole(answer))?
    };
    Ok(Load {
        server,
        clients: service.clients,
        depth: service.depth,
        fresh: service.fresh,
        datagrams: program.is_of_datagrams(),
        request: service.request,
        answer,
    })
}

/// One side's figures by the other's, round by round.
pub(super) fn ratio(name: &str, ours: &[f64], theirs: &[f64]) -> Row {
    let pairs = ours.iter().zip(theirs);
    let ratios = pairs.map(|(ours, theirs)| ours / theirs).collect();
    Row::new(&format!("{name}_ratio"), &Sample::of(ratios))
}

/// Both sides' figures.
pub(super) fn both(name: &str, ours: Vec<f64>, peer: &str, theirs: Vec<f64>) -> Row {
    Row::new(name, &Sample::of(ours)).against(peer, &Sample::of(theirs))
}

/// What could not be measured, and why.
pub(super) fn left_out(id: &str, why: &str) -> Row {
    eprintln!("{id} is left out: {why}");
    Row::new(&format!("left_out_{id}"), &Sample::of(vec![1.0])).reference(why)
}

/// All rows of a service.
pub(super) fn rows_of(service: &Service, ours: Figures, kernels: Figures) -> Vec<Row> {
    let id = service.id;
    let both = |name: &str, ours, theirs| both(&format!("{id}_{name}"), ours, "kernel", theirs);
    let over = format!("{id}_over_kernel");
    let ratio = ratio(&over, &ours.per_second, &kernels.per_second);
    let mut rows = vec![match service.target {
        "" => ratio,
        target => ratio.target(&format!(">= {target}")),
    }];
    rows.push(both("per_s", ours.per_second, kernels.per_second));
    let latencies = ours.latency_us.into_iter().zip(kernels.latency_us);
    for ((ours, kernels), (_, name)) in latencies.zip(PERCENTILES) {
        rows.push(both(&format!("{name}_us"), ours, kernels));
    }
    let (clients, theirs) = (ours.clients_processor_us, kernels.clients_processor_us);
    rows.extend([
        both("processor_us", ours.processor_us, kernels.processor_us),
        both("clients_processor_us", clients, theirs),
        both("switches", ours.switches, kernels.switches),
    ]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_of_rounds_pairs_each_with_its_own() {
        let row = ratio("x_over_y", &[2.0, 9.0, 4.0], &[1.0, 3.0, 4.0]);
        assert_eq!((row.value, row.min, row.max), (2.0, 1.0, 3.0));
        assert_eq!(row.id, "x_over_y_ratio");
    }
}
