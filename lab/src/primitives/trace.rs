//! Experiment `trace` (D8): an event of the trace beside reading the cycle counter, and how far the cores' counters are apart.

use std::{cell::RefCell, hint::black_box};

use percore::{
    clock,
    trace::{self, Event, Offset, Writer},
};

use super::{Bench, Player, report};
use crate::{
    experiment::{Experiment, LabError},
    kit::Sample,
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "trace",
    question: "What does a trace event cost with and without arguments, on and off, how much of it is reading the cycle counter, and how far are the cores' counters apart?",
    prediction: "rdtsc 8 to 10 ns under a hypervisor. An event one rdtsc and 1 to 2 ns, since its stores overlap with the wait for the stamp; four arguments 0.5 ns more; switched off below 1 ns. \
        The same words stored without a sequence lock save less than 1 ns. The offset between the cores' counters is within the error of the measurement (30 to 60 ns).",
    run: |experiment, options| report(experiment, options, rows),
};

const BARE: Event<0> = Event::new(0, "bare", "no arguments");
const FULL: Event<4> = Event::new(1, "full", "{a} {b} {c} {d}");
/// As large a ring as one would use, so that its cache misses are in the cost.
const RECORDS: usize = 4096;

const THREADS: &str = "the thread's trace";
const WRITER: &str = "a writer at hand";
const OFF: &str = "off";
const STAMP: &str = "rdtsc";
const STORES: &str = "rdtsc and bare stores";
const INSTANT: &str = "std Instant";

fn args() -> [u64; 4] {
    black_box([1, 2, 3, 4])
}

/// Events with `N` arguments, made by `args`.
fn contest<const N: usize>(
    bench: &Bench,
    event: Event<N>,
    args: impl Fn() -> [u64; N] + Copy,
) -> super::Scores {
    let n = bench.work;
    let writer = Writer::new(RECORDS);
    let thread = RefCell::new(Some(Writer::new(RECORDS)));
    let stores = stores(bench, args);
    bench.contest(vec![
        // Attached for its turn only: the same calls are without a trace in another's.
        Player::own(THREADS, || {
            let attached = trace::attach(thread.take().unwrap_or_else(|| Writer::new(RECORDS)));
            let each = bench.repeat(n, || trace::event(event, args()));
            drop(attached);
            each
        }),
        Player::own(WRITER, || {
            bench.repeat(n, || black_box(&writer).event(event, args()))
        }),
        Player::own(OFF, || bench.repeat(n, || trace::event(event, args()))),
        Player::own(STAMP, || bench.repeat(n, clock::cycles)),
        Player::peer(STORES, stores),
    ])
}

/// Writes as many cache lines with a stamp and the arguments, in a form that cannot be read while it is written.
fn stores<const N: usize>(bench: &Bench, args: impl Fn() -> [u64; N]) -> impl FnMut() -> f64 {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; 8]);
    let mut lines = vec![Line([0; 8]); RECORDS];
    let mut next = 0;
    move || {
        bench.repeat(bench.work, || {
            let line = &mut black_box(&mut lines)[next % RECORDS].0;
            line[0] = next as u64; // widening: usize to u64
            line[1] = clock::cycles();
            line[2..2 + N].copy_from_slice(&args());
            next += 1;
        })
    }
}

/// What the counter says beside other clocks.
fn clocks(bench: &Bench) -> [Row; 2] {
    let n = bench.work;
    let scores = bench.contest(vec![
        Player::own(STAMP, || bench.repeat(n, clock::cycles)),
        Player::own("now", || bench.repeat(n, clock::now_ns)),
        Player::peer(INSTANT, || bench.repeat(n, instant)),
    ]);
    [
        scores.row("rdtsc_ns", STAMP),
        scores.row("now_ns_ns", "now"),
    ]
}

#[allow(clippy::disallowed_methods)] // it is what we compare with
fn instant() -> std::time::Instant {
    std::time::Instant::now()
}

/// How far the second core's counter is ahead of the first one's, and how far off that figure may be.
fn offset(cores: [usize; 2]) -> Result<[Row; 2], LabError> {
    let [here, there] = cores;
    let ns_per_cycle = 1e9 / count(clock::hz());
    let measured = (0..5).map(|_| Offset::measure(here, there));
    let measured = measured.collect::<Result<Vec<_>, _>>()?;
    let sample = |of: &dyn Fn(&Offset) -> f64| {
        Sample::of(measured.iter().map(|o| of(o) * ns_per_cycle).collect())
    };
    let offset = sample(&|o| {
        let ahead = count(o.cycles.unsigned_abs());
        if o.cycles < 0 { -ahead } else { ahead }
    });
    let error = sample(&|o| count(o.error_max_cycles));
    Ok([
        Row::new("clock_offset_ns", &offset)
            .reference("122 (D8)")
            .target("within its error"),
        Row::new("clock_offset_error_max_ns", &error),
    ])
}

#[allow(clippy::cast_precision_loss)] // rates and offsets are far below 2^52
const fn count(n: u64) -> f64 {
    n as f64
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let bare = contest(bench, BARE, || []);
    let full = contest(bench, FULL, args);
    let mut rows = vec![
        bare.row("event_ns", THREADS)
            .reference("40 (D8)")
            .target("<= rdtsc_ns + 3"),
        full.row("event_args_ns", THREADS)
            .reference("40 (D8)")
            .target("<= rdtsc_ns + 6"),
        bare.row("event_writer_ns", WRITER),
        full.row("event_args_writer_ns", WRITER),
        bare.bare_row("event_off_ns", OFF),
        full.bare_row("event_args_off_ns", OFF),
    ];
    rows.extend(clocks(bench));
    if let Some(cores) = bench.two {
        rows.extend(offset(cores)?);
    }
    Ok(rows)
}
