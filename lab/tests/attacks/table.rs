//! The attacks, one a row. A row prepares what it needs, then sends what 10 ms of it are.

use crate::{
    attacker::{ACK, Attacker, FIN, RST, SYN},
    host::{BRIEF, DEAF, Host, LAZY, SINK, TALKER},
};

pub struct Row {
    pub name: &'static str,
    pub prepare: fn(&mut Attacker, &mut Host),
    /// 10 ms of it.
    pub tick: fn(&mut Attacker, u32),
    /// Bytes that the host may hold however little was sent: of its own text in send buffers, say.
    pub holds_anyway: u64,
}

pub const NOTHING: fn(&mut Attacker, &mut Host) = |_, _| {};
pub const MIB: u64 = 1 << 20;
/// Nearly as many as an interface may be in.
const GROUPS: u32 = 4_000;

/// Opens `count` connections, some at a time, and hears what comes.
fn open(
    attacker: &mut Attacker,
    host: &mut Host,
    count: usize,
    service: u16,
    window: u16,
    options: &[u8],
) {
    for begin in (0..count).step_by(100) {
        for _ in begin..count.min(begin + 100) {
            attacker.open(service, window, options);
        }
        for _ in 0..3 {
            host.settle();
            attacker.hear();
        }
    }
    host.settle();
}

const SACK_AND_MSS: &[u8] = &[2, 4, 5, 180, 1, 1, 4, 2];

/// Acknowledgments that tell of single bytes.
fn sack_blocks(attacker: &mut Attacker, tick: u32) {
    attacker.hear();
    for port in attacker.ports().into_iter().take(1) {
        let peer = attacker.peers[&port];
        let flight = peer.highest.wrapping_sub(peer.expected).max(64);
        for turn in 0..60 {
            let mut options = vec![1, 1, 5, 26];
            for block in 0..3u32 {
                let at = (tick * 180 + turn * 3 + block).wrapping_mul(2_654_435_761) % (flight - 1);
                let left = peer.expected.wrapping_add(1 + at);
                options.extend(left.to_be_bytes());
                options.extend(left.wrapping_add(1).to_be_bytes());
            }
            attacker.segment(&peer, peer.next, peer.expected, ACK, &options, &[]);
        }
    }
}

/// Each acknowledges what it got, and takes as little again.
fn slow_readers(attacker: &mut Attacker, _: u32) {
    attacker.hear();
    for port in attacker.ports() {
        let mut peer = attacker.peers[&port];
        if peer.expected != peer.highest {
            peer.expected = peer.highest;
            attacker.segment(&peer, peer.next, peer.expected, ACK, &[], &[]);
            attacker.peers.insert(port, peer);
        }
    }
}

/// An unknown neighbour wants an answer.
fn strangers(attacker: &mut Attacker, _: u32) {
    for _ in 0..60 {
        attacker.move_elsewhere();
        attacker.icmp(8, 0, &[0, 1, 0, 1, 9, 9]);
    }
    attacker.move_home();
    attacker.hear();
}

fn syns(attacker: &mut Attacker, options: &[u8], text: &[u8]) {
    for _ in 0..60 {
        attacker.move_elsewhere();
        let port = attacker.open(SINK, 65535, options);
        let mut peer = attacker.peers[&port];
        attacker.peers.remove(&port);
        if !text.is_empty() {
            peer.port ^= 1;
            attacker.segment(&peer, peer.next, 0, SYN, options, text);
        }
    }
    attacker.move_home();
    attacker.hear();
}

/// A cookie that is none, with text, each from elsewhere.
fn cookies(attacker: &mut Attacker, tick: u32) {
    let mut options = vec![34, 10];
    options.extend(u64::from(tick).to_be_bytes());
    options.extend([1, 1]);
    syns(attacker, &options, b"hello");
}

/// A smaller MTU for what is under way, and for hosts without a connection.
fn path_mtus(attacker: &mut Attacker, tick: u32) {
    attacker.hear();
    let peers: Vec<_> = attacker.peers.values().copied().take(1).collect();
    for turn in 0..60u32 {
        let mtu = u16::try_from(68 + (tick * 60 + turn) % 1400).unwrap_or(576);
        let mut quoted = vec![0x45, 0, 5, 220, 0, 1, 0x40, 0, 64, 6, 0, 0];
        quoted.extend(attacker.ends.target);
        let other = [10, 77, 200, turn.to_le_bytes()[0]];
        quoted.extend(if turn % 2 == 0 {
            attacker.ends.source
        } else {
            other
        });
        for peer in &peers {
            quoted.extend(peer.service.to_be_bytes());
            quoted.extend(peer.port.to_be_bytes());
            quoted.extend(peer.expected.to_be_bytes());
        }
        let rest = [&[0, 0][..], &mtu.to_be_bytes(), &quoted].concat();
        attacker.icmp(3, 4, &rest);
    }
}

