//! One job in a process of its own: makes the stacks that it needs, does the work, prints one JSON object.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener, TcpStream},
};

use netchan::{Net, Threads, link::wire, trace::stages};
use rustix::{
    net::sockopt::set_tcp_congestion,
    process::{Signal, set_parent_process_death_signal},
};

use super::{
    carrier::Carrier,
    datagrams::datagrams,
    job::{Job, Look, Outcome, Work},
    links::Odd,
    place,
    service::service,
    stream::stream,
};
use crate::LabError;

/// Does the job in `text` (JSON), and returns what it came to (JSON).
///
/// # Errors
/// What went wrong, in words.
pub fn child(text: &str) -> Result<String, LabError> {
    let failed = |e: serde_json::Error| LabError::Failed(e.to_string());
    let job: Job = serde_json::from_str(text).map_err(failed)?;
    // The parent ends this process in time; if the parent ends first, this must not go on alone.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    serde_json::to_string(&perform(&job)?).map_err(failed)
}

/// Does a job in this process, on the cores that it names, which the calling thread keeps.
pub(super) fn perform(job: &Job) -> io::Result<Outcome> {
    place::enter(job)?;
    if job.carrier == Carrier::Linux {
        return linux(job);
    }
    let done = match job.work {
        Work::Stream { packets, pace } => netchan_stream(job, (packets, pace)),
        Work::Datagrams { packets } => netchan_datagrams(job, packets),
        Work::Service {
            clients,
            transactions,
        } => netchan_service(job, (clients, transactions)),
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

const PORT: u16 = 80;

/// Network of a link, or (the one behind them) loopback: the receiver's address there.
fn receiver(job: &Job, lane: usize) -> SocketAddr {
    // A lane has a port of its own: which connection comes first does not matter.
    let port = PORT + u16::try_from(lane).unwrap_or(0);
    let network = u8::try_from(lane).unwrap_or(0);
    if lane < job.links {
        SocketAddr::from(([10, 0, network, 2], port))
    } else {
        SocketAddr::from(([127, 0, 0, 1], port))
    }
}

/// The receiver's stack in the carrier's regime, and the other ends of its links.
fn stack(job: &Job) -> io::Result<(Net, Vec<wire::Wire>)> {
    let (Carrier::Netchan { settings, .. }, Some(regime)) = (job.carrier, job.carrier.regime())
    else {
        return Err(ErrorKind::Unsupported.into());
    };
    let (mut builder, mut others) = (Net::builder().loopback(job.loopback), Vec::new());
    for link in 0..job.links {
        // Told apart by their seeds: each end has a MAC address of its own.
        let options = wire::Options {
            seed: link as u64,
            ..wire::Options::default()
        };
        let (ours, theirs) = wire::pair(&options);
        let link_with = Odd {
            wire: theirs,
            batch: job.batch,
            needs_giant: job.needs_giant,
        };
        builder = builder
            .link_with(Box::new(link_with))
            .address(&format!("10.0.{link}.2/24"))?;
        others.push(ours);
    }
    Ok((settings.apply(regime, builder).start()?, others))
}

fn netchan_stream(job: &Job, what: (usize, super::Pace)) -> io::Result<Outcome> {
    let (net, others) = stack(job)?;
    // A generator is one thread, which does everything of its stack: what it costs can be told apart.
    let generator = |(link, wire): (usize, wire::Wire)| {
        let builder = Net::builder().link_with(Box::new(wire));
        let builder = builder.address(&format!("10.0.{link}.1/24"))?;
        builder.threads(Threads::Caller).start()
    };
    let generators: Vec<Net> = others
        .into_iter()
        .enumerate()
        .map(generator)
        .collect::<io::Result<_>>()?;
    let lanes = job.links + usize::from(job.loopback);
    let listeners: Vec<_> = (0..lanes)
        .map(|lane| net.tcp().listen(receiver(job, lane)))
        .collect::<io::Result<_>>()?;
    stages::switch(job.look == Look::Stages);
    let connect = |lane: usize| {
        // Over loopback, out of the receiver's own stack.
        let stream = generators
            .get(lane)
            .unwrap_or(&net)
            .tcp()
            .connect(receiver(job, lane))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let accept = |lane: usize| Ok(listeners[lane].accept()?.0);
    let turn = |lane: usize| {
        if let Some(generator) = generators.get(lane) {
            generator.poll();
        }
    };
    stream(job, what, (lanes, Some(&net)), connect, accept, turn)
}

fn netchan_datagrams(job: &Job, packets: usize) -> io::Result<Outcome> {
    let (net, _) = stack(job)?;
    let server = net.udp().bind(receiver(job, 0))?;
    let client = net.udp().bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    client.connect(receiver(job, 0))?;
    let to = client.local_addr()?;
    datagrams(
        job,
        packets,
        Some(&net),
        (
            |text: &[u8]| client.send(text),
            |room: &mut [u8]| client.recv(room),
        ),
        (
            |text: &[u8]| server.send_to(text, to),
            |room: &mut [u8]| Ok(server.recv_from(room)?.0),
        ),
    )
}

fn netchan_service(job: &Job, what: (usize, usize)) -> io::Result<Outcome> {
    let (net, mut others) = stack(job)?;
    // The clients' stack is in the same regime.
    let clients = match (others.pop(), job.carrier.regime(), job.carrier) {
        (Some(wire), Some(regime), Carrier::Netchan { settings, .. }) => {
            let builder = Net::builder()
                .link_with(Box::new(wire))
                .address("10.0.0.1/24")?;
            Some(settings.apply(regime, builder).start()?)
        }
        _ => None,
    };
    let listener = net.tcp().listen(receiver(job, 0))?;
    stages::switch(job.look == Look::Stages);
    let connect = || {
        let stream = clients
            .as_ref()
            .unwrap_or(&net)
            .tcp()
            .connect(receiver(job, 0))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let accept = || {
        let stream = listener.accept()?.0;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    service(job, what, Some(&net), connect, accept)
}

/// The same over the kernel's loopback.
fn linux(job: &Job) -> io::Result<Outcome> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let prepare = |stream: TcpStream| {
        stream.set_nodelay(true)?;
        set_tcp_congestion(&stream, "cubic")?;
        Ok(stream)
    };
    let connect = || prepare(TcpStream::connect(address)?);
    let accept = || prepare(listener.accept()?.0);
    match job.work {
        Work::Service {
            clients,
            transactions,
        } => service(job, (clients, transactions), None, connect, accept),
        Work::Stream { packets, pace } => {
            let outcome = stream(
                job,
                (packets, pace),
                (1, None),
                |_| connect(),
                |_| accept(),
                |_| (),
            )?;
            // Loopback runs the receiver's protocol in the sender's thread: only both together can be told.
            Ok(Outcome {
                processor_seconds: outcome.processor_seconds + outcome.generator_seconds,
                generator_seconds: 0.0,
                ..outcome
            })
        }
        Work::Datagrams { packets } => {
            let server = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
            let client = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
            client.connect(server.local_addr()?)?;
            let to = client.local_addr()?;
            datagrams(
                job,
                packets,
                None,
                (
                    |text: &[u8]| client.send(text),
                    |room: &mut [u8]| client.recv(room),
                ),
                (
                    |text: &[u8]| server.send_to(text, to),
                    |room: &mut [u8]| Ok(server.recv_from(room)?.0),
                ),
            )
        }
    }
}
