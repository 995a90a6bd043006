//! `netchan capture`: frames of a running stack's links, or of what else is asked for, as text or in a pcapng file.

pub mod file;
pub mod follow;
pub mod libpcap;
mod socket;
mod text;

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::mpsc::Receiver,
    time::Duration,
};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netchan::{
    control::{
        Stack,
        capture::{Capture, Entry, Frame, Of, Request},
    },
    tap::{Statistics, Verdict, Way},
};

use self::{
    file::Files,
    follow::{deadline, follow},
    socket::Named,
    text::Lines,
};
use crate::{
    failure::{Failure, Outcome, at, failed, usage},
    output::{print, printable},
    show::{choose, interruption},
    units::now_ns,
};

/// Bytes of a capture's numeric filter.
const PROGRAM_TEXT_MAX: usize = 1 << 20;

/// Shows the frames that enter and leave a running stack's links, or writes them to a file
#[derive(clap::Args)]
#[command(
    after_help = "FILTER is tcpdump's (pcap-filter(7)); libpcap compiles it, and is looked up when there is one. The stack never waits for a capture: what it has no room for is \
        counted, and said at the end on standard error. Frames of a link with offload are seen uncut, with checksums still to be filled in, as tcpdump sees them on a host. \
        What shards take, send and drop has the frame header that it came with, or zeros; of what a shard drops the first 256 bytes are kept. \
        The file is pcapng with nanoseconds, its owner's alone; `-` is standard output.\n\n\
        Examples:\n  netchan capture tcp port 80\n  netchan capture -w - | wireshark -k -i -\n  netchan capture -w trace.pcapng -C 100 -W 10 --duration 60 not arp\n  \
        tcpdump -ddd 'udp port 53' > dns.bpf; netchan capture --bpf dns.bpf\n  \
        netchan capture --dropped\n  netchan capture --socket 10.77.0.2:8000-10.77.0.1:40000 --comments -w one.pcapng"
)]
pub struct Arguments {
    /// What is wanted, in tcpdump's language (default: everything)
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Only this link (as `netchan show links` names it)
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
    /// Only frames that go this way
    #[arg(long, value_name = "WAY", value_parser = ways())]
    way: Option<Way>,
    /// What the stack drops, in place of what its links carry, each with the reason
    #[arg(long)]
    dropped: bool,
    /// What this shard takes and sends (as `netchan show shards` numbers them)
    #[arg(long, value_name = "N", conflicts_with_all = ["dropped", "link"])]
    shard: Option<usize>,
    /// What goes to a socket and comes from it: LOCAL-REMOTE, one end, or a local port (as `netchan show sockets` has them); of a listener, also what is its connections'
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["dropped", "shard", "link"])]
    socket: Option<String>,
    /// With each, say the shard, the core and the regime (some 60 bytes of a file)
    #[arg(long)]
    comments: bool,
    /// Write them to a file in place of text
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// End after so many
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Keep the first so many bytes of each
    #[arg(short = 's', long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    snap: Option<u16>,
    /// End after so long
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// A filter as `tcpdump -ddd` prints it, in a file
    #[arg(long, value_name = "FILE", conflicts_with = "filter")]
    bpf: Option<PathBuf>,
    /// Begin another file after so many millions of bytes (FILE1, FILE2, ...)
    #[arg(short = 'C', long, value_name = "MB", requires = "write", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    file_size: Option<u64>,
    /// Keep so many of these files, and write over the oldest
    #[arg(short = 'W', long, value_name = "N", requires = "file_size", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: Option<u32>,
}

/// Reads which way frames go.
fn ways() -> impl TypedValueParser<Value = Way> {
    let names = [
        PossibleValue::new("in").help("Into the stack"),
        PossibleValue::new("out").help("Out of it"),
    ];
    PossibleValuesParser::new(names).map(|name| if name == "in" { Way::In } else { Way::Out })
}

/// Where frames go.
pub enum Sink {
    Text(Lines),
    Files(Files),
}

/// What becomes of a capture.
struct Taking {
    sink: Sink,
    /// Frames that are still wanted.
    left: u64,
    counted: Statistics,
}

impl Taking {
    fn take(&mut self, capture: &Capture, entry: Option<Entry>) -> Outcome {
        match entry {
            Some(Entry::Statistics(now)) => {
                self.counted = now;
                self.sink.flush(&self.counted)
            }
            Some(Entry::Frame(frame)) if self.left > 0 => {
                self.left -= 1;
                self.sink.take(&frame, comment(capture, &frame).as_deref())
            }
            Some(Entry::Frame(_)) => Ok(()),
            None => self.sink.flush(&self.counted),
        }
    }
}

