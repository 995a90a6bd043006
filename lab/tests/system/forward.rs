//! netchan as a router: Linux's own TCP on both sides, each in a namespace of its own, in every regime.

use std::fs;

use netchan::Regime;

use crate::{
    Case, Outcome,
    place::{Place, SOON, find, netchan, socket_address},
    process::{Process, eventually},
    transfer::{fetch, make_file, web_server},
};

pub const CASES: &[Case] = &[("linux_to_linux_through_every_regime", |_| {
    for regime in Regime::here().map(Regime::name) {
        through(regime).map_err(|e| format!("{regime}: {e}"))?;
    }
    Ok(())
})];

/// The far side's own addresses, and netchan's on that link, whose MTU is less.
const FAR: [&str; 2] = ["10.78.0.1", "fd78::1"];
const CONFIG: &str = r#"
[[link]]
kind = "tap"
name = "nc0"
address = ["10.77.0.2/24", "fd77::2/64"]

[[link]]
kind = "tap"
name = "nc1"
address = ["10.78.0.2/24", "fd78::2/64"]
options = { mtu = 1400 }

[[module]]
name = "wall"
kind = "filter"
rules = ["drop forward proto tcp to any port 8002"]
"#;

/// The near side, the far side, and the router, whose process (a web server, itself) lives on the near side.
struct Routed {
    near: Place,
    far: Place,
    router: Process,
}

impl Routed {
    fn new(regime: &str) -> Result<Self, String> {
        let (near, far) = (Place::new()?, Place::new()?);
        near.tap("nc0")?;
        near.ip(&["tuntap", "add", "mode", "tap", "name", "nc1"])?;
        let file = near.folder.join("router.toml");
        fs::write(&file, CONFIG).map_err(|e| e.to_string())?;
        let python = find("python3").ok_or("python3 is missing")?;
        let mut command = near.command(&netchan()?.to_string_lossy());
        command.args(["run", "--forwarding", "--regime", regime, "--config"]);
        command.arg(&file).arg("--").arg(python);
        command.args(web_server(false));
        let mut router = Process::start(command, &near.folder, "router")?;
        near.wait_for(&mut router, "10.77.0.2", 8000)?;
        // netchan holds the TAP, wherever its kernel's end goes.
        near.give("nc1", &far)?;
        far.ip(&["address", "add", "10.78.0.1/24", "dev", "nc1"])?;
        far.ip(&["-6", "address", "add", "fd78::1/64", "dev", "nc1", "nodad"])?;
        far.ip(&["link", "set", "nc1", "up"])?;
        near.ip(&["route", "add", "10.78.0.0/24", "via", "10.77.0.2"])?;
        near.ip(&["-6", "route", "add", "fd78::/64", "via", "fd77::2"])?;
        far.ip(&["route", "add", "10.77.0.0/24", "via", "10.78.0.2"])?;
        far.ip(&["-6", "route", "add", "fd77::/64", "via", "fd78::2"])?;
        Ok(Self { near, far, router })
    }

    fn counter(&self, topic: &str, name: &str, what: &str) -> Result<u64, String> {
        let rows = self.near.show(self.router.pid(), topic)?;
        let mut rows = rows.as_array().ok_or("no rows")?.iter();
        let row = rows.find(|row| row["name"] == name);
        row.and_then(|row| row[what].as_u64())
            .ok_or_else(|| format!("no {name}"))
    }
}

fn through(regime: &str) -> Outcome {
    let routed = Routed::new(regime)?;
    let sum = make_file(&routed.far.folder.join("large"), 16)?;
    let reach = || {
        let ping = |to| routed.near.run("ping", &["-c", "1", "-W", "1", to], SOON);
        FAR.iter()
            .all(|to| ping(to).is_ok_and(|said| said.status.success()))
    };
    if !eventually(SOON, reach) {
        return Err(format!(
            "the far side does not answer: {}",
            routed.router.said()
        ));
    }
    for (v6, to) in [(false, FAR[0]), (true, FAR[1])] {
        let mut server = routed.far.start("python3", &far_server(v6))?;
        routed.near.wait_for(&mut server, to, 8001)?;
        let url = format!("http://{}/large", socket_address(to, 8001));
        fetch(&routed.near, routed.near.command("curl"), &url, &sum, 16)?;
    }
    // The router serves the far side, too.
    let own = format!("http://{}/router.toml", socket_address("10.78.0.2", 8000));
    let ask = ["--silent", "--fail", "--max-time", "20", &own];
    let said = routed.far.run("curl", &ask, SOON)?.success()?;
    if said.output != CONFIG {
        return Err(format!("{own} is not what it was: {}", said.output));
    }
    errors(&routed)?;
    walled(&routed)?;
    match routed.counter("counters", "forwarded", "value")? {
        // 16 MiB in segments of 1348 bytes at most, twice.
        packets if packets > 2 * (16 << 20) / 1348 => Ok(()),
        packets => Err(format!("{packets} packets were forwarded")),
    }
}

const fn far_server(v6: bool) -> [&'static str; 5] {
    let bind = if v6 { "::" } else { "0.0.0.0" };
    ["-m", "http.server", "8001", "--bind", bind]
}

/// What the kernel makes of the router's ICMP errors.
fn errors(routed: &Routed) -> Outcome {
    let cases: [(&[&str], &str); 4] = [
        (&["-t", "1", FAR[0]], "Time to live exceeded"),
        (&["-t", "1", FAR[1]], "Hop limit"),
        (&["-M", "do", "-s", "1472", FAR[0]], "1400"),
        (&["-M", "do", "-s", "1452", FAR[1]], "1400"),
    ];
    for (arguments, expected) in cases {
        let arguments = [&["-c", "1", "-W", "2"], arguments].concat();
        let said = routed.near.run("ping", &arguments, SOON)?;
        let all = said.describe();
        if said.status.success() || !all.contains(expected) {
            return Err(format!(
                "ping {arguments:?} did not say {expected:?}: {all}"
            ));
        }
    }
    // Without DF the router cuts what is too long, and Linux puts it together.
    let cut = ["-c", "2", "-W", "5", "-M", "dont", "-s", "1472", FAR[0]];
    routed.near.run("ping", &cut, SOON)?.success()?;
    Ok(())
}

/// The filter at `forward` shuts one port.
fn walled(routed: &Routed) -> Outcome {
    let url = format!("http://{}/", socket_address(FAR[0], 8002));
    let ask = ["--silent", "--connect-timeout", "2", &url];
    let said = routed.near.run("curl", &ask, SOON)?;
    // 7 would be "refused", which is what the far side says of that port.
    if said.status.code() != Some(28) {
        return Err(format!("port 8002 is not shut: {}", said.describe()));
    }
    match routed.counter("modules", "wall", "dropped_packets")? {
        0 => Err("the filter dropped nothing".to_owned()),
        _ => Ok(()),
    }
}
