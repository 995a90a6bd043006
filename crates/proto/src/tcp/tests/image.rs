//! Images of connections: nothing is lost at the same moment, and what a hostile file says never panics.

use super::hostile::arbitrary_segment;
use super::*;
use crate::tcp::image::scramble::{Scramble, Scrambler};
use crate::wire::tcp::FastOpen;

/// One value of so many of an image is changed: of a usual one, which has 300, one or none, two or three, and ten.
const ONE_OF: [u64; 3] = [500, 120, 30];
/// Images changed.
const CASES: u64 = 12_000;
/// What happens to the connection of each.
const STEPS: u64 = 24;

/// A pair in the middle of something.
fn pair_of(seed: u64) -> Pair {
    let mut rng = Rng(seed);
    let config = Config {
        congestion: CongestionControl::ALL[rng.below(4) as usize],
        ecn: [EcnMode::Passive, EcnMode::Classic, EcnMode::Accurate][rng.below(3) as usize],
        sack: rng.per_mille(800),
        timestamps: rng.per_mille(800),
        pacing: rng.per_mille(300),
        keepalive: rng.per_mille(200).then(Keepalive::default),
        mtu_probing: [MtuProbing::BlackHole, MtuProbing::Always][rng.below(2) as usize],
        user_timeout_option: [UserTimeoutOption::Off, UserTimeoutOption::Negotiable]
            [rng.below(2) as usize],
        receive_buffer: [20_000, 1 << 20][rng.below(2) as usize],
        receive_buffer_max: [0, 1 << 20][rng.below(2) as usize],
        ..Config::default()
    };
    let mut pair = Pair::listening(seed, &config, &config);
    pair.faults = Faults {
        loss: [0, 50, 200][rng.below(3) as usize],
        duplicate: 20,
        reorder: 100,
        delay: Duration::from_millis(5),
    };
    if rng.per_mille(300) {
        pair.fast = rng.per_mille(700);
        pair.ends[0].conn().open_fast(&FastOpenPeer {
            option: FastOpen::new(&[1; 8], false),
            carries_text: true,
            mss: Some(1460),
        });
        let text = vec![7; rng.below(2000) as usize];
        pair.ends[0].write(&text);
        pair.ends[0].conn().release();
    }
    pair
}

/// Some of what two applications do, and of what the channel makes of it.
fn go_on(pair: &mut Pair) {
    for end in &mut pair.ends {
        if !pair.rng.per_mille(300) || end.conn.is_none() {
            continue;
        }
        end.paused = pair.rng.per_mille(300);
        if end.conn().is_open_for_writing() && end.send.len() < 100_000 {
            let bytes = vec![7; pair.rng.below(20_000) as usize];
            end.write(&bytes);
        }
        match pair.rng.below(20) {
            0 => end.conn().mark_urgent(),
            1 => end.conn().end_record(),
            2 => end.conn().set_pacing_rate_max(1_000_000),
            _ => {}
        }
        if pair.rng.per_mille(30) {
            let events = end.conn().shutdown();
            end.events |= events;
        }
    }
    let steps = 1 + pair.rng.below(10);
    for _ in 0..steps {
        let until = pair.now + Duration::from_secs(5);
        pair.step(until);
    }
}

/// Takes one end's connection and text apart and puts them together, at the same moment.
fn come_apart(end: &mut End, now: Instant) {
    let Some(conn) = &end.conn else { return };
    let image = conn.take_apart(now);
    let whole = Connection::from_image(image, now);
    let whole = whole.unwrap_or_else(|error| panic!("{error:?}: {conn:?}"));
    assert_eq!(&whole, conn, "nothing is lost");
    let text = end.queue.take_apart(&end.pool, Vec::clone);
    let held = (end.queue.segments_held(), end.queue.memory());
    let behind = end.pool.behind().held();
    end.queue.clear(&mut end.pool);
    end.queue = whole
        .queue_from_image(text.clone(), &mut end.pool, with_room)
        .expect("honest text");
    assert_eq!(held, (end.queue.segments_held(), end.queue.memory()));
    assert_eq!(behind, end.pool.behind().held());
    assert_eq!(end.queue.take_apart(&end.pool, Vec::clone), text);
    end.conn = Some(whole);
}

fn with_room(_: SeqNum, held: &HeldText) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(held.memory as usize);
    bytes.extend_from_slice(&held.bytes);
    Some(bytes)
}

/// Every field, in the middle of everything: equal, not only alike.
#[test]
fn image_put_together_at_the_same_moment_is_the_same_connection() {
    for seed in 0..60 {
        std::eprintln!("seed {seed}");
        let mut pair = pair_of(seed);
        for _ in 0..60 {
            go_on(&mut pair);
            let now = pair.now;
            pair.ends.iter_mut().for_each(|end| come_apart(end, now));
        }
    }
}

