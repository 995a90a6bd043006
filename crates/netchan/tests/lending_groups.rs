//! Multicast groups on leases: applications that join by their lender, sockets of the lender's own, and a peer on the wire with two addresses. What each hears,
//! what leaves by the wire, and what is left of a lease that has ended.

#[allow(dead_code)] // the other tests need all of it
mod lease_service;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use lease_service::{LENDER, LENDER_V6, PEER, PEER_V6, application, application_of, pattern};
use netchan::{
    Net, PacketProtocol, UdpSocket,
    link::{lease::Membership, wire},
    own::Own,
    socket::{Domain, GroupFilter, Kind, Multicast, ReceiveFlags, Socket, SocketOption, Via},
    tap,
};
use netchan_base::descriptor::{Descriptor, TO_MANY};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    slab::{BorrowedSlab, BufferName, SharedLayout},
};
use proto::membership::Mode;
use proto::wire::{
    ethernet::{self, EtherType},
    ipv4::{self, Protocol},
    udp,
};

/// The peer's other address.
const OTHER: &str = "10.0.0.3";
const GROUP: &str = "239.1.2.3";
const GROUP_V6: &str = "ff15::1:2";
const PORT: u16 = 5353;
const PATIENCE: Duration = Duration::from_secs(10);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// A lender and a peer with two addresses of IPv4.
fn lender_and_peer() -> (Net, Net) {
    let (a, b) = wire::pair(&wire::Options::default());
    let start = |link: wire::Wire, addresses: &[&str]| {
        let mut builder = Net::builder().link_with(Box::new(link));
        for address in addresses {
            builder = builder.address(address).unwrap();
        }
        builder.start().unwrap()
    };
    let lender = start(a, &[&format!("{LENDER}/24"), &format!("{LENDER_V6}/64")]);
    let addresses = [PEER, OTHER].map(|address| format!("{address}/24"));
    let [first, second] = &addresses;
    (lender, start(b, &[first, second, &format!("{PEER_V6}/64")]))
}

/// A socket at a port that others may have, too.
fn bound(net: &Net, address: SocketAddr) -> UdpSocket {
    let domain = match address {
        SocketAddr::V4(_) => Domain::V4,
        SocketAddr::V6(_) => Domain::V6,
    };
    let socket = Socket::new(net, domain, Kind::Datagram).unwrap();
    socket.set_option(SocketOption::ReuseAddress(true)).unwrap();
    socket.bind(address).unwrap();
    let socket = UdpSocket::from_socket(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// One at all addresses of a group's family.
fn any(net: &Net, group: &str) -> UdpSocket {
    match ip(group) {
        IpAddr::V4(_) => bound(net, at("0.0.0.0", PORT)),
        IpAddr::V6(_) => bound(net, at("::", PORT)),
    }
}

fn set(socket: &UdpSocket, option: Multicast) -> std::io::Result<()> {
    socket.socket().set_option(SocketOption::Multicast(option))
}

fn join(socket: &UdpSocket, group: &str) {
    join_source(socket, group, None);
}

fn join_source(socket: &UdpSocket, group: &str, source: Option<&str>) {
    let (group, via) = (ip(group), Via::Index(1));
    let source = source.map(ip);
    let option = Multicast::Join { group, via, source };
    set(socket, option).unwrap();
}

fn leave(socket: &UdpSocket, group: &str) {
    let (group, via, source) = (ip(group), Via::Index(1), None);
    set(socket, Multicast::Leave { group, via, source }).unwrap();
}

/// A member at all addresses.
fn member(net: &Net, group: &str) -> UdpSocket {
    let socket = any(net, group);
    join(&socket, group);
    socket
}

/// The next datagram: its text, and its source.
fn next(socket: &UdpSocket) -> (Vec<u8>, IpAddr) {
    let mut text = vec![0; 65_536];
    let (n, from) = socket.recv_from(&mut text).unwrap();
    text.truncate(n);
    (text, from.ip())
}

/// Sends to the group from an address of a stack's.
fn say(net: &Net, from: &str, group: &str, text: &[u8]) {
    let sender = net.udp().bind(at(from, 0)).unwrap();
    assert_eq!(sender.send_to(text, at(group, PORT)).unwrap(), text.len());
}

/// Whether nothing waits at a socket. What was sent before has arrived: another one that was sent the same later has had it.
fn is_quiet(socket: &UdpSocket) -> bool {
    let mut text = [0; 64];
    let mut buffers = [std::io::IoSliceMut::new(&mut text)];
    let socket = socket.socket();
    socket
        .receive(&mut buffers, ReceiveFlags::default())
        .is_err()
}

/// Until it is so, 10 s at most.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let came = (0..10_000).any(|_| {
        let is_there = is_so();
        if !is_there {
            thread::sleep(Duration::from_millis(1));
        }
        is_there
    });
    assert!(came, "{what}");
}

