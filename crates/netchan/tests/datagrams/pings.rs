//! Ping sockets: echoes between hosts and to oneself, and what comes unasked.

use std::io::IoSlice;

use netchan::socket::{Domain, Kind, Socket, SocketOption};
use proto::wire::{
    checksum,
    ipv4::{self, Protocol},
};

use crate::{
    Pair, errno,
    raw::{HOST, ROUTER, Raw},
    receive, send,
};

/// An echo request of a program: what stands for checksum and identifier is not its business.
fn request(domain: Domain, seq: u8, data: &[u8]) -> Vec<u8> {
    let kind = match domain {
        Domain::V4 => 8,
        Domain::V6 => 128,
    };
    [&[kind, 0, 0xaa, 0xaa, 0x55, 0x55, 0, seq], data].concat()
}

#[test]
fn echoes_come_back_to_the_socket_that_asked() {
    let pair = Pair::new();
    for domain in [Domain::V4, Domain::V6] {
        for host in [0, 1] {
            let sockets = [3, 4].map(|port| {
                let socket = Socket::new(&pair.nets[0], domain, Kind::Ping).unwrap();
                let mut at = pair.at(domain, 0);
                at.set_port(port);
                socket.bind(at).unwrap();
                socket
            });
            // UDP's ports are others.
            let udp = Socket::new(&pair.nets[0], domain, Kind::Datagram).unwrap();
            let mut at = pair.at(domain, 0);
            at.set_port(3);
            udp.bind(at).unwrap();
            // Odd, and longer than a packet of the link.
            for data in [&b"who?"[..], &[7; 1999], b""] {
                for (socket, ident) in sockets.iter().zip([3, 4]) {
                    let message = request(domain, ident, data);
                    let sent = send(socket, &message, pair.at(domain, host)).unwrap();
                    assert_eq!(sent, message.len());
                }
                for _ in 0..4 {
                    pair.turn();
                }
                for (socket, ident) in sockets.iter().zip([3, 4]) {
                    let mut room = [0; 3000];
                    let received = receive(socket, &mut room).unwrap();
                    let mut from = pair.at(domain, host);
                    from.set_port(0);
                    assert_eq!((received.from, received.len), (Some(from), 8 + data.len()));
                    let kind = if domain == Domain::V4 { 0 } else { 129 };
                    assert_eq!(room[..2], [kind, 0]);
                    assert_eq!(room[4..8], [0, ident, 0, ident]);
                    assert_eq!(&room[8..received.len], data);
                    assert_eq!(errno(receive(socket, &mut room)), libc::EAGAIN);
                }
            }
            assert_eq!(errno(receive(&udp, &mut [0; 9])), libc::EAGAIN);
        }
    }
}

/// A connected one has a peer without a port, and hears all the same: it is no UDP socket of a whole host.
#[test]
fn a_connected_one_is_found_as_any() {
    let pair = Pair::new();
    for domain in [Domain::V4, Domain::V6] {
        let socket = Socket::new(&pair.nets[0], domain, Kind::Ping).unwrap();
        let mut to = pair.at(domain, 1);
        to.set_port(0);
        socket.connect(to).unwrap();
        let message = request(domain, 1, b"here");
        assert_eq!(socket.send(&[IoSlice::new(&message)], None).unwrap(), 12);
        for _ in 0..4 {
            pair.turn();
        }
        assert_eq!(receive(&socket, &mut [0; 20]).unwrap().from, Some(to));
        socket.disconnect().unwrap();
        pair.turn();
    }
}

/// An echo reply from the router.
fn reply(to: std::net::Ipv4Addr, ident: u16, data: &[u8]) -> Vec<u8> {
    let mut message = [&[0, 0, 0, 0, 0, 0, 0, 1], data].concat();
    message[4..6].copy_from_slice(&ident.to_be_bytes());
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut bytes = vec![0; 20];
    ipv4::Header::new(Protocol::ICMP, ROUTER, to).emit(message.len(), &mut bytes);
    [bytes, message].concat()
}

#[test]
fn replies_that_were_not_asked_for_are_counted() {
    let mut raw = Raw::new();
    for ident in [0, 1, 7, u16::MAX] {
        assert_eq!(raw.frame(None, &reply(HOST, ident, b"")), [[0; 0]; 0]);
    }
    assert_eq!(raw.counter("drop_ping_no_socket"), 4);
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Ping).unwrap();
    socket.bind("0.0.0.0:7".parse().unwrap()).unwrap();
    raw.frame(None, &reply(HOST, 8, b""));
    assert_eq!(raw.counter("drop_ping_no_socket"), 5);
    // Broken, cut, or for all hosts.
    let good = reply(HOST, 7, b"data");
    let mut broken = good.clone();
    broken[28] ^= 1;
    raw.frame(None, &broken);
    raw.frame(None, &reply([10, 0, 0, 255].into(), 7, b""));
    assert_eq!(raw.counter("drop_icmp"), 2);
    assert_eq!(errno(receive(&socket, &mut [0; 9])), libc::EAGAIN);
    raw.frame(None, &good);
    assert_eq!(receive(&socket, &mut [0; 99]).unwrap().len, 12);
    drop(socket);
    raw.frame(None, &good);
    assert_eq!(raw.counter("drop_ping_no_socket"), 6, "closed");
}

/// Each counts its payload and 512 bytes, as Linux counts more than its payload; what is not read is dropped, and nothing else with it.
#[test]
fn a_flood_of_replies_is_bounded_by_the_receive_buffer() {
    let mut raw = Raw::new();
    let [flooded, other] = [7, 8].map(|port| {
        let socket = Socket::new(&raw.net, Domain::V4, Kind::Ping).unwrap();
        socket.bind(([10, 0, 0, 2], port).into()).unwrap();
        socket
    });
    let room = SocketOption::ReceiveBuffer(4096);
    flooded.set_option(room).unwrap();
    for _ in 0..1000 {
        raw.frame(None, &reply(HOST, 7, &[1; 92]));
    }
    let kept = 8192 / (100 + 512);
    assert_eq!(raw.counter("drop_ping_queue_full"), 1000 - kept);
    raw.frame(None, &reply(HOST, 8, b"still"));
    assert_eq!(receive(&other, &mut [0; 99]).unwrap().len, 13);
    for _ in 0..kept {
        assert_eq!(receive(&flooded, &mut [0; 999]).unwrap().len, 100);
    }
    assert_eq!(errno(receive(&flooded, &mut [0; 9])), libc::EAGAIN);
    raw.frame(None, &reply(HOST, 7, b""));
    assert_eq!(receive(&flooded, &mut [0; 9]).unwrap().len, 8);
}
