//! `netchan demo`: the main job, narrated. An unmodified server program on netchan, reached by an ordinary client.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use netchan::Regime;
use serde::Serialize;

use crate::{
    failure::{Failure, Outcome, failed},
    namespace::{self, Abilities, Kind},
    netlink,
    output::{print, print_json},
    table, units,
};

mod link;
mod memory;
mod place;
pub mod traffic;

use traffic::Exchange;

/// Regimes of the table: all there are.
fn regimes() -> impl Iterator<Item = &'static str> {
    Regime::here().map(Regime::name)
}
/// The seed of the file that is transferred, printed so that anyone can make it again.
const SEED: u64 = 77;

/// The main job, narrated: an unmodified web server on netchan, reached by an ordinary client
#[derive(clap::Args)]
#[command(
    after_help = "Needs no root: it makes a user and network namespace of its own, which ends with it. Under a minute.\n\n\
        Examples:\n  netchan demo\n  netchan demo --json > demo.json\n  netchan demo --link wire"
)]
pub struct Arguments {
    /// The link between netchan and Linux: tap, packet (AF_PACKET on a virtual Ethernet), or wire (in memory, between two netchans); the first that works if not given
    #[arg(long, value_parser = ["tap", "packet", "wire"])]
    link: Option<String>,
    /// Size of the file transferred each way, MiB
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65536))]
    size: u64,
    /// Length of each measurement, seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// Print the facts as JSON in the end (the narration goes to standard error)
    #[arg(long)]
    json: bool,
}

/// How netchan and its peer are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Means {
    Tap,
    Packet,
    Wire,
}

/// One verified transfer.
#[derive(Clone, Debug, Serialize)]
struct Transfer {
    direction: &'static str,
    server: String,
    client: String,
    bytes: u64,
    seconds: f64,
    gbit_per_s: f64,
    sha256: String,
    verified: bool,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    stack: String,
    bulk_in_gbit_per_s: f64,
    bulk_out_gbit_per_s: f64,
    rr_p50_ns: f64,
    rr_p99_ns: f64,
    rr_per_s: f64,
}

impl Row {
    fn new(stack: impl Into<String>, inward: f64, outward: f64, exchange: Exchange) -> Self {
        Self {
            stack: stack.into(),
            bulk_in_gbit_per_s: inward,
            bulk_out_gbit_per_s: outward,
            rr_p50_ns: exchange.p50_ns,
            rr_p99_ns: exchange.p99_ns,
            rr_per_s: exchange.per_s,
        }
    }
}

/// Everything the demo found.
#[derive(Debug, Serialize)]
struct Facts {
    link: Means,
    namespace: Option<Kind>,
    seed: u64,
    debug_build: bool,
    transfers: Vec<Transfer>,
    rows: Vec<Row>,
}

/// What the steps share: how long, how much, and where the story goes.
struct Teller {
    quiet_stdout: bool,
    bytes: u64,
    time: Duration,
}

impl Teller {
    /// One line of the story.
    fn say(&self, line: &str) -> Outcome {
        if self.quiet_stdout {
            eprintln!("{line}");
            return Ok(());
        }
        print(&format!("{line}\n"))
    }

    /// A bar for `bytes`; invisible where standard error is no terminal.
    fn bar(&self, what: &str, bytes: u64) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "    {msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec}",
        );
        let bar = ProgressBar::new(bytes).with_message(what.to_owned());
        match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    /// Something that takes a while and has no size.
    fn spinner(&self, what: &str) -> ProgressBar {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        bar
    }

    fn transfer(&self, transfer: &Transfer) -> Outcome {
        self.say(&format!(
            "    {} in {}: {}; SHA-256 {}… {}",
            size(transfer.bytes),
            units::nanoseconds(transfer.seconds * 1e9),
            units::short(transfer.gbit_per_s, "Gbit/s"),
            transfer.sha256.get(..16).unwrap_or(&transfer.sha256),
            if transfer.verified {
                "is the file's: every byte arrived"
            } else {
                "is NOT the file's"
            },
        ))?;
        if transfer.verified {
            return Ok(());
        }
        Err(failed(format!(
            "what arrived ({}) is not what was sent",
            transfer.direction
        )))
    }
}

