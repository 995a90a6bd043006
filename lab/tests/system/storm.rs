//! A storm over the life of leases: programs that are killed, stopped, or end at each point of it. Others are served all the time, and the daemon has
//! afterwards what it had before.

pub mod program;

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use self::program::{ENDED, End, Orders, PORT, Point};
use crate::{
    Case, Outcome,
    daemon::{Served, socket},
    frames::Random,
    hostile::{free, resident_kib},
    place::{KERNEL, Knobs, OURS, Place, SOON},
    process::{Process, eventually},
};

pub const CASES: &[Case] = &[("leases_end_at_each_point_of_their_life", storm)];

/// As many of the storm live at a time: those that are stopped, as long as the others need.
const AT_ONCE: usize = 8;

/// The ports that they ask for, one for each that lives.
const FIRST: u16 = 9100;

/// How much more memory the daemon may have at the end, KiB: buffers of its own that were never used before. Half a page for each program would be 20 MB
/// in the long form.
const GROWTH_MAX_KIB: u64 = 16 << 10;

/// One that runs, or is stopped.
struct Running {
    child: Child,
    end: End,
    what: String,
}

impl Running {
    /// Waits until it has come to its end at its point; kills it if it is stopped.
    fn settle(mut self, place: &Place) -> Outcome {
        let pid = Pid::from_child(&self.child);
        let mut found = None;
        let looks = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        eventually(SOON + SOON, || {
            found = waitpid(Some(pid), looks).ok().flatten();
            found.is_some()
        });
        let status = found.map(|(_, status)| status);
        let is_as_told = status.is_some_and(|status| match self.end {
            End::Kill => status.terminating_signal() == Some(Signal::KILL.as_raw()),
            End::Stop => status.stopped(),
            End::Exit => status.exit_status() == Some(ENDED),
        });
        if status.is_none_or(|status| status.stopped()) {
            // A failure to kill is one to wait.
            let _ = kill_process(pid, Signal::KILL);
            self.child.wait().map_err(|e| e.to_string())?;
        }
        match is_as_told {
            true => Ok(()),
            false => {
                let said = fs::read_to_string(place.folder.join("storm.err")).unwrap_or_default();
                Err(format!("{}: {status:?}: {said}", self.what))
            }
        }
    }
}

/// What a daemon has.
#[derive(Debug)]
struct State {
    leases: usize,
    /// For sockets that name none, to a lease that takes all that it gets.
    ports: String,
    descriptors: usize,
    threads: usize,
    /// Files in its memory that have no name: each lease has some.
    shared_files: usize,
    /// Of its own, KiB.
    resident_kib: u64,
    /// Buffers and nodes, by name and owner.
    free: Vec<(String, u64)>,
}

impl State {
    fn of(served: &Served) -> Result<Self, String> {
        let (place, pid) = (&served.place, served.daemon.pid());
        let entries = |name: &str| -> Result<usize, String> {
            let all = fs::read_dir(format!("/proc/{pid}/{name}")).map_err(|e| e.to_string())?;
            Ok(all.count())
        };
        // The least of some looks: what an allocator has free it gives back in its own time.
        let looks = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            resident_kib(pid, "RssAnon:")
        });
        let resident_kib = looks.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| e.to_string())?;
        let (daemon, first) = (socket(place), FIRST.to_string());
        let ask = ["storm-ports", &daemon.to_string_lossy(), &first, "8"];
        let ports = place.inner(&ask)?.finish(SOON)?.success()?.output;
        let alone = || served.leases().is_ok_and(|all| all.len() == 2);
        // That of the program that has just asked.
        eventually(SOON, alone);
        Ok(Self {
            leases: served.leases()?.len(),
            ports,
            descriptors: entries("fd")?,
            threads: entries("task")?,
            shared_files: maps.lines().filter(|line| line.contains("memfd:")).count(),
            resident_kib: resident_kib.unwrap_or_default(),
            free: free(place, pid)?,
        })
    }

    /// What of it is more than `before`, or less where that is free.
    fn is_as(&self, before: &Self) -> Outcome {
        let mut pairs = before.free.iter().zip(&self.free);
        let is_so = self.leases == before.leases
            && self.ports == before.ports
            && self.descriptors <= before.descriptors
            && self.threads == before.threads
            && self.shared_files == before.shared_files
            && self.resident_kib <= before.resident_kib + GROWTH_MAX_KIB
            && pairs.all(|(was, is)| is.1 >= was.1);
        match is_so {
            true => Ok(()),
            false => Err(format!("before: {before:?}\n    after: {self:?}")),
        }
    }
}

