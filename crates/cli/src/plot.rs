//! `netchan plot`: what happened on a TCP connection, in a capture file or live, as a list, a page and a picture.

mod connections;
mod direction;
mod live;
#[cfg(test)]
mod made;
mod page;
mod picture;
mod reading;
mod segment;
mod series;
pub mod served;
mod subject;
mod track;

use std::{
    fs,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use self::{
    connections::{CONNECTIONS_MAX, Connection, Connections, Side, Wanted},
    direction::Direction,
    page::Page,
    picture::Column,
    reading::Passed,
    segment::{Found, find},
    series::Scale,
    subject::{Subject, beyond, captured, subject},
};
use crate::{
    capture::seconds,
    failure::{Failure, Outcome, at, failed, usage},
    output::{print, print_json, printable},
    table,
};

/// Packets between two looks at the clock.
const BATCH: u64 = 50_000;

/// Draws a TCP connection of a capture file or of a running stack: time-sequence, windows, RTT and throughput
#[derive(clap::Args)]
#[command(
    after_help = "FILE is pcap or pcapng, of Ethernet, raw IP, Linux cooked or BSD loopback. Without --html, --svg or --png it lists the TCP connections of the file, or with \
        --connection what is known of one. The list has segments, text and retransmissions (again) of the client / of the server. Sequence numbers are relative: the first byte of text is 1. Round trips are those from where the capture was made to the receiver and \
        back, and none is taken of text that was retransmitted. A retransmission is text that was seen before, or that closes a gap later than a round trip after it opened; sooner, it \
        is out of order. Windows are scaled if the handshake is in the capture; --live asks the stack.\n\n\
        --live takes the headers alone. It names a socket by its ends, by one of them or by its port, as `netchan show sockets` has them.\n\n\
        Examples:\n  netchan plot trace.pcapng\n  netchan plot trace.pcapng --connection 3 --html page.html --svg picture.svg\n  \
        netchan plot trace.pcap --connection 10.0.0.1:80-10.0.0.2:4242 --from both --png picture.png\n  \
        netchan plot --live :8000 --duration 5 --html page.html"
)]
pub struct Arguments {
    /// A capture
    #[arg(required_unless_present = "live")]
    file: Option<PathBuf>,
    /// A connection of a running stack: LOCAL-REMOTE, one end, or :PORT
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["file", "connection"])]
    live: Option<String>,
    /// With --live: only this stack: its process, or PID-N where one process has several
    #[arg(long, value_name = "PID", requires = "live")]
    pid: Option<String>,
    /// With --live: capture so long
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "10",
        conflicts_with = "file"
    )]
    duration: f64,
    /// Which connection of the file: its number, or both ends (10.0.0.1:80-10.0.0.2:4242)
    #[arg(long, value_name = "N|ENDS", value_parser = wanted)]
    connection: Option<Wanted>,
    /// Whose data is drawn (default: that of the end that sent more; a page has both)
    #[arg(long, value_name = "END", value_parser = ends())]
    from: Option<From>,
    /// Write a page that is looked at with a browser; `-` is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a picture
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whose data is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    One(Side),
    Both,
}

fn ends() -> impl TypedValueParser<Value = From> {
    let names = [
        PossibleValue::new("client").help("The end that began the connection"),
        PossibleValue::new("server").help("The other one"),
        PossibleValue::new("both"),
    ];
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "client" => From::One(Side::Client),
        "server" => From::One(Side::Server),
        _ => From::Both,
    })
}

fn wanted(text: &str) -> Result<Wanted, String> {
    let why = "want a number of the list, or both ends as 10.0.0.1:80-10.0.0.2:4242";
    if let Ok(number @ 1..) = text.parse() {
        return Ok(Wanted::Number(number));
    }
    let (a, b) = text.split_once('-').ok_or(why)?;
    let end = |text: &str| text.parse::<SocketAddr>().map_err(|_| why);
    Ok(Wanted::Ends(end(a)?, end(b)?))
}

impl Arguments {
    fn outputs(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.html, &self.svg, &self.png];
        all.into_iter().flatten().map(PathBuf::as_path)
    }

    fn is_drawn(&self) -> bool {
        self.outputs().next().is_some()
    }
}

