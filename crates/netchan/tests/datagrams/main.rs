//! UDP as programs see it: errors, ancillary data, many datagrams at once, several sends in one. RFC 768, RFC 1122 §4.1, RFC 8085.

mod errors;
mod pings;
mod raw;
mod segments;
mod strange;
mod unspecified;

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Received, Socket, SocketOption, UdpOption},
};

/// Two hosts on a wire of Ethernet's MTU.
struct Pair {
    nets: [Net; 2],
    clock: Clock,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = wire::pair(&wire::Options::default());
        let clock = Clock::new_virtual();
        let start = |link, v4: &str, v6: &str| {
            let builder = Net::builder().link_with(Box::new(link));
            let builder = builder.address(v4).unwrap().address(v6).unwrap();
            let builder = builder.threads(Threads::Caller).clock(clock.clone());
            builder.seed(1).start().unwrap()
        };
        let nets = [
            start(a, "10.0.0.1/24", "fd77::1/64"),
            start(b, "10.0.0.2/24", "fd77::2/64"),
        ];
        let pair = Self { nets, clock };
        for _ in 0..100 {
            pair.turn();
            pair.clock.advance(Duration::from_millis(50));
        }
        pair
    }

    fn turn(&self) {
        for _ in 0..8 {
            self.clock.advance(Duration::from_micros(5));
            self.nets.iter().for_each(|net| _ = net.poll());
        }
    }

    /// A socket of each host, on port 53.
    fn sockets(&self, domain: Domain) -> [Socket; 2] {
        [0, 1].map(|i| {
            let socket = Socket::new(&self.nets[i], domain, Kind::Datagram).unwrap();
            socket.bind(self.at(domain, i)).unwrap();
            socket
        })
    }

    fn at(&self, domain: Domain, host: usize) -> SocketAddr {
        let text = match domain {
            Domain::V4 => ["10.0.0.1:53", "10.0.0.2:53"],
            Domain::V6 => ["[fd77::1]:53", "[fd77::2]:53"],
        };
        text[host].parse().unwrap()
    }
}

fn udp(socket: &Socket, option: UdpOption) {
    socket.set_option(SocketOption::Udp(option)).unwrap();
    assert_eq!(
        socket.option(SocketOption::Udp(option)).unwrap(),
        SocketOption::Udp(option)
    );
}

fn send(socket: &Socket, data: &[u8], to: SocketAddr) -> io::Result<usize> {
    socket.send(&[IoSlice::new(data)], Some(to))
}

fn receive(socket: &Socket, room: &mut [u8]) -> io::Result<Received> {
    socket.receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default())
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
