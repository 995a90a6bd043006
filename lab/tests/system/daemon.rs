//! `netchan daemon`: one link, one address, and several unmodified programs that run TCP in processes of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, Place, SOON, netchan, socket_address},
    process::{Process, eventually},
    transfer::{fetch, make_file, place_for},
};

pub const CASES: &[Case] = &[
    ("programs_share_a_daemon", programs),
    ("a_killed_program_leaves_nothing", killed),
    ("a_daemon_that_ends_is_noticed", ended),
    ("programs_through_a_daemon_are_measured", measured),
];

/// A place with a daemon on its TAP.
pub struct Served {
    pub place: Place,
    pub daemon: Process,
}

impl Served {
    pub fn new() -> Result<Self, String> {
        let place = place_for("tap:nc0")?;
        let command = command(&place, "tap:nc0", &socket(&place))?;
        let mut daemon = Process::start(command, &place.folder, "daemon")?;
        let is_there = eventually(SOON, || socket(&place).exists() || !daemon.is_running());
        if !is_there || !daemon.is_running() {
            return Err(format!("the daemon did not come up: {}", daemon.said()));
        }
        Ok(Self { place, daemon })
    }

    /// Another daemon in the same place: on a link, at a socket by name.
    pub fn another(&self, link: &str, socket: &str) -> Result<Command, String> {
        command(&self.place, link, &self.place.folder.join(socket))
    }

    /// A program whose sockets are the daemon's.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Result<Command, String> {
        let path = crate::place::find(program).ok_or_else(|| format!("{program} is missing"))?;
        let mut command = self.place.command(&netchan()?.to_string_lossy());
        let link = format!("daemon:{}", socket(&self.place).display());
        command.args(["run", "--link", &link, "--"]).arg(path);
        command.args(arguments);
        Ok(command)
    }

    pub fn start(&self, program: &str, arguments: &[&str], name: &str) -> Result<Process, String> {
        Process::start(self.command(program, arguments)?, &self.place.folder, name)
    }

    /// Python's web server on the daemon, with the folder's files.
    pub fn web_server(&self, port: &str) -> Result<Process, String> {
        let arguments = [
            "-m",
            "http.server",
            port,
            "--bind",
            "::",
            "--directory",
            "files",
        ];
        self.start("python3", &arguments, &format!("web-{port}"))
    }

    /// What the daemon says of its leases.
    pub fn leases(&self) -> Result<Vec<serde_json::Value>, String> {
        let shown = self.place.show(self.daemon.pid(), "leases")?;
        shown.as_array().cloned().ok_or_else(|| shown.to_string())
    }
}

/// The daemon of a link, at a socket.
fn command(place: &Place, link: &str, socket: &Path) -> Result<Command, String> {
    let mut command = place.command(&netchan()?.to_string_lossy());
    let (v4, v6) = (format!("{}/24", OURS[0]), format!("{}/64", OURS[1]));
    command.args(["daemon", "--link", link, "--address", &v4]);
    command.args(["--address", &v6]);
    command.args(["--gateway", KERNEL[0], "--gateway", KERNEL[1]]);
    command.arg("--socket").arg(socket);
    Ok(command)
}

/// Where the daemon listens.
pub fn socket(place: &Place) -> PathBuf {
    place.folder.join("daemon.sock")
}

/// Two servers and two clients on one address, against the kernel and against each other.
fn programs(_: &Knobs) -> Outcome {
    const MIB: usize = 32;
    let served = Served::new()?;
    let place = &served.place;
    let files = place.folder.join("files");
    fs::create_dir(&files).map_err(|e| e.to_string())?;
    let sum = make_file(&files.join("large"), MIB)?;
    let mut first = served.web_server("8000")?;
    let mut second = served.web_server("8001")?;
    for (server, port) in [(&mut first, 8000), (&mut second, 8001)] {
        for address in OURS {
            place.wait_for(server, address, port)?;
            let url = format!("http://{}/large", socket_address(address, port));
            fetch(place, place.command("curl"), &url, &sum, MIB)
                .map_err(|e| format!("{e}; server: {}", server.said()))?;
        }
    }
    // From a third program on the daemon: of the kernel, and of the other two.
    let arguments = [
        "-m",
        "http.server",
        "8002",
        "--bind",
        "::",
        "--directory",
        "files",
    ];
    let mut kernel = place.start("python3", &arguments)?;
    for address in KERNEL {
        place.wait_for(&mut kernel, address, 8002)?;
    }
    for (addresses, port) in [(KERNEL, 8002), (OURS, 8000), (OURS, 8001)] {
        for address in addresses {
            let url = format!("http://{}/large", socket_address(address, port));
            fetch(place, served.command("curl", &[])?, &url, &sum, MIB)
                .map_err(|e| format!("{url}: {e}; daemon: {}", served.daemon.said()))?;
        }
    }
    // A port that another program has is in use.
    let taken = served.web_server("8000")?.finish(SOON)?;
    if taken.status.success() || !taken.describe().contains("Address already in use") {
        return Err(format!("port 8000 twice: {}", taken.describe()));
    }
    Ok(())
}

