//! Sockets that share a port: which of them a datagram or a connection falls to, and which may be bound at all. Beside the kernel's, in
//! every regime.

use std::{
    cell::Cell,
    collections::HashSet,
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use netchan::{
    Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname,
    listen, recv, sendto, socket_with, sockopt,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// SO_REUSEADDR, SO_REUSEPORT.
#[derive(Clone, Copy, Debug, Default)]
struct Reuse {
    address: bool,
    port: bool,
}

const NEITHER: Reuse = Reuse {
    address: false,
    port: false,
};
const ADDRESS: Reuse = Reuse {
    address: true,
    ..NEITHER
};
const PORT: Reuse = Reuse {
    port: true,
    ..NEITHER
};

/// Sockets of netchan, or the kernel's. No call waits.
trait Side {
    type Socket;
    /// Two addresses of its own.
    fn own(&self) -> [IpAddr; 2];
    fn socket(&self, kind: Kind, reuse: Reuse) -> Self::Socket;
    fn bind(&self, socket: &Self::Socket, to: SocketAddr) -> io::Result<()>;
    fn listen(&self, socket: &Self::Socket) -> io::Result<()>;
    fn accept(&self, socket: &Self::Socket) -> io::Result<Self::Socket>;
    fn connect(&self, socket: &Self::Socket, to: SocketAddr) -> io::Result<()>;
    fn local(&self, socket: &Self::Socket) -> SocketAddr;
    fn send(&self, socket: &Self::Socket, byte: u8, to: SocketAddr);
    /// The first byte, or 0 at the end.
    fn receive(&self, socket: &Self::Socket) -> Option<u8>;

    /// What has come is taken in, by a stack without threads.
    fn turn(&self) {}

    /// A socket that is bound, or the name of what bind(2) says.
    fn bound(
        &self,
        kind: Kind,
        reuse: Reuse,
        to: SocketAddr,
    ) -> Result<Self::Socket, &'static str> {
        let socket = self.socket(kind, reuse);
        match self.bind(&socket, to) {
            Ok(()) => Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err("in use"),
            Err(error) => panic!("{error}"),
        }
    }
}

struct Ours<'a>(&'a Net);

impl Side for Ours<'_> {
    type Socket = Socket;
    fn turn(&self) {
        self.0.poll();
    }
    fn own(&self) -> [IpAddr; 2] {
        ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap())
    }
    fn socket(&self, kind: Kind, reuse: Reuse) -> Socket {
        let socket = Socket::new(self.0, Domain::V4, kind).unwrap();
        let set = |option| socket.set_option(option).unwrap();
        set(SocketOption::ReuseAddress(reuse.address));
        set(SocketOption::ReusePort(reuse.port));
        socket
    }
    fn bind(&self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        socket.bind(to)
    }
    fn listen(&self, socket: &Socket) -> io::Result<()> {
        socket.listen(1000)
    }
    fn accept(&self, socket: &Socket) -> io::Result<Socket> {
        Ok(socket.accept()?.0)
    }
    fn connect(&self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        socket.connect(to)
    }
    fn local(&self, socket: &Socket) -> SocketAddr {
        socket.local_address()
    }
    fn send(&self, socket: &Socket, byte: u8, to: SocketAddr) {
        socket.send(&[IoSlice::new(&[byte])], Some(to)).unwrap();
    }
    fn receive(&self, socket: &Socket) -> Option<u8> {
        let mut byte = [0];
        let flags = ReceiveFlags::default();
        let received = socket.receive(&mut [IoSliceMut::new(&mut byte)], flags);
        received
            .ok()
            .map(|received| if received.len == 0 { 0 } else { byte[0] })
    }
}

struct Kernel;

impl Side for Kernel {
    type Socket = OwnedFd;
    fn own(&self) -> [IpAddr; 2] {
        ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap())
    }
    fn socket(&self, kind: Kind, reuse: Reuse) -> OwnedFd {
        let kind = match kind {
            Kind::Stream => SocketType::STREAM,
            Kind::Datagram | Kind::Ping => SocketType::DGRAM,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, kind, flags, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, reuse.address).unwrap();
        sockopt::set_socket_reuseport(&socket, reuse.port).unwrap();
        socket
    }
    fn bind(&self, socket: &OwnedFd, to: SocketAddr) -> io::Result<()> {
        Ok(bind(socket, &to)?)
    }
    fn listen(&self, socket: &OwnedFd) -> io::Result<()> {
        Ok(listen(socket, 1000)?)
    }
    fn accept(&self, socket: &OwnedFd) -> io::Result<OwnedFd> {
        Ok(rustix::net::accept(socket)?)
    }
    fn connect(&self, socket: &OwnedFd, to: SocketAddr) -> io::Result<()> {
        Ok(connect(socket, &to)?)
    }
    fn local(&self, socket: &OwnedFd) -> SocketAddr {
        getsockname(socket).unwrap().try_into().unwrap()
    }
    fn send(&self, socket: &OwnedFd, byte: u8, to: SocketAddr) {
        sendto(socket, &[byte], SendFlags::empty(), &to).unwrap();
    }
    fn receive(&self, socket: &OwnedFd) -> Option<u8> {
        let mut byte = [0];
        let received = recv(socket, &mut byte, RecvFlags::empty());
        received.ok().map(|_| byte[0])
    }
}

