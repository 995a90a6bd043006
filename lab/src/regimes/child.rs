//! One job of `regimes` in a process of its own: the stream or the service, in one regime, on the cores it is told. Prints one JSON object.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Barrier,
    thread,
};

use netchan::{
    Dispatch, Net, Regime, Threads,
    link::wire,
    trace::stages::{self, COUNT},
};
use percore::operations;
use rustix::{
    net::sockopt::set_tcp_congestion,
    process::{Signal, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

use crate::{
    LabError,
    kit::{Stopwatch, process_seconds, processor_seconds},
};

/// The stack that carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// netchan: a place in [`Regime::ALL`], shards (0: the regime's own choice), and how work is dispatched (a place in [`DISPATCHES`]).
    Netchan {
        regime: usize,
        shards: usize,
        dispatch: usize,
    },
    /// The kernel's own stack, over loopback.
    Linux,
}

/// In the order of a carrier's number.
pub(crate) const DISPATCHES: [Dispatch; 3] =
    [Dispatch::Direct, Dispatch::Deferred, Dispatch::Hybrid];

/// What to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// So many bytes from a generator to one reader, after a warm-up of an eighth of them.
    Stream { bytes: usize },
    /// So many requests and responses of each of so many clients.
    Service { clients: usize, transactions: usize },
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub carrier: Carrier,
    pub work: Work,
    /// The cores that the process may use.
    pub cores: Vec<usize>,
    /// Whether to account by stage: then the times say nothing.
    pub stages: bool,
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// From the first byte to the last.
    pub seconds: f64,
    /// Processor time of all threads meanwhile but the generator's.
    pub processor_seconds: f64,
    /// The generator's.
    pub generator_seconds: f64,
    /// Packets that came in at the receiver; where there are none (the kernel's), full segments that the bytes would fill.
    pub packets: f64,
    /// Requests answered.
    pub transactions: f64,
    /// Nanoseconds by stage, of all threads but the generator.
    pub stages_ns: [u64; COUNT],
    /// What `percore::operations` counted, without the generator; zero in a build that does not count.
    pub operations: [u64; operations::COUNT],
    /// The build does not have this: why.
    pub absent: Option<String>,
}

/// Bytes of a request, and of a response.
const MESSAGE: usize = 64;
/// Bytes the reader asks for at a time.
const BLOCK: usize = 64 << 10;
/// Text of a full segment of 1500 bytes with time stamps.
const SEGMENT: f64 = 1448.0;

/// Does the job in `text` (JSON), and returns what it came to (JSON).
///
/// # Errors
/// What went wrong, in words.
pub fn child(text: &str) -> Result<String, LabError> {
    let failed = |e: serde_json::Error| LabError::Failed(e.to_string());
    let job: Job = serde_json::from_str(text).map_err(failed)?;
    // The parent ends this process in time; if the parent ends first, this must not go on alone.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut set = CpuSet::new();
    job.cores.iter().for_each(|&core| set.set(core));
    sched_setaffinity(None, &set).map_err(io::Error::from)?;
    serde_json::to_string(&perform(&job)?).map_err(failed)
}

/// Does a job in this process.
pub(crate) fn perform(job: &Job) -> io::Result<Outcome> {
    let Carrier::Netchan { .. } = job.carrier else {
        return linux(job.work);
    };
    let done = match job.work {
        Work::Stream { bytes } => netchan_stream(job, bytes),
        Work::Service {
            clients,
            transactions,
        } => netchan_service(job, clients, transactions),
    };
    match done {
        // What a builder refuses in every run is not there.
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(Outcome {
            absent: Some(e.to_string()),
            ..Outcome::default()
        }),
        other => other,
    }
}

const CLIENT: &str = "10.0.0.1/24";
const SERVER: &str = "10.0.0.2/24";
const PORT: u16 = 80;

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], PORT))
}

