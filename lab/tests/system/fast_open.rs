//! TCP Fast Open (RFC 7413) between unmodified programs on netchan and on Linux, both roles: MSG_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN.

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{KERNEL, OURS, Place, SOON},
    process::Process,
    transfer::place_for,
};

pub const CASES: &[Case] = &[
    ("fast_open_serves", |_| serves()),
    ("fast_open_connects", |_| connects()),
];

/// Sends everything back, and before it whether text came in the SYN (`TCPI_OPT_SYN_DATA`).
const SERVER: &str = "\
import socket
l = socket.socket(socket.AF_INET6)
l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
l.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
assert l.getsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN) == 16
l.bind(('::', 8000))
l.listen()
while True:
    s, _ = l.accept()
    data = b''
    while more := s.recv(65536):
        data += more
    options = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
    s.sendall((b'F' if options & 32 else b'-') + data)
    s.close()
";

/// Says how each way went: the server's word for it and the client's own, three times, of which the first of a host has no cookie yet.
const CLIENT: &str = "\
import errno, select, socket, sys
FASTOPEN_CONNECT = 30
def blocking(s, to, data):
    assert s.sendto(data, socket.MSG_FASTOPEN, to) == len(data)
def at_first_write(s, to, data):
    s.setsockopt(socket.IPPROTO_TCP, FASTOPEN_CONNECT, 1)
    s.connect(to)
    s.sendall(data)
def in_time(s, to, data):
    s.setblocking(False)
    try:
        sent = s.sendto(data, socket.MSG_FASTOPEN, to)
    except OSError as e:
        assert e.errno == errno.EINPROGRESS, e
        sent = 0
    p = select.poll()
    p.register(s, select.POLLOUT)
    p.poll()
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    s.setblocking(True)
    s.sendall(data[sent:])
for host in sys.argv[1:]:
    for way in (blocking, at_first_write, in_time):
        for length in (1, 1000, 30000):
            s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
            data = bytes(i * 7 % 256 for i in range(length))
            way(s, (host, 8000), data)
            s.shutdown(socket.SHUT_WR)
            got = b''
            while more := s.recv(65536):
                got += more
            assert got[1:] == data, f'{host} {way.__name__}: {len(got) - 1} of {length} bytes'
            options = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
            print(got[:1].decode() + ('F' if options & 32 else '-'), end=' ')
            s.close()
";

/// Without a cookie first; then in the SYN, whichever call asked for it.
const WANTED: &str = "-- FF FF FF FF FF FF FF FF";

fn allowed() -> Result<Place, String> {
    let place = place_for("tap:nc0")?;
    let both = ["-q", "-w", "net.ipv4.tcp_fastopen=3"];
    place.run("sysctl", &both, SOON)?.success()?;
    Ok(place)
}

fn check(client: Process, server: &Process) -> Outcome {
    let done = client.finish(SOON)?.success();
    let done = done.map_err(|e| format!("{e}; server: {}", server.said()))?;
    if done.output.trim() == format!("{WANTED} {WANTED}") {
        Ok(())
    } else {
        Err(format!("wanted {WANTED} for each family: {}", done.output))
    }
}

fn serves() -> Outcome {
    let place = allowed()?;
    let mut server = place.start_netchan("tap:nc0", "python3", &["-c", SERVER])?;
    place.wait_listening(&mut server, true, 8000)?;
    let client = place.start("python3", &["-c", CLIENT, OURS[0], OURS[1]])?;
    check(client, &server)?;
    let counters = place.show(server.pid(), "counters")?;
    for (name, wanted) in [
        ("tcp_fast_open_passive", 16),
        ("tcp_fast_open_cookie_reqd", 2),
    ] {
        let mut rows = counters.as_array().ok_or("no counters")?.iter();
        let row = rows.find(|row| row["name"] == name);
        let count = row.and_then(|row| row.get("value")).and_then(Value::as_u64);
        if count != Some(wanted) {
            return Err(format!("{name}: {count:?}, not {wanted}: {row:?}"));
        }
    }
    Ok(())
}

fn connects() -> Outcome {
    let place = allowed()?;
    let mut server = place.start("python3", &["-c", SERVER])?;
    place.wait_listening(&mut server, false, 8000)?;
    let arguments = ["-c", CLIENT, KERNEL[0], KERNEL[1]];
    let client = place.start_netchan("tap:nc0", "python3", &arguments)?;
    check(client, &server)
}
