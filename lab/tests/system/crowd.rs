//! Ten thousand connections of the kernel's open at once, in the long form a hundred thousand, one in a hundred active: how long opening takes,
//! how quick the active ones are, what each costs.
//!
//! netchan's end is a program of ours on its sockets, without descriptors; the kernel's end are processes with as many as each may have,
//! from several addresses.

use std::{
    fs,
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Wake, Waker},
    time::Duration,
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket},
};

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, Place, SOON},
    process::{Process, eventually},
    transfer::place_for,
};

pub const CASES: &[Case] = &[("connections_open_at_once", crowd)];

/// What a process may have open on a machine that says nothing about it, with some to spare.
const EACH: usize = 17_000;
/// Addresses of the kernel's end, beside its own.
const ADDRESSES: std::ops::Range<usize> = 11..19;

/// The kernel's end: opens connections, uses one in a hundred for some seconds, says what that took, then uses all of them, and waits.
const CLIENT: &str = r#"
import errno, os, random, select, socket, sys, time
address, count, seconds, folder, sources = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:]
random.seed(count)
poll, pending, open = select.epoll(), {}, []
def finish(limit):
    while len(pending) > limit:
        events = poll.poll(30.0, 1024)
        if not events: sys.exit(f"{len(pending)} handshakes are not over, {len(open)} are")
        for fd, _ in events:
            c = pending.pop(fd); poll.unregister(fd)
            e = c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if e: sys.exit(f"connection {len(open)}: {errno.errorcode.get(e, e)}")
            open.append(c)
def answers(sent, trips):
    events = poll.poll(30.0, 1024)
    if not events: sys.exit(f"{len(sent)} answers did not come")
    now = time.monotonic()
    for fd, _ in events:
        c, text, at = sent.pop(fd); poll.unregister(fd)
        if c.recv(4096) != text: sys.exit("another's bytes")
        trips.append(now - at)
def use(some, at_once):
    sent, trips = {}, []
    for c in some:
        text = b"%d." % random.getrandbits(64)
        sent[c.fileno()] = (c, text, time.monotonic()); c.send(text); poll.register(c.fileno(), select.EPOLLIN)
        while len(sent) >= at_once: answers(sent, trips)
    while sent: answers(sent, trips)
    return trips
begin = time.monotonic()
for i in range(count):
    c = socket.socket(); c.setblocking(False)
    c.setsockopt(socket.IPPROTO_IP, 24, 1) # IP_BIND_ADDRESS_NO_PORT
    c.bind((sources[i % len(sources)], 0))
    try: c.connect((address, 8000))
    except BlockingIOError: pass
    pending[c.fileno()] = c; poll.register(c.fileno(), select.EPOLLOUT)
    if len(pending) >= 512: finish(256)
finish(0)
print("opened", time.monotonic() - begin, flush=True)
def wait(name):
    while not os.path.exists(folder + "/" + name): time.sleep(0.02)
