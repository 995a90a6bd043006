//! Bulk by iperf3, cubic at both ends: to the server and from it, over a veth, over a TAP, and on the kernel's TCP over the veth.

use serde_json::Value;

use super::{
    files::ended_in_time,
    measure::{Effort, both, ratio},
    programs::Program,
    stage::Stage,
    way::{PORT, Way},
};
use crate::report::Row;

/// The sides, the kernel's last.
const WAYS: [Way; 3] = [Way::Packet, Way::Tap, Way::Kernel];

/// What one stream came to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bulk {
    gbit_per_s: f64,
    /// The server's processor time for each KiB of text, and the client's, ns.
    server_ns: f64,
    client_ns: f64,
}

/// One of them.
type BulkFigure = fn(&Bulk) -> f64;

/// Rows `iperf_in_*`, with `reverse` `iperf_out_*`.
///
/// # Errors
/// The first stream's that did not come to its end.
pub(super) fn rows(stage: &Stage, effort: &Effort, reverse: bool) -> Result<Vec<Row>, String> {
    let name = if reverse { "iperf_out" } else { "iperf_in" };
    let mut found: [Vec<Bulk>; 3] = Default::default();
    for _ in 0..effort.rounds {
        for (found, way) in found.iter_mut().zip(WAYS) {
            let bulk = stream(stage, effort, way, reverse);
            found.push(bulk.map_err(|e| format!("{name} over {way:?}: {e}"))?);
        }
    }
    let column =
        |side: usize, figure: BulkFigure| found[side].iter().map(figure).collect::<Vec<_>>();
    let rate: BulkFigure = |bulk| bulk.gbit_per_s;
    let mut rows = Vec::new();
    for (side, id, target) in [
        (0, name.to_owned(), ">= 1.2"),
        (1, format!("{name}_tap"), ""),
    ] {
        let over = format!("{id}_over_kernel");
        let ratio = ratio(&over, &column(side, rate), &column(2, rate));
        rows.push(if target.is_empty() {
            ratio
        } else {
            ratio.target(target)
        });
        let figures: [(&str, BulkFigure); 3] = [
            ("gbit_per_s", rate),
            ("kib_processor_ns", |bulk| bulk.server_ns),
            ("kib_clients_processor_ns", |bulk| bulk.client_ns),
        ];
        rows.extend(figures.map(|(end, figure)| {
            let (ours, kernels) = (column(side, figure), column(2, figure));
            both(&format!("{id}_{end}"), ours, "kernel", kernels)
        }));
    }
    Ok(rows)
}

/// One stream for as long as `effort` says.
fn stream(stage: &Stage, effort: &Effort, way: Way, reverse: bool) -> Result<Bulk, String> {
    let _server = stage.serve(way, &Program::Iperf, ("", 1))?;
    let (to, port) = (way.address().ip().to_string(), PORT.to_string());
    let seconds = effort.time.as_secs().max(1).to_string();
    let mut client = stage.clients.command("timeout");
    ended_in_time(&mut client);
    client.args(["iperf3", "-c", &to, "-p", &port, "-t", &seconds]);
    client.args(["-C", "cubic", "-J"]);
    if reverse {
        client.arg("-R");
    }
    let out = client.output().map_err(|e| e.to_string())?;
    let said: Value = serde_json::from_slice(&out.stdout).map_err(|e| e.to_string())?;
    Bulk::read(&said).ok_or_else(|| match said["error"].as_str() {
        Some(error) => error.to_owned(),
        None => "no figures".to_owned(),
    })
}

impl Bulk {
    /// Of what iperf3's client says: processor time is in percent of the time that the stream took.
    fn read(said: &Value) -> Option<Self> {
        let end = &said["end"];
        let (received, used) = (&end["sum_received"], &end["cpu_utilization_percent"]);
        let (bytes, seconds) = (received["bytes"].as_f64()?, received["seconds"].as_f64()?);
        let each = |percent: f64| percent / 100.0 * seconds * 1e9 / (bytes / 1024.0);
        Some(Self {
            gbit_per_s: received["bits_per_second"].as_f64()? / 1e9,
            server_ns: each(used["remote_total"].as_f64()?),
            client_ns: each(used["host_total"].as_f64()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bulk_of_an_iperf_report_has_processor_time_for_each_kib() {
        let said = json!({ "end": {
            "sum_received": { "seconds": 2.0, "bytes": 1024.0 * 1000.0, "bits_per_second": 3e9 },
            "cpu_utilization_percent": { "host_total": 50.0, "remote_total": 25.0 },
        } });
        let bulk = Bulk {
            gbit_per_s: 3.0,
            server_ns: 500_000.0,
            client_ns: 1_000_000.0,
        };
        assert_eq!(Bulk::read(&said), Some(bulk));
    }

    #[test]
    fn bulk_of_a_failed_iperf_is_none() {
        let said = json!({ "start": {}, "end": {}, "error": "unable to connect to server" });
        assert_eq!(Bulk::read(&said), None);
    }
}
