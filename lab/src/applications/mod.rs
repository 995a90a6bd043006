//! Experiment `applications`: two programs of one machine that talk through the daemon, beside the kernel's loopback and its UNIX sockets.

mod place;
pub mod program;

use std::{
    collections::BTreeMap,
    io::Read as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use self::{
    place::{Place, Player, Way},
    program::{Latency, Role},
};
use crate::{
    daemon::Daemon,
    experiment::{Experiment, LabError, Options},
    kit::{Sample, find_program},
    machine::Watch,
    report::Row,
    usage::Usage,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "applications",
    question: "What do two programs of one machine get that talk through the daemon, each with TCP in its own process, beside the kernel's loopback and its UNIX sockets? What does the daemon keep of programs that are killed, and what does one that writes nonsense over all that it shares do to the others?",
    prediction: "A byte there and back takes two and a half times the kernel's loopback, as each way wakes the daemon and then the other program: 50 us. Spinning does not help on two cores, where three threads want to. Bulk has a third of the loopback's rate: each byte is copied five times. Nothing is left of killed programs; one that scribbles costs the others a tenth, its share of the daemon's core.",
    run: |experiment, options| {
        let (watch, effort) = (Watch::start(), Effort::of(options));
        let rows = rows(&effort).map_err(LabError::Failed)?;
        Ok(experiment.report(watch.machine(true), rows))
    },
};

/// How much of everything.
struct Effort {
    rounds: usize,
    times: u32,
    bulk: Duration,
    connections: usize,
    storm: usize,
    requests: u32,
}

impl Effort {
    fn of(options: &Options) -> Self {
        Self {
            rounds: options.choose(1, 7),
            times: options.choose(2_000, 20_000),
            bulk: Duration::from_millis(options.choose(300, 2_000)),
            connections: options.choose(100, 1_000),
            storm: options.choose(20, 1_000),
            requests: options.choose(20_000, 300_000),
        }
    }
}

type Figures = BTreeMap<String, Vec<f64>>;

fn rows(effort: &Effort) -> Result<Vec<Row>, String> {
    let place = Place::new()?;
    let mut figures = Figures::new();
    for _ in 0..effort.rounds {
        round(&place, effort, &mut figures)?;
    }
    let take = |name: &str| figures.get(name).cloned().map(Sample::of);
    let row = |id: &str, peer: (&str, &str)| {
        let row = Row::new(id, &take(id)?);
        Some(match take(peer.1) {
            Some(sample) => row.against(peer.0, &sample),
            None => row,
        })
    };
    let (loopback, unix) = ("kernel's loopback", "UNIX sockets");
    let target = |row: Option<Row>, target: &str| row.map(|row| row.target(target));
    let rows = [
        target(
            row("rr_spin_p50_ns", (loopback, "rr_spin_loopback_p50_ns")),
            "<= 1000",
        ),
        row("rr_spin_p99_ns", (loopback, "rr_spin_loopback_p99_ns")),
        row("rr_block_p50_ns", (loopback, "rr_block_loopback_p50_ns")),
        row("rr_block_p99_ns", (loopback, "rr_block_loopback_p99_ns")),
        target(
            ratio(
                &figures,
                "rr_block_over_unix_ratio",
                "rr_block_p50_ns",
                "rr_block_unix_p50_ns",
            ),
            "<= 1.0",
        ),
        row("rr_spin_unix_p50_ns", (loopback, "rr_spin_loopback_p50_ns")),
        row(
            "rr_block_unix_p50_ns",
            (loopback, "rr_block_loopback_p50_ns"),
        ),
        target(
            row("bulk_gbit_per_s", (loopback, "bulk_loopback_gbit_per_s")),
            ">= 150",
        ),
        row(
            "bulk_unix_gbit_per_s",
            (loopback, "bulk_loopback_gbit_per_s"),
        ),
        target(
            row("redis_50_per_s", (unix, "redis_50_unix_per_s")),
            ">= 250000",
        ),
        row("redis_50_loopback_per_s", (unix, "redis_50_unix_per_s")),
        target(row("hostile_slowdown_percent", ("", "")), "<= 10"),
        row("hostile_words_per_s", ("", "")),
    ];
    let mut rows: Vec<_> = rows.into_iter().flatten().collect();
    let daemon = place.daemon("0us")?;
    rows.push(idle(&place, &daemon, effort)?);
    rows.push(storm(&place, &daemon, effort)?);
    Ok(rows)
}

/// One figure by another, round by round.
fn ratio(figures: &Figures, id: &str, ours: &str, theirs: &str) -> Option<Row> {
    let pairs = figures.get(ours)?.iter().zip(figures.get(theirs)?);
    Some(Row::new(
        id,
        &Sample::of(pairs.map(|(ours, theirs)| ours / theirs).collect()),
    ))
}

/// Everything that takes turns, once.
fn round(place: &Place, effort: &Effort, figures: &mut Figures) -> Result<(), String> {
    let mut note = |name: String, value| figures.entry(name).or_default().push(value);
    for (way, spins, name) in [
        (Way::Daemon, false, "rr_block"),
        (Way::Loopback, false, "rr_block_loopback"),
        (Way::Unix, false, "rr_block_unix"),
        (Way::DaemonSpin, false, "rr_spin"),
        (Way::Loopback, true, "rr_spin_loopback"),
        (Way::Unix, true, "rr_spin_unix"),
    ] {
        let _daemon = daemon_of(place, way)?;
        let latency = request(place, way, spins, effort)?;
        note(format!("{name}_p50_ns"), latency.p50);
        note(format!("{name}_p99_ns"), latency.p99);
    }
    for (way, name) in [
        (Way::Daemon, "bulk_gbit_per_s"),
        (Way::Loopback, "bulk_loopback_gbit_per_s"),
        (Way::Unix, "bulk_unix_gbit_per_s"),
    ] {
        let _daemon = daemon_of(place, way)?;
        note(name.to_owned(), bulk(place, way, effort)? / 1e9);
    }
    if find_program("redis-server").is_some() && find_program("redis-benchmark").is_some() {
        for (way, name) in [
            (Way::Daemon, "redis_50_per_s"),
            (Way::Loopback, "redis_50_loopback_per_s"),
            (Way::Unix, "redis_50_unix_per_s"),
        ] {
            let _daemon = daemon_of(place, way)?;
            note(name.to_owned(), redis(place, way, effort)?);
        }
    } else {
        eprintln!("redis is not installed: no rows redis_*");
    }
    let _daemon = daemon_of(place, Way::Daemon)?;
    let alone = request(place, Way::Daemon, false, effort)?;
    let role = Role::Scribble {
        daemon: place.socket(),
        seed: 0x5eed_0f15,
    };
    let mut scribbler = place.start(Way::Loopback, None, &role)?;
    scribbler.hear()?;
    let beside = request(place, Way::Daemon, false, effort)?;
    note(
        "hostile_slowdown_percent".to_owned(),
        (beside.p50 / alone.p50 - 1.0) * 100.0,
    );
    let words = scribbler.last_word()?.parse().map_err(|e| format!("{e}"))?;
    note("hostile_words_per_s".to_owned(), words);
    Ok(())
}

/// A daemon, where the way goes through one.
fn daemon_of(place: &Place, way: Way) -> Result<Option<Daemon>, String> {
    Ok(match way {
        Way::Daemon => Some(place.daemon("0us")?),
        Way::DaemonSpin => Some(place.daemon(place::SPIN)?),
        Way::Loopback | Way::Unix => None,
    })
}

/// Nanoseconds.
struct Nanoseconds {
    p50: f64,
    p99: f64,
}

/// One byte there and back, again and again: the server on the first core, the client on the second.
fn request(place: &Place, way: Way, spins: bool, effort: &Effort) -> Result<Nanoseconds, String> {
    let at = place.at(way, 1);
    let serve = Role::Echo {
        at: at.clone(),
        spins,
    };
    let mut server = place.start(way, Some(0), &serve)?;
    server.hear()?;
    let ask = Role::Ask {
        at,
        spins,
        warm: effort.times / 10,
        times: effort.times,
    };
    let said = place.start(way, Some(1), &ask)?.hear()?;
    let latency: Latency = serde_json::from_str(&said).map_err(|e| format!("{e}: {said}"))?;
    #[allow(clippy::cast_precision_loss)] // seconds, at most
    Ok(Nanoseconds {
        p50: latency.p50 as f64,
        p99: latency.p99 as f64,
    })
}

/// Bits a second from one program to the other.
fn bulk(place: &Place, way: Way, effort: &Effort) -> Result<f64, String> {
    let at = place.at(way, 2);
    let mut sink = place.start(way, Some(0), &Role::Sink { at: at.clone() })?;
    sink.hear()?;
    let time = effort.bulk;
    let _source = place.start(way, Some(1), &Role::Source { at, time })?;
    sink.hear()?.parse().map_err(|e| format!("{e}"))
}

/// GETs a second of redis-benchmark with 50 clients.
fn redis(place: &Place, way: Way, effort: &Effort) -> Result<f64, String> {
    let (file, at) = (place.folder.join("redis.sock"), place.at(way, 3));
    let path = file.display().to_string();
    let (server, client): (Vec<String>, Vec<String>) = match &at {
        program::At::Tcp(address) => {
            let (ip, port) = (address.ip().to_string(), address.port().to_string());
            (
                ["--bind", &ip, "--port", &port].map(str::to_owned).to_vec(),
                ["-h", &ip, "-p", &port].map(str::to_owned).to_vec(),
            )
        }
        program::At::Unix(_) => (
            ["--port", "0", "--unixsocket", &path]
                .map(str::to_owned)
                .to_vec(),
            ["-s", &path].map(str::to_owned).to_vec(),
        ),
    };
    let mut command = place.program(way, Some(0))?;
    command.arg("redis-server").args(server);
    command
        .args(["--protected-mode", "no", "--save", "", "--dir"])
        .arg(&place.folder);
    let mut server = Running::start(command)?;
    // From the kernel's side: redis-benchmark turns for ever where a server is not there yet.
    let is_up = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(25));
        let ping = place.program(Way::Loopback, None);
        ping.is_ok_and(|mut ping| {
            let answer = ping.arg("redis-cli").args(&client).arg("ping").output();
            answer.is_ok_and(|answer| answer.stdout.starts_with(b"PONG"))
        })
    });
    if !is_up {
        let ended = server.0.try_wait();
        return Err(format!("redis does not answer over {way:?}: {ended:?}"));
    }
    let (mut command, requests) = (place.program(way, Some(1))?, effort.requests.to_string());
    command.arg("redis-benchmark").args(&client);
    command.args(["-c", "50", "-n", &requests, "-t", "get", "--csv"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Running(command.spawn().map_err(|e| e.to_string())?);
    // It says less than a pipe holds.
    let ended = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !matches!(client.0.try_wait(), Ok(None))
    });
    let mut said = Vec::new();
    if let Some(out) = client.0.stdout.as_mut().filter(|_| ended) {
        out.read_to_end(&mut said).map_err(|e| e.to_string())?;
    }
    rate_of(&said).ok_or_else(|| format!("redis-benchmark gave no figure over {way:?}"))
}

