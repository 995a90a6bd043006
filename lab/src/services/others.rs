//! What is not a closed loop over a veth: both ends on netchan, a TAP, bulk, silence, and system calls counted.

use std::{
    net::TcpStream,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use super::{
    Effort, Figures,
    files::find,
    load::{Load, one_answer},
    measure,
    programs::{Program, SERVICES, Service},
    ratio,
    stage::{PORT, SERVER, Server, Stage, Way, netchan},
    usage::Usage,
};
use crate::{kit::Sample, report::Row};

/// Bytes of the kernel's words, where a program is missing.
fn has(program: &str, rows: &str) -> bool {
    let is_there = find(program).is_some();
    if !is_there {
        eprintln!("{program} is not installed: no rows {rows}");
    }
    is_there
}

pub(super) fn rows(stage: &Stage, effort: &Effort, quick: bool) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    if has("redis-server", "rr_tap_*, idle_*") {
        rows.push(tap(stage, effort)?);
        rows.push(idle(stage, if quick { 100 } else { 1000 }, effort.time)?);
        if has("strace", "system_calls_per_request") {
            rows.push(system_calls(stage)?);
        }
        if has("redis-benchmark", "redis_50_both_*") && !quick {
            rows.push(both_ends(stage, effort)?);
        }
    }
    if has("iperf3", "iperf_*") && !quick {
        for (name, reverse) in [("iperf_in", false), ("iperf_out", true)] {
            rows.push(bulk(stage, effort, name, reverse)?);
        }
    }
    Ok(rows)
}

fn redis(id: &str) -> &'static Service {
    let found = SERVICES.iter().find(|service| service.id == id);
    found.expect("a service of the table")
}

/// Request and response over a TAP by the same over the kernel's loopback, the middle of the latencies.
fn tap(stage: &Stage, effort: &Effort) -> Result<Row, String> {
    let (mut ours, mut kernels) = (Figures::default(), Figures::default());
    for _ in 0..effort.rounds {
        let service = redis("redis_1_veth");
        ours.note(&measure(stage, service, Way::Tap, effort)?);
        kernels.note(&measure(stage, service, Way::Loopback, effort)?);
    }
    let [ours, kernels] = [ours, kernels].map(|figures| figures.latency_us);
    Ok(ratio("rr_tap_over_loopback", &ours[0], &kernels[0]).target("<= 0.8"))
}

/// Processor time of a server whose clients say nothing, percent of one core.
fn idle(stage: &Stage, connections: usize, time: Duration) -> Result<Row, String> {
    let server = stage.serve(Way::Packet, &Program::Redis, "")?;
    let open = |_| TcpStream::connect_timeout(&server.address(), Duration::from_secs(5));
    let streams: Result<Vec<_>, _> = (0..connections).map(open).collect();
    let streams = streams.map_err(|e| format!("{connections} connections: {e}"))?;
    thread::sleep(Duration::from_secs(1));
    let used = |pid| Usage::of(pid).map_err(|e| e.to_string());
    let before = used(server.pid())?;
    thread::sleep(time);
    let spent = used(server.pid())? - before;
    drop(streams);
    let percent = spent.processor_ns / time.as_secs_f64() / 1e7;
    let id = format!("idle_{connections}_cpu_percent");
    Ok(Row::new(&id, &Sample::of(vec![percent])).target("0.0"))
}

/// System calls of the server for each request of one client, as strace counts them. What it costs changes neither.
fn system_calls(stage: &Stage) -> Result<Row, String> {
    let mut counts = Vec::new();
    for way in [Way::Packet, Way::Kernel] {
        let server = stage.serve(way, &Program::Redis, "")?;
        let request = b"PING\r\n";
        let answer = one_answer(server.address(), request, |said| said.ends_with(b"\r\n"));
        let load = Load {
            server: server.address(),
            clients: 1,
            depth: 1,
            fresh: false,
            request,
            answer: answer.map_err(|e| e.to_string())?,
        };
        counts.push(vec![calls(stage, &server, &load)?]);
    }
    let [ours, kernels] = [0, 1].map(|side| Sample::of(counts[side].clone()));
    Ok(Row::new("system_calls_per_request", &ours)
        .against("kernel", &kernels)
        .target("<= 3"))
}

