//! More of the table: cookies that are good, and IPv6.

use crate::{
    attacker::Attacker,
    frames::{checksum, ethernet, ipv6, transport},
    host::{Host, QUICK_DEAF, QUICK_SINK, TALKER, group_v6},
    table::{MIB, NOTHING, Row},
};

/// Nearly as many as an interface may be in.
const GROUPS: u32 = 4_000;
/// Where all hosts listen, and the group that means none.
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const NO_GROUP: [u8; 16] = [0; 16];

/// Asks for a cookie.
fn ask_for_cookie(attacker: &mut Attacker, host: &mut Host) {
    let port = attacker.open(QUICK_SINK, 65535, &[34, 2, 1, 1]);
    for _ in 0..4 {
        host.settle();
        attacker.hear();
    }
    attacker.peers.remove(&port);
    assert_eq!(attacker.cookie.len(), 8, "a cookie");
}

/// Text with each SYN, and nothing ever again. The answers are not heard.
fn quick_openings(attacker: &mut Attacker, service: u16, text: &[u8]) {
    let options = [&[34, 10][..], &attacker.cookie, &[1, 1]].concat();
    for _ in 0..60 {
        let port = attacker.open_with(service, 65535, &options, text);
        attacker.peers.remove(&port);
    }
    attacker.hear();
}

/// The checksum that an ICMPv6 message has between these two.
fn sum_of(source: &[u8], target: &[u8], message: &[u8]) -> [u8; 2] {
    let len = u16::try_from(message.len()).unwrap_or(0).to_be_bytes();
    checksum(&[source, target, &len, &[0, 58], message])
}

/// An MLD message to a group, from this link and with the router alert that it must have.
fn mld(attacker: &mut Attacker, to: [u8; 16], mut message: Vec<u8>) {
    let mut source = [0; 16];
    (source[0], source[1], source[15]) = (0xfe, 0x80, 9);
    let sum = sum_of(&source, &to, &message);
    message[2..4].copy_from_slice(&sum);
    let len = u16::try_from(8 + message.len()).unwrap_or(0).to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], 0, 1];
    packet.extend(source);
    packet.extend(to);
    packet.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend(message);
    let station = [0x33, 0x33, to[12], to[13], to[14], to[15]];
    let mac = std::mem::replace(&mut attacker.ends.target_mac, station);
    let frame = ethernet(&attacker.ends, 0x86dd, &packet);
    attacker.ends.target_mac = mac;
    attacker.send(frame);
}

/// The part that all messages of MLD about one group begin with; `time`: in which it is to be answered, ms.
fn about(kind: u8, time: u8, group: [u8; 16]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, time, 0, 0];
    message.extend(group);
    message
}

fn group_of(number: u32) -> [u8; 16] {
    let [_, _, high, low] = (number % GROUPS).to_be_bytes();
    group_v6(high, low)
}

/// MLDv2: questions about all groups, about one, and about twenty sources of one.
fn mld_questions(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60_u32 {
        let group = group_of(tick * 60 + turn);
        let (to, asked) = match turn % 3 {
            0 => (ALL_NODES, NO_GROUP),
            _ => (group, group),
        };
        let mut message = about(130, 1, asked);
        let sources = if turn % 3 == 2 { 20 } else { 0 };
        message.extend([2, 10, 0, sources]);
        for source in 0..u32::from(sources) {
            let mut ip = attacker.ends.source6;
            ip[12..].copy_from_slice(&(tick * 20 + source).to_be_bytes());
            message.extend(ip);
        }
        mld(attacker, to, message);
    }
    attacker.hear();
}

/// MLDv1: the same, and what others say they are in and are no longer.
fn old_mld(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60_u32 {
        let group = group_of(tick * 60 + turn);
        match turn % 4 {
            0 => mld(attacker, ALL_NODES, about(130, 1, NO_GROUP)),
            1 => mld(attacker, group, about(130, 1, group)),
            2 => mld(attacker, group, about(131, 0, group)),
            _ => mld(attacker, ALL_NODES, about(132, 0, group)),
        }
    }
    attacker.hear();
}

/// IGMPv3 reports of others, with sources, to a group that the host is in: nothing that it has to do with.
fn reports_of_others(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60_u32 {
        let [_, _, high, low] = (tick * 60 + turn).to_be_bytes();
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 8];
        for record in 0..8 {
            message.extend([1 + record % 6, 0, 0, 4, 239, 1, high, low]);
            for source in 0..4 {
                message.extend([10, 77, high, low ^ source]);
            }
        }
        crate::table::igmp(attacker, [239, 1, 0, low % 16], message);
    }
    attacker.hear();
}

