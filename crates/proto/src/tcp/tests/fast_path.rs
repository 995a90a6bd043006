//! The fast paths of input and output do what the slow ones do. Every segment of every test in this directory is put to it.

use super::super::connection::input::Receiver;
use super::*;
use crate::ip::Ecn;

/// Which fast paths a [`Pair`] has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Seen {
    pub inputs: u32,
    pub outputs: u32,
    pub followed: u32,
    asked: u32,
}

/// With many segments under way only every sixteenth time: a comparison goes through them all.
fn is_heavy(conn: &Connection, seen: &mut Seen) -> bool {
    seen.asked = seen.asked.wrapping_add(1);
    conn.sent.heap_bytes() > 2048 && !seen.asked.is_multiple_of(16)
}

/// `conn.output`, by the fast path if that decides: then the slow path, from the same state, must say and leave the same.
pub(in super::super) fn output(
    conn: &mut Connection,
    now: Instant,
    seen: &mut Seen,
) -> Option<Transmit> {
    if is_heavy(conn, seen) {
        return conn.output_text(now).or_else(|| conn.output(now));
    }
    let mut slow = conn.clone();
    let Some(transmit) = conn.output_text(now) else {
        assert!(*conn == slow, "changed though not decided: {slow:?}");
        return conn.output(now);
    };
    assert_eq!(Some(transmit), slow.output(now));
    assert!(*conn == slow, "fast: {conn:?}\nslow: {slow:?}");
    seen.outputs += 1;
    Some(transmit)
}

/// `conn.input`; what was predicted is also taken by the slow path. (Into a queue of its own, so refusals for want of memory are not
/// compared.)
pub(in super::super) fn input(
    end: &mut End,
    header: &Header,
    ecn: Ecn,
    text: Vec<u8>,
    now: Instant,
    seen: &mut Seen,
) -> Option<Input> {
    let conn = end.conn.as_mut()?;
    let len = u32::try_from(text.len()).unwrap();
    let predicted = conn.is_predicted(header, len, &end.queue, now) && !is_heavy(conn, seen);
    if predicted && len > 2 {
        seen.followed += u32::from(follows_as_input_would(conn, header, ecn, &text, now));
    }
    let mut slow = predicted.then(|| (conn.clone(), text.clone()));
    let input = conn.input(header, ecn, text, &mut end.queue, &mut end.pool, now);
    if let Some((slow, text)) = &mut slow
        && input.drop.is_none()
    {
        slow.counters.segments_in = slow.counters.segments_in.wrapping_add(1);
        let (mut queue, mut pool) = (ReceiveQueue::new(), SegmentPool::with_capacity(8));
        let mut receiver = Receiver {
            queue: &mut queue,
            pool: &mut pool,
        };
        let text = core::mem::take(text);
        let in_full = slow.input_in_full(*header, ecn, len, text, &mut receiver, now);
        assert_eq!(
            (input.acked, input.events, None),
            (in_full.acked, in_full.events, in_full.drop)
        );
        assert!(conn == slow, "fast: {conn:?}\nslow: {slow:?}");
        seen.inputs += 1;
    }
    Some(input)
}

/// A segment that is predicted, as a GRO run of three that bring its text in pieces: those behind the first must lead to the same by
/// [`Connection::follow`] as by [`Connection::input`]. False: they may not be taken so.
fn follows_as_input_would(
    conn: &Connection,
    header: &Header,
    ecn: Ecn,
    text: &[u8],
    now: Instant,
) -> bool {
    let cuts = [0, text.len() / 3, text.len() / 3 * 2, text.len()];
    let pieces = [0, 1, 2].map(|i| (header.seq + cuts[i] as u32, &text[cuts[i]..cuts[i + 1]]));
    let [mut fast, mut slow] = [conn.clone(), conn.clone()];
    let mut ends = [0, 1].map(|_| (ReceiveQueue::new(), SegmentPool::with_capacity(8)));
    let [(queue, pool), (slow_queue, slow_pool)] = &mut ends;
    for (i, (seq, text)) in pieces.into_iter().enumerate() {
        let header = Header { seq, ..*header };
        let piece = || text.to_vec();
        let input = slow.input(&header, ecn, piece(), slow_queue, slow_pool, now);
        if i == 0 {
            let first = fast.input(&header, ecn, piece(), queue, pool, now);
            assert_eq!(first, input);
            if !first.predicted {
                return false;
            }
            continue;
        }
        let len = text.len() as u32;
        if !fast.may_follow(seq, len, ecn, text.len(), queue, pool) {
            assert_eq!(ecn, Ecn::Ce, "in order, and within the window");
            return false;
        }
        fast.follow(ecn, &mut Some(piece()), queue, pool, now);
        let expected = Input {
            events: Events::READABLE,
            predicted: true,
            ..Input::default()
        };
        assert_eq!(input, expected, "nothing but text");
        assert!(fast == slow, "followed: {fast:?}\nin full: {slow:?}");
        let held =
            |queue: &ReceiveQueue<Vec<u8>>, pool| queue.iter(pool).flatten().copied().collect();
        let [fast, slow]: [Vec<u8>; 2] = [held(queue, pool), held(slow_queue, slow_pool)];
        assert_eq!(fast, slow);
    }
    true
}