/// Connections that the host closes first.
fn time_waits(attacker: &mut Attacker, _: u32) {
    attacker.acknowledges = true;
    attacker.hear();
    for port in attacker.ports() {
        let peer = attacker.peers[&port];
        if peer.highest != peer.expected || peer.highest.wrapping_sub(1) == peer.next {
            continue;
        }
        attacker.segment(&peer, peer.next, peer.expected, ACK | FIN, &[], &[]);
        attacker.peers.remove(&port);
    }
    for _ in 0..20 {
        attacker.open(BRIEF, 65535, &[]);
    }
}

/// Segments that end a connection, had they the right number.
fn guesses(attacker: &mut Attacker, tick: u32) {
    attacker.hear();
    for port in attacker.ports().into_iter().take(1) {
        let peer = attacker.peers[&port];
        for turn in 0..30 {
            let at = peer.next.wrapping_add(1 + (tick * 30 + turn) % 60_000);
            attacker.segment(&peer, at, peer.expected, RST, &[], &[]);
            attacker.segment(
                &peer,
                at,
                peer.expected.wrapping_sub(100_000),
                ACK | FIN,
                &[],
                &[],
            );
        }
    }
}

/// IGMPv3: general questions and questions about groups and sources.
fn questions(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60u32 {
        let mut message = vec![0x11, 1, 0, 0, 224, 1, 0, turn.to_le_bytes()[0]];
        if turn % 3 == 0 {
            message[4..8].fill(0);
        }
        message.extend([2, 10, 0, 20]);
        (0..20u32)
            .for_each(|source| message.extend((0x0a4d_0000 + tick * 20 + source).to_be_bytes()));
        igmp(attacker, [224, 0, 0, 1], message);
    }
}

/// An IGMP message to a group, with the router alert that it must have.
pub fn igmp(attacker: &mut Attacker, group: [u8; 4], mut message: Vec<u8>) {
    let sum = crate::frames::checksum(&[&message]);
    message[2..4].copy_from_slice(&sum);
    let target = std::mem::replace(&mut attacker.ends.target, group);
    let to = [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]];
    let mac = std::mem::replace(&mut attacker.ends.target_mac, to);
    let mut frame = crate::frames::ipv4_with(&attacker.ends, 2, 0, &[0x94, 4, 0, 0], &message);
    frame[22] = 1; // hops
    frame[24..26].fill(0);
    let sum = crate::frames::checksum(&[&frame[14..38]]);
    frame[24..26].copy_from_slice(&sum);
    (attacker.ends.target, attacker.ends.target_mac) = (target, mac);
    attacker.send(frame);
}

/// IGMPv2, of a host in thousands of groups: questions about all of them and about one, and what others say they are in.
fn old_questions(attacker: &mut Attacker, tick: u32) {
    for turn in 0..60_u32 {
        let [_, _, high, low] = ((tick * 60 + turn) % GROUPS).to_be_bytes();
        let group = [239, 1, high, low];
        let [a, b, c, d] = group;
        match turn % 3 {
            0 => igmp(attacker, [224, 0, 0, 1], vec![0x11, 1, 0, 0, 0, 0, 0, 0]),
            1 => igmp(attacker, group, vec![0x11, 1, 0, 0, a, b, c, d]),
            _ => igmp(attacker, group, vec![0x16, 0, 0, 0, a, b, c, d]),
        }
    }
    attacker.hear();
}

/// Handshakes that are over as soon as they have begun.
fn broken_handshakes(attacker: &mut Attacker, _: u32) {
    for _ in 0..30 {
        let port = attacker.open(SINK, 65535, &[]);
        let peer = attacker.peers[&port];
        attacker.segment(&peer, peer.next, 0, RST, &[], &[]);
        attacker.peers.remove(&port);
    }
    attacker.hear();
}

/// Connections that are made, and are never accepted.
fn unaccepted(attacker: &mut Attacker, _: u32) {
    for _ in 0..30 {
        attacker.open(LAZY, 65535, &[]);
    }
    attacker.hear();
}

