//! `netchan trace`: what running stacks have recorded, merged and in English; more of it on request.

use std::{fs, path::PathBuf, thread, time::Duration};

use clap::ValueEnum;
use netchan::{
    control::{AskError, Stack},
    trace::{Cost, Offset},
};
use serde_json::{Value, json};

use crate::{
    failure::{Outcome, at, failed, usage},
    output::{print, print_json, printable},
    show::choose,
};

/// Shows what running stacks have recorded
#[derive(clap::Args)]
#[command(
    after_help = "What is rare is always recorded (setting trace = \"off|rare|all\" in the configuration file): connections that begin and end, \
        losses, drops. `start` adds every burst, turn, hand-over and sleep, and what each thread spends its time on (netchan show stages), until `stop`. \
        The newest 1024 events of each thread are kept.\n\n\
        Examples:\n  netchan trace\n  netchan trace --event drop,tcp-timeout --follow\n  netchan trace start\n  netchan trace export --perfetto trace.json"
)]
pub struct Arguments {
    /// What to do (default: export)
    #[arg(value_enum)]
    action: Option<Action>,
    /// Only these events, by name (may be repeated)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    event: Vec<String>,
    /// The newest so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    last: u64,
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
    match arguments.action.unwrap_or(Action::Export) {
        Action::Start => switch(&stacks, "start"),
        Action::Stop => switch(&stacks, "stop"),
        Action::Export => export(arguments, &stacks),
    }
}

fn switch(stacks: &[Stack], word: &str) -> Outcome {
    for stack in stacks {
        let now = ask(stack, word)?;
        let level = printable(now["level"].as_str().unwrap_or("?"));
        print(&format!("process {}: records {level}\n", stack.pid))?;
    }
    Ok(())
}

fn ask(stack: &Stack, request: &str) -> Result<Value, crate::failure::Failure> {
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
    let mut found = read(arguments.last, 0)?;
    if arguments.json {
        found["cost"] = json!(cost_lines());
        return print_json(&found);
    }
    if let Some(file) = &arguments.perfetto {
        return fs::write(file, format!("{}\n", perfetto(&found, stack.pid)))
            .map_err(at(file.display()));
    }
    print(&format!("{}{}", head(&found), lines(&found)))?;
    if arguments.follow {
        follow(read, found)?;
    }
    Ok(())
}

/// Prints what comes, until the stack ends.
fn follow(
    read: impl Fn(u64, u64) -> Result<Value, crate::failure::Failure>,
    mut found: Value,
) -> Outcome {
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
            "{:>6}.{:09} s  {:<24} {}: {}\n",
            at / 1_000_000_000,
            at % 1_000_000_000,
            label(thread_of(found, event)),
            word("event"),
            word("text")
        );
    }
    text
}

/// The JSON of ui.perfetto.dev: turns and sleeps as spans, everything else as instants; times in microseconds.
fn perfetto(found: &Value, pid: u32) -> Value {
    let mut events = Vec::new();
    for thread in found["threads"].as_array().into_iter().flatten() {
        events.push(json!({
            "ph": "M", "name": "thread_name", "pid": pid, "tid": thread["thread"], "args": { "name": label(thread) },
        }));
    }
    for event in found["events"].as_array().into_iter().flatten() {
        let (phase, name) = match event["event"].as_str().unwrap_or("?") {
            "turn-begin" => ("B", "turn"),
            "turn-end" => ("E", "turn"),
            "sleep" => ("B", "sleep"),
            "wake" => ("E", "sleep"),
            other => ("i", other),
        };
        // Precision: microseconds since the machine started are below 2^52.
        let at_us = event["at_ns"].as_u64().unwrap_or(0) as f64 / 1e3;
        events.push(json!({
            "ph": phase, "name": name, "ts": at_us, "pid": pid, "tid": thread_of(found, event)["thread"], "s": "t",
            "args": { "text": event["text"] },
        }));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}
