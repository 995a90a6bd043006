//! `netchan trace`: what running stacks have recorded, merged and in English; more of it on request.

mod perfetto;

use std::{fs, path::PathBuf, thread, time::Duration};

use clap::ValueEnum;
use netchan::{
    control::{AskError, Stack},
    trace::{Cost, Offset},
};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Outcome, at, failed, usage},
    output::{print, print_json, printable},
    show::choose,
};

/// Shows what running stacks have recorded
#[derive(clap::Args)]
#[command(
    after_help = "What is rare is always recorded (setting trace = \"off|rare|all\" in the configuration file): connections that begin and end, \
        losses, drops. `start` adds every packet, burst, turn, hand-over and sleep, and what each thread spends its time on (netchan show stages), until \
        `stop`. The newest 1024 events of each thread are kept (trace_events).\n\n\
        With --stop-on the recording ends by itself: on a drop (of any kind, for a reason that netchan show drops lists, or of a module: drop=module), on a packet that took longer from \
        the link to the application, on a thread that hangs. `export` and netchan show trace say whether and why.\n\n\
        Examples:\n  netchan trace\n  netchan trace --event drop,tcp-timeout --follow\n  netchan trace start --stop-on drop=udp_queue_full,latency=200us\n  \
        netchan trace export --perfetto trace.json"
)]
pub struct Arguments {
    /// What to do (default: export)
    #[arg(value_enum)]
    action: Option<Action>,
    /// Only these events, by name (may be repeated)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    event: Vec<String>,
    /// The newest so many (default: 1000, of a file for Perfetto all)
    #[arg(long, value_name = "N")]
    last: Option<u64>,
    /// With start: until one of these comes: drop, drop=REASON, latency=TIME (200us, 5ms), watchdog
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    stop_on: Vec<String>,
    /// With --stop-on: so many events are recorded after it (default: a quarter of what a thread keeps)
    #[arg(long, value_name = "N", requires = "stop_on")]
    after: Option<u64>,
    /// Go on until interrupted or the stack ends
    #[arg(long, conflicts_with_all = ["json", "perfetto"])]
    follow: bool,
    /// As text (as without it)
    #[arg(long, conflicts_with_all = ["json", "perfetto"])]
    text: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a file for ui.perfetto.dev (or chrome://tracing) instead
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    perfetto: Option<PathBuf>,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Record details from now on
    Start,
    /// No longer
    Stop,
    /// Print what is recorded
    Export,
}

/// Between two looks of `--follow`.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn trace(arguments: &Arguments) -> Outcome {
    // Its stacks have one trace: one of a process is asked for all.
    let mut stacks = choose(arguments.pid.as_deref())?;
    stacks.dedup_by_key(|stack| stack.pid);
    let action = arguments.action.unwrap_or(Action::Export);
    if action != Action::Start && !arguments.stop_on.is_empty() {
        return Err(usage("--stop-on is for `netchan trace start`"));
    }
    match action {
        Action::Start => switch(&stacks, &start_request(arguments)?),
        Action::Stop => switch(&stacks, "stop"),
        Action::Export => export(arguments, &stacks),
    }
}

/// `start`, and until when.
///
/// # Errors
/// What would be two words of the request, or none.
fn start_request(arguments: &Arguments) -> Result<String, Failure> {
    let is_word = |word: &String| !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic());
    if let Some(word) = arguments.stop_on.iter().find(|word| !is_word(word)) {
        return Err(usage(format!(
            "--stop-on takes no `{}`",
            word.escape_debug()
        )));
    }
    let mut request = "start".to_owned();
    if !arguments.stop_on.is_empty() {
        request += &format!(" {}", arguments.stop_on.join(","));
    }
    if let Some(after) = arguments.after {
        request += &format!(" {after}");
    }
    Ok(request)
}

fn switch(stacks: &[Stack], request: &str) -> Outcome {
    for stack in stacks {
        let now = ask(stack, request)?;
        let level = printable(now["level"].as_str().unwrap_or("?"));
        let until = now["trigger"]["why"].as_str().unwrap_or("");
        let until = if until.is_empty() {
            String::new()
        } else {
            format!(", {}", printable(until))
        };
        print(&format!("process {}: records {level}{until}\n", stack.pid))?;
    }
    Ok(())
}

fn ask(stack: &Stack, request: &str) -> Result<Value, Failure> {
    stack.trace(request).map_err(|why| match why {
        // What it does not understand is what the user wrote.
        AskError::Refused(why) => usage(format!("process {}: {}", stack.pid, printable(&why))),
        other => failed(format!("process {}: {other}", stack.pid)),
    })
}

