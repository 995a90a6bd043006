//! rsync of a tree, byte for byte. rsync's receiver is two processes at one socket, and its daemon forks for each client: what is forked stays with the kernel
//! (see the README), so netchan has the whole program where it sends, and the connection of it where it receives or serves, as inetd would.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use crate::{
    Case, Outcome,
    frames::Random,
    loss::lose,
    not_done,
    place::{KERNEL, Knobs, OURS, Place, find, netchan, socket_address},
    process::Process,
    transfer::place_for,
};

pub const CASES: &[Case] = &[("rsync_of_a_tree", tree)];

/// Hands each connection to an rsync daemon of its own (which wants a socket for its input): inetd for programs that need not know of sockets.
const SUPERSERVER: &str = "\
import socket, subprocess, sys, threading
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def serve(s):
    ours, theirs = socket.socketpair()
    daemon = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=theirs)
    theirs.close()
    into = threading.Thread(target=pump, args=(s, ours))
    into.start()
    pump(ours, s)
    into.join()
    daemon.wait()
    s.close()
    ours.close()
l = socket.create_server(('::', 873), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    s, _ = l.accept()
    threading.Thread(target=serve, args=(s,), daemon=True).start()
";

/// A tree of `count` files, most of them small, some in folders, links and odd modes among them.
fn make_tree(root: &Path, count: usize, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let failed = |e: std::io::Error| format!("{}: {e}", root.display());
    for i in 0..count {
        let folder = root.join(format!("d{}/e{}", random.below(12), random.below(5)));
        fs::create_dir_all(&folder).map_err(failed)?;
        let length = match random.below(40) {
            0 => 1 << 20,
            1..8 => random.below(100_000),
            8 => 0,
            _ => random.below(3000),
        };
        let file = folder.join(format!("file {i}"));
        fs::write(&file, random.bytes(length)).map_err(failed)?;
        let mode = [0o644, 0o600, 0o755, 0o444][random.below(4)];
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).map_err(failed)?;
        if random.below(20) == 0 {
            symlink(format!("file {i}"), folder.join(format!("link {i}"))).map_err(failed)?;
        }
    }
    Ok(())
}

/// Modes, targets and bytes by name.
fn listing(root: &Path) -> Result<BTreeMap<String, (u32, Vec<u8>)>, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    let failed = |e: std::io::Error| format!("{}: {e}", root.display());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let about = fs::symlink_metadata(&path).map_err(failed)?;
            let content = if about.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                let target = fs::read_link(&path).map_err(failed)?;
                target.into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).map_err(failed)?
            };
            let name = path.strip_prefix(root).unwrap_or(&path);
            found.insert(name.to_string_lossy().into_owned(), (about.mode(), content));
        }
    }
    Ok(found)
}

fn compare(there: &Path, here: &Path) -> Outcome {
    let (wanted, got) = (listing(there)?, listing(here)?);
    let differs = wanted
        .iter()
        .find(|(name, what)| got.get(*name) != Some(what));
    match differs {
        Some((name, _)) => Err(format!("{name:?} is missing or differs")),
        None if wanted.len() != got.len() => Err("there are files that were not sent".to_owned()),
        None => Ok(()),
    }
}

fn tree(knobs: &Knobs) -> Outcome {
    if find("rsync").is_none() {
        return not_done("rsync_of_a_tree", "rsync is not installed");
    }
    let (count, lost_percent) = if knobs.soak { (20_000, 1) } else { (400, 0) };
    netchan_sends(count, lost_percent).map_err(|e| format!("netchan sends: {e}"))?;
    netchan_receives(count, lost_percent).map_err(|e| format!("netchan receives: {e}"))?;
    netchan_serves(count, lost_percent).map_err(|e| format!("netchan serves: {e}"))
}

const PATIENCE: Duration = Duration::from_secs(600);

