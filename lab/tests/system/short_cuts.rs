//! Two programs on one daemon: what they send to each other goes past it, unless something of the daemon's has to see it.

use std::{fs, time::Duration};

use crate::{
    Case, Outcome,
    daemon::Served,
    place::{Knobs, OURS, SOON, netchan, socket_address},
    process::{Process, eventually},
    transfer::{fetch, make_file},
};

pub const CASES: &[Case] = &[
    ("programs_send_past_their_daemon", past),
    ("short_cuts_wait_while_something_looks", watched),
    ("the_end_of_a_peer_is_heard_past_the_daemon", heard),
    ("a_daemon_that_is_killed_leaves_none_waiting", orphaned),
];

/// Packets that the daemon has carried between programs.
fn carried(served: &Served) -> Result<u64, String> {
    let leases = served.leases()?;
    Ok(leases
        .iter()
        .filter_map(|lease| lease["packets_in"].as_u64())
        .sum())
}

/// Files between two programs, over both families: each byte arrives, and the daemon carries the first packets alone.
fn past(_: &Knobs) -> Outcome {
    const MIB: usize = 128;
    let served = Served::new()?;
    let place = &served.place;
    let files = place.folder.join("files");
    fs::create_dir(&files).map_err(|e| e.to_string())?;
    let sum = make_file(&files.join("large"), MIB)?;
    let mut server = served.web_server("8000")?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    for address in OURS {
        let url = format!("http://{}/large", socket_address(address, 8000));
        let before = carried(&served)?;
        fetch(place, served.command("curl", &[])?, &url, &sum, MIB)
            .map_err(|e| format!("{e}; server: {}", server.said()))?;
        // At 64 KiB each the file alone is 2,048.
        let carried = carried(&served)? - before;
        println!("    {address}: the daemon carried {carried} packets");
        if carried > 1000 {
            return Err(format!("{address}: the daemon carried {carried} packets"));
        }
    }
    let counts = served.leases()?;
    let short_cuts = |lease: &serde_json::Value| lease["short_cuts"].as_u64();
    match counts.first().and_then(short_cuts) {
        Some(2) => Ok(()),
        other => Err(format!("short cuts of the server: {other:?}")),
    }
}

/// A server that sends back what comes, of several connections.
const ECHO: &str = "import socket,threading\nl=socket.socket()\nl.bind(('',8000))\nl.listen(64)\ndef serve(c):\n  while True:\n    b=c.recv(1<<20)\n    if not b: return\n    c.sendall(b)\nwhile True:\n  c,_=l.accept()\n  threading.Thread(target=serve,args=(c,),daemon=True).start()";

/// Sends something and waits for it, again and again, until a file is there.
const ASK: &str = "import os,socket,sys,time\ns=socket.create_connection((sys.argv[1],8000))\ns.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)\ns.settimeout(30)\nn=0\nprint('open',flush=True)\nend=time.monotonic()+90\nwhile not os.path.exists('stop') and time.monotonic()<end:\n  b=b'%08d'%n\n  s.sendall(b)\n  r=b''\n  while len(r)<8: r+=s.recv(8)\n  assert r==b,(r,b)\n  n+=1\n  time.sleep(0.001)\nprint('asked',n)";

/// A capture at the daemon sees each packet between two programs, and a module rules them; before and after that they go past it.
fn watched(_: &Knobs) -> Outcome {
    let served = Served::new()?;
    let place = &served.place;
    let mut server = served.start("python3", &["-c", ECHO], "echo")?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    let client = served.start("python3", &["-c", ASK, OURS[0]], "client")?;
    let moves = |wanted: bool| {
        let mut last = carried(&served).unwrap_or(0);
        eventually(SOON, || {
            let now = carried(&served).unwrap_or(0);
            std::mem::replace(&mut last, now).abs_diff(now) == 0 && !wanted || wanted && now > last
        })
    };
    let is_open = eventually(SOON, || client.said().contains("open"));
    if !is_open || !moves(false) {
        return Err(format!("they do not go past the daemon: {}", client.said()));
    }
    // Two hundred packets of the connection's, which begin in the middle of it.
    let program = netchan()?.to_string_lossy().into_owned();
    let pid = served.daemon.pid().to_string();
    let capture = ["capture", "--pid", &pid, "--count", "200", "tcp port 8000"];
    let seen = place.start(&program, &capture)?.finish(SOON)?.success()?;
    if seen.output.lines().count() < 200 {
        return Err(seen.describe());
    }
    if !moves(false) {
        return Err("they do not go past the daemon again".into());
    }
    module(
        &served,
        &[
            "load",
            "wall",
            "kind=filter",
            "rules=[\"drop in proto tcp to any port 8000\"]",
        ],
    )?;
    let late = served.start("python3", &["-c", ASK, OURS[0]], "late")?;
    std::thread::sleep(Duration::from_secs(1));
    if late.said().contains("open") {
        return Err(format!("a module drops it: {}", late.said()));
    }
    module(&served, &["unload", "wall"])?;
    if !eventually(SOON, || late.said().contains("open")) {
        return Err(format!("it stays dropped: {}", late.said()));
    }
    fs::write(place.folder.join("stop"), "").map_err(|e| e.to_string())?;
    let finished = client.finish(Duration::from_secs(40))?.success()?;
    match finished.output.contains("asked") {
        true => Ok(()),
        false => Err(finished.describe()),
    }
}

