//! Loopback addresses that come in from a wire are martians (RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3), whosever they are.

use std::io::ErrorKind::WouldBlock;

use netchan::Regime;

use crate::{
    raw::{Raw, datagram},
    streams::counter,
};

#[test]
fn they_are_dropped_at_a_wire() {
    // Their own, the kernel's, and lent with the link.
    let whose = [(true, false), (false, false), (true, true)];
    for (regime, (loopback, lends)) in [Regime::Giant, Regime::Locked]
        .into_iter()
        .flat_map(|regime| whose.map(|whose| (regime, whose)))
    {
        let mut raw = Raw::new(1500, |builder| {
            let builder = builder.regime(regime).loopback(loopback);
            builder.lends_loopback(lends)
        });
        let socket = raw.router.udp().bind("[::]:9").unwrap(); // hears IPv4, too
        for (from, to, counted) in [
            ("127.0.0.1", "10.1.0.1", "drop_ip_source"),
            ("127.0.0.1", "127.0.0.1", "drop_ip_source"),
            ("10.1.0.9", "127.0.0.1", "drop_ip_destination"),
            ("10.1.0.9", "127.8.9.10", "drop_ip_destination"),
            ("::1", "fd01::1", "drop_ip_source"),
            ("::1", "::1", "drop_ip_source"),
            ("fd01::9", "::1", "drop_ip_destination"),
        ] {
            let before = counter(&raw.router, counted);
            let answers = raw.ask(&datagram(from, to, 20, |_| ()));
            assert!(
                answers.is_empty(),
                "{regime:?} {from} to {to}: {answers:x?}"
            );
            let dropped = counter(&raw.router, counted) - before;
            assert_eq!(dropped, 1, "{regime:?} {from} to {to}");
        }
        socket.set_nonblocking(true).unwrap();
        let got = socket.recv_from(&mut [0; 64]).unwrap_err();
        assert_eq!(got.kind(), WouldBlock, "{regime:?}");
    }
}