/// Runs the command.
pub fn capture(arguments: &Arguments) -> Outcome {
    let duration = arguments.duration.map(seconds).transpose()?;
    let mut request = request(arguments)?;
    let named = arguments.socket.as_deref().map(Named::parse).transpose()?;
    let stack = only(choose(arguments.pid.as_deref())?)?;
    if let (Some(name), Some(named)) = (&arguments.socket, named) {
        request.of = socket::find(&stack, name, named)?;
    }
    let until = Until {
        interrupted: interruption()?,
        duration,
        count: arguments.count,
    };
    let capture = begin(&stack, &request)?;
    let sink = sink(arguments, &capture)?;
    carry(&stack, capture, sink, &until)
}

/// What ends a capture.
pub struct Until {
    /// The user, or the system.
    pub interrupted: Receiver<()>,
    /// After so long.
    pub duration: Option<Duration>,
    /// After so many frames.
    pub count: Option<u64>,
}

/// Begins a capture.
///
/// # Errors
/// The stack's, with its name.
pub fn begin(stack: &Stack, request: &Request) -> Result<Capture, Failure> {
    let begun = stack.capture(request);
    begun.map_err(|why| failed(format!("stack {}: {why}", stack.id)))
}

/// Carries a capture to its sink until it ends, and says on standard error what was missed.
///
/// # Errors
/// The stack's and the sink's.
pub fn carry(stack: &Stack, mut capture: Capture, sink: Sink, until: &Until) -> Outcome {
    let end = until.duration.map(deadline);
    let mut taking = Taking {
        sink,
        left: until.count.unwrap_or(u64::MAX),
        counted: Statistics::default(),
    };
    let is_enough = |taking: &Taking| {
        let is_late = end.is_some_and(|at| now_ns() >= at);
        taking.left == 0 || is_late || until.interrupted.try_recv().is_ok()
    };
    follow(
        &stack.id,
        &mut capture,
        &mut taking,
        is_enough,
        Taking::take,
    )?;
    let Taking {
        mut sink,
        left,
        counted,
    } = taking;
    sink.end(&counted)?;
    let written = until.count.map_or(counted.taken, |count| count - left);
    say(&counted, written);
    Ok(())
}

/// What is known of a frame beside itself, as a comment.
fn comment(capture: &Capture, frame: &Frame) -> Option<String> {
    let note = frame.note?;
    let mut words = Vec::new();
    words.extend(
        capture
            .reason(note.reason)
            .map(|why| format!("dropped: {why}")),
    );
    words.extend(match note.verdict {
        Verdict::Host => Some("host".to_owned()),
        Verdict::Forward => Some("forwarded".to_owned()),
        Verdict::Lease => Some("lease".to_owned()),
        Verdict::PacketChannel => Some("packet channel".to_owned()),
        // Its number says it, or its reason.
        Verdict::Shard | Verdict::Drop | Verdict::Unknown => None,
    });
    words.extend(note.shard.map(|shard| format!("shard {shard}")));
    words.extend(note.core.map(|core| format!("core {core}")));
    let regime = capture.about["regime"].as_str();
    words.extend(regime.map(|regime| format!("regime {regime}")));
    Some(printable(&words.join(", ")))
}

/// What was missed is said, whatever standard output is.
fn say(counted: &Statistics, written: u64) {
    let dropped = counted.dropped_full + counted.dropped_buffers;
    let Statistics { seen, matched, .. } = counted;
    eprintln!(
        "netchan capture: {written} frames captured; {matched} of {seen} passed the filter, {dropped} of them were dropped for want of room"
    );
}

/// What `--duration` says.
///
/// # Errors
/// It is no time.
pub fn seconds(seconds: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(usage(format!(
            "--duration {seconds}: give a number of seconds above 0"
        ))),
    }
}

/// A capture is of one stack: its links have numbers of their own.
///
/// # Errors
/// There is none, or there are several.
pub fn only(mut stacks: Vec<Stack>) -> Result<Stack, Failure> {
    match (stacks.pop(), stacks.is_empty()) {
        (Some(stack), true) => Ok(stack),
        (Some(last), false) => {
            let ids: Vec<String> = stacks
                .into_iter()
                .chain([last])
                .map(|stack| stack.id)
                .collect();
            Err(usage(format!(
                "there are several stacks, {}: choose one with --pid",
                ids.join(", ")
            )))
        }
        (None, _) => Err(failed("no stack runs")),
    }
}