fn counter(net: &Net, name: &str) -> u64 {
    let counters = net.show("counters").unwrap();
    let mut all = counters.as_array().unwrap().iter();
    let found = all.find(|counter| counter["name"] == name);
    found.unwrap()["value"].as_u64().unwrap()
}

fn of_lease(net: &Net, holder: &str, what: &str) -> u64 {
    let leases = net.show("leases").unwrap();
    let mut all = leases.as_array().unwrap().iter();
    let found = all.find(|lease| lease["holder"] == holder);
    found.unwrap()[what].as_u64().unwrap()
}

/// What the first link lets in of a group, for all together: `exclude`, `include 10.0.0.2`; empty: it is in no such group.
fn heard(net: &Net, group: &str) -> String {
    let groups = net.show("groups").unwrap();
    let mut all = groups.as_array().unwrap().iter();
    let found = all.find(|row| row["group"] == group);
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    found.map_or(String::new(), |row| {
        let words = text(row, "mode") + " " + &text(row, "sources");
        words.trim().to_owned()
    })
}

#[test]
fn each_member_has_a_copy() {
    let (lender, peer) = lender_and_peer();
    let names = ["first", "second", "deaf"];
    let applications = names.map(|name| application(&lender, name, Net::builder()));
    let [(first, _), (second, _), (deaf, _)] = &applications;
    for (group, from) in [(GROUP, PEER), (GROUP_V6, PEER_V6)] {
        // Two sockets of one application, one of another and one of the lender's; and one that is in another group.
        let members = [
            member(first, group),
            member(first, group),
            member(second, group),
            member(&lender, group),
        ];
        let elsewhere = match ip(group) {
            IpAddr::V4(_) => "239.1.2.4",
            IpAddr::V6(_) => "ff15::1:3",
        };
        let other = member(deaf, elsewhere);
        assert_eq!(heard(&lender, group), "exclude");
        let before = counter(&lender, "lease_in");
        say(&peer, from, group, b"all");
        say(&peer, from, elsewhere, b"other");
        for socket in &members {
            assert_eq!(next(socket), (b"all".to_vec(), ip(from)), "{group}");
        }
        assert_eq!(next(&other), (b"other".to_vec(), ip(from)));
        // As on Linux the lender's own socket hears what others on the host have joined (IP_MULTICAST_ALL).
        assert_eq!(next(&members[3]), (b"other".to_vec(), ip(from)));
        assert!(members.iter().all(is_quiet) && is_quiet(&other));
        assert_eq!(counter(&lender, "lease_in") - before, 3);
        assert_eq!(counter(&lender, "drop_udp_no_socket"), 0);
        // What one of them leaves the others hear still.
        leave(&members[2], group);
        drop(other);
        eventually("it has left", || of_lease(&lender, "second", "groups") == 0);
        say(&peer, from, group, b"fewer");
        for place in [0, 1, 3] {
            assert_eq!(next(&members[place]).0, b"fewer");
        }
        assert!(is_quiet(&members[2]));
        drop(members);
        eventually("all have left", || heard(&lender, group).is_empty());
        let groups = names.map(|name| of_lease(&lender, name, "groups"));
        assert_eq!(groups, [0; 3]);
    }
    assert_eq!(counter(&lender, "drop_lease_full"), 0);
}