/// A stack of the carrier's regime at one end of a wire.
fn stack(carrier: Carrier, link: wire::Wire, address: &str) -> io::Result<Net> {
    let Carrier::Netchan {
        regime,
        shards,
        dispatch,
    } = carrier
    else {
        return Err(ErrorKind::Unsupported.into());
    };
    let builder = Net::builder()
        .link_with(Box::new(link))
        .address(address)?
        .regime(Regime::ALL[regime.min(Regime::ALL.len() - 1)])
        .dispatch(DISPATCHES[dispatch.min(DISPATCHES.len() - 1)]);
    if shards > 0 {
        builder.shards(shards).start()
    } else {
        builder.start()
    }
}

/// Segments that a stack took in so far.
fn segments(net: &Net) -> f64 {
    let rows = net.show("counters").unwrap_or_default();
    let rows = rows.as_array().into_iter().flatten();
    let mut found = rows.filter(|row| row["name"] == "tcp_segments_in");
    found
        .next()
        .and_then(|row| row["value"].as_f64())
        .unwrap_or(0.0)
}

fn netchan_stream(job: &Job, bytes: usize) -> io::Result<Outcome> {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let receiver = stack(job.carrier, theirs, SERVER)?;
    // The generator is one thread, which does everything of its stack: what it costs can be told apart.
    let generator = Net::builder().link_with(Box::new(ours)).address(CLIENT)?;
    let generator = generator.threads(Threads::Caller).start()?;
    let listener = receiver.tcp().listen(server().to_string())?;
    stages::switch(job.stages);
    let connect = || generator.tcp().connect(server());
    let look = || Look {
        packets: segments(&receiver),
        stages: spent(),
        operations: operations::read(),
    };
    stream(bytes, connect, || Ok(listener.accept()?.0), look)
}

/// What there is to count at one moment.
#[derive(Clone, Copy, Default)]
struct Look {
    packets: f64,
    stages: [u64; COUNT],
    operations: [u64; operations::COUNT],
}

/// One reader and one generator; figures from the end of the warm-up to the last byte.
fn stream<C: Read + Write, S: Read + Write>(
    bytes: usize,
    connect: impl FnOnce() -> io::Result<C> + Send,
    accept: impl FnOnce() -> io::Result<S>,
    look: impl Fn() -> Look,
) -> io::Result<Outcome> {
    let warm_up = bytes / 8;
    // Both rest between warm-up and measurement, so that each reads its clocks at a quiet moment.
    let quiet = Barrier::new(2);
    thread::scope(|scope| {
        let generate = || -> io::Result<f64> {
            operations::leave_out_this_thread();
            let (mut stream, block) = (connect()?, vec![0x5a; BLOCK]);
            pour(&mut stream, &block, warm_up)?;
            quiet.wait();
            let begin = processor_seconds();
            pour(&mut stream, &block, bytes)?;
            let took = processor_seconds() - begin;
            // Until the reader has read its clocks: a process that ends early takes its stack along.
            quiet.wait();
            Ok(took)
        };
        let named = thread::Builder::new().name(GENERATOR.to_owned());
        let generator = named.spawn_scoped(scope, generate)?;
        let (mut stream, mut block) = (accept()?, vec![0; BLOCK]);
        drain(&mut stream, &mut block, warm_up)?;
        // While the generator waits: once it is let go, it does not wait for us to look at our clocks.
        let before = look();
        let (watch, processor) = (Stopwatch::start(), process_seconds());
        quiet.wait();
        drain(&mut stream, &mut block, bytes)?;
        let (seconds, processor) = (watch.seconds(), process_seconds() - processor);
        let after = look();
        quiet.wait();
        let generator = generator.join().map_err(|_| ErrorKind::Other)??;
        Ok(Outcome {
            seconds,
            processor_seconds: processor - generator,
            generator_seconds: generator,
            packets: after.packets - before.packets,
            stages_ns: std::array::from_fn(|i| after.stages[i].saturating_sub(before.stages[i])),
            operations: std::array::from_fn(|i| after.operations[i] - before.operations[i]),
            ..Outcome::default()
        })
    })
}

