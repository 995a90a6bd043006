//! `netchan show`: asks running stacks for facts through their control sockets, and prints them.

use std::{io::IsTerminal, thread, time::Duration};

use netchan::control::{self, AskError, Stack, TOPICS};
use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Outcome, failed, usage},
    output::{print, print_json, printable},
    table, units, user,
};

/// Shows what running stacks do
#[derive(clap::Args)]
#[command(
    after_help = "Without TOPIC: the stacks that run. Yours and root's are asked; another user's (as root) if --pid names it. With several running and no --pid: every one, under its own heading \
        (with --json: an object with one member for each, named by its process).\n\n\
        Examples:\n  netchan show\n  netchan show sockets\n  netchan show counters --watch=0.5 --pid 4711\n  netchan show links --json"
)]
pub struct Arguments {
    /// What to show
    #[arg(value_parser = TOPICS)]
    topic: Option<String>,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Print JSON (with --watch: one line each time)
    #[arg(long)]
    json: bool,
    /// Show again every so many seconds until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    watch: Option<f64>,
}

/// Runs the command.
pub fn show(arguments: &Arguments) -> Outcome {
    let pause = match arguments.watch {
        None => return show_once(arguments),
        Some(s) if (0.05..=86_400.0).contains(&s) => Duration::from_secs_f64(s),
        Some(s) => return Err(usage(format!("--watch={s}: give 0.05 to 86400 seconds"))),
    };
    let mut seen = false;
    loop {
        match show_once(arguments) {
            // What was watched has ended: that is an end, not a failure.
            Err(Failure::Failed(why)) if seen => return print(&format!("{why}\n")),
            other => other?,
        }
        seen = true;
        thread::sleep(pause);
    }
}

fn show_once(arguments: &Arguments) -> Outcome {
    let stacks = choose(arguments.pid.as_deref())?;
    let facts = match &arguments.topic {
        None => overview(&stacks),
        Some(topic) => ask_all(&stacks, topic)?,
    };
    if arguments.json {
        return if arguments.watch.is_some() {
            print(&format!("{facts}\n"))
        } else {
            print_json(&facts)
        };
    }
    let mut text = match (&arguments.topic, &facts) {
        (Some(_), Value::Object(each)) if stacks.len() > 1 => sections(&stacks, each),
        _ => table::render(&facts),
    };
    if arguments.watch.is_some() {
        let clear = std::io::stdout().is_terminal();
        text = if clear {
            format!("\u{1b}[H\u{1b}[2J{text}")
        } else {
            format!("{text}\n")
        };
    }
    print(&text)
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
fn ask_all(stacks: &[Stack], topic: &str) -> Result<Value, Failure> {
    if let [only] = stacks {
        return only
            .show(topic)
            .map_err(|why| failed(format!("stack {}: {why}", only.id)));
    }
    let answers: Vec<(String, Result<Value, AskError>)> = stacks
        .iter()
        .map(|stack| (stack.id.clone(), stack.show(topic)))
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

fn sections(stacks: &[Stack], each: &Map<String, Value>) -> String {
    let mut text = String::new();
    for stack in stacks {
        let Some(facts) = each.get(&stack.id) else {
            continue;
        };
        let (command, up) = match stack.hello() {
            Ok(who) => (
                printable(who.get("command").and_then(Value::as_str).unwrap_or("?")),
                who.get("up_s").and_then(Value::as_f64).unwrap_or(0.0),
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
            table::render(facts)
        ));
    }
    text
}
