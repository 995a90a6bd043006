//! getsockopt and setsockopt: a row of netchan's table of options is found by level and number, its bytes are read as it says, and what they mean is done.

use std::io::{self, ErrorKind};

use libc::c_int;
use netchan::{
    errno_of,
    socket::{
        Domain, Kind, SocketOption,
        options::{CallerFlag, CallerOption, Get, Row, Set, Setting, Value, find, parse, refusal},
    },
};

use crate::{
    edge::{error, fail},
    socket::{Handle, Kept},
};

/// setsockopt(2).
pub fn set(handle: &Handle, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    if !has_level(handle, level) {
        return fail(libc::ENOPROTOOPT);
    }
    let row = find(level, name);
    let code_for = |kind, code: fn(&Row) -> Option<c_int>| {
        row.filter(|_| handle.socket.kind() == kind).and_then(code)
    };
    if let Some(code) = code_for(Kind::Stream, |row| row.rules.of_streams) {
        return fail(code);
    }
    // As Linux, once it has read the value.
    if let Some(code) = code_for(Kind::Ping, |row| row.rules.of_pings)
        && value.len() >= size_of::<c_int>()
    {
        return fail(code);
    }
    if let Some(Set::Filter(layout)) = row.map(|row| &row.set) {
        return layout.set(&handle.socket, value);
    }
    let setting = parse(level, name, value)?;
    match setting {
        // The first write would have to be another call.
        Setting::Option(SocketOption::FastOpenConnect(_)) => fail(libc::ENOPROTOOPT),
        Setting::Caller(option) => keep(handle, option),
        setting => setting.apply(&handle.socket).map_err(unsupported),
    }
}

/// getsockopt(2): writes to `value`, which may say what is asked for; how many bytes.
pub fn get(handle: &Handle, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<usize> {
    if !has_level(handle, level) {
        return fail(match handle.socket.domain() {
            Domain::V4 => libc::EOPNOTSUPP,
            Domain::V6 => libc::ENOPROTOOPT,
        });
    }
    let Some(row) = find(level, name) else {
        return fail(refusal(level, name));
    };
    let answer = match &row.get {
        // TCP_AO_GET_KEYS has a buffer longer than it says.
        Get::No | Get::Keys => return fail(libc::ENOPROTOOPT),
        Get::Caller(like) => kept(handle, *like).bytes(level, value.len()),
        Get::By(answer) => {
            let answer = answer(&handle.socket).map_err(unsupported)?;
            answer.bytes(level, value.len())
        }
        Get::Within(answer) => answer(&handle.socket, value.len())?,
        Get::Filter(layout) => layout.get(&handle.socket, value)?,
    };
    let count = answer.len().min(value.len());
    value[..count].copy_from_slice(&answer[..count]);
    Ok(count)
}

/// Whether sockets of this kind and family have options of a level.
const fn has_level(handle: &Handle, level: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => matches!(handle.socket.kind(), Kind::Stream),
        libc::SOL_UDP => matches!(handle.socket.kind(), Kind::Datagram),
        libc::IPPROTO_IPV6 => matches!(handle.socket.domain(), Domain::V6),
        _ => true,
    }
}

/// An option that this kind of socket does not have.
fn unsupported(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported if errno_of(&error) != libc::EOPNOTSUPP => {
            self::error(libc::ENOPROTOOPT)
        }
        _ => error,
    }
}

/// Flags that are only kept. The others ask for ancillary data, which no call here has.
fn is_kept(flag: CallerFlag) -> bool {
    matches!(
        flag,
        CallerFlag::NoCheck
            | CallerFlag::PreferBusyPoll
            | CallerFlag::Debug
            | CallerFlag::DontRoute
            | CallerFlag::ThinLinearTimeouts
            | CallerFlag::BindAddressNoPort
    )
}

fn keep(handle: &Handle, option: CallerOption) -> io::Result<()> {
    if let CallerOption::IncomingCpu(cpu) = option {
        let cpu = u16::try_from(cpu).ok();
        handle.socket.set_option(SocketOption::IncomingCpu(cpu))?;
    }
    let mut kept = handle.kept.lock();
    match option {
        CallerOption::ReceiveTimeout(timeout) => kept.receive_timeout = timeout,
        CallerOption::SendTimeout(timeout) => kept.send_timeout = timeout,
        CallerOption::BusyPoll(us) => kept.busy_poll_us = us,
        CallerOption::Priority(priority) => kept.priority = priority,
        CallerOption::IncomingCpu(cpu) => kept.incoming_cpu = Some(cpu),
        CallerOption::Flag(flag, true) if is_kept(flag) => kept.flags |= bit(flag),
        CallerOption::Flag(flag, false) => kept.flags &= !bit(flag),
        CallerOption::Timestamping(0) => {}
        CallerOption::Flag(_, true) | CallerOption::Timestamping(_) => {
            return fail(libc::ENOPROTOOPT);
        }
    }
    Ok(())
}

/// What was kept of the option that `like` names.
fn kept(handle: &Handle, like: CallerOption) -> Value {
    let kept: Kept = *handle.kept.lock();
    let option = match like {
        CallerOption::ReceiveTimeout(_) => CallerOption::ReceiveTimeout(kept.receive_timeout),
        CallerOption::SendTimeout(_) => CallerOption::SendTimeout(kept.send_timeout),
        CallerOption::BusyPoll(_) => CallerOption::BusyPoll(kept.busy_poll_us),
        CallerOption::Priority(_) => CallerOption::Priority(kept.priority),
        CallerOption::Flag(flag, _) => CallerOption::Flag(flag, kept.flags & bit(flag) != 0),
        CallerOption::Timestamping(_) => CallerOption::Timestamping(0),
        CallerOption::IncomingCpu(_) => {
            let shard = handle.socket.incoming_cpu();
            let own = || c_int::try_from(shard?).ok();
            CallerOption::IncomingCpu(kept.incoming_cpu.or_else(own).unwrap_or(-1))
        }
    };
    option.value()
}

const fn bit(flag: CallerFlag) -> u32 {
    1 << flag as u32
}
