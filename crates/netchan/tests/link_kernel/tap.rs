//! The TAP against the kernel at its other end.

use std::{collections::VecDeque, io::ErrorKind, net::IpAddr, time::Duration};

use netchan::{
    Clock,
    link::{Link, LinkError, specification},
    packet::{HEADROOM, Packet},
};
use percore::slab::Slab;

use crate::{
    frames::Host,
    namespace::{self, ip},
    skips::skipped,
};

fn open(text: &str) -> Host {
    Host::new(try_open(text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

fn try_open(text: &str) -> std::io::Result<Box<dyn Link>> {
    specification::open(&specification::parse(text)?, &Clock::Real)
}

fn error(text: &str) -> (ErrorKind, String) {
    match try_open(text) {
        Ok(_) => panic!("{text} opened"),
        Err(e) => (e.kind(), e.to_string()),
    }
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn kernel_answers_on_both_families() {
    namespace::with_tap("tap::kernel_answers_on_both_families", || {
        for options in ["", ",offload=off", ",mtu=9000"] {
            let mut host = open(&format!("tap:nc0,peer=10.77.0.1/24;fd77::1/64{options}"));
            for (me, kernel) in [("10.77.0.2", "10.77.0.1"), ("fd77::2", "fd77::1")] {
                let (me, kernel) = (addr(me), addr(kernel));
                let mac = host
                    .resolve(me, kernel)
                    .unwrap_or_else(|| panic!("{kernel} does not answer {options}"));
                assert_ne!(mac, host.mac(), "both ends have one MAC address");
                assert!(
                    host.ping(me, kernel, mac, 56).is_some(),
                    "no echo {options}"
                );
                assert!(
                    host.ping(me, kernel, mac, 1400).is_some(),
                    "no long echo {options}"
                );
            }
            let (rx, tx) = (host.queue.rx.statistics(), host.queue.tx.statistics());
            assert!(rx.packets >= 6 && tx.packets == 6, "{rx:?} {tx:?}");
            assert_eq!(
                (rx.no_buffer, rx.length, tx.errors),
                (0, 0, 0),
                "{rx:?} {tx:?}"
            );
        }
    });
}

#[test]
fn mtu_is_the_devices_or_sets_it() {
    namespace::with_tap("tap::mtu_is_the_devices_or_sets_it", || {
        ip("tuntap add dev nc7 mode tap");
        ip("link set nc7 mtu 1400");
        let host = open("tap:nc7,offload=off");
        assert_eq!(host.properties.mtu, 1400);
        assert!(host.properties.frame_max < 1500);
        drop(host);
        let mut host = open("tap:nc7,mtu=4000,peer=10.7.0.1/24");
        assert_eq!(host.properties.mtu, 4000);
        let (me, kernel) = (addr("10.7.0.2"), addr("10.7.0.1"));
        let mac = host.resolve(me, kernel).expect("an answer");
        assert!(
            host.ping(me, kernel, mac, 3900).is_some(),
            "a packet longer than the old MTU did not come back"
        );
        // Too long for the link is refused for good, and said so.
        let mut out = VecDeque::from([long(&mut host.slab, 4100)]);
        assert_eq!(
            host.queue.tx.transmit(host.clock.now(), &mut out).unwrap(),
            1
        );
        assert_eq!(host.queue.tx.statistics().errors, 1);
    });
}

fn long(slab: &mut Slab, len: usize) -> Packet {
    let mut packet = Packet::new(slab.alloc().expect("a buffer"), HEADROOM);
    packet.set_len(len);
    packet
}

#[test]
fn kernel_chooses_a_name_and_addresses_are_ours() {
    namespace::with_tap("tap::kernel_chooses_a_name_and_addresses_are_ours", || {
        let (a, b) = (open("tap"), open("tap"));
        let names = [&a, &b].map(|h| h.properties.name.clone());
        assert_eq!(names, ["tap:nc0", "tap:nc1"]);
        assert_ne!(a.mac(), b.mac());
        for host in [&a, &b] {
            assert_eq!(
                host.mac()[0] & 0b11,
                0b10,
                "individual and locally administered"
            );
        }
        let fixed = open("tap:x,mac=02:00:00:00:00:09");
        assert_eq!(fixed.mac(), [2, 0, 0, 0, 0, 9]);
    });
}

#[test]
fn second_stack_on_the_same_tap_is_told() {
    namespace::with_tap("tap::second_stack_on_the_same_tap_is_told", || {
        let _first = open("tap:nc0");
        let (kind, text) = error("tap:nc0");
        assert_eq!(kind, ErrorKind::ResourceBusy, "{text}");
        assert!(
            text.contains("tap:nc0") && text.contains("second stack"),
            "{text}"
        );
    });
}

#[test]
fn what_is_no_tap_is_told() {
    namespace::with_tap("tap::what_is_no_tap_is_told", || {
        let (_, text) = error("tap:lo");
        assert!(text.contains("tap:lo") && text.contains("no TAP"), "{text}");
        let (kind, text) = error("tap:a-name-of-17-bytes");
        assert_eq!(kind, ErrorKind::InvalidInput);
        assert!(text.contains("too long"), "{text}");
        assert_eq!(error("tap:a/b").0, ErrorKind::InvalidInput);
        assert_eq!(error("tap:nc%d").0, ErrorKind::InvalidInput);
        // Below 1280 bytes the kernel has no IPv6 on an interface (RFC 8200 §5): we pass on what it refused.
        let (_, text) = error("tap:nc0,peer=fd77::1/64,mtu=1000");
        assert!(
            text.contains("tap:nc0") && text.contains("fd77::1/64"),
            "{text}"
        );
    });
}

#[test]
fn without_permission_the_way_out_is_named() {
    namespace::with_tap("tap::without_permission_the_way_out_is_named", || {
        // Gives up every capability of this process, which is the namespace's only one.
        let output = std::process::Command::new("setpriv")
            .args([
                "--bounding-set=-all",
                "--inh-caps=-all",
                "--reuid=65534",
                "--clear-groups",
                "--",
            ])
            .arg(std::env::current_exe().expect("a test has a path"))
            .args([
                "--exact",
                "tap::open_without_permission",
                "--nocapture",
                "--ignored",
            ])
            .output();
        let Ok(output) = output else {
            return skipped(
                "tap::without_permission_the_way_out_is_named",
                "no setpriv(1)",
            );
        };
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}");
    });
}

#[test]
#[ignore = "run by without_permission_the_way_out_is_named, as a user without rights"]
fn open_without_permission() {
    let (kind, text) = error("tap:nc0");
    assert_eq!(kind, ErrorKind::PermissionDenied, "{text}");
    assert!(
        text.contains("CAP_NET_ADMIN") || text.contains("/dev/net/tun"),
        "{text}"
    );
}

#[test]
fn deleted_device_is_gone() {
    namespace::with_tap("tap::deleted_device_is_gone", || {
        let mut host = open("tap:nc0,peer=10.77.0.1/24");
        while host
            .receive(Duration::from_millis(50))
            .expect("it is there")
            > 0
        {}
        let deleter = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            ip("link delete nc0");
        });
        // Asleep on the descriptor while the device goes.
        let mut patience = 300;
        let error = loop {
            match host.receive(Duration::from_millis(100)) {
                Err(e) => break e,
                Ok(_) => patience -= 1,
            }
            assert!(patience > 0, "it was deleted and no error came");
        };
        deleter.join().expect("ip ran");
        assert!(
            matches!(&error, LinkError::Gone(what) if what.contains("nc0")),
            "{error}"
        );
        for _ in 0..3 {
            assert!(matches!(
                host.receive(Duration::ZERO),
                Err(LinkError::Gone(_))
            ));
        }
        let mut out = VecDeque::from([long(&mut host.slab, 60)]);
        assert!(matches!(
            host.queue.tx.transmit(host.clock.now(), &mut out),
            Err(LinkError::Gone(_))
        ));
        assert_eq!(out.len(), 1, "the frames stay");
    });
}

#[test]
fn downed_device_drops_and_comes_back() {
    namespace::with_tap("tap::downed_device_drops_and_comes_back", || {
        let mut host = open("tap:nc0,peer=10.77.0.1/24");
        ip("link set nc0 down");
        host.send([0xff; 6], 0x0806, &[0; 28]);
        assert_eq!(host.queue.tx.statistics().errors, 1);
        assert!(host.receive(Duration::from_millis(10)).is_ok());
        ip("link set nc0 up");
        assert!(
            host.resolve(addr("10.77.0.2"), addr("10.77.0.1")).is_some(),
            "it did not come back"
        );
    });
}

/// R1: running out of buffers is counted at the ring, is visible, and leaves the link in order.
#[test]
fn without_buffers_frames_are_counted_as_dropped() {
    namespace::with_tap("tap::without_buffers_frames_are_counted_as_dropped", || {
        let mut host = open("tap:nc0,peer=10.77.0.1/24");
        let mac = host
            .resolve(addr("10.77.0.2"), addr("10.77.0.1"))
            .expect("an answer");
        let held: Vec<_> = std::iter::from_fn(|| host.slab.alloc()).collect();
        ip("neighbor add 10.77.0.9 lladdr 02:00:00:00:00:09 dev nc0");
        let socket = std::net::UdpSocket::bind("10.77.0.1:0").expect("a socket of the kernel");
        for _ in 0..10 {
            socket.send_to(b"lost", "10.77.0.9:9").expect("sent");
        }
        assert_eq!(host.receive(Duration::from_millis(100)).unwrap(), 0);
        assert!(
            host.queue.rx.statistics().no_buffer >= 10,
            "{:?}",
            host.queue.rx.statistics()
        );
        drop(held);
        assert!(
            host.ping(addr("10.77.0.2"), addr("10.77.0.1"), mac, 56)
                .is_some()
        );
        host.seen.clear();
        assert_eq!(
            host.slab.available(),
            host.slab.capacity(),
            "buffers leaked"
        );
    });
}

/// With offload the kernel's own TCP hands over segments longer than the MTU, and vouches for their checksums.
#[test]
fn kernel_hands_over_merged_segments() {
    namespace::with_tap("tap::kernel_hands_over_merged_segments", || {
        for (options, offload) in [("", true), (",offload=off", false)] {
            let mut host = open(&format!("tap:nc0,peer=10.77.0.1/24{options}"));
            let mac = host.properties.mac;
            ip(&format!("neighbor add 10.77.0.2 lladdr {mac} dev nc0"));
            let sender = std::thread::spawn(|| {
                use std::io::Write;
                let mut stream =
                    std::net::TcpStream::connect("10.77.0.2:80").expect("our host answers");
                let _ = stream.write_all(&[7; 200_000]);
                stream
            });
            let (total, verified, longest) =
                host.accept_tcp("10.77.0.2".parse().expect("an address"));
            assert_eq!((total, verified), (200_000, offload), "{options}");
            assert_eq!(longest > 1514, offload, "{longest} {options}");
            drop(sender.join());
        }
    });
}