/// What a day asleep is: at a later moment of the same clock timers wait as long as before, and timestamps go on from where they were.
#[test]
fn image_put_together_a_day_later_goes_on_from_where_it_was() {
    let config = Config::default();
    let mut pair = Pair::established(&config, &config);
    pair.ends[0].write(&[1; 3000]);
    pair.drain();
    let now = pair.now;
    let conn = pair.ends[0].conn();
    let later = now + Duration::from_secs(86_400) + Duration::from_nanos(1_234_567);
    let whole = Connection::from_image(conn.take_apart(now), later).expect("an honest image");
    assert_eq!(whole.deadline().since(later), conn.deadline().since(now));
    assert_eq!(whole.timestamp_value(later), conn.timestamp_value(now));
    let elapsed = |conn: &Connection, now: Instant| conn.info_at(now).since_text;
    assert_eq!(elapsed(&whole, later), elapsed(conn, now));
    // Its owner lets the day count by calling it earlier: the retransmission is due at once.
    let awake = Connection::from_image(conn.take_apart(now), later - Duration::from_secs(86_400));
    assert!(awake.expect("an honest image").deadline() < later);
}

/// Whatever of an image changes: an error, or a connection that does not panic and sends nothing but what its owner has.
#[test]
fn scrambled_image_never_panics() {
    let (mut refused, mut taken) = (0, 0);
    let mut case = 0;
    'pairs: for seed in 1.. {
        std::eprintln!("seed {seed}");
        let mut pair = pair_of(seed);
        for _ in 0..40 {
            go_on(&mut pair);
            for index in 0..2 {
                let Some(conn) = &pair.ends[index].conn else {
                    continue;
                };
                case += 1;
                if case > CASES {
                    break 'pairs;
                }
                let mut image = conn.take_apart(pair.now);
                let mut dice = Scrambler {
                    rng: Rng(seed << 32 | case),
                    one_of: ONE_OF[(case % 3) as usize],
                    changed: 0,
                };
                image.scramble(&mut dice);
                match Connection::from_image(image, pair.now) {
                    Ok(conn) => run(
                        conn,
                        ReceiveQueue::new(),
                        &mut SegmentPool::with_capacity(64),
                        pair.now,
                        &mut dice.rng,
                    ),
                    Err(_) => refused += 1,
                }
                taken += u64::from(dice.changed > 0);
            }
        }
    }
    assert!(
        refused > CASES / 20 && refused < taken,
        "{refused} of {taken}"
    );
}

/// A few changes of received text that a file could have.
fn scramble_text(image: &mut ReceiveQueueImage, rng: &mut Rng) {
    let pick = |rng: &mut Rng, len: usize| rng.below(len as u64) as usize;
    for _ in 0..=rng.below(2) {
        let runs = image.runs.len();
        let at = pick(rng, runs);
        let other = pick(rng, runs);
        match rng.below(6) {
            0 if runs > 0 => image.runs.swap(at, other),
            1 if runs > 0 => {
                let by = [1, 100, 1460, 1 << 20, 1 << 30, u32::MAX, u32::MAX - 99];
                let by = by[pick(rng, by.len())];
                image.runs[at].seq = image.runs[at].seq + by;
            }
            2 if runs > 0 => drop(image.runs[at].text.pop()),
            3 => image.recent = Some(rng.below(4) as u32),
            4 if runs > 0 => image.runs.insert(at, image.runs[other].clone()),
            _ => {
                let behind = image.runs.iter_mut().flat_map(|run| &mut run.text);
                let mut all: Vec<_> = image.in_order.iter_mut().chain(behind).collect();
                let Some(text) = (!all.is_empty()).then(|| pick(rng, all.len())) else {
                    continue;
                };
                let text = &mut all[text];
                match rng.below(3) {
                    0 => text.memory = [0, 1, u32::MAX, 1 << 24][pick(rng, 4)],
                    1 => text.bytes.truncate(rng.below(1460) as usize),
                    _ => text.bytes.extend([0; 3]),
                }
            }
        }
    }
}