/// A stack whose wire leads to itself.
fn start(regime: Regime, threads: Threads) -> Net {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let net = Net::builder().link_with(Box::new(ours));
    let net = net.address("10.0.0.1/24").unwrap();
    let net = net
        .address("10.0.0.2/24")
        .unwrap()
        .link_with(Box::new(theirs));
    net.regime(regime)
        .threads(threads)
        .seed(18)
        .start()
        .unwrap()
}

/// What happens on the kernel happens in every regime, with threads of its own and without.
fn beside_the_kernel(ours: impl Fn(&Ours<'_>) -> Vec<String>, kernels: Vec<String>) {
    for threads in [Threads::Own, Threads::Caller] {
        for regime in Regime::here() {
            let net = start(regime, threads);
            assert_eq!(ours(&Ours(&net)), kernels, "{regime} {threads:?}");
        }
    }
}

/// Calls until it says something.
#[allow(clippy::disallowed_methods)] // a patience in the machine's time
fn until<R>(what: &str, mut call: impl FnMut() -> Option<R>) -> R {
    let since = Instant::now();
    loop {
        if let Some(result) = call() {
            return result;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: never");
        thread::yield_now();
    }
}

/// Sends a datagram from `from`, and says which of `sockets` has got it.
fn taker<S: Side>(side: &S, from: &S::Socket, to: SocketAddr, sockets: &[&S::Socket]) -> usize {
    side.send(from, 7, to);
    until("a datagram", || {
        sockets
            .iter()
            .position(|socket| side.receive(socket).is_some())
    })
}

/// No address and no port.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn datagrams<S: Side>(side: &S) -> Vec<String> {
    let log = Cell::new(Vec::new());
    let say = |what: &str, of: String| {
        let mut lines = log.take();
        lines.push(format!("{what}: {of}"));
        log.set(lines);
    };
    let open = |reuse, to| side.bound(Kind::Datagram, reuse, to);
    let a = open(ADDRESS, ANY).ok().unwrap();
    let wild = SocketAddr::new(ANY.ip(), side.local(&a).port());
    let [first, second] = side.own().map(|ip| SocketAddr::new(ip, wild.port()));
    let near = |ip| SocketAddr::new(ip, 0);
    let (x, y) = (
        open(NEITHER, near(first.ip())),
        open(NEITHER, near(first.ip())),
    );
    let (x, y) = (x.ok().unwrap(), y.ok().unwrap());
    let b = open(ADDRESS, wild).ok().unwrap();
    for (name, reuse) in [("neither", NEITHER), ("port", PORT)] {
        say(name, format!("{:?}", open(reuse, wild).err()));
    }
    say("last bound", taker(side, &x, first, &[&a, &b]).to_string());
    let c = open(ADDRESS, first).ok().unwrap();
    say("nearer", taker(side, &x, first, &[&a, &b, &c]).to_string());
    say(
        "elsewhere",
        taker(side, &x, second, &[&a, &b, &c]).to_string(),
    );
    let d = open(ADDRESS, wild).ok().unwrap();
    side.connect(&d, side.local(&x)).unwrap();
    say(
        "connected",
        taker(side, &x, first, &[&a, &b, &c, &d]).to_string(),
    );
    say(
        "a stranger",
        taker(side, &y, first, &[&a, &b, &c, &d]).to_string(),
    );
    drop((c, d));
    say("left over", taker(side, &x, first, &[&a, &b]).to_string());
    drop(a);
    let e = open(ADDRESS, wild).ok().unwrap();
    say("a later one", taker(side, &x, first, &[&b, &e]).to_string());
    drop(e);
    say("an earlier one", taker(side, &x, first, &[&b]).to_string());
    drop(b);
    // One after the other shares the port; then one more that only reuses the address cannot come in between.
    let sharing: Vec<_> = (0..4).map(|_| open(PORT, wild).ok().unwrap()).collect();
    say("address", format!("{:?}", open(ADDRESS, wild).err()));
    let sharing: Vec<_> = sharing.iter().collect();
    let mut got = [0; 4];
    for _ in 0..64 {
        let from = open(NEITHER, near(first.ip())).ok().unwrap();
        let takers = [0; 3].map(|_| taker(side, &from, first, &sharing));
        assert_eq!(takers, [takers[0]; 3], "a flow stays where it is");
        got[takers[0]] += 1;
    }
    // Sixteen each; fewer than four come once in 10,000 draws.
    say("each has some", format!("{}", got.iter().all(|&n| n >= 4)));
    log.take()
}

#[test]
fn datagrams_fall_to_the_socket_that_the_kernel_would_choose() {
    beside_the_kernel(|ours| datagrams(ours), datagrams(&Kernel));
}

fn is_under_way(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINPROGRESS | libc::EALREADY)
    )
}

