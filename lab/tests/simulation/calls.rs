//! Sequences of socket calls that bytes choose, on the sockets of two stacks with a wire between them: in any order, with any address that the
//! hosts know. Nothing panics or spins, each error is one that the call's manual names, and once all is closed nothing is left. What Linux
//! answers to such sequences is the preload library's test; the fuzz target `calls` and a test run these.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Shutdown, SocketAddr},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, SendInfo, Socket, SocketOption, UdpOption},
};

use super::bytes::Bytes;

/// Sockets of each stack.
const SOCKETS: usize = 3;
const STEPS: usize = 40;
/// Turns without rest after which the stacks spin.
const TURNS_MAX: usize = 2_000;
/// Ports that sockets are bound to.
const PORTS: [u16; 4] = [0, 8000, 8001, 8002];

/// Errors of any call that a connection or a datagram's way can have.
const OF_THE_WAY: [i32; 6] = [
    libc::ECONNREFUSED,
    libc::ECONNRESET,
    libc::ETIMEDOUT,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EPIPE,
];

/// The addresses that sockets are bound and connected to, mapped ones among them.
const ADDRESSES: [&str; 12] = [
    "10.77.0.1",
    "10.77.0.2",
    "0.0.0.0",
    "127.0.0.1",
    "10.77.0.255",
    "fd77::1",
    "fd77::2",
    "::",
    "::1",
    "::ffff:10.77.0.1",
    "::ffff:10.77.0.2",
    "::ffff:0.0.0.0",
];

/// Two stacks, which serve sequence after sequence.
pub struct Hosts {
    sockets: [Vec<Socket>; 2],
    nets: [Net; 2],
    clock: Clock,
}

/// Panics unless it went well or failed as `call` may.
fn judge<T>(call: &str, result: io::Result<T>, own: &[i32], way: bool) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let code = error.raw_os_error();
    let is_known =
        code.is_some_and(|code| own.contains(&code) || (way && OF_THE_WAY.contains(&code)));
    assert!(is_known, "{call}: {error:?}");
    None
}

fn address(bytes: &mut Bytes<'_>) -> SocketAddr {
    let ip = ADDRESSES[usize::from(bytes.u8()) % ADDRESSES.len()];
    let ip: IpAddr = ip.parse().expect("an address");
    SocketAddr::new(ip, PORTS[usize::from(bytes.u8()) % PORTS.len()])
}

impl Hosts {
    /// Both, without a socket.
    pub fn new() -> Self {
        let clock = Clock::new_virtual();
        let (one, two) = wire::pair(&wire::Options::default());
        let start = |link, v4: &str, v6: &str| {
            let builder = Net::builder().link_with(Box::new(link));
            let builder = builder.address(v4).and_then(|b| b.address(v6));
            let builder = builder.expect("addresses").regime(Regime::AppChannel);
            let builder = builder.threads(Threads::Caller).clock(clock.clone());
            builder.seed(1).start().expect("a stack")
        };
        let nets = [
            start(one, "10.77.0.1/24", "fd77::1/64"),
            start(two, "10.77.0.2/24", "fd77::2/64"),
        ];
        Self {
            sockets: [Vec::new(), Vec::new()],
            nets,
            clock,
        }
    }

    /// Runs a sequence; afterwards nothing of it is left.
    pub fn run(&mut self, sequence: &[u8]) {
        let mut bytes = Bytes(sequence);
        for _ in 0..STEPS {
            if bytes.0.is_empty() {
                break;
            }
            self.step(&mut bytes);
            self.settle();
        }
        self.rest();
    }

    fn settle(&self) {
        for _ in 0..TURNS_MAX {
            let moved = self.nets.each_ref().map(Net::poll);
            if moved == [false, false] {
                return;
            }
        }
        panic!("the stacks spin");
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let (what, which) = (bytes.u8(), bytes.u8());
        let host = usize::from(which & 1);
        let count = self.sockets[host].len();
        if what == 255 {
            let pause = Duration::from_millis(u64::from(bytes.u8()) * 20);
            return self.clock.advance(pause);
        }
        if count == 0 || (what % 16 == 0 && count < SOCKETS) {
            let domain = [Domain::V4, Domain::V6][usize::from(which >> 1 & 1)];
            let kind = [Kind::Stream, Kind::Datagram][usize::from(which >> 2 & 1)];
            let socket = Socket::new(&self.nets[host], domain, kind);
            return self.sockets[host].push(socket.expect("a socket costs nothing"));
        }
        let at = usize::from(which >> 1) % count;
        let socket = &self.sockets[host][at];
        match what % 16 {
            0 => drop(self.sockets[host].swap_remove(at)),
            1 | 2 => bind(socket, bytes),
            3 => {
                _ = judge(
                    "listen",
                    socket.listen(usize::from(bytes.u8() & 3)),
                    &LISTEN,
                    false,
                )
            }
            4..7 => _ = judge("connect", socket.connect(address(bytes)), &CONNECT, true),
            7 => _ = judge("disconnect", socket.disconnect(), &[], false),
            8 => {
                let accepted = judge(
                    "accept",
                    socket.accept(),
                    &[libc::EAGAIN, libc::EINVAL],
                    true,
                );
                let room = count < SOCKETS;
                self.sockets[host].extend(accepted.filter(|_| room).map(|(new, _)| new));
            }
            9..12 => send(socket, bytes),
            12 | 13 => receive(socket, bytes),
            14 => {
                let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
                let how = how[usize::from(bytes.u8() % 3)];
                let _ = judge("shutdown", socket.shutdown(how), &[libc::ENOTCONN], false);
            }
            _ => ask(socket, bytes),
        }
    }