fn export(arguments: &Arguments, stacks: &[Stack]) -> Outcome {
    let [stack] = stacks else {
        let ids: Vec<_> = stacks.iter().map(|s| s.pid.to_string()).collect();
        return Err(usage(format!(
            "several processes run stacks: choose one with --pid, of {}",
            ids.join(", ")
        )));
    };
    let read = |last: u64, since: u64| {
        let names = match arguments.event.as_slice() {
            [] => String::new(),
            names => format!(" {}", names.join(",")),
        };
        ask(stack, &format!("read {last} {since}{names}"))
    };
    let most = if arguments.perfetto.is_some() {
        u64::MAX
    } else {
        1000
    };
    let mut found = read(arguments.last.unwrap_or(most), 0)?;
    if arguments.json {
        found["cost"] = json!(cost_lines());
        return print_json(&found);
    }
    if let Some(file) = &arguments.perfetto {
        fs::write(file, format!("{}\n", perfetto::export(&found, stack.pid)))
            .map_err(at(file.display()))?;
        return print(&stopped(&found));
    }
    print(&format!("{}{}", head(&found), lines(&found)))?;
    if arguments.follow {
        follow(read, found)?;
    }
    Ok(())
}

/// Prints what comes, until the stack ends.
fn follow(read: impl Fn(u64, u64) -> Result<Value, Failure>, mut found: Value) -> Outcome {
    loop {
        thread::sleep(PAUSE);
        found = match read(u64::MAX, found["next"].as_u64().unwrap_or(0)) {
            Ok(found) => found,
            // What was watched has ended: that is an end, not a failure.
            Err(_) => return print("the stack has ended\n"),
        };
        print(&lines(&found))?;
    }
}

/// What tracing costs on this machine, and how far the clocks of its cores are apart: measured here and now, in this process.
fn cost_lines() -> Vec<String> {
    let mut lines = vec![Cost::measure().to_string()];
    let cores = netchan_lab::kit::cores();
    if let Some((first, others)) = cores.split_first() {
        lines.extend(others.iter().take(63).map(|&other| match Offset::measure(*first, other) {
            Ok(offset) => format!("the clock of core {other} against core {first}: {offset}"),
            Err(why) => format!("the clock of core {other} against core {first} could not be measured: {why}"),
        }));
    }
    lines
}

/// Threads and costs, before the events.
fn head(found: &Value) -> String {
    let mut text = String::new();
    for line in cost_lines() {
        text += &format!("# {line}\n");
    }
    let level = printable(found["level"].as_str().unwrap_or("?"));
    text += &format!("# recorded: {level}");
    if let Some(n @ 1..) = found["threads_without"].as_u64() {
        text += &format!("; {n} threads found no room for a trace");
    }
    text.push('\n');
    text += &stopped(found);
    for thread in found["threads"].as_array().into_iter().flatten() {
        let core = thread["core"]
            .as_u64()
            .map_or(String::new(), |core| format!(", last on core {core}"));
        text += &format!(
            "# {}: {} events, {} of them overwritten{core}\n",
            label(thread),
            thread["events"],
            thread["overwritten"]
        );
    }
    if let Some(n @ 1..) = found["left_out"].as_u64() {
        text += &format!("# {n} earlier events left out (--last)\n");
    }
    text
}

/// Whether the recording stops by itself, has done so, and why: a line, or none.
fn stopped(found: &Value) -> String {
    let trigger = &found["trigger"];
    let (Some(state), Some(why)) = (trigger["state"].as_str(), trigger["why"].as_str()) else {
        return String::new();
    };
    let mut line = format!("# {}: {}", printable(state), printable(why));
    if let Some(at) = trigger["at_ns"].as_u64() {
        line += &format!(", at {}", seconds(at));
    }
    if let Some(n @ 1..) = trigger["events_to_come"].as_u64() {
        line += &format!("; {n} events are still to come");
    }
    line + "\n"
}

/// A moment, as the lines have it.
fn seconds(at_ns: u64) -> String {
    format!("{}.{:09} s", at_ns / 1_000_000_000, at_ns % 1_000_000_000)
}

/// A thread's name and number.
fn label(thread: &Value) -> String {
    format!(
        "{} {}",
        printable(thread["name"].as_str().unwrap_or("?")),
        thread["thread"]
    )
}

fn thread_of<'a>(found: &'a Value, event: &Value) -> &'a Value {
    let number = event["thread"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok());
    &found["threads"][number.unwrap_or(usize::MAX)]
}

fn lines(found: &Value) -> String {
    let mut text = String::new();
    for event in found["events"].as_array().into_iter().flatten() {
        let at = event["at_ns"].as_u64().unwrap_or(0);
        let word = |key: &str| printable(event[key].as_str().unwrap_or("?"));
        text += &format!(
            "{:>18}  {:<24} {}: {}\n",
            seconds(at),
            label(thread_of(found, event)),
            word("event"),
            word("text")
        );
    }
    text
}
