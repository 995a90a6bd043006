//! `netchan extcap`: running stacks and their links among Wireshark's interfaces, by its extcap interface (extcap(4)).
//!
//! Wireshark starts each program of its extcap directory several times: to list interfaces, what an interface's frames begin with, what can be set, to check a
//! filter, and to capture into a pipe. It gives its own arguments first, so that a symbolic link to netchan whose name holds `extcap` is this command.

use std::{ffi::OsString, path::PathBuf};

use clap::ValueEnum;
use netchan::{
    control::{
        self, Stack,
        capture::{Of, Request},
    },
    tap::Way,
};
use serde_json::Value;

use crate::{
    capture::{Sink, Until, begin, carry, libpcap},
    failure::{Failure, Outcome, failed, usage},
    output::{print, printable},
    show::{choose, interruption},
};

/// What names of interfaces begin with.
const PREFIX: &str = "netchan_";
/// What they end with where all of a stack's links are meant, or what it drops.
const ALL: &str = "all";
const DROPS: &str = "drops";
const LINK: &str = "link";

/// Lists running stacks for Wireshark, and captures for it (its extcap interface)
#[derive(clap::Args)]
#[command(
    after_help = "Wireshark starts it, by a symbolic link in its extcap directory (Help, About Wireshark, Folders) whose name holds `extcap`:\n  \
        ln -s \"$(command -v netchan)\" ~/.local/lib/wireshark/extcap/netchan-extcap\n\n\
        Examples:\n  netchan extcap --extcap-interfaces\n  netchan extcap --capture --extcap-interface netchan_4711_all --fifo pipe"
)]
pub struct Arguments {
    /// Lists the interfaces
    #[arg(long)]
    extcap_interfaces: bool,
    /// The version of Wireshark that asks
    #[allow(dead_code, reason = "it is said to all alike; nothing depends on it")]
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<Option<String>>,
    /// The interface that is meant
    #[arg(long, value_name = "INTERFACE")]
    extcap_interface: Option<String>,
    /// Lists what frames of the interface begin with
    #[arg(long)]
    extcap_dlts: bool,
    /// Lists what can be set
    #[arg(long)]
    extcap_config: bool,
    /// Captures
    #[arg(long)]
    capture: bool,
    /// With --capture: where to
    #[arg(long, value_name = "PIPE")]
    fifo: Option<PathBuf>,
    /// A filter in tcpdump's language; without --capture it is only checked
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Bytes of each frame that are kept
    #[arg(long, value_name = "BYTES", default_value_t = u16::MAX, value_parser = clap::value_parser!(u16).range(1..))]
    snap: u16,
    /// Only frames that go this way
    #[arg(long, value_name = "WAY", default_value = "both")]
    way: Ways,
    /// With each frame, say the core and the regime
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    comments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ways {
    Both,
    In,
    Out,
}

/// An interface's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    stack: String,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    Drops,
    Link(u8),
}

impl Interface {
    fn parse(name: &str) -> Result<Self, Failure> {
        let wrong = || {
            failed(format!(
                "'{}' is no interface of netchan's",
                printable(name)
            ))
        };
        let rest = name.strip_prefix(PREFIX).ok_or_else(wrong)?;
        let (stack, part) = rest.split_once('_').ok_or_else(wrong)?;
        let part = match part {
            ALL => Part::All,
            DROPS => Part::Drops,
            link => {
                let number = link
                    .strip_prefix(LINK)
                    .and_then(|number| number.parse().ok());
                Part::Link(number.ok_or_else(wrong)?)
            }
        };
        let is_id = !stack.is_empty() && stack.chars().all(|c| c.is_ascii_digit() || c == '-');
        let stack = is_id.then(|| stack.to_owned()).ok_or_else(wrong)?;
        Ok(Self { stack, part })
    }

    /// The stack that it is of.
    fn find(&self) -> Result<Stack, Failure> {
        let stacks = choose(Some(&self.stack))?;
        let found = stacks.into_iter().find(|stack| stack.id == self.stack);
        found.ok_or_else(|| failed(format!("stack {} has ended", self.stack)))
    }
}

