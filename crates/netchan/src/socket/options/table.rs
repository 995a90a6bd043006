//! The table of socket options: a row for each, by level. All that docs/socket-options.md says of them, and all that setsockopt(2) and
//! getsockopt(2) do, comes from here; what an option does to a socket is in [`effects`](super::effects).

mod ip;
mod ipv6;
mod socket;
mod tcp;
mod udp;
mod unsupported;

use std::io;

use libc::c_int;

pub use self::unsupported::{UNSUPPORTED, Unsupported};
use super::{
    CallerOption, Setting,
    row::{Row, Set, Value},
    values::{int, invalid},
};
use crate::{
    api::{Discovery, Kind},
    errno::fail,
    socket::Socket,
};

/// The options of a level.
pub struct Level {
    /// Its number.
    pub number: c_int,
    /// Its name in Linux's headers.
    pub name: &'static str,
    /// Its options, by their numbers.
    pub rows: &'static [Row],
}

/// All levels.
pub static LEVELS: [Level; 5] = [
    Level {
        number: libc::SOL_SOCKET,
        name: "SOL_SOCKET",
        rows: socket::ROWS,
    },
    Level {
        number: libc::IPPROTO_TCP,
        name: "IPPROTO_TCP",
        rows: tcp::ROWS,
    },
    Level {
        number: libc::IPPROTO_IP,
        name: "IPPROTO_IP",
        rows: ip::ROWS,
    },
    Level {
        number: libc::IPPROTO_IPV6,
        name: "IPPROTO_IPV6",
        rows: ipv6::ROWS,
    },
    Level {
        number: libc::SOL_UDP,
        name: "SOL_UDP",
        rows: udp::ROWS,
    },
];

/// The row of an option, if netchan has it.
pub fn find(level: c_int, number: c_int) -> Option<&'static Row> {
    let level = LEVELS.iter().find(|known| known.number == level)?;
    level.rows.iter().find(|row| row.number == number)
}

/// What is said of an option that there is not: an errno.
pub fn refusal(level: c_int, number: c_int) -> i32 {
    let is_it = |group: &&Unsupported| {
        group.level == level && group.options.iter().any(|(other, _)| *other == number)
    };
    let group = UNSUPPORTED.iter().find(is_it);
    group.map_or(libc::ENOPROTOOPT, |group| group.code)
}

/// Reads an option as setsockopt(2) passes it; [`Set::Filter`] is set by its layout.
///
/// # Errors
/// ENOPROTOOPT (not supported, or not to be set), EINVAL (too short, out of range), and what Linux says of single ones.
pub fn parse(level: c_int, number: c_int, value: &[u8]) -> io::Result<Setting> {
    let row = find(level, number);
    // As Linux: whatever it is, also where there is no such option.
    if level == libc::SOL_SOCKET && !row.is_some_and(|row| row.rules.may_be_short) {
        int(value)?;
    }
    let Some(row) = row else {
        return fail(refusal(level, number));
    };
    match row.set {
        Set::No | Set::Filter(_) => fail(libc::ENOPROTOOPT),
        Set::Ignored(check) => check(value).map(|()| Setting::Ignored),
        Set::Flag(flag, read) => Ok(Setting::Caller(CallerOption::Flag(flag, read(value)?))),
        Set::To(read) => read(value),
    }
}

/// Of options about what datagrams bring: a stream has nothing to tell of it.
const OF_DATAGRAMS: &str = "of streams only kept";

/// IP_MTU and IPV6_MTU.
fn mtu(socket: &Socket) -> io::Result<Value> {
    if socket.kind() == Kind::Stream {
        return fail(libc::ENOPROTOOPT);
    }
    let mtu = socket.path_mtu()?;
    Ok(Value::Int(c_int::try_from(mtu).unwrap_or(c_int::MAX)))
}

/// IP_PMTUDISC_INTERFACE and IP_PMTUDISC_OMIT.
const INTERFACE: c_int = 4;
const OMIT: c_int = 5;

/// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER.
fn discovery(value: c_int) -> io::Result<Discovery> {
    Ok(match value {
        libc::IP_PMTUDISC_DONT => Discovery::Dont,
        libc::IP_PMTUDISC_WANT => Discovery::Want,
        libc::IP_PMTUDISC_DO => Discovery::Do,
        libc::IP_PMTUDISC_PROBE => Discovery::Probe,
        INTERFACE => Discovery::Interface,
        OMIT => Discovery::Omit,
        _ => return fail(libc::EINVAL),
    })
}

fn of_discovery(mode: Discovery) -> Value {
    Value::Int(match mode {
        Discovery::Dont => libc::IP_PMTUDISC_DONT,
        Discovery::Want => libc::IP_PMTUDISC_WANT,
        Discovery::Do => libc::IP_PMTUDISC_DO,
        Discovery::Probe => libc::IP_PMTUDISC_PROBE,
        Discovery::Interface => INTERFACE,
        Discovery::Omit => OMIT,
    })
}

/// Hops of what is sent to groups: -1 is the default.
fn group_hops(value: c_int) -> io::Result<u8> {
    match value {
        -1 => Ok(1),
        hops => u8::try_from(hops).map_err(|_| invalid()),
    }
}

/// A flag that may be 0 or 1 only.
fn strict(value: c_int) -> io::Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => fail(libc::EINVAL),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "values_tests.rs"]
mod values_tests;
