//! Arbitrary values of every wire type, for the property tests.
#![allow(dead_code)] // each test binary uses its part

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::option;
use proptest::prelude::*;
use proto::wire::ethernet::{EtherType, MacAddr, Tag};
use proto::wire::ipv6::extension::FragmentHeader;
use proto::wire::ndp::options::{Opt, Options, Prefix};
use proto::wire::tcp::{self, Flags, SackBlocks, SeqNum, Timestamps};
use proto::wire::{Protocol, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, udp};

pub mod probe;

pub fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

pub fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

pub fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Ipv6Addr::from)
}

/// One host's address: neither multicast nor unspecified.
pub fn v6_unicast() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 15]>().prop_map(|tail| {
        let mut octets = [0x20; 16];
        octets[1..].copy_from_slice(&tail);
        Ipv6Addr::from(octets)
    })
}

pub fn v6_link_local() -> impl Strategy<Value = Ipv6Addr> {
    any::<u64>().prop_map(|host| Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(host)))
}

pub fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=len)
}

pub fn ethernet_header() -> impl Strategy<Value = ethernet::Header> {
    let ethertype = prop_oneof![
        Just(EtherType::IPV4),
        Just(EtherType::IPV6),
        Just(EtherType::ARP),
        (1536_u16..)
            .prop_filter("a tag", |kind| ![0x8100, 0x88a8].contains(kind))
            .prop_map(EtherType),
    ];
    let tag = || option::of(any::<u16>().prop_map(Tag));
    (mac(), mac(), ethertype, tag(), tag()).prop_map(
        |(destination, source, ethertype, vlan, service)| ethernet::Header {
            destination,
            source,
            ethertype,
            vlan,
            service,
        },
    )
}

pub fn arp_packet() -> impl Strategy<Value = arp::Packet> {
    let operation = prop_oneof![Just(arp::Operation::Request), Just(arp::Operation::Reply)];
    (operation, mac(), v4(), mac(), v4()).prop_map(
        |(operation, sender_mac, sender_ip, target_mac, target_ip)| arp::Packet {
            operation,
            sender_mac,
            sender_ip,
            target_mac,
            target_ip,
        },
    )
}

pub fn ipv4_header() -> impl Strategy<Value = ipv4::Header> {
    let head = (
        any::<u8>(),
        any::<u16>(),
        any::<bool>(),
        any::<bool>(),
        0_u16..0x2000,
    );
    (head, any::<u8>(), any::<u8>(), v4(), v4()).prop_map(
        |((tos, ident, dont_fragment, more_fragments, offset), ttl, protocol, from, to)| {
            ipv4::Header {
                tos,
                ident,
                dont_fragment,
                more_fragments,
                fragment_offset: offset * 8,
                ttl,
                ..ipv4::Header::new(Protocol(protocol), from, to)
            }
        },
    )
}

pub fn ipv6_header() -> impl Strategy<Value = ipv6::Header> {
    (
        any::<u8>(),
        0_u32..1 << 20,
        any::<u8>(),
        any::<u8>(),
        v6(),
        v6(),
    )
        .prop_map(
            |(traffic_class, flow_label, next_header, hop_limit, source, destination)| {
                ipv6::Header {
                    traffic_class,
                    flow_label,
                    hop_limit,
                    ..ipv6::Header::new(Protocol(next_header), source, destination)
                }
            },
        )
}

pub fn fragment_header() -> impl Strategy<Value = FragmentHeader> {
    (any::<u8>(), 0_u16..0x2000, any::<bool>(), any::<u32>()).prop_map(
        |(next_header, offset, more, ident)| FragmentHeader {
            next_header: Protocol(next_header),
            offset: offset * 8,
            more,
            ident,
        },
    )
}

pub fn udp_header() -> impl Strategy<Value = udp::Header> {
    (any::<u16>(), 1_u16..).prop_map(|(source_port, destination_port)| udp::Header {
        source_port,
        destination_port,
        length: 0,
        checksum: 0,
    })
}

fn sack_blocks(most: usize) -> impl Strategy<Value = SackBlocks> {
    prop::collection::vec(any::<(u32, u32)>(), 0..=most).prop_map(|pairs| {
        let mut blocks = SackBlocks::NONE;
        for (left, right) in pairs {
            assert!(blocks.push(SeqNum(left), SeqNum(right)));
        }
        blocks
    })
}

fn timestamps() -> impl Strategy<Value = Option<Timestamps>> {
    option::of(any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo }))
}

