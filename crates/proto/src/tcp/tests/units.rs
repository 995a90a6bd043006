//! The parts on their own: reassembly against a model, initial sequence numbers, ports.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::vec;

use super::super::reassembly::Share;
use super::*;
use crate::wire::tcp::SackBlocks;

const SHARE: Share = Share {
    segments: 1000,
    gaps: 256,
};

/// What came first stays, but for stretches that the new text holds as a whole: a byte map that does the same (`negative 67`).
#[test]
fn reassembly_equals_its_model() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let base = SeqNum(rng.next() as u32);
        let mut pool = SegmentPool::with_capacity(2000);
        let mut queue = ReceiveQueue::new();
        let mut model = BTreeMap::new();
        let (mut next, mut read) = (base, Vec::new());
        for _ in 0..400 {
            let offset = rng.below(3000) as u32;
            let len = rng.below(60) as usize + 1;
            let text = rng.bytes(len);
            let seq = base + offset;
            let known = (next - base) as u32;
            let result = if seq <= next && seq + len as u32 > next {
                let mut fresh = text.clone();
                fresh.drain(..(next - seq) as usize);
                let pushed = queue.push(&mut pool, SHARE, next, &mut Some(fresh));
                pushed.map(|reached| next = reached)
            } else if seq > next {
                let inserted = queue.insert(&mut pool, SHARE, seq, text.clone());
                inserted.map(|_| ())
            } else {
                continue;
            };
            if result.is_err() {
                continue;
            }
            let (mut begin, mut end) = (offset.max(known), offset + len as u32);
            while model.contains_key(&begin) {
                begin += 1;
            }
            while model.contains_key(&end) && model.contains_key(&(end - 1)) {
                end -= 1;
            }
            // (Cut back to where a stretch begins that goes on behind the text.)
            for at in begin..end {
                model.insert(at, text[(at - offset) as usize]);
            }
            if rng.per_mille(300) {
                while let Some(text) = queue.pop_front(&mut pool) {
                    read.extend(text);
                }
            }
        }
        while let Some(text) = queue.pop_front(&mut pool) {
            read.extend(text);
        }
        let expected: Vec<u8> = (0..(next - base) as u32).map(|at| model[&at]).collect();
        assert_eq!(read, expected, "seed {seed}");
        queue.clear(&mut pool);
        assert_eq!(pool.available(), 2000, "seed {seed}: nodes lost");
    }
}

/// `negative 67`: a hundred thousand one-byte segments out of order: bounded memory, bounded work,
/// and text in order still gets through.
#[test]
fn segment_smack() {
    let config = Config {
        timestamps: false,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    let first = pair.ends[1].conn().rcv.nxt;
    let mut header = pair.forge(1, Flags::ACK);
    for n in 0..100_000_u32 {
        header.seq = first + 2 + (n.wrapping_mul(7919) % 30_000) * 2;
        pair.deliver(1, &header, [n as u8].to_vec());
    }
    assert!(pair.ends[1].queue.gaps() <= 256);
    assert!(pair.ends[1].queue.segments_held() <= 4096);
    assert!(pair.ends[1].drops.contains(&Drop::Gaps));
    header.seq = first;
    let input = pair.deliver(1, &header, b"in order".to_vec()).unwrap();
    assert!(input.events.contains(Events::READABLE));
    assert!(pair.ends[1].received.starts_with(b"in"));
}

/// One connection cannot keep text in order from another by filling the pool with gaps.
#[test]
fn the_pool_has_a_reserve() {
    let mut pool = SegmentPool::with_capacity(64);
    let mut greedy = ReceiveQueue::new();
    for n in 0..100 {
        let _ = greedy.insert(&mut pool, SHARE, SeqNum(10 + n * 10), [1_u8].to_vec());
    }
    assert_eq!(pool.available(), 8);
    let mut honest = ReceiveQueue::new();
    assert!(
        honest
            .push(&mut pool, SHARE, SeqNum(0), &mut Some([2_u8].to_vec()))
            .is_ok()
    );
    // And with the pool empty its own gaps make room.
    while pool.available() > 0 {
        honest
            .push(
                &mut pool,
                SHARE,
                SeqNum(0),
                &mut Some(Vec::with_capacity(0).into_iter().chain([3; 600]).collect()),
            )
            .unwrap();
    }
    assert!(
        greedy
            .push(&mut pool, SHARE, SeqNum(0), &mut Some([4_u8; 600].to_vec()))
            .is_ok()
    );
    greedy.clear(&mut pool);
    honest.clear(&mut pool);
    assert_eq!(pool.available(), 64);
}

/// Small segments share a node while the one before them has room.
#[test]
fn small_segments_share_nodes() {
    let mut pool = SegmentPool::with_capacity(64);
    let mut queue = ReceiveQueue::new();
    let mut seq = SeqNum(0);
    for n in 0..1000 {
        let mut text = Vec::with_capacity(2000);
        text.push(n as u8);
        seq = queue.push(&mut pool, SHARE, seq, &mut Some(text)).unwrap();
    }
    assert_eq!((queue.segments_held(), queue.readable_bytes()), (1, 1000));
    assert_eq!(drop_bytes(&mut queue, &mut pool, 10), 10);
    assert_eq!(queue.front(&pool).unwrap()[0], 10);
    assert_eq!(drop_bytes(&mut queue, &mut pool, 2000), 990);
    assert!(queue.is_idle());
}

fn socket(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port)
}

