//! The order of the stack's locks, in a build that checks it (F7): nothing is reported of code that is right, and of each kind of fault, planted
//! by a module that does what a module must not, both places are named.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use netchan::{
    Net, Regime, Threads,
    control::TOPICS,
    link::wire,
    module::{Boxed, Module, Point, Verdict, View},
    socket::{Domain, Kind, Socket, SocketOption},
};
use percore::{
    doorbell::{Doorbell, Sleep},
    witness::{self, Action, Fault, Report},
};

/// Commits a fault, once, on the thread that shows it the first packet.
struct Faulty {
    points: [Point; 1],
    done: AtomicBool,
    fault: Box<dyn Fn() + Send + Sync>,
}

impl Module for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }
    fn points(&self) -> &[Point] {
        &self.points
    }
    fn packet(&self, _: Point, _: &View<'_>, _: proto::time::Instant) -> Verdict {
        if !self.done.swap(true, SeqCst) {
            (self.fault)();
        }
        Verdict::Pass
    }
}

fn faulty(point: Point, fault: impl Fn() + Send + Sync + 'static) -> Boxed {
    Boxed::any(Faulty {
        points: [point],
        done: AtomicBool::new(false),
        fault: Box::new(fault),
    })
}

/// Two stacks that their callers turn, and a datagram socket on each. With several shards (`locked`) each half of an interface has a lock;
/// with one, everything is under the shard's.
struct World {
    nets: [Net; 2],
    sockets: [Arc<Socket>; 2],
}

impl World {
    fn new(regime: Regime, shards: usize) -> Self {
        let (a, b) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let builder = Net::builder().link_with(Box::new(link));
            let builder = builder.address(address).unwrap().regime(regime);
            let builder = if shards > 1 {
                builder.shards(shards)
            } else {
                builder
            };
            builder.threads(Threads::Caller).seed(1).start().unwrap()
        };
        let nets = [start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")];
        let sockets = [0, 1].map(|i| {
            let socket = Socket::new(&nets[i], Domain::V4, Kind::Datagram).unwrap();
            socket.bind("0.0.0.0:9".parse().unwrap()).unwrap();
            Arc::new(socket)
        });
        Self { nets, sockets }
    }

    /// A datagram from the first to the second.
    fn send(&self) {
        let to: SocketAddr = "10.0.0.2:9".parse().unwrap();
        let data = [std::io::IoSlice::new(b"x")];
        self.sockets[0].send(&data, Some(to)).unwrap();
        for _ in 0..5 {
            self.nets.iter().for_each(|net| {
                net.poll();
            });
        }
    }
}

/// The faults that `test` commits.
fn reports_of(test: impl FnOnce()) -> Vec<Report> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    witness::forget();
    witness::set_action(Action::Note);
    test();
    witness::set_action(Action::Panic);
    let reports = witness::reports();
    witness::forget();
    reports
}

/// Asserts that all reports are of this kind, and that one of them says all this.
fn is_reported(reports: &[Report], fault: Fault, says: &[&str]) {
    assert!(
        reports.iter().all(|report| report.fault == fault),
        "{reports:#?}"
    );
    let whole = |report: &Report| says.iter().all(|part| report.text.contains(part));
    assert!(
        reports.iter().any(whole),
        "no report says {says:?}: {reports:#?}"
    );
}

#[test]
fn nothing_is_reported_of_code_that_is_right() {
    let reports = reports_of(|| {
        for (regime, shards) in [
            (Regime::Giant, 1),
            (Regime::Locked, 2),
            (Regime::AppChannel, 1),
        ] {
            let world = World::new(regime, shards);
            for net in &world.nets {
                net.load_module(faulty(Point::In, || ())).unwrap();
            }
            world.send();
            for topic in TOPICS {
                world.nets[0].show(topic);
            }
            world.sockets[0]
                .set_option(SocketOption::ReuseAddress(true))
                .unwrap();
            world.nets[0].unload_module("faulty").unwrap();
            let again = faulty(Point::In, || ()).under_giant();
            world.nets[0].load_module(again).unwrap();
            world.send();
        }
    });
    assert!(reports.is_empty(), "{}", reports[0]);
}