/// RFC 9776 §3.2: what the lender asks of the routers is what all leases and its own sockets hear together.
#[test]
fn filters_are_put_together_and_each_application_has_its_own() {
    let (lender, peer) = lender_and_peer();
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    let (one, other) = (any(&first, GROUP), any(&second, GROUP));
    join_source(&one, GROUP, Some(PEER));
    assert_eq!(heard(&lender, GROUP), format!("include {PEER}"));
    join_source(&other, GROUP, Some(OTHER));
    assert_eq!(heard(&lender, GROUP), format!("include {PEER} {OTHER}"));
    let hear = |text: &str| {
        for from in [PEER, OTHER] {
            say(&peer, from, GROUP, text.as_bytes());
        }
    };
    hear("include");
    assert_eq!(next(&one), (b"include".to_vec(), ip(PEER)));
    assert_eq!(next(&other), (b"include".to_vec(), ip(OTHER)));
    // The lender gives none of them what it does not hear.
    let crossed = ["first", "second"].map(|name| of_lease(&lender, name, "packets_in"));
    assert_eq!(crossed, [1, 1]);
    // The other way about; of what one excludes, the other one includes nothing.
    let exclude = |socket: &UdpSocket, source: &str| {
        let filter = GroupFilter {
            mode: Mode::Exclude,
            sources: vec![ip(source)],
        };
        let socket = socket.socket();
        socket.set_group_filter(ip(GROUP), Via::Index(1), &filter)
    };
    exclude(&one, PEER).unwrap();
    assert_eq!(heard(&lender, GROUP), format!("exclude {PEER}"));
    exclude(&other, PEER).unwrap();
    hear("exclude");
    assert_eq!(next(&one), (b"exclude".to_vec(), ip(OTHER)));
    assert_eq!(next(&other), (b"exclude".to_vec(), ip(OTHER)));
    // A second socket of one application, which hears the source: the application does, and its first socket does not.
    let more = any(&first, GROUP);
    join_source(&more, GROUP, Some(PEER));
    assert_eq!(heard(&lender, GROUP), "exclude");
    hear("both");
    assert_eq!(next(&more), (b"both".to_vec(), ip(PEER)));
    assert_eq!(next(&one), (b"both".to_vec(), ip(OTHER)));
    assert_eq!(next(&other), (b"both".to_vec(), ip(OTHER)));
    assert!([&more, &one, &other].into_iter().all(is_quiet));
    // One of the lender's own.
    let own = member(&lender, GROUP);
    assert_eq!(heard(&lender, GROUP), "exclude");
    drop((one, more));
    eventually("first", || of_lease(&lender, "first", "groups") == 0);
    drop(own);
    assert_eq!(heard(&lender, GROUP), format!("exclude {PEER}"));
}

/// IGMP as it leaves by the lender's wire: kinds of records (RFC 9776 §4.2.12) with their groups.
struct Reports(tap::Tap, Vec<(u8, Ipv4Addr)>);

impl Reports {
    fn of(lender: &Net) -> Self {
        let options = tap::Options {
            way: Some(tap::Way::Out),
            ..tap::Options::default()
        };
        Self(lender.tap(options).unwrap(), Vec::new())
    }

    fn has(&mut self, kind: u8, group: &str) -> bool {
        while let Some(record) = self.0.read() {
            let Some(packet) = record.bytes().get(ethernet::HEADER_LEN..) else {
                continue;
            };
            let Ok(header) = ipv4::Header::parse(packet) else {
                continue;
            };
            if header.protocol != Protocol::IGMP {
                continue;
            }
            assert_eq!(header.source, LENDER.parse::<Ipv4Addr>().unwrap());
            // One record without sources each.
            for record in header.payload(packet)[8..].chunks_exact(8) {
                let group = [record[4], record[5], record[6], record[7]];
                self.1.push((record[0], group.into()));
            }
        }
        self.1.contains(&(kind, group.parse().unwrap()))
    }
}

