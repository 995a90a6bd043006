//! A thread that waits for a socket polls the links itself, and the links' threads do where no thread waits.

mod batches;
mod followers;
mod pair;
mod quiet;
mod spinning;

use std::{
    io::{ErrorKind, Read, Write},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    task::Wake,
    thread,
    time::Duration,
};

use netchan::{Clock, Net, Regime, link::Link, socket::Readiness};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, recv, shutdown, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};

use pair::{end, pair, pair_and_sockets};

/// Longer than anything here takes; a wait that ends by it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// For which a leader is away before a link's thread takes over, unless said otherwise.
const INTERVAL: Duration = Duration::from_millis(5);

const REGIMES: [Regime; 3] = [Regime::AppChannel, Regime::SocketChannel, Regime::Locked];

/// A server of `regime`, and a client whose links' threads poll always.
fn stacks(regime: Regime) -> (Net, Net) {
    between(pair(), regime)
}

/// The same at both ends of a link.
fn between([ours, theirs]: [Box<dyn Link>; 2], regime: Regime) -> (Net, Net) {
    let server = Net::builder().regime(regime).link_with(ours);
    let client = Net::builder().link_with(theirs).background(Duration::ZERO);
    (
        server.address("10.0.0.1/24").unwrap().start().unwrap(),
        client.address("10.0.0.2/24").unwrap().start().unwrap(),
    )
}

/// How often packets woke the server's link's thread.
fn wakeups(net: &Net) -> u64 {
    net.show("links").unwrap()[0]["wakeups"].as_u64().unwrap()
}

fn echo(mut stream: netchan::TcpStream) {
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() > 0 {
        stream.write_all(&byte).unwrap();
    }
}

fn ask(stream: &mut netchan::TcpStream, n: u8) {
    stream.write_all(&[n]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [n]);
}

fn connect(client: &Net) -> netchan::TcpStream {
    let stream = client.tcp().connect("10.0.0.1:7").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn requests_wake_the_thread_that_waits_and_not_the_links() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let serving = thread::spawn(move || echo(listener.accept().unwrap().0));
        let mut stream = connect(&client);
        (0..10).for_each(|n| ask(&mut stream, n));
        let before = wakeups(&server);
        (0..1000_u32).for_each(|n| ask(&mut stream, n.to_le_bytes()[0]));
        let woken = wakeups(&server) - before;
        // Where the machine stops the server for a while, a link's thread takes over.
        assert!(woken < 200, "{regime}: {woken} times for 1,000 requests");
        drop(stream);
        serving.join().unwrap();
    }
}

/// A thread waits for a connection while what another one sends finds the link gone, which no descriptor tells: how long it waits.
fn waits_without_link(regime: Regime) -> Duration {
    let (links, sockets) = pair_and_sockets();
    let (server, client) = between(links, regime);
    let listener = server.tcp().listen("0.0.0.0:7").unwrap();
    let _stream = connect(&client);
    let (mut accepted, _) = listener.accept().unwrap();
    let (says, hears) = mpsc::channel();
    thread::spawn(move || says.send(listener.accept().map_err(|e| e.kind())));
    thread::sleep(Duration::from_millis(50)); // it waits
    shutdown(&sockets[0], Shutdown::Write).unwrap();
    let begun = Clock::Real.now();
    let _ = accepted.write(b"!");
    let ended = hears.recv_timeout(PATIENCE).expect("it waits still");
    assert_eq!(ended.err(), Some(ErrorKind::NetworkDown), "{regime}");
    Clock::Real.now().since(begun)
}

#[test]
fn a_thread_that_waits_learns_that_what_was_sent_found_no_link() {
    for regime in REGIMES {
        // A timer of the neighbour table's ends it, too, after two seconds; not every kind of link has one.
        let is_soon = |_| waits_without_link(regime) < Duration::from_secs(1);
        assert!((0..5).any(is_soon), "{regime}");
    }
}

#[test]
fn a_links_thread_takes_over_from_a_leader_that_computes() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel();
        let serving = thread::spawn(move || {
            let first = listener.accept().unwrap();
            computed.recv_timeout(PATIENCE).unwrap();
            drop(first);
        });
        let first = connect(&client);
        // The kernel of a host would answer it, too: the address, the handshake.
        let second = connect(&client);
        done.send(()).unwrap();
        serving.join().unwrap();
        drop((first, second));
    }
}