/// All that strace saw while requests went, by those requests. The redis server's own clock (ten a second) is within.
fn calls(stage: &Stage, server: &Server<'_>, load: &Load<'_>) -> Result<f64, String> {
    let seconds = Duration::from_millis(1500);
    let summary = stage.folder.join("calls");
    let mut strace = stage.servers.command("strace");
    strace.args(["-f", "-c", "-o"]).arg(&summary);
    strace.args(["-p", &server.pid().to_string()]);
    let strace = strace
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut strace = Ended(strace.spawn().map_err(|e| format!("strace: {e}"))?);
    thread::sleep(Duration::from_millis(500)); // until it is attached
    let requests = load.run(Duration::ZERO, seconds, || Ok(Usage::default()));
    let requests = requests.map_err(|e| e.to_string())?.per_second * seconds.as_secs_f64();
    strace.interrupt();
    let said = std::fs::read_to_string(&summary).map_err(|e| format!("strace: {e}"))?;
    // The last line: percent, seconds, µs a call, calls, maybe errors, "total".
    let total = said
        .lines()
        .last()
        .and_then(|line| line.split_whitespace().nth(3));
    let total = total.and_then(|n| n.parse::<f64>().ok());
    total
        .map(|total| total / requests)
        .ok_or_else(|| format!("strace said {said:?}"))
}

/// A program that is ended with this.
struct Ended(Child);

impl Ended {
    /// As Ctrl-C does, and waits.
    fn interrupt(&mut self) {
        let pid = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// redis-benchmark and redis-server, each under `netchan run` at one end of the veth, by both on the kernel's loopback.
fn both_ends(stage: &Stage, effort: &Effort) -> Result<Row, String> {
    let (mut ours, mut kernels) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        // The kernel's own address at the clients' end would answer, too; netchan's is another one.
        let config = stage.config(
            "client",
            "kind = \"packet\"\nname = \"v1\"",
            "10.91.0.3/24",
            "",
        )?;
        let config = config.display().to_string();
        let own = netchan()?.display().to_string();
        let _server = stage.serve(Way::Packet, &Program::Redis, "")?;
        ours.push(benchmark(
            stage,
            &[&own, "run", "--config", &config, "--"],
            SERVER.to_string(),
        )?);
        drop(_server);
        let _server = stage.serve(Way::Loopback, &Program::Redis, "")?;
        kernels.push(benchmark(stage, &[], "127.0.0.1".to_owned())?);
    }
    Ok(ratio("redis_50_both_over_loopback", &ours, &kernels).target(">= 2"))
}

/// Requests a second that redis-benchmark says.
fn benchmark(stage: &Stage, before: &[&str], host: String) -> Result<f64, String> {
    let port = PORT.to_string();
    let own = [
        "redis-benchmark",
        "-h",
        &host,
        "-p",
        &port,
        "-t",
        "get",
        "-c",
        "50",
    ];
    let line = [before, &own, &["-n", "300000", "--csv"]].concat();
    let out = stage.clients.command(line[0]).args(&line[1..]).output();
    let out = out.map_err(|e| format!("{}: {e}", line[0]))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    // "GET","153609.83",…
    let rate = said
        .lines()
        .find_map(|line| line.strip_prefix("\"GET\",\""));
    let rate = rate.and_then(|rest| rest.split('"').next()?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark said {said:?}"))
}

/// One stream of iperf3 for as long as `effort` says, cubic at both ends: to the server, or from it.
fn bulk(stage: &Stage, effort: &Effort, name: &str, reverse: bool) -> Result<Row, String> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..effort.rounds {
        for (rates, way) in rates.iter_mut().zip([Way::Packet, Way::Kernel]) {
            let _server = stage.serve(way, &Program::Iperf, "")?;
            let (to, port) = (SERVER.to_string(), PORT.to_string());
            let time = effort.time.as_secs().max(1).to_string();
            let mut client = stage.clients.command("iperf3");
            client.args(["-c", &to, "-p", &port, "-t", &time, "-C", "cubic", "-J"]);
            if reverse {
                client.arg("-R");
            }
            let out = client.output().map_err(|e| format!("iperf3: {e}"))?;
            let said: serde_json::Value =
                serde_json::from_slice(&out.stdout).map_err(|e| format!("iperf3: {e}"))?;
            let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
            rates.push(rate.ok_or_else(|| format!("iperf3: {}", said["error"]))?);
        }
    }
    let [ours, kernels] = rates;
    Ok(ratio(&format!("{name}_over_kernel"), &ours, &kernels).target(">= 1.2"))
}