/// RFC 9293 MUST-8, MUST-9, RFC 6528, `negative 71`: a clock, and a hash that differs for each
/// connection and each secret.
#[test]
fn initial_sequence_numbers() {
    let secret = *b"sixteen bytes ok";
    let at = |us: u64, port| {
        initial_sequence(&secret, socket(1, 80), socket(2, port), Instant(us * 1000))
    };
    assert_eq!(at(4, 1000) - at(0, 1000), 1, "4 µs a tick");
    assert_eq!(at(4_000_000, 1000) - at(0, 1000), 1_000_000);
    let other = initial_sequence(b"another 16 bytes", socket(1, 80), socket(2, 1), Instant(0));
    assert_ne!(other, at(0, 1));
    // Ten thousand connections: no repeated difference, bits balanced.
    let all: Vec<u32> = (0..10_000).map(|port| at(0, port).0).collect();
    let differences: BTreeSet<u32> = all.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(differences.len() > 9_990);
    for bit in 0..32 {
        let ones = all.iter().filter(|&iss| iss >> bit & 1 == 1).count();
        assert!((4_700..5_300).contains(&ones), "bit {bit}: {ones}");
    }
    let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 80);
    assert_ne!(initial_sequence(&secret, v6, v6, Instant(0)), at(0, 80));
}

/// RFC 7323 §7.1: offsets differ between hosts, not between ports (they take none).
#[test]
fn timestamp_offsets() {
    let secret = *b"sixteen bytes ok";
    let offset = |last| timestamp_offset(&secret, socket(1, 0).ip(), socket(last, 0).ip());
    assert_eq!(offset(2), offset(2));
    assert_ne!(offset(2), offset(3));
}

/// RFC 6056 §3.3.3: per destination an own sequence; every port is found before giving up.
#[test]
fn ephemeral_ports() {
    let secret = *b"sixteen bytes ok";
    let pick = |counter: &mut u32, last, used: &BTreeSet<u16>| {
        let local = socket(1, 0).ip();
        let free = |port: u16| !used.contains(&port);
        ephemeral_port(
            port_offset(&secret, local, socket(last, 80)),
            40_000..=40_999,
            counter,
            free,
        )
    };
    let (mut counter, mut used) = (0, BTreeSet::new());
    let first = pick(&mut counter, 2, &used).unwrap();
    assert_eq!(counter, 1);
    assert_ne!(
        Some(first),
        pick(&mut 0, 3, &used),
        "another destination, another start"
    );
    for _ in 0..1000 {
        let port = pick(&mut counter, 2, &used).unwrap();
        assert!((40_000..=40_999).contains(&port));
        assert!(used.insert(port));
    }
    assert_eq!(pick(&mut counter, 2, &used), None);
    let mut counter = u32::MAX;
    assert!(pick(&mut counter, 2, &BTreeSet::new()).is_some());
    let all = ephemeral_port(u32::MAX, 0..=65535, &mut 1, |_| true);
    assert!(all.is_some());
}

#[test]
fn sizes() {
    assert!(
        size_of::<Connection>() <= 696,
        "{}",
        size_of::<Connection>()
    );
    assert!(size_of::<TimeWait>() <= 40);
    assert!(size_of::<ReceiveQueue<Vec<u8>>>() <= 32);
}

