//! Options of SOL_SOCKET (socket(7)).

use std::{io, time::Duration};

use libc::{c_int, socklen_t};

use super::super::{
    CallerFlag as Flag, CallerOption, Device, Setting, SocketOption, device,
    row::{ALL, Decides, Get, Row, Set, Value, both, caller, caller_flag, get, option, row, set},
    values::{
        flag, forced, in_range, int, invalid, linger, low_water, rate, receive_buffer, send_buffer,
        timeval, word, zero_or_one,
    },
};
use crate::{
    api::{Domain, Kind},
    errno::fail,
    socket::Socket,
};

#[rustfmt::skip] // a row a line
pub(super) static ROWS: &[Row] = &[
    row(1, "SO_DEBUG", "flag", ALL, caller_flag(Flag::Debug, flag))
        .privileged()
        .note("only kept"),
    row(2, "SO_REUSEADDR", "flag", ALL, option!(ReuseAddress, flag)),
    row(3, "SO_TYPE", "int", ALL, get(kind)),
    row(4, "SO_ERROR", "int", ALL, get(error)),
    row(5, "SO_DONTROUTE", "flag", ALL, caller_flag(Flag::DontRoute, flag)).note("only kept"),
    row(6, "SO_BROADCAST", "flag", ALL, option!(Broadcast, flag)),
    row(7, "SO_SNDBUF", "bytes", ALL, option!(SendBuffer, send_buffer, twice))
        .note("reads twice what was set, as in Linux"),
    row(8, "SO_RCVBUF", "bytes", ALL, option!(ReceiveBuffer, receive_buffer, twice))
        .note("reads twice what was set, as in Linux"),
    row(9, "SO_KEEPALIVE", "flag", ALL, option!(KeepAlive, flag)),
    row(10, "SO_OOBINLINE", "flag", ALL, option!(UrgentInline, flag)),
    row(11, "SO_NO_CHECK", "flag", ALL, caller_flag(Flag::NoCheck, flag)).note("only kept"),
    row(12, "SO_PRIORITY", "int", ALL, caller!(Priority, int, 0))
        .privileged()
        .note("only kept; `IP_TOS` sets it, as in Linux"),
    row(13, "SO_LINGER", "struct linger", ALL, option!(Linger, linger, of_linger)),
    row(15, "SO_REUSEPORT", "flag", ALL, option!(ReusePort, flag)),
    row(18, "SO_RCVLOWAT", "bytes", ALL, option!(ReceiveLowWater, low_water)),
    row(20, "SO_RCVTIMEO_OLD", "struct timeval", ALL, caller!(ReceiveTimeout, timeval, None))
        .note("SO_RCVTIMEO where time_t has 64 bits; reads what was set, where Linux rounds up"),
    row(21, "SO_SNDTIMEO_OLD", "struct timeval", ALL, caller!(SendTimeout, timeval, None))
        .note("SO_SNDTIMEO, likewise"),
    row(25, "SO_BINDTODEVICE", "name", ALL, (Set::To(read_device), Get::Within(device::name_of)))
        .of_any_length()
        .decides(Decides::ByLink)
        .note("names of links; one of the kernel's other interfaces leaves an undecided socket to the kernel"),
    row(29, "SO_TIMESTAMP_OLD", "flag", ALL, caller_flag(Flag::Timestamp, flag))
        .note("SO_TIMESTAMP where time_t has 64 bits"),
    row(30, "SO_ACCEPTCONN", "flag", ALL, get(listens)),
    row(32, "SO_SNDBUFFORCE", "bytes", ALL, set(forced_send_buffer)).note("beyond the limit"),
    row(33, "SO_RCVBUFFORCE", "bytes", ALL, set(forced_receive_buffer)).note("beyond the limit"),
    row(35, "SO_TIMESTAMPNS_OLD", "flag", ALL, caller_flag(Flag::TimestampNs, flag))
        .note("SO_TIMESTAMPNS, likewise"),
    row(36, "SO_MARK", "int", ALL, option!(Mark, word)).note("routes and modules see it"),
    row(37, "SO_TIMESTAMPING_OLD", "flags", ALL, caller!(Timestamping, timestamping, 0))
        .note(
            "SO_TIMESTAMPING: software's times; of a stream's sends without what was sent, as with OPT_TSONLY; of a datagram \
             those of the end of the call, with the packet, whose frame header names no addresses; a send may have flags of its own",
        ),
    row(38, "SO_PROTOCOL", "int", ALL, get(protocol)),
    row(39, "SO_DOMAIN", "int", ALL, get(domain)),
    row(40, "SO_RXQ_OVFL", "flag", ALL, caller_flag(Flag::Drops, flag)).note("of streams only kept"),
    row(46, "SO_BUSY_POLL", "µs", ALL, caller!(BusyPoll, busy_poll, 0))
        .note(
            "how long a call that waits for the socket looks before it sleeps; poll and epoll as long as any of \
             their sockets says, or as `net.core.busy_poll`, where that is set",
        ),
    row(47, "SO_MAX_PACING_RATE", "bytes a second", ALL, option!(PacingRateMax, rate, Value::Rate))
        .note("unsigned int or unsigned long"),
    row(49, "SO_INCOMING_CPU", "int", ALL, caller!(IncomingCpu, int, -1))
        .note(
            "reads what was set, else the shard's number; of sockets that share a port one that names the \
             processor goes first on which the thread runs that takes the packet in",
        ),
    row(55, "SO_MEMINFO", "9 words", ALL, get(memory)),
    row(60, "SO_ZEROCOPY", "flag", "tcp, udp", caller_flag(Flag::ZeroCopy, zero_or_one))
        .refused_by_pings(libc::EOPNOTSUPP)
        .note("sends are copied, and told of as such at once"),
    row(62, "SO_BINDTOIFINDEX", "int", ALL, both(read_index, device::index_of))
        .decides(Decides::ByLink)
        .note("the stack's numbers, from 1"),
    row(69, "SO_PREFER_BUSY_POLL", "flag", ALL, caller_flag(Flag::PreferBusyPoll, flag)).note("only kept"),
    row(70, "SO_BUSY_POLL_BUDGET", "int", ALL, (Set::Ignored(check_budget), Get::No)),
];

