//! Streams: on each lane a generator writes, in bursts at fixed moments or as fast as it may, and a reader reads. Figures from the end of the warm-up to the last byte.

use std::{
    any::Any,
    hint::black_box,
    io::{self, ErrorKind, Read, Write},
    sync::Barrier,
    thread,
};

use hdrhistogram::Histogram;
use netchan::Net;
use percore::operations;

use super::{
    job::{Disturbance, Job, Look, Outcome, Pace},
    pace::{Metronome, now_ns},
    place,
    preempter::Preempter,
    role::{APPLICATION, GENERATOR},
    usage::{Reading, receiving_threads},
};
use crate::{
    kit::{Stopwatch, processor_seconds},
    system_calls,
};

/// Text of a full segment of 1500 bytes with time stamps.
pub(super) const SEGMENT: usize = 1448;
/// Bytes that are written at a time as fast as the receiver lets them, and that the reader asks for.
const BLOCK: usize = 64 << 10;

/// Where all threads of a run meet: each rests while the clocks are read.
struct Gate {
    ready: Barrier,
    go: Barrier,
    done: Barrier,
    leave: Barrier,
}

impl Gate {
    fn of(threads: usize) -> Self {
        let barrier = || Barrier::new(threads);
        Self {
            ready: barrier(),
            go: barrier(),
            done: barrier(),
            leave: barrier(),
        }
    }

    /// A thread's part: `prepare`, and when all are ready, `work`. One that fails goes through all gates, so that no other waits for it forever.
    fn pass<T, R>(
        &self,
        prepare: impl FnOnce() -> io::Result<T>,
        work: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let prepared = prepare();
        self.ready.wait();
        self.go.wait();
        let mut kept = None;
        let worked = prepared.and_then(|it| work(kept.insert(it)));
        if worked.is_err() {
            kept = None; // so the other end learns of it
        }
        self.done.wait();
        self.leave.wait();
        drop(kept);
        worked
    }
}

/// What a reader adds to the outcome.
struct Taken {
    /// Processor time for what is not the stream's.
    walked_seconds: f64,
    latency: Option<Histogram<u64>>,
}

/// Runs `lanes` of them; `connect` and `accept` make the ends of a lane; `turn` has the generator's stack take in what has come, where no thread of
/// its own does.
///
/// # Errors
/// The first thread's that failed.
pub(super) fn stream<C: Read + Write, S: Read + Write>(
    job: &Job,
    (packets, pace): (usize, Pace),
    (lanes, net): (usize, Option<&Net>),
    connect: impl Fn(usize) -> io::Result<C> + Sync,
    accept: impl Fn(usize) -> io::Result<S> + Sync,
    turn: impl Fn(usize) + Sync,
) -> io::Result<Outcome> {
    let gate = &Gate::of(2 * lanes + 1);
    let measured = Lane {
        packets,
        pace,
        spins: place::generator_is_alone(job),
        stamps: job.stamps,
    };
    let warm_up = Lane {
        packets: (packets / 8).max(pace.burst),
        ..measured
    };
    let (connect, accept, turn) = (&connect, &accept, &turn);
    let preempter = &Preempter::default();
    let mut outcome = thread::scope(|scope| {
        let generate = move |lane| {
            operations::leave_out_this_thread();
            let prepare = || {
                let mut stream = connect(lane)?;
                warm_up.pour(&mut stream, &|| turn(lane))?;
                Ok(stream)
            };
            gate.pass(prepare, |stream| {
                let begin = processor_seconds();
                measured.pour(stream, &|| turn(lane))?;
                Ok(processor_seconds() - begin)
            })
        };
        let read = move |lane| {
            let prepare = || {
                let mut stream = accept(lane)?;
                warm_up.drain(&mut stream, job.disturbance)?;
                Ok(stream)
            };
            gate.pass(prepare, |stream| measured.drain(stream, job.disturbance))
        };
        let mut threads = (Vec::new(), Vec::new());
        for lane in 0..lanes {
            let named = |name: &str| thread::Builder::new().name(format!("{name}{lane}"));
            threads
                .0
                .push(named(GENERATOR).spawn_scoped(scope, move || generate(lane))?);
            threads
                .1
                .push(named(APPLICATION).spawn_scoped(scope, move || read(lane))?);
        }
        let preempts = preempter.start(scope, job)?;
        place::pin(job)?;
        let measured = measure(job, net, gate, preempter);
        preempter.stop();
        let ended = (ended(threads.0)?, ended(threads.1)?);
        preempts.map_or(Ok(()), |thread| thread.join().map_err(died))?;
        Ok::<_, io::Error>(settled(measured?, &ended.0, &ended.1))
    })?;
    #[allow(clippy::cast_precision_loss)] // below 2^52
    let packets = (lanes * packets) as f64;
    #[allow(clippy::cast_precision_loss)] // as above
    let segment = SEGMENT as f64;
    outcome.bytes = packets * segment;
    // The kernel counts for all its connections, and over loopback both ends are the receiver's.
    if net.is_none() || job.links == 0 {
        outcome.packets = packets;
    }
    Ok(outcome)
}

fn died(_: Box<dyn Any + Send>) -> io::Error {
    io::Error::other("a thread panicked")
}

