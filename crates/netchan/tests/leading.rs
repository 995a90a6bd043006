//! A thread that waits for a socket polls the links itself, and the links' threads do where no thread waits.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use netchan::{
    Doorbell, Instant, MacAddr, Net, Regime, Slab,
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::Packet,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

/// Longer than anything here takes; a wait that ends by it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a link over a socket pair: it has a descriptor to sleep on, as a TAP has.
struct Pair {
    properties: Properties,
    socket: Arc<OwnedFd>,
}

fn pair() -> [Box<dyn Link>; 2] {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    [(ends.0, 1), (ends.1, 2)].map(|(socket, number)| {
        let properties = Properties {
            name: "pair".to_owned(),
            kind: "pair",
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            frame_max: 1500 + FRAME_OVERHEAD,
            segmentation: Segmentation::None,
        };
        let socket = Arc::new(socket);
        Box::new(Pair { properties, socket }) as Box<dyn Link>
    })
}

impl Link for Pair {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn start(self: Box<Self>, _: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: Box::new(Rx(self.socket.clone(), RxStatistics::default())),
            tx: Box::new(Tx(self.socket, TxStatistics::default())),
        }])
    }
}

struct Rx(Arc<OwnedFd>, RxStatistics);

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        for n in 0..max {
            let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
            match recv(&self.0, packet.room_mut(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(LinkError::Gone("the other end was closed".into())),
                Ok((len, _)) => packet.set_len(len),
                Err(Errno::AGAIN) => return Ok(n),
                Err(e) => return Err(LinkError::Io(e.into())),
            }
            self.1.packets += 1;
            burst.push_back(packet);
        }
        Ok(max)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
    fn statistics(&self) -> RxStatistics {
        self.1
    }
}

struct Tx(Arc<OwnedFd>, TxStatistics);

impl LinkTx for Tx {
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let offered = frames.len();
        while let Some(frame) = frames.front() {
            match send(&self.0, frame.bytes(), SendFlags::NOSIGNAL) {
                Ok(_) => self.1.packets += 1,
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(LinkError::Gone("the other end was closed".into())),
            }
            frames.pop_front();
        }
        Ok(offered - frames.len())
    }
    fn statistics(&self) -> TxStatistics {
        self.1
    }
}

const REGIMES: [Regime; 2] = [Regime::AppChannel, Regime::SocketChannel];

/// A server of `regime`, and a client whose links' threads poll always.
fn stacks(regime: Regime) -> (Net, Net) {
    let [ours, theirs] = pair();
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
fn each_of_several_that_wait_gets_its_own() {
    for regime in REGIMES {
        let (server, client) = stacks(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let accepting = thread::spawn(move || {
            let streams = (0..4).map(|_| listener.accept().unwrap().0);
            let serving: Vec<_> = streams.map(|s| thread::spawn(move || echo(s))).collect();
            serving.into_iter().for_each(|one| one.join().unwrap());
        });
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let mut stream = connect(&client);
                thread::spawn(move || (0..200).for_each(|n| ask(&mut stream, n)))
            })
            .collect();
        asking.into_iter().for_each(|one| one.join().unwrap());
        accepting.join().unwrap();
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