wait("all-are-open")
active, trips, end = random.sample(open, max(count // 100, 1)), [], time.monotonic() + seconds
while time.monotonic() < end: trips += use(active, 8)
trips.sort()
print("trips", len(trips), trips[len(trips) // 2], trips[len(trips) * 99 // 100], flush=True)
begin = time.monotonic()
use(open, 64)
print("used", time.monotonic() - begin, flush=True)
wait("all-were-used")
"#;

/// Connections that have something to read, by number; 0 is the listener.
#[derive(Default)]
struct Bells {
    rung: Mutex<Vec<usize>>,
    some: Condvar,
}

impl Bells {
    fn wait(&self) -> Vec<usize> {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let rung = self.some.wait_while(rung, |rung| rung.is_empty());
        std::mem::take(&mut *rung.unwrap_or_else(PoisonError::into_inner))
    }
}

struct Bell(usize, Arc<Bells>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut rung = self.1.rung.lock().unwrap_or_else(PoisonError::into_inner);
        rung.push(self.0);
        self.1.some.notify_one();
    }
}

/// netchan's end: an echo server in one thread, until it is killed.
pub fn serve(link: &str) -> Result<String, String> {
    let say = |e: std::io::Error| e.to_string();
    let builder = Net::builder().link(link).map_err(say)?;
    let builder = builder.address(&format!("{}/24", OURS[0])).map_err(say)?;
    let net = builder.start().map_err(say)?;
    let listener = Socket::new(&net, Domain::V4, Kind::Stream).map_err(say)?;
    listener
        .bind(SocketAddr::from(([0; 4], 8000)))
        .map_err(say)?;
    listener.listen(4096).map_err(say)?;
    let bells = Arc::new(Bells::default());
    let waker = |number| Waker::from(Arc::new(Bell(number, bells.clone())));
    let own = waker(0);
    listener.register(Readiness::READABLE, &own);
    let mut open: Vec<Option<(Socket, Waker)>> = vec![None];
    loop {
        for number in bells.wait() {
            if number > 0 {
                open[number].take_if(|(socket, waker)| !echo(socket, waker));
                continue;
            }
            while let Ok((socket, _)) = listener.accept() {
                let waker = waker(open.len());
                socket.register(Readiness::READABLE, &waker);
                open.push(Some((socket, waker)));
            }
            listener.register(Readiness::READABLE, &own);
        }
    }
}

/// Sends back what there is; false: the connection is over.
fn echo(socket: &Socket, waker: &Waker) -> bool {
    let mut room = [0; 4096];
    loop {
        match socket.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default()) {
            Ok(got) if got.len > 0 => {
                let sent = socket.send(&[IoSlice::new(&room[..got.len])], None);
                if sent.ok() != Some(got.len) {
                    return false;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.register(Readiness::READABLE, waker);
                return true;
            }
            _ => return false,
        }
    }
}

/// Resident memory of a process, bytes.
fn resident(pid: u32) -> Result<f64, String> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).map_err(|e| e.to_string())?;
    let pages: Option<f64> = pages.split(' ').nth(1).and_then(|n| n.parse().ok());
    Ok(pages.ok_or("no resident memory")? * 4096.0)
}

/// The kernel's end's addresses: more ports than one has.
fn sources(place: &Place) -> Result<Vec<String>, String> {
    let mut sources = vec![KERNEL[0].to_owned()];
    for last in ADDRESSES {
        let address = format!("10.77.0.{last}");
        place.ip(&["address", "add", &format!("{address}/24"), "dev", "nc0"])?;
        sources.push(address);
    }
    Ok(sources)
}

fn crowd(knobs: &Knobs) -> Outcome {
    let count = if knobs.soak { 100_000 } else { 10_000 };
    let place = place_for("tap:nc0")?;
    let sources = sources(&place)?;
    let mut server = place.inner(&["crowd", "tap:nc0"])?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    let before = resident(server.pid())?;
    let processes = count / EACH + 1;
    let each = (count / processes).to_string();
    let folder = place.folder.display().to_string();
    let client = |number: usize| {
        let mut command = place.command("python3");
        command.args(["-c", CLIENT, OURS[0], &each, "5", &folder]);
        command.args(&sources);
        Process::start(command, &place.folder, &format!("crowd-{number}"))
    };
    let mut clients = (0..processes).map(client).collect::<Result<Vec<_>, _>>()?;
    let said = |number: usize, word: &str| -> Option<Vec<f64>> {
        let path = place.folder.join(format!("crowd-{number}.out"));
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(word))?;
        line.split_whitespace().map(|n| n.parse().ok()).collect()
    };
    let patience = SOON + Duration::from_millis(5) * u32::try_from(count).unwrap_or(u32::MAX);
    let mut all = |word: &str| -> Result<Vec<Vec<f64>>, String> {
        let all = || (0..processes).map(|n| said(n, word)).collect();
        let mut found: Option<Vec<Vec<f64>>> = None;
        eventually(patience, || {
            found = all();
            found.is_some() || clients.iter_mut().any(|c| !c.is_running())
        });
        let of = |c: &Process| c.said();
        found.ok_or_else(|| {
            let said: Vec<_> = clients.iter().map(of).collect();
            format!("not everyone {word}: {said:?}; server: {}", server.said())
        })
    };
    let most = |of: &[Vec<f64>], at: usize| of.iter().map(|of| of[at]).fold(0.0, f64::max);
    let opened = most(&all("opened")?, 0);
    let touch = |name: &str| fs::write(place.folder.join(name), "").map_err(|e| e.to_string());
    let bytes = (resident(server.pid())? - before) / f64::from(u32::try_from(count).unwrap_or(1));
    touch("all-are-open")?;
    let trips = all("trips")?;
    let used = most(&all("used")?, 0);
    touch("all-were-used")?;
    for client in clients {
        client.finish(SOON)?.success()?;
    }
    println!(
        "    {count} connections open in {opened:.1} s, {bytes:.0} bytes each at our end with the program's; round trips of one in a hundred: \
         {:.0}, at most {:.0} us in the middle, {:.0} at the 99th percentile; all used in {used:.1} s",
        trips.iter().map(|of| of[0]).sum::<f64>(),
        most(&trips, 1) * 1e6,
        most(&trips, 2) * 1e6,
    );
    // A few connections pay for the buffers that all of them share.
    if bytes > 4096.0 {
        return Err(format!("{bytes:.0} bytes for each connection"));
    }
    Ok(())
}