/// Text that was changed: refused, or so that the pool's invariants hold whatever comes afterwards.
#[test]
fn scrambled_text_never_panics() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 1..400 {
        std::eprintln!("seed {seed}");
        let mut pair = pair_of(seed);
        for step in 0..40 {
            go_on(&mut pair);
            for end in pair.ends.iter().filter(|end| !end.queue.is_idle()) {
                let Some(conn) = &end.conn else { continue };
                let mut rng = Rng(seed << 32 | step);
                let mut image = end.queue.take_apart(&end.pool, Vec::clone);
                scramble_text(&mut image, &mut rng);
                let mut pool = SegmentPool::with_capacity(500);
                match conn.queue_from_image(image, &mut pool, with_room) {
                    Ok(queue) => {
                        taken += 1;
                        run(conn.clone(), queue, &mut pool, pair.now, &mut rng);
                    }
                    Err(_) => refused += 1,
                }
                let held = (pool.memory().held(), pool.behind().held());
                assert_eq!((pool.available(), held), (500, (0, 0)));
            }
        }
    }
    assert!(
        taken > 100 && refused > 100,
        "{taken} taken, {refused} refused"
    );
}

/// Arbitrary segments and timers for a connection of a scrambled image, or with scrambled text.
fn run(
    mut conn: Connection,
    mut queue: ReceiveQueue<Vec<u8>>,
    pool: &mut SegmentPool<Vec<u8>>,
    mut now: Instant,
    rng: &mut Rng,
) {
    let mut queued = conn.take_apart(now).queued_bytes();
    for _ in 0..STEPS {
        match rng.below(8) {
            0..4 => {
                let (header, text) = arbitrary_segment(rng, &conn);
                let input = conn.input(&header, Ecn::Ce, text, &mut queue, pool, now);
                assert!(input.acked <= queued, "{} of {queued}", input.acked);
                queued -= input.acked;
            }
            4 => {
                now = now.max(conn.deadline().min(now + Duration::from_secs(100_000)));
                conn.on_timer(now);
            }
            5 if conn.is_open_for_writing() => {
                conn.written(1000);
                queued += 1000;
            }
            6 => conn.consumed(drop_bytes(&mut queue, pool, 500)),
            7 if rng.per_mille(100) => drop(conn.shutdown()),
            _ => now = now + Duration::from_micros(rng.below(100_000)),
        }
        for _ in 0..50 {
            let Some(transmit) = conn.output(now) else {
                break;
            };
            let end = transmit.offset.checked_add(transmit.len);
            let has = conn.state() == State::Closed || end.is_some_and(|end| end <= queued);
            assert!(
                has || transmit.len == 0,
                "offset {} len {} of {queued}",
                transmit.offset,
                transmit.len
            );
        }
        let _ = (conn.info(), conn.deadline(), conn.unsent());
    }
    queue.clear(pool);
}

/// A receive queue's image that is not its connection's is refused, and gives back the pool's nodes.
#[test]
fn text_that_the_connection_does_not_know_is_refused() {
    let config = Config::default();
    let mut pair = Pair::established(&config, &config);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[1; 8000]);
    pair.run_for(Duration::from_millis(50));
    let end = &pair.ends[1];
    let conn = end.conn.as_ref().expect("open");
    let honest = end.queue.take_apart(&end.pool, Vec::clone);
    assert_eq!(honest.readable(), 8000);
    let mut pool = SegmentPool::with_capacity(100);
    let mut put = |image: ReceiveQueueImage| {
        let made = conn.queue_from_image(image, &mut pool, with_room);
        let made = made.map(|mut queue| queue.clear(&mut pool));
        assert_eq!((pool.available(), pool.memory().held()), (100, 0));
        made.err()
    };
    assert_eq!(put(honest.clone()), None);
    let mut less = honest.clone();
    less.in_order.pop();
    assert_eq!(put(less), Some(ImageError::Text));
    let mut empty = honest.clone();
    empty.in_order[0].bytes.clear();
    assert_eq!(put(empty), Some(ImageError::Text));
    let run = |seq, len| HeldRun {
        seq,
        text: vec![HeldText {
            bytes: vec![0; len],
            memory: 4000,
        }],
    };
    let next = conn.rcv.nxt;
    for (runs, wrong) in [
        (vec![run(next + 10, 100), run(next + 200, 50)], None),
        (vec![run(next, 100)], Some(ImageError::Text)),
        (vec![run(next - 5, 100)], Some(ImageError::Text)),
        (
            vec![run(next + 10, 100), run(next + 50, 50)],
            Some(ImageError::Text),
        ),
        (
            vec![run(next + 10, 100), run(next + 110, 50)],
            Some(ImageError::Text),
        ),
        (vec![run(next + 10, 4001)], Some(ImageError::Text)),
        (vec![run(next + 10, 1); 200], Some(ImageError::Text)),
    ] {
        let image = ReceiveQueueImage {
            runs,
            ..honest.clone()
        };
        assert_eq!(put(image), wrong);
    }
    let many = (0..150).map(|n| run(next + 10 * (n + 1), 1)).collect();
    let image = ReceiveQueueImage {
        runs: many,
        ..honest
    };
    assert_eq!(put(image), Some(ImageError::Memory), "150 in 100 nodes");
}