fn kind(socket: &Socket) -> io::Result<Value> {
    Ok(Value::Int(match socket.kind() {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Datagram | Kind::Ping => libc::SOCK_DGRAM,
    }))
}

fn protocol(socket: &Socket) -> io::Result<Value> {
    Ok(Value::Int(match (socket.kind(), socket.domain()) {
        (Kind::Stream, _) => libc::IPPROTO_TCP,
        (Kind::Datagram, _) => libc::IPPROTO_UDP,
        (Kind::Ping, Domain::V4) => libc::IPPROTO_ICMP,
        (Kind::Ping, Domain::V6) => libc::IPPROTO_ICMPV6,
    }))
}

fn domain(socket: &Socket) -> io::Result<Value> {
    Ok(Value::Int(match socket.domain() {
        Domain::V4 => libc::AF_INET,
        Domain::V6 => libc::AF_INET6,
    }))
}

/// Reading takes it.
fn error(socket: &Socket) -> io::Result<Value> {
    let error = socket.take_error();
    let errno = error.and_then(|error| error.raw_os_error());
    Ok(Value::Int(errno.unwrap_or(0)))
}

fn listens(socket: &Socket) -> io::Result<Value> {
    Ok(socket.is_listening().into())
}

/// SO_MEMINFO: received and held, most of that, sent and held, most of that, ahead, queued, options', backlog, drops.
fn memory(socket: &Socket) -> io::Result<Value> {
    let size = |option| match socket.option(option) {
        Ok(SocketOption::ReceiveBuffer(bytes) | SocketOption::SendBuffer(bytes)) => bytes,
        _ => 0,
    };
    let mut words = [0; 9];
    words[0] = socket.available();
    words[1] = size(SocketOption::ReceiveBuffer(0));
    words[2] = socket.unacknowledged();
    words[3] = size(SocketOption::SendBuffer(0));
    words[5] = words[2];
    let word = |bytes| socklen_t::try_from(bytes).unwrap_or(socklen_t::MAX);
    let bytes = words
        .into_iter()
        .flat_map(|bytes| word(bytes).to_ne_bytes());
    Ok(Value::Bytes(bytes.collect()))
}

/// Linux doubles what was set, for its own bookkeeping, and programs know it.
fn twice(size: usize) -> Value {
    Value::Int(c_int::try_from(size.saturating_mul(2)).unwrap_or(c_int::MAX))
}

fn forced_send_buffer(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Option(SocketOption::SendBuffer(forced(value)?)))
}

fn forced_receive_buffer(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Option(SocketOption::ReceiveBuffer(forced(value)?)))
}

fn of_linger(time: Option<Duration>) -> Value {
    let seconds = time.map_or(0, |time| {
        c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX)
    });
    let mut bytes = c_int::from(time.is_some()).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&seconds.to_ne_bytes());
    Value::Bytes(bytes)
}

fn read_device(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Device(Device::named(value)))
}

fn read_index(value: &[u8]) -> io::Result<Setting> {
    Device::numbered(int(value)?).map(Setting::Device)
}

fn check_budget(value: &[u8]) -> io::Result<()> {
    in_range(value, 0, c_int::from(u16::MAX)).map(|_| ())
}

/// Flags of SO_TIMESTAMPING: all that Linux 6.12 knows, and none without the one that it depends on.
fn timestamping(value: &[u8]) -> io::Result<u32> {
    const OPT_ID: u32 = 1 << 7;
    const OPT_TSONLY: u32 = 1 << 11;
    const OPT_STATS: u32 = 1 << 12;
    const OPT_ID_TCP: u32 = 1 << 16;
    const KNOWN: u32 = (1 << 18) - 1;
    let flags = word(value)?;
    let lacks = |flag: u32, other: u32| flags & flag != 0 && flags & other == 0;
    if flags & !KNOWN != 0 || lacks(OPT_ID_TCP, OPT_ID) || lacks(OPT_STATS, OPT_TSONLY) {
        return fail(libc::EINVAL);
    }
    Ok(flags)
}

fn busy_poll(value: &[u8]) -> io::Result<u32> {
    u32::try_from(int(value)?).map_err(|_| invalid())
}
