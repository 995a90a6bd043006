//! Unmodified programs: an event loop, datagrams, ping, each regime, and the kernel's sockets beside netchan's.

use std::time::Duration;

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, SOON, socket_address},
    process::Process,
    transfer::{fetch, make_file, place_for, web_server},
};

pub const CASES: &[Case] = &[
    ("ping_is_answered", ping),
    ("every_regime_serves", regimes),
    ("asyncio_echoes", asyncio),
    ("datagrams_come_back", datagrams),
    ("kernel_sockets_stay_usable", beside),
    ("show_answers", show),
];

/// An echo server on both families, with asyncio's event loop (epoll).
pub const ECHO: &str = "\
import asyncio
async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
async def main():
    servers = [await asyncio.start_server(echo, host, 8000, backlog=4096) for host in ('0.0.0.0', '::')]
    await asyncio.gather(*(s.serve_forever() for s in servers))
asyncio.run(main())
";

fn ping(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let mut server = place.start_netchan("tap:nc0", "python3", &web_server(false))?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    for address in OURS {
        for size in ["8", "1400", "6000"] {
            let arguments = ["-c", "5", "-i", "0.05", "-W", "2", "-s", size, address];
            let said = place.run("ping", &arguments, SOON)?.success()?;
            if !said.output.contains(" 0% packet loss") {
                return Err(said.describe());
            }
        }
    }
    Ok(())
}

fn regimes(_: &Knobs) -> Outcome {
    for regime in netchan::Regime::here().map(netchan::Regime::name) {
        let place = place_for("tap:nc0")?;
        let sum = make_file(&place.folder.join("large"), 32)?;
        let command = place.netchan_run_in(regime, "tap:nc0", "python3", &web_server(false))?;
        let mut server = Process::start(command, &place.folder, "server")?;
        place.wait_for(&mut server, OURS[0], 8000)?;
        let url = format!("http://{}/large", socket_address(OURS[0], 8000));
        fetch(&place, place.command("curl"), &url, &sum, 32)
            .map_err(|e| format!("{regime}: {e}"))?;
    }
    Ok(())
}

fn asyncio(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let mut server = place.start_netchan("tap:nc0", "python3", &["-c", ECHO])?;
    for address in OURS {
        place.wait_for(&mut server, address, 8000)?;
        let target = socket_address(address, 8000);
        place
            .inner(&["connections", &target, "400", "4"])?
            .finish(SOON)?
            .success()?;
    }
    Ok(())
}

fn datagrams(_: &Knobs) -> Outcome {
    let server = "\
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(('::', 5353))
while True:
    data, peer = s.recvfrom(65536)
    s.sendto(data[::-1], peer)
";
    let client = "\
import socket, sys
for host, size in ((h, n) for h in sys.argv[1:] for n in (0, 1, 100, 1400, 3000, 20000)):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.5)
    data = bytes(i * 7 % 256 for i in range(size))
    for attempt in range(20):
        try:
            s.sendto(data, (host, 5353))
            got = s.recv(65536)
            break
        except (TimeoutError, ConnectionRefusedError):
            pass
    else:
        sys.exit(f'{host}: no answer to {size} bytes')
    if got != data[::-1]:
        sys.exit(f'{host}: another answer to {size} bytes')
";
    let place = place_for("tap:nc0")?;
    let mut server = place.start_netchan("tap:nc0", "python3", &["-c", server])?;
    let done = place.run(
        "python3",
        &["-c", client, OURS[0], OURS[1]],
        Duration::from_secs(60),
    );
    if !server.is_running() {
        return Err(format!("the server ended: {}", server.said()));
    }
    done?.success().map(drop)
}

/// A program's files, pipes, UNIX sockets and 127.0.0.1 are still the kernel's.
fn beside(_: &Knobs) -> Outcome {
    let program = "\
import socket, subprocess, sys
a, b = socket.socketpair(socket.AF_UNIX)
a.send(b'x'); assert b.recv(1) == b'x'
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname()); s, _ = l.accept()
c.send(b'y'); assert s.recv(1) == b'y'
assert subprocess.run(['/bin/echo', 'z'], capture_output=True).stdout == b'z\\n'
r = socket.create_connection((sys.argv[1], 8000), timeout=5)
r.send(b'GET /large HTTP/1.0\\r\\n\\r\\n')
assert r.recv(100).startswith(b'HTTP/1.0 200')
print('done')
";
    let place = place_for("tap:nc0")?;
    make_file(&place.folder.join("large"), 1)?;
    let mut server = place.start("python3", &web_server(false))?;
    place.wait_for(&mut server, KERNEL[0], 8000)?;
    let run = place.start_netchan("tap:nc0", "python3", &["-c", program, KERNEL[0]])?;
    let done = run.finish(SOON)?.success()?;
    if done.output.contains("done") {
        Ok(())
    } else {
        Err(done.describe())
    }
}

/// `netchan show` has an answer for every topic, and the listener is among the sockets.
fn show(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let mut server = place.start_netchan("tap:nc0", "python3", &web_server(false))?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    for topic in [
        "links",
        "addresses",
        "routes",
        "neighbors",
        "sockets",
        "channels",
        "shards",
        "threads",
        "counters",
        "memory",
        "settings",
    ] {
        let shown = place
            .show(server.pid(), topic)
            .map_err(|e| format!("{topic}: {e}"))?;
        if topic == "sockets" && !shown.to_string().contains("8000") {
            return Err(format!("no socket at port 8000: {shown}"));
        }
    }
    Ok(())
}
