//! Arbitrary segments, calls and times in every state: no panic, every invariant holds, and
//! nothing grows (`negative 57`, `58`, `59`, `60`, `62` to `69`).

use core::sync::atomic::{AtomicU16, Ordering};

use super::*;
use crate::ip::Ecn;
use crate::wire::tcp::{AccEcn, FastOpen, Options, SackBlocks, Timestamps};

/// A sequence number that is likely to matter.
fn near(rng: &mut Rng, points: &[SeqNum]) -> SeqNum {
    let point = points[rng.below(points.len() as u64) as usize];
    match rng.below(6) {
        0 => point,
        1 => point + rng.below(3) as u32,
        2 => point - rng.below(3) as u32,
        3 => point + rng.below(5_000) as u32,
        4 => point - rng.below(5_000) as u32,
        _ => SeqNum(rng.next() as u32),
    }
}

fn arbitrary_flags(rng: &mut Rng) -> Flags {
    match rng.below(10) {
        0..5 => Flags::ACK,
        5 => Flags::ACK | Flags::PSH,
        6 => Flags::ACK | Flags::FIN,
        7 => Flags::SYN,
        _ => Flags(rng.below(512) as u16),
    }
}

fn arbitrary_options(rng: &mut Rng, conn: &Connection, points: &[SeqNum]) -> Options {
    let mut sack = SackBlocks::NONE;
    for _ in 0..rng.below(5) {
        sack.push(near(rng, points), near(rng, points));
    }
    let echo = near(
        rng,
        &[SeqNum(conn.ts_offset), SeqNum(conn.ts_retransmitted)],
    )
    .0;
    let value = near(rng, &[SeqNum(conn.ts_recent)]).0;
    Options {
        mss: rng
            .per_mille(300)
            .then(|| [0, 1, 8, 48, 536, 1460, 65535][rng.below(7) as usize]),
        window_scale: rng.per_mille(300).then(|| rng.below(256) as u8),
        sack_permitted: rng.per_mille(500),
        sack: if rng.per_mille(300) {
            sack
        } else {
            SackBlocks::NONE
        },
        timestamps: rng.per_mille(800).then_some(Timestamps { value, echo }),
        accecn: rng.per_mille(100).then(|| AccEcn {
            ect1_first: rng.per_mille(500),
            len: rng.below(4) as u8,
            fields: [0; 3].map(|_| rng.below(1 << 24) as u32),
        }),
        user_timeout: [0, 1, 0x8000, 0xffff][rng.below(4) as usize],
        fast_open: rng
            .per_mille(200)
            .then(|| FastOpen::new(&[rng.below(256) as u8; 8], rng.per_mille(500)))
            .flatten(),
        free: 0,
    }
}

/// A segment as fuzzers and attackers write them.
pub(super) fn arbitrary_segment(rng: &mut Rng, conn: &Connection) -> (Header, Vec<u8>) {
    let receive = [
        conn.rcv.nxt,
        conn.rcv.edge,
        conn.irs,
        conn.peer_fin,
        conn.last_ack_sent,
    ];
    let send = [
        conn.snd.una,
        conn.snd.nxt,
        conn.snd.nxt,
        conn.snd.end,
        conn.iss,
    ];
    let len = [0, 0, 0, 1, 10, 1460][rng.below(6) as usize];
    let header = Header {
        source_port: conn.remote_port(),
        destination_port: conn.local_port(),
        seq: near(rng, &receive),
        ack: near(rng, &send),
        flags: arbitrary_flags(rng),
        window: [0, 1, 100, 65535, rng.next() as u16][rng.below(5) as usize],
        urgent: rng.next() as u16,
        options: arbitrary_options(rng, conn, &send),
    };
    (header, rng.bytes(len))
}