/// AccECN's counters, of 24 bits; those that are not there are zero.
fn accecn() -> impl Strategy<Value = Option<tcp::AccEcn>> {
    let counters = (
        any::<bool>(),
        0_u8..=3,
        [0_u32..1 << 24, 0..1 << 24, 0..1 << 24],
    );
    option::of(counters.prop_map(|(ect1_first, len, mut fields)| {
        fields[usize::from(len)..].fill(0);
        tcp::AccEcn {
            ect1_first,
            len,
            fields,
        }
    }))
}

/// Options that the segment may carry: one set with SYN, the other without.
fn tcp_options(syn: bool) -> BoxedStrategy<tcp::Options> {
    if syn {
        (
            option::of(any::<u16>()),
            option::of(any::<u8>()),
            any::<bool>(),
            timestamps(),
        )
            .prop_map(
                |(mss, window_scale, sack_permitted, timestamps)| tcp::Options {
                    mss,
                    window_scale,
                    sack_permitted,
                    timestamps,
                    sack: SackBlocks::NONE,
                    accecn: None,
                    user_timeout: 0,
                    fast_open: None,
                    free: 0,
                },
            )
            .boxed()
    } else {
        (timestamps(), accecn())
            .prop_flat_map(|(timestamps, accecn)| {
                let most = match (timestamps, accecn) {
                    (None, None) => 4,
                    (Some(_), Some(_)) => 1,
                    _ => 3,
                };
                sack_blocks(most).prop_map(move |sack| tcp::Options {
                    sack,
                    timestamps,
                    accecn,
                    ..tcp::Options::NONE
                })
            })
            .boxed()
    }
}

pub fn tcp_header() -> impl Strategy<Value = tcp::Header> {
    let flags = (0_u16..0x200).prop_map(Flags);
    let rest = (
        any::<(u16, u16)>(),
        any::<(u32, u32)>(),
        any::<(u16, u16)>(),
    );
    (flags, rest).prop_flat_map(|(flags, ((from, to), (seq, ack), (window, urgent)))| {
        tcp_options(flags.contains(Flags::SYN)).prop_map(move |options| tcp::Header {
            source_port: from,
            destination_port: to,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags,
            window,
            urgent,
            options,
        })
    })
}

pub fn icmpv4_message() -> impl Strategy<Value = icmpv4::Message> {
    use icmpv4::Message::{
        DestinationUnreachable, EchoReply, EchoRequest, Other, ParameterProblem, Redirect,
        TimeExceeded,
    };
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| EchoReply { ident, seq }),
        any::<u16>().prop_map(|mtu| DestinationUnreachable { code: 4, mtu }),
        (0_u8..4).prop_map(|code| DestinationUnreachable { code, mtu: 0 }),
        (5_u8..16).prop_map(|code| DestinationUnreachable { code, mtu: 0 }),
        (0_u8..4, v4()).prop_map(|(code, gateway)| Redirect { code, gateway }),
        (0_u8..2).prop_map(|code| TimeExceeded { code }),
        any::<(u8, u8)>().prop_map(|(code, pointer)| ParameterProblem { code, pointer }),
        (40_u8.., any::<u8>(), any::<[u8; 4]>()).prop_map(|(kind, code, rest)| Other {
            kind,
            code,
            rest
        }),
    ]
}

pub fn icmpv6_message() -> impl Strategy<Value = icmpv6::Message> {
    use icmpv6::Message::{
        DestinationUnreachable, EchoReply, EchoRequest, Other, PacketTooBig, ParameterProblem,
        TimeExceeded,
    };
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| EchoReply { ident, seq }),
        (0_u8..7).prop_map(|code| DestinationUnreachable { code }),
        any::<u32>().prop_map(|mtu| PacketTooBig { mtu }),
        (0_u8..2).prop_map(|code| TimeExceeded { code }),
        any::<(u8, u32)>().prop_map(|(code, pointer)| ParameterProblem { code, pointer }),
        (5_u8..128, any::<u8>(), any::<[u8; 4]>()).prop_map(|(kind, code, rest)| Other {
            kind,
            code,
            rest
        }),
        (138_u8.., any::<u8>(), any::<[u8; 4]>()).prop_map(|(kind, code, rest)| Other {
            kind,
            code,
            rest
        }),
    ]
}