/// A daemon, the server on it, one in the kernel, and two that ask the first all the time: a program of the daemon and one of the kernel.
struct Scene {
    served: Served,
    server: Process,
    kernel: Process,
    witnesses: Vec<Process>,
    own: String,
    random: Random,
    count: usize,
}

impl Scene {
    fn new(seed: u64) -> Result<Self, String> {
        let served = Served::new()?;
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let own = own.to_string_lossy().into_owned();
        let serve = ["--inner", "storm-server"];
        let place = &served.place;
        let mut server = served.start(&own, &serve, "server")?;
        let mut kernel = place.start(&own, &serve)?;
        place.wait_for(&mut server, OURS[0], PORT)?;
        place.wait_for(&mut kernel, KERNEL[0], PORT)?;
        let stop = place.folder.join("stop");
        let witness = ["--inner", "storm-witness", &stop.to_string_lossy()];
        let on_daemon = served.start(&own, &witness, "witness")?;
        let on_kernel = place.inner(&witness[1..])?;
        Ok(Self {
            served,
            server,
            kernel,
            witnesses: vec![on_daemon, on_kernel],
            own,
            random: Random::new(seed),
            count: 0,
        })
    }

    /// Starts the next of the storm: each point with each end, in turn.
    fn start(&mut self, slot: usize) -> Result<Running, String> {
        let orders = Orders {
            point: self.count % Point::ALL.len(),
            end: self.count / Point::ALL.len() % End::ALL.len(),
            seed: self.random.next(),
            port: FIRST + u16::try_from(slot).unwrap_or_default(),
        };
        let (point, end) = (Point::ALL[orders.point], End::ALL[orders.end]);
        let what = format!("program {} ({point:?}, {end:?})", self.count);
        self.count += 1;
        let file = self.served.place.folder.join("storm.err");
        let errors = fs::OpenOptions::new().create(true).append(true).open(file);
        let mut command = Command::new(&self.own);
        command
            .args(["--inner", "storm"])
            .arg(socket(&self.served.place));
        command.args(orders.arguments());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(errors.map_err(|e| e.to_string())?);
        let child = command.spawn().map_err(|e| e.to_string())?;
        Ok(Running { child, end, what })
    }

    /// So many programs; those that are stopped live until their places are needed.
    fn storm(&mut self, programs: usize) -> Outcome {
        let mut slots: [Option<Running>; AT_ONCE] = Default::default();
        let mut outcome = Ok(());
        for number in 0..programs {
            let slot = number % AT_ONCE;
            if let Some(last) = slots[slot].take() {
                outcome = last.settle(&self.served.place);
            }
            if outcome.is_err() {
                break;
            }
            slots[slot] = Some(self.start(slot)?);
        }
        for last in slots.into_iter().flatten() {
            outcome = outcome.and(last.settle(&self.served.place));
        }
        outcome.map_err(|why| format!("{why}\n    daemon: {}", self.served.daemon.said()))
    }

    /// The daemon has what it had.
    fn is_as(&self, before: &State) -> Outcome {
        let mut last = Ok(());
        eventually(SOON, || {
            last = State::of(&self.served).and_then(|now| now.is_as(before));
            last.is_ok()
        });
        last
    }

    /// Those that asked all the time have had every answer; no other program has ended, and none has panicked.
    fn end(mut self) -> Outcome {
        let folder = &self.served.place.folder;
        fs::write(folder.join("stop"), "").map_err(|e| e.to_string())?;
        for witness in self.witnesses {
            let said = witness.finish(SOON + SOON)?.success()?;
            println!("    {}", said.output.trim());
        }
        for process in [&mut self.server, &mut self.kernel, &mut self.served.daemon] {
            let said = process.said();
            if !process.is_running() || said.contains("panicked") {
                return Err(format!("`{}`: {said}", process.what));
            }
        }
        let log = fs::read_to_string(folder.join("daemon.err")).map_err(|e| e.to_string())?;
        match log.contains("panicked") {
            true => Err(format!("the daemon says {log:.2000}")),
            false => Ok(()),
        }
    }
}

fn storm(knobs: &Knobs) -> Outcome {
    let seed = std::env::var("NETCHAN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| netchan::Clock::Real.now().0);
    println!("    NETCHAN_SEED={seed}");
    let mut scene = Scene::new(seed)?;
    // What is made once stays.
    scene.storm(Point::ALL.len() * End::ALL.len())?;
    State::of(&scene.served)?;
    let before = State::of(&scene.served)?;
    scene.storm(knobs.storm)?;
    scene.is_as(&before)?;
    println!("    {} programs; {before:?}", knobs.storm);
    scene.end()
}
