//! What a person at a remote shell does: many small writes either way, each answered, with Nagle's algorithm and without it; and ssh itself, where there
//! is an sshd. Nothing here depends on how long an echo takes, only on every byte coming, once and in order.

use std::{fs, time::Duration};

use crate::{
    Case, Outcome,
    loss::lose,
    not_done,
    place::{KERNEL, Knobs, OURS, Place, SOON, find},
    process::Process,
    transfer::{kernel_device, place_for},
};

pub const CASES: &[Case] = &[
    ("typing_at_a_remote_shell", |k| typing(k, "tap:nc0")),
    ("typing_with_loss", typing_with_loss),
    ("ssh_on_netchan", ssh),
];

/// A shell of a kind: echoes each byte in a write of its own, and after a line prints some more, of a length that the line says.
const SHELL: &str = "\
import socket, sys, threading
def serve(s, number):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, number % 2)
    while data := s.recv(4096):
        for at in range(len(data)):
            byte = data[at:at + 1]
            s.sendall(byte)
            if byte < b' ':
                for i in range(byte[0]):
                    s.sendall(b'output %d of %d\\n' % (i, byte[0]))
    s.close()
l = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)
number = 0
while True:
    s, _ = l.accept()
    number += 1
    threading.Thread(target=serve, args=(s, number // 2), daemon=True).start()
";

/// The typist: a byte a write, waits for the echo at times and types ahead at others, and ends when the other end does. The arguments: lines, seed, hosts.
const TYPIST: &str = "\
import random, socket, sys, threading
failed = []
def type(host, nodelay, seed):
    try:
        work(host, nodelay, seed)
    except Exception as e:
        failed.append(f'{host}, nodelay {nodelay}, seed {seed}: {e!r}')
def work(host, nodelay, seed):
    dice = random.Random(seed)
    s = socket.create_connection((host, 8000))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    wanted, got = bytearray(), 0
    def wait():
        nonlocal got
        while got < len(wanted):
            data = s.recv(1 + dice.randrange(2000))
            assert data, f'the end after {got} of {len(wanted)} bytes'
            assert data == wanted[got:got + len(data)], f'other bytes after {got}'
            got += len(data)
    for line in range(int(sys.argv[1])):
        for letter in range(dice.randrange(12)):
            byte = bytes([dice.randrange(32, 256)])
            s.sendall(byte)
            wanted += byte
            if dice.randrange(3) == 0:
                wait()
        lines = dice.randrange(32)
        s.sendall(bytes([lines]))
        wanted += bytes([lines]) + b''.join(b'output %d of %d\\n' % (i, lines) for i in range(lines))
        if dice.randrange(2) == 0:
            wait()
    s.shutdown(socket.SHUT_WR)
    wait()
    assert s.recv(1) == b'', 'more than was to come'
typists = [threading.Thread(target=type, args=(host, nodelay, int(sys.argv[2]) + nodelay + 2 * twice))
    for host in sys.argv[3:] for nodelay in (0, 1) for twice in (0, 1)]
for t in typists: t.start()
for t in typists: t.join()
if failed: sys.exit('; '.join(failed))
";

/// Both roles; both ends of half of the connections with Nagle's algorithm.
fn typing(knobs: &Knobs, link: &str) -> Outcome {
    let lines = if knobs.soak { "2000" } else { "15" };
    for serving in [true, false] {
        shell(link, serving, lines, 0).map_err(|e| format!("netchan serving {serving}: {e}"))?;
    }
    Ok(())
}

fn typing_with_loss(knobs: &Knobs) -> Outcome {
    if !knobs.soak {
        return shell("packet:nc0", true, "6", 2);
    }
    for serving in [true, false] {
        for percent in [1, 5] {
            shell("packet:nc0", serving, "200", percent)
                .map_err(|e| format!("netchan serving {serving}, {percent} % lost: {e}"))?;
        }
    }
    Ok(())
}

fn shell(link: &str, serving: bool, lines: &str, lost_percent: usize) -> Outcome {
    let place = place_for(link)?;
    let seed = std::env::var("NETCHAN_SEED").unwrap_or_else(|_| "1".to_owned());
    let start = |on_netchan: bool, arguments: &[&str]| {
        let arguments = [&["-c"], arguments].concat();
        if on_netchan {
            place.start_netchan(link, "python3", &arguments)
        } else {
            place.start("python3", &arguments)
        }
    };
    let mut server = start(serving, &[SHELL])?;
    place.wait_listening(&mut server, serving, 8000)?;
    if lost_percent > 0 {
        lose(&place, kernel_device(link), lost_percent)?;
    }
    let hosts = if serving { OURS } else { KERNEL };
    let client = start(!serving, &[TYPIST, lines, &seed, hosts[0], hosts[1]])?;
    let done = client.finish(Duration::from_secs(900))?.success();
    done.map(drop)
        .map_err(|e| format!("seed {seed}: {e}; server: {}", server.said()))
}

/// OpenSSH's client on netchan, at the kernel's sshd: commands, a file either way, a terminal. (An sshd forks for each client, and a forked child's sockets
/// are not served: see the README.)
fn ssh(knobs: &Knobs) -> Outcome {
    if !knobs.soak || find("sshd").is_none() || find("ssh").is_none() {
        return not_done(
            "ssh_on_netchan",
            "a case of the long form, which takes openssh's client and server",
        );
    }
    let place = place_for("tap:nc0")?;
    let mut server = sshd(&place)?;
    place.wait_for(&mut server, KERNEL[0], 2222)?;
    let large = place.folder.join("large");
    let sum = crate::transfer::make_file(&large, 64)?;
    for host in KERNEL {
        let run = |terminal: &str, command: &str, input: fs::File| {
            let key = place.folder.join("key");
            let key = key.to_string_lossy();
            let user = format!("root@{host}");
            let arguments = [
                "-F",
                "none",
                "-i",
                &key,
                "-p",
                "2222",
                terminal,
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
                &user,
                command,
            ];
            let mut run = place.netchan_run("tap:nc0", "ssh", &arguments)?;
            run.stdin(input);
            Process::start(run, &place.folder, "ssh")?
                .finish(Duration::from_secs(120))?
                .success()
        };
        let open = || fs::File::open(&large).map_err(|e| e.to_string());
        let nothing = || fs::File::open("/dev/null").map_err(|e| e.to_string());
        let there = run("-T", "sha256sum", open()?)?;
        let back = format!("cat {}", large.display());
        run("-T", &back, nothing()?)?;
        let (got, _) = crate::transfer::hash_file(&place.folder.join("ssh.out"))?;
        if !there.output.starts_with(&sum) || got != sum {
            return Err(format!("{host}: other bytes came through"));
        }
        let typed = run("-tt", "seq 20000; stty size; exit", nothing()?)?;
        if !typed.output.contains("20000\r\n") {
            return Err(typed.describe());
        }
    }
    Ok(())
}

fn sshd(place: &Place) -> Result<Process, String> {
    let path = |name: &str| place.folder.join(name).to_string_lossy().into_owned();
    for name in ["host", "key"] {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", &path(name)];
        place.run("ssh-keygen", &arguments, SOON)?.success()?;
    }
    // What a package's start script does.
    fs::create_dir_all("/run/sshd").map_err(|e| e.to_string())?;
    let keys = format!("AuthorizedKeysFile={}", path("key.pub"));
    let arguments = [
        "-D",
        "-e",
        "-p",
        "2222",
        "-f",
        "/dev/null",
        "-h",
        &path("host"),
        "-o",
        &keys,
        "-o",
        "StrictModes=no",
        "-o",
        "PermitRootLogin=yes",
        "-o",
        "PidFile=none",
    ];
    place.start("sshd", &arguments)
}
