//! What is asked and answered: terms, ports, and answers that are none.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use netchan_base::clock::Clock;
use percore::slab::SharedLayout;
use proto::membership::{Filter, Mode};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
    socketpair,
};

use super::lender::{Lender, MAC, Reply, SIZE, answers, packet, serve, slab};
use crate::{
    Link, Queue, Segmentation,
    lease::{
        Answer, Binding, Client, Lease, LeasedLink, MESSAGE_MAX, Membership, Options, PortRange,
        Request, Reuse, SOURCES_MAX, Terms, Transport,
        client::{Leased, path_of},
    },
    specification,
};

/// What a lender answers to an attaching program that it gives this, and nothing else.
fn refused(reply: impl FnOnce(Lender) -> Reply) -> String {
    let mut reply = Some(reply(Lender::new()));
    let (client, _) = serve(move |_| reply.take().into_iter().collect());
    let error = LeasedLink::attach(client, &Options::default()).unwrap_err();
    error.to_string()
}

fn terms(change: impl FnOnce(&mut Terms)) -> String {
    refused(|mut lender| {
        change(&mut lender.terms);
        Reply::with(
            &Answer::Terms(Box::new(lender.terms.clone())),
            lender.files(),
        )
    })
}

fn leased(
    mut answer: impl FnMut(&Request) -> Answer + Send + 'static,
) -> (Lender, Arc<dyn Lease>, JoinHandle<Vec<Request>>) {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let (client, thread) = serve(move |request| match request {
        Request::Attach { .. } => attach(request),
        Request::Close(..) | Request::Return(_) | Request::Over | Request::Drop(_) => Vec::new(),
        other => vec![Reply::of(&answer(other))],
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    (lender, link.lease().unwrap(), thread)
}

/// Asks for a port that is not shared.
fn ask_port(lease: &dyn Lease, transport: Transport, address: SocketAddr) -> Result<(), i32> {
    lease.bind(Binding { transport, address }, Reuse::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn filter(mode: Mode, sources: &[IpAddr]) -> Filter {
    let mut filter = Filter::of(mode);
    for source in sources {
        filter.add(*source);
    }
    filter
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_link_is_as_its_terms_say() {
    let lender = Lender::new();
    let (client, thread) = serve(lender.attaching());
    let options = Options {
        link: "nc0".into(),
        mtu: Some(1400),
        memory: Some(16 << 20),
        ..Options::default()
    };
    let link = LeasedLink::attach(client, &options).unwrap();
    let properties = link.properties();
    assert_eq!(properties.name, "daemon:tap:nc0");
    assert_eq!((properties.kind, properties.mtu), ("daemon", 1400));
    assert_eq!((properties.mac.0, properties.frame_max), (MAC, SIZE + 14));
    let offloaded = Segmentation::Offloaded { datagrams: false };
    assert_eq!(properties.segmentation, offloaded);
    let lease = link.lease().unwrap();
    let addresses: Vec<_> = lease.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.77.0.2/24", "fd77::2/64"]);
    assert_eq!(lease.ports(), [PortRange(40_000, 40_063)]);
    assert_eq!((link.queues(), link.handed_on().len()), (1, 6));
    drop((lease, link));
    let asked = thread.join().unwrap();
    let Request::Attach {
        link,
        program,
        memory,
        ..
    } = &asked[0]
    else {
        panic!("{asked:?}")
    };
    assert!(link == "nc0" && !program.is_empty(), "{asked:?}");
    assert_eq!(*memory, Some(16 << 20));
}

#[test]
fn a_larger_mtu_than_the_lenders_is_refused() {
    let lender = Lender::new();
    let (client, _) = serve(lender.attaching());
    let options = Options {
        mtu: Some(1501),
        ..Options::default()
    };
    let error = LeasedLink::attach(client, &options).unwrap_err();
    assert!(error.to_string().contains("more than the daemon's 1500"));
}

#[test]
fn terms_that_cannot_be_are_refused_by_their_field() {
    let layout = |buffers, size| SharedLayout::new(buffers, size).unwrap().encode();
    for (what, found) in [
        ("version 999", terms(|t| t.version = 999)),
        ("name that no link has", terms(|t| t.link = "a\nb".into())),
        ("name that no link has", terms(|t| t.link = "x".repeat(257))),
        ("that of one station", terms(|t| t.mac = [0xff; 6])),
        ("that of one station", terms(|t| t.mac = [0; 6])),
        ("MTU of 67 bytes", terms(|t| t.mtu = 67)),
        ("MTU of 65536 bytes", terms(|t| t.mtu = 65_536)),
        ("shorter than its MTU", terms(|t| t.mtu = SIZE + 1)),
        (
            "'10.77.0.2'",
            terms(|t| t.addresses = vec!["10.77.0.2".into()]),
        ),
        (
            "more than 256 addresses",
            terms(|t| t.addresses = vec!["10.77.0.2/24".into(); 257]),
        ),
        ("not the layout of a slab", terms(|t| t.inward = [0; 16])),
        ("not the layout of a slab", terms(|t| t.outward[0] ^= 1)),
        ("are too many", terms(|t| t.inward = layout(65_537, 2048))),
        ("are too many", terms(|t| t.outward = layout(1, 131_136))),
        ("the file has", terms(|t| t.inward = layout(100, 2048))),
        ("the file has", terms(|t| t.outward = layout(1, 2048))),
        ("no size that rings have", terms(|t| t.slots = 3)),
        ("the file has", terms(|t| t.slots = 1024)),
        (
            "ports 0 to 9 are none",
            terms(|t| t.ports = vec![PortRange(0, 9)]),
        ),
        (
            "ports 9 to 8 are none",
            terms(|t| t.ports = vec![PortRange(9, 8)]),
        ),
        (
            "ranges of ports",
            terms(|t| t.ports = vec![PortRange(1, 1); 257]),
        ),
    ] {
        let what = what.replace('\'', "\"");
        assert!(found.contains(&what), "{what} is not in: {found}");
        assert!(found.contains("daemon's"), "{found}");
    }
}

#[test]
fn files_that_are_not_those_of_the_terms_are_refused() {
    let with = |change: fn(&mut Vec<OwnedFd>)| {
        refused(|lender| {
            let mut files = lender.files();
            change(&mut files);
            Reply::with(&Answer::Terms(Box::new(lender.terms.clone())), files)
        })
    };
    for (what, found) in [
        ("0 descriptors", with(Vec::clear)),
        ("4 descriptors", with(|files| _ = files.pop())),
        (
            "6 descriptors",
            with(|files| files.push(files[0].try_clone().unwrap())),
        ),
        (
            "not sealed",
            with(|files| files[0] = files[3].try_clone().unwrap()),
        ),
        (
            "the file has",
            with(|files| files[2] = files[0].try_clone().unwrap()),
        ),
        (
            "edge has no socket",
            with(|files| files[3] = files[0].try_clone().unwrap()),
        ),
        (
            "news have no socket",
            with(|files| files[4] = files[3].try_clone().unwrap()),
        ),
        (
            "did not come whole",
            with(|files| {
                let copies = (0..9)
                    .map(|_| files[0].try_clone().unwrap())
                    .collect::<Vec<_>>();
                files.extend(copies);
            }),
        ),
    ] {
        assert!(found.contains(what), "{what} is not in: {found}");
    }
}

/// Too many descriptors, and those that nothing asked for, are closed: the other end of a pipe sees it.
#[test]
fn surplus_descriptors_are_closed() {
    for n in [1, 5, 8, 12] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let found = refused(|lender| {
            let files = (0..n).map(|_| writer.try_clone().unwrap()).collect();
            drop(writer);
            Reply::with(&Answer::Terms(Box::new(lender.terms.clone())), files)
        });
        assert!(!found.is_empty());
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "{n}");
    }
}

#[test]
fn answers_that_are_none_are_errors() {
    let done = Answer::Done;
    let why = "no\nlink\x1b[2J here".to_owned();
    let no = Answer::Refused { errno: 13, why };
    for (what, reply) in [
        ("its answer is none", Reply::text(b"hello")),
        (
            "its answer is none",
            Reply::text(b"{\"terms\":{\"version\":1}}"),
        ),
        ("its answer is none", Reply::text(&[0xff; 100])),
        ("its answer is none", Reply::text(&[b'['; MESSAGE_MAX])),
        ("did not come whole", Reply::text(&[b' '; MESSAGE_MAX + 1])),
        ("another question", Reply::of(&done)),
        ("another question", Reply::of(&Answer::Ports(Vec::new()))),
        ("refuses: nolink[2J here", Reply::of(&no)),
    ] {
        let found = refused(|_| reply);
        assert!(found.contains(what), "{what} is not in: {found}");
    }
}

#[test]
fn what_was_granted_is_not_asked_for_again() {
    let (_lender, lease, thread) = leased(|_| Answer::Done);
    let http = address("10.77.0.2:80");
    for _ in 0..3 {
        assert_eq!(ask_port(&*lease, Transport::Tcp, http), Ok(()));
    }
    assert_eq!(ask_port(&*lease, Transport::Udp, http), Ok(()));
    assert_eq!(
        ask_port(&*lease, Transport::Tcp, address("[::]:80")),
        Ok(())
    );
    for _ in 0..2 {
        assert_eq!(lease.packets(89), Ok(()));
        assert_eq!(lease.frames(0x88b5), Ok(()));
    }
    drop(lease);
    let binding = |transport, at| {
        let address = address(at);
        Request::Bind(Binding { transport, address }, Reuse::default())
    };
    assert_eq!(
        thread.join().unwrap()[1..],
        [
            binding(Transport::Tcp, "10.77.0.2:80"),
            binding(Transport::Udp, "10.77.0.2:80"),
            binding(Transport::Tcp, "[::]:80"),
            Request::Packets(89),
            Request::Frames(0x88b5),
        ]
    );
}

#[test]
fn a_port_goes_back_with_its_last_socket() {
    let (_lender, lease, thread) = leased(|_| Answer::Done);
    let http = Binding {
        transport: Transport::Tcp,
        address: address("10.77.0.2:80"),
    };
    let alone = Reuse::default();
    let shared = Reuse {
        address: true,
        port: true,
    };
    for reuse in [alone, alone, shared] {
        assert_eq!(lease.bind(http, reuse), Ok(())); // it is asked for once more as it is otherwise
    }
    lease.leave(http); // it is not the last one
    assert_eq!([(); 2].map(|()| lease.unbind(http)), [false, false]);
    lease.leave(http);
    lease.leave(http);
    assert_eq!(lease.bind(http, shared), Ok(()));
    assert_eq!([(); 2].map(|()| lease.unbind(http)), [false, true]);
    // Connections live on; then a socket has it again, and nothing is said of it.
    let flow = |port| {
        (
            address("10.77.0.2:80"),
            SocketAddr::from(([10, 77, 0, 3], port)),
        )
    };
    let flows: Vec<_> = (1..=130).map(flow).collect();
    lease.close(http, &flows);
    lease.close(http, &flows);
    assert_eq!(lease.unbound(), [(http, true)]);
    assert_eq!(lease.bind(http, shared), Ok(()));
    lease.close(http, &[]);
    assert!(lease.give_back(http));
    assert_eq!(lease.unbound(), []);
    assert!(lease.unbind(http));
    assert_eq!(lease.unbound(), [(http, false)]);
    assert!(lease.give_back(http) && lease.give_back(http));
    assert!(!lease.unbind(http));
    lease.over();
    drop(lease);
    assert_eq!(
        thread.join().unwrap()[1..],
        [
            Request::Bind(http, alone),
            Request::Bind(http, shared),
            Request::Leave(http),
            Request::Bind(http, shared),
            Request::Close(http, flows[..128].to_vec()),
            Request::Close(http, flows[128..].to_vec()),
            Request::Bind(http, shared),
            Request::Return(http),
            Request::Over,
        ]
    );
}

#[test]
fn what_is_not_answered_waits_for_nothing() {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let (go, stopped) = std::sync::mpsc::channel::<()>();
    let (client, thread) = serve(move |request| match request {
        Request::Attach { .. } => attach(request),
        Request::Return(_) => {
            let _ = stopped.recv(); // it is stopped, until the test is over
            Vec::new()
        }
        _ => vec![Reply::of(&Answer::Done)],
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let lease = link.lease().unwrap();
    let port = |port| Binding {
        transport: Transport::Udp,
        address: SocketAddr::from(([10, 77, 0, 2], port)),
    };
    for number in 1..=1000 {
        assert_eq!(lease.bind(port(number), Reuse::default()), Ok(()));
        assert!(lease.unbind(port(number)));
    }
    // More than the socket holds: they are told later.
    let told = lease.unbound().into_iter();
    let told = told
        .filter(|(binding, _)| lease.give_back(*binding))
        .count();
    assert_eq!(lease.unbound().len(), 1000 - told);
    assert!(told < 1000, "{told}");
    drop(go);
    while let Some((binding, _)) = lease.unbound().pop() {
        lease.give_back(binding);
    }
    drop((lease, link));
    let returned = |request: &&Request| matches!(request, Request::Return(_));
    assert_eq!(thread.join().unwrap().iter().filter(returned).count(), 1000);
}

/// RFC 9776 §3.2: one wish for all sockets of the lease.
#[test]
fn what_the_sockets_hear_of_a_group_is_asked_for_together() {
    let full = |request: &Request| match request {
        Request::Join(membership) if membership.group == ip("239.0.0.9") => Answer::Refused {
            errno: libc::ENOBUFS,
            why: "full".into(),
        },
        _ => Answer::Done,
    };
    let (_lender, lease, thread) = leased(full);
    let group = ip("239.0.0.1");
    let (far, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
    let including = |sources: &[IpAddr]| filter(Mode::Include, sources);
    assert_eq!(lease.join_group(1, group, &including(&[far])), Ok(()));
    assert_eq!(lease.join_group(2, group, &including(&[far])), Ok(())); // nothing new
    assert_eq!(lease.join_group(2, group, &including(&[other])), Ok(()));
    assert_eq!(lease.join_group(3, group, &Filter::ANY_SOURCE), Ok(()));
    assert!(lease.leave_group(2, group)); // nothing less
    assert!(lease.leave_group(3, group));
    // What is refused is as if it had not been asked for.
    let refused = lease.join_group(1, ip("239.0.0.9"), &Filter::ANY_SOURCE);
    assert_eq!(refused, Err(libc::ENOBUFS));
    assert!(lease.leave_group(1, ip("239.0.0.9")) && lease.settle_groups());
    assert!(lease.leave_group(1, group) && lease.leave_group(1, group));
    // More sources than cross: more is heard.
    let many: Vec<IpAddr> = (0..129).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    assert_eq!(lease.join_group(4, group, &including(&many)), Ok(()));
    let excluding = filter(Mode::Exclude, &many);
    assert_eq!(lease.join_group(4, group, &excluding), Ok(()));
    drop(lease);
    let of = |group: &str, excludes, sources: &[IpAddr]| Membership {
        group: ip(group),
        excludes,
        sources: sources.to_vec(),
    };
    let here = "239.0.0.1";
    assert_eq!(
        thread.join().unwrap()[1..],
        [
            Request::Join(of(here, false, &[far])),
            Request::Join(of(here, false, &[far, other])),
            Request::Join(of(here, true, &[])),
            Request::Drop(of(here, false, &[far])),
            Request::Join(of("239.0.0.9", true, &[])),
            Request::Drop(of(here, false, &[])),
            Request::Join(of(here, true, &[])),
            Request::Join(of(here, true, &many[..128])),
        ]
    );
}

/// As for ports: what finds no room in the socket is said later.
#[test]
fn leaving_groups_waits_for_nothing() {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let (go, stopped) = std::sync::mpsc::channel::<()>();
    let (client, thread) = serve(move |request| match request {
        Request::Attach { .. } => attach(request),
        Request::Drop(_) => {
            let _ = stopped.recv(); // it is stopped, until the test is over
            Vec::new()
        }
        _ => vec![Reply::of(&Answer::Done)],
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let lease = link.lease().unwrap();
    let group = |n: u16| {
        let [high, low] = n.to_be_bytes();
        IpAddr::from([239, 0, high, low])
    };
    for n in 0..1000 {
        assert_eq!(lease.join_group(1, group(n), &Filter::ANY_SOURCE), Ok(()));
    }
    let told = (0..1000)
        .filter(|&n| lease.leave_group(1, group(n)))
        .count();
    assert!((1..1000).contains(&told), "{told}");
    assert!(!lease.settle_groups());
    drop(go);
    while !lease.settle_groups() {
        std::thread::yield_now();
    }
    drop((lease, link));
    let left = |request: &&Request| matches!(request, Request::Drop(_));
    assert_eq!(thread.join().unwrap().iter().filter(left).count(), 1000);
}

#[test]
fn a_membership_is_checked_where_it_is_read() {
    let of = |group: &str, sources: &[&str]| Membership {
        group: ip(group),
        excludes: false,
        sources: sources.iter().map(|source| ip(source)).collect(),
    };
    let good = of("239.0.0.1", &["192.0.2.2", "192.0.2.1", "192.0.2.2"]);
    let read = good.filter().unwrap();
    assert_eq!(read.sources(), [ip("192.0.2.1"), ip("192.0.2.2")]);
    assert!(of("ff02::fb", &[]).filter().unwrap().admits_none());
    for wrong in [
        of("192.0.2.1", &[]),
        of("::ffff:239.0.0.1", &[]),
        of("239.0.0.1", &["fd00::1"]),
        of("ff02::fb", &["192.0.2.1"]),
        of("ff02::fb", &["ff02::1"]),
        of("239.0.0.1", &["0.0.0.0"]),
    ] {
        assert_eq!(wrong.filter(), Err(libc::EINVAL), "{wrong:?}");
    }
    // As long as it may be, a request crosses whole.
    let longest = ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let request = Request::Join(Membership {
        group: longest,
        excludes: false,
        sources: vec![longest; SOURCES_MAX],
    });
    assert!(serde_json::to_vec(&request).unwrap().len() <= MESSAGE_MAX / 2);
}

#[test]
fn loopback_is_asked_for_where_the_terms_lend_it() {
    let (_lender, lease, thread) = leased(|_| Answer::Done);
    assert!(!lease.has_loopback(), "not before it is asked for");
    for _ in 0..2 {
        assert_eq!(lease.share_loopback(), Ok(()));
        assert!(lease.has_loopback());
    }
    drop(lease);
    let asked = thread.join().unwrap();
    assert_eq!(asked[1..], [Request::Loopback]);
    // One that refuses what it lends has not given it.
    let refusal = |_: &Request| Answer::Refused {
        errno: libc::EADDRNOTAVAIL,
        why: "no".into(),
    };
    let (_lender, lease, _) = leased(refusal);
    assert_eq!(lease.share_loopback(), Err(libc::EADDRNOTAVAIL));
    assert!(!lease.has_loopback());
    let mut lender = Lender::new();
    lender.terms.loopback = false;
    let lease = lender.link().lease().unwrap();
    assert_eq!(lease.share_loopback(), Err(libc::EADDRNOTAVAIL));
    assert!(!lease.has_loopback());
}

#[test]
fn a_refused_port_has_its_errno_and_may_be_asked_for_again() {
    let mut errnos = [libc::EADDRINUSE, 0, -13, 134, i32::MIN, libc::EACCES].into_iter();
    let (_lender, lease, _) = leased(move |_| match errnos.next() {
        Some(errno) => Answer::Refused {
            errno,
            why: String::new(),
        },
        None => Answer::Done,
    });
    let ask = || ask_port(&*lease, Transport::Tcp, address("10.77.0.2:80"));
    assert_eq!(ask(), Err(libc::EADDRINUSE));
    for _ in 0..4 {
        assert_eq!(ask(), Err(libc::EPROTO), "no errno");
    }
    assert_eq!(ask(), Err(libc::EACCES));
    assert_eq!(ask(), Ok(()));
}

#[test]
fn more_ports_are_added() {
    let lists = [
        vec![PortRange(50_000, 50_063), PortRange(40_010, 40_011)],
        vec![PortRange(50_063, 50_064), PortRange(0, 7), PortRange(9, 8)],
        vec![],
    ];
    let mut lists = lists.into_iter();
    let (_lender, lease, _) = leased(move |_| match lists.next() {
        Some(ports) => Answer::Ports(ports),
        None => Answer::Refused {
            errno: libc::EADDRNOTAVAIL,
            why: "there are no more".into(),
        },
    });
    let all = [PortRange(40_000, 40_063), PortRange(50_000, 50_063)];
    assert_eq!(lease.more_ports(), Ok(()));
    assert_eq!(lease.ports(), all, "what it has already is not added");
    for _ in 0..3 {
        assert_eq!(lease.more_ports(), Err(libc::EADDRNOTAVAIL));
        assert_eq!(lease.ports(), all);
    }
}

#[test]
fn links_are_told_and_looked_at() {
    let named = |links: Vec<String>| {
        let (client, asked) = serve(move |_| vec![Reply::of(&Answer::Links(links.clone()))]);
        let told = client.links("hidden").map_err(|e| e.to_string());
        drop(client);
        let asked = asked.join().unwrap();
        assert!(matches!(&asked[..], [Request::Links { secret, .. }] if secret == "hidden"));
        told
    };
    let two = vec!["nc0".to_owned(), "lo".to_owned()];
    assert_eq!(named(two.clone()), Ok(two));
    assert_eq!(named(Vec::new()), Ok(Vec::new()));
    for (links, says) in [
        (vec!["n".repeat(257)], "no link has"),
        (vec!["nc0".into(), "nc\n1".into()], "no link has"),
        (vec!["n".into(); 257], "more than 256 links"),
    ] {
        assert!(named(links).is_err_and(|why| why.contains(says)), "{says}");
    }
    let (client, _) = serve(|_| vec![Reply::of(&Answer::Done)]);
    assert!(client.links("").is_err(), "another answer");
}

#[test]
fn answers_that_are_none_grant_nothing() {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let mut replies = vec![
        Reply::of(&Answer::Ports(Vec::new())),
        Reply::text(b"yes"),
        Reply::text(&[b' '; MESSAGE_MAX + 1]),
    ];
    let (client, _) = serve(move |request| match request {
        Request::Attach { .. } => attach(request),
        _ => vec![replies.pop().unwrap_or_else(|| Reply::of(&Answer::Done))],
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let lease = link.lease().unwrap();
    for _ in 0..3 {
        let bound = ask_port(&*lease, Transport::Tcp, address("10.77.0.2:80"));
        assert_eq!(bound, Err(libc::EPROTO));
    }
    assert_eq!(lease.more_ports(), Err(libc::EPROTO), "another kind");
    assert_eq!(
        ask_port(&*lease, Transport::Tcp, address("10.77.0.2:80")),
        Ok(())
    );
}

/// As a daemon is that many programs ask at once, on a machine that is busy: its answers are late, and right.
#[test]
fn a_busy_lender_is_waited_for() {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let (client, thread) = serve(move |request| {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        match request {
            Request::Attach { .. } => attach(request),
            _ => vec![Reply::of(&Answer::Done)],
        }
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let lease = link.lease().unwrap();
    assert_eq!(
        ask_port(&*lease, Transport::Tcp, address("10.77.0.2:80")),
        Ok(())
    );
    drop((lease, link));
    thread.join().unwrap();
}

/// One that says nothing for 5 s, and one that is gone. What it says later is not taken for the next answer.
#[test]
fn a_silent_lender_is_down_and_late_answers_are_not_mixed_up() {
    let lender = Lender::new();
    let mut attach = lender.attaching();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let (client, thread) = serve(move |request| match request {
        Request::Attach { .. } => attach(request),
        _ => match count.fetch_add(1, Relaxed) {
            0 => Vec::new(),
            1 => vec![
                Reply::of(&Answer::Done), // of the one before
                Reply::of(&Answer::Refused {
                    errno: libc::EACCES,
                    why: String::new(),
                }),
            ],
            _ => vec![Reply::of(&Answer::Done)],
        },
    });
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let lease = link.lease().unwrap();
    let ask = |port| {
        ask_port(
            &*lease,
            Transport::Tcp,
            SocketAddr::from(([10, 77, 0, 2], port)),
        )
    };
    assert_eq!(ask(80), Err(libc::ENETDOWN));
    assert_eq!(ask(81), Err(libc::EACCES));
    assert_eq!(ask(82), Ok(()));
    assert_eq!(asked.load(Relaxed), 3);
    drop((lease, link));
    thread.join().unwrap();

    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    drop(there);
    let lease = Leased::new(Client::over(here), Vec::new(), &Lender::new().terms);
    let bound = ask_port(&lease, Transport::Tcp, address("10.77.0.2:80"));
    assert_eq!(bound, Err(libc::ENETDOWN));
    assert_eq!(lease.more_ports(), Err(libc::ENETDOWN));
}

/// A path of this test's, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("netchan-lease-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// A socket of this kind that listens there.
    fn listen(&self, kind: SocketType) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&self.0).unwrap()).unwrap();
        listen(&socket, 4).unwrap();
        socket
    }

    fn open(&self) -> std::io::Result<Box<dyn Link>> {
        let text = format!("daemon:{}", self.0.display());
        specification::open(&specification::parse(&text).unwrap(), &Clock::Real)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_link_is_opened_by_its_path() {
    let path = Scratch::new("open");
    let listener = path.listen(SocketType::SEQPACKET);
    let lender = Lender::new();
    let attaching = lender.attaching();
    let thread = std::thread::spawn(move || answers(accept(&listener).unwrap(), attaching));
    let link = path.open().unwrap();
    assert_eq!(link.properties().name, "daemon:tap:nc0");
    assert!(link.lease().is_some());
    drop(link);
    assert_eq!(thread.join().unwrap().join().unwrap().len(), 1);
}

#[test]
fn where_no_daemon_is_the_error_says_what_to_do() {
    let path = Scratch::new("none");
    let says = |words: &[&str]| {
        let error = path.open().map(drop).unwrap_err().to_string();
        let place = format!("daemon:{}: ", path.0.display());
        assert!(error.starts_with(&place), "{error}");
        for word in words {
            assert!(error.contains(word), "{word} is not in: {error}");
        }
    };
    says(&["no daemon is there", "`netchan daemon`"]);
    drop(path.listen(SocketType::SEQPACKET));
    says(&["has ended", "`netchan daemon`"]);
    fs::remove_file(&path.0).unwrap();
    let _other = path.listen(SocketType::STREAM);
    says(&["something else"]);
}

#[test]
fn an_inherited_lease_is_used_once() {
    let mut lender = Lender::new();
    let (client, _) = serve(lender.attaching());
    let link = LeasedLink::attach(client, &Options::default()).unwrap();
    let inherited = |link: &LeasedLink| {
        let copies = link.handed_on().into_iter();
        copies
            .map(|fd| fd.try_clone_to_owned().unwrap())
            .collect::<Vec<_>>()
    };
    let none = Scratch::new("inherited");
    let options = Options {
        path: Some(none.0.clone()),
        ..Options::default()
    };
    let first = LeasedLink::adopt(inherited(&link), &options).unwrap();
    assert_eq!(first.properties().name, "daemon:tap:nc0");
    let mut queue = Queue::of(Box::new(first)).unwrap();
    lender.send(&packet(4, 3, 50), 0);
    let mut burst = std::collections::VecDeque::new();
    let now = proto::time::Instant::ZERO;
    let n = queue.rx.receive(now, &mut slab(), &mut burst, 32).unwrap();
    assert_eq!((n, &burst[0].bytes()[14..]), (1, &packet(4, 3, 50)[..]));

    // The next one asks for a lease of its own; here none is to be had.
    let error = LeasedLink::adopt(inherited(&link), &options).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("no daemon is there"), "{error}");
    assert!(
        error.contains("another process has it, or had it"),
        "{error}"
    );
    let error = Queue::of(Box::new(link)).map(drop).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    let few = LeasedLink::inherit(lender.files(), &options).unwrap_err();
    assert!(few.to_string().contains("number of descriptors"), "{few}");
}

#[test]
fn each_user_has_a_path() {
    for (user, runtime, path) in [
        (0, None, "/run/netchan/daemon.sock"),
        (0, Some("/run/user/0"), "/run/netchan/daemon.sock"),
        (7, Some("/run/user/7"), "/run/user/7/netchan/daemon.sock"),
        (7, Some("run"), "/tmp/netchan-7/daemon.sock"),
        (7, Some(""), "/tmp/netchan-7/daemon.sock"),
        (7, None, "/tmp/netchan-7/daemon.sock"),
    ] {
        let found = path_of(user, runtime.map(Into::into));
        assert_eq!(found, Path::new(path));
    }
}