/// The command line of the program, with this command in it where Wireshark has started it.
pub fn command_line(mut line: Vec<OsString>) -> Vec<OsString> {
    let text = |at: usize| line.get(at).map(|word| word.to_string_lossy().into_owned());
    let program = text(0).unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let asks = |at: usize| text(at).is_some_and(|word| word.starts_with("--"));
    let is_asked =
        (1..line.len()).any(|at| text(at).is_some_and(|word| word.starts_with("--extcap-")));
    if asks(1) && is_asked || name.contains("extcap") && text(1).is_none_or(|word| word != "extcap")
    {
        line.insert(1.min(line.len()), "extcap".into());
    }
    line
}

/// Runs the command.
pub fn extcap(arguments: &Arguments) -> Outcome {
    if arguments.extcap_interfaces {
        return print(&interfaces(&control::stacks()));
    }
    let Some(name) = &arguments.extcap_interface else {
        return Err(usage("which interface? --extcap-interfaces lists them"));
    };
    let interface = Interface::parse(name)?;
    if arguments.extcap_dlts {
        return print("dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    }
    if arguments.extcap_config {
        return print(CONFIG);
    }
    if arguments.capture {
        return capture(arguments, &interface);
    }
    match &arguments.extcap_capture_filter {
        // What Wireshark shows of a filter that is none; nothing says that it is one.
        Some(filter) => match program(filter) {
            Ok(_) => Ok(()),
            Err(why) => print(&format!("{}\n", printable(&why))),
        },
        None => Err(usage("--capture, or what is asked of the interface?")),
    }
}

/// What Wireshark offers to set.
const CONFIG: &str = "\
arg {number=0}{call=--snap}{display=Bytes of each frame}{tooltip=The first so many bytes of each are kept}{type=integer}{range=1,65535}{default=65535}
arg {number=1}{call=--way}{display=Way}{tooltip=Frames that come in, that go out, or both}{type=selector}
value {arg=1}{value=both}{display=Both}{default=true}
value {arg=1}{value=in}{display=In}{default=false}
value {arg=1}{value=out}{display=Out}{default=false}
arg {number=2}{call=--comments}{display=Comments}{tooltip=The shard, the core and the regime as a comment of each frame}{type=boolean}{default=false}
";

/// The list of interfaces: for each stack all its links, each of several, and what it drops.
fn interfaces(stacks: &[Stack]) -> String {
    let mut lines = format!(
        "extcap {{version={}}}{{display=netchan}}\n",
        env!("CARGO_PKG_VERSION")
    );
    for stack in stacks {
        // One that does not answer has none.
        let Ok(links) = stack.show("links") else {
            continue;
        };
        lines += &of_stack(&stack.id, stack.pid, &links);
    }
    lines
}

fn of_stack(id: &str, pid: u32, links: &Value) -> String {
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let whose = worded(&format!("netchan {id} ({})", command.trim_end()));
    let mut lines = String::new();
    let mut add = |part: &str, what: &str| {
        lines += &format!("interface {{value={PREFIX}{id}_{part}}}{{display={whose}: {what}}}\n");
    };
    add(ALL, "all links");
    let rows = links.as_array().into_iter().flatten();
    let names: Vec<&str> = rows
        .map(|row| row["name"].as_str().unwrap_or("?"))
        .collect();
    for (number, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
        add(&format!("{LINK}{number}"), &worded(name));
    }
    add(DROPS, "what it drops");
    lines
}

/// Text without what the list is made of.
fn worded(text: &str) -> String {
    let fit = |c: char| if c == '{' || c == '}' { '_' } else { c };
    printable(text).chars().map(fit).collect()
}

/// A filter's program; of none, none.
fn program(filter: &str) -> Result<Vec<(u16, u8, u8, u32)>, String> {
    match filter.trim() {
        "" => Ok(Vec::new()),
        filter => libpcap::compile(filter),
    }
}

fn capture(arguments: &Arguments, interface: &Interface) -> Outcome {
    let Some(pipe) = &arguments.fifo else {
        return Err(usage("--capture needs --fifo PIPE"));
    };
    let filter = arguments.extcap_capture_filter.as_deref().unwrap_or("");
    let stack = interface.find()?;
    let request = Request {
        // By its number: names may be twice.
        link: match interface.part {
            Part::Link(number) => Some(format!("#{number}")),
            Part::All | Part::Drops => None,
        },
        way: match arguments.way {
            Ways::Both => None,
            Ways::In => Some(Way::In),
            Ways::Out => Some(Way::Out),
        },
        snap: Some(arguments.snap.into()),
        program: program(filter).map_err(failed)?,
        of: match interface.part {
            Part::Drops => Of::Drops,
            Part::All | Part::Link(_) => Of::Links,
        },
        notes: arguments.comments == "true" || interface.part == Part::Drops,
    };
    request.filter().map_err(failed)?;
    let until = Until {
        interrupted: interruption()?,
        duration: None,
        count: None,
    };
    let capture = begin(&stack, &request)?;
    let sink = Sink::file(pipe, &capture, arguments.snap)?;
    carry(&stack, capture, sink, &until)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(words: &[&str]) -> Vec<String> {
        let line = command_line(words.iter().map(OsString::from).collect());
        line.iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn wiresharks_command_line_is_known() {
        let link = "/usr/lib/x/wireshark/extcap/netchan-extcap";
        for asked in [
            &["--extcap-interfaces", "--extcap-version=4.0"][..],
            &[
                "--capture",
                "--extcap-interface",
                "netchan_1_all",
                "--fifo",
                "x",
            ],
        ] {
            for program in [link, "/usr/bin/netchan"] {
                let words = [&[program], asked].concat();
                assert_eq!(line(&words)[1], "extcap", "{words:?}");
            }
        }
        assert_eq!(line(&[link]), [link, "extcap"]);
        for others in [
            &["netchan"][..],
            &["netchan", "show", "links"],
            &["netchan", "extcap", "--extcap-interfaces"],
            &["netchan", "run", "--", "x", "--extcap-interfaces"],
            &["/x/extcap/netchan", "--version"],
            &[],
        ] {
            assert_eq!(line(others), others);
        }
    }

    #[test]
    fn interfaces_are_listed_and_found_again() {
        let links = json!([{ "name": "tap:nc0" }, { "name": "w{}\n" }]);
        let listed = of_stack("12-3", 0, &links);
        let values: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.strip_prefix("interface {value=")?.split('}').next())
            .collect();
        let parts: Vec<Part> = values
            .iter()
            .map(|value| {
                let found = Interface::parse(value).expect("its own");
                assert_eq!(found.stack, "12-3");
                found.part
            })
            .collect();
        assert_eq!(
            parts,
            [Part::All, Part::Link(0), Part::Link(1), Part::Drops]
        );
        assert!(!listed.contains("w{"), "{listed}");
        assert_eq!(
            of_stack("1", 0, &json!([{ "name": "a" }])).lines().count(),
            2
        );
        assert!(interfaces(&[]).starts_with("extcap {version="));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for wrong in [
            "",
            "eth0",
            "netchan_",
            "netchan_1",
            "netchan__all",
            "netchan_1_",
            "netchan_1_link",
            "netchan_1_link256",
            "netchan_1_linkx",
            "netchan_../x_all",
        ] {
            assert!(Interface::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_can_be_set_are_options_of_the_command() {
        let command = <Arguments as clap::Args>::augment_args(clap::Command::new("extcap"));
        for call in CONFIG.split("{call=--").skip(1) {
            let name = call.split('}').next().unwrap_or_default();
            assert!(
                command.get_arguments().any(|a| a.get_long() == Some(name)),
                "{name}"
            );
        }
    }
}
