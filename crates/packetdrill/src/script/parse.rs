//! From text to events.

use std::{net::Shutdown, time::Duration};

use netchan::socket::SocketOption;

use super::{Action, Event, Failure, Outcome, Script, segment::Segment};
use crate::settings::Settings;

/// Two ticks of the stack's timers.
const TOLERANCE_US: u64 = 2_500;

pub(super) fn script(name: &str, text: &str) -> Result<Script, Failure> {
    let mut script = Script {
        name: name.to_owned(),
        settings: Settings::default(),
        tolerance_us: TOLERANCE_US,
        events: Vec::new(),
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fail = |what: String| Failure {
            name: name.to_owned(),
            line: number + 1,
            what,
        };
        match line.split_once(' ') {
            Some(("set", setting)) if script.events.is_empty() => {
                if !script.settings.set(setting) {
                    return Err(fail(format!("there is no setting {setting}")));
                }
            }
            Some(("tolerance", value)) => {
                script.tolerance_us =
                    micros(value).ok_or_else(|| fail(format!("{value} is no time")))?;
            }
            _ => {
                let (after_us, action) = event(line).map_err(fail)?;
                script.events.push(Event {
                    line: number + 1,
                    after_us,
                    action,
                });
            }
        }
    }
    Ok(script)
}

/// Seconds with up to six decimals, as microseconds.
fn micros(text: &str) -> Option<u64> {
    let text = text.trim();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(part)
}

fn event(line: &str) -> Result<((u64, u64), Action), String> {
    let (after, rest) = match line.strip_prefix('+') {
        Some(timed) => {
            let (time, rest) = timed
                .split_once(' ')
                .ok_or_else(|| "a time needs an action behind it".to_owned())?;
            let (least, most) = time.split_once('~').unwrap_or((time, time));
            let bad = || format!("{time} is no time");
            let range = (
                micros(least).ok_or_else(bad)?,
                micros(most).ok_or_else(bad)?,
            );
            (range, rest.trim())
        }
        None => ((0, 0), line),
    };
    Ok((after, action(rest)?))
}

fn action(text: &str) -> Result<Action, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let bad = || format!("{verb}: {rest} is not understood");
    Ok(match verb {
        "<" => Action::Arrives(Segment::parse(rest)?),
        ">" => Action::Leaves(Segment::parse(rest)?),
        "quiet" => Action::Quiet,
        "listen" => Action::Listen,
        "connect" => Action::Connect(outcome(rest).ok_or_else(bad)?),
        "accept" => Action::Accept(outcome(rest).ok_or_else(bad)?),
        "send" => Action::Send(outcome(rest).ok_or_else(bad)?),
        "recv" => Action::Receive(outcome(rest).ok_or_else(bad)?),
        "endrecord" => Action::EndRecord,
        "close" => Action::Close,
        "shutdown" => Action::Shutdown(match rest {
            "read" => Shutdown::Read,
            "write" => Shutdown::Write,
            "both" => Shutdown::Both,
            _ => return Err(bad()),
        }),
        "option" => Action::Option(option(rest).ok_or_else(bad)?),
        "state" => Action::State(rest.to_owned()),
        "error" => Action::Error(outcome(rest).ok_or_else(bad)?),
        "change" if Settings::default().set(rest) => Action::Change(rest.to_owned()),
        "change" => return Err(format!("there is no setting {rest}")),
        "isn" => Action::PeerIsn(rest.parse().map_err(|_| bad())?),
        "port" => Action::PeerPort(rest.parse().map_err(|_| bad())?),
        _ => return Err(format!("there is no action {verb}")),
    })
}

/// Errors by their names: those that scripts have a use for.
const ERRORS: &[(&str, i32)] = &[
    ("EAGAIN", libc::EAGAIN),
    ("ECONNABORTED", libc::ECONNABORTED),
    ("ECONNREFUSED", libc::ECONNREFUSED),
    ("ECONNRESET", libc::ECONNRESET),
    ("EHOSTUNREACH", libc::EHOSTUNREACH),
    ("EINPROGRESS", libc::EINPROGRESS),
    ("EINVAL", libc::EINVAL),
    ("EISCONN", libc::EISCONN),
    ("ENETUNREACH", libc::ENETUNREACH),
    ("ENOTCONN", libc::ENOTCONN),
    ("EPIPE", libc::EPIPE),
    ("ETIMEDOUT", libc::ETIMEDOUT),
];

pub(super) fn error_name(errno: i32) -> String {
    let known = ERRORS.iter().find(|(_, number)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(name, _)| (*name).to_owned())
}

fn outcome(text: &str) -> Option<Outcome> {
    match text {
        "" | "none" | "eof" => Some(Outcome::Count(0)),
        _ => match ERRORS.iter().find(|(name, _)| *name == text) {
            Some((_, errno)) => Some(Outcome::Errno(*errno)),
            None => text.parse().ok().map(Outcome::Count),
        },
    }
}

fn option(text: &str) -> Option<SocketOption> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let on = value != "0";
    let time = || micros(value).map(Duration::from_micros);
    Some(match name {
        "nodelay" => SocketOption::NoDelay(on),
        "cork" => SocketOption::Cork(on),
        "quickack" => SocketOption::QuickAck(on),
        "keepalive" => SocketOption::KeepAlive(on),
        "keepidle" => SocketOption::KeepIdle(time()?),
        "keepintvl" => SocketOption::KeepInterval(time()?),
        "keepcnt" => SocketOption::KeepCount(value.parse().ok()?),
        "user_timeout" => SocketOption::UserTimeout(time()?),
        "linger" => SocketOption::Linger(Some(time()?)),
        "mss" => SocketOption::MaxSegment(value.parse().ok()?),
        "rcvbuf" => SocketOption::ReceiveBuffer(value.parse().ok()?),
        "sndbuf" => SocketOption::SendBuffer(value.parse().ok()?),
        "fastopen" => SocketOption::FastOpen(value.parse().ok()?),
        "fastconnect" => SocketOption::FastOpenConnect(on),
        _ => return None,
    })
}
