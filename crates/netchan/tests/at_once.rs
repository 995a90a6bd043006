//! Traffic of a stack to its own addresses is there at once, in every regime: nothing waits for a tick, a timer or another socket call.
//!
//! What waits for a tick (10 ms or more) waits for one each time, since each trip begins where the last one ended. So of many batches of
//! trips none is quick then; on a busy machine most are slow, and one quick one shows that nothing waits.

use std::{
    io::{self, ErrorKind::WouldBlock, IoSlice, IoSliceMut, Read, Write},
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use netchan::{
    Dispatch, Net, Regime, TcpStream, UdpSocket,
    link::wire,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, Waiter},
};

/// Trips in a batch, and how long it may take: half a tick for each trip.
const TRIPS: u32 = 20;
const QUICK: Duration = Duration::from_millis(5 * TRIPS as u64);
const PATIENCE: Duration = Duration::from_secs(20);

/// Every regime with each dispatch that it has.
const REGIMES: [(Regime, Dispatch); 9] = [
    (Regime::Giant, Dispatch::Direct),
    (Regime::Giant, Dispatch::Deferred),
    (Regime::Locked, Dispatch::Direct),
    (Regime::Locked, Dispatch::Deferred),
    (Regime::Locked, Dispatch::Hybrid),
    (Regime::PerCpu, Dispatch::Direct),
    (Regime::DriverChannel, Dispatch::Direct),
    (Regime::SocketChannel, Dispatch::Direct),
    (Regime::AppChannel, Dispatch::Direct),
];

/// Addresses of a stack's own: of its first link, of its second one, and of the other family.
const OWN: [&str; 3] = ["10.0.0.1:0", "10.0.1.1:0", "[fd00::1]:0"];

fn start((regime, dispatch): (Regime, Dispatch)) -> Net {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let net = Net::builder().link_with(Box::new(ours));
    let net = net.address("10.0.0.1/24").unwrap();
    let net = net
        .address("fd00::1/64")
        .unwrap()
        .link_with(Box::new(theirs));
    let net = net.address("10.0.1.1/24").unwrap();
    net.regime(regime).dispatch(dispatch).start().unwrap()
}

/// Makes trips until a batch of them was quick, for a while; how long the quickest one took, if it was ended.
#[allow(clippy::disallowed_methods)] // a test's stopwatch
fn best(mut trip: impl FnMut()) -> Duration {
    let since = Instant::now();
    let mut best = Duration::MAX;
    while best >= QUICK && since.elapsed() < PATIENCE {
        let began = Instant::now();
        let in_time = |_: &u32| began.elapsed() < QUICK;
        (0..TRIPS).take_while(in_time).for_each(|_| trip());
        best = best.min(began.elapsed());
    }
    best
}

/// Calls until the answer is something else than "not yet".
#[allow(clippy::disallowed_methods)] // a patience in the machine's time
fn until<R>(what: &str, mut call: impl FnMut() -> io::Result<R>) -> R {
    let since = Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == WouldBlock => {
                assert!(since.elapsed() < PATIENCE, "{what}: never");
                thread::yield_now();
            }
            other => return other.unwrap_or_else(|error| panic!("{what}: {error}")),
        }
    }
}

