//! The quick way and the long way of the classifier say the same.

use std::sync::Arc;

use percore::{slab::Slab, snapshot::Snapshot};
use proto::ip::{
    address::{Address, Addresses},
    keyed::{Random, Seed},
    route,
};

use super::*;
use crate::{
    driver::{
        host::{Host, Live},
        network::{InterfaceFacts, Network},
    },
    flow::FlowHash,
};

mod assigned;
mod ways;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn interface(number: u8, own: &[&str]) -> InterfaceFacts {
    let mut addresses = Addresses::new();
    for address in own {
        let address: Address = address.parse().unwrap();
        addresses.add(address).unwrap();
    }
    InterfaceFacts {
        name: format!("test{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number + 1]),
        mtu: 1500,
        mtu_max: 1500,
        segmentation: crate::link::Segmentation::None,
        addresses,
        lender: None,
        pipes: None,
    }
}

fn host_with(change: impl FnOnce(&mut Host, &mut Live)) -> HostView {
    made(change).view()
}

/// A host with one interface, but for what is changed.
pub(in crate::driver) fn made(change: impl FnOnce(&mut Host, &mut Live)) -> Arc<Host> {
    let networks = Network {
        interfaces: vec![interface(0, &["10.0.0.2/24", "fd00::2/64"])],
        routes: route::Table::new(),
        loopback: None,
    };
    let mut live = Live {
        net: Arc::new(networks),
        groups: Arc::new(crate::driver::groups::Groups::new(1)),
        tcp: Arc::default(),
        limits_icmp: true,
        ports: Arc::default(),
    };
    let mut host = Host {
        live: Arc::new(Snapshot::new(live.clone())),
        forwarding: false,
        mss_clamp: false,
        flow_hash: FlowHash::new(&[7; 16]),
        secret: [1; 16],
        seed: Seed([1, 2]),
        taps: Arc::default(),
        send_buffer: 1 << 16,
        send_buffer_max: 1 << 16,
        assignment: None,
        moved: crate::moved::Moved::default(),
    };
    change(&mut host, &mut live);
    host.live = Arc::new(Snapshot::new(live));
    Arc::new(host)
}

fn host() -> HostView {
    host_with(|_, _| ())
}

/// A frame that is a segment or a datagram for us, but for up to three changed bytes; every other one has its IP checksum mended after the change.
fn frame(random: &mut Random) -> Vec<u8> {
    let text = usize::try_from(random.below(40)).unwrap();
    let protocol = if random.below(2) == 0 {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    // Every other one of the same flow as the one before it, perhaps.
    let source = if random.below(2) == 0 {
        7
    } else {
        random.next_u64().to_le_bytes()[0]
    };
    let source = [10, 0, 0, source];
    let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
    frame.resize(ethernet::HEADER_LEN + ipv4::HEADER_LEN + text, 0x11);
    let header = ipv4::Header::new(protocol, source.into(), [10, 0, 0, 2].into());
    header.emit(text, &mut frame[ethernet::HEADER_LEN..]);
    // Ethernet pads what is short.
    frame.resize(frame.len().max(60), 0);
    for _ in 0..random.below(4) {
        let at = usize::try_from(random.below(44)).unwrap();
        frame[at] ^= 1 << random.below(8);
    }
    if random.below(2) == 0 {
        let ip = &mut frame[ethernet::HEADER_LEN..ethernet::HEADER_LEN + ipv4::HEADER_LEN];
        ip[10..12].fill(0);
        let sum = checksum::checksum(ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
    }
    frame.truncate(frame.len() - usize::try_from(random.below(3) * random.below(20)).unwrap());
    frame
}

#[test]
fn the_quick_way_agrees_with_the_long_one() {
    let host = host();
    let mut steer = Steer::new(0, Placement::Hash { shards: 5 });
    let mut slab = Slab::new(4, 2048).unwrap();
    let mut taken = 0;
    for seed in 0..200_000_u64 {
        let bytes = frame(&mut Random::new(Seed([seed, 3])));
        let mut packet = || {
            let mut packet = Packet::new(slab.alloc().unwrap(), 0);
            packet.set_len(bytes.len());
            packet.bytes_mut().copy_from_slice(&bytes);
            packet
        };
        let (mut quick, mut long) = (packet(), packet());
        let Some(verdict) = steer.quick(&host, &mut quick) else {
            assert_eq!(
                quick.bytes(),
                &bytes[..],
                "seed {seed}: changed though not decided"
            );
            continue;
        };
        taken += 1;
        assert_eq!(
            Ok(verdict),
            steer.try_classify(&host, &mut long),
            "seed {seed}"
        );
        assert_eq!(quick.meta, long.meta, "seed {seed}");
        assert_eq!(quick.bytes(), long.bytes(), "seed {seed}");
    }
    assert!(taken > 40_000, "only {taken} frames went the quick way");
}

/// RFC 1122 §4.2.3.10, and the same over IPv6: TCP has no business in a frame for many hosts, nor has a fragment for one of them.
#[test]
fn tcp_and_fragments_for_us_come_in_frames_for_us() {
    const FRAGMENT: Protocol = Protocol(44);
    let (host, mut steer) = (host(), Steer::new(0, Placement::Single));
    let mut slab = Slab::new(4, 2048).unwrap();
    let mut verdict = |to: [u8; 6], protocol: Protocol| {
        let mut packet = Packet::new(slab.alloc().unwrap(), 0);
        packet.set_len(ethernet::HEADER_LEN + ipv6::HEADER_LEN + 24);
        let (link, ip) = packet.bytes_mut().split_at_mut(ethernet::HEADER_LEN);
        ip.fill(0);
        link.copy_from_slice(&[&to[..], &[2, 0, 0, 0, 0, 9], &[0x86, 0xdd]].concat());
        let (from, here) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        ipv6::Header::new(protocol, from, here).emit(24, ip);
        let after = &mut ip[ipv6::HEADER_LEN..];
        (after[0], after[3]) = (Protocol::UDP.0, 1); // of a fragment: what it is, and that more come
        steer.classify(&host, &mut packet)
    };
    let everybodys = [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]];
    for mac in everybodys {
        for protocol in [Protocol::TCP, FRAGMENT] {
            assert_eq!(
                verdict(mac, protocol),
                Verdict::Drop(Counter::DropLinkGroup)
            );
        }
        assert_eq!(verdict(mac, Protocol::UDP), Verdict::Shard(0));
    }
    assert_eq!(verdict(MAC, Protocol::TCP), Verdict::Shard(0));
    let fragment = Verdict::Host(HostWork::Fragment);
    assert_eq!(verdict(MAC, FRAGMENT), fragment);
}

#[test]
fn a_leased_flow_goes_to_its_shard_until_it_is_given_back() {
    let placement = Placement::Lease {
        pending_opens: None,
        shards: 8,
        flows: table::FlowTable::new(2).unwrap(),
    };
    let mut steer = Steer::new(0, placement);
    let hash = |n: u64| n << 48 | n << 20 | 1;
    let by_hash = |n| spread(hash(n), 8);
    let other = |n| (by_hash(n) + 1) % 8;
    assert_eq!(steer.shard_of(hash(5)), by_hash(5));
    assert!(steer.heed(Request::Add(hash(5)), other(5)));
    let verdict = steer.verdict(&host(), hash(5), Protocol::TCP, 80);
    assert_eq!(verdict, Verdict::Flow(hash(5)));
    assert_eq!(
        (steer.shard_of(hash(5)), steer.flows()),
        (other(5), Some(1))
    );
    // Another shard's: neither taken nor given back.
    assert!(!steer.heed(Request::Add(hash(5)), by_hash(5)));
    assert!(steer.heed(Request::Remove(hash(5)), by_hash(5)));
    assert_eq!(steer.shard_of(hash(5)), other(5));
    // But it may move, whatever its old shard says later, and back.
    assert!(steer.heed(Request::Move(hash(5)), by_hash(5)));
    assert!(!steer.heed(Request::Add(hash(5)), other(5)));
    assert!(steer.heed(Request::Remove(hash(5)), other(5)));
    assert_eq!(steer.leased(hash(5)), Some(by_hash(5)));
    assert!(steer.heed(Request::Move(hash(5)), other(5)));
    // Full: by hash, as before; given back: the same.
    assert!(steer.heed(Request::Add(hash(6)), other(6)));
    assert!(!steer.heed(Request::Add(hash(7)), other(7)));
    assert_eq!(steer.shard_of(hash(7)), by_hash(7));
    assert!(steer.heed(Request::Remove(hash(5)), other(5)));
    assert_eq!(
        (steer.shard_of(hash(5)), steer.flows()),
        (by_hash(5), Some(1))
    );
}
