//! How many system calls a server makes for a request: the kernel's tracepoint counts them, or strace, where perf cannot.

use std::time::Duration;

use super::{
    measure::{Effort, both, load},
    programs::{REDIS_1, service},
    stage::Stage,
    way::Way,
};
use crate::{
    report::Row,
    system_calls::{Counter, Counting},
    usage::Usage,
};

/// System calls of the server for each request of redis' one client.
///
/// # Errors
/// Where neither counter works.
pub(super) fn row(stage: &Stage, effort: &Effort) -> Result<Row, String> {
    let mut why = "neither perf nor strace is installed".to_owned();
    for counter in [Counter::Perf, Counter::Strace] {
        if counter.find().is_none() {
            continue;
        }
        match sides(stage, effort, counter) {
            Ok([ours, kernels]) => {
                let row = both("system_calls_per_request", ours, "kernel", kernels);
                let how = format!("counted by {}", counter.program());
                return Ok(row.reference(&how).target("<= 3"));
            }
            Err(e) => why = e,
        }
    }
    Err(why)
}

fn sides(stage: &Stage, effort: &Effort, counter: Counter) -> Result<[Vec<f64>; 2], String> {
    let mut counts = [Vec::new(), Vec::new()];
    for _ in 0..effort.rounds_of_others {
        for (counts, way) in counts.iter_mut().zip([Way::Packet, Way::Kernel]) {
            counts.push(calls(stage, way, counter)?);
        }
    }
    Ok(counts)
}

/// All calls while requests went, by those requests. The server's own clock (ten a second) is within.
fn calls(stage: &Stage, way: Way, counter: Counter) -> Result<f64, String> {
    let service = service(REDIS_1);
    let server = stage.serve(way, &service.program, (service.settings, service.queues))?;
    let load = load(service, way).map_err(|e| e.to_string())?;
    let summary = stage.folder.join("calls");
    let counting = Counting::of_process(counter, server.pid(), &summary)?;
    let time = Duration::from_millis(1500);
    let outcome = load.run(Duration::ZERO, time, &|| Ok(Usage::default()));
    let outcome = outcome.map_err(|e| e.to_string())?;
    let total = counting.total()?;
    #[allow(clippy::cast_precision_loss)] // below 2^52
    Ok(total / outcome.answers.max(1) as f64)
}