#[test]
fn what_a_leader_sends_before_it_computes_goes_out() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let (done, computed) = mpsc::channel::<()>();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
            computed.recv_timeout(PATIENCE).unwrap();
        });
        let mut stream = connect(&client);
        ask(&mut stream, 1);
        done.send(()).unwrap();
        serving.join().unwrap();
    }
}

#[test]
fn a_call_that_never_waits_gets_what_comes() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap(); // it led, and is away now
            stream.set_nonblocking(true).unwrap();
            let (mut byte, mut got) = ([0], 0);
            while got < 100 {
                match stream.read(&mut byte) {
                    Ok(0) => panic!("the end comes after a hundred"),
                    Ok(_) => got += 1,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                    Err(e) => panic!("{e}"),
                }
                stream.write_all(&byte).unwrap();
            }
        });
        let mut stream = connect(&client);
        (0..100).for_each(|n| ask(&mut stream, n));
        serving.join().unwrap();
    }
}

#[test]
fn packets_to_an_own_address_need_no_other_thread() {
    for regime in REGIMES {
        let (server, _client) = stacks(regime);
        let listener = server.tcp().listen("10.0.0.1:7").unwrap();
        let serving = thread::spawn(move || echo(listener.accept().unwrap().0));
        let mut stream = server.tcp().connect("10.0.0.1:7").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (0..100).for_each(|n| ask(&mut stream, n));
        drop(stream);
        serving.join().unwrap();
    }
}

/// A stack of `regime` on one end of a pair, whose leader may be away for an interval, and the other end, whose receive gives up after [`PATIENCE`].
fn alone(regime: Regime, interval: Duration) -> (Net, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::io::ioctl_fionbio(&ends.0, true).unwrap();
    set_socket_timeout(&ends.1, Timeout::Recv, Some(PATIENCE)).unwrap();
    let net = Net::builder().regime(regime).link_with(end(ends.0, 1));
    let net = net.background(interval);
    (net.address("10.0.0.1/24").unwrap().start().unwrap(), ends.1)
}

/// A neighbour that does not answer is asked again, although the thread that polls the links knew of no timer when it fell asleep.
fn asks_again(regime: Regime) {
    let (net, far) = alone(regime, INTERVAL);
    let waits = net.udp().bind("0.0.0.0:9").unwrap();
    let waiting = thread::spawn(move || waits.recv_from(&mut [0; 8]).unwrap());
    // So that it leads, the links' threads rest, and the address was announced for the last time (RFC 5227 §2.3), as a rule.
    thread::sleep(Duration::from_millis(2_500));
    let sender = net.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    let mut asked = 0;
    while asked < 2 {
        let mut frame = [0; 1514];
        let (len, _) = recv(&far, &mut frame, RecvFlags::empty()).expect("it asks again");
        asked += u32::from(frame[..len].get(38..42) == Some(&[10, 0, 0, 2]));
    }
    sender.send_to(b"done", "10.0.0.1:9").unwrap();
    waiting.join().unwrap();
}

#[test]
fn timers_that_other_threads_start_run_while_a_thread_leads() {
    let asking = REGIMES.map(|regime| thread::spawn(move || asks_again(regime)));
    asking.into_iter().for_each(|one| one.join().unwrap());
}

/// Awaits an IPv4 packet of this protocol; answers ARP requests for 10.0.0.2 meanwhile (RFC 826), with the two ends exchanged.
fn await_packet(far: &OwnedFd, protocol: u8) {
    let mut frame = [0; 1514];
    while frame[12..14] != [8, 0] || frame[23] != protocol {
        recv(far, &mut frame, RecvFlags::empty()).expect("it comes");
        if frame[12..14] == [8, 6] && frame[38..42] == [10, 0, 0, 2] {
            frame[21] = 2;
            frame.copy_within(22..32, 32);
            frame[22..32].copy_from_slice(&[2, 0, 0, 0, 0, 9, 10, 0, 0, 2]);
            frame.copy_within(32..38, 0);
            frame.copy_within(22..28, 6);
            rustix::io::write(far, &frame[..42]).unwrap();
        }
    }
}