/// The second field of the line of `GET`, in quotes.
fn rate_of(said: &[u8]) -> Option<f64> {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().find(|line| line.starts_with("\"GET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

/// A process; dropped, it is killed.
struct Running(std::process::Child);

impl Running {
    fn start(mut command: Command) -> Result<Self, String> {
        let null = Stdio::null;
        command.stdin(null()).stdout(null()).stderr(null());
        command
            .spawn()
            .map(Self)
            .map_err(|e| format!("{command:?}: {e}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of the daemon and the two programs while their connections say nothing.
fn idle(place: &Place, daemon: &Daemon, effort: &Effort) -> Result<Row, String> {
    let (at, connections) = (place.at(Way::Daemon, 4), effort.connections);
    let hold = Role::Hold {
        at: at.clone(),
        connections,
    };
    let mut server = place.start(Way::Daemon, None, &hold)?;
    server.hear()?;
    let mut client = place.start(Way::Daemon, None, &Role::Open { at, connections })?;
    client.hear()?;
    server.hear()?;
    thread::sleep(Duration::from_secs(1));
    let used = || {
        let pids = [daemon.pid(), server.pid(), client.pid()];
        let all = pids.map(|pid| Usage::of(pid).map(|usage| usage.processor_ns));
        all.into_iter()
            .sum::<std::io::Result<f64>>()
            .map_err(|e| e.to_string())
    };
    let (before, seconds) = (used()?, 4);
    thread::sleep(Duration::from_secs(seconds));
    let percent = (used()? - before) / 1e9 / 4.0 * 100.0;
    Ok(Row::new(
        &format!("idle_{connections}_cpu_percent"),
        &Sample::of(vec![percent]),
    )
    .target("0.0"))
}

/// Programs that are killed at moments by chance: what the daemon has after that and had not before, in bytes shared, descriptors and leases together.
fn storm(place: &Place, daemon: &Daemon, effort: &Effort) -> Result<Row, String> {
    let look = || {
        let leases = daemon.show("leases")?.as_array().map_or(0, Vec::len);
        #[allow(clippy::cast_precision_loss)] // below 2^52
        Ok::<_, String>((daemon.shared_bytes()? + (daemon.descriptors()? + leases) as u64) as f64)
    };
    // The least of some looks, half a second after the last kill: each look is a client of the daemon itself.
    let has = || {
        let looks = (0..5).map(|_| {
            thread::sleep(Duration::from_millis(100));
            look()
        });
        looks.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(0.0))
    };
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut killed = |programs: usize| -> Result<(), String> {
        let mut running: Vec<Player> = Vec::new();
        for number in 0..programs {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = place.at(
                Way::Daemon,
                10 + u16::try_from(number % 50_000).unwrap_or(0),
            );
            running.push(place.start(Way::Daemon, None, &Role::Echo { at, spins: false })?);
            thread::sleep(Duration::from_millis(random % 30));
            // Eight live at a time: some are killed while they ask, some while they serve.
            if running.len() > 8 {
                drop(running.swap_remove((random >> 32) as usize % 8));
            }
        }
        Ok(())
    };
    killed(10)?; // what is made once stays
    let before = has()?;
    killed(effort.storm)?;
    let left = (has()? - before).max(0.0);
    Ok(Row::new("storm_leaks", &Sample::of(vec![left]))
        .reference(&format!("{} programs killed", effort.storm))
        .target("0"))
}
