//! `netchan show`: asks running stacks for facts through their control sockets, and prints them.

use std::{
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use netchan::control::{self, AskError, Stack, TOPICS};

use serde_json::{Map, Value, json};

mod rates;
mod sockets;

use self::rates::Sample;
pub use self::{
    rates::per_second,
    sockets::{Filter, process},
};
use crate::{
    failure::{Failure, Outcome, failed, usage},
    output::{print, printable},
    table, units, user,
};

/// Shows what running stacks do
#[derive(clap::Args)]
#[command(
    after_help = "Without TOPIC: the stacks that run. Yours and root's are asked; another user's (as root) if --pid names it. With several running and no --pid: every one, under its own heading \
        (with --json: an object with one member for each, named by its process).\n\n\
        FILTER is in the words of ss(8): `state STATE` and `exclude STATE` first; then `src`, `dst` with an address, network or port, `sport`, `dport` with = != < > <= >= and a port, \
        `and`, `or`, `not` and parentheses.\n\n\
        Examples:\n  netchan show\n  netchan show sockets\n  netchan show sockets --info state established dport = :80 or src 10.0.0.0/8\n  \
        netchan show counters --nonzero --rate\n  netchan show counters --watch 0.5 --pid 4711\n  netchan show links --json"
)]
pub struct Arguments {
    /// What to show
    #[arg(value_parser = TOPICS)]
    topic: Option<String>,
    /// With sockets: only those that it lets through
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// With sockets: all that is known of each
    #[arg(long, short, conflicts_with = "summary")]
    info: bool,
    /// With sockets: how many there are
    #[arg(long, short)]
    summary: bool,
    /// With counters and drops: only those that are not zero
    #[arg(long)]
    nonzero: bool,
    /// With counters and drops: how fast each grows (over a second, or since the last time with --watch)
    #[arg(long)]
    rate: bool,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Print JSON (with --watch: one line each time)
    #[arg(long)]
    json: bool,
    /// Show again every so many seconds (one, if it is not said) until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<String>,
}

/// What is shown.
struct Wanted<'a> {
    topic: Option<&'a str>,
    pid: Option<&'a str>,
    json: bool,
    watched: bool,
    filter: Filter,
    info: bool,
    summary: bool,
    nonzero: bool,
    rate: bool,
}

impl<'a> Wanted<'a> {
    /// # Errors
    /// What does not go together.
    fn of(arguments: &'a Arguments) -> Result<Self, Failure> {
        let filter = Filter::parse(&arguments.filter).map_err(usage)?;
        Ok(Self {
            topic: arguments.topic.as_deref(),
            pid: arguments.pid.as_deref(),
            json: arguments.json,
            watched: arguments.watch.is_some(),
            filter,
            info: arguments.info,
            summary: arguments.summary,
            nonzero: arguments.nonzero,
            rate: arguments.rate,
        })
    }

    /// # Errors
    /// What is for another topic.
    fn check(&self) -> Outcome {
        let of_sockets = self.filter != Filter::default() || self.info || self.summary;
        if of_sockets && self.topic != Some("sockets") {
            return Err(usage(
                "a filter, --info and --summary are for `netchan show sockets`",
            ));
        }
        if (self.nonzero || self.rate) && !matches!(self.topic, Some("counters" | "drops")) {
            return Err(usage(
                "--nonzero and --rate are for `netchan show counters` and `drops`",
            ));
        }
        Ok(())
    }

    /// What is wanted of one stack's facts.
    fn adapt(&self, stack: &Stack, mut facts: Value) -> Value {
        let Some(rows) = facts.as_array_mut() else {
            return facts;
        };
        match self.topic {
            Some("sockets") => {
                let process = stack
                    .hello()
                    .ok()
                    .and_then(|hello| sockets::process(&hello));
                sockets::select(rows, &self.filter, process.as_deref());
                if self.summary {
                    return sockets::summary(rows);
                }
            }
            _ if self.nonzero => rows.retain(|row| row.get("value") != Some(&json!(0))),
            _ => {}
        }
        facts
    }

    /// One stack's facts for a person.
    fn render(&self, facts: &Value) -> String {
        match (self.topic, facts) {
            (Some("sockets"), Value::Array(rows)) if self.info => sockets::in_full(rows),
            (Some("sockets"), Value::Array(rows)) if !self.summary => sockets::brief(rows),
            _ => table::render(facts),
        }
    }
}