#[test]
fn routers_hear_of_the_first_and_of_the_last_and_a_lease_that_ends_leaves() {
    const CHANGE_TO_INCLUDE: u8 = 3;
    const CHANGE_TO_EXCLUDE: u8 = 4;
    let (lender, peer) = lender_and_peer();
    let mut reports = Reports::of(&lender);
    let (first, first_lent) = application(&lender, "first", Net::builder());
    let (second, second_lent) = application(&lender, "second", Net::builder());
    let one = member(&first, GROUP);
    // One whose application leaves nothing before it ends, as one that is killed.
    let killed = lender.lend("", "killed", 0).unwrap();
    killed.join(&membership("239.1.2.9")).unwrap();
    let other = member(&second, GROUP);
    eventually("it is joined", || reports.has(CHANGE_TO_EXCLUDE, GROUP));
    assert!(!reports.has(CHANGE_TO_INCLUDE, GROUP));
    drop((one, first, first_lent, killed));
    eventually("its own is left", || {
        reports.has(CHANGE_TO_INCLUDE, "239.1.2.9")
    });
    assert_eq!(heard(&lender, "239.1.2.9"), "");
    assert_eq!(heard(&lender, GROUP), "exclude");
    say(&peer, PEER, GROUP, b"still");
    assert_eq!(next(&other).0, b"still");
    assert!(!reports.has(CHANGE_TO_INCLUDE, GROUP));
    // The application itself said nothing: its lender would have counted that.
    assert_eq!(counter(&lender, "drop_transmit_check"), 0);
    drop((other, second, second_lent));
    eventually("all is left", || reports.has(CHANGE_TO_INCLUDE, GROUP));
    assert_eq!(heard(&lender, GROUP), "");
    // Nothing is left of them: what comes now is for no group of this host's.
    let before = counter(&lender, "drop_ip_destination");
    say(&peer, PEER, GROUP, b"late");
    eventually("counted", || {
        counter(&lender, "drop_ip_destination") > before
    });
}

#[test]
fn what_an_application_sends_comes_to_members_and_to_itself_as_it_wants() {
    let (lender, peer) = lender_and_peer();
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    for (group, from) in [(GROUP, LENDER), (GROUP_V6, LENDER_V6)] {
        let sender = member(&first, group);
        let here = [member(&second, group), member(&lender, group)];
        let there = member(&peer, group);
        let to = at(group, PORT);
        let loops = |on| match ip(group) {
            IpAddr::V4(_) => set(&sender, Multicast::LoopV4(on)).unwrap(),
            IpAddr::V6(_) => set(&sender, Multicast::LoopV6(on)).unwrap(),
        };
        for len in [3, 1400, 5000, 20_000] {
            let text = pattern(len, 5);
            sender.send_to(&text, to).unwrap();
            for socket in [&sender, &here[0], &here[1], &there] {
                assert!(next(socket) == (text.clone(), ip(from)), "{group} {len}");
            }
        }
        loops(false);
        sender.send_to(b"out", to).unwrap();
        assert_eq!(next(&there).0, b"out");
        // With no hop to go it stays on this host.
        let hops = |n| match ip(group) {
            IpAddr::V4(_) => set(&sender, Multicast::Ttl(n)).unwrap(),
            IpAddr::V6(_) => set(&sender, Multicast::Hops(n)).unwrap(),
        };
        hops(0);
        sender.send_to(b"nowhere", to).unwrap();
        loops(true);
        sender.send_to(b"here", to).unwrap();
        for socket in [&sender, &here[0], &here[1]] {
            assert_eq!(next(socket).0, b"here", "neither `out` nor `nowhere`");
        }
        // From the lender's own socket, and from one that is no member.
        here[1].send_to(b"own", to).unwrap();
        say(&second, from, group, b"stranger");
        for socket in [&sender, &here[0], &here[1], &there] {
            let texts = [next(socket).0, next(socket).0];
            assert!(texts.contains(&b"own".to_vec()) && texts.contains(&b"stranger".to_vec()));
        }
        assert!(
            [&sender, &here[0], &here[1], &there]
                .into_iter()
                .all(is_quiet)
        );
    }
    for name in ["drop_transmit_check", "drop_lease_copy", "drop_lease_full"] {
        assert_eq!(counter(&lender, name), 0, "{name}");
    }
}