/// What threads came to.
fn ended<T>(threads: Vec<thread::ScopedJoinHandle<'_, io::Result<T>>>) -> io::Result<Vec<T>> {
    let join = |thread: thread::ScopedJoinHandle<'_, io::Result<T>>| thread.join().map_err(died)?;
    threads.into_iter().map(join).collect()
}

/// The outcome without the processor time of generators and of reading beside the stream, with what the readers saw.
fn settled(mut outcome: Outcome, generators: &[f64], readers: &[Taken]) -> Outcome {
    outcome.generator_seconds = generators.iter().sum();
    let walked: f64 = readers.iter().map(|read| read.walked_seconds).sum();
    outcome.processor_seconds -= outcome.generator_seconds + walked;
    let latencies = readers.iter().filter_map(|read| read.latency.as_ref());
    let mut all = latencies.filter(|latency| !latency.is_empty());
    outcome.latency_ns = all.next().map(|latency| {
        #[allow(clippy::cast_precision_loss)] // seconds at most
        [0.5, 0.99].map(|q| latency.value_at_quantile(q) as f64)
    });
    outcome
}

/// The part of the thread that reads the clocks; the preempter's time is left out.
fn measure(
    job: &Job,
    net: Option<&Net>,
    gate: &Gate,
    preempter: &Preempter,
) -> io::Result<Outcome> {
    gate.ready.wait();
    // Protocol threads may have come with the connection.
    let pinned = place::pin(job);
    let counting = (job.look == Look::Calls).then(|| -> Result<_, String> {
        let threads = receiving_threads().map_err(|e| e.to_string())?;
        system_calls::Counting::of_threads(&threads)
    });
    let before = (Reading::now(net), preempter.spent());
    let watch = Stopwatch::start();
    gate.go.wait();
    gate.done.wait();
    let seconds = watch.seconds();
    let after = (Reading::now(net), preempter.spent());
    let calls = counting.map(|counting| counting.and_then(system_calls::Counting::total));
    gate.leave.wait();
    pinned?;
    let mut outcome = after.0?.since(&before.0?);
    outcome.processor_seconds -= after.1 - before.1;
    outcome.seconds = seconds;
    if let Some(calls) = calls {
        outcome.system_calls = Some(calls.map_err(io::Error::other)?);
    }
    Ok(outcome)
}

/// What goes over a lane.
#[derive(Clone, Copy)]
struct Lane {
    packets: usize,
    pace: Pace,
    spins: bool,
    stamps: bool,
}

impl Lane {
    /// Bytes that are written at once.
    const fn block(self) -> usize {
        match self.pace.burst {
            0 => BLOCK,
            packets => packets * SEGMENT,
        }
    }

    /// Writes it all, and waits for the reader's word that it has it: meanwhile the generator's stack is turned.
    fn pour(self, stream: &mut (impl Read + Write), turn: &dyn Fn()) -> io::Result<()> {
        let (mut left, mut block) = (self.packets * SEGMENT, vec![0x5a; self.block()]);
        let mut metronome = Metronome::start(self.pace, self.spins);
        while left > 0 {
            let n = left.min(block.len());
            metronome.wait();
            // Its writes look for acknowledgments every 100 us only: here they are as late as the burst before, at any rate.
            turn();
            if self.stamps {
                block[..8].copy_from_slice(&now_ns().to_ne_bytes());
            }
            stream.write_all(&block[..n])?;
            left -= n;
        }
        stream.read_exact(&mut [0])
    }

    /// Reads it all, and says so.
    fn drain(
        self,
        stream: &mut (impl Read + Write),
        disturbance: Disturbance,
    ) -> io::Result<Taken> {
        let total = self.packets * SEGMENT;
        let (mut done, mut block) = (0, vec![0; BLOCK]);
        let mut read = Taken {
            walked_seconds: 0.0,
            latency: self.stamps.then(latencies),
        };
        let mut other = match disturbance {
            Disturbance::ColdCaches { bytes } => vec![0_u8; bytes],
            _ => Vec::new(),
        };
        while done < total {
            if let Some(latency) = &mut read.latency {
                let (first, rest) = block[..SEGMENT].split_at_mut(8);
                stream.read_exact(first)?;
                stream.read_exact(rest)?;
                let wrote = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| first[i]));
                // What is above the histogram's range is at its end.
                latency.saturating_record(now_ns().saturating_sub(wrote));
                done += SEGMENT;
            } else {
                let most = (total - done).min(block.len());
                match stream.read(&mut block[..most])? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    n => done += n,
                }
            }
            if !other.is_empty() && done % self.block() == 0 {
                read.walked_seconds += walk(&mut other);
            }
        }
        stream.write_all(&[0])?;
        Ok(read)
    }
}

/// From 1 ns to 10 s, three digits.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds and digits are allowed")
}

/// Writes to each line of it; how much processor time that took.
fn walk(memory: &mut [u8]) -> f64 {
    let begin = processor_seconds();
    memory
        .iter_mut()
        .step_by(64)
        .for_each(|byte| *byte = byte.wrapping_add(1));
    black_box(memory);
    processor_seconds() - begin
}
