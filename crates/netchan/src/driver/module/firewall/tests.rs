//! The firewall by itself: its language, its flows, its translations. In a stack it is tested in `tests/forward/firewall.rs`.

mod flows;
mod language;
mod translation;

use std::{net::IpAddr, time::Duration};

use percore::slab::Slab;
use proto::{
    ip::{address::Addresses, keyed::Seed, route},
    time::Instant,
    wire::{checksum, ethernet::MacAddr, ipv4::Protocol},
};

use super::{Firewall, Settings};
use crate::{
    driver::{
        module::{Draft, Module, Place, Point, Rows, Side, Verdict, View},
        network::{InterfaceFacts, Network},
    },
    emit::{IpFields, emit_ip, ip_header_len},
    link::Segmentation,
    packet::Packet,
};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A firewall of a router between `in` (10.1.0.1, fd01::1) and `ext` (192.0.2.1, 2001:db8::1).
struct Bench {
    wall: Firewall,
    net: Network,
    slab: Slab,
    now: Instant,
}

impl Bench {
    fn new(rules: &str) -> Self {
        Self::sized(rules, 1024, 1024)
    }

    fn sized(rules: &str, flows: usize, flows_each: usize) -> Self {
        let settings = Settings::new(rules).unwrap_or_else(|fault| panic!("{fault}\n{rules}"));
        let settings = Settings {
            flows,
            flows_each,
            ..settings
        };
        let interface = |number: u8, name: &str, addresses: [&str; 2]| {
            let mut all = Addresses::new();
            for address in addresses {
                all.add(address.parse().unwrap()).unwrap();
            }
            InterfaceFacts {
                name: format!("tap:{name}"),
                mac: MacAddr([2, 0, 0, 0, 0, number]),
                mtu: 1500,
                mtu_max: 1500,
                segmentation: Segmentation::None,
                addresses: all,
                lender: None,
                pipes: None,
            }
        };
        Self {
            wall: Firewall::with_key("wall", settings, Seed([1, 2])),
            net: Network {
                interfaces: vec![
                    interface(0, "in", ["10.1.0.1/24", "fd01::1/64"]),
                    interface(1, "ext", ["192.0.2.1/24", "2001:db8::1/64"]),
                ],
                loopback: None,
                routes: route::Table::new(),
            },
            slab: Slab::new(16, 2048).unwrap(),
            now: Instant(1_000_000_000),
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Shows a packet at a point, between links by number.
    fn show(
        &mut self,
        point: Point,
        bytes: &[u8],
        links: (Option<u8>, Option<u8>),
    ) -> (Verdict, Vec<u8>) {
        self.show_partial(point, bytes, links, 0)
    }

    fn show_partial(
        &mut self,
        point: Point,
        bytes: &[u8],
        (from, to): (Option<u8>, Option<u8>),
        segment: u16,
    ) -> (Verdict, Vec<u8>) {
        let mut packet = Packet::new(self.slab.alloc().unwrap(), 64);
        packet.set_len(bytes.len());
        packet.bytes_mut().copy_from_slice(bytes);
        packet.meta.segment = segment;
        let side = |link: Option<u8>| link.map_or(Side::Unknown, Side::Link);
        let place = Place {
            net: &self.net,
            from: side(from),
            to: side(to),
        };
        let mut draft = Draft::new(&mut packet, place).expect("an IP packet");
        let verdict = self.wall.rewrite(point, &mut draft, self.now);
        (verdict, packet.bytes().to_vec())
    }

    fn input(&mut self, bytes: &[u8]) -> bool {
        self.show(Point::In, bytes, (Some(1), None)).0 == Verdict::Pass
    }

    fn output(&mut self, bytes: &[u8]) -> bool {
        self.show(Point::Out, bytes, (None, Some(1))).0 == Verdict::Pass
    }

    /// From one link to the other, as the path has it; `None`: it was dropped. What comes out has all its checksums right.
    fn through(&mut self, bytes: &[u8], from: u8) -> Option<Vec<u8>> {
        let (verdict, bytes) = self.show(Point::Arrival, bytes, (Some(from), None));
        if verdict != Verdict::Pass {
            return None;
        }
        let (verdict, bytes) = self.show(Point::Forward, &bytes, (Some(from), Some(1 - from)));
        assert!(is_right(&bytes), "{bytes:?}");
        (verdict == Verdict::Pass).then_some(bytes)
    }

    fn flows(&self) -> Vec<serde_json::Value> {
        self.wall.rows(Rows::Flows, self.now)
    }

    fn state(&self) -> String {
        let flows = self.flows();
        assert_eq!(flows.len(), 1, "{flows:?}");
        flows[0]["state"].as_str().unwrap().to_owned()
    }

    /// What the rule of a line has counted, packets and bytes.
    fn counted(&self, line: u64) -> (u64, u64) {
        let rows = self.wall.rows(Rows::Rules, self.now);
        let row = rows.iter().find(|row| row["line"] == line).unwrap();
        (
            row["packets"].as_u64().unwrap(),
            row["bytes"].as_u64().unwrap(),
        )
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A packet with this upper layer, whose checksum is made at `sum_at`.
fn packet(from: &str, to: &str, protocol: Protocol, mut upper: Vec<u8>, sum_at: usize) -> Vec<u8> {
    let (from, to) = (ip(from), ip(to));
    let sum = match protocol {
        Protocol::ICMP => checksum::sum(&upper),
        _ => {
            let pseudo = checksum::pseudo_header(from, to, protocol, upper.len()).unwrap();
            pseudo + checksum::sum(&upper)
        }
    };
    let sum = match checksum::finish(sum) {
        0 if protocol == Protocol::UDP => 0xffff,
        sum => sum,
    };
    upper[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let head = ip_header_len(from);
    let mut bytes = vec![0; head];
    assert!(emit_ip(
        &mut bytes,
        from,
        to,
        protocol,
        IpFields::default(),
        upper.len()
    ));
    bytes.extend(upper);
    bytes
}

fn udp(from: &str, to: &str, ports: (u16, u16), text: &[u8]) -> Vec<u8> {
    let mut upper = vec![0; 8];
    upper[..2].copy_from_slice(&ports.0.to_be_bytes());
    upper[2..4].copy_from_slice(&ports.1.to_be_bytes());
    upper[4..6].copy_from_slice(&u16::try_from(8 + text.len()).unwrap().to_be_bytes());
    upper.extend_from_slice(text);
    packet(from, to, Protocol::UDP, upper, 6)
}

/// A segment: flags, sequence number, acknowledgment number, bytes of text.
fn tcp(
    from: &str,
    to: &str,
    ports: (u16, u16),
    (flags, seq, ack, text): (u8, u32, u32, usize),
) -> Vec<u8> {
    let mut upper = vec![0; 20];
    upper[..2].copy_from_slice(&ports.0.to_be_bytes());
    upper[2..4].copy_from_slice(&ports.1.to_be_bytes());
    upper[4..8].copy_from_slice(&seq.to_be_bytes());
    upper[8..12].copy_from_slice(&ack.to_be_bytes());
    upper[12] = 0x50;
    upper[13] = flags;
    upper[14..16].copy_from_slice(&8192_u16.to_be_bytes());
    upper.extend(vec![0x5a; text]);
    packet(from, to, Protocol::TCP, upper, 16)
}

fn echo(from: &str, to: &str, asks: bool, ident: u16) -> Vec<u8> {
    let v4 = ip(from).is_ipv4();
    let kind = match (v4, asks) {
        (true, true) => 8,
        (true, false) => 0,
        (false, true) => 128,
        (false, false) => 129,
    };
    let [a, b] = ident.to_be_bytes();
    let protocol = if v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    packet(
        from,
        to,
        protocol,
        vec![kind, 0, 0, 0, a, b, 0, 1, 9, 9, 9],
        2,
    )
}

/// An ICMP error, port unreachable, about a packet.
fn error(from: &str, to: &str, about: &[u8]) -> Vec<u8> {
    let v4 = ip(from).is_ipv4();
    let mut upper = if v4 {
        vec![3, 3, 0, 0, 0, 0, 0, 0]
    } else {
        vec![1, 4, 0, 0, 0, 0, 0, 0]
    };
    upper.extend_from_slice(about);
    let protocol = if v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    packet(from, to, protocol, upper, 2)
}

/// Whether a packet's checksums are right, those of what an ICMP error quotes whole included.
fn is_right(bytes: &[u8]) -> bool {
    let view = View::parse(bytes).expect("an IP packet");
    let v4 = view.source().is_ipv4();
    if v4 && !checksum::is_valid(checksum::sum(&bytes[..usize::from(bytes[0] & 15) * 4])) {
        return false;
    }
    let upper = view.upper();
    let pseudo = checksum::pseudo_header(
        view.source(),
        view.destination(),
        view.protocol(),
        upper.len(),
    );
    let pseudo = pseudo.unwrap();
    let is_valid = match view.protocol() {
        Protocol::ICMP => checksum::is_valid(checksum::sum(upper)),
        Protocol::UDP if v4 && upper[6..8] == [0, 0] => true,
        Protocol::TCP | Protocol::UDP | Protocol::ICMPV6 => {
            checksum::is_valid(pseudo + checksum::sum(upper))
        }
        _ => true,
    };
    let is_error = matches!(
        (v4, view.protocol(), upper[0]),
        (true, Protocol::ICMP, 3) | (false, Protocol::ICMPV6, 1)
    );
    is_valid && (!is_error || is_right(&upper[8..]))
}

/// The ends of a packet: source, destination.
fn ends(bytes: &[u8]) -> (String, String) {
    let view = View::parse(bytes).expect("an IP packet");
    let end = |ip: IpAddr, port: Option<u16>| match port {
        Some(port) => std::net::SocketAddr::new(ip, port).to_string(),
        None => ip.to_string(),
    };
    let (source, destination) = view.ports().unzip();
    (
        end(view.source(), source),
        end(view.destination(), destination),
    )
}