/// As many programs of mDNS and SSDP are: at the group's address, which is a port of the lender's; and by SO_REUSEPORT of one user.
#[test]
fn a_socket_may_be_bound_to_its_group() {
    let (lender, peer) = lender_and_peer();
    let (first, _first) = application_of(&lender, ("first", 7), Net::builder(), |_| ());
    let (second, _second) = application_of(&lender, ("second", 7), Net::builder(), |_| ());
    let (third, _third) = application_of(&lender, ("third", 8), Net::builder(), |_| ());
    let sharing = |net: &Net, address: SocketAddr| {
        let socket = Socket::new(net, Domain::V4, Kind::Datagram).unwrap();
        socket.set_option(SocketOption::ReusePort(true)).unwrap();
        socket.bind(address)?;
        let socket = UdpSocket::from_socket(socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Result::Ok(socket)
    };
    let group = at(GROUP, PORT);
    let members = [&first, &second].map(|net| sharing(net, group).unwrap());
    let refused = sharing(&third, group).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EADDRINUSE));
    members.iter().for_each(|socket| join(socket, GROUP));
    say(&peer, PEER, GROUP, b"to the group");
    for socket in &members {
        assert_eq!(next(socket).0, b"to the group");
    }
    // Sent from the group's port, at an address of the host's.
    let there = member(&peer, GROUP);
    members[0].send_to(b"from the port", group).unwrap();
    let mut text = [0; 64];
    let (n, from) = there.recv_from(&mut text).unwrap();
    assert_eq!(
        (&text[..n], from),
        (&b"from the port"[..], at(LENDER, PORT))
    );
    // Unicast is not for it; and the port is another's at an address.
    let unicast = sharing(&third, at(LENDER, PORT)).unwrap();
    there.send_to(b"to the host", at(LENDER, PORT)).unwrap();
    assert_eq!(next(&unicast).0, b"to the host");
    // And it is given back.
    drop(members);
    eventually("the port is free", || sharing(&third, group).is_ok());
    assert_eq!(counter(&lender, "drop_transmit_check"), 0);
}

/// A broadcast is for all of its port; and leaves once.
#[test]
fn broadcasts_come_to_all_of_their_port() {
    let (lender, peer) = lender_and_peer();
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    let here = [&first, &first, &second, &lender].map(|net| any(net, GROUP));
    let there = any(&peer, GROUP);
    for socket in here.iter().chain([&there]) {
        socket
            .socket()
            .set_option(SocketOption::Broadcast(true))
            .unwrap();
    }
    let to = at("10.0.0.255", PORT);
    there.send_to(b"in", to).unwrap();
    here[0].send_to(b"out", to).unwrap();
    for socket in here.iter().chain([&there]) {
        let mut texts = [next(socket).0, next(socket).0];
        texts.sort();
        assert_eq!(texts, [b"in".to_vec(), b"out".to_vec()]);
    }
    // Of all hosts' group every host is a member.
    say(&peer, PEER, "224.0.0.1", b"everyone");
    for socket in &here {
        assert_eq!(next(socket).0, b"everyone");
    }
    assert!(here.iter().chain([&there]).all(is_quiet));
}

