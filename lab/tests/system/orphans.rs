//! The end of a daemon while many programs run, each waiting in another call: none hangs, each gets an error that says what has happened. A second daemon
//! at the same place is refused, and one that comes after it serves.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Case, Outcome,
    daemon::Served,
    place::{Knobs, OURS, SOON},
    process::{Finished, Process, eventually},
    storm::program::{PORT, server_at},
};

pub const CASES: &[Case] = &[
    ("a_daemon_that_is_killed_leaves_clear_errors", |knobs| {
        ended(knobs, Signal::KILL)
    }),
    (
        "a_daemon_that_is_told_to_end_leaves_clear_errors",
        |knobs| ended(knobs, Signal::TERM),
    ),
    ("a_second_daemon_is_refused", |_| twice()),
];

/// What a program waits in.
const CALLS: [&str; 7] = [
    "read", "write", "accept", "datagram", "connect", "epoll", "select",
];

/// In Python, whose calls are poll(2)'s relatives: a connection that is asked once, and then waited for without an end.
const POLLS: &str = "import select,socket,sys\ns=socket.create_connection((sys.argv[1],8000))\ns.sendall(b'abcdabcd')\nassert s.recv(8)==b'abcdabcd'\nprint('open',flush=True)\nif sys.argv[2]=='epoll':\n  e=select.epoll()\n  e.register(s,select.EPOLLIN)\n  e.poll()\nelse:\n  select.select([s],[],[])\ntry:\n  print('read',s.recv(1))\nexcept OSError as e:\n  print('error',e.errno)\ntry:\n  socket.create_connection((sys.argv[1],8000),10)\n  print('again')\nexcept OSError as e:\n  print('again',e.errno)";

/// A program that waits in `call` until that fails, says how, and tries to connect once more.
pub fn wait(call: &str) -> Result<String, String> {
    let own = server_at(OURS[0])?;
    let failed = match call {
        "read" => {
            let mut stream = asked(own)?;
            open();
            stream.read(&mut [0; 8]).err()
        }
        "write" => {
            let mut stream = asked(own)?;
            open();
            // What comes back is not read, so it waits soon.
            std::iter::repeat_with(|| stream.write_all(&[b'a'; 1 << 16])).find_map(Result::err)
        }
        "accept" => {
            let listener = TcpListener::bind(("0.0.0.0", 0)).map_err(|e| e.to_string())?;
            open();
            listener.accept().err()
        }
        "datagram" => {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).map_err(|e| e.to_string())?;
            open();
            socket.recv(&mut [0; 8]).err()
        }
        _ => {
            open();
            connect_in_vain()
        }
    };
    let number = |e: Option<std::io::Error>| e.and_then(|e| e.raw_os_error()).unwrap_or_default();
    let again = TcpStream::connect_timeout(&own, SOON).err();
    Ok(format!("error {}\nagain {}", number(failed), number(again)))
}

fn open() {
    println!("open");
}

/// A connection that has been asked something.
fn asked(own: SocketAddr) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect_timeout(&own, SOON).map_err(|e| e.to_string())?;
    let mut back = [0; 8];
    let asked = stream.write_all(b"aaaaaaaa");
    asked
        .and_then(|()| stream.read_exact(&mut back))
        .map_err(|e| e.to_string())?;
    Ok(stream)
}

/// Connects where no host is, until something else than that is the reason that it fails.
fn connect_in_vain() -> Option<std::io::Error> {
    loop {
        let failed = TcpStream::connect(("10.77.0.9", 9)).err();
        let number = failed.as_ref().and_then(std::io::Error::raw_os_error);
        if ![Some(libc::EHOSTUNREACH), Some(libc::ETIMEDOUT)].contains(&number) {
            return failed;
        }
    }
}

/// A server and so many programs on a daemon, each waiting.
struct Scene {
    served: Served,
    server: Process,
    waiting: Vec<Process>,
}

/// Memory of one program and of its lease in the daemon, KiB: 25 MB and 7 MB.
const EACH_KIB: usize = 32 << 10;

/// As many as are wanted, and find room in half of the memory that is free: others use this machine, too.
fn fitting(wanted: usize) -> Result<usize, String> {
    let all = fs::read_to_string("/proc/meminfo").map_err(|e| e.to_string())?;
    let mut lines = all.lines();
    let free = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|free| free.split_whitespace().next()?.parse::<usize>().ok());
    let most = free.ok_or("no MemAvailable")? / 2 / EACH_KIB;
    if most < wanted {
        println!("    {most} programs: there is no memory for {wanted}");
    }
    Ok(wanted.min(most))
}

