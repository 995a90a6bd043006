//! Experiment `interrupts` (D6): packets in bursts from a link's thread to a protocol that does nothing, on another core, and looking when there are none.

use std::{
    hint::{black_box, spin_loop},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use percore::{
    doorbell::{Doorbell, Sleep},
    ring::{Consumer, Producer, ring},
    sched::{Core, Idle, Settings, machine},
    slab::{Buffer, Slab},
};

use super::{Bench, Player, doorbell, moderation, per_operation, report};
use crate::{
    experiment::{Experiment, LabError},
    kit::{Stopwatch, processor_seconds, seconds},
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "interrupts",
    question: "What does a packet cost from the link's thread through an empty protocol on another core, one per wake-up and in bursts, awake and asleep, and what does looking for nothing cost?",
    prediction: "Receiver awake, one burst after the other: 200 ns for a packet on its own (two ways of 70 ns and the work), 20 to 25 ns each in bursts of 32. Receiver asleep, processor time of both sides: 3 to 5 us \
        for one packet, 130 ns each in bursts of 32, nearly all of it the wake-up. Ringing for every packet instead of once a burst adds a fence, 10 to 20 ns each. An empty turn of a core's whole loop: 15 to 25 ns.",
    run: |experiment, options| report(experiment, options, rows),
};

/// Packets on their way, at most.
const CAPACITY: usize = 256;
const BUFFERS: usize = 1024;
const SIZE: usize = 2048;
/// Bytes of a packet that the link writes and the protocol reads: its headers.
const HEADERS: usize = 64;
/// So long the link leaves the receiver alone to fall asleep.
const ASLEEP_AFTER: f64 = 30e-6;

/// Headers that say which packet it is.
fn headers(number: u64) -> [u8; HEADERS] {
    let mut bytes = [0; HEADERS];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// What the empty protocol does with a packet: it reads the headers. The sum of their words.
fn protocol(packet: &[u8]) -> u64 {
    let words = packet[..HEADERS].chunks_exact(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    words.fold(0, |sum, bytes| sum.wrapping_add(word(bytes)))
}

/// A way for packets from the link to the protocol.
trait Way {
    /// The link's end.
    type Tx: Send;
    /// The protocol's end.
    type Rx: Send;
    fn open() -> Result<(Self::Tx, Self::Rx), LabError>;
    /// Sends packets `first` to `first + n`, and rings once, or for `each`.
    fn send(tx: &mut Self::Tx, first: u64, n: usize, each: bool);
    /// Takes and handles what is there: how many, and the sum of what the protocol read.
    fn take(rx: &mut Self::Rx, sum: &mut u64) -> usize;
    /// Sleeps until something is there; may take and handle it.
    fn sleep(rx: &mut Self::Rx, sum: &mut u64) -> usize;
}

/// A slab, a ring and a doorbell.
struct Ours;

struct OurTx {
    slab: Slab,
    ring: Producer<Buffer>,
    bell: Arc<Doorbell>,
}

struct OurRx {
    ring: Consumer<Buffer>,
    bell: Arc<Doorbell>,
}

impl Way for Ours {
    type Tx = OurTx;
    type Rx = OurRx;

    fn open() -> Result<(OurTx, OurRx), LabError> {
        let (slab, bell) = (Slab::new(BUFFERS, SIZE)?, Arc::new(Doorbell::new()?));
        let (tx, rx) = ring(CAPACITY);
        let tx = OurTx {
            slab,
            ring: tx,
            bell: bell.clone(),
        };
        Ok((tx, OurRx { ring: rx, bell }))
    }

    fn send(tx: &mut OurTx, first: u64, n: usize, each: bool) {
        let OurTx { slab, ring, bell } = tx;
        let packets = (first..).take(n).map_while(|number| {
            let mut buffer = slab.alloc()?;
            buffer[..HEADERS].copy_from_slice(&headers(number));
            Some(buffer)
        });
        if each {
            for packet in packets {
                assert!(ring.push(packet).is_ok(), "room for a burst");
                bell.ring();
            }
        } else {
            assert_eq!(ring.push_iter(packets), n, "room for a burst");
            bell.ring();
        }
    }

    fn take(rx: &mut OurRx, sum: &mut u64) -> usize {
        let handle = |packet: Buffer| *sum = sum.wrapping_add(protocol(&packet));
        rx.ring.pop_batch(CAPACITY, handle)
    }

    fn sleep(rx: &mut OurRx, _sum: &mut u64) -> usize {
        rx.bell.arm(Sleep::Futex);
        if rx.ring.is_empty() {
            rx.bell.wait(None);
        }
        rx.bell.disarm();
        0
    }
}

/// What one would write without percore: memory from malloc through crossbeam's channel.
struct Crossbeam;

impl Way for Crossbeam {
    type Tx = crossbeam_channel::Sender<Vec<u8>>;
    type Rx = crossbeam_channel::Receiver<Vec<u8>>;

    fn open() -> Result<(Self::Tx, Self::Rx), LabError> {
        Ok(crossbeam_channel::bounded(CAPACITY))
    }

    fn send(tx: &mut Self::Tx, first: u64, n: usize, _each: bool) {
        for number in (first..).take(n) {
            let mut packet = Vec::with_capacity(SIZE); // not zeroed
            packet.extend_from_slice(&headers(number));
            assert!(tx.try_send(packet).is_ok(), "room for a burst");
        }
    }

    fn take(rx: &mut Self::Rx, sum: &mut u64) -> usize {
        let handle = |packet: Vec<u8>| *sum = sum.wrapping_add(protocol(&packet));
        rx.try_iter().map(handle).count()
    }

    fn sleep(rx: &mut Self::Rx, sum: &mut u64) -> usize {
        let packet = rx.recv();
        packet.map_or(0, |packet| {
            *sum = sum.wrapping_add(protocol(&packet));
            1
        })
    }
}

/// How packets come.
#[derive(Clone, Copy)]
struct Terms {
    cores: [usize; 2],
    /// Packets in a burst.
    burst: usize,
    bursts: usize,
    /// The receiver sleeps between bursts.
    asleep: bool,
    /// The doorbell is rung for each packet.
    each: bool,
}

/// Bursts, one after the other: the next one when the protocol is through with the last. Nanoseconds for each packet: while the receiver is awake, of
/// the wall clock; where it sleeps, of processor time, the link's and the protocol's together.
fn bursts<W: Way>(bench: &Bench, terms: Terms) -> Result<f64, LabError> {
    let (mut tx, mut rx) = W::open()?;
    let packets = terms.burst * terms.bursts;
    let (handled, sent_ns) = (AtomicUsize::new(0), AtomicU64::new(0));
    let link = || {
        let (all, mut sending) = (Stopwatch::start(), 0.0);
        for i in 0..terms.bursts {
            if terms.asleep {
                let pause = Stopwatch::start();
                while pause.seconds() < ASLEEP_AFTER {
                    spin_loop();
                }
            }
            let first = i * terms.burst;
            let mut send = || W::send(&mut tx, first as u64, terms.burst, terms.each); // widening
            // Reading the clock is part of neither figure where no thread sleeps.
            if terms.asleep {
                sending += seconds(send);
            } else {
                send();
            }
            // pairs with Release in `receive`
            while handled.load(Ordering::Acquire) < first + terms.burst {
                spin_loop();
            }
        }
        let took = if terms.asleep { sending } else { all.seconds() };
        sent_ns.store(took.to_bits(), Ordering::Relaxed); // ordered by the join
    };
    let protocol = || receive::<W>(&mut rx, terms, packets, &handled);
    let processor = bench.together(terms.cores, protocol, link);
    let link = f64::from_bits(sent_ns.load(Ordering::Relaxed));
    let seconds = if terms.asleep { link + processor } else { link };
    Ok(per_operation(seconds, packets))
}

/// The receiving side until all packets came; its processor time.
fn receive<W: Way>(rx: &mut W::Rx, terms: Terms, packets: usize, handled: &AtomicUsize) -> f64 {
    let (begin, mut sum, mut count) = (processor_seconds(), 0, 0);
    while count < packets {
        let mut came = W::take(rx, &mut sum);
        if came == 0 {
            if terms.asleep {
                came = W::sleep(rx, &mut sum);
            } else {
                spin_loop();
            }
        }
        count += came;
        if came > 0 {
            handled.store(count, Ordering::Release); // pairs with Acquire in the link
        }
    }
    let numbers = (0..packets as u64).fold(0, u64::wrapping_add); // widening
    let words = HEADERS as u64 / 8;
    assert_eq!(sum, numbers.wrapping_mul(words), "every packet, whole");
    processor_seconds() - begin
}

/// An empty turn of a core's whole loop (its messages, its timers, its tasks and one ring of a link), without the pause of a loop
/// that waits and with it; and a look at the ring alone.
fn empty_polls(bench: &Bench) -> Result<[Row; 3], LabError> {
    const TURN: &str = "turn";
    const PAUSED: &str = "turn and pause";
    const RING: &str = "ring";
    let n = bench.work;
    let (_tx, mut rx) = ring::<Buffer>(CAPACITY);
    let scores = bench.contest(vec![
        Player::own(TURN, || empty_turns(bench, n, 1)),
        Player::own(PAUSED, || empty_turns(bench, n, 0)),
        Player::own(RING, || {
            bench.repeat(n, || black_box(&mut rx).pop_batch(CAPACITY, drop))
        }),
    ]);
    let row = scores.bare_row("empty_poll_ns", TURN);
    Ok([
        row.reference("300 (D6)").target("<= 25"),
        scores.bare_row("empty_poll_and_pause_ns", PAUSED),
        scores.bare_row("empty_ring_poll_ns", RING),
    ])
}

/// `n` turns; `pretended` is what the source says it did beside what it found: with more than nothing the loop goes on without a pause.
fn empty_turns(bench: &Bench, n: usize, pretended: usize) -> f64 {
    let settings = Settings {
        idle: Idle::Spin,
        ..Settings::default()
    };
    // Of two cores: there are messages to look for. The bench cannot do without; a machine has descriptors for two eventfds.
    let (mut loops, _watch) = machine::<()>(2, &settings).expect("eventfds");
    let (core_loop, (_tx, mut rx)) = (loops.swap_remove(0), ring::<Buffer>(CAPACITY));
    let start = move |core: &Core<()>| {
        let mut turns = 0;
        core.add_source(move |core, max| {
            turns += 1;
            if turns == n {
                core.stop();
            }
            pretended + rx.pop_batch(max, drop)
        });
    };
    bench.time(n, || core_loop.run(start, |_, _, ()| ()))
}

const OURS: &str = "ours";
const EACH: &str = "rung for each";

/// The rows of bursts of one size, awake and asleep.
fn burst_rows(bench: &Bench, cores: [usize; 2], burst: usize) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for asleep in [false, true] {
        let bursts_in_all = if asleep {
            (bench.work / 1000).clamp(3, 100)
        } else {
            (bench.work / burst / 8).clamp(3, (bench.work / 40).max(3))
        };
        let terms = Terms {
            cores,
            burst,
            bursts: bursts_in_all,
            asleep,
            each: false,
        };
        let each = Terms {
            each: true,
            ..terms
        };
        // What fails, fails in the first turn already.
        bursts::<Ours>(bench, Terms { bursts: 1, ..terms })?;
        let figure = |result: Result<f64, LabError>| result.unwrap_or(f64::INFINITY);
        let scores = bench.contest(vec![
            Player::own(OURS, || figure(bursts::<Ours>(bench, terms))),
            Player::own(EACH, || figure(bursts::<Ours>(bench, each))),
            Player::peer("malloc, crossbeam channel", || {
                figure(bursts::<Crossbeam>(bench, terms))
            }),
        ]);
        let state = if asleep { "_asleep" } else { "" };
        let row = scores.row(&format!("burst{burst}{state}_per_packet_ns"), OURS);
        rows.push(with_targets(row, burst, asleep));
        if burst == 32 {
            rows.push(scores.row(&format!("burst32{state}_rung_each_per_packet_ns"), EACH));
        }
    }
    Ok(rows)
}

/// With what the issue asks for.
fn with_targets(row: Row, burst: usize, asleep: bool) -> Row {
    let row = match burst {
        1 => row.reference("2500 (D6)"),
        _ => row.reference("1260 (D6)"),
    };
    match (burst, asleep) {
        (32, false) => row.target("<= 40"),
        _ => row,
    }
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    if let Some(cores) = bench.two {
        for burst in [32, 1, 2, 4, 8, 16, 64] {
            rows.extend(burst_rows(bench, cores, burst)?);
        }
        rows.extend(doorbell::asleep(bench, cores)?);
        rows.extend(moderation::rows(bench, cores)?);
    }
    rows.extend(doorbell::awake(bench)?);
    rows.extend(empty_polls(bench)?);
    Ok(rows)
}