/// What a SYN says that is to have timestamps.
const STAMPED: &[u8] = &[1, 1, 8, 10, 0, 0, 3, 232, 0, 0, 0, 0];

/// Text in order, ahead and repeated, with timestamps from everywhere.
fn timestamps(attacker: &mut Attacker, tick: u32) {
    attacker.hear();
    for port in attacker.ports().into_iter().take(1) {
        let peer = attacker.peers[&port];
        for turn in 0..60_u32 {
            let value = (tick * 60 + turn).wrapping_mul(2_654_435_761);
            let mut options = vec![1, 1, 8, 10];
            options.extend(value.to_be_bytes());
            options.extend(value.rotate_left(7).to_be_bytes());
            let at = peer
                .next
                .wrapping_add([0, 1000, u32::MAX][turn as usize % 3]);
            attacker.segment(&peer, at, peer.expected, ACK, &options, b"t");
        }
    }
}

pub const ROWS: &[Row] = &[
    Row {
        name: "1,700 connections of one byte that is not read",
        prepare: |attacker, host| {
            open(attacker, host, 1700, DEAF, 65535, &[]);
            attacker
                .ports()
                .into_iter()
                .for_each(|port| attacker.say(port, b"x"));
            host.settle();
        },
        tick: |attacker, _| {
            attacker
                .ports()
                .into_iter()
                .take(20)
                .for_each(|port| attacker.say(port, b"y"))
        },
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "six peers with one-byte segments at every second number",
        prepare: |attacker, host| {
            open(attacker, host, 6, DEAF, 65535, SACK_AND_MSS);
            for port in attacker.ports() {
                (0..250).for_each(|_| attacker.say(port, b"z"));
            }
            host.settle();
        },
        tick: |attacker, tick| {
            for port in attacker.ports() {
                let peer = attacker.peers[&port];
                for turn in 0..10 {
                    let at = peer.next.wrapping_add(2 + 2 * ((tick * 10 + turn) % 2000));
                    attacker.segment(&peer, at, peer.expected, ACK, &[], b"z");
                }
            }
        },
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "6,000 acknowledgments a second with SACK blocks of one byte",
        prepare: |attacker, host| open(attacker, host, 1, TALKER, 65535, SACK_AND_MSS),
        tick: sack_blocks,
        holds_anyway: 8 * MIB,
    },
    Row {
        name: "an MSS of one byte and a window of ten",
        prepare: |attacker, host| open(attacker, host, 20, TALKER, 10, &[2, 4, 0, 1]),
        tick: slow_readers,
        holds_anyway: 100 * MIB,
    },
    Row {
        name: "500 peers with no window",
        prepare: |attacker, host| open(attacker, host, 500, TALKER, 0, &[]),
        tick: |attacker, _| attacker.hear(),
        holds_anyway: 500 * MIB,
    },
    Row {
        name: "fragments of which the others never come",
        prepare: NOTHING,
        tick: |attacker, tick| {
            (0..60).for_each(|turn| {
                attacker.fragment(u16::try_from((tick * 60 + turn) % 65536).unwrap_or(0))
            });
        },
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "SYNs from everywhere",
        prepare: NOTHING,
        tick: |attacker, _| syns(attacker, &[], &[]),
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "unknown neighbours",
        prepare: NOTHING,
        tick: strangers,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "messages about paths' MTU",
        prepare: |attacker, host| open(attacker, host, 1, TALKER, 65535, &[]),
        tick: path_mtus,
        holds_anyway: 8 * MIB,
    },
    Row {
        name: "connections that the host closes first",
        prepare: NOTHING,
        tick: time_waits,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "RSTs and FINs within the window",
        prepare: |attacker, host| open(attacker, host, 1, SINK, 65535, &[]),
        tick: guesses,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "Fast Open with cookies that are none",
        prepare: NOTHING,
        tick: cookies,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "handshakes that are over as soon as they have begun",
        prepare: NOTHING,
        tick: broken_handshakes,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "connections that are not accepted",
        prepare: NOTHING,
        tick: unaccepted,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "timestamps from everywhere",
        prepare: |attacker, host| open(attacker, host, 1, SINK, 65535, STAMPED),
        tick: timestamps,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "old questions about groups, of a host in thousands",
        prepare: |_, host| host.join(GROUPS),
        tick: old_questions,
        holds_anyway: 4 * MIB,
    },
    Row {
        name: "questions about groups",
        prepare: NOTHING,
        tick: questions,
        holds_anyway: 4 * MIB,
    },
];
