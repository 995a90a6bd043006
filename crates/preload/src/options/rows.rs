//! The table of options: all that docs/socket-options.md says of them, and all that setsockopt(2) and getsockopt(2) do, comes from here.

mod ip;
mod ipv6;
mod socket;
mod tcp;
mod udp;

use std::io;

use libc::c_int;
use netchan::socket::{Discovery, Kind};

use super::row::{Row, Value};
use crate::{errno::fail, setting::unsupported, state::Live, values::invalid};

/// The options of a level.
pub struct Level {
    pub number: c_int,
    #[cfg_attr(not(test), allow(dead_code))] // the page is made of it
    pub name: &'static str,
    pub rows: &'static [Row],
}

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

/// Of options about what datagrams bring: a stream has nothing to tell of it.
const OF_DATAGRAMS: &str = "of streams only kept";

/// IP_MTU and IPV6_MTU.
fn mtu(live: Live<'_>) -> io::Result<Value> {
    if live.state.kind == Kind::Stream {
        return fail(libc::ENOPROTOOPT);
    }
    let mtu = live.socket.path_mtu().map_err(unsupported)?;
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
