//! Leases of several links that one application has side by side, as a forked child has them of its parent's.

mod lease_service;

use std::{
    io::{Read, Write},
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use lease_service::{LENDER, PEER, application, leased, lender_and_peer, lender_of, pattern};
use netchan::{Clock, LeaseSize, Lent, Net, Regime, link::wire};

const PATIENCE: Duration = Duration::from_secs(20);

/// A lender with loopback addresses of its own, and its peer.
fn lender(regime: Regime) -> (Net, Net) {
    let settings = Net::builder().loopback(true).regime(regime);
    lender_of(settings, &wire::Options::default())
}

/// An application with leases of both of the lender's links.
fn with_both(lender: &Net, name: &str) -> (Net, [Arc<Lent>; 2]) {
    let first = lender.lend("", name, 0).unwrap();
    assert!(!first.set().has_room_for("") && first.set().has_room_for("lo"));
    let second = lender
        .lend_beside(Some(&first.set()), "lo", name, 0, LeaseSize::MOST)
        .unwrap();
    assert!(!first.set().has_room_for("lo"));
    let leases = [Arc::new(first), Arc::new(second)];
    let mut builder = Net::builder().loopback(true);
    for lent in &leases {
        builder = builder.link_with(Box::new(leased(lent, |_| ())));
    }
    (builder.start().unwrap(), leases)
}

/// One connection to a listener at `bound`, from each of these to each of their addresses.
fn reached(server: &Net, bound: &str, by: &[(&Net, &str)]) {
    let listener = server.tcp().listen(bound).unwrap();
    let sent = pattern(200_000, 3);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in by {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&sent).unwrap();
                let mut end = [0];
                let _ = stream.read(&mut end);
            }
        });
        for (client, to) in by {
            let address = to.parse().unwrap();
            let mut stream = client.tcp().connect_timeout(address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).unwrap();
            assert!(got == sent, "{to}");
        }
    });
}

#[test]
fn they_are_one_applications_at_all_addresses() {
    for regime in Regime::here() {
        let (lender, peer) = lender(regime);
        let (application, leases) = with_both(&lender, "both");
        assert_eq!(leases[0].ports().1, leases[1].ports().1);
        let own = format!("{LENDER}:80");
        reached(
            &application,
            "0.0.0.0:80",
            &[
                (&peer, &own),
                (&lender, &own),
                (&lender, "127.0.0.1:80"),
                (&application, "127.8.8.8:80"),
            ],
        );
        reached(&application, "[::1]:81", &[(&lender, "[::1]:81")]);
        reached(
            &peer,
            "0.0.0.0:82",
            &[(&application, &format!("{PEER}:82"))],
        );
        let own = format!("{LENDER}:83");
        reached(
            &lender,
            "0.0.0.0:83",
            &[
                (&application, "127.0.0.1:83"),
                (&application, &own),
                (&peer, &own),
            ],
        );
    }
}

#[test]
fn a_link_that_is_not_there_has_no_place_in_it() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let lent = lender.lend("", "one", 0).unwrap();
    let set = lent.set();
    assert!(!set.has_room_for("lo") && !set.has_room_for(""));
    assert!(
        lender
            .lend_beside(Some(&set), "lo", "one", 0, LeaseSize::MOST)
            .is_err()
    );
    assert_eq!(lender.lendable().len(), 1);
    let (application, _lent) = application(&lender, "other", Net::builder());
    assert!(application.lendable().is_empty(), "a lease is not lent on");
}

#[test]
fn their_ports_are_others_only_after_both() {
    let (lender, _peer) = lender(Regime::AppChannel);
    let (one, [first, second]) = with_both(&lender, "both");
    let listener = one.tcp().listen("0.0.0.0:80").unwrap();
    let (other, _other) = application(&lender, "other", Net::builder());
    let errno = |net: &Net| net.tcp().listen("0.0.0.0:80").unwrap_err().raw_os_error();
    assert_eq!(errno(&other), Some(libc::EADDRINUSE));
    assert_eq!(errno(&lender), Some(libc::EADDRINUSE));
    // More of them than a lease begins with, at either link.
    let target = lender.tcp().listen("0.0.0.0:81").unwrap();
    let connect = || {
        one.tcp()
            .connect_timeout("127.0.0.1:81".parse().unwrap(), PATIENCE)
    };
    let all: Vec<_> = (0..40).map(|_| connect().unwrap()).collect();
    let ranges = first.ports().1;
    assert!(ranges.len() > 1 && ranges == second.ports().1);
    drop((all, target, listener));
    let port = ranges[0].0;
    let at = |port: u16| lender.tcp().listen(format!("0.0.0.0:{port}"));
    drop(first);
    assert!(at(port).is_err(), "the other one has it still");
    drop((one, second));
    assert!(
        until(|| at(port).is_ok() && at(80).is_ok()),
        "both have ended"
    );
}

