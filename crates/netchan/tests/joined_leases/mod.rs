//! What a daemon does that joins two applications by a short cut.

use std::{fs::File, io::IoSlice, mem::MaybeUninit, net::SocketAddr};

use netchan::{
    Lent, Net, PairEnd,
    link::lease::{News, PEER_FILES, PeerPorts},
    socket::{Domain, Kind, Socket, SocketOption},
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// A port that an application keeps, whether it listens there or not: it is told of once.
pub fn kept(net: &Net, address: &str) -> Socket {
    let address: SocketAddr = address.parse().unwrap();
    let domain = if address.is_ipv4() {
        Domain::V4
    } else {
        Domain::V6
    };
    let socket = Socket::new(net, domain, Kind::Stream).unwrap();
    socket.set_option(SocketOption::ReuseAddress(true)).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn ports(lent: &Lent) -> PeerPorts {
    let (bindings, ranges) = lent.ports();
    PeerPorts {
        bindings,
        shared: Vec::new(),
        ranges,
        loopback: lent.has_loopback(),
    }
}

fn tell(lent: &Lent, news: &News, files: &[std::os::fd::BorrowedFd<'_>]) {
    let text = serde_json::to_vec(news).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PEER_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files)));
    let text = [IoSlice::new(&text)];
    sendmsg(lent.news(), &text, &mut control, SendFlags::NOSIGNAL).unwrap();
    lent.ring();
}

/// Joins two applications, each of which learns the other one's ports. The file of their pipes.
pub fn join(one: &Lent, other: &Lent) -> File {
    let [.., pipes] = join_as(1, one, other);
    pipes
}

/// The same for short cut `pair`: all that the first of them has of it.
pub fn join_as(pair: u64, one: &Lent, other: &Lent) -> [File; PEER_FILES] {
    let [ours, theirs] = one.pair(other, pair).unwrap();
    let meets = |of: &Lent, end: &PairEnd, met: &Lent| {
        let news = News::Peer(Box::new(end.terms(ports(met))));
        tell(of, &news, &end.files());
    };
    meets(other, &theirs, one);
    meets(one, &ours, other);
    ours.files()
        .map(|file| File::from(file.try_clone_to_owned().unwrap()))
}

/// Tells an application that a short cut is gone.
pub fn part(pair: u64, from: &Lent) {
    tell(from, &News::Gone { pair }, &[]);
}

/// Tells the other one of the ports that an application has now, as a daemon does of each change.
pub fn tell_ports(of: &Lent, other: &Lent) {
    tell_ports_as(1, of, other);
}

/// The same for short cut `pair`.
pub fn tell_ports_as(pair: u64, of: &Lent, other: &Lent) {
    let ports = ports(of);
    tell(other, &News::Ports { pair, ports }, &[]);
}

/// Connections whose text went by pipes.
pub fn piped(net: &Net) -> u64 {
    counter(net, "tcp_piped")
}

/// One of a stack's counters.
pub fn counter(net: &Net, name: &str) -> u64 {
    let counters = net.show("counters").unwrap();
    let all = counters.as_array().unwrap().iter();
    let mut found = all.filter(|counter| counter["name"] == name);
    found.next().unwrap()["value"].as_u64().unwrap()
}
