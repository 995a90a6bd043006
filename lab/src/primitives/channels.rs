//! Experiment `channels`: messages from one thread to another, through our ring and through the crates that people use.

mod peers;

use percore::ring::{Consumer, Producer, ring};

use super::{
    Bench, Player, Scores, report,
    traffic::{CAPACITY, Channel, Place, Tally, Terms, messages, ping_pong, stream},
};
use crate::{
    experiment::{Experiment, LabError},
    report::Row,
};
pub(super) use peers::{ArrayQueueWay, CrossbeamWay, MpscWay};
use peers::{RingbufWay, RtrbWay};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "channels",
    question: "What does a message of 8 to 64 bytes cost from core to core, in batches of 1, 8 and 32 and on its own, beside the rings that people use?",
    prediction: "64 bytes in batches of 32: 4 to 6 ns, one cache line moved per message with the next ones on their way; rtrb's chunks within 10 %, since they do the same. \
        Single: 8 to 16 ns, rtrb equal; ringbuf 1.5 times, ArrayQueue and the channels 3 to 8 times, because both their sides write one line. One way: 60 to 70 ns for every ring whose sides do not \
        share an index (two lines to fetch), twice that for the others. On one core the switches between threads (2 us for 256 messages) hide most of the difference.",
    run: |experiment, options| report(experiment, options, rows),
};

/// percore's ring.
pub(super) struct RingWay;

impl<const N: usize> Channel<N> for RingWay {
    type Tx = Producer<[u64; N]>;
    type Rx = Consumer<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        ring(CAPACITY)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.push(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        tx.push_iter(messages(first, n))
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.pop()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        rx.pop_batch(max, |message| tally.add(&message));
    }
}

const OURS: &str = "ring";

/// The peers' names, with what stands for them in ids.
const PEERS: [(&str, &str); 5] = [
    ("rtrb 0.4", "rtrb"),
    ("ringbuf 0.6", "ringbuf"),
    ("crossbeam ArrayQueue", "array_queue"),
    ("crossbeam channel", "crossbeam_channel"),
    ("std mpsc", "mpsc"),
];

/// Every channel sends a stream of messages of `N` words.
fn streams<const N: usize>(bench: &Bench, terms: Terms) -> Scores {
    let [rtrb, ringbuf, array_queue, crossbeam, mpsc] = PEERS.map(|(name, _)| name);
    bench.contest(vec![
        Player::own(OURS, || stream::<RingWay, N>(bench, terms)),
        Player::peer(rtrb, || stream::<RtrbWay, N>(bench, terms)),
        Player::peer(ringbuf, || stream::<RingbufWay, N>(bench, terms)),
        Player::peer(array_queue, || stream::<ArrayQueueWay, N>(bench, terms)),
        Player::peer(crossbeam, || stream::<CrossbeamWay, N>(bench, terms)),
        Player::peer(mpsc, || stream::<MpscWay, N>(bench, terms)),
    ])
}

/// Every channel sends one message of `N` words there and back.
fn latencies<const N: usize>(bench: &Bench, cores: [usize; 2]) -> Scores {
    let trips = bench.work / 10;
    let [rtrb, ringbuf, array_queue, crossbeam, mpsc] = PEERS.map(|(name, _)| name);
    bench.contest(vec![
        Player::own(OURS, || ping_pong::<RingWay, N>(bench, cores, trips)),
        Player::peer(rtrb, || ping_pong::<RtrbWay, N>(bench, cores, trips)),
        Player::peer(ringbuf, || ping_pong::<RingbufWay, N>(bench, cores, trips)),
        Player::peer(array_queue, || {
            ping_pong::<ArrayQueueWay, N>(bench, cores, trips)
        }),
        Player::peer(crossbeam, || {
            ping_pong::<CrossbeamWay, N>(bench, cores, trips)
        }),
        Player::peer(mpsc, || ping_pong::<MpscWay, N>(bench, cores, trips)),
    ])
}

/// `batch32`, `single`.
pub(super) fn batch_name(batch: usize) -> String {
    match batch {
        1 => "single".to_owned(),
        n => format!("batch{n}"),
    }
}

/// The rows of messages of `N` words.
fn size<const N: usize>(bench: &Bench, cores: [usize; 2], rows: &mut Vec<Row>) {
    let bytes = N * 8;
    for batch in [32, 8, 1] {
        let terms = Terms {
            place: Place::Cores(cores),
            messages: bench.work,
            batch,
        };
        let name = batch_name(batch);
        let scores = streams::<N>(bench, terms);
        let row = scores.row(&format!("ring{bytes}_{name}_ns"), OURS);
        rows.push(with_targets(row, N, batch));
        if N == 8 {
            each_peer(&scores, &name, rows);
        }
    }
    let scores = latencies::<N>(bench, cores);
    let row = scores.row(&format!("ring{bytes}_latency_ns"), OURS);
    rows.push(row.reference("1100 (D3)").target("<= 70, not behind"));
    if N == 8 {
        each_peer(&scores, "latency", rows);
    }
}

/// With what the issue asks for.
fn with_targets(row: Row, words: usize, batch: usize) -> Row {
    match (words, batch) {
        (8, 32) => row.reference("50 (D3)").target("<= 6.5, not behind"),
        (8, 1) => row.reference("50 (D3)").target("<= 16, not behind"),
        _ => row.target("not behind"),
    }
}

/// A row of each peer, for the conditions that the issue names.
fn each_peer(scores: &Scores, name: &str, rows: &mut Vec<Row>) {
    let row = |(peer, short)| scores.bare_row(&format!("{short}64_{name}_ns"), peer);
    rows.extend(PEERS.map(row));
}

/// The rows of messages of `N` words where the ends share a core, or a thread.
fn size_on_one_core<const N: usize>(bench: &Bench, rows: &mut Vec<Row>) {
    let bytes = N * 8;
    let places = [
        // A switch between threads takes what hundreds of messages take.
        ("same_core", Place::OneCore(bench.one), bench.work / 4),
        ("one_thread", Place::OneThread, bench.work),
    ];
    for (place_name, place, messages) in places {
        for batch in [32, 8, 1] {
            let terms = Terms {
                place,
                messages,
                batch,
            };
            let id = format!("ring{bytes}_{}_{place_name}_ns", batch_name(batch));
            rows.push(
                streams::<N>(bench, terms)
                    .row(&id, OURS)
                    .target("not behind"),
            );
        }
    }
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    if let Some(cores) = bench.two {
        size::<8>(bench, cores, &mut rows);
        size::<4>(bench, cores, &mut rows);
        size::<1>(bench, cores, &mut rows);
    }
    size_on_one_core::<8>(bench, &mut rows);
    size_on_one_core::<1>(bench, &mut rows);
    Ok(rows)
}