fn module(served: &Served, arguments: &[&str]) -> Outcome {
    let pid = served.daemon.pid().to_string();
    let (first, rest) = arguments.split_first().ok_or("no argument")?;
    let all = [&["module", first, "--pid", &pid], rest].concat();
    let program = netchan()?.to_string_lossy().into_owned();
    served.place.run(&program, &all, SOON)?.success().map(drop)
}

/// Opens three connections, sends much over each (more than a window), and waits for their ends.
const HOLD: &str = "import socket,sys\nall=[]\nfor n in range(3):\n  s=socket.create_connection((sys.argv[1],8000))\n  for _ in range(64):\n    s.sendall(bytes(1<<20))\n    left=1<<20\n    while left: left-=len(s.recv(left))\n  all.append(s)\nprint('open',flush=True)\nfor s in all:\n  s.settimeout(15)\n  try:\n    print('read',s.recv(1))\n  except ConnectionResetError:\n    print('reset')";

/// A program that is killed: its peers on the same daemon hear of that, also where the daemon has seen nothing of a connection, or its first packets alone.
fn heard(_: &Knobs) -> Outcome {
    let served = Served::new()?;
    let place = &served.place;
    for round in 0..3 {
        let mut server = served.start("python3", &["-c", ECHO], "echo")?;
        place.wait_for(&mut server, OURS[0], 8000)?;
        let client = served.start("python3", &["-c", HOLD, OURS[0]], "client")?;
        if !eventually(Duration::from_secs(40), || client.said().contains("open")) {
            return Err(format!("round {round}: no connection: {}", client.said()));
        }
        server.kill()?;
        let heard = client.finish(SOON)?.success()?;
        if heard.output.matches("reset").count() != 3 {
            return Err(format!("round {round}: {}", heard.describe()));
        }
        drop(server);
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

/// Opens a connection, sends a byte there and back, and waits for the end of it.
const WAIT: &str = "import socket,sys\ns=socket.create_connection((sys.argv[1],8000))\ns.sendall(b'x')\nassert s.recv(1)==b'x'\nprint('open',flush=True)\ntry:\n  print('read',s.recv(1))\nexcept OSError as e:\n  print('error',e.errno)";

/// More programs than a server has short cuts; each serves its user, and none hangs when the daemon is killed.
fn orphaned(knobs: &Knobs) -> Outcome {
    let many = if knobs.soak { 200 } else { 20 };
    let mut served = Served::new()?;
    let mut server = served.start("python3", &["-c", ECHO], "echo")?;
    served.place.wait_for(&mut server, OURS[0], 8000)?;
    let start = |n| served.start("python3", &["-c", WAIT, OURS[0]], &format!("client-{n}"));
    let clients = (0..many).map(start).collect::<Result<Vec<_>, _>>()?;
    let are_open = || clients.iter().all(|client| client.said().contains("open"));
    if !eventually(Duration::from_secs(60), are_open) {
        let said: Vec<_> = clients.iter().map(Process::said).collect();
        return Err(format!("not all are connected: {said:?}"));
    }
    let short_cuts = |lease: &serde_json::Value| lease["short_cuts"].as_u64();
    let most = served.leases()?.iter().filter_map(short_cuts).max();
    if most != Some(16) {
        return Err(format!("short cuts of the server: {most:?}"));
    }
    served.daemon.kill()?;
    for client in clients {
        let heard = client.finish(SOON)?.success()?;
        if !heard.output.contains("error") {
            return Err(heard.describe());
        }
    }
    // The server's accept(2) fails, too.
    if !eventually(SOON, || !server.is_running()) || served.daemon.is_running() {
        return Err(format!("the server waits still: {}", server.said()));
    }
    Ok(())
}