/// Runs `test` for each regime and each address of its own, with a name for both. None of them may wait.
fn everywhere(test: impl Fn(&str, &Net, &str) -> Duration) {
    let mut slow = Vec::new();
    for regime in REGIMES {
        let net = start(regime);
        for own in OWN {
            let name = format!("{} {:?} {own}", regime.0, regime.1);
            let best = test(&name, &net, own);
            if best >= QUICK {
                slow.push(format!("{name}: {TRIPS} trips take {best:?} or more"));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn datagrams_that_a_thread_waits_for() {
    everywhere(|name, net, own| {
        let (near, far) = (net.udp().bind(own).unwrap(), net.udp().bind(own).unwrap());
        let (to, back) = (far.local_addr().unwrap(), near.local_addr().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [1];
                while byte != [0] {
                    far.recv(&mut byte).unwrap();
                    far.send_to(&byte, back).unwrap();
                }
            });
            let trip = |byte| {
                near.send_to(&[byte], to).unwrap();
                let mut got = [9];
                near.recv(&mut got).unwrap();
                assert_eq!(got, [byte], "{name}");
            };
            let best = best(|| trip(7));
            trip(0);
            best
        })
    });
}

#[test]
fn datagrams_that_nothing_waits_for() {
    everywhere(|name, net, own| {
        let bind = || -> UdpSocket {
            let socket = net.udp().bind(own).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (near, far) = (bind(), bind());
        let (to, back) = (far.local_addr().unwrap(), near.local_addr().unwrap());
        best(|| {
            let mut got = [9];
            near.send_to(b"?", to).unwrap();
            until(name, || far.recv(&mut got));
            far.send_to(b"!", back).unwrap();
            until(name, || near.recv(&mut got));
            assert_eq!(&got, b"!", "{name}");
        })
    });
}

#[test]
fn connections_that_threads_wait_for() {
    everywhere(|name, net, own| {
        let listener = net.tcp().listen(own).unwrap();
        let to = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [1];
                while byte != [0] {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.read_exact(&mut byte).unwrap();
                    stream.write_all(&byte).unwrap();
                }
            });
            let trip = |byte| {
                let mut stream: TcpStream = net.tcp().connect(to).unwrap();
                stream.write_all(&[byte]).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap(); // until it is closed
                assert_eq!(got, [byte], "{name}");
            };
            let best = best(|| trip(7));
            trip(0);
            best
        })
    });
}

/// One thread, two ends, and no call that waits.
#[test]
fn connections_that_nothing_waits_for() {
    everywhere(|name, net, own| {
        let listener = net.tcp().listen(own).unwrap();
        let to = listener.local_addr().unwrap();
        let listener = listener.socket();
        best(|| {
            let near = Socket::new(net, domain(to), Kind::Stream).unwrap();
            until(name, || match near.connect(to) {
                Err(error) if is_under_way(&error) => Err(WouldBlock.into()),
                other => other,
            });
            let (far, _) = until(name, || listener.accept());
            for (from, to) in [(&near, &far), (&far, &near)] {
                until(name, || from.send(&[IoSlice::new(b"?")], None));
                assert_eq!(receive(name, to), 1);
            }
            drop(near);
            assert_eq!(receive(name, &far), 0, "the end");
        })
    });
}

fn is_under_way(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINPROGRESS | libc::EALREADY)
    )
}

fn receive(name: &str, socket: &Socket) -> usize {
    let mut byte = [0];
    let flags = ReceiveFlags::default();
    until(name, || {
        socket.receive(&mut [IoSliceMut::new(&mut byte)], flags)
    })
    .len
}

/// One thread that waits for all its sockets at once, as an event loop does.
#[test]
fn what_an_event_loop_waits_for() {
    everywhere(|name, net, own| {
        let listener = net.tcp().listen(own).unwrap();
        let to = listener.local_addr().unwrap();
        let listener = listener.socket();
        let datagrams = net.udp().bind(own).unwrap();
        let datagrams = datagrams.socket();
        let mut waiter = Waiter::new(net).unwrap();
        let mut wait = |sockets: &[(&Socket, Readiness)]| {
            let ready = sockets.iter().fold(false, |ready, (socket, interest)| {
                waiter.register(socket, *interest) | ready
            });
            if !ready {
                waiter.wait(&mut [], Some(PATIENCE)).unwrap();
            }
            for (socket, _) in sockets {
                socket.deregister(waiter.waker());
            }
        };
        best(|| {
            let near = Socket::new(net, domain(to), Kind::Stream).unwrap();
            let idle = (datagrams, Readiness::READABLE);
            while !matches!(near.connect(to), Ok(())) {
                wait(&[(&near, Readiness::WRITABLE), idle]);
            }
            let far = loop {
                match listener.accept() {
                    Ok((far, _)) => break far,
                    Err(_) => wait(&[(listener, Readiness::READABLE), idle]),
                }
            };
            far.send(&[IoSlice::new(b"!")], None).unwrap();
            let mut byte = [0];
            let flags = ReceiveFlags::default();
            while near
                .receive(&mut [IoSliceMut::new(&mut byte)], flags)
                .is_err()
            {
                wait(&[
                    (&near, Readiness::READABLE),
                    idle,
                    (listener, Readiness::READABLE),
                ]);
            }
            assert_eq!(&byte, b"!", "{name}");
        })
    });
}

const fn domain(of: SocketAddr) -> Domain {
    if of.is_ipv4() { Domain::V4 } else { Domain::V6 }
}