/// What a killed program had is free at once; its peers hear of it, and the next program has its port.
fn killed(_: &Knobs) -> Outcome {
    let served = Served::new()?;
    let place = &served.place;
    fs::create_dir(place.folder.join("files")).map_err(|e| e.to_string())?;
    for round in 0..3 {
        let mut server = served.web_server("8000")?;
        place.wait_for(&mut server, OURS[0], 8000)?;
        // A client that only waits: nothing but a reset tells it.
        let waits = "import socket,sys; s=socket.create_connection((sys.argv[1],8000)); print('open',flush=True); s.settimeout(15)\ntry:\n  print('read',s.recv(1))\nexcept ConnectionResetError:\n  print('reset')";
        let client = place.start("python3", &["-c", waits, OURS[0]])?;
        if !eventually(SOON, || client.said().contains("open")) {
            return Err(format!("round {round}: no connection: {}", client.said()));
        }
        server.kill()?;
        let heard = client.finish(SOON)?.success()?;
        if !heard.output.contains("reset") {
            return Err(format!("round {round}: {}", heard.describe()));
        }
        if !eventually(Duration::from_secs(2), || {
            served.leases().is_ok_and(|l| l.is_empty())
        }) {
            return Err(format!(
                "round {round}: leases are left: {:?}",
                served.leases()
            ));
        }
    }
    Ok(())
}

/// Programs whose daemon ends get an error, and do not hang.
fn ended(_: &Knobs) -> Outcome {
    let served = Served::new()?;
    let place = &served.place;
    let reads = "import socket,sys; s=socket.create_connection((sys.argv[1],int(sys.argv[2]))); print('open',flush=True)\ntry:\n  print('read',s.recv(1))\nexcept OSError as e:\n  print('error',e.errno)";
    let listens = "import socket; l=socket.socket(); l.bind(('',9000)); l.listen(); print('up',flush=True); c=l.accept(); print('accepted',flush=True); c[0].recv(1)";
    let kernel = place.start("python3", &["-c", listens])?;
    if !eventually(SOON, || kernel.said().contains("up")) {
        return Err(format!("no listener: {}", kernel.said()));
    }
    let client = served.start("python3", &["-c", reads, KERNEL[0], "9000"], "client")?;
    if !eventually(SOON, || client.said().contains("open")) {
        return Err(format!("no connection: {}", client.said()));
    }
    let pid = i32::try_from(served.daemon.pid())
        .ok()
        .and_then(Pid::from_raw);
    kill_process(pid.ok_or("the daemon has no pid")?, Signal::TERM).map_err(|e| e.to_string())?;
    let heard = client.finish(SOON)?.success()?;
    if !heard.output.contains("error") {
        return Err(heard.describe());
    }
    Ok(())
}

/// `netchan lab run applications`: every figure is there, and nothing is left of programs that are killed at moments by chance.
fn measured(_: &Knobs) -> Outcome {
    let file = Place::new()?;
    let path = file.folder.join("report.json");
    let mut command = Command::new(netchan()?);
    command
        .args(["lab", "run", "applications", "--quick", "--json"])
        .arg(&path);
    let run = Process::start(command, &file.folder, "lab")?;
    run.finish(Duration::from_secs(120))?.success()?;
    let report = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let report: serde_json::Value = serde_json::from_str(&report).map_err(|e| e.to_string())?;
    let value = |id: &str| {
        let mut rows = report["rows"].as_array().into_iter().flatten();
        rows.find(|row| row["id"] == id)?["value"].as_f64()
    };
    for id in [
        "rr_spin_p50_ns",
        "rr_block_p50_ns",
        "bulk_gbit_per_s",
        "hostile_words_per_s",
    ] {
        if value(id).is_none_or(|value| value <= 0.0) {
            return Err(format!("{id}: {:?}", value(id)));
        }
    }
    match value("storm_leaks") {
        Some(0.0) => Ok(()),
        other => Err(format!("storm_leaks: {other:?}")),
    }
}