/// It takes nothing: its copies are dropped, and the others have theirs.
#[test]
fn a_lease_that_does_not_read_holds_up_no_other() {
    let (lender, peer) = lender_and_peer();
    let deaf = lender.lend("", "deaf", 0).unwrap();
    let (reading, _lent) = application(&lender, "reading", Net::builder());
    let socket = member(&reading, GROUP);
    let any = netchan::link::lease::Binding {
        transport: netchan::link::lease::Transport::Udp,
        address: at("0.0.0.0", PORT),
    };
    let shared = netchan::link::lease::Reuse {
        address: true,
        port: false,
    };
    deaf.bind(any, shared).unwrap();
    deaf.join(&membership(GROUP)).unwrap();
    let sender = peer.udp().bind(at(PEER, 0)).unwrap();
    for _ in 0..1100 {
        sender.send_to(b"heard", at(GROUP, PORT)).unwrap();
        assert_eq!(next(&socket).0, b"heard");
    }
    assert_eq!(of_lease(&lender, "deaf", "packets_in"), 1024);
    assert_eq!(of_lease(&lender, "deaf", "drops"), 1100 - 1024);
    assert_eq!(counter(&lender, "drop_lease_full"), 1100 - 1024);
    assert_eq!(of_lease(&lender, "reading", "drops"), 0);
}