/// Runs the command.
pub fn show(arguments: &Arguments) -> Outcome {
    let mut wanted = Wanted::of(arguments)?;
    let Some(watch) = arguments.watch.as_deref() else {
        wanted.check()?;
        return print(&page(&wanted, &mut Sample::default())?);
    };
    let pause = match watch.parse::<f64>() {
        Ok(s) if (0.05..=86_400.0).contains(&s) => Duration::from_secs_f64(s),
        // `--watch links`: the pause was left out, and what follows is the topic.
        Err(_) if wanted.topic.is_none() && TOPICS.contains(&watch) => {
            wanted.topic = Some(watch);
            Duration::from_secs(1)
        }
        _ => {
            let what = format!("--watch={}: give 0.05 to 86400 seconds", printable(watch));
            return Err(usage(what));
        }
    };
    wanted.check()?;
    watch_until_interrupted(&wanted, pause)
}

fn watch_until_interrupted(wanted: &Wanted<'_>, pause: Duration) -> Outcome {
    let interrupted = interruption()?;
    let (mut seen, mut sample) = (false, Sample::default());
    loop {
        let page = match page(wanted, &mut sample) {
            // What was watched has ended: that is an end, not a failure.
            Err(Failure::Failed(why)) if seen => return print(&format!("{why}\n")),
            other => other?,
        };
        print(&match io::stdout().is_terminal() && !wanted.json {
            true => frame(&page, terminal_lines()),
            false if wanted.json => page,
            false => format!("{page}\n"),
        })?;
        seen = true;
        match interrupted.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            // The terminal has printed `^C` where the cursor was: what comes next begins a line.
            _ if io::stdout().is_terminal() => return print("\n"),
            _ => return Ok(()),
        }
    }
}

/// Says when the user (SIGINT) or the system (SIGTERM) wants an end.
pub fn interruption() -> Result<Receiver<()>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let (say, said) = sync_channel(1);
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .map_err(crate::failure::at("signals"))?;
    thread::spawn(move || {
        for _ in &mut signals {
            // Full: it was said already.
            let _ = say.try_send(());
        }
    });
    Ok(said)
}

/// Lines of the terminal; many where that is not known.
fn terminal_lines() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let lines = size.map_or(0, |size| usize::from(size.ws_row));
    if lines == 0 { usize::MAX } else { lines }
}

/// `page` in the place of the one before, without a moment in which nothing is there: home, each line and the rest of the old one,
/// and the rest of the screen. A page that is longer than the screen would scroll, and home would be in its middle.
fn frame(page: &str, lines: usize) -> String {
    let count = page.lines().count();
    let fits = lines.saturating_sub(1).max(2);
    let mut text = "\u{1b}[H".to_owned();
    let shown = if count > fits { fits - 1 } else { count };
    for line in page.lines().take(shown) {
        text.push_str(line);
        text.push_str("\u{1b}[K\n");
    }
    if shown < count {
        let more = format!("... {} more lines\u{1b}[K\n", count - shown);
        text.push_str(&more);
    }
    text.push_str("\u{1b}[J");
    text
}

/// What there is to see now.
fn page(wanted: &Wanted<'_>, sample: &mut Sample) -> Result<String, Failure> {
    let stacks = choose(wanted.pid)?;
    let facts = match wanted.topic {
        None => overview(&stacks),
        Some(topic) => {
            if wanted.rate && sample.is_empty() {
                sample.take(&stacks, &mut ask_all(&stacks, topic, wanted)?);
                thread::sleep(Duration::from_secs(1));
            }
            let mut facts = ask_all(&stacks, topic, wanted)?;
            if wanted.rate {
                sample.take(&stacks, &mut facts);
            }
            facts
        }
    };
    match (wanted.topic, &facts) {
        _ if wanted.json && wanted.watched => Ok(format!("{facts}\n")),
        _ if wanted.json => serde_json::to_string_pretty(&facts)
            .map(|text| text + "\n")
            .map_err(failed),
        (Some(_), Value::Object(each)) if stacks.len() > 1 => Ok(sections(&stacks, each, wanted)),
        (Some(_), facts) => Ok(wanted.render(facts)),
        _ => Ok(table::render(&facts)),
    }
}

/// Those that the user means. Where some are named, no other is asked anything.
pub fn choose(id: Option<&str>) -> Result<Vec<Stack>, Failure> {
    let named = id.map(control::stacks_named).unwrap_or_default();
    if !named.is_empty() {
        return Ok(named);
    }
    let stacks = control::stacks();
    let Some(id) = id else {
        return match stacks.is_empty() {
            false => Ok(stacks),
            true => Err(failed(format!(
                "no netchan stack of yours is running; start one with: netchan run -- COMMAND{}",
                strangers()
            ))),
        };
    };
    let process = id.split('-').next().and_then(|pid| pid.parse().ok());
    let other = control::strangers()
        .into_iter()
        .find(|&(pid, _)| Some(pid) == process);
    if let Some((pid, user)) = other {
        let user = user::name(user);
        return Err(failed(format!(
            "the stack in process {pid} is user {user}'s: ask as that user, or as root"
        )));
    }
    let ids: Vec<String> = stacks.into_iter().map(|stack| stack.id).collect();
    Err(failed(match ids.is_empty() {
        true => format!(
            "no stack runs in process {id}, and there is none of yours{}",
            strangers()
        ),
        false => format!(
            "no stack runs in process {id}; there are {}",
            ids.join(", ")
        ),
    }))
}