/// Writes so many bytes, and waits for the reader's word that it has them: meanwhile the generator's stack is turned.
fn pour(stream: &mut (impl Read + Write), block: &[u8], bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let n = left.min(block.len());
        stream.write_all(&block[..n])?;
        left -= n;
    }
    stream.read_exact(&mut [0])
}

/// Reads so many bytes, and says so.
fn drain(stream: &mut (impl Read + Write), block: &mut [u8], bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let most = left.min(block.len());
        match stream.read(&mut block[..most])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => left -= n,
        }
    }
    stream.write_all(&[0])
}

fn netchan_service(job: &Job, clients: usize, transactions: usize) -> io::Result<Outcome> {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let net = stack(job.carrier, theirs, SERVER)?;
    let client = stack(job.carrier, ours, CLIENT)?;
    let listener = net.tcp().listen(server().to_string())?;
    stages::switch(job.stages);
    let connect = || {
        let stream = client.tcp().connect(server())?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let accept = || {
        let stream = listener.accept()?.0;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    service(clients, transactions, connect, accept)
}

/// A thread for each client and one for each of its connections at the server; all begin together.
fn service<C: Read + Write, S: Read + Write + Send>(
    clients: usize,
    transactions: usize,
    connect: impl Fn() -> io::Result<C> + Sync,
    accept: impl Fn() -> io::Result<S>,
) -> io::Result<Outcome> {
    let start = Barrier::new(clients + 1);
    thread::scope(|scope| {
        let connect = &connect;
        let start = &start;
        let call = move || -> io::Result<()> {
            let mut stream = connect()?;
            // Once, so that everything there is to be made is made.
            let first = transact(&mut stream, 1);
            start.wait();
            first?;
            transact(&mut stream, transactions)
        };
        let callers: Vec<_> = (0..clients).map(|_| scope.spawn(call)).collect();
        for _ in 0..clients {
            let mut stream = accept()?;
            scope.spawn(move || {
                let mut message = [0; MESSAGE];
                // It ends with its client.
                while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok()
                {
                }
            });
        }
        start.wait();
        let (watch, processor) = (Stopwatch::start(), process_seconds());
        for caller in callers {
            caller.join().map_err(|_| ErrorKind::Other)??;
        }
        #[allow(clippy::cast_precision_loss)] // thousands
        Ok(Outcome {
            seconds: watch.seconds(),
            processor_seconds: process_seconds() - processor,
            transactions: (clients * transactions) as f64,
            ..Outcome::default()
        })
    })
}

fn transact(stream: &mut (impl Read + Write), times: usize) -> io::Result<()> {
    let mut message = [7; MESSAGE];
    for _ in 0..times {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
    }
    Ok(())
}

/// Performs `work` over the kernel's loopback.
fn linux(work: Work) -> io::Result<Outcome> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let prepare = |stream: TcpStream| {
        stream.set_nodelay(true)?;
        set_tcp_congestion(&stream, "cubic")?;
        Ok(stream)
    };
    let connect = || prepare(TcpStream::connect(address)?);
    let accept = || prepare(listener.accept()?.0);
    match work {
        Work::Service {
            clients,
            transactions,
        } => service(clients, transactions, connect, accept),
        Work::Stream { bytes } => {
            let outcome = stream(bytes, connect, accept, Look::default)?;
            // Loopback runs the receiver's protocol in the sender's thread: only both together can be told.
            #[allow(clippy::cast_precision_loss)] // below 2^52
            Ok(Outcome {
                processor_seconds: outcome.processor_seconds + outcome.generator_seconds,
                packets: bytes as f64 / SEGMENT,
                ..outcome
            })
        }
    }
}

/// The name of the thread that makes the stream.
const GENERATOR: &str = "generator";

/// What the threads spent so far by stage, but for the generator.
fn spent() -> [u64; COUNT] {
    let mut sum = [0; COUNT];
    let all = stages::read();
    for spent in all.iter().filter(|s| !s.thread.starts_with(GENERATOR)) {
        for (sum, ns) in sum.iter_mut().zip(spent.ns) {
            *sum += ns;
        }
    }
    sum
}