    /// All is closed, and time passes for every timer there is: no socket stays.
    fn rest(&mut self) {
        self.sockets.iter_mut().for_each(Vec::clear);
        self.settle();
        for _ in 0..15 {
            self.clock.advance(Duration::from_secs(100));
            self.settle();
        }
        for net in &self.nets {
            let sockets = net.show("sockets").unwrap_or_default();
            assert_eq!(sockets.as_array().map_or(0, Vec::len), 0, "{sockets}");
        }
    }
}

const LISTEN: [i32; 3] = [libc::EADDRINUSE, libc::EINVAL, libc::EOPNOTSUPP];
const CONNECT: [i32; 10] = [
    libc::EINPROGRESS,
    libc::EALREADY,
    libc::EISCONN,
    libc::ECONNABORTED,
    libc::EADDRINUSE,
    libc::EADDRNOTAVAIL,
    libc::EAFNOSUPPORT,
    libc::EINVAL,
    libc::EACCES,
    libc::EAGAIN,
];
const SEND: [i32; 9] = [
    libc::EAGAIN,
    libc::ENOTCONN,
    libc::EDESTADDRREQ,
    libc::EMSGSIZE,
    libc::EINVAL,
    libc::EAFNOSUPPORT,
    libc::EOPNOTSUPP,
    libc::EACCES,
    libc::EADDRINUSE,
];

fn bind(socket: &Socket, bytes: &mut Bytes<'_>) {
    let own = [
        libc::EADDRINUSE,
        libc::EADDRNOTAVAIL,
        libc::EAFNOSUPPORT,
        libc::EINVAL,
    ];
    let wanted = address(bytes);
    if judge("bind", socket.bind(wanted), &own, false).is_some() {
        let has = socket.local_address();
        assert!(has.port() != 0, "bound to {wanted}, it is at {has}");
        assert!(wanted.port() == 0 || wanted.port() == has.port());
    }
}

fn send(socket: &Socket, bytes: &mut Bytes<'_>) {
    let how = bytes.u8();
    let payload = vec![7; usize::from(how >> 3) * 100];
    let buffers = [IoSlice::new(&payload)];
    let to = (how & 1 == 1).then(|| address(bytes));
    let urgent = how & 6 == 6;
    let result = match socket.kind() {
        Kind::Stream if urgent => socket.send_urgent(&buffers),
        Kind::Stream => socket.send(&buffers, None),
        Kind::Datagram | Kind::Ping => {
            let mut info = SendInfo::default();
            (info.urgent, info.more) = (urgent, how & 6 == 4);
            let result = socket.send_message(&buffers, to, &info);
            assert!(
                socket.local_address().port() != 0,
                "it has a port by each send"
            );
            result
        }
    };
    let sent = judge("send", result, &SEND, true);
    assert!(sent.is_none_or(|sent| sent <= payload.len()));
}

fn receive(socket: &Socket, bytes: &mut Bytes<'_>) {
    let how = bytes.u8();
    let mut room = vec![0; usize::from(how >> 3) * 100];
    let flags = ReceiveFlags {
        peek: how & 1 == 1,
        urgent: how & 6 == 6 && socket.kind() == Kind::Stream,
        ..ReceiveFlags::default()
    };
    let own = [libc::EAGAIN, libc::ENOTCONN, libc::EINVAL];
    let result = socket.receive(&mut [IoSliceMut::new(&mut room)], flags);
    let received = judge("receive", result, &own, true);
    assert!(received.is_none_or(|received| received.len <= room.len()));
}

/// Options, names and what can be seen.
fn ask(socket: &Socket, bytes: &mut Bytes<'_>) {
    let how = bytes.u8();
    let on = how & 1 == 1;
    let options = [
        SocketOption::ReuseAddress(on),
        SocketOption::ReusePort(on),
        SocketOption::V6Only(on),
        SocketOption::Broadcast(on),
        SocketOption::Udp(UdpOption::ReceiveErrors(on)),
        SocketOption::Udp(UdpOption::ReceiveErrorsV6(on)),
        SocketOption::Udp(UdpOption::Cork(on)),
        SocketOption::Linger(on.then_some(Duration::ZERO)),
    ];
    let option = options[usize::from(how >> 1) % options.len()];
    let own = [libc::EINVAL, libc::ENOPROTOOPT];
    if judge("set_option", socket.set_option(option), &own, false).is_some() {
        let reads = judge("option", socket.option(option), &[], false);
        assert_eq!(reads, Some(option));
    }
    let _ = judge(
        "peer_address",
        socket.peer_address(),
        &[libc::ENOTCONN],
        false,
    );
    let _ = (socket.readiness(), socket.available(), socket.tcp_info());
    if let Some(pending) = socket.take_error() {
        let _ = judge(
            "the pending error",
            Err::<(), _>(pending),
            &[libc::ENOPROTOOPT, libc::EPROTO],
            true,
        );
    }
}