fn membership(group: &str) -> Membership {
    Membership {
        group: ip(group),
        excludes: true,
        sources: Vec::new(),
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_and_bounded() {
    let (lender, _peer) = lender_and_peer();
    let lent = lender.lend("", "hostile", 0).unwrap();
    let with = |group: &str, sources: Vec<IpAddr>| Membership {
        sources,
        ..membership(group)
    };
    let many: Vec<IpAddr> = (0..129)
        .map(|n| Ipv4Addr::new(10, 1, 0, n).into())
        .collect();
    for (wrong, errno) in [
        (membership(PEER), libc::EINVAL),
        (membership("0.0.0.0"), libc::EINVAL),
        (membership("127.0.0.1"), libc::EINVAL),
        (membership("::ffff:239.1.2.3"), libc::EINVAL),
        (membership("255.255.255.255"), libc::EINVAL),
        (with(GROUP, vec![ip(PEER_V6)]), libc::EINVAL),
        (with(GROUP_V6, vec![ip(PEER)]), libc::EINVAL),
        (with(GROUP, vec![ip("239.1.1.1")]), libc::EINVAL),
        (with(GROUP, vec![ip("0.0.0.0")]), libc::EINVAL),
        (with(GROUP, many.clone()), libc::ENOBUFS),
    ] {
        assert_eq!(lent.join(&wrong), Err(errno), "{wrong:?}");
        lent.leave(&wrong);
    }
    assert_eq!(of_lease(&lender, "hostile", "nonsense"), 10);
    assert_eq!(of_lease(&lender, "hostile", "groups"), 0);
    // As many as there may be, each with the longest list.
    let group = |n: u16| {
        let [high, low] = n.to_be_bytes();
        Ipv4Addr::new(239, 9, high, low).to_string()
    };
    for n in 0..512 {
        lent.join(&with(&group(n), many[..128].to_vec())).unwrap();
    }
    assert_eq!(lent.join(&membership(&group(512))), Err(libc::ENOBUFS));
    lent.join(&membership(&group(0))).unwrap(); // another filter is no other group
    let nothing = |group: &str| Membership {
        excludes: false,
        ..membership(group)
    };
    lent.leave(&nothing(&group(7)));
    lent.leave(&nothing(&group(7)));
    lent.join(&nothing(GROUP)).unwrap(); // it was not in it
    assert_eq!(of_lease(&lender, "hostile", "groups"), 511);
    lent.join(&membership(&group(512))).unwrap();
    // Others have room all the same, and are in the same groups.
    let (application, _lent) = application(&lender, "other", Net::builder());
    let other = member(&application, &group(0));
    // And a socket is told when its own lease is full.
    drop(lent);
    eventually("it is gone", || heard(&lender, &group(3)).is_empty());
    assert_eq!(heard(&lender, &group(0)), "exclude");
    drop(other);
    eventually("all is gone", || heard(&lender, &group(0)).is_empty());
}

/// What the lender refuses is the socket's errno, and the socket is in no more groups than before.
#[test]
fn a_socket_hears_what_its_lender_refuses() {
    let (lender, peer) = lender_and_peer();
    let (application, lent) = application(&lender, "many", Net::builder());
    let group = |n: u16| {
        let [high, low] = n.to_be_bytes();
        Ipv6Addr::from([0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
    };
    let socket = any(&application, GROUP_V6);
    for n in 0..512 {
        lent.join(&membership(&group(n).to_string())).unwrap();
    }
    let refused = socket.join_multicast_v6(&group(600), 1).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS));
    lent.leave(&Membership {
        excludes: false,
        ..membership(&group(9).to_string())
    });
    socket.join_multicast_v6(&group(600), 1).unwrap();
    say(&peer, PEER_V6, &group(600).to_string(), b"heard");
    assert_eq!(next(&socket).0, b"heard");
    // Of a lender that has ended there is nothing to hear, and leaving it is no error.
    drop((lent, lender));
    let socket = socket;
    drop(socket);
}

/// A packet that an application writes as it likes.
struct Hand {
    side: Side<[u8; 32], [u8; 16]>,
    outward: BorrowedSlab,
    sent: u32,
}

impl Hand {
    fn new(lent: &netchan::Lent) -> Self {
        let terms = lent.terms();
        let files: Vec<OwnedFd> = (lent.files().iter())
            .map(|file| file.try_clone_to_owned().unwrap())
            .collect();
        let layout = EdgeLayout::new(terms.slots).unwrap();
        let socket = Own::keep(files[3].try_clone().unwrap());
        let outward = SharedLayout::decode(&terms.outward).unwrap();
        Self {
            side: edge::map(&files[2], layout, socket, Which::Mapper).unwrap(),
            outward: BorrowedSlab::map(&files[1], outward).unwrap(),
            sent: 0,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let name = BufferName {
            index: self.sent,
            generation: 1,
        };
        self.sent += 1;
        self.outward.copy_in(name, 0, bytes).unwrap();
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(bytes.len()).unwrap(),
            link: 0,
            flags: TO_MANY,
            segment: 0,
        };
        self.side.sending.stage(descriptor.encode()).unwrap();
        self.side.sending.publish();
        self.side.far_bell.ring();
    }
}

/// A packet of IPv4 with eight bytes of a transport header, or twenty.
fn packet(to: &str, protocol: Protocol, ports: (u16, u16)) -> Vec<u8> {
    let mut upper = [0; 20];
    upper[..2].copy_from_slice(&ports.0.to_be_bytes());
    upper[2..4].copy_from_slice(&ports.1.to_be_bytes());
    upper[12] = 5 << 4;
    upper[5] = 8;
    let len = match protocol {
        Protocol::UDP => udp::HEADER_LEN,
        _ => upper.len(),
    };
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    let header = ipv4::Header::new(protocol, LENDER.parse().unwrap(), to.parse().unwrap());
    header.emit(len, &mut bytes);
    bytes.extend(&upper[..len]);
    bytes
}

/// Copies are asked for of what is for many alone, and from a port of its own.
#[test]
fn what_an_application_may_not_send_to_members_is_counted() {
    let (lender, peer) = lender_and_peer();
    let (application, _lent) = application(&lender, "member", Net::builder());
    let members = [
        member(&application, GROUP),
        member(&lender, GROUP),
        member(&peer, GROUP),
    ];
    let lent = lender.lend("", "by hand", 0).unwrap();
    let mut hand = Hand::new(&lent);
    let port = lent.terms().ports[0].0;
    for (n, wrong) in [
        packet(LENDER, Protocol::UDP, (port, PORT)),
        packet(PEER, Protocol::UDP, (port, PORT)),
        packet(PEER, Protocol::TCP, (port, PORT)),
        packet("127.0.0.1", Protocol::UDP, (port, PORT)),
        packet(GROUP, Protocol::TCP, (port, PORT)),
        packet(GROUP, Protocol::UDP, (PORT, PORT)),
        packet(GROUP, Protocol(89), (port, PORT)),
        packet(GROUP, Protocol::IGMP, (port, PORT)),
        packet("10.0.0.255", Protocol::TCP, (port, PORT)),
    ]
    .iter()
    .enumerate()
    {
        hand.send(wrong);
        let count = n as u64 + 1;
        eventually(&format!("{n}"), || {
            of_lease(&lender, "by hand", "refused") == count
        });
    }
    assert_eq!(counter(&lender, "drop_transmit_check"), 9);
    hand.send(&packet(GROUP, Protocol::UDP, (port, PORT)));
    for socket in &members {
        assert_eq!(next(socket), (Vec::new(), ip(LENDER)));
        assert!(is_quiet(socket));
    }
}

/// As OSPF: its packets to a group come to an application that has the protocol and is in the group by a socket of UDP.
#[test]
fn packets_of_a_protocol_come_by_its_groups() {
    let (lender, peer) = lender_and_peer();
    let (application, _lent) = application(&lender, "routing", Net::builder());
    let (other, _other) = application_of(&lender, ("other", 0), Net::builder(), |_| ());
    let protocol = PacketProtocol::Ip(89);
    let [ours, theirs] = [&application, &peer].map(|net| {
        let channel = net.packet_channel(protocol).unwrap();
        channel.set_read_timeout(Some(PATIENCE)).unwrap();
        channel
    });
    // Another lease is in the group: this one is not.
    let group = "224.0.0.5";
    peer.add_route("", "0.0.0.0/0", Some(LENDER), 0).unwrap();
    let _elsewhere = member(&other, group);
    theirs.send_to(b"not heard", ip(group)).unwrap();
    theirs.send_to(b"unicast", ip(LENDER)).unwrap();
    assert_eq!(ours.recv().unwrap().payload(), b"unicast");
    let _here = member(&application, group);
    theirs.send_to(b"heard", ip(group)).unwrap();
    assert_eq!(ours.recv().unwrap().payload(), b"heard");
    // And out.
    let there = member(&peer, group);
    ours.send_to(b"out", ip(group)).unwrap();
    assert_eq!(theirs.recv().unwrap().payload(), b"out");
    drop(there);
    assert_eq!(of_lease(&lender, "routing", "packets_in"), 2);
}

/// Its frames have the group's link address.
#[test]
fn frames_to_groups_have_their_link_address() {
    let (lender, _peer) = lender_and_peer();
    let (application, _lent) = application(&lender, "sender", Net::builder());
    let options = tap::Options {
        way: Some(tap::Way::Out),
        ..tap::Options::default()
    };
    let mut out = lender.tap(options).unwrap();
    say(&application, LENDER, GROUP, b"v4");
    say(&application, LENDER_V6, GROUP_V6, b"v6");
    let mut seen = Vec::new();
    eventually("both are out", || {
        while let Some(record) = out.read() {
            let Ok((header, len)) = ethernet::Header::parse(record.bytes()) else {
                continue;
            };
            let upper = match header.ethertype {
                EtherType::IPV4 => 20,
                _ => 40,
            };
            let text = &record.bytes()[len + upper..];
            if text.ends_with(b"v4") || text.ends_with(b"v6") {
                seen.push(header.destination.0);
            }
        }
        seen.len() >= 2
    });
    assert_eq!(seen, [[1, 0, 0x5e, 1, 2, 3], [0x33, 0x33, 0, 1, 0, 2]]);
}