/// A place with a tree in `from` and a daemon's configuration, whose modules are `from` and `to`.
fn prepare(count: usize, lost_percent: usize) -> Result<Place, String> {
    let place = place_for("tap:nc0")?;
    make_tree(&place.folder.join("from"), count, 1)?;
    fs::create_dir(place.folder.join("to")).map_err(|e| e.to_string())?;
    let at = place.folder.display();
    let text = format!(
        "use chroot = no\nuid = root\ngid = root\nmunge symlinks = no\n[from]\npath = {at}/from\n[to]\npath = {at}/to\nread only = no\n"
    );
    fs::write(place.folder.join("rsyncd.conf"), text).map_err(|e| e.to_string())?;
    if lost_percent > 0 {
        lose(&place, "nc0", lost_percent)?;
    }
    Ok(place)
}

fn daemon(place: &Place) -> Result<Process, String> {
    let arguments = [
        "--daemon",
        "--no-detach",
        "--config=rsyncd.conf",
        "--address",
        KERNEL[0],
    ];
    let mut daemon = place.start("rsync", &arguments)?;
    place.wait_for(&mut daemon, KERNEL[0], 873)?;
    Ok(daemon)
}

/// The program on netchan, which sends: one process. Twice, so that the second finds everything there already and sends what changed.
fn netchan_sends(count: usize, lost_percent: usize) -> Outcome {
    let place = prepare(count, lost_percent)?;
    let daemon = daemon(&place)?;
    let (from, to) = (place.folder.join("from"), place.folder.join("to"));
    let url = format!("rsync://{}/to/", socket_address(KERNEL[0], 873));
    for seed in [2, 3] {
        let arguments = ["-a", "--delete", "from/", &url];
        let sent = place.start_netchan("tap:nc0", "rsync", &arguments)?;
        let sent = sent.finish(PATIENCE)?.success();
        sent.map_err(|e| format!("{e}; daemon: {}", daemon.said()))?;
        compare(&from, &to)?;
        make_tree(&from, count / 20, seed)?;
    }
    Ok(())
}

/// The connection on netchan (rsync starts the program that makes it), the two processes of the receiver beside it.
fn netchan_receives(count: usize, lost_percent: usize) -> Outcome {
    let place = prepare(count, lost_percent)?;
    let _daemon = daemon(&place)?;
    let connect = format!(
        "{} run --link tap:nc0 --address {}/24 -- {} %H 873",
        netchan()?.display(),
        OURS[0],
        find("nc").ok_or("nc is missing")?.display()
    );
    let mut command = place.command("rsync");
    let url = format!("rsync://{}/from/", KERNEL[0]);
    command
        .args(["-a", &url, "to/"])
        .env("RSYNC_CONNECT_PROG", connect);
    Process::start(command, &place.folder, "rsync")?
        .finish(PATIENCE)?
        .success()?;
    compare(&place.folder.join("from"), &place.folder.join("to"))
}

/// A super-server on netchan with the daemons behind it; the kernel's client sends, and gets it back.
fn netchan_serves(count: usize, lost_percent: usize) -> Outcome {
    let place = prepare(count, lost_percent)?;
    let rsync = find("rsync").ok_or("rsync is missing")?;
    let rsync = rsync.to_string_lossy();
    let arguments = [
        "-c",
        SUPERSERVER,
        &rsync,
        "--daemon",
        "--config=rsyncd.conf",
    ];
    let mut server = place.start_netchan("tap:nc0", "python3", &arguments)?;
    place.wait_listening(&mut server, true, 873)?;
    for (host, from, to) in [
        (OURS[1], "from/", "rsync://host/to/"),
        (OURS[0], "rsync://host/to/", "back/"),
    ] {
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let [from, to] = [from, to].map(|at| at.replace("host", &host));
        let done = place.run("rsync", &["-a", &from, &to], PATIENCE)?.success();
        done.map_err(|e| format!("{from} to {to}: {e}; server: {}", server.said()))?;
    }
    compare(&place.folder.join("from"), &place.folder.join("to"))?;
    compare(&place.folder.join("from"), &place.folder.join("back"))
}
