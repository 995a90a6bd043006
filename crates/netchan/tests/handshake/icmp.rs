//! ICMP while connecting: what connect(2) says, when, and what becomes of a handshake that a peer began.

use std::time::Duration;

use netchan::{
    Builder, Net,
    config::Config,
    socket::{Domain, Kind, Socket},
};
use proto::wire::{
    checksum,
    ipv4::Protocol,
    tcp::{Flags, Header, SeqNum},
};

use crate::raw::{PEER, PORT, Raw, header};

/// A router's word about the packet of ours that it quotes.
pub fn icmp(raw: &mut Raw, (kind, code): (u8, u8), quoted: &[u8]) {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    let sum = checksum::finish(checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    raw.put_payload(PEER, Protocol::ICMP, &message);
    raw.turn();
}

/// A socket that connects, and its SYN as an error quotes it: the IP header and 8 bytes.
pub fn connecting(raw: &mut Raw) -> (Socket, Vec<u8>) {
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
    let to = std::net::SocketAddr::from((PEER, 9));
    let begun = socket.connect(to).unwrap_err();
    assert_eq!(begun.raw_os_error(), Some(libc::EINPROGRESS));
    let syn = raw.turn().pop().expect("a SYN");
    assert_eq!(syn.header.flags, Flags::SYN);
    let mut quoted = [0; 28];
    let at = syn.ip.emit(syn.bytes.len(), &mut quoted);
    quoted[at..].copy_from_slice(&syn.bytes[..8]);
    (socket, quoted.to_vec())
}

fn error(socket: &Socket) -> Option<i32> {
    socket.take_error().and_then(|error| error.raw_os_error())
}

/// RFC 5461 §4.1, icmp(7)'s table of Linux.
#[test]
fn each_code_ends_connect_at_once_with_linuxs_error() {
    let mut raw = Raw::new(|builder| builder);
    for (code, errno) in [
        ((3, 0), libc::ENETUNREACH),
        ((3, 1), libc::EHOSTUNREACH),
        ((3, 2), libc::ENOPROTOOPT),
        ((3, 3), libc::ECONNREFUSED),
        ((3, 5), libc::EOPNOTSUPP),
        ((3, 6), libc::ENETUNREACH),
        ((3, 7), libc::EHOSTDOWN),
        ((3, 8), libc::ENONET),
        ((3, 9), libc::ENETUNREACH),
        ((3, 10), libc::EHOSTUNREACH),
        ((3, 11), libc::ENETUNREACH),
        ((3, 12), libc::EHOSTUNREACH),
        ((3, 13), libc::EHOSTUNREACH),
        ((3, 14), libc::EHOSTUNREACH),
        ((3, 15), libc::EHOSTUNREACH),
        ((11, 0), libc::EHOSTUNREACH),
        ((11, 1), libc::EHOSTUNREACH),
        ((12, 0), libc::EPROTO),
    ] {
        let (socket, syn) = connecting(&mut raw);
        icmp(&mut raw, code, &syn);
        assert_eq!(error(&socket), Some(errno), "{code:?}");
        let later = raw.wait(Duration::from_secs(4));
        assert!(later.is_empty(), "{code:?}: no further SYN");
    }
    // A code that is not known ends nothing, and is counted.
    let (socket, syn) = connecting(&mut raw);
    let dropped = raw.counter("drop_icmp");
    icmp(&mut raw, (3, 16), &syn);
    assert_eq!(error(&socket), None);
    assert_eq!(raw.counter("drop_icmp"), dropped + 1);
}

#[test]
fn note_goes_on_until_an_answer_or_the_end() {
    let config = Config::parse("[tcp]\nicmp_while_connecting = \"note\"", "test").unwrap();
    let mut raw = Raw::from(Builder::from_config(&config).unwrap());
    let (socket, syn) = connecting(&mut raw);
    icmp(&mut raw, (3, 1), &syn);
    assert_eq!(error(&socket), None);
    assert!(!raw.wait(Duration::from_secs(2)).is_empty(), "another SYN");
    raw.wait(Duration::from_secs(200));
    assert_eq!(error(&socket), Some(libc::EHOSTUNREACH));
    let (socket, syn) = connecting(&mut raw);
    icmp(&mut raw, (3, 3), &syn);
    assert_eq!(error(&socket), Some(libc::ECONNREFUSED), "no waiting mends");
}

/// As Linux's `tcp_req_err`: host and network unreachable, and what ran out of hops, end it, so that the last segment is answered by RST.
#[test]
fn a_handshake_that_a_peer_began_ends_with_what_cannot_be_reached() {
    let mut raw = Raw::new(|builder| builder);
    let listener = listening(&raw.net);
    for (port, code, ends) in [
        (1000, (3, 1), true),
        (1001, (3, 0), true),
        (1002, (11, 0), true),
        (1003, (3, 13), false),
    ] {
        let syn = header(port, Flags::SYN, 1, 0);
        let answer = raw.ask(PEER, &syn, b"").pop().expect("a SYN-ACK");
        let mut quoted = [0; 28];
        let at = answer.ip.emit(answer.bytes.len(), &mut quoted);
        quoted[at..].copy_from_slice(&answer.bytes[..8]);
        icmp(&mut raw, code, &quoted);
        let last = Header {
            ack: answer.header.seq + 1,
            seq: SeqNum(2),
            ..header(port, Flags::ACK, 0, 0)
        };
        let said = raw.ask(PEER, &last, b"");
        let reset = said.iter().any(|s| s.header.flags.contains(Flags::RST));
        assert_eq!(reset, ends, "{code:?}");
        assert_eq!(listener.accept().is_ok(), !ends, "{code:?}");
    }
}

fn listening(net: &Net) -> Socket {
    let socket = Socket::new(net, Domain::V4, Kind::Stream).unwrap();
    socket.bind(([0, 0, 0, 0], PORT).into()).unwrap();
    socket.listen(8).unwrap();
    socket
}