/// Runs the command.
pub fn demo(arguments: &Arguments) -> Outcome {
    if !(0.05..=60.0).contains(&arguments.seconds) {
        return Err(crate::failure::usage(format!(
            "--seconds {}: give 0.05 to 60",
            arguments.seconds
        )));
    }
    let teller = Teller {
        quiet_stdout: arguments.json,
        bytes: arguments.size << 20,
        time: Duration::from_secs_f64(arguments.seconds),
    };
    teller.say("netchan demo: an unmodified server program on a TCP/IP stack of its own\n")?;
    let abilities = namespace::abilities();
    let (means, why) = choose(arguments.link.as_deref(), &abilities)?;
    teller.say("The place")?;
    if means != Means::Wire {
        enter(&abilities)?;
    }
    introduce(&teller, means, why.as_deref(), &abilities)?;
    let (transfers, rows) = match means {
        Means::Wire => memory::steps(&teller)?,
        _ => link::steps(&teller, means)?,
    };
    let facts = Facts {
        link: means,
        namespace: abilities.namespace.filter(|_| means != Means::Wire),
        seed: SEED,
        debug_build: cfg!(debug_assertions),
        transfers,
        rows,
    };
    finish(&teller, &facts)
}

/// The first means that works, and why a better one does not.
fn choose(wanted: Option<&str>, abilities: &Abilities) -> Result<(Means, Option<String>), Failure> {
    let no_namespace = abilities.namespace_error.as_ref();
    let tap = no_namespace.or(abilities.tap_error.as_ref());
    let packet = no_namespace.or(abilities.veth_error.as_ref());
    let insist = |means: Means, obstacle: Option<&String>| match obstacle {
        None => Ok((means, None)),
        Some(why) => Err(failed(format!(
            "this link cannot be had here: {why}\nSee: netchan doctor. Without --link the demo takes what there is."
        ))),
    };
    match (wanted, tap, packet) {
        (Some("tap"), ..) => insist(Means::Tap, tap),
        (Some("packet"), ..) => insist(Means::Packet, packet),
        (Some(_), ..) => Ok((Means::Wire, None)),
        (None, None, _) => Ok((Means::Tap, None)),
        (None, Some(why), None) => {
            Ok((Means::Packet, Some(format!("No TAP device here ({why})."))))
        }
        (None, Some(why), Some(other)) => Ok((
            Means::Wire,
            Some(if no_namespace.is_some() {
                format!("No namespace can be made here ({why}).")
            } else {
                format!("No link to the kernel can be had here ({why}; {other}).")
            }),
        )),
    }
}

/// Into the namespace, with a kernel there that is a fair peer.
fn enter(abilities: &Abilities) -> Outcome {
    let kind = abilities
        .namespace
        .ok_or_else(|| failed("no namespace can be made"))?;
    namespace::enter(kind).map_err(failed)?;
    // The default may pace (bbr): compare with the usual one. Where this is refused the default stays.
    let _ = std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    Ok(())
}