/// A thread that leads the links when the first lease comes goes on with it, and so do those that come later: what the application sends does not wait for them.
#[test]
fn a_thread_that_waits_leads_beside_leases() {
    for regime in Regime::here() {
        let lender = Net::builder().loopback(true).regime(regime);
        let lender = lender.start().unwrap();
        let leads = matches!(regime, Regime::Locked | Regime::AppChannel);
        assert!(until(|| is_led(&lender) == leads), "{regime}");
        let listener = lender.tcp().listen("127.0.0.1:80").unwrap();
        let at = "127.0.0.1:80".parse().unwrap();
        let (accepted, comes) = mpsc::channel();
        let waiting = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"hello").unwrap();
                accepted.send(()).unwrap();
            }
        });
        let hears = |net: &Net| {
            let connected = net.tcp().connect_timeout(at, PATIENCE);
            let mut stream = connected.unwrap_or_else(|e| panic!("{regime}: {e}"));
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            comes.recv_timeout(PATIENCE).unwrap();
        };
        hears(&lender);
        thread::sleep(Duration::from_millis(50)); // it sleeps by then
        let lent = Arc::new(lender.lend("", "late", 0).unwrap());
        let link = Box::new(leased(&lent, |_| ()));
        let application = Net::builder().loopback(true).link_with(link);
        let application = application.start().unwrap();
        hears(&application);
        waiting.join().unwrap();
        for _ in 0..2 {
            let other = lender.tcp().listen("127.0.0.1:81").unwrap();
            let (is_so, took) = thread::scope(|scope| {
                scope.spawn(|| other.accept().unwrap());
                let is_so = until(|| leads_links(&lender) == leads);
                let took = refusal(&application);
                let at = other.local_addr().unwrap();
                application.tcp().connect_timeout(at, PATIENCE).unwrap();
                (is_so, took)
            });
            assert!(is_so && took < STUCK, "{regime}: {is_so} {took:?}");
            lender.pause().resume().unwrap();
        }
    }
}

/// While a thread of the lender's waits, and so leads the links, an application sends at moments at which the link's thread is about to sleep again.
#[test]
fn what_is_sent_while_a_thread_leads_does_not_lie_there() {
    for regime in Regime::here() {
        let lender = Net::builder().loopback(true).regime(regime);
        let lender = lender.start().unwrap();
        let listener = lender.tcp().listen("127.0.0.1:80").unwrap();
        let at = listener.local_addr().unwrap();
        let waiting = thread::spawn(move || listener.accept().map(drop));
        let leads = matches!(regime, Regime::Locked | Regime::AppChannel);
        assert!(until(|| leads_links(&lender) == leads), "{regime}");
        let sharing = |name| application(&lender, name, Net::builder().loopback(true));
        let ((first, _first), (second, _second)) = (sharing("first"), sharing("second"));
        let server = second.udp().bind("127.0.0.1:53").unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = first.udp().bind("127.0.0.1:0").unwrap();
        for round in 0..10 * ROUNDS {
            let before = Clock::Real.now();
            for pause in [round % 50, 50, 0] {
                client.send_to(&[0], server.local_addr().unwrap()).unwrap();
                spin(Duration::from_micros(pause.into()));
            }
            for _ in 0..3 {
                server.recv_from(&mut [0]).unwrap();
            }
            let took = Clock::Real.now().since(before);
            assert!(took < STUCK, "{regime}, {round}: {took:?}");
        }
        lender.tcp().connect_timeout(at, PATIENCE).unwrap();
        waiting.join().unwrap().unwrap();
    }
}

/// A thread of the lender's that sends to its own addresses looks at leases, too. What it wakes is not left to a link's thread that sleeps.
#[test]
fn what_comes_while_the_lender_talks_to_itself() {
    let lender = Net::builder().loopback(true).start().unwrap();
    let sharing = |name| application(&lender, name, Net::builder().loopback(true));
    let ((first, _first), (second, _second)) = (sharing("first"), sharing("second"));
    let server = second.udp().bind("127.0.0.1:53").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = first.udp().bind("127.0.0.1:0").unwrap();
    let comes = || {
        let before = Clock::Real.now();
        client.send_to(&[1], server.local_addr().unwrap()).unwrap();
        server.recv_from(&mut [0]).unwrap();
        Clock::Real.now().since(before)
    };
    let at_once = Barrier::new(2);
    let longest = thread::scope(|scope| {
        scope.spawn(|| {
            let own = lender.udp().bind("127.0.0.1:54").unwrap();
            for round in 0..ROUNDS {
                at_once.wait();
                // Some of them hit the moment at which the link's thread is called.
                spin(Duration::from_micros((round % 200).into()));
                own.send_to(&[0], own.local_addr().unwrap()).unwrap();
                own.recv_from(&mut [0]).unwrap();
                at_once.wait();
            }
        });
        let mut longest = Duration::ZERO;
        for _ in 0..ROUNDS {
            thread::sleep(Duration::from_micros(100)); // the link's thread sleeps again
            at_once.wait();
            let together = comes();
            at_once.wait();
            longest = longest.max(together).max(comes());
        }
        longest
    });
    assert!(longest < STUCK, "{longest:?}");
}

const ROUNDS: u32 = 300;

/// No thread is away from a processor for so long; one that missed its wake-up sleeps for a second.
const STUCK: Duration = Duration::from_millis(500);

/// How long an application waits to hear that nothing listens there.
fn refusal(application: &Net) -> Duration {
    let before = Clock::Real.now();
    let at = "127.0.0.1:82".parse().unwrap();
    assert!(application.tcp().connect_timeout(at, PATIENCE).is_err());
    Clock::Real.now().since(before)
}

/// Whether a thread that waits a moment leads the links.
fn is_led(net: &Net) -> bool {
    thread::scope(|scope| {
        let listener = net.tcp().listen("127.0.0.1:0").unwrap();
        listener.set_nonblocking(false).unwrap();
        let at = listener.local_addr().unwrap();
        let waiting = scope.spawn(move || listener.accept().map(drop));
        thread::sleep(Duration::from_millis(30));
        let leads = leads_links(net);
        let _ = net.tcp().connect_timeout(at, PATIENCE).unwrap();
        waiting.join().unwrap().unwrap();
        leads
    })
}

/// Whether a thread that waits for a socket leads the links at this moment.
fn leads_links(net: &Net) -> bool {
    let threads = net.show("threads").unwrap().to_string();
    threads.contains("waits, polls the links")
}

fn spin(time: Duration) {
    let until = Clock::Real.now() + time;
    while Clock::Real.now() < until {
        std::hint::spin_loop();
    }
}

fn until(mut is_so: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is_so()
    })
}