/// A connection to `to`, which one of `listeners` accepts: both ends, and which.
fn connected<S: Side>(
    side: &S,
    reuse: Reuse,
    to: SocketAddr,
    listeners: &[&S::Socket],
) -> (S::Socket, S::Socket, usize) {
    let near = side.socket(Kind::Stream, reuse);
    until("a connection", || match side.connect(&near, to) {
        Err(error) if is_under_way(&error) => None,
        other => {
            other.unwrap();
            Some(())
        }
    });
    let accept = |(at, listener)| Some((side.accept(listener).ok()?, at));
    let (far, at) = until("accept", || {
        listeners.iter().copied().enumerate().find_map(accept)
    });
    (near, far, at)
}

fn listeners<S: Side>(side: &S) -> Vec<String> {
    let mut log = Vec::new();
    for count in [2, 3, 4] {
        let mut bound = vec![side.bound(Kind::Stream, PORT, ANY).ok().unwrap()];
        let wild = SocketAddr::new(ANY.ip(), side.local(&bound[0]).port());
        bound.extend((1..count).map(|_| side.bound(Kind::Stream, PORT, wild).ok().unwrap()));
        bound.iter().for_each(|socket| side.listen(socket).unwrap());
        let to = SocketAddr::new(side.own()[0], wild.port());
        let listening: Vec<_> = bound.iter().collect();
        let mut got = vec![0; count];
        for _ in 0..32 * count {
            got[connected(side, NEITHER, to, &listening).2] += 1;
        }
        // 32 each; fewer than 12 come once in 10,000 draws.
        log.push(format!("{count}: {}", got.iter().all(|&n| n >= 12)));
    }
    log
}

#[test]
fn connections_are_spread_over_the_listeners() {
    beside_the_kernel(|ours| listeners(ours), listeners(&Kernel));
}

/// What may be bound to the port of a connection, by what it says of sharing, and where.
fn binds<S: Side>(side: &S, what: &str, port: u16, log: &mut Vec<String>) {
    let [first, second] = side.own();
    for reuse in [NEITHER, ADDRESS, PORT] {
        let said = [ANY.ip(), first, second].map(|ip| {
            let bound = side.bound(Kind::Stream, reuse, SocketAddr::new(ip, port));
            bound.err().unwrap_or("free")
        });
        log.push(format!("{what}, {reuse:?}: {said:?}"));
    }
}

fn ports<S: Side>(side: &S) -> Vec<String> {
    let mut log = Vec::new();
    let listen = |reuse| {
        let at = SocketAddr::new(side.own()[0], 0);
        let listener = side.bound(Kind::Stream, reuse, at).ok().unwrap();
        side.listen(&listener).unwrap();
        (side.local(&listener), listener)
    };
    for reuse in [NEITHER, ADDRESS, PORT] {
        let (to, listener) = listen(reuse);
        let (near, far, _) = connected(side, reuse, to, &[&listener]);
        let chosen = side.local(&near);
        binds(side, "chosen by connect", chosen.port(), &mut log);
        let datagram = side.bound(Kind::Datagram, NEITHER, chosen);
        log.push(format!("of UDP: {:?}", datagram.err()));
        drop(listener);
        binds(side, "of one that was accepted", to.port(), &mut log);
        drop(near);
        until("its end", || (side.receive(&far) == Some(0)).then_some(()));
        drop(far);
        // It was the second to close: nothing is left of it. The first is in TIME-WAIT.
        until("a free port", || {
            side.turn();
            side.bound(Kind::Stream, NEITHER, to).ok()
        });
        binds(side, "in TIME-WAIT", chosen.port(), &mut log);
    }
    log
}

#[test]
fn a_port_that_a_connection_has_is_not_bound() {
    beside_the_kernel(|ours| ports(ours), ports(&Kernel));
}

/// Of many ports that connections chose, bind(2) finds one that none has.
#[test]
fn bind_chooses_a_port_that_no_connection_has() {
    let net = start(Regime::Locked, Threads::Caller);
    let side = Ours(&net);
    let listener = side.bound(Kind::Stream, NEITHER, ANY).ok().unwrap();
    side.listen(&listener).unwrap();
    let to = SocketAddr::new(side.own()[0], side.local(&listener).port());
    let open: Vec<_> = (0..300)
        .map(|_| connected(&side, NEITHER, to, &[&listener]))
        .collect();
    let taken: HashSet<_> = open
        .iter()
        .map(|(near, ..)| side.local(near).port())
        .collect();
    let bound: Vec<_> = (0..3000)
        .map(|_| side.bound(Kind::Stream, NEITHER, ANY).ok().unwrap())
        .collect();
    let bound: HashSet<_> = bound
        .iter()
        .map(|socket| side.local(socket).port())
        .collect();
    assert_eq!((taken.len(), bound.len()), (300, 3000));
    assert!(taken.is_disjoint(&bound));
}