/// Memory that all connections share is used up: text behind a gap is refused, text in order makes it give way, and a connection that has
/// nothing to read takes some all the same. What was taken out is no longer counted.
#[test]
fn text_beyond_the_limit_of_all_memory() {
    let share = Share {
        segments: 100,
        gaps: 100,
    };
    let text = || {
        let mut text = Vec::with_capacity(1000);
        text.resize(1000, 7_u8);
        text
    };
    let mut pool = SegmentPool::with_capacity(64);
    let (mut one, mut other) = (ReceiveQueue::new(), ReceiveQueue::new());
    pool.memory_mut().allow(3000);
    let at = |n: u32| SeqNum(1000 * n);
    assert_eq!(
        one.push(&mut pool, share, at(0), &mut Some(text())),
        Ok(at(1))
    );
    assert_eq!(
        one.push(&mut pool, share, at(1), &mut Some(text())),
        Ok(at(2))
    );
    assert!(one.insert(&mut pool, share, at(5), text()).is_ok());
    assert_eq!(pool.memory().spare(), 0);
    let behind = one.insert(&mut pool, share, at(7), text());
    assert_eq!(behind, Err(Drop::Limit));
    // In order: what lies behind the gap gives way, and then there is nothing left to give.
    assert_eq!(
        one.push(&mut pool, share, at(2), &mut Some(text())),
        Ok(at(3))
    );
    assert_eq!((one.gaps(), pool.memory().held()), (0, 3000));
    assert_eq!(pool.pruned(), 1);
    let more = one.push(&mut pool, share, at(3), &mut Some(text()));
    assert_eq!(more, Err(Drop::Limit));
    // A connection with nothing to read, and then with one segment: two, whatever the limit.
    assert_eq!(
        other.push(&mut pool, share, at(0), &mut Some(text())),
        Ok(at(1))
    );
    assert_eq!(
        other.push(&mut pool, share, at(1), &mut Some(text())),
        Ok(at(2))
    );
    let third = other.push(&mut pool, share, at(2), &mut Some(text()));
    assert_eq!(third, Err(Drop::Limit));
    assert_eq!(one.memory() + other.memory(), 5000);
    one.clear(&mut pool);
    while other.pop_front(&mut pool).is_some() {}
    assert_eq!(pool.memory().held(), 0);
}

/// The farthest text gives way first, and no more of it than is needed.
#[test]
fn what_lies_farthest_is_given_up_first() {
    let share = Share {
        segments: 100,
        gaps: 100,
    };
    let text = || vec![7_u8; 1000];
    let at = |n: u32| SeqNum(1000 * n);
    let mut pool = SegmentPool::with_capacity(64);
    let mut queue = ReceiveQueue::new();
    pool.memory_mut().allow(22_000);
    for n in [0, 1, 3, 4].into_iter().chain(10..26) {
        let taken = if n < 2 {
            queue
                .push(&mut pool, share, at(n), &mut Some(text()))
                .map(|_| ())
        } else {
            queue.insert(&mut pool, share, at(n), text()).map(|_| ())
        };
        assert_eq!(taken, Ok(()), "{n}");
    }
    pool.memory_mut().allow(20_000);
    let runs = |queue: &ReceiveQueue<Vec<u8>>, pool: &SegmentPool<Vec<u8>>| {
        let mut blocks = SackBlocks::NONE;
        queue.fill_sack(pool, &mut blocks);
        blocks.as_slice().to_vec()
    };
    assert_eq!(runs(&queue, &pool), [(at(3), at(5)), (at(10), at(26))]);
    // What was kept goes on where it was cut.
    assert_eq!(
        queue.push(&mut pool, share, at(2), &mut Some(text())),
        Ok(at(5))
    );
    assert_eq!(
        (pool.pruned(), runs(&queue, &pool)),
        (1, vec![(at(10), at(25))])
    );
    pool.memory_mut().allow(21_000);
    assert!(queue.insert(&mut pool, share, at(25), text()).is_ok());
    assert_eq!(runs(&queue, &pool), [(at(10), at(26))]);
    assert_eq!(queue.segments_held(), 21);
    // As much as is needed.
    pool.memory_mut().allow(11_000);
    assert_eq!(
        queue.push(&mut pool, share, at(5), &mut Some(text())),
        Ok(at(6))
    );
    assert_eq!(
        (pool.pruned(), runs(&queue, &pool)),
        (12, vec![(at(10), at(15))])
    );
    assert_eq!(queue.memory_counted(&pool) as u64, pool.memory().held());
    assert_eq!(u64::from(queue.memory()), pool.memory().held());
    assert_eq!(queue.memory_behind(&pool), pool.behind().held());
    pool.memory_mut().allow(1000);
    let refused = queue.push(&mut pool, share, at(6), &mut Some(text()));
    assert_eq!(
        (refused, queue.gaps()),
        (Err(Drop::Limit), 0),
        "nothing is left to give"
    );
    queue.clear(&mut pool);
    assert_eq!((pool.memory().held(), pool.available()), (0, 64));
}