impl Scene {
    fn new(many: usize) -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|e| e.to_string())?;
        let (served, here) = (Served::new()?, here.to_string_lossy().into_owned());
        let mut server = served.start(&here, &["--inner", "storm-server"], "server")?;
        served.place.wait_for(&mut server, OURS[0], PORT)?;
        let mut waiting = Vec::new();
        for number in 0..many {
            let (call, name) = (CALLS[number % CALLS.len()], format!("waiting-{number}"));
            waiting.push(match call {
                "epoll" | "select" => {
                    served.start("python3", &["-c", POLLS, OURS[0], call], &name)?
                }
                _ => served.start(&here, &["--inner", "orphan", call], &name)?,
            });
            // Some at a time.
            if let Some(oldest) = number.checked_sub(8) {
                stands(&mut waiting[oldest])?;
            }
        }
        waiting.iter_mut().try_for_each(stands)?;
        Ok(Self {
            served,
            server,
            waiting,
        })
    }
}

/// Waits until a program waits.
fn stands(one: &mut Process) -> Outcome {
    eventually(SOON + SOON, || {
        one.said().contains("open") || !one.is_running()
    });
    match one.said().contains("open") && one.is_running() {
        true => Ok(()),
        false => Err(format!("`{}` does not wait: {}", one.what, one.said())),
    }
}

/// Whether a program has said two errors, and both are clear: the connection is reset, or the network is down. Where a daemon ends in order, leases end one
/// after the other: then the server may have gone first.
fn is_clear(ended: &Finished, signal: Signal) -> bool {
    let numbers = |word: &str| -> Option<i32> {
        let mut lines = ended.output.lines();
        lines.find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
    };
    let failed = [libc::ECONNRESET, libc::ENETDOWN, libc::EPIPE];
    numbers("error ").is_some_and(|number| failed.contains(&number))
        && numbers("again ").is_some_and(|number| {
            number == libc::ENETDOWN || number == libc::ECONNREFUSED && signal == Signal::TERM
        })
}

#[allow(clippy::disallowed_methods)] // a test's stopwatch
fn ended(knobs: &Knobs, signal: Signal) -> Outcome {
    let many = fitting(knobs.orphans)?;
    let mut scene = Scene::new(many)?;
    let leases = scene.served.leases()?.len();
    if leases != many + 1 {
        return Err(format!("{leases} leases for {many} programs"));
    }
    let pid = i32::try_from(scene.served.daemon.pid())
        .ok()
        .and_then(Pid::from_raw);
    let begin = Instant::now();
    kill_process(pid.ok_or("no pid")?, signal).map_err(|e| e.to_string())?;
    let mut unclear = Vec::new();
    for (number, one) in scene.waiting.into_iter().enumerate() {
        let heard = one.finish(SOON)?;
        if !heard.status.success() || !is_clear(&heard, signal) {
            unclear.push(format!(
                "{}: {}",
                CALLS[number % CALLS.len()],
                heard.describe()
            ));
        }
    }
    println!("    all {} have ended after {:?}", many, begin.elapsed());
    // The server's accept(2) fails, too.
    let are_over = || !scene.server.is_running() && !scene.served.daemon.is_running();
    if !eventually(SOON, are_over) {
        return Err(format!("the server waits still: {}", scene.server.said()));
    }
    match unclear.len() {
        0 => Ok(()),
        many => Err(format!("{many} are not clear, such as {}", unclear[0])),
    }
}

/// A second daemon at the socket of the first, and one at its link; then one in its place.
fn twice() -> Outcome {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    let serve = [
        here.to_string_lossy().into_owned(),
        "--inner".into(),
        "storm-server".into(),
    ];
    let mut served = Served::new()?;
    let mut server = served.start(&serve[0], &["--inner", &serve[2]], "server")?;
    served.place.wait_for(&mut server, OURS[0], PORT)?;
    for (link, socket, says) in [
        (
            "tap:nc1",
            "daemon.sock",
            "a daemon is running there already, pid",
        ),
        ("tap:nc0", "other.sock", "nc0"),
    ] {
        let command = served.another(link, socket)?;
        let second = Process::start(command, &served.place.folder, "second")?;
        let second = second.finish(SOON)?;
        if second.status.success() || !second.errors.contains(says) {
            return Err(format!("{link}, {socket}: {}", second.describe()));
        }
        served.place.wait_for(&mut server, OURS[0], PORT)?;
    }
    served.daemon.kill()?;
    if !eventually(SOON, || !served.daemon.is_running() && !server.is_running()) {
        return Err(format!(
            "the first one, or its program, is left: {}",
            server.said()
        ));
    }
    let command = served.another("tap:nc0", "daemon.sock")?;
    served.daemon = Process::start(command, &served.place.folder, "next")?;
    if !eventually(SOON, || served.leases().is_ok()) {
        return Err(format!("no daemon came after it: {}", served.daemon.said()));
    }
    let mut server = served.start(&serve[0], &["--inner", &serve[2]], "server")?;
    served.place.wait_for(&mut server, OURS[0], PORT)
}
