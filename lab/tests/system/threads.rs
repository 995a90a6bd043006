//! A threaded server whose first thread accepts for all others, over a link with a queue for each: whichever queue a connection came in by, it comes to live
//! in the shard of the thread that serves it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{Knobs, OURS, Place, SOON},
    process::{Process, eventually},
    transfer::place_for,
};

pub const CASES: &[Case] = &[("threads_have_a_shard_each", threads)];

const QUEUES: usize = 2;

/// The first thread accepts and deals out, or (`acceptor`) adds to the others' sets itself; each other one waits for its own connections, and says which it is
/// with each line that it sends back.
const SERVER: &str = r#"
import os, queue, select, socket, sys, threading
threads, adds = int(sys.argv[1]), sys.argv[2] == "acceptor"
def serve(me, pipe, new, poll, connections):
    while True:
        for fd, _ in poll.poll():
            if fd == pipe:
                for _ in os.read(pipe, 100):
                    c = new.get(); connections[c.fileno()] = c
                    poll.register(c, select.EPOLLIN)
                continue
            text = connections[fd].recv(65536)
            if text: connections[fd].sendall(me + text)
            else: connections.pop(fd).close()
dealt = []
for n in range(threads):
    r, w = os.pipe(); new, poll, connections = queue.Queue(), select.epoll(), {}
    poll.register(r, select.EPOLLIN)
    threading.Thread(target=serve, args=(b"%d" % n, r, new, poll, connections), daemon=True).start()
    dealt.append((w, new, poll, connections))
l = socket.socket(); l.bind(("0.0.0.0", 7)); l.listen(64)
n = 0
while True:
    c, _ = l.accept(); w, new, poll, connections = dealt[n % threads]; n += 1
    if adds: connections[c.fileno()] = c; poll.register(c, select.EPOLLIN)
    else: new.put(c); os.write(w, b"x")
"#;

/// Says which port of its own which thread serves, until it is to end. All connections talk in turn.
const CLIENT: &str = r#"
import os, socket, sys, time
address, end = sys.argv[1], sys.argv[2]
all = [socket.create_connection((address, 7), 20) for _ in range(16)]
def ask(c, line):
    c.sendall(line); got = b""
    while not got.endswith(b"\n"):
        more = c.recv(65536)
        if not more: sys.exit("ended early")
        got += more
    thread = got[:1]
    if got.replace(thread, b"") != line: sys.exit(f"{line} became {got}")
    return thread
for n in range(40):
    threads = [ask(c, b"xyz" * (1 + 37 * n) + b"\n") for c in all]
with open(end + ".told", "w") as told:
    for c, thread in zip(all, threads): told.write(f"{c.getsockname()[1]} {thread.decode()}\n")
os.rename(end + ".told", end + ".ready")
while not os.path.exists(end):
    [ask(c, b"again\n") for c in all]
    time.sleep(0.01)
"#;

fn threads(_: &Knobs) -> Outcome {
    for adds in ["workers", "acceptor"] {
        once(adds).map_err(|e| format!("{adds}: {e}"))?;
    }
    Ok(())
}

/// `adds` connections to the sets.
fn once(adds: &str) -> Outcome {
    let link = format!("tap:nc0,queues={QUEUES}");
    let place = place_for(&link)?;
    let queues = QUEUES.to_string();
    let mut server = place.start_netchan(&link, "python3", &["-c", SERVER, &queues, adds])?;
    place.wait_listening(&mut server, true, 7)?;
    let end = place.folder.join("end");
    let client = ["-c", CLIENT, OURS[0], &end.to_string_lossy()];
    let mut client = place.start("python3", &client)?;
    let result = settle(&place, &server, &mut client);
    fs::write(&end, "").map_err(|e| e.to_string())?;
    result?;
    client.finish(SOON + Duration::from_secs(5))?.success()?;
    Ok(())
}

/// Until each thread's connections are all in one shard, which is no other thread's.
fn settle(place: &Place, server: &Process, client: &mut Process) -> Outcome {
    let told = place.folder.join("end.ready");
    if !eventually(SOON, || told.exists() || !client.is_running()) || !told.exists() {
        return Err(format!("no answers: {}; {}", client.said(), server.said()));
    }
    let told = fs::read_to_string(told).map_err(|e| e.to_string())?;
    let threads: Vec<_> = (told.lines().filter_map(|line| line.split_once(' '))).collect();
    let mut last = BTreeMap::new();
    let settled = || {
        let shown = place.show(server.pid(), "sockets").unwrap_or_default();
        last = shards(&shown, &threads);
        let mut all: Vec<_> = last.values().flatten().collect();
        all.sort_unstable();
        all.dedup();
        last.len() == QUEUES && all.len() == QUEUES && last.values().all(|s| s.len() == 1)
    };
    if eventually(SOON, settled) {
        return Ok(());
    }
    Err(format!("threads and their shards: {last:?}"))
}

/// The shards in which the connections of each thread live.
fn shards<'a>(shown: &Value, threads: &[(&str, &'a str)]) -> BTreeMap<&'a str, BTreeSet<u64>> {
    let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for row in shown.as_array().into_iter().flatten() {
        let remote = row["remote"].as_str().and_then(|a| a.rsplit_once(':'));
        let thread = threads
            .iter()
            .find(|(port, _)| remote.is_some_and(|(_, of)| of == *port));
        if let (Some((_, thread)), Some(shard)) = (thread, row["shard"].as_u64()) {
            all.entry(*thread).or_default().insert(shard);
        }
    }
    all
}