fn request(arguments: &Arguments) -> Result<Request, Failure> {
    let program = match &arguments.bpf {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(at(file.display()))?;
            numeric(&text).map_err(|why| failed(format!("{}: {why}", file.display())))?
        }
        None if arguments.filter.is_empty() => Vec::new(),
        None => libpcap::compile(&arguments.filter.join(" ")).map_err(failed)?,
    };
    let request = Request {
        link: arguments.link.clone(),
        way: arguments.way,
        snap: arguments.snap.map(usize::from),
        program,
        of: match arguments.shard {
            _ if arguments.dropped => Of::Drops,
            Some(number) => Of::Shard(number),
            None => Of::Links,
        },
        notes: arguments.comments || arguments.dropped,
    };
    request.filter().map_err(failed)?; // here, with its place, not only there
    Ok(request)
}

/// What `tcpdump -ddd` prints: how many instructions, and a line of four numbers for each.
fn numeric(text: &str) -> Result<Vec<(u16, u8, u8, u32)>, String> {
    if text.len() > PROGRAM_TEXT_MAX {
        return Err("too long".to_owned());
    }
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let (_, count) = lines
        .next()
        .ok_or("it is empty; want what `tcpdump -ddd` prints")?;
    let count: usize = count
        .trim()
        .parse()
        .map_err(|_| "line 1: want the number of instructions")?;
    let instruction = |(number, line): (usize, &str)| {
        let wrong = || format!("line {}: want four numbers, code jt jf k", number + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[code, jt, jf, k] = words.as_slice() else {
            return Err(wrong());
        };
        let all = (code.parse(), jt.parse(), jf.parse(), k.parse());
        match all {
            (Ok(code), Ok(jt), Ok(jf), Ok(k)) => Ok((code, jt, jf, k)),
            _ => Err(wrong()),
        }
    };
    let program: Vec<_> = lines.map(instruction).collect::<Result<_, _>>()?;
    match program.len() == count {
        true => Ok(program),
        false => Err(format!(
            "{count} instructions are announced, {} are there",
            program.len()
        )),
    }
}

fn sink(arguments: &Arguments, capture: &Capture) -> Result<Sink, Failure> {
    let links = links(capture);
    let Some(path) = &arguments.write else {
        return Ok(Sink::Text(Lines::new(links)));
    };
    if path.as_os_str() == "-" && io::stdout().is_terminal() {
        return Err(usage(
            "-w -: standard output is a terminal; give it to a program, or leave -w out for text",
        ));
    }
    let snap = arguments.snap.unwrap_or(u16::MAX);
    let size = arguments.file_size.map(|mb| mb * 1_000_000);
    Ok(Sink::Files(Files::new(
        path,
        &links,
        snap.into(),
        size,
        arguments.files,
    )?))
}

/// The names of a capture's links.
fn links(capture: &Capture) -> Vec<String> {
    let name = |link: &serde_json::Value| printable(link["name"].as_str().unwrap_or("?"));
    let links = capture.links.as_array().into_iter().flatten();
    links.map(name).collect()
}

impl Sink {
    /// A file, or a pipe with a name.
    ///
    /// # Errors
    /// The file's, with its name.
    pub fn file(path: &Path, capture: &Capture, snap: u16) -> Result<Self, Failure> {
        let files = Files::new(path, &links(capture), snap.into(), None, None)?;
        Ok(Self::Files(files))
    }

    fn take(&mut self, frame: &Frame, comment: Option<&str>) -> Outcome {
        match self {
            Self::Text(lines) => print(&lines.line(frame, comment)),
            Self::Files(files) => files.write(frame, comment),
        }
    }

    fn end(&mut self, counted: &Statistics) -> Outcome {
        self.flush(counted)?;
        match self {
            Self::Text(_) => Ok(()),
            Self::Files(files) => files.end(),
        }
    }

    /// Nothing came for a while: what was buffered goes out.
    fn flush(&mut self, counted: &Statistics) -> Outcome {
        match self {
            Self::Text(_) => Ok(()),
            Self::Files(files) => files.flush(counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_filters_are_read_as_tcpdump_prints_them() {
        let text = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
        assert_eq!(
            numeric(text).map(|program| program[1]),
            Ok((21, 0, 1, 2048))
        );
        for (text, word) in [
            ("", "empty"),
            ("x\n", "line 1"),
            ("2\n6 0 0 0\n", "2 instructions are announced, 1"),
            ("1\n6 0 0\n", "line 2"),
            ("1\n6 0 256 0\n", "line 2"),
            ("1\n6 0 0 -1\n", "line 2"),
        ] {
            assert!(numeric(text).expect_err(text).contains(word), "{text}");
        }
    }

    #[test]
    fn durations_are_above_zero() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds(0.5).ok(), Some(Duration::from_millis(500)));
    }
}
