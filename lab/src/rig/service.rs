//! Requests and responses: a thread for each client, and one for each of its connections at the server; all begin together.

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::Barrier,
    thread,
};

use netchan::Net;
use percore::counter::{Atomic, Batched, Flip};

use super::{
    job::{Counter, Job, Outcome},
    place,
    role::APPLICATION,
    usage::Reading,
};
use crate::kit::Stopwatch;

/// Bytes of a request, and of a response.
const MESSAGE: usize = 64;
/// What a slot of N2 holds back.
pub(crate) const BATCH: u64 = 64;

/// The counter that a server adds to.
enum Counted {
    Nothing,
    Atomic(Atomic, u32),
    Batched(Batched, u32),
    Flip(Flip<1>, u32),
}

impl Counted {
    fn new(counter: Counter, slots: usize) -> Self {
        match counter {
            Counter::None => Self::Nothing,
            Counter::Atomic(times) => Self::Atomic(Atomic::new(), times),
            Counter::Batched(times) => Self::Batched(Batched::new(slots, BATCH), times),
            Counter::Flip(times) => Self::Flip(Flip::new(slots), times),
        }
    }

    /// A request has come to the thread of a slot.
    fn request(&self, slot: usize) {
        match self {
            Self::Nothing => {}
            Self::Atomic(counter, times) => (0..*times).for_each(|_| counter.add(1)),
            Self::Batched(counter, times) => (0..*times).for_each(|_| counter.add(slot, 1)),
            Self::Flip(counter, times) => (0..*times).for_each(|_| counter.add(slot, 0, 1)),
        }
    }

    /// Requests that it knows of; `None` where nothing is counted.
    fn requests(&self) -> Option<u64> {
        let (total, times) = match self {
            Self::Nothing => return None,
            Self::Atomic(counter, times) => (counter.read(), *times),
            Self::Batched(counter, times) => (u64::try_from(counter.sum()).unwrap_or(0), *times),
            Self::Flip(counter, times) => (counter.read()[0], *times),
        };
        Some(total / u64::from(times.max(1)))
    }
}

/// Runs it; `connect` and `accept` make the ends of a connection.
///
/// # Errors
/// A connection's, or a counter that lost a request.
pub(super) fn service<C: Read + Write, S: Read + Write + Send>(
    job: &Job,
    (clients, transactions): (usize, usize),
    net: Option<&Net>,
    connect: impl Fn() -> io::Result<C> + Sync,
    accept: impl Fn() -> io::Result<S>,
) -> io::Result<Outcome> {
    let start = Barrier::new(clients + 1);
    let counted = Counted::new(job.counter, clients);
    let outcome = thread::scope(|scope| {
        let (connect, start, counted) = (&connect, &start, &counted);
        let call = move || -> io::Result<()> {
            let stream = connect().and_then(|mut stream| {
                // Once, so that everything there is to be made is made.
                transact(&mut stream, 1)?;
                Ok(stream)
            });
            start.wait();
            start.wait();
            transact(&mut stream?, transactions)
        };
        let callers: Vec<_> = (0..clients).map(|_| scope.spawn(call)).collect();
        for slot in 0..clients {
            let mut stream = accept()?;
            let serve = move || {
                let mut message = [0; MESSAGE];
                // It ends with its client.
                while stream.read_exact(&mut message).is_ok() {
                    counted.request(slot);
                    if stream.write_all(&message).is_err() {
                        break;
                    }
                }
            };
            let named = thread::Builder::new().name(format!("{APPLICATION}{slot}"));
            named.spawn_scoped(scope, serve)?;
        }
        start.wait();
        place::pin(job)?;
        let before = Reading::now(net)?;
        let watch = Stopwatch::start();
        start.wait();
        for caller in callers {
            caller.join().map_err(|_| ErrorKind::Other)??;
        }
        let seconds = watch.seconds();
        #[allow(clippy::cast_precision_loss)] // thousands
        Ok::<_, io::Error>(Outcome {
            seconds,
            transactions: (clients * transactions) as f64,
            ..Reading::now(net)?.since(&before)
        })
    })?;
    let asked = (clients * (transactions + 1)) as u64;
    match counted.requests() {
        Some(known) if known != asked => Err(io::Error::other(format!(
            "the counter knows {known} of {asked} requests"
        ))),
        _ => Ok(outcome),
    }
}

fn transact(stream: &mut (impl Read + Write), times: usize) -> io::Result<()> {
    let mut message = [7; MESSAGE];
    for _ in 0..times {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
    }
    Ok(())
}
