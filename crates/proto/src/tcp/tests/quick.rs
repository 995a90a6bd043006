//! The quick ways of input and output do what the long ones do. Every segment of every test in this directory is put to it.

use super::super::input::Receiver;
use super::*;
use crate::ip::Ecn;

/// What quick ways a [`Pair`] has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Seen {
    pub inputs: u32,
    pub outputs: u32,
    asked: u32,
}

/// With many segments under way only every sixteenth time: a comparison goes through them all.
fn is_heavy(conn: &Connection, seen: &mut Seen) -> bool {
    seen.asked = seen.asked.wrapping_add(1);
    conn.sent.heap_bytes() > 2048 && !seen.asked.is_multiple_of(16)
}

/// `conn.output`, by the quick way if that decides: then the long way, from the same state, must say and leave the same.
pub(in super::super) fn output(
    conn: &mut Connection,
    now: Instant,
    seen: &mut Seen,
) -> Option<Transmit> {
    if is_heavy(conn, seen) {
        return conn.output_text(now).or_else(|| conn.output(now));
    }
    let mut long = conn.clone();
    let Some(transmit) = conn.output_text(now) else {
        assert!(*conn == long, "changed though not decided: {long:?}");
        return conn.output(now);
    };
    assert_eq!(Some(transmit), long.output(now));
    assert!(*conn == long, "quick: {conn:?}\nlong: {long:?}");
    seen.outputs += 1;
    Some(transmit)
}

/// `conn.input`; what was predicted is also taken the long way. (Into a queue of its own, so refusals for want of memory are not
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
    let mut long = predicted.then(|| (conn.clone(), text.clone()));
    let input = conn.input(header, ecn, text, &mut end.queue, &mut end.pool, now);
    if let Some((long, text)) = &mut long
        && input.drop.is_none()
    {
        long.counters.segments_in = long.counters.segments_in.wrapping_add(1);
        let (mut queue, mut pool) = (ReceiveQueue::new(), SegmentPool::with_capacity(8));
        let mut receiver = Receiver {
            queue: &mut queue,
            pool: &mut pool,
        };
        let text = core::mem::take(text);
        assert_eq!(
            input,
            long.input_in_full(*header, ecn, len, text, &mut receiver, now)
        );
        assert!(conn == long, "quick: {conn:?}\nlong: {long:?}");
        seen.inputs += 1;
    }
    Some(input)
}

/// The comparisons above do take place.
#[test]
fn an_exchange_goes_the_quick_ways() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    pair.seen = Seen::default();
    for n in 0..100_u8 {
        for end in 0..2 {
            pair.ends[end].write(&[n; 3000]);
            pair.run_for(Duration::from_millis(30));
        }
    }
    assert!(
        pair.seen.inputs > 500 && pair.seen.outputs > 500,
        "{:?}",
        pair.seen
    );
    assert_eq!(pair.ends[0].received, pair.ends[1].received);
}