/// An unknown neighbour of IPv6 wants an answer.
fn strangers(attacker: &mut Attacker, _: u32) {
    let home = attacker.ends.source6;
    for _ in 0..60 {
        let random = attacker.random.next().to_le_bytes();
        attacker.ends.source6[8..].copy_from_slice(&random);
        let echo = vec![128, 0, 0, 0, 0, 1, 0, 1, 9, 9];
        let frame = transport(&attacker.ends, true, 58, 2, echo);
        attacker.send(frame);
    }
    attacker.ends.source6 = home;
    attacker.hear();
}

/// Hosts that ask for us, each with an address and a station of its own.
fn askers(attacker: &mut Attacker, _: u32) {
    let home = (attacker.ends.source6, attacker.ends.target6);
    for _ in 0..60 {
        let random = attacker.random.next().to_le_bytes();
        attacker.ends.source6[8..].copy_from_slice(&random);
        let mut ask = vec![135, 0, 0, 0, 0, 0, 0, 0];
        ask.extend(home.1);
        ask.extend([1, 1, 2, 0, random[0], random[1], random[2], random[3]]);
        let frame = transport(&attacker.ends, true, 58, 2, ask);
        attacker.send(frame);
    }
    (attacker.ends.source6, attacker.ends.target6) = home;
    attacker.hear();
}

/// First fragments of IPv6 of which no other comes, and last ones of which none came.
fn fragments(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60_u32 {
        let field = if turn % 2 == 0 { 1_u16 } else { 8 << 3 };
        let [high, low] = field.to_be_bytes();
        let mut payload = vec![17, 0, high, low];
        payload.extend((tick * 60 + turn).to_be_bytes());
        payload.extend([0; 64]);
        let frame = ipv6(&attacker.ends, 44, &payload);
        attacker.send(frame);
    }
    attacker.hear();
}

/// A connection over IPv6 to a program that talks.
fn listens_to_a_talker(attacker: &mut Attacker, host: &mut Host) {
    attacker.v6 = true;
    attacker.open(TALKER, 65535, &[]);
    for _ in 0..4 {
        host.settle();
        attacker.hear();
    }
    assert_eq!(attacker.ports().len(), 1, "a connection over IPv6");
}

/// Packet Too Big (RFC 4443 §3.2), 6,000 a second: of three one quotes what is under way, with an MTU that gets smaller and is a router's to say; one
/// a segment that never was of that connection; and one a connection that there is not, to a host of its own.
fn too_big(attacker: &mut Attacker, tick: u32) {
    attacker.hear();
    let Some(peer) = attacker.peers.values().next().copied() else {
        return;
    };
    for turn in 0..60_u32 {
        let number = tick * 60 + turn;
        let mut other = attacker.ends.source6;
        other[12..].copy_from_slice(&number.to_be_bytes());
        let (remote, port, sequence) = match turn % 3 {
            0 => (attacker.ends.source6, peer.port, peer.expected),
            1 => (attacker.ends.source6, peer.port, peer.expected ^ 1 << 31),
            _ => (other, 1024 + low_half(number), number),
        };
        let mtu = 1_500 - number / 60 % 220; // 1,280 at least
        let mut message = vec![2, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend([0x60, 0, 0, 0, 5, 180, 6, 64]);
        message.extend(attacker.ends.target6);
        message.extend(remote);
        message.extend(peer.service.to_be_bytes());
        message.extend(port.to_be_bytes());
        message.extend(sequence.to_be_bytes());
        message.extend([0; 12]);
        let frame = transport(&attacker.ends, true, 58, 2, message);
        attacker.send(frame);
    }
}

fn low_half(number: u32) -> u16 {
    u16::try_from(number % 60_000).unwrap_or(0)
}

pub const ROWS: &[Row] = &[
    Row {
        name: "Fast Open with good cookies, read at once and never acknowledged",
        prepare: ask_for_cookie,
        tick: |attacker, _| quick_openings(attacker, QUICK_SINK, &[b'q'; 1000]),
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "Fast Open with good cookies, a byte each, never read nor acknowledged",
        prepare: ask_for_cookie,
        tick: |attacker, _| quick_openings(attacker, QUICK_DEAF, b"q"),
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "questions about groups of IPv6, of a host in thousands",
        prepare: |_, host| host.join_v6(GROUPS),
        tick: mld_questions,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "old questions and reports about groups of IPv6, of a host in thousands",
        prepare: |_, host| host.join_v6(GROUPS),
        tick: old_mld,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "reports of other hosts, with sources",
        prepare: |_, host| host.join(GROUPS),
        tick: reports_of_others,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "unknown neighbours of IPv6",
        prepare: NOTHING,
        tick: strangers,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "questions of neighbours of IPv6, each of another one",
        prepare: NOTHING,
        tick: askers,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "fragments of IPv6 of which the others never come",
        prepare: NOTHING,
        tick: fragments,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "packets too big of IPv6, forged and not",
        prepare: listens_to_a_talker,
        tick: too_big,
        holds_anyway: 8 * MIB,
    },
];