/// Runs the command.
pub fn plot(arguments: &Arguments) -> Outcome {
    let to_stdout = arguments.outputs().filter(|path| *path == Path::new("-"));
    match to_stdout.count() {
        0 => {}
        1 if arguments.json => return Err(usage("--json and `-` both want standard output")),
        1 => {}
        _ => return Err(usage("`-`: only one of --html, --svg and --png")),
    }
    let subject = match &arguments.live {
        Some(name) => live(arguments, name)?,
        None => match file(arguments)? {
            Some(subject) => subject,
            None => return Ok(()), // they were listed
        },
    };
    draw(arguments, subject)
}

fn live(arguments: &Arguments, name: &str) -> Result<Subject, Failure> {
    let duration = seconds(arguments.duration)?;
    captured(live::capture(name, arguments.pid.as_deref(), duration)?)
}

/// The connection that is wanted of a file; `None`: all of them were listed.
fn file(arguments: &Arguments) -> Result<Option<Subject>, Failure> {
    let Some(path) = &arguments.file else {
        return Err(usage("name a FILE, or a socket with --live"));
    };
    let wanted = match (arguments.connection, arguments.is_drawn()) {
        (Some(wanted), _) => wanted,
        (None, true) => Wanted::Only,
        (None, false) => Wanted::None,
    };
    let (connections, mut notes) = read(path, wanted)?;
    let all = connections.all();
    if wanted == Wanted::None {
        say(&notes);
        list(all, arguments.json)?;
        return Ok(None);
    }
    let name = path.display().to_string();
    if all.is_empty() {
        say(&notes);
        return Err(failed(format!("{name}: no TCP connection is in it")));
    }
    let count = all.len();
    if wanted == Wanted::Only && count > 1 {
        return Err(usage(format!(
            "{name} has {count} TCP connections: choose one with --connection (`netchan plot {name}` lists them)"
        )));
    }
    if let Wanted::Ends(a, b) = wanted {
        let ends = [(a, b), (b, a)];
        let same = |of: &&Connection| ends.contains(&(of.client, of.server));
        let same: Vec<String> = all
            .iter()
            .filter(same)
            .map(|of| of.number.to_string())
            .collect();
        if same.len() > 1 {
            notes.push(format!(
                "connections {} are between these ends: this is the first of them",
                same.join(", ")
            ));
        }
    }
    let left_out = connections.left_out;
    let Some((connection, segments)) = connections.into_wanted() else {
        return Err(failed(format!(
            "{name}: there is no such connection among its {count} (`netchan plot {name}` lists them)"
        )));
    };
    notes.extend(beyond(left_out));
    let source = path.file_name().unwrap_or(path.as_os_str());
    let source = source.to_string_lossy().into_owned();
    let unknown = [Scale::Unknown; 2];
    Ok(Some(subject(source, connection, segments, unknown, notes)))
}

/// All connections of a file, and what is to be said of it.
fn read(path: &Path, wanted: Wanted) -> Result<(Connections, Vec<String>), Failure> {
    let mut connections = Connections::new(wanted);
    let (mut fragments, mut unreadable, mut packets) = (0_u64, 0_u64, 0_u64);
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} packets read") {
        bar.set_style(style);
    }
    let passed = reading::read(path, &mut |packet| {
        packets += 1;
        if packets.is_multiple_of(BATCH) {
            bar.set_position(packets);
        }
        match find(packet.layer, packet.time, packet.length, packet.bytes) {
            Found::Segment(segment) => connections.take(&segment),
            Found::Fragment => fragments += 1,
            Found::Unreadable => unreadable += 1,
            Found::Other => {}
        }
    })?;
    bar.finish_and_clear();
    let mut notes = passed_over(&passed);
    let mut note = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    note(
        fragments,
        "fragments of IP packets with TCP were passed over",
    );
    note(
        unreadable,
        "packets with TCP were cut too short, or are damaged: they were passed over",
    );
    let further = format!(
        "segments are of connections beyond the first {CONNECTIONS_MAX}: they were passed over"
    );
    note(connections.beyond, &further);
    Ok((connections, notes))
}

fn passed_over(passed: &Passed) -> Vec<String> {
    let mut notes: Vec<String> = passed.broken.iter().map(|why| printable(why)).collect();
    let links = passed.unknown.iter();
    notes.extend(
        links.map(|(kind, count)| {
            format!("{count} packets of a link of kind {kind} were passed over")
        }),
    );
    notes
}

