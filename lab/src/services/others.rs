//! What is not a closed loop of ours over a veth: both ends on netchan, loopback, bulk, silence, and system calls counted.

use std::{net::TcpStream, thread, time::Duration};

use super::{
    bulk, calls,
    files::ended_in_time,
    load::one_answer,
    measure::{Effort, Figures, both, left_out, measure, ratio},
    programs::{Program, REDIS_1, service},
    stage::Stage,
    way::{PORT, SERVER, Way},
};
use crate::{
    kit::{find_program, netchan},
    report::Row,
    usage::Usage,
};

/// Finds some rows, or says why there are none.
type Finder<'a> = &'a dyn Fn() -> Result<Vec<Row>, String>;

/// All of them. What fails is left out; the others come nevertheless.
pub(super) fn rows(stage: &Stage, effort: &Effort) -> Vec<Row> {
    let finders: [(&str, &str, Finder<'_>); 7] = [
        ("redis-server", "over_embedded", &|| daemon(stage, effort)),
        ("python3", "rr_tap", &|| tap(stage, effort)),
        ("python3", "idle", &|| idle(stage, effort)),
        ("redis-server", "system_calls_per_request", &|| {
            Ok(vec![calls::row(stage, effort)?])
        }),
        ("redis-benchmark", "redis_50_both", &|| {
            both_ends(stage, effort)
        }),
        ("iperf3", "iperf_in", &|| bulk::rows(stage, effort, false)),
        ("iperf3", "iperf_out", &|| bulk::rows(stage, effort, true)),
    ];
    let mut rows = Vec::new();
    for (program, id, find_rows) in finders {
        if find_program(program).is_none() {
            eprintln!("{program} is not installed: no rows {id}_*");
            continue;
        }
        rows.extend(find_rows().unwrap_or_else(|why| vec![left_out(id, &why)]));
    }
    rows
}

/// Request and response over a TAP by the same over the kernel's loopback, the middle of the latencies.
fn tap(stage: &Stage, effort: &Effort) -> Result<Vec<Row>, String> {
    let (mut ours, mut kernels) = (Figures::default(), Figures::default());
    for _ in 0..effort.rounds {
        let service = service("tcp_rr_tap");
        ours.note(&measure(stage, service, Way::Tap, effort)?);
        kernels.note(&measure(stage, service, Way::Loopback, effort)?);
    }
    let [[ours, ..], [kernels, ..]] = [ours, kernels].map(|figures| figures.latency_us);
    let row = ratio("rr_tap_over_loopback", &ours, &kernels).target("<= 0.8");
    let explaining = both("rr_tap_over_loopback_p50_us", ours, "loopback", kernels);
    Ok(vec![row, explaining])
}

/// The services that are measured through a daemon, too.
const THROUGH_DAEMON: [&str; 4] = [REDIS_1, "redis_50_veth", "nginx_1k_veth", "tcp_rr_veth"];

/// Rates of servers whose link a daemon has, by those of the same with the link in their own process.
fn daemon(stage: &Stage, effort: &Effort) -> Result<Vec<Row>, String> {
    let services = THROUGH_DAEMON.map(service).into_iter();
    let services: Vec<_> = services
        .filter(|service| find_program(service.program.name()).is_some())
        .collect();
    let mut figures: Vec<[Figures; 2]> = services.iter().map(|_| Default::default()).collect();
    for _ in 0..effort.rounds {
        for (service, figures) in services.iter().zip(&mut figures) {
            for (figures, way) in figures.iter_mut().zip([Way::Daemon, Way::Packet]) {
                figures.note(&measure(stage, service, way, effort)?);
            }
        }
    }
    let rows = services
        .iter()
        .zip(figures)
        .flat_map(|(service, [ours, embedded])| {
            let name = service.id.trim_end_matches("_veth");
            let (ours, embedded) = (ours.per_second, embedded.per_second);
            let id = format!("{name}_daemon_over_embedded");
            let row = ratio(&id, &ours, &embedded).target(">= 0.95");
            let explaining = format!("{name}_daemon_per_s");
            [row, both(&explaining, ours, "embedded", embedded)]
        });
    Ok(rows.collect())
}

/// Processor time of a server whose clients say nothing, percent of one core. asyncio's has no clock of its own, which redis and memcached have.
fn idle(stage: &Stage, effort: &Effort) -> Result<Vec<Row>, String> {
    let connections = if effort.quick { 100 } else { 1000 };
    let time = effort.time * 2;
    let mut percents = [Vec::new(), Vec::new()];
    for (percents, way) in percents.iter_mut().zip([Way::Packet, Way::Kernel]) {
        let server = stage.serve(way, &Program::Asyncio, ("", 1))?;
        let open = |_| TcpStream::connect_timeout(&server.address(), Duration::from_secs(5));
        let streams: Result<Vec<_>, _> = (0..connections).map(open).collect();
        let streams = streams.map_err(|e| format!("{connections} connections: {e}"))?;
        thread::sleep(Duration::from_secs(1));
        let used = || Usage::of(server.pid()).map_err(|e| e.to_string());
        let before = used()?;
        thread::sleep(time);
        let spent = used()? - before;
        drop(streams);
        percents.push(spent.processor_ns / time.as_secs_f64() / 1e7);
    }
    let [ours, kernels] = percents;
    let id = format!("idle_{connections}_cpu_percent");
    Ok(vec![both(&id, ours, "kernel", kernels).target("0.0")])
}

/// What redis-benchmark found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Benchmark {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

/// One of them.
type BenchmarkFigure = fn(&Benchmark) -> f64;

/// redis-benchmark and redis-server, each under `netchan run` at one end of the veth, by both on the kernel's loopback.
fn both_ends(stage: &Stage, effort: &Effort) -> Result<Vec<Row>, String> {
    let (mut ours, mut kernels) = (Vec::new(), Vec::new());
    // The kernel's own address at the clients' end would answer, too; netchan's is another one.
    let link = "kind = \"packet\"\nname = \"v1\"";
    let config = stage.config("client", link, "10.91.0.3/24", "")?;
    let (config, own) = (config.display().to_string(), netchan()?);
    let own = own.display().to_string();
    let on_netchan = [own.as_str(), "run", "--config", &config, "--"];
    for _ in 0..effort.rounds {
        ours.push(benchmark(stage, effort, Way::Packet, &on_netchan)?);
        kernels.push(benchmark(stage, effort, Way::Loopback, &[])?);
    }
    let column =
        |side: &[Benchmark], figure: BenchmarkFigure| side.iter().map(figure).collect::<Vec<f64>>();
    let figures: [(&str, BenchmarkFigure); 3] = [
        ("per_s", |found| found.per_second),
        ("p50_us", |found| found.p50_us),
        ("p99_us", |found| found.p99_us),
    ];
    let (mine, theirs) = (column(&ours, figures[0].1), column(&kernels, figures[0].1));
    let mut rows = vec![ratio("redis_50_both_over_loopback", &mine, &theirs).target(">= 2")];
    rows.extend(figures.map(|(end, figure)| {
        let (ours, kernels) = (column(&ours, figure), column(&kernels, figure));
        both(&format!("redis_50_both_{end}"), ours, "loopback", kernels)
    }));
    Ok(rows)
}

/// GET with 50 clients, of a value that is there. `before` stands before the benchmark's own words.
fn benchmark(
    stage: &Stage,
    effort: &Effort,
    way: Way,
    before: &[&str],
) -> Result<Benchmark, String> {
    let server = stage.serve(way, &Program::Redis, ("", 1))?;
    // Without -r this is the key's name as it stands.
    let set = format!("SET key:__rand_int__ {}\r\n", "x".repeat(100));
    let said = one_answer(server.address(), set.as_bytes(), |said| said == b"+OK\r\n");
    said.map_err(|e| e.to_string())?;
    let host = match way {
        Way::Loopback => "127.0.0.1".to_owned(),
        _ => SERVER.to_string(),
    };
    let (port, requests) = (
        PORT.to_string(),
        if effort.quick { "50000" } else { "300000" },
    );
    let mut command = stage.clients.command("timeout");
    ended_in_time(&mut command);
    command.args(before).args(["redis-benchmark", "-h", &host]);
    command.args(["-p", &port, "-t", "get", "-c", "50"]);
    let out = command.args(["-n", requests, "--csv"]).output();
    let out = out.map_err(|e| format!("redis-benchmark: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout);
    Benchmark::read(&said).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&out.stderr);
        format!("redis-benchmark said {said:?} {errors:?}")
    })
}

impl Benchmark {
    /// Of the line `"GET",rate,mean,least,p50,p95,p99,greatest`, each quoted, times in ms.
    fn read(said: &str) -> Option<Self> {
        let line = said.lines().find(|line| line.starts_with("\"GET\","))?;
        let numbers: Vec<f64> = line
            .split(',')
            .filter_map(|word| word.trim_matches('"').parse().ok())
            .collect();
        let [per_second, _, _, p50, _, p99, ..] = numbers[..] else {
            return None;
        };
        Some(Self {
            per_second,
            p50_us: p50 * 1e3,
            p99_us: p99 * 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_of_a_csv_line_has_rate_and_percentiles() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"153609.83\",\"0.2\",\"0.1\",\"0.25\",\"0.3\",\"0.5\",\"1.2\"\n";
        let found = Benchmark {
            per_second: 153_609.83,
            p50_us: 250.0,
            p99_us: 500.0,
        };
        assert_eq!(Benchmark::read(said), Some(found));
    }

    #[test]
    fn benchmark_that_could_not_connect_is_none() {
        assert_eq!(Benchmark::read("Could not connect to Redis\n"), None);
        assert_eq!(Benchmark::read("\"GET\",\"1.0\"\n"), None);
    }
}