fn introduce(teller: &Teller, means: Means, why: Option<&str>, abilities: &Abilities) -> Outcome {
    if let Some(why) = why {
        teller.say(&format!("    {why}"))?;
    }
    let kind = abilities
        .namespace
        .map(|kind| kind.to_string())
        .unwrap_or_default();
    let link = match means {
        Means::Tap => "the TAP device nc0",
        Means::Packet => "a virtual Ethernet cable, on whose end nc0 netchan sits with AF_PACKET",
        Means::Wire => {
            teller.say(
                "    So everything stays in this process: two netchans, 10.77.0.2 and 10.77.0.3, joined by a wire in memory.",
            )?;
            return warn_of_debug(teller);
        }
    };
    teller.say(&format!(
        "    A {kind} of its own, which ends with this program; in it, {link}."
    ))?;
    let (linux, own) = if netlink::has_ipv6() {
        ("10.77.0.1 and fd77::1", "10.77.0.2 and fd77::2")
    } else {
        ("10.77.0.1", "10.77.0.2")
    };
    teller.say(&format!(
        "    This end of the link is Linux's own TCP/IP: {linux}."
    ))?;
    teller.say(&format!(
        "    The other end is netchan: {own}, in the process of the program it serves."
    ))?;
    warn_of_debug(teller)
}

fn warn_of_debug(teller: &Teller) -> Outcome {
    if cfg!(debug_assertions) {
        teller.say("    This is a debug build, with every check on: the figures mean nothing. (make demo builds the other.)")?;
    }
    Ok(())
}

fn finish(teller: &Teller, facts: &Facts) -> Outcome {
    let rows: Vec<Vec<String>> = facts
        .rows
        .iter()
        .map(|row| {
            vec![
                row.stack.clone(),
                units::short(row.bulk_in_gbit_per_s, "Gbit/s"),
                units::short(row.bulk_out_gbit_per_s, "Gbit/s"),
                units::nanoseconds(row.rr_p50_ns),
                units::nanoseconds(row.rr_p99_ns),
                units::count(row.rr_per_s),
            ]
        })
        .collect();
    let headings = [
        "",
        "bulk in",
        "bulk out",
        "1 byte and back: median",
        "99 %",
        "per second",
    ];
    teller.say("")?;
    for line in table::text(&headings, &rows).lines() {
        teller.say(&format!("    {line}"))?;
    }
    let from = match facts.link {
        Means::Wire => "another netchan, over the wire",
        Means::Tap | Means::Packet => "Linux's TCP, over the link",
    };
    teller.say(&format!(
        "\n    Server on the named stack, client on {from}; last line: both on Linux's loopback. Same programs, same sizes,\n    \
         one connection, one run: `netchan lab run path` measures with care, `netchan doctor` says what disturbs here."
    ))?;
    teller.say("\nDone. Yours to try: netchan run -- python3 -m http.server 8000")?;
    if teller.quiet_stdout {
        return print_json(facts);
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // three digits are printed
fn size(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

#[allow(clippy::cast_precision_loss)] // three digits are printed
fn transfer_of(
    direction: &'static str,
    programs: (&str, &str),
    bytes: u64,
    ns: u64,
    (sent, arrived): (&str, &str),
) -> Transfer {
    let seconds = ns.max(1) as f64 / 1e9;
    Transfer {
        direction,
        server: programs.0.to_owned(),
        client: programs.1.to_owned(),
        bytes,
        seconds,
        gbit_per_s: bytes as f64 * 8.0 / 1e9 / seconds,
        sha256: arrived.to_owned(),
        verified: sent == arrived,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_link_that_works_is_taken() {
        let all = Abilities {
            namespace: Some(Kind::User),
            ..Abilities::default()
        };
        let no_tap = Abilities {
            tap_error: Some("no tun".to_owned()),
            ..all.clone()
        };
        let nothing = Abilities {
            namespace_error: Some("forbidden".to_owned()),
            ..Abilities::default()
        };
        assert_eq!(choose(None, &all).unwrap(), (Means::Tap, None));
        let (means, why) = choose(None, &no_tap).unwrap();
        assert!(means == Means::Packet && why.unwrap().contains("no tun"));
        let (means, why) = choose(None, &nothing).unwrap();
        assert!(means == Means::Wire && why.unwrap().contains("forbidden"));
        assert!(choose(Some("tap"), &no_tap).is_err());
        assert_eq!(choose(Some("wire"), &all).unwrap(), (Means::Wire, None));
    }
}
