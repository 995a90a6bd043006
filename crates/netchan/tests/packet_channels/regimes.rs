//! In each regime, with the stack's own threads.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use netchan::{
    Clock, Net, PacketDestination, PacketProtocol, Regime,
    link::{Queue, wire},
    socket::{Readiness, Waiter},
};

use percore::slab::Slab;

use super::{EXPERIMENT, FRAMES, counter, errno, ip, station};

const PATIENCE: Duration = Duration::from_secs(20);

const REGIMES: [Regime; 6] = [
    Regime::Giant,
    Regime::Locked,
    Regime::PerCpu,
    Regime::DriverChannel,
    Regime::SocketChannel,
    Regime::AppChannel,
];

fn pair(regime: Regime) -> [Net; 2] {
    let (a, b) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let builder = Net::builder().regime(regime).link_with(Box::new(link));
        builder.address(address).unwrap().start().unwrap()
    };
    [start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")]
}

/// What is sent is received or counted, in order; answers go back, too.
fn exchange(nets: &[Net; 2], protocol: PacketProtocol, to: [PacketDestination; 2]) {
    const COUNT: u32 = 2_000;
    let [a, b] = nets.each_ref().map(|net| {
        let channel = net.packet_channel(protocol).unwrap();
        channel.set_read_timeout(Some(PATIENCE)).unwrap();
        channel.set_write_timeout(Some(PATIENCE)).unwrap();
        channel
    });
    a.send_to(b"first", to[1]).unwrap(); // the neighbour becomes known
    assert_eq!(b.recv().unwrap().payload(), b"first");
    let echo = thread::spawn(move || {
        let (mut packets, mut last) = (Vec::new(), None);
        while last != Some(COUNT) {
            b.recv_batch(&mut packets, 32).unwrap();
            for packet in packets.drain(..) {
                let number = u32::from_be_bytes(packet.payload()[..4].try_into().unwrap());
                assert!(last < Some(number), "in order");
                last = Some(number);
                b.send_to(packet.payload(), to[0]).unwrap();
            }
        }
        b
    });
    let mut answers = 0;
    for number in 1..=COUNT {
        a.send_to(&number.to_be_bytes(), to[1]).unwrap();
        // As many are under way as a ring holds.
        while number - answers > 100 || (number == COUNT && answers < COUNT) {
            let packet = a.recv().unwrap();
            answers += 1;
            assert_eq!(packet.payload()[..4], answers.to_be_bytes());
        }
    }
    let b = echo.join().unwrap();
    assert_eq!((a.drops(), b.drops()), (0, 0));
}

#[test]
fn packets_go_both_ways_in_each() {
    for regime in REGIMES {
        println!("{regime}");
        let nets = pair(regime);
        let hosts = ["10.0.0.1", "10.0.0.2"].map(|to| PacketDestination::from(ip(to)));
        exchange(&nets, EXPERIMENT, hosts);
        let stations = nets.each_ref().map(station);
        exchange(&nets, FRAMES, stations);
        assert_eq!(counter(&nets[1], "packet_channel_in"), 4_002);
        assert_eq!(counter(&nets[1], "drop_ip_protocol"), 0);
    }
}

#[test]
fn waits_end() {
    for regime in REGIMES {
        println!("{regime}");
        let [a, b] = pair(regime);
        let [mine, theirs] = [&a, &b].map(|net| net.packet_channel(FRAMES).unwrap());
        mine.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let begin = Clock::Real.now();
        let late = mine.recv().unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        assert!(Clock::Real.now().since(begin) >= Duration::from_millis(20));
        mine.set_nonblocking(true).unwrap();
        assert_eq!(errno(mine.recv()), libc::EAGAIN);
        let mut waiter = Waiter::new(&a).unwrap();
        assert!(!waiter.register_packets(&mine, Readiness::READABLE));
        let to = station(&a);
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            theirs.send_to(b"wake up", to).unwrap();
            theirs
        });
        waiter.wait(&mut [], Some(PATIENCE)).unwrap();
        mine.deregister(waiter.waker());
        assert!(mine.readiness().contains(Readiness::READABLE));
        assert_eq!(mine.recv().unwrap().payload(), b"wake up");
        assert!(Clock::Real.now().since(begin) < PATIENCE);
        assert!(waiter.register_packets(&mine, Readiness::WRITABLE));
        drop(sender.join().unwrap());
    }
}

/// All buffers are on their way: a send waits until some are back.
#[test]
fn send_waits_for_buffers() {
    for regime in REGIMES {
        println!("{regime}");
        let (wire, far) = wire::pair(&wire::Options::default());
        let builder = Net::builder().regime(regime).link_with(Box::new(wire));
        let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
        let mut far = Queue::of(Box::new(far)).unwrap();
        let channel = net.packet_channel(FRAMES).unwrap();
        channel.set_nonblocking(true).unwrap();
        let to = station(&net);
        // None is taken at the other end.
        let sent = (0..10_000).find(|_| match channel.send_to(&[1; 1000], to) {
            Ok(len) => len != 1000,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        assert!(sent > Some(500), "{sent:?} found a buffer");
        assert!(!channel.readiness().contains(Readiness::WRITABLE));
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let taker = thread::spawn(move || {
            let mut slab = Slab::new(64, 2048).unwrap();
            let mut frames = VecDeque::new();
            thread::sleep(Duration::from_millis(30));
            while !is_done.load(Relaxed) {
                let now = Clock::Real.now();
                far.rx.receive(now, &mut slab, &mut frames, 64).unwrap();
                frames.clear();
                thread::yield_now();
            }
        });
        channel.set_nonblocking(false).unwrap();
        channel.set_write_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..3_000 {
            assert_eq!(channel.send_to(&[2; 1000], to).unwrap(), 1000);
        }
        done.store(true, Relaxed);
        taker.join().unwrap();
    }
}