#[test]
fn a_reversal_of_two_classes() {
    let reports = reports_of(|| {
        let (world, other) = (World::new(Regime::Locked, 2), World::new(Regime::Locked, 2));
        // Under both halves' locks, where packets to an own address come back, a shard is taken.
        let socket = other.sockets[0].clone();
        let fault = move || assert!(socket.available() == 0);
        world.nets[0].load_module(faulty(Point::In, fault)).unwrap();
        let to: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let data = [std::io::IoSlice::new(b"x")];
        world.sockets[0].send(&data, Some(to)).unwrap();
        (0..5).for_each(|_| _ = world.nets[0].poll());
    });
    let says = [
        "'shard' (rank 60) before 'transmit' (rank 70)",
        "'transmit' at ",
        "a_reversal_of_two_classes",
        "src/stack/hold.rs",
        "the declared order was first followed",
    ];
    is_reported(&reports, Fault::Reversal, &says);
}

#[test]
fn two_of_one_class() {
    let reports = reports_of(|| {
        let (world, other) = (
            World::new(Regime::AppChannel, 1),
            World::new(Regime::AppChannel, 1),
        );
        let socket = other.sockets[0].clone();
        let fault = move || assert!(socket.available() == 0);
        world.nets[1].load_module(faulty(Point::In, fault)).unwrap();
        world.send();
    });
    is_reported(
        &reports,
        Fault::Reversal,
        &["neither of 'shard' and 'shard'", "two_of_one_class"],
    );
}

#[test]
fn a_reversal_behind_giant() {
    let reports = reports_of(|| {
        let (world, other) = (World::new(Regime::Locked, 1), World::new(Regime::Locked, 1));
        let module = {
            let net = other.nets[0].clone();
            faulty(Point::In, move || {
                assert!(net.unload_module("nobody").is_err())
            })
        };
        world.nets[1].load_module(module.under_giant()).unwrap();
        world.send();
    });
    is_reported(
        &reports,
        Fault::Reversal,
        &["'changing modules' (rank 10)", "a_reversal_behind_giant"],
    );
}

#[test]
fn a_thread_that_waits_for_itself() {
    let reports = reports_of(|| {
        let world = World::new(Regime::AppChannel, 1);
        let socket = world.sockets[1].clone();
        let fault = move || assert!(socket.available() == 0);
        world.nets[1].load_module(faulty(Point::In, fault)).unwrap();
        world.send();
        // The module panicked instead of hanging for ever.
        let modules = world.nets[1].show("modules").unwrap().to_string();
        assert!(modules.contains("failed: it panicked"), "{modules}");
        let Ok(_socket) = Arc::try_unwrap(world.sockets.into_iter().next_back().unwrap()) else {
            return;
        };
    });
    is_reported(
        &reports,
        Fault::SelfDeadlock,
        &["class 'shard'", "was taken at", "netchan::stack::Stack"],
    );
}

#[test]
fn a_lock_held_across_a_sleep() {
    let reports = reports_of(|| {
        let world = World::new(Regime::Locked, 2);
        let bell = Doorbell::new().unwrap();
        let nap = move || {
            bell.arm(Sleep::Futex);
            bell.wait(Some(Duration::from_millis(1)));
            bell.disarm();
        };
        world.nets[1].load_module(faulty(Point::In, nap)).unwrap();
        world.send();
    });
    let says = [
        "goes to sleep in a doorbell",
        "'receive' at ",
        "it goes to sleep at",
        "a_lock_held_across_a_sleep",
    ];
    is_reported(&reports, Fault::HeldAsleep, &says);
}

#[test]
fn show_locks_names_holder_and_place() {
    let reports = reports_of(|| {
        let world = World::new(Regime::Locked, 2);
        let seen = Arc::new(Mutex::new(String::new()));
        let (net, into) = (world.nets[0].clone(), seen.clone());
        let look = move || *into.lock().unwrap() = net.show("locks").unwrap().to_string();
        world.nets[1].load_module(faulty(Point::In, look)).unwrap();
        world.send();
        let shown = seen.lock().unwrap().clone();
        for part in [
            "a 'receive'",
            "show_locks_names_holder_and_place",
            "stack/turn.rs:",
            "class 'shard'",
        ] {
            assert!(shown.contains(part), "'{part}' in {shown}");
        }
    });
    assert!(reports.is_empty(), "{}", reports[0]);
}
