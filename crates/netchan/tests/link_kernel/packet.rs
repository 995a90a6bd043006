//! The packet link on one end of a veth, against the kernel at the other end.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::{IpAddr, UdpSocket},
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::{Link, LinkError, specification},
    packet::{HEADROOM, Packet},
};

use crate::{
    frames::Host,
    namespace::{self, ip, veth},
    skips::skipped,
};

fn try_open(text: &str) -> std::io::Result<Box<dyn Link>> {
    specification::open(&specification::parse(text)?, &Clock::Real)
}

fn open(text: &str) -> Host {
    Host::new(try_open(text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn kernel_answers_on_both_families() {
    namespace::with("packet::kernel_answers_on_both_families", || {
        veth();
        for options in ["", ",mac=own", ",mac=02:00:00:00:00:07,mtu=1400"] {
            let mut host = open(&format!("packet:v0{options}"));
            for (me, kernel) in [("10.77.0.2", "10.77.0.1"), ("fd77::2", "fd77::1")] {
                let (me, kernel) = (addr(me), addr(kernel));
                ip("neighbor flush dev v1");
                let mac = host
                    .resolve(me, kernel)
                    .expect("the kernel answers for its address");
                assert!(
                    host.ping(me, kernel, mac, 56).is_some(),
                    "no echo {options}"
                );
                assert!(
                    host.ping(me, kernel, mac, 1300).is_some(),
                    "no long echo {options}"
                );
            }
            let (rx, tx) = (host.queue.rx.statistics(), host.queue.tx.statistics());
            assert!(rx.packets >= 6 && tx.packets == 6, "{rx:?} {tx:?}");
            assert_eq!(
                (rx.missed, rx.length, tx.errors),
                (0, 0, 0),
                "{rx:?} {tx:?}"
            );
            host.seen.clear();
            assert_eq!(
                host.slab.available(),
                host.slab.capacity(),
                "buffers leaked"
            );
        }
    });
}

#[test]
fn frames_for_others_do_not_reach_us() {
    namespace::with("packet::frames_for_others_do_not_reach_us", || {
        veth();
        let mut host = open("packet:v0");
        ip("neighbor add 10.77.0.9 lladdr 02:00:00:00:00:09 dev v1");
        ip(&format!(
            "neighbor add 10.77.0.2 lladdr {} dev v1",
            host.properties.mac
        ));
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket of the kernel");
        socket.send_to(b"theirs", "10.77.0.9:9").expect("sent");
        socket.send_to(b"ours", "10.77.0.2:9").expect("sent");
        let udp = host.until(|p| (p.bytes().get(23) == Some(&17)).then(|| p.bytes().to_vec()));
        assert_eq!(udp.expect("ours came").get(42..), Some(&b"ours"[..]));
    });
}

#[test]
fn two_stacks_on_one_interface_have_two_addresses() {
    namespace::with(
        "packet::two_stacks_on_one_interface_have_two_addresses",
        || {
            veth();
            let (mut a, mut b) = (open("packet:v0"), open("packet:v0"));
            assert_ne!(a.mac(), b.mac());
            let kernel = addr("10.77.0.1");
            for (host, me) in [(&mut a, addr("10.77.0.2")), (&mut b, addr("10.77.0.3"))] {
                let mac = host.resolve(me, kernel).expect("the kernel answers");
                assert!(host.ping(me, kernel, mac, 56).is_some());
            }
            let first = a.mac();
            drop(a);
            assert_eq!(
                open("packet:v0").mac(),
                first,
                "given back, and taken again"
            );
            let fixed = "packet:v0,mac=02:00:00:00:00:07";
            let _fixed = open(fixed);
            let refused = try_open(fixed).err().map(|e| (e.kind(), e.to_string()));
            let (kind, what) = refused.expect("a second stack with this address");
            assert_eq!(kind, ErrorKind::AddrInUse);
            assert!(
                what.contains("another stack has mac=02:00:00:00:00:07"),
                "{what}"
            );
            // The same on another interface, and both as one with the kernel, are no conflict.
            let _other = open("packet:v1,mac=02:00:00:00:00:07");
            let _own = [open("packet:v0,mac=own"), open("packet:v0,mac=own")];
        },
    );
}

/// What a packet socket sends, another one on its interface does not receive but sees go out. Two stacks with one address hear each other's
/// announcements by that, each counts, and neither hears anything else.
#[test]
fn two_stacks_with_one_address_on_one_interface_notice_each_other() {
    namespace::with(
        "packet::two_stacks_with_one_address_on_one_interface_notice_each_other",
        || {
            veth();
            let start = |addresses: &[&str]| {
                let mut builder = Net::builder().threads(Threads::Caller);
                builder = builder.link("packet:v0").expect("a link");
                for address in addresses {
                    builder = builder.address(address).expect("an address");
                }
                builder.start().expect("a stack")
            };
            for address in ["10.77.0.2/24", "fd77::2/64"] {
                let (first, second) = (start(&[address]), start(&[address]));
                let third = start(&["10.77.0.3/24", "fd77::3/64"]);
                let nets = [&first, &second, &third];
                let conflicts = || nets.map(|net| counter(net, "address_conflicts"));
                // Announcements come within two seconds, the defence at once.
                for _ in 0..600 {
                    for net in nets {
                        net.poll();
                    }
                    if conflicts()[..2].iter().all(|&n| n > 0) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                let now = conflicts();
                assert!(now[0] > 0 && now[1] > 0, "{address}: {now:?}");
                assert_eq!(now[2], 0, "{address}: its address is its own");
            }
        },
    );
}

fn counter(net: &Net, name: &str) -> u64 {
    let counters = net.show("counters").expect("counters");
    let mut rows = counters.as_array().into_iter().flatten();
    let row = rows.find(|row| row["name"] == name);
    row.and_then(|row| row["value"].as_u64()).expect(name)
}

/// R1: what the kernel's queue had no room for is counted and visible.
#[test]
fn overrun_is_counted() {
    namespace::with("packet::overrun_is_counted", || {
        veth();
        let mut host = open("packet:v0");
        ip(&format!(
            "neighbor add 10.77.0.2 lladdr {} dev v1",
            host.properties.mac
        ));
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket of the kernel");
        const SENT: u64 = 30_000;
        for _ in 0..SENT {
            socket.send_to(&[1; 1400], "10.77.0.2:9").expect("sent");
        }
        let mut seen = 0;
        while host.receive(Duration::ZERO).expect("the link is up") > 0 {
            seen += host.seen.drain(..).filter(|p| p.len() == 1442).count() as u64;
        }
        let missed = host.queue.rx.statistics().missed;
        assert!(
            missed > 0 && seen > 0 && seen + missed >= SENT,
            "{seen} seen, {missed} missed"
        );
        assert_eq!(
            host.queue.rx.statistics().missed,
            missed,
            "asking twice changed the answer"
        );
    });
}

#[test]
fn without_buffers_frames_are_counted_as_dropped() {
    namespace::with(
        "packet::without_buffers_frames_are_counted_as_dropped",
        || {
            veth();
            let mut host = open("packet:v0");
            ip(&format!(
                "neighbor add 10.77.0.2 lladdr {} dev v1",
                host.properties.mac
            ));
            let held: Vec<_> = std::iter::from_fn(|| host.slab.alloc()).collect();
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket of the kernel");
            for _ in 0..10 {
                socket.send_to(b"lost", "10.77.0.2:9").expect("sent");
            }
            assert_eq!(host.receive(Duration::from_millis(100)).unwrap(), 0);
            assert!(
                host.queue.rx.statistics().no_buffer >= 10,
                "{:?}",
                host.queue.rx.statistics()
            );
            drop(held);
            assert_eq!(
                host.slab.available(),
                host.slab.capacity(),
                "buffers leaked"
            );
            socket.send_to(b"seen", "10.77.0.2:9").expect("sent");
            assert!(
                host.until(|p| p.bytes().ends_with(b"seen").then_some(()))
                    .is_some()
            );
        },
    );
}

#[test]
fn kernel_hands_over_merged_segments() {
    namespace::with("packet::kernel_hands_over_merged_segments", || {
        veth();
        let mut host = open("packet:v0");
        ip(&format!(
            "neighbor add 10.77.0.2 lladdr {} dev v1",
            host.properties.mac
        ));
        let sender = std::thread::spawn(|| {
            use std::io::Write;
            let mut stream =
                std::net::TcpStream::connect("10.77.0.2:80").expect("our host answers");
            let _ = stream.write_all(&[7; 200_000]);
            stream
        });
        let (total, verified, longest) = host.accept_tcp("10.77.0.2".parse().expect("an address"));
        assert_eq!((total, verified), (200_000, true));
        assert!(longest > 1514, "{longest}");
        drop(sender.join());
    });
}

#[test]
fn vlan_tag_is_put_back() {
    namespace::with("packet::vlan_tag_is_put_back", || {
        veth();
        // Sent as bytes at the other end, the tag is taken out by the kernel on the way in.
        let (mut host, mut other) = (open("packet:v0"), open("packet:v1"));
        let mac = host.properties.mac;
        other.send(
            mac.0,
            0x8100,
            &[&[0, 5, 8, 0][..], &[0; 34], b"tagged"].concat(),
        );
        let frame = host
            .until(|p| p.bytes().ends_with(b"tagged").then(|| p.bytes().to_vec()))
            .expect("it came");
        assert_eq!(frame[0..6], mac.0);
        assert_eq!(frame[12..18], [0x81, 0x00, 0x00, 0x05, 0x08, 0x00]);
        assert_eq!(frame.len(), 14 + 4 + 34 + 6);
    });
}

#[test]
fn what_does_not_open_is_told() {
    namespace::with("packet::what_does_not_open_is_told", || {
        veth();
        for (text, kind, says) in [
            ("packet:v9", ErrorKind::NotFound, "no interface"),
            ("packet:lo", ErrorKind::Unsupported, "no Ethernet"),
            ("packet:v0,mtu=9000", ErrorKind::InvalidInput, "1500"),
        ] {
            let Err(e) = try_open(text) else {
                panic!("{text} opened")
            };
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(says), "{e}");
        }
    });
}

#[test]
fn deleted_interface_is_gone() {
    namespace::with("packet::deleted_interface_is_gone", || {
        veth();
        let mut host = open("packet:v0");
        let deleter = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            ip("link delete v0");
        });
        let mut patience = 1500; // half a minute: a busy machine starts programs slowly
        let error = loop {
            match host.receive(Duration::from_millis(20)) {
                Err(e) => break e,
                Ok(_) => patience -= 1,
            }
            assert!(patience > 0, "it was deleted and no error came");
        };
        deleter.join().expect("ip ran");
        assert!(
            matches!(&error, LinkError::Gone(what) if what.contains("v0")),
            "{error}"
        );
        assert!(matches!(
            host.receive(Duration::ZERO),
            Err(LinkError::Gone(_))
        ));
        let buffer = host.slab.alloc().expect("the test holds few buffers");
        let mut packet = Packet::new(buffer, HEADROOM);
        packet.set_len(60);
        let mut out = VecDeque::from([packet]);
        assert!(matches!(
            host.queue.tx.transmit(host.clock.now(), &mut out),
            Err(LinkError::Gone(_))
        ));
    });
}

#[test]
fn downed_interface_drops_and_comes_back() {
    namespace::with("packet::downed_interface_drops_and_comes_back", || {
        veth();
        let mut host = open("packet:v0");
        ip("link set v0 down");
        host.send([0xff; 6], 0x0806, &[0; 28]);
        assert_eq!(host.queue.tx.statistics().errors, 1);
        for _ in 0..3 {
            host.receive(Duration::from_millis(10))
                .expect("down, not gone");
        }
        assert_ne!(
            host.queue.rx.next_event(),
            proto::time::Instant::FAR,
            "no look is due whether it is gone"
        );
        ip("link set v0 up");
        // The carrier follows in its own time; what is sent before is lost, as on any cable.
        let came_back =
            (0..5).any(|_| host.resolve(addr("10.77.0.2"), addr("10.77.0.1")).is_some());
        assert!(came_back, "it did not come back");
    });
}

/// A kernel peer that merges its datagrams (UDP_SEGMENT) is received datagram by datagram, in order.
#[test]
fn merged_datagrams_are_cut_apart() {
    namespace::with("packet::merged_datagrams_are_cut_apart", || {
        veth();
        let mut host = open("packet:v0");
        ip(&format!(
            "neighbor add 10.77.0.2 lladdr {} dev v1",
            host.properties.mac
        ));
        // 17, 103: SOL_UDP, UDP_SEGMENT. 40 datagrams of 1000 bytes and a short one, then an ordinary one.
        let script = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(17, 103, 1000); \
                      s.sendto(b''.join(bytes([n]) * 1000 for n in range(40)) + b'short', ('10.77.0.2', 9)); \
                      s.sendto(b'last', ('10.77.0.2', 9))";
        let Ok(sent) = std::process::Command::new("python3")
            .args(["-c", script])
            .status()
        else {
            return skipped(
                "packet::merged_datagrams_are_cut_apart",
                "no python3 to send with UDP_SEGMENT",
            );
        };
        assert!(sent.success());
        let mut payloads = Vec::new();
        host.until(|p| {
            let bytes = p.bytes();
            if bytes.get(12..14) == Some(&[8, 0][..]) && bytes.get(23) == Some(&17) {
                assert_eq!(
                    crate::frames::checksum(&[&bytes[14..34]]),
                    [0, 0],
                    "the header's checksum"
                );
                assert!(p.meta.checksum_verified.get());
                payloads.push(bytes[42..].to_vec());
            }
            (payloads.len() == 42).then_some(())
        })
        .expect("42 datagrams");
        for (n, payload) in (0u8..40).zip(&payloads) {
            assert_eq!(payload, &vec![n; 1000]);
        }
        assert_eq!(
            (&payloads[40][..], &payloads[41][..]),
            (&b"short"[..], &b"last"[..])
        );
        host.seen.clear();
        assert_eq!(
            host.slab.available(),
            host.slab.capacity(),
            "buffers leaked"
        );
    });
}