fn say(notes: &[String]) {
    for note in notes {
        eprintln!("netchan plot: {note}");
    }
}

fn list(all: &[Connection], as_json: bool) -> Outcome {
    let first = all.iter().map(|connection| connection.begin).min();
    let first = first.unwrap_or(Duration::ZERO);
    if as_json {
        return print_json(&all.iter().map(|of| of.facts(first)).collect::<Value>());
    }
    if all.is_empty() {
        return print("(none)\n");
    }
    let rows: Vec<Vec<String>> = all.iter().map(|of| of.row(first)).collect();
    print(&table::text(&Connection::HEADINGS, &rows))
}

fn draw(arguments: &Arguments, mut subject: Subject) -> Outcome {
    let all = subject.directions();
    let Subject {
        source,
        connection,
        notes,
        ..
    } = subject;
    say(&notes);
    let is_meant = |direction: &&Direction, or: From| {
        matches!(arguments.from.unwrap_or(or), From::Both)
            || arguments.from.unwrap_or(or) == From::One(direction.sender)
    };
    let busier = connection.busier();
    let drawn = all.iter().filter(|one| is_meant(one, From::One(busier)));
    let drawn: Vec<&Direction> = drawn.collect();
    let paged = all.iter().filter(|one| is_meant(one, From::Both));
    if let Some(path) = &arguments.html {
        let page = Page {
            source: &source,
            number: arguments.live.is_none().then_some(connection.number),
            begin: connection.begin,
            notes: &notes,
            directions: paged.collect(),
            first: busier,
        };
        put(path, page.html().map_err(failed)?.as_bytes(), false)?;
    }
    if arguments.svg.is_some() || arguments.png.is_some() {
        let svg = picture::svg(&columns(&source, &notes, &drawn));
        let svg = svg.map_err(failed)?;
        if let Some(path) = &arguments.svg {
            put(path, svg.as_bytes(), false)?;
        }
        if let Some(path) = &arguments.png {
            put(path, &picture::png(&svg).map_err(failed)?, true)?;
        }
    }
    if arguments.outputs().any(|path| path == Path::new("-")) {
        return Ok(());
    }
    let all = all.iter().filter(|one| is_meant(one, From::Both));
    tell(&connection, all, &notes, arguments.json)
}

fn columns<'a>(source: &str, notes: &'a [String], drawn: &[&'a Direction]) -> Vec<Column<'a>> {
    let column = |one: &&'a Direction| Column {
        title: format!("{source}: {}", one.title()),
        facts: one.line(),
        notes,
        series: &one.series,
        duration: one.duration,
    };
    drawn.iter().map(column).collect()
}

/// Prints the figures of a connection.
fn tell<'a>(
    connection: &Connection,
    directions: impl Iterator<Item = &'a Direction>,
    notes: &[String],
    as_json: bool,
) -> Outcome {
    let mut facts = connection.facts(connection.begin);
    let directions: Vec<(String, Value)> = directions
        .map(|direction| (direction.title(), direction.facts()))
        .collect();
    if as_json {
        let each = directions.into_iter().map(|(_, facts)| facts);
        facts["directions"] = each.collect();
        facts["notes"] = json!(notes);
        return print_json(&facts);
    }
    let mut text = String::new();
    for (title, facts) in &directions {
        text.push_str(&format!("{title}\n"));
        let fields = facts.as_object().into_iter().flatten();
        let told = ["sender", "from", "to"];
        let fields =
            fields.filter(|(name, value)| !told.contains(&name.as_str()) && !value.is_null());
        text.push_str(&table::list(fields, 4));
    }
    print(&text)
}

/// Writes `bytes` to a file, or to standard output.
fn put(path: &Path, bytes: &[u8], is_binary: bool) -> Outcome {
    if path != Path::new("-") {
        return fs::write(path, bytes).map_err(at(path.display()));
    }
    let mut out = io::stdout().lock();
    if is_binary && out.is_terminal() {
        return Err(usage(
            "`-`: standard output is a terminal; give the picture to a program, or name a file",
        ));
    }
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        other => other.map_err(at("standard output")),
    }
}