/// Stacks of users that are not asked, as lines of a message.
fn strangers() -> String {
    let how = match rustix::process::geteuid().is_root() {
        true => "name it with --pid",
        false => "ask as that user, or as root",
    };
    let line = |(pid, user): (u32, u32)| {
        format!(
            "\nA stack of user {} runs in process {pid}: {how}",
            user::name(user)
        )
    };
    control::strangers().into_iter().map(line).collect()
}

fn overview(stacks: &[Stack]) -> Value {
    let row = |stack: &Stack| match stack.hello() {
        Ok(Value::Object(facts)) => {
            let mut row = Map::new();
            row.insert("stack".to_owned(), json!(stack.id));
            row.extend(facts);
            Value::Object(row)
        }
        Ok(_) => {
            json!({ "stack": stack.id, "pid": stack.pid, "command": "(its answer makes no sense)" })
        }
        Err(why) => json!({ "stack": stack.id, "pid": stack.pid, "command": format!("({why})") }),
    };
    let others = control::strangers().into_iter();
    let others = others.filter(|(pid, _)| stacks.iter().all(|stack| stack.pid != *pid));
    let others = others.map(|(pid, user)| {
        let command = format!("(of user {}, not asked)", user::name(user));
        json!({ "stack": pid.to_string(), "pid": pid, "command": command })
    });
    Value::Array(stacks.iter().map(row).chain(others).collect())
}

/// One stack's facts as they are; several stacks' as an object by id, where one that does not answer says why.
fn ask_all(stacks: &[Stack], topic: &str, wanted: &Wanted<'_>) -> Result<Value, Failure> {
    let ask = |stack: &Stack| Ok(wanted.adapt(stack, stack.show(topic)?));
    if let [only] = stacks {
        return ask(only).map_err(|why| failed(format!("stack {}: {why}", only.id)));
    }
    let answers: Vec<(String, Result<Value, AskError>)> = stacks
        .iter()
        .map(|stack| (stack.id.clone(), ask(stack)))
        .collect();
    if answers.iter().all(|(_, answer)| answer.is_err()) {
        let why: Vec<String> = answers
            .iter()
            .filter_map(|(id, answer)| Some(format!("stack {id}: {}", answer.as_ref().err()?)))
            .collect();
        return Err(failed(why.join("\n")));
    }
    let each = answers.into_iter().map(|(id, answer)| {
        (
            id,
            answer.unwrap_or_else(|why| json!({ "error": why.to_string() })),
        )
    });
    Ok(Value::Object(each.collect()))
}

fn sections(stacks: &[Stack], each: &Map<String, Value>, wanted: &Wanted<'_>) -> String {
    let mut text = String::new();
    for stack in stacks {
        let Some(facts) = each.get(&stack.id) else {
            continue;
        };
        let (command, up) = match stack.hello() {
            Ok(hello) => (
                printable(hello.get("command").and_then(Value::as_str).unwrap_or("?")),
                hello.get("up_s").and_then(Value::as_f64).unwrap_or(0.0),
            ),
            Err(why) => (why.to_string(), 0.0),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!(
            "stack {}: {command} (up {})\n{}",
            stack.id,
            units::nanoseconds(up * 1e9),
            wanted.render(facts)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn a_frame_overwrites_the_one_before_and_clears_the_rest() {
        assert_eq!(
            frame("a\nb\n", usize::MAX),
            "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J"
        );
        // No clearing of the whole screen: that is what flickers.
        assert!(!frame("a\n", 24).contains("[2J"));
    }

    #[test]
    fn a_frame_fits_the_screen() {
        let page = "line\n".repeat(50);
        for lines in [3, 24, 51] {
            let frame = frame(&page, lines);
            let count = frame.lines().filter(|line| *line != "\u{1b}[J").count();
            assert!(count < lines, "{count} lines on a screen of {lines}");
            let cut = 50 - frame.matches("line\u{1b}[K").count();
            assert_eq!(frame.contains(&format!("... {cut} more lines")), cut > 0);
        }
    }
}