/// A SYN that is not answered is sent again, although the thread that polls the links knew of no timer when it fell asleep.
fn connects_again(regime: Regime) {
    let (net, far) = alone(regime, INTERVAL);
    let waits = net.udp().bind("0.0.0.0:9").unwrap();
    let waiting = thread::spawn(move || waits.recv_from(&mut [0; 8]).unwrap());
    let sender = net.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    await_packet(&far, 17); // the neighbour is known: nothing else wakes the thread that waits
    thread::sleep(Duration::from_millis(2_500)); // as above
    let calling = net.clone();
    let call = thread::spawn(move || calling.tcp().connect("10.0.0.2:7"));
    (0..2).for_each(|_| await_packet(&far, 6));
    sender.send_to(b"done", "10.0.0.1:9").unwrap();
    waiting.join().unwrap();
    drop(far);
    call.join().unwrap().unwrap_err();
}

#[test]
fn timers_of_shards_that_other_threads_start_run_while_a_thread_leads() {
    let calling = REGIMES.map(|regime| thread::spawn(move || connects_again(regime)));
    calling.into_iter().for_each(|one| one.join().unwrap());
}

/// A new address is announced at once, although the thread that polls the links sleeps.
#[test]
fn a_new_address_is_announced_while_a_thread_leads() {
    for regime in REGIMES {
        let (net, far) = alone(regime, INTERVAL);
        let waits = net.udp().bind("0.0.0.0:9").unwrap();
        let waiting = thread::spawn(move || waits.recv_from(&mut [0; 8]).unwrap());
        thread::sleep(Duration::from_millis(50)); // so that it leads, and the links' threads rest, as a rule
        net.add_address("", "10.0.0.7/24").unwrap();
        loop {
            let mut frame = [0; 1514];
            let (len, _) = recv(&far, &mut frame, RecvFlags::empty()).expect("it is announced");
            if frame[..len].get(28..32) == Some(&[10, 0, 0, 7]) {
                break;
            }
        }
        let sender = net.udp().bind("0.0.0.0:0").unwrap();
        sender.send_to(b"done", "10.0.0.1:9").unwrap();
        waiting.join().unwrap();
    }
}

/// What connections say whose link goes may be for ourselves: the leader, in the middle of that link's turn, must not wait for it.
#[test]
fn a_leader_whose_link_goes_tells_its_connections() {
    for regime in REGIMES {
        let (net, far_end) = alone(regime, INTERVAL);
        let listener = net.tcp().listen("0.0.0.0:7").unwrap();
        let (ready, is_ready) = mpsc::channel();
        let serving = thread::spawn(move || {
            let mut near = net.tcp().connect("10.0.0.1:7").unwrap();
            let (mut far, _) = listener.accept().unwrap();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            ask_between(&mut near, &mut far);
            ready.send(()).unwrap();
            let gone = far.read(&mut [0]).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NetworkDown, "{regime}");
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        thread::sleep(Duration::from_millis(20)); // so that it waits, as a rule
        drop(far_end);
        serving.join().unwrap();
    }
}

fn ask_between(near: &mut netchan::TcpStream, far: &mut netchan::TcpStream) {
    near.write_all(&[7]).unwrap();
    let mut byte = [0];
    far.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [7]);
}

/// A loop of calls that never wait, right after one that did: [`Net::poll`] takes in what has come, and wakes what waits for it.
#[test]
fn a_poll_takes_in_what_has_come() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    for regime in REGIMES {
        let [ours, theirs] = pair();
        let server = Net::builder().regime(regime).link_with(ours);
        let server = server.background(Duration::from_millis(100));
        let server = server.address("10.0.0.1/24").unwrap().start().unwrap();
        let client = Net::builder().link_with(theirs);
        let client = client.address("10.0.0.2/24").unwrap().start().unwrap();
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let connecting = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50)); // so that accept waits, as a rule
            (connect(&client), client)
        });
        let (there, _) = listener.accept().unwrap(); // it led, and is away now
        let (mut stream, _client) = connecting.join().unwrap();
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = flag.clone().into();
        assert!(!there.socket().register(Readiness::READABLE, &waker));
        stream.write_all(&[7]).unwrap();
        while !server.poll() && !flag.0.load(Relaxed) {
            thread::yield_now();
        }
        // One frame has come: that byte. Where a link's thread was first, the background poller wakes it.
        assert!(flag.0.load(Relaxed), "{regime}");
    }
}

#[test]
fn an_interval_out_of_range_is_refused() {
    let [link, _far] = pair();
    let builder = Net::builder()
        .link_with(link)
        .background(Duration::from_millis(101));
    let refused = builder
        .address("10.0.0.1/24")
        .unwrap()
        .start()
        .err()
        .unwrap();
    assert!(refused.to_string().contains("0 to 100 ms"), "{refused}");
}