/// Options of a router advertisement as they go on the wire.
pub fn ndp_options() -> impl Strategy<Value = Vec<u8>> {
    let prefix = (v6(), 0_u8..=128, any::<(bool, bool)>(), any::<(u32, u32)>()).prop_map(
        |(prefix, len, (on_link, autonomous), (valid_s, preferred_s))| {
            let prefix = Prefix {
                prefix,
                len,
                on_link,
                autonomous,
                valid_s,
                preferred_s,
            };
            emit_option(Opt::Prefix(prefix))
        },
    );
    let servers = (any::<u32>(), prop::collection::vec(any::<[u8; 16]>(), 1..5)).prop_map(
        |(lifetime_s, servers)| {
            emit_option(Opt::RecursiveDns {
                lifetime_s,
                servers: &servers,
            })
        },
    );
    let option = prop_oneof![
        prefix,
        servers,
        mac().prop_map(|mac| emit_option(Opt::SourceLink(mac))),
        any::<u32>().prop_map(|mtu| emit_option(Opt::Mtu(mtu))),
        bytes(60).prop_map(|data| emit_option(Opt::Other {
            kind: 200,
            data: &data
        })),
    ];
    prop::collection::vec(option, 0..6).prop_map(|options| options.concat())
}

pub fn emit_option(option: Opt<'_>) -> Vec<u8> {
    let mut buf = vec![0xee; 2048];
    let len = option.emit(&mut buf);
    assert!(len > 0 && len.is_multiple_of(8));
    buf.truncate(len);
    buf
}

/// A message with the addresses of a packet that may carry it.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub message: OwnedDiscovery,
}

/// [`ndp::Message`] that owns its bytes.
#[derive(Clone, Debug)]
pub enum OwnedDiscovery {
    Plain(ndp::Message<'static>),
    Advertisement(ndp::RouterAdvertisement<'static>, Vec<u8>),
    Redirect(Ipv6Addr, Ipv6Addr, Option<MacAddr>, Vec<u8>),
}

impl OwnedDiscovery {
    pub fn borrow(&self) -> ndp::Message<'_> {
        match self {
            Self::Plain(message) => *message,
            Self::Advertisement(advertisement, options) => {
                let options = Options::parse(options).expect("made of whole options");
                ndp::Message::RouterAdvertisement(ndp::RouterAdvertisement {
                    options,
                    ..*advertisement
                })
            }
            Self::Redirect(target, destination, target_link, redirected) => {
                let (target, destination, target_link) = (*target, *destination, *target_link);
                ndp::Message::Redirect {
                    target,
                    destination,
                    target_link,
                    redirected,
                }
            }
        }
    }
}

pub fn discovery() -> impl Strategy<Value = Discovery> {
    use ndp::Message::{NeighborAdvertisement, NeighborSolicitation, RouterSolicitation};
    let link = || option::of(mac());
    let advertisement = (
        any::<(u8, bool, bool)>(),
        any::<(u16, u32, u32)>(),
        ndp_options(),
    )
        .prop_map(
            |((hop_limit, managed, other), (lifetime, reachable, retransmit), options)| {
                let advertisement = ndp::RouterAdvertisement {
                    hop_limit,
                    managed,
                    other,
                    router_lifetime_s: lifetime,
                    reachable_time_ms: reachable,
                    retransmit_time_ms: retransmit,
                    options: Options::default(),
                };
                OwnedDiscovery::Advertisement(advertisement, options)
            },
        );
    let neighbor = (v6_unicast(), any::<(bool, bool, bool)>(), link()).prop_map(
        |(target, (router, solicited, replace), target_link)| {
            OwnedDiscovery::Plain(NeighborAdvertisement {
                target,
                router,
                solicited,
                replace,
                target_link,
            })
        },
    );
    // The quote comes back padded, so it starts out as long as that.
    let quote = (0_usize..20).prop_map(|words| vec![7; words * 8]);
    let redirect = (v6_link_local(), v6_unicast(), link(), quote).prop_map(
        |(target, destination, link, quote)| {
            OwnedDiscovery::Redirect(target, destination, link, quote)
        },
    );
    let message = prop_oneof![
        link().prop_map(|source_link| OwnedDiscovery::Plain(RouterSolicitation { source_link })),
        advertisement,
        (v6_unicast(), link()).prop_map(|(target, source_link)| {
            OwnedDiscovery::Plain(NeighborSolicitation {
                target,
                source_link,
            })
        }),
        neighbor,
        redirect,
    ];
    (v6_link_local(), v6_unicast(), message).prop_map(|(source, destination, message)| Discovery {
        source,
        destination,
        message,
    })
}
