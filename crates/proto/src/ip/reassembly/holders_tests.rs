//! Senders that share the memory for fragments.

use super::tests::{SEED, T0, data, push4, v4};
use super::*;
use core::net::IpAddr;
use std::vec::Vec;

/// An IPv4 fragment of the sender 10.0.0.`host`.
fn v4_of(host: u8, ident: u16, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let mut packet = v4(ident, offset, more, data);
    packet[15] = host;
    packet[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Senders that are told apart.
fn hosts<const N: usize>(r: &Reassembler) -> [u8; N] {
    let mut found: Vec<(u8, u8)> = Vec::new();
    for host in 1..255 {
        let number = r.holders.of([10, 0, 0, host].into());
        if found.iter().all(|&(_, other)| other != number) {
            found.push((host, number));
        }
    }
    core::array::from_fn(|n| found[n].0)
}

/// A flood of one sender, of many datagrams or of large ones, lies between the fragments of others: these complete, for the flood pushes out
/// its own.
#[test]
fn a_flood_pushes_out_its_own() {
    for (pieces, len) in [(1, 8), (1, 1480), (30, 1480)] {
        let mut r = Reassembler::new(Config::default(), SEED);
        let whole = data(1200);
        let [flood, others @ ..] = hosts::<6>(&r);
        for host in others {
            let got = push4(&mut r, &v4_of(host, 1, 0, true, &whole[..600]), T0);
            assert_eq!(got, Outcome::Waiting);
        }
        for n in 0..4000_u16 {
            for piece in 0..pieces {
                let fragment = v4_of(flood, n, 8 + piece * 1480, true, &data(len));
                assert_eq!(push4(&mut r, &fragment, T0), Outcome::Waiting);
            }
            if n % 100 == 0 {
                r.check_holders();
            }
        }
        assert!(r.counts().evicted > 3000);
        for host in others {
            let last = v4_of(host, 1, 600, false, &whole[600..]);
            let got = push4(&mut r, &last, T0);
            assert!(matches!(got, Outcome::Complete(_)), "{host}: {got:?}");
        }
        r.check_holders();
        r.on_timer(Instant::FAR, |_| {});
        r.check_holders();
        assert!(r.is_empty());
    }
}

/// Of senders that all want more than there is each keeps the same, to a datagram.
#[test]
fn senders_that_want_all_share_alike() {
    let mut r = Reassembler::new(Config::default(), SEED);
    let hosts = hosts::<4>(&r);
    for n in 0..2000_u16 {
        for host in hosts {
            push4(&mut r, &v4_of(host, n, 8, true, &data(8)), T0);
        }
        // The first one sends twice as much.
        push4(&mut r, &v4_of(hosts[0], 2000 + n, 8, true, &data(8)), T0);
    }
    let of = |host: u8| {
        let from: IpAddr = [10, 0, 0, host].into();
        r.map.iter().filter(|(name, _)| name.source == from).count()
    };
    let kept = hosts.map(of);
    assert_eq!(kept.iter().sum::<usize>(), Config::default().datagrams);
    assert!(kept.iter().all(|n| (31..=33).contains(n)), "{kept:?}");
}