/// What follows a segment, and what may not: other text than the next, more than the window holds, a mark of congestion, no room.
#[test]
fn only_the_next_text_follows() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    pair.ends[0].write(&[1; 1000]);
    pair.run_for(Duration::from_millis(30));
    let end = &mut pair.ends[1];
    let conn = end.conn.as_mut().unwrap();
    let (next, room) = (conn.rcv.nxt, (conn.rcv.edge - conn.rcv.nxt).unsigned_abs());
    let may = |conn: &Connection, seq, len, ecn, pool: &SegmentPool<Vec<u8>>| {
        conn.may_follow(seq, len, ecn, 1000, &end.queue, pool)
    };
    assert!(may(conn, next, 1000, Ecn::NotEct, &end.pool));
    assert!(may(conn, next, room, Ecn::Ect0, &end.pool), "to its edge");
    assert!(!may(conn, next, room + 1, Ecn::NotEct, &end.pool));
    assert!(!may(conn, next + 1, 1000, Ecn::NotEct, &end.pool), "a gap");
    assert!(!may(conn, next - 1, 1000, Ecn::NotEct, &end.pool), "again");
    assert!(!may(conn, next, 0, Ecn::NotEct, &end.pool), "no text");
    assert!(!may(conn, next, 1000, Ecn::Ce, &end.pool), "a mark");
    let mut pool = SegmentPool::with_capacity(8);
    pool.memory_mut().allow(999);
    assert!(!may(conn, next, 1000, Ecn::NotEct, &pool), "no memory");
    pool.memory_mut().allow(1000);
    assert!(may(conn, next, 1000, Ecn::NotEct, &pool));
    let none = SegmentPool::with_capacity(0);
    assert!(!may(conn, next, 1000, Ecn::NotEct, &none), "no node");
    conn.settings.max_segments = end.queue.segments_held();
    assert!(!may(conn, next, 1000, Ecn::NotEct, &end.pool), "its share");
}

/// The acknowledgment of a predicted segment can be news: its counter of marks (RFC 9768) came round, as so many segments are acknowledged
/// that it must have. What follows is then looked at in full. (Found by a random exchange, the 2,516th of `scrambled_image_never_panics`.)
#[test]
fn nothing_follows_an_acknowledgment_that_reveals_marks() {
    let config = Config {
        ecn: EcnMode::Accurate,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    for end in [0, 1, 0, 1] {
        pair.ends[end].write(&[1; 100]);
        pair.run_for(Duration::from_millis(100));
    }
    pair.ends[0].write(&[1; 100_000]);
    pair.intercept();
    let usual = pair.ends[0].conn().ecn.usual;
    let mut header = pair.forge(0, usual);
    header.ack = pair.ends[0].conn().snd.nxt - 1460;
    let input = pair.deliver(0, &header, vec![2; 300]).expect("open");
    assert_eq!((input.acked > 8 * 1460, input.drop), (true, None));
    assert!(!pair.ends[0].conn().recovery.is_steady(), "no marks heard");
    assert!(!input.predicted);
}

/// The comparisons above do take place.
#[test]
fn exchange_takes_the_fast_paths() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    pair.seen = Seen::default();
    for n in 0..100_u8 {
        for end in 0..2 {
            pair.ends[end].write(&[n; 3000]);
            pair.run_for(Duration::from_millis(30));
        }
    }
    assert!(
        pair.seen.inputs > 500 && pair.seen.outputs > 500 && pair.seen.followed > 200,
        "{:?}",
        pair.seen
    );
    assert_eq!(pair.ends[0].received, pair.ends[1].received);
}