/// Something an application or a shard may do.
fn arbitrary_call(rng: &mut Rng, end: &mut End, now: Instant) {
    match rng.below(14) {
        0..4 if end.conn().is_open_for_writing() && end.send.len() < 100_000 => {
            let len = rng.below(5000) as usize;
            let bytes = rng.bytes(len);
            end.write(&bytes);
        }
        4..7 => end.read(rng.below(5000) as usize),
        7 => drop(end.conn().shutdown()),
        8 => {
            let unread = end.queue.readable_bytes();
            if rng.per_mille(100) {
                end.conn()
                    .close(if rng.per_mille(500) { unread } else { 0 }, now);
            }
        }
        9 => {
            let keepalive = Keepalive {
                probes: rng.next() as u8,
                ..Keepalive::default()
            };
            end.conn()
                .set_keepalive(rng.per_mille(500).then_some(keepalive), now);
        }
        10 => {
            end.conn().set_nagle(rng.per_mille(500));
            end.conn().set_cork(rng.per_mille(100));
        }
        11 => {
            let quoted = end.conn().snd.una + rng.below(10) as u32;
            let mss = rng.next() as u16;
            let error = [
                IcmpError::v4(3, 3).unwrap(),
                IcmpError::v4(3, 1).unwrap(),
                IcmpError::TooBig { mss },
                IcmpError::TooBig { mss: 0 },
            ][rng.below(4) as usize];
            end.conn().on_icmp(error, quoted, true);
        }
        12 => end.conn().set_receive_buffer(rng.below(200_000) as u32),
        _ => end.conn().mark_urgent(),
    }
}

/// Brings end 0 into a random state, honestly, then is not honest any more.
fn attack(seed: u64, states: &AtomicU16) {
    let mut rng = Rng(seed);
    let config = Config {
        timestamps: rng.per_mille(500),
        sack: rng.per_mille(500),
        receive_buffer: [500, 65_535, 1 << 20][rng.below(3) as usize],
        challenge_acks: 200,
        ecn: [EcnMode::Passive, EcnMode::Classic, EcnMode::Accurate][(rng.0 >> 7) as usize % 3],
        ..Config::default()
    };
    let mut pair = if rng.per_mille(300) {
        Pair::simultaneous(seed, &config)
    } else {
        Pair::listening(seed, &config, &config)
    };
    pair.faults.delay = Duration::from_millis(1);
    let to = rng.below(2) as usize;
    for _ in 0..rng.below(30) {
        let until = pair.now + Duration::from_millis(10);
        pair.step(until);
        let now = pair.now;
        for end in &mut pair.ends {
            if end.conn.is_some() && rng.per_mille(300) {
                arbitrary_call(&mut rng, end, now);
            }
        }
        pair.drain();
    }
    for _ in 0..200 {
        pair.intercept();
        let now = pair.now;
        let end = &mut pair.ends[to];
        let Some(conn) = &mut end.conn else { break };
        states.fetch_or(1 << conn.state() as u8, Ordering::Relaxed);
        if rng.per_mille(800) {
            let (header, text) = arbitrary_segment(&mut rng, conn);
            let input = pair
                .deliver_with(to, &header, Ecn::of(header.flags.0 as u8), text)
                .expect("a connection");
            assert!(input.drop.is_some() || !header.flags.contains(Flags::RST));
        } else if rng.per_mille(500) {
            arbitrary_call(&mut rng, end, now);
        } else {
            pair.now = pair.now + Duration::from_nanos(rng.below(2_000_000_000));
            let events = pair.ends[to].conn().on_timer(pair.now);
            pair.ends[to].note_events(events);
        }
    }
    for end in &mut pair.ends {
        end.queue.clear(&mut end.pool);
        assert_eq!(end.pool.available(), 8192, "nodes lost");
    }
}

#[test]
pub(super) fn arbitrary_segments_in_every_state() {
    if let Ok(seed) = std::env::var("TCP_SEED") {
        return attack(seed.parse().expect("a number"), &AtomicU16::new(0));
    }
    let seeds = std::env::var("TCP_SEEDS").map_or(5000, |n| n.parse().expect("a number"));
    assert!(seeds > 0, "nothing to try");
    let states = AtomicU16::new(0);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| attack(seed, &states)) {
            eprintln!("replay with TCP_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    // All but LISTEN and CLOSED, which hold no connection, and TIME-WAIT, which is a record here.
    assert_eq!(states.into_inner(), 0b011_1111_1100, "states attacked");
}
